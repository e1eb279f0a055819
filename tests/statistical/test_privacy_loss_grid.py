"""The promise of the rho by exact accounting on a long grid: nothing here is random, it only takes its time."""

from fractions import Fraction

import pytest
from flint import arb

from od_core.privacy.privacy_loss import find_rho_by_loss
from tests.od_core.oracles import privacy_loss as oracle

LEVELS = (2, 3, 4, 6, 8, 11, 16)
GRID = [("geography", levels) for levels in range(2, 17)]
GRID += [("uniform", levels) for levels in range(2, 17) if levels not in LEVELS]
FAN_OUTS = (4, 4, 3, 3, 9, 9, 60, 60, 2, 2, 5, 5, 20, 20, 7, 7)


@pytest.mark.parametrize("delta", ["1e-6", "1e-8"])
@pytest.mark.parametrize("epsilon", ["0.1", "1", "10"])
@pytest.mark.parametrize("levels", LEVELS)
def test_uniform_shares_by_balls(levels, epsilon, delta):
    shares = (Fraction(1, levels),) * levels
    rho = find_rho_by_loss(Fraction(epsilon), Fraction(delta), shares, (2,) * len(shares))
    promised, more = arb(oracle.rational(Fraction(delta))), rho * Fraction("1.005")
    assert oracle.delta_by_balls(levels / rho, 2 * levels, Fraction(epsilon)) <= promised
    assert oracle.delta_by_balls(levels / more, 2 * levels, Fraction(epsilon)) > promised


@pytest.mark.parametrize(("epsilon", "number"), [("0.1", 0), ("1", 1), ("10", 2)])
@pytest.mark.parametrize(("rule", "levels"), GRID)
def test_shares_by_a_grid_a_hundred_times_as_fine(rule, levels, epsilon, number):
    """Each number of levels with both deltas, in turn."""
    delta = ("1e-6", "1e-8")[(levels + number) % 2]
    by_geography = [1 - Fraction(1, fan_out) for fan_out in FAN_OUTS[1:levels]] + [Fraction(3, 2)]
    weights = by_geography if rule == "geography" else [Fraction(1)] * levels
    shares = tuple(weight / sum(weights) for weight in weights)
    rho = find_rho_by_loss(Fraction(epsilon), Fraction(delta), shares, (2,) * len(shares))

    def recomputed(rho, fineness):
        counts = {share: 2 * shares.count(share) for share in shares}
        release = [(1 / (rho * share), count) for share, count in counts.items()]
        return oracle.delta_by_nearest(release, float(epsilon), float(epsilon) / fineness)

    assert recomputed(rho, 2**18) <= float(delta) * 1.0001
    assert recomputed(rho * Fraction("1.005"), 2**14) > float(delta)  # by percents; it sees a thousandth
