"""A planted zone, user and count are found nowhere outside the confidential folder, whatever happens."""

import gzip
import json
import logging
import stat
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pandas as pd
import pytest

import od_assets.assets.release
import od_assets.assets.steps
import od_assets.components.series
from od_assets.cli.diagnosis import inspect_records_of_period
from od_assets.components import OdSite
from od_assets.resources.release_work import FlowWork
from od_assets.resources.warehouse import Warehouse
from od_assets.sensors.notices import Failed, Published, lineage_events
from od_assets.series.series import Series
from od_core import data_contract
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from od_core.records.load import load_records
from tests.od_assets.canary import COUNT, USER, ZONE, leaks, of_flows, planted, planted_forms
from tests.od_assets.conftest import SILENT, ZONES, Project, failure_text
from tests.od_assets.watch import Kept, Watch

KEY = ReleaseKey("trips", "2001-01")
EVENTS = "lineage.jsonl"


@pytest.fixture
def kept_project(make_project, tmp_path, monkeypatch) -> Project:
    """A project that leaves all its traces below one folder: Dagster's storage, temporary files, the working folder."""
    for name in ("dagster", "temporary", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.chdir(tmp_path / "here")
    project = make_project()
    silent = {"telemetry": {"enabled": False}}
    project.instance = dg.DagsterInstance.local_temp(str(tmp_path / "dagster"), overrides=silent)
    project.write_records(planted())
    return project


@pytest.fixture
def lineage(kept_project, monkeypatch) -> Watch:
    """The sensor that sends lineage, to a file that is searched; it has looked once, so it tells what follows."""
    path = kept_project.root / "dagster" / EVENTS
    for name, value in {"TYPE": "file", "LOG_FILE_PATH": str(path), "APPEND": "true"}.items():
        monkeypatch.setenv(f"OPENLINEAGE__TRANSPORT__{name}", value)
    return Watch.begun(kept_project, lineage_events, component=of_flows(kept_project))


def tell(lineage: Watch) -> str:
    """Send the lineage of what has run, and return all of it."""
    lineage.look()
    return (lineage.project.root / "dagster" / EVENTS).read_text(encoding="utf-8")


def show(project: Project, component: Series) -> None:
    """Print what definitions say of their assets, and the contract of what is published; and write the site."""
    for spec in project.definitions(component).resolve_all_asset_specs():
        print(spec.key, spec.description, spec.tags, *spec.metadata.items())
    [bundle] = (project.var / "releases" / component.name).glob("*/r1")
    print(data_contract(bundle))
    site = OdSite.model_validate({"owners": ["team:statistics"], "url": "https://statistics.example"})
    job = site.build_defs(None).resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(instance=project.instance, run_config=SILENT).success
    assert (project.var / "site" / "feed.atom").is_file()


@pytest.fixture
def found(kept_project, capfd, caplog) -> Callable[[], list[str]]:
    """Where the planted values are, in files, in what was printed and in what was logged."""
    caplog.set_level(logging.DEBUG)

    def find():
        return leaks(kept_project.root, "\n".join([*capfd.readouterr(), caplog.text]))

    return find


def test_the_search_finds_what_is_planted_in_any_form(tmp_path):
    folder = tmp_path / "var"
    folder.mkdir()
    expected = planted_forms(folder)
    found = leaks(tmp_path, f"said {USER}")
    for name, form in (expected | {"what was said": "user"}).items():
        assert f"{name}: {form}" in found


def test_a_month_that_is_published_refused_and_refused_again_holds_nothing_planted(kept_project, found, lineage):
    """Published; then its records changed; then a revision that the cap refuses; and notice given of all of it."""
    kept = Kept()
    watches = [Watch(kept_project, sensor, kept) for sensor in ("release_published", "release_failed")]
    for watch in watches:
        watch.look()
    assert kept_project.run(of_flows(kept_project)).success
    assert found() == []

    changed = planted()
    changed.iloc[1, changed.columns.get_loc("destination")] = "Z20"
    kept_project.write_records(changed)
    assert "OD-REPLAY-INPUT-CHANGED" in failure_text(kept_project.run(of_flows(kept_project)))
    assert "OD-LEDGER-CAP" in failure_text(kept_project.run(of_flows(kept_project, revision=2)))
    assert found() == []
    for watch in watches:
        watch.look()
    print(*kept.said)
    assert [type(notice) for notice in kept.said] == [Published, Failed, Failed]
    told = [json.loads(line) for line in tell(lineage).splitlines()]
    runs = [event["eventType"] for event in told if event["job"]["name"] == "trips_release"]
    assert runs == ["START", "COMPLETE", "START", "FAIL", "START", "FAIL"]
    assert [event["eventType"] for event in told if event["job"]["name"].endswith("__bundle")] == ["START", "COMPLETE"]
    show(kept_project, of_flows(kept_project))
    assert found() == []


def test_an_unlisted_category_is_found_nowhere(kept_project, found, lineage):
    """Counted as another, or dropped as faulty; refused by too many of them; quoted by what fails unforeseen."""
    few = planted().assign(mode=[ZONE, "car", *["car", "bus"] * 1000])
    with_unknown = {"mode": {"categories": ["car", "bus", "other"], "unknown": "other"}}
    with_unknown["day_type"] = {"column": "date", "derive": "day_type"}
    without = {"mode": {"categories": ["car", "bus"]}}
    kept_project.write_records(few)
    first = of_flows(kept_project, segments=with_unknown, domain__cap__rho="3e-13")
    with pytest.MonkeyPatch.context() as context:
        context.setattr("od_assets.assets.flows.refine", quoting)
        assert "OD-CONFIDENTIAL-ERROR" in failure_text(kept_project.run(first))
    assert found() == []
    assert kept_project.run(first).success
    assert found() == []

    many = {"segments": without, "domain__cap__rho": "3e-13", "revision": 2}
    for accepted, threshold in ((False, "0"), (True, "1/1000")):
        second = of_flows(kept_project, **many, trips__fault_threshold=threshold)
        print(*inspect_records_of_period(second.require_valid(), "2001-01"))
        result = kept_project.run(second)
        assert result.success == accepted
        assert ("OD-TRIPS-FAULTS" in failure_text(result)) != accepted
        assert found() == []
    kept_project.write_records(few.assign(mode=ZONE))
    assert "OD-REPLAY-INPUT-CHANGED" in failure_text(kept_project.run(first))
    assert '"FAIL"' in tell(lineage)
    show(kept_project, first)
    assert found() == []


def test_group_sizes_that_are_published_and_refused_hold_nothing_planted(kept_project, found):
    """A zone that is not listed, below the threshold; then all records of it; then a defect in the count."""
    kept_project.write_records(planted().drop(columns="trips"))
    assert kept_project.run(kept_project.group_sizes()).success
    assert found() == []

    kept_project.write_records(planted().drop(columns="trips").assign(origin=ZONE))
    refused = kept_project.run(kept_project.group_sizes(revision=2))
    assert not refused.success
    assert found() == []
    with pytest.MonkeyPatch.context() as context:
        context.setattr("od_core.group_sizes.publishing.GroupSizeKind.estimate", quoting)
        kept_project.write_records(planted().drop(columns="trips"))
        assert "OD-CONFIDENTIAL-ERROR" in failure_text(kept_project.run(kept_project.group_sizes()))
    show(kept_project, kept_project.group_sizes())
    assert found() == []


def test_trips_with_stops_that_are_published_and_refused_hold_nothing_planted(kept_project, found):
    """A place that is not listed, below the threshold; then all records of it; then a defect in the boxes."""
    places = ZONES.assign(longitude=range(6), latitude=range(6))
    places.to_csv(kept_project.root / "zones.csv", index=False)
    columns = {"places": ["origin", "destination"], "date": "date"}
    stops = kept_project.stops(trips__columns=columns, trips__one_row_a_trip=True)
    kept_project.write_records(planted().drop(columns="trips"))
    with pytest.MonkeyPatch.context() as context:
        context.setattr("od_assets.series.tables.place_records", quoting)
        assert "OD-CONFIDENTIAL-ERROR" in failure_text(kept_project.run(stops))
    assert found() == []
    assert kept_project.run(stops).success
    show(kept_project, stops)
    assert found() == []
    kept_project.write_records(planted().drop(columns="trips").assign(origin=ZONE))
    assert not kept_project.run(stops).success
    assert found() == []


def too_many_faults(project: Project) -> None:
    project.write_records(planted().assign(origin=ZONE))


def a_fraction(project: Project) -> None:
    project.write_records(planted().astype({"trips": "object"}).replace({"trips": {COUNT: f"{COUNT}.5"}}))


def a_broken_file(project: Project) -> None:
    lines = ["date,origin,destination,trips,user", f'2001-01-01,"{ZONE},Z00', f"{COUNT},{USER},\xff"]
    (project.root / "2001-01.csv").write_bytes("\n".join(lines).encode("latin-1"))


def a_field_too_many(project: Project) -> None:
    """DuckDB quotes the whole line."""
    lines = ["date,origin,destination,trips,user", f"2001-01-01,{ZONE},Z00,{COUNT},{USER},more"]
    (project.root / "2001-01.csv").write_text("\n".join(lines), encoding="utf-8")


def no_header(project: Project) -> None:
    planted().to_csv(project.root / "2001-01.csv", index=False, header=False)


REFUSED = {
    a_broken_file: "OD-FILE-UNREADABLE",
    a_field_too_many: "OD-FILE-UNREADABLE",
    no_header: "OD-TRIPS-COLUMN",
    too_many_faults: "OD-TRIPS-FAULTS",
    a_fraction: "OD-TRIPS-COUNT",
}


def test_a_refused_month_holds_nothing_planted(kept_project, found):
    for plant, code in REFUSED.items():
        plant(kept_project)
        result = kept_project.run(of_flows(kept_project))
        assert code in failure_text(result), plant.__name__
        assert "2001-01.csv" in failure_text(result), plant.__name__
        assert found() == [], plant.__name__
    too_many_faults(kept_project)
    component = kept_project.component(trips__one_row_a_trip=True)
    result = kept_project.run(component)  # a row a trip: here the check of the records fails before they are counted
    assert [check.check_name for check in result.get_asset_check_evaluations() if not check.passed] == [
        "meets_expectations"
    ]
    assert found() == []
    details = [path.read_text(encoding="utf-8") for path in (kept_project.var / "confidential" / "errors").iterdir()]
    assert any(ZONE in detail and USER in detail and str(COUNT) in detail for detail in details)
    assert Ledger(kept_project.var / "ledger.sqlite").count_draws(KEY, 1) == 0


def a_duckdb_file(path: Path) -> None:
    """Whose view fails with the value that it cannot convert, and whose column of dates is none."""
    table = planted()
    with duckdb.connect(path) as connection:
        connection.register("table_of_records", table)
        connection.execute("CREATE TABLE records AS FROM table_of_records")
        converted = "user::DATE AS date, origin::INTEGER::TEXT AS origin"
        connection.execute(f"CREATE VIEW broken AS SELECT * REPLACE ({converted}) FROM records")
        enumeration = f"'{USER}'::ENUM('{ZONE}', '{USER}')"
        connection.execute(f"CREATE TABLE enumerated AS SELECT * REPLACE ({enumeration} AS date) FROM records LIMIT 9")


FIELDS = " ".join([ZONE, USER, str(COUNT)])
TEXT = planted().to_csv(index=False)
UTF_16 = TEXT.encode("utf-16")
MDS = {"reader": "mds", "columns": {"origin": "trip_id", "destination": "vehicle_id", "date": "device_id"}}
READERS: dict[str, tuple[dict[str, Any], Callable[[Path], object]]] = {
    "a line of other fields": ({"reader": "istat"}, lambda path: path.write_text(f"S 1 {FIELDS}\n")),
    "lines that are no text": ({"reader": "istat"}, lambda path: path.write_bytes(b"S %b \xff" % FIELDS.encode())),
    "a record for a header": ({"reader": "nomis"}, lambda path: path.write_text(FIELDS.replace(" ", ",") + "\n")),
    "records of others": ({"reader": "lodes"}, lambda path: path.write_text(TEXT)),
    "text for Parquet": ({"reader": "tlc"}, lambda path: path.write_text(TEXT)),
    "JSON of others": (MDS, lambda path: path.write_text(json.dumps({ZONE: [{USER: FIELDS}]}))),
    "a cut JSON file": (MDS, lambda path: path.write_text(f'{{"trips": [{{"trip_id": "{USER}"')),
    "no JSON": (MDS, lambda path: path.write_text(f'{{"trips": [{{"trip_id": {USER} "{FIELDS}"}}]}}')),
    "JSON in Latin-1": (MDS, lambda path: path.write_bytes(b'{"trips": [{"trip_id": "%b \xe9"}]}' % FIELDS.encode())),
    "a cut gzip file": ({}, lambda path: path.write_bytes(gzip.compress(TEXT.encode())[:-100])),
    "half a sign": ({"encoding": "utf-16"}, lambda path: path.write_bytes(UTF_16[:-1] + b"\xd8\x00\xd8")),
    "another delimiter": ({"delimiter": ";"}, lambda path: path.write_text(TEXT)),
    "a view that fails": ({"table": "broken"}, a_duckdb_file),
    "no such table": ({"table": "absent"}, a_duckdb_file),
    "an enumeration": ({"table": "enumerated"}, a_duckdb_file),
    "a Parquet structure": ({}, lambda path: planted().assign(date=[{USER: 1}] * 2002).to_parquet(path)),
    "no such category": ({"categories": {"kind": ["1"]}}, lambda path: path.write_text(TEXT)),
}


def test_no_reader_that_fails_says_what_it_read(kept_project, found):
    """Nor does a look at the input, which fails likewise; both keep it in the confidential folder."""
    for number, (name, (trips, plant)) in enumerate(READERS.items()):
        ending = "csv.gz" if "gzip" in name else "parquet" if "Parquet s" in name else "csv"
        files = f"{{period}}.{number}.{ending}"
        plant(kept_project.root / files.format(period="2001-01"))
        plain = {} if "reader" in trips else {"columns": {"date": "date"}, "one_row_a_trip": True}
        component = of_flows(kept_project, trips=trips | {"files": files} | plain)
        result = kept_project.materialize("geography", "raw_trips", component=component)
        assert "OD-FILE" in failure_text(result) or "OD-TRIPS" in failure_text(result), name
        [finding] = inspect_records_of_period(component.require_valid(), "2001-01")
        assert str(finding.fault).startswith("the input would be refused")
        print(finding)
        assert found() == [], name


def test_zones_that_are_the_records_hold_nothing_planted(kept_project, found):
    """The declaration's path is wrong: codes and first line are records."""
    for levels in (["user", "origin"], ["region", "zone"]):
        component = of_flows(kept_project, geography={"file": "2001-01.csv", "levels": levels})
        result = kept_project.materialize("geography", component=component)
        assert "2001-01.csv" in failure_text(result)
        assert "OD-GEOGRAPHY" in failure_text(result)
        assert found() == []
        no_header(kept_project)


def quoting(*_: object, **__: object) -> None:
    """Fails as a library does: with a value in its message, in the error behind it, and in a note."""
    try:
        raise KeyError(ZONE)
    except KeyError as error:
        failure = ValueError(f"could not convert {ZONE} {COUNT}")
        failure.add_note(USER)
        raise failure from error


FAILING = [
    "od_assets.assets.release.load_records",
    "od_assets.checks.release_checks.check_record_expectations",
    "od_assets.assets.steps.count_records",
    "od_assets.resources.release_work.begin_release",
    "od_core.noise.opendp.OpenDPNoise.draw",
    "od_assets.assets.flows.estimate_pieces",
    "od_assets.assets.flows.refine",
    "od_core.published.publishing.publish_folder",
]
"""What fails, in the order of the job: each run comes further than the one before."""


def test_an_unforeseen_error_holds_nothing_planted(kept_project, found, monkeypatch):
    for number, place in enumerate(FAILING, start=1):
        with monkeypatch.context() as context:
            context.setattr(place, quoting)
            result = kept_project.run(of_flows(kept_project, domain__cap__rho="3e-13"))
        assert "OD-CONFIDENTIAL-ERROR" in failure_text(result), place
        assert found() == [], place
        details = list((kept_project.var / "confidential" / "errors").iterdir())
        assert len(details) == number, place
        for value in (ZONE, USER, str(COUNT)):
            assert all(value in detail.read_text(encoding="utf-8") for detail in details)


def test_an_error_that_is_not_scrubbed_is_found(kept_project, found, monkeypatch, lineage):
    """The defect seeded: Dagster keeps the text of every exception that leaves a step. Lineage has none even so."""
    monkeypatch.setattr(od_assets.assets.steps, "count_records", quoting)
    monkeypatch.setattr(od_assets.resources.release_work, "convert_errors_without_values", lambda *_: nullcontext())
    assert not kept_project.run(of_flows(kept_project)).success
    assert '"FAIL"' in tell(lineage)
    places = found()
    assert {"zone", "count as text"} <= {place.split(": ")[1] for place in places if ".db" in place}
    assert not [place for place in places if EVENTS in place]


def test_an_asset_that_hands_over_its_records_is_found(kept_project, found):
    """The defect seeded: the default IO manager pickles what an asset returns."""
    component = of_flows(kept_project)
    series, partitions = component.require_valid(), component.periods.make_partitions_definition()
    made = od_assets.assets.release.make_source_assets(series)
    sound = next(asset for asset in made if asset.key.path[-1] == "raw_trips")

    @dg.asset(key=sound.key, partitions_def=partitions)
    def raw_trips(context, od_warehouse: Warehouse):  # without a type of what it returns, as the defect needs
        target = FlowWork(od_warehouse, series, series.key(context.partition_key)).staged.records
        load_records(series.locate_records_file("2001-01"), series.columns, context.partition_key, target)
        return pd.read_parquet(target)

    storage = dg.FilesystemIOManager(base_dir=str(kept_project.root / "dagster" / "storage"))
    for asset in (sound, raw_trips):
        resources = {"od_warehouse": Warehouse(), "io_manager": storage}
        job = dg.Definitions(assets=[asset], resources=resources).resolve_implicit_global_asset_job_def()
        assert kept_project.execute(job, partition="2001-01").success
        where = {place.split(": ")[1] for place in found()}
        assert where == (set() if asset is sound else {"zone", "count as a float"})


def test_what_a_step_prints_is_found(kept_project, found, monkeypatch):
    """The defect seeded: Dagster keeps what its steps print."""
    load = od_assets.assets.release.load_records

    def talkative(source, *rest, **options):
        print(source.read_text())
        load(source, *rest, **options)

    monkeypatch.setattr(od_assets.assets.release, "load_records", talkative)
    kept_project.materialize("geography", "raw_trips")
    places = found()
    assert "what was said: user" in places
    assert [place for place in places if place.endswith(".out: user")]  # Dagster's own copy of it


def test_the_confidential_folder_is_for_its_owner_alone(kept_project):
    assert kept_project.run(of_flows(kept_project)).success
    confidential = kept_project.var / "confidential"
    assert (confidential / str(KEY) / "raw_trips.parquet").exists()
    for path in (confidential, *confidential.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
