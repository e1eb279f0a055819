"""Draw the charts of the measured results from their CSV files.

    .venv/bin/python docs/charts.py

The same files give the same SVG, byte for byte, with the same version of Matplotlib.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from od_core.evaluation.comparison import MARKS, OTHER_STYLES, STYLE_SHEET, STYLES, Styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TABLES = Path(__file__).parent / "reference" / "tables"
FIGURES = Path(__file__).parent / "figures" / "tables"

LINE_HEIGHT = 0.27
"""Height of one row of marks, in inches."""


def read(name: str) -> pd.DataFrame:
    """Return a file of measured results; epsilons and levels are text."""
    return pd.read_csv(TABLES / name, dtype={"epsilon": str, "level": str})


def gains() -> Figure:
    """Return the maximum errors and the total errors of the variants of the estimator, relative to the paper's."""
    rows = read("estimator-gains.csv")
    titles = {("max_error_ratio", "mean"): "max error", ("total_error_ratio", "leaves"): "total error of the leaves"}
    chosen = [
        (title, rows[(rows["quantity"] == quantity) & (rows["level"] == level)])
        for (quantity, level), title in titles.items()
    ]
    return _by_epsilon(chosen, "variant", "data_set", ["value"], 1, "ratio to the paper's")


def published_methods() -> Figure:
    """Return the changes of errors and of false discoveries from ``refined`` to other estimates."""
    rows = read("estimator-published-methods.csv")
    discoveries = rows["false_discoveries_percent"] - rows["refined_false_discoveries_percent"]
    chosen = {
        "total error of the leaves, %": rows["total_error_change_percent"],
        "max error, %": rows["max_error_change_percent"],
        "false discoveries, points": discoveries,
    }
    lines = [(title, rows.assign(value=values)) for title, values in chosen.items()]
    return _by_epsilon(lines, "variant", "data_set", ["value"], 0, "change")


def posterior() -> Figure:
    """Return the distances of posterior means relative to the best published mechanism, one mark for each level."""
    rows = read("group-sizes-posterior.csv")
    names = {
        "bottom_up_posterior_ratio": "bottom_up_posterior, cumulative",
        "bottom_up_posterior_sizes_ratio": "bottom_up_posterior, sizes",
        "sizes_posterior_ratio": "sizes_posterior",
    }
    long = rows.melt(["data_set", "epsilon", "level"], list(names), "mechanism")
    long["mechanism"] = long["mechanism"].map(names)
    lines = [("", long)]
    return _by_epsilon(lines, "mechanism", "data_set", ["value"], 1, "ratio to the best published mechanism", log=True)


def kuo() -> Figure:
    """Return the distances of the mechanisms of Kuo et al. relative to their omniscient line, by level."""
    rows = read("group-sizes-kuo.csv")
    rows = rows[rows["mechanism"] != "naive"].assign(
        value=rows["distance"] / rows["omniscient"],
        place=rows["data_set"] + ": " + rows["level_name"],
        mechanism=rows["mechanism"].str.replace(r"^(H_.)( x \1)+,", r"\1 at all levels,", regex=True),
    )
    return _by_epsilon([("", rows)], "mechanism", "place", ["value"], 1, "distance / omniscient line", log=True)


def by_size() -> Figure:
    """Return which part of the distance of an area is at which sizes, for both queries."""
    from matplotlib.figure import Figure

    rows = read("group-sizes-by-size.csv")
    styles, sizes = _styles(rows["query"]), sorted(set(rows["from_size"]))
    epsilons = list(dict.fromkeys(rows["epsilon"]))
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    for axes, epsilon in zip(figure.subplots(1, len(epsilons), sharey=True), epsilons, strict=True):
        for query, (colour, marker) in styles.items():
            some = rows[(rows["query"] == query) & (rows["epsilon"] == epsilon)]
            axes.plot(some["from_size"].map(sizes.index), some["distance"], marker, color=colour, linestyle="-")
        axes.set_xticks(range(len(sizes)), [f"{size:,}" for size in sizes], rotation=60)
        axes.set_yscale("symlog", linthresh=1)
        axes.set_xlabel("least size of a class")
        axes.set_title(f"epsilon {epsilon}")
    figure.axes[0].set_ylabel("part of the distance")
    _legend(figure, styles)
    return figure


