"""Find by integer programming the nearest histograms that add up over areas and have the numbers of groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from od_core.errors import OdError
from od_core.group_sizes.groups import Counts, Frame


def made_exact(frame: Frame, noisy: Sequence[Counts], histograms: list[Counts]) -> list[Counts]:
    """Return the nearest histograms in which children sum to their parent and every area has its number of groups.

    The best change of at most one group per entry is applied repeatedly, until no change reduces the sum of squared
    distances. :mod:`od_core.group_sizes.estimation.area_totals` proves that the result is optimal.

    Args:
        frame: the areas and their numbers of groups.
        noisy: noisy histograms of every level, top first; shape (areas, K + 1) each.
        histograms: histograms that meet these constraints, from which to start; same shapes.

    Returns:
        Histograms of every level, top first; integers of at least 0, shape (areas, K + 1) each.

    Raises:
        OdError: the solver finds no optimum, or its optimum breaks a constraint when it is rounded to integers.
    """
    flat, target = _flat(histograms), _flat(noisy)
    conditions = _conditions(frame)
    while True:
        more, less = 2 * (flat - target) + 1, 2 * (target - flat) + 1  # costs of adding and removing a unit
        result = milp(
            np.concatenate([more, less]).astype(np.float64),
            integrality=np.ones(2 * len(flat)),
            bounds=Bounds(0, np.concatenate([np.ones(len(flat)), flat > 0])),
            constraints=LinearConstraint(conditions, 0, 0),
            options={"mip_rel_gap": 0.0},
        )
        if not result.success:
            raise OdError(
                "OD-SOLVER-FAILED",
                f"the solver found no optimum: {result.message}",
                next_step="report this",
                spent="draws already made stay charged",
            )
        taken = np.rint(result.x).astype(np.int64)
        change = taken[: len(flat)] - taken[len(flat) :]
        if int(more @ taken[: len(flat)] + less @ taken[len(flat) :]) >= 0:
            ends = np.cumsum([values.size for values in noisy])[:-1]
            return [part.reshape(values.shape) for part, values in zip(np.split(flat, ends), noisy, strict=True)]
        if np.any(conditions @ taken) or np.any(flat + change < 0):
            raise OdError(
                "OD-SOLVER-INEXACT",
                "the solver's optimum is not valid in whole numbers",
                next_step="report this",
                spent="draws already made stay charged",
            )
        flat = flat + change


def _conditions(frame: Frame) -> sparse.csc_array:
    """Return the constraint matrix of changes, which are vectors of the units added to, then removed from each cell.

    The product of the matrix and a change is 0 if and only if, after the change, children still sum to their parents
    and leaf areas keep their numbers of groups.
    """
    sizes = frame.top_code + 1
    blocks = []
    for level in frame.levels[:-1]:
        parents = frame.geography.parents[level + 1]
        sums = sparse.csr_array(
            (np.ones(len(parents)), (parents, np.arange(len(parents)))),
            shape=(frame.geography.size(level), len(parents)),
        )
        row = [None] * len(frame.levels)
        row[level - 1] = sparse.eye_array(frame.geography.size(level) * sizes)
        row[level] = -sparse.kron(sums, sparse.eye_array(sizes))
        blocks.append(row)
    leaves = len(frame.groups)
    last = [None] * len(frame.levels)
    last[-1] = sparse.kron(sparse.eye_array(leaves), np.ones((1, sizes)))
    more = sparse.block_array([*blocks, last], format="csc")
    return sparse.hstack([more, -more], format="csc")


def _flat(levels: Sequence[Counts]) -> Counts:
    return np.concatenate([values.ravel() for values in levels])
