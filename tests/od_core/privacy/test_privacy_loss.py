"""The exact privacy loss against balls, outcomes one by one and pairs of halves; the promise of the rho it allows."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb

from od_core import OdError
from od_core.privacy import privacy_loss
from od_core.privacy.accounting import compute_tight_epsilon
from od_core.privacy.privacy_loss import compute_exact_delta, compute_exact_epsilon, find_rho_by_loss, is_defined
from tests.od_core.oracles import privacy_loss as oracle

DELTA = Fraction("1e-8")


def uniform(levels: int) -> tuple[Fraction, ...]:
    return (Fraction(1, levels),) * levels


def geography(largest_fan_outs: list[int]) -> tuple[Fraction, ...]:
    """The rule of shares of the method's description, leaf weight 3/2."""
    weights = [1 - Fraction(1, fan_out) for fan_out in largest_fan_outs[1:]] + [Fraction(3, 2)]
    return tuple(weight / sum(weights) for weight in weights)


def variances(rho: Fraction, shares: tuple[Fraction, ...], cells: int) -> list[Fraction]:
    return [cells / (2 * rho * share) for share in shares for _ in range(cells)]


@pytest.mark.parametrize("shifts", [(1, 1), (1, -1), (-1, -1, 1), (2, -2), (3, 3), (7, -7)])
@pytest.mark.parametrize("epsilon", ["0", "0.5", "3"])
def test_is_the_definition_outcome_by_outcome(shifts, epsilon):
    """Whatever the directions of the shifts: the noise is symmetric."""
    most = max(map(abs, shifts))
    of_size = [most**2 * Fraction(size) for size in ("0.4", "2.5", "1.1")][: len(shifts)]
    expected = oracle.delta_of_outcomes(of_size, shifts, Fraction(epsilon))
    found = compute_exact_delta(of_size, Fraction(epsilon), most)
    assert expected * (1 - 1e-12) <= found <= expected * 1.0005


def test_more_mass_than_there_is_never_comes_out():
    assert compute_exact_delta([Fraction(1, 10**6)], Fraction(1)) == 1


@pytest.mark.representatives("4500-1")
@pytest.mark.parametrize("shift", [1, 40])
@pytest.mark.parametrize("sigma", ["4095", "4500"])
def test_blocks_of_integers_are_never_below_the_ball(sigma, shift):
    """Wide noise is taken in blocks; at 4500 they hold three integers."""
    variance = Fraction(sigma) ** 2
    epsilon = shift * Fraction(9, 2) / Fraction(sigma)
    ball = oracle.delta_by_balls(variance, 1, epsilon, shift)
    assert ball < arb(compute_exact_delta([variance], epsilon, shift))
    assert arb(compute_exact_delta([variance], epsilon, shift)) < ball * arb(1.002)


@pytest.mark.parametrize(
    ("sigma", "shift"),
    [
        *((sigma, 1) for sigma in ("0.3", "1", "2.45", "13", "90")),
        *(("0.9", 2), ("4", 3), ("13", 10), ("60", 40), ("3", 40)),
    ],
)
@pytest.mark.parametrize("count", [1, 3, 8])
def test_shifts_by_several_are_never_below_the_ball(sigma, shift, count):
    """At about 3, 4.5 and 6 standard deviations of the loss."""
    variance = Fraction(sigma) ** 2
    for deviations in ("3", "4.5", "6"):
        spread = shift * Fraction(math.sqrt(count / variance))
        epsilon = count * shift**2 / (2 * variance) + Fraction(deviations) * spread
        ball = oracle.delta_by_balls(variance, count, epsilon, shift)
        found = compute_exact_delta([variance] * count, epsilon, shift)
        assert ball < arb(found)
        assert arb(found) < ball * arb(1.002)


@pytest.fixture
def set_slack(monkeypatch):
    """Change VARIANCE_SLACK, of which the kept functions know nothing."""

    def change(slack):
        monkeypatch.setattr(privacy_loss, "VARIANCE_SLACK", slack)
        privacy_loss._make_delta_function.cache_clear()

    yield change
    privacy_loss._make_delta_function.cache_clear()


