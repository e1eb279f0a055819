"""The figures of a comparison: no value is cut off, and a legend names all that is drawn."""

import functools
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from od_core.evaluation import comparison

LABELS = [contender.label for contender in comparison.CONTENDERS]


@functools.cache
def whole_table() -> pd.DataFrame:
    """A table of distinct numbers: the median of a figure tells which row it is of. Not to be changed."""
    rows = []
    for number, (data_set, label, epsilon) in enumerate(
        product(("italy", *comparison.SYNTHETIC), LABELS, ("0.1", "1", "10"))
    ):
        for level in range(5):
            row = {"data_set": data_set, "contender": label, "epsilon": epsilon, "level": level, "runs": 5, "rho": "1"}
            row["bound"] = 10_000.0 * (level + 1) + number if label in comparison.BOUNDED else np.nan
            for figure in (*comparison.METRICS, *comparison.MEASURED):
                middle = (number * 10 + level + 1) / (1 if "error" in figure else 1000)
                row |= {f"{figure}_median": middle, f"{figure}_min": middle * 0.9, f"{figure}_max": middle * 1.2}
            rows.append(row)
    return pd.DataFrame(rows)


@functools.cache
def whole_figure(draw, *data_set: str) -> Figure:
    """A figure of the table of everything. Not to be changed."""
    return draw(whole_table(), *data_set)


def drawn(axes) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Medians, least and most of every contender, by its colour and mark."""
    by_style = {style: label for label, style in comparison.STYLES.items()}
    found = {}
    for container in axes.containers:
        line, _, (bars,) = container.lines
        label = by_style[line.get_color(), line.get_marker()]
        found[label] = line.get_ydata(), *np.array([segment[:, 1] for segment in bars.get_segments()]).T
    return found


def test_no_panel_cuts_off_a_value():
    """Panels of a line share their scale, also where the last of them has the largest values."""
    for panel in whole_figure(comparison.make_figure_3, "italy").axes[:6]:
        lowest, highest = panel.get_ylim()
        for median, least, most in drawn(panel).values():
            assert lowest < least.min() <= median.min()
            assert highest > most.max()


def test_one_legend_names_every_contender_and_the_bound():
    for figure, extra in (
        (whole_figure(comparison.make_figure_3, "italy"), [comparison.BOUND_LABEL]),
        (whole_figure(comparison.make_figure_6), []),
    ):
        (legend,) = figure.legends
        assert [text.get_text() for text in legend.get_texts()] == [*LABELS, *extra]
        assert not any(axes.get_legend() for axes in figure.axes)
