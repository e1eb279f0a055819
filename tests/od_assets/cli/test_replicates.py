"""``od-release replicates`` on a published release, in this process, and the files that it writes."""

import json
import re
import runpy
from pathlib import Path

import duckdb
import pytest

from od_core import Release, open_release
from od_core.publication.certificate import compute_certificate_digest
from od_core.published import replicate_files
from tests.od_assets.cli.commands import command, printed, refusal, stated
from tests.od_assets.cli.conftest import NEW

ROOT = Path(__file__).parents[3]
AIRPORTS = ROOT / "data" / "us_flights" / "airports.csv"
FILES = ["README.md", "replicates.omx", "replicates.parquet"]


def test_the_files_hold_the_replicates_of_the_last_release(var):
    said = printed("replicates", "us_flights", "-n", "3")
    folder = var / "replicates" / NEW
    assert said.splitlines()[0] == f"3 replicates of {NEW}. Nothing was charged."
    assert f"Folder: {folder} ({', '.join(FILES)})" in said
    release = open_release(var / "releases" / NEW)
    assert isinstance(release, Release)
    listed = duckdb.sql(f"SELECT * FROM '{folder / 'replicates.parquet'}'").df()
    for r, table in enumerate(release.replicates(3), start=1):
        assert listed[f"replicate_{r}"].tolist() == table["trips"].tolist()
    found = stated("replicates", NEW, "-n", "1", "--to", str(var / "mine"))
    assert found == {"release": NEW, "folder": str(var / "mine"), "files": FILES}
    assert printed("replicates", NEW, "-n", "1").startswith(f"1 replicate of {NEW}.")
    text = (var / "mine" / "README.md").read_text("utf-8")
    certificate = json.loads((var / "releases" / NEW / "certificate.json").read_text("utf-8"))
    assert text.startswith(f"# Replicates of {NEW}: 1\n")
    assert compute_certificate_digest(certificate) in text


def test_what_has_no_replicates_is_refused_and_nothing_is_written(var, monkeypatch):
    def refused(*arguments):
        return refusal("replicates", *arguments).code

    assert refused("us_trains") == "OD-RELEASE-ABSENT"
    assert refused("us_flights/2001-07/r1") == "OD-RELEASE-ABSENT"
    assert command("replicates", "us_flights", "-n", "0").exit_code == 2
    assert refused("us_flights", "-n", "10001") == "OD-REPLICATES-NUMBER"
    printed("assist", "us_flights")
    assert refused("us_flights_assisted/2001-06/r1") == "OD-DERIVED-KIND"
    printed("sum", "us_flights", "--periods", "2001-05..2001-06")
    assert refused("us_flights_sum/2001-05--2001-06/r1") == "OD-DERIVED-KIND"
    with monkeypatch.context() as patch:
        usage = replicate_files.shutil.disk_usage(var)
        patch.setattr(replicate_files.shutil, "disk_usage", lambda _: usage._replace(free=1000))
        assert refused("us_flights") == "OD-REPLICATES-NUMBER"
    (var / "releases" / NEW / "tables/noisy_measurements.parquet").write_bytes(b"PAR1")
    assert refused(NEW) == "OD-DERIVED-SOURCE"
    assert not (var / "replicates").exists()


WITH_INTERVAL = r"\S+, 90 % interval \S+ to \S+; bias \S+"
WITHOUT = r"\S+; no interval holds, since the bias is \S+ standard errors"


@pytest.mark.slow
def test_the_example_prints_each_result_with_an_interval_or_why_it_has_none(published_flights, monkeypatch, capsys):
    """Which of them have an interval depends on the noise."""
    monkeypatch.setattr("sys.argv", ["example", str(published_flights / "releases" / NEW), str(AIRPORTS)])
    runpy.run_path(str(ROOT / "examples" / "replicates" / "results_with_their_uncertainty.py"), run_name="__main__")
    lines = [line.split(": ") for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _ in lines] == ["power of the distance", "mean distance", "pairs with trips"]
    assert [text for _, text in lines if not re.fullmatch(f"{WITH_INTERVAL}|{WITHOUT}", text)] == []
