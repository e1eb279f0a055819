"""The nearest consistent histograms in which every area has its number of groups (Fioretto et al., H2 of Model 1).

The totals of all areas couple all sizes, so the cost tables do not serve. The problem is a flow of convex cost: groups
flow from the leaf areas (G_r each) through their cells, and up the tree of each size. At scale it is solved over the
reals and apportioned: the answer keeps the promise and is near the optimum. On small trees it is then made exact by
integer programming: as long as changes of one unit a cell at the most make it better, the best of them are made. Where
none does, it is optimal, since the difference of two flows is a sum of cycles that change each cell by one unit, all of
one sign in each cell, and of costs that are convex those of all cycles together are at least their sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from od_core.errors import OdError
from od_core.group_sizes.estimation.apportionment import apportioned
from od_core.group_sizes.estimation.cost_tables import first_cut, nearest_histograms, refuse_too_large
from od_core.group_sizes.estimation.relaxation import relaxed_prices
from od_core.group_sizes.frame import Counts, Frame

MOST_EXACT_CELLS = 10_000
"""Cells (areas of all levels times sizes) up to which the answer is optimal: HiGHS takes up to about a second."""

_LIMIT = 1 << 24
"""Bound of noisy values and totals for the solver: costs of a unit are whole in floating point, and its tolerance of
1e-7, over all cells, is below the whole number that a change can gain at the least."""


def nearest_with_area_totals(frame: Frame, noisy: Sequence[Counts]) -> list[Counts]:
    """Histograms of all levels that keep the total of every area: optimal on small trees, else near the optimum.

    Args:
        frame: the areas and their numbers of groups.
        noisy: of every level, top first; shape (areas, K + 1).

    Returns:
        Histograms of every level, top first; shape (areas, K + 1); whole numbers of at least 0 that add up.

    Raises:
        OdError: values beyond 2^40; the solver did not find an optimum of a small tree.
    """
    refuse_too_large(frame, noisy)
    near = apportioned(frame, noisy, relaxed_prices(frame, noisy))
    largest = max(int(frame.groups.sum()), *(int(max(values.max(), -values.min())) for values in noisy))
    if sum(values.size for values in noisy) <= MOST_EXACT_CELLS and largest < _LIMIT:
        from od_core.group_sizes.estimation.area_totals import made_exact  # SciPy takes a second to import

        return made_exact(frame, noisy, near)
    return near


@dataclass(frozen=True)
class WithAreaTotals:
    """What both programs of Fioretto et al. have in common: the option, and what is promised with it.

    Attributes:
        area_totals: whether every area keeps its number of groups (optimal on small trees, near the optimum on large
            ones); without it only the top areas do, and the program is optimal, as published.
    """

    area_totals: bool = True

    leaves_alone: ClassVar[bool] = False
    adds_up: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "area_totals", _truth_value(self.area_totals))

    @property
    def keeps_totals(self) -> bool:
        """Of every area, if it was asked for."""
        return self.area_totals

    @property
    def options(self) -> dict[str, str]:
        """Options as public text."""
        return {"area_totals": str(self.area_totals).lower()}

    def nearest(self, frame: Frame, noisy: Sequence[Counts], scale: Fraction) -> list[Counts]:
        """The histograms nearest to the noisy ones; raises OdError for values beyond 2^40."""
        if self.area_totals:
            return nearest_with_area_totals(frame, noisy)
        return nearest_histograms(frame, noisy, first_cut(scale))


def _truth_value(option: object) -> bool:
    """The option ``area_totals``, as it is given or as it is written down. Raises OdError for anything else."""
    values: dict[object, bool] = {True: True, False: False, "true": True, "false": False}
    if not isinstance(option, bool | str) or option not in values:
        raise OdError(
            "OD-MECHANISM-OPTION", "area_totals is true or false", next_step="correct the option of the mechanism"
        )
    return values[option]


# Histograms in which every area has its number of groups, made the nearest by integer programming.


def made_exact(frame: Frame, noisy: Sequence[Counts], histograms: list[Counts]) -> list[Counts]:
    """The best changes of up to one unit a cell, as long as there are any.

    Args:
        frame: the areas and their numbers of groups.
        noisy: of every level, top first; shape (areas, K + 1).
        histograms: to begin with, which add up and have the total of every area; of the same shapes.

    Returns:
        The nearest such histograms of every level.

    Raises:
        OdError: the solver found no optimum, or none in whole numbers.
    """
    flat, target = _flat(histograms), _flat(noisy)
    conditions = _conditions(frame)
    while True:
        more, less = 2 * (flat - target) + 1, 2 * (target - flat) + 1  # what a unit more costs, and a unit less
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
                spent="what was drawn stays charged",
            )
        taken = np.rint(result.x).astype(np.int64)
        change = taken[: len(flat)] - taken[len(flat) :]
        if int(more @ taken[: len(flat)] + less @ taken[len(flat) :]) >= 0:
            ends = np.cumsum([values.size for values in noisy])[:-1]
            return [part.reshape(values.shape) for part, values in zip(np.split(flat, ends), noisy, strict=True)]
        if np.any(conditions @ taken) or np.any(flat + change < 0):
            raise OdError(
                "OD-SOLVER-INEXACT",
                "the solver's optimum does not hold in whole numbers",
                next_step="report this",
                spent="what was drawn stays charged",
            )
        flat = flat + change


def _conditions(frame: Frame) -> sparse.csc_array:
    """Rows that are 0 for a change (units more, then units less) that keeps sums of children and of leaf areas."""
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
