"""Every tree partitions the grid, charges every path epsilon, and is the tree of its definition."""

from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given

from od_core import Budget, OdError, PrivacyUnit, plan_stops
from od_core.stops import mechanisms as trees_module
from od_core.stops.geometry import Grid, count_trips_by_cell
from od_core.stops.mechanisms import EUG, MECHANISMS, BudgetPath, DAFEntropy, DAFHomogeneity, PrivTree, StopsMechanism
from tests.od_core.oracles import stops as oracle
from tests.od_core.stops.doubles import Recorded
from tests.od_core.stops.worlds import boxes_as_tuples, check_charges, check_partition, mechanisms, worlds

HALF = Fraction(1, 2)


@given(worlds(trips=2000), mechanisms())
def test_boxes_partition_the_grid_and_every_path_spends_epsilon(world, mechanism):
    source = Recorded(world.seed)
    drawn = mechanism.draw_boxes(world.points.copy(), world.grid, world.path(source))
    check_partition(drawn.boxes, world.grid)
    check_charges(drawn, world.epsilon)
    assert max(source.scales) <= mechanism.compute_widest_scale(world.grid, world.epsilon, world.sensitivity)


@given(worlds(dimensions=4, side=7, trips=300), mechanisms())
def test_without_noise_every_box_has_its_trips(world, mechanism):
    drawn = mechanism.draw_boxes(world.points.copy(), world.grid, world.path(Recorded(width=0)))
    boxes = drawn.boxes
    inside = (world.points[:, np.newaxis] >= boxes.lower) & (world.points[:, np.newaxis] <= boxes.upper)
    assert boxes.noisy.tolist() == inside.all(axis=2).sum(axis=0).tolist()


@given(worlds(dimensions=3, side=9, trips=200))
def test_trees_are_those_of_their_definitions(world):
    """The same noise, asked for with the same scales, gives the same boxes and counts."""
    limits = {"count": "5/2", "depth": "1", "entropy": "1/10", "extent": "1/6"}
    stops = [(name, Fraction(limit)) for name, limit in limits.items()]
    trees = [(DAFEntropy(stop=s, threshold=t), partial(oracle.daf_entropy, stop=s, threshold=t)) for s, t in stops]
    for mechanism, plain in (*trees, (DAFEntropy(), oracle.daf_entropy), (PrivTree(), oracle.privtree)):
        source, other = Recorded(world.seed), Recorded(world.seed)
        drawn = mechanism.draw_boxes(world.points.copy(), world.grid, world.path(source))
        points = [tuple(point) for point in world.points.tolist()]
        expected = plain(points, world.grid.sizes, world.epsilon, world.sensitivity, other.draw_laplace)
        found = zip(boxes_as_tuples(drawn.boxes), drawn.boxes.noisy.tolist(), strict=True)
        assert sorted(found) == sorted(expected)
        assert source.scales == other.scales
        assert source.sizes == other.sizes


CORNERS = [
    ((1,), 0),
    ((1,), 900),
    ((1, 1, 1), 900),
    ((7,), 0),
    ((2,), 900),
    ((1, 8, 1), 900),
    ((5, 1), 900),
    ((1 << 31, 1 << 31), 900),
    ((1 << 31,) * 3, 900),  # a cell's number takes two words
]


@pytest.mark.representatives
@pytest.mark.parametrize("name", ["daf_entropy", "daf_homogeneity", "privtree"])
@pytest.mark.parametrize(("sizes", "trips"), CORNERS)
@pytest.mark.parametrize("epsilon", ["1/100", "50"])
def test_corners_of_grids(name, sizes, trips, epsilon):
    points = np.random.default_rng(1).integers(0, sizes, (trips, len(sizes))).astype(np.int32)
    drawn = MECHANISMS.make(name).draw_boxes(points, Grid(sizes), BudgetPath(Recorded(4), 1, Fraction(epsilon)))
    check_partition(drawn.boxes, Grid(sizes))
    check_charges(drawn, Fraction(epsilon))
    if sizes == (1,) * len(sizes):
        assert len(drawn.boxes) == 1


