"""What a mechanism for group-size tables says of itself, and does with noisy values."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Literal, Protocol, runtime_checkable

from od_core.group_sizes.groups import Counts, Frame

Query = Literal["histogram", "cumulative", "sizes"]
"""What is measured of an area: H, the number of groups of each size 0..K, shape (K + 1,); H_c, its cumulative sums but
for the last, which is public, shape (K,); or H_g, the sizes of its groups in ascending order, shape (G_r,)."""


@runtime_checkable
class GroupSizeMechanism(Protocol):
    """A mechanism: what it measures, and how a table is made of the noisy values."""

    @property
    def name(self) -> str:
        """Its name in plans and certificates."""
        ...

    @property
    def options(self) -> dict[str, str]:
        """Options as public text."""
        ...

    @property
    def query(self) -> Query:
        """What it measures of every area of a measured level."""
        ...

    @property
    def leaves_alone(self) -> bool:
        """Whether the whole budget goes to the leaf areas, and no other level is measured."""
        ...

    @property
    def adds_up(self) -> bool:
        """Whether every area's histogram is the sum of its children's, by its promise."""
        ...

    @property
    def keeps_totals(self) -> bool:
        """Whether the histogram of every area sums to its public number of groups, by its promise."""
        ...

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """The released histograms, a function of public values alone, the same at every call.

        Args:
            frame: what is public.
            noisy: of every measured level, top first: one row an area for ``histogram`` (shape (areas, K + 1)) and
                ``cumulative`` (shape (areas, K)); for ``sizes`` the areas' sorted sizes behind one another, shape
                (sum of G_r,).
            scale: of the discrete Laplace noise on every value, the same at all levels: P(k) ~ exp(-|k| / scale).

        Returns:
            Histograms of levels 1 to L, top first; shape (areas, K + 1) each; integers of at least 0.
        """
        ...
