"""A project has one ``var`` and one ledger, whichever command or process asks, with a ``.env`` and without."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from od_assets.cli import app
from od_assets.cli.diagnosis import inspect_environment, report_place_of_releases, report_variables
from od_assets.project import find_current_project, load_variables
from od_assets.resources.folders import Folders
from od_assets.resources.warehouse import Warehouse
from od_core.errors import OdError
from tests.projects import make_dg_project

ADDRESS = "postgresql://role:hunter-22@host/data"


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A project in a workspace of ``dg``, which is the working directory, without variables."""
    folder = tmp_path / "workspace" / "project"
    make_dg_project(folder)
    (tmp_path / "workspace" / "dg.toml").write_text('directory_type = "workspace"\n[workspace]\n', encoding="utf-8")
    for name in ("OD_VAR", "OD_LEDGER", "OD_PROJECT", "OD_ENVIRONMENT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    return folder


def write(folder: Path, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".env").write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "var"),
    [
        ("", "var"),
        ("OD_VAR=", "var"),
        ("OD_VAR", "var"),
        ("# a comment\nexport OD_VAR='from file' # another\n", "from file"),
        ("OD_VAR=one\nOD_VAR=two", "two"),
        ("BASE=../data\nOD_VAR=${BASE}/var", "../data/var"),
        ("OD_VAR=${ABSENT:-out}", "out"),
        ("OD_VAR=/srv/var", "/srv/var"),
        ("OD_PROJECT=../data", "../data/var"),
        ("OD_PROJECT=../data\nOD_VAR=out", "out"),
    ],
)
def test_the_file_of_the_project_says_where_it_writes_in_every_working_directory(project, monkeypatch, text, var):
    """A relative path begins in the folder of the file."""
    write(project, text)
    for folder in (project, project / "declared", project.parent, project.parent.parent):
        monkeypatch.chdir(folder)
        if not folder.is_relative_to(project):
            monkeypatch.setenv("OD_PROJECT", str(project))
        assert find_current_project().var == (project / var).resolve()
        assert Warehouse().ledger_place == ((project / var).resolve() / "ledger.sqlite", None)


def test_the_project_counts_before_its_workspace_and_a_change_of_the_file_at_once(project):
    write(project.parent, f"OD_VAR=/srv/all\nOD_LEDGER={ADDRESS}")
    assert Folders().ledger_place == (Path("/srv/all/ledger.sqlite"), ADDRESS)
    write(project, "OD_VAR=/srv/own")
    assert find_current_project().var == Path("/srv/own")
    write(project, "OD_VAR=/srv/moved\nOD_LEDGER=")
    assert Folders().ledger_place == (Path("/srv/moved/ledger.sqlite"), None)


@pytest.mark.parametrize("name", ["OD_VAR", "OD_LEDGER"])
@pytest.mark.parametrize(
    ("given", "of_project", "here", "refused"),
    [
        ("/srv/a", None, None, False),
        ("/srv/a", "/srv/a", None, False),
        ("/srv/a", "/srv/b", None, True),
        ("/srv/a", "", None, True),
        ("", "/srv/b", None, True),
        (None, "/srv/b", "/srv/b", False),
        (None, "/srv/b", "/srv/c", True),
        (None, None, "/srv/c", True),
        ("/srv/c", None, "/srv/c", True),  # a command of Dagster has read it
    ],
)
def test_where_two_doors_would_disagree_both_are_refused(project, monkeypatch, name, given, of_project, here, refused):
    """The environment and the file, or the file and one of the working directory that Dagster's commands read."""
    for folder, value in ((project, of_project), (project.parent.parent / "elsewhere", here)):
        write(folder, "" if value is None else f"{name}={value}")
    if given is not None:
        monkeypatch.setenv(name, given)
    monkeypatch.setenv("OD_PROJECT", str(project))
    monkeypatch.chdir(project.parent.parent / "elsewhere")
    if not refused:
        assert any("/srv/" in str(place) for place in Folders().ledger_place)
        return
    with pytest.raises(OdError, match=f"OD-PROJECT-ENV: .*{name}.*two ledgers") as error:
        assert Folders().ledger_place
    assert "nothing was spent" in str(error.value)
    assert "/srv/" not in str(error.value).replace(str(project), "")


