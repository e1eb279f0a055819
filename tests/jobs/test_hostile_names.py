"""Names that are valid and look like markup, and folders whose names a terminal would obey, are printed as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import numpy as np
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from od_assets.cli import app as cli
from od_assets.runs import jobs
from od_assets.series.reading import declaration
from od_core import Budget, Geography, PrivacyUnit, release_flows
from od_core.flows.publishing.kind import FLOWS
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.certify import certificate
from tests.od_assets.conftest import ATTRIBUTES, DOMAIN, Project
from tests.od_core.publication.examples import ALL_FORMATS, CHECKS, RECORD, staged_bundle
from tests.projects import make_dg_project

REGION, ZONE = "[/bold]", ":key:"
"""Names of levels: an end of markup that was never begun, and what is replaced by a picture."""

CODES = pd.DataFrame([("[red]", f"Z{number}[/]") for number in range(3)], columns=[REGION, ZONE])

FOLDER = "\x1b]0;title\x07\x9b2J\u202e"
"""Renames the window, clears the screen, writes backwards."""


def said(*arguments: object, code: int = 0) -> str:
    """What a command says on both streams: nothing in it moves a terminal."""
    result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    assert [sign for sign in result.output if not (sign.isprintable() or sign == "\n")] == []
    return result.output


def trips(period: str) -> pd.DataFrame:
    ends = np.random.default_rng(5).choice(CODES[ZONE].to_numpy(), (2, 500))
    return pd.DataFrame({"date": f"{period}-15", "origin": ends[0], "destination": ends[1]})


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project in such a folder, with a month of records."""
    root = tmp_path / FOLDER
    monkeypatch.setenv("OD_PROJECT", str(root))
    monkeypatch.setenv("OD_VAR", str(root / "var"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))  # the command sets its own
    defs = make_dg_project(root)
    (defs / "trips").mkdir()
    CODES.to_csv(root / "zones.csv", index=False)
    trips("2001-01").to_csv(root / "2001-01.csv", index=False)
    declared = ATTRIBUTES | {"geography": {"file": "zones.csv", "levels": [REGION, ZONE]}}
    text = yaml.dump({"type": "od_assets.components.OdRelease", "attributes": declared})
    (defs / "trips" / "defs.yaml").write_text(text, encoding="utf-8")
    (defs / "domains" / "trips.yaml").write_text(yaml.dump(DOMAIN), encoding="utf-8")
    with dg.DagsterInstance.ephemeral() as instance:
        definitions = Project(root, lambda: instance).definitions(declaration("trips"))
        monkeypatch.setattr(jobs, "load_definitions", lambda: definitions)
        yield root


def bundle_of_another_month(folder: Path) -> Path:
    """Published elsewhere, over the same areas."""
    key, geography = ReleaseKey("trips", "2001-02"), Geography.from_frame(CODES, [REGION, ZONE])
    budget = Budget(epsilon=1, delta="1e-8")
    records = trips("2001-02")[["origin", "destination"]]
    release = release_flows(records, geography, unit=PrivacyUnit("trip"), budget=budget, noise="table")
    facts = certificate(FLOWS, release, key, "trips", CHECKS, record=RECORD, formats=ALL_FORMATS)
    with staged_bundle(release, facts, folder):
        pass
    return folder


def test_every_command_prints_names_as_they_are(root: Path, tmp_path: Path) -> None:
    outcome = said("run", "trips", "--period", "2001-01", "--explain")
    assert REGION in outcome
    assert ZONE in outcome
    assert r"/\x1b]0;title\x07\x9b2J\u202e/var/releases" in outcome
    assert ZONE in said("plan", "trips")
    assert REGION in said("forecast", "trips", "--runs", "1", "--epsilon", "1", "--to", tmp_path / "[/x]")
    assert "published" in said("status")
    assert "1 of 1 releases verified" in said("verify")
    assert "trips" in said("ledger")
    assert "intact" in said("ledger", "verify")
    changes = said("compare", "trips/2001-01/r1", bundle_of_another_month(root / "bundle"))
    assert f"{REGION} to {REGION}" in changes
    assert "[red]" in changes
    (root / "var" / "releases" / "trips" / "2001-01" / "r1" / "tables/areas.csv").unlink()
    assert "NOT VERIFIED" in said("verify", code=1)
    (root / "2001-01.csv").unlink()
    assert "WRONG" in said("doctor", "trips", "--period", "2001-01", code=1)
