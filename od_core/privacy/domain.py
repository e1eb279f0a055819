"""The privacy domain of a data set: what is protected in it, and how much may be spent (spec 6)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from od_core.errors import OdError
from od_core.privacy.unit import PrivacyUnit

NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
"""Names of data sets and of release series: one way to write each."""


@dataclass(frozen=True)
class PrivacyDomain:
    """One data set, one unit, one relation, one cap for every elementary period.

    Attributes:
        name: of the data set; every release of it charges this domain.
        unit: what is protected, and under which neighbours.
        cap: most rho that all releases together may charge to one elementary period.
        cap_reason: why the cap is what it is; a changed cap needs a new reason.
    """

    name: str
    unit: PrivacyUnit
    cap: Fraction
    cap_reason: str

    def __post_init__(self) -> None:
        if self.cap <= 0:
            raise OdError("OD-DOMAIN-CAP", "the cap must be above 0", next_step="correct the privacy domain")
        if not NAME.fullmatch(self.name):
            raise OdError(
                "OD-DOMAIN-NAME",
                f"the data set's name {self.name!r} is not lower-case letters, digits and underscores",
                next_step="correct the privacy domain",
            )
        if not self.cap_reason.strip():
            raise OdError("OD-DOMAIN-REASON", "a cap needs a reason", next_step="state it")

    def facts(self) -> dict[str, str | int | None]:
        """What may not change once the domain is declared, as JSON-ready text."""
        return {
            "unit": self.unit.kind,
            "neighbours": self.unit.neighbours,
            "column": self.unit.column,
        }
