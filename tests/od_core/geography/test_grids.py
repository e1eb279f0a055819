"""Cells of grids are those of H3 and of the definition of the European grid, and cover the outline that they are of."""

import json
import math
import pickle
from fractions import Fraction

import h3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyogrio
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from od_core import Geography
from od_core.errors import OdError
from od_core.geography import laea
from od_core.geography.grids import MAX_CELLS, Hexagons, Squares, estimate_cells
from od_core.geography.point_location import OUTSIDE, make_locator
from od_core.records.zone_lists import ZoneList

CITY = shapely.Polygon([(5.05, 52.0), (5.2, 52.02), (5.12, 52.06), (5.22, 52.12), (5.1, 52.15), (5.0, 52.08)])
FIJI = shapely.union_all([shapely.box(176, -20, 180, -15), shapely.box(-180, -20, -177, -15)])
WORLD = shapely.box(-180, -90, 180, 90)


def write_outline(folder, *shapes):
    features = [
        {"type": "Feature", "properties": {}, "geometry": json.loads(shapely.to_geojson(shape))} for shape in shapes
    ]
    text = json.dumps({"type": "FeatureCollection", "features": features})
    (folder / "city.geojson").write_text(text, encoding="utf-8")


def read_cells(folder, grid, *shapes, **options) -> Geography:
    write_outline(folder, *shapes)
    return ZoneList.from_grid(grid, "city.geojson", **options).read_geography(folder)


def points_in(outline, number):
    """Random points of an outline, with its corners."""
    generator = np.random.default_rng(7)
    west, south, east, north = outline.bounds
    points = np.column_stack([generator.uniform(west, east, number), generator.uniform(south, north, number)])
    corners = shapely.get_coordinates(outline)
    return np.vstack([points[shapely.contains_xy(outline, *points.T)], corners]).T


def list_parents(geography):
    """The areas that contain each zone, from the coarsest on."""
    return {path[-1]: path[:-1] for path in geography.to_frame()[list(geography.levels)].itertuples(index=False)}


@pytest.mark.parametrize(
    ("outline", "resolutions"),
    [(CITY, (5, 7, 9)), (shapely.box(-10, 36, 25, 60), (1, 2, 4)), (FIJI, (0, 2, 4)), (WORLD, (0, 1))],
    ids=["city", "continent", "date line", "world"],
)
def test_hexagons_are_those_of_h3_and_every_point_of_the_outline_has_one(outline, resolutions, tmp_path):
    geography = read_cells(tmp_path, Hexagons(resolutions), *shapely.get_parts(outline))
    assert geography.levels == tuple(f"hexagon_{resolution}" for resolution in resolutions)
    for zone, parents in list_parents(geography).items():
        assert h3.get_resolution(zone) == resolutions[-1]
        assert parents == tuple(h3.cell_to_parent(zone, resolution) for resolution in resolutions[:-1])
    longitude, latitude = points_in(outline, 4000)
    found = make_locator(geography).find_codes(longitude, latitude)
    assert found.tolist() == [
        h3.latlng_to_cell(y, x, resolutions[-1]) for x, y in zip(longitude, latitude, strict=True)
    ]
    latitude, longitude = geography.coordinates.T
    assert make_locator(geography).find_codes(longitude, latitude).tolist() == [*geography.zones]


@pytest.mark.parametrize("holed", [False, True])
def test_hexagons_are_all_that_overlap_the_outline_and_no_other(holed, tmp_path):
    """Of all cells nearby, shapely says which overlap, by polygons of its own that H3's corners make."""
    outline = CITY.difference(shapely.box(5.08, 52.05, 5.1, 52.08)) if holed else CITY
    geography = read_cells(tmp_path, Hexagons((8,)), outline)
    nearby = h3.grid_disk(h3.latlng_to_cell(52.07, 5.1, 8), 25)
    polygons = {cell: shapely.Polygon([(x, y) for y, x in h3.cell_to_boundary(cell)]) for cell in nearby}
    assert {*geography.zones} == {cell for cell, polygon in polygons.items() if polygon.intersects(outline)}
    drawn = dict(zip(geography.zones, shapely.from_wkb(geography.boundaries), strict=True))
    assert all(drawn[cell].equals(polygons[cell]) for cell in geography.zones)


