"""A reader who may write nothing, such as an auditor, is told the same as the owner, and nothing is changed."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from od_core import OdError
from tests.od_assets.cli.commands import command
from tests.od_assets.conftest import Project, projects_in, states
from tests.privileges import without_rights_of_root

KEY = "trips/2001-01/r1"
READING = [["status"], ["ledger"], ["ledger", "verify"], ["verify"], ["explain", KEY], ["plan", "trips"]]
READING += [["doctor", "trips", "--period", "2001-01"]]


@pytest.fixture(scope="module")
def read_only(first_run) -> Iterator[tuple[Project, dict[str, str]]]:
    """A published month of which a reader may read all and write nothing, and what its owner was told."""
    with TemporaryDirectory() as name, projects_in(Path(name)) as make:
        Path(name).chmod(0o755)
        project = make()
        shutil.copytree(first_run[0], project.var)
        project.component()  # declares the data set
        project.declare()
        (project.root / "temporary").mkdir()
        (project.root / "temporary").chmod(0o777)
        owner = {" ".join(words): command(*words).output for words in READING}
        (project.var / "dagster" / "history").mkdir(parents=True)
        (project.var / "dagster" / "dagster.yaml").touch()
        (project.var / "dagster" / "history" / "runs.db").touch()
        for path in (project.var, *project.var.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        yield project, owner
        for path in (project.var, *project.var.rglob("*")):
            path.chmod(0o755)


@pytest.fixture(autouse=True)
def readers_folders(read_only, monkeypatch):
    """The folder that is read, and one for temporary files, which every reader has."""
    monkeypatch.setenv("OD_VAR", str(read_only[0].var))
    monkeypatch.setenv("DAGSTER_HOME", str(read_only[0].var / "dagster"))
    monkeypatch.setattr(tempfile, "tempdir", str(read_only[0].root / "temporary"))


@pytest.mark.representatives("ledger verify", "plan trips")
@pytest.mark.parametrize("words", READING[:-1], ids=" ".join)
def test_a_reader_is_told_the_same_as_the_owner(read_only, words):
    project, owner = read_only
    before = states(project.var)
    with without_rights_of_root():
        result = command(*words)
    assert (result.exit_code, result.output) == (0, owner[" ".join(words)])
    assert states(project.var) == before


def test_the_doctor_names_what_cannot_be_inspected_and_whose_it_is(read_only):
    project, _ = read_only
    before = states(project.var)
    with without_rights_of_root():
        said = command(*READING[-1])
    lines = said.output.splitlines()
    owner = "belongs to root" if os.geteuid() == 0 else "belongs to "
    assert len(lines) > 15, said.output
    (runs,) = [line for line in lines if "runs of dead processes" in line]
    assert runs.startswith("ok ")
    assert f"not looked for; {project.var}/dagster/history {owner}" in runs
    (copy,) = [line for line in lines if f"input of {KEY}" in line]
    assert copy.startswith("WRONG ")
    assert f"{project.var}/confidential {owner}" in copy
    assert any(line.startswith("ok ") and "ledger: " in line for line in lines)
    assert f"ok     budget of {KEY}: it is charged already" in lines
    assert states(project.var) == before


def test_a_closed_confidential_folder_is_named_with_its_owner(read_only, monkeypatch):
    """Without it nobody can tell whether the ledger is the newest. What a bundle says needs no ledger."""
    project, _ = read_only
    monkeypatch.setenv("OD_VAR", str(project.var))
    confidential = project.var / "confidential"
    confidential.chmod(0)
    try:
        with without_rights_of_root():
            refused = [command(*words).exception for words in (["status"], ["verify"])]
            explained = command("explain", KEY)
    finally:
        confidential.chmod(0o555)
    for error in refused:
        assert isinstance(error, OdError)
        assert error.code == "OD-LEDGER-UNAVAILABLE"
        assert f"{confidential} belongs to" in error.message
        assert "with mode 0000" in error.message
    assert explained.exit_code == 0
    assert "The ledger is not at hand" in explained.output
