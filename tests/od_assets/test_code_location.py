"""A code location with broken declarations: the other releases go on, and the fault is told."""

import json
import logging
import os
import re
import sys
import warnings

import dagster as dg
import pytest
import yaml
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster_shared.serdes import serialize_value

from od_assets.cli.diagnosis import inspect_code_location
from od_assets.code_location import load_definitions, load_from_defs_folder
from od_assets.components.project import refuse_broken_declarations
from od_assets.series.reading import read_declared_series
from od_assets.testing import check_project
from od_core.errors import OdError
from tests.od_assets.cli.commands import command
from tests.od_assets.conftest import ATTRIBUTES, Project, records
from tests.projects import declare, define_all

OF_TRIPS = yaml.dump({"type": "od_assets.components.OdRelease", "attributes": ATTRIBUTES})
BROKEN = {
    "attributes:\n  unit: [trip\n": "broken/defs.yaml is not valid YAML (line 3)",
    "type: od_assets.components.OdRelease\nattributes:\n  epsilonn: 1\n": "broken/defs.yaml: epsilonn (line 3): Extra",
    "type: od_assets.components.OdReleas\nattributes: {}\n": "there is no component od_assets.components.OdReleas (did",
    "type: od_asets.components.OdRelease\nattributes: {}\n": "broken/defs.yaml: type: there is no package 'od_asets'",
    OF_TRIPS: "broken/defs.yaml: name: 'trips' differs from the name of its folder",
    "\n".join(["a0: &a0 [x, x]", *(f"a{k}: &a{k} [*a{k - 1}, *a{k - 1}]" for k in range(1, 40))]): (
        "broken/defs.yaml is not valid YAML (line 1): its aliases (*) stand for more than 100,000 values"
    ),
    "type: [1]\n": "broken/defs.yaml: type: must name a component",
    "type: od_assets.components.OdSite\nattributes: {title: x}\n": "broken/defs.yaml: owners (line 2): Field required",
    "type: od_assets.components.OdComparison\nattributes: {name: broken, owners: [], mechanisms: [inftdda]}\n": (
        "broken/defs.yaml: there is no mechanism 'inftdda' (did you mean 'inftda'?)"
    ),
}
"""Faults of a declaration, and a part of the message."""

BESIDE = """
import dagster as dg


@dg.asset
def beside():
    pass
"""
"""An asset of the team itself, below the folder of declarations."""


def declaration_of(name: str, **trips: str) -> str:
    """The text of a declaration of a release."""
    attributes = ATTRIBUTES | {"name": name, "trips": ATTRIBUTES["trips"] | trips}
    return yaml.dump({"type": "od_assets.components.OdRelease", "attributes": attributes})


@pytest.fixture(params=["dagster", "od_assets.code_location"])
def loader(request) -> str:
    """Where the project's definitions have their function from: Dagster's own loads all declarations or none."""
    return str(request.param)


def declare_beside_trips(
    project: Project, monkeypatch: pytest.MonkeyPatch, loader: str, /, **declarations: str
) -> None:
    """Write declarations of a team's own project with a release, an asset, and a warehouse unless one is given."""
    project.component()  # writes the domain
    project.declare()
    declare(project.defs, "warehouse", "OdWarehouse", {})
    for name, written in declarations.items():
        (project.defs / name).mkdir(exist_ok=True)
        (project.defs / name / "defs.yaml").write_text(written, encoding="utf-8")
    define_all(project.root, loader)
    (project.defs / "beside.py").write_text(BESIDE, encoding="utf-8")
    for name in [name for name in sys.modules if name.partition(".")[0] == "declared"]:  # of another test
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(project.root)


@pytest.mark.representatives(
    "*unit: ?trip*od_assets*", "*OdReleas?nattributes*od_assets*", "a0:*od_assets*", "*epsilonn*dagster"
)
@pytest.mark.parametrize(
    ("text", "loader"),
    [*((text, "od_assets.code_location") for text in BROKEN), *((text, "dagster") for text in [*BROKEN][:5])],
    indirect=["loader"],
)
def test_a_broken_declaration_is_named_and_the_others_go_on(project, text, loader, monkeypatch, caplog):
    declare_beside_trips(project, monkeypatch, loader, broken=text)
    with pytest.raises(OdError, match=f"^OD-(CONFIG|MECHANISM-UNKNOWN|SITE-ADDRESS): .*{re.escape(BROKEN[text])}"):
        refuse_broken_declarations()
    finding = inspect_code_location()
    assert BROKEN[text] in str(finding.fault)
    caplog.clear()
    loaded = load_definitions()
    assert loaded.resolve_job_def("trips_release")
    assert dg.AssetKey("beside") in loaded.resolve_asset_graph().get_all_asset_keys()
    [said] = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert said.startswith(f"the folder {project.defs / 'broken'} is left out")
    assert BROKEN[text] in said
    [sensor] = [sensor for sensor in loaded.sensors or [] if sensor.name == "broken_declarations"]
    assert "broken" in str(sensor.description).partition("Left out")[2]
    with pytest.raises(OdError, match=re.escape(BROKEN[text])), dg.build_sensor_context() as context:
        sensor.evaluate_tick(context)
    assert command("plan", "trips").exit_code == 0
    listed = command("status", "--json")
    assert [row["release"] for row in json.loads(listed.stdout)][:1] == ["trips/2001-01/r1"]
    may_be_release = not text.startswith(("type: od_assets.components.OdC", "type: od_assets.components.OdS"))
    assert listed.exit_code == (2 if may_be_release else 0)
    assert listed.stderr.count(BROKEN[text]) == may_be_release


