"""Releases below assets of a team: their partitions, their files, and what is requested automatically."""

import datetime
import re
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pandas as pd
import pyarrow as pa
import pytest

from od_assets.assets import release
from od_assets.resources.arrivals import check_arrival
from od_assets.resources.upstream import refuse_wrong_upstream
from od_core.errors import OdError
from od_core.periods import Period
from tests.od_assets.conftest import Project, doctors_faults, failure_text, records

LAKE, GEOGRAPHY, RECORDS = ["lake", "trips"], ["trips", "geography"], ["trips", "raw_trips"]
MONTHS = dg.MonthlyPartitionsDefinition(start_date="2001-01-01")  # keys such as 2001-01-01, unlike those of the series
DAYS = dg.DailyPartitionsDefinition(start_date="2001-01-01")


def lake(folder: Path, partitions: dg.PartitionsDefinition | None, *, stated: str | None = "path") -> Any:
    """An asset that writes the records of each partition, and states their file under a name of metadata."""
    folder.mkdir(exist_ok=True)

    @dg.asset(key=LAKE, partitions_def=partitions)
    def trips(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        key = context.partition_key if partitions else "all"
        day = {"all": "2001-01-15"}.get(key, key)
        rows = records()
        if partitions is DAYS:
            number = int(day[-2:])
            rows = rows.iloc[number - 1 :: 31]
        file, rows = folder / f"part {key}.parquet", rows.assign(date=day)
        duckdb.from_df(rows).write_parquet(str(file))
        if (folder.parent / "fails").exists():
            raise dg.Failure("after the file was written")
        where = file.as_uri() if stated == "dagster/uri" else str(file)
        return dg.MaterializeResult(metadata={} if stated is None else {stated: where})

    return trips


class Lake:
    """A project with an asset of records, a release of them, and a dashboard of what is published."""

    def __init__(self, project: Project, partitions: Any = MONTHS, stated: str | None = "path", **changes: Any) -> None:
        self.project, self.seen = project, dict[str, int]()
        first = {"periods": {"first": "2001-01"}, "trips__files": "nowhere/{period}.parquet", "schedule": None}
        self.series = project.component(**first | {"trips__asset": "lake/trips"} | changes)
        own = project.definitions(self.series)
        series_months = self.series.periods.make_partitions_definition()

        @dg.asset(partitions_def=series_months, automation_condition=dg.AutomationCondition.eager())
        def dashboard(context: dg.AssetExecutionContext, trips_flows: duckdb.DuckDBPyRelation) -> None:
            leaves = trips_flows.filter("origin_level = 'zone' AND destination_level = 'zone'")
            self.seen[context.partition_key] = leaves.aggregate("sum(trips)").fetchall()[0][0]

        assets = [lake(project.root / "lake", partitions, stated=stated), dashboard]
        self.definitions = dg.Definitions.merge(own, dg.Definitions(assets=assets))
        self.job = self.definitions.resolve_implicit_global_asset_job_def()
        self.cursor: Any = None

    def read(self, partition: str = "2001-01") -> dg.ExecuteInProcessResult:
        """Copy the records, below the public areas."""
        self.run(GEOGRAPHY)
        return self.run(RECORDS, partition=partition)

    def run(self, *keys: dg.AssetKey | list[str], partition: str | None = None) -> dg.ExecuteInProcessResult:
        return self.project.execute(self.job, *keys, partition=partition)

    def tick(self, time: str) -> dict[str, set[str | None]]:
        """What one evaluation of all conditions requests: the partitions by asset."""
        at, instance = datetime.datetime.fromisoformat(f"{time}T00:00:00+00:00"), self.project.instance
        evaluated = dg.evaluate_automation_conditions(
            self.definitions, instance, cursor=self.cursor, evaluation_time=at
        )
        self.cursor = evaluated.cursor
        keys = self.definitions.resolve_asset_graph().get_all_asset_keys()
        requested = {key.to_user_string(): evaluated.get_requested_partitions(key) for key in keys}
        return {key: partitions for key, partitions in requested.items() if partitions}


def loaded(project: Project) -> list[tuple[Any, ...]]:
    """The copied records of January, sorted."""
    file = project.var / "confidential/trips/2001-01/r1/raw_trips.parquet"
    return sorted(duckdb.read_parquet(str(file)).select("origin, destination, in_period").fetchall())


def expected() -> list[tuple[Any, ...]]:
    return sorted((row.origin, row.destination, True) for row in records().itertuples())


def assert_copied(project: Project, ran: dg.ExecuteInProcessResult) -> None:
    """The run copied the records of January: all of them, and no others."""
    assert ran.success, failure_text(ran)
    assert loaded(project) == expected()


def test_one_tick_after_a_new_partition_requests_the_release_and_the_dashboard(project):
    team = Lake(project)
    graph = team.definitions.resolve_asset_graph()
    assert [key for key in graph.get_all_asset_keys() if not graph.get(key).parent_keys] == [
        key for key in graph.get_all_asset_keys() if key in (dg.AssetKey(LAKE), dg.AssetKey(GEOGRAPHY))
    ]
    assert team.tick("2001-02-10") == {"trips/geography": {None}}
    assert team.run(GEOGRAPHY).success
    assert team.tick("2001-02-11") == {}
    assert team.run(LAKE, partition="2001-01-01").success

    requested = team.tick("2001-02-12")
    everything = {key.to_user_string() for key in graph.get_all_asset_keys()} - {"lake/trips", "trips/geography"}
    assert requested == {key: {"2001-01"} for key in everything}
    ran = team.run(*map(dg.AssetKey.from_user_string, requested), partition="2001-01")
    assert_copied(project, ran)
    assert team.seen == {"2001-01": len(records())}
    [made] = ran.asset_materializations_for_node("trips__raw_trips")
    assert made.tags["dagster/input_data_version/lake/trips"]
    assert str(project.root) not in str(made.metadata)

    assert team.tick("2001-02-13") == {}
    assert team.run(LAKE, partition="2001-01-01").success  # a second time
    assert team.run(GEOGRAPHY).success
    assert team.tick("2001-02-14") == {}, "a published period is charged only by hand"


def test_a_failed_release_is_requested_again_only_after_an_update(project):
    """It fails where the records are counted: a quarter of them are of no zone of the list."""
    pd.read_csv(project.root / "zones.csv").iloc[1:].to_csv(project.root / "zones.csv", index=False)
    team = Lake(project)
    team.run(GEOGRAPHY)
    assert team.tick("2001-02-10") == {}
    for day in (11, 21):
        assert team.run(LAKE, partition="2001-01-01").success
        requested = team.tick(f"2001-02-{day}")
        assert "trips/raw_trips" in requested
        ran = team.run(*map(dg.AssetKey.from_user_string, requested), partition="2001-01")
        assert not ran.success
        assert [team.tick(f"2001-02-{day + later}") for later in (1, 2, 3)] == [{}, {}, {}]


@pytest.mark.parametrize(
    ("partitions", "stated"), [(MONTHS, "path"), (DAYS, "dagster/uri"), (None, "uri")], ids=["months", "days", "none"]
)
def test_the_records_are_those_that_the_asset_wrote(project, partitions, stated):
    team = Lake(project, partitions, stated)
    keys = {MONTHS: ["2001-01-01"], DAYS: [f"2001-01-{day:02d}" for day in range(1, 32)]}.get(partitions, [None])
    if partitions is DAYS:
        for key in keys[:-1]:
            team.run(LAKE, partition=key)
        refused = team.read()
        assert "OD-UPSTREAM: trips: partition 2001-01-31 of lake/trips was never materialized" in failure_text(refused)
    for key in keys[-1:]:
        team.run(LAKE, partition=key)
    assert_copied(project, team.read())
    folder = project.var / "confidential/trips/2001-01/r1"
    assert [file.name for file in folder.glob("*raw_trips.parquet")] == ["raw_trips.parquet"]


def test_an_asset_without_partitions_must_be_made_after_the_period_ended(project):
    """The oracle is the clock of the log: the same event a second before midnight, and then at it."""
    team, instance = Lake(project, None), project.instance
    assert team.run(LAKE).success
    entry = instance.fetch_materializations(dg.AssetKey(LAKE), limit=1).records[0].event_log_entry
    midnight = datetime.datetime(2001, 2, 1, tzinfo=datetime.UTC).timestamp()
    instance.store_event(dg.EventLogEntry(**entry._asdict() | {"timestamp": midnight - 1}))
    refused = failure_text(team.read())
    assert "OD-UPSTREAM: trips: lake/trips was last materialized before 2001-01 ended" in refused
    instance.store_event(dg.EventLogEntry(**entry._asdict() | {"timestamp": midnight}))
    assert team.read().success


def test_a_file_of_a_failed_run_is_not_read(project):
    """The run fails after it has written: at first, and after a run that succeeded."""
    fails = project.root / "fails"
    team = Lake(project)
    for earlier in (False, True):
        if earlier:
            assert team.run(LAKE, partition="2001-01-01").success
            assert team.read().success
        fails.touch()
        assert not team.run(LAKE, partition="2001-01-01").success
        said = failure_text(team.read())
        assert "the newest run that was to materialize partition 2001-01-01 of lake/trips failed, or has not" in said
        fails.unlink()


def test_an_asset_of_another_code_location_is_read_once_it_is_declared(project):
    """Its materializations are in the same instance, or there are none, and the declared file is read."""
    series = project.component(trips__asset="lake/trips")
    declared = dg.Definitions(assets=[dg.AssetSpec(LAKE, partitions_def=MONTHS)])
    job = dg.Definitions.merge(project.definitions(series), declared).resolve_implicit_global_asset_job_def()

    assert project.execute(job, GEOGRAPHY).success
    assert_copied(project, project.execute(job, RECORDS, partition="2001-01"))
    few = project.root / "few.parquet"
    pd.DataFrame({"date": ["2001-01-03"], "origin": ["Z00"], "destination": ["Z11"]}).to_parquet(few)
    made = dg.AssetMaterialization(LAKE, partition="2001-01-01", metadata={"path": "few.parquet"})
    project.instance.report_runless_asset_event(made)
    assert project.execute(job, RECORDS, partition="2001-01").success
    assert loaded(project) == [("Z00", "Z11", True)]


def test_an_asset_that_is_only_observed_requests_nothing(project):
    """Once, twice, or with another data version: Dagster holds it for missing until it is materialized."""
    series = project.component(trips__asset="lake/trips", periods={"first": "2001-01"}, schedule=None)
    lake = dg.Definitions(assets=[dg.AssetSpec(LAKE, partitions_def=MONTHS)])
    definitions, instance, cursor = dg.Definitions.merge(project.definitions(series), lake), project.instance, None
    instance.report_runless_asset_event(dg.AssetMaterialization(GEOGRAPHY))
    month, raw = "2001-01-01", dg.AssetKey(RECORDS)
    tags = [{"dagster/data_version": version} for version in ("1", "1", "2")]
    seen = [dg.AssetObservation(LAKE, partition=month, tags=tag) for tag in tags]
    requested = []
    for day, event in enumerate([None, *seen, dg.AssetMaterialization(LAKE, partition=month), None], start=10):
        if event is not None:
            instance.report_runless_asset_event(event)
        time = datetime.datetime(2001, 2, day, tzinfo=datetime.UTC)
        evaluated = dg.evaluate_automation_conditions(definitions, instance, cursor=cursor, evaluation_time=time)
        cursor = evaluated.cursor
        requested.append(evaluated.get_requested_partitions(raw))
    assert requested == [set(), set(), set(), set(), {"2001-01"}, set()]


def read_stated(
    project: Project, metadata: dict[str, Any] | None, partitions: Any = MONTHS, /, **changes: Any
) -> dg.ExecuteInProcessResult:
    """Copy the records of January, whose asset is of another code location and states where they are."""
    series = project.component(**{"trips__asset": "lake/trips", "trips__files": "{period}.nowhere"} | changes)
    declared = dg.Definitions(assets=[dg.AssetSpec(LAKE, partitions_def=partitions)])
    if metadata is not None:
        made = dg.AssetMaterialization(LAKE, partition="2001-01-01", metadata=metadata)
        project.instance.report_runless_asset_event(made)
    job = dg.Definitions.merge(project.definitions(series), declared).resolve_implicit_global_asset_job_def()
    return project.execute(job, GEOGRAPHY, RECORDS, partition="2001-01")


def test_a_parquet_data_set_is_read_as_one_file(project):
    """Its files are in folders of partitions, some behind links; a file or a folder linked twice counts once."""
    folder, elsewhere = project.root / "lake" / "2001-01", project.root / "elsewhere"
    parts = [records().iloc[number::4] for number in range(4)]
    (folder / "mode=car" / "hour=08").mkdir(parents=True)
    (folder / "_SUCCESS").touch()
    (folder / ".part-0.parquet.crc").write_bytes(b"x")
    elsewhere.mkdir()
    places = [folder / "a.parquet", folder / "mode=car/hour=08/b.parquet", elsewhere / "c.parquet", elsewhere / "d"]
    for part, place in zip(parts, places, strict=True):
        duckdb.from_df(part).write_parquet(str(place))
    (elsewhere / "d").rename(project.root / "d.parquet")
    (folder / "linked").symlink_to(elsewhere)
    (folder / "mode=bus").symlink_to(folder / "mode=car")
    (folder / "d.parquet").symlink_to(project.root / "d.parquet")
    assert_copied(project, read_stated(project, {"dagster/uri": folder.as_uri()}))

    duckdb.from_df(parts[0].drop(columns="origin")).write_parquet(str(folder / "e.parquet"))
    said = failure_text(read_stated(project, {"path": str(folder)}))
    assert "OD-TRIPS-COLUMN: e.parquet (reader 'table') has no column 'origin'" in said
    (folder / "e.parquet").unlink()
    (folder / "f.parquet").symlink_to(project.root / "gone.parquet")
    said = failure_text(read_stated(project, {"path": str(folder)}))
    assert "OD-FILE-MISSING: there is no file f.parquet" in said
    (folder / "f.parquet").unlink()
    declared = project.component(trips__files="lake/{period}", arrivals={"settled_seconds": 0}).require_valid()
    assert doctors_faults(project, declared) == []
    assert check_arrival(declared, Period("2001-01")).waits is None
    for place, why in (
        (folder / "_temporary", "2001-01 has _temporary, so some of its files may be no records"),
        (folder / "base_0000001", "2001-01 is in a table of Hive with transactions, whose log is not read"),
        (folder / "_delta_log", "2001-01 is in a table of Delta, whose log is not read"),
        (folder.parent / ".hoodie", "2001-01 is in a table of Hudi, whose log is not read"),
        (folder / "mode=car" / ".hoodie_partition_metadata", "2001-01 is in a table of Hudi, whose log is not read"),
        (elsewhere / "_delta_log", "2001-01 is in a table of Delta, whose log is not read"),
        (project.root / "_spark_metadata", "2001-01 is in a table of Spark Structured Streaming, whose log is not"),
    ):
        place.mkdir()
        assert str(check_arrival(declared, Period("2001-01")).waits).startswith(why)
        said = failure_text(read_stated(project, {"path": str(folder)}))
        assert f"OD-FILE-INCOMPLETE: {why}" in said
        place.rmdir()
    (folder / "_committed_1f").touch()
    said = failure_text(read_stated(project, {"path": str(folder)}))
    assert "next: read the folder with Databricks, and write the records elsewhere with another writer as files" in said


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"path": "s3://key:hunter22@lake/2001-01.csv"}, "states as path an address of s3://, not a file of this"),
        ({"uri": "HTTPS://host/2001-01.csv?sig=hunter22"}, "states as uri an address of HTTPS://"),
        ({"path": "postgresql:role:hunter22"}, "states as path an address of postgresql://"),
        ({"table_uri": "s3a://key:hunter22@lake/january"}, "states as table_uri an address of s3a://, not a file of"),
        ({"location": dg.MetadataValue.path("gs://lake/jan"), "path": ""}, "states as location an address of gs://"),
        ({"path": "~/2001-01.csv"}, "OD-FILE-MISSING: ~ does not stand for the home folder: write the whole path"),
        ({"path": "*.csv"}, "OD-FILE-MISSING: wildcards such as * are not replaced"),
    ],
)
def test_an_address_that_is_no_file_of_this_machine_is_not_ignored(project, stated, said):
    """The declared file is there, but the asset says that its records are somewhere else."""
    text = failure_text(read_stated(project, stated, trips__files="{period}.csv"))
    assert said in text
    assert "hunter22" not in text
    assert not (project.var / "confidential/trips/2001-01/r1/raw_trips.parquet").exists()


