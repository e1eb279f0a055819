"""``od-release assist`` on published releases, in this process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from od_assets.cli.app import app
from tests.od_assets.cli.test_sum import NEW, OLD, var

__all__ = ["var"]

ASSISTED = "us_flights_assisted/2001-06/r1"


@pytest.fixture
def published_few(published_flights: Path) -> Path:
    """All flights, from which more can be learned than from few."""
    return published_flights


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["assist", *arguments])


def test_a_named_release_and_the_number_of_earlier_ones(var: Path) -> None:
    found = json.loads(run(NEW, "--earlier", "0", "--json").stdout)
    assert (found["release"], found["published_now"]) == (ASSISTED, True)
    assert [one["release"] for one in found["certificate"]["sources"]] == [NEW]
    first = json.loads(run(OLD, "--json").stdout)
    assert [one["release"] for one in first["certificate"]["sources"]] == [OLD]
    other = var / "releases" / ASSISTED.replace("r1", "r2")  # from both releases
    assert f"Bundle: {other}" in " ".join(run("us_flights").stdout.split())
