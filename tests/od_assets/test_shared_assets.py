"""Rows of a table that share their assets: which partitions there are, and what is refused or left out."""

from typing import Any

import dagster as dg
import pandas as pd
import pytest

from od_assets.code_location import load_definitions
from od_assets.components.project import list_publishing_asset_keys, refuse_broken_declarations
from od_assets.project import find_current_project
from od_assets.resources.dead_runs import find_dead_runs, find_run_graph, find_run_period, mark_release
from od_assets.series.reading import read_declared_series
from od_assets.testing import dry_run
from od_core.errors import OdError
from tests.od_assets.cities import (
    CITIES,
    MONTHS,
    SHARED,
    add_city,
    declare_cities,
)
from tests.od_assets.cli.commands import refusal
from tests.od_assets.conftest import DOMAIN
from tests.projects import declare, declare_domain

USERS = {"unit": "user", "column": "rider", "neighbours": "unbounded"}


def test_all_cities_share_five_assets(cities):
    definitions = load_definitions()
    graph = definitions.resolve_asset_graph()
    names = {key.to_user_string() for key in graph.materializable_asset_keys}
    assert names == {f"cities/{name}" for name in ("geography", "raw_trips", "flows", "bundle")} | {"cities_flows"}
    keys = {f"{month}|{city}" for city in CITIES for month in MONTHS}
    for node in graph.asset_nodes:
        assert {*node.partitions_def.get_partition_keys()} == keys
        assert node.partitions_def.partition_dimension_names == ["period", "series"]
    assert {job.name for job in definitions.jobs or []} == {"cities_release", "od_verification"}
    tags = definitions.resolve_job_def("cities_release").tags
    assert tags["od/release"] == "cities"  # by which queues limit the runs of releases, before their row is known
    assert list_publishing_asset_keys(find_current_project()) == [["cities", "bundle"]]
    refuse_broken_declarations()


def test_a_broken_row_is_no_partition(cities, caplog):
    declare_cities(cities, "bergen,1\noslo,-1\n")
    definitions = load_definitions()
    [partitions] = {node.partitions_def for node in definitions.resolve_asset_graph().asset_nodes}
    assert {key.keys_by_dimension["series"] for key in partitions.get_partition_keys()} == {"bergen"}
    assert "oslo is left out" in caplog.text
    [sensor] = [sensor for sensor in definitions.sensors or [] if sensor.name == "broken_rows_of_cities"]
    with pytest.raises(OdError, match=r"cities/defs\.yaml, row 2"), dg.build_sensor_context() as context:
        sensor.evaluate_tick(context)
    assert "cities/defs.yaml, row 2" in str(refusal("run", "oslo", "--period", "2001-01"))


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"periods": {"first": "2001-01", "every": "{{ row.city }}"}}, "series.periods.every is a value of the row"),
        ({"periods": {"first": "{{ row.city }}", "every": "single"}}, "series.periods.first is a value of the row"),
        ({"owners": ["team:{{ row.city }}", "team:north"]}, "series.owners is a value of the row"),
        ({"trips": SHARED["trips"] | {"columns": {"date": "{{ row.city }}"}}}, "series.trips.columns.date is a value"),
        ({"trips": SHARED["trips"] | {"asset": "lake/trips"}}, "series.trips.asset needs assets of each row"),
        ({"freshness": {"deadline": "0 6 2 * *", "within_days": 9}}, "series.freshness.deadline needs assets of each"),
    ],
)
def test_what_the_assets_show_is_the_same_for_all_rows(cities, changes, fault):
    declare_cities(cities, **changes)
    with pytest.raises(OdError, match=fault.replace(".", r"\.")):
        refuse_broken_declarations()
    loaded = load_definitions()
    assert [sensor.name for sensor in loaded.sensors or [] if "broken" in sensor.name] == ["broken_declarations"]