@pytest.mark.parametrize("resolution", [0, 1, 2])
def test_boundaries_of_all_hexagons_cover_the_map_of_the_world_once(resolution, tmp_path):
    """Also around the poles and at the date line, where they are cut."""
    geography = read_cells(tmp_path, Hexagons((resolution,)), WORLD)
    assert len(geography.zones) == h3.get_num_cells(resolution)
    shapes = shapely.from_wkb(geography.boundaries)
    assert shapely.is_valid(shapes).all()
    assert math.isclose(shapely.area(shapes).sum(), 360 * 180)
    assert math.isclose(shapely.area(shapely.union_all(shapes)), 360 * 180)


def test_easting_and_northing_are_those_that_epsg_publishes():
    """IOGP guidance note 7-2, the example of method 9820; the centre of the map is defined."""
    east, north = laea.to_metres(np.array([5.0, 10.0]), np.array([50.0, 52.0]))
    assert np.abs(east - [3962799.45, 4321000]).max() < 0.005
    assert np.abs(north - [2999718.85, 3210000]).max() < 0.005


def test_the_map_of_squares_keeps_areas_and_is_turned_back():
    """The area of a piece of the ellipsoid follows from its two radii of curvature; derivatives are central ones."""
    generator = np.random.default_rng(3)
    longitude = generator.uniform(laea.WEST, laea.EAST, 500)
    latitude = generator.uniform(laea.SOUTH, laea.NORTH, 500)
    back = laea.to_degrees(*laea.to_metres(longitude, latitude))
    assert np.abs(np.array(back) - [longitude, latitude]).max() < 1e-11  # a micrometre
    step = 1e-3
    by_longitude = np.subtract(*(laea.to_metres(longitude + turn, latitude) for turn in (step, -step)))
    by_latitude = np.subtract(*(laea.to_metres(longitude, latitude + turn) for turn in (step, -step)))
    area = (by_longitude[0] * by_latitude[1] - by_longitude[1] * by_latitude[0]) / (2 * np.radians(step)) ** 2
    axis, flattening = 6378137, 1 / 298.257222101  # of GRS 1980
    square = 1 - (1 - flattening) ** 2
    sine = np.sin(np.radians(latitude))
    meridian, vertical = axis * (1 - square) / (1 - square * sine**2) ** 1.5, axis / np.sqrt(1 - square * sine**2)
    assert np.allclose(area, meridian * vertical * np.cos(np.radians(latitude)), rtol=1e-8)


