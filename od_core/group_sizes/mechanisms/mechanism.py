"""Define the interface of a mechanism for group-size tables."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol, runtime_checkable

from od_core.group_sizes.groups import Counts, Frame, Query


@runtime_checkable
class GroupSizeMechanism(Protocol):
    """The interface of a mechanism, which defines the query of each area and estimates a table from noisy values."""

    @property
    def name(self) -> str:
        """Name of the mechanism in plans and certificates."""
        ...

    @property
    def options(self) -> dict[str, str]:
        """Options of the mechanism by name, as public text."""
        ...

    @property
    def query(self) -> Query:
        """Query that is asked of every area of a measured level."""
        ...

    @property
    def leaves_alone(self) -> bool:
        """True if the leaf areas get the whole budget and no other level is measured."""
        ...

    @property
    def adds_up(self) -> bool:
        """True if the mechanism guarantees that every area's histogram is the sum of its children's."""
        ...

    @property
    def keeps_totals(self) -> bool:
        """True if the mechanism guarantees that every area's histogram sums to its public number of groups."""
        ...

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """Return the estimated histograms of all levels. They depend on public values alone, without randomness.

        Args:
            frame: the public facts of the table, with the top code K.
            noisy: noisy values of every measured level, top first. The shape is (areas, K + 1) for ``histogram`` and
                (areas, K) for ``cumulative``. For ``sizes``, the sorted sizes of each area follow those of the area
                before; shape (groups of the level,).
            scale: scale of the discrete Laplace noise on every value, the same at all levels. The probability of noise
                k is proportional to exp(-|k| / scale).

        Returns:
            Histograms of levels 1 to L, top first; integers of at least 0, in one array of shape (areas, K + 1) per
            level.
        """
        ...
