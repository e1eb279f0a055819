"""Exact discrete Gaussian probabilities and the tests of noise against them. Each returns a p-value or a finding."""

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

ALPHA = 1e-6
"""Failure probability of each test that is right about right noise."""


@lru_cache(maxsize=8)
def probabilities(variance: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Values k and P(k) proportional to exp(-k^2 / (2 variance)); what is left out weighs less than 1e-300."""
    reach = math.ceil(38 * math.sqrt(variance)) + 2
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-(values.astype(float) ** 2) / (2 * variance))
    return frozen(values), frozen(weights / math.fsum(weights))


@lru_cache(maxsize=8)
def laplace_probabilities(scale: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Values k and P(k) = (1 - a) / (1 + a) a^|k|, a = exp(-1 / scale); what is left out weighs less than 1e-300."""
    reach = math.ceil(700 * scale)
    values, a = np.arange(-reach, reach + 1), math.exp(-1 / scale)
    return frozen(values), frozen((1 - a) / (1 + a) * np.exp(-np.abs(values) / scale))


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """The array, which many share and none may change."""
    array.flags.writeable = False
    return array


def histogram(drawn: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The values from the least to the greatest that was drawn, and how often each was."""
    least = int(drawn.min())
    times = np.bincount(drawn - least)
    return np.arange(least, least + len(times)), times


def bin_edges(
    values: NDArray[np.int64], chances: NDArray[np.float64], sigma: float, bins: int = 24
) -> NDArray[np.int64]:
    """Upper ends of bins of about equal probability and, as bins of their own, the tails beyond 3 sigma."""
    quantiles = np.searchsorted(np.cumsum(chances), np.arange(1, bins) / bins)
    beyond = math.floor(3 * sigma)
    inner = values[np.unique(quantiles)]
    return np.unique([-beyond - 1, *inner[np.abs(inner) < beyond], beyond])


def law_p_value(drawn: NDArray[np.int64], variance: float) -> float:
    """Of the discrete Gaussian: see p_value."""
    return p_value(drawn, *probabilities(variance), math.sqrt(variance))


def p_value(drawn: NDArray[np.int64], values: NDArray[np.int64], chances: NDArray[np.float64], sigma: float) -> float:
    """Of a law with these values and P: chi-square over bins, and the number beyond 3 sigma by the binomial law.

    Twice the smaller of the two p-values, so that it is at most alpha with probability alpha.
    """
    edges = bin_edges(values, chances, sigma)
    expected = np.bincount(np.searchsorted(edges, values), chances)
    seen, times = histogram(drawn)
    observed = np.bincount(np.searchsorted(edges, seen), times, len(expected))
    by_bins = stats.chisquare(observed, expected * len(drawn) / expected.sum()).pvalue
    tail = math.fsum(chances[np.abs(values) > 3 * sigma])
    beyond = int(times[np.abs(seen) > 3 * sigma].sum())
    by_tail = stats.binomtest(beyond, len(drawn), tail).pvalue
    return min(1.0, 2 * min(by_bins, by_tail))


Law = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Values and their probabilities."""


def chance_to_miss(right: Law, wrong: Law, sigma: float, draws: int) -> float:
    """Probability that the chi-square over bins accepts draws of a wrong law (noncentral chi-square)."""
    edges = bin_edges(*right, sigma)
    expected, found = (
        np.bincount(np.searchsorted(edges, values), chances, minlength=len(edges) + 1)
        for values, chances in (right, wrong)
    )
    shift = draws * float(((found - expected) ** 2 / expected).sum())
    critical = stats.chi2.isf(ALPHA / 2, len(expected) - 1)
    return float(stats.ncx2.cdf(critical, len(expected) - 1, shift))


def two_sample_p_value(drawn: NDArray[np.int64], reference: NDArray[np.int64], law: Law, sigma: float) -> float:
    """Of draws and a reference of one law: chi-square of the two rows of counts, and the difference of mean |k|.

    The law only places the bins, of which one is 0 alone. Twice the smaller of the two p-values, as in p_value.
    """
    edges = np.union1d(bin_edges(*law, sigma), [-1, 0])
    rows = [np.bincount(np.searchsorted(edges, one), minlength=len(edges) + 1) for one in (drawn, reference)]
    by_bins = stats.chi2_contingency(np.array(rows)).pvalue
    by_size = stats.ttest_ind(np.abs(drawn), np.abs(reference), equal_var=False).pvalue
    return min(1.0, 2 * min(by_bins, by_size))


def two_sample_chance_to_miss(right: Law, wrong: Law, draws: int) -> float:
    """Probability that the mean |k| of so many draws of a wrong law passes as that of as many of the right one."""
    sizes = [np.abs(values).astype(float) for values, _ in (right, wrong)]
    means = [float(size @ law[1]) for size, law in zip(sizes, (right, wrong), strict=True)]
    variances = [
        float((size - mean) ** 2 @ law[1]) for size, mean, law in zip(sizes, means, (right, wrong), strict=True)
    ]
    shift = abs(means[0] - means[1]) / math.sqrt(sum(variances) / draws)
    return float(stats.norm.cdf(stats.norm.isf(ALPHA / 4) - shift))


def variance_p_value(standardised: NDArray[np.float64]) -> float:
    """Two-sided, of the sum of squares of values that should have mean 0 and variance 1.

    The discrete Gaussian of sigma >= 1 has the first four moments of the normal law to nine digits, so the sum
    is chi-square distributed as closely as for normal values.
    """
    total = float((standardised**2).sum())
    return min(1.0, 2 * min(stats.chi2.sf(total, len(standardised)), stats.chi2.cdf(total, len(standardised))))


def mean_p_value(standardised: NDArray[np.float64]) -> float:
    """Two-sided, of the mean of values that should have mean 0 and variance 1."""
    return float(2 * stats.norm.sf(abs(standardised.sum()) / math.sqrt(len(standardised))))


def repeats_a_block(vectors: Iterable[NDArray[np.int64]], length: int) -> bool:
    """Whether some run of so many consecutive values stands in two places, in any of the vectors."""
    seen: set[bytes] = set()
    for vector in vectors:
        if len(vector) < length:
            continue
        windows = np.lib.stride_tricks.sliding_window_view(vector, length)
        runs = [window.tobytes() for window in windows]
        if len(set(runs)) < len(runs) or not seen.isdisjoint(runs):
            return True
        seen.update(runs)
    return False


def block_length(total: int, smallest_sigma: float) -> int:
    """Length at which independent noise repeats a block with probability below alpha.

    No value is likelier than 0, so two given places, overlapping or not, agree in every value with probability at
    most P(0)^length; there are fewer than total^2 / 2 pairs of places.
    """
    _, chances = probabilities(smallest_sigma**2)
    return math.ceil(math.log(2 * ALPHA / total**2) / math.log(chances.max()))


def least_epsilon(seen: tuple[int, int], runs: int) -> float:
    """Lower bound of a pure epsilon from how often, of so many runs, an event was seen under each of two inputs."""
    upper = 1.0 if seen[0] == runs else float(stats.beta.ppf(1 - ALPHA / 2, seen[0] + 1, runs - seen[0]))
    lower = 0.0 if seen[1] == 0 else float(stats.beta.ppf(ALPHA / 2, seen[1], runs - seen[1] + 1))
    return -math.inf if lower == 0 else math.log(lower / upper)


def sure_epsilon(chances: tuple[float, float], runs: int) -> float:
    """What that many runs show at the least, but for a probability of ``ALPHA``, given the chances of the event.

    Each count lies beyond its quantile of half of ``ALPHA`` with so much probability.
    """
    most, fewest = stats.binom.isf(ALPHA / 2, runs, chances[0]), stats.binom.ppf(ALPHA / 2, runs, chances[1])
    return least_epsilon((int(most), int(fewest)), runs)


def coverage_p_values(shares: pd.DataFrame, least: float) -> NDArray[np.float64]:
    """Of each column: that its cells are covered with at least this share, given their shares in each run."""
    mean, spread = shares.mean().to_numpy(), shares.std().to_numpy() / len(shares) ** 0.5
    t = np.divide(mean - least, spread, out=np.sign(mean - least) * np.inf, where=spread > 0)
    return stats.t.cdf(t, len(shares) - 1)


def too_rarely_covered(shares: pd.DataFrame, least: float) -> bool:
    """Whether a column is covered too rarely, with failure probability ``ALPHA`` for all columns together."""
    return bool(coverage_p_values(shares, least).min() < ALPHA / shares.shape[1])
