"""InfTDA, then least squares over all measured levels: less error at the same epsilon and delta (spec 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from od_core.errors import OdError
from od_core.mechanisms.inftda import InfTDA

KEEP_ALL_CAP = 5_000_000
"""Public leaf pairs up to which every node is measured: a level is one query, so the charge is the same."""


@dataclass(frozen=True)
class InfTDARefined(InfTDA):
    """InfTDA whose levels all speak about each cell in the end (``od_core.estimation.refinement``).

    Attributes:
        order: see :class:`od_core.mechanisms.inftda.InfTDA`.
        keep_all_cap: up to so many public leaf pairs no node is dropped before all levels are measured; above it, and
            with 0, the nodes that the top-down pass puts at 0 are dropped with their branch.
    """

    keep_all_cap: int = KEEP_ALL_CAP

    name: ClassVar[str] = "inftda_refined"
    default_conversion: ClassVar[str] = "exact"
    default_shares: ClassVar[str] = "geography"
    refines: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.keep_all_cap, str) and self.keep_all_cap.isdecimal():  # as options are written down
            object.__setattr__(self, "keep_all_cap", int(self.keep_all_cap))
        if isinstance(self.keep_all_cap, bool) or not isinstance(self.keep_all_cap, int) or self.keep_all_cap < 0:
            raise OdError(
                "OD-MECHANISM-OPTION",
                "keep_all_cap is a number of leaf pairs, a whole number of at least 0",
                next_step="correct the option of the mechanism",
            )

    @property
    def options(self) -> dict[str, str]:
        """Options as public text."""
        return super().options | {"keep_all_cap": str(self.keep_all_cap)}
