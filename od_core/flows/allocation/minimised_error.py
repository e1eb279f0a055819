"""Divide a budget so that the expected errors of chosen numbers are smallest."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from od_core.flows.allocation.optimal_shares import OptimalShares, Reals, optimal_shares
from od_core.flows.allocation.quantity import Quantity
from od_core.flows.allocation.variance_model import VarianceModel
from od_core.flows.mechanisms import Mechanism
from od_core.flows.queries import Segments
from od_core.geography.flow_tree import FlowTree
from od_core.privacy.budget import Budget, MinimisedError
from od_core.privacy.neighbours import Neighbours

GRAIN = 10_000
"""The shares are multiples of 1 / GRAIN, so that every machine finds the same ones."""


def with_exact_shares(
    budget: Budget, tree: FlowTree, neighbours: Neighbours, mechanism: Mechanism, segments: Segments | None
) -> Budget:
    """Return a budget with exact shares in place of the rule ``minimise``, or unchanged if it has another rule.

    Args:
        budget: the budget.
        tree, neighbours, mechanism, segments: see :class:`VarianceModel`.

    Raises:
        OdError: The mechanism measures one level; a quantity of the rule is unknown, or has too many cells; or no
            optimum is found.
    """
    if not isinstance(budget.shares, MinimisedError):
        return budget
    model = VarianceModel(tree, neighbours, mechanism, segments)
    chosen = dict(zip(model.free_levels, minimised_error(model, budget.shares).shares, strict=True))
    return replace(budget, shares=tuple(chosen.get(level, Fraction(0)) for level in model.levels))


def minimised_error(model: VarianceModel, rule: MinimisedError) -> OptimalShares:
    """Return the shares of the free levels that minimise a weighted sum of expected errors.

    The expected error of a quantity is its root-mean-square error over all public cells, without rounding and without
    cuts at zero. It is a convex function of the shares.

    Args:
        model: variances of the release as functions of the shares.
        rule: weights of the quantities by name; see :meth:`Quantity.named`.

    Raises:
        OdError: As in :func:`with_exact_shares`.
    """
    breakdowns = () if model.segments is None else model.segments.breakdowns
    chosen = [(Quantity.named(name, model.tree, breakdowns), float(weight)) for name, weight in rule.weights]

    def error(shares: Reals) -> Reals:
        return np.array([sum(weight * model.mean(quantity, shares) ** 0.5 for quantity, weight in chosen)])

    count = len(model.free_levels)
    return optimal_shares(error, np.full(count, 1 / count), 0.5, GRAIN)
