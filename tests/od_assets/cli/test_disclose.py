"""``od-release disclose`` on published releases, in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from od_assets.cli.app import app, main
from od_core.published.documents import DESCRIPTIONS, disclosure_documents
from tests.published_flights import KEYS


def test_the_documents_of_a_release_are_written_below_the_project_or_where_one_says(
    published_flights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    var = tmp_path / "var"
    var.mkdir()
    (var / "releases").symlink_to(published_flights / "releases")
    monkeypatch.setenv("OD_VAR", str(var))
    key = str(KEYS[0])
    _, expected = disclosure_documents(published_flights / "releases" / key)
    said = CliRunner().invoke(app, ["disclose", key]).stdout
    assert [name for name in DESCRIPTIONS if name not in said] == []
    assert {file.name: file.read_text("utf-8") for file in (var / "disclosure" / key).iterdir()} == expected
    again = json.loads(CliRunner().invoke(app, ["disclose", key, "--json"]).stdout)
    assert (again["release"], again["changed"], again["files"].keys()) == (key, [], DESCRIPTIONS.keys())
    folder = tmp_path / "elsewhere"
    assert CliRunner().invoke(app, ["disclose", key, "--folder", str(folder)]).exit_code == 0
    assert {file.name: file.read_text("utf-8") for file in folder.iterdir()} == expected
    assert "us_flights/1999-01/r1 is not published here" in refused("disclose", "us_flights/1999-01/r1")
    bundle = str(published_flights / "releases" / key)
    assert "OD-DISCLOSURE-FOLDER" in refused("disclose", key, "--folder", bundle)


def test_a_folder_that_the_system_refuses_is_named_in_one_line(
    published_flights: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle, folder = str(published_flights / "releases" / str(KEYS[0])), "n" * 300
    monkeypatch.setattr(sys, "argv", ["od-release", "disclose", bundle, "--folder", folder])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.startswith("OD-SYSTEM: ")
    assert folder in said
    assert "File name too long" in said
    assert len(said.splitlines()) == 1