@pytest.mark.parametrize(
    "stated",
    [
        {"path": "2001-01.csv", "uri": "s3://lake/a", "s3_path": "s3://lake/a"},
        {"uri": "file://localhost{root}/2001-01.csv"},
        {"docs_url": "https://wiki", "source": "s3://lake/a", "location": "D://2001-01.csv", "dbt/path": "a:b/c.csv"},
    ],
)
def test_the_first_of_several_addresses_counts(project, stated):
    """They may be relative to the project, or name this machine. An empty one states nothing."""
    given = {name: text.format(root=project.root) for name, text in stated.items()}
    assert_copied(project, read_stated(project, given, trips__files="{period}.csv"))


def test_a_file_that_two_partitions_state_is_read_once(project):
    """One of them states its own folder, and the others state the whole data set."""
    folder = project.root / "lake"
    for part in range(2):
        (folder / f"day={part}").mkdir(parents=True)
        duckdb.from_df(records().iloc[part::2]).write_parquet(str(folder / f"day={part}" / "a.parquet"))
    for day in range(1, 32):
        stated = {"path": str(folder / "day=1" if day == 1 else folder)}
        made = dg.AssetMaterialization(LAKE, partition=f"2001-01-{day:02d}", metadata=stated)
        project.instance.report_runless_asset_event(made)
    assert_copied(project, read_stated(project, None, DAYS))


