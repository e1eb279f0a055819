"""``od-release purge``, and the rule that does the same at the end of a run."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from od_assets.cli.app import app
from od_assets.resources.warehouse import Warehouse
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from tests.od_assets.conftest import Project
from tests.od_core.ledger.ledger_rows import domain, finish, small_plan


def test_copies_of_records_of_published_releases_are_removed(project: Project) -> None:
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
    command = CliRunner()
    assert "Nothing was removed" in command.invoke(app, ["purge"], input="n\n").stdout
    assert "Nothing was removed" in command.invoke(app, ["purge", "--dry-run"]).stdout
    younger = command.invoke(app, ["purge", "--older-than", "1", "--yes", "--json"])
    assert json.loads(younger.stdout) == {"removed": False, "files": []}
    named = json.loads(command.invoke(app, ["purge", "--json"]).stdout)
    assert named == {"removed": False, "files": [{"release": str(june), "file": str(copies["2001-06"])}]}
    assert all(copy.exists() for copy in copies.values())
    assert "1 removed" in command.invoke(app, ["purge"], input="y\n").stdout
    assert [copy.exists() for copy in copies.values()] == [False, True]
    assert (copies["2001-06"].parent / "identity.json").exists()
    copies["2001-06"].touch()
    warehouse = Warehouse(folder=str(project.var))
    for days, is_kept in ((1, True), (0, False)):
        warehouse.purge(days)  # as a run does when it ends
        assert copies["2001-06"].exists() == is_kept
    assert copies["2001-07"].exists()
