"""InfTDA: the top-down algorithm with Chebyshev projection (Boninsegna & Silvestri, Algorithm 1 and 3)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError, nearest_known
from od_core.projection.chebyshev import ORDERS, Order, project_children


@dataclass(frozen=True)
class InfTDA:
    """InfTDA with its one option, the order in which IntOpt takes the excess.

    Attributes:
        order: ``ascending`` (fewer false positives, the paper's) or ``descending`` (fewer false negatives).
    """

    order: Order = "ascending"

    name: ClassVar[str] = "inftda"
    default_conversion: ClassVar[str] = "tight"
    default_shares: ClassVar[str] = "uniform"
    refines: ClassVar[bool] = False

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

    @property
    def keep_all_cap(self) -> int:
        """None is kept that the level above rules out."""
        return 0

    @property
    def leaf_dial(self) -> Fraction | None:
        """None: the leaves are projected as every other level is."""
        return None

    def project(
        self, noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """IntOpt for every parent (spec 1, "IntOpt")."""
        return project_children(noisy, totals, offsets, self.order)
