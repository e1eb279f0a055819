"""The privacy domain of a data set: what is protected in it, and how much may be spent (spec 6)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from od_core.errors import OdError, nearest_known
from od_core.periods import LENGTHS, Length, Period
from od_core.privacy.cap import Cap
from od_core.privacy.unit import PrivacyUnit, UnitKind

NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
"""Names of data sets and of release series: one way to write each."""

ALL_PERIODS = "all"
"""What a release charges where a user is protected for ever: the losses of all periods add up."""


@dataclass(frozen=True)
class PrivacyDomain:
    """One data set, one unit, one relation, one elementary period, one cap for every such period.

    Attributes:
        name: of the data set; every release of it charges this domain.
        unit: what is protected, and under which neighbours; each release states its own max_trips.
        cap: most that all releases together may charge to one elementary period.
        cap_reason: why the cap is what it is; a changed cap needs a reason that was never given before.
        elementary_period: the finest period in use; a unit of ``user_period`` is a user's trips in one of them.
        time_zone: in whose days times with a zone count; None where a release states none. All that state one state
            the same: by two clocks a trip near midnight would be in two elementary periods, and spend the cap of both.
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
                f"the data set's name {self.name!r} is not lower-case letters, digits and underscores",
                next_step="correct the privacy domain",
            )
        if not self.cap_reason.strip():
            raise OdError("OD-DOMAIN-REASON", "a cap needs a reason", next_step="state it")
        if self.elementary_period not in LENGTHS:
            known = nearest_known(str(self.elementary_period), LENGTHS)
            raise OdError(
                "OD-DOMAIN-PERIOD",
                f"there is no elementary period {self.elementary_period!r} ({known})",
                next_step="correct the privacy domain",
            )

    def facts(self) -> dict[str, str | None]:
        """What may not change once the domain is declared, as JSON-ready text; the time zone once one is stated."""
        zone = {} if self.time_zone is None else {"time_zone": self.time_zone}
        return {**unit_facts(self.unit), "elementary_period": self.elementary_period, **zone}


def unit_facts(unit: PrivacyUnit) -> dict[str, str | None]:
    """What all releases of a domain share of their unit; how many trips of a user are counted is each one's own."""
    return {"unit": unit.kind, "neighbours": unit.neighbours, "column": unit.column}


def charged_periods(period: Period, elementary: Length, unit: UnitKind) -> tuple[str, ...]:
    """Every elementary period that a release of a period charges.

    A month touches all its days. The losses of different periods concern different trips, or different pairs of user
    and period; those of a user add up.

    Args:
        period: of the release.
        elementary: of the domain.
        unit: kind of the domain's unit.

    Raises:
        OdError: a release that is not made of whole elementary periods: a trip replaced by one of the same elementary
            period may leave the release, which an exact n would tell. A ``user_period`` release of several of them:
            cutting a user to m trips over all of them would let the trips of one decide which of another are counted.
    """
    parts = period.parts(elementary)
    if not parts:
        raise OdError(
            "OD-DOMAIN-PERIOD",
            f"a release of {period} is not made of whole elementary periods of the data set, which are {elementary}s",
            next_step="release whole elementary periods, or declare a data set of shorter ones",
        )
    if unit == "user":
        return (ALL_PERIODS,)
    if unit == "user_period" and len(parts) > 1:
        raise OdError(
            "OD-DOMAIN-PERIOD",
            f"a release of {period} spans several elementary periods ({elementary}s), which unit 'user_period' forbids",
            next_step="release one elementary period at a time, declare a longer one, or use unit 'user'",
        )
    return tuple(part.text for part in parts)
