"""The figures of a comparison: what stands in them, and that the same table gives the same bytes."""

from __future__ import annotations

import functools
import hashlib
import subprocess
import sys
import warnings
from functools import partial
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib import style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from od_core.evaluation.comparison import (
    BOUND_LABEL,
    BOUNDED,
    CONTENDERS,
    MEASURED,
    METRICS,
    OTHER_STYLES,
    SPARSE,
    STYLE_SHEET,
    STYLES,
    SYNTHETIC,
    draw_figures,
    figure_3,
    figure_6,
    figure_by_level,
)

figure_4 = partial(figure_by_level, wanted=SYNTHETIC, metric="max_abs_error")
figure_5 = partial(figure_by_level, wanted=SPARSE, metric="false_discovery_rate")

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


def test_labels_of_times_do_not_overlap():
    """Of every contender, in one panel of figure 3; to a pixel."""
    with style.context(STYLE_SHEET):
        figure = figure_3(whole_table(), "italy")
        canvas = FigureCanvasAgg(figure)
        figure.get_layout_engine().execute(figure)
        boxes = [label.get_window_extent(canvas.get_renderer()) for label in figure.axes[6].get_yticklabels()]
    assert len(boxes) == len(LABELS)
    for one, other in combinations(sorted(boxes, key=lambda box: box.y0), 2):
        assert other.y0 >= one.y1 - 1


def test_figure_3_draws_times_and_the_bound():
    table = whole_table()
    axes = np.reshape(whole_figure(figure_3, "italy").axes, (3, 3))
    for column, epsilon in enumerate(("0.1", "1", "10")):
        rows = {label: of_case(table, "italy", label, epsilon).iloc[0] for label in LABELS}
        assert axes[0, column].get_title() == f"ε = {epsilon}"
        for container in axes[2, column].containers:
            line, _, (bars,) = container.lines
            label = next(label for label, style in STYLES.items() if style == (line.get_color(), line.get_marker()))
            assert axes[2, 0].get_yticklabels()[line.get_ydata()[0]].get_text().replace("\n", " ") == label
            assert line.get_xdata()[0] == rows[label]["seconds_median"]
            expected = [rows[label]["seconds_min"], rows[label]["seconds_max"]]
            np.testing.assert_allclose(bars.get_segments()[0][:, 0], expected)
        bounds = [line for line in axes[0, column].lines if line.get_linestyle() == "--"]
        for bound, label in zip(bounds, BOUNDED, strict=True):
            np.testing.assert_array_equal(bound.get_ydata(), of_case(table, "italy", label, epsilon)["bound"])
            assert bound.get_color() == STYLES[label][0]


@pytest.mark.parametrize(
    ("draw", "names", "metric", "factor"),
    [(figure_4, SYNTHETIC, "max_abs_error", 1), (figure_5, SPARSE, "false_discovery_rate", 100)],
)
def test_figures_4_and_5_have_a_line_of_panels_for_every_data_set(draw, names, metric, factor):
    table = whole_table()
    axes = np.reshape(whole_figure(draw).axes, (len(names), 3))
    for line, name in zip(axes, names, strict=True):
        assert line[0].get_ylabel().startswith(f"{name}\n")
        for panel, epsilon in zip(line, ("0.1", "1", "10"), strict=True):
            for label, (median, _, _) in drawn(panel).items():
                rows = of_case(table, name, label, epsilon)
                np.testing.assert_allclose(median, factor * rows[f"{metric}_median"])


def test_figure_6_has_a_panel_for_every_synthetic_data_set():
    table = whole_table()
    panels = whole_figure(figure_6).axes
    assert [panel.get_title() for panel in panels] == list(SYNTHETIC)
    for panel in panels:
        for label, (median, _, _) in drawn(panel).items():
            rows = [of_case(table, panel.get_title(), label, epsilon).iloc[0] for epsilon in ("0.1", "1", "10")]
            np.testing.assert_allclose(median, [row["seconds_median"] for row in rows])


def test_one_legend_names_every_contender_and_the_bound():
    for figure, extra in ((whole_figure(figure_3, "italy"), [BOUND_LABEL]), (whole_figure(figure_6), [])):
        (legend,) = figure.legends
        assert [text.get_text() for text in legend.get_texts()] == [*LABELS, *extra]
        assert not any(axes.get_legend() for axes in figure.axes)


def test_colours_and_marks_tell_contenders_apart():
    """Each by its own colour and its own mark, so that either alone is enough."""
    styles = [*STYLES.values(), *OTHER_STYLES]
    assert list(STYLES) == LABELS
    assert len({colour for colour, _ in styles}) == len({mark for _, mark in styles}) == len(styles)


def test_contenders_that_no_list_knows_are_drawn():
    table = made_up(data_sets=("binary sparse",), labels=["mine", "inftda", "yours"])
    (legend,) = figure_3(table, "binary sparse").legends
    assert [text.get_text() for text in legend.get_texts()][:3] == ["inftda", "mine", "yours"]


@pytest.mark.parametrize("draw", [lambda table: figure_3(table, "italy"), figure_4, figure_5, figure_6])
@pytest.mark.parametrize("depth", [8, 16])
def test_nothing_is_drawn_outside_and_panels_do_not_overlap(draw, depth):
    """All labels within the page, and no panel's labels over another panel or the legend; to a pixel."""
    with style.context(STYLE_SHEET):
        figure = draw(made_up(depth=depth))
        canvas = FigureCanvasAgg(figure)
        figure.get_layout_engine().execute(figure)  # all is laid out, and nothing drawn
        renderer = canvas.get_renderer()
        boxes = [axes.get_tightbbox(renderer) for axes in figure.axes]
        boxes.append(figure.legends[0].get_window_extent(renderer))
    for box in boxes:
        assert min(box.x0, box.y0) >= -1
        assert box.x1 <= figure.bbox.x1 + 1
        assert box.y1 <= figure.bbox.y1 + 1
    for one, other in combinations(boxes, 2):
        width = min(one.x1, other.x1) - max(one.x0, other.x0)
        height = min(one.y1, other.y1) - max(one.y0, other.y0)
        assert min(width, height) <= 1


def test_files_are_made_for_what_is_there(tmp_path, monkeypatch):
    """Empty ones: other tests draw them."""
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **options: Path(path).touch(exist_ok=False))
    paths = draw_figures(made_up(data_sets=("italy", "binary sparse"), **SMALL), tmp_path / "figures")
    names = {
        "figure-3-italy",
        "figure-3-binary-sparse",
        "figure-4-errors",
        "figure-5-false-discoveries",
        "figure-6-times",
    }
    assert {path.name for path in paths} == {name + ending for name, ending in product(names, (".svg", ".png"))}
    assert set((tmp_path / "figures").iterdir()) == set(paths)
    only_italy = draw_figures(made_up(data_sets=("italy",), **SMALL), tmp_path / "italy")
    assert {path.name for path in only_italy} == {"figure-3-italy.svg", "figure-3-italy.png"}


def test_a_table_with_gaps_is_drawn(tmp_path):
    """A contender that is missing at one epsilon, one run without bars, memory that no system told: no warning."""
    table = made_up(data_sets=("binary sparse", "random dense"), **SMALL)
    table = table[~((table["contender"] == "tda_linf") & (table["epsilon"] != "1"))]
    table = table.assign(bound=np.nan, peak_memory_gigabytes_median=np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(draw_figures(table, tmp_path)) == 10
    (legend,) = figure_4(table).legends
    assert BOUND_LABEL not in [text.get_text() for text in legend.get_texts()]


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
