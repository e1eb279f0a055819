"""Describe levels whose areas no public list has, because they are found in the records: the *found levels*.

What is public is a rule: each area of a found level lies in the area whose code its own begins with. The areas below
the last public level are confidential until noise decides which of them are published
(``docs/explanation/unknown-zones.md``). Each area above or within found levels has one child that is always public, its
*remainder*, for the trips of the children that are not published.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from od_core.errors import OdError
from od_core.geography.codes import MAX_CODE_LENGTH, WHOLE_SPACE, build_area_tree, check_codes
from od_core.geography.geography import Geography

REMAINDER = "*"
"""End of the codes of remainders, and of no other code."""

Path = tuple[str, ...]
"""Codes of an area and of all areas that contain it, coarse to fine, without the whole space."""


Found: TypeAlias = "Mapping[str, int | None] | Iterable[tuple[str, int | None]] | FoundLevels"
"""Found levels, as :meth:`FoundLevels.parse` reads them."""


@dataclass(frozen=True)
class FoundLevels:
    """The last levels of a geography, whose areas are found in the records.

    Attributes:
        levels: names of the found levels, coarse to fine.
        characters: for each found level but the last, the length of its codes, with which the codes of its zones begin.
            The codes of the last level are whole.

    Raises:
        OdError: there is no level, or the numbers of characters do not ascend from 1, one for each level but the last.

    Examples:
        >>> FoundLevels.parse({"state": 2, "airport": None})
        FoundLevels(levels=('state', 'airport'), characters=(2,))
    """

    levels: tuple[str, ...]
    characters: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        steps = np.diff([0, *self.characters])
        if len(self.levels) != len(self.characters) + 1 or (steps <= 0).any():
            raise _make_error(
                "each found level but the last needs a number of characters, more than the level above it"
            )

    @classmethod
    def parse(cls, found: Found) -> FoundLevels:
        """Return the found levels that a caller states. An object of this class is returned unchanged.

        ``found`` has the number of characters of each level by its name, coarse to fine; None for the last level.
        Raises OdError if it is not valid.
        """
        if isinstance(found, FoundLevels):
            return found
        *inner, last = dict(found).values() or (0,)  # 0 is refused, as no level would be
        if last is not None or None in inner:
            raise _make_error("the last found level, and no other, has None in the place of a number of characters")
        return cls(tuple(dict(found)), tuple(number or 0 for number in inner))

    def facts(self) -> list[list[str | int | None]]:
        """Return the levels, in order, as a list for JSON, which :meth:`parse` reads."""
        return [[name, number] for name, number in zip(self.levels, (*self.characters, None), strict=True)]

    def extend_sides(self, origins: Geography, destinations: Geography | None) -> tuple[Geography, Geography]:
        """Return the geographies of origins and destinations with the found levels, which have only remainders.

        Found areas that a side already has are dropped. ``destinations`` is None if both sides have the same geography.
        If it has no levels, it is returned unchanged, because the tree is then one hierarchy. Raises OdError as
        :meth:`extend` does, or if only one of two sides has public levels.
        """
        has_two_sides = destinations is not None and bool(destinations.levels)
        sides = (origins, destinations) if destinations is not None and has_two_sides else (origins,)
        public = [self.select_public(side) if self._are_in(side) else side for side in sides]
        if len({bool(side.levels) for side in public}) > 1:
            raise _make_error("one side has public levels, and the other has none")
        extended = [self.extend(side) for side in public]
        if destinations is not None and not has_two_sides:
            return extended[0], destinations
        return extended[0], extended[-1]  # the same one if there is one side

    def extend(self, public: Geography, codes: Iterable[str] = ()) -> Geography:
        """Return a geography with the found levels below the public ones: all remainders, and the areas of some codes.

        Args:
            public: the public levels; it may be the whole space alone.
            codes: codes of zones, or of areas of other found levels; a code that ends with ``REMAINDER`` stands for the
                code before it. Codes that break the rule are left out. Whether a code has a zone in the result depends
                on this code alone.

        Raises:
            OdError: codes of the last public level have different lengths, one ends with ``REMAINDER``, or they are
                not shorter than those of the first found level.
        """
        above = self._list_public_paths(public)
        public_length = max(map(len, above))  # of every code of the last public level
        if self.characters and self.characters[0] <= public_length:
            raise _make_error("the codes of the first found level must be longer than those of the level above it")
        areas: dict[Path, None] = dict.fromkeys(above.values())
        for stated in codes:
            code = stated.removesuffix(REMAINDER)
            found = [code[:number] for number in self.characters if number < len(code)] + [code]  # coarse to fine
            if code[:public_length] in above and len(code) > public_length and all(map(is_found_code, found)):
                public_path = above[code[:public_length]]
                for depth in range(1, len(found) + 1):
                    areas[(*public_path, *found[:depth])] = None
        if public.unknown is not None and public.levels:
            areas[next(path for path in _list_paths(public) if path[-1] == public.unknown)] = None
        depth = public.depth + len(self.levels)
        zones: dict[Path, None] = {}
        for path in areas:
            remainder = name_remainder(path[-1] if path else "")  # in every level below the area
            zones[(*path, *[remainder] * (depth - len(path)))] = None
        levels = (*public.levels, *self.levels)
        unknown = None
        if public.unknown is not None:
            unknown = name_remainder(public.unknown if public.levels else "")
        return Geography(levels, *build_area_tree(list(zip(*zones, strict=True))), unknown)

    def _are_in(self, geography: Geography) -> bool:
        """Return whether a geography has these found levels, as a result of :meth:`extend` does."""
        has_levels = geography.levels[-len(self.levels) :] == self.levels
        return has_levels and any(code.endswith(REMAINDER) for code in geography.zones)

    def select_public(self, extended: Geography) -> Geography:
        """Return the geography of the public levels alone, from a geography that :meth:`extend` has returned."""
        public = extended.depth - len(self.levels)
        unknown = None
        if extended.unknown is not None:
            unknown = extended.unknown.removesuffix(REMAINDER) or WHOLE_SPACE
        codes, parents = extended.codes[: public + 1], extended.parents[: public + 1]
        return Geography(extended.levels[:public], codes, parents, unknown)

    def _list_public_paths(self, public: Geography) -> dict[str, Path]:
        """Return the path of each area of the last public level by its code, except the area for unknown places.

        The whole space alone has the code "" and an empty path. Raises OdError if the codes have different lengths, or
        one ends with ``REMAINDER``.
        """
        if not public.levels:
            return {"": ()}
        paths = {path[-1]: path for path in _list_paths(public) if path[-1] != public.unknown}
        if len({*map(len, paths)}) != 1 or any(code.endswith(REMAINDER) for code in paths):
            raise _make_error(
                f"the codes of level {public.levels[-1]!r} must have the same number of characters, and not end with"
                f" {REMAINDER}"
            )
        return paths


def _list_paths(public: Geography) -> list[Path]:
    """Return the path of each area of the last level, in tree order; an empty list for the whole space alone."""
    ancestors = [public.ancestors(level) for level in range(1, public.depth + 1)]
    columns = [[codes[area] for area in areas] for codes, areas in zip(public.codes[1:], ancestors, strict=True)]
    return list(zip(*columns, strict=True))


def name_remainder(code: str) -> str:
    """Return the code of the remainder of an area; for a remainder, it is the code itself.

    >>> name_remainder("GA"), name_remainder("GA*")
    ('GA*', 'GA*')
    """
    return code.removesuffix(REMAINDER) + REMAINDER


def is_found_code(code: str) -> bool:
    """Return whether a code may be that of a found area, judging by the code alone."""
    if REMAINDER in code or len(code) > MAX_CODE_LENGTH:
        return False
    try:
        check_codes([code], "code")
    except OdError:
        return False
    return True


def _make_error(message: str) -> OdError:
    """Return the OdError for found levels that are not valid."""
    return OdError("OD-FOUND-LEVELS", message, next_step="correct `found`, or the codes of the public areas")
