"""The tables of published bundles, as assets downstream load them by asset key."""

import hashlib
import shutil
from pathlib import Path

import dagster as dg
import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from od_assets.resources.published_tables import PublishedTables
from od_core.errors import OdError
from tests.od_assets.conftest import Project, failure_text, states

FLOWS = dg.AssetKey("trips_flows")


def tables(project: Project) -> PublishedTables:
    return PublishedTables(folder=str(project.var / "releases"))


def file(project: Project, name: str = "flows", key: str = "trips/2001-01/r1") -> Path:
    return project.var / "releases" / key / "tables" / f"{name}.parquet"


def with_changed_trips(project: Project, key: str, trips: int) -> None:
    """Another bundle in name: the same files, but all flows are of a number of trips."""
    shutil.copytree(file(project).parents[1], file(project, key=key).parents[1])
    rows = pd.read_parquet(file(project)).assign(trips=trips)
    rows.to_parquet(file(project, key=key), index=False)


@pytest.mark.parametrize("name", ["flows", "areas", "noisy_measurements", "indicators"])
def test_a_table_is_loaded_as_it_was_published(released, name):
    """The oracle is another reader of Parquet."""
    expected = pq.read_table(file(released, name)).to_pandas()
    expected.insert(0, "period", pd.Series("2001-01", expected.index, dtype="str"))
    key, load = dg.AssetKey(f"trips_{name}"), tables(released).load
    pd.testing.assert_frame_equal(load(key, ["2001-01"]), expected)
    pd.testing.assert_frame_equal(load(key, ["2001-01"], pd.DataFrame), expected)
    pd.testing.assert_frame_equal(load(key, None, pa.Table).to_pandas(), expected)
    relation = load(key, ["2001-01"], duckdb.DuckDBPyRelation)
    pd.testing.assert_frame_equal(relation.to_arrow_table().to_pandas(), expected)
    assert relation.aggregate("count(*)").fetchall() == [(len(expected),)]


def test_a_table_is_loaded_with_polars(released):
    polars = pytest.importorskip("polars")
    expected = pq.read_table(file(released)).to_pandas()
    for kind in (polars.DataFrame, polars.LazyFrame):
        loaded = tables(released).load(FLOWS, ["2001-01"], kind).lazy().collect()
        assert isinstance(loaded, polars.DataFrame)
        pd.testing.assert_frame_equal(loaded.to_arrow().to_pandas().drop(columns="period"), expected, check_dtype=False)


