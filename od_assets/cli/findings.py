"""Findings of a diagnosis: what was inspected, and the fault found, if any."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from od_assets.terminal import keep_detail_of
from od_core.errors import OdError


@dataclass(frozen=True)
class Finding:
    """The result of one inspection; all of it is public.

    Attributes:
        what: what was inspected.
        fault: what is wrong with it, in one line; None if nothing is.
        next_step: what to do about the fault; None if there is none.

    Raises:
        OdError: a fault without a next step, or a next step without a fault.
    """

    what: str
    fault: str | None = None
    next_step: str | None = None

    def __post_init__(self) -> None:
        if (self.fault is None) != (self.next_step is None):
            raise OdError(
                "OD-FINDING",
                f"{self.what}: a fault needs a next step, and a next step needs a fault",
                next_step="report this defect",
            )

    @property
    def ok(self) -> bool:
        """Return whether nothing is wrong."""
        return self.fault is None

    def facts(self) -> dict[str, Any]:
        """Return the finding as JSON-ready facts."""
        return {"what": self.what, "ok": self.ok, "fault": self.fault, "next_step": self.next_step}

    @classmethod
    def of_error(cls, what: str, error: OdError) -> Finding:
        """Return the finding for an error; write any confidential detail to a file that only the owner can read."""
        keep_detail_of(error)
        return cls(what, f"{error.code}: {error.message}", error.next_step)


def found(what: str, look: Callable[[], str | None]) -> Finding:
    """Run an inspection and return its finding.

    Args:
        what: what is inspected.
        look: the inspection. A text that it returns is appended to ``what``; an OdError that it raises is the fault.
    """
    try:
        more = look()
    except OdError as error:
        return Finding.of_error(what, error)
    return Finding(what if more is None else f"{what}: {more}")
