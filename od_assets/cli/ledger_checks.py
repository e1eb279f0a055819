"""Check whether the ledger, or what is stored of earlier releases, would refuse the release of a period.

Nothing is charged, drawn or stored. The ledger is asked in a transaction that is rolled back.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, Self

import pyarrow as pa

from od_assets.cli.findings import Finding, found
from od_assets.resources.release_work import ReleaseWork
from od_assets.resources.warehouse import Warehouse
from od_assets.series.settings import ReleaseSettings, SeriesSettings
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.identity import Counted, hold_to_input
from od_core.ledger.user_counters import Allowances, UserCounters
from od_core.privacy.plan import Plan


def charged(settings: SeriesSettings[Any, Any], period: str) -> Finding:
    """Return a finding on the budget of a release: whether the ledger would refuse its charge."""
    warehouse = Warehouse.of(settings.project)
    work: ReleaseWork[Any, Any] = ReleaseWork(warehouse, settings, settings.key(period))

    def look() -> str:
        geography = settings.read_geography()
        if not warehouse.ledger_chain.exists():
            settings.plan(geography, period)
            return "nothing is spent yet"
        plan = work.planned(geography)
        lost = _lost(work, plan)
        warehouse.ledger.hold_to_release(work.key, settings.domain, plan, lost)
        if lost:
            return f"lost draws are charged again, which the cap allows: {len(lost)}"
        return "it is charged already" if warehouse.ledger.level_kinds(work.key) else "the cap allows it"

    return found(f"budget of {work.key}", look)


def _lost(work: ReleaseWork[Any, Any], plan: Plan) -> list[int]:
    """Return the numbers of the steps whose draw was lost. Draws in parts are left out, whose files are elsewhere."""
    in_parts = isinstance(work.settings, ReleaseSettings) and work.settings.bands is not None
    return [] if in_parts or not work.is_drawn else work.measurements.lost(plan.charged_steps)


def hold_to_drawn(work: ReleaseWork[Any, Any], counted: Counted, counters: UserCounters | None) -> None:
    """Raise OdError if a release that is drawn would refuse the counted input, because it has changed.

    For unit ``user_year``, the input is not compared if ``counters`` is None, because they cannot be used.
    """
    if counters is not None:
        counters.hold_to_input(counted)
    elif work.counters is None:
        hold_to_input(InspectedFolder.of(work), work.key, counted, drawn=True)


class InspectedFolder(ConfidentialFolder):
    """The confidential folder, in which an inspection makes no key."""

    @classmethod
    def of(cls, work: ReleaseWork[Any, Any]) -> Self:
        """Return the confidential folder of a release."""
        return cls(work.warehouse.confidential.path)

    def key(self) -> bytes:
        """Return the key; if there is none, one with which nothing was made."""
        return super().key() if (self.path / "hmac.key").exists() else bytes(32)


class InspectedCounters(UserCounters):
    """Confidential: counters of users that an inspection reads once, and does not store."""

    @classmethod
    def of(cls, work: ReleaseWork[Any, Any]) -> Self | None:
        """Return the counters of a release; None if its unit has none, or if nothing was released yet."""
        if not work.warehouse.ledger_chain.exists() or (counters := work.counters) is None:
            return None
        return cls(**{**vars(counters), "confidential": InspectedFolder.of(work)})

    @cached_property
    def _allowed(self) -> Allowances:
        return super().allowances()

    def allowances(self) -> Allowances:
        """See :meth:`UserCounters.allowances`."""
        return self._allowed

    def check(self) -> None:
        """Raise OdError if a release would refuse the counters of the year."""
        self.allowances()

    def keep(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Compare the counters if the release is drawn, as :meth:`UserCounters.keep` does; otherwise do nothing."""
        if self.ledger.is_drawn(self.key):
            super().keep(batches)
