"""Format the results of :mod:`benchmarks.stops` as tables."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import product
from typing import Any

from benchmarks.tables import figure, markdown_table

REFERENCE = "daf_entropy, nearest"
"""Best mechanism of [shaham2022stops], with m rounded to the nearest integer. The others are compared with it."""

KINDS = ("random", "sized", "about records")
COUNTS = ("noisy", "whole")
FLOORS = {"thousandth": "N/1000", "one": "1"}

ANSWER_ZERO = "answer 0"

Row = dict[str, Any]


def compared(rows: Sequence[Row], queries: str) -> list[dict[str, str]]:
    """Compare the errors of mechanisms with those of the reference, for the noisy counts in 4 and 6 dimensions.

    The errors are those at epsilon 0.1 and floor N/1000. Their ratios are summarised over the data sets by median,
    geometric mean, least and most. Data sets on which one of the two has no answer are left out, and the number of the
    others is given.
    """
    by_case: dict[str, dict[str, float | None]] = {}
    for row in rows:
        if (row["epsilon"], row["queries"]) == ("0.1", queries) and "2 dimensions" not in row["case"]:
            by_case.setdefault(row["case"], {})[row["contender"]] = row["noisy_thousandth"]
    lines = []
    for label in dict.fromkeys(row["contender"] for row in rows):
        pairs = [(errors.get(label), errors.get(REFERENCE)) for errors in by_case.values()]
        ratios = [mine / reference for mine, reference in pairs if mine is not None and reference]
        if ratios and label != REFERENCE:
            lines.append(
                {
                    "mechanism": label,
                    f"error over that of {REFERENCE}, median": figure(statistics.median(ratios)),
                    "geometric mean": figure(statistics.geometric_mean(ratios)) if min(ratios) > 0 else "-",
                    "least..most": f"{figure(min(ratios))}..{figure(max(ratios))}",
                    "data sets": f"{len(ratios)} of {len(by_case)}",
                }
            )
    return lines


def markdown(results: Row) -> str:
    """Return tables of the comparison, of all errors, and of boxes and times."""
    rows, text = results["errors"], []
    for queries in dict.fromkeys(row["queries"] for row in rows):
        if lines := compared(rows, queries):
            text += [f"### Against the paper's best: {queries} queries", "", *markdown_table(lines)]
    epsilons = list(dict.fromkeys(row["epsilon"] for row in rows))
    for epsilon, queries, counts, floor in product(epsilons, KINDS, COUNTS, FLOORS):
        headline = (queries, floor) == (KINDS[0], "thousandth")
        if not headline and epsilon != epsilons[0]:
            continue  # all kinds of figures are shown at one epsilon only
        some = _chosen(rows, epsilon, queries)
        cells = [_error(row, f"{counts}_{floor}", spread=headline and counts == "noisy") for row in some]
        text += [f"### Epsilon {epsilon}, {queries} queries, {counts} counts, floor {FLOORS[floor]}", ""]
        text += markdown_table(_by_case(some, cells))
    for name, cell in (("Boxes", _boxes), ("Seconds", _seconds)):
        some = [row for row in _chosen(rows, epsilons[0], KINDS[0]) if row["contender"] != ANSWER_ZERO] if rows else []
        if some:
            text += [f"### {name} at epsilon {epsilons[0]}", "", *markdown_table(_by_case(some, list(map(cell, some))))]
    if results["scale"]:
        text += ["### Large releases", "", *markdown_table(_scale_line(row) for row in results["scale"])]
    return "\n".join(text)


def _chosen(rows: Sequence[Row], epsilon: str, queries: str) -> list[Row]:
    return [row for row in rows if (row["epsilon"], row["queries"]) == (epsilon, queries)]


def _by_case(rows: Sequence[Row], cells: Sequence[str]) -> list[dict[str, str]]:
    """Return one line per data set, with one column per mechanism."""
    lines: dict[str, dict[str, str]] = {}
    for row, cell in zip(rows, cells, strict=True):
        lines.setdefault(row["case"], {"data set": row["case"]})[row["contender"]] = cell
    heads = list(dict.fromkeys(head for line in lines.values() for head in line))
    return [{head: line.get(head, "-") for head in heads} for line in lines.values()]


def _error(row: Row, column: str, *, spread: bool) -> str:
    """Return the median, with a star if the mechanism refused, and on request with the least and most."""
    value = row[column]
    if value is None:
        return "-"
    text = figure(value) + ("*" if "refused" in row else "")
    if spread and row["runs"] > 1:
        text += f" ({figure(row[f'{column}_least'])}..{figure(row[f'{column}_most'])})"
    return text


def _boxes(row: Row) -> str:
    return f"{row['boxes']:,.0f}" if "boxes" in row else "-"


def _seconds(row: Row) -> str:
    return figure(row.get("seconds"))


def _scale_line(row: Row) -> dict[str, str]:
    memory = row.get("peak_memory_gigabytes")
    return {
        "data": row["case"],
        "mechanism": row["contender"],
        "boxes": _boxes(row),
        "seconds": _seconds(row),
        "GB": "-" if memory is None else f"{memory:.2f}",
        "seconds for 1,000 queries": figure(row.get("query_seconds")),
    }


def in_short(results: Row) -> Row:
    """Return the medians of the noisy counts at floor N/1000, for a terminal."""
    lines = [
        {
            "data set": row["case"],
            "epsilon": row["epsilon"],
            "queries": row["queries"],
            "mechanism": row["contender"],
            "error": _error(row, "noisy_thousandth", spread=True),
            "whole": _error(row, "whole_thousandth", spread=False),
            "boxes": _boxes(row),
            "seconds": _seconds(row),
        }
        for row in results["errors"]
    ]
    return {"machine": results["machine"], "scale": results["scale"], "errors": lines}
