"""A release whose origins and destinations are other areas, unequally deep: the job, and verification."""

from typing import Any

import dagster as dg
import numpy as np
import pandas as pd
import pytest

from od_assets.checks.expectations import check_record_expectations
from od_assets.cli.published import compare
from od_assets.cli.target_plan import make_forecast
from od_assets.components import OdRelease
from od_assets.resources.warehouse import Warehouse, verify_published_releases
from od_core import OdError, Release, open_release
from tests.od_assets.conftest import Project, failure_text

HOMES = ["0101", "0102", "0201", "0202", "0203"]
WORKS = {"n1": ("N", "Na"), "n2": ("N", "Nb"), "s1": ("S", "Sa"), "0101": ("S", "Sa")}
"""Blocks in towns in regions; one has the code of a home."""

ORIGINS: dict[str, Any] = {
    "file": "homes.csv",
    "levels": ["county", "zone"],
    "prefixes": {"county": 2},
    "unknown_area": "elsewhere",
    "version": "2018",
    "coordinates": ["north", "east"],
}
DESTINATIONS: dict[str, Any] = {
    "file": "works.csv",
    "levels": ["region", "town", "block"],
    "parents": {"area": "code", "parent": "up"},
}
LEVELS = [("all", "all"), ("all", "region"), ("county", "region"), ("county", "town")]
LEVELS += [("county_2", "town"), ("county_2", "block"), ("zone", "block")]


def records() -> pd.DataFrame:
    """Two thousand trips, two of which begin where nobody knows."""
    generator = np.random.default_rng(5)
    trips = {"origin": generator.choice(HOMES, 2000), "destination": generator.choice(list(WORKS), 2000)}
    table = pd.DataFrame({"date": "2001-01-15", **trips})
    table.loc[:1, "origin"] = "s1"  # a block, and no home
    return table


def declared(project: Project, **changes: Any) -> OdRelease:
    return project.component(**{"geography": ORIGINS, "destination_geography": DESTINATIONS, **changes})


@pytest.fixture
def two(project) -> Project:
    places = range(len(HOMES))
    pd.DataFrame({"zone": HOMES, "north": places, "east": places}).to_csv(project.root / "homes.csv", index=False)
    rows = {(region, "") for region, _ in WORKS.values()} | {(town, region) for region, town in WORKS.values()}
    rows |= {(block, town) for block, (_, town) in WORKS.items()}
    pd.DataFrame(sorted(rows), columns=["code", "up"]).to_csv(project.root / "works.csv", index=False)
    project.write_records(records())
    return project


@pytest.mark.parametrize("blank", [{"names": {"zone": "title"}}, {"coordinates": ["title", "title2"]}])
def test_declared_columns_that_are_blank_are_kept_and_read_again(two, blank):
    listed = pd.read_csv(two.root / "homes.csv", dtype=str).assign(title="", title2="")
    listed.to_csv(two.root / "homes.csv", index=False)
    component = declared(two, geography=ORIGINS | {"coordinates": None} | blank)
    assert two.materialize("geography", component=component).success
    kept = component.require_valid().read_stored_geography(two.var / "geographies").origin
    assert (kept.names, kept.coordinates, len(kept.zones)) == (None, None, len(HOMES) + 1)


def test_through_the_job_and_back(two):
    component = declared(two, trips__fault_threshold="1/100")
    two.publish(component)
    kept = {path.name: path.read_text().splitlines() for path in (two.var / "geographies").iterdir()}
    assert kept["trips.csv"][:2] == ["county,zone,latitude,longitude", "01,0101,0.0,0.0"]
    assert kept["trips.csv"][-1] == "elsewhere,elsewhere,,"
    assert sorted(kept["trips.destinations.csv"][1:]) == sorted(f"{r},{t},{block}" for block, (r, t) in WORKS.items())
    settings = component.require_valid()
    version = two.instance.get_latest_materialization_event(dg.AssetKey(["trips", "geography"]))
    assert version is not None
    assert settings.read_geography().digest in str(version)

    bundle = two.var / "releases" / "trips" / "2001-01" / "r1"
    opened = [open_release(place) for place in (bundle, bundle.with_name("r1.zip"), two.var / "release.duckdb")]
    assert all(release.levels == LEVELS for release in opened)
    assert all(release.flows.equals(opened[0].flows) for release in opened)
    assert all(release.plan.tree.origin.version == "2018" for release in opened)
    _assert_near_the_truth(opened[0])

    assert [row["faults"] for row in verify_published_releases("trips")] == [{}]
    forecast = make_forecast(settings, opened[0].plan, ["1"], 1)
    assert (forecast.table, forecast.is_synthetic) == ("trips/2001-01/r1", False)
    with pytest.raises(OdError, match="OD-COMPARE-SAME"):
        compare("trips/2001-01/r1", "trips/2001-01/r1")
    _assert_a_changed_list_needs_a_revision(two)


