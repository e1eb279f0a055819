"""OpenLineage events of releases: by the real client, to a file and to a server, and nothing where nothing is asked."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from od_assets.components import OdWarehouse
from od_assets.metadata import make_source_metadata
from od_assets.sensors.notices import lineage_events
from od_core.errors import OdError
from od_core.files.durable import compute_file_digest

from .watch import Watch

SECRET = "hunter2"  # noqa: S105  # not a password of anything


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch, tmp_path):
    """No configuration of this machine, neither of its environment nor of its files."""
    for name in ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def told(monkeypatch, tmp_path) -> Callable[[], list[dict[str, Any]]]:
    """Configure the client to write to a file; what it wrote."""
    path, repository = tmp_path / "events.jsonl", tmp_path / ".git"
    repository.mkdir()
    (repository / "config").write_text(f'[remote "origin"]\nurl = https://user:{SECRET}@localhost/project.git\n')
    transport = {"type": "file", "log_file_path": str(path), "append": True}
    (tmp_path / "openlineage.yml").write_text(json.dumps({"transport": transport}), encoding="utf-8")
    return lambda: [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def sensors() -> list[str]:
    return [sensor.name for sensor in OdWarehouse.model_validate({}).build_defs(None).sensors or []]


def brief(event: dict[str, Any]) -> str:
    return f"{event['job']['name'].removeprefix('trips_release').lstrip('.') or 'run'} {event['eventType']}"


def in_any_order(told: list[str]) -> tuple[str, list[tuple[str, ...]], str]:
    """First event, pairs of events of the steps, and last event: the order of steps may depend on the records."""
    return told[0], sorted(zip(told[1:-1:2], told[2:-1:2], strict=True)), told[-1]


def names(datasets: list[dict[str, Any]]) -> list[str]:
    return [f"{dataset['namespace']}:{dataset['name']}" for dataset in datasets]


def test_nothing_is_sent_unless_the_client_is_configured(project, monkeypatch):
    assert "lineage_events" not in sensors()
    for name, value in (("OPENLINEAGE_URL", "http://localhost"), ("OPENLINEAGE__TRANSPORT__TYPE", "noop")):
        with monkeypatch.context() as context:
            context.setenv(name, value)
            assert "lineage_events" in sensors()
            context.setenv("OPENLINEAGE_DISABLED", "true")
            assert "lineage_events" not in sensors()
    (project.root / "openlineage.yml").write_text("transport: {type: noop}")
    assert "lineage_events" in sensors()


def test_a_release_is_told_step_by_step_and_a_failed_one_without_its_reason(project, told):
    watch = Watch.begun(project, lineage_events)
    assets = ("geography", "raw_trips", "trip_counts", "levels/noisy_measurement_1", "levels/estimate_1")
    result = project.materialize(*assets)
    assert result.success
    watch.look()
    events = told()
    steps = [event.step_key for event in result.all_events if event.is_step_start]
    expected = [f"{step} {state}" for step in steps for state in ("START", "COMPLETE")]
    assert in_any_order([brief(event) for event in events]) == in_any_order(["run START", *expected, "run COMPLETE"])
    assert {event["run"]["runId"] for event in events if brief(event).startswith("run")} == {result.run_id}
    below = [event["run"] for event in events if not brief(event).startswith("run")]
    assert {run["facets"]["parent"]["run"]["runId"] for run in below} == {result.run_id}
    assert len({run["runId"] for run in below}) == len(steps)
    tags = {tag["key"]: tag["value"] for tag in below[0]["facets"]["tags"]["tags"]}
    assert (tags["od/release"], tags["od/period"]) == ("trips", "2001-01")

    ended = {brief(event): event for event in events}
    loaded = ended["trips__raw_trips COMPLETE"]
    assert names(loaded["inputs"]) == [f"file:{project.root}/2001-01.csv"]
    assert names(ended["trips__geography COMPLETE"]["inputs"]) == [f"file:{project.root}/zones.csv"]
    assert names(ended["trips__trip_counts COMPLETE"]["inputs"]) == [
        "dagster:trips/geography",
        "dagster:trips/raw_trips",
    ]
    for event in events:
        read = {dataset["name"] for dataset in event["inputs"]}
        for output in event["outputs"]:
            fields = output["facets"].get("columnLineage", {"fields": {}})["fields"].values()
            assert {source["name"] for field in fields for source in field["inputFields"]} <= read
    [made] = ended["trips__levels__estimate_1 COMPLETE"]["outputs"]
    assert [field["name"] for field in made["facets"]["schema"]["fields"]] == ["origin", "destination", "trips"]
    assert made["facets"]["columnLineage"]["fields"]["trips"]["inputFields"] == [
        {"namespace": "dagster", "name": "trips/levels/noisy_measurement_1", "field": "noisy", "transformations": []}
    ]
    [path] = project.var.glob("confidential/trips/2001-01/r1/**/*estimate*1*.parquet")
    assert made["facets"]["version"]["datasetVersion"] == compute_file_digest(path)
    assert made["outputFacets"]["outputStatistics"]["rowCount"] == len(pd.read_parquet(path))
    [noisy] = ended["trips__levels__noisy_measurement_1 COMPLETE"]["outputs"]
    from_counts = noisy["facets"]["columnLineage"]["fields"]["noisy"]["inputFields"]
    assert {field["name"] for field in from_counts} == {"trips/trip_counts"}
    assert {change["masking"] for field in from_counts for change in field["transformations"]} == {True}
    [records] = loaded["outputs"]
    assert {"key": "od/confidential", "value": "true", "source": "DAGSTER"} in records["facets"]["tags"]["tags"]
    assert not records.get("outputFacets")
    [public], [checked] = (ended[f"trips__{name}__checks COMPLETE"]["inputs"] for name in ("geography", "raw_trips"))
    assert "dataQualityAssertions" in public["inputFacets"]
    assert checked["name"] == "trips/raw_trips"  # which was checked, but not with which result
    for dataset in (dataset for event in events for dataset in event["inputs"]):
        tags = {tag["key"] for tag in dataset.get("facets", {}).get("tags", {"tags": []})["tags"]}
        assert "od/confidential" not in tags or not dataset.get("inputFacets")

    (project.root / "2001-01.csv").unlink()
    assert not project.materialize(*assets).success
    watch.look()
    watch.look()  # and not again
    failed = told()[len(events) :]
    assert [brief(event) for event in failed] == ["run START", "run FAIL"]
    assert "OD-FILE-MISSING" not in json.dumps(failed)
    assert {event["eventTime"][10:] for event in told()} == {"T00:00:00+00:00"}
    assert len({event["eventTime"] for event in events}) == 1  # which tells no duration, not even over midnight
    assert SECRET not in json.dumps(told())


def test_a_configuration_that_the_client_refuses_is_not_repeated(project, monkeypatch):
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", SECRET)
    with pytest.raises(OdError, match="OD-LINEAGE-CONFIG: the OpenLineage client refuses its configuration") as error:
        Watch(project, lineage_events).look()
    assert SECRET not in str(error.value)


def test_addresses_are_told_without_passwords():
    given = [f"s3a://key:{SECRET}@lake:9000/trips/{{period}}.parquet?sig={SECRET}", "/lake/trips#1?.csv", "db.trips"]
    assert make_source_metadata(given) == {
        "od/sources": ["s3a://lake:9000/trips/{period}.parquet", "/lake/trips#1?.csv", "db.trips"]
    }


def test_a_run_that_is_not_completed_is_told_without_its_steps(project, told):
    """Which step failed may tell of the records; also of a run whose process was killed, with assets that are gone."""
    watch = Watch.begun(project, lineage_events)
    before = project.component(domain__neighbours="unbounded")  # level 0 is measured: an asset that is gone since
    job = project.definitions(before).resolve_job_def("trips_release")
    for step in ("", "trips__levels__noisy_measurement_0"):
        run = project.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED, tags=dict(job.tags))
        if step:
            begun = dg.DagsterEvent("STEP_START", "trips_release", step_key=step)
            project.instance.report_dagster_event(begun, run.run_id)
        project.instance.report_run_failed(run, message="The process of this run no longer exists.")
    others = project.instance.create_run_for_job(job, tags={"od/release": "of_another_project"})
    project.instance.report_run_failed(others)
    watch.look()
    assert [brief(event) for event in told()] == ["run START", "run FAIL"] * 2


def test_a_verification_is_told_as_such(project, told):
    watch = Watch.begun(project, lineage_events)
    project.declare()
    project.publish()
    job = project.definitions(project.component()).resolve_job_def("od_verification")
    watch.look()
    before = len(told())
    assert project.execute(job).success
    watch.look()
    events = told()[before:]
    assert {event["job"]["name"].partition(".")[0] for event in events} == {"od_verification"}
    [checked] = [dataset for event in events if event["eventType"] == "COMPLETE" for dataset in event["inputs"]]
    [assertion] = checked["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert (checked["name"], assertion["assertion"], assertion["success"]) == (
        "trips/bundle",
        "stays_as_published",
        True,
    )


class Backend(BaseHTTPRequestHandler):
    """A lineage backend that takes as many events as it is told to, and refuses the others."""

    taken: list[str]
    takes: int

    def do_POST(self) -> None:
        event = self.rfile.read(int(self.headers["Content-Length"]))
        is_taken = len(self.taken) < self.takes
        if is_taken:
            self.taken.append(brief(json.loads(event)))
        self.send_response(201 if is_taken else 422)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def backend(monkeypatch) -> Iterator[type[Backend]]:
    Backend.taken, Backend.takes = [], 0
    with HTTPServer(("127.0.0.1", 0), Backend) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{server.server_port}")
        yield Backend
        server.shutdown()


def test_what_a_backend_does_not_take_is_sent_later_in_order_and_once(project, backend):
    watch = Watch.begun(project, lineage_events)
    result = project.materialize("geography", "raw_trips")
    assert result.success  # no release waits for a backend
    with pytest.raises(OdError, match="OD-LINEAGE-UNSENT: the lineage backend did not take an event: HTTPError 422"):
        watch.look()
    backend.takes = 2
    assert watch.look().skip_message == "2 events sent, then stopped: HTTPError 422."
    backend.takes = 100
    assert watch.look().skip_message == "8 events sent."
    assert watch.look().skip_message == "0 events sent."
    steps = [event.step_key for event in result.all_events if event.is_step_start]
    expected = [f"{step} {state}" for step in steps for state in ("START", "COMPLETE")]
    assert in_any_order(backend.taken) == in_any_order(["run START", *expected, "run COMPLETE"])


def test_an_asset_of_the_team_is_an_input_without_its_data_version(project, told):
    """It has no columns in Dagster, and its data version may be a digest of the records."""
    version, lake = "0123456789abcdef", dg.AssetKey(["lake", "trips"])
    component = project.component(trips__asset="lake/trips")
    own = project.definitions(component)
    merged = dg.Definitions.merge(own, dg.Definitions(assets=[dg.AssetSpec(lake)]))
    project.definitions = lambda _series: merged  # type: ignore[method-assign]
    made = dg.AssetMaterialization(lake, tags={"dagster/data_version": version}, metadata={"path": "2001-01.csv"})
    project.instance.report_runless_asset_event(made)
    watch = Watch.begun(project, lineage_events, component=component)
    result = project.materialize("geography", "raw_trips", component=component)
    assert result.success
    [loaded] = result.asset_materializations_for_node("trips__raw_trips")
    assert loaded.tags["dagster/input_data_version/lake/trips"] == version  # in the team's own instance
    watch.look()
    events = {brief(event): event for event in told()}
    read = events["trips__raw_trips COMPLETE"]
    assert names(read["inputs"]) == ["dagster:lake/trips", f"file:{project.root}/2001-01.csv"]
    fields = read["outputs"][0]["facets"]["columnLineage"]["fields"]
    assert [source["name"] for source in fields["origin"]["inputFields"]] == ["lake/trips"]
    assert version not in json.dumps(told())
