"""``od-release explain`` on a published release, in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from od_assets.cli.app import app
from od_core.published.explanation import explain_release
from tests.published_flights import KEYS


def test_a_release_is_explained_as_text_or_json_and_nothing_is_written(
    published_flights: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    monkeypatch.setenv("OD_VAR", str(published_flights))
    key = str(KEYS[0])
    before = sorted(published_flights.rglob("*"))
    expected = json.loads(json.dumps(explain_release(published_flights / "releases" / key).to_facts()))
    assert json.loads(CliRunner().invoke(app, ["explain", key, "--json"]).stdout) == expected
    said = " ".join(CliRunner().invoke(app, ["explain", key]).stdout.split())
    assert expected["attacker"]["statement"] in said
    assert "The ledger is not at hand" in said
    for one in expected["decisions"]["alternatives"]:
        assert one["choice"] in said
    assert sorted(published_flights.rglob("*")) == before
    assert "us_flights/1999-01/r1 is not published here" in refused("explain", "us_flights/1999-01/r1")
