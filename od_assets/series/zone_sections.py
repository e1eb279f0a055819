"""Sections of a declaration of zones: parents and boundaries of a list, and cells of a grid in an outline."""

import re
from typing import Any

from pydantic import Field, field_validator

from od_assets.series.section import Section
from od_core.geography.grids import Hexagons, Squares
from od_core.records.zone_lists import ZoneList


class AreaParents(Section):
    """Columns of a list that contains the areas of all levels, with their parents."""

    area: str = "area"
    parent: str = "parent"


class ZoneBoundaries(Section):
    """Location of the public boundaries of a level's areas."""

    file: str
    code: str


class HexagonCells(Section):
    """Zones that are hexagons of H3 in a public outline."""

    resolution: int
    coarser: list[int] = Field(default_factory=list)
    within: str

    def make_zone_list(self, **options: Any) -> ZoneList:
        """Return the zone list of these cells. Raises OdError if the resolutions do not fit together."""
        return ZoneList.from_grid(Hexagons((*sorted(self.coarser), self.resolution)), self.within, **options)


_SIZE = re.compile(r"([1-9]\d{0,6}) ?(k?)m")
"""Pattern of the size of a square: its number, and ``k`` for kilometres."""


class SquareCells(Section):
    """Zones that are squares of the European grid (ETRS89-LAEA, EPSG:3035) in a public outline."""

    size: str
    coarser: list[str] = Field(default_factory=list)
    within: str

    @field_validator("size", "coarser")
    @classmethod
    def refuse_other_sizes(cls, value: Any) -> Any:
        """Return the size, or the list of coarser ones. Raises ValueError if one is not a length in m or km."""
        for size in [value] if isinstance(value, str) else value:
            if not _SIZE.fullmatch(size):
                raise ValueError("write a length in whole metres or kilometres, such as 250 m or 1 km")
        return value

    def make_zone_list(self, **options: Any) -> ZoneList:
        """Return the zone list of these cells. Raises OdError if the sizes do not fit together."""
        coarse_to_fine = (*sorted(map(_parse_metres, self.coarser), reverse=True), _parse_metres(self.size))
        return ZoneList.from_grid(Squares(coarse_to_fine), self.within, **options)


def _parse_metres(size: str) -> int:
    """Return the metres of a length, such as ``250 m`` or ``1 km``, that matches :data:`_SIZE`."""
    number, kilo = _SIZE.fullmatch(size).groups()  # type: ignore[union-attr]  # it is checked
    return int(number) * (1000 if kilo else 1)
