"""Not yet."""

from __future__ import annotations

from od_core.archive.store import Store
from od_core.flow_tree import FlowTree
from od_core.trips import TripCounts


class CountFiles:
    """Not yet."""

    @classmethod
    def opened(cls, store: Store, folder: str) -> CountFiles:
        """Not yet."""
        raise NotImplementedError

    folder: str

    def at_level(self, tree: FlowTree, level: int) -> TripCounts:
        """Not yet."""
        raise NotImplementedError

    def between(self, first: int, end: int) -> TripCounts:
        """Not yet."""
        raise NotImplementedError
