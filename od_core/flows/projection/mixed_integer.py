"""Chebyshev projection by a mixed-integer solver, which is not told how the problem is built.

This is the projection of the mechanism ``tda_linf`` (spec 2; paper, section 5): for every parent, minimise t subject
to |x - y| <= t, y >= 0 whole, sum y = c. The distance is IntOpt's; which of the optimal y is found is up to the
solver. The paper used GLPK; here it is HiGHS, at some milliseconds a parent.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, milp

from od_core.errors import OdError
from od_core.flows.projection.parents import check_parents

_INSTEAD = "use a mechanism that projects in whole numbers, such as inftda"

_LIMIT = 1 << 29
"""Bound of sum |x| + c. HiGHS takes a condition as met when it is off by 1e-7, whatever the size of the numbers. Below
this bound floating-point numbers stand 2^-24 = 6e-8 apart or closer, so that the tolerance is what counts. (From 2^39
on it was seen to call a distance optimal that is not the least.)"""


def project_children_mixed_integer(
    noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Non-negative integers with the given sums, nearest in Chebyshev distance, by one solver call a parent.

    Arguments and shapes are those of ``project_children_euclidean``. The same call gives the same y.

    Raises:
        OdError: a parent without children or with a negative total; values too large for the solver, before it is
            called; an answer of the solver that is not whole, or does not have the sum or the distance it should.
    """
    check_parents(noisy, totals, offsets)
    parents = [slice(*edges) for edges in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]
    for children, total in zip(parents, totals.tolist(), strict=True):
        if int(np.abs(noisy[children]).sum()) + total >= _LIMIT:
            raise _fault(
                "OD-SOLVER-OVERFLOW",
                "the values are too large for a solver in floating point",
                next_step=_INSTEAD,
            )
    projected = np.empty_like(noisy)
    for children, total in zip(parents, totals.tolist(), strict=True):
        projected[children] = _nearest(noisy[children], total)
    return projected


def _nearest(x: NDArray[np.int64], total: int) -> NDArray[np.int64]:
    """The projection of one parent."""
    if total == 0 or len(x) == 1:
        return np.full(len(x), total)
    unbounded = np.full(len(x), np.inf)
    result = milp(
        np.append(np.zeros(len(x)), 1.0),  # the variables are y and t
        integrality=np.ones(len(x) + 1),
        bounds=Bounds(0, np.inf),
        constraints=LinearConstraint(
            _conditions(len(x)), np.concatenate([x, -unbounded, [total]]), np.concatenate([unbounded, x, [total]])
        ),
        options={"mip_rel_gap": 0.0},
    )
    return _verified(result, x, total)


@lru_cache(maxsize=64)  # a level has few fan-outs
def _conditions(children: int) -> sparse.csc_array:
    """Rows y + t (at least x), y - t (at most x) and sum y (the total); shape (2b + 1, b + 1)."""
    each, one = sparse.eye_array(children), np.ones((children, 1))
    return sparse.block_array([[each, one], [each, -one], [one.T, None]], format="csc")


def _verified(result: OptimizeResult, x: NDArray[np.int64], total: int) -> NDArray[np.int64]:
    """The solver's y, verified in whole numbers: y >= 0, the sum, and the distance that it says is the least."""
    if not result.success:
        raise _fault(
            "OD-SOLVER-FAILED",
            f"the solver found no optimum: {result.message}",
            next_step=f"{_INSTEAD}, and report this",
        )
    y: NDArray[np.int64] = np.rint(result.x[:-1]).astype(np.int64)
    if y.min() < 0 or y.sum() != total or np.abs(x - y).max() != np.rint(result.mip_dual_bound):
        raise _fault(
            "OD-SOLVER-INEXACT",
            "the solver's optimum does not hold in whole numbers",
            next_step=f"{_INSTEAD}, and report this",
        )
    return y


def _fault(code: str, message: str, next_step: str) -> OdError:
    return OdError(code, message, next_step=next_step, spent="what was drawn stays charged")
