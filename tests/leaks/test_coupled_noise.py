"""Two neighbouring inputs, the same noisy values injected: whatever else leaves the confidential folder is equal."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import numpy as np
import pandas as pd
import pytest

import od_core.flows.measuring
import od_core.group_sizes.release
import od_core.ledger.measurements
import od_core.stops.release
from od_assets.series.series import Series
from od_core.flows.step import AreaTotalStep
from od_core.privacy.neighbours import Acceptance, Neighbours, Standing
from od_core.privacy.unit import PrivacyUnit
from od_core.publication.bundle_files import check_bundle
from tests.od_assets.conftest import SEGMENTS, ZONES, Project, records, records_by_mode
from tests.od_core.ledger.ledger_rows import rows
from tests.od_core.mutants import forget_that_a_record_may_leave

TIMES_AND_IDS = re.compile(r"20\d\d-\d\d-\d\dT[0-9:.+]+|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}")


TIMES_AND_HASHES = re.compile(r"20\d\d-\d\d-\d\d(T[0-9:.+]+)?|\b[0-9a-f]{64}\b|(?<=Certificate )[0-9a-f]{16}")
"""In files of words: times, and digests of files that have times; of other files the bytes are compared."""

PLACES = ("bundle", "report", "dagster/uri")
"""Metadata that names a folder of the test."""

WORDS = (".json", ".html", ".md", ".txt", ".xml")

PEOPLE = [f"p{k % 40}" for k in range(2000)]


def of_unit(unit: str, relation: str, **bounds: Any) -> dict[str, Any]:
    """Changes of a declaration that protects persons."""
    return {"domain__unit": unit, "domain__column": "person", "domain__neighbours": relation} | bounds


YEAR = {"domain__bounds": {"max_trips": 3, "max_trips_year": 4}, "domain__id_pattern": "p[0-9]+|somebody else"}
TRIP = {"trips__one_row_a_trip": True}
UNBOUNDED = TRIP | {"domain__neighbours": "unbounded"}

DOMAINS: dict[str, dict[str, Any]] = {
    "trip, bounded": TRIP,
    "trip, unbounded": UNBOUNDED,
    "trip, unbounded, area totals": UNBOUNDED | {"area_totals": {"share": "1/10"}},
    "user_period, bounded": of_unit("user_period", "bounded", bounds={"max_trips": 3}),
    "user, unbounded": of_unit("user", "unbounded", bounds={"max_trips": 3}),
    **{f"user_year, {relation}": of_unit("user_year", relation, **YEAR) for relation in ("bounded", "unbounded")},
}


def neighbours(protected: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two inputs that differ in one unit: a record, or all fifty of a person, replaced or removed."""
    one = records().assign(person=PEOPLE)
    unit, relation = protected.split(", ")[:2]
    theirs = np.arange(len(one)) == 0 if unit == "trip" else one["person"].eq("p7").to_numpy()
    if relation == "unbounded":
        return one, one[~theirs]
    other = one.copy()
    other.loc[theirs, ["origin", "destination"]] = ["Z21", "Z00"]
    if unit != "trip":
        other.loc[theirs, "person"] = "somebody else"
    assert not other.equals(one)
    return one, other


LEAVING: dict[str, dict[str, Any]] = {
    "unlisted zone": TRIP | {"trips__fault_threshold": "1/1000"},
    "other category": TRIP | {"trips__categories": {"kind": ["counted"]}},
}
"""Declarations under which one record may leave the release, by how it does."""


