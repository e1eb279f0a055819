"""Compute indicators of the areas of a release: outflow, inflow, trips within, and self-containment, with intervals.

Self-containment is the share N / B of the trips that begin in an area and stay in it. The interval of this ratio has
all shares r for which N - r B is nearer to 0 than its own uncertainty [fieller1954problems]:

    (N - r B)^2 <= z^2 (V_N - 2 r C + r^2 V_B),

where V are the variances of the unbiased estimates, z is the quantile of the interval, and C is the covariance of N
and B. Since B is N plus the outflow O, C = (V_B + V_N - V_O) / 2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.confidence import DEVIATIONS
from od_core.flows.estimation.fitted_tree import Estimates
from od_core.flows.estimation.intervals import AreaEstimates, bounds_of
from od_core.flows.released_flows import ReleasedFlows

Counts = NDArray[np.int64]
Reals = NDArray[np.float64]

_DIGITS = 6
"""Number of decimal places of a share."""


def has_indicators(flows: ReleasedFlows) -> bool:
    """Return whether indicators can be computed: if origins and destinations have the same areas."""
    return flows.tree.origin.digest == flows.tree.destination.digest


def indicators(flows: ReleasedFlows, levels: Sequence[str] | None = None, *, interval: bool = True) -> pd.DataFrame:
    """Return the indicators of all areas of some levels.

    Args:
        flows: released flows.
        levels: names of the levels; by default, all levels below the whole space.
        interval: whether to add the 90 % interval of each indicator.

    Returns:
        One row for each area: level and area (text), outflow, inflow, within (trips, int64) and self_containment (a
        share from 0 to 1; NaN for an area from which no trips were released). With ``interval``, each is followed by
        its bounds, such as outflow_lower and outflow_upper. An interval that did not contain the released number is
        widened to it.

    Raises:
        OdError: If origins and destinations have different areas, if a level is unknown, or, with ``interval``, if the
            flows have no intervals.
    """
    if not has_indicators(flows):
        raise OdError(
            "OD-INDICATORS-AREAS",
            "origins and destinations have different areas, so there are no trips within an area",
            next_step="read the flows at the levels of both sides",
        )
    geography = flows.tree.origin
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "level": geography.level_names[level],
                    "area": geography.codes_of(level, np.arange(geography.size(level), dtype=np.int32)),
                    **_of_level(flows, level, interval=interval),
                }
            )
            for level in map(geography.level_number, geography.levels if levels is None else levels)
        ],
        ignore_index=True,
    )


def _of_level(flows: ReleasedFlows, level: int, *, interval: bool) -> dict[str, Counts | Reals]:
    """Return the columns of the indicators of one level."""
    within, begun, ended = _released(flows, level)
    share = np.full(len(begun), np.nan)
    np.divide(within, begun, out=share, where=begun > 0)
    share = np.round(np.clip(share, 0, 1), _DIGITS)
    numbers = {"outflow": begun - within, "inflow": ended - within, "within": within}
    if not interval:
        return {**numbers, "self_containment": share}
    estimates = flows.intervals.by_area(level)
    columns: dict[str, Counts | Reals] = {}
    for name, trips in numbers.items():
        lower, upper = bounds_of(getattr(estimates, name))
        columns[name] = trips
        columns[f"{name}_lower"], columns[f"{name}_upper"] = np.minimum(lower, trips), np.maximum(upper, trips)
    low, high = _shares(estimates, nothing_dropped=flows.intervals.nothing_dropped)
    columns["self_containment"] = share
    columns["self_containment_lower"], columns["self_containment_upper"] = np.fmin(low, share), np.fmax(high, share)
    return columns


def _released(flows: ReleasedFlows, level: int) -> tuple[Counts, Counts, Counts]:
    """Return the released trips within, from and to each area of a level; shape (areas,) each."""
    tree, size = flows.tree, flows.tree.origin.size(level)
    origin, destination, trips = tree.sums_at(flows.leaves, level, level)
    within, begun, ended = np.zeros((3, size), dtype=np.int64)
    own = origin == destination
    within[origin[own]] = trips[own]
    np.add.at(begun, origin, trips)
    np.add.at(ended, destination, trips)
    return within, begun, ended


def _shares(areas: AreaEstimates, *, nothing_dropped: bool) -> tuple[Reals, Reals]:
    """Return the lower and upper bounds of the self-containment of each area, rounded outwards; shape (areas,) each.

    If nodes were dropped, nothing was measured below them, and the estimates of the trips within and of the outflow do
    not sum to those that begin in the area. Then the ends follow from the bounds of both, which is wider.
    """
    if nothing_dropped:
        low, high = _fieller(areas.within, areas.begun, areas.outflow)
    else:
        (stay_low, stay_high), (leave_low, leave_high) = bounds_of(areas.within), bounds_of(areas.outflow)
        with np.errstate(invalid="ignore", divide="ignore"):
            low = np.nan_to_num(stay_low / (stay_low + leave_high), nan=0.0)
            high = np.nan_to_num(stay_high / (stay_high + leave_low), nan=1.0)
    step = 10**_DIGITS
    return np.floor(low * step) / step, np.ceil(high * step) / step


def _fieller(part: Estimates, whole: Estimates, rest: Estimates) -> tuple[Reals, Reals]:
    """Return the lower and upper bounds of part / whole, from 0 to 1; see the module docstring."""
    square = DEVIATIONS**2
    covariance = (whole.variance + part.variance - rest.variance) / 2
    a = whole.estimate**2 - square * whole.variance
    b = part.estimate * whole.estimate - square * covariance
    c = part.estimate**2 - square * part.variance
    known = (a > 0) & (whole.estimate > 0)  # otherwise the whole may be 0, and nothing is known of the share
    with np.errstate(invalid="ignore", divide="ignore"):
        reach = np.sqrt(np.maximum(b * b - a * c, 0))
        low, high = (b - reach) / a, (b + reach) / a
    return np.where(known, np.clip(low, 0, 1), 0.0), np.where(known, np.clip(high, 0, 1), 1.0)
