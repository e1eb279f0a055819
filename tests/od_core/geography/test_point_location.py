"""Points lie in the zones that a test of each edge with fractions finds; a border belongs to the lowest code."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from od_core.errors import OdError
from od_core.geography.point_location import OUTSIDE, PointLocator


def lies_in(x, y, polygon):
    """Whether a point lies in a polygon, its border included, by the even-odd rule in exact arithmetic."""
    point = Fraction(x), Fraction(y)
    crossings = 0
    for ring in (polygon.exterior, *polygon.interiors):
        corners = [tuple(map(Fraction, corner)) for corner in ring.coords]
        for start, end in pairwise(corners):
            turn = (end[0] - start[0]) * (point[1] - start[1]) - (end[1] - start[1]) * (point[0] - start[0])
            is_between = all(min(a, b) <= p <= max(a, b) for a, b, p in zip(start, end, point, strict=True))
            if turn == 0 and is_between:
                return True
            if (start[1] > point[1]) != (end[1] > point[1]):
                crossings += (turn > 0) == (end[1] > start[1])
    return crossings % 2 == 1


def find_by_brute_force(codes, shapes, x, y):
    holders = [
        code
        for code, shape in zip(codes, shapes, strict=True)
        for longitude in ({x, -x} if abs(x) == 180 else {x})
        if shape is not None and any(lies_in(longitude, y, part) for part in shapely.get_parts(shape))
    ]
    return min(holders, default=OUTSIDE)


def cut_at_date_line(shape):
    """The same zone beyond the date line: what is east of 180 degrees is another part, in the west."""
    moved = shapely.transform(shape, lambda corners: corners + np.array([176, 0]))
    east = shapely.intersection(moved, shapely.box(170, -10, 180, 20))
    west = shapely.intersection(moved, shapely.box(180, -10, 190, 20))
    west = shapely.transform(west, lambda corners: corners - np.array([360, 0]))
    parts = [*shapely.get_parts(east), *shapely.get_parts(west)]
    return shapely.multipolygons([part for part in parts if part.geom_type == "Polygon" and part.area])


def make_partition(seed):
    """A partition of a rectangle with jagged borders, in which some zones have holes, islands and enclaves.

    Every second one lies on the date line.
    """
    generator = np.random.default_rng(seed)
    cells = int(generator.integers(2, 12))
    centres = shapely.multipoints(np.round(generator.random((cells, 2)) * 8, 1) + generator.random((cells, 2)) / 100)
    frame = shapely.box(0, 0, 8, 8)
    shapes = shapely.intersection(shapely.get_parts(shapely.voronoi_polygons(centres, extend_to=frame)), frame)
    shapes = shapely.set_precision(shapely.segmentize(shapes, 1.0), 1 / 64)
    enclave = shapely.box(3, 3, 4.5, 5)
    shapes = [*shapely.difference(shapes, enclave), enclave]
    shapes = [shapely.multipolygons([part for part in shapely.get_parts(shape) if part.area]) for shape in shapes]
    shapes = [shape for shape in shapes if shape.area > 0.5]
    if len(shapes) > 3:  # one zone of two parts
        shapes = [shapely.union(shapes[0], shapes[2]), shapes[1], *shapes[3:]]
    codes = tuple(f"Z{number:02d}" for number in generator.permutation(len(shapes)))
    if seed % 2:
        shapes = [cut_at_date_line(shape) for shape in shapes]
    if generator.random() < 0.3:
        shapes[0] = None
    return codes, shapes, generator


def choose_points(shapes, generator):
    """Points anywhere, at corners, in the middle of edges, and beside both by the least step of a float."""
    corners = np.vstack([shapely.get_coordinates(shape) for shape in shapes if shape is not None])
    corners = corners[generator.permutation(len(corners))[:6]]
    middles = (corners[:-1] + corners[1:]) / 2
    anywhere = generator.random((6, 2)) * 9 - 0.5
    if np.abs(corners).max() > 90:
        anywhere[:, 0] = (anywhere[:, 0] + 176 + 180) % 360 - 180
        anywhere[:2, 0] = 180, -180
    points = np.vstack([corners, middles, anywhere])
    return np.vstack([points, np.nextafter(points, np.inf)])


def compare_with_brute_force(seed):
    codes, shapes, generator = make_partition(seed)
    points = choose_points(shapes, generator)
    locator = PointLocator(codes, tuple(None if shape is None else shapely.to_wkb(shape) for shape in shapes))
    found = locator.find_codes(points[:, 0], points[:, 1])
    assert found.tolist() == [find_by_brute_force(codes, shapes, x, y) for x, y in points]


@given(st.integers(0, 2**32 - 1))
def test_points_of_generated_partitions_lie_where_brute_force_finds_them(seed):
    compare_with_brute_force(seed)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_points_of_two_hundred_partitions_lie_where_brute_force_finds_them():
    for seed in range(200):
        compare_with_brute_force(seed)


def locate(boxes, *points):
    codes = tuple(boxes)
    locator = PointLocator(codes, tuple(shapely.to_wkb(shapely.box(*box)) for box in boxes.values()))
    longitude, latitude = np.array(points, float).T
    return locator.find_codes(longitude, latitude).tolist()


def test_a_border_belongs_to_the_lowest_code_whatever_the_order():
    boxes = {"B": (0, 0, 1, 1), "A": (1, 0, 2, 1), "C": (0, 1, 2, 2)}
    assert locate(boxes, (1, 0.5), (0.5, 1), (1, 1), (0.5, 0.5)) == ["A", "B", "A", "B"]


def test_both_ends_of_the_date_line_are_one_line():
    boxes = {"EAST": (170, 0, 180, 10), "ALASKA": (-180, 5, -170, 10)}
    assert locate(boxes, (180, 7), (-180, 7), (180, 2), (-180, 2)) == ["ALASKA", "ALASKA", "EAST", "EAST"]


def test_what_is_missing_has_no_code_and_what_is_no_degree_lies_outside():
    points = [(math.nan, 0.5), (0.5, math.nan), (math.inf, 0.5), (0.5, 91), (500_000, 4_000_000), (0, 0)]
    assert locate({"A": (0, 0, 1, 1)}, *points) == [None, None, OUTSIDE, OUTSIDE, OUTSIDE, "A"]


def test_a_polygon_that_crosses_itself_holds_the_points_of_both_its_parts():
    bow = shapely.Polygon([(0, 0), (2, 2), (2, 0), (0, 2)])
    locator = PointLocator(("A", "B"), (shapely.to_wkb(bow), shapely.to_wkb(shapely.box(2, 0, 3, 2))))
    longitude, latitude = np.array([(0.25, 1), (1.75, 1), (1, 0.25), (1, 1), (2, 1), (2.5, 1)], float).T
    assert locator.find_codes(longitude, latitude).tolist() == ["A", "A", OUTSIDE, "A", "A", "B"]


def test_zones_that_overlap_are_refused_and_borders_drawn_twice_are_not():
    with pytest.raises(OdError, match="zones 'A' and 'B' overlap"):
        locate({"A": (0, 0, 1, 1), "B": (0.5, 0, 2, 1)}, (0, 0))
    assert locate({"B": (0, 0, 1, 1), "A": (0.9999, 0, 2, 1)}, (0.99995, 0.5)) == ["A"]


def test_zones_without_boundaries_and_the_reserved_code_are_refused():
    with pytest.raises(OdError, match="no zone has a boundary"):
        PointLocator(("A",), (None,))
    with pytest.raises(OdError, match="stands for points outside"):
        locate({OUTSIDE: (0, 0, 1, 1)}, (0, 0))