def test_a_data_set_that_gains_a_file_while_it_is_read_is_refused(project, monkeypatch):
    folder = project.root / "lake"
    folder.mkdir()
    duckdb.from_df(records()).write_parquet(str(folder / "a.parquet"))
    load = release.load_records

    def load_and_add(*arguments, **options):
        load(*arguments, **options)
        duckdb.from_df(records()).write_parquet(str(folder / "b.parquet"))

    monkeypatch.setattr(release, "load_records", load_and_add)
    said = failure_text(read_stated(project, {}, trips__files="lake"))
    assert "OD-FILE-INCOMPLETE: lake was changed while it was read" in said


@pytest.mark.parametrize("name", ["lake.main.january", "months.january", "every"])
def test_the_table_is_the_one_that_the_asset_states(project, name):
    """A table or a view of a DuckDB file, as an IO manager of ``dagster-duckdb`` names it, in place of the declared."""
    file = project.root / "lake.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.register("frame", records())
        connection.execute("CREATE SCHEMA months")
        for place in ("main", "months"):
            connection.execute(f"CREATE TABLE {place}.january AS FROM frame")
        connection.execute("CREATE VIEW every AS FROM january")
    declared = {"trips__files": "lake.duckdb", "trips__table": "trips"}
    assert_copied(project, read_stated(project, {"dagster/table_name": name}, **declared))
    said = failure_text(read_stated(project, {"dagster/relation_identifier": f"{name}2"}, **declared))
    assert re.search(
        r"OD-TRIPS-TABLE: lake\.duckdb \(reader 'table'\) has no table '(months\.)?(january|every)2'", said
    )
    with duckdb.connect(str(file)):  # a program that may write
        said = failure_text(read_stated(project, {"dagster/table_name": name}, **declared))
    assert "lake.duckdb (reader 'table') cannot be read as a DuckDB file: a program has it open to write to it" in said
    assert "PID" not in said


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_the_table_of_a_store_is_the_one_that_the_asset_states(project, stores, monkeypatch, store):
    """In the database that is declared; a file that the asset states besides is not read."""
    types = pa.schema([(name, pa.string()) for name in records().columns])
    table, section = stores.write(store, pa.Table.from_pandas(records(), types, preserve_index=False))
    if store == "postgres":
        monkeypatch.setenv("OD_TRIPS", stores.address)
    section[store]["table"] = "absent"
    declared = {"trips__files": "", "trips__columns": {"date": "date"}, **{f"trips__{store}": section[store]}}
    stated = {"dagster/table_name": f"lake.main.{table.name}".replace("main.mobility", "mobility"), "path": "no.csv"}
    assert_copied(project, read_stated(project, stated, **declared))
    assert "has no table or view" in failure_text(read_stated(project, {}, **declared))


