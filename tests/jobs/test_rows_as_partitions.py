"""Rows of a table as partitions: all cities share their assets, and each has its own releases and its own cap."""

import json
from fractions import Fraction
from typing import Any

import dagster as dg
import numpy as np
import pandas as pd
import pytest

from od_assets.code_location import load_definitions
from od_assets.components.project import list_publishing_asset_keys
from od_assets.project import find_current_project
from od_assets.resources.published_tables import PublishedTables
from od_assets.resources.warehouse import Warehouse
from od_assets.sensors.notices import is_declared_here
from od_assets.sensors.open_lineage import Sender
from od_assets.series.reading import read_declared_series
from od_core.errors import OdError
from tests.od_assets.cities import (
    CITIES,
    MONTHS,
    SHARED,
    add_city,
    declare_cities,
    forget_modules,
    release,
)
from tests.od_assets.cli.commands import command, stated
from tests.od_assets.conftest import (
    COUNT_ATTRIBUTES,
    GROUP_ATTRIBUTES,
    SILENT,
    STOPS_ATTRIBUTES,
    ZONES,
    Project,
    failure_text,
    public_bytes,
)
from tests.od_assets.watch import Kept
from tests.projects import declare


def test_each_city_is_released_and_charged_by_itself(cities):
    for city in CITIES:
        for month in MONTHS:
            result = release(cities, city, month)
            assert result.success, failure_text(result)
            run = cities.instance.get_run_by_id(result.run_id)
            expected = {"od/release": city, "od/period": month, "od/revision": "1", "od/table": "cities"}
            assert expected.items() <= run.tags.items()
            for event in result.get_asset_materialization_events():
                assert event.partition == f"{month}|{city}"
                stated_release = event.materialization.metadata.get("release")
                assert stated_release is None or stated_release.value == f"{city}/{month}/r1"
    ledger = Warehouse().ledger
    published = {str(key) for key in ledger.list_published_releases()}
    assert published == {f"{city}/{month}/r1" for city in CITIES for month in MONTHS}
    for city, epsilon in zip(CITIES, ("1", "0.5"), strict=True):
        series = read_declared_series(city)
        assert series.privacy.epsilon == epsilon
        for month in MONTHS:
            plan = series.plan(series.read_geography(), month)
            charged = sum((step.charge.as_rho for step in plan.charged_steps), start=Fraction(0))
            assert ledger.balance(city, month).charged == {f"{city}/{month}/r1": charged}
            bundle = cities.var / "releases" / city / month / "r1"
            flows = pd.read_parquet(bundle / "tables/flows.parquet")
            assert {code[0] for code in flows.origin} & {"B", "O"} == {city[0].upper()}
            certificate = json.loads((bundle / "certificate.json").read_text(encoding="utf-8"))
            assert certificate["contents"]["trips"] == 100 * len(city)  # which is public under bounded neighbours


def test_a_city_is_released_as_if_it_had_assets_of_its_own(cities):
    """The certificate, but for noise and moments, and the files are those of a declaration without a table."""
    assert release(cities, "oslo").success
    shared = json.loads((cities.var / "releases/oslo/2001-01/r1/certificate.json").read_text(encoding="utf-8"))
    files = {*public_bytes(cities.var)}
    own = json.loads(json.dumps(SHARED).replace("{{ row.city }}", "oslo").replace("{{ row.epsilon }}", "0.5"))
    (cities.defs / "cities" / "defs.yaml").unlink()
    cities.declare(own)
    for name in ("releases", "confidential"):
        (cities.var / name).rename(cities.root / name)
    (cities.var / "ledger.sqlite").unlink()
    Warehouse().database.unlink()
    series = read_declared_series("oslo")
    with dg.DagsterInstance.ephemeral() as instance:  # the other one knows the other ledger
        job = cities.definitions(series).resolve_job_def("oslo_release")
        assert job.execute_in_process(partition_key="2001-01", instance=instance, run_config=SILENT).success
    alone = json.loads((cities.var / "releases/oslo/2001-01/r1/certificate.json").read_text(encoding="utf-8"))
    assert files == {*public_bytes(cities.var)}
    assert alone.keys() == shared.keys()
    assert {part for part in shared if alone[part] != shared[part]} <= {"contents", "ledger", "measured_at"}


