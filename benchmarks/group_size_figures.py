"""Draw the errors of group-size mechanisms by level against epsilon, one figure per data set."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from od_core.evaluation.comparison import MARKS, OTHER_STYLES, STYLE_SHEET, Styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLES: Styles = {
    "sizes": ("#0072B2", "o"),
    "cumulative": ("#E69F00", "s"),
    "bottom_up, cumulative": ("#D55E00", "P"),
    "bottom_up, sizes": ("#009E73", "^"),
    "cumulative_dp": ("#CC79A7", "v"),
    "naive": ("#666666", "D"),
}
"""Colour and mark of the contenders that are drawn. Colour-blind readers can tell the colours apart
[okabe2008colour]."""

OTHER_AND_KNOWN = (*STYLES.values(), *OTHER_STYLES)
"""Styles for any names, in turn."""

FLOOR = 0.1
"""Position of all smaller distances, including 0, because the axis is logarithmic."""


def draw_figures(table: pd.DataFrame, folder: Path) -> list[Path]:
    """Draw one figure per data set, as SVG and as PNG.

    Args:
        table: one row per case, epsilon and contender: case, epsilon (decimal text), contender, level_names, and the
            lists distance, distance_least and distance_most with a value for every level, as ``benchmarks.group_sizes``
            writes them.
        folder: folder of the files; it is created if missing.

    Returns:
        The files, ``<data set>.svg`` and ``<data set>.png``.
    """
    from matplotlib import style

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with style.context(STYLE_SHEET):
        for case, rows in table.groupby("case", sort=False):
            figure = by_epsilon(rows)
            name = str(case).replace(" ", "-")
            paths += [folder / f"{name}.svg", folder / f"{name}.png"]
            figure.savefig(paths[-2], metadata={"Date": None})  # the time of drawing would change the bytes
            figure.savefig(paths[-1], dpi=160, metadata={"Software": None})
    return paths


def by_epsilon(rows: pd.DataFrame) -> Figure:
    """Draw the earth mover's distance per area over epsilon, one panel per level: means, least and most of the runs.

    If a level of a contender has no distance because its totals differ, it has no mark. Marks of one epsilon are drawn
    side by side.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    names = rows["level_names"].iloc[0]
    drawn = _styles(rows)
    figure = Figure(figsize=(2.3 * len(names) + 0.9, 3.6), layout="constrained")
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    epsilons = sorted({str(epsilon) for epsilon in rows["epsilon"]}, key=Fraction)
    for level, (panel, name) in enumerate(zip(axes, names, strict=True)):
        for place, (label, (colour, marker)) in enumerate(drawn.items()):
            some = rows[rows["contender"] == label].sort_values("epsilon", key=lambda column: column.map(Fraction))
            values = [
                np.array([row[level] for row in some[column]], dtype=np.float64)
                for column in ("distance", "distance_least", "distance_most")
            ]
            mean, least, most = (np.maximum(value, FLOOR) for value in values)
            at = some["epsilon"].map(epsilons.index) + (place - (len(drawn) - 1) / 2) * 0.07
            panel.errorbar(at, mean, yerr=np.array([mean - least, most - mean]), color=colour, marker=marker, **MARKS)
        panel.set_yscale("log")
        panel.set_xticks(range(len(epsilons)), epsilons)
        panel.set_xlabel("epsilon")
        panel.set_title(name)
    axes[0].set_ylabel("earth mover's distance an area")
    handles = [
        Line2D([], [], color=colour, marker=marker, markersize=5, linewidth=1, label=label)
        for label, (colour, marker) in drawn.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


TIMED = (
    *("histogram_relaxed", "histogram, as published", "top_down, as published"),
    *("cumulative_relaxed", "cumulative_nearest", "cumulative_dp, as published"),
)
"""Contenders in the figure after figure 8 of [fioretto2019hierarchical]: theirs, as they are published."""

DRAWN = (
    *("histogram_relaxed", "histogram", "top_down", "cumulative_relaxed", "cumulative_nearest", "cumulative_dp"),
    *("cumulative", "bottom_up_posterior, sizes"),
)
"""Contenders in the figure after figure 9 of [fioretto2019hierarchical]: theirs, with all totals, and two others."""


def draw_published(errors: pd.DataFrame, runtime: pd.DataFrame, limit: float, folder: Path) -> list[Path]:
    """Draw figures 7 to 9 of [fioretto2019hierarchical] again, as SVG.

    Args:
        errors: one row per case, epsilon and contender, as ``benchmarks.published_group_sizes`` writes them.
        runtime: one row per mechanism and number of sizes: racer, sizes, seconds (missing after the limit).
        limit: seconds after which a mechanism was stopped. Its mark is there, on a dashed line.
        folder: folder of the files; it is created if missing.

    Returns:
        The files ``fioretto-figure-7.svg`` to ``-9.svg``; those without rows are not drawn.
    """
    from matplotlib import style
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with style.context(STYLE_SHEET):
        if len(runtime):
            figure = Figure(figsize=(6.5, 4.2), layout="constrained")
            names = list(dict.fromkeys(runtime["racer"]))
            panel = figure.subplots()
            panel.axhline(limit, color="#222222", linewidth=0.9, linestyle="--")
            stopped = runtime.assign(seconds=runtime["seconds"].astype(float).fillna(limit))
            _curves(panel, stopped, "sizes", "seconds", "racer", names)
            paths.append(_saved(figure, folder / "fioretto-figure-7.svg", names, "number of sizes N", ["seconds"]))
        if len(errors):
            totals = errors.assign(
                **{metric: [_total(values) for values in errors[metric]] for metric in ("l1", "distance")}
            )
            cases = list(dict.fromkeys(errors["case"]))
            drawings = (
                ("fioretto-figure-8.svg", TIMED, [("seconds_a_run", "seconds")]),
                ("fioretto-figure-9.svg", DRAWN, [("l1", "L1"), ("distance", "earth mover's distance")]),
            )
            for name, drawn, metrics in drawings:
                figure = Figure(figsize=(8, 2.6 * len(metrics) + 1.2), layout="constrained")
                panels = figure.subplots(len(metrics), len(cases), squeeze=False, sharey="row")
                for line, (metric, _) in zip(panels, metrics, strict=True):
                    for panel, case in zip(line, cases, strict=True):
                        _curves(panel, totals[totals["case"] == case], "epsilon", metric, "contender", drawn)
                        panel.set_title(case)
                labels = [label for _, label in metrics for _ in cases]
                paths.append(_saved(figure, folder / name, drawn, "epsilon", labels))
    return paths


def _total(values: list[float | None]) -> float:
    """Return the sum over the levels, which is missing if a level has no value."""
    return float(np.sum(np.array(values, dtype=np.float64)))


def _curves(panel: Axes, rows: pd.DataFrame, along: str, value: str, series: str, names: Sequence[str]) -> None:
    """Draw one line with marks per name of a series, on logarithmic axes of values."""
    for name, (colour, marker) in zip(names, OTHER_AND_KNOWN, strict=False):
        some = rows[rows[series] == name]
        at = some[along].astype(str) if along == "epsilon" else some[along]
        panel.plot(at, some[value].astype(float), color=colour, marker=marker, markersize=4, linewidth=1)
    panel.set_yscale("log")


def _saved(figure: Figure, path: Path, names: Sequence[str], along: str, labels: Sequence[str]) -> Path:
    """Label the axes and the lines of a figure, and write it."""
    from matplotlib.lines import Line2D

    for panel, label in zip(figure.axes, labels, strict=True):
        panel.set_xlabel(along)
        panel.set_ylabel(label)
    handles = [
        Line2D([], [], color=colour, marker=marker, markersize=4, linewidth=1, label=name)
        for name, (colour, marker) in zip(names, OTHER_AND_KNOWN, strict=False)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    figure.savefig(path, metadata={"Date": None})  # the time of drawing would change the bytes
    return path


def _styles(rows: pd.DataFrame) -> Styles:
    """Return the colour and mark of the contenders in the rows. Contenders outside STYLES get other styles in turn."""
    labels = list(dict.fromkeys(rows["contender"]))
    known = {label: style for label, style in STYLES.items() if label in labels}
    new = [label for label in labels if label not in STYLES and not _is_left_out(label)]
    return known | dict(zip(new, OTHER_STYLES, strict=False))


def _is_left_out(label: str) -> bool:
    """Return whether a contender is in the tables only.

    These are variants, and the histograms, which would be drawn at the same place as ``naive``.
    """
    return label.startswith("histogram") or label.endswith(("least squares", "as published"))
