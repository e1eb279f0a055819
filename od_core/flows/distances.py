"""Compute the distances of flows between areas.

The distance of a trip is that along the great circle between the places of its two zones. So a trip within a zone has
the distance 0. Distances are public, because the places of zones are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from od_core.errors import OdError
from od_core.flows.arrays import Reals
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Numbers
from od_core.geography.places import Extent, extent, kilometres, mean_places


def has_distances(tree: FlowTree) -> bool:
    """Return whether both sides of a flow tree have zones with coordinates."""
    return tree.origin.coordinates is not None and tree.destination.coordinates is not None


def distances_at(tree: FlowTree, levels: tuple[int, int], origin: Numbers, destination: Numbers) -> Reals:
    """Return the distances of pairs of areas of two levels, in kilometres; NaN if unknown. Shape (pairs,).

    The place of an area is the mean place of its zones with coordinates. The whole space has no distances.
    """
    if 0 in levels:
        return np.full(len(origin), np.nan)
    origins, destinations = mean_places(tree.origin, levels[0]), mean_places(tree.destination, levels[1])
    return kilometres(origins, destinations, origin, destination)


@dataclass(frozen=True, eq=False)
class ZoneDistances:
    """Distances between the zones of a flow tree.

    Attributes:
        origins, destinations: places of the zones of each side.
        extent: how far apart these places are.
    """

    origins: Reals
    destinations: Reals
    extent: Extent

    @classmethod
    def of(cls, tree: FlowTree) -> ZoneDistances:
        """Return the distances between the zones of a tree. Raises OdError if a side has no zone with coordinates."""
        if not has_distances(tree):
            raise OdError(
                "OD-DISTANCES-PLACES",
                "the zones of origins or of destinations have no coordinates, so distances are unknown",
                next_step="add latitudes and longitudes to the zone list",
            )
        origins, destinations = (mean_places(side, side.depth) for side in (tree.origin, tree.destination))
        return cls(origins, destinations, extent(origins, destinations))

    @property
    def all_known(self) -> bool:
        """Whether every zone has a place."""
        return not any(np.isnan(places).any() for places in (self.origins, self.destinations))

    @property
    def edges(self) -> list[float]:
        """Ends of bands of distance that suit the zones, in kilometres.

        They are the numbers of the series 1, 2, 5, 10, 20, 50, ... from the median distance between neighbouring zones
        to the largest distance. They depend on the places of the zones alone, not on trips.
        """
        series = [digit * 10.0**power for power in range(-1, 5) for digit in (1, 2, 5)]
        return [edge for edge in series if self.extent.nearest <= edge < self.extent.farthest]

    def between(self, origin: Numbers, destination: Numbers) -> Reals:
        """Return the distances of pairs of zones, given by their numbers, in kilometres; NaN if unknown."""
        return kilometres(self.origins, self.destinations, origin, destination)
