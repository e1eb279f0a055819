"""InfTDA, the top-down algorithm with Chebyshev projection [boninsegna2025inftda, Algorithms 1 and 3]."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.mechanisms.mechanism import PaperMechanism
from od_core.flows.projection.chebyshev import ORDERS, Order, project_children
from od_core.registry import refuse_unknown


@dataclass(frozen=True)
class InfTDA(PaperMechanism):
    """InfTDA, with the order in which IntOpt takes the excess as its one option.

    Attributes:
        order: ``ascending`` (fewer false positives, as in [boninsegna2025inftda]) or ``descending`` (fewer false
            negatives).
    """

    order: Order = "ascending"

    name: ClassVar[str] = "inftda"

    def __post_init__(self) -> None:
        refuse_unknown("order", self.order, ORDERS, code="OD-INTOPT-ORDER", next_step="choose ascending or descending")

    @property
    def options(self) -> dict[str, str]:
        """Options as public text."""
        return {"order": self.order}

    def project(
        self, noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Apply IntOpt to every parent."""
        return project_children(noisy, totals, offsets, self.order)


KEEP_ALL_CAP = 5_000_000
"""Public leaf pairs up to which every node is measured. A level is one query, so this does not change the charge."""

Leaves = Literal["chebyshev", "empirical_bayes"]
LEAVES: tuple[Leaves, ...] = ("chebyshev", "empirical_bayes")

_LEAST_U, _MOST_U = Fraction(1, 10), Fraction(100)


@dataclass(frozen=True)
class InfTDARefined(InfTDA):
    """InfTDA, then least squares over all measured levels: less error at the same epsilon and delta.

    See ``od_core.flows.estimation.refinement`` and ``docs/explanation/estimator.md``.

    Attributes:
        order: See :class:`od_core.flows.mechanisms.inftda.InfTDA`.
        keep_all_cap: Up to this many public leaf pairs, no node is dropped before all levels are measured. Above it,
            and if it is 0, nodes that the top-down pass estimates as 0 are dropped with their branch.
        leaves: How the trips of the last level are shared out. ``chebyshev`` applies IntOpt, as on every other level.
            ``empirical_bayes`` (``od_core.flows.estimation.empirical_bayes``) has less error on real flows, and gains
            nothing where the cells tell nothing about each other.
        u: For ``empirical_bayes`` alone: the least number of trips that a small leaf is given, in standard deviations
            of its noise; 1/10 to 100. A larger u makes fewer false discoveries and more false negatives.
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
        if isinstance(self.keep_all_cap, str) and self.keep_all_cap.isdecimal():  # options are written down as text
            object.__setattr__(self, "keep_all_cap", int(self.keep_all_cap))
        if isinstance(self.keep_all_cap, bool) or not isinstance(self.keep_all_cap, int) or self.keep_all_cap < 0:
            raise OdError(
                "OD-MECHANISM-OPTION",
                "keep_all_cap must be a whole number of leaf pairs, at least 0",
                next_step="correct the option of the mechanism",
            )
        step = "choose chebyshev or empirical_bayes"
        refuse_unknown("leaf estimator", self.leaves, LEAVES, code="OD-MECHANISM-OPTION", next_step=step)
        object.__setattr__(self, "u", _dial(self.u))

    @property
    def options(self) -> dict[str, str]:
        """Options as public text; the options of the leaves only where they are not the default."""
        options = super().options | {"keep_all_cap": str(self.keep_all_cap)}
        return options if self.leaf_dial is None else options | {"leaves": self.leaves, "u": str(self.leaf_dial)}

    @property
    def leaf_dial(self) -> Fraction | None:
        """See :attr:`od_core.flows.mechanisms.mechanism.Mechanism.leaf_dial`."""
        return self.u if self.leaves == "empirical_bayes" else None


def _dial(u: object) -> Fraction:
    """Return a whole number, fraction, decimal or text as a fraction.

    Raises:
        OdError: If it is not a number, or is out of range.
    """
    try:
        dial = Fraction(str(u))
    except (ValueError, ZeroDivisionError):
        dial = Fraction(0)
    if not _LEAST_U <= dial <= _MOST_U:
        raise OdError(
            "OD-MECHANISM-OPTION",
            "u must be a number of standard deviations from 1/10 to 100",
            next_step="correct the option of the mechanism",
        )
    return dial
