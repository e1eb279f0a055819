"""Compute the covariance of the estimated outflow and inflow of each area of a level.

Let f and g be two sums of estimates below a node with the estimate h, with the factors c and d of
:mod:`od_core.flows.estimation.node_sums`. Their covariance is q + c d V, where V is the variance of h. If the sums
below the children i of the node have the factors c_i and d_i and the shared residuals q_i, then

    q = sum (q_i + c_i d_i v_i) - c d S.

The outflow of an area has leaves below its row of the table, and its inflow below its column. Both have leaves below
one node of each level only: the one from the ancestor of the area to the same ancestor. So c_i d_i is 0 for all other
nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from od_core.flows.estimation.fitted_tree import FittedTree, between_areas, find_pairs
from od_core.flows.estimation.least_squares import Positions, Reals
from od_core.flows.estimation.node_sums import NodeSums


def exchange_covariances(fit: FittedTree, level: int) -> Reals:
    """Return the covariance of the outflow and the inflow of each area of a level; shape (areas,).

    Both geographies of the tree must be the same. If nodes were dropped, the sums are of noisy values, which are
    independent, and no value is in both. Then the covariances are 0.

    Args:
        fit: The fitted tree.
        level: Number of the level of both geographies, at least 1.
    """
    shared = np.zeros(fit.tree.origin.size(level))
    if not fit.nothing_dropped:
        return shared
    finest = fit.span(level, level)[1]
    sides = [NodeSums.of_fitted(fit.levels[finest], between_areas(fit.levels[finest])).factors for _ in range(2)]
    node, product = _common(fit, finest, level, sides)
    for k in range(finest, 0, -1):
        at = fit.levels[k]
        shared += product * at.own[node]
        sides = [sums.carried(at, fit.areas_of(at, side, level)[0]) for side, sums in enumerate(sides)]
        node, product = _common(fit, k - 1, level, sides)
        shared -= product * at.siblings[node]
    covariances: Reals = shared + product * fit.levels[0].variance[node]
    return covariances


def _common(fit: FittedTree, k: int, level: int, sides: Sequence[NodeSums]) -> tuple[Positions, Reals]:
    """Return the one node of a level that is above leaves of both sums of each area, and the product c d there.

    Args:
        fit: The fitted tree.
        k: Position of the level of the nodes in ``fit.levels``.
        level: Number of the level of the areas.
        sides: The sums of the outflow and of the inflow below each node.

    Returns:
        Positions of the nodes, and products; shape (areas,) each.
    """
    at, tree = fit.levels[k], fit.tree
    areas = np.arange(tree.origin.size(level), dtype=np.int32)
    pair = tree.level_pair(at.nodes.level)
    origin, destination = (tree.origin.ancestors_at(level, min(above, level)) for above in pair)
    node = find_pairs(at.nodes.origin, at.nodes.destination, origin, destination, tree.destination.size(pair[1]))
    product = np.ones(len(areas))
    for side, sums in enumerate(sides):
        product *= sums.factor_at(node, areas - fit.areas_of(at, side, level)[0][node])
    return node, product
