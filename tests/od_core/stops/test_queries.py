"""Range queries: every answer against the cells of a small space, one by one."""

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.range_queries import random_ranges, sized_ranges
from od_core import Budget, MapGrid, OdError, PrivacyUnit, plan_stops, release_stops
from od_core.stops.geometry import Boxes, BoxIndex, Grid, count_trips_by_cell, validate_ranges
from od_core.stops.release import StopsRelease, count_trips_in_ranges, evaluate_stops, evaluate_stops_entropy
from tests.od_core.stops import worlds


@dataclass
class Partition:
    """Test double: boxes that fill a small space, made by cutting one in two again and again, and their counts."""

    sizes: tuple[int, ...]
    lower: np.ndarray
    upper: np.ndarray
    noisy: np.ndarray

    @property
    def release(self) -> StopsRelease:
        plan = plan_stops(Grid(self.sizes), unit=PrivacyUnit("trip"), budget=Budget(epsilon=1))
        return StopsRelease(plan, plan.spent, None, Boxes(self.lower, self.upper, self.noisy))

    def answers(self, ranges) -> np.ndarray:
        index = BoxIndex.from_boxes(self.lower, self.upper)
        return index.answer_queries(self.noisy, validate_ranges(ranges, self.sizes))

    def spread(self) -> np.ndarray:
        """The count of every cell, exactly: that of its box over the box's cells."""
        cells = np.full(self.sizes, Fraction(0), dtype=object)
        for low, high, count in zip(self.lower.tolist(), self.upper.tolist(), self.noisy.tolist(), strict=True):
            volume = math.prod(b - a + 1 for a, b in zip(low, high, strict=True))
            cells[tuple(slice(a, b + 1) for a, b in zip(low, high, strict=True))] += Fraction(count, volume)
        return cells


def cut(sizes, cuts, seed):
    random = np.random.default_rng(seed)
    lower, upper = worlds.cut(sizes, cuts, random)
    return Partition(sizes, lower, upper, random.integers(-50, 1000, len(lower)))


@st.composite
def partitions(draw):
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=5).filter(lambda s: math.prod(s) <= 2_000))
    return cut(tuple(sizes), draw(st.integers(0, 300)), draw(st.integers(0, 2**32 - 1)))


def slices(query):
    return tuple(slice(first, last + 1) for first, last in query)


@given(partition=partitions(), seed=st.integers(0, 99))
def test_answers_are_sums_over_the_cells(partition, seed):
    """Boxes come in no order at all; the whole space and single cells are among the queries."""
    grid = Grid(partition.sizes)
    cell = np.repeat(random_ranges(grid, 1, seed)[:, :, :1], 2, axis=2)
    whole = [[(0, size - 1) for size in partition.sizes]]
    ranges = np.concatenate([random_ranges(grid, 8, seed), sized_ranges(grid, 4, seed), cell, whole])
    cells = partition.spread()
    expected = [float(np.sum(cells[slices(query)])) for query in ranges.tolist()]
    given = partition.answers(ranges)
    assert given.dtype == np.float64
    assert given == pytest.approx(expected, rel=1e-12, abs=1e-9)
    assert given[-1] == partition.noisy.sum()
    assert partition.answers([]).shape == (0,)


def test_many_boxes_in_any_order_by_any_number_of_threads(monkeypatch):
    """Blocks inside, outside and cut; the same bits from one thread and from two."""
    partition = cut((40, 40, 40), 6_000, 3)
    ranges = random_ranges(Grid(partition.sizes), 100, 4)
    low, high = ranges[:, None, :, 0], ranges[:, None, :, 1]
    common = np.minimum(high, partition.upper) - np.maximum(low, partition.lower) + 1
    shares = np.prod(np.maximum(common, 0) / (partition.upper - partition.lower + 1), axis=2)
    by_threads = []
    for threads in ("1", "2"):
        monkeypatch.setenv("OD_THREADS", threads)
        by_threads.append(partition.answers(ranges))
    assert by_threads[0].tobytes() == by_threads[1].tobytes()
    assert by_threads[0] == pytest.approx(shares @ partition.noisy)


