"""Define what distinguishes one mechanism from another; everything else is the same for all of them."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Measures = Literal["every_level", "all_leaves", "present_leaves"]
"""The cells that a mechanism measures. ``every_level`` measures each level below the one above it, top first.
``all_leaves`` measures every public pair of zones once. ``present_leaves`` measures the pairs of zones that have trips,
and drops those whose noisy count is below a threshold."""


@runtime_checkable
class Mechanism(Protocol):
    """A mechanism: its name, options and defaults, what it measures, and how noisy counts become a table."""

    @property
    def name(self) -> str:
        """Name in plans and certificates."""
        ...

    @property
    def options(self) -> dict[str, str]:
        """Options as public text, for plan and certificate."""
        ...

    @property
    def measures(self) -> Measures:
        """The cells that it measures."""
        ...

    @property
    def most_pairs(self) -> int | None:
        """Most public pairs of zones that it is meant for; None if there is no limit."""
        ...

    @property
    def default_conversion(self) -> str:
        """Conversion used if the budget names none."""
        ...

    @property
    def default_shares(self) -> str:
        """Shares over the levels used if the budget names none."""
        ...

    @property
    def keep_all_cap(self) -> int:
        """Public leaf pairs up to which no node is dropped before all levels are measured.

        Above it, nodes estimated as 0 are dropped with their branch.
        """
        ...

    @property
    def leaf_dial(self) -> Fraction | None:
        """The dial u of empirical Bayes leaves, for a mechanism that refines; None where leaves are projected."""
        ...

    @property
    def refines(self) -> bool:
        """Return whether the final estimate of a cell uses all levels (least squares), or only those above it."""
        ...

    def project(
        self, noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the released counts of the children of measured nodes; shape of ``noisy``.

        Where every level is measured, these are whole numbers of at least 0, and the children
        ``offsets[p]:offsets[p + 1]`` sum to ``totals[p]``.
        """
        ...


class PaperMechanism:
    """Defaults of the published mechanisms: every level measured, equal shares, no refinement.

    References:
        [boninsegna2025inftda, section 5]
    """

    name: ClassVar[str]
    measures: ClassVar[Measures] = "every_level"
    most_pairs: ClassVar[int | None] = None
    default_conversion: ClassVar[str] = "tight"
    default_shares: ClassVar[str] = "uniform"
    refines: ClassVar[bool] = False

    @property
    def options(self) -> dict[str, str]:
        """No options."""
        return {}

    @property
    def keep_all_cap(self) -> int:
        """0: nodes estimated as 0 are always dropped."""
        return 0

    @property
    def leaf_dial(self) -> Fraction | None:
        """No dial: the leaves are projected like every other level."""
        return None