def one_leaves(how: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two inputs that differ in one record, which only the first counts."""
    one = records().assign(person=PEOPLE, kind="counted")
    other = one.copy()
    column, value = ("origin", "nowhere") if how == "unlisted zone" else ("kind", "another")
    other.loc[0, column] = value
    unit, leaves = PrivacyUnit("trip"), Standing.FAULTY if column == "origin" else Standing.OTHER_CATEGORY
    assert Neighbours(unit, Acceptance(has_categories=column == "kind")).can_have_standing(leaves)
    return one, other


def injected(plan: Any, step: Any, parents: Any, trips: Any, noise: Any) -> list[np.ndarray]:
    """Noisy values that depend on query and position alone, as if the noise had made up for the difference."""
    cells = 1 if parents is None else sum(map(len, plan.tree.expand(parents)))
    if isinstance(step, AreaTotalStep):
        cells = plan.count_public_cells(step)
    if step.by_segment:
        cells *= next(len(one.categories) for one in plan.breakdowns if one.name == step.breakdown)
    return [np.random.default_rng(step.number).integers(0, 1000, cells)]


def outside(project: Project) -> dict[str, Any]:
    """All that a release leaves outside the confidential folder, times and ids aside."""
    var = project.var
    found: dict[str, Any] = {
        str(path.relative_to(var)): path.read_bytes()
        for path in (*(var / "releases").rglob("*"), *(var / "geographies").rglob("*"))
        if path.is_file() and path.suffix not in (*WORDS, ".zip") and path.name != "SHA256SUMS"
    }
    for path in (var / "releases").rglob("*"):
        if path.suffix in WORDS:
            found[f"{path.parents[1].name} {path.name}"] = TIMES_AND_HASHES.sub("", path.read_text(encoding="utf-8"))
    for certificate in (var / "releases").rglob("certificate.json"):
        period = certificate.parents[1].name
        # Without faults, checksums and zip file say nothing but what the files do.
        assert list(check_bundle(certificate.parent)) == []
        # The hash of the ledger's entry covers the times of all entries before it.
        hidden = {"measured_at": None, "ledger": None}
        found[f"{period} certificate.json"] = {**json.loads(certificate.read_text(encoding="utf-8")), **hidden}
    found["ledger"] = [
        {name: value for name, value in row.items() if name not in ("at", "hash", "previous")}
        | ({"content": json.loads(row["content"]).get("exact")} if row["kind"] == "PUBLISHED" else {})
        for row in rows(var / "ledger.sqlite")
    ]
    for path in (var / "data_docs").rglob("*.html"):
        found[path.name] = path.read_text(encoding="utf-8")
    with duckdb.connect(str(var / "release.duckdb"), read_only=True) as connection:
        tables = [name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        for table in {*tables} - {"releases", "group_size_releases", "stops_releases"}:  # which have times
            found[table] = connection.execute(f"SELECT * FROM {table}").fetchall()
    found["events"] = [TIMES_AND_IDS.sub("", repr(event)) for event in events(project)]
    found["files"] = sorted(re.sub(r"[0-9TZ.:+-]{10,}", "", str(p.relative_to(var))) for p in var.rglob("*.html"))
    return found


def events(project: Project) -> Iterator[tuple[Any, ...]]:
    """Keys, metadata and data versions of all materialisations and checks that Dagster stored."""
    runs = reversed(project.instance.get_runs())  # oldest first
    for entry in (entry for run in runs for entry in project.instance.all_logs(run.run_id)):
        event = entry.dagster_event
        if event is not None and event.event_type == dg.DagsterEventType.ASSET_MATERIALIZATION:
            made = event.step_materialization_data.materialization
            version = None if made.asset_key.path[-1] == "bundle" else made.tags.get("dagster/data_version")
            yield made.asset_key, version, sorted((k, repr(v)) for k, v in made.metadata.items() if k not in PLACES)
        elif event is not None and event.event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION:
            check = event.asset_check_evaluation_data
            yield check.asset_key, check.check_name, check.passed, repr(check.metadata)


def traces_of(
    inputs: tuple[pd.DataFrame, pd.DataFrame],
    release: Callable[[Project], Series],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    months: Sequence[str] = ("2001-01",),
) -> list[dict[str, Any]]:
    """What the releases of both inputs leave outside the confidential folder, if each month has the same records."""
    traces = []
    for name, frame in zip(("one", "other"), inputs, strict=True):
        root = tmp_path / name
        root.mkdir()
        monkeypatch.setenv("OD_PROJECT", str(root))
        monkeypatch.setenv("OD_VAR", str(root / "var"))
        ZONES.to_csv(root / "zones.csv", index=False)
        with dg.DagsterInstance.ephemeral() as instance:
            project = Project(root, lambda instance=instance: instance)
            for month in months:
                project.write_records(frame.assign(date=frame["date"].str.replace("2001-01", month)), month)
                assert project.run(release(project), month).success
            traces.append(outside(project))
    return traces


def differences(traces: list[dict[str, Any]]) -> list[str]:
    one, other = traces
    assert one.keys() == other.keys()
    return [name for name in one if one[name] != other[name]]


@pytest.mark.parametrize("case", [*DOMAINS, *LEAVING])
def test_neighbouring_inputs_leave_the_same_traces(tmp_path, monkeypatch, case):
    """Where a record leaves under bounded neighbours, n is one less: it is measured with noise like every level."""
    monkeypatch.setattr(od_core.flows.measuring, "measure", injected)
    inputs = one_leaves(case) if case in LEAVING else neighbours(case)
    changes = (DOMAINS | LEAVING)[case]
    traces = traces_of(inputs, lambda project: project.component(**changes), tmp_path, monkeypatch)
    assert differences(traces) == []


@pytest.mark.parametrize("protected", [name for name in DOMAINS if name.startswith("user_year")])
def test_neighbouring_years_leave_the_same_traces(tmp_path, monkeypatch, protected):
    """The person is in both months, and the year has one more trip of the person in the second one."""
    monkeypatch.setattr(od_core.flows.measuring, "measure", injected)
    monkeypatch.setattr(od_core.ledger.measurements, "_measure_uncounted_trips", lambda *_: iter([np.array([321])]))
    changes = DOMAINS[protected] | {
        "periods": {"first": "2001-01", "last": "2001-02"},
        "uncounted": {"share": "0.1", "max_trips": 20},
    }
    inputs, months = neighbours(protected), ("2001-01", "2001-02")
    traces = traces_of(inputs, lambda project: project.component(**changes), tmp_path, monkeypatch, months)
    assert [traces[0][f"{month} certificate.json"]["uncounted"]["trips"] for month in months] == [321, 321]
    assert differences(traces) == []


def test_a_relation_that_forgets_that_a_record_may_leave_is_found(tmp_path, monkeypatch):
    """The defect seeded: n is published exactly, and tells the two inputs apart."""
    inputs, changes = one_leaves("unlisted zone"), LEAVING["unlisted zone"]
    forget_that_a_record_may_leave(monkeypatch)
    monkeypatch.setattr(od_core.flows.measuring, "measure", injected)
    traces = traces_of(inputs, lambda project: project.component(**changes), tmp_path, monkeypatch)
    assert {"2001-01 certificate.json", "ledger"} <= set(differences(traces))


OTHER_TRIPS: dict[str, dict[str, Any]] = {
    "category alone": {"mode": "bus", "date": "2001-01-06"},
    "category and zone": {"mode": "tram", "date": "2001-01-07", "origin": "Z21", "destination": "Z00"},
}
"""What another trip has instead of the first one: a listed or an unlisted mode, and another type of day."""


def of_other_trip(how: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two inputs that differ in one trip, in both of its categories."""
    one, other = records_by_mode(), records_by_mode()
    assert list(one.loc[0, ["mode", "date"]]) == ["car", "2001-01-01"]  # a Monday
    for column, value in OTHER_TRIPS[how].items():
        other.loc[0, column] = value
    return one, other


@pytest.mark.parametrize("how", OTHER_TRIPS)
def test_neighbours_by_segment_leave_the_same_traces(tmp_path, monkeypatch, how):
    """The number of trips in each category is public nowhere but in the injected values, not even of the root."""
    monkeypatch.setattr(od_core.flows.measuring, "measure", injected)
    inputs = of_other_trip(how)
    traces = traces_of(inputs, lambda project: project.component(segments=SEGMENTS), tmp_path, monkeypatch)
    assert any("segments" in name or "mode" in name for name in traces[0])
    assert differences(traces) == []


@pytest.mark.parametrize("protected", ["trip, bounded", "trip, unbounded"])
def test_neighbouring_groups_leave_the_same_traces(tmp_path, monkeypatch, protected):
    def injected_sizes(frame, query, step, groups, noise):
        return [
            np.random.default_rng(step.level).integers(0, 1000, int(frame.count_query_values(query, step.level).sum()))
        ]

    monkeypatch.setattr(od_core.group_sizes.release, "measure_step", injected_sizes)
    changes = DOMAINS[protected]
    traces = traces_of(neighbours(protected), lambda project: project.group_sizes(**changes), tmp_path, monkeypatch)
    assert differences(traces) == []


@pytest.mark.parametrize("protected", ["trip, bounded", "trip, unbounded"])
def test_neighbouring_trips_with_stops_leave_the_same_traces(tmp_path, monkeypatch, protected):
    def injected_boxes(plan, trips, noise):
        halves = [[0, 0, 0, 0, 7, 15, 15, 15, 5], [8, 0, 0, 0, 15, 15, 15, 15, -2]]
        return [np.array(halves, dtype=np.int64).ravel()]

    monkeypatch.setattr(od_core.stops.release, "measure_boxes", injected_boxes)
    degrees = ZONES.assign(longitude=range(6), latitude=range(6))
    monkeypatch.setattr(f"{__name__}.ZONES", degrees)
    changes = {**DOMAINS[protected], "trips__columns": {"places": ["origin", "destination"], "date": "date"}}
    traces = traces_of(neighbours(protected), lambda project: project.stops(**changes), tmp_path, monkeypatch)
    assert differences(traces) == []
