"""Project children in Chebyshev distance with a general mixed-integer solver.

This is the projection of the mechanism ``tda_linf`` [boninsegna2025inftda, section 5]. For the noisy counts x of the b
children of each parent, it finds integers y >= 0 and the smallest t such that |x_i - y_i| <= t for every child and the
sum of y is the parent's total. IntOpt attains the same t. Several y can be optimal, and the solver returns any of them.
The authors of the paper use GLPK. This module uses HiGHS, which takes some milliseconds per parent.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, milp

from od_core.errors import OdError
from od_core.flows.arrays import Integers
from od_core.flows.projection.onto_parents import check_parents

_INSTEAD = "use a mechanism that projects onto whole numbers, such as inftda"

_LIMIT = 1 << 29
"""Upper limit of the sum of |x| plus the total. HiGHS accepts a constraint that is violated by up to 1e-7, whatever the
size of the numbers. Below this limit, floating-point numbers are at most 2^-24 = 6e-8 apart, which is less than that
tolerance. (For values from 2^39, HiGHS was seen to report a distance as optimal that is not the smallest.)"""


def project_children_mixed_integer(noisy: Integers, totals: Integers, offsets: Integers) -> Integers:
    """Return the non-negative integers nearest in Chebyshev distance that sum to each parent's total.

    A repeated call returns the same integers. For the arguments, see
    :func:`od_core.flows.projection.onto_parents.check_parents`.

    Raises:
        OdError: As there; if values are too large for the solver, which is checked before its first call; or if its
            result is not whole or has a wrong sum or distance.
    """
    check_parents(noisy, totals, offsets)
    parents = [slice(*edges) for edges in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]
    for children, total in zip(parents, totals.tolist(), strict=True):
        if int(np.abs(noisy[children]).sum()) + total >= _LIMIT:
            raise _fault(
                "OD-SOLVER-OVERFLOW", "the values are too large for a floating-point solver", next_step=_INSTEAD
            )
    projected = np.empty_like(noisy)
    for children, total in zip(parents, totals.tolist(), strict=True):
        projected[children] = _nearest(noisy[children], total)
    return projected


def _nearest(x: Integers, total: int) -> Integers:
    """Return the projected counts of the children of one parent; shape of ``x``, their noisy counts."""
    if total == 0 or len(x) == 1:
        return np.full(len(x), total)
    unbounded = np.full(len(x), np.inf)
    result = milp(
        np.append(np.zeros(len(x)), 1.0),  # the variables are y, then t
        integrality=np.ones(len(x) + 1),
        bounds=Bounds(0, np.inf),
        constraints=LinearConstraint(
            _conditions(len(x)), np.concatenate([x, -unbounded, [total]]), np.concatenate([unbounded, x, [total]])
        ),
        options={"mip_rel_gap": 0.0},
    )
    return _verified(result, x, total)


@lru_cache(maxsize=64)  # the nodes of a level have few different numbers of children
def _conditions(children: int) -> sparse.csc_array:
    """Return the matrix of the constraints for b children, for the variables y and then t; shape (2b + 1, b + 1).

    The rows are y + t (at least the noisy counts), y - t (at most these) and sum y (the parent's total).
    """
    identity, ones = sparse.eye_array(children), np.ones((children, 1))
    return sparse.block_array([[identity, ones], [identity, -ones], [ones.T, None]], format="csc")


def _verified(result: OptimizeResult, x: Integers, total: int) -> Integers:
    """Return the solver's projected counts y, rounded to whole numbers.

    Raises OdError if it found no optimum, or if the whole numbers are not one with the distance that it reported.
    """
    if not result.success:
        raise _fault(
            "OD-SOLVER-FAILED",
            f"the solver found no optimum: {result.message}",
            next_step=f"{_INSTEAD}, and report this",
        )
    y: Integers = np.rint(result.x[:-1]).astype(np.int64)
    if y.min() < 0 or y.sum() != total or np.abs(x - y).max() != np.rint(result.mip_dual_bound):
        raise _fault(
            "OD-SOLVER-INEXACT",
            "the solver's optimum is not valid in whole numbers",
            next_step=f"{_INSTEAD}, and report this",
        )
    return y


def _fault(code: str, message: str, next_step: str) -> OdError:
    return OdError(code, message, next_step=next_step, spent="draws already made stay charged")
