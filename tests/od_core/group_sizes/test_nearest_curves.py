"""M_c and M_c^r of [fioretto2019hierarchical]: against another solver, enumeration, and what they promise."""

from fractions import Fraction
from itertools import combinations_with_replacement, product

import cvxpy as cp
import numpy as np
import pytest

from od_core.errors import OdError
from od_core.group_sizes.groups import Counts, Frame
from od_core.group_sizes.mechanisms import CumulativeNearest, CumulativeRelaxed
from od_core.group_sizes.nearest_curves import find_optimal_curves, fit_real_curves, round_curves
from tests.od_core.group_sizes.trees import assert_consistent, by_clarabel, cost, random_case


def cumulative_case(rng: np.random.Generator, **limits: int) -> tuple[Frame, list[Counts], Fraction]:
    frame, noisy, scale = random_case(rng, **limits)
    return frame, [np.cumsum(values, axis=1)[:, :-1] for values in noisy], Fraction(scale)


def by_enumeration(frame: Frame, noisy: list[Counts]) -> int:
    """The least cost of all ascending whole curves."""
    curves = [list(combinations_with_replacement(range(total + 1), frame.top_code)) for total in frame.groups.tolist()]
    return min(cost(noisy, frame.sum_every_level(np.array(leaves))) for leaves in product(*curves))


def test_the_relaxation_is_what_a_solver_finds_on_20_trees():
    rng = np.random.default_rng(40)
    for _ in range(20):
        frame, noisy, _ = cumulative_case(rng, most_groups=30, most_sizes=10, max_fan_out=4)
        x = [cp.Variable(values.shape, nonneg=True) for values in noisy]
        conditions = [x[-1] <= np.tile(frame.groups[:, None], frame.top_code)]
        if frame.top_code > 1:
            conditions += [one[:, :-1] <= one[:, 1:] for one in x]
        for ours, theirs in zip(fit_real_curves(frame, noisy), by_clarabel(frame, noisy, x, conditions), strict=True):
            assert ours == pytest.approx(theirs, abs=0.1)


def test_the_exact_one_is_the_best_of_all_on_30_trees_from_any_start():
    rng, trees = np.random.default_rng(61), 0
    while trees < 30:
        frame, noisy, _ = cumulative_case(rng, most_groups=3, most_sizes=4)
        if len(frame.groups) > 4:
            continue
        exact = find_optimal_curves(frame, noisy, np.zeros_like(noisy[-1]))
        assert cost(noisy, exact) == by_enumeration(frame, noisy)
        trees += 1


def test_both_keep_their_promises():
    rng, broken = np.random.default_rng(62), 0
    for _ in range(25):
        frame, noisy, scale = cumulative_case(rng, most_groups=40, most_sizes=30, max_fan_out=5)
        assert_consistent(frame, CumulativeNearest().estimate(frame, noisy, scale), all_totals=True)
        relaxed = CumulativeRelaxed().estimate(frame, noisy, scale)
        for values, level in zip(relaxed, frame.levels, strict=True):
            assert values.min() >= 0
            assert (values.sum(axis=1) == frame.count_groups(level)).all()
        sums = [frame.sum_at_level(relaxed[-1], level) for level in range(1, len(relaxed) + 1)]
        broken += any((values != own).any() for values, own in zip(relaxed, sums, strict=True))
    assert broken > 8


@pytest.mark.parametrize("spread", [0.0, 1.0, 100.0])
def test_any_curves_are_rounded_to_some_that_ascend_and_add_up(spread):
    rng = np.random.default_rng(68)
    for _ in range(100):
        frame, noisy, _ = cumulative_case(rng)
        curves = round_curves(frame, [values + rng.normal(0.0, spread, values.shape) for values in noisy])
        for values, level in zip(curves, frame.levels, strict=True):
            assert (np.diff(values, axis=1, prepend=0, append=frame.count_groups(level)[:, None]) >= 0).all()
            assert (values == frame.sum_at_level(curves[-1], level)).all()


def test_values_from_the_limit_on_and_other_shapes_are_refused():
    frame, noisy, scale = cumulative_case(np.random.default_rng(66))
    for mechanism in (CumulativeNearest(), CumulativeRelaxed()):
        with pytest.raises(OdError, match="OD-GROUPS-SHAPE"):
            mechanism.estimate(frame, noisy[:-1], scale)
        with pytest.raises(OdError, match="OD-GROUPS-OVERFLOW"):
            mechanism.estimate(frame, [*noisy[:-1], noisy[-1] + 2**40], scale)