def test_a_check_of_the_definitions_fails_with_every_broken_declaration(project, monkeypatch):
    """``dg check defs`` sets this variable. Dagster itself would load a release in a folder of another name."""
    declare_beside_trips(project, monkeypatch, "od_assets.code_location")
    monkeypatch.setenv("DAGSTER_IS_DEFS_VALIDATION_CLI", "1")
    assert load_from_defs_folder(path_within_project=project.root).resolve_job_def("trips_release")
    (project.defs / "trips").rename(project.defs / "journeys")
    (project.defs / "broken").mkdir()
    (project.defs / "broken" / "defs.yaml").write_text("type: [1]\n", encoding="utf-8")
    with pytest.raises(OdError, match=r"broken/defs\.yaml: type: .*; journeys/defs\.yaml: name: 'trips' differs"):
        load_from_defs_folder(path_within_project=project.root)


def test_the_project_of_the_path_is_looked_at(project, monkeypatch, tmp_path_factory):
    """A code server of several projects works in a folder that is in none of them."""
    declarations = {"broken": "type: [1]\n", "warehouse": "type: od_assets.components.OdWarehouse\n"}  # no attributes
    declare_beside_trips(project, monkeypatch, "od_assets.code_location", **declarations)
    monkeypatch.delenv("OD_PROJECT")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert load_from_defs_folder(path_within_project=project.defs.parent).resolve_job_def("trips_release")
    assert "OD_PROJECT" not in os.environ


def test_without_a_sound_warehouse_the_fault_of_its_declaration_is_said(project, loader, monkeypatch):
    """Every release needs its folders and ledger, so nothing can go on."""
    declare_beside_trips(
        project, monkeypatch, loader, warehouse="type: od_assets.components.OdWarehouse\nattributes: {lock: 1}\n"
    )
    project.write_records(records())
    with pytest.raises(OdError, match=r"^OD-CONFIG: warehouse/defs\.yaml: lock \(line 2\): Extra inputs"):
        load_definitions()
    refused = command("run", "trips", "--period", "2001-01")
    assert str(refused.exception).startswith("OD-CONFIG: warehouse/defs.yaml: lock (line 2): Extra inputs")


def test_what_is_broken_for_another_reason_is_not_hidden(project, loader, monkeypatch):
    declare_beside_trips(project, monkeypatch, loader)
    (project.defs / "beside.py").write_text("1 / 0", encoding="utf-8")
    with pytest.raises(OdError, match=r"^OD-CODE-LOCATION: .*ZeroDivisionError"):
        load_definitions()


def test_a_run_without_a_warehouse_or_of_a_project_that_dagster_refuses_is_one_line(project, monkeypatch, refused):
    declare_beside_trips(project, monkeypatch, "od_assets.code_location")
    project.write_records(records())
    (project.defs / "warehouse" / "defs.yaml").unlink()
    assert refused("run", "trips", "--period", "2001-01").startswith("OD-WAREHOUSE-ABSENT: the project declares no")
    declare(project.defs, "warehouse", "OdWarehouse", {})
    project.declare(ATTRIBUTES | {"owners": ["me"]})
    said = refused("run", "trips", "--period", "2001-01")
    assert said.startswith("OD-CONFIG: trips/defs.yaml: Invalid owner 'me'")
    project.declare()
    lacking = BESIDE.replace("asset", "asset(required_resource_keys={'absent'})")
    (project.defs / "beside.py").write_text(lacking, encoding="utf-8")
    monkeypatch.delitem(sys.modules, "declared.defs.beside", raising=False)
    monkeypatch.delitem(sys.modules, "declared.all", raising=False)
    said = refused("run", "trips", "--period", "2001-01")
    assert said.startswith("OD-CODE-LOCATION: DagsterInvalidDefinitionError: resource with key 'absent'")
    assert said.count("\n") == 1


def test_a_run_without_a_period_names_the_newest_that_has_a_file(project, monkeypatch, refused):
    declare_beside_trips(project, monkeypatch, "od_assets.code_location")
    project.write_records(records())
    assert "trips 2001-02: there is no file 2001-02.csv; the newest period that has a file is 2001-01 [" in refused(
        "run", "trips"
    )


