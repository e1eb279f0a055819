"""``od-release forecast``: which public table it takes, what it says of it, and what it never looks at."""

from __future__ import annotations

import json
import os
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from od_assets.cli.app import app
from od_core import OdError
from od_core.evaluation.forecast import COLUMNS
from tests.published_flights import KEYS

NEWEST = str(KEYS[-1])


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["forecast", "us_flights", *arguments])


def facts(*arguments: str) -> dict[str, Any]:
    result = run("--json", *arguments)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture
def var(published_flights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, to be changed."""
    shutil.copytree(published_flights, tmp_path / "var")
    monkeypatch.setenv("OD_VAR", str(tmp_path / "var"))
    return tmp_path / "var"


def test_where_nothing_is_public_it_says_that_its_table_is_synthetic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OD_VAR", str(tmp_path))
    text = " ".join(run().stdout.split())
    assert (
        "Data set 'us_flights' has no published release of these areas, so a synthetic table serves as the true flows"
        in text
    )
    assert "No budget was spent, and no confidential data was read." in text
    assert facts("--runs", "1")["is_synthetic"] is True
    assert not list(tmp_path.iterdir())


def test_the_newest_published_release_is_taken_and_named(var: Path) -> None:
    found = facts()
    assert (found["table"], found["is_synthetic"], found["runs"]) == (NEWEST, False, 5)
    assert f"The published flows of {NEWEST} serve as the true flows." in found["source"]
    errors = pd.DataFrame(found["forecast"])
    assert list(errors.columns) == ["epsilon", "rho", "declared", *COLUMNS]
    assert sorted(errors["epsilon"].unique()) == [0.1, 0.3, 1.0, 3.0, 10.0]
    assert set(errors.loc[errors["declared"], "epsilon"]) == {1.0}
    assert not errors.duplicated(["epsilon", "level", "size_class"]).any()
    assert errors.loc[errors["declared"], "level"].nunique() == 9
    assert errors.loc[errors["declared"], "rho"].unique() == pytest.approx(0.019215, rel=3e-4)
    leaves = errors[(errors["level"] == 8) & (errors["size_class"] == "all")].set_index("epsilon")["mean_abs_error"]
    assert leaves.is_monotonic_decreasing
    assert "serve as the true flows" in run("--runs", "1").stdout


def renamed(var: Path, change: dict[str, Any], *, period: str, series: str = "us_flights") -> None:
    """The newest bundle once more, with other facts in its certificate."""
    folder = var / "releases" / series / period / "r1"
    shutil.copytree(var / "releases" / NEWEST, folder)
    path = folder / "certificate.json"
    stated = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**stated, "release": f"{series}/{period}/r1", **change}), encoding="utf-8")


def test_what_says_nothing_of_this_release_is_passed_over(var: Path) -> None:
    """Newer ones: of another data set, other areas, another kind, without trips, broken; and another series' own."""
    renamed(var, {"data_set": "other"}, period="2001-07")
    renamed(var, {"geographies": {"origin": "0" * 64, "destination": "0" * 64}}, period="2001-08")
    renamed(var, {"format": "od-release stops certificate 1"}, period="2001-09")
    renamed(var, {"contents": {"flows": 0, "trips": 0}}, period="2001-10")
    renamed(var, {}, period="2001-11")
    (var / "releases" / "us_flights" / "2001-11" / "r1" / "certificate.json").write_text("{", encoding="utf-8")
    renamed(var, {}, series="us_freight", period="2001-12")
    assert facts("--runs", "1")["table"] == NEWEST
    shutil.rmtree(var / "releases" / "us_flights")
    assert facts("--runs", "1")["table"] == "us_freight/2001-12/r1"


def test_epsilons_may_be_chosen_and_are_written(var: Path, tmp_path: Path) -> None:
    result = run("--epsilon", "2", "--epsilon", "0.5", "--runs", "1", "--to", str(tmp_path / "deep" / "forecast"))
    assert result.exit_code == 0, result.output
    assert "epsilon 0.5" in result.stdout
    written = pd.read_csv(tmp_path / "deep" / "forecast" / "forecast.csv")
    assert sorted(written["epsilon"].unique()) == [0.5, 1.0, 2.0]
    assert {*written.loc[written["declared"], "epsilon"]} == {1.0}
    figure = ET.parse(tmp_path / "deep" / "forecast" / "forecast.svg")  # noqa: S314  # our own file
    assert figure.getroot().tag == "{http://www.w3.org/2000/svg}svg"


LONG_AGO = (978307200, 978307200)


def test_nothing_confidential_is_opened(var: Path) -> None:
    """Neither by Python nor by a library: the access times of the file system tell."""
    confidential = var / "confidential"
    (confidential / "us_flights").mkdir(parents=True)
    secret = [confidential / name for name in ("hmac.key", "ledger.head", "us_flights/raw_trips.parquet")]
    secret.append(var / "ledger.sqlite")
    for path in secret:
        path.write_bytes(b"confidential")
    places = [confidential, confidential / "us_flights", *secret]

    def forget() -> None:
        for path in places:
            os.utime(path, LONG_AGO)

    def opened() -> list[str]:
        return [path.name for path in places if path.lstat().st_atime != LONG_AGO[0]]

    forget()
    assert facts("--runs", "1")["table"] == NEWEST
    assert run("--runs", "1").exit_code == 0
    assert opened() == []
    for path in secret:  # and would be seen
        path.read_bytes()
    list(confidential.iterdir())
    if not opened():
        pytest.skip("this file system keeps no access times")
    assert {*opened()} == {path.name for path in (*secret, confidential)}


def refused(*arguments: str) -> OdError:
    result = CliRunner().invoke(app, ["forecast", *arguments])
    assert isinstance(result.exception, OdError), result.output
    assert result.stdout == ""
    assert result.exception.next_step
    assert "\n" not in str(result.exception)
    return result.exception


def test_bad_calls_are_one_line_with_what_to_do(var: Path) -> None:
    for release, document in (
        ("us_departures", "docs/explanation/group-sizes.md"),
        ("us_flight_paths", "docs/explanation/stops.md"),
    ):
        kind = refused(release)
        assert kind.code == "OD-FORECAST-KIND"
        assert document in kind.next_step
    assert refused("us_flights", "--runs", "0").code == "OD-FORECAST-RUNS"
    assert refused("us_flights", "--epsilon", "0").code == "OD-BUDGET-EPSILON"
    assert refused("us_flights", "--epsilon", "one").code == "OD-BUDGET-NUMBER"
    assert refused("us_flights", "--epsilon", "1e-9").code == "OD-FORECAST-NOISE"
    assert refused("us_flight").code == "OD-RELEASE-UNKNOWN"
    assert refused("us_flights", "--period", "1999-01").code == "OD-PERIOD"
