"""Define the privacy unit, which includes the neighbour relation and the contribution bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeGuard, get_args

from od_core.errors import OdError
from od_core.notebook import Shown
from od_core.registry import refuse_unknown

UnitKind = Literal["trip", "user", "user_period", "user_year"]
Neighbours = Literal["bounded", "unbounded"]

UNIT_KINDS, NEIGHBOUR_RELATIONS = get_args(UnitKind), get_args(Neighbours)


@dataclass(frozen=True)
class ProtectedRecords:
    """The records that one privacy unit of a kind has, which are protected together.

    Attributes:
        owner: whose records they are; None if each record is a unit by itself.
        span: the time in which the records of an owner are one unit; None for all time.
    """

    owner: str | None = None
    span: Literal["elementary period", "year"] | None = None

    @property
    def is_of_users(self) -> bool:
        """True if one unit is an owner, whose records are counted up to a bound."""
        return self.owner is not None

    @property
    def spans_periods(self) -> bool:
        """True if the records of one unit may be in several elementary periods, so that their losses add up."""
        return self.is_of_users and self.span != "elementary period"

    @property
    def is_of_year(self) -> bool:
        """True if one unit has the records of a year, with a bound for the year and counters of users."""
        return self.span == "year"

    @property
    def is_of_all_time(self) -> bool:
        """True if one unit has all records of its owner, so that all periods are charged together."""
        return self.is_of_users and self.span is None


RECORDS_OF: Mapping[str, ProtectedRecords] = MappingProxyType(
    {
        "trip": ProtectedRecords(),
        "user": ProtectedRecords("user"),
        "user_period": ProtectedRecords("user", "elementary period"),
        "user_year": ProtectedRecords("user", "year"),
    }
)
"""What each kind of unit protects. Code that depends on the kind of a unit reads it here."""

LARGEST_WEIGHT = 1 << 20
"""Largest allowed ``max_weight``. With it, the trips of 2^33 records sum to at most 2^53."""


@dataclass(frozen=True)
class PrivacyUnit(Shown):
    """The privacy unit that a release protects, with the neighbour relation and the contribution bound.

    Attributes:
        kind: ``trip`` (one record), ``user`` (all records of one user id), ``user_period`` (all records of a user in
            one elementary period) or ``user_year`` (all records of a user in one year).
        neighbours: ``bounded`` (one unit replaced by another) or ``unbounded`` (one unit added or removed).
        column: column of the user id, for the user units; None for unit ``trip``.
        max_trips: the contribution bound m, the largest number of a user's records that a release counts; None or 1 for
            unit ``trip``.
        max_weight: W, the largest number of trips that a record with a weight may count, for unit ``trip``. None if
            every record counts 1.
        max_trips_year: M, the largest number of a user's records that the periods of a year count together, for unit
            ``user_year``.
        id_pattern: regular expression (RE2) that a whole user id must match, for unit ``user_year``. A record with
            another id is faulty. So an id that is written differently in another period is noticed.
        max_trips_pair: the pair cap c, the largest number of a user's records with the same origin and destination
            that a release counts, for the user units; None, also if m is given, if only m bounds them.

    Raises:
        OdError: the kind or the relation is unknown; m is below 1; a user unit lacks its column or m, or has W; unit
            ``trip`` has a column or m above 1; W is not from 1 to 2^20; unit ``user_year`` lacks a whole number M of
            at least m or a valid pattern, or another unit has one of these; or c is not a whole number from 1 to m, or
            given for unit ``trip``.

    Examples:
        >>> PrivacyUnit("user", column="person", max_trips=4).contribution_bound
        4
    """

    kind: UnitKind
    neighbours: Neighbours = "bounded"
    column: str | None = None
    max_trips: int | None = None
    max_weight: int | None = None
    max_trips_year: int | None = None
    id_pattern: str | None = None
    max_trips_pair: int | None = None

    def __post_init__(self) -> None:
        code, step = "OD-UNIT-UNKNOWN", "correct the privacy unit"
        refuse_unknown("privacy unit", self.kind, UNIT_KINDS, code=code, next_step=step)
        refuse_unknown("neighbour relation", self.neighbours, NEIGHBOUR_RELATIONS, code=code, next_step=step)
        if not self.is_of_year and (self.max_trips_year, self.id_pattern) != (None, None):
            raise _make_unit_error(
                f"unit {self.kind!r} does not take max_trips_year or id_pattern; use unit 'user_year'"
            )
        if self.max_trips_pair is not None:
            self._check_pair_cap()
        if self.kind == "trip":
            self._check_trip()
        else:
            self._check_user()
        if self.is_of_year:
            self._check_year()

    def _check_trip(self) -> None:
        """Raise OdError unless the fields are those of unit ``trip``."""
        if self.column is not None or self.max_trips not in (None, 1):
            raise _make_unit_error("unit 'trip' does not take a user column or max_trips; use unit 'user'")
        weight = self.max_weight
        if weight is not None and not (_is_count(weight, least=1) and weight <= LARGEST_WEIGHT):
            raise _make_unit_error(
                "max_weight must be a whole number from 1 to 2^20, or left out", "OD-UNIT-MAX-WEIGHT"
            )

    def _check_user(self) -> None:
        """Raise OdError unless the fields are those of a unit of users; :meth:`_check_year` checks those of a year."""
        if self.max_weight is not None:
            raise _make_unit_error(f"unit {self.kind!r} does not take max_weight: each record of a user counts 1")
        if not isinstance(self.column, str) or not self.column.strip():
            raise _make_unit_error(f"unit {self.kind!r} needs the column of user ids")
        if not _is_count(self.max_trips, least=1):
            raise _make_unit_error(
                f"unit {self.kind!r} needs max_trips, a whole number of at least 1", "OD-UNIT-MAX-TRIPS"
            )

    def _check_year(self) -> None:
        """Raise OdError unless there are a bound for the year and a pattern of user ids."""
        if not _is_count(self.max_trips_year, least=self.contribution_bound):
            message = f"unit {self.kind!r} needs max_trips_year, a whole number of at least max_trips, {self.max_trips}"
            raise _make_unit_error(message, "OD-UNIT-MAX-TRIPS-YEAR")
        if not isinstance(self.id_pattern, str) or not _is_regular_expression(self.id_pattern):
            message = f"unit {self.kind!r} needs id_pattern, a regular expression that every user id matches, such as"
            raise _make_unit_error(f"{message} '[0-9a-f]{{16}}'", "OD-UNIT-ID-PATTERN")

    def _check_pair_cap(self) -> None:
        """Raise OdError unless the pair cap is from 1 to m. Remove a pair cap of m, which has no effect beside m."""
        if self.kind == "trip":
            raise _make_unit_error("unit 'trip' does not take max_trips_pair; use unit 'user'")
        pair_cap, max_trips = self.max_trips_pair, self.max_trips
        if not (_is_count(max_trips, least=1) and _is_count(pair_cap, least=1) and pair_cap <= max_trips):
            message = f"max_trips_pair must be a whole number from 1 to max_trips, {max_trips}"
            raise _make_unit_error(message, "OD-UNIT-MAX-TRIPS-PAIR")
        if pair_cap == max_trips:
            object.__setattr__(self, "max_trips_pair", None)

    @property
    def contribution_bound(self) -> int:
        """Contribution bound: largest number of trips of one unit that a release counts.

        It is m for users, W for records with weights, and 1 for other records.
        """
        return self.max_weight or self.max_trips or 1

    @property
    def bounds(self) -> tuple[int, int | None]:
        """The contribution bound m, and the pair cap c; None if there is none."""
        return self.contribution_bound, self.max_trips_pair

    @property
    def differing_units(self) -> int:
        """Number of units in which neighbours differ: 2 if one replaces another, 1 if one is added or removed."""
        return 2 if self.neighbours == "bounded" else 1

    @property
    def is_of_users(self) -> bool:
        """True if one unit is a user, whose records are counted up to a bound."""
        return RECORDS_OF[self.kind].is_of_users

    @property
    def is_of_year(self) -> bool:
        """True if one unit has the records of a year, with a bound for the year and counters of users."""
        return RECORDS_OF[self.kind].is_of_year

    @property
    def span(self) -> str | None:
        """Time in which the records of a user are one unit; None for all time, and for unit ``trip``."""
        return RECORDS_OF[self.kind].span

    @property
    def spans_periods(self) -> bool:
        """True if the records of one unit may be in several elementary periods, so that their losses add up."""
        return RECORDS_OF[self.kind].spans_periods

    @property
    def features(self) -> frozenset[str]:
        """Names of what this unit has, as ``od_core/meaning/support.yaml`` lists them."""
        bounds = ("max_weight", "max_trips_pair")
        return frozenset({self.kind, self.neighbours, *(name for name in bounds if getattr(self, name) is not None)})

    def list_year_facts(self) -> dict[str, str | int | None]:
        """Return the facts that only a unit of a year has, by name; {} for other units."""
        if not self.is_of_year:
            return {}
        return {"max_trips_year": self.max_trips_year, "id_pattern": self.id_pattern}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> PrivacyUnit:
        """Return the unit that the facts of a plan state. Raises KeyError if a fact is missing."""
        return cls(
            facts["unit"],
            facts["neighbours"],
            column=facts.get("user_column"),
            max_trips=None if facts["unit"] == "trip" else facts["contribution_bound"],
            max_weight=facts.get("max_weight"),
            max_trips_year=facts.get("max_trips_year"),
            id_pattern=facts.get("id_pattern"),
            max_trips_pair=facts.get("max_trips_pair"),
        )


TRIP = PrivacyUnit("trip")
"""Unit ``trip`` under bounded neighbours."""


def _is_count(value: object, *, least: int) -> TypeGuard[int]:
    """Return whether a value is a whole number of at least ``least``, and no Boolean."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_regular_expression(text: str) -> bool:
    """Return whether a text is not empty and a regular expression for RE2, both alone and anchored."""
    import pyarrow.compute as pc  # only units of a year need it

    try:
        for pattern in (text, anchor_pattern(text)):  # an open \Q is valid alone, and not within brackets
            pc.match_substring_regex([""], pattern)
    except ValueError:  # ArrowInvalid
        return False
    return bool(text)


def anchor_pattern(pattern: str) -> str:
    """Return a regular expression, for RE2 and Java, that matches a text if ``pattern`` matches all of it."""
    return rf"\A(?:{pattern})\z"


def _make_unit_error(message: str, code: str = "OD-UNIT-OPTIONS") -> OdError:
    """Return the OdError for a privacy unit that is not valid."""
    return OdError(code, message, next_step="correct the privacy unit")
