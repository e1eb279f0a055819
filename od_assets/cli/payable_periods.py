"""Count the declared periods that what remains of a cap pays for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from od_assets.resources.folders import Folders
from od_assets.series.settings import SeriesSettings
from od_core.ledger.integrity import chain_of
from od_core.ledger.reservation import payable
from od_core.periods import Period
from od_core.privacy.plan import Plan


@dataclass(frozen=True)
class PayablePeriods:
    """How many of the declared periods what remains of the cap pays for.

    Attributes:
        periods: the declared periods; of a series without an end, those that have ended, or else the first one.
        paid: number of these for which the cap pays; see :func:`od_core.ledger.reservation.payable`.
    """

    periods: tuple[Period, ...]
    paid: int

    @classmethod
    def of(cls, settings: SeriesSettings[Any, Any], plan: Plan) -> Self:
        """Return the periods that the cap pays for with the budget of a plan. Nothing is charged or stored.

        Raises:
            OdError: as in :func:`od_core.ledger.reservation.payable`.
        """
        periods, folders = tuple(settings.periods.declared()) or (settings.periods.first,), Folders()
        with TemporaryDirectory(prefix="od-release-plan-") as name:
            empty = Path(name) / "ledger.sqlite"
            chain = folders.ledger_chain if folders.ledger_chain.exists() else chain_of(empty)
            with chain.trial() as entries:
                return cls(periods, payable(entries, settings.domain, plan, periods))

    @property
    def all_paid(self) -> bool:
        """Whether the cap pays for every period."""
        return self.paid == len(self.periods)

    @property
    def text(self) -> str:
        """A sentence for people."""
        first, last, number = self.periods[0], self.periods[-1], len(self.periods)
        declared = (
            f"the declared period ({first})" if number == 1 else f"the {number} declared periods ({first} to {last})"
        )
        paid = "for all of" if self.all_paid else f"for {self.paid} of" if self.paid else "for none of"
        if number == 1:
            paid = "for" if self.paid else "not for"
        return f"What remains of the cap pays {paid} {declared} at this budget."

    def facts(self) -> dict[str, int]:
        """Return the numbers of the declared periods and of those that are paid, JSON-ready."""
        return {"periods": len(self.periods), "periods_paid": self.paid}
