"""Boundaries: what is read and refused, dissolved and simplified, and that nothing else depends on them."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pyogrio
import pytest
import shapely

from od_core import Geography, OdError
from od_core.geography.geography import (
    compute_square_degrees,
    dissolve_boundaries,
    list_rings,
    read_boundaries,
    simplify_shapes,
    with_unknown_area,
)
from od_core.publication import tables
from od_core.publication.tables import join_boundaries, make_areas_table, make_boundaries_table
from od_core.records.zone_lists import ZoneList

LEVELS = ("region", "zone")
ZONES = pd.DataFrame({"region": ["n", "n", "s", "s"], "zone": ["a", "b", "c", "d"]})
SQUARES = {"a": (0, 1), "b": (1, 1), "c": (0, 0), "d": (1, 0)}


def square(west: float, south: float) -> shapely.Polygon:
    """One degree wide, with many points on its sides, so that it can be simplified."""
    return shapely.segmentize(shapely.box(west, south, west + 1, south + 1), 0.1)


FLAT = {code: square(*corner) for code, corner in SQUARES.items()}


def geojson(folder: Path, shapes: dict[object, shapely.Geometry], name: str = "shapes.geojson") -> Path:
    shapes = {code: json.loads(shapely.to_geojson(shape)) for code, shape in shapes.items()}
    features = [{"type": "Feature", "properties": {"code": code}, "geometry": one} for code, one in shapes.items()]
    (folder / name).write_text(json.dumps({"type": "FeatureCollection", "features": features}), encoding="utf-8")
    return folder / name


def zone_list(folder: Path, file: str = "shapes.geojson", **options: object) -> ZoneList:
    """The list of the four zones, whose boundaries are in a file of the folder."""
    ZONES.to_csv(folder / "zones.csv", index=False)
    return ZoneList("zones.csv", LEVELS, boundaries={LEVELS[-1]: (file, "code")}, **options)  # type: ignore[arg-type]


@pytest.fixture
def listed(tmp_path: Path) -> ZoneList:
    geojson(tmp_path, FLAT)
    return zone_list(tmp_path)


def test_boundaries_of_a_file_are_those_of_the_zones_and_are_kept(tmp_path, listed):
    geography = listed.read_geography(tmp_path)
    shapes = shapely.from_wkb(geography.boundaries)
    for zone, shape in zip(geography.zones, shapes, strict=True):
        assert shape.equals(square(*SQUARES[zone]))
    assert geography.digest == Geography.from_frame(ZONES, LEVELS).digest
    assert shapely.contains_xy(shapes, geography.coordinates[:, 1], geography.coordinates[:, 0]).all()
    geography.to_frame().to_csv(tmp_path / "kept.csv", index=False)
    kept = listed.with_geography_file("kept.csv").read_geography(tmp_path)
    assert kept.boundaries == geography.boundaries
    assert kept.coordinates == pytest.approx(geography.coordinates)


def test_a_geopackage_is_read_and_zones_without_boundaries_stay_without(tmp_path):
    shapes = np.array([square(*SQUARES["a"]), shapely.MultiPolygon([square(*SQUARES["b"]), square(5, 5)])])
    written = shapely.to_wkb(shapes), [np.array(["a", "b"], dtype=object)], ["code"]
    pyogrio.raw.write(tmp_path / "shapes.gpkg", *written, geometry_type="Unknown", crs="EPSG:4326")
    geography = zone_list(tmp_path, "shapes.gpkg", unknown_area="?").read_geography(tmp_path)
    known = dict(zip(geography.zones, geography.boundaries, strict=True))
    assert [zone for zone, shape in known.items() if shape is None] == ["?", "c", "d"]
    assert np.isnan(geography.coordinates).all(axis=1).tolist() == [known[zone] is None for zone in geography.zones]
    region = dict(zip(geography.codes[1], dissolve_boundaries(geography)[0], strict=True))
    assert region["n"].area == pytest.approx(3)
    assert (region["?"], region["s"]) == (None, None)


def geoparquet(folder: Path, shapes_of: dict[str, shapely.Geometry] | None = None, **changes: object) -> Path:
    """Shapes, or the squares, as GeoParquet specifies it; ``changes`` are of the column's description."""
    shapes_of = shapes_of or FLAT
    described = {"encoding": "WKB", "geometry_types": ["Polygon"], **changes}
    facts = {"version": "1.1.0", "primary_column": "shape", "columns": {"shape": described}}
    shapes = shapely.to_wkb([*shapes_of.values()], output_dimension=4, flavor="iso").tolist()
    table = pa.table({"code": [*shapes_of], "shape": shapes}).replace_schema_metadata({"geo": json.dumps(facts)})
    pq.write_table(table, folder / "shapes.parquet")
    return folder / "shapes.parquet"