@pytest.mark.parametrize("name", MECHANISMS)
def test_replaced_trips_double_every_scale(name):
    """The noise is the same whatever is asked for, and no node of many trips stops: both trees draw as often."""
    points = np.random.default_rng(1).integers(0, 4, (100_000, 3)).astype(np.int32)
    asked = []
    for sensitivity in (1, 2):
        source = Recorded(7, width=30)
        MECHANISMS.make(name).draw_boxes(points.copy(), Grid((4,) * 3), BudgetPath(source, sensitivity, HALF))
        asked.append(source.scales)
    if name == "privtree":  # for its splits, of a path that gains a trip and one that loses it, see test_privtree.py
        asked = [scales[-1:] for scales in asked]
    assert [2 * scale for scale in asked[0]] == asked[1]


def test_the_root_chooses_at_no_charge_where_there_is_nothing_to_choose():
    """A first dimension of one cell: the choice is left out, and the depths below share what it would have cost."""
    points = np.zeros((100_000, 2), dtype=np.int32)
    points[::2, 1] = 3
    source = Recorded(1)
    DAFHomogeneity(candidates=5).draw_boxes(points, Grid((1, 4)), BudgetPath(source, 1, HALF))
    assert source.scales[0] == 200
    below = (HALF * Fraction(99, 100)) / 2  # one part alone: equal shares
    assert 1 / source.scales[1] == Fraction(7, 10) * below
    assert 4 / source.scales[2] == Fraction(3, 10) * below
    assert 1 / source.scales[-1] == below


def test_daf_homogeneity_charges_all_that_it_draws():
    """Counts and choices in turn; a choice of scale 4 D / epsilon costs epsilon, and so does the root's."""
    points = np.random.default_rng(1).integers(0, 4, (100_000, 3)).astype(np.int32)
    source = Recorded(1)
    DAFHomogeneity(candidates=5).draw_boxes(points, Grid((4,) * 3), BudgetPath(source, 2, HALF))
    assert len(source.scales) == 7
    counts = [2 / scale for scale in source.scales[::2]]
    choices = [4 * 2 / scale for scale in source.scales[1::2]]
    assert counts[0] == choices[0] == HALF / 100
    assert sum(counts) + sum(choices) == HALF
    for count, choice in zip(counts[1:3], choices[1:], strict=True):
        assert choice / (count + choice) == Fraction(3, 10)
    assert source.sizes[1::2] == [5 * size for size in source.sizes[:-1:2]]


@pytest.mark.parametrize("name", ["daf_entropy", "daf_homogeneity"])
def test_a_stop_condition_that_never_stops_is_refused(name):
    cases = (("depth", 2, (5, 5)), ("depth", 1, (5,)), ("extent", "1/6", (5, 5)), ("extent", "99/100", (5,)))
    for stop, threshold, sizes in (*cases, ("extent", "1/21", (4, 5, 2))):
        with pytest.raises(OdError, match=r"OD-STOPS-CONDITION.*never stops in this space"):
            plan_stops(
                sizes,
                unit=PrivacyUnit("trip"),
                budget=Budget(epsilon=1),
                mechanism=MECHANISMS.make(name, stop=stop, threshold=threshold),
            )
    for stop, threshold, sizes in (("depth", 1, (5, 5)), ("extent", "1/5", (5, 5)), ("extent", "1/20", (4, 5, 2))):
        MECHANISMS.make(name, stop=stop, threshold=threshold).refuse_grid(Grid(sizes))


def test_filled_cells_of_large_grids():
    """Numbers of cells that take one word exactly, a bit more than one, and several."""
    generator = np.random.default_rng(3)
    for sizes in ((1 << 31, 1 << 31, 2), (1 << 31, 1 << 31, 3), (1000,) * 7, (256,) * 8, (1 << 31,) * 5):
        points = generator.integers(0, sizes, (200, len(sizes)))
        beside = points[:50].copy()
        beside[:, -1] = (beside[:, -1] + 1) % sizes[-1]  # cells that the last word alone tells apart
        last = np.array([sizes], dtype=np.int64) - 1
        points = np.concatenate([points, points[:50], beside, last]).astype(np.int32)
        rows = count_trips_by_cell(points, Grid(sizes))
        cells, trips = np.unique(points, axis=0, return_counts=True)
        assert rows[:, :-1].tolist() == cells.tolist()
        assert rows[:, -1].tolist() == trips.tolist()


