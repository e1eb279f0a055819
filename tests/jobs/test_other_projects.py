"""Projects of other teams: what they share with this one, and what they may not."""

import multiprocessing
import shutil
from typing import Any

import dagster as dg
import pytest
from dagster import ComponentTree

from od_assets import code_location
from od_assets.code_location import load_definitions
from od_assets.components.series import ExampleScaffolder
from od_assets.project import CHECKOUT, Project, find_current_project, prepare_dagster_home, read_project
from od_assets.resources.dead_runs import PROCESS_TAG, mark_process
from od_assets.resources.warehouse import Warehouse
from od_assets.series.reading import (
    RELEASES,
    WAREHOUSE,
    find_series,
    list_series_names,
    read_component_type,
    select_declaration_files,
)
from od_core.errors import OdError
from tests.od_assets.conftest import SILENT, failure_text, records
from tests.projects import make_dg_project


def test_a_data_set_has_one_ledger_in_a_dagster_instance(make_project, monkeypatch):
    project = make_project()
    assert project.run(period="2001-01").success
    monkeypatch.setenv("OD_VAR", str(project.root / "elsewhere"))
    refused = project.run(period="2001-01")
    assert "OD-LEDGER-OTHER" in failure_text(refused)
    assert not (project.root / "elsewhere" / "releases").exists()
    monkeypatch.setenv("OD_VAR", str(project.var))
    project.write_records(records().assign(date="2001-02-15"), "2001-02")
    assert project.run(period="2001-02").success


def test_a_copy_of_a_project_does_not_spend_its_budget_again(make_project, monkeypatch):
    """Both ledgers have the same entries up to the copy; the instance has seen one that only the first one has."""
    project = make_project()
    project.write_records(records().assign(date="2001-02-15"), "2001-02")
    assert project.run(period="2001-01").success
    shutil.copytree(project.var, project.root / "copy")
    assert project.run(period="2001-02").success
    monkeypatch.setenv("OD_VAR", str(project.root / "copy"))
    assert "OD-LEDGER-OTHER" in failure_text(project.run(period="2001-02"))


def test_the_folder_of_the_warehouse_cannot_be_chosen_for_a_run(make_project):
    project = make_project()
    component = project.component()
    elsewhere = project.root / "elsewhere"
    configured = {"resources": {"od_warehouse": {"config": {"folder": str(elsewhere)}}}}
    found = project.definitions(component)
    with pytest.raises(dg.DagsterInvalidConfigError, match=r'unexpected config entry "folder"'):
        found.resolve_job_def("trips_release").execute_in_process(
            partition_key="2001-01", instance=project.instance, run_config=SILENT | configured
        )
    bound = dg.Definitions(
        assets=found.assets,
        asset_checks=found.asset_checks,
        jobs=found.jobs,
        resources={**(found.resources or {}), "od_warehouse": Warehouse(folder=str(elsewhere))},
    )
    result = project.execute(bound.resolve_job_def("trips_release"), partition="2001-01")
    assert "OD-WAREHOUSE-OTHER" in failure_text(result)
    assert not list(elsewhere.rglob("*.parquet"))


@pytest.mark.parametrize("stated", [False, True], ids=["its own var", "a stated var"])
def test_another_copy_of_the_package_is_not_taken_for_the_project(tmp_path, monkeypatch, stated):
    """Python imports the definitions of this checkout, whichever folder the command is called in."""
    if not stated:
        monkeypatch.delenv("OD_VAR")
    monkeypatch.setenv("OD_PROJECT", str(tmp_path))
    make_dg_project(tmp_path)
    with pytest.raises(OdError, match=r"OD-CODE-LOCATION: Python imports od_assets\.definitions from another copy"):
        load_definitions()


def test_a_module_that_writes_elsewhere_is_refused(tmp_path, monkeypatch):
    """As an installed copy does, which is in no project."""
    elsewhere = dg.Definitions(resources={"od_warehouse": Warehouse(folder=str(tmp_path / "elsewhere"))})
    monkeypatch.setattr(code_location, "_load_module_definitions", lambda project: elsewhere)
    with pytest.raises(OdError, match=r"OD-CODE-LOCATION: .* which writes to .*elsewhere and not to"):
        load_definitions()


def test_another_project_of_the_environment_is_not_the_root_of_this_one(tmp_path, monkeypatch):
    context = ComponentTree.for_project(CHECKOUT).decl_load_context
    monkeypatch.setenv("OD_PROJECT", str(tmp_path))
    assert Project.from_context(context).root == tmp_path  # a folder of data
    make_dg_project(tmp_path)
    assert Project.from_context(context).root == CHECKOUT


