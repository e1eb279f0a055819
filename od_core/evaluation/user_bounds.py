"""Compare bounds of a user's trips (m, c and M) on simulated releases of public or synthetic trips, as a forecast."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.evaluation.forecast import RUNS, on_plan, simulated_releases
from od_core.evaluation.known_flows import SEED, KnownFlows, seeded
from od_core.flows.arrays import Integers
from od_core.flows.plan import ReleasePlan
from od_core.geography.flow_tree import FlowTree
from od_core.privacy.budget import Budget
from od_core.privacy.unit import PrivacyUnit
from od_core.records.counts import TripCounts

Mask = NDArray[np.bool_]

Users = tuple[float, Sequence[tuple[int, int]]]
"""The share of users who travel alike, of any sum, and numbers of pairs of zones with a user's trips of each pair."""


def described_users(text: str) -> Users:
    """Return the users that a text describes.

    ``60: 2x9 4x1`` are a share of 60 with 9 trips for each of 2 pairs of zones, such as to and from work, and 1 for
    each of 4 others. Raises OdError if the text has another form.
    """
    share, _, pairs = text.partition(":")
    parts = [re.fullmatch(r"([1-9]\d{0,2})x([1-9]\d{0,2})", part) for part in pairs.split()]
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", share) or float(share) == 0 or not parts or None in parts:
        step = "give a share of the users, and their pairs of zones x trips, such as '60: 2x9 4x1'"
        raise OdError("OD-BOUNDS-USERS", f"{text!r} does not describe users", next_step=step)
    return float(share), [(int(part[1]), int(part[2])) for part in parts if part]


@dataclass(frozen=True, eq=False, repr=False)
class UserTrips:
    """Public or synthetic trips of a period: the ranks of their leaf pairs, and the numbers of their users, from 0.

    ``rank`` and ``user`` have the shape (trips,). Errors computed from the trips are NOT private.
    """

    tree: FlowTree
    rank: Integers
    user: Integers

    @classmethod
    def drawn(cls, known: KnownFlows, plan: ReleasePlan, users: Sequence[Users]) -> UserTrips:
        """Make up users with about as many trips in all as known flows, always the same.

        The pairs of a user are drawn with the chances of the flows, each by itself, so a few are drawn twice. Raises
        OdError if there are no flows, or they are over another geography.
        """
        trips, generator = on_plan(known, plan), seeded(SEED)
        if not trips.total:
            raise OdError("OD-BOUNDS-USERS", f"{known.name} has no trips", next_step="give a table with trips")
        shares = np.cumsum([share for share, _ in users])
        mean = sum(share * pairs * of_pair for share, travel in users for pairs, of_pair in travel) / shares[-1]
        ends = np.rint(shares / shares[-1] * max(round(trips.total / mean), 1)).astype(np.int64)
        rank, user = list[Integers](), list[Integers]()
        for (_, travel), first, end in zip(users, [0, *ends], ends, strict=False):
            for pairs, of_pair in travel:
                one = generator.integers(0, trips.total, (end - first) * pairs)
                rank.append(np.repeat(trips.rank[np.searchsorted(trips.before, one, side="right") - 1], of_pair))
                user.append(np.repeat(np.arange(first, end), pairs * of_pair))
        return cls(plan.tree, np.concatenate(rank), np.concatenate(user))

    def counted(self, max_trips: int, max_trips_pair: int | None = None, left: Integers | None = None) -> Mask:
        """Return which trips a release counts, in a random order in place of the keyed one; shape (trips,).

        ``left`` is the largest number of trips that the year allows each user; shape (users,).
        """
        counted = np.ones(len(self.rank), dtype=np.bool_)
        if max_trips_pair is not None:
            counted = self._places(counted, "pair") < max_trips_pair
        allowed = max_trips if left is None else np.minimum(left, max_trips)[self.user]
        found: Mask = counted & (self._places(counted, "user") < allowed)
        return found

    def counted_by(self, unit: PrivacyUnit, periods: int = 1) -> Mask:
        """Return which trips the bounds of a unit leave; shape (trips,).

        Under unit ``user_year``, a user makes these trips in each of ``periods`` periods of a year, and the trips are
        those of an average one: as many users are in their first period as in any other one.
        """
        counted = self.counted(*unit.bounds)
        if unit.max_trips_year is None:
            return counted
        of_user = np.bincount(self.user[counted], minlength=int(self.user.max()) + 1)
        before = seeded(SEED).permutation(len(of_user)) % periods
        return self.counted(*unit.bounds, np.maximum(unit.max_trips_year - of_user * before, 0))

    def flows(self, chosen: Mask) -> KnownFlows:
        """Return the flows of chosen trips; shape (trips,)."""
        trips = TripCounts.from_ranks(self.rank[chosen], np.ones(int(chosen.sum()), dtype=np.int64))
        return KnownFlows("trips of users", "synthetic", self.tree, trips)

    def flows_within(self, max_trips_pair: int | None) -> KnownFlows:
        """Return the flows of the trips that a pair cap alone leaves; of all trips without one."""
        if max_trips_pair not in self._flows_within:
            self._flows_within[max_trips_pair] = self.flows(self.counted(len(self.rank), max_trips_pair))
        return self._flows_within[max_trips_pair]

    @cached_property
    def _flows_within(self) -> dict[int | None, KnownFlows]:
        """Flows that :meth:`flows_within` returned, since many bounds have the same pair cap."""
        return {}

    @cached_property
    def _sorted(self) -> dict[str, tuple[Integers, Integers]]:
        """Trips in a random order, by user and by user and pair, and the first of each group; shape (trips,) each."""
        found, random = {}, seeded(SEED).permutation(len(self.rank))
        for name, groups in {"user": (self.user,), "pair": (self.user, self.rank)}.items():
            order, is_first = np.lexsort((random, *groups)), np.zeros(len(random), dtype=np.bool_)
            for group in groups:
                is_first[1:] |= group[order[1:]] != group[order[:-1]]
            found[name] = order, np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))
        return found

    def _places(self, among: Mask, group: str) -> Integers:
        """Return how many of the trips ``among`` some come before each trip in its group; shape (trips,)."""
        order, first = self._sorted[group]
        place, before = np.empty(len(order), dtype=np.int64), np.cumsum(among[order], dtype=np.int64) - among[order]
        place[order] = before - before[first]
        return place


