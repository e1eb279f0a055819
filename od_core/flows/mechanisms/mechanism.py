"""Define the protocol of a mechanism: the properties and the projection in which mechanisms differ."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Measures = Literal["every_level", "all_leaves", "present_leaves"]
"""The cells that a mechanism measures. ``every_level`` measures every level of the flow tree, top first; the cells of a
level are the children of the nodes that the level above released. ``all_leaves`` measures every public pair of zones
once. ``present_leaves`` measures the pairs of zones that have trips, and drops those whose noisy count is below a
threshold."""


@runtime_checkable
class Mechanism(Protocol):
    """A mechanism: its name, its options and defaults, the cells that it measures, and how it projects noisy counts."""

    @property
    def name(self) -> str:
        """Name in plans and certificates."""
        ...

    @property
    def options(self) -> dict[str, str]:
        """Options by name, as public text, for the plan and the certificate."""
        ...

    @property
    def measures(self) -> Measures:
        """Cells that the mechanism measures."""
        ...

    @property
    def most_pairs(self) -> int | None:
        """Largest number of public pairs of zones that the mechanism accepts; None if there is no limit."""
        ...

    @property
    def default_conversion(self) -> str:
        """Accounting method that is used if the budget does not name one."""
        ...

    @property
    def default_shares(self) -> str:
        """Rule that divides the budget among the measured levels if the budget does not name one."""
        ...

    @property
    def keep_all_cap(self) -> int:
        """Largest number of public leaf pairs for which no node is dropped before all levels are measured.

        With breakdowns, a leaf pair counts once for its total and once for each category. If there are more, each node
        that is estimated as 0 is dropped with all nodes below it.
        """
        ...

    @property
    def leaf_dial(self) -> Fraction | None:
        """Option ``u`` of leaves that are estimated by empirical Bayes, in noise standard deviations; otherwise None.

        Only a mechanism that refines can have it. See :class:`od_core.flows.mechanisms.inftda.InfTDARefined`.
        """
        ...

    @property
    def segment_profile(self) -> Fraction | None:
        """Largest move of a segment towards its profile, in standard deviations of its noise; None if it is not moved.

        See :mod:`od_core.flows.estimation.segment_profile`.
        """
        ...

    @property
    def refines(self) -> bool:
        """True if final estimates are refined by least squares over all levels.

        If False, the estimate of a cell depends on its own level and the levels above only.
        """
        ...

    @property
    def estimate(self) -> str:
        """How the measurements of all levels become one estimate, if the mechanism refines.

        ``least_squares`` uses those on the path of a node. ``shrunk`` also learns from the other nodes of a level
        (:mod:`od_core.flows.estimation.shrinkage`), and ``auto`` chooses (:mod:`od_core.flows.estimation.held_out`).
        """
        ...

    @property
    def shrinks(self) -> bool:
        """True if the estimates of totals may learn from all nodes of a level."""
        ...

    @property
    def learns_from_levels(self) -> bool:
        """True if estimates may learn from all nodes of a level, so that all measurements must fit into memory."""
        ...

    def project(
        self, noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the estimated counts of the children of all parents; shape (children,), as ``noisy``.

        If the mechanism measures every level, the counts are integers of at least 0, and the children of each parent
        sum to the parent's total.

        Args:
            noisy: noisy counts of the children of all parents, one parent after the other.
            totals: trips of each parent; shape (parents,).
            offsets: the children of parent ``p`` are ``offsets[p]:offsets[p + 1]``; shape (parents + 1,).
        """
        ...


class PaperMechanism:
    """Defaults of the mechanisms in [boninsegna2025inftda, section 5].

    Every level is measured, the levels have equal shares of the budget, and estimates are not refined.
    """

    name: ClassVar[str]
    measures: ClassVar[Measures] = "every_level"
    most_pairs: ClassVar[int | None] = None
    default_conversion: ClassVar[str] = "tight"
    default_shares: ClassVar[str] = "uniform"
    refines: ClassVar[bool] = False

    @property
    def options(self) -> dict[str, str]:
        """No options: an empty dictionary."""
        return {}

    @property
    def keep_all_cap(self) -> int:
        """0, so nodes that are estimated as 0 are always dropped."""
        return 0

    @property
    def estimate(self) -> str:
        """``least_squares``; see :attr:`Mechanism.estimate`."""
        return "least_squares"

    @property
    def shrinks(self) -> bool:
        """True if ``estimate`` is not ``least_squares``."""
        return self.estimate != "least_squares"

    @property
    def learns_from_levels(self) -> bool:
        """True if estimates are shrunk, or segments are moved to profiles."""
        return self.shrinks or self.segment_profile is not None

    @property
    def leaf_dial(self) -> Fraction | None:
        """None, because the leaves are projected like every other level, not estimated by empirical Bayes."""
        return None

    @property
    def segment_profile(self) -> Fraction | None:
        """None, because these mechanisms release no segments."""
        return None
