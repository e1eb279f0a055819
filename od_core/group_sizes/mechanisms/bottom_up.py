"""Spend the whole budget on the leaf areas, and sum their estimates at the other levels.

References:
    [kuo2018countofcounts, section 6.2.2]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal, get_args

import numpy as np

from od_core.group_sizes.estimation.merging import check_noisy
from od_core.group_sizes.estimation.posterior import NoisyAreas
from od_core.group_sizes.estimation.runs import tables
from od_core.group_sizes.groups import Counts, Frame, Query
from od_core.group_sizes.mechanisms.cumulative import runs_of_cumulative
from od_core.group_sizes.mechanisms.sizes import runs_of_sizes
from od_core.registry import refuse_unknown

Leaf = Literal["cumulative", "sizes"]


@dataclass(frozen=True)
class BottomUp:
    """A mechanism that measures the leaf areas alone, by one of two methods.

    Which method is better depends on the data. The errors of the two differ by a factor of up to 3.5.

    Attributes:
        leaf: the method: ``cumulative`` (least absolute distances from noisy cumulative counts) or ``sizes`` (least
            squares from noisy sorted sizes).
    """

    leaf: Leaf = "cumulative"

    name: ClassVar[str] = "bottom_up"
    leaves_alone: ClassVar[bool] = True
    adds_up: ClassVar[bool] = True
    keeps_totals: ClassVar[bool] = True

    def __post_init__(self) -> None:
        step = "choose cumulative or sizes"
        refuse_unknown("leaf method", self.leaf, get_args(Leaf), code="OD-GROUPS-LEAF", next_step=step)

    @property
    def options(self) -> dict[str, str]:
        """Options of the mechanism by name, as public text."""
        return {"leaf": self.leaf}

    @property
    def query(self) -> Query:
        """Query of the leaf areas, which has the name of the leaf method."""
        return self.leaf

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Return the histograms of levels 1 to L, estimated from the leaf areas; see :class:`GroupSizeMechanism`.

        Raises:
            OdError: the noisy values have another shape or are too large for 64-bit sums.
        """
        check_noisy(frame, self.query, frame.levels[-1:], noisy)
        if self.leaf == "sizes":
            return tables(frame, runs_of_sizes(frame.groups, noisy[0], frame.top_code))
        return tables(frame, runs_of_cumulative(frame.groups, noisy[0], "least_absolute"))


@dataclass(frozen=True)
class BottomUpPosterior(BottomUp):
    """A mechanism that measures the leaf areas alone and estimates their sizes by posterior means.

    The measurement is that of ``bottom_up``. The estimate has no published source. The curve of an area is its
    cumulative histogram. ``bottom_up`` takes the ascending curve that is nearest to the noisy values. This mechanism
    takes the mean of all ascending curves, weighted by a Markov chain that is fitted to the noisy values of the leaf
    areas (:mod:`od_core.group_sizes.estimation.posterior`). With the same noise, its errors are smaller than those of
    ``bottom_up`` (``docs/explanation/group-sizes.md``).

    Attributes:
        leaf: query of the leaf areas, ``cumulative`` or ``sizes``.
    """

    name: ClassVar[str] = "bottom_up_posterior"

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Return the histograms of levels 1 to L, estimated from the leaf areas; see :class:`GroupSizeMechanism`.

        Raises:
            OdError: the noisy values have another shape or are too large for 64-bit sums.
        """
        check_noisy(frame, self.query, frame.levels[-1:], noisy)
        of_sizes = self.leaf == "sizes"
        widths = frame.groups if of_sizes else np.full(len(frame.groups), frame.top_code)
        offsets = np.concatenate([[0], np.cumsum(widths)])
        areas = NoisyAreas(noisy[0].reshape(-1), offsets, frame.groups, frame.top_code, of_sizes, scale)
        return frame.every_level(areas.histograms())