NOT_MONOTONE = [("0.2", 1, "8"), ("0.2", 2, "11"), ("0.07", 1, "20"), ("0.31", 3, "9")]


@pytest.mark.parametrize(("variance", "count", "epsilon"), NOT_MONOTONE)
def test_wider_noise_can_have_a_larger_delta_and_the_bound_covers_it(variance, count, epsilon, set_slack):
    """With a twentieth of slack, where the larger delta is plain to see, by balls; at 0.07 the largest lies between."""
    planned = Fraction(variance)
    at_two_to_the_minus_30 = compute_exact_delta([planned] * count, Fraction(epsilon))
    for slack in (Fraction(1, 20), Fraction(1, 1000)):
        wider = [planned * (1 + slack * step / 20) for step in range(21)]
        balls = [oracle.delta_by_balls(each, count, Fraction(epsilon)) for each in wider]
        assert max(map(float, balls)) > 1.00001 * float(balls[0])
        assert at_two_to_the_minus_30 < max(map(float, balls))  # so the bound does follow the slack
        set_slack(slack)
        found = compute_exact_delta([planned] * count, Fraction(epsilon))
        assert all(ball < arb(found) for ball in balls)


@pytest.mark.parametrize(("variance", "shift", "epsilon"), [("0.8", 2, "8"), ("1.8", 3, "8"), ("0.3", 2, "20")])
def test_wider_noise_is_covered_for_shifts_by_several(variance, shift, epsilon, set_slack):
    """As derived: no loss within reach grows by more than the slack of the largest one."""
    planned = Fraction(variance)
    largest_loss = shift**2 / (2 * planned) + 9 * Fraction(shift / math.sqrt(planned))
    for slack in (Fraction(1, 20), Fraction(1, 1000)):
        balls = [
            oracle.delta_by_balls(planned * (1 + slack * step / 20), 1, Fraction(epsilon), shift) for step in range(21)
        ]
        set_slack(slack)
        found = compute_exact_delta([planned], Fraction(epsilon), shift)
        assert all(ball < arb(found) for ball in balls)
        assert oracle.delta_by_balls(planned, 1, Fraction(epsilon) - slack * largest_loss, shift) < arb(found)


@pytest.mark.parametrize("slack", ["1/20", "1/1000"])
def test_the_bound_covers_every_mixture_of_wider_levels(slack, set_slack):
    """Each level is wider by a part of its own: 9 by 9 pairs of two levels, outcome by outcome."""
    planned, slack = [Fraction("0.2"), Fraction("0.45")], Fraction(slack)
    set_slack(slack)
    factors = [1 + slack * step / 8 for step in range(9)]
    for epsilon in (Fraction("3.5"), Fraction(6), Fraction(8)):
        found = compute_exact_delta(planned, epsilon)
        for pair in itertools.product(factors, repeat=2):
            wider = [variance * factor for variance, factor in zip(planned, pair, strict=True)]
            assert oracle.delta_of_outcomes(wider, (1, 1), epsilon) <= found


@pytest.mark.parametrize(("variance", "count", "epsilon"), NOT_MONOTONE)
def test_the_slack_of_a_rounding_is_covered_and_costs_next_to_nothing(variance, count, epsilon):
    """Balls at both ends and between them; at the least variance the bound is above by less than 1e-4."""
    planned, slack = Fraction(variance), privacy_loss.VARIANCE_SLACK
    found = arb(compute_exact_delta([planned] * count, Fraction(epsilon)))
    balls = [oracle.delta_by_balls(planned * (1 + slack * step / 4), count, Fraction(epsilon)) for step in range(5)]
    assert all(ball < found for ball in balls)
    assert found < balls[0] * arb(1.0001)