@pytest.mark.parametrize("stated", ["out", "../project/out/", "link", "{project}/out"])
@pytest.mark.parametrize("given", ["{project}/out", "{project}/out/", "{project}/link", "{project}/../project/out"])
def test_one_folder_by_two_paths_is_no_disagreement(project, monkeypatch, stated, given):
    (project / "out").mkdir()
    (project / "link").symlink_to(project / "out")
    write(project, "OD_VAR=" + stated.format(project=project))
    monkeypatch.setenv("OD_VAR", given.format(project=project))
    assert find_current_project().var == project / "out"


def test_a_relative_folder_of_the_environment_is_refused(project, monkeypatch):
    monkeypatch.setenv("OD_VAR", "var")
    with pytest.raises(OdError, match=f"OD-PROJECT-ENV: .* relative .* write it as {project}/var"):
        assert find_current_project().var


@pytest.mark.parametrize("stated", [b"OD_VAR=\xff\n", b'OD_VAR="out\n', b"OTHER=1\nOD_LEDGER='", None])
def test_a_file_that_cannot_be_read_is_named(project, stated):
    """Without it, the project would write elsewhere: a file that is no text, an open quote, and a lost link."""
    if stated is None:
        (project / ".env").symlink_to(project / "secrets")
    else:
        (project / ".env").write_bytes(stated)
    with pytest.raises(OdError, match=r"OD-PROJECT-ENV: .*/\.env cannot be read: (Unicode|Value|FileNotFound)"):
        assert find_current_project().var


def test_a_faulty_line_of_another_variable_is_left_to_others(project):
    (project / ".env").write_text("OD_VAR=out\nOTHER='\n", encoding="utf-8")
    assert find_current_project().var == project / "out"


def test_other_variables_are_those_of_the_file_as_with_dg(project, monkeypatch, capsys):
    """Also in a command; the ledger is in the file alone, and its address is not shown."""
    write(project, f"LAKE=/lake\nPGPASSWORD=of-file\nOD_LEDGER={ADDRESS}\nOD_VAR=out")
    monkeypatch.setenv("LAKE", "/given")
    monkeypatch.setenv("PGPASSWORD", "given")
    with pytest.MonkeyPatch.context() as within:
        within.setenv("OD_THREADS", "1")
        load_variables()
        assert (os.environ["LAKE"], os.environ["PGPASSWORD"]) == ("/lake", "of-file")
        assert "OD_LEDGER" not in os.environ
    said = report_place_of_releases().what
    assert said == (f"releases are written to {project}/out: OD_VAR is stated in .env and OD_LEDGER is stated in .env")
    monkeypatch.setenv("OD_VAR", "/srv/other")
    monkeypatch.setattr(sys, "argv", ["od-release", "status"])
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("OD-PROJECT-ENV: OD_VAR in the environment differs from")


PRINTS = """\
import dagster as dg
from od_assets.code_location import load_from_defs_folder
from od_assets.project import Project, find_current_project
from od_assets.resources.warehouse import Warehouse

print("USES", *Warehouse.from_project(find_current_project()).ledger_place)
defs = dg.Definitions()
"""

DOORS = {
    "dg in the project": ("dg check defs --no-check-yaml --use-active-venv", "."),
    "dagster in the project": ("dagster definitions validate -m declared.places", "."),
    "dagster below it": ("dagster definitions validate -m declared.places", "declared"),
    "python": ("python -c 'import declared.places'", "declared"),
    "dagster elsewhere": ("dagster definitions validate -m declared.places", "../../elsewhere"),
}


GIVEN = [
    (None, ["dg in the project", "dagster below it", "dagster elsewhere"]),
    ("/srv/given", ["dagster in the project", "python"]),
]
"""Variables that the environment has, and doors that are tried with it: each takes ten seconds."""


