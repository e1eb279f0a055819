"""What was looked at, and whether it is as it should be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from od_assets.terminal import keep_detail_of
from od_core.errors import OdError


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; all of it is public.

    Attributes:
        what: what was looked at.
        fault: what is wrong with it, in one line; None where nothing is.
        next_step: what to do about it; None where nothing is wrong.

    Raises:
        OdError: a fault without a next step, or a next step without a fault.
    """

    what: str
    fault: str | None = None
    next_step: str | None = None

    def __post_init__(self) -> None:
        if (self.fault is None) != (self.next_step is None):
            raise OdError("OD-FINDING", f"{self.what}: a fault has a next step", next_step="report this defect")

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return self.fault is None

    def facts(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"what": self.what, "ok": self.ok, "fault": self.fault, "next_step": self.next_step}

    @classmethod
    def of_error(cls, what: str, error: OdError) -> Finding:
        """The fault that an error says; what it knows beyond that goes into the confidential folder."""
        keep_detail_of(error)
        return cls(what, f"{error.code}: {error.message}", error.next_step)


def found(what: str, look: Callable[[], str | None]) -> Finding:
    """What came of a look: what it returns is added to what was looked at, an OdError that it raises is the fault."""
    try:
        more = look()
    except OdError as error:
        return Finding.of_error(what, error)
    return Finding(what if more is None else f"{what}: {more}")