def test_the_cap_of_one_city_refuses_that_city_alone(cities):
    add_city(cities, "voss", cap="0.0001")
    declare_cities(cities, "bergen,1\nvoss,1\n")
    refused = release(cities, "voss")
    assert not refused.success
    assert "OD-LEDGER-CAP" in failure_text(refused)
    assert "data set 'voss'" in failure_text(refused)
    assert release(cities, "bergen").success
    assert [str(key) for key in Warehouse().ledger.list_published_releases()] == ["bergen/2001-01/r1"]


def test_a_failed_check_of_one_city_stops_that_city_alone(cities):
    path = cities.root / "oslo" / "2001-01.csv"
    path.write_text(path.read_text(encoding="utf-8").replace("O00", "X00"), encoding="utf-8")
    failed, other = release(cities, "oslo"), release(cities, "bergen")
    assert not failed.success
    assert other.success
    evaluations = {
        (evaluation.partition, evaluation.passed)
        for result in (failed, other)
        for evaluation in result.get_asset_check_evaluations()
        if evaluation.check_name == "meets_expectations" and evaluation.asset_key.path[-1] == "raw_trips"
    }
    assert evaluations == {("2001-01|oslo", False), ("2001-01|bergen", True)}


def test_a_backfill_of_a_city_releases_all_of_its_months(cities):
    """Dagster makes a run for each partition of a backfill, with the tags of its two dimensions."""
    definitions = load_definitions()
    asset = definitions.resolve_asset_graph().get(dg.AssetKey(["cities", "bundle"]))
    wanted = [key for key in asset.partitions_def.get_partition_keys() if key.keys_by_dimension["series"] == "oslo"]
    job = definitions.resolve_implicit_global_asset_job_def()
    keys = [key for key in definitions.resolve_asset_graph().materializable_asset_keys if key.path[0] != "od"]
    for partition in wanted:
        assert cities.execute(job, *keys, partition=partition, tags={"dagster/backfill": "b"}).success
    published = [str(key) for key in Warehouse().ledger.list_published_releases()]
    assert published == ["oslo/2001-01/r1", "oslo/2001-02/r1"]
    [tags] = {(run.tags["od/release"], run.tags["od/table"]) for run in cities.instance.get_runs()}
    assert tags == ("oslo", "cities")
    status = cities.instance.get_status_by_partition(dg.AssetKey(["cities", "bundle"]), [*wanted], asset.partitions_def)
    assert {str(state) for state in status.values()} == {"AssetPartitionStatus.MATERIALIZED"}


def test_a_city_of_tomorrow_is_a_partition_once_the_project_is_loaded_again(cities, monkeypatch):
    assert release(cities, "bergen").success
    before = public_bytes(cities.var)
    add_city(cities, "voss")
    declare_cities(cities, "bergen,1\noslo,0.5\nvoss,2\n")
    forget_modules(monkeypatch)
    assert release(cities, "voss").success
    assert before.items() <= public_bytes(cities.var).items()
    keys = {record.partition_key for record in _fetch_bundles(cities)}
    assert keys == {"2001-01|bergen", "2001-01|voss"}


def _fetch_bundles(project: Project) -> list[Any]:
    asked = dg.AssetRecordsFilter(asset_key=dg.AssetKey(["cities", "bundle"]))
    return [*project.instance.fetch_materializations(asked, limit=100).records]


def test_a_city_that_joins_later_has_no_earlier_releases(cities):
    declare_cities(cities, "bergen,1\noslo,0.5\n", periods={"first": "{{ row.first }}", "last": "2001-02"})
    rows = "city,epsilon,first\noslo,0.5,2001-02\nbergen,1,2001-01\n"
    (cities.root / "cities.csv").write_text(rows, encoding="utf-8")
    refused = release(cities, "oslo")
    assert "OD-PERIOD: 2001-01 is before 2001-02, the first period of oslo" in failure_text(refused)
    assert release(cities, "oslo", "2001-02").success
    assert release(cities, "bergen").success
    assert {row["release"] for row in stated("status")} == {
        "bergen/2001-01/r1",
        "bergen/2001-02/r1",
        "oslo/2001-02/r1",
    }


def test_commands_take_the_name_of_a_row(cities):
    assert command("run", "oslo", "--period", "2001-01").exit_code == 0
    rows = {row["release"]: row["state"] for row in stated("status")}
    expected = {f"{city}/{month}/r1": "not begun" for city in CITIES for month in MONTHS}
    assert rows == expected | {"oslo/2001-01/r1": "published"}
    [verified] = stated("verify", "oslo")
    assert (verified["release"], verified["verified"]) == ("oslo/2001-01/r1", True)
    assert command("plan", "bergen").exit_code == 0


