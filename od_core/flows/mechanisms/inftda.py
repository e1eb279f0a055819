"""InfTDA: the top-down algorithm with Chebyshev projection (Boninsegna & Silvestri, Algorithm 1 and 3)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError, nearest_known
from od_core.flows.mechanisms.mechanism import PaperMechanism
from od_core.flows.projection.chebyshev import ORDERS, Order, project_children


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


# InfTDA, then least squares over all measured levels: less error at the same epsilon and delta (spec 1).


KEEP_ALL_CAP = 5_000_000
"""Public leaf pairs up to which every node is measured: a level is one query, so the charge is the same."""

Leaves = Literal["chebyshev", "empirical_bayes"]
LEAVES: tuple[Leaves, ...] = ("chebyshev", "empirical_bayes")

_LEAST_U, _MOST_U = Fraction(1, 10), Fraction(100)


@dataclass(frozen=True)
class InfTDARefined(InfTDA):
    """InfTDA whose levels all speak about each cell in the end (``od_core.flows.estimation.refinement``).

    Attributes:
        order: see :class:`od_core.flows.mechanisms.inftda.InfTDA`.
        keep_all_cap: up to so many public leaf pairs no node is dropped before all levels are measured; above it, and
            with 0, the nodes that the top-down pass puts at 0 are dropped with their branch.
        leaves: how the trips of the last level are shared out: ``chebyshev`` (IntOpt, as on every other level), or
            ``empirical_bayes`` (``od_core.flows.estimation.empirical_bayes``: less error on real flows, none gained
            where the cells tell nothing of each other).
        u: of ``empirical_bayes`` alone: the least trips that a small leaf is given, in standard deviations of its
            noise; 1/10 to 100. A dial: larger makes fewer false discoveries and more false negatives.
    """

    keep_all_cap: int = KEEP_ALL_CAP
    leaves: Leaves = "chebyshev"
    u: Fraction = Fraction(3, 2)

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
        if self.leaves not in LEAVES:
            raise OdError(
                "OD-MECHANISM-OPTION",
                f"there are no leaves {self.leaves!r} ({nearest_known(str(self.leaves), LEAVES)})",
                next_step="choose chebyshev or empirical_bayes",
            )
        object.__setattr__(self, "u", _dial(self.u))

    @property
    def options(self) -> dict[str, str]:
        """Options as public text; those of the leaves only where they are not the default."""
        options = super().options | {"keep_all_cap": str(self.keep_all_cap)}
        return options if self.leaf_dial is None else options | {"leaves": self.leaves, "u": str(self.leaf_dial)}

    @property
    def leaf_dial(self) -> Fraction | None:
        """As the protocol says."""
        return self.u if self.leaves == "empirical_bayes" else None


def _dial(u: object) -> Fraction:
    """A whole number, fraction, decimal or text as a fraction. Raises OdError where it is none, or out of range."""
    try:
        dial = Fraction(str(u))
    except (ValueError, ZeroDivisionError):
        dial = Fraction(0)
    if not _LEAST_U <= dial <= _MOST_U:
        raise OdError(
            "OD-MECHANISM-OPTION",
            "u is a number of standard deviations from 1/10 to 100",
            next_step="correct the option of the mechanism",
        )
    return dial
