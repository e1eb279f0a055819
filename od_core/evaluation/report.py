"""Write the tables of a comparison of mechanisms as Markdown, for inclusion in a document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pandas as pd

from od_core.evaluation.known_flows import KnownFlows

LEAVES = ("mean_abs_error", "false_discovery_rate", "false_negative_rate", "seconds", "peak_memory_gigabytes")
HEADINGS = {
    "mean_abs_error": "mean error",
    "false_discovery_rate": "false discoveries, %",
    "false_negative_rate": "false negatives, %",
    "seconds": "seconds",
    "peak_memory_gigabytes": "memory, GB",
}
PERCENT = ("false_discovery_rate", "false_negative_rate")
NOTHING = "-"


def data_sets_markdown(data_sets: Iterable[KnownFlows]) -> str:
    """Return a Markdown table of the data sets of a comparison, as in [boninsegna2025inftda, Table 1].

    It has one line per data set: name, marking (public or synthetic), numbers of trips, of pairs of zones with trips
    and of all pairs of zones, and T, the number of levels of the flow tree below the root.
    """
    lines = [
        [
            data.name,
            data.marking,
            _number(data.trips.total),
            _number(len(data.trips.rank)),
            _number(data.truth.tree.cells(data.truth.tree.depth)),
            str(data.truth.tree.depth),
        ]
        for data in data_sets
    ]
    return "\n".join(_markdown(["data set", "marked", "trips", "pairs with trips", "public pairs", "levels"], lines))


def comparison_markdown(table: pd.DataFrame) -> str:
    """Return Markdown with a heading and two tables for each data set and epsilon of a comparison of mechanisms.

    The first table has the largest absolute error, in trips: one line per level, one column per contender (compared
    mechanism). The second has one line per contender: mean error and rates at the leaves, time, memory, number of runs,
    and the spent rho. The cells are "median (min-max)" of the runs.

    Args:
        table: the result of :func:`od_core.evaluation.comparison.table`.
    """
    text = []
    for (data_set, epsilon), rows in table.groupby(["data_set", "epsilon"], sort=False):
        text += [f"### {data_set}, epsilon {epsilon}", "", *_errors_by_level(rows), "", *_at_the_leaves(rows), ""]
    return "\n".join(text)


def published_markdown() -> str:
    """Return a Markdown table of the published results on Italian commuters [boninsegna2025inftda].

    Each line has one result: largest absolute error by level, rates at the leaves, and seconds; all are medians. The
    top-down runs spent half of the rho that the paper states, so none of our results at the whole rho stands beside.
    """
    head = ["epsilon", "mechanism", "largest error by level", "false discoveries, %", "false negatives, %", "seconds"]
    return "\n".join(_markdown(head, list(map(_published_line, PUBLISHED))))


def _errors_by_level(rows: pd.DataFrame) -> list[str]:
    contenders = list(dict.fromkeys(rows["contender"]))
    lines = []
    for level, some in rows.groupby("level"):
        cells = {row["contender"]: _spread(row, "max_abs_error") for _, row in some.iterrows()}
        lines.append([str(level), *(cells.get(contender, NOTHING) for contender in contenders)])
    return _markdown(["level", *contenders], lines)


def _at_the_leaves(rows: pd.DataFrame) -> list[str]:
    leaves = rows[rows["level"] == rows["level"].max()]
    lines = [
        [row["contender"], *(_spread(row, figure) for figure in LEAVES), str(row["runs"]), _rho(row["rho"])]
        for _, row in leaves.iterrows()
    ]
    return _markdown(["mechanism", *(HEADINGS[figure] for figure in LEAVES), "runs", "rho"], lines)


def _published_line(result: PublishedResult) -> list[str]:
    errors = " ".join(_number(error) for error in result.max_abs_error)
    rates = [f"{result.false_discovery_rate:.1f}", f"{result.false_negative_rate:.1f}"]
    return [result.epsilon, result.contender, errors, *rates, _number(result.seconds)]


def _spread(row: Any, figure: str) -> str:
    """Return ``median (min-max)``, the median alone if all three have the same text, or ``-`` if they are missing."""
    factor = 100 if figure in PERCENT else 1
    if pd.isna(row[f"{figure}_median"]):
        return NOTHING
    write = _rate if figure in PERCENT else _number
    median, least, most = (write(factor * row[f"{figure}_{name}"]) for name in ("median", "min", "max"))
    return median if median == least == most else f"{median} ({least}-{most})"


def _rho(rho: Any) -> str:
    """Return rho, given as exact text, with four significant digits; ``-`` if there is none."""
    return f"{float(Fraction(rho)):.4g}" if isinstance(rho, str) else NOTHING


def _rate(percent: float) -> str:
    return f"{percent:.1f}"


def _number(value: float) -> str:
    """Return a number as text: rounded to an integer if whole or at least 100, else with three significant digits."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *lines)]


