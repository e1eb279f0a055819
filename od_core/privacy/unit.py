"""The unit of privacy, the neighbour relation, and the sensitivities they give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from od_core.errors import OdError, nearest_known

UnitKind = Literal["trip", "user", "user_period"]
Neighbours = Literal["bounded", "unbounded"]

UNIT_KINDS = ("trip", "user", "user_period")
NEIGHBOUR_RELATIONS = ("bounded", "unbounded")

LARGEST_WEIGHT = 1 << 20
"""Bound of the bounds of weights: the trips of 2^33 records then still sum to 2^53 at most."""


@dataclass(frozen=True)
class PrivacyUnit:
    """What one person's influence is, and which data sets count as neighbours (spec 6, "What is protected").

    Attributes:
        kind: ``trip`` (one record), ``user`` (all records of one user id), ``user_period`` (all of a user's
            records in one elementary period).
        neighbours: ``bounded`` (one unit replaced by another) or ``unbounded`` (one unit added or removed).
        column: column of the user id, for the user units.
        max_trips: at most so many records of a user are counted in a release, m; 1 for unit ``trip``.
        max_weight: at most so many trips are counted of one record with a weight, W, for unit ``trip``; None where
            every record counts 1.

    Raises:
        OdError: an unknown kind or relation; m below 1; a user unit without column or m; a trip unit with them; W
            below 1 or above 2^20; a user unit with W.
    """

    kind: UnitKind
    neighbours: Neighbours = "bounded"
    column: str | None = None
    max_trips: int | None = None
    max_weight: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in UNIT_KINDS:
            raise _fault(
                "OD-UNIT-UNKNOWN",
                f"there is no privacy unit {self.kind!r} ({nearest_known(str(self.kind), UNIT_KINDS)})",
            )
        if self.neighbours not in NEIGHBOUR_RELATIONS:
            known = nearest_known(str(self.neighbours), NEIGHBOUR_RELATIONS)
            raise _fault("OD-UNIT-UNKNOWN", f"there is no neighbour relation {self.neighbours!r} ({known})")
        if self.kind == "trip":
            if self.column is not None or self.max_trips not in (None, 1):
                raise _fault("OD-UNIT-OPTIONS", "unit 'trip' takes no user column and no max_trips; use unit 'user'")
            if self.max_weight is not None and not _is_weight(self.max_weight):
                raise _fault("OD-UNIT-MAX-WEIGHT", "max_weight is a whole number from 1 to 2^20, or left out")
            return
        if self.max_weight is not None:
            raise _fault("OD-UNIT-OPTIONS", f"unit {self.kind!r} takes no max_weight: a user's records count 1 each")
        if not isinstance(self.column, str) or not self.column.strip():
            raise _fault("OD-UNIT-OPTIONS", f"unit {self.kind!r} needs the column of the user id")
        if isinstance(self.max_trips, bool) or not isinstance(self.max_trips, int) or self.max_trips < 1:
            raise _fault("OD-UNIT-MAX-TRIPS", f"unit {self.kind!r} needs max_trips, a whole number of at least 1")

    @property
    def contribution_bound(self) -> int:
        """m, the number of trips that one unit has at most in a release; W where records have weights."""
        return self.max_weight or self.max_trips or 1

    @property
    def sensitivity_squared(self) -> int:
        """Squared L2 sensitivity of the counts of one level below the root (spec 1, table "Noise variance").

        All m trips of a unit may fall into one cell of a level, so adding it moves that cell by m, and
        replacing it moves two cells by m each; so does a record that counts up to m trips.
        """
        m = self.contribution_bound
        return 2 * m * m if self.neighbours == "bounded" else m * m

    def refuse_users(self, code: str, reason: str) -> None:
        """Refuse the user units where single trips alone can be protected, for a stated reason. Raises OdError."""
        if self.kind != "trip":
            raise OdError(code, reason, next_step="use PrivacyUnit('trip'), or release flows, which have user units")

    def refuse_weights(self, what: str) -> None:
        """Refuse weights, for what counts every record as 1; ``what`` begins the message. Raises OdError."""
        if self.max_weight is not None:
            raise OdError(
                "OD-UNIT-WEIGHTS",
                f"{what} count every record as 1, and their noise covers no weight",
                next_step="leave out max_weight, or release flows by a mechanism that measures every level",
            )


TRIP = PrivacyUnit("trip")
"""One record: none is cut."""


def _is_weight(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LARGEST_WEIGHT


def _fault(code: str, message: str) -> OdError:
    return OdError(code, message, next_step="correct the privacy unit")