def test_a_child_of_a_code_server_marks_itself(make_project):
    project = make_project()
    job = project.definitions(project.component()).resolve_job_def("trips_release")
    with dg.instance_for_test() as instance:
        run = instance.create_run_for_job(job)
        child = multiprocessing.get_context("spawn").Process(target=mark, args=(instance.get_ref(), run.run_id))
        child.start()
        child.join()
        assert child.exitcode == 0
        assert instance.get_run_by_id(run.run_id).tags[PROCESS_TAG].startswith(f"{child.pid}-")


def mark(reference: Any, run: str) -> None:
    with dg.DagsterInstance.from_ref(reference) as instance:
        mark_process(instance, run)


def test_the_ui_does_not_start_in_the_home_of_a_deployment(refused, tmp_path, monkeypatch):
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n", encoding="utf-8")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    assert refused("ui").startswith("OD-UI-HOME")


@pytest.mark.parametrize("layout", ["src/team", "team"])
def test_a_project_is_found_from_any_folder_in_it(layout, tmp_path, monkeypatch):
    monkeypatch.delenv("OD_PROJECT", raising=False)
    (tmp_path / layout / "defs" / "deep").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.dg.project]\nroot_module = "team"\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path / layout / "defs" / "deep")
    assert find_current_project() == Project(tmp_path, tmp_path / layout / "defs", "team.definitions")


def test_a_project_without_its_package_is_refused(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.dg.project]\nroot_module = "absent_team"\n', encoding="utf-8")
    with pytest.raises(OdError, match=r"OD-PROJECT-ABSENT.*absent_team\.defs"):
        read_project(tmp_path)


def test_no_project_anywhere_is_said(tmp_path, monkeypatch):
    monkeypatch.delenv("OD_PROJECT", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("od_assets.project.CHECKOUT", tmp_path)
    with pytest.raises(OdError, match="OD-PROJECT-ABSENT"):
        find_current_project()


def test_the_settings_of_a_project_that_is_installed_beside_this_package_are_not_followed(tmp_path, monkeypatch):
    """A project of create-dagster has a copy of its ``pyproject.toml`` beside the packages, but no ``var`` there."""
    monkeypatch.delenv("OD_PROJECT", raising=False)
    make_dg_project(tmp_path / "packages")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr("od_assets.project.CHECKOUT", tmp_path / "packages")
    assert find_current_project().root == tmp_path / "packages"  # as in a checkout
    monkeypatch.setattr("od_assets.project.IS_CHECKOUT", False)
    with pytest.raises(OdError, match="OD-PROJECT-ABSENT"):
        find_current_project()


def test_a_scaffolded_release_declares_a_warehouse_if_there_is_none(tmp_path):
    defs = make_dg_project(tmp_path)

    def scaffolded(name):
        (defs / name).mkdir()
        ExampleScaffolder().scaffold(
            dg.ScaffoldRequest("od_assets.components.OdRelease", defs / name, "yaml", tmp_path, params=None)
        )
        return {path.parent.name for path in select_declaration_files(WAREHOUSE, project=read_project(tmp_path))}

    assert scaffolded("warehouse") == set()  # the place is taken by a release, which stays
    assert read_component_type(defs / "warehouse" / "defs.yaml") == RELEASES[0]
    shutil.rmtree(defs / "warehouse")
    assert scaffolded("trips") == {"warehouse"}
    (defs / "warehouse").rename(defs / "shared")
    assert scaffolded("flights") == {"shared"}


def test_declarations_are_found_in_folders_of_folders_but_once(tmp_path, monkeypatch):
    monkeypatch.setenv("OD_PROJECT", str(tmp_path))
    defs = make_dg_project(tmp_path)
    for folder, kind in (("team_a/trips", "'od_assets.components.OdRelease' # flows"), ("team_b/flights", RELEASES[0])):
        (defs / folder).mkdir(parents=True)
        (defs / folder / "defs.yaml").write_text(f"type: {kind}\n", encoding="utf-8")
    assert list_series_names() == ("flights", "trips")
    assert find_series("trips").path == defs / "team_a" / "trips" / "defs.yaml"
    shutil.copytree(defs / "team_a" / "trips", defs / "team_b" / "trips")
    with pytest.raises(OdError, match=r"trips is declared twice: in team_a/trips and team_b/trips"):
        find_series("trips")


def test_the_dagster_home_of_a_team_is_left_as_it_is(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n", encoding="utf-8")
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    assert prepare_dagster_home() == home
    assert [file.name for file in home.iterdir()] == ["dagster.yaml"]
