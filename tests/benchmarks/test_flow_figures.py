"""The figures of a comparison: what stands in them, and that the same table gives the same bytes."""

from __future__ import annotations

import functools
import hashlib
import subprocess
import sys
from itertools import product

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from od_core.evaluation.comparison import (
    BOUND_LABEL,
    BOUNDED,
    CONTENDERS,
    MEASURED,
    METRICS,
    STYLES,
    SYNTHETIC,
    draw_figures,
    figure_3,
    figure_6,
)

LABELS = [contender.label for contender in CONTENDERS]
SMALL = {"labels": ["inftda", "tda_linf"], "epsilons": ("0.1", "1"), "depth": 2}
"""A table for what does not depend on how much is drawn."""


def made_up(data_sets=("italy", *SYNTHETIC), labels=LABELS, epsilons=("0.1", "1", "10"), depth=4) -> pd.DataFrame:
    """A table of distinct numbers: the median of a figure tells which row it is of."""
    rows = []
    for number, (data_set, label, epsilon) in enumerate(product(data_sets, labels, epsilons)):
        for level in range(depth + 1):
            row = {"data_set": data_set, "contender": label, "epsilon": epsilon, "level": level, "runs": 5, "rho": "1"}
            row["bound"] = 10_000.0 * (level + 1) + number if label in BOUNDED else np.nan
            for figure in (*METRICS, *MEASURED):
                middle = (number * 10 + level + 1) / (1 if "error" in figure else 1000)
                row |= {f"{figure}_median": middle, f"{figure}_min": middle * 0.9, f"{figure}_max": middle * 1.2}
            rows.append(row)
    return pd.DataFrame(rows)


@functools.cache
def whole_table() -> pd.DataFrame:
    """The table of everything. Not to be changed."""
    return made_up()


@functools.cache
def whole_figure(draw, *data_set: str) -> Figure:
    """A figure of the table of everything. Not to be changed."""
    return draw(whole_table(), *data_set)


def of_case(table: pd.DataFrame, data_set: str, label: str, epsilon: str) -> pd.DataFrame:
    """The rows of one contender on one data set at one epsilon."""
    return table[(table["data_set"] == data_set) & (table["contender"] == label) & (table["epsilon"] == epsilon)]


def drawn(axes) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Medians, least and most of every contender, by its colour and mark."""
    by_style = {style: label for label, style in STYLES.items()}
    found = {}
    for container in axes.containers:
        line, _, (bars,) = container.lines
        label = by_style[line.get_color(), line.get_marker()]
        found[label] = line.get_ydata(), *np.array([segment[:, 1] for segment in bars.get_segments()]).T
    return found


@pytest.mark.parametrize(("line", "metric", "factor"), [(0, "max_abs_error", 1), (1, "false_discovery_rate", 100)])
def test_figure_3_draws_every_number(line, metric, factor):
    """One column an epsilon; medians, and bars from the least to the most."""
    table = whole_table()
    axes = np.reshape(whole_figure(figure_3, "binary sparse").axes, (3, 3))
    for column, epsilon in enumerate(("0.1", "1", "10")):
        shown = drawn(axes[line, column])
        assert list(shown) == LABELS
        for label, (median, least, most) in shown.items():
            rows = of_case(table, "binary sparse", label, epsilon)
            for values, name in ((median, "median"), (least, "min"), (most, "max")):
                np.testing.assert_allclose(values, factor * rows[f"{metric}_{name}"])


def test_no_panel_cuts_off_a_value():
    """Panels of a line share their scale, also where the last of them has the largest values."""
    for panel in whole_figure(figure_3, "italy").axes[:6]:
        lowest, highest = panel.get_ylim()
        for median, least, most in drawn(panel).values():
            assert lowest < least.min() <= median.min()
            assert highest > most.max()


def test_one_legend_names_every_contender_and_the_bound():
    for figure, extra in ((whole_figure(figure_3, "italy"), [BOUND_LABEL]), (whole_figure(figure_6), [])):
        (legend,) = figure.legends
        assert [text.get_text() for text in legend.get_texts()] == [*LABELS, *extra]
        assert not any(axes.get_legend() for axes in figure.axes)


def test_the_same_table_gives_the_same_bytes_in_another_process(tmp_path):
    table = made_up(data_sets=("binary sparse",), **SMALL)
    table.to_pickle(tmp_path / "table.pickle")
    first = {path.name: digest(path) for path in draw_figures(table, tmp_path / "here")}
    program = (
        "import sys, pandas as pd; from pathlib import Path; from od_core.evaluation.comparison import draw_figures;"
        " draw_figures(pd.read_pickle(sys.argv[1]), Path(sys.argv[2]))"
    )
    there = tmp_path / "there"
    subprocess.run([sys.executable, "-c", program, tmp_path / "table.pickle", there], check=True)
    assert {path.name: digest(path) for path in there.iterdir()} == first


def digest(path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
