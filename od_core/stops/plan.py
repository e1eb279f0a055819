"""Plan the measurement of a release of trips with stops and its cost, from public facts alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pandas as pd

from od_core.meaning.features import list_given_options, refuse_unsupported
from od_core.privacy.accounting import round_up_to_float
from od_core.privacy.budget import Budget
from od_core.privacy.neighbours import DEFAULT_ACCEPTANCE, Acceptance
from od_core.privacy.plan import DetailNoise, LaplaceStep, Plan, Table, describe_laplace_noise, read_plan_options
from od_core.privacy.unit import PrivacyUnit
from od_core.stops.geometry import Boxes, Grid, MapGrid
from od_core.stops.mechanisms import MECHANISMS, StopsMechanism

if TYPE_CHECKING:
    from fractions import Fraction

BOX_NOISE_NAMES = ("leaves", "boxes")
"""Names of the noise scales of the counts of published boxes, in plans whose scales do not depend on a draw."""


@dataclass(frozen=True, eq=False, repr=False)
class StopsPlan(Plan):
    """The only step of a release of trips with stops, with the public facts that determine it.

    The step draws the whole tree of boxes and their noisy counts. Every path from the root of the tree to a leaf costs
    epsilon. Each trip is on one path only, so the whole step costs epsilon.

    Attributes:
        grid, unit, budget, mechanism, acceptance: see :func:`plan_stops`.
        map: the map, if the dimensions of the grid are the coordinates of places on a map; otherwise None.

    Raises:
        OdError: the budget is not a pure epsilon, or the mechanism's noise would cost more than epsilon.

    Examples:
        >>> boxes.plan
        StopsPlan(privtree, epsilon 1; .to_frame() lists its steps)
    """

    table: ClassVar[Table] = "boxes"

    grid: Grid
    unit: PrivacyUnit
    budget: Budget
    mechanism: StopsMechanism
    map: MapGrid | None = None
    acceptance: Acceptance = DEFAULT_ACCEPTANCE

    @property
    def features(self) -> frozenset[str]:
        """Names of the options that this plan has, as ``od_core/meaning/support.yaml`` lists them."""
        return super().features | list_given_options(map=self.map)

    @cached_property
    def step(self) -> LaplaceStep:
        """The single step, of level 1, which measures all boxes.

        Its sensitivity is the largest total change of the counts of one depth of the tree if one trip is added or
        removed (unbounded neighbours) or replaced (bounded neighbours). Its scales are those of
        :meth:`od_core.stops.mechanisms.StopsMechanism.compute_noise_scales`.
        """
        epsilon = cast("Fraction", self.budget.epsilon)  # a budget in rho is not supported
        sensitivity = self.unit.differing_units  # a replaced trip leaves one box and enters another
        scales = tuple(self.mechanism.compute_noise_scales(epsilon, sensitivity).items())
        widest = self.mechanism.compute_widest_scale(self.grid, epsilon, sensitivity)
        return LaplaceStep(1, sensitivity, epsilon, scales, widest)

    @property
    def steps(self) -> tuple[LaplaceStep]:
        """The steps of the plan: only :attr:`step`."""
        return (self.step,)

    def replan(self, unit: PrivacyUnit, budget: Budget) -> StopsPlan:
        """Return the plan of a release with the same grid and mechanism, but another unit and budget.

        Raises OdError if the library has no such release.
        """
        return plan_stops(
            self.map or self.grid, unit=unit, budget=budget, mechanism=self.mechanism, acceptance=self.acceptance
        )

    def detail_noise(self, measured: Boxes | None = None) -> DetailNoise:
        """Return the noise on the counts of the published boxes.

        With ``measured``, the drawn boxes, it is the noise on their counts. Without, it is that of the plan, if one of
        its scales has a name in :data:`BOX_NOISE_NAMES`. Otherwise, the scale depends on the draw, and ``is_known`` of
        the result is False.
        """
        step = self.step
        if measured is not None:
            scale = self.mechanism.compute_count_scale(measured, self.grid, step.epsilon, step.sensitivity)
            return DetailNoise.from_laplace_scale(scale)
        scales = dict(step.scales)
        for name in BOX_NOISE_NAMES:
            if name in scales:
                return DetailNoise.from_laplace_scale(scales[name])
        _, first_scale = step.scales[0]
        note = "the noise of a box depends on the boxes that are drawn"
        return DetailNoise.from_laplace_scale(first_scale, note, is_known=False)

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per noise scale: noise_on (the purpose of the noise) and scale (rounded up)."""
        return pd.DataFrame([{"noise_on": name, "scale": round_up_to_float(scale)} for name, scale in self.step.scales])

    def verdicts(self) -> list[str]:
        """Return a sentence for each noise distribution that is fixed before the first draw."""
        return [describe_laplace_noise(name.replace("_", " "), scale) for name, scale in self.step.scales]

    def _list_own_facts(self) -> dict[str, object]:
        """Return the facts that only plans of trips with stops have."""
        return {
            "epsilon": str(self.budget.epsilon),
            "delta": "0",
            "grid": list(self.grid.sizes),
            **({} if self.map is None else {"map": self.map.facts()}),
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> StopsPlan:
        """Plan a release again from the :meth:`facts` of its plan, and raise OdError as :func:`plan_stops` does.

        The step is computed, not read from ``facts``, so the caller must compare the facts of the result with them.
        """
        grid = MapGrid.from_facts(facts["map"]) if "map" in facts else Grid(tuple(facts["grid"]))
        return plan_stops(grid, **read_plan_options(facts, MECHANISMS))


def plan_stops(
    grid: Grid | MapGrid | tuple[int, ...],
    *,
    unit: PrivacyUnit,
    budget: Budget,
    mechanism: str | StopsMechanism = "privtree",
    acceptance: Acceptance = DEFAULT_ACCEPTANCE,
) -> StopsPlan:
    """Return the plan of a release of trips with stops, made from public facts alone.

    Args:
        grid, unit, budget, mechanism: see :func:`od_core.release_stops`.
        acceptance: rules that decide which records count as trips, and which inputs are refused.

    Raises:
        OdError: the unit is a user or has weights, the budget is not a pure epsilon, the mechanism is unknown, or the
            grid is invalid or refused by the mechanism.

    Examples:
        >>> plan_stops((8, 8), unit=PrivacyUnit("trip"), budget=Budget(epsilon=1)).charge.epsilon
        Fraction(1, 1)
    """
    refuse_unsupported("boxes", unit.features | budget.features)
    on_map = grid if isinstance(grid, MapGrid) else None
    plain_grid = grid.grid if isinstance(grid, MapGrid) else grid
    space = plain_grid if isinstance(plain_grid, Grid) else Grid(plain_grid)
    chosen_mechanism = MECHANISMS.make(mechanism)
    chosen_mechanism.refuse_grid(space)
    return StopsPlan(space, unit, budget, chosen_mechanism, on_map, acceptance)
