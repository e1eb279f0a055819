"""Variances of the numbers of a release by dense linear algebra over all pairs of zones and categories."""

from __future__ import annotations

from itertools import product

import numpy as np

from od_core.flows.optimal_shares import Quantity
from od_core.flows.plan import ReleasePlan
from od_core.flows.step import SegmentStep


def members(plan: ReleasePlan, side: int, level: int) -> np.ndarray:
    """One row for each area: which zones it has."""
    geography = (plan.tree.origin, plan.tree.destination)[side]
    ancestors = geography.ancestors_at(geography.depth, level)
    return (ancestors == np.arange(geography.size(level))[:, np.newaxis]).astype(float)


def wanted_rows(plan: ReleasePlan, quantity: Quantity) -> np.ndarray:
    """One row for each number of a quantity: how often it counts each pair of zones."""
    origins, destinations = members(plan, 0, quantity.origin_level), members(plan, 1, quantity.destination_level)
    pairs = np.array([np.outer(o, d).ravel() for o in origins for d in destinations])
    width = len(destinations)
    if quantity.part == "all":
        return pairs
    rows = []
    for area in range(len(origins)):
        inside = pairs[area * width + area]
        outflow, inflow = (
            np.outer(origins[area], np.ones(origins.shape[1])).ravel(),
            np.outer(np.ones(origins.shape[1]), destinations[area]).ravel(),
        )
        rows.append({"within": inside, "outflow": outflow - inside, "inflow": inflow - inside}[quantity.part])
    return np.array(rows)


def level_rows(plan: ReleasePlan, level: int) -> np.ndarray:
    origin, destination = plan.tree.level_pair(level)
    return wanted_rows(plan, Quantity("", origin, destination))


def least_squares(plan: ReleasePlan) -> np.ndarray:
    """Covariance of the generalised least-squares estimate of every pair of zones in every category.

    The categories are those of all breakdowns together: a trip has one category of each.
    """
    sizes = [len(one.categories) for one in plan.breakdowns]
    zones = level_rows(plan, plan.tree.depth).shape[1]
    combined = list(product(*map(range, sizes)))
    information = np.zeros((zones * len(combined),) * 2)
    for step in plan.steps:
        rows = level_rows(plan, step.level)
        if isinstance(step, SegmentStep):
            side = [one.name for one in plan.breakdowns].index(step.breakdown)
            kinds = [[float(each[side] == k) for each in combined] for k in range(sizes[side])]
        else:
            kinds = [[1.0] * len(combined)]
        a = np.vstack([np.kron(rows, kind) for kind in kinds])
        information += a.T @ a / float(step.variance)
    information += 1e-9 * np.eye(len(information))  # categories of several breakdowns together are not measured
    covariance = np.linalg.inv(information)
    if plan.publishes_total:
        sums = covariance.sum(axis=1)
        covariance -= np.outer(sums, sums) / sums.sum()
    return covariance


def dense_variances(plan: ReleasePlan, quantity: Quantity, covariance: np.ndarray) -> np.ndarray:
    rows = wanted_rows(plan, quantity)
    combined = list(product(*(range(len(one.categories)) for one in plan.breakdowns)))
    kind = [1.0] * len(combined)
    if quantity.breakdown is not None:
        side = plan.breakdowns.index(quantity.breakdown)
        kind = [float(each[side] == 0) for each in combined]
    rows = np.kron(rows, kind)
    return np.einsum("ij,jk,ik->i", rows, covariance, rows)


def top_down(plan: ReleasePlan) -> tuple[int, dict[int, np.ndarray]]:
    """Each estimate of a level as coefficients of all measured values, and the variances of these."""
    variance = {step.level: float(step.variance) for step in plan.steps}
    sizes = [len(level_rows(plan, level)) for level in range(plan.tree.depth + 1)]
    measured = [level for level in range(plan.tree.depth + 1) if level in variance]
    starts = dict(zip(measured, np.cumsum([0, *(sizes[level] for level in measured)]), strict=False))
    total = sum(sizes[level] for level in measured)
    unit = {level: np.eye(total)[starts[level] : starts[level] + sizes[level]] for level in measured}
    estimates = {0: unit.get(0, np.zeros((1, total)))}
    for level in range(1, plan.tree.depth + 1):
        above, below = level_rows(plan, level - 1), level_rows(plan, level)
        child_of = (above @ below.T > 0).astype(float)
        family = child_of.sum(axis=1)
        z = unit[level]
        lacking = (estimates[level - 1] - child_of @ z) / family[:, np.newaxis]
        estimates[level] = z + child_of.T @ lacking
    spread = np.concatenate([np.full(sizes[level], variance[level]) for level in measured])
    return spread, estimates
