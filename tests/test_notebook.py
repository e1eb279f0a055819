"""The notebook of the documentation: every cell runs, and its stored outputs are those of the code as it is."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

MODULE = runpy.run_path(str(Path(__file__).parents[1] / "docs" / "notebook_cells.py"))
NOTEBOOK = MODULE["read"](MODULE["LIBRARY"])
CODES = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


@pytest.fixture(scope="module")
def executed() -> tuple[list[list[dict[str, Any]]], dict[str, Any]]:
    made: tuple[list[list[dict[str, Any]]], dict[str, Any]] = MODULE["executed"](NOTEBOOK)
    return made


def without_noise(output: dict[str, Any]) -> list[str]:
    """The words of every line: numbers carry noise, and so do the blanks that align them."""
    return [re.sub(r"[\d.,]+|\s+", " ", line).split() for line in MODULE["shown"](output).splitlines()]


def test_stored_outputs_are_those_of_the_cells(executed):
    """Exactly where no noise is in them; else in their words, which are the headers and areas of a table."""
    outputs, _ = executed
    for cell, made in zip(CODES, outputs, strict=True):
        stored = cell["outputs"]
        assert [list(output.get("data", ["stream"])) for output in stored] == [
            list(output.get("data", ["stream"])) for output in made
        ]
        is_exact = "exact" in cell["metadata"].get("tags", [])
        for old, new in zip(stored, made, strict=True):
            assert old == new if is_exact else without_noise(old) == without_noise(new)
    assert sum("exact" in cell["metadata"].get("tags", []) for cell in CODES) == 4


def test_what_the_notebook_says_is_true(executed):
    _, names = executed
    release, errors = names["release"], names["errors"]
    assert release.has_guarantee
    assert len(release.flows_at("region", "division", interval=True)) == 50
    asked = release.trips_between("state", ["CA", "NV"], "region", ["Northeast"])
    cells = release.flows_at("state", "region", interval=True)
    cells = cells[cells["origin"].isin(["CA", "NV"]) & (cells["destination"] == "Northeast")]
    assert asked.trips == cells["trips"].sum()
    assert asked.lower <= asked.trips <= asked.upper
    assert asked.upper - asked.lower < (cells["upper"] - cells["lower"]).sum()
    assert errors["mean_abs_error"].max() < 1_000


def test_the_page_has_every_cell():
    page = "\n".join(MODULE["page"]())
    for cell in NOTEBOOK["cells"]:
        assert "".join(cell["source"]) in page
    assert page.count("```text") + page.count("<table>") == len([out for cell in CODES for out in cell["outputs"]])