def test_the_largest_grid_is_answered_without_overflow():
    last = 2**31 - 1
    lower, upper = np.array([[0, 0], [2**30, 0]], dtype=np.int32), np.array([[2**30 - 1, last], [last, last]])
    ranges = [[(2**30 - 2**20, 2**30 + 2**20 - 1), (0, 2**29 - 1)]]
    expected = (1_000 + 3_000) * 2**20 / 2**30 / 4
    space = Partition((2**31, 2**31), lower, upper.astype(np.int32), np.array([1_000, 3_000]))
    assert space.answers(ranges) == pytest.approx([expected])


@pytest.mark.parametrize(
    ("ranges", "said"),
    [
        ([[(0, 4), (0, 5)]], "extends beyond the space, whose cells are numbered from 0 to [4, 4]"),
        ([[(-1, 4), (0, 4)]], "extends beyond the space"),
        ([[(0, 4), (3, 2)]], "ends before it begins"),
        ([[(0, 4)]], "for each of the 2 dimensions"),
        ([[(0, 4), (0, 4)], [(0, 4)]], "for each of the 2 dimensions"),
        ([[(0.0, 4.0), (0.5, 4)]], "whole numbers"),
        ([[(0, math.nan), (0, 4)]], "whole numbers"),
    ],
)
def test_bad_queries_are_refused_in_one_line(ranges, said):
    partition = cut((5, 5), 7, 1)
    with pytest.raises(OdError, match="OD-STOPS-QUERY:") as caught:
        partition.answers(ranges)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("sizes", "places"), [((3, 4, 5, 2, 3, 3), 3), ((6, 7, 5, 4), 2)])
def test_from_origin_to_destination_is_the_sum_over_everything_between(sizes, places):
    release, of_a_place = cut(sizes, 60, 5).release, len(sizes) // places
    cells = Partition(sizes, release.measured.lower, release.measured.upper, release.counts).spread()
    ranges = random_ranges(Grid(sizes), 5, 6).tolist()
    for query in ranges:
        origin, destination = query[:of_a_place], query[-of_a_place:]
        between = product(*(range(size) for size in sizes[of_a_place:-of_a_place]))
        expected = sum(np.sum(cells[(*slices(origin), *stop, *slices(destination))]) for stop in between)
        given = release.od(origin, destination)
        assert given == pytest.approx(float(expected), abs=1e-9)


@pytest.mark.parametrize(
    ("dimensions", "origin", "destination", "said"),
    [
        (6, 4, 4, "the space has 6 dimensions, which does not fit"),
        (5, 2, 2, "the space has 5 dimensions, which does not fit"),
        (6, 2, 1, "each of the 2 dimensions of a place"),
        (6, 0, 0, "each of the 1 dimensions of a place"),
    ],
)
def test_dimensions_of_other_places_are_refused(dimensions, origin, destination, said):
    release = cut((3,) * dimensions, 5, 1).release
    with pytest.raises(OdError, match=said):
        release.od([(0, 1)] * origin, [(0, 1)] * destination)


def test_a_place_on_a_map_has_two_dimensions_and_one_place_no_destination():
    """Without the map, two dimensions would be two places of one each."""
    unit, budget = PrivacyUnit("trip"), Budget(epsilon=1)
    cases = (("a", 1, "does not fit 1 places"), ("a", 2, "does not fit 1"), ("ab", 1, "each of the 2"))
    for places, origin, why in cases:
        on_map = MapGrid(0, 1, 0, 1, 4, tuple(places))
        zeros = np.zeros((3, 2 * len(places)), dtype=int)
        release = release_stops(zeros, on_map, unit=unit, budget=budget, noise="table")
        with pytest.raises(OdError, match=why):
            release.od([(0, 1)] * origin, [(0, 1)] * origin)
    assert release.od([(0, 3)] * 2, [(0, 3)] * 2) == pytest.approx(release.counts.sum())


