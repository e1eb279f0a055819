"""Describe the pairs of zones that can have trips, which are public facts: a list, or a rule on areas or distances."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from od_core.errors import OdError
from od_core.geography.codes import find_positions
from od_core.geography.flow_tree import sort_distinct
from od_core.geography.geography import Geography, Numbers
from od_core.geography.places import compute_kilometres, compute_mean_places

MAX_PAIRS = 1 << 26
"""Largest number of possible pairs, which are in memory: 67,108,864."""

_PAIRS_PER_PIECE = 1 << 22
"""Number of pairs of zones that a rule examines at once."""


@dataclass(frozen=True, eq=False)
class PossiblePairs:
    """The pairs of zones that can have trips. All other pairs have none, whatever the records are.

    Attributes:
        origin, destination: zone numbers of each pair, in order of both; shape (pairs,).

    Raises:
        OdError: if there is no pair, or there are more than ``MAX_PAIRS``.

    Examples:
        >>> elsewhere = PossiblePairs.from_rule(geography, geography, within_zone=False)
        >>> len(elsewhere), len(geography.zones)
        (6, 3)
        >>> plan_release(geography, unit=unit, budget=budget, possible=elsewhere).tree.cells(4)
        6
    """

    origin: Numbers
    destination: Numbers

    def __post_init__(self) -> None:
        if not 0 < len(self.origin) <= MAX_PAIRS:
            raise _make_error(f"{len(self.origin):,} pairs of zones can have trips, not 1 to {MAX_PAIRS:,}")

    def __len__(self) -> int:
        return len(self.origin)

    @classmethod
    def from_frame(cls, pairs: pd.DataFrame, origins: Geography, destinations: Geography) -> PossiblePairs:
        """Return the pairs of a table with the columns ``origin`` and ``destination``, codes of areas as text.

        The areas of a column are all of one level. A pair of areas stands for all pairs of their zones. A pair may be
        listed more than once. Raises OdError if a column is missing, or no level has all of its codes.
        """
        first_origin, origin_zones = _find_zones(pairs, "origin", origins)
        first_destination, destination_zones = _find_zones(pairs, "destination", destinations)
        sizes = origin_zones * destination_zones  # number of pairs of zones of each pair of areas
        if sizes.sum() > MAX_PAIRS:
            raise _make_error(f"{sizes.sum():,} pairs of zones can have trips, more than {MAX_PAIRS:,}")
        # The pairs of zones of a pair of areas are numbered from 0, row by row: a row has all of its destinations.
        number = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        row_length = np.repeat(destination_zones, sizes)
        origin = np.repeat(first_origin, sizes) + number // row_length
        destination = np.repeat(first_destination, sizes) + number % row_length
        return cls.from_numbers(origin, destination, len(destinations.zones))

    @classmethod
    def from_rule(
        cls,
        origins: Geography,
        destinations: Geography,
        *,
        within_zone: bool = True,
        distance_km: tuple[float, float] | None = None,
    ) -> PossiblePairs:
        """Return all pairs of zones except those that a rule excludes.

        Args:
            origins, destinations: geographies of the two sides.
            within_zone: False excludes pairs of a zone with itself.
            distance_km: the least and the largest distance of a pair, in kilometres. Pairs of a zone with itself, and
                of zones without coordinates, have none, and stay.

        Raises:
            OdError: if the distances are not in order, or no zone of a side has coordinates.
        """
        least, largest = (0.0, math.inf) if distance_km is None else distance_km
        if not 0 <= least <= largest:
            raise _make_error("distance_km is not two distances of at least 0, the smaller one first")
        if distance_km is not None and (origins.coordinates is None or destinations.coordinates is None):
            raise _make_error("distance_km is given, but zones have no coordinates")
        places_of_origins, places_of_destinations = (
            compute_mean_places(geography, geography.depth) for geography in (origins, destinations)
        )
        same_zone = find_positions(pd.Series(origins.zones), destinations.zones)  # of each origin; -1 if there is none
        every_destination = np.arange(len(destinations.zones), dtype=np.int32)
        rows = max(1, _PAIRS_PER_PIECE // len(every_destination))
        possible_origins: list[Numbers] = []
        possible_destinations: list[Numbers] = []
        for first in range(0, len(origins.zones), rows):
            piece = np.arange(first, min(first + rows, len(origins.zones)), dtype=np.int32)
            origin, destination = np.repeat(piece, len(every_destination)), np.tile(every_destination, len(piece))
            is_within = same_zone[origin] == destination
            is_possible = np.ones(len(origin), dtype=np.bool_) if within_zone else ~is_within
            if distance_km is not None:
                distances = compute_kilometres(places_of_origins, places_of_destinations, origin, destination)
                is_possible &= is_within | np.isnan(distances) | ((distances >= least) & (distances <= largest))
            possible_origins.append(origin[is_possible])
            possible_destinations.append(destination[is_possible])
        return cls(np.concatenate(possible_origins), np.concatenate(possible_destinations))

    @classmethod
    def from_numbers(cls, origin: Numbers, destination: Numbers, destinations: int) -> PossiblePairs:
        """Return the pairs with these zone numbers, shape (pairs,) each, in any order and possibly repeated.

        ``destinations`` is the number of zones of the destinations.
        """
        codes = sort_distinct(origin.astype(np.int64) * destinations + destination)
        return cls((codes // destinations).astype(np.int32), (codes % destinations).astype(np.int32))

    def intersect(self, other: PossiblePairs) -> PossiblePairs:
        """Return the pairs that are possible in both. Raises OdError if there is none."""
        width = 1 + max(int(self.destination.max()), int(other.destination.max()))
        codes, other_codes = (pairs.origin.astype(np.int64) * width + pairs.destination for pairs in (self, other))
        common = np.intersect1d(codes, other_codes, assume_unique=True)
        return PossiblePairs((common // width).astype(np.int32), (common % width).astype(np.int32))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the zone numbers of all pairs, in order, as 32-bit numbers."""
        numbers = np.stack([self.origin, self.destination], axis=1).astype("<i4")
        return hashlib.sha256(numbers.tobytes()).hexdigest()

    def facts(self) -> dict[str, Any]:
        """Return the number of pairs and their digest as a dictionary for JSON."""
        return {"pairs": len(self), "digest": self.digest}


def _find_zones(pairs: pd.DataFrame, side: str, geography: Geography) -> tuple[Numbers, Numbers]:
    """Return the first zone of the area in each row of column ``side``, and the number of the area's zones.

    Both have the shape (rows,). Raises OdError if the column is missing, or no level has all of its codes.
    """
    if side not in pairs.columns:
        raise _make_error(f"the table of possible pairs has no column {side!r}")
    for level in range(geography.depth, 0, -1):
        areas = find_positions(pairs[side], geography.codes[level])
        if (areas >= 0).all():
            return geography.first_zone[level][areas].astype(np.int64), geography.count_zones_below(level)[areas]
    raise _make_error(f"column {side!r} of the possible pairs has codes that are not areas of one level")


def _make_error(message: str) -> OdError:
    """Return the OdError for possible pairs that are not valid."""
    return OdError("OD-POSSIBLE-PAIRS", message, next_step="correct the list or the rule of possible pairs")
