"""Compute ratios of the mean errors of two mechanisms over their runs, with bootstrap bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

RESAMPLES = 10_000
SEED = 20010101
LEVEL = 0.99
"""Confidence of the interval. Each of its bounds fails with half of the remaining probability."""

NOT_ABOVE, OPEN, ABOVE = "not above 1", "open", "significantly above 1"


@dataclass(frozen=True)
class Ratio:
    """A ratio of means with its interval; values are None if a divisor is 0 in the runs or in a resample."""

    ratio: float | None
    lower: float | None
    upper: float | None

    @property
    def verdict(self) -> str:
        """The comparison of the ratio with 1 according to its bounds, or open if they do not decide."""
        if self.lower is None or self.upper is None:
            return OPEN
        return NOT_ABOVE if self.upper <= 1 else ABOVE if self.lower > 1 else OPEN

    def to_dict(self) -> dict[str, float | str | None]:
        """Return the ratio, its bounds and the verdict, ready for JSON."""
        return {"ratio": self.ratio, "lower": self.lower, "upper": self.upper, "verdict": self.verdict}


def ratios_of_means(errors: Reals, reference: Reals) -> tuple[list[Ratio], Ratio]:
    """Compute the ratio of the mean errors to those of a reference for each column, and the mean of these ratios.

    The runs of the two sides are resampled independently. A run is resampled as a whole, which keeps the dependence
    between its columns. The bounds are those of the percentile bootstrap (Efron & Tibshirani 1993, An Introduction to
    the Bootstrap, chapter 13).

    Args:
        errors: errors of one mechanism; shape (runs, columns).
        reference: errors of the other; shape (its runs, columns).
    """
    generator = np.random.default_rng(SEED)
    resampled = _divided(_resampled_means(generator, errors), _resampled_means(generator, reference))
    ratio = _divided(errors.mean(axis=0), reference.mean(axis=0))
    columns = [_bounded(ratio[column], resampled[:, column]) for column in range(len(ratio))]
    return columns, _bounded(ratio.mean(), resampled.mean(axis=1))


def _resampled_means(generator: np.random.Generator, values: Reals) -> Reals:
    """Return means over as many runs, drawn with replacement; shape (RESAMPLES, columns)."""
    runs = len(values)
    times = generator.multinomial(runs, np.full(runs, 1 / runs), size=RESAMPLES)
    means: Reals = times @ values / runs
    return means


def _divided(numerator: Reals, denominator: Reals) -> Reals:
    """Return the ratios, with NaN where the denominator is 0."""
    ratios: Reals = np.divide(numerator, denominator, out=np.full(numerator.shape, np.nan), where=denominator != 0)
    return ratios


def _bounded(ratio: float, resampled: Reals) -> Ratio:
    """Return the ratio with the outer quantiles of its resamples."""
    if np.isnan(ratio):
        return Ratio(None, None, None)
    if np.isnan(resampled).any():
        return Ratio(float(ratio), None, None)
    lower, upper = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Ratio(float(ratio), float(lower), float(upper))