@pytest.mark.parametrize("loader", ["od_assets.code_location", "dagster"], indirect=True)
def test_a_release_below_an_unknown_asset_is_left_out_and_named(project, loader, monkeypatch, caplog):
    """Dagster would make an empty asset of the unknown key."""
    below = {name: declaration_of(name, asset=asset) for name, asset in (("good", "beside"), ("wrong", "besides"))}
    declare_beside_trips(project, monkeypatch, loader, **below)
    fault = "wrong/defs.yaml: wrong: this code location has no asset 'besides' (did you mean 'beside'?)"
    loaded = load_definitions()
    keys = loaded.resolve_asset_graph().get_all_asset_keys()
    assert [name for name in ("good", "trips", "wrong") if dg.AssetKey([name, "bundle"]) in keys] == ["good", "trips"]
    assert dg.AssetKey("besides") not in keys
    assert fault in caplog.text
    if loader == "od_assets.code_location":
        monkeypatch.setenv("DAGSTER_IS_DEFS_VALIDATION_CLI", "1")
        with pytest.raises(OdError, match=f"^OD-UPSTREAM: {re.escape(fault)}"):
            load_from_defs_folder(path_within_project=project.defs)


def test_a_dependency_with_nearly_the_key_of_a_release_is_told_the_right_key(project, monkeypatch, loader):
    """Dagster itself makes an asset of any key that ``deps`` name. Those of other data are left alone."""
    declare_beside_trips(project, monkeypatch, loader)
    deps = '@dg.asset(deps=[["trips", "bundel"], ["lake", "weather"]])\n'
    (project.defs / "beside.py").write_text(BESIDE.replace("@dg.asset\n", deps), encoding="utf-8")
    assert dg.AssetKey("beside") in load_definitions().resolve_asset_graph().get_all_asset_keys()
    said = "beside depends on trips/bundel, which this code location does not have (did you mean 'trips/bundle'?)"
    with pytest.raises(OdError, match=f"^OD-UPSTREAM: {re.escape(said)} "):
        check_project(project.root)


def test_the_page_of_experts_is_right_on_variables_secrets_and_post_processing(project, monkeypatch):
    """What the UI and the run storage get of a code location is the snapshot that is looked through here."""
    word = "hunter-22-of-the-team"
    monkeypatch.setenv("TEAM_SECRET", word)
    monkeypatch.setenv("TEAM_SECONDS", "30")
    monkeypatch.setenv("OD_LEDGER", f"postgresql://role:{word}@host/ledger")
    spark = {"address": "sc://host:15002/;token={{ env.TEAM_SECRET }}", "settings": {"key": "{{ env.TEAM_SECRET }}"}}
    on_spark = {"engine": "spark", "bands": {"cuts": [2]}, "spark": spark, "name": "far"}
    records_there = {"files": "s3://role:{{ env.TEAM_SECRET }}@lake/{period}.parquet", "columns": {"date": "date"}}
    far = {"type": "od_assets.components.OdRelease", "attributes": ATTRIBUTES | on_spark | {"trips": records_there}}
    far["post_processing"] = {"assets": [{"target": "*", "attributes": {"tags": {"cost": "mobility"}}}]}
    warehouse = {"type": "od_assets.components.OdWarehouse", "attributes": {"lock_seconds": "{{ env.TEAM_SECONDS }}"}}
    declared = {"far": yaml.dump(far), "warehouse": yaml.dump(warehouse)}
    declare_beside_trips(project, monkeypatch, "od_assets.code_location", **declared)
    definitions = load_definitions()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        told = serialize_value(RepositorySnap.from_def(definitions.get_repository_def()))
    assert word not in told
    assert "lake/{period}.parquet" in told
    assert definitions.resources is not None
    assert definitions.resources["od_warehouse"].lock_seconds == 30
    [node] = [node for node in definitions.resolve_asset_graph().asset_nodes if node.key.path == ["far", "bundle"]]
    assert node.tags["cost"] == "mobility"


def test_a_declaration_below_another_is_refused_and_the_others_go_on(project, monkeypatch):
    """Dagster loads what is below a folder component, and nothing below any other; also with an upstream asset."""
    late, other = declaration_of("late", asset="lake/trips"), declaration_of("other")
    folders = {"trips/late": late, "team": "type: dagster.DefsFolderComponent\n", "team/other": other}
    declare_beside_trips(project, monkeypatch, "od_assets.code_location", **folders)
    with pytest.raises(OdError, match=r"^OD-CONFIG: late/defs\.yaml is in the folder of trips/defs\.yaml, .*move"):
        read_declared_series("late")
    with pytest.raises(OdError, match=r"^OD-CONFIG: late/defs"):
        refuse_broken_declarations()
    loaded = load_definitions()
    for name in ("trips", "other"):
        assert loaded.resolve_job_def(f"{read_declared_series(name).name}_release")