SOURCE = "https://github.com/aidaLabDEI/TDA_hierarchical"
"""Address of the code and results of [boninsegna2025inftda]; :data:`PUBLISHED` has these results.

They are medians of five runs on the Italian commuters of 2011, with delta 1e-8, on 8 cores of an Intel Xeon W-2245. The
top-down runs spent half of the stated rho, and the errors leave out false positives and false negatives."""

ITALY = "italy"
"""Name of our synthetic data set with the numbers of zones and trips of the published data. Compare magnitudes only."""


@dataclass(frozen=True)
class PublishedResult:
    """The result of one mechanism at one epsilon that the authors of [boninsegna2025inftda] published.

    Attributes:
        epsilon: the epsilon, as decimal text.
        contender: label of the mechanism in our comparison.
        seconds: run time in seconds.
        max_abs_error: largest absolute error, in trips, at levels 0 to 6.
        false_discovery_rate, false_negative_rate: rates at the leaves, in percent.
    """

    epsilon: str
    contender: str
    seconds: int
    max_abs_error: tuple[int, ...]
    false_discovery_rate: float
    false_negative_rate: float


PUBLISHED = (
    PublishedResult("0.1", "inftda", 573, (0, 688, 771, 881, 943, 1262, 1371), 36.2, 96.5),
    PublishedResult("0.1", "tda_l2", 1032, (0, 661, 783, 830, 907, 1187, 1263), 48.7, 91.2),
    PublishedResult("0.1", "tda_linf", 733, (0, 642, 1361, 1185, 1232, 1857, 1959), 45.7, 95.9),
    PublishedResult(
        "0.1", "stability_histogram", 22, (6961102, 2039601, 1939331, 476394, 227054, 14562, 333), 0.0, 97.5
    ),
    PublishedResult("1", "inftda", 1139, (0, 52, 98, 98, 99, 126, 143), 30.1, 85.8),
    PublishedResult("1", "tda_l2", 2008, (0, 58, 85, 95, 100, 129, 144), 49.5, 73.4),
    PublishedResult("1", "tda_linf", 1465, (0, 49, 127, 124, 128, 202, 215), 42.9, 84.7),
    PublishedResult("1", "stability_histogram", 24, (2287453, 752063, 694079, 156784, 73834, 1435, 36), 0.0, 86.8),
    PublishedResult("10", "inftda", 1908, (0, 6, 11, 12, 13, 16, 18), 23.2, 57.8),
    PublishedResult("10", "tda_l2", 3006, (0, 8, 10, 11, 12, 14, 17), 44.1, 42.1),
    PublishedResult("10", "tda_linf", 2565, (0, 7, 15, 14, 15, 22, 26), 43.1, 57.6),
    PublishedResult("10", "stability_histogram", 25, (605046, 203136, 179586, 35367, 18194, 202, 5), 0.0, 55.9),
)

BINARY_COMPLETE = (0, 30, 39, 67, 77, 100, 118, 113, 126, 131, 140, 146, 152, 146, 148, 148, 137)
"""Published median of InfTDA's largest absolute error on the complete binary data set at epsilon 1, levels 0 to 16."""
