"""How uneven parts are: the sum over all cells, its sensitivity, and what is chosen by it."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from od_core.stops.geometry import Grid, Nodes, count_trips_by_cell
from od_core.stops.heterogeneity import SCORE_SENSITIVITY, compute_heterogeneity
from od_core.stops.mechanisms import BudgetPath, DAFHomogeneity, draw_random_cuts
from tests.od_core.oracles.stops import part_of, unevenness
from tests.od_core.stops.doubles import Recorded


def score_of(points, sizes, cuts, dimension=0):
    """By the library, of the whole space, cut before these cells."""
    grid = Grid(sizes)
    rows = count_trips_by_cell(np.array(points, dtype=np.int32).reshape(-1, len(sizes)), grid)
    candidates = np.array([[0, *cuts]], dtype=np.int32)
    root, number = Nodes.make_root(rows, grid), np.array([len(cuts) + 1])
    return int(compute_heterogeneity(rows, root, dimension, number, candidates)[0, 0])


def parts_of(sizes, cuts, dimension=0):
    root = (tuple(0 for _ in sizes), tuple(size - 1 for size in sizes))
    edges = [0, *cuts, sizes[dimension]]
    return [part_of(root, dimension, low, high - 1) for low, high in itertools.pairwise(edges)]


@st.composite
def cut_spaces(draw):
    sizes = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    dimension = draw(st.integers(0, len(sizes) - 1))
    cells = list(itertools.product(*map(range, sizes)))
    points = draw(st.lists(st.sampled_from(cells[: draw(st.integers(1, len(cells)))]), max_size=40))
    inner = range(1, sizes[dimension])
    cuts = sorted(draw(st.sets(st.sampled_from(inner)))) if inner else []
    return points, sizes, cuts, dimension


@given(cut_spaces())
def test_scores_are_sums_over_all_cells_rounded_down_part_by_part(space):
    points, sizes, cuts, dimension = space
    expected = sum(math.floor(unevenness(points, part)) for part in parts_of(sizes, cuts, dimension))
    assert score_of(points, sizes, cuts, dimension) == expected


@pytest.mark.parametrize("dimensions", [2, 3, 4, 6])
def test_scores_of_spaces_too_large_to_list(dimensions):
    """Three of a cell and one of another on 2^62 cells or more: 2 c - 2 K c / V is 8 less a bit."""
    sizes = (1 << 31,) * dimensions
    points = [(5,) * dimensions] * 3 + [(6,) + (5,) * (dimensions - 1)]
    assert score_of(points, sizes, []) == 7
    assert score_of(points, sizes, [6]) == 5 + 1
    assert score_of([], sizes, [6]) == 0


def test_a_trip_more_changes_a_score_by_two_at_most():
    """All counts up to 4 in a part of up to 4 cells, every added trip: two is reached, and never passed.

    A trip changes the score of its own part alone.
    """
    most = 0
    for cells in range(1, 5):
        (part,) = parts_of((cells,), [])
        for counts in itertools.product(range(5), repeat=cells):
            points = [(cell,) for cell, number in enumerate(counts) for _ in range(number)]
            before = math.floor(unevenness(points, part))
            for cell in range(cells):
                most = max(most, abs(math.floor(unevenness([*points, (cell,)], part)) - before))
    assert most == SCORE_SENSITIVITY


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(30, 1 << 31), st.integers(1, 4))
def test_random_cuts_are_distinct_and_leave_no_part_without_a_cell(parts, length, candidates):
    begins = draw_random_cuts(np.array(parts), length, candidates).astype(np.int64)
    assert begins.shape == (candidates, sum(parts))
    for of_node in np.split(begins, np.cumsum(parts)[:-1], axis=1):
        edges = np.hstack([of_node, np.full((candidates, 1), length)])
        assert (edges[:, 0] == 0).all()
        assert (np.diff(edges, axis=1) >= 1).all()
        cuts = np.arange(1, of_node.shape[1])
        equal = cuts * length / of_node.shape[1]
        assert (np.abs(of_node[:, 1:] - equal) <= length / of_node.shape[1] / 2 + 1).all()


def test_random_cuts_are_uniform_on_their_stretch():
    """Of 10^5 cuts of 40 cells in two, which lie in 10, ..., 29: fails with probability 1e-6 (chi-square)."""
    cuts = draw_random_cuts(np.full(100_000, 2), 40, 1)[0, 1::2]
    seen = np.bincount(cuts, minlength=40)
    assert seen[:10].sum() == seen[30:].sum() == 0
    expected = 100_000 / 20
    assert ((seen[10:30] - expected) ** 2 / expected).sum() < stats.chi2.isf(1e-6, 19)


@pytest.mark.parametrize("seed", range(3))
def test_without_noise_the_most_even_parts_are_chosen_for_every_node(seed):
    """200 candidates, one cut among four: one of them is missing with a probability below 1e-22."""
    generator = np.random.default_rng(seed)
    points = generator.integers(0, (3, 8, 2), (90, 3)) // generator.integers(1, 3, (90, 3))
    grid, trips = Grid((3, 8, 2)), [tuple(point) for point in points.tolist()]
    rows = count_trips_by_cell(points.astype(np.int32), grid)
    nodes = Nodes.make_root(rows, grid).divide(rows, np.array([0]), np.array([3]), np.arange(3, dtype=np.int32))
    source = Recorded(width=0)
    parts = np.array([2, 1, 2])
    path = BudgetPath(source, 1, Fraction(1))
    begins = DAFHomogeneity(candidates=200).choose_cuts(rows, nodes, 1, parts, 8, Fraction(1), path)
    assert begins[[0, 2, 3]].tolist() == [0, 0, 0]
    for node, cut in ((0, begins[1]), (2, begins[4])):
        box = ((node, 0, 0), (node, 7, 1))
        halves = {k: [part_of(box, 1, 0, k - 1), part_of(box, 1, k, 7)] for k in range(2, 6)}
        scores = {k: sum(math.floor(unevenness(trips, half)) for half in both) for k, both in halves.items()}
        assert scores[int(cut)] == min(scores.values())
    assert source.scales == [4]
    assert source.sizes == [2 * 200]  # a node of one part has nothing to choose