def geopackage(folder: Path, shapes: dict[str, shapely.Geometry], system: str = "EPSG:4326") -> Path:
    """Shapes as a layer of polygons with heights."""
    path, codes = folder / "shapes.gpkg", [np.array([*shapes], dtype=object)]
    pyogrio.raw.write(path, shapely.to_wkb([*shapes.values()]), codes, ["code"], geometry_type="Polygon Z", crs=system)
    return path


SYSTEMS = [{"id": {"authority": "EPSG", "code": code}} for code in (4326, 5773)]
COMPOUND = {"type": "CompoundCRS", "components": SYSTEMS}


@pytest.mark.parametrize("system", ["EPSG:4326", "EPSG:4979", "OGC:CRS84h", "EPSG:9707", "EPSG:4326+5773"])
def test_heights_are_dropped(tmp_path, system):
    """Each kind of file, in each system that is WGS 84 with heights."""
    high = {code: shapely.force_3d(shape, 5.0) for code, shape in FLAT.items()}
    authority, code = system.split(":")
    crs = COMPOUND if "+" in code else {"id": {"authority": authority, "code": code}}
    in_parquet = geoparquet(tmp_path, high, geometry_types=["Polygon Z"], crs=crs)
    for path in (geojson(tmp_path, high), geopackage(tmp_path, high, system), in_parquet):
        assert_squares(read_boundaries(path, "code"))


def test_geoparquet_without_a_coordinate_system_is_in_that_of_its_standard(tmp_path):
    assert_squares(read_boundaries(geoparquet(tmp_path), "code"))


def assert_squares(found: dict[str, bytes]) -> None:
    """What was read are the squares, without heights and measures."""
    read = {code: shapely.from_wkb(shape) for code, shape in found.items()}
    assert read.keys() == FLAT.keys()
    for code, shape in read.items():
        assert shape.equals(FLAT[code])
        assert not shapely.has_z(shape)
        assert not shapely.has_m(shape)


def test_heights_and_coordinate_systems_within_shapes_are_left_out():
    """GeoParquet files state polygons without heights, and have WKB as ISO has it."""
    flat = square(0, 0)
    high, of_system = shapely.force_3d(flat, 5.0), shapely.set_srid(flat, 4326)
    given = [flat, high, of_system, shapely.set_srid(high, 4326)]
    zones = ZONES.assign(shape=shapely.to_wkb(given, hex=True, include_srid=True, flavor="extended"))
    boundaries = Geography.from_frame(zones, LEVELS, boundaries="shape").boundaries
    assert set(boundaries) == {shapely.to_wkb(flat, byte_order=1)}


def test_a_zone_whose_shape_is_null_has_no_boundary(tmp_path):
    path = geojson(tmp_path, {"a": square(0, 0), "b": square(1, 0)})
    content = json.loads(path.read_text())
    content["features"][1]["geometry"] = None
    path.write_text(json.dumps(content))
    assert read_boundaries(path, "code").keys() == {"a"}


def test_areas_are_dissolved_and_their_borders_stay_common(tmp_path, listed):
    geography = listed.read_geography(tmp_path)
    (north, south), zones = dissolve_boundaries(geography)
    assert north.equals(shapely.box(0, 1, 2, 2))
    assert south.equals(shapely.box(0, 0, 2, 1))
    fewer = simplify_shapes(zones, 0.05)
    assert shapely.coverage_is_valid(fewer)
    assert shapely.get_num_coordinates(fewer).sum() < shapely.get_num_coordinates(zones).sum() / 2
    assert [len(ring) for shape in fewer for ring in list_rings(shape)] == [4] * 4
    assert compute_square_degrees(zones) == pytest.approx(4)


def test_polygons_that_overlap_or_cross_themselves_are_drawn_nevertheless(tmp_path):
    """Boundaries that were simplified one by one do both."""
    bow = shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)])
    geojson(tmp_path, {"a": bow, "b": square(0.5, 0), "c": square(3, 3)})
    geography = zone_list(tmp_path).read_geography(tmp_path)
    assert shapely.from_wkb(geography.boundaries[0]).equals_exact(bow)
    regions, shapes = dissolve_boundaries(geography)
    assert shapely.is_valid(shapes[:3]).all()
    assert regions[0].area == pytest.approx(1.25)
    assert shapely.is_valid(simplify_shapes(shapes, 0.01)[:3]).all()


AT_ONCE = """
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from od_core.geography.geography import find_points_within

all_at_once = Barrier(6)
with ThreadPoolExecutor(6) as threads:
    print([*threads.map(lambda _: (all_at_once.wait(), find_points_within([bytes.fromhex("%s")]).tolist())[1],
    range(6))])
"""


def test_several_threads_may_be_the_first_to_use_boundaries():
    """As where a bundle that was read back is written again to verify it."""
    program = AT_ONCE % shapely.to_wkb(shapely.box(0, 0, 2, 2), hex=True)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == f"{[[[1.0, 1.0]]] * 6}\n"


