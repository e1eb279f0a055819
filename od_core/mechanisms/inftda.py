"""InfTDA: the top-down algorithm with Chebyshev projection (Boninsegna & Silvestri, Algorithm 1 and 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError, nearest_known
from od_core.mechanisms.paper import PaperMechanism
from od_core.projection.chebyshev import ORDERS, Order, project_children


@dataclass(frozen=True)
class InfTDA(PaperMechanism):
    """InfTDA with its one option, the order in which IntOpt takes the excess.

    Attributes:
        order: ``ascending`` (fewer false positives, the paper's) or ``descending`` (fewer false negatives).
    """

    order: Order = "ascending"

    name: ClassVar[str] = "inftda"

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise OdError(
                "OD-INTOPT-ORDER",
                f"there is no order {self.order!r} ({nearest_known(str(self.order), ORDERS)})",
                next_step="choose ascending or descending",
            )

    @property
    def options(self) -> dict[str, str]:
        """Options as public text."""
        return {"order": self.order}

    def project(
        self, noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """IntOpt for every parent (spec 1, "IntOpt")."""
        return project_children(noisy, totals, offsets, self.order)
