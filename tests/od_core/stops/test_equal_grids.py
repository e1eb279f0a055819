"""Grids of nearly equal boxes: formulas against the problems they solve, partition, counts and charges."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import minimize_scalar

from od_core import Grid, OdError
from od_core.stops import mechanisms as equal_grid
from od_core.stops.mechanisms import EBP, EUG, MKM, BudgetPath, Identity, Uniform
from tests.od_core.stops.doubles import Recorded
from tests.od_core.stops.worlds import covered

MECHANISMS = {"identity": Identity, "uniform": Uniform, "eug": EUG, "ebp": EBP, "mkm": MKM}
COUNTING = ("eug", "ebp", "mkm")


@st.composite
def worlds(draw, most_cells=10**12):
    """A grid of 1 to 6 dimensions with sides from 1 to 19, and up to 5,000 points, some of them crowded."""
    sizes = draw(st.lists(st.integers(1, 19), min_size=1, max_size=6).filter(lambda s: math.prod(s) <= most_cells))
    count, seed = draw(st.sampled_from([0, 1, 2, 50, 5_000])), draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    points = (random.random((count, len(sizes))) ** draw(st.sampled_from([1, 4])) * sizes).astype(np.int32)
    return Grid(tuple(sizes)), points


def drawn(mechanism, points, grid, noise, *, sensitivity=1, epsilon=Fraction(1, 3)):
    mechanism.refuse_grid(grid)
    return mechanism.draw_boxes(points, grid, BudgetPath(noise, sensitivity, epsilon))


def enclosed(points, lower, upper):
    """Points in each box, box by box."""
    return [int(((points >= low) & (points <= high)).all(axis=1).sum()) for low, high in zip(lower, upper, strict=True)]


@pytest.mark.parametrize("name", MECHANISMS)
@given(data=st.data())
def test_boxes_partition_the_space_and_hold_their_points(name, data):
    grid, points = data.draw(worlds(most_cells=800))
    epsilon = data.draw(st.sampled_from([Fraction(1, 10), Fraction(3), Fraction(1000)]))
    boxes = drawn(MECHANISMS[name](), points.copy(), grid, Recorded(width=0), epsilon=epsilon).boxes
    assert boxes.lower.dtype == boxes.upper.dtype == np.int32
    assert (covered(grid.sizes, boxes.lower, boxes.upper) == 1).all()
    assert boxes.noisy.tolist() == enclosed(points, boxes.lower, boxes.upper)
    for side, (low, high) in enumerate(zip(boxes.lower.T, boxes.upper.T, strict=True)):
        lengths = high - low + 1
        assert lengths.max() - lengths.min() <= 1, side  # nearly equal


@pytest.mark.parametrize("name", COUNTING)
@given(world=worlds(), epsilon=st.fractions("1/100", 5), sensitivity=st.sampled_from([1, 2]))
def test_the_charges_of_a_counting_grid_sum_to_epsilon(name, world, epsilon, sensitivity):
    """A hundredth for N, the rest for the boxes; a replaced trip doubles both scales."""
    grid, points = world
    noise = Recorded(width=0)
    result = drawn(MECHANISMS[name](), points, grid, noise, sensitivity=sensitivity, epsilon=epsilon)
    boxes = len(result.boxes)
    scales = {"total": sensitivity / (epsilon / 100), "boxes": sensitivity / (epsilon * 99 / 100)}
    assert noise.draws == [(scales["total"], 1), (scales["boxes"], boxes)]
    assert MECHANISMS[name]().compute_noise_scales(epsilon, sensitivity) == scales
    assert [(path.spent, path.left) for path in result.paths] == [(epsilon, 0)]
    volumes = np.prod(result.boxes.upper.astype(object) - result.boxes.lower + 1, axis=1)
    assert volumes.sum() == grid.cells
    assert result.boxes.noisy.sum() == len(points)


@pytest.mark.parametrize("name", ["identity", "uniform"])
@given(world=worlds(most_cells=800), sensitivity=st.sampled_from([1, 2]))
def test_the_other_two_spend_all_on_their_boxes(name, world, sensitivity):
    grid, points = world
    noise, epsilon = Recorded(values=(5, -7)), Fraction(1, 7)
    result = drawn(MECHANISMS[name](), points, grid, noise, sensitivity=sensitivity, epsilon=epsilon)
    boxes = grid.cells if name == "identity" else 1
    assert noise.draws == [(sensitivity / epsilon, boxes)]
    assert MECHANISMS[name]().compute_noise_scales(epsilon, sensitivity) == {"boxes": sensitivity / epsilon}
    assert [(path.spent, path.left) for path in result.paths] == [(epsilon, 0)]
    truth = enclosed(points, result.boxes.lower, result.boxes.upper)
    assert (result.boxes.noisy - truth).tolist() == np.resize([5, -7], boxes).tolist()  # as drawn, never cut at 0


@pytest.mark.parametrize(("dimensions", "total"), [(2, 5_000.0), (3, 1e6), (6, 5_000.0)])
def test_eug_solves_the_problem_that_the_paper_states(dimensions, total):
    """Equation 6 minimised over m by search, and the minimum averaged over the sizes r of queries by quadrature."""
    rate, c_0 = 0.37, 10 / math.sqrt(2)

    def error(log_m, r):
        m = math.exp(log_m)
        noise = math.sqrt(2 * r) * m ** (dimensions / 2) / rate
        return noise + r ** (1 / dimensions) * total / (c_0 * m ** (dimensions - 1))

    def best(r):
        return math.exp(minimize_scalar(error, args=(r,), bounds=(-5, 15), method="bounded", options={"xatol": 1e-9}).x)

    expected = quad(best, 0, 1, limit=200)[0]
    assert EUG().compute_unrounded_parts(total, rate, dimensions) == pytest.approx(expected, rel=1e-4)
    for size in ("1/1000", "1/4", "1"):  # equation 8
        known = EUG(query_size=size).compute_unrounded_parts(total, rate, dimensions)
        assert known == pytest.approx(best(float(Fraction(size))), rel=1e-4)


def test_mkm_is_the_full_grid_on_the_papers_data():
    """One over the bin width (sqrt(ln n) / n)^(2 / (d + 2)); 1,000,000 points on sides of 1,000,000^(1/d)."""
    for dimensions, side in ((2, 1_000), (4, 32), (6, 10)):
        width = (math.sqrt(math.log(1e6)) / 1e6) ** (2 / (dimensions + 2))
        assert MKM().compute_unrounded_parts(1e6, 0.1, dimensions) == pytest.approx(1 / width)
        is_full = MKM().compute_parts(10**6, Fraction(1, 10), Grid((side,) * dimensions)) == (side,) * dimensions
        assert is_full == (dimensions > 2)


class Fixed(equal_grid.EqualGrid):
    """Test double: a fan-out of its own."""

    name = "fixed"

    def __init__(self, m):
        self.m = m

    def compute_unrounded_parts(self, total, rate, dimensions):
        return self.m


@pytest.mark.parametrize(
    ("m", "parts"),
    [(0.2, 1), (1.49, 1), (1.5, 2), (2.5, 3), (6.49, 6), (6.51, 7), (7.2, 7), (9.6, 7), (1e300, 7), (math.inf, 7)],
)
def test_m_goes_to_the_nearest_whole_number_of_parts(m, parts):
    assert Fixed(m).compute_parts(100, Fraction(1), Grid((7, 1, 1000)))[:2] == (parts, 1)


@pytest.mark.parametrize("name", COUNTING)
def test_m_is_of_the_noisy_total_and_of_the_budget_that_is_left(name):
    """Not of the true total; and noise of twice the scale is that of half the epsilon."""
    mechanism, grid, epsilon = MECHANISMS[name](), Grid((1_000_000, 1)), Fraction(1, 2)
    points = np.zeros((3, 2), dtype=np.int32)
    for sensitivity in (1, 2):
        noise = Recorded(values=(10**9,))
        boxes = drawn(mechanism, points, grid, noise, sensitivity=sensitivity, epsilon=epsilon).boxes
        m = mechanism.compute_unrounded_parts(1e9 + 3, float(epsilon * 99 / 100 / sensitivity), 2)
        assert len(boxes) == math.floor(m + 0.5) > 400  # so many that a hundredth of epsilon is seen


def test_identity_refuses_by_the_grid_alone():
    grid = Grid((1000, 1000, 11))
    with pytest.raises(OdError, match=r"'identity' would cut the space into 11,000,000 boxes.*nothing was spent"):
        Identity().refuse_grid(grid)
    noise = Recorded(width=0)
    with pytest.raises(OdError, match="OD-STOPS-TOO-MANY-BOXES"):
        Identity().draw_boxes(np.empty((0, 3), dtype=np.int32), grid, BudgetPath(noise, 1, Fraction(1)))
    assert noise.draws == []
    Identity().refuse_grid(Grid((2**20, 8)))
    with pytest.raises(OdError, match="8,388,609 boxes, but at most 8,388,608 are allowed"):
        Identity().refuse_grid(Grid((2**23 + 1,)))


@pytest.mark.parametrize("name", COUNTING)
def test_other_grids_are_refused_when_the_noisy_total_is_known(name):
    """By the number of boxes; the total is drawn by then and stays charged, and nothing else is."""
    grid, noise = Grid((2**31,) * 3), Recorded(values=(10**18,))
    with pytest.raises(OdError, match=r"cut the space into [0-9,]{11,} boxes.*stays charged") as caught:
        drawn(MECHANISMS[name](), np.empty((0, 3), dtype=np.int32), grid, noise)
    assert caught.value.code == "OD-STOPS-TOO-MANY-BOXES"
    assert len(noise.draws) == 1


def test_sides_of_two_to_the_31_are_cut_without_overflow():
    """Cells at both ends of every part, by exact integers."""
    size, parts = 2**31, 999
    starts = [part * size // parts for part in range(parts)]
    ends = [(part + 1) * size // parts - 1 for part in range(parts)]
    points = np.array([starts + ends], dtype=np.int32).T
    path = BudgetPath(Recorded(width=0), 1, Fraction(1))
    boxes = equal_grid.draw_equal_boxes(points, Grid((size,)), (parts,), path).boxes
    assert boxes.noisy.tolist() == [2] * parts
    assert boxes.lower[:, 0].tolist() == starts
    assert boxes.upper[:, 0].tolist() == ends
