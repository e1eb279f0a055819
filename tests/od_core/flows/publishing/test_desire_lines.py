"""Files for maps, read by JSON, SQLite and CSV readers: the flows of the release, and the coordinates of its zones."""

import io
import json
import shutil
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from od_core import Budget, Geography, Release
from od_core.flows.publishing.flow_tables import FlowTables
from od_core.flows.publishing.kind import FLOWS
from od_core.flows.publishing.maps import DesireLines
from od_core.publication.bundle_differences import list_differing_files
from od_core.publication.file_formats import is_readable
from tests.od_core.doubles import usual_release
from tests.od_core.publication.examples import facts, sealed_again, staged_bundle

DEGREES = {"lat": ["60.25", "61", "60.25", "-3.5", ""], "lon": ["10.5", "-170", "10.5", "179.125", ""]}
CODES = {"region": ["n", "n", "n", "s", "s"], "zone": ["007", "7", "é, 1", "s1", "lost"]}
ZONES = pd.DataFrame({**CODES, **DEGREES}, dtype="str")
"""Two zones at one place, and one without coordinates."""

PLACES = {"007": [10.5, 60.25], "7": [-170, 61], "é, 1": [10.5, 60.25], "s1": [179.125, -3.5]}


def made(zones: pd.DataFrame = ZONES, destinations: pd.DataFrame | None = None) -> Release:
    geographies = [
        Geography.from_frame(each, ["region", "zone"], coordinates=("lat", "lon") if "lat" in each else None)
        for each in (zones, zones if destinations is None else destinations)
    ]
    pairs = [(origin, destination) for origin in zones["zone"] for destination in geographies[1].zones]
    flows = pd.DataFrame(pairs, columns=["origin", "destination"]).assign(trips=range(100, 100 + 7 * len(pairs), 7))
    given = {"destination_geography": geographies[1], "budget": Budget(5, "1e-8"), "noise": "table"}
    return usual_release(flows, geographies[0], **given)


@pytest.fixture(scope="module")
def release() -> Release:
    return made()


@pytest.fixture(scope="module")
def bundle(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("lines") / "r1"
    with staged_bundle(release, facts(release), place):
        pass
    return place


@pytest.fixture(scope="module")
def expected(bundle: Path) -> pd.DataFrame:
    """The flows between zones with coordinates, of the Parquet file, largest first."""
    flows = pd.read_parquet(bundle / "tables/flows.parquet")
    flows = flows[(flows["origin_level"] == "zone") & (flows["destination_level"] == "zone") & (flows["trips"] > 0)]
    known = flows[flows["origin"].isin(list(PLACES)) & flows["destination"].isin(list(PLACES))]
    largest = known.sort_values("trips", ascending=False, kind="stable").iloc[:, 2:].reset_index(drop=True)
    return largest.drop(columns="reliability")


def apart(flows: pd.DataFrame) -> pd.DataFrame:
    """Those between different places."""
    pairs = zip(flows["origin"], flows["destination"], strict=True)
    return flows[[PLACES[origin] != PLACES[destination] for origin, destination in pairs]].reset_index(drop=True)


def table(path: Path, query: str) -> pd.DataFrame:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        return pd.read_sql_query(query, connection)


def test_the_geopackage_has_the_same_lines(bundle: Path, expected: pd.DataFrame) -> None:
    path = bundle / "gis/desire_lines.gpkg"
    assert path.read_bytes()[68:72] == b"GPKG"  # the application id in the header of SQLite
    rows = table(path, "SELECT * FROM desire_lines ORDER BY fid")
    pd.testing.assert_frame_equal(rows.iloc[:, 2:], apart(expected), check_dtype=False)
    for row in rows.itertuples():
        magic, version, flags, system, order, kind, points, *degrees = struct.unpack("<2sBBi BII 4d", row.geom)
        assert (magic, version, flags, system, order, kind, points) == (b"GP", 0, 1, 4326, 1, 2, 2)
        assert degrees == [*PLACES[str(row.origin)], *PLACES[str(row.destination)]]
    (contents,) = table(path, "SELECT * FROM gpkg_contents").to_dict("records")
    assert (contents["table_name"], contents["data_type"], contents["srs_id"]) == ("desire_lines", "features", 4326)
    assert contents["last_change"] == "2001-07-03T09:00:00.000Z"  # when the release was measured
    assert [contents[name] for name in ("min_x", "min_y", "max_x", "max_y")] == [-170, -3.5, 179.125, 61]
    (column,) = table(path, "SELECT * FROM gpkg_geometry_columns").to_dict("records")
    names = ("table_name", "column_name", "geometry_type_name")
    assert [column[name] for name in names] == ["desire_lines", "geom", "LINESTRING"]
    systems = table(path, "SELECT srs_id, organization FROM gpkg_spatial_ref_sys ORDER BY srs_id")
    assert systems.to_numpy().tolist() == [[-1, "NONE"], [0, "NONE"], [4326, "EPSG"]]


def test_only_the_largest_flows_are_drawn(release: Release, expected: pd.DataFrame) -> None:
    lines, file = DesireLines(FlowTables.from_release(release, facts(release)), facts(release), 6), io.BytesIO()
    assert lines.flows.to_pandas()["trips"].tolist() == expected["trips"].head(6).tolist()
    lines.write_geojson(file)
    found = json.loads(file.getvalue())
    assert "the 6 largest flows" in found["description"]
    assert [each["properties"]["trips"] for each in found["features"]] == apart(expected.head(6))["trips"].tolist()


def names(release: Release) -> set[str]:
    maps = ("desire_lines", "flowmap")
    return {file.name for file in FLOWS.list_files(release, facts(release)) if file.name.startswith(maps)}


def test_zones_without_coordinates_have_no_map_and_two_geographies_no_flowmap() -> None:
    """flowmap.gl has one list of places, in which a code that both geographies use would be one place."""
    other = ZONES.assign(region=["n", "n", "s", "s", "s"])
    assert names(made(destinations=other)) == {"desire_lines.geojson", "desire_lines.gpkg"}
    assert names(made(ZONES[["region", "zone"]])) == set()
    assert names(made(destinations=other[["region", "zone"]])) == set()


def test_a_damaged_geopackage_is_found_and_another_sqlite_is_not_damage(bundle: Path, tmp_path: Path) -> None:
    copy = tmp_path / "r1"
    shutil.copytree(bundle, copy)
    path = copy / "gis/desire_lines.gpkg"
    content = bytearray(path.read_bytes())
    content[96:100] = struct.pack(">I", 3_060_000)  # the version of SQLite that wrote the file
    path.write_bytes(content)
    sealed_again(copy)
    assert is_readable(path)
    assert [name for name in list_differing_files(bundle, copy) if name != "datapackage.json"] == []
    with closing(sqlite3.connect(path)) as connection:
        for trigger in ("update3", "update4"):  # they need functions of geometries
            connection.execute(f"DROP TRIGGER rtree_desire_lines_geom_{trigger}")
        connection.execute("UPDATE desire_lines SET trips = trips + 1 WHERE fid = 1")
        connection.commit()
    sealed_again(copy)
    assert list_differing_files(bundle, copy) == ["gis/desire_lines.gpkg"]
    path.write_bytes(content[: len(content) // 2])
    assert not is_readable(path)
