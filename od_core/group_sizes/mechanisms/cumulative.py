"""Estimate group sizes from noisy cumulative histograms [kuo2018countofcounts, section 4.3]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal, get_args

import numpy as np

from od_core.group_sizes.estimation.isotonic import least_absolute, least_squares
from od_core.group_sizes.estimation.merging import check_noisy, merge
from od_core.group_sizes.estimation.runs import Runs, tables
from od_core.group_sizes.groups import Counts, Frame, Query
from od_core.parallel import in_order
from od_core.registry import refuse_unknown

Regression = Literal["least_absolute", "least_squares"]

_PIECE = 1 << 20
"""Number of cumulative counts that a thread works on at a time."""


@dataclass(frozen=True)
class Cumulative:
    """A mechanism that measures the cumulative counts of every area of every level.

    In each area, ascending counts between 0 and the number of groups G are fitted to the noisy counts. The count of all
    sizes is G. The levels are then merged (:mod:`od_core.group_sizes.estimation.merging`). The mechanism suits many
    small groups.

    Attributes:
        regression: ``least_absolute`` (the midpoint of the least and the greatest optimal solution; its errors are 20
            to 45 % smaller) or ``least_squares``.
    """

    regression: Regression = "least_absolute"

    name: ClassVar[str] = "cumulative"
    query: ClassVar[Query] = "cumulative"
    leaves_alone: ClassVar[bool] = False
    adds_up: ClassVar[bool] = True
    keeps_totals: ClassVar[bool] = True

    def __post_init__(self) -> None:
        known, step = get_args(Regression), "choose least_absolute or least_squares"
        refuse_unknown("regression", self.regression, known, code="OD-GROUPS-REGRESSION", next_step=step)

    @property
    def options(self) -> dict[str, str]:
        """Options of the mechanism by name, as public text."""
        return {"regression": self.regression}

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Return the estimated histograms of levels 1 to L; see :class:`GroupSizeMechanism`.

        ``scale`` is not used, because all levels have the same scale and only ratios of variances matter.

        Raises:
            OdError: the noisy values have another shape or are too large for 64-bit sums.
        """
        check_noisy(frame, self.query, frame.levels, noisy)
        levels = [
            runs_of_cumulative(frame.totals(level), values, self.regression)
            for level, values in zip(frame.levels, noisy, strict=True)
        ]
        return tables(frame, merge(frame, levels))


def runs_of_cumulative(totals: Counts, noisy: Counts, regression: Regression) -> Runs:
    """Return the estimated sizes of the groups of a level as runs of equal sizes.

    The variance of a size that n groups of an area share is taken as 4 / (n eps^2), at the epsilon eps of the level
    [kuo2018countofcounts, section 5.1.2].

    Args:
        totals: number of groups of each area; shape (areas,).
        noisy: noisy cumulative counts for the sizes 0 to K - 1; shape (areas, K).
        regression: see :class:`Cumulative`.
    """
    rows = max(1, _PIECE // noisy.shape[1])

    def of_some(begin: int) -> Runs:
        some = slice(begin, begin + rows)
        return Runs.of_histograms(fitted_histograms(totals[some], noisy[some], regression))

    return Runs.joined(list(in_order(of_some, range(0, len(noisy), rows))))


def fitted_histograms(totals: Counts, noisy: Counts, regression: Regression) -> Counts:
    """Return integer histograms, the differences of fitted cumulative counts rounded half up; shape (areas, K + 1).

    The arguments are those of :func:`runs_of_cumulative`.
    """
    offsets, lower = np.arange(len(noisy) + 1) * noisy.shape[1], np.zeros_like(totals)
    values = noisy.reshape(-1)
    if regression == "least_absolute":
        least, greatest = least_absolute(values, offsets, lower, totals)
        rounded = (least + greatest + 1) // 2
    else:
        steps = least_squares(values, offsets, lower, totals)
        rounded = np.repeat((2 * steps.totals + steps.lengths) // (2 * steps.lengths), steps.lengths)
    return np.diff(rounded.reshape(noisy.shape), prepend=0, append=totals[:, np.newaxis])
