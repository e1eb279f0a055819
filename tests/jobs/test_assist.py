"""``od-release assist`` on published releases, in this process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from od_assets.cli.app import app
from od_core import AssistedFlows, OdError, open_release
from tests.od_assets.cli.test_sum import NEW, OLD, var

__all__ = ["var"]

ASSISTED = "us_flights_assisted/2001-06/r1"


@pytest.fixture
def published_few(published_flights: Path) -> Path:
    """All flights, from which more can be learned than from few."""
    return published_flights


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["assist", *arguments])


def test_it_prints_what_was_used_then_where_it_is_and_last_what_is_protected(var: Path) -> None:
    result = run("us_flights")
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert text.startswith("Releases that were used")
    bundle = f"Bundle: {var / 'releases' / ASSISTED}"
    parts = (
        OLD,
        NEW,
        ASSISTED,
        "Nothing was charged",
        bundle,
        "Protected: These numbers are estimates from 2 published releases",
    )
    places = [text.index(part) for part in (*parts, "Not protected:")]
    assert places == sorted(places)
    found = open_release(var / "releases" / ASSISTED)
    stated = json.loads((var / "releases" / ASSISTED / "certificate.json").read_text("utf-8"))
    assert stated["estimation"]["rule"] == "mixture"
    assert isinstance(found, AssistedFlows)
    assert f"{found.leaves.trips.sum():,} trips" in text
    assert [path.name for path in var.iterdir()] == ["releases"]
    assert "It was published before" in " ".join(run("us_flights", "--period", "2001-06").stdout.split())
    page = CliRunner().invoke(app, ["report", "us_flights_assisted"]).stdout.strip()
    assert page == str(var / "releases" / ASSISTED / "report.html")


def test_a_named_release_and_the_number_of_earlier_ones(var: Path) -> None:
    found = json.loads(run(NEW, "--earlier", "0", "--json").stdout)
    assert (found["release"], found["published_now"]) == (ASSISTED, True)
    assert [one["release"] for one in found["certificate"]["sources"]] == [NEW]
    first = json.loads(run(OLD, "--json").stdout)
    assert [one["release"] for one in first["certificate"]["sources"]] == [OLD]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["us_trains"], "OD-RELEASE-ABSENT"),
        (["us_flights", "--period", "2001-07"], "OD-RELEASE-ABSENT"),
        (["us_flights/2001-07/r1"], "OD-RELEASE-ABSENT"),
        (["us_flights/2001-06"], "OD-RELEASE-KEY"),
    ],
)
def test_what_is_not_published_is_said_in_one_line(var: Path, arguments: list[str], code: str) -> None:
    result = run(*arguments)
    assert isinstance(result.exception, OdError)
    assert (result.exception.code.split("-")[:3], result.stdout) == (code.split("-")[:3], "")
    assert not (var / "releases" / "us_flights_assisted").exists()
