"""Describe the numbers of trips from or to each zone that are public beforehand, from registers and gates.

They enter the least squares as further measurements, which cost nothing. The error that is stated with them takes the
place of noise: the known total of a zone has the standard deviation error * total, which is 0 if it is exact.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from od_core.errors import OdError
from od_core.flows.arrays import Reals
from od_core.geography.codes import find_positions
from od_core.geography.geography import Geography
from od_core.languages import localise_number, translate
from od_core.privacy.accounting import Number, parse_exact_fraction

Side = Literal["origin", "destination"]

SIDES: tuple[Side, ...] = get_args(Side)
"""The sides of a trip; their positions are their numbers."""

_MOST_TRIPS = float(1 << 53)
"""Limit of the sum of known totals. Below it, 64-bit floating-point numbers represent all whole numbers exactly."""


@dataclass(frozen=True, eq=False)
class KnownTotals:
    """The public numbers of trips that begin, or that end, in each zone.

    Attributes:
        side: ``origin`` for the trips that begin in each zone, ``destination`` for those that end there.
        trips: known number of each zone, in the order of the geography; shape (zones,).
        error: relative standard error of each number; 0 if they are exact.
        source, date: where the numbers are from, and of which day they are, for the certificate; empty if not stated.

    Raises:
        OdError: if the side is unknown, the error is not from 0 to 1, a number is negative, not finite or, if it is
            exact, not whole, or the numbers are too large.

    Examples:
        >>> gates = pd.DataFrame({"area": geography.zones, "trips": [500, 120, 80]})
        >>> known = KnownTotals.from_frame(gates, geography, side="origin", error="0.02")
        >>> plan_release(geography, unit=unit, budget=budget, known=known).known[0].deviations.tolist()
        [10.0, 2.4, 1.6]
    """

    side: Side
    trips: Reals
    error: Fraction
    source: str = ""
    date: str = ""

    def __post_init__(self) -> None:
        if self.side not in SIDES:
            raise make_known_totals_error(f"side is {self.side!r}, not one of {', '.join(SIDES)}")
        if not 0 <= self.error <= 1:
            raise make_known_totals_error(f"error is {self.error}; it must be from 0 to 1")
        if not (np.isfinite(self.trips) & (self.trips >= 0)).all():
            raise make_known_totals_error("a known number of trips is not a number of at least 0")
        if self.is_exact and not (self.trips == np.floor(self.trips)).all():
            raise make_known_totals_error("error is 0, but a known number of trips is not whole")
        if self.trips.sum() >= _MOST_TRIPS:
            raise make_known_totals_error("the known numbers of trips are too large")

    @classmethod
    def from_frame(
        cls,
        totals: pd.DataFrame,
        geography: Geography,
        *,
        side: Side,
        error: Number,
        level: str | None = None,
        source: str = "",
        date: str = "",
    ) -> KnownTotals:
        """Return the totals of a table with the columns ``area``, codes of all zones as text, and ``trips``.

        Args:
            geography: that of the side.
            level: name of the level of the areas, which must be that of the zones; by default, it is.

        Raises:
            OdError: if a column is missing, an area is not a zone, a zone is missing or listed twice, or as for the
                class.
        """
        if level is not None and level != geography.level_names[-1]:
            stated = "is not that of the zones" if level in geography.level_names else "is not there"
            raise make_known_totals_error(f"the level {level!r} {stated}; the zones are {geography.level_names[-1]!r}")
        for column in ("area", "trips"):
            if column not in totals.columns:
                raise make_known_totals_error(f"the table of known totals has no column {column!r}")
        zones = find_positions(totals["area"], geography.zones)
        if (zones < 0).any():
            raise make_known_totals_error("the table of known totals has areas that are not zones")
        rows_of_zone = np.bincount(zones, minlength=len(geography.zones))
        if (rows_of_zone > 1).any():
            first = geography.zones[int(np.argmax(rows_of_zone > 1))]
            raise make_known_totals_error(f"the table of known totals has the zone {first!r} more than once")
        if (rows_of_zone == 0).any():
            first = geography.zones[int(np.argmin(rows_of_zone))]
            missing = np.count_nonzero(rows_of_zone == 0)
            raise make_known_totals_error(f"the table of known totals lacks {missing} zones, such as {first!r}")
        trips = np.empty(len(rows_of_zone))
        trips[zones] = pd.to_numeric(totals["trips"], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
        return cls(side, trips, parse_exact_fraction("the error of known totals", error), source, date)

    @property
    def number(self) -> int:
        """Number of the side: 0 for origins, 1 for destinations."""
        return SIDES.index(self.side)

    @property
    def is_exact(self) -> bool:
        """Whether the numbers have no error."""
        return self.error == 0

    @property
    def deviations(self) -> Reals:
        """Standard deviation of the error of each number; shape (zones,)."""
        return self.trips * float(self.error)

    @property
    def variances(self) -> Reals:
        """Variance of the error of each number; shape (zones,)."""
        return np.square(self.deviations)

    @cached_property
    def total(self) -> int:
        """Sum of the numbers, rounded; if they are exact, the number of all trips."""
        return round(float(self.trips.sum()))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the numbers, in the order of the zones, as 64-bit floating-point numbers."""
        return hashlib.sha256(self.trips.astype("<f8").tobytes()).hexdigest()

    def describe(self, counted: str) -> str:
        """Return a clause on what is known, for the certificate; ``counted`` is the noun of what is counted."""
        clause = translate("how many {counted} end in each zone")
        if self.side == "origin":
            clause = translate("how many {counted} begin in each zone")
        error = translate("exactly")
        if not self.is_exact:
            percent = localise_number(f"{float(100 * self.error):g}")
            error = translate("with a standard error of {percent} %").format(percent=percent)
        stated = ", ".join(filter(None, [self.source, self.date]))
        return f"{clause.format(counted=counted)}, {error}{f' ({stated})' if stated else ''}"

    def facts(self) -> dict[str, Any]:
        """Return the facts on the totals for JSON; their numbers are in a table of the bundle."""
        stated = {name: text for name, text in (("source", self.source), ("date", self.date)) if text}
        return {"side": self.side, "error": str(self.error), "digest": self.digest, **stated}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], table: pd.DataFrame, geography: Geography) -> KnownTotals:
        """Return the totals that :meth:`facts` states, with the numbers of a table of one or both sides."""
        stated = {name: facts.get(name, "") for name in ("source", "date")}
        of_side = table[table["side"] == facts["side"]].rename(columns={"known": "trips"})
        return cls.from_frame(of_side, geography, side=facts["side"], error=facts["error"], **stated)


