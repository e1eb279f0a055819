"""What the splits of a path can tell: the proven bound against every sequence of counts, and the scales in use."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st

from od_core import Grid, OdError
from od_core.stops import mechanisms as privtree
from od_core.stops.mechanisms import BudgetPath, PrivTree, compute_path_cost, find_scale_and_decay
from tests.od_core.oracles.privacy_loss import precision, rational
from tests.od_core.stops.doubles import Recorded


def splits(count: int, depth: int, scale: Fraction, decay: int, theta: int) -> arb:
    """P(max(count - depth decay, theta - decay) + L > theta), from the law P(L >= k) = a^k / (1 + a), k >= 1."""
    least = theta + 1 - max(count - depth * decay, theta - decay)  # of L
    a = (-1 / arb(rational(scale))).exp()
    return a**least / (1 + a) if least >= 1 else 1 - a ** (1 - least) / (1 + a)


def most_told(counts_up_to: int, depths: int, scale: Fraction, decay: int, theta: int, sensitivity: int) -> float:
    """The largest log ratio over all counts of one path, from the definition; of two paths below the root for 2.

    A tree tells how many of the tested nodes split; with one trip more each of their counts is one more.
    """
    with precision(256):
        told = {1: -math.inf, -1: -math.inf}
        for counts in itertools.combinations_with_replacement(range(counts_up_to, -1, -1), depths):
            without, more = 0, 0  # of the nodes that have split, as logarithms
            for depth, count in enumerate(counts):
                few = splits(count, depth, scale, decay, theta)
                many = splits(count + 1, depth, scale, decay, theta)
                stops = float((1 - many).log() - (1 - few).log()) + more - without
                without += float(few.log())
                more += float(many.log())
                told[1] = max(told[1], stops, more - without)
                told[-1] = max(told[-1], -stops, without - more)
        return max(told.values()) if sensitivity == 1 else told[1] + told[-1]


CASES = [
    (Fraction(3, 2), 2, 0, 5, 4),
    (Fraction(3, 2), 2, 3, 8, 4),
    (Fraction(3), 3, 0, 9, 4),
    (Fraction(3, 5), 1, 0, 5, 5),
    (Fraction(3, 5), 1, -2, 5, 5),
    (Fraction(1), 1, 1, 6, 5),
    (Fraction(2), 1, 0, 6, 6),  # decays too slowly: costs more than 3 / scale
]


@pytest.mark.parametrize("sensitivity", [1, 2])
@pytest.mark.parametrize(("scale", "decay", "theta", "counts_up_to", "depths"), CASES)
def test_no_sequence_of_counts_tells_more_than_the_bound_and_some_nearly_as_much(
    scale, decay, theta, counts_up_to, depths, sensitivity
):
    """Paths this short reach all but the far terms, which fall by half and more each: less than 8 % is missing."""
    told = most_told(counts_up_to, depths, scale, decay, theta, sensitivity)
    bound = float(compute_path_cost(scale, decay, sensitivity))
    assert told <= bound
    assert told >= bound * 0.92


@given(st.fractions("1/10000", 1000), st.sampled_from([1, 2]))
def test_the_scales_of_a_plan_cost_no_more_than_the_theorem_says(epsilon, sensitivity):
    scale, decay = find_scale_and_decay(epsilon, sensitivity)
    paper = 3 * sensitivity / epsilon
    assert scale <= paper
    assert (scale / paper * 1000).denominator == 1
    assert decay == math.ceil(float(scale) * math.log(2) * (1 + 1e-9))
    assert compute_path_cost(scale, decay, sensitivity) <= epsilon


@pytest.mark.parametrize(("sensitivity", "share"), [(1, 0.866), (2, 0.601)])
def test_lambda_is_the_least_that_is_proven(sensitivity, share):
    """A little more than what the paper's lambda costs of its epsilon; a little less is not proven."""
    paper = 3 * sensitivity / Fraction(7, 100)
    scale, _ = find_scale_and_decay(Fraction(7, 100), sensitivity)
    assert float(scale / paper) == pytest.approx(share, abs=2e-3)
    narrower = scale - paper / 1000
    assert compute_path_cost(narrower, math.ceil(narrower * math.log(2)), sensitivity) > Fraction(7, 100)


def test_the_cost_covers_scales_that_a_backend_rounds_up():
    scale, decay = find_scale_and_decay(Fraction(1, 3), 1)
    wider = compute_path_cost(scale * (1 + Fraction(1, 1 << 31)), decay, 1)
    assert wider - compute_path_cost(scale, decay, 1) < Fraction(1, 1 << 29)
    narrow = compute_path_cost(Fraction(1), 1, 1)
    a = math.exp(-1)
    exact = 2 + sum(math.log((1 + a - a ** (k + 1)) / (1 + a - a**k)) for k in range(1, 60))
    assert 0 < narrow - exact < 1e-8  # above it by the slack of the scale, and no more


@pytest.mark.parametrize(("scale", "decay"), [(1000, 1), (50, 1), (100_000, 40)])
def test_terms_that_are_not_summed_one_by_one_are_covered(scale, decay):
    """Where depth lowers counts far too slowly, most of the cost lies beyond the first terms."""
    a = math.exp(-1 / scale)
    powers = (a ** (k * decay) for k in range(1, 40 * scale // decay))
    far = sum(math.log((1 + a - a * power) / (1 + a - power)) for power in powers)
    cost = float(compute_path_cost(Fraction(scale), decay, 1))
    assert 2 / scale + far <= cost <= 1.5 * (2 / scale + far)


@pytest.mark.parametrize("wrong", ["decay", "scale"])
def test_a_tree_that_would_cost_more_is_refused(wrong, monkeypatch):
    """Delta of a tenth of what the theorem asks for, or noise of half the width."""
    find_scale_and_decay.cache_clear()
    if wrong == "decay":
        monkeypatch.setattr(privtree, "_LN_2", Fraction(7, 100))
    else:
        monkeypatch.setattr(
            privtree, "compute_path_cost", lambda scale, decay, s: compute_path_cost(scale / 2, decay, s)
        )
    for mechanism_says in (
        lambda: PrivTree().compute_noise_scales(Fraction(1, 10), 1),
        lambda: PrivTree().draw_boxes(
            np.zeros((5, 1), dtype=np.int32), Grid((4,)), BudgetPath(Recorded(), 1, Fraction(1, 10))
        ),
    ):
        with pytest.raises(OdError, match="OD-STOPS-PATH-COST"):
            mechanism_says()


@pytest.mark.parametrize("sensitivity", [1, 2])
def test_scales_in_use(sensitivity):
    """The proven lambda at every depth, leaves with the rest, twice as wide for replaced trips."""
    epsilon = Fraction(1, 2)
    source = Recorded(3)
    points = np.random.default_rng(1).integers(0, 8, (5000, 2)).astype(np.int32)
    drawn = PrivTree().draw_boxes(points, Grid((8, 8)), BudgetPath(source, sensitivity, epsilon))
    assert set(source.scales[:-1]) == {find_scale_and_decay(Fraction(7, 10) * epsilon, sensitivity)[0]}
    assert source.scales[-1] == sensitivity / (Fraction(3, 10) * epsilon)
    assert source.sizes[-1] == len(drawn.boxes)
    assert len(source.scales) > 4
