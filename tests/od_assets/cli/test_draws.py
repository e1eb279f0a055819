"""``od-release draws`` on a published release, in this process, and the files that it writes."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import duckdb
import openmatrix
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from od_assets.cli.app import app
from od_core import OdError, Release, open_release
from od_core.published import draws
from tests.od_assets.cli.test_sum import NEW, var

__all__ = ["var"]

ROOT = Path(__file__).parents[3]
AIRPORTS = ROOT / "data" / "us_flights" / "airports.csv"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["draws", *arguments])


def test_the_files_hold_the_draws_of_the_last_release(var: Path) -> None:
    result = run("us_flights", "-n", "3")
    assert result.exit_code == 0, result.output
    folder = var / "draws" / NEW
    assert result.stdout.splitlines()[0] == f"3 draws given {NEW}. Nothing was charged."
    assert f"Folder: {folder} (README.md, draws.omx, draws.parquet)" in result.stdout
    release = open_release(var / "releases" / NEW)
    assert isinstance(release, Release)
    expected = pd.concat([table.assign(draw=k) for k, table in enumerate(release.draws(3), start=1)])
    listed = duckdb.sql(f"SELECT draw, origin, destination, trips FROM '{folder / 'draws.parquet'}'").df()
    assert listed.to_numpy().tolist() == expected[list(listed)].to_numpy().tolist()
    zones = release.tree.origin.zones
    with openmatrix.open_file(folder / "draws.omx") as file:
        assert file.list_matrices() == ["draw_1", "draw_2", "draw_3"]
        assert list(file.mapping("origin")) == [code.encode() for code in zones]
        second = listed[listed["draw"] == 2]
        own = file["draw_2"][:]
    assert own.sum() == second["trips"].sum()
    assert [own[zones.index(one.origin), zones.index(one.destination)] for one in second.itertuples()] == second[
        "trips"
    ].tolist()
    found = json.loads(run(NEW, "-n", "1", "--to", str(var / "mine"), "--json").stdout)
    assert found == {"release": NEW, "folder": str(var / "mine"), "files": ["README.md", "draws.omx", "draws.parquet"]}
    text = (folder / "README.md").read_text("utf-8")
    certificate = json.loads((var / "releases" / NEW / "certificate.json").read_text("utf-8"))
    assert text.startswith(f"# 3 draws given {NEW}")
    assert draws.certificate_digest(certificate) in text


def test_what_cannot_be_drawn_from_is_refused_and_nothing_is_written(var: Path) -> None:
    def refused(*arguments: str) -> str:
        error = run(*arguments).exception
        assert isinstance(error, OdError)
        return error.code

    assert refused("us_trains") == "OD-RELEASE-ABSENT"
    assert refused("us_flights/2001-07/r1") == "OD-RELEASE-ABSENT"
    assert run("us_flights", "-n", "0").exit_code == 2
    CliRunner().invoke(app, ["assist", "us_flights"])
    assert refused("us_flights_assisted/2001-06/r1") == "OD-DERIVED-KIND"
    (var / "releases" / NEW / "noisy_measurements.parquet").write_bytes(b"PAR1")
    assert refused(NEW) == "OD-DERIVED-SOURCE"
    assert not (var / "draws").exists()


def test_more_rows_than_a_disk_has_room_for_are_refused_before_anything_is_drawn(
    var: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = run(NEW, "-n", "1000000").exception
    assert isinstance(error, OdError)
    assert error.code == "OD-DRAWS-NUMBER"
    release = open_release(var / "releases" / NEW)
    assert isinstance(release, Release)
    flows = len(release.leaves)
    assert f"1,000,000 draws of about {flows:,} flows each have {1_000_000 * flows:,} rows" in error.message
    assert not (var / "draws").exists()
    monkeypatch.setattr(draws, "MOST_ROWS", 2 * flows)
    refused = run(NEW, "-n", "3").exception
    assert isinstance(refused, OdError)
    assert "ask for at most 2 draws" in refused.next_step
    assert run(NEW, "-n", "2").stdout.startswith(f"2 draws given {NEW}.")
    assert run(NEW, "-n", "1").stdout.startswith(f"1 draw given {NEW}.")


def test_the_example_prints_the_intervals_of_two_results(
    var: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ROOT / "examples" / "draws" / "results_with_their_uncertainty.py"
    spec = importlib.util.spec_from_file_location("example", place)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    monkeypatch.setattr(example, "DRAWS", 5)
    monkeypatch.setattr("sys.argv", ["example", str(var / "releases" / NEW), str(AIRPORTS)])
    example.main()
    power, regions = capsys.readouterr().out.splitlines()
    low, high, released = map(float, re.findall(r"-0\.\d+", power)[1:])
    assert -0.6 < low <= high < -0.5  # the true power is -0.556
    assert abs(released - low) < 0.01
    assert 3 <= float(regions.split()[2].rstrip(",")) <= 15  # in truth 9