def stops() -> Figure:
    """Return the errors of the mechanisms of trips with stops relative to the paper's best, by kind of queries."""
    rows = read("stops-ratios.csv")
    rows = rows.rename(columns={"queries": "epsilon", "error_ratio_median": "value"}).assign(what="median")
    ends = ["value", "error_ratio_least", "error_ratio_most"]
    return _by_epsilon(
        [("", rows)],
        "what",
        "mechanism",
        ends,
        1,
        "error over that of daf_entropy, nearest",
        log=True,
        title="{} queries",
    )


CLOUDS = {"gaussian": "standard deviation", "zipf": "a"}
"""What a parameter of a synthetic cloud is."""


def cloud(kind: str, epsilons: Sequence[str]) -> Figure:
    """Return the errors of random queries on clouds [shaham2022stops, figures 4 and 5], a line for each dimension."""
    rows = read("stops-errors.csv")
    is_chosen = (rows["queries"] == "random") & (rows["counts"] == "noisy") & (rows["floor"] == "N/1000")
    rows = rows[is_chosen & rows["epsilon"].isin(epsilons) & rows["data_set"].str.startswith(kind)]
    named = rows["data_set"].str.extract(r"(?P<shape>[0-9.]+), (?P<line>.*)")
    rows = rows.assign(shape=CLOUDS[kind] + " " + named["shape"], line=named["line"])
    lines = [(line, rows[rows["line"] == line]) for line in dict.fromkeys(rows["line"])]
    return _by_epsilon(lines, "shape", "mechanism", ["error_median"], 1, "mean relative error", log=True)


COVERED = ("random", "1 % of each side", "5 % of each side", "10 % of each side")


def maps() -> Figure:
    """Return the errors on maps of cities by coverage of the queries [shaham2022stops, figure 6]."""
    rows = _cities("2 dimensions")
    rows = rows[(rows["epsilon"] == "0.1") & rows["queries"].isin(COVERED)].assign(epsilon=rows["queries"])
    return _by_epsilon(
        [("", rows)], "city", "mechanism", ["error_median"], 1, "mean relative error", log=True, title="{}"
    )


def cities(dimensions: str, kinds: Sequence[str], without: Sequence[str] = ()) -> Figure:
    """Return the errors on maps of cities by epsilon [shaham2022stops, figures 7 and 8], a line for each kind."""
    rows = _cities(dimensions)
    rows = rows[~rows["mechanism"].isin(without)]
    lines = [(kind, rows[rows["queries"] == kind]) for kind in kinds]
    return _by_epsilon(lines, "city", "mechanism", ["error_median"], 1, "mean relative error", log=not without)


def _cities(dimensions: str) -> pd.DataFrame:
    """Return the errors on cities, with the name of the city alone."""
    rows = read("stops-cities.csv")
    rows = rows[rows["data_set"].str.endswith(dimensions) & ~rows["data_set"].str.startswith("taxi")]
    return rows.assign(city=rows["data_set"].str.removesuffix(f", {dimensions}"))


def coverage() -> Figure:
    """Return the coverage of intervals by true size, one mark for each pair of levels with at least 1,000 cells."""
    from matplotlib.figure import Figure

    rows = read("intervals.csv")
    rows = rows[~rows["fewer_than_1000_cells"]]
    styles = _styles(rows["variant"])
    sizes = ["0", "1-9", "10-99", "100-999", "1000+"]
    names = list(dict.fromkeys(rows["data_set"]))
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names), sharey=True), names, strict=True):
        for shift, (variant, (colour, marker)) in zip((-0.15, 0.15), styles.items(), strict=True):
            some = rows[(rows["data_set"] == name) & (rows["variant"] == variant)]
            place = some["true_trips"].map(sizes.index).astype(float) + shift
            axes.plot(place, some["covered_percent"], marker, color=colour, markersize=3, fillstyle="none")
        axes.axhline(90, color="#222222", linewidth=0.9, linestyle="--")
        axes.set_xticks(range(len(sizes)), sizes, rotation=30)
        axes.set_xlim(-0.5, len(sizes) - 0.5)
        axes.set_xlabel("true trips of a cell")
        axes.set_title(name)
    figure.axes[0].set_ylabel("covered (%)")
    _legend(figure, styles)
    return figure


