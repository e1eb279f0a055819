"""Define notices of published and failed releases, and a class whose methods a team can override to send them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Published:
    """A notice that a release was published.

    Attributes:
        release: key of the release, such as ``us_flights/2001-06/r1``.
        facts: public metadata of its bundle, by name, such as guarantee, epsilon and trips.
    """

    release: str
    facts: dict[str, Any]

    def __str__(self) -> str:
        return f"Published {self.release}. " + "; ".join(f"{name}: {fact}" for name, fact in self.facts.items())


@dataclass(frozen=True)
class Failed:
    """A notice that a run of a release failed.

    Attributes:
        series: name of the release series.
        period: period of the run, such as 2001-06; None if the run has no period.
        run_id: Dagster's id of the run.
        causes: public lines, one for each failed check and step.
    """

    series: str
    period: str | None
    run_id: str
    causes: tuple[str, ...]

    def __str__(self) -> str:
        release = self.series if self.period is None else f"{self.series}, {self.period}"
        return " ".join([f"Failed {release}, in run {self.run_id}.", *self.causes])


class Notices:
    """A channel that writes notices to the sensor's log. Override its methods to send them elsewhere.

    Bind the subclass as the Dagster resource ``notices``. Notices contain nothing confidential. Each notice is
    delivered at least once: if a method raises an exception, the notice is delivered again later.
    """

    def published(self, notice: Published, log: logging.Logger) -> None:
        """Deliver the notice of a published release."""
        log.info(str(notice))

    def failed(self, notice: Failed, log: logging.Logger) -> None:
        """Deliver the notice of a failed run, or of a failed blocking check in it."""
        log.error(str(notice))
