"""``od-release contract``, ``explain`` and ``disclose`` on published releases, in this process."""

import json
import sys
from pathlib import Path

import pytest
import yaml

from od_assets.cli.app import main
from od_core import data_contract
from od_core.published.documents import DESCRIPTIONS, disclosure_documents
from od_core.published.explanation import explain_release
from tests.od_assets.cli.commands import printed, stated
from tests.published_flights import KEYS

KEY = str(KEYS[0])


@pytest.fixture
def bundle(published_flights, tmp_path, monkeypatch) -> Path:
    """A bundle of a project that holds nothing else, and is not to be changed."""
    (tmp_path / "var").mkdir()
    (tmp_path / "var" / "releases").symlink_to(published_flights / "releases")
    monkeypatch.setenv("OD_VAR", str(tmp_path / "var"))
    return published_flights / "releases" / KEY


@pytest.mark.parametrize("command", ["contract", "explain", "disclose"])
def test_a_release_that_is_not_published_is_refused(bundle, refused, command):
    said = refused(command, "us_flights/1999-01/r1")
    assert f"us_flights/1999-01/r1 is not published here; published releases: {KEY}" in said


def test_the_contract_of_a_release_is_printed_as_yaml_or_json(bundle):
    expected = data_contract(bundle)
    assert yaml.safe_load(printed("contract", KEY)) == expected
    assert stated("contract", str(bundle)) == expected


def test_a_release_is_explained_as_text_or_json_and_nothing_is_written(bundle, tmp_path):
    before = sorted([*bundle.rglob("*"), *tmp_path.rglob("*")])
    expected = json.loads(json.dumps(explain_release(bundle).to_facts()))
    assert stated("explain", KEY) == expected
    said = " ".join(printed("explain", KEY).split())
    assert expected["attacker"]["statement"] in said
    assert [one for one in expected["decisions"]["alternatives"] if one["choice"] not in said] == []
    assert sorted([*bundle.rglob("*"), *tmp_path.rglob("*")]) == before


def test_the_documents_of_a_release_are_written_below_the_project_or_where_one_says(bundle, tmp_path, refused):
    _, expected = disclosure_documents(bundle)
    said = printed("disclose", KEY)
    assert [name for name in DESCRIPTIONS if name not in said] == []
    written = tmp_path / "var" / "disclosure" / KEY
    assert {file.name: file.read_text("utf-8") for file in written.iterdir()} == expected
    again = stated("disclose", KEY)
    assert (again["release"], again["changed"], again["files"].keys()) == (KEY, [], DESCRIPTIONS.keys())
    printed("disclose", KEY, "--folder", str(tmp_path / "elsewhere"))
    assert {file.name: file.read_text("utf-8") for file in (tmp_path / "elsewhere").iterdir()} == expected
    assert "OD-DISCLOSURE-FOLDER" in refused("disclose", KEY, "--folder", str(bundle))


def test_a_folder_that_the_system_refuses_is_named_in_one_line(bundle, monkeypatch, capsys):
    folder = "n" * 300
    monkeypatch.setattr(sys, "argv", ["od-release", "disclose", str(bundle), "--folder", folder])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.startswith("OD-SYSTEM: ")
    assert folder in said
    assert len(said.splitlines()) == 1
