"""Where a flow tree is cut, so that what lies below can be worked on part by part (spec 8, section 4).

Bands are a public constant of the plan, and parts follow from them and from what was released above: never from the
size of a machine or a cluster, so that a release that is taken up elsewhere meets the parts that it left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.geography.flow_tree import Nodes

PART_TRIPS = 1_000_000
"""Of a part, by default: about a second of work and some tens of megabytes at census depth."""


@dataclass(frozen=True)
class Bands:
    """Consecutive levels of a flow tree that are worked on together, below each part of the level above them.

    Attributes:
        cuts: levels after which the tree is cut, from the top; (4,) makes the bands (0, 4] and (4, T].
        part_trips: a part is a run of nodes of the last level above, with about so many released trips together.
    """

    cuts: tuple[int, ...]
    part_trips: int = PART_TRIPS

    def __post_init__(self) -> None:
        whole = all(isinstance(cut, int) and not isinstance(cut, bool) for cut in (*self.cuts, self.part_trips))
        if not whole or not self.cuts or list(self.cuts) != sorted({*self.cuts}) or self.cuts[0] < 1:
            raise _refused("cuts are levels below the root, each once, from the top")
        if self.part_trips < 1:
            raise _refused("part_trips is a number of trips, at least 1")

    def check_depth(self, depth: int) -> None:
        """Raises OdError where a cut is not above the leaves of a tree of that depth."""
        if self.cuts[-1] >= depth:
            raise _refused(f"the flow tree has {depth} levels; the last cut is above its leaves")

    def split(self, levels: Sequence[int]) -> list[slice]:
        """The measured levels of each band, top first, as slices; bands in which nothing is measured are left out."""
        return _runs(np.searchsorted(self.cuts, levels, side="left"))

    def parts(self, frontier: Nodes) -> list[slice]:
        """The parts of a level's released nodes, in order: consecutive nodes, all of them."""
        before = np.cumsum(frontier.trips) - frontier.trips
        return _runs(before // self.part_trips)

    def facts(self) -> dict[str, Any]:
        """JSON-ready public facts."""
        return {"cuts": list(self.cuts), "part_trips": self.part_trips}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Bands:
        """The reverse of :meth:`facts`."""
        return cls(tuple(facts["cuts"]), facts["part_trips"])


def _runs(numbers: NDArray[np.int64]) -> list[slice]:
    """The runs of equal numbers, in order."""
    ends = [*(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)] if len(numbers) else []
    return [slice(start, stop) for start, stop in zip([0, *ends], ends, strict=False)]


def _refused(message: str) -> OdError:
    return OdError("OD-BANDS", message, next_step="correct the bands, as cuts [4] of a tree of 10 levels")