def test_an_io_manager_of_the_team_is_not_asked_for_records(project):
    """One that cannot load stores what the asset returned; the asset must state a file, or the declared one is read."""

    class OnlyStores(dg.IOManager):
        def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
            context.add_output_metadata({"dagster/table_name": "warehouse.trips"})

        def load_input(self, context: dg.InputContext) -> Any:
            raise AssertionError("records would be in the memory of this step")

    @dg.asset(key=LAKE, partitions_def=MONTHS, io_manager_key="stores")
    def trips() -> pd.DataFrame:
        return records()

    series = project.component(trips__asset="lake/trips", trips__files="lake/{period}.csv")
    team = dg.Definitions(assets=[trips], resources={"stores": OnlyStores()})
    job = dg.Definitions.merge(project.definitions(series), team).resolve_implicit_global_asset_job_def()

    assert project.execute(job, LAKE, partition="2001-01-01").success
    assert project.execute(job, GEOGRAPHY).success
    said = failure_text(project.execute(job, RECORDS, partition="2001-01"))
    assert "OD-UPSTREAM: trips: lake/trips states no file of this machine, and there is no 2001-01.csv" in said
    assert "next: state the file in its metadata as path: its IO manager is not asked for records" in said
    (project.root / "lake").mkdir()
    (project.root / "2001-01.csv").rename(project.root / "lake" / "2001-01.csv")
    assert_copied(project, project.execute(job, RECORDS, partition="2001-01"))