@pytest.mark.filterwarnings("ignore:Non-compliant tag keys:DeprecationWarning")  # Dagster's own tags of two dimensions
def test_the_schedule_and_the_sensor_ask_for_a_run_of_each_city(cities):
    for city in CITIES:
        assert release(cities, city, "2001-02").success  # the first of a data set is run by hand
    repository = load_definitions().get_repository_def()
    sensor = repository.get_sensor_def("cities_arrivals")
    with dg.build_sensor_context(instance=cities.instance, repository_def=repository) as context:
        first = sensor.evaluate_tick(context)
    assert {(request.partition_key, request.tags["od/release"]) for request in first.run_requests} == {
        (f"2001-01|{city}", city) for city in CITIES
    }
    assert {request.run_key.partition("@")[0] for request in first.run_requests} == {
        f"{city}/2001-01/r1" for city in CITIES
    }
    with dg.build_sensor_context(instance=cities.instance, repository_def=repository, cursor=first.cursor) as context:
        assert not sensor.evaluate_tick(context).run_requests
    tick = pd.Timestamp("2001-02-02 06:00", tz="UTC").to_pydatetime()
    (cities.root / "bergen" / "2001-01.csv").unlink()
    with dg.build_schedule_context(
        instance=cities.instance, scheduled_execution_time=tick, repository_def=repository
    ) as context:
        [request] = repository.get_schedule_def("cities_schedule").evaluate_tick(context).run_requests
    assert request.partition_key == "2001-01|oslo"
    unattended = {**request.tags, "dagster/schedule_name": "cities_schedule"}
    assert release(cities, "oslo", tags=unattended).success


def test_a_requested_run_of_a_city_that_was_never_released_is_refused(cities):
    assert release(cities, "oslo").success
    refused = release(cities, "bergen", tags={"dagster/schedule_name": "cities_schedule"})
    assert "OD-LEDGER-UNATTENDED" in failure_text(refused)


def test_notices_name_the_city(cities):
    repository, kept = load_definitions().get_repository_def(), Kept()
    cursors: dict[str, str | None] = {"release_published": None, "release_failed": None}

    def look() -> None:
        for name, cursor in cursors.items():
            with dg.build_sensor_context(
                instance=cities.instance, cursor=cursor, repository_def=repository, resources={"od_notices": kept}
            ) as context:
                repository.get_sensor_def(name).evaluate_tick(context)
                cursors[name] = context.cursor

    look()
    for city in CITIES:
        assert release(cities, city).success
    assert release(cities, "oslo").success  # the same bytes again
    look()
    assert [notice.release for notice in kept.said] == ["bergen/2001-01/r1", "oslo/2001-01/r1"]
    (cities.root / "oslo" / "2001-02.csv").unlink()
    assert not release(cities, "oslo", "2001-02").success
    look()
    assert (kept.said[-1].series, kept.said[-1].period) == ("oslo", "2001-02")
    assert "OD-" in str(kept.said[-1])


def test_assets_downstream_load_the_table_of_a_city_or_of_all(cities):
    for city in CITIES:
        assert release(cities, city).success
    definitions = load_definitions()
    table = definitions.resolve_asset_graph().get(dg.AssetKey("cities_flows"))
    both, loaded = table.partitions_def, dict[str, pd.DataFrame]()
    months = both.get_partitions_def_for_dimension("period")

    @dg.asset(partitions_def=both)
    def of_a_city(cities_flows: pd.DataFrame) -> None:
        loaded["city"] = cities_flows

    @dg.asset(partitions_def=months)
    def of_a_month(cities_flows: pd.DataFrame) -> None:
        loaded["month"] = cities_flows

    @dg.asset
    def of_all(cities_flows: pd.DataFrame) -> None:
        loaded["all"] = cities_flows

    downstream = [of_a_city, of_a_month, of_all]
    project = dg.Definitions.merge(definitions, dg.Definitions(assets=downstream))
    job = project.resolve_implicit_global_asset_job_def()
    for asset, partition in zip(downstream, ("2001-01|oslo", "2001-01", None), strict=True):
        result = cities.execute(job, asset.key, partition=partition)
        assert result.success, failure_text(result)
    files = {city: cities.var / "releases" / city / "2001-01" / "r1/tables/flows.parquet" for city in CITIES}
    expected = {city: pd.read_parquet(file) for city, file in files.items()}
    assert {*loaded["city"].series} == {"oslo"}
    assert [*loaded["city"]] == [column.name for column in table.metadata["dagster/column_schema"].columns]
    pd.testing.assert_frame_equal(
        loaded["city"].drop(columns=["period", "series"]), expected["oslo"], check_dtype=False
    )
    for name in ("month", "all"):
        for city in CITIES:
            rows = loaded[name].query(f"series == '{city}'").drop(columns=["period", "series"]).reset_index(drop=True)
            pd.testing.assert_frame_equal(rows, expected[city], check_dtype=False)


