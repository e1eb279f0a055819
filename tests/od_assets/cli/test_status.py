"""What ``od-release status`` says of releases whose declaration was changed."""

from __future__ import annotations

import pytest

from od_assets.cli.tables import print_status
from od_assets.resources.warehouse import Warehouse
from od_assets.runs.period_status import period_status, release_status
from od_core.ledger.release_key import ReleaseKey
from tests.od_assets.conftest import Project


def test_changed_settings_are_named_and_the_state_stays(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    settings = project.component().settings()
    key, ledger = settings.key("2001-01"), Warehouse().ledger
    ledger.declare(settings.domain)
    ledger.reserve(key, settings.domain.name, settings.plan(settings.read_geography(), key.period))

    same, later = period_status(project.component(), ledger)
    assert (same["state"], same["settings_changed"]) == ("begun", [])
    assert (later["state"], later["settings_changed"]) == ("waits", None)
    print_status([same, later])
    assert "other settings" not in capsys.readouterr().out

    other, _ = period_status(project.component(privacy__epsilon="1/2", tree="origin"), ledger)
    assert other["settings_changed"] == ["epsilon", "rho", "steps", "tree"]
    assert other | {"settings_changed": []} == same
    print_status([other | {"state": "published"}])
    said = " ".join(capsys.readouterr().out.split())
    assert "│ published │" in said
    assert f"{key} was published with other settings than those declared now: epsilon, rho, steps, tree." in said

    (project.root / "zones.csv").unlink()
    unplanned, _ = period_status(project.component(), ledger)
    assert (unplanned["state"], unplanned["settings_changed"]) == ("begun", None)
    assert release_status(ledger, ReleaseKey("gone", "2001-01"))["settings_changed"] is None
