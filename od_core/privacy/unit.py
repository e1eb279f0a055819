"""Define the privacy unit, which includes the neighbour relation and the contribution bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from od_core.errors import OdError
from od_core.registry import refuse_unknown

UnitKind = Literal["trip", "user", "user_period"]
Neighbours = Literal["bounded", "unbounded"]

UNIT_KINDS = ("trip", "user", "user_period")
NEIGHBOUR_RELATIONS = ("bounded", "unbounded")

LARGEST_WEIGHT = 1 << 20
"""Largest allowed ``max_weight``. With it, the trips of 2^33 records sum to at most 2^53."""


@dataclass(frozen=True)
class PrivacyUnit:
    """The privacy unit that a release protects, with the neighbour relation and the contribution bound.

    Attributes:
        kind: ``trip`` (one record), ``user`` (all records of one user id) or ``user_period`` (all records of a user in
            one elementary period).
        neighbours: ``bounded`` (one unit replaced by another) or ``unbounded`` (one unit added or removed).
        column: column of the user id, for units ``user`` and ``user_period``; None for unit ``trip``.
        max_trips: the contribution bound m, the largest number of a user's records that a release counts; None or 1 for
            unit ``trip``.
        max_weight: W, the largest number of trips that a record with a weight may count, for unit ``trip``. None if
            every record counts 1.

    Raises:
        OdError: the kind or the relation is unknown; m is below 1; a user unit lacks its column or m, or has W; unit
            ``trip`` has a column or m above 1; or W is not from 1 to 2^20.
    """

    kind: UnitKind
    neighbours: Neighbours = "bounded"
    column: str | None = None
    max_trips: int | None = None
    max_weight: int | None = None

    def __post_init__(self) -> None:
        for what, name, known in (
            ("privacy unit", self.kind, UNIT_KINDS),
            ("neighbour relation", self.neighbours, NEIGHBOUR_RELATIONS),
        ):
            refuse_unknown(what, name, known, code="OD-UNIT-UNKNOWN", next_step="correct the privacy unit")
        if self.kind == "trip":
            if self.column is not None or self.max_trips not in (None, 1):
                raise _fault("OD-UNIT-OPTIONS", "unit 'trip' does not take a user column or max_trips; use unit 'user'")
            if self.max_weight is not None and not _is_weight(self.max_weight):
                raise _fault("OD-UNIT-MAX-WEIGHT", "max_weight must be a whole number from 1 to 2^20, or left out")
            return
        if self.max_weight is not None:
            raise _fault(
                "OD-UNIT-OPTIONS", f"unit {self.kind!r} does not take max_weight: each record of a user counts 1"
            )
        if not isinstance(self.column, str) or not self.column.strip():
            raise _fault("OD-UNIT-OPTIONS", f"unit {self.kind!r} needs the column of user ids")
        if isinstance(self.max_trips, bool) or not isinstance(self.max_trips, int) or self.max_trips < 1:
            raise _fault("OD-UNIT-MAX-TRIPS", f"unit {self.kind!r} needs max_trips, a whole number of at least 1")

    @property
    def contribution_bound(self) -> int:
        """Contribution bound m: the most trips of one unit that a release counts; W for records with weights."""
        return self.max_weight or self.max_trips or 1

    def refuse_users(self, code: str, reason: str) -> None:
        """Raise OdError if the unit is not ``trip``. Releases that can protect only single trips call this.

        Args:
            code: code of the error.
            reason: message of the error.
        """
        if self.kind != "trip":
            raise OdError(code, reason, next_step="use PrivacyUnit('trip'), or release flows, which have user units")

    def refuse_weights(self, what: str) -> None:
        """Raise OdError if ``max_weight`` is set. Releases that count every record as 1 call this.

        Args:
            what: plural name of the released tables, with which the error message begins.
        """
        if self.max_weight is not None:
            raise OdError(
                "OD-UNIT-WEIGHTS",
                f"{what} count every record as 1, and their noise does not cover weights",
                next_step="leave out max_weight, or release flows by a mechanism that measures every level",
            )


TRIP = PrivacyUnit("trip")
"""Unit ``trip`` under bounded neighbours."""


def _is_weight(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LARGEST_WEIGHT


def _fault(code: str, message: str) -> OdError:
    return OdError(code, message, next_step="correct the privacy unit")
