"""Combine the geographies of the origins and the destinations of a series of flows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path

from od_core import Geography
from od_core.errors import OdError
from od_core.geography.align import equally_deep
from od_core.records.zone_lists import ZoneList


@dataclass(frozen=True, eq=False)
class Sides:
    """The public geographies of origins and destinations, with the levels of their lists.

    Attributes:
        origin: geography of the origins.
        other: geography of the destinations; None if they have the areas of the origins.

    Raises:
        OdError: both lists contain the same areas; or as in :func:`od_core.geography.align.equally_deep`.
    """

    origin: Geography
    other: Geography | None = None

    def __post_init__(self) -> None:
        if self.other is None:
            return
        origin, destination = self.equally_deep
        if origin.digest == destination.digest:
            raise OdError(
                "OD-GEOGRAPHY-SAME",
                "the lists of origins and of destinations hold the same areas",
                next_step="leave destination_geography out, because one list serves both",
            )

    @classmethod
    def listed(cls, lists: Iterable[ZoneList], folder: Path) -> Sides:
        """Read the geographies of one or two zone lists below a folder. Raises OdError if a list is faulty."""
        return _of(*(zones.geography(folder) for zones in lists))

    @property
    def destination(self) -> Geography:
        """Geography of the destinations."""
        return self.origin if self.other is None else self.other

    @cached_property
    def equally_deep(self) -> tuple[Geography, Geography]:
        """Geographies of origins and destinations, with levels added until both have the same number of levels."""
        return equally_deep(self.origin, self.destination)

    @property
    def digest(self) -> str:
        """See :attr:`od_assets.series.settings.PublicList.digest`."""
        both = f"{self.origin.digest} {self.destination.digest}"
        return self.origin.digest if self.other is None else sha256(both.encode()).hexdigest()

    @property
    def area_counts(self) -> dict[str, int]:
        """See :attr:`od_assets.series.settings.PublicList.area_counts`."""
        if self.other is None:
            return self.origin.area_counts
        sides = {"origin": self.origin, "destination": self.other}
        return {f"{side} {level}": n for side, areas in sides.items() for level, n in areas.area_counts.items()}


@lru_cache(maxsize=8)
def _of(origin: Geography, other: Geography | None = None) -> Sides:
    """Return the combined geographies from a cache, because it takes time to make them equally deep."""
    return Sides(origin, other)
