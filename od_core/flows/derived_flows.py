"""Derive flows from releases, at no privacy cost: sums, and estimates that learn from earlier releases.

A sum adds the flows of releases, such as those of twelve months, and their independent errors.

*Model-assisted* flows are the flows of releases, estimated again. The estimates of a release use its own measurements
alone. Flows change slowly, so the releases of earlier periods say much about how the trips of an area divide among its
neighbours. Model-assisted estimates start with the first release and go on period by period. Each is a table of shrunk
estimates (:mod:`od_core.flows.estimation.shrinkage`) that learns from the table of the period before. Held-out noise
chooses the rule of estimation (:mod:`od_core.flows.estimation.rule_choice`). If none has less error than least squares,
the flows stay unchanged.

How much a table learns is itself estimated from the noisy measurements, and a level learns nothing if what earlier
flows explain may be chance. So earlier flows that no longer hold are hardly used. Still, these estimates move towards
the past, and their errors are not independent over time. For changes between periods and for intervals, use releases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from od_core.errors import OdError
from od_core.flows.arrays import Integers
from od_core.flows.estimation.intervals import refuse_without_intervals
from od_core.flows.estimation.rule_choice import choose_rule_given_earlier_flows
from od_core.flows.estimation.shrinkage import LEAST_SQUARES, Rule, shrink
from od_core.flows.release import Release
from od_core.flows.released_flows import ReleasedFlows
from od_core.geography.flow_tree import Nodes
from od_core.meaning.features import refuse_unsupported
from od_core.records.segments import Breakdown


class DerivedFlows(ReleasedFlows):
    """Flows that follow from published releases alone, in the order of their periods. They are read as a release is."""

    releases: tuple[Release, ...]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.releases)} releases, {self.leaves.trips.sum():,} trips)"


D = TypeVar("D", bound=DerivedFlows)
"""A class of derived flows."""

Releases = Sequence[Release] | Mapping[str, Release]
"""Releases in their order, or by the names that messages use."""


def index_releases(releases: Releases, *, breakdowns: bool) -> dict[str, Release]:
    """Return releases by the names that messages use, in order: ``release 1``, ``release 2`` if none are given.

    Raises OdError if one is not a release of flows, or differs from the first in a public fact on which derived flows
    depend: the flow tree, the privacy unit and, with ``breakdowns``, the breakdowns.
    """
    if not isinstance(releases, Mapping):
        releases = {f"release {number}": release for number, release in enumerate(releases, start=1)}
    facts: dict[str, dict[str, object]] = {}
    for name, release in releases.items():
        if not isinstance(release, Release):
            raise make_source_kind_error(name, "not a release of flows")
        plan, unit = release.plan, release.plan.unit
        facts[name] = {
            "the areas of the origins": plan.tree.origin.digest,
            "the areas of the destinations": plan.tree.destination.digest,
            "the order of the flow tree": plan.tree.order,
            "the privacy unit": (unit.kind, unit.neighbours, unit.column, unit.max_weight, *unit.bounds),
            **({"the breakdowns": plan.breakdowns} if breakdowns else {}),
        }
    first, expected = next(iter(facts.items()), ("", {}))
    for fact, value in expected.items():
        differing = [name for name, facts_of_release in facts.items() if facts_of_release[fact] != value]
        if differing:
            raise OdError(
                "OD-DERIVED-OTHER",
                f"{fact} of {', '.join(differing)} {'differs' if len(differing) == 1 else 'differ'} from {first}",
                next_step=f"choose releases in which these do not differ: {', '.join(expected)}",
            )
    return dict(releases)


def make_source_kind_error(name: str, kind: str) -> OdError:
    """Return the OdError for a release from which no flows can be derived; ``kind`` says what it is."""
    return OdError(
        "OD-DERIVED-KIND",
        f"{name} is {kind}; flows can be derived only from releases of flows",
        next_step="name releases of flows; for a derived one, name the releases that it is made of",
    )


MIN_SUMMED_RELEASES = 2
"""Smallest number of releases of a sum."""


@dataclass(frozen=True, eq=False, repr=False)
class FlowSum(DerivedFlows):
    """The sum of releases of flows; see :class:`ReleasedFlows` for ``leaves`` and ``segments``, which are sums, too.

    The interval of a sum is narrower than the sum of the intervals.

    Examples:
        >>> total = sum_releases([release, earlier])
        >>> total.trips_between("region", ["north"], "region", ["south"]).trips > 0
        True
    """

    releases: tuple[Release, ...]
    leaves: Nodes
    segments: Mapping[str, Integers]
    selected: bool = True

    @property
    def parts(self) -> tuple[Release, ...]:
        """All releases of the sum, whose measurements determine its intervals."""
        return self.releases


def sum_releases(releases: Releases) -> FlowSum:
    """Return the sum of releases of flows, such as the months of a year. It reads no record and costs no budget.

    Args:
        releases: two or more releases of flows over the same areas, with the same privacy unit and the same breakdowns,
            as a list or by the names that messages use. Each must have noise of its own and trips of its own: releases
            of different periods, or of parts of the records that do not overlap. This function cannot check that;
            ``od-release sum`` checks the periods.

    Raises:
        OdError: There are fewer than two releases, one object is given twice or is not a release of flows, the
            mechanism of one has a threshold, or they differ in their areas, their privacy unit or their breakdowns.

    Examples:
        >>> sum_releases([release, earlier]).exact_trips is None
        True
    """
    releases_by_name = index_releases(releases, breakdowns=True)
    for name, release in releases_by_name.items():
        refuse_unsupported(release.plan.table, release.plan.features | {"sum"}, name)
    parts = tuple(releases_by_name.values())
    has_one_twice = len({id(release) for release in parts}) < len(parts)
    if has_one_twice or len(parts) < MIN_SUMMED_RELEASES:
        raise make_few_releases_error()
    return FlowSum(parts, *_sum_leaves(parts))


def make_few_releases_error() -> OdError:
    """Return the OdError for a sum of fewer than two releases."""
    return OdError(
        "OD-SUM-FEW",
        "a sum needs at least two releases, each given once",
        next_step="name the releases of two or more periods",
    )


def _sum_leaves(releases: Sequence[Release]) -> tuple[Nodes, dict[str, Integers]]:
    """Return the leaves of a sum of releases, in tree order, and their trips by breakdown; shape (leaves, categories).

    The releases must have the same flow tree and the same breakdowns. Leaves whose trips sum to 0 are left out.
    """
    tree = releases[0].tree
    all_leaves = Nodes.concatenate(tree.depth, [release.leaves for release in releases])
    rank = tree.compute_first_ranks(all_leaves)
    order = np.argsort(rank, kind="stable")
    starts = np.flatnonzero(np.diff(rank[order], prepend=-1))  # first position of each rank in the order of ranks

    def sum_by_rank(values: Integers) -> Integers:
        """Return the sums of the values of leaves with the same rank, in the order of ranks."""
        return np.add.reduceat(values[order], starts)

    trips = sum_by_rank(all_leaves.trips)
    has_trips = trips != 0
    segments = {}
    for breakdown in releases[0].breakdowns:
        trips_by_category = np.concatenate([release.segments[breakdown.name] for release in releases])
        segments[breakdown.name] = sum_by_rank(trips_by_category)[has_trips]
    first_of_rank = order[starts][has_trips]
    origin, destination = all_leaves.origin[first_of_rank], all_leaves.destination[first_of_rank]
    return Nodes(tree.depth, origin, destination, trips[has_trips]), segments


MAX_ASSISTED_RELEASES = 12
"""Largest number of releases that model-assisted estimates are made of, the estimated one included."""


@dataclass(frozen=True, eq=False, repr=False)
class AssistedFlows(DerivedFlows):
    """Model-assisted estimates of the flows of a release, which also learn from earlier releases.

    The intervals follow from the measurements of the release, and are widened to contain the estimate. Their lower ends
    allow for what these flows have above 0. Categories are not estimated.

    Attributes:
        releases: the earlier releases and, last, the one whose flows are estimated.
        leaves: estimated leaf nodes, in tree order.
        rule: how they were estimated. If no rule that learns has less error than least squares, the released flows.

    Examples:
        >>> assisted = assist_release([release, earlier])
        >>> assisted.flows_at("region", "region").columns.tolist()
        ['origin', 'destination', 'trips']
    """

    releases: tuple[Release, ...]
    leaves: Nodes
    rule: Rule
    segments: Mapping[str, Integers] = field(default_factory=dict)
    selected: bool = True

    @property
    def parts(self) -> tuple[Release, ...]:
        """The release that is estimated, alone: only its measurements determine the intervals."""
        return self.releases[-1:]

    @property
    def breakdowns(self) -> tuple[Breakdown, ...]:
        """No breakdowns: categories are not estimated."""
        return ()


def assist_release(releases: Releases, rule: Rule | None = None) -> AssistedFlows:
    """Return model-assisted estimates of the flows of the last of some releases, which read no record and cost nothing.

    Args:
        releases: releases of flows of consecutive periods, in their order, over the same areas and with the same
            privacy unit, as a list or by the names that messages use. With one release, the estimates learn from its
            own measurements alone. This function cannot check the periods; ``od-release assist`` does.
        rule: the rule of published estimates; by default the one with the least held-out error, see
            :func:`choose_release_rule`.

    Raises:
        OdError: no release is given; one of them is not a release of flows, has no intervals, or differs from the first
            in its areas or its privacy unit; or a level does not fit into memory.

    Examples:
        >>> assist_release([release, earlier]).levels == release.levels
        True
    """
    releases_by_name = index_releases(releases, breakdowns=False)
    if not releases_by_name:
        raise OdError("OD-ASSIST-FEW", "there is no release to estimate", next_step="name a release of flows")
    for name, release in releases_by_name.items():
        refuse_unsupported(release.plan.table, release.plan.features | {"assisted"}, name)
        refuse_without_intervals(release.plan, max(len(measurement.noisy) for measurement in release.measured))
    parts = tuple(releases_by_name.values())
    if rule is None:
        rule = choose_release_rule(parts[-1], parts[-2].leaves if len(parts) > 1 else None)
    return AssistedFlows(parts, estimate_last_leaves(parts, rule), rule)


def choose_release_rule(last: Release, earlier_flows: Nodes | None) -> Rule:
    """Return the rule of estimation with the least held-out error for the release ``last``.

    ``earlier_flows`` are the leaves of the release before it; None if there is none. Raises OdError as
    :meth:`Release.fit_levels` does.
    """
    leaves = last.measured[len(last.plan.steps) - 1]  # measurements are in the order of the steps; area totals follow
    if leaves.parents is None:  # the leaves are the root: there is one node a level, and nothing to learn
        return LEAST_SQUARES
    return choose_rule_given_earlier_flows(last.plan, last.fit_levels(), earlier_flows, last.measured)


def estimate_last_leaves(releases: Sequence[Release], rule: Rule, earlier_flows: Nodes | None = None) -> Nodes:
    """Return the estimated leaves of the last of one or more releases; by least squares, they are the released ones.

    Each release learns from the estimated leaves of the one before, and the first one from ``earlier_flows``. Raises
    OdError if a level does not fit into memory, or a noisy value is too large.
    """
    *before, last = releases
    if not rule.learns:
        return last.leaves
    if before:
        earlier_flows = estimate_last_leaves(before, rule, earlier_flows)
    levels = last.fit_levels()
    trips = shrink(last.plan, levels, rule, earlier_flows, last.measured)[-1]
    nodes, has_trips = levels[-1].nodes, trips > 0
    return Nodes(last.tree.depth, nodes.origin[has_trips], nodes.destination[has_trips], trips[has_trips])
