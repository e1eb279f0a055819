"""Distances in the files of a bundle: the same numbers in every format, and none in bundles of earlier formats."""

import json
import sqlite3
from contextlib import closing

import numpy as np
import openmatrix
import pandas as pd
import pyarrow.parquet as pq
import pytest

from od_core import open_release
from od_core.flows.indicators import distance_bands, indicators
from tests.od_core.geography.test_places import haversine
from tests.od_core.publication.test_names import ZONES, bundle, named
from tests.od_core.publication.test_workbook import read_workbook

__all__ = ["bundle", "named"]

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
