"""The definition of neighbouring inputs, and what follows from it for noise, accounting and the words of a promise.

A release protects the change from one input to a neighbouring one. Which inputs are neighbours depends on the privacy
unit, and on the public rules by which records are counted: a record that is replaced may stop being counted, if it gets
a zone that is not listed or another category. Everything that relies on the relation asks this module: the plan (is the
total number of trips an invariant?), the sensitivities, the certificate's sentences, and the tests.
``docs/privacy.md`` tells it in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any

from od_core.errors import OdError
from od_core.privacy.accounting import text_above
from od_core.privacy.budget import Number, exact_fraction
from od_core.privacy.unit import PrivacyUnit

FAULT_THRESHOLD = Fraction(1, 1000)
"""Share of the trips that may be faulty before the whole input is refused, if nothing else is stated."""


def fault_share(value: Number) -> Fraction:
    """Return a fault threshold as an exact share. Raises OdError where it is none."""
    try:
        share = exact_fraction("the fault threshold", value)
    except OdError:
        share = Fraction(-1)
    if not 0 <= share <= 1:
        raise OdError("OD-FAULT-THRESHOLD", "the fault threshold is no share", next_step="give a number from 0 to 1")
    return share


class Standing(Enum):
    """How a release treats one record. It follows from that record and from public facts alone."""

    COUNTED = "counted"
    FAULTY = "dropped, for a zone that is not listed, or for want of a user id or a weight"
    OTHER_CATEGORY = "of a category that the release does not count"
    OTHER_PERIOD = "of another period, or without a date"


@dataclass(frozen=True)
class Acceptance:
    """Public rules that say which records of an input are counted, and which inputs are refused.

    Attributes:
        fault_threshold: refuse the input when a larger share of its trips is faulty; 0 to 1.
        has_categories: whether records of some categories alone are counted.
        refuses_empty: whether an input is refused of which no record is counted.

    Raises:
        OdError: the threshold is no share.
    """

    fault_threshold: Fraction = FAULT_THRESHOLD
    has_categories: bool = False
    refuses_empty: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "fault_threshold", fault_share(self.fault_threshold))

    def facts(self) -> dict[str, str | bool]:
        """Return the rules as JSON-ready public facts; see :meth:`from_facts`."""
        return {
            "fault_threshold": str(self.fault_threshold),
            "has_categories": self.has_categories,
            "refuses_empty": self.refuses_empty,
        }

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> Acceptance:
        """Return the rules behind their facts."""
        return cls(Fraction(facts["fault_threshold"]), facts["has_categories"], facts["refuses_empty"])

    def refuse_empty(self, counted: int) -> None:
        """Refuse an input of which nothing is counted, where such inputs are refused. Raises OdError."""
        if self.refuses_empty and counted == 0:
            raise OdError(
                "OD-TRIPS-NONE",
                "no record of the input is counted: it is empty, or all its records are of other periods or categories",
                next_step="correct the files of records; if a period may have none, declare accept_empty: true",
            )

    def sentence(self, of_what: str) -> str:
        """Return which inputs are refused, in a sentence; ``of_what`` are trips or records."""
        share = text_above(100 * self.fault_threshold)
        faulty = f"more than {share} % of the {of_what} were" if self.fault_threshold else f"any of the {of_what} was"
        empty = ", or of which nothing is counted" if self.refuses_empty else ""
        return (
            f"Inputs are refused in which {faulty} faulty{empty};"
            " the promise holds between inputs that are both accepted."
        )


DEFAULT_ACCEPTANCE = Acceptance()
"""The rules if nothing else is stated."""

NO_FAULTS = Acceptance(fault_threshold=Fraction(0))
"""Every record counts, or the input is refused: no record can leave the release."""


@dataclass(frozen=True)
class Neighbours:
    """The relation between the neighbouring inputs of one release of flows.

    Attributes:
        unit: what is protected: the records of one unit change.
        acceptance: which records are counted, and which inputs are refused.
        has_unknown_areas: whether origins and destinations both have an area for records from places that are not
            listed, so that such a record stays in the release.
    """

    unit: PrivacyUnit
    acceptance: Acceptance = DEFAULT_ACCEPTANCE
    has_unknown_areas: bool = False

    def may_have(self, standing: Standing) -> bool:
        """Whether a record that changes between neighbours may have this standing in an accepted input.

        Under bounded neighbours a record is replaced by one of the same period, so the period of a record is not
        protected, and neither is whether it has a date; but for a user of whom all records of all periods change.
        """
        if standing is Standing.OTHER_PERIOD:
            return self.unit.neighbours == "unbounded" or self.unit.kind == "user"
        if standing is Standing.OTHER_CATEGORY:
            return self.acceptance.has_categories
        if standing is Standing.FAULTY:
            needs_more_than_zones = self.unit.kind != "trip" or self.unit.max_weight is not None
            return self.acceptance.fault_threshold > 0 and (needs_more_than_zones or not self.has_unknown_areas)
        return True

    def are(self, removed: Sequence[Standing], added: Sequence[Standing]) -> bool:
        """Whether two accepted inputs are neighbours that differ in these records alone.

        Args:
            removed: standing of each record of the unit that only the first input has.
            added: standing of each record of the unit that only the second input has. Under a user unit both are all
                records of one user; under bounded neighbours the second may be of another user.
        """
        if not all(map(self.may_have, (*removed, *added))):
            return False
        if self.unit.neighbours == "unbounded" and removed and added:
            return False
        if self.unit.kind != "trip":
            return True
        return len(removed) + len(added) == (2 if self.unit.neighbours == "bounded" else 1) and len(removed) < 2

    @property
    def publishes_total(self) -> bool:
        """Whether the total number of trips, n, is an invariant: the same for all neighbours, and published exactly.

        That holds where one record that counts 1 is replaced, and no record can leave the release.
        """
        unit = self.unit
        counts_one = unit.kind == "trip" and unit.neighbours == "bounded" and unit.max_weight is None
        return counts_one and not self.record_may_leave

    @property
    def record_may_leave(self) -> bool:
        """Whether a record that is counted in one input may have no counted record in its place in a neighbour."""
        return any(self.may_have(standing) for standing in Standing if standing is not Standing.COUNTED)

    def sensitivity_squared(self, level: int) -> int:
        """Return the squared L2 sensitivity of the counts of a level; 0 for a root that is an invariant.

        Below the root a record that leaves changes one cell, and one that moves changes two: the unit's bound holds
        for both. The root changes by what the unit counts at most.
        """
        if level > 0:
            return self.unit.sensitivity_squared
        return 0 if self.publishes_total else self.unit.contribution_bound**2

    def shifted_cells(self, level: int) -> int | None:
        """Return how many cells of a level may change, each by one; None for users and weights, who change by more."""
        if self.unit.kind != "trip" or self.unit.max_weight is not None:
            return None
        return self.sensitivity_squared(level)

    def change(self) -> str:
        """Return what may have happened to the records without anybody learning it, as a clause of a sentence."""
        anywhere = ", counted in this release or not" if self.record_may_leave else ""
        return change_of(self.unit, anywhere)

    def public(self) -> list[str]:
        """Return what is public for certain beside the release's settings, as clauses of a sentence."""
        if not self.publishes_total:
            return []
        return [f"the total number of trips, which is published exactly ({self._why_total_is_public()})"]

    def _why_total_is_public(self) -> str:
        stays = (
            "records without a listed zone go to the unknown area"
            if self.has_unknown_areas
            else "an input with any faulty record is refused"
        )
        return f"{stays}, so a replaced record always stays in it"


def change_of(unit: PrivacyUnit, anywhere: str = "") -> str:
    """Return what may have happened to the records of a unit, as a clause of a sentence.

    Args:
        unit: what is protected.
        anywhere: what is to be said of the record that takes the place of another.
    """
    if unit.kind == "trip":
        bounded = f"replaced by any other of the same period{anywhere}"
        weight = "" if unit.max_weight is None else f", which counts at most {unit.max_weight} trips,"
        return f"one trip record{weight} was {bounded if unit.neighbours == 'bounded' else 'added or removed'}"
    period = " in one elementary period" if unit.kind == "user_period" else ""
    within = " in the same period" if unit.kind == "user_period" else ""
    change = f"replaced by any of another user{within}" if unit.neighbours == "bounded" else "added or removed"
    return f"all trips of one user{period}, of which at most {unit.contribution_bound} are counted, were {change}"
