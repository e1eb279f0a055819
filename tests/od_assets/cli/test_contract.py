"""``od-release contract`` on published releases, in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from od_assets.cli.app import app
from od_core import data_contract
from tests.published_flights import KEYS


def test_the_contract_of_a_release_is_printed_as_yaml_or_json(
    published_flights: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    monkeypatch.setenv("OD_VAR", str(published_flights))
    key = str(KEYS[0])
    expected = data_contract(published_flights / "releases" / key)
    assert yaml.safe_load(CliRunner().invoke(app, ["contract", key]).stdout) == expected
    place = str(published_flights / "releases" / key)
    assert json.loads(CliRunner().invoke(app, ["contract", place, "--json"]).stdout) == expected
    assert f"us_flights/1999-01/r1 is not published here; published releases: {key}" in refused(
        "contract", "us_flights/1999-01/r1"
    )