MONTHLY = dg.MonthlyPartitionsDefinition
SINGLE = {"periods": {"first": "2001-01--2001-03", "every": "single"}}
STATIC = dg.StaticPartitionsDefinition(["a"])
YEARS = dg.TimeWindowPartitionsDefinition(start="2001", fmt="%Y", cron_schedule="0 0 1 1 *")
ALONE = "a series of a single release"
NOT_WHOLE = "a month does not consist of whole partitions that begin at"

FITTING: dict[str, tuple[Any, dict[str, Any]]] = {
    "the same": (MONTHS, {}),
    "days": (DAYS, {}),
    "hours": (dg.HourlyPartitionsDefinition("2001-01-01-00:00"), {}),
    "none, with dates": (None, {}),
    "months in a quarter": (MONTHS, {"periods": {"first": "2001-Q1", "every": "quarter"}}),
    "a single release": (None, SINGLE),
    "a start before": (MONTHLY("1999-01-01"), {}),
}
UNFIT: dict[str, tuple[Any, dict[str, Any], str]] = {
    "none, without dates": (None, {"trips__columns": {}}, "there are none, and the records have no dates"),
    "years": (YEARS, {}, f"{NOT_WHOLE} '0 0 1 1 *'"),
    "weeks in a month": (dg.WeeklyPartitionsDefinition("2001-01-01"), {}, f"{NOT_WHOLE} '0 0 * * 0'"),
    "days from six": (dg.DailyPartitionsDefinition("2001-01-01", hour_offset=6), {}, "that begin at '0 6 * * *'"),
    "another zone": (
        MONTHLY("2001-01-01", timezone="Europe/Rome"),
        {},
        "their days begin in Europe/Rome, and those of the series in UTC",
    ),
    "a start after": (MONTHLY("2001-02-01"), {}, "they do not cover all periods"),
    "an end before": (MONTHLY("2001-01-01", end_date="2001-02-01"), {}, "they do not cover all periods"),
    "static": (STATIC, {}, "they are not of time"),
    "dynamic": (dg.DynamicPartitionsDefinition(name="files"), {}, "they are not of time"),
    "two dimensions": (
        dg.MultiPartitionsDefinition({"month": MONTHS, "city": STATIC}),
        {},
        "they are not of time",
    ),
    "months of a single release": (MONTHS, SINGLE, f"{ALONE} reads only an asset without partitions"),
}


