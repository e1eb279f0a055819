"""Names of areas in every published format: beside the codes, read back with them, and instead of them for people."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import openmatrix
import pandas as pd
import pytest

from od_core import Geography, Release, ReleaseKey, open_release
from od_core.flows.publishing.kind import FLOWS
from od_core.publication.tables import make_areas_table
from tests.od_core.publication import examples
from tests.od_core.publication.test_workbook import read_workbook

HOSTILE = "<b>Cook</b> & 'Will'"
ZONES = pd.DataFrame(
    [
        ("IL", "17031", HOSTILE, "41.8", "-87.7"),
        ("IL", "17197", "شیکاگو", "41.4", "-88.0"),
        ("NY", "36005", "", "40.8", "-73.9"),
        ("NY", "36061", "New York County", "40.7", "-74.0"),
    ],
    columns=["state", "county", "title", "latitude", "longitude"],
)
NAME_OF = dict(zip(ZONES["county"], ZONES["title"], strict=True))


def released(numbers=range(1_000, 1_160, 10), release_changes=None, **changes) -> Release:
    given = {"coordinates": ("latitude", "longitude"), "names": {"county": "title"}, **changes}
    geography = Geography.from_frame(ZONES, ["state", "county"], **given)
    pairs = pd.MultiIndex.from_product([ZONES["county"], ZONES["county"]], names=["origin", "destination"])
    trips = pd.DataFrame({"trips": numbers}, pairs).reset_index()
    return examples.released_trips(trips, geography, noise="table", **(release_changes or {}))


@pytest.fixture(scope="module")
def named() -> Release:
    return released()


@pytest.fixture(scope="module")
def bundle(named: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("names") / "r1"
    examples.publish_bundle(named, examples.facts(named), place)
    return place


def test_a_bundle_lists_the_names_and_is_read_back_with_them(named, bundle):
    areas = pd.read_csv(bundle / "tables/areas.csv", dtype=str, keep_default_na=False).set_index("area")["name"]
    assert areas[list(NAME_OF)].to_dict() == NAME_OF
    assert set(areas[["all", "IL", "NY"]]) == {""}
    assert "| `name` |" in (bundle / "codebook.md").read_text(encoding="utf-8")
    assert open_release(bundle).plan.tree.origin.names == named.plan.tree.origin.names


def test_aliases_are_published_and_read_back_and_without_them_no_byte_changes(named, tmp_path):
    """In the table of areas and in the data of the atlas; the digest of the geography does not have them."""
    aliased = Geography.from_frame(ZONES.assign(other="Land; Ort"), ["state", "county"], aliases={"state": "other"})
    assert aliased.digest == named.plan.tree.origin.digest
    release = examples.released_trips(
        pd.DataFrame({"origin": ["17031"], "destination": ["36005"], "trips": [900]}), aliased, noise="table"
    )
    examples.publish_bundle(release, examples.facts(release), tmp_path / "r1")
    areas = pd.read_csv(tmp_path / "r1/tables/areas.csv", dtype=str, keep_default_na=False).set_index("area")
    assert areas["aliases"].to_dict() == dict.fromkeys(areas.index, "") | {"IL": "Land; Ort", "NY": "Land; Ort"}
    assert open_release(tmp_path / "r1").plan.tree.origin.aliases == aliased.aliases
    assert "aliases" not in make_areas_table(named.plan.tree.origin).column_names


def test_openmatrix_has_names_beside_the_codes(bundle):
    with openmatrix.open_file(bundle / "omx/flows_county_county.omx") as file:
        for dimension, side in enumerate(("origin", "destination")):
            codes, names = (file.root.lookup[name] for name in (side, f"{side}_name"))
            found = {code.decode(): name.decode() for code, name in zip(codes[:], names[:], strict=True)}
            assert found == NAME_OF
            assert names.attrs["dim"] == dimension
    with openmatrix.open_file(bundle / "omx/flows_state_state.omx") as file:  # a level without names
        assert "origin_name" not in file.root.lookup


def test_code_lists_of_sdmx_have_names_and_codes(bundle):
    message = json.loads((bundle / "sdmx/flows.sdmx.json").read_text(encoding="utf-8"))
    codes = {code["id"]: code for code in message["data"]["codelists"][0]["codes"]}
    assert (codes["L2_17031"]["name"], codes["L2_17031"]["description"]) == (HOSTILE, "17031")
    assert (codes["L2_36005"]["name"], codes["L1_NY"]["name"]) == ("36005", "NY")


def test_map_files_have_names_beside_the_codes(bundle):
    lines = json.loads((bundle / "gis/desire_lines.geojson").read_text(encoding="utf-8"))["features"]
    for line in lines:
        for side in ("origin", "destination"):
            assert line["properties"][f"{side}_name"] == NAME_OF[line["properties"][side]]
    with closing(sqlite3.connect(bundle / "gis/desire_lines.gpkg")) as connection:
        rows = connection.execute("SELECT origin, origin_name, typeof(trips) FROM desire_lines").fetchall()
    assert set(rows) == {(code, name, "integer") for code, name in NAME_OF.items()}
    places = pd.read_csv(bundle / "gis/flowmap_locations.csv", dtype=str)
    assert dict(zip(places["id"], places["name"], strict=True)) == {**NAME_OF, "36005": "36005"}


def test_the_workbook_has_names_beside_the_codes(bundle):
    sheet = read_workbook(bundle / "spreadsheet/flows.xlsx")["county_county"]
    head, *rows = sheet[next(k for k, row in enumerate(sheet) if "trips" in row) :]
    first = [head.index(name) for name in ("origin", "origin name")]
    assert {tuple(row[k] if k < len(row) else "" for k in first) for row in rows} == set(NAME_OF.items())


def test_the_database_keeps_names_that_another_series_gave(tmp_path, named):
    database, other = tmp_path / "release.duckdb", released(names=None)
    for made, key in ((named, examples.KEY), (other, ReleaseKey("commuters", "2001-07"))):
        FLOWS.store(database, made, key, examples.facts(made, key))
    with duckdb.connect(str(database), read_only=True) as connection:
        rows = connection.execute("SELECT area, name FROM areas WHERE level = 2").fetchall()
    assert {area: name or "" for area, name in rows} == NAME_OF