def test_the_assisted_flows_of_a_city_are_of_its_own_releases(cities):
    """Dagster's own mapping of two dimensions: earlier months of the same city."""
    declare_cities(cities, assisted=True)
    definitions = load_definitions()
    graph = definitions.resolve_asset_graph()
    assert list_publishing_asset_keys(find_current_project()) == [["cities", "bundle"], ["cities", "assisted"]]
    for city in CITIES:
        for month in MONTHS:
            result = release(cities, city, month)
            assert result.success, failure_text(result)
    made = {str(key) for key in Warehouse().list_public_releases() if "assisted" in key.release}
    assert "oslo_assisted/2001-02/r1" in made
    mapping = graph.get(dg.AssetKey(["cities", "assisted"])).partition_mappings[dg.AssetKey(["cities", "bundle"])]
    both = graph.get(dg.AssetKey(["cities", "bundle"])).partitions_def
    subset = both.empty_subset().with_partition_keys(["2001-02|oslo"])
    upstream = mapping.get_upstream_mapped_partitions_result_for_partitions(subset, both, both).partitions_subset
    assert {*upstream.get_partition_keys()} == {"2001-01|oslo", "2001-02|oslo"}


def test_levels_and_bands_are_those_of_the_table(cities):
    """A step with several assets names them by the keys that all rows share."""
    declare_cities(cities, detail="levels", bands={"cuts": [2]})
    for city in CITIES:
        result = release(cities, city)
        assert result.success, failure_text(result)
        assert {event.asset_key.path[0] for event in result.get_asset_materialization_events()} <= {
            "cities",
            "cities_flows",
        }


def test_the_verification_of_all_finds_the_bundle_that_was_changed(cities):
    for city in CITIES:
        assert release(cities, city).success
    path = cities.var / "releases/oslo/2001-01/r1/tables/flows.parquet"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes() + b" ")
    result = cities.execute(load_definitions().resolve_job_def("od_verification"))
    assert not result.success
    entries = cities.instance.all_logs(result.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    [evaluation] = [entry.dagster_event.event_specific_data for entry in entries]  # one for the shared assets
    assert evaluation.asset_key == dg.AssetKey(["cities", "bundle"])
    assert not evaluation.passed
    assert "oslo/2001-01/r1" in str(evaluation.description)
    assert "bergen" not in str(evaluation.description)


def test_the_site_is_written_after_the_release_of_any_city(cities):
    declare(cities.defs, "site", "OdSite", {"owners": ["team:statistics"]})
    definitions, cursor = load_definitions(), None
    only = dg.AssetSelection.assets(["od", "site"])

    def requested() -> int:
        nonlocal cursor
        tick = dg.evaluate_automation_conditions(definitions, cities.instance, asset_selection=only, cursor=cursor)
        cursor = tick.cursor
        return tick.total_requested

    assert requested() == 0
    assert release(cities, "bergen").success
    assert requested() == 1
    job = definitions.resolve_implicit_global_asset_job_def()
    assert cities.execute(job, ["od", "site"]).success
    assert requested() == 0
    assert release(cities, "oslo").success
    assert requested() == 1


def test_a_project_with_a_prefix(cities):
    declare(cities.defs, "warehouse", "OdWarehouse", {"key_prefix": "acme"})
    assert command("run", "bergen", "--period", "2001-01").exit_code == 0
    definitions = load_definitions()
    job = definitions.resolve_implicit_global_asset_job_def()
    keys = [key for key in definitions.resolve_asset_graph().materializable_asset_keys if "cities" in str(key)]
    result = cities.execute(job, *keys, partition="2001-01|oslo")
    assert result.success, failure_text(result)
    run = cities.instance.get_run_by_id(result.run_id)
    assert {"od/release": "acme_oslo", "od/table": "acme_cities"}.items() <= run.tags.items()
    assert is_declared_here(definitions.get_repository_def(), run.tags)
    loaded = PublishedTables(folder=str(cities.var / "releases")).load(
        dg.AssetKey(["acme", "cities_flows"]), ["2001-01|oslo", "2001-01|bergen"]
    )
    assert {*loaded.series} == {*CITIES}


def test_lineage_names_the_job_of_all_cities_and_no_file_of_another_city(cities, monkeypatch):
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "noop")
    result = release(cities, "oslo")
    run = cities.instance.get_run_by_id(result.run_id)
    events = Sender().make_events(cities.instance, run, load_definitions().resolve_asset_graph())
    assert {event.job.name.partition(".")[0] for event in events} == {"cities_release"}
    assert {dataset.namespace for event in events for dataset in event.inputs or []} == {"dagster"}
    [tags] = {tuple((tag.key, tag.value) for tag in event.run.facets["tags"].tags) for event in events}
    assert dict(tags) == {"od/release": "oslo", "od/period": "2001-01", "od/revision": "1"}


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        (["2001-01|oslo"], {("oslo", "2001-01")}),
        (["2001-01|oslo", "2001-02|oslo", "2001-01|bergen"], {("oslo", "2001-01"), ("bergen", "2001-01")}),
    ],
)
def test_a_table_is_loaded_of_the_asked_partitions_alone(cities, partitions, expected):
    """Of several, those that are not published are left out."""
    for city in CITIES:
        assert release(cities, city).success
    assert release(cities, "bergen", "2001-02").success
    tables = PublishedTables(folder=str(cities.var / "releases"))
    loaded = tables.load(dg.AssetKey("cities_flows"), partitions)
    assert {*zip(loaded.series, loaded.period, strict=True)} == expected
    assert {*tables.load(dg.AssetKey("bergen_flows")).period} == {*MONTHS}
    with pytest.raises(OdError, match=r"no published bundle has the table cities_flows of 2001-02\|oslo"):
        tables.load(dg.AssetKey("cities_flows"), ["2001-02|oslo"])


