"""Project children in Chebyshev distance with a general mixed-integer solver.

This is the projection of the mechanism ``tda_linf`` [boninsegna2025inftda, section 5]. For every parent, it minimises t
subject to |x - y| <= t, y >= 0 whole and sum y = c. The distance is the same as IntOpt's, but the solver decides which
of the optimal y it returns. The authors use GLPK; this module uses HiGHS, which takes some milliseconds for each
parent.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, milp

from od_core.errors import OdError
from od_core.flows.projection.parents import check_parents

_INSTEAD = "use a mechanism that projects onto whole numbers, such as inftda"

_LIMIT = 1 << 29
"""Upper limit of sum |x| + c. HiGHS accepts a constraint that is off by up to 1e-7, whatever the size of the numbers.
Below this limit, floating-point numbers are at most 2^-24 = 6e-8 apart, so that the tolerance decides. (From 2^39
on, HiGHS was seen to report a distance as optimal that is not the least.)"""


def project_children_mixed_integer(
    noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the non-negative integers with the given sums nearest in Chebyshev distance, one solver call a parent.

    Arguments and shapes are those of ``project_children_euclidean``. The same call gives the same y.

    Raises:
        OdError: If a parent has no children or a negative total; if values are too large for the solver, which is
            checked before it is called; if the solver's answer is not whole, or has a wrong sum or distance.
    """
    check_parents(noisy, totals, offsets)
    parents = [slice(*edges) for edges in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]
    for children, total in zip(parents, totals.tolist(), strict=True):
        if int(np.abs(noisy[children]).sum()) + total >= _LIMIT:
            raise _fault(
                "OD-SOLVER-OVERFLOW",
                "the values are too large for a floating-point solver",
                next_step=_INSTEAD,
            )
    projected = np.empty_like(noisy)
    for children, total in zip(parents, totals.tolist(), strict=True):
        projected[children] = _nearest(noisy[children], total)
    return projected


def _nearest(x: NDArray[np.int64], total: int) -> NDArray[np.int64]:
    """Project the children of one parent."""
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


@lru_cache(maxsize=64)  # a level has few fan-outs
def _conditions(children: int) -> sparse.csc_array:
    """Return the rows y + t (at least x), y - t (at most x) and sum y (the total); shape (2b + 1, b + 1)."""
    each, one = sparse.eye_array(children), np.ones((children, 1))
    return sparse.block_array([[each, one], [each, -one], [one.T, None]], format="csc")


def _verified(result: OptimizeResult, x: NDArray[np.int64], total: int) -> NDArray[np.int64]:
    """Return the solver's y, after checking in whole numbers that y >= 0 and that sum and distance are as claimed."""
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
            "the solver's optimum is not valid in whole numbers",
            next_step=f"{_INSTEAD}, and report this",
        )
    return y


def _fault(code: str, message: str, next_step: str) -> OdError:
    return OdError(code, message, next_step=next_step, spent="draws already made stay charged")
