"""Estimate the flows of a release again, with the help of the releases before it, at no privacy cost.

The estimates of a release use its own measurements alone. Flows change slowly, so the releases of earlier periods say
much about how the trips of an area divide among its neighbours. *Model-assisted* estimates start with the first release
and go on period by period. Each is a table of shrunk estimates (:mod:`od_core.flows.estimation.shrinkage`) that learns
from the table of the period before. Held-out noise chooses the rule of estimation
(:mod:`od_core.flows.estimation.held_out`); if no rule that learns has less error, the released flows stay as they are.

How much a table learns is itself estimated from the noisy measurements, and a level learns nothing if what earlier
flows explain may be chance. So earlier flows that no longer hold are hardly used. Still, these estimates move towards
the past, and their errors are not independent over time. For changes between periods, and for intervals, use the
releases themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.derived_flows import AREAS, UNIT, DerivedFlows, releases_of
from od_core.flows.estimation.held_out import LEAST_SQUARES, chosen_rule
from od_core.flows.estimation.intervals import Intervals, refuse_without_intervals
from od_core.flows.estimation.segment_intervals import SegmentIntervals
from od_core.flows.estimation.shrinkage import Rule, shrink
from od_core.flows.release import Release
from od_core.geography.flow_tree import Nodes
from od_core.records.segments import Breakdown

MOST = 12
"""Largest number of releases that model-assisted estimates are made of, the estimated one included."""


@dataclass(frozen=True, eq=False, repr=False)
class AssistedFlows(DerivedFlows):
    """Model-assisted estimates of the flows of a release, which also learn from earlier releases.

    The intervals are those of the release itself, widened to contain the estimate: they need no model. There are no
    estimates by category.

    Attributes:
        releases: the earlier releases and, last, the one whose flows are estimated.
        leaves: estimated leaf nodes, in tree order.
        rule: how they were estimated. If least squares have less error than any rule that learns, these are the
            released flows.
    """

    releases: tuple[Release, ...]
    leaves: Nodes
    rule: Rule
    segments: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"AssistedFlows({len(self.releases)} releases, {self.leaves.trips.sum():,} trips)"

    @property
    def breakdowns(self) -> tuple[Breakdown, ...]:
        """No breakdowns: categories are not estimated."""
        return ()

    @property
    def may_be_negative(self) -> bool:
        """False: all estimates are at least 0."""
        return False

    @property
    def exact_trips(self) -> int | None:
        """The exact total of the release; None if its total is not exact."""
        return int(self.leaves.trips.sum()) if self.releases[-1].plan.publishes_total else None

    @cached_property
    def intervals(self) -> Intervals:
        """Intervals of the flows of the release itself."""
        return self.releases[-1].intervals

    def segment_intervals(self, segment: str) -> SegmentIntervals:
        """Raise OdError, because there are no breakdowns."""
        raise OdError(
            "OD-SEGMENT-UNKNOWN",
            f"model-assisted estimates have no breakdown {segment!r}: categories are not estimated",
            next_step="read the flows by category from the release itself",
        )


def assist_release(releases: Sequence[Release]) -> AssistedFlows:
    """Return model-assisted estimates of the flows of the last release. They read no record and cost no budget.

    Args:
        releases: releases of flows of consecutive periods, in their order, over the same areas and with the same
            privacy unit. With one release, the estimates learn from its own measurements alone. This function cannot
            check the periods; ``od-release assist`` does.

    Raises:
        OdError: no release is given; one of them is not a release of flows, has no intervals, or differs from the first
            in its areas or its privacy unit; or a level does not fit into memory.
    """
    return assist_of({f"release {number}": release for number, release in enumerate(releases, start=1)})


def assist_of(named: Mapping[str, Any]) -> AssistedFlows:
    """Return estimates from releases, given by the names that messages use; see :func:`assist_release`."""
    if not named:
        raise OdError("OD-ASSIST-FEW", "there is no release to estimate", next_step="name a release of flows")
    releases = releases_of(named, (*AREAS, UNIT))
    for name, release in named.items():
        if release.plan.mechanism.measures != "every_level":
            raise OdError(
                "OD-ASSIST-MECHANISM",
                f"{name} was released by {release.plan.mechanism.name!r}, which does not measure every level",
                next_step="choose releases of a mechanism that does, such as inftda_refined",
            )
        refuse_without_intervals(release.plan, max(len(measurement.noisy) for measurement in release.measured))
    rule = rule_of(releases[-1], releases[-2].leaves if len(releases) > 1 else None)
    return AssistedFlows(releases, learned_in_turn(releases, rule), rule)


def rule_of(last: Release, earlier: Nodes | None) -> Rule:
    """Return the rule by which releases are estimated: the one with the least held-out error for the last of them.

    Args:
        last: The last release.
        earlier: Leaves that were released for the period before; None if there is none.
    """
    if last.measured[-1].parents is None:  # every level has one node, so there is nothing to learn
        return LEAST_SQUARES
    return chosen_rule(last.plan, last.fitted_levels(), earlier)


def learned_in_turn(releases: Sequence[Release], rule: Rule) -> Nodes:
    """Return the estimated leaves of the last of one or more releases, each of which learns from the one before it."""
    leaves = learned(releases[0], rule, None)
    for release in releases[1:]:
        leaves = learned(release, rule, leaves)
    return leaves


def learned(release: Release, rule: Rule, earlier: Nodes | None) -> Nodes:
    """Return the estimated leaves of one release; by least squares, they are the released ones.

    Args:
        release: The release.
        rule: How deviations are estimated.
        earlier: Leaves of the period before, in tree order, to learn from; None if there is none.

    Raises:
        OdError: If a level does not fit into memory, or a noisy value is too large.
    """
    if not rule.learns:
        return release.leaves
    levels = release.fitted_levels()
    trips, nodes = shrink(release.plan, levels, rule, earlier)[-1], levels[-1].nodes
    there = trips > 0
    return Nodes(release.tree.depth, nodes.origin[there], nodes.destination[there], trips[there])
