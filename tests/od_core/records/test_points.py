"""Records with coordinates are read as the records with the codes of their zones."""

import math

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import shapely

from od_core import Geography
from od_core.errors import OdError
from od_core.records.formats import TABLE, PointColumns, RecordColumns
from od_core.records.load import load_records

ZONES = [f"Z{number}" for number in range(9)]
"""Squares of one degree: Z0, Z1 and Z2 in the south, from west to east, and so on."""

COLUMNS = RecordColumns(PointColumns(("lon", "lat")), PointColumns(("end_lon", "end_lat")), date="date")


@pytest.fixture(scope="module")
def geography():
    squares = [shapely.box(number % 3, number // 3, number % 3 + 1, number // 3 + 1).wkb.hex() for number in range(9)]
    zones = pd.DataFrame({"zone": [*ZONES, "OTHER"], "boundary": [*squares, ""]})
    return Geography.from_frame(zones, levels=["zone"], unknown="OTHER", boundaries={"zone": "boundary"})


@pytest.fixture(scope="module")
def records():
    """Trips with codes and with coordinates, some of which lie in no zone, or are missing."""
    generator = np.random.default_rng(4)
    number = 500
    degrees = generator.random((4, number)) * 3.2
    frame = pd.DataFrame(degrees.T, columns=["lon", "lat", "end_lon", "end_lat"])
    for side, longitude, latitude in (("origin", "lon", "lat"), ("destination", "end_lon", "end_lat")):
        is_outside = (frame[longitude] > 3) | (frame[latitude] > 3)
        zone = np.floor(frame[longitude]) + 3 * np.floor(frame[latitude])
        frame[side] = np.where(is_outside, "(outside)", "Z" + zone.astype(int).astype(str))
    frame.loc[:9, ["lat", "origin"]] = None
    return frame.assign(date="2001-06-04")


def load(frame, columns, folder, geography, *, form=TABLE):
    source, target = folder / "records.parquet", folder / "loaded.parquet"
    frame.to_parquet(source)
    load_records(source, columns, "2001-06", target, record_format=form, geography=geography)
    return pq.read_table(target)


def test_points_become_the_codes_of_their_zones(records, geography, tmp_path):
    codes = load(records[["origin", "destination", "date"]], RecordColumns(date="date"), tmp_path, geography)
    points = records.drop(columns=["origin", "destination"])
    assert load(points, COLUMNS, tmp_path, geography).equals(codes)
    as_text = points.assign(lon=points["lon"].map(repr), end_lat=points["end_lat"].map(repr))
    assert load(as_text, COLUMNS, tmp_path, geography).equals(codes)


@pytest.mark.parametrize("write", [shapely.to_wkb, lambda points: shapely.to_wkt(points, rounding_precision=-1)])
def test_points_in_one_column_are_those_of_two(records, geography, tmp_path, write):
    expected = load(records.drop(columns=["origin", "destination"]), COLUMNS, tmp_path, geography)
    written = pd.DataFrame({"date": records["date"]})
    for place, names in (("start", ["lon", "lat"]), ("end", ["end_lon", "end_lat"])):
        points = shapely.points(records[names].to_numpy(float))
        written[place] = np.where(records[names].isna().any(axis=1), None, write(points))
    columns = RecordColumns(PointColumns(("start",)), PointColumns(("end",)), date="date")
    assert load(written, columns, tmp_path, geography).equals(expected)


def test_what_is_no_point_is_missing_and_may_go_to_the_unknown_zone(geography, tmp_path):
    texts = ["POINT (0.5 0.5)", "POINT EMPTY", "LINESTRING (0 0, 1 1)", "words", None]
    frame = pd.DataFrame({"start": texts, "destination": "Z1"})
    columns = RecordColumns(PointColumns(("start",)))
    assert load(frame, columns, tmp_path, geography)["origin"].to_pylist() == ["Z0", None, None, None, None]
    placed = load(frame, columns, tmp_path, geography, form=TABLE.with_options(nowhere=("",)))
    assert placed["origin"].to_pylist() == ["Z0", *["OTHER"] * 4]


def test_wrong_columns_are_refused_by_name(geography, tmp_path):
    frame = pd.DataFrame({"lon": [True], "lat": [1.0], "destination": ["Z1"]})
    plain = Geography.from_frame(pd.DataFrame({"zone": ZONES}), levels=["zone"])
    with pytest.raises(OdError, match="column 'lon' holds BOOLEAN, not coordinates in degrees"):
        load(frame, RecordColumns(PointColumns(("lon", "lat"))), tmp_path, geography)
    with pytest.raises(OdError, match="column 'lat' holds DOUBLE, not points as WKT or WKB"):
        load(frame[["lat", "destination"]], RecordColumns(PointColumns(("lat",))), tmp_path, geography)
    with pytest.raises(OdError, match="has no column 'longitude'"):
        load(frame, RecordColumns(PointColumns(("longitude", "lat"))), tmp_path, geography)
    with pytest.raises(OdError, match="read without zones"):
        load(frame.assign(lon=0.5), RecordColumns(PointColumns(("lon", "lat"))), tmp_path, None)
    with pytest.raises(OdError, match="no zone has a boundary"):
        load(frame.assign(lon=0.5), RecordColumns(PointColumns(("lon", "lat"))), tmp_path, plain)


def test_a_single_bad_point_is_a_faulty_record_of_no_or_an_unlisted_zone(geography, tmp_path):
    """The last point is the first one in EPSG:3857. Of zones at 0 degrees, the point (0, 0) is one like any other."""
    codes = {("0.5", "0.5"): "Z0", ("0", "0"): "Z0", ("1.5", "1.5"): "Z4", ("2.5", "1.5"): "Z5"}
    codes |= dict.fromkeys([("0.5", ""), ("", "0.5"), ("0.5", "north"), ("0,5", "0.5"), ("nan", "0.5")])
    far = [("inf", "0.5"), ("0.5", "-inf"), ("180", "0.5"), ("-180", "0.5"), ("55659.7", "55660.3")]
    codes |= dict.fromkeys(far, "(outside)")
    frame = pd.DataFrame([(*point, "Z1") for point in codes], columns=["lon", "lat", "destination"])
    loaded = load(frame, RecordColumns(PointColumns(("lon", "lat"))), tmp_path, geography)
    assert loaded["origin"].to_pylist() == list(codes.values())


@pytest.mark.parametrize(
    ("point", "reason"),
    [
        ((0.0, 0.0), "most points of origin lie in no zone, and the coordinates are 0"),
        ((math.inf, math.inf), "most points of origin lie in no zone, and the coordinates are not degrees"),
        ((1169152.4, 55660.3), "most points of origin lie in no zone, and the coordinates are not degrees"),
        ((math.nan, 0.5), "no record has a point of origin that can be read"),
        (("ten", "half"), "no record has a point of origin that can be read"),
    ],
)
def test_bad_points_of_most_records_are_refused_with_their_reason(tmp_path, point, reason):
    shape = shapely.box(10, 0, 11, 1).wkb.hex()
    one = Geography.from_frame(
        pd.DataFrame({"zone": ["Z0"], "boundary": [shape]}), levels=["zone"], boundaries={"zone": "boundary"}
    )
    frame = pd.DataFrame({"lon": [point[0]] * 100, "lat": [point[1]] * 100, "destination": "Z0"})
    columns = RecordColumns(PointColumns(("lon", "lat")))
    with pytest.raises(OdError, match=reason):
        load(frame, columns, tmp_path, one)
    load(frame[:99], columns, tmp_path, one)  # one of many small files may have single faults alone
    if reason.startswith("no record"):  # they may be of the unknown zone, if that is declared
        load(frame, columns, tmp_path, one, form=TABLE.with_options(nowhere=("",)))


@pytest.mark.parametrize("names", [(), ("a", "b", "c"), ("a", "a")])
def test_a_place_has_one_or_two_columns(names):
    with pytest.raises(OdError, match="a place has two columns"):
        PointColumns(names)


def test_exchanged_coordinates_and_metres_are_found_and_named(geography, tmp_path):
    degrees = np.random.default_rng(6).random((200, 2)) * [1, 3]  # the zones reach from 0 to 3 in both directions
    far = pd.DataFrame({"lon": degrees[:, 0] + 10, "lat": degrees[:, 1]})
    columns = RecordColumns(PointColumns(("lon", "lat")), "destination")
    shifted = pd.DataFrame(
        {
            "zone": ZONES,
            "boundary": [
                shapely.box(number % 3 + 10, number // 3, number % 3 + 11, number // 3 + 1).wkb.hex()
                for number in range(9)
            ],
        }
    )
    place = Geography.from_frame(shifted, levels=["zone"], boundaries={"zone": "boundary"})
    listed = far.assign(destination="Z1")
    assert set(load(listed, columns, tmp_path, place)["origin"].to_pylist()) == {"Z0", "Z3", "Z6"}
    exchanged = listed.rename(columns={"lon": "lat", "lat": "lon"})
    with pytest.raises(OdError, match="most points of origin lie in no zone, and latitudes seem to stand"):
        load(exchanged, columns, tmp_path, place)
    metres = listed.assign(lon=listed["lon"] * 111_320, lat=listed["lat"] * 111_320)
    with pytest.raises(OdError, match="most points of origin lie in no zone, and the coordinates are not degrees"):
        load(metres, columns, tmp_path, place)
    abroad = load(listed.assign(lon=listed["lon"] + 40), columns, tmp_path, place)
    assert set(abroad["origin"].to_pylist()) == {"(outside)"}