def list_known_totals(
    known: KnownTotals | Sequence[KnownTotals] | None, sizes: Sequence[int]
) -> tuple[KnownTotals, ...]:
    """Return the known totals of a plan, in the order of the sides.

    ``sizes`` are the numbers of zones of both sides. Raises OdError if a side is given twice, has another number of
    zones or only one zone, or if both sides are exact and have different sums.
    """
    if known is None:
        return ()
    by_side = sorted([known] if isinstance(known, KnownTotals) else known, key=lambda totals: totals.number)
    if len({totals.number for totals in by_side}) < len(by_side):
        raise make_known_totals_error("the known totals of a side are given more than once")
    if any(len(totals.trips) != sizes[totals.number] for totals in by_side):
        raise make_known_totals_error("the known totals are of other zones than those of the plan")
    if any(len(totals.trips) < 2 for totals in by_side):
        raise make_known_totals_error("known totals are given for a side that is one zone")
    if len({totals.total for totals in by_side if totals.is_exact}) > 1:
        raise make_known_totals_error("the exact totals of the origins and of the destinations have different sums")
    return tuple(by_side)


def make_known_totals_error(message: str) -> OdError:
    """Return the error for known totals that cannot be used."""
    return OdError("OD-KNOWN-TOTALS", message, next_step="correct the known totals, or state their error")
