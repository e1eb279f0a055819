"""Segments that are moved towards the profile of their parent: by the formula, by no more than asked, by size.

The oracle has its own estimates (``conditional``: the solution of normal equations), and its own sizes.
"""

import numpy as np
import pytest
from numpy.typing import NDArray

from od_core import Budget, InfTDARefined, OdError, PrivacyUnit, ReleasePlan, plan_release
from od_core.flows.estimation.refinement import move_to_profile
from tests.od_core.flows.projection.margin_families import BITS, Family, conditional, margin_matrix, noisy_family
from tests.od_core.strategies import geography_of

ZONES = [("a", "aa"), ("a", "ab"), ("b", "ba"), ("b", "bb")]
VARIANCE = 90.0
"""Variance of a child of the largest weight."""


def moved(families: list[Family], most: float = 1.0) -> list[NDArray[np.float64]]:
    """The moved estimates of all families of a level."""
    truth = [family.truth for family in families]
    offsets = np.cumsum([0, *map(len, truth)])
    weights = np.concatenate([family.weights for family in families])
    fixed = np.concatenate([family.fixed for family in families])
    totals = np.concatenate([table.sum(axis=1) for table in truth])
    by_category = np.array([table.sum(axis=0) for table in truth])
    variances = weights / 2**20 * VARIANCE
    result = move_to_profile(fixed, weights, variances, totals, by_category, offsets, BITS, most)
    return np.split(result / 2**BITS, offsets[1:-1])


def profile_and_noise(family: Family) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The profile p, and the variance of the noise of the fitted estimates, of the rows and columns left.

    The covariance of estimates that are fitted to linear margins A is V - V A' (A V A')^+ A V.
    """
    rows, columns = family.left
    truth, v = family.truth[np.ix_(rows, columns)], family.weights[rows] / 2**20 * VARIANCE
    p = np.outer(truth.sum(axis=1), truth.sum(axis=0)) / truth.sum()
    margins = margin_matrix(*truth.shape).toarray()
    covariance = np.diag(np.repeat(v, len(columns)))
    covariance -= covariance @ margins.T @ np.linalg.pinv(margins @ covariance @ margins.T) @ margins @ covariance
    return p, np.diag(covariance).reshape(p.shape)


def expected(family: Family, deviation: float, most: float) -> NDArray[np.float64]:
    """The formula, for a given tau^2."""
    p, noise = profile_and_noise(family)
    fitted = conditional(family)
    step = (p - fitted) * noise / (noise + deviation)
    return fitted + np.clip(step, -most * noise**0.5, most * noise**0.5)


def deviation_of(families: list[Family]) -> float:
    """tau^2 of these families together."""
    terms = []
    for family in families:
        p, noise = profile_and_noise(family)
        terms.append(((conditional(family) - p) ** 2 - noise).ravel())
    return max(0.0, float(np.concatenate(terms).mean()))


def choosing(family: Family) -> bool:
    """Whether a family has several rows and several columns with trips."""
    return min(map(len, family.left)) > 1


@pytest.mark.representatives
@pytest.mark.parametrize("spread", [1.0, 30.0])
@pytest.mark.parametrize("most", [0.5, 1.0, 100.0])
def test_estimates_move_by_the_formula(spread, most):
    """Families of fewer than 400 cells, which share one tau^2."""
    rng = np.random.default_rng(int(spread))
    for _ in range(5):
        families = [one for one in (noisy_family(rng, 8, 5, spread) for _ in range(8)) if choosing(one)]
        tau = deviation_of(families)
        for family, result in zip(families, moved(families, most), strict=True):
            found = result[np.ix_(*family.left)]
            assert np.abs(found - expected(family, tau, most)).max() < 1e-2


def test_large_and_small_cells_are_learned_apart():
    """Large cells that follow their profile move to it, though small ones do not follow theirs."""
    rng = np.random.default_rng(5)
    shape, noise = (40, 8), VARIANCE**0.5
    weights = np.full(shape[0], 2**20)
    large = np.full(shape, 10_000)
    small = np.tile(160 * np.eye(8, dtype=np.int64), (5, 1))
    families = [Family(table + rng.normal(0, noise, shape), weights, table) for table in (large, small)]
    followed, unfollowed = moved(families, most=100.0)
    assert np.abs(followed - large).mean() < 0.3 * noise
    fitted = conditional(families[1])
    assert np.abs(unfollowed[np.ix_(*families[1].left)] - fitted).mean() < 0.1 * noise


def test_families_without_a_choice_are_unchanged():
    """One child, one category, no trips: their tables follow from the margins. And what overflows is refused later."""
    weights = np.full(3, 2**20)
    one_row = np.array([[5, 0, 3], [0, 0, 0], [0, 0, 0]])
    for truth in (one_row, one_row.T, np.zeros((3, 3), dtype=np.int64)):
        family = Family(np.arange(9.0).reshape(3, 3), weights, truth)
        assert (moved([family])[0] == family.estimates).all()
    too_large = Family(np.full((3, 3), 2.0**38), weights, one_row + one_row.T)
    assert (moved([too_large])[0] == too_large.estimates).all()


def planned(**options) -> ReleasePlan:
    bands, segments = options.pop("bands", None), options.pop("segments", {"mode": ["car", "bus"]})
    given = {"unit": PrivacyUnit("trip"), "budget": Budget(rho=1, delta="1e-8"), "mechanism": InfTDARefined(**options)}
    return plan_release(geography_of(ZONES), **given, segments=segments, bands=bands)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"segment_profile": 0}, "OD-MECHANISM-OPTION"),
        ({"segment_profile": "a lot"}, "OD-MECHANISM-OPTION"),
        ({"segment_profile": 1, "segments": None}, "OD-SEGMENT-MECHANISM"),
    ],
)
def test_what_cannot_be_done_is_refused(options, code):
    with pytest.raises(OdError, match="segment_profile") as refused:
        planned(**options)
    assert refused.value.code == code