@pytest.mark.parametrize("case", FITTING | UNFIT)
def test_partitions_that_do_not_fit_are_refused_by_name(project, case):
    partitions, changes, *why = (FITTING | UNFIT)[case]
    team = dg.Definitions(assets=[dg.AssetSpec(LAKE, partitions_def=partitions)])
    series = project.component(**{"trips__asset": "lake/trips"} | changes)
    graph = dg.Definitions.merge(project.definitions(series), team).resolve_asset_graph()
    if not why:
        refuse_wrong_upstream(series, graph)
        return
    with pytest.raises(OdError, match=r"OD-UPSTREAM: trips: the partitions of lake/trips do not fit: ") as refused:
        refuse_wrong_upstream(series, graph)
    assert why[0] in refused.value.message
    assert refused.value.next_step


@pytest.mark.parametrize("place", ["trips__asset", "geography__asset"])
def test_an_unknown_asset_is_refused_with_the_nearest_key(project, place):
    team = dg.Definitions(assets=[dg.AssetSpec(LAKE, partitions_def=MONTHS)])
    series = project.component(**{place: "lake/trip"})
    definitions = dg.Definitions.merge(project.definitions(series), team)
    with pytest.raises(OdError, match=r"has no asset 'lake/trip' \(did you mean 'lake/trips'\?\)"):
        refuse_wrong_upstream(series, definitions.resolve_asset_graph())
    if place == "trips__asset":
        ran = project.execute(definitions.resolve_job_def("trips_release"), partition="2001-01")
        assert "OD-UPSTREAM: trips: this code location has no asset 'lake/trip'" in failure_text(ran)
