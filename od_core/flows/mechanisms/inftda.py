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
    """InfTDA: a top-down pass that projects the children of each node with IntOpt, which minimises the largest change.

    Attributes:
        order: the order in which IntOpt lowers counts that sum to more than their parent: ``ascending`` lowers the
            smallest first (fewer false positives, as in [boninsegna2025inftda]), ``descending`` lowers the largest
            first (fewer false negatives).
    """

    order: Order = "ascending"

    name: ClassVar[str] = "inftda"

    def __post_init__(self) -> None:
        refuse_unknown("order", self.order, ORDERS, code="OD-INTOPT-ORDER", next_step="choose ascending or descending")

    @property
    def options(self) -> dict[str, str]:
        """Options by name, as public text."""
        return {"order": self.order}

    def project(
        self, noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the counts that IntOpt gives the children of each parent.

        For arguments and shapes, see :meth:`od_core.flows.mechanisms.mechanism.Mechanism.project`.
        """
        return project_children(noisy, totals, offsets, self.order)


KEEP_ALL_CAP = 5_000_000
"""Default of ``keep_all_cap``: largest number of public leaf pairs for which every public node is measured.

The value does not affect the charge, since a level is one query however many of its nodes are measured."""

Leaves = Literal["chebyshev", "empirical_bayes"]
LEAVES: tuple[Leaves, ...] = ("chebyshev", "empirical_bayes")

Estimate = Literal["least_squares", "shrunk", "auto"]
ESTIMATES: tuple[Estimate, ...] = ("least_squares", "shrunk", "auto")

_LEAST_U, _MOST_U = Fraction(1, 10), Fraction(100)


@dataclass(frozen=True)
class InfTDARefined(InfTDA):
    """InfTDA, followed by least squares over all measured levels.

    It has less error than InfTDA at the same epsilon and delta. See ``od_core.flows.estimation.refinement`` and
    ``docs/explanation/estimator.md``.

    Attributes:
        order: See :class:`od_core.flows.mechanisms.inftda.InfTDA`.
        keep_all_cap: Largest number of public leaf pairs for which no node is dropped before all levels are measured.
            With breakdowns, a leaf pair counts once for its total and once for each category. If there are more, each
            node that the top-down pass estimates as 0 is dropped with all nodes below it. The value 0 means that such
            nodes are always dropped.
        leaves: How the trips of a node are divided among its leaves. ``chebyshev`` applies IntOpt, as on every other
            level. ``empirical_bayes`` (``od_core.flows.estimation.empirical_bayes``) has less error on real flows, but
            not on data in which the count of one cell says nothing about the others.
        estimate: How the measurements of all levels become one estimate. ``least_squares`` uses the measurements on the
            path of a node. ``shrunk`` (``od_core.flows.estimation.shrinkage``) also learns from all other nodes. It has
            less error in the leaves, and needs whole levels in memory. With segments, it estimates the totals.
            With ``leaves: empirical_bayes``, it uses a mixture of deviations at every level instead, and gives small
            numbers in lumps. This has much less error if most pairs of zones have no trips, and more if all have some.
            ``auto`` (``od_core.flows.estimation.held_out``) chooses between all of these and the size of the lumps, by
            the error that held-out noise shows.
        u: Used with ``empirical_bayes`` only. The smallest number of trips that a small leaf receives, in standard
            deviations of its noise; 1/10 to 100. A larger u causes fewer false positives and more false negatives.
        segment_profile: Used with segments only. Moves the trips of each node in a category towards those that its
            parent's division among categories predicts (``od_core.flows.estimation.segment_profile``), by at most this
            number of standard deviations of the noise, 1/10 to 100. This has less error if the parts of an area have
            similar divisions, but the results are biased. None, the default, moves nothing.
    """

    keep_all_cap: int = KEEP_ALL_CAP
    leaves: Leaves = "chebyshev"
    estimate: Estimate = "least_squares"
    u: Fraction = Fraction(3, 2)
    segment_profile: Fraction | None = None

    name: ClassVar[str] = "inftda_refined"
    default_conversion: ClassVar[str] = "exact"
    default_shares: ClassVar[str] = "geography"
    refines: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.keep_all_cap, str) and self.keep_all_cap.isdecimal():  # option values in plans are text
            object.__setattr__(self, "keep_all_cap", int(self.keep_all_cap))
        if isinstance(self.keep_all_cap, bool) or not isinstance(self.keep_all_cap, int) or self.keep_all_cap < 0:
            raise OdError(
                "OD-MECHANISM-OPTION",
                "keep_all_cap must be a whole number of leaf pairs, at least 0",
                next_step="correct the option of the mechanism",
            )
        step = "choose chebyshev or empirical_bayes"
        refuse_unknown("leaf estimator", self.leaves, LEAVES, code="OD-MECHANISM-OPTION", next_step=step)
        step = "choose least_squares, shrunk or auto"
        refuse_unknown("estimate", self.estimate, ESTIMATES, code="OD-MECHANISM-OPTION", next_step=step)
        if self.estimate == "auto" and self.leaves != "chebyshev":
            raise OdError(
                "OD-MECHANISM-OPTION",
                "estimate: auto chooses how leaves are estimated, so leaves must be chebyshev",
                next_step="leave out the option leaves",
            )
        object.__setattr__(self, "u", _dial("u", self.u))
        if self.segment_profile is not None:
            object.__setattr__(self, "segment_profile", _dial("segment_profile", self.segment_profile))

    @property
    def options(self) -> dict[str, str]:
        """Options by name, as public text. Those added after version 0.1.0 are included only if they have an effect."""
        options = super().options | {"keep_all_cap": str(self.keep_all_cap)}
        if self.shrinks:
            options["estimate"] = self.estimate
        if self.segment_profile is not None:
            options["segment_profile"] = str(self.segment_profile)
        return options if self.leaf_dial is None else options | {"leaves": self.leaves, "u": str(self.leaf_dial)}

    @property
    def leaf_dial(self) -> Fraction | None:
        """The option ``u`` if the leaves are estimated by empirical Bayes, otherwise None."""
        return self.u if self.leaves == "empirical_bayes" else None


def _dial(name: str, value: object) -> Fraction:
    """Return an option given as a whole number, fraction, decimal or text, as a ``Fraction``.

    Raises:
        OdError: If the value is not a number from 1/10 to 100.
    """
    try:
        dial = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        dial = Fraction(0)
    if not _LEAST_U <= dial <= _MOST_U:
        raise OdError(
            "OD-MECHANISM-OPTION",
            f"{name} must be a number of standard deviations from 1/10 to 100",
            next_step="correct the option of the mechanism",
        )
    return dial
