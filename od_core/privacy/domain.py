"""Define the privacy domain of a data set: what is protected in it, and how much releases may spend."""

from __future__ import annotations

import re
from dataclasses import dataclass

from od_core.errors import OdError
from od_core.periods import LENGTHS, Length, Period, check_time_zone
from od_core.privacy.cap import Cap
from od_core.privacy.unit import PrivacyUnit, UnitKind
from od_core.registry import refuse_unknown

NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
"""Form of the names of data sets and of release series."""

ALL_PERIODS = "all"
"""Elementary period that every release charges under unit ``user``: the losses of all periods add up."""


@dataclass(frozen=True)
class PrivacyDomain:
    """A data set with one unit, one neighbour relation, one elementary period, and one cap for every such period.

    Attributes:
        name: name of the data set; every release of it charges this domain.
        unit: privacy unit and neighbour relation; each release states its own ``max_trips``.
        cap: most that all releases together may charge to one elementary period.
        cap_reason: reason for the cap; a changed cap needs a reason that was never given before.
        elementary_period: finest period in use; unit ``user_period`` protects a user's trips in one of them.
        time_zone: time zone in which the days of all releases begin; None if not stated. In two time zones, one record
            could lie in two elementary periods, and would be charged to the cap of each.

    Raises:
        OdError: the name, elementary period or time zone is not valid, or the reason is blank.
    """

    name: str
    unit: PrivacyUnit
    cap: Cap
    cap_reason: str
    elementary_period: Length = "month"
    time_zone: str | None = None

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise OdError(
                "OD-DOMAIN-NAME",
                f"the data set name {self.name!r} must contain only lower-case letters, digits and underscores",
                next_step="correct the privacy domain",
            )
        if not self.cap_reason.strip():
            raise OdError("OD-DOMAIN-REASON", "the cap has no reason", next_step="state a reason")
        what, step = "elementary period", "correct the privacy domain"
        refuse_unknown(what, self.elementary_period, LENGTHS, code="OD-DOMAIN-PERIOD", next_step=step)

        if self.time_zone is not None:
            check_time_zone(self.time_zone)

    def facts(self) -> dict[str, str | None]:
        """Return the facts that must not change once the domain is declared, as JSON-ready text."""
        zone = {} if self.time_zone is None else {"time_zone": self.time_zone}
        return {**unit_facts(self.unit), "elementary_period": self.elementary_period, **zone}


def unit_facts(unit: PrivacyUnit) -> dict[str, str | None]:
    """Return the facts of the unit that all releases of a domain share. Each release has its own ``max_trips``."""
    return {"unit": unit.kind, "neighbours": unit.neighbours, "column": unit.column}


def charged_periods(period: Period, elementary: Length, unit: UnitKind) -> tuple[str, ...]:
    """Return every elementary period that a release of a period charges.

    A release of a month charges all its days. The losses of different elementary periods concern different trips, or
    different pairs of user and period. Under unit ``user`` they add up, in the one period ``ALL_PERIODS``.

    Args:
        period: period of the release.
        elementary: elementary period of the domain.
        unit: kind of the domain's unit.

    Raises:
        OdError: the period is not made of whole elementary periods: a trip replaced by one of the same elementary
            period could then leave the release, and an exact n would reveal it. Or a ``user_period`` release has
            several elementary periods: with one bound m over all of them, the trips of one would decide which trips of
            another are counted.
    """
    parts = period.parts(elementary)
    if not parts:
        raise OdError(
            "OD-DOMAIN-PERIOD",
            f"a release of {period} does not consist of whole elementary periods ({elementary}s) of the data set",
            next_step="release whole elementary periods, or declare a data set with a shorter elementary period",
        )
    if unit == "user":
        return (ALL_PERIODS,)
    if unit == "user_period" and len(parts) > 1:
        raise OdError(
            "OD-DOMAIN-PERIOD",
            f"a release of {period} spans several elementary periods ({elementary}s), which unit 'user_period' does"
            " not allow",
            next_step="release one elementary period at a time, declare a longer one, or use unit 'user'",
        )
    return tuple(part.text for part in parts)
