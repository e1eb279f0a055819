"""Distances in the files of a bundle: the same numbers in every format, and none in bundles of earlier formats."""

import json
import sqlite3
from contextlib import closing

import numpy as np
import openmatrix
import pandas as pd
import pyarrow.parquet as pq
import pytest

from od_core import Budget, open_release
from od_core.flows.indicators import distance_bands, indicators
from od_core.flows.publishing.flow_tables import FlowTables
from tests.od_core.geography.test_places import haversine
from tests.od_core.publication import examples
from tests.od_core.publication.test_names import ZONES, bundle, named, released
from tests.od_core.publication.test_workbook import read_workbook

__all__ = ["bundle", "named"]

BAND_ENDS = {"pair_flows": set(), "indicators": set(), "distance_bands": {"from_km", "to_km"}}
COUNTS = {"trips", "outflow", "inflow", "within", "balance"}
PLACES = {row.county: (float(row.latitude), float(row.longitude)) for row in ZONES.itertuples()}


def test_every_format_has_the_distances_of_the_great_circle(bundle):
    table = pd.read_csv(bundle / "tables/flows_county_county.csv", dtype={"origin": str, "destination": str})
    expected = [haversine(PLACES[o], PLACES[d]) for o, d in zip(table["origin"], table["destination"], strict=True)]
    assert table["distance_km"].to_numpy() == pytest.approx(np.array(expected), abs=0.0006)
    known = dict(zip(zip(table["origin"], table["destination"], strict=True), table["distance_km"], strict=True))

    whole = pq.read_table(bundle / "tables/flows.parquet").to_pandas()
    counties = whole[(whole["origin_level"] == "county") & (whole["destination_level"] == "county")]
    assert counties["distance_km"].tolist() == table["distance_km"].tolist()
    without = whole[(whole["origin_level"] == "all") | (whole["destination_level"] == "all")]
    assert without["distance_km"].isna().all()
    assert len(without) > 0

    with openmatrix.open_file(bundle / "omx/flows_county_county.omx") as file:
        codes = [code.decode() for code in file.root.lookup["origin"][:]]
        assert file["distance_km"][:].tolist() == [[known[o, d] for d in codes] for o in codes]
    head, *rows = read_workbook(bundle / "spreadsheet/flows.xlsx")["county_county"][1:]
    listed = pd.DataFrame([dict(zip(head, row, strict=False)) for row in rows]).set_index(["origin", "destination"])
    assert listed["distance_km"].to_dict() == known
    lines = json.loads((bundle / "gis/desire_lines.geojson").read_bytes())["features"]
    found = [line["properties"] for line in lines]
    assert all(one["distance_km"] == known[one["origin"], one["destination"]] for one in found)
    assert len(found) == len(known) - len(PLACES)
    with closing(sqlite3.connect(bundle / "gis/desire_lines.gpkg")) as connection:
        assert set(connection.execute("SELECT typeof(distance_km) FROM desire_lines")) == {("real",)}


def test_trips_by_distance_are_those_of_the_library(named, bundle):
    expected = distance_bands(named)
    own = pd.read_csv(bundle / "tables/distance_bands.csv", dtype={"area": str})
    pd.testing.assert_frame_equal(own, expected, check_dtype=False)
    parquet = pd.read_parquet(bundle / "tables/distance_bands.parquet")
    pd.testing.assert_frame_equal(parquet, expected, check_dtype=False)
    again = indicators(open_release(bundle))
    listed = pd.read_csv(bundle / "tables/indicators.csv", dtype={"area": str})
    pd.testing.assert_frame_equal(listed, again[list(listed)], check_dtype=False)
    assert {*again} - {*listed} == {"outflow_unbiased", "outflow_likely", "inflow_unbiased", "inflow_likely"}
    assert {"balance", "mean_distance_upper"} <= set(listed)


@pytest.mark.parametrize("key", ["pair_flows", "indicators", "distance_bands"])
def test_only_trips_and_their_ends_may_be_below_0(key):
    """Of a mechanism that releases the leaves as it measured them. Without trips, about half of them are below 0."""
    made = released([0] * 16, {"mechanism": "vanilla_gauss", "budget": Budget(rho="1/1000", delta="1e-8")})
    tables = FlowTables.from_release(made, examples.facts(made))
    columns = tables.make_table_definition(key).columns
    without = {column.name for column in columns if column.type != "string" and column.minimum is None}
    ends = {"lower", "upper"} | {f"{name}_{end}" for name in COUNTS for end in ("lower", "upper")}
    assert without == ({column.name for column in columns} & (COUNTS | ends)) | BAND_ENDS[key]
    frame = tables.pairs[-1].flows if key == "pair_flows" else getattr(tables, key).to_pandas()
    for column in columns:
        if column.minimum is not None:
            assert frame[column.name].dropna().ge(column.minimum).all(), column.name
