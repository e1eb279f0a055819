"""``od-release replicates`` on a published release, in this process, and the files that it writes."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner, Result

from od_assets.cli.app import app
from od_core import OdError, Release, open_release
from od_core.publication.certificate import certificate_digest
from od_core.published import replicate_files
from tests.od_assets.cli.test_sum import NEW, var

__all__ = ["var"]

ROOT = Path(__file__).parents[3]
AIRPORTS = ROOT / "data" / "us_flights" / "airports.csv"
FILES = ["README.md", "replicates.omx", "replicates.parquet"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["replicates", *arguments])


def test_the_files_hold_the_replicates_of_the_last_release(var: Path) -> None:
    result = run("us_flights", "-n", "3")
    assert result.exit_code == 0, result.output
    folder = var / "replicates" / NEW
    assert result.stdout.splitlines()[0] == f"3 replicates of {NEW}. Nothing was charged."
    assert f"Folder: {folder} ({', '.join(FILES)})" in result.stdout
    release = open_release(var / "releases" / NEW)
    assert isinstance(release, Release)
    listed = duckdb.sql(f"SELECT * FROM '{folder / 'replicates.parquet'}'").df()
    for r, table in enumerate(release.replicates(3), start=1):
        assert listed[f"replicate_{r}"].tolist() == table["trips"].tolist()
    found = json.loads(run(NEW, "-n", "1", "--to", str(var / "mine"), "--json").stdout)
    assert found == {"release": NEW, "folder": str(var / "mine"), "files": FILES}
    assert run(NEW, "-n", "1").stdout.startswith(f"1 replicate of {NEW}.")
    text = (var / "mine" / "README.md").read_text("utf-8")
    certificate = json.loads((var / "releases" / NEW / "certificate.json").read_text("utf-8"))
    assert text.startswith(f"# Replicates of {NEW}: 1\n")
    assert certificate_digest(certificate) in text


def test_what_has_no_replicates_is_refused_and_nothing_is_written(var: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: str) -> str:
        error = run(*arguments).exception
        assert isinstance(error, OdError)
        return error.code

    assert refused("us_trains") == "OD-RELEASE-ABSENT"
    assert refused("us_flights/2001-07/r1") == "OD-RELEASE-ABSENT"
    assert run("us_flights", "-n", "0").exit_code == 2
    assert refused("us_flights", "-n", "10001") == "OD-REPLICATES-NUMBER"
    CliRunner().invoke(app, ["assist", "us_flights"])
    assert refused("us_flights_assisted/2001-06/r1") == "OD-DERIVED-KIND"
    CliRunner().invoke(app, ["sum", "us_flights", "--periods", "2001-05..2001-06"])
    assert refused("us_flights_sum/2001-05--2001-06/r1") == "OD-DERIVED-KIND"
    with monkeypatch.context() as patch:
        usage = replicate_files.shutil.disk_usage(var)
        patch.setattr(replicate_files.shutil, "disk_usage", lambda _: usage._replace(free=1000))
        assert refused("us_flights") == "OD-REPLICATES-NUMBER"
    (var / "releases" / NEW / "tables/noisy_measurements.parquet").write_bytes(b"PAR1")
    assert refused(NEW) == "OD-DERIVED-SOURCE"
    assert not (var / "replicates").exists()


@pytest.mark.slow
def test_the_example_prints_an_interval_unless_the_bias_is_more_than_half_a_standard_error(
    published_flights: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which of its results have an interval depends on the noise: each line is judged by its own numbers."""
    place = ROOT / "examples" / "replicates" / "results_with_their_uncertainty.py"
    spec = importlib.util.spec_from_file_location("example", place)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    monkeypatch.setattr("sys.argv", ["example", str(published_flights / "releases" / NEW), str(AIRPORTS)])
    example.main()
    lines = [line.split(": ") for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _ in lines] == ["power of the distance", "mean distance", "pairs with trips"]
    for _, text in lines:
        if found := re.fullmatch(r"\S+; no interval holds, since the bias is (\S+) standard errors", text):
            assert abs(float(found[1])) >= 0.5
            continue
        found = re.fullmatch(r"(\S+), 90 % interval (\S+) to (\S+); bias (\S+)", text)
        assert found is not None, text
        value, low, high, bias = map(float, found.groups())
        assert low < value < high
        assert abs(bias) < (high - low) / 6
