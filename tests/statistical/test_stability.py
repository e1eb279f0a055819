"""What survives the threshold: the law of the stability histogram, and OpenDP's own one. Wrong ones are rejected.

Counts all round the threshold, one count at a time, for noise is independent from pair to pair. Of each the share that
is dropped, and the law of the values that are kept.
"""

from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from numpy.typing import NDArray
from scipy import stats

from od_core.noise.backends import resolve_noise_source
from od_core.privacy.stability import compute_laplace_scale, compute_stability_threshold
from od_core.privacy.unit import TRIP
from tests.od_core.oracles.stability import at_least
from tests.statistical.laws import ALPHA

dp.enable_features("contrib")  # OpenDP asks that users of unvetted parts say so

SCALE = compute_laplace_scale(TRIP, Fraction(1))
THRESHOLD = compute_stability_threshold(TRIP, Fraction(1), Fraction(1, 100))
COUNTS = [1, THRESHOLD - 3, THRESHOLD, THRESHOLD + 6]
DRAWS = 200_000


def kept_by_us(backend: str, count: int, scale: Fraction = SCALE, threshold: int = THRESHOLD) -> NDArray[np.int64]:
    """Noise added to so many equal counts, and what reaches the threshold."""
    noisy = count + resolve_noise_source(backend).draw_laplace(scale, DRAWS)
    return noisy[noisy >= threshold]


def kept_by_opendp(count: int) -> NDArray[np.int64]:
    integers = dp.atom_domain(T="i64")
    space = dp.map_domain(integers, integers), dp.l01inf_distance(dp.absolute_distance(T="i64"))
    thresholded = dp.m.make_laplace_threshold(*space, scale=float(SCALE), threshold=THRESHOLD)
    return np.array(list(thresholded(dict.fromkeys(range(DRAWS), count)).values()), dtype=np.int64)


def chances(count: int, scale: Fraction = SCALE, threshold: int = THRESHOLD) -> NDArray[np.float64]:
    """P of dropped, of THRESHOLD, THRESHOLD + 1, ..., and of a last and all above it, which is expected 100 times."""
    last = THRESHOLD
    while at_least(last + 1 - count, SCALE) * DRAWS > 100:
        last += 1
    reached = [float(at_least(max(value, threshold) - count, scale)) for value in range(THRESHOLD, last + 1)]
    return -np.diff([1.0, *reached, 0.0])


def observed(kept: NDArray[np.int64], bins: int) -> NDArray[np.int64]:
    """How many are dropped, and how many have each value, as in ``chances``."""
    values = np.bincount(np.minimum(kept - THRESHOLD, bins - 2), minlength=bins - 1)
    return np.array([DRAWS - len(kept), *values])


def p_value(kept: NDArray[np.int64], count: int) -> float:
    right = chances(count)
    return float(stats.chisquare(observed(kept, len(right)), right * DRAWS).pvalue)


def chance_to_miss(count: int, wrong: NDArray[np.float64], samples: int) -> float:
    """Probability that a wrong law passes: of one sample against the law, or of two against each other."""
    right = chances(count)
    mixed = right if samples == 1 else (right + wrong) / 2
    shift = DRAWS / samples * float(((wrong - right) ** 2 / mixed).sum())
    degrees = len(right) - 1
    return float(stats.ncx2.cdf(stats.chi2.isf(ALPHA, degrees), degrees, shift))


def same_law_p_value(one: NDArray[np.int64], other: NDArray[np.int64], count: int) -> float:
    bins = len(chances(count))
    return float(stats.chi2_contingency([observed(one, bins), observed(other, bins)]).pvalue)


@pytest.fixture(scope="module", params=COUNTS)
def opendp(request) -> tuple[int, NDArray[np.int64]]:
    """A count, and what OpenDP keeps of it."""
    return request.param, kept_by_opendp(request.param)


@pytest.mark.parametrize("backend", ["opendp", "table"])
def test_what_is_kept_has_the_law_and_is_what_opendp_keeps(backend, opendp):
    """Each comparison fails with probability 1e-6 if the noise is right."""
    count, theirs = opendp
    ours = kept_by_us(backend, count)
    assert p_value(theirs, count) > ALPHA
    assert p_value(ours, count) > ALPHA
    assert same_law_p_value(ours, theirs, count) > ALPHA


@pytest.mark.parametrize(
    ("scale", "threshold"),
    [(SCALE * Fraction(9, 10), THRESHOLD), (SCALE * Fraction(11, 10), THRESHOLD), (SCALE, THRESHOLD + 1)],
    ids=["less noise", "more noise", "what equals the threshold dropped"],
)
def test_another_scale_and_another_threshold_are_rejected(scale, threshold, opendp):
    """Fails by chance with a probability below 1e-5."""
    count, theirs = opendp
    kept, wrong = kept_by_us("table", count, scale, threshold), chances(count, scale, threshold)
    assert max(chance_to_miss(count, wrong, samples) for samples in (1, 2)) < 1e-5
    assert p_value(kept, count) < ALPHA
    assert same_law_p_value(kept, theirs, count) < ALPHA
