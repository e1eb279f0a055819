"""Compute weighted sums of released flows, such as kilometres travelled, and ratios of two, with their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.errors import OdError, nearest_known, nearest_only
from od_core.flows.arrays import Reals
from od_core.flows.distances import ZoneDistances
from od_core.flows.estimation.fitted_tree import ZoneFunction
from od_core.flows.estimation.intervals import Estimator, Weighted, covariance, fieller
from od_core.geography.codes import positions
from od_core.geography.flow_tree import FlowTree, Nodes
from od_core.geography.geography import Numbers

Weights = str | pd.DataFrame | Callable[[NDArray[Any], NDArray[Any]], Any]
"""Weights of pairs of zones; see :meth:`od_core.flows.released_flows.ReleasedFlows.weighted_sum`."""


class WeightedSum(NamedTuple):
    """A weighted sum of the true trips, or a ratio of two, as the measurements estimate it.

    Attributes:
        value: unbiased estimate, without the trips of dropped areas.
        deviation: standard deviation of the estimate; of a ratio, by linearisation.
        lower, upper: ends of the interval, with the trips of dropped areas.
        released: the same of the released table, which is not unbiased and may lie outside the interval.
        unmeasured: what the trips of dropped areas, below which nothing was measured, may add to the sum (of a ratio,
            to its numerator) at least and at most; (0, 0) if no area was dropped.
    """

    value: float
    deviation: float
    lower: float
    upper: float
    released: float
    unmeasured: tuple[float, float]


def weighted_sum(
    tree: FlowTree,
    leaves: Nodes,
    estimate: Estimator,
    weights: Weights,
    per: Weights | None = None,
    confidence: float = 0.9,
) -> WeightedSum:
    """Return what :meth:`od_core.flows.released_flows.ReleasedFlows.weighted_sum` does, of released leaf nodes.

    ``estimate`` estimates weighted sums of their flows.
    """
    if not 0 < confidence < 1:
        raise _fault(f"confidence is {confidence}; it must lie between 0 and 1", "write 0.9 for a 90 % interval")

    def released_sum(weight: ZoneFunction) -> float:
        return float(weight(leaves.origin, leaves.destination) @ leaves.trips.astype(np.float64))

    deviations = NormalDist().inv_cdf((1 + confidence) / 2)
    of_part = zone_function(tree, weights)
    part, released = estimate(of_part, deviations), released_sum(of_part)
    unmeasured = part.unmeasured(deviations)
    if per is None:
        lower, upper = part.ends(deviations)
        return WeightedSum(part.estimate, math.sqrt(part.variance), lower, upper, released, unmeasured)
    of_whole = zone_function(tree, per)
    whole, below = estimate(of_whole, deviations), released_sum(of_whole)
    shared = covariance(estimate, (of_part, part), (of_whole, whole))
    lower, upper = _ratio_ends(part, whole, shared, deviations)
    value = part.estimate / whole.estimate
    variance = part.variance - 2 * value * shared + value * value * whole.variance
    deviation = math.sqrt(max(variance, 0.0)) / abs(whole.estimate)
    return WeightedSum(value, deviation, lower, upper, released / below if below else math.nan, unmeasured)


def _ratio_ends(part: Weighted, whole: Weighted, shared: float, deviations: float) -> tuple[float, float]:
    """Return the ends of the interval of a ratio; ``shared`` is the covariance of its two sums.

    With the ratio r and the whole B without dropped nodes, which add n to the part and b to the whole, the ratio is (r
    B + n) / (B + b). It is monotone in each of them, so its extremes are at ends of their ranges. Raises OdError if the
    whole may be 0.
    """
    low, high, is_known = fieller(part, whole, shared, deviations)
    half, added = deviations * math.sqrt(whole.variance), whole.unmeasured(deviations)
    wholes = whole.estimate - half, whole.estimate + half
    is_dropped = whole.dropped or part.dropped
    if not is_known or (is_dropped and wholes[0] + added[0] <= 0 <= wholes[1] + added[1]):
        raise OdError(
            "OD-WEIGHTS-RATIO",
            "the denominator of the ratio may be 0: its interval holds 0, so the ratio may be any number",
            next_step="choose a denominator with more trips, or ask for the two sums",
        )
    if not is_dropped:
        return float(low), float(high)
    cases = product((float(low), float(high)), wholes, part.unmeasured(deviations), added)
    ratios = [(ratio * number + to_part) / (number + to_whole) for ratio, number, to_part, to_whole in cases]
    return min(ratios), max(ratios)


def zone_function(tree: FlowTree, weights: Weights) -> ZoneFunction:
    """Return the function from the numbers of pairs of zones to their weights.

    Raises:
        OdError: the name is unknown; the table lacks a column, has an unknown zone or has a pair twice; or a weight is
            not a finite number. The returned function raises it for the weights that a caller's function returns.
    """
    if isinstance(weights, str):
        if weights not in QUANTITIES:
            raise _fault(f"there is no quantity {weights[:60]!r} ({nearest_known(weights, QUANTITIES)})")
        return _quantity(tree, weights)
    if isinstance(weights, pd.DataFrame):
        return _of_table(tree, weights)
    if not callable(weights):
        raise _fault(f"weights are of type {type(weights).__name__}")
    return _of_function(tree, weights)


QUANTITIES = ("trips", "within", "distance", "has_distance")
"""Names of public weights; see :meth:`od_core.flows.released_flows.ReleasedFlows.weighted_sum`."""


def _quantity(tree: FlowTree, name: str) -> ZoneFunction:
    if name == "trips":
        return lambda origin, _: np.ones(len(origin))
    if name == "within":
        number = positions(pd.Series(tree.origin.zones), tree.destination.zones)
        return lambda origin, destination: (number[origin] == destination).astype(np.float64)
    between = ZoneDistances.of(tree).between
    if name == "distance":
        return lambda origin, destination: np.nan_to_num(between(origin, destination))
    return lambda origin, destination: (~np.isnan(between(origin, destination))).astype(np.float64)


def _of_table(tree: FlowTree, table: pd.DataFrame) -> ZoneFunction:
    """Return the weights of a table; pairs that are left out have the weight 0."""
    columns = ("origin", "destination", "weight")
    if missing := [name for name in columns if name not in table.columns]:
        raise _fault(f"the table of weights has no column {missing[0]!r}")
    sides = [(tree.origin, table["origin"]), (tree.destination, table["destination"])]
    for geography, codes in sides:
        unknown = codes[geography.zone_numbers(codes) < 0]
        if len(unknown):
            code = str(unknown.iloc[0])
            raise _fault(f"a weight has the unknown zone {code[:60]!r}{nearest_only(code, geography.zones)}")
    width = len(tree.destination.zones)

    def pairs(origin: Numbers, destination: Numbers) -> pd.Index[int]:
        numbers: pd.Index[int] = pd.Index(origin.astype(np.int64) * width + destination)
        return numbers

    listed = pairs(*(geography.zone_numbers(codes) for geography, codes in sides))
    if not listed.is_unique:
        raise _fault("a pair of zones has two weights")
    known = pd.Series(_finite(table["weight"].to_numpy()), listed)
    return lambda origin, destination: known.reindex(pairs(origin, destination), fill_value=0.0).to_numpy()


def _of_function(tree: FlowTree, function: Callable[[NDArray[Any], NDArray[Any]], Any]) -> ZoneFunction:
    """Return the weights of a function of the codes of zones."""
    origins, destinations = (np.array(side.zones, dtype=object) for side in (tree.origin, tree.destination))

    def weight(origin: Numbers, destination: Numbers) -> Reals:
        found = np.asarray(function(origins[origin], destinations[destination]))
        if found.shape not in ((), origin.shape):
            raise _fault(f"the function of weights returned the shape {found.shape} for {len(origin)} pairs of zones")
        return np.broadcast_to(_finite(found), origin.shape)

    return weight


def _finite(values: NDArray[Any]) -> Reals:
    """Return weights as real numbers. Raises OdError if one is not a finite number."""
    try:
        weights = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise _fault("a weight is not a number") from None
    if not np.isfinite(weights).all():
        raise _fault("a weight is missing or infinite")
    return weights


def _fault(message: str, next_step: str = "") -> OdError:
    step = (
        "give weights as a table with the columns origin, destination and weight (finite numbers, each pair once), as a"
        f" function of two arrays of zone codes, or as one of the names {', '.join(QUANTITIES)}"
    )
    return OdError("OD-WEIGHTS", message, next_step=next_step or step)
