"""Audit of cumulative counts: in a chain through all areas of a level, and area by area.

The proof is in docs/explanation/group-sizes.md.

Neighbours: one trip more in the first area moves a group from size j to size j + 1. An auditor knows both tables and
sees the noisy values of one. Each value that the trip changes falls by one, so with noise P(k) ~ exp(-|k| / scale) it
speaks for "before" by 1 / scale where it is at least its value before, else for "after" by as much. The likelihood
ratio is therefore a function of how many speak for "before", and the best event of a given size is "at least t do"
(Neyman and Pearson). If the release is epsilon-private, its probability before is at most e^epsilon times that after;
so a Clopper and Pearson bound from below of the one and from above of the other bound epsilon from below.

Each bound fails with probability 5e-7, so both with 1e-6 at most; t is fixed by the law of the noise before any draw.
"""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from od_core.noise.backends import require_laplace_source, resolve_noise_source
from tests.statistical.laws import least_epsilon, sure_epsilon

CLAIM = Fraction(1, 2)
SCALE = 1 / CLAIM
"""One level is measured, and the claimed sensitivity is 1: scale L / epsilon."""

AREAS, SIZES, SIZE = 20, 6, 2
"""Areas of the level; sizes 0 to K; the size of the group that the trip joins."""

RUNS = 1_000_000
"""Releases of each table."""

Query = Callable[[NDArray[np.int64]], NDArray[np.int64]]


def chain(histograms: NDArray[np.int64]) -> NDArray[np.int64]:
    """Cumulative counts of M_c^ch at one level: the areas of size 0, then those of size 1, and so on in one sum."""
    return np.cumsum(histograms.T.ravel())[:-1]


def area_by_area(histograms: NDArray[np.int64]) -> NDArray[np.int64]:
    """Cumulative counts of each area but for the last, which is public: the query ``cumulative``."""
    return np.cumsum(histograms, axis=1)[:, :-1].ravel()


def changed(query: Query) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The values that the trip changes, before and after."""
    before = np.full((AREAS, SIZES), 10, dtype=np.int64)
    after = before.copy()
    after[0, SIZE] -= 1
    after[0, SIZE + 1] += 1
    values = query(before), query(after)
    differs = values[0] != values[1]
    return values[0][differs], values[1][differs]


def chances(values: int, scale: Fraction, threshold: int) -> tuple[float, float]:
    """Probability of the event before and after, where so many values change by one."""
    speaks = 1 / (1 + math.exp(-1 / scale))  # P(Z >= 0)
    at_least = [stats.binom.sf(threshold - 1, values, chance) for chance in (speaks, 1 - speaks)]
    return float(at_least[0]), float(at_least[1])


def surely(values: int, scale: Fraction, threshold: int) -> float:
    """What the audit shows at the least, but for a probability of 1e-6, by the law of the noise."""
    return sure_epsilon(chances(values, scale, threshold)[::-1], RUNS)


def best_threshold(values: int, scale: Fraction) -> int:
    """The t whose event shows most, before any draw."""
    return max(range(1, values + 1), key=lambda threshold: surely(values, scale, threshold))


def audited(query: Query) -> float:
    """Draw the changed values of the releases, and bound epsilon from below."""
    before, after = changed(query)
    threshold = best_threshold(len(before), SCALE)
    source, events, piece = require_laplace_source(resolve_noise_source("table")), [], 100_000
    for values in (before, after):
        seen = 0
        for _ in range(RUNS // piece):
            noisy = values + source.draw_laplace(SCALE, piece * len(values)).reshape(piece, len(values))
            seen += int(((noisy >= before).sum(axis=1) >= threshold).sum())
        events.append(seen)
    return least_epsilon((events[1], events[0]), RUNS)


def test_a_trip_changes_as_many_values_of_the_chain_as_there_are_areas_and_one_otherwise():
    for query, values in ((chain, AREAS), (area_by_area, 1)):
        before, after = changed(query)
        assert len(before) == values
        assert (before - after == 1).all()


def test_the_chain_breaks_its_claim():
    """Claimed is 0.5; true is 20 / 2 = 10. Fails with probability 1e-6."""
    assert surely(AREAS, SCALE, best_threshold(AREAS, SCALE)) > 5
    assert audited(chain) > 5


def test_area_by_area_the_claim_holds_and_is_nearly_all_seen():
    """Fails with probability 1e-6 on each side: the true epsilon is the claim."""
    assert surely(1, SCALE, best_threshold(1, SCALE)) > 0.47
    assert 0.47 < audited(area_by_area) <= CLAIM
