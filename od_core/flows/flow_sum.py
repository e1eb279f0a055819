"""Sum releases of flows of different periods. The sum follows from published numbers alone, so it costs no budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.derived_flows import AREAS, BREAKDOWNS, UNIT, DerivedFlows, releases_of
from od_core.flows.estimation.intervals import Intervals
from od_core.flows.estimation.segment_intervals import SegmentIntervals
from od_core.flows.release import Release
from od_core.geography.flow_tree import Nodes
from od_core.records.segments import Breakdown

LEAST = 2
"""Least number of releases of a sum."""


@dataclass(frozen=True, eq=False, repr=False)
class FlowSum(DerivedFlows):
    """The sum of releases of flows. It is read as a release is: flows at every pair of levels, with their intervals.

    The interval of a sum is not the sum of the intervals: the estimates of the releases add up, and so do their
    variances, because the noise of two releases is independent.

    Attributes:
        releases: the summed releases.
        leaves: sums of the released leaf nodes, in tree order.
        segments: for each breakdown, by name, the summed trips of the leaf nodes in its categories; shape (leaf nodes,
            categories).
    """

    releases: tuple[Release, ...]
    leaves: Nodes
    segments: Mapping[str, NDArray[np.int64]]

    def __repr__(self) -> str:
        return f"FlowSum({len(self.releases)} releases, {self.leaves.trips.sum():,} trips)"

    @property
    def breakdowns(self) -> tuple[Breakdown, ...]:
        """The breakdowns, which all releases have."""
        return self.releases[0].breakdowns

    @property
    def may_be_negative(self) -> bool:
        """True if summed trips may be negative, because those of a release may be."""
        return any(release.may_be_negative for release in self.releases)

    @property
    def exact_trips(self) -> int | None:
        """The sum of the exact totals; None if the total of a release is not exact."""
        return int(self.leaves.trips.sum()) if all(one.plan.publishes_total for one in self.releases) else None

    @cached_property
    def intervals(self) -> Intervals:
        """Intervals of the summed flows, computed from the measurements of all releases on first use.

        Raises:
            OdError: As in :func:`od_core.flows.estimation.intervals.refuse_without_intervals`.
        """
        return Intervals([release.fitted for release in self.releases])

    def segment_intervals(self, segment: str) -> SegmentIntervals:
        """Return the intervals of the sums in each category of a breakdown.

        Raises:
            OdError: As for :attr:`intervals`, or if there is no breakdown of this name.
        """
        return SegmentIntervals([release.segment_fit(segment) for release in self.releases])


def sum_releases(releases: Sequence[Release]) -> FlowSum:
    """Return the sum of releases of flows, such as the months of a year. It reads no record and costs no budget.

    Args:
        releases: two or more releases of flows over the same areas, with the same privacy unit and the same breakdowns.
            Each must have noise of its own and trips of its own: releases of different periods, or of parts of the
            records that do not overlap. This function cannot check that; ``od-release sum`` checks the periods.

    Raises:
        OdError: There are fewer than two releases, one of them is given twice or is not a release of flows, the
            mechanism of one has a threshold, or they differ in their areas, their privacy unit or their breakdowns.
    """
    return sum_of({f"release {number}": release for number, release in enumerate(releases, start=1)})


def sum_of(named: Mapping[str, Any]) -> FlowSum:
    """Return the sum of releases, given by the names that messages use; see :func:`sum_releases`."""
    if not named:
        raise too_few()
    releases = releases_of(named, (*AREAS, UNIT, BREAKDOWNS))
    for name, release in named.items():
        if release.plan.has_threshold:
            raise OdError(
                "OD-SUM-THRESHOLD",
                f"{name} was released by {release.plan.mechanism.name!r}, which leaves out all flows below its"
                " threshold: a sum would lack them, and nothing states how many they are",
                next_step="sum releases of another mechanism",
            )
    if len({id(release) for release in releases}) < max(len(releases), LEAST):
        raise too_few()
    return FlowSum(releases, *_summed(releases))


def too_few() -> OdError:
    """Return the OdError for a sum of fewer than two releases."""
    return OdError(
        "OD-SUM-FEW",
        "a sum needs at least two releases, each given once",
        next_step="name the releases of two or more periods",
    )


def _summed(releases: Sequence[Release]) -> tuple[Nodes, dict[str, NDArray[np.int64]]]:
    """Return the sums of the leaves and, by breakdown, of their trips in each category, without leaves of no trips."""
    tree = releases[0].tree
    rank, first, place = np.unique(
        np.concatenate([tree.first_rank(release.leaves) for release in releases]),
        return_index=True,
        return_inverse=True,
    )

    def total(values: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
        each = np.concatenate(values)
        sums = np.zeros((len(rank), *each.shape[1:]), dtype=np.int64)
        np.add.at(sums, place, each)
        return sums

    trips = total([release.leaves.trips for release in releases])
    origin, destination = (
        np.concatenate([getattr(release.leaves, side) for release in releases])[first]
        for side in ("origin", "destination")
    )
    there = trips != 0
    segments = {
        one.name: total([release.segments[one.name] for release in releases])[there] for one in releases[0].breakdowns
    }
    return Nodes(tree.depth, origin[there], destination[there], trips[there]), segments
