"""Variances of the numbers of a release by dense linear algebra over all pairs of zones and categories."""

from collections.abc import Mapping
from fractions import Fraction
from itertools import product

import numpy as np

from od_core import FlowTree, ReleasePlan
from od_core.flows.optimal_shares import Quantity
from od_core.flows.step import SegmentStep


def members(tree: FlowTree, side: int, level: int) -> np.ndarray:
    """One row for each area: which zones it has."""
    geography = (tree.origin, tree.destination)[side]
    ancestors = geography.ancestors_at(geography.depth, level)
    return (ancestors == np.arange(geography.size(level))[:, np.newaxis]).astype(float)


def wanted_rows(tree: FlowTree, quantity: Quantity) -> np.ndarray:
    """One row for each number of a quantity: how often it counts each pair of zones."""
    origins, destinations = members(tree, 0, quantity.origin_level), members(tree, 1, quantity.destination_level)
    pairs = np.array([np.outer(o, d).ravel() for o in origins for d in destinations])
    width = len(destinations)
    if quantity.part == "all":
        return pairs
    rows = []
    for area in range(len(origins)):
        inside = pairs[area * width + area]
        outflow = np.outer(origins[area], np.ones(origins.shape[1])).ravel()
        inflow = np.outer(np.ones(origins.shape[1]), destinations[area]).ravel()
        rows.append({"within": inside, "outflow": outflow - inside, "inflow": inflow - inside}[quantity.part])
    return np.array(rows)


def level_rows(tree: FlowTree, level: int) -> np.ndarray:
    origin, destination = tree.level_pair(level)
    return wanted_rows(tree, Quantity("", origin, destination))


def least_squares(plan: ReleasePlan) -> np.ndarray:
    """Covariance of the generalised least-squares estimate of every pair of zones in every category.

    The categories are those of all breakdowns together: a trip has one category of each.
    """
    sizes = [len(one.categories) for one in plan.breakdowns]
    zones = plan.tree.cells(plan.tree.depth)
    combined = list(product(*map(range, sizes)))
    information = np.zeros((zones * len(combined),) * 2)
    for step in plan.steps:
        rows = level_rows(plan.tree, step.level)
        if isinstance(step, SegmentStep):
            side = [one.name for one in plan.breakdowns].index(step.breakdown)
            kinds = [[float(each[side] == k) for each in combined] for k in range(sizes[side])]
        else:
            kinds = [[1.0] * len(combined)]
        a = np.vstack([np.kron(rows, kind) for kind in kinds])
        information += a.T @ a / float(step.variance)
    information += 1e-9 * np.eye(len(information))  # categories of several breakdowns together are not measured
    covariance = np.linalg.inv(information)
    return with_exact_sum(covariance) if plan.publishes_total else covariance


def with_exact_sum(covariance: np.ndarray) -> np.ndarray:
    """Covariance of estimates of which the sum is known."""
    sums = covariance.sum(axis=1)
    return covariance - np.outer(sums, sums) / sums.sum()


def dense_variances(plan: ReleasePlan, quantity: Quantity, covariance: np.ndarray) -> np.ndarray:
    rows = wanted_rows(plan.tree, quantity)
    combined = list(product(*(range(len(one.categories)) for one in plan.breakdowns)))
    kind = [1.0] * len(combined)
    if quantity.breakdown is not None:
        side = plan.breakdowns.index(quantity.breakdown)
        kind = [float(each[side] == 0) for each in combined]
    rows = np.kron(rows, kind)
    return np.einsum("ij,jk,ik->i", rows, covariance, rows)


def top_down(tree: FlowTree, variance: Mapping[int, Fraction]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Variances of all measured values, and each estimate of a level as coefficients of these.

    Nodes of a level without a variance have one child each, whose value is theirs; the root has none.
    """
    sizes, levels = {level: tree.cells(level) for level in variance}, range(tree.depth + 1)
    ends = np.cumsum(list(sizes.values()))
    unit = {level: np.eye(ends[-1])[end - sizes[level] : end] for level, end in zip(sizes, ends, strict=True)}
    child_of = [(level_rows(tree, k) @ level_rows(tree, k + 1).T > 0).astype(float) for k in levels[:-1]]
    for level in reversed(levels[1:]):
        if level not in unit:
            unit[level] = child_of[level] @ unit[level + 1]
    estimates = [unit.get(0, np.zeros((1, ends[-1])))]
    for level in levels[1:]:
        above = child_of[level - 1]
        lacking = (estimates[-1] - above @ unit[level]) / above.sum(axis=1)[:, np.newaxis]
        estimates.append(unit[level] + above.T @ lacking)
    return np.concatenate([np.full(sizes[level], float(variance[level])) for level in sizes]), estimates
