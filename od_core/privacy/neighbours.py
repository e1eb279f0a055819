"""Define neighbouring inputs, and derive sensitivities and invariants from them.

A release protects the change from one input to a neighbouring input. Which inputs are neighbours follows from the
privacy unit and from the public rules by which records are counted. For example, a record may no longer be counted if
it is replaced by one with an unlisted zone or another category. This module is the only definition of neighbours. The
plan, the sensitivities, the certificate and the tests use it. ``docs/explanation/privacy.md`` explains it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from fractions import Fraction
from functools import cached_property
from typing import Any

from od_core.errors import OdError
from od_core.privacy.accounting import Number, parse_exact_fraction
from od_core.privacy.unit import PrivacyUnit


def compute_sensitivity_squared(unit: PrivacyUnit) -> int:
    """Return the squared L2 sensitivity of the counts of one level below the root: m^2, or 2 m^2.

    All m trips of a unit, or of a record with a weight, may be in one cell of a level. Adding the unit then changes
    that cell by m, and replacing the unit changes two cells by m each.
    """
    return unit.differing_units * unit.contribution_bound**2


NodeSizes = tuple[tuple[int, int], ...]
"""Numbers of leaf pairs below nodes of a level, the largest first, each with how many nodes have it."""


def compute_largest_square_sum(max_trips: int, max_trips_pair: int, nodes: Iterable[tuple[int, int]]) -> int:
    """Return the largest sum of squares of the counts of one user at a level, under a pair cap.

    A user has at most c trips of each leaf pair, so at most min(m, c k) in a node with k leaf pairs, and m in all. The
    sum is largest if the nodes with the largest bounds are filled one after the other, because a sum of convex
    functions is largest at a vertex of such constraints.

    Twice this sum bounds the change where one user replaces another: at worst, their trips are in different nodes. A
    level of flows nearly always has enough nodes for that (decision 101).

    Args:
        max_trips: contribution bound m.
        max_trips_pair: pair cap c.
        nodes: see :data:`NodeSizes`. Small nodes may be left out if the others hold m trips.
    """
    trips_left = max_trips
    square_sum = 0
    for pairs, number in nodes:
        node_bound = min(max_trips, max_trips_pair * pairs)
        filled_nodes = min(number, trips_left // node_bound)
        square_sum += filled_nodes * node_bound**2
        trips_left -= filled_nodes * node_bound
        if filled_nodes < number:
            return square_sum + trips_left**2
    return square_sum


def select_node_sizes(max_trips: int, max_trips_pair: int, nodes: Iterable[tuple[int, int]]) -> NodeSizes:
    """Return the sizes of the largest nodes that together can hold all m trips of a user under a pair cap.

    :func:`compute_largest_square_sum`, which has the same arguments, needs no smaller nodes.
    """
    trips_left = max_trips
    needed: list[tuple[int, int]] = []
    for pairs, number in nodes:
        if trips_left <= 0:
            break
        node_bound = max_trips_pair * pairs
        needed_number = min(number, -(-trips_left // node_bound))  # rounded up
        needed.append((pairs, needed_number))
        trips_left -= needed_number * node_bound
    return tuple(needed)


def compute_leaf_sensitivity(unit: PrivacyUnit) -> int:
    """Return the L1 sensitivity of all leaf counts: the contribution bound, or twice that for bounded neighbours."""
    return unit.differing_units * unit.contribution_bound


FAULT_THRESHOLD = Fraction(1, 1000)
"""Default of the largest share of faulty trips for which an input is accepted."""


def parse_fault_threshold(value: Number) -> Fraction:
    """Return a fault threshold as an exact fraction. Raises OdError if it is not a number from 0 to 1."""
    try:
        share = parse_exact_fraction("the fault threshold", value)
    except OdError:
        share = Fraction(-1)
    if not 0 <= share <= 1:
        message = "the fault threshold is not a number from 0 to 1"
        raise OdError("OD-FAULT-THRESHOLD", message, next_step="give a number from 0 to 1")
    return share


class Standing(Enum):
    """How a release treats one record, which depends only on the record and on public facts."""

    COUNTED = "counted"
    FAULTY = "dropped because a zone is not listed, or because the user id or weight is missing or not valid"
    OTHER_CATEGORY = "of a category that the release does not count"
    OTHER_PERIOD = "of another period, or without a date"


@dataclass(frozen=True)
class Acceptance:
    """The public rules that decide which records of an input are counted, and which inputs are refused.

    Attributes:
        fault_threshold: largest share of faulty trips for which an input is accepted; 0 to 1.
        has_categories: True if only records of some categories are counted.
        refuses_empty: True if an input without a counted record is refused.

    Raises:
        OdError: the threshold is not a number from 0 to 1.

    Examples:
        >>> exact = plan_release(geography, unit=unit, budget=budget, acceptance=Acceptance(fault_threshold=0))
        >>> plan.publishes_total, exact.publishes_total  # the total is exact if every faulty input is refused
        (False, True)
    """

    fault_threshold: Fraction = FAULT_THRESHOLD
    has_categories: bool = False
    refuses_empty: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "fault_threshold", parse_fault_threshold(self.fault_threshold))

    def facts(self) -> dict[str, str | bool]:
        """Return the rules as JSON-ready public facts, which :meth:`from_facts` reads."""
        return asdict(self) | {"fault_threshold": str(self.fault_threshold)}

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> Acceptance:
        """Return the rules with the given :meth:`facts`."""
        return cls(Fraction(facts["fault_threshold"]), facts["has_categories"], facts["refuses_empty"])

    def refuse_empty(self, counted: int, unit: PrivacyUnit) -> None:
        """Raise OdError if the rules refuse an empty input, and ``counted``, the number of counted records, is 0."""
        if not self.refuses_empty or counted:
            return
        message = (
            "no record of the input is counted: the input is empty, or all its records are of other periods or"
            " categories"
        )
        if unit.is_of_year:
            message += ", or of users who have no trips of the year left (max_trips_year)"
        step = "correct the files of records; if a period may have no counted record, declare accept_empty: true"
        raise OdError("OD-TRIPS-NONE", message, next_step=step)


DEFAULT_ACCEPTANCE = Acceptance()
"""Rules that apply if a caller does not state any."""

NO_FAULTS = Acceptance(fault_threshold=Fraction(0))
"""Rules under which an input with any faulty record is refused, so that no record is dropped as faulty."""


@dataclass(frozen=True)
class Neighbours:
    """The relation between the neighbouring inputs of one release of flows.

    Attributes:
        unit: privacy unit. Neighbours differ in the records of one unit.
        acceptance: rules for counted records and refused inputs.
        has_unknown_areas: True if origins and destinations both have an area for records from unlisted places, so that
            such a record is counted.
        has_unknown_categories: True if every breakdown has a category for records whose category is missing or not
            listed, so that such a record is counted; also if there is no breakdown.
        nodes: sizes of the nodes of each level that is counted, root first, which a pair cap needs.

    Examples:
        >>> plan.neighbours.unit == unit
        True
    """

    unit: PrivacyUnit
    acceptance: Acceptance = DEFAULT_ACCEPTANCE
    has_unknown_areas: bool = False
    has_unknown_categories: bool = True
    nodes: Sequence[NodeSizes] = ()

    def can_have_standing(self, standing: Standing) -> bool:
        """Return whether a record that differs between neighbours may have the given standing in an accepted input.

        Under bounded neighbours, a record is replaced by another one of the same period. So neither the period of a
        record nor the presence of a date is protected, unless the records of a user change in several periods.
        """
        if standing is Standing.OTHER_PERIOD:
            return self.unit.neighbours == "unbounded" or self.unit.spans_periods
        if standing is Standing.OTHER_CATEGORY:
            return self.acceptance.has_categories
        if standing is Standing.FAULTY:
            needs_user_or_weight = self.unit.is_of_users or self.unit.max_weight is not None
            counts_unlisted = self.has_unknown_areas and self.has_unknown_categories
            return self.acceptance.fault_threshold > 0 and (needs_user_or_weight or not counts_unlisted)
        return True

    @cached_property
    def have_equal_totals(self) -> bool:
        """True if neighbouring inputs have the same number of trips: one record of weight 1 is replaced by another."""
        unit = self.unit
        counts_one = not unit.is_of_users and unit.neighbours == "bounded" and unit.max_weight is None
        return counts_one and not self.record_may_leave

    @property
    def record_may_leave(self) -> bool:
        """True if a record that differs between neighbours may be one that the release does not count."""
        return any(self.can_have_standing(standing) for standing in Standing if standing is not Standing.COUNTED)

    def sensitivity_squared(self, level: int, *, by_segment: bool = False) -> int:
        """Return the squared L2 sensitivity of the counts of a level; 0 for the root if the total is an invariant.

        Let m be the contribution bound, and S the largest sum of squares of one unit's counts: m^2, or that of
        :func:`compute_largest_square_sum` under a pair cap. Below the root, it is S for unbounded neighbours, and 2 S
        for bounded ones, because a unit and the unit that replaces it may have their trips in different cells. At the
        root, it is S, because the trips of the two units cancel there.

        In two cases, the root is like any other level. Counts ``by_segment`` have several cells at the root. Under a
        unit of a year, two users may have their trips in different periods, and then the totals of both periods change.
        A pair cap bounds the trips of a user in each category, too, so S is the same for counts ``by_segment``.
        """
        is_root = level == 0 and not by_segment and not self.unit.is_of_year
        if is_root and self.have_equal_totals:
            return 0
        bound, pair_cap = self.unit.bounds
        square_sum = bound**2
        if pair_cap is not None:
            square_sum = compute_largest_square_sum(bound, pair_cap, self.list_node_sizes(level))
        return square_sum if is_root else self.unit.differing_units * square_sum

    def absolute_sensitivity(self, level: int, *, by_segment: bool = False) -> int:
        """Return the L1 sensitivity of the counts of a level, for units that are not of a year.

        Below the root, it is the sensitivity of the leaves. The root changes by at most the contribution bound. If the
        counts are ``by_segment``, it changes like the leaves, because the removed trips may be in one category, and the
        added trips in another.
        """
        return compute_leaf_sensitivity(self.unit) if level or by_segment else self.unit.contribution_bound

    def list_node_sizes(self, level: int) -> NodeSizes:
        """Return the sizes of the nodes of a level; empty without a pair cap, which alone needs them."""
        return () if self.unit.max_trips_pair is None else self.nodes[level]

    def count_shifted_cells(self, level: int, *, by_segment: bool = False) -> int | None:
        """Return the number of cells of a level that differ by m between the neighbours that differ most.

        If these cells alone differ, neighbours are at least as easy to distinguish as with any other division of the m
        trips among the cells of a level (``docs/explanation/noise.md``). None under a pair cap, for which this would
        be more noise than needed, and for a unit of a year.
        """
        if self.unit.max_trips_pair is not None or self.unit.is_of_year:
            return None
        return self.sensitivity_squared(level, by_segment=by_segment) // self.unit.contribution_bound**2