@pytest.mark.slow
@pytest.mark.parametrize(("given", "doors"), GIVEN)
def test_every_door_uses_one_ledger_or_is_refused(project, given, doors):
    """Commands of Dagster read a file in the working directory, which replaces the environment; others read none."""
    write(project, "OD_VAR=out")
    write(project.parent.parent / "elsewhere", "OD_VAR=/srv/elsewhere")
    (project / "declared" / "__init__.py").touch()
    (project / "declared" / "places.py").write_text(PRINTS, encoding="utf-8")
    settings = (project / "pyproject.toml").read_text(encoding="utf-8")
    settings = settings.replace("od_assets.definitions", "declared.places")
    (project / "pyproject.toml").write_text(settings, encoding="utf-8")
    paths = os.pathsep.join([str(project), *filter(None, sys.path)])
    environment = os.environ | {"PYTHONPATH": paths, "OD_PROJECT": str(project), "DAGSTER_HOME": str(project.parent)}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    if given is not None:
        environment["OD_VAR"] = given
    used = {}
    for door in doors:
        command, folder = DOORS[door]
        place = project / folder
        done = subprocess.run(command, shell=True, cwd=place, env=environment, capture_output=True, text=True)  # noqa: S602
        said = done.stdout + done.stderr
        lines = {line for line in said.splitlines() if line.startswith("USES")}
        used[door] = lines or ({"refused"} if "OD-PROJECT-ENV" in said else {said})
    own = {f"USES {project}/out/ledger.sqlite None"}
    for door, found in used.items():
        expected = own if given is None or door.endswith("in the project") else {"refused"}
        assert found == ({"refused"} if door == "dagster elsewhere" else expected), door


def test_the_name_of_the_environment_is_read_from_the_file_and_no_second_one_is_taken(project, monkeypatch):
    monkeypatch.setenv("OD_ENVIRONMENT", "")
    monkeypatch.delenv("OD_ENVIRONMENT")  # what is loaded is restored
    write(project, "OD_ENVIRONMENT=staging")
    assert Folders().environment == "staging"
    load_variables()
    assert os.environ["OD_ENVIRONMENT"] == "staging"  # for templates of declarations, as in commands of Dagster
    monkeypatch.setenv("OD_ENVIRONMENT", "production")
    load_variables()
    with pytest.raises(OdError, match=r"OD-PROJECT-ENV: OD_ENVIRONMENT in the environment .* two environments"):
        assert Folders().environment


def test_doctor_names_the_file_and_the_variables_that_it_replaces_without_values(project, monkeypatch):
    assert report_variables().what == "variables: there is no .env"
    write(project, "LAKE=of-file\nSAME=of-both\nNEW=of-file")
    for name, value in (("LAKE", "of-shell"), ("SAME", "of-both")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NEW", "")
    monkeypatch.delenv("NEW")
    load_variables()
    said = f"variables: read from {project / '.env'}. The environment has other values of LAKE: those of .env are used"
    assert report_variables().what == said
    assert os.environ["LAKE"] == "of-file"  # as Dagster has it
    load_variables()
    assert report_variables().what == f"variables: read from {project / '.env'}"


def test_doctor_names_the_environment_and_its_ledger_without_role_and_password(project, monkeypatch):
    assert inspect_environment(Folders()).what == (
        f"environment without a name (OD_ENVIRONMENT): the ledger is {project / 'var' / 'ledger.sqlite'}"
    )
    monkeypatch.setenv("OD_ENVIRONMENT", "staging")
    monkeypatch.setenv("OD_LEDGER", ADDRESS)
    found = inspect_environment(Folders())
    assert "hunter" not in str(found.facts())
    monkeypatch.setattr(Folders, "ledger_chain", SimpleNamespace(exists=lambda: False))
    assert inspect_environment(Folders()).what == "environment staging: the ledger is postgresql://host/data"
