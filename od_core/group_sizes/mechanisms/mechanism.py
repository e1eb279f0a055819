"""Define the interface of a mechanism for group-size tables."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol, runtime_checkable

from od_core.group_sizes.groups import Counts, Frame, Query


@runtime_checkable
class GroupSizeMechanism(Protocol):
    """A mechanism that measures areas and estimates a table from the noisy values."""

    @property
    def name(self) -> str:
        """Name of the mechanism in plans and certificates."""
        ...

    @property
    def options(self) -> dict[str, str]:
        """Options as public text."""
        ...

    @property
    def query(self) -> Query:
        """Query of every area of a measured level."""
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
        """Estimate the released histograms, a deterministic function of public values.

        Args:
            frame: the public facts of the table.
            noisy: noisy values of every measured level, top first. ``histogram`` has shape (areas, K + 1),
                ``cumulative`` has shape (areas, K), and ``sizes`` has the sorted sizes of one area after the other,
                shape (sum of G_r,).
            scale: scale of the discrete Laplace noise on every value, the same at all levels: P(k) ~ exp(-|k| / scale).

        Returns:
            Histograms of levels 1 to L, top first; shape (areas, K + 1) each; integers of at least 0.
        """
        ...
