"""Ratios of the mean errors of two mechanisms over their runs, with bootstrap bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

RESAMPLES = 10_000
SEED = 20010101
LEVEL = 0.99
"""Of the interval: each of its bounds fails with half of what is left."""

NOT_ABOVE, OPEN, ABOVE = "not above 1", "open", "significantly above 1"


@dataclass(frozen=True)
class Ratio:
    """A ratio of means and its interval; None where a mean to divide by is 0, in the runs or in a resample."""

    ratio: float | None
    lower: float | None
    upper: float | None

    @property
    def verdict(self) -> str:
        """Whether the ratio lies above 1, by its bounds; open where they do not say."""
        if self.lower is None or self.upper is None:
            return OPEN
        return NOT_ABOVE if self.upper <= 1 else ABOVE if self.lower > 1 else OPEN

    def to_dict(self) -> dict[str, float | str | None]:
        """Ratio, bounds and verdict, JSON-ready."""
        return {"ratio": self.ratio, "lower": self.lower, "upper": self.upper, "verdict": self.verdict}


def ratios_of_means(errors: Reals, reference: Reals) -> tuple[list[Ratio], Ratio]:
    """Ratio of the mean errors to those of a reference, of each column, and the mean of these ratios.

    The runs of both sides are resampled independently of each other, whole runs at a time, so that what the columns
    of a run have in common stays (percentile bootstrap, Efron & Tibshirani 1993, chapter 13).

    Args:
        errors: of one mechanism; shape (runs, columns).
        reference: of the other; shape (its runs, columns).
    """
    generator = np.random.default_rng(SEED)
    resampled = _divided(_resampled_means(generator, errors), _resampled_means(generator, reference))
    ratio = _divided(errors.mean(axis=0), reference.mean(axis=0))
    columns = [_bounded(ratio[column], resampled[:, column]) for column in range(len(ratio))]
    return columns, _bounded(ratio.mean(), resampled.mean(axis=1))


def _resampled_means(generator: np.random.Generator, values: Reals) -> Reals:
    """Means over as many runs, drawn with replacement; shape (RESAMPLES, columns)."""
    runs = len(values)
    times = generator.multinomial(runs, np.full(runs, 1 / runs), size=RESAMPLES)
    means: Reals = times @ values / runs
    return means


def _divided(numerator: Reals, denominator: Reals) -> Reals:
    """The ratios, NaN where the denominator is 0."""
    ratios: Reals = np.divide(numerator, denominator, out=np.full(numerator.shape, np.nan), where=denominator != 0)
    return ratios


def _bounded(ratio: float, resampled: Reals) -> Ratio:
    """The ratio with the outer quantiles of its resamples."""
    if np.isnan(ratio):
        return Ratio(None, None, None)
    if np.isnan(resampled).any():
        return Ratio(float(ratio), None, None)
    lower, upper = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Ratio(float(ratio), float(lower), float(upper))
