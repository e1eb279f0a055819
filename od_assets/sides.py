"""The two sides of a release of flows: the areas that trips come from, and those that they go to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path

from od_core import Geography
from od_core.equal_depth import equally_deep
from od_core.errors import OdError
from od_core.readers.zones import ZoneList


@dataclass(frozen=True, eq=False)
class Sides:
    """The public geographies of origins and of destinations, as their lists have them.

    Attributes:
        origin: of the origins.
        other: of the destinations, or None where they have the areas of the origins.
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
                next_step="leave destination_geography out: one list is of both",
            )

    @classmethod
    def listed(cls, lists: Iterable[ZoneList], folder: Path) -> Sides:
        """The geographies of one list or two, below a folder. Raises OdError naming the fault."""
        return _of(*(zones.geography(folder) for zones in lists))

    @property
    def destination(self) -> Geography:
        """Of the destinations."""
        return self.origin if self.other is None else self.other

    @cached_property
    def equally_deep(self) -> tuple[Geography, Geography]:
        """Both with as many levels as the deeper one has."""
        return equally_deep(self.origin, self.destination)

    @property
    def digest(self) -> str:
        """As :attr:`od_assets.settings.PublicList.digest`."""
        both = f"{self.origin.digest} {self.destination.digest}"
        return self.origin.digest if self.other is None else sha256(both.encode()).hexdigest()

    @property
    def area_counts(self) -> dict[str, int]:
        """As :attr:`od_assets.settings.PublicList.area_counts`."""
        if self.other is None:
            return self.origin.area_counts
        sides = {"origin": self.origin, "destination": self.other}
        return {f"{side} {level}": n for side, areas in sides.items() for level, n in areas.area_counts.items()}


@lru_cache(maxsize=8)
def _of(origin: Geography, other: Geography | None = None) -> Sides:
    """The sides of these very geographies: every step of a run asks for them, and equal depth takes its time."""
    return Sides(origin, other)
