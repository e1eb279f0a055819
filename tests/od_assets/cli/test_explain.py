"""``od-release explain`` on a published release, in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from od_assets.cli.app import app
from od_assets.cli.printing import text
from od_core.meaning.subject import Subject
from od_core.published.explanation import Alternative, explain_release
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


OF_TRIPS = Subject("flows", "trip", "bounded")


def test_only_rows_and_columns_of_the_table_are_explained() -> None:
    """Group sizes and trips with stops have neither a delta nor an expected error."""
    plain = text("explain.choices", subject=OF_TRIPS, choices=[Alternative("as released", "one trip", noise=1.0)])
    assert "in the rows of epsilon," in plain
    assert "Error" not in plain
    flows = text("explain.choices", subject=OF_TRIPS, choices=[Alternative("delta", "1e-6", error=1.0)])
    assert "in the rows of delta and epsilon," in flows
    assert "Error: the root mean square" in flows
