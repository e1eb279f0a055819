"""Define the findings of a diagnosis: the inspected part of the installation or input, and its fault, if any."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from od_assets.terminal import keep_detail_of
from od_core.errors import OdError
from od_core.files.durable import of_system


@dataclass(frozen=True)
class Finding:
    """The result of one inspection. It contains nothing confidential.

    Attributes:
        what: the inspected part.
        fault: the fault, in one line; None if there is none.
        next_step: how to correct the fault; None if there is none.

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
        """True if there is no fault."""
        return self.fault is None

    def facts(self) -> dict[str, Any]:
        """Return the finding as a JSON-ready dictionary."""
        return {"what": self.what, "ok": self.ok, "fault": self.fault, "next_step": self.next_step}

    @classmethod
    def of_error(cls, what: str, error: OdError) -> Finding:
        """Return the finding for an error. Any confidential detail goes to a file that only the owner can read."""
        keep_detail_of(error)
        return cls(what, f"{error.code}: {error.message}", error.next_step)


def found(what: str, look: Callable[[], str | None]) -> Finding:
    """Run an inspection and return its finding.

    Args:
        what: the inspected part.
        look: function that inspects it. A text that it returns is appended to ``what``; an OdError that it raises is
            the fault, as is a file or folder that the system refuses.
    """
    try:
        more = look()
    except OdError as error:
        return Finding.of_error(what, error)
    except OSError as error:
        return Finding.of_error(what, of_system(error))
    return Finding(what if more is None else f"{what}: {more}")
