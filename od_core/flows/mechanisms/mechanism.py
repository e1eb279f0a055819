"""What a mechanism says of itself; everything else is the same for all of them."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Measures = Literal["every_level", "all_leaves", "present_leaves"]
"""What is measured: each level below the one above it, top first; every public pair of zones, once; or the pairs of
zones that have trips, of which those with a noisy count below a threshold are dropped."""


@runtime_checkable
class Mechanism(Protocol):
    """A mechanism: its name, its options, its defaults, what it measures, and how noisy counts become a table."""

    @property
    def name(self) -> str:
        """Its name in plans and certificates."""
        ...

    @property
    def options(self) -> dict[str, str]:
        """Options as public text, for plan and certificate."""
        ...

    @property
    def measures(self) -> Measures:
        """What it measures."""
        ...

    @property
    def most_pairs(self) -> int | None:
        """Most public pairs of zones that it is meant for; None where any number will do."""
        ...

    @property
    def default_conversion(self) -> str:
        """Conversion used where the budget names none."""
        ...

    @property
    def default_shares(self) -> str:
        """Shares over the levels where the budget names none."""
        ...

    @property
    def keep_all_cap(self) -> int:
        """Up to so many public leaf pairs no node is dropped before all levels are measured; 0 drops nodes of 0."""
        ...

    @property
    def leaf_dial(self) -> Fraction | None:
        """Of a mechanism that refines: the dial u of empirical Bayes leaves; None where leaves are projected too."""
        ...

    @property
    def refines(self) -> bool:
        """Whether all levels speak about each cell in the end (least squares), or only those above it."""
        ...

    def project(
        self, noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The released counts of families of measured nodes; shape of ``noisy``.

        Where every level is measured, whole numbers of at least 0: the children ``offsets[p]:offsets[p + 1]`` sum to
        ``totals[p]``.
        """
        ...


# What the mechanisms of the paper have in common (Boninsegna & Silvestri, section 5).


class PaperMechanism:
    """Defaults of a mechanism that measures every level with equal shares, and takes each estimate as it is."""

    name: ClassVar[str]
    measures: ClassVar[Measures] = "every_level"
    most_pairs: ClassVar[int | None] = None
    default_conversion: ClassVar[str] = "tight"
    default_shares: ClassVar[str] = "uniform"
    refines: ClassVar[bool] = False

    @property
    def options(self) -> dict[str, str]:
        """None."""
        return {}

    @property
    def keep_all_cap(self) -> int:
        """None is kept that the level above rules out."""
        return 0

    @property
    def leaf_dial(self) -> Fraction | None:
        """None: the leaves are projected as every other level is."""
        return None