@given(
    st.lists(st.floats(0, 7e6), min_size=1, max_size=9),
    st.sampled_from([(100_000, 10_000, 1000), (1000, 250), (105, 35), (3,), (1,)]),
)
def test_a_point_lies_in_the_square_to_the_north_east_of_a_border(numbers, sizes):
    """By exact fractions, at borders and beside them by the least step of a float."""
    grid = Squares(sizes)
    borders = [size * round(number / size) for number in numbers for size in sizes]
    metres = np.array([*numbers, *borders, *np.nextafter(borders, np.inf), *np.nextafter(borders, 0)])
    easting, northing = metres, metres[::-1]
    cells = grid.place_metres(easting, northing)
    for level, size in enumerate(sizes):
        east, north = ([size * (Fraction(number) // size) for number in side] for side in (easting, northing))
        expected = [f"CRS3035RES{size}mN{y}E{x}" for x, y in zip(east, north, strict=True)]
        assert grid.name_cells(grid.find_parents(cells, level), level) == expected


def test_squares_cover_the_outline_and_nest(tmp_path):
    geography = read_cells(tmp_path, Squares((10_000, 1000, 250)), CITY, unknown_area="elsewhere")
    assert geography.levels == ("square_10km", "square_1km", "square_250m")
    parents = list_parents(geography)
    assert parents.pop("elsewhere") == ("elsewhere", "elsewhere")
    corners = {code: corner_of(code) for code in {*parents, *(code for path in parents.values() for code in path)}}
    for zone, path in parents.items():
        for parent, size in zip(path, (10_000, 1000), strict=True):
            assert corners[parent] == tuple(number // size * size for number in corners[zone])
    longitude, latitude = points_in(CITY, 5000)
    found = make_locator(geography).find_codes(longitude, latitude)
    assert OUTSIDE not in found
    easting, northing = laea.to_metres(longitude, latitude)
    assert [corner_of(code) for code in found] == [
        (250 * (Fraction(x) // 250), 250 * (Fraction(y) // 250)) for x, y in zip(easting, northing, strict=True)
    ]
    # All squares nearby that hold a point of the outline, and no others but at its border.
    dense = shapely.transform(shapely.segmentize(CITY, 1e-4), lambda points: np.column_stack(laea.to_metres(*points.T)))
    west, south, east, north = (int(number) // 250 * 250 for number in dense.bounds)
    nearby = [(x, y) for x in range(west - 500, east + 750, 250) for y in range(south - 500, north + 750, 250)]
    overlaps = {(x, y) for x, y in nearby if dense.intersects(shapely.box(x, y, x + 250, y + 250))}
    assert {corners[zone] for zone in parents} == overlaps


def corner_of(code):
    size, _, corner = code.removeprefix("CRS3035RES").partition("mN")
    north, _, east = corner.partition("E")
    assert code == f"CRS3035RES{size}mN{north}E{east}"
    return int(east), int(north)


def test_boundaries_of_squares_have_their_corners_and_places_are_near_their_centres(tmp_path):
    geography = read_cells(tmp_path, Squares((10_000, 1000)), CITY)
    for level, size in (("square_10km", 10_000), ("square_1km", 1000)):
        codes = geography.codes[geography.find_level_number(level)]
        for code, shape in zip(codes, shapely.from_wkb(geography.given_boundaries[level]), strict=True):
            east, north = laea.to_metres(*shapely.get_coordinates(shape).T)
            west, south = corner_of(code)
            bounds = west, south, west + size, south + size
            assert np.allclose([east.min(), north.min(), east.max(), north.max()], bounds, atol=1e-5, rtol=0)
    latitude, longitude = geography.coordinates.T
    middles = np.column_stack(laea.to_metres(longitude, latitude))
    assert np.allclose(middles, [np.add(corner_of(zone), 500) for zone in geography.zones], atol=60, rtol=0)


@pytest.mark.parametrize("grid", [Hexagons((7,)), Squares((1000,))])
def test_points_outside_and_what_is_no_point(grid, tmp_path):
    locator = make_locator(read_cells(tmp_path, grid, CITY, unknown_area="elsewhere"))
    points = [(math.nan, 52), (5.1, math.nan), (math.inf, 52), (5.1, 91), (365.1, 52.05), (20, 50), (-170, -52)]
    longitude, latitude = np.array([*points, (5.1, 52.05)], float).T
    *found, inside = locator.find_codes(longitude, latitude)
    assert found == [None, None, *[OUTSIDE] * 5]
    assert pickle.loads(pickle.dumps(locator)).find_codes(longitude, latitude)[-1] == inside  # noqa: S301  # as Spark does
    assert inside in locator._codes
    assert locator.find_codes(np.empty(0), np.empty(0)).tolist() == []


@pytest.mark.parametrize(
    ("outline", "grid", "cell"),
    [(shapely.box(-2, 40, 0, 42), Hexagons((6,)), 36_129_062.2), (CITY, Squares((200,)), 40_000)],
)
def test_the_estimate_of_the_number_of_cells_is_near(outline, grid, cell):
    """Areas of hexagons differ by half, with the place."""
    assert 0.8 < estimate_cells(outline, cell) / len(grid.cover(outline)) < 1.25


def test_the_estimate_counts_the_cells_of_a_long_thin_outline():
    thin = shapely.LineString([(5, 50), (8, 51), (5, 52)]).buffer(1e-6)
    assert 0.8 < estimate_cells(thin, 250**2) / len(Squares((250,)).cover(thin)) < 1.6


@pytest.mark.parametrize("grid", [Hexagons((15,)), Squares((1,))])
def test_too_many_cells_are_refused_before_they_are_made(grid, tmp_path):
    with pytest.raises(OdError, match=f"cells overlap the outline, and at most {MAX_CELLS:,}") as caught:
        read_cells(tmp_path, grid, shapely.box(-2, 40, 2, 43))
    assert caught.value.code == "OD-GEOGRAPHY-CELLS"
    assert caught.value.file == "city.geojson"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Hexagons((4, 16)), "not between 0 and 15"),
        (lambda: Hexagons((-1, 4)), "not between 0 and 15"),
        (lambda: Hexagons((4, 4)), "resolution 4 is not coarser than resolution 4"),
        (lambda: Hexagons((8, 6)), "resolution 8 is not coarser than resolution 6"),
        (lambda: Squares((1000, 1000)), "squares of 1000 m do not consist of squares of 1000 m"),
        (lambda: Squares((1000, 300)), "squares of 1000 m do not consist of squares of 300 m"),
    ],
)
def test_levels_that_do_not_fit_together_are_refused(make, words):
    with pytest.raises(OdError, match=words):
        make()


@pytest.mark.parametrize(
    ("outline", "words"),
    [
        (shapely.Point(5, 52), "not a polygon, or has no inside"),
        (shapely.LineString([(5, 52), (6, 52)]), "not a polygon, or has no inside"),
        (shapely.Polygon([(5, 52), (6, 52), (5, 52)]), "not a polygon, or has no inside"),
        (None, "has no polygon"),
        (shapely.box(500_000, 5_000_000, 501_000, 5_001_000), "not in degrees"),
    ],
)
@pytest.mark.parametrize("grid", [Hexagons((7,)), Squares((1000,))])
def test_outlines_without_an_inside_or_in_metres_are_refused(outline, words, grid, tmp_path):
    with pytest.raises(OdError, match=words):
        read_cells(tmp_path, grid, *([] if outline is None else [outline]))


@pytest.mark.parametrize("outline", [shapely.box(-60, 4, -59.9, 4.1), shapely.box(-35.5, 24.7, -35.4, 24.8)])
def test_squares_beyond_europe_are_refused(outline, tmp_path):
    with pytest.raises(OdError, match="the outline reaches beyond"):
        read_cells(tmp_path, Squares((1000,)), outline)
    assert read_cells(tmp_path, Hexagons((7,)), outline).zones


@pytest.mark.parametrize("suffix", [".parquet", ".gpkg"])
def test_other_files_have_outlines_too(suffix, tmp_path):
    path = tmp_path / f"city{suffix}"
    if suffix == ".gpkg":
        pyogrio.raw.write(path, np.array([CITY.wkb], object), [], [], geometry_type="Polygon", crs="EPSG:4326")
    else:
        geo = {"version": "1.1.0", "primary_column": "shape", "columns": {"shape": {"encoding": "WKB"}}}
        table = pa.table({"shape": [CITY.wkb]}).replace_schema_metadata({"geo": json.dumps(geo)})
        pq.write_table(table, path)
    grid = Hexagons((8,))
    expected = read_cells(tmp_path, grid, CITY)
    assert ZoneList.from_grid(grid, path.name).read_geography(tmp_path).digest == expected.digest
