"""The CSV files of docs/reference/tables have the columns that benchmarks write, and a page links each of them."""

import csv
import runpy
from pathlib import Path
from typing import Any

import matplotlib
import pytest

from benchmarks import (
    count_of_counts,
    estimator,
    group_size_brackets,
    group_sizes,
    intervals,
    published_group_sizes,
    selected,
    stops,
    table_intervals,
)
from benchmarks.stops_tables import REFERENCE, csv_tables
from benchmarks.tables import write_csv
from od_core.evaluation.known_flows import KnownFlows, make_binary_flows

DOCS = Path(__file__).parents[2] / "docs"
TABLES = DOCS / "reference" / "tables"
CASE = "zipf 1.5, 4 dimensions"


def made_by_estimator() -> dict[str, list[dict[str, Any]]]:
    data = KnownFlows.from_synthetic_flows(make_binary_flows(1, levels=2, trips=500))
    variants = [estimator.PAPER, estimator.VARIANTS[1]]
    gains = estimator.gains(list(estimator.measured("binary", "1", data, 2, variants)))
    compared = estimator.published_methods(list(estimator.paired("binary", "1", data, 2, ["blue_down"])))
    return {"estimator-gains.csv": gains, "estimator-published-methods.csv": compared}


def made_by_intervals() -> dict[str, list[dict[str, Any]]]:
    data = KnownFlows.from_synthetic_flows(make_binary_flows(1, levels=2, trips=500))
    return {"intervals.csv": intervals.by_level(intervals.measured(intervals.VARIANTS[0], "binary", "1", data, 1))}


def made_by_selected() -> dict[str, list[dict[str, Any]]]:
    data = KnownFlows.from_synthetic_flows(make_binary_flows(1, levels=2, trips=500))
    rows = selected.measured("binary", "least_squares", "1", selected.Known(data.tree, data.trips), 1)
    return {"uncertainty-selected.csv": selected.csv_rows(rows)}


def made_by_table_intervals() -> dict[str, list[dict[str, Any]]]:
    points = table_intervals.POINTS[table_intervals.BOXES["gaussian"]](small=True)
    table = table_intervals.box_coverage(points, "eug", "1", 1).assign(case="gaussian", mechanism="eug", epsilon="1")
    return {"uncertainty-boxes.csv": table_intervals.csv_rows(table_intervals.records(table))}


def made_by_group_sizes() -> dict[str, list[dict[str, Any]]]:
    contenders = group_sizes.CONTENDERS[1:2]
    return group_sizes.csv_tables(group_sizes.measured("all", ["taxis"], ["1"], 1, contenders, small=True))


def made_by_group_size_brackets() -> dict[str, list[dict[str, Any]]]:
    rows = group_size_brackets.measured(["taxis"], ["1"], ["cumulative"], 1, small=True)
    return {"group-sizes-brackets.csv": group_size_brackets.csv_rows(rows)}


def made_by_count_of_counts() -> dict[str, list[dict[str, Any]]]:
    return count_of_counts.csv_tables(count_of_counts.measured(count_of_counts.PARTS, ["small"], runs=1))


def made_by_published_group_sizes() -> dict[str, list[dict[str, Any]]]:
    row = published_group_sizes.errors("taxis", "1", group_sizes.CONTENDERS[1], 1, 1.0, small=True)
    runtime = {"racer": "M_H", "sizes": 5, "seconds": 1.0}
    return published_group_sizes.csv_tables({"errors": [row], "runtime": [runtime]})


def made_by_stops() -> dict[str, list[dict[str, Any]]]:
    some = [contender for contender in stops.CONTENDERS if contender.label in ("uniform", "eug", REFERENCE, "privtree")]
    results = stops.measured("all", [CASE], ["0.1"], 1, some, small=True)
    city = [row | {"case": "Dunedin, 2 dimensions", "bits_of_boxes": 1.0} for row in results["errors"]]
    return csv_tables(results | {"errors": results["errors"] + city})


MAKERS = [made for name, made in globals().items() if name.startswith("made_by_")]


@pytest.mark.parametrize("made", MAKERS)
def test_published_files_have_the_columns_that_a_benchmark_writes(made, tmp_path):
    for name, rows in made().items():
        write_csv(tmp_path / name, rows)
        header, *lines = csv.reader((tmp_path / name).read_text("utf-8").splitlines())
        published, *others = csv.reader((TABLES / name).read_text("utf-8").splitlines())
        assert header == published, name
        assert {len(line) for line in lines} == {len(line) for line in others} == {len(header)}, name
        texts = [
            number for number, column in enumerate(header) if column in ("quantity", "verdict", "queries", "counts")
        ]
        known = [{line[number] for line in others} for number in texts]
        assert all(line[number] in words for line in lines for number, words in zip(texts, known, strict=True)), name


def test_no_figures_write_no_file(tmp_path):
    write_csv(tmp_path / "none.csv", [])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", sorted(TABLES.glob("*.csv")), ids=lambda path: path.stem)
def test_a_page_links_each_file_and_a_page_beside_it_names_each_of_its_columns(path):
    pages = {page: page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")}
    linking = {page: text.split(f"{path.name})")[1] for page, text in pages.items() if f"{path.name})" in text}
    assert linking
    header = next(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    sections = [text for page, text in linking.items() if page.parent == TABLES]
    assert [column for column in header if any(f"`{column}`" not in text for text in sections)] == []


def test_charts_are_those_of_the_files(tmp_path):
    """To the byte, if they were drawn with the same version of Matplotlib."""
    drawn = runpy.run_path(str(DOCS / "charts.py"))["draw"](tmp_path)
    published = {path.name: path.read_bytes() for path in (DOCS / "figures" / "tables").iterdir()}
    assert published.keys() == {path.name for path in drawn}
    version = f"Matplotlib v{matplotlib.__version__},".encode()
    for path in drawn:
        assert path.read_bytes() == published[path.name] or version not in published[path.name], path.name