def of_shape(shape: shapely.Geometry, code: object = "a") -> Callable[[Path], Path]:
    return lambda folder: geojson(folder, {code: shape})


def of_parquet(**changes: object) -> Callable[[Path], Path]:
    return lambda folder: geoparquet(folder, **changes)


def of_content(content: bytes, name: str = "shapes.geojson") -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return write


def of_one_zone_twice(folder: Path) -> Path:
    path = geojson(folder, {"a": square(0, 0), "b": square(1, 0)})
    path.write_text(path.read_text(encoding="utf-8").replace('"b"', '"a"'), encoding="utf-8")
    return path


AROUND = shapely.Polygon([(179, 0), (-179, 0), (-179, 1), (179, 1)])
BEYOND = shapely.Polygon([(178, 0), (-179, 0), (179, 1)])
REFUSED = {
    "a point": (of_shape(shapely.Point(0, 0)), "not a polygon"),
    "an empty polygon": (of_shape(shapely.Polygon()), "not a polygon"),
    "metres": (of_shape(square(400, 0)), "not in degrees"),
    "beyond the pole": (of_shape(square(0, 90)), "not in degrees"),
    "a number for a code": (of_shape(square(0, 0), 1), "not text"),
    "no zone of the list": (of_shape(square(0, 0), "elsewhere"), "no zone of the list has a boundary"),
    "the whole way around": (of_shape(AROUND), "date line"),
    "one of two parts": (of_shape(shapely.MultiPolygon([square(0, 0), BEYOND])), "date line"),
    "beyond 180 degrees": (of_shape(square(179.5, 0)), "date line"),
    "one zone twice": (of_one_zone_twice, "two boundaries of one area"),
    "half a file": (of_content(b"{"), "cannot be read as a layer"),
    "a table of text": (of_content(b"a,b"), "cannot be read as a layer"),
    "another system": (of_parquet(crs={"id": {"authority": "EPSG", "code": 3857}}), "EPSG:3857, not in WGS 84"),
    "no system": (of_parquet(crs=None), "None, not in WGS 84"),
    "another encoding": (of_parquet(encoding="polygon"), "'polygon', not in WKB"),
    "damaged Parquet": (of_content(b"PAR1 nothing", "shapes.parquet"), "cannot be read as GeoParquet"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_boundary_is_refused(tmp_path, what):
    """Among others one that crosses the date line uncut, which would be drawn around the whole world."""
    write, words = REFUSED[what]
    with pytest.raises(OdError, match=f"OD-GEOGRAPHY-BOUNDARIES: .*{words}"):
        zone_list(tmp_path, write(tmp_path).name).read_geography(tmp_path)


def test_a_file_a_column_or_shapes_that_are_not_there_are_named(tmp_path):
    pq.write_table(pa.table({"code": ["a"]}), tmp_path / "plain.parquet")
    for path, code, fault in (
        (tmp_path / "s.geojson", "code", "OD-FILE-MISSING"),
        (tmp_path / "plain.parquet", "code", "OD-GEOGRAPHY-BOUNDARIES: .* cannot be read as GeoParquet"),
        (geoparquet(tmp_path), "kode", "OD-GEOGRAPHY-COLUMN"),
    ):
        with pytest.raises(OdError, match=fault):
            read_boundaries(path, code)


def test_a_line_back_and_forth_is_refused_and_its_area_named(tmp_path):
    """It would become nothing where polygons are repaired, which is after a release has spent its budget."""
    collapsed = shapely.Polygon([(5, 5), (5.0001, 5), (5, 5), (5, 5)])
    with pytest.raises(OdError, match=r"OD-GEOGRAPHY-BOUNDARIES.*has no inside") as caught:
        read_boundaries(geojson(tmp_path, {"n": square(0, 0), "s": collapsed}), "code")
    assert caught.value.confidential_detail == "area 's'"
    rows = ZONES.assign(shape=[shapely.to_wkb(collapsed, hex=True), "", "", ""])
    with pytest.raises(OdError, match="has no inside"):
        Geography.from_frame(rows, LEVELS, boundaries={"region": "shape"})


def test_boundaries_that_are_cut_at_the_date_line_are_read(tmp_path):
    """The coordinates of a zone are in one of its parts. Along the edge of a map of the world, a pole is a line."""
    both = shapely.MultiPolygon([shapely.box(179, 0, 180, 1), shapely.box(-180, 0, -179, 1)])
    pole = shapely.Polygon([(-180, -90), (180, -90), (180, -80), (0, -75), (-180, -80)])
    geojson(tmp_path, {"a": both, "b": pole})
    geography = zone_list(tmp_path).read_geography(tmp_path)
    latitude, longitude = geography.coordinates[geography.zones.index("a")]
    assert shapely.contains_xy(both, longitude, latitude)


THREE = ("part", "region", "zone")
PARTS = pd.DataFrame({"part": ["p", "p", "p", "q"], "region": ["n", "n", "s", "t"], "zone": ["a", "b", "c", "d"]})


def of_levels(folder: Path, **shapes: dict[str, shapely.Geometry]) -> Geography:
    """Four zones in three regions in two parts, with the given boundaries of each level."""
    PARTS.to_csv(folder / "zones.csv", index=False)
    files = {level: (geojson(folder, of_level, f"{level}.geojson").name, "code") for level, of_level in shapes.items()}
    return ZoneList("zones.csv", THREE, boundaries=files).read_geography(folder)


def test_coarser_levels_are_the_union_of_the_finest_given_level_below(tmp_path):
    """The zones are smaller than their regions: a part is the union of its regions, and not of its zones."""
    zones = {code: square(*corner).buffer(-0.1) for code, corner in SQUARES.items()}
    regions = {"n": shapely.box(0, 1, 2, 2), "s": square(0, 0)}
    geography = of_levels(tmp_path, zone=zones, region=regions)
    parts, of_regions, of_zones = dissolve_boundaries(geography)
    assert [shape.equals(zones[code]) for code, shape in zip(geography.zones, of_zones, strict=True)] == [True] * 4
    assert of_regions[0].equals(regions["n"])
    assert of_regions[1].equals(regions["s"])
    assert of_regions[2].equals(zones["d"])  # is not in the file, so it follows from its zone
    assert parts[0].equals(regions["n"].union(regions["s"]))
    assert parts[1].equals(zones["d"])
    assert tables.count_bounded_areas(geography) == 4 + 3 + 2


def test_boundaries_of_one_coarser_level_alone_are_kept_and_published(tmp_path):
    geography = of_levels(tmp_path, region={"n": square(0, 1), "s": square(0, 0)})
    parts, regions, zones = dissolve_boundaries(geography)
    assert [*zones, regions[2], parts[1]] == [None] * 6
    assert parts[0].area == pytest.approx(2)
    assert (geography.boundaries, geography.coordinates) == (None, None)
    assert geography.digest == Geography.from_frame(PARTS, THREE).digest
    geography.to_frame().to_csv(tmp_path / "kept.csv", index=False)
    listed = ZoneList("zones.csv", THREE, boundaries={"region": ("region.geojson", "code")})
    again = listed.with_geography_file("kept.csv").read_geography(tmp_path)
    assert again.level_boundaries == geography.level_boundaries
    wider = with_unknown_area(geography, "?")
    given = dict(zip(wider.codes[2], wider.level_boundaries["region"], strict=True))
    assert given == {**dict(zip(geography.codes[2], geography.level_boundaries["region"], strict=True)), "?": None}
    table = make_boundaries_table(geography, names=True)
    areas, given = (table[name].to_pylist() for name in ("area", "given"))
    assert dict(zip(areas, given, strict=True)) == {"n": True, "s": True, "p": False}
    areas = join_boundaries(make_areas_table(geography).to_pandas(), table)
    back = tables.build_published_geography(areas, geography.digest, None)
    assert (back.boundaries, back.level_boundaries) == (None, geography.level_boundaries)
    assert make_boundaries_table(back, names=True).equals(table)


def test_boundaries_of_zones_alone_are_published_as_before(tmp_path, listed):
    """Without the column that tells which were given: what was published by earlier software stays equal."""
    table = make_boundaries_table(listed.read_geography(tmp_path), names=True)
    assert table.column_names == ["geography", "level_name", "area", "geometry"]
    areas = join_boundaries(make_areas_table(listed.read_geography(tmp_path)).to_pandas(), table)
    assert tables.build_published_geography(areas, listed.read_geography(tmp_path).digest, None).level_boundaries == {}


def test_wrong_boundaries_of_levels_are_refused(tmp_path):
    with pytest.raises(OdError, match="'regoin' has boundaries, but is not a level"):
        ZoneList("zones.csv", THREE, boundaries={"regoin": ("s.geojson", "code")})
    with pytest.raises(OdError, match="no area of level 'region' of the list has a boundary"):
        of_levels(tmp_path, region={"x": square(0, 0)})
    two = PARTS.assign(shape=[shapely.to_wkb(square(west, 0)).hex() for west in (0, 1, 2, 3)])
    with pytest.raises(OdError, match="an area has two boundaries"):
        Geography.from_frame(two, THREE, boundaries={"region": "shape"})
    same = PARTS.rename(columns={"zone": "part: boundary"}).assign(shape=two["shape"][0])
    with pytest.raises(OdError, match="a level is called 'part: boundary'"):
        Geography.from_frame(same, ("part", "region", "part: boundary"), boundaries={"part": "shape"})