@pytest.mark.parametrize("kind", ["OdCounts", "OdGroupSizes", "OdStops"])
def test_rows_of_other_kinds_are_partitions(cities, kind):
    shared = {name: SHARED[name] for name in ("name", "domain", "owners", "periods", "detail")}
    of_kind = {"OdCounts": COUNT_ATTRIBUTES, "OdGroupSizes": GROUP_ATTRIBUTES, "OdStops": STOPS_ATTRIBUTES}[kind]
    series = of_kind | shared | {"trips": of_kind["trips"] | {"files": "{{ row.city }}/{period}.csv"}}
    zones = "{{ row.city }}/zones.csv"
    if kind == "OdStops":
        series["map"] = of_kind["map"] | {"file": zones}
        for city in CITIES:
            path = cities.root / city / "zones.csv"
            degrees = {"longitude": np.linspace(5, 6, len(ZONES)), "latitude": np.linspace(59, 60, len(ZONES))}
            pd.read_csv(path).assign(**degrees).to_csv(path, index=False)
            for month in MONTHS:
                file = cities.root / city / f"{month}.csv"
                pd.read_csv(file).assign(stop=f"{city[0].upper()}10").to_csv(file, index=False)
    else:
        series["geography"] = of_kind["geography"] | {"file": zones}
    series.pop("schedule", None)
    attributes = {"for_each": "cities.csv", "as": "partitions", "component": f"od_assets.components.{kind}"}
    declare(cities.defs, "cities", "OdReleases", attributes | {"series": series})
    for city in CITIES:
        result = release(cities, city)
        assert result.success, failure_text(result)
    assert [str(key) for key in Warehouse().ledger.list_published_releases()] == [
        "bergen/2001-01/r1",
        "oslo/2001-01/r1",
    ]
    assert all(row["verified"] for row in stated("verify"))


def test_a_check_of_the_team_sees_the_flows_of_one_city(cities):
    requires = "No city has more than 500 trips."
    sql = "SELECT n FROM (SELECT sum(trips) AS n FROM flows) WHERE n > 500"
    declare_cities(cities, checks=[{"name": "few_trips", "requires": requires, "sql": sql}])
    held, published = release(cities, "bergen"), release(cities, "oslo")
    assert not held.success
    assert published.success, failure_text(published)
    evaluations = [
        evaluation
        for result in (held, published)
        for evaluation in result.get_asset_check_evaluations()
        if "few_trips" in evaluation.check_name
    ]
    assert [(one.partition, one.passed) for one in evaluations] == [("2001-01|bergen", False), ("2001-01|oslo", True)]