def usual_bounds(unit: PrivacyUnit, periods: int = 1) -> Iterator[PrivacyUnit]:
    """Yield a unit with half, once and twice its m, some c and, for ``user_year``, its M and one that never binds."""
    declared, most = unit.contribution_bound, unit.max_trips_year
    for m in sorted({max(declared // 2, 1), declared, 2 * declared}):
        for of_year in (None,) if most is None else sorted({max(m, most), m * periods}):
            for c in (None, *(c for c in (1, 2, 5) if c < m)):
                yield replace(unit, max_trips=m, max_trips_pair=c, max_trips_year=of_year)


def with_bounds(plan: ReleasePlan, unit: PrivacyUnit, periods: int = 1) -> ReleasePlan:
    """Return a plan with other bounds that costs a user the same rho: a release, or ``periods`` releases of a year."""
    bounded = replace(plan, unit=unit, bands=None)
    rho = bounded.spent.rho
    if unit.max_trips_year is not None:
        rho *= plan.rho_of_year(plan.spent, periods) / bounded.rho_of_year(bounded.spent, periods)
    return replace(bounded, budget=Budget(rho=rho, delta=plan.budget.delta, shares=plan.budget.shares))


def bound_errors(plan: ReleasePlan, trips: UserTrips, counted: Mask, runs: int = RUNS) -> dict[str, Any]:
    """Return the mean errors of ``runs`` simulated releases of the trips that are ``counted``; shape (trips,).

    Returns:
        The bounds m, c and M (None without); cut, the share of the trips that is not counted; within_c, the share that
        c alone leaves; and by level, root first: noise (its standard deviation; at an unmeasured level, that of the
        next), error (total absolute error against all trips, by their number) and error_of_counted (the same of the
        trips within c, which the table says that it counts).
    """
    tree, true = trips.tree, [trips.flows_within(cap) for cap in (None, plan.unit.max_trips_pair)]
    cells, sums = np.array([tree.cells(level) for level in range(tree.depth + 1)]), np.zeros((2, tree.depth + 1))
    for release in simulated_releases(plan, on_plan(trips.flows(counted), plan), runs, 0):
        sums += [[row["mean_abs_error"] for row in flows.truth.errors(release.leaves)] * cells for flows in true]
    steps = (next(step for step in plan.totals if step.level >= level) for level in range(tree.depth + 1))
    return {
        **dict(zip("mcM", (*plan.unit.bounds, plan.unit.max_trips_year), strict=True)),
        "cut": 1 - float(counted.mean()),
        "within_c": true[1].trips.total / true[0].trips.total,
        "noise": [float(step.variance) ** 0.5 for step in steps],
        "error": (sums[0] / runs / true[0].trips.total).tolist(),
        "error_of_counted": (sums[1] / runs / true[1].trips.total).tolist(),
    }
