"""Cut the flow tree into bands of levels, whose parts are processed one at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.geography.flow_tree import Nodes

PART_TRIPS = 1_000_000
"""Default number of trips of a part, which then takes about a second and some tens of megabytes on census data."""


@dataclass(frozen=True)
class Bands:
    """Cuts of a flow tree into bands.

    A band is a set of consecutive levels. A part of a band consists of consecutive nodes of the level above the band,
    with everything below them in the band. Each part is processed separately.

    Attributes:
        cuts: Levels after which the tree is cut, from the top. For example, (4,) makes two bands: levels 0 to 4, and
            levels 5 to the leaves.
        part_trips: Approximate number of released trips of a part.

    Examples:
        >>> banded = plan_release(geography, unit=unit, budget=budget, bands=Bands(cuts=(2,)))
        >>> banded.bands.facts()
        {'cuts': [2], 'part_trips': 1000000}
    """

    cuts: tuple[int, ...]
    part_trips: int = PART_TRIPS

    def __post_init__(self) -> None:
        are_whole = all(isinstance(cut, int) and not isinstance(cut, bool) for cut in (*self.cuts, self.part_trips))
        if not are_whole or not self.cuts or list(self.cuts) != sorted(set(self.cuts)) or self.cuts[0] < 1:
            raise _make_bands_error("cuts are levels below the root, each once, from the top")
        if self.part_trips < 1:
            raise _make_bands_error("part_trips is a number of trips, at least 1")

    def check(self, depth: int) -> None:
        """Raise OdError if a flow tree with leaves at level ``depth`` does not suit the bands."""
        if self.cuts[-1] >= depth:
            raise _make_bands_error(f"the flow tree has {depth} levels; the last cut must be above its leaves")

    def split(self, levels: Sequence[int]) -> list[slice]:
        """Return the slice of the ascending ``levels`` that is in each band, top band first.

        Bands that have none of these levels are left out.
        """
        return _split_into_runs(np.searchsorted(self.cuts, levels, side="left"))

    def split_into_parts(self, frontier: Nodes) -> list[slice]:
        """Return a slice of ``frontier`` for each part of a band, in order.

        ``frontier`` is the released nodes of the last level above the band. A part has about ``part_trips`` of their
        trips: it ends with the node in which the number of trips so far passes a multiple of ``part_trips``.
        """
        trips_before = np.cumsum(frontier.trips) - frontier.trips
        return _split_into_runs(trips_before // self.part_trips)

    def facts(self) -> dict[str, Any]:
        """Return the cuts and the size of parts as a dictionary for JSON."""
        return {"cuts": list(self.cuts), "part_trips": self.part_trips}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Bands:
        """Return the bands whose :meth:`facts` are given."""
        return cls(tuple(facts["cuts"]), facts["part_trips"])


def _split_into_runs(numbers: NDArray[np.int64]) -> list[slice]:
    """Return one slice for each run of equal consecutive numbers, in order."""
    if not len(numbers):
        return []
    changes = (np.flatnonzero(np.diff(numbers)) + 1).tolist()
    return [slice(start, stop) for start, stop in pairwise([0, *changes, len(numbers)])]


def _make_bands_error(message: str) -> OdError:
    """Return the OdError for bands that do not suit the flow tree."""
    return OdError("OD-BANDS", message, next_step="correct the bands, as cuts [4] of a tree of 10 levels")
