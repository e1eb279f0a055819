"""Format the results of :mod:`benchmarks.stops` as tables."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import product
from typing import Any

from benchmarks.cities import CITIES
from benchmarks.tables import csv_figure, csv_flag, figure

REFERENCE = "daf_entropy, nearest"
"""Best mechanism of [shaham2022stops], with m rounded to the nearest integer. The others are compared with it."""

PLAIN = ("random", "sized", "about records")
"""Kinds of queries of ``stops-errors.csv``."""

KINDS = (*PLAIN, "filled")
"""Kinds of queries of every data set. The other kinds are those of maps."""

COUNTS = ("noisy", "whole")
FLOORS = {"thousandth": "N/1000", "one": "1"}

ENDS = {"median": "", "least": "_least", "most": "_most"}
"""Endings of the columns of figures of several runs."""

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
                    "queries": queries,
                    "mechanism": label,
                    "error_ratio_median": csv_figure(statistics.median(ratios)),
                    "error_ratio_geometric_mean": csv_figure(
                        statistics.geometric_mean(ratios) if min(ratios) > 0 else None
                    ),
                    "error_ratio_least": csv_figure(min(ratios)),
                    "error_ratio_most": csv_figure(max(ratios)),
                    "data_sets_answered": str(len(ratios)),
                    "data_sets": str(len(by_case)),
                }
            )
    return lines


def csv_tables(results: Row) -> dict[str, list[Row]]:
    """Return the rows of all CSV files of this benchmark, by name of the file.

    Sizes are those of the measured data sets, and of the large releases at epsilon 1. Cities have a file of their own,
    and so has what the queries ask for.
    """
    every = results["errors"]
    others = {
        "stops-workloads.csv": workloads(every),
        "stops-cities.csv": [_city(row) for row in every if _is_city(row)],
    }
    rows = [row for row in every if row["queries"] in PLAIN and not _is_city(row)]
    ratios = [line for queries in dict.fromkeys(row["queries"] for row in rows) for line in compared(rows, queries)]
    errors = [
        {
            "epsilon": row["epsilon"],
            "queries": row["queries"],
            "counts": counts,
            "floor": FLOORS[floor],
            "data_set": row["case"],
            "mechanism": row["contender"],
            **{f"error_{name}": csv_figure(row[f"{counts}_{floor}{end}"]) for name, end in ENDS.items()},
            "drawn_from_distribution": csv_flag("refused" in row and row[f"{counts}_{floor}"] is not None),
        }
        for row, counts, floor in product(rows, COUNTS, FLOORS)
    ]
    drawn = [row for row in rows if row["queries"] == KINDS[0] and row["contender"] != ANSWER_ZERO]
    sizes = [_size(row) for row in (*drawn, *(row | {"epsilon": "1"} for row in results["scale"]))]
    return {"stops-ratios.csv": ratios, "stops-errors.csv": errors, "stops-sizes.csv": sizes} | others


def _is_city(row: Row) -> bool:
    return row["case"] in CITIES


def _city(row: Row) -> Row:
    """Return the error of a mechanism on the map of a city or the zones of taxis, with the entropy of its boxes."""
    value = {end: csv_figure(row[f"noisy_thousandth{ending}"]) for end, ending in ENDS.items()}
    return {
        "epsilon": row["epsilon"],
        "queries": row["queries"],
        "data_set": row["case"],
        "mechanism": row["contender"],
        **{f"error_{name}": text for name, text in value.items()},
        "boxes": f"{row['boxes']:.0f}" if "boxes" in row else "",
        "bits_of_boxes": f"{row['bits_of_boxes']:.2f}" if "bits_of_boxes" in row else "",
        "seconds": csv_figure(row.get("seconds")),
        "drawn_from_distribution": csv_flag("refused" in row and row["noisy_thousandth"] is not None),
    }


def workloads(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Return what each kind of queries asks for on each data set, and what answers it best, at epsilon 0.1.

    Errors are those of the noisy counts at a floor of N/1000. Without the reference and PrivTree, there is no row.
    """
    asked: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        if row["epsilon"] == "0.1":
            asked.setdefault((row["queries"], row["case"]), {})[row["contender"]] = row
    lines = []
    for (queries, case), by_label in asked.items():
        if not {ANSWER_ZERO, REFERENCE, "privtree"} <= by_label.keys():
            continue
        zero = by_label[ANSWER_ZERO]
        errors = {label: row["noisy_thousandth"] for label, row in by_label.items()}
        grids = [error for label in ("eug", "ebp") if (error := errors.get(label)) is not None]
        lines.append(
            {
                "queries": queries,
                "data_set": case,
                "trips": f"{zero['trips']}",
                "bits_of_cells": f"{zero['bits_of_cells']:.2f}",
                **{
                    name: f"{zero[name]:.3g}"
                    for name in ("empty_percent", "below_thousandth_percent", "median_trips_percent")
                },
                "error_answer_0": csv_figure(errors[ANSWER_ZERO]),
                "error_best_of_eug_and_ebp": csv_figure(min(grids, default=None)),
                "error_daf_entropy_nearest": csv_figure(errors[REFERENCE]),
                "error_privtree": csv_figure(errors["privtree"]),
            }
        )
    return lines


def _size(row: Row) -> Row:
    """Return the boxes, time and memory of a mechanism, which are missing if it refused."""
    memory = row.get("peak_memory_gigabytes")
    return {
        "data_set": row["case"],
        "epsilon": row["epsilon"],
        "mechanism": row["contender"],
        "boxes": f"{row['boxes']:.0f}" if "boxes" in row else "",
        "seconds": csv_figure(row.get("seconds")),
        "memory_gb": "" if memory is None else f"{memory:.2f}",
        "seconds_for_1000_queries": csv_figure(row.get("query_seconds")),
    }


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
