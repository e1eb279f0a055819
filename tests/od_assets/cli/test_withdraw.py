"""``od-release withdraw``: a release goes from everything that is public, and its charge stays."""

from __future__ import annotations

import json
import stat
from typing import Any

from typer.testing import CliRunner

from od_assets.cli.app import app
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.database import stored_releases
from od_core.published.opening import published_bundles
from tests.od_assets.conftest import Project
from tests.od_core.ledger.ledger_rows import rows

GONE, WHY = "trips/2001-01/r1", "a file of records was counted twice"
KEY = ReleaseKey.parse(GONE)


def run(*arguments: str) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    return json.loads(result.stdout)


def withdraw(release: str = GONE) -> Any:
    return run("withdraw", release, "--reason", WHY)


def test_a_withdrawn_release_is_nowhere_public_and_stays_charged(released: Project) -> None:
    run("site", "--url", "https://statistics.example/od")
    var, ledger = released.var, Ledger(released.var / "ledger.sqlite")
    before = ledger.balance("trips", "2001-01"), len(rows(ledger.path))
    (said,) = withdraw()["withdrawn"]
    assert (said["release"], said["reason"]) == (GONE, WHY)
    assert (ledger.balance("trips", "2001-01"), len(rows(ledger.path))) == (before[0], before[1] + 1)
    assert ledger.verify() == before[1] + 1
    assert published_bundles(var / "releases") == {}
    assert stored_releases(var / "release.duckdb") == []
    assert GONE.encode() not in (var / "release.duckdb").read_bytes()  # nor in its free space
    left = [path for path in (var / "releases").rglob("*") if path.is_file()]
    assert left == [var / "releases" / f"{GONE}.withdrawn.json"]
    assert json.loads(left[0].read_text(encoding="utf-8"))["reason"] == WHY
    kept = var / "confidential" / "withdrawn" / GONE
    assert (kept / "certificate.json").is_file()
    assert {stat.S_IMODE(path.stat().st_mode) for path in (kept, *kept.rglob("*"))} == {0o600, 0o700}
    assert [row["state"] for row in run("status") if row["release"] == GONE] == ["withdrawn"]
    assert run("verify") == []