CHARTS: dict[str, Callable[[], Figure]] = {
    "estimator-gains": gains,
    "estimator-published-methods": published_methods,
    "intervals": coverage,
    "group-sizes-posterior": posterior,
    "group-sizes-kuo": kuo,
    "group-sizes-by-size": by_size,
    "stops-ratios": stops,
    "stops-figure-4": partial(cloud, "gaussian", ("0.1", "0.3", "0.5")),
    "stops-figure-5": partial(cloud, "zipf", ("0.1",)),
    "stops-figure-6": maps,
    "stops-figure-7": partial(cities, "2 dimensions", ("random",), ("identity", "mkm", "uniform", "answer 0")),
    "stops-figure-8": partial(cities, "4 dimensions", ("random", "filled")),
}


def _by_epsilon(
    lines: Sequence[tuple[str, pd.DataFrame]],
    series: str,
    along: str,
    ends: Sequence[str],
    neutral: float,
    label: str,
    *,
    log: bool = False,
    title: str = "epsilon {}",
) -> Figure:
    """Return a figure with one line of panels per pair (title, rows), and one column of panels per epsilon.

    Each panel has one row of marks per value of ``along``, and one style of marks per value of ``series``. ``ends`` are
    the columns of the marks and, if there are three, of the two ends of their bars.
    """
    from matplotlib.figure import Figure

    every = pd.concat([rows for _, rows in lines])
    styles, places = _styles(every[series]), list(dict.fromkeys(every[along]))
    epsilons = list(dict.fromkeys(every["epsilon"]))
    if all(epsilon.replace(".", "").isdigit() for epsilon in epsilons):
        epsilons.sort(key=Fraction)
    size = (9, len(lines) * (LINE_HEIGHT * len(places) + 0.6) + 0.9)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(lines), len(epsilons), sharey=True, sharex="row", squeeze=False)
    for line, (panels, (name, rows)) in enumerate(zip(grid, lines, strict=True)):
        for axes, epsilon in zip(panels, epsilons, strict=True):
            for number, (text, style) in enumerate(styles.items()):
                some = rows[(rows["epsilon"] == epsilon) & (rows[series] == text)]
                shift = (number - (len(styles) - 1) / 2) * 0.7 / len(styles)
                _mark(axes, some, ends, some[along].map(places.index).astype(float) + shift, style)
            axes.axvline(neutral, color="#222222", linewidth=0.9, linestyle="--")
            axes.set_yticks(range(len(places)), places)
            axes.set_ylim(len(places) - 0.5, -0.5)
            axes.set_xlabel(label if line == len(lines) - 1 else "")
            if log:
                axes.set_xscale("log")
                axes.xaxis.set_major_formatter("{x:,g}")
            if line == 0:
                axes.set_title(title.format(epsilon))
        panels[0].set_ylabel(name)
    _legend(figure, styles)
    return figure


def _mark(axes: Axes, rows: pd.DataFrame, ends: Sequence[str], place: Any, style: tuple[str, str]) -> None:
    """Draw the marks of some rows at their places, with bars if ``ends`` has the columns of both."""
    value, *others = (rows[column].to_numpy(dtype=float) for column in ends)
    bars: Any = {"xerr": np.array([value - others[0], others[1] - value])} if others else {}
    axes.errorbar(value, place, color=style[0], marker=style[1], linestyle="none", **bars, **MARKS)


def _styles(labels: pd.Series) -> Styles:
    """Return a colour and a mark for each label."""
    marks = (*STYLES.values(), *OTHER_STYLES)
    return dict(zip(dict.fromkeys(labels), cycle(marks), strict=False))


def _legend(figure: Figure, styles: Styles) -> None:
    """Draw one legend below all panels, unless there is a single style."""
    from matplotlib.lines import Line2D

    if len(styles) > 1:
        handles = [
            Line2D([], [], color=colour, marker=marker, markersize=5, linestyle="none", label=label)
            for label, (colour, marker) in styles.items()
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=4)


def draw(folder: Path) -> list[Path]:
    """Draw every chart as SVG into a folder, and return the paths of the files."""
    from matplotlib import style

    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.svg" for name in CHARTS]
    with style.context(STYLE_SHEET):
        for path, chart in zip(paths, CHARTS.values(), strict=True):
            chart().savefig(path, metadata={"Date": None})  # the date would change the bytes
    return paths


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else FIGURES)
