"""Figures of group sizes: every number in its panel, what has no number nowhere, the same bytes twice."""

from __future__ import annotations

import numpy as np
import pandas as pd

from benchmarks.group_size_figures import FLOOR, STYLES, by_epsilon, draw_figures

LEVELS = ["nation", "county"]


def row(epsilon: str, contender: str, distance: list[float | None], case: str = "made up") -> dict:
    return {
        "case": case,
        "epsilon": epsilon,
        "contender": contender,
        "level_names": LEVELS,
        "distance": distance,
        "distance_least": [None if value is None else value / 2 for value in distance],
        "distance_most": [None if value is None else 3 * value for value in distance],
    }


TABLE = pd.DataFrame(
    [
        row("1", "sizes", [10.0, 0.0]),
        row("0.1", "sizes", [400.0, 7.0]),
        row("1", "cumulative", [20.0, None]),
        row("0.1", "cumulative", [30.0, 5.0]),
        row("1", "another estimator", [2.0, 1.0]),
        row("1", "histogram", [9e5, 9e4]),
        row("1", "cumulative, least squares", [25.0, 3.0]),
    ]
)


def drawn(figure, level: int) -> dict[str, tuple[list[float], np.ndarray]]:
    """Heights of the marks by colour, and the ends of the bars."""
    containers = figure.axes[level].containers
    return {
        container[0].get_color(): (
            container[0].get_ydata().tolist(),
            np.array([segment[:, 1] for segment in container[2][0].get_segments() if len(segment)]),
        )
        for container in containers
    }


def test_marks_and_bars_stand_where_the_table_says():
    figure = by_epsilon(TABLE)
    assert [axes.get_title() for axes in figure.axes] == LEVELS
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["0.1", "1"]
    (nation, county) = (drawn(figure, level) for level in (0, 1))
    marks, bars = nation[STYLES["sizes"][0]]
    assert marks == [400.0, 10.0]
    assert np.allclose(bars, [[200, 1200], [5, 30]])
    assert county[STYLES["sizes"][0]][0] == [7.0, FLOOR]
    marks, _ = county[STYLES["cumulative"][0]]
    assert marks[0] == 5.0
    assert np.isnan(marks[1])
    assert [2.0] in [marks for marks, _ in nation.values()]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["sizes", "cumulative", "another estimator"]


def test_one_figure_a_data_set_and_the_same_bytes_twice(tmp_path):
    table = pd.concat([TABLE, TABLE.assign(case="other one")])
    paths = draw_figures(table, tmp_path / "a")
    assert [path.name for path in paths] == ["made-up.svg", "made-up.png", "other-one.svg", "other-one.png"]
    again = draw_figures(table, tmp_path / "b")
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]
