"""Notices: what is said when a release is published, and when one fails; a team says it in its own way."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Published:
    """A release that anybody can see now.

    Attributes:
        release: its key, as ``us_flights/2001-06/r1``.
        facts: public facts of its bundle by name, as its metadata has them: guarantee, epsilon, trips, bundle.
    """

    release: str
    facts: dict[str, Any]

    def __str__(self) -> str:
        return f"Published {self.release}. " + "; ".join(f"{name}: {fact}" for name, fact in self.facts.items())


@dataclass(frozen=True)
class Failed:
    """A run of a release that failed; nothing was published by it.

    Attributes:
        series: name of the release series.
        period: as 2001-06; None where the run has none.
        run_id: of the run in Dagster.
        causes: a public line for each failed check and step.
    """

    series: str
    period: str | None
    run_id: str
    causes: tuple[str, ...]

    def __str__(self) -> str:
        release = self.series if self.period is None else f"{self.series}, {self.period}"
        return " ".join([f"Failed {release}, in run {self.run_id}.", *self.causes])


class Notices:
    """Writes a line to the log of the sensor; override either method, and bind the subclass under ``notices``.

    Nothing in a notice is confidential. Each is said at least once: again, where a method raised.
    """

    def published(self, notice: Published, log: logging.Logger) -> None:
        """A release was published."""
        log.info(str(notice))

    def failed(self, notice: Failed, log: logging.Logger) -> None:
        """A run of a release failed, or a blocking check in it."""
        log.error(str(notice))
