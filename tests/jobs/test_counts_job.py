"""The job of counts by one hierarchy: what it publishes, replays and refuses."""

from __future__ import annotations

import duckdb
import pandas as pd

from od_assets.resources.warehouse import verified
from od_core import Release, open_release
from tests.od_assets.conftest import SEGMENTS, ZONES, Project, failure_text, public_bytes, records_by_mode

FILES = {
    f"tables/counts_{level}{by}.csv" for level in ("all", "region", "zone") for by in ("", "_by_mode", "_by_day_type")
}


def test_a_month_is_published_with_one_side_and_a_second_run_changes_nothing(project: Project) -> None:
    project.write_records(records_by_mode())
    component = project.counts(segments=SEGMENTS, bands={"cuts": [1], "part_trips": 500}, noise="table")
    first = project.run(component)
    assert first.success, failure_text(first)
    assert all(check.passed for check in first.get_asset_check_evaluations())
    bundle = project.var / "releases" / "begun" / "2001-01" / "r1"
    names = {path.relative_to(bundle).as_posix() for path in bundle.rglob("*.*")}
    assert {name for name in names if name.endswith(".csv")} == {*FILES, "tables/areas.csv"}
    assert not any(name.startswith(("omx", "atlas")) for name in names)
    release = open_release(bundle)
    assert isinstance(release, Release)
    for level in ("all", "region", "zone"):
        table = pd.read_csv(bundle / f"tables/counts_{level}.csv", dtype={"area": "str"})
        expected = release.counts_at(level, interval=True)
        assert table.to_dict("list") == expected.to_dict("list")
        by_mode = pd.read_csv(bundle / f"tables/counts_{level}_by_mode.csv")
        assert list(by_mode) == ["area", "mode", "count", "lower", "upper"]
        assert by_mode.groupby("area")["count"].sum().to_dict() == table.set_index("area")["count"].to_dict()
    inside = release.counts.groupby(release.counts["area"].map(ZONES.set_index("zone")["region"]))["count"].sum()
    assert inside.to_dict() == release.counts_at("region").set_index("area")["count"].to_dict()
    with duckdb.connect(str(project.var / "release.duckdb"), read_only=True) as database:
        query = "SELECT origin, trips FROM flows_by_level WHERE origin_level = 'region' ORDER BY origin"
        assert dict(database.sql(query).fetchall()) == inside.to_dict()
    files = public_bytes(project.var)
    assert project.run(component).success
    assert public_bytes(project.var) == files
    assert verified() == [{"release": "begun/2001-01/r1", "verified": True, "faults": {}}]