@pytest.mark.parametrize("shift", [1, 5, 90])
def test_a_block_bounds_mass_and_ends_from_above_and_the_mean_from_below(monkeypatch, shift):
    """Each bound by itself, block by block, on a grid so fine that it adds nothing of its own."""
    monkeypatch.setattr(privacy_loss, "_MIN_BLOCK_SIGMA", 16)
    variance, half = 2500.0, 3
    law = privacy_loss._compute_loss_distribution(variance, shift * 2**-20, shift)
    dots = shift * 2**-20 * (law.first + np.arange(len(law.masses)))
    weight = np.exp(-(np.arange(-600, 601) ** 2) / (2 * variance))
    for centre in range(-455, 456, 2 * half + 1):
        inside = np.arange(centre - half, centre + half + 1)
        p, losses = weight[inside + 600] / weight.sum(), -shift * inside / variance
        of_block = np.abs(dots + shift * centre / variance) < shift * (half + 0.5) / variance
        masses, seen = law.masses[of_block], dots[of_block][law.masses[of_block] > 0]
        assert masses.sum() >= p.sum() * (1 - 1e-12)
        assert seen.min() <= losses.min() <= losses.max() <= seen.max()
        mean = np.sum(masses * np.exp(-dots[of_block])) / masses.sum()
        assert mean <= np.sum(p * np.exp(-losses)) / p.sum() * (1 + 1e-12)


@pytest.mark.parametrize(
    ("levels", "epsilon"),
    [
        ([("1.4", 2), ("2.5", 2)], "10"),
        ([("4", 2), ("6.1", 4), ("7.7", 2), ("9.3", 2)], "8"),
        ([("80", 1), ("95", 1), ("300", 1)], "1"),
        ([("0.2", 1), ("40", 1), ("41", 1)], "9"),
        ([("1", 1), ("1e12", 1)], "4"),
    ],
)
def test_unequal_variances_are_never_below_all_pairs_of_halves(levels, epsilon):
    exact = [(Fraction(variance), count) for variance, count in levels]
    known = [level for level in exact if level[0] < 10**6]  # the widest noise loses next to nothing
    expected = oracle.delta_by_halves(known, float(epsilon))
    found = compute_exact_delta([variance for variance, count in exact for _ in range(count)], Fraction(epsilon))
    assert expected * (1 - 1e-9) <= found <= expected * 1.003


def test_tails_that_are_cut_off_count(monkeypatch):
    monkeypatch.setattr(privacy_loss, "_CUTOFF_DEVIATIONS", 4.0)
    monkeypatch.setattr(privacy_loss, "_TAIL", 2 * math.exp(-8))
    for count in (1, 2, 5):
        ball = oracle.delta_by_balls(Fraction(100), count, Fraction("1.2"))
        assert ball < arb(compute_exact_delta([Fraction(100)] * count, Fraction("1.2")))


@pytest.mark.parametrize(
    ("levels", "too_much", "allowed"), [(4, 1.0203, 1.3159), (6, 1.0294, 1.3164), (8, 1.0134, 1.3176)]
)
def test_the_gaussian_formula_alone_is_not_safe_on_integers(levels, too_much, allowed):
    """Figures of the method's description, delta 1e-8, epsilon 10."""
    rho = Fraction("1.318333")
    assert oracle.delta_of_gaussian(float(rho), 10) <= 1e-8
    ball = oracle.delta_by_balls(levels / rho, 2 * levels, Fraction(10))
    assert float(ball) * 1e8 == pytest.approx(too_much, abs=1e-4)
    assert compute_exact_delta(variances(rho, uniform(levels), 2), Fraction(10)) > DELTA
    found = find_rho_by_loss(Fraction(10), DELTA, uniform(levels), (2,) * levels)
    assert float(found) == pytest.approx(allowed, rel=3e-4)


@pytest.mark.representatives
@pytest.mark.parametrize("cells", [1, 2])
@pytest.mark.parametrize("delta", ["1e-6", "1e-8", "1e-12"])
@pytest.mark.parametrize(("levels", "epsilon"), [(2, "0.1"), (2, "1"), (5, "1"), (2, "10"), (4, "10"), (16, "10")])
def test_uniform_rho_keeps_its_promise_and_is_the_largest(levels, epsilon, delta, cells):
    """By balls; half a percent more breaks the promise."""
    rho = find_rho_by_loss(Fraction(epsilon), Fraction(delta), uniform(levels), (cells,) * levels)
    promised = arb(oracle.rational(Fraction(delta)))
    more = rho * Fraction("1.005")
    assert oracle.delta_by_balls(levels * cells / (2 * rho), levels * cells, Fraction(epsilon)) <= promised
    assert oracle.delta_by_balls(levels * cells / (2 * more), levels * cells, Fraction(epsilon)) > promised


