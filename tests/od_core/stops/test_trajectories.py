"""Trips as points of a grid: three ways to give them, and what is refused without quoting a trip."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import Grid, OdError, Trajectories

GRID = Grid((4, 7))
CANARY = 773_117


@pytest.mark.parametrize("sizes", [(), (4, 0), (4.0,), (True,), ((1 << 31) + 1,), [4, 7], None])
def test_grids_that_cannot_be(sizes):
    with pytest.raises(OdError, match="OD-STOPS-GRID"):
        Grid(sizes)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int64", "uint64", "Int64", "int32[pyarrow]", list])
@pytest.mark.parametrize("as_table", [False, True])
def test_cells_of_any_whole_type(kind, as_table):
    given_cells = [[0, 0], [3, 6], [3, 6]]
    if as_table:
        cells = pd.DataFrame(given_cells).astype("int64" if kind is list else kind)
    else:
        cells = given_cells if kind is list else np.array(given_cells, dtype=kind.lower().removesuffix("[pyarrow]"))
    trips = Trajectories.from_cells(cells, GRID)
    assert trips.points.dtype == np.int32
    assert trips.points.tolist() == given_cells
    assert repr(trips) == "Trajectories(confidential)"


BAD_CELLS = [
    ([[CANARY, 0]], "OD-STOPS-OFF-GRID"),
    ([[0, -CANARY]], "OD-STOPS-OFF-GRID"),
    (np.array([[1 << 63, 0]], dtype=np.uint64), "OD-STOPS-OFF-GRID"),
    (np.array([[1 << 32, 0]]), "OD-STOPS-OFF-GRID"),  # 0 in 32 bits
    ([[1, 2, CANARY]], "OD-STOPS-DIMENSIONS"),
    ([[1, 2], [CANARY]], "OD-STOPS-DIMENSIONS"),
    ([[1.0, CANARY]], "OD-STOPS-CELL"),
    ([[float("nan"), 2.0]], "OD-STOPS-CELL"),
    ([[True, False]], "OD-STOPS-CELL"),
    ([["1", str(CANARY)]], "OD-STOPS-CELL"),
    (pd.DataFrame({"a": [1, None], "b": [2, CANARY]}, dtype="Int64"), "OD-STOPS-MISSING"),
    (pd.DataFrame({"a": [1, 2], "b": [0.5, CANARY]}), "OD-STOPS-CELL"),
    (pd.DataFrame({"a": [1, 2], "b": ["x", str(CANARY)]}), "OD-STOPS-CELL"),
    (pd.DataFrame({"a": [1, 2], "b": np.array([0, (1 << 64) - 1], dtype=np.uint64)}), "OD-STOPS-OFF-GRID"),
]


@pytest.mark.parametrize(("cells", "code"), BAD_CELLS)
def test_cells_that_are_refused(cells, code):
    with pytest.raises(OdError, match=code) as caught:
        Trajectories.from_cells(cells, GRID)
    assert str(CANARY) not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_trajectories_cannot_be_built_wrong():
    for points in (np.zeros((1, 2)), np.zeros((1, 3), dtype=np.int32), np.zeros(2, dtype=np.int32)):
        with pytest.raises(OdError, match="OD-STOPS-DIMENSIONS"):
            Trajectories(points, GRID)
    with pytest.raises(OdError, match="OD-STOPS-OFF-GRID"):
        Trajectories(np.array([[4, 0]], dtype=np.int32), GRID)


@given(st.lists(st.tuples(st.floats(-1, 3), st.floats(10, 20)), min_size=1, max_size=20))
def test_coordinates_lie_in_cells_of_equal_width(coordinates):
    """Cell k of 4 over [-1, 3] holds -1 + k <= x < k; of 7 over [10, 20] 10 + 10 k / 7 and so on, up to rounding."""
    points = Trajectories.from_coordinates(coordinates, GRID, [(-1, 3), (10, 20)]).points
    for (x, y), (i, j) in zip(coordinates, points.tolist(), strict=True):
        assert i == min(math.floor(x + 1), 3)
        assert 10 + j * 10 / 7 - 1e-9 <= y <= 10 + (j + 1) * 10 / 7 + 1e-9
        assert 0 <= j <= 6


@pytest.mark.parametrize(
    ("coordinates", "bounds", "code"),
    [
        ([[CANARY, 0.5]], [(0, 1), (0, 1)], "OD-STOPS-OFF-GRID"),
        ([[0.5, -1e-9]], [(0, 1), (0, 1)], "OD-STOPS-OFF-GRID"),
        ([[float("nan"), 0.5]], [(0, 1), (0, 1)], "OD-STOPS-COORDINATE"),
        ([["0.5", "CANARY"]], [(0, 1), (0, 1)], "OD-STOPS-COORDINATE"),
        ([[0.5]], [(0, 1), (0, 1)], "OD-STOPS-DIMENSIONS"),
        ([[0.5, 0.5]], [(0, 1)], "OD-STOPS-BOUNDS"),
        ([[0.5, 0.5]], [(0, 1), (1, 1)], "OD-STOPS-BOUNDS"),
        ([[0.5, 0.5]], [(0, 1), (0, float("inf"))], "OD-STOPS-BOUNDS"),
    ],
)
def test_coordinates_that_are_refused(coordinates, bounds, code):
    with pytest.raises(OdError, match=code) as caught:
        Trajectories.from_coordinates(coordinates, GRID, bounds)
    assert str(CANARY) not in str(caught.value)


def test_zones_by_their_place_in_the_public_list():
    trips = pd.DataFrame({"origin": ["b", "a"], "stop": ["c", "c"], "destination": ["a", "b"]}, dtype="str")
    found = Trajectories.from_zones(trips, ["a", "b", "c"])
    assert found.grid == Grid((3, 3, 3))
    assert found.points.tolist() == [[1, 2, 0], [0, 2, 1]]
    assert Trajectories.from_zones(trips.iloc[:0], ["a", "b", "c"]).points.shape == (0, 3)


@pytest.mark.parametrize(
    ("origins", "zones", "code"),
    [
        (["a", f"Z{CANARY}"], ["a", "b"], "OD-STOPS-ZONE:"),
        (["a", None], ["a", "b"], "OD-STOPS-ZONE:"),
        (["a", ["a"]], ["a", "b"], "OD-STOPS-ZONE:"),
        ([1, CANARY], ["1", "2"], "OD-STOPS-ZONE:"),
        (["a", "a"], ["a", "a"], "OD-STOPS-ZONES"),
        (["a", "a"], [], "OD-STOPS-ZONES"),
        (["a", "a"], ["a", 2], "OD-STOPS-ZONES"),
    ],
)
def test_zones_that_are_refused(origins, zones, code):
    trips = pd.DataFrame({"origin": pd.Series(origins, dtype=object), "destination": ["a", "a"]})
    with pytest.raises(OdError, match=code) as caught:
        Trajectories.from_zones(trips, zones)
    assert str(CANARY) not in str(caught.value)


@pytest.mark.parametrize("sizes", [(4, 7), (1 << 31,) * 5])
def test_equal_inputs_have_equal_columns_in_any_order(sizes):
    generator = np.random.default_rng(2)
    points = generator.integers(0, np.minimum(sizes, 50), (300, len(sizes))).astype(np.int32)
    shuffled = generator.permutation(points)
    other = points.copy()
    other[0, 0] = (other[0, 0] + 1) % 4
    every = [Trajectories(each, Grid(sizes)) for each in (points, shuffled, other)]
    columns, same, different = (next(each.iterate_column_pieces()) for each in every)
    assert all(np.array_equal(one, two) for one, two in zip(columns, same, strict=True))
    assert not all(np.array_equal(one, two) for one, two in zip(columns, different, strict=True))
    assert all(column.dtype == np.int64 for column in columns)
