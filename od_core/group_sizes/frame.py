"""What is public of a group-size table before anything is measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.geography.geography import Geography

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Frame:
    """The areas, how many groups each has, and the largest size that is told apart.

    Attributes:
        geography: its levels 1 to L are measured, the whole space is not (a geography with several areas at its first
            level is a forest); children of an area are contiguous.
        groups: G_r, the public number of groups of every leaf area, those of size 0 included; shape (leaf areas,).
        top_code: K; larger sizes count as K.
    """

    geography: Geography
    groups: Counts
    top_code: int

    def __post_init__(self) -> None:
        if len(self.groups) != len(self.geography.zones) or (self.groups < 0).any():
            raise _fault("there is not one number of groups, of at least 0, for each area")
        if self.top_code < 1:
            raise _fault("the top code is not at least 1")

    @property
    def levels(self) -> range:
        """Levels that are measured, top first."""
        return range(1, self.geography.depth + 1)

    def totals(self, level: int) -> Counts:
        """G_r of every area of a level; shape (areas,)."""
        return self.sums(self.groups, level)

    def sums(self, of_leaves: Counts, level: int) -> Counts:
        """Sums over the leaf areas of every area of a level; shape (areas, ...) from (leaf areas, ...)."""
        first = self.geography.first_zone[level][:-1]
        summed: Counts = np.add.reduceat(of_leaves, first, axis=0)
        return summed


def _fault(message: str) -> OdError:
    return OdError("OD-GROUPS-FRAME", message, next_step="correct the group list or the geography")