def _assert_near_the_truth(release: Release) -> None:
    """Within noise of the records' own table at every level; levels that stand twice have the same flows."""
    truth = records().replace({"origin": {"s1": "elsewhere"}})
    region = {block: region for block, (region, _) in WORKS.items()}
    truth = truth.assign(
        county=truth["origin"].str[:2].replace("el", "elsewhere"), region=truth["destination"].map(region)
    )
    expected = truth.groupby(["county", "region"]).size().to_dict()
    found = release.flows_at("county", "region", interval=True)
    found = found.set_index(["origin", "destination"])["trips"]
    assert all(abs(trips - expected.get(pair, 0)) < 200 for pair, trips in found.items())  # twenty standard deviations
    assert set(expected) <= set(found.index)
    assert abs(int(found.sum()) - len(truth)) < 200  # destinations have no unknown area: n is noised
    for level in ("region", "town", "block"):
        pd.testing.assert_frame_equal(release.flows_at("county", level), release.flows_at("county_2", level))


def _assert_a_changed_list_needs_a_revision(two: Project) -> None:
    """The next period with one block more is refused before anything is counted; a new revision takes it."""
    with (two.root / "works.csv").open("a", encoding="utf-8") as file:
        file.write("s9,Sa\n")
    two.write_records(records().assign(date="2001-02-03"), "2001-02")
    changed = declared(two, trips__fault_threshold="1/100")
    inputs = ("geography", "raw_trips", "trip_counts")
    result = two.materialize(*inputs, period="2001-02", component=changed)
    assert not result.success
    assert "OD-GEOGRAPHY-CHANGED: trips/2001-02/r1 has different areas from trips/2001-01/r1" in failure_text(result)
    assert "set revision: 2" in failure_text(result)
    assert "destination geography" in failure_text(result)
    staged = two.var / "confidential" / "trips" / "2001-02" / "r1"
    assert not list(staged.glob("*count*"))
    again = declared(two, trips__fault_threshold="1/100", revision=2)
    assert two.materialize(*inputs, period="2001-02", component=again).success


def test_each_side_is_held_to_its_own_list(tmp_path):
    """Codes of the other side are unlisted; of one list, both sides may have all of it."""
    table = pd.DataFrame({"date": "2001-01-15", "origin": HOMES[:4], "destination": list(WORKS), "in_period": True})
    for swapped in (False, True):
        if swapped:
            table = table.rename(columns={"origin": "destination", "destination": "origin"})
        table[["date", "origin", "destination", "in_period"]].to_parquet(tmp_path / "records.parquet")
        file, docs = tmp_path / "records.parquet", tmp_path / "docs"
        met = check_record_expectations(file, HOMES, 0, docs, destinations=list(WORKS))
        assert all(met.values()) is not swapped


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"destination_geography": {**ORIGINS, "file": "copy.csv"}}, "OD-GEOGRAPHY-SAME"),
        ({"destination_geography": ORIGINS}, "OD-GEOGRAPHY-SAME"),
        ({"destination_geography": {**DESTINATIONS, "levels": ["town", "block"]}}, "OD-GEOGRAPHY-SHAPE"),
        ({"destination_geography": {**DESTINATIONS, "file": "homes.csv"}}, "OD-GEOGRAPHY-COLUMN"),
        ({"destination_geography": {**DESTINATIONS, "file": "none.csv"}}, "OD-FILE-MISSING"),
    ],
)
def test_a_faulty_list_of_destinations_is_refused(two, changes, code):
    (two.root / "copy.csv").write_bytes((two.root / "homes.csv").read_bytes())
    result = two.materialize("geography", component=declared(two, **changes))
    assert not result.success
    assert code in failure_text(result)
    assert not (two.var / "geographies").exists()


def test_both_kept_lists_are_checked_again(two):
    """Whoever changes either of them after the asset wrote it is found out by the check of the partition."""
    from od_assets.checks.release_checks import make_release_checks

    component = declared(two)
    assert two.materialize("geography", component=component).success
    violations = make_release_checks(component.require_valid())[0].count_violations
    assert violations(Warehouse(), "2001-01") == {"is_a_partition": 0}
    for name in ("trips.csv", "trips.destinations.csv"):
        path = two.var / "geographies" / name
        whole = path.read_text()
        path.write_text(whole + whole.splitlines()[1] + "\n")
        assert violations(Warehouse(), "2001-01") != {"is_a_partition": 0}
        path.write_text(whole)
