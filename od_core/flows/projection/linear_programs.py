"""Project children in Chebyshev distance with a general solver of linear programs.

This is the projection of the mechanism ``tda_linf`` [boninsegna2025inftda, section 5]. For the noisy counts x of the b
children of each parent, it finds integers y >= 0 and the smallest t such that |x_i - y_i| <= t for every child and the
sum of y is the parent's total. IntOpt attains the same t. Several y can be optimal.

The problem has integer variables, but two linear programs solve it. For a given t, the conditions on y are bounds and
one sum, so y exists if t is at least -x_i for every child and at least (total - sum x) / b, and if the sum of max(x_i -
t, 0) is at most the total. The first program finds the smallest real t. If t is whole, every vertex of the conditions
on y is whole, so that the smallest whole t is the smallest real t rounded up. The second program returns such a vertex:
the one with the most trips in the first children. This choice does not look at the counts, and it is the same whichever
parents are solved together.

The authors of the paper use GLPK. This module uses HiGHS, for many parents at a time: a mixed-integer problem for each
parent took a hundred times as long.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from od_core.errors import OdError
from od_core.flows.arrays import Integers, Reals
from od_core.flows.projection.onto_parents import check_parents

_NEXT_STEP = "use a mechanism that projects onto whole numbers, such as inftda"

_LIMIT = 1 << 29
"""Upper limit of the sum of |x| plus the total. HiGHS accepts a constraint that is violated by up to 1e-7, whatever the
size of the numbers. Below this limit, floating-point numbers are at most 2^-24 = 6e-8 apart, which is less than that
tolerance. (For values from 2^39, HiGHS was seen to report a distance as optimal that is not the smallest.)"""

_MAX_CHILDREN = 2_000
"""Children of the parents that are solved together, at most, unless one parent has more. More take longer per child."""

_WHOLE_TOLERANCE = 1e-6
"""A solution this close to a whole number is that number. Differences of true solutions are at least 1 / b."""


def project_children_by_solver(noisy: Integers, totals: Integers, offsets: Integers) -> Integers:
    """Return the non-negative integers nearest in Chebyshev distance that sum to each parent's total.

    A repeated call returns the same integers, whichever parents are beside a parent. For the arguments, see
    :func:`od_core.flows.projection.onto_parents.check_parents`.

    Raises:
        OdError: As there; if values are too large for the solver, which is checked before its first call; or if its
            result is not whole or has a wrong sum or distance.
    """
    check_parents(noisy, totals, offsets)
    if len(totals) and (np.add.reduceat(np.abs(noisy), offsets[:-1]) + totals).max() >= _LIMIT:
        raise _make_solver_error(
            "OD-SOLVER-OVERFLOW", "the values are too large for a floating-point solver", next_step=_NEXT_STEP
        )
    projected = np.empty_like(noisy)
    first = 0
    while first < len(totals):
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + _MAX_CHILDREN, "right")) - 1)
        edges = offsets[first : last + 1]
        projected[edges[0] : edges[-1]] = _find_nearest_counts(
            noisy[edges[0] : edges[-1]], totals[first:last], np.diff(edges)
        )
        first = last
    return projected


def _find_nearest_counts(x: Integers, totals: Integers, children: Integers) -> Integers:
    """Return the projected counts of all children, shape (children,), given noisy counts ``x`` of that shape.

    ``totals`` are those of the parents, and ``children`` the number of children of each; shape (parents,).
    """
    parent, starts = np.repeat(np.arange(len(totals)), children), np.cumsum(children) - children
    t = _find_least_distances(x, totals, parent, starts)
    low = np.maximum(x - t[parent], 0)
    bounds = Bounds(low, np.maximum(x + t[parent], low))
    y = _solve_linear_program(
        np.arange(len(x)) - starts[parent], _make_sum_matrix(parent, len(totals)), (totals, totals), bounds
    )
    return _verify_solution(np.rint(y).astype(np.int64), x, totals, starts, t)


def _find_least_distances(x: Integers, totals: Integers, parent: Integers, starts: Integers) -> Integers:
    """Return the smallest whole t of each parent; shape (parents,).

    ``parent`` is the parent of each child, and ``starts`` the position of the first child of each parent.
    """
    at_least = np.maximum(0, (totals - np.add.reduceat(x, starts)) / np.bincount(parent))
    at_least = np.maximum(at_least, -np.minimum.reduceat(x, starts))
    counts = np.flatnonzero(x > at_least[parent])  # of the others, max(x - t, 0) is 0
    sums = _make_sum_matrix(parent[counts], len(totals))
    solution = _solve_linear_program(  # of the variables u, which are at least x - t, and t
        np.concatenate([np.zeros(len(counts)), np.ones(len(totals))]),
        sparse.block_array([[sparse.eye_array(len(counts)), sums.T], [-sums, None]], format="csc"),
        (np.concatenate([x[counts], -totals]), np.inf),
        Bounds(np.concatenate([np.zeros(len(counts)), at_least]), np.inf),
    )
    return np.ceil(solution[len(counts) :] - _WHOLE_TOLERANCE).astype(np.int64)


def _make_sum_matrix(parent: Integers, parents: int) -> sparse.csc_array:
    """Return the matrix whose product with values of children is their sum by parent; shape (parents, children)."""
    return sparse.csc_array((np.ones(len(parent)), (parent, np.arange(len(parent)))), shape=(parents, len(parent)))


def _solve_linear_program(
    costs: ArrayLike, conditions: sparse.csc_array, limits: tuple[ArrayLike, ArrayLike], bounds: Bounds
) -> Reals:
    """Return the variables of least cost within the limits of the conditions and the bounds; shape of ``costs``."""
    result = milp(costs, bounds=bounds, constraints=LinearConstraint(conditions, *limits))  # no variable is an integer
    if not result.success:
        raise _make_solver_error(
            "OD-SOLVER-FAILED",
            f"the solver found no optimum: {result.message}",
            next_step=f"{_NEXT_STEP}, and report this",
        )
    return np.asarray(result.x)


def _verify_solution(y: Integers, x: Integers, totals: Integers, starts: Integers, t: Integers) -> Integers:
    """Return the integers y. Raises OdError unless they have the sums, and t is their least distance for each parent.

    A distance of t - 1 is too small if some count is below 1 - t, or if the sum of the least integers at this distance
    is above the total, or that of the largest below it.
    """
    nearer = np.repeat(t - 1, np.diff(starts, append=len(x)))
    too_small = (
        (t == 0)
        | (np.minimum.reduceat(x + nearer, starts) < 0)
        | (np.add.reduceat(np.maximum(x - nearer, 0), starts) > totals)
        | (np.add.reduceat(x + nearer, starts) < totals)
    )
    distance = np.maximum.reduceat(np.abs(x - y), starts)
    if y.min() < 0 or not (too_small & (distance == t) & (np.add.reduceat(y, starts) == totals)).all():
        raise _make_solver_error(
            "OD-SOLVER-INEXACT",
            "the solver's optimum is not valid in whole numbers",
            next_step=f"{_NEXT_STEP}, and report this",
        )
    return y


def _make_solver_error(code: str, message: str, next_step: str) -> OdError:
    """Return the error for values or results that the solver cannot process exactly."""
    return OdError(code, message, next_step=next_step, spent="draws already made stay charged")