@pytest.mark.parametrize(
    ("shared", "own"),
    [
        ({}, {"neighbours": "unbounded"}),
        ({}, {"time_zone": "Europe/Oslo"}),
        (USERS, {"column": "device"}),
        (USERS, {"unit": "user_period"}),
    ],
)
def test_a_row_whose_data_set_needs_other_assets_is_left_out(cities, shared, own):
    for city in CITIES:
        declare_domain(cities.defs, DOMAIN | shared | {"name": city})
    add_city(cities, "voss", **shared | own)
    declare_cities(cities, "bergen,1\nvoss,1\noslo,0.5\n", bounds={"max_trips": 2} if shared else {})
    differ = f"row 2: data sets bergen and voss differ in {next(iter(own))}, but rows share their assets"
    with pytest.raises(OdError, match=differ):
        refuse_broken_declarations()
    [partitions] = {node.partitions_def for node in load_definitions().resolve_asset_graph().asset_nodes}
    assert {key.keys_by_dimension["series"] for key in partitions.get_partition_keys()} == {*CITIES}


def test_no_series_has_the_name_of_the_table(cities):
    declare_cities(cities, "bergen,1\ncities,1\n")
    add_city(cities, "cities")
    with pytest.raises(OdError, match=r"cities is declared twice: in cities and cities \(row 2\)"):
        read_declared_series("cities")
    declare_cities(cities)
    assert "there is no release 'cities'" in str(refusal("run", "cities", "--period", "2001-01"))


def test_a_run_of_chosen_assets_without_a_process_is_found(cities):
    """It has no tags of a release yet: it was killed before its first step."""
    instance = cities.instance
    job = load_definitions().resolve_implicit_global_asset_job_def()
    run = instance.create_run_for_job(
        job,
        asset_selection={dg.AssetKey(["cities", "bundle"])},
        tags={"dagster/partition": "2001-01|oslo"},
        status=dg.DagsterRunStatus.STARTING,
    )
    long_ago = pd.Timestamp("2001-01-01", tz="UTC").to_pydatetime()
    _change_update_time(instance, run.run_id, long_ago)
    assert [dead.run_id for dead in find_dead_runs(instance)] == [run.run_id]


def _change_update_time(instance: dg.DagsterInstance, run_id: str, moment: Any) -> None:
    import sqlalchemy
    from dagster._core.storage.runs.schema import RunsTable

    with instance.run_storage.connect() as connection:
        changed = sqlalchemy.update(RunsTable).where(RunsTable.c.run_id == run_id)
        connection.execute(changed.values(update_timestamp=moment))


def test_a_dry_run_of_a_row_is_that_of_a_series_with_assets_of_its_own(cities):
    made = dry_run("oslo", cities.root / "made", "2001-02", root=cities.root)
    assert {name[0] for name in made.flows.origin if name[0] in "BO"} == {"O"}


@pytest.mark.parametrize("prefix", ["", "acme"])
@pytest.mark.parametrize("is_of_job", [True, False])
def test_a_run_names_its_row_and_its_table_before_its_first_step(cities, prefix, is_of_job):
    """A run that waits for the lock in vain has no step, and its notice is that of the row."""
    declare(cities.defs, "warehouse", "OdWarehouse", {"key_prefix": prefix} if prefix else {})
    definitions, instance = load_definitions(), cities.instance
    bundle = dg.AssetKey([*filter(None, [prefix]), "cities", "bundle"])
    begin = f"{prefix}_" if prefix else ""
    job = definitions.resolve_implicit_global_asset_job_def()
    if is_of_job:
        job = definitions.resolve_job_def(f"{begin}cities_release")
    tags = {**job.tags, "dagster/partition": "2001-01|oslo"}
    run = instance.create_run_for_job(job, asset_selection=None if is_of_job else {bundle}, tags=tags)
    mark_release(instance, run, prefix)
    marked = instance.get_run_by_id(run.run_id).tags
    assert (marked["od/release"], marked["od/table"]) == (f"{begin}oslo", f"{begin}cities")
    assert find_run_graph(marked) == f"{begin}cities"
    assert find_run_period(marked) == "2001-01"
    mark_release(instance, instance.get_run_by_id(run.run_id), prefix)  # as a run that executes it again
    assert instance.get_run_by_id(run.run_id).tags == marked | ({"od/period": "2001-01"} if is_of_job else {})
