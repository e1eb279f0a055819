"""Draw the figures of a comparison of mechanisms, after [boninsegna2025inftda, Figures 3 to 6].

Marks are medians of the runs, and bars extend from the smallest to the largest value. The same table gives the same
SVG, byte for byte, with the same version of Matplotlib. ``contender`` is the label of a mechanism in the comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from od_core.evaluation.forecast import ALL_SIZES
from od_core.registry import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


STYLES = {
    "inftda": ("#0072B2", "o"),
    "tda_l2": ("#E69F00", "s"),
    "tda_linf": ("#009E73", "^"),
    "vanilla_gauss": ("#666666", "D"),
    "stability_histogram": ("#CC79A7", "v"),
    "inftda_refined": ("#D55E00", "P"),
    "inftda_refined, rho of the others": ("#56B4E9", "X"),
}
"""Colour and mark of each known contender (compared mechanism), by label.

Colour-blind readers can distinguish the colours [okabe2008colour]; the marks serve print without colour."""

OTHER_STYLES = (("#000000", "*"), ("#8C510A", "p"), ("#5E3C99", "h"), ("#A6761D", "8"))

SYNTHETIC = ("binary complete", "binary dense", "binary sparse", "random complete", "random dense", "random sparse")
SPARSE = ("binary sparse", "random sparse")

ERROR, DISCOVERIES, SECONDS = "max_abs_error", "false_discovery_rate", "seconds"
TITLES = {ERROR: "largest error (trips)", DISCOVERIES: "false discovery rate (%)", SECONDS: "time (seconds)"}

BOUNDED = ("inftda", "vanilla_gauss", "stability_histogram")
"""Mechanisms whose error bounds are drawn. The bound of ``inftda`` also holds for ``tda_l2`` and ``tda_linf``."""
BOUND_LABEL = "bounds, probability 0.95"

MARKS: Any = {"markersize": 3.5, "linewidth": 0.9, "elinewidth": 0.9, "capsize": 1.5}

SETTINGS: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "svg.hashsalt": "od-release",
}

BOUND_COLOUR = "#222222"

LEAST_WIDTH, LEGEND_ENTRY = 5.8, 2.9
"""Smallest width of a figure, and width of the longest legend entry, in inches."""

Styles = dict[str, tuple[str, str]]
"""Colour and mark of every compared mechanism in a figure, by label and in the order of the legend."""

Panel = Callable[["Axes", pd.DataFrame, Styles], None]
"""Function that draws the results of one data set and one epsilon on axes."""


def draw_figures(table: pd.DataFrame, folder: Path) -> list[Path]:
    """Draw every figure of a comparison for which the table has data, as SVG and as PNG.

    Args:
        table: the result of :func:`od_core.evaluation.comparison.table`.
        folder: folder of the files; created if it does not exist.

    Returns:
        The paths of the files: ``figure-3-<data set>`` for each data set, ``figure-4-errors``,
        ``figure-5-false-discoveries`` and ``figure-6-times``, each as .svg and .png.
    """
    require("bundle")
    import matplotlib

    folder.mkdir(parents=True, exist_ok=True)
    there = list(dict.fromkeys(table["data_set"]))
    figures: dict[str, Callable[[], Figure]] = {
        f"figure-3-{name.replace(' ', '-')}": partial(figure_3, table, name) for name in there
    }
    if set(there) & set(SYNTHETIC):
        figures |= {
            "figure-4-errors": partial(figure_by_level, table, SYNTHETIC, ERROR),
            "figure-6-times": partial(figure_6, table),
        }
    if set(there) & set(SPARSE):
        figures["figure-5-false-discoveries"] = partial(figure_by_level, table, SPARSE, DISCOVERIES)
    paths = []
    with matplotlib.rc_context(SETTINGS):
        for name, draw in figures.items():
            figure = draw()
            paths += [folder / f"{name}.svg", folder / f"{name}.png"]
            figure.savefig(paths[-2], metadata={"Date": None})  # the date would change the bytes
            figure.savefig(paths[-1], dpi=160, metadata={"Software": None})
    return paths


def figure_3(table: pd.DataFrame, data_set: str) -> Figure:
    """Return the figure of one data set in the table of :func:`draw_figures`, with one column of panels per epsilon.

    The rows of panels have the largest error by level, the false discovery rate by level, and the time of a release.
    """
    rows = table[table["data_set"] == data_set]
    least, most = np.log10([rows["seconds_min"].min(), rows["seconds_max"].max()])
    reach = 10 ** float(np.floor(least)), 10 ** float(np.floor(most) + 1)  # whole decades, since only these have labels
    panels: list[tuple[str, Panel]] = [(TITLES[metric], partial(_by_level, metric)) for metric in (ERROR, DISCOVERIES)]
    panels.append(("", partial(_times_by_contender, reach)))
    return _by_epsilon([(title, rows, panel) for title, panel in panels])


def figure_by_level(table: pd.DataFrame, wanted: Sequence[str], metric: str) -> Figure:
    """Return a figure of one metric by level: figure 4 of the largest errors, or figure 5 of the false discoveries.

    It has one row per wanted data set in the table of :func:`draw_figures`, and one column per epsilon.
    """
    names, panel = _listed(table, wanted), partial(_by_level, metric)
    return _by_epsilon([(f"{name}\n{TITLES[metric]}", table[table["data_set"] == name], panel) for name in names])


def figure_6(table: pd.DataFrame) -> Figure:
    """Return a figure of release times by epsilon for synthetic data sets in the table of :func:`draw_figures`."""
    from matplotlib.figure import Figure

    names = _listed(table, SYNTHETIC)
    styles, columns = _styles(table[table["data_set"].isin(names)]), min(3, len(names))
    lines = -(-len(names) // columns)
    figure = Figure(figsize=(max(2.8 * columns + 0.5, LEAST_WIDTH), 2.2 * lines + 0.8), layout="constrained")
    grid = figure.subplots(lines, columns, sharey=True, squeeze=False)
    for axes in grid.flat[len(names) :]:
        axes.set_visible(False)
    for axes, name in zip(grid.flat, names, strict=False):
        axes.set_title(name)
        _times_by_epsilon(axes, table[table["data_set"] == name], styles)
    for line in grid:
        line[0].set_ylabel(TITLES[SECONDS])
    _legend(figure, styles)
    return figure


def _listed(table: pd.DataFrame, wanted: Sequence[str]) -> list[str]:
    return [name for name in wanted if name in set(table["data_set"])]


def _by_epsilon(lines: Sequence[tuple[str, pd.DataFrame, Panel]]) -> Figure:
    """Return a figure with one row of panels per triple (title, table, panel function), one column per epsilon.

    The panels of a row share the vertical scale.
    """
    from matplotlib.figure import Figure

    styles = _styles(pd.concat([rows for _, rows, _ in lines]))
    epsilons = sorted({epsilon for _, rows, _ in lines for epsilon in rows["epsilon"]}, key=Fraction)
    figure = Figure(figsize=(max(2.7 * len(epsilons) + 0.9, LEAST_WIDTH), 1.9 * len(lines) + 0.9), layout="constrained")
    grid = figure.subplots(len(lines), len(epsilons), sharey="row", squeeze=False)
    for line, (title, rows, panel) in zip(grid, lines, strict=True):
        for axes, epsilon in zip(line, epsilons, strict=True):
            panel(axes, rows[rows["epsilon"] == epsilon], styles)
        line[0].set_ylabel(title)
    for axes, epsilon in zip(grid[0], epsilons, strict=True):
        axes.set_title(f"ε = {epsilon}")
    for above, below in zip(grid[:-1].flat, grid[1:].flat, strict=True):
        if above.get_xlabel() == below.get_xlabel():
            above.set_xlabel("")
    _legend(figure, styles)
    return figure


def _by_level(metric: str, axes: Axes, rows: pd.DataFrame, styles: Styles) -> None:
    """Draw a metric by level on ``axes``. The scale of the largest error is linear up to 1 trip, then logarithmic."""
    for label, shift in _shifts(styles):
        some = rows[rows["contender"] == label].sort_values("level")
        if len(some):
            _mark(axes, styles[label], some, metric, some["level"] + shift)
        if len(some) and metric == ERROR and label in BOUNDED:
            bounds = some.dropna(subset="bound")
            axes.plot(bounds["level"], bounds["bound"], linestyle="--", color=styles[label][0], linewidth=0.9, zorder=1)
    if metric == ERROR:
        axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(bottom=-0.4 if metric == ERROR else -4, top=max(axes.get_ylim()[1], 10))  # do not cut off marks at 0
    last = int(rows["level"].max()) if len(rows) else 0
    axes.set_xticks(range(0, last + 1, 4 if last > 8 else 1))
    axes.set_xlabel("level of the flow tree")


def _times_by_contender(reach: tuple[float, float], axes: Axes, rows: pd.DataFrame, styles: Styles) -> None:
    """Draw the times of releases at one epsilon, one row per mechanism; ``reach`` is the range of the time axis."""
    for place, (label, style) in enumerate(styles.items()):
        some = rows[rows["contender"] == label].head(1)
        if len(some):
            _mark(axes, style, some, SECONDS, [place], across=True)
    axes.set_yticks(range(len(styles)), [label.replace(", ", ",\n") for label in styles], fontsize=7.5)
    axes.set_ylim(len(styles) - 0.5, -0.5)
    axes.set_xscale("log")
    axes.set_xlim(*reach)
    axes.xaxis.set_minor_formatter("")
    axes.set_xlabel(TITLES[SECONDS])


def _times_by_epsilon(axes: Axes, rows: pd.DataFrame, styles: Styles) -> None:
    """Draw the times of releases of one data set by epsilon on ``axes``."""
    epsilons = sorted(set(rows["epsilon"]), key=Fraction)
    for label, shift in _shifts(styles):
        some = rows[rows["contender"] == label].drop_duplicates("epsilon")
        if len(some):
            place = some["epsilon"].map(epsilons.index) + 1.5 * shift
            _mark(axes, styles[label], some, SECONDS, place, linestyle="none")
    axes.set_yscale("log")
    axes.set_xticks(range(len(epsilons)), [f"ε = {epsilon}" for epsilon in epsilons])
    axes.grid(visible=False, axis="x")


def _mark(
    axes: Axes,
    style: tuple[str, str],
    rows: pd.DataFrame,
    metric: str,
    place: Any,
    *,
    across: bool = False,
    **line: Any,
) -> None:
    """Draw the medians of a metric with their bars at some places, upwards or, if ``across``, to the right."""
    factor = 100 if metric == DISCOVERIES else 1
    median, least, most = (factor * rows[f"{metric}_{name}"].to_numpy(dtype=float) for name in ("median", "min", "max"))
    line |= {"xerr" if across else "yerr": np.array([median - least, most - median])}
    x, y = (median, place) if across else (place, median)
    axes.errorbar(x, y, color=style[0], marker=style[1], **line, **MARKS)


def _shifts(styles: Styles) -> Iterator[tuple[str, float]]:
    """Yield the label and the horizontal offset of each mechanism, so that bars do not cover each other."""
    middle = (len(styles) - 1) / 2
    for place, label in enumerate(styles):
        yield label, (place - middle) * 0.08


def _legend(figure: Figure, styles: Styles) -> None:
    """Draw one legend below all panels, with an entry for bounds if a bound is drawn."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=colour, marker=marker, markersize=5, linewidth=1, label=label)
        for label, (colour, marker) in styles.items()
    ]
    if any(line.get_linestyle() == "--" and np.size(line.get_xdata()) for axes in figure.axes for line in axes.lines):
        handles.append(Line2D([], [], color=BOUND_COLOUR, linestyle="--", linewidth=1.1, label=BOUND_LABEL))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(3, int(figure.get_figwidth() // LEGEND_ENTRY)))


def _styles(rows: pd.DataFrame) -> Styles:
    """Return colour and mark of every mechanism in the rows, by label: those in ``STYLES`` first, then all others."""
    labels = list(dict.fromkeys(rows["contender"]))
    known = {label: style for label, style in STYLES.items() if label in labels}
    return known | dict(zip([label for label in labels if label not in STYLES], cycle(OTHER_STYLES), strict=False))


def draw_forecast(errors: pd.DataFrame, path: Path) -> None:
    """Write an SVG figure of the forecast mean absolute error of each level against epsilon, on logarithmic axes.

    The same errors give the same bytes.

    Args:
        errors: table with the columns epsilon, declared (true for the declared epsilon, marked by a dotted line), and
            those of :func:`od_core.evaluation.forecast.forecast`.
        path: path of the SVG file.
    """
    import matplotlib
    from matplotlib.figure import Figure

    shown = errors[(errors["size_class"] == ALL_SIZES) & (errors["mean_abs_error"] > 0)]
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(6.5, 4.0), layout="constrained")
        axes = figure.subplots()
        colours = matplotlib.colormaps["viridis"]
        levels = shown["level"].drop_duplicates().to_list()
        for number, level in enumerate(levels):
            rows = shown[shown["level"] == level]
            label = f"{level}: {rows['origin_level'].iloc[0]} to {rows['destination_level'].iloc[0]}"
            colour = colours(0.9 * number / max(len(levels) - 1, 1))
            axes.plot(rows["epsilon"], rows["mean_abs_error"], marker="o", markersize=3.5, color=colour, label=label)
        for epsilon in errors.loc[errors["declared"], "epsilon"].unique():
            axes.axvline(epsilon, color="#222222", linewidth=0.8, linestyle=":")
        axes.set(xscale="log", yscale="log", xlabel="epsilon (dotted: declared)", ylabel="mean absolute error (trips)")
        if levels:
            figure.legend(loc="outside right upper", title="level")
        figure.savefig(path, metadata={"Date": None})