@pytest.mark.parametrize("name", ["daf_entropy", "daf_homogeneity", "privtree"])
def test_a_tree_of_too_many_boxes_is_refused(name, monkeypatch):
    monkeypatch.setattr(trees_module, "MAX_BOXES", 100)
    points = np.random.default_rng(1).integers(0, 64, (100_000, 2)).astype(np.int32)
    with pytest.raises(OdError, match=r"OD-STOPS-TOO-MANY-BOXES.*at most 100 .*budget reserved earlier stays charged"):
        MECHANISMS.make(name).draw_boxes(points, Grid((64, 64)), BudgetPath(Recorded(1), 1, Fraction(10)))


def test_a_path_cannot_be_charged_more_than_it_has_left():
    path = BudgetPath(Recorded(), 1, HALF)
    with pytest.raises(OdError, match="OD-STOPS-CHARGE"):
        path.with_charge(Fraction(2, 3))
    with pytest.raises(OdError, match="OD-STOPS-CHARGE"):
        path.with_charge(Fraction(0))
    _, paid = path.measure(np.zeros(3, dtype=np.int64), Fraction(1, 8))
    assert (paid.left, paid.spent) == (Fraction(3, 8), Fraction(1, 8))
    assert path.source.scales == [8]


def test_counts_of_a_caller_stay_as_they_are():
    """Noise of a foreign source is copied before counts are added to it."""

    class Kept(Recorded):
        def draw_laplace(self, scale, size):
            self.kept = super().draw_laplace(scale, size)
            return self.kept

    source = Kept(width=0)
    counts = np.arange(5)
    noisy, _ = BudgetPath(source, 1, HALF).measure(counts, HALF)
    noisy += 1
    assert counts.tolist() == [0, 1, 2, 3, 4]
    assert not source.kept.any()


def test_mechanisms_by_name():
    for name in MECHANISMS:
        mechanism = MECHANISMS.make(name)
        assert isinstance(mechanism, StopsMechanism)
        assert mechanism.name == name
        mechanism.refuse_grid(Grid((3,)))
        assert all(isinstance(value, str) for value in mechanism.options.values())
        assert MECHANISMS.make(name, **mechanism.options) == mechanism  # as a certificate is read back
    for options in ({"stop": "entropy", "threshold": 0.01}, {"stop": "depth", "threshold": 3, "rounding": "up"}):
        mechanism = DAFHomogeneity(**options)
        assert MECHANISMS.make("daf_homogeneity", **mechanism.options) == mechanism
    assert MECHANISMS.make("eug", **EUG(query_size="0.3").options) == EUG(query_size=Fraction(3, 10))
    with pytest.raises(OdError, match=r"OD-MECHANISM-UNKNOWN.*'privtree'"):
        MECHANISMS.make("privtre")
    with pytest.raises(OdError, match=r"OD-MECHANISM-OPTIONS.*depth"):
        MECHANISMS.make("privtree", depth=3)
    for name, options in (
        ("daf_entropy", {"rounding": "upp"}),
        ("daf_entropy", {"stop": "depht", "threshold": 1}),
        ("daf_entropy", {"stop": "depth", "threshold": "3/2"}),
        ("daf_entropy", {"stop": "count", "threshold": 0}),
        ("daf_entropy", {"stop": "entropy", "threshold": -1}),
        ("daf_entropy", {"threshold": 1}),
        ("eug", {"query_size": 0}),
        ("eug", {"query_size": "11/10"}),
        ("daf_homogeneity", {"candidates": 0}),
        ("daf_homogeneity", {"candidates": 2.5}),
        ("daf_homogeneity", {"choosing_share": 1}),
        ("privtree", {"tree_share": 0}),
        ("privtree", {"theta": 0.5}),
    ):
        with pytest.raises(OdError, match=r"next: correct the mechanism's options"):
            MECHANISMS.make(name, **options)