@given(partition=partitions(), count=st.sampled_from([0, 1, 700]), seed=st.integers(0, 99))
def test_true_answers_and_errors_are_those_of_brute_force(partition, count, seed):
    grid, random = Grid(partition.sizes), np.random.default_rng(seed)
    points = random.integers(0, grid.sizes, (count, grid.dimensions)).astype(np.int32)
    ranges = random_ranges(grid, 10, seed)
    inside = (points >= ranges[:, None, :, 0]) & (points <= ranges[:, None, :, 1])
    true = inside.all(axis=2).sum(axis=1)
    assert count_trips_in_ranges(count_trips_by_cell(points, grid), ranges).tolist() == true.tolist()
    release = partition.release
    table = evaluate_stops(release, points, ranges)
    assert table["floor"].tolist() == [max(count, 1) / 1000] * 3 + [1.0] * 3
    cells, kept = partition.spread(), Partition(grid.sizes, partition.lower, partition.upper, release.counts)
    whole = kept.spread()
    for row in table.itertuples():
        errors = []
        for query, truth in zip(ranges.tolist(), true.tolist(), strict=True):
            by = {"noisy": np.sum(cells[slices(query)]), "count": np.sum(whole[slices(query)]), "zero": Fraction(0)}
            errors.append(abs(by[row.answered_by] - truth) / max(truth, Fraction(row.floor)))
        assert row.mean_relative_error == pytest.approx(float(sum(errors) / len(errors)), rel=1e-9, abs=1e-9)


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=3), st.integers(0, 9), st.integers(0, 10**6), st.integers(0, 60)
)
def test_entropy_is_that_of_every_cell_and_box(sizes, cuts, seed, count):
    """Equation 4, with its logarithms summed trip by trip: the mean over the trips of log2 of one over their share."""
    partition = cut(tuple(sizes), cuts, seed)
    points = (np.random.default_rng(seed).random((count, len(sizes))) ** 2 * sizes).astype(np.int32)
    boxes = [*zip(partition.lower, partition.upper, strict=True)]
    box_of = [next(b for b, (low, high) in enumerate(boxes) if ((low <= p) & (p <= high)).all()) for p in points]
    released = np.repeat(np.arange(len(partition.lower)), partition.release.counts).tolist()

    def bits(names):
        return sum(math.log2(len(names) / names.count(name)) for name in names) / max(1, len(names))

    found = evaluate_stops_entropy(partition.release, points)
    cells, boxes = bits([tuple(point) for point in points.tolist()]), bits(box_of)
    assert found["cells"] == pytest.approx(cells, abs=1e-9)
    assert found["boxes"] == pytest.approx(boxes, abs=1e-9)
    assert found["lost"] == pytest.approx(cells - boxes, abs=1e-9)
    assert found["lost"] >= -1e-9  # boxes tell no more than cells
    if len(released) < 3_000:
        assert found["released"] == partition.release.entropy == pytest.approx(bits(released), abs=1e-9)


def test_nothing_to_judge_is_refused():
    partition = cut((5, 4), 2, 1)
    with pytest.raises(OdError, match="at least one query"):
        evaluate_stops(partition.release, [[1, 1]], [])
    for floor in (0, -1, math.nan):
        with pytest.raises(OdError, match="the floor must be above 0"):
            evaluate_stops(partition.release, [[1, 1]], [[(0, 1), (0, 1)]], floors=[floor])
    for points in ([[5, 0]], [[0, -1]], [[0]], [0, 0], [[0.0, 1.0]]):
        with pytest.raises(OdError, match=r"not on the grid|rows of 2 whole numbers|is not a whole number"):
            evaluate_stops(partition.release, points, [[(0, 1), (0, 1)]])