def test_the_asset_states_the_file_that_it_stands_for(first_run):
    """Its rows by another reader of Parquet, and the digest of its bytes as its data version."""
    var, result = first_run
    [made] = result.asset_materializations_for_node("trips_flows")
    path = var / "releases" / "trips" / "2001-01" / "r1" / "tables/flows.parquet"
    assert made.metadata["dagster/row_count"].value == len(pd.read_parquet(path))
    assert made.metadata["dagster/uri"].value.endswith("/releases/trips/2001-01/r1/tables/flows.parquet")
    assert made.tags["dagster/data_version"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_each_period_is_of_its_newest_revision(released):
    for key, trips in (("trips/2001-01/r2", 2), ("trips/2001-01/r10", 10), ("trips/2001-02/r1", 3)):
        with_changed_trips(released, key, trips)
    with_changed_trips(released, "trips_flows/2001-01/r1", 7)  # a series whose name is that of the table

    def trips(*partitions):
        loaded = tables(released).load(FLOWS, list(partitions) or None)
        return {period: {*rows} for period, rows in loaded.groupby("period").trips}

    assert trips("2001-01") == {"2001-01": {10}}
    assert trips("2001-02") == {"2001-02": {3}}
    assert trips() == trips("2001-01", "2001-02", "2001-03") == {"2001-01": {10}, "2001-02": {3}}


@pytest.mark.parametrize(
    ("period", "partition"),
    [("2001-W23", "2001-W23-1"), ("2001-Q2", "2001-04"), ("2001", "2001"), ("2018-01--2020-12", "2018-01--2020-12")],
)
def test_a_partition_is_the_period_of_any_length(released, period, partition):
    with_changed_trips(released, f"trips/{period}/r1", 4)
    loaded = tables(released).load(FLOWS, [partition])
    assert {*zip(loaded.period, loaded.trips, strict=True)} == {(period, 4)}


def test_a_series_that_had_periods_of_another_length_is_loaded_by_its_present_ones(released):
    """A month and a quarter may have the same partition, and the quarter counts the trips of the month again."""
    for period, trips in (("2001-04", 4), ("2001-Q2", 12), ("2001-05", 5)):
        with_changed_trips(released, f"trips/{period}/r1", trips)

    def periods(partitions_def, partition):
        loaded = set[str]()

        @dg.asset(partitions_def=partitions_def)
        def dashboard(trips_flows: pd.DataFrame) -> None:
            loaded.update(trips_flows.period)

        table = dg.AssetSpec(FLOWS, partitions_def=partitions_def).with_io_manager_key("od_tables")
        result = dg.materialize(
            [table, dashboard],
            selection=[dashboard],
            resources={"od_tables": tables(released)},
            partition_key=partition,
            raise_on_error=False,
        )
        if not result.success:
            raise ValueError(failure_text(result))
        return loaded

    declared = {
        every: released.component(periods={"first": first, "every": every})
        .require_valid()
        .periods.make_partitions_definition()
        for every, first in (("month", "2001-01"), ("quarter", "2001-Q1"), ("single", "2001-Q2"))
    }
    assert periods(declared["month"], "2001-04") == {"2001-04"}
    assert periods(declared["quarter"], "2001-04") == {"2001-Q2"}
    assert periods(declared["single"], "2001-Q2") == {"2001-Q2"}
    with pytest.raises(ValueError, match="no published bundle has the table trips_flows of 2001-07"):
        periods(declared["month"], "2001-07")
    for partitions in (["2001-04"], None):
        with pytest.raises(OdError, match="OD-TABLE-LENGTHS: trips_flows is published by periods of several lengths"):
            tables(released).load(FLOWS, partitions)


@pytest.mark.parametrize(
    "key",
    [
        *(["trips", "raw_trips"], ["trips", "trip_counts"], ["trips_raw_trips"], ["trips_records"], ["trips_flow"]),
        *(["rips_flows"], ["trips_", "flows"]),
        *([f"trips_{up}confidential/trips/2001-01/r1/records"] for up in ("../../../../", "../../../../../")),
    ],
    ids=str,
)
def test_nothing_but_a_table_of_a_bundle_is_loaded(released, key):
    confidential = released.var / "confidential/trips/2001-01/r1"
    assert any(path.suffix == ".parquet" for path in confidential.iterdir())
    shutil.copy(file(released), confidential / "records.parquet")  # whatever the file is called
    for partitions in (["2001-01"], None):
        with pytest.raises(OdError, match=r"OD-TABLE-UNPUBLISHED: no published bundle has the table"):
            tables(released).load(dg.AssetKey(key), partitions)


def test_a_period_that_is_not_published_is_refused(released):
    with pytest.raises(OdError, match=r"no published bundle has the table trips_flows of 2001-02 \["):
        tables(released).load(FLOWS, ["2001-02"])


@pytest.mark.parametrize("kind", [dict, int, pd.Series, list[int], Path], ids=str)
def test_other_types_are_refused_with_those_that_there_are(released, kind):
    with pytest.raises(OdError, match=r"OD-TABLE-TYPE: .*(known|did you mean).*DataFrame"):
        tables(released).load(FLOWS, ["2001-01"], kind)


def test_nothing_is_stored_by_it(released):
    before = states(released.var)
    context = dg.build_output_context(asset_key=dg.AssetKey("trips_flows"))
    with pytest.raises(dg.Failure, match=r"OD-TABLE-PUBLISHED: .*give trips_flows another IO manager"):
        tables(released).handle_output(context, pd.DataFrame({"trips": [1]}))
    assert states(released.var) == before
