"""Compute the trips that begin in an area by bands of their distance, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.distances import ZoneDistances
from od_core.flows.estimation.intervals import bounds_of
from od_core.flows.released_flows import ReleasedFlows
from od_core.geography.geography import Numbers


def distance_bands(
    flows: ReleasedFlows,
    levels: Sequence[str] | None = None,
    *,
    edges: Sequence[float] | None = None,
    interval: bool = True,
) -> pd.DataFrame:
    """Return the trips that begin in each area, by bands of distance.

    Args:
        flows: released flows.
        levels: names of the levels of the areas; by default, all levels with the whole space.
        edges: ends of the bands in kilometres, in ascending order; by default, those of :attr:`ZoneDistances.edges`.
        interval: whether to add the 90 % interval of each number.

    Returns:
        One row for each area and band: level, area (text), band (its number from 1; 0 for trips whose distance is
        unknown), from_km and to_km (kilometres; the lower end belongs to the band, the upper end does not, and NaN
        is no end), and trips (int64). With ``interval``, also lower and upper (int64), widened to contain the trips.
        The bands of an area sum to the trips that begin in it. Band 0 is left out if all distances are known.

    Raises:
        OdError: If a side has no zone with coordinates, if a level is unknown, if the edges are not positive and
            ascending, or, with ``interval``, if the flows have no intervals.
    """
    tree = flows.tree
    distances = ZoneDistances.of(tree)
    steps = np.array(distances.edges if edges is None else edges, dtype=np.float64)
    if not np.isfinite(steps).all() or np.any(np.diff(steps, prepend=0.0) <= 0):
        raise OdError(
            "OD-DISTANCES-EDGES",
            "the ends of bands of distance are not positive numbers in ascending order",
            next_step="give kilometres such as 5, 10, 20",
        )

    def band_of(origin: Numbers, destination: Numbers) -> NDArray[np.int64]:
        distance = distances.between(origin, destination)
        return np.where(np.isnan(distance), 0, np.searchsorted(steps, distance, side="right") + 1)

    bands = np.arange(1 if distances.all_known else 0, len(steps) + 2)
    from_km = np.concatenate([[np.nan, 0.0], steps])[bands]
    to_km = np.concatenate([[np.nan], steps, [np.nan]])[bands]
    released = band_of(flows.leaves.origin, flows.leaves.destination)
    tables = []
    for level in map(tree.origin.level_number, tree.origin.level_names if levels is None else levels):
        size = tree.origin.size(level)
        begun = np.zeros((size, len(steps) + 2), dtype=np.int64)
        np.add.at(begun, (tree.origin.ancestors(level)[flows.leaves.origin], released), flows.leaves.trips)
        trips = begun[:, bands].ravel()
        columns: dict[str, Any] = {
            "level": tree.origin.level_names[level],
            "area": np.repeat(tree.origin.codes_of(level, np.arange(size, dtype=np.int32)), len(bands)),
            "band": np.tile(bands, size),
            "from_km": np.tile(from_km, size),
            "to_km": np.tile(to_km, size),
            "trips": trips,
        }
        if interval:
            estimates = flows.intervals.begun(level, None, lambda o, d: band_of(o, d) - bands[0], len(bands))
            lower, upper = (np.column_stack(ends).ravel() for ends in zip(*map(bounds_of, estimates), strict=True))
            columns |= {"lower": np.minimum(lower, trips), "upper": np.maximum(upper, trips)}
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)
