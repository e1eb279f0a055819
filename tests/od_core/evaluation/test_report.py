"""Markdown tables of a comparison: every number in its place, and the published results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from od_core.evaluation.comparison import MEASURED, METRICS, published_results, tables_markdown

PUBLISHED = published_results()
TABLES = Path(__file__).parents[3] / "docs" / "reference" / "tables"
NONE_REFUSED = pd.DataFrame(columns=["data_set", "contender", "epsilon", "refused"])


def rows_of(data_set: str, contender: str, epsilon: str, errors: list[float], rho: str | None = "1/4") -> pd.DataFrame:
    """Levels with these largest errors (least one less, most 1,000 more), and fixed figures beside them."""
    fixed = {
        "mean_abs_error": (0.25, 0.25, 0.25),
        "false_discovery_rate": (0.305, 0.3, 0.3125),
        "false_negative_rate": (0.5, 0.5, 0.5),
        "seconds": (1234.5, 0.0123, 2000.0),
        "peak_memory_gigabytes": (np.nan, np.nan, np.nan),
        "largest_bias_origin": (-0.0345, -0.05, 0.0),
        "largest_bias_destination": (0.002, 0.002, 0.002),
    }
    rows = []
    for level, error in enumerate(errors):
        row = {"data_set": data_set, "contender": contender, "epsilon": epsilon, "level": level, "runs": 5, "rho": rho}
        for figure in (*METRICS, *MEASURED):
            is_shown = level == len(errors) - 1 or figure in MEASURED
            values = fixed.get(figure if is_shown else "", (error, error - 1, error + 1_000))
            row |= {f"{figure}_{name}": value for name, value in zip(("median", "min", "max"), values, strict=True)}
        rows.append(row)
    return pd.DataFrame(rows)


def cells(text: str) -> list[list[str]]:
    """Every line of a table as its cells."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def page_of(table: pd.DataFrame, refused: pd.DataFrame = NONE_REFUSED) -> str:
    return tables_markdown([], table, refused)


def test_tables_of_one_case():
    table = pd.concat(
        [rows_of("a", "one", "1", [1, 20.5]), rows_of("a", "two", "1", [3, 4.0], None), rows_of("a", "one", "10", [7])]
    )
    text = page_of(table)
    assert [line for line in text.splitlines() if line.startswith("###")] == ["### a, epsilon 1", "### a, epsilon 10"]
    first, biases = cells(text)[2:10], ["-3.5 (-5.0-0.0)", "0.2"]
    assert first == [
        ["level", "one", "two"],
        ["---"] * 3,
        ["0", "1 (0-1,001)", "3 (2-1,003)"],
        ["1", "20.5 (19.5-1,020)", "4 (3-1,004)"],
        [
            "mechanism",
            "mean error",
            "false discoveries, %",
            "false negatives, %",
            "bias of the largest origins, %",
            "bias of the largest destinations, %",
            "seconds",
            "memory, GB",
            "runs",
            "rho",
        ],
        ["---"] * 10,
        ["one", "0.25", "30.5 (30.0-31.2)", "50.0", *biases, "1,234 (0.0123-2,000)", "-", "5", "0.25"],
        ["two", "0.25", "30.5 (30.0-31.2)", "50.0", *biases, "1,234 (0.0123-2,000)", "-", "5", "-"],
    ]


def test_the_authors_results_stand_alone():
    """They spent half of the stated rho, so none of ours at all of it is beside them."""
    made = page_of(rows_of("italy", "one", "1", [1])).split("## The authors' figures for Italy")[1]
    lines = cells(made)[2:]
    assert len(lines) == len(PUBLISHED)
    assert ["1", "inftda", "0 52 98 98 99 126 143", "30.1", "85.8", "1,139"] in lines
    assert "half of the rho" in made
    assert (TABLES / "comparison.md").read_text(encoding="utf-8").endswith(made)
    assert "The authors" not in page_of(rows_of("a", "one", "1", [1]))


def test_the_published_file_has_the_data_sets_of_its_page_and_fills_the_tables():
    """The depth of each tree and the refusal are on the page; the tables have a row for each row of the file."""
    results = pd.read_parquet(TABLES / "comparison.parquet")
    page = (TABLES / "comparison.md").read_text(encoding="utf-8")
    listed = cells(page.split("## Data sets")[1].split("\n## ")[0])[2:]
    depths = results.groupby("data_set", sort=False)["level"].max()
    assert [(row[0], int(row[-1])) for row in listed] == list(depths.items())
    missing = set(results["contender"]) - set(results.loc[results["data_set"] == "italy", "contender"])
    assert missing == {"vanilla_gauss"}
    assert set(results["epsilon"]) == {"0.1", "1", "10"}
    made = cells(page_of(results).split("## The authors' figures for Italy")[0])
    by_level = [row for row in made if row[0].isdigit()]
    assert sum(cell != "-" for row in by_level for cell in row[1:]) == len(results)
