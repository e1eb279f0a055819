"""Cut a flow tree into bands, so that the levels below a cut can be processed part by part.

See ``docs/explanation/parts.md``.

Bands are a public constant of the plan. Parts follow from them and from what was released above, never from the size of
a machine or a cluster. So a release that resumes elsewhere finds the parts that it left.
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
"""Default number of trips of a part: about a second of work and some tens of megabytes at census depth."""


@dataclass(frozen=True)
class Bands:
    """Cuts of a flow tree into bands: consecutive levels, processed below each part of the level above them.

    Attributes:
        cuts: Levels after which the tree is cut, from the top; (4,) makes the bands (0, 4] and (4, T].
        part_trips: Approximate number of released trips of a part, which is a run of nodes of the last level above.
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
        """Refuse a depth of the flow tree for which the last cut is not above the leaves.

        Raises:
            OdError: If the last cut is at the leaves or below them.
        """
        if self.cuts[-1] >= depth:
            raise _refused(f"the flow tree has {depth} levels; the last cut is above its leaves")

    def split(self, levels: Sequence[int]) -> list[slice]:
        """Return the measured levels of each band, top first, as slices; bands without measured levels are omitted."""
        return _runs(np.searchsorted(self.cuts, levels, side="left"))

    def parts(self, frontier: Nodes) -> list[slice]:
        """Return the parts of a level's released nodes, in order: consecutive nodes, all of them."""
        before = np.cumsum(frontier.trips) - frontier.trips
        return _runs(before // self.part_trips)

    def facts(self) -> dict[str, Any]:
        """Return JSON-ready public facts."""
        return {"cuts": list(self.cuts), "part_trips": self.part_trips}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Bands:
        """Return the bands from the facts of :meth:`facts`."""
        return cls(tuple(facts["cuts"]), facts["part_trips"])


def _runs(numbers: NDArray[np.int64]) -> list[slice]:
    """Return the runs of equal numbers, in order."""
    ends = [*(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)] if len(numbers) else []
    return [slice(start, stop) for start, stop in zip([0, *ends], ends, strict=False)]


def _refused(message: str) -> OdError:
    return OdError("OD-BANDS", message, next_step="correct the bands, as cuts [4] of a tree of 10 levels")
