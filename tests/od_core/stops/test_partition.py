"""Whether boxes fill a grid, against a count of every cell; by NumPy and by the SQL of the checks."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_assets.checks.release_checks import count_box_violations
from od_core.stops.geometry import Grid, is_grid_partition
from tests.od_core.stops.worlds import covered, cut


def violations_in_sql(lower: np.ndarray, upper: np.ndarray, grid: Grid) -> int:
    sides, dimensions = {"lower": lower, "upper": upper}, range(grid.dimensions)
    columns = {f"{end}_{i + 1}": ends[:, i] for end, ends in sides.items() for i in dimensions}
    counts = np.ones(len(lower), dtype=np.int64)
    return count_box_violations(grid, pa.table({**columns, "count": counts, "noisy": counts}))["fill_the_grid"]


@st.composite
def partitions(draw):
    grid = Grid(tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))))
    generator = np.random.default_rng(draw(st.integers(0, 10_000)))
    return grid, generator, *cut(grid.sizes, draw(st.integers(0, 12)), generator)


@given(partitions())
def test_a_partition_fills_the_grid(case):
    grid, _, lower, upper = case
    assert (covered(grid.sizes, lower, upper) == 1).all()
    assert is_grid_partition(lower, upper, grid)


@given(partitions(), st.sampled_from(["shifted", "grown", "shrunk", "twice", "left out"]))
def test_a_gap_or_an_overlap_is_seen(case, defect):
    """Whatever the defect: the boxes fill the grid if and only if every cell is in one of them."""
    grid, generator, lower, upper = case
    box, side = generator.integers(len(lower)), generator.integers(grid.dimensions)
    if defect == "shifted" and upper[box, side] + 1 < grid.sizes[side]:
        lower[box, side] += 1
        upper[box, side] += 1
    elif defect == "grown" and upper[box, side] + 1 < grid.sizes[side]:
        upper[box, side] += 1
    elif defect == "shrunk" and lower[box, side] < upper[box, side]:
        upper[box, side] -= 1
    elif defect == "twice":
        lower, upper = (np.concatenate([ends, ends[[box]]]) for ends in (lower, upper))
    elif defect == "left out":
        lower, upper = (np.delete(ends, box, axis=0) for ends in (lower, upper))
    assert is_grid_partition(lower, upper, grid) == bool((covered(grid.sizes, lower, upper) == 1).all())


@pytest.mark.parametrize("seed", range(3))
def test_the_sql_says_the_same(seed):
    generator = np.random.default_rng(seed)
    grid = Grid((5, 3, 6))
    lower, upper = cut(grid.sizes, 9, generator)
    assert violations_in_sql(lower, upper, grid) == 0
    box = seed % len(lower)
    assert violations_in_sql(np.delete(lower, box, axis=0), np.delete(upper, box, axis=0), grid) == 1
    swapped = upper.copy()
    swapped[[box, box - 1]] = swapped[[box - 1, box]]  # sums of volumes may stay what they were
    if (lower <= swapped).all():
        assert violations_in_sql(lower, swapped, grid) == int((covered(grid.sizes, lower, swapped) != 1).any())


def test_a_space_of_more_cells_than_there_are_numbers():
    grid = Grid((1 << 31,) * 4)
    lower, upper = cut(grid.sizes, 300, np.random.default_rng(1))
    assert is_grid_partition(lower, upper, grid)
    assert violations_in_sql(lower, upper, grid) == 0
    assert not is_grid_partition(lower[1:], upper[1:], grid)
