"""``od-release purge``, and the rule that does the same at the end of a run."""

import json

import dagster as dg
import pytest

from od_assets.resources.warehouse import Warehouse
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from tests.od_assets.cli.commands import command
from tests.od_core.ledger.ledger_rows import domain, finish, small_plan


def test_copies_of_records_of_published_releases_are_removed(project):
    """Of no other release, of none that is younger than asked, and after a question."""
    ledger, copies = Ledger(project.var / "ledger.sqlite"), {}
    ledger.declare(domain(1))
    for month in ("2001-06", "2001-07"):
        key = ReleaseKey("commuters", month)
        ledger.reserve(key, "commuters", small_plan())
        copies[month] = project.var / "confidential" / key.folder / "raw_trips.parquet"
        copies[month].parent.mkdir(parents=True)
        (copies[month].parent / "identity.json").touch()
        copies[month].touch()
    june = ReleaseKey("commuters", "2001-06")
    for level in (1, 2, 3, 4):
        ledger.start_draw(june, level)
        finish(ledger, june, level, "0")
    ledger.publish(june, "0" * 64)
    assert "Nothing was removed" in command("purge", input="n\n").stdout
    assert "Nothing was removed" in command("purge", "--dry-run").stdout
    younger = command("purge", "--older-than", "1", "--yes", "--json")
    assert json.loads(younger.stdout) == {"removed": False, "files": []}
    said = command("purge", "--older-than", "1").stdout
    assert said == "No published release of that age has a copy of its records.\n"
    named = json.loads(command("purge", "--json").stdout)
    assert named == {"removed": False, "files": [{"release": str(june), "file": str(copies["2001-06"])}]}
    assert all(copy.exists() for copy in copies.values())
    assert "1 removed" in command("purge", input="y\n").stdout
    assert [copy.exists() for copy in copies.values()] == [False, True]
    assert (copies["2001-06"].parent / "identity.json").exists()
    assert command("purge").stdout == "No published release has a copy of its records.\n"


@pytest.mark.slow
def test_a_run_removes_copies_when_it_ends(released):
    """And not before, none that is younger than the rule says, and none of a release that the run works on."""
    copy = released.var / "confidential" / "trips" / "2001-01" / "r1" / "raw_trips.parquet"
    seen = []

    @dg.asset
    def step(od_warehouse: dg.ResourceParam[Warehouse]) -> None:
        seen.append(copy.exists())
        od_warehouse.works[ReleaseKey("trips", months[len(left)])] = None

    left, months = [], ("2001-02", "2001-02", "2001-01", "2001-02")
    for days in (None, 1, 0, 0):
        warehouse = Warehouse(folder=str(released.var), keep_records_days=days)
        assert dg.materialize([step], instance=released.instance, resources={"od_warehouse": warehouse}).success
        left.append(copy.exists())
    assert (seen, left) == ([True] * 4, [True, True, True, False])