@pytest.mark.parametrize("cells", [1, 2])
@pytest.mark.parametrize("shift", [3, 40])
@pytest.mark.parametrize(("levels", "epsilon"), [(2, "0.5"), (4, "1"), (4, "10")])
def test_rho_of_shifts_by_several_keeps_its_promise_and_is_the_largest(levels, epsilon, shift, cells):
    """By balls; half a percent more breaks the promise."""
    rho = find_rho_by_loss(Fraction(epsilon), DELTA, uniform(levels), (cells,) * levels, shift)
    balls = [
        oracle.delta_by_balls(shift**2 * levels * cells / (2 * each), levels * cells, Fraction(epsilon), shift)
        for each in (rho, rho * Fraction("1.005"))
    ]
    promised = arb(oracle.rational(DELTA))
    assert balls[0] <= promised < balls[1]


@pytest.mark.parametrize("delta", ["1e-6", "1e-8"])
@pytest.mark.parametrize(
    ("fan_outs", "epsilon"), [([3, 40], "1"), ([3, 40], "10"), ([4, 4, 9, 9], "10"), ([2, 2, 5, 5, 30, 30], "10")]
)
def test_rho_of_geography_shares_keeps_its_promise_and_is_the_largest(fan_outs, epsilon, delta):
    """By all pairs of halves; half a percent more breaks the promise."""
    shares = geography(fan_outs)
    rho = find_rho_by_loss(Fraction(epsilon), Fraction(delta), shares, (2,) * len(shares))

    def recomputed(rho: Fraction) -> float:
        counts = {share: 2 * shares.count(share) for share in shares}
        return oracle.delta_by_halves([(1 / (rho * share), count) for share, count in counts.items()], float(epsilon))

    assert recomputed(rho) <= float(delta)
    assert recomputed(rho * Fraction("1.005")) > float(delta)


@pytest.mark.parametrize("shift", [1, 12])
@pytest.mark.parametrize("cells", [1, 2])
@pytest.mark.parametrize("rho", ["1e-6", "0.02", "1.3", "40"])
def test_epsilon_holds_its_delta_and_is_the_least(rho, cells, shift):
    release = [shift**2 * variance for variance in variances(Fraction(rho), uniform(4), cells)]
    epsilon = compute_exact_epsilon(tuple(release), DELTA, shift)
    smaller = epsilon * (1 - Fraction(1, 10**6))
    assert compute_exact_delta(release, epsilon, shift) <= DELTA < compute_exact_delta(release, smaller, shift)
    assert epsilon < compute_tight_epsilon(Fraction(rho), DELTA)


def test_delta_below_1e_12_is_not_defined():
    below = Fraction(1, 10**12) - Fraction(1, 10**30)
    assert is_defined(Fraction(1, 10**12))
    assert not is_defined(below)
    assert not is_defined(Fraction(1))
    with pytest.raises(OdError, match="OD-BUDGET-DELTA"):
        find_rho_by_loss(Fraction(1), below, uniform(2), (2,) * 2)
    with pytest.raises(OdError, match="OD-BUDGET-DELTA"):
        compute_exact_epsilon((Fraction(1),), below)


@pytest.mark.parametrize("wrong", [[], [Fraction(0)], [Fraction(1), Fraction(-1)], [Fraction(10**61)]])
def test_variances_that_are_none_are_refused(wrong):
    with pytest.raises(OdError, match="OD-BUDGET-RHO"):
        compute_exact_delta(wrong, Fraction(1))
    with pytest.raises(OdError, match="OD-BUDGET-RHO"):
        compute_exact_epsilon(tuple(wrong), DELTA)
    with pytest.raises(OdError, match="OD-BUDGET-RHO"):
        compute_exact_delta([Fraction(3, 10**30)], Fraction(1), 2)
