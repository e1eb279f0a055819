"""What a release of trips with stops will measure and what it costs, from public facts alone."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pandas as pd

from od_core.errors import OdError
from od_core.privacy.accounting import float_above
from od_core.privacy.budget import Budget, SpentDirectly
from od_core.privacy.cap import Charge
from od_core.privacy.neighbours import DEFAULT_ACCEPTANCE, Acceptance
from od_core.privacy.unit import PrivacyUnit
from od_core.stops.geometry.grid import Grid
from od_core.stops.geometry.map_grid import MapGrid
from od_core.stops.mechanisms import mechanism_named
from od_core.stops.mechanisms.mechanism import StopsMechanism


@dataclass(frozen=True)
class StopsStep:
    """The whole tree, drawn once: every path through it costs epsilon, and a trip is on one path alone.

    Attributes:
        sensitivity: what a trip changes the counts of one depth by, in sum.
        epsilon: the charge, exact.
        scales: of the noise that is drawn whatever the trips are; see ``StopsMechanism``.
    """

    sensitivity: int
    epsilon: Fraction
    scales: tuple[tuple[str, Fraction], ...]

    @property
    def level(self) -> int:
        """Its number in the release, which has no other."""
        return 1

    @property
    def charge(self) -> Charge:
        """What the ledger sets aside for the draw."""
        return Charge(epsilon=self.epsilon)

    @property
    def widest(self) -> Fraction:
        """What the variance of noise that is surely drawn is at most."""
        return 2 * max(scale for _, scale in self.scales) ** 2

    @property
    def law(self) -> dict[str, int | str]:
        """What is drawn, as JSON-ready public facts."""
        return {"sensitivity": self.sensitivity} | {f"scale_of_{name}": str(scale) for name, scale in self.scales}


@dataclass(frozen=True, eq=False)
class StopsPlan:
    """One step, and the public facts that it follows from.

    Attributes:
        grid, unit, budget, mechanism: see :func:`plan_stops`.
        step: the one draw.
        map: that the grid is of; None where its dimensions are something else.
        acceptance: see :func:`plan_stops`.

    Raises:
        OdError: the step is not that of the unit, the budget and the mechanism.
    """

    grid: Grid
    unit: PrivacyUnit
    budget: Budget
    mechanism: StopsMechanism
    step: StopsStep
    map: MapGrid | None = None
    acceptance: Acceptance = DEFAULT_ACCEPTANCE

    def __post_init__(self) -> None:
        if self.budget.epsilon is None or self.step != _step(self.unit, self.budget.epsilon, self.mechanism):
            raise _defect("the step is not that of the unit, the budget and the mechanism")

    @property
    def steps(self) -> tuple[StopsStep, ...]:
        """The step alone."""
        return (self.step,)

    @property
    def spent(self) -> SpentDirectly:
        """What the plan costs when it is drawn once."""
        return self.spent_on((self.step.charge.as_rho,))

    @property
    def charge(self) -> Charge:
        """As :attr:`od_core.ledger.protocols.Planned.charge`."""
        return self.step.charge

    def spent_on(self, levels: tuple[Fraction, ...]) -> SpentDirectly:
        """What was spent where the step was charged so much rho in all, lost draws included."""
        (rho,) = levels
        return SpentDirectly(levels, Fraction(0), promise=rho / self.step.charge.as_rho * self.step.epsilon)

    def to_frame(self) -> pd.DataFrame:
        """One row a kind of noise that is surely drawn: what it is on, and its scale."""
        return pd.DataFrame([{"noise_on": name, "scale": float_above(scale)} for name, scale in self.step.scales])

    def facts(self) -> dict[str, Any]:
        """The whole plan as JSON-ready public facts; fractions as exact text."""
        return {
            "unit": self.unit.kind,
            "neighbours": self.unit.neighbours,
            "acceptance": self.acceptance.facts(),
            "mechanism": self.mechanism.name,
            "mechanism_options": self.mechanism.options,
            "epsilon": str(self.budget.epsilon),
            "delta": "0",
            "grid": list(self.grid.sizes),
            **({} if self.map is None else {"map": self.map.facts()}),
            "steps": [{"level": self.step.level, **self.step.law, "epsilon": str(self.step.epsilon)}],
        }

    @property
    def digest(self) -> str:
        """SHA-256 of the facts."""
        return hashlib.sha256(json.dumps(self.facts(), sort_keys=True).encode()).hexdigest()


def plan_stops(
    grid: Grid | MapGrid | tuple[int, ...],
    *,
    unit: PrivacyUnit,
    budget: Budget,
    mechanism: str | StopsMechanism = "privtree",
    acceptance: Acceptance = DEFAULT_ACCEPTANCE,
) -> StopsPlan:
    """The plan of a release of trips with stops.

    Args:
        grid: public; or the number of cells of each dimension, or the map that the places of trips are on.
        unit: a trip: one trip more or less (unbounded) or replaced (bounded).
        budget: pure epsilon.
        mechanism: name of a mechanism, or one with its options.
        acceptance: which records are trips of the release, and which inputs are refused.

    Raises:
        OdError: a user unit; a budget that is not a pure epsilon; a bad grid, or one that the mechanism refuses.
    """
    unit.refuse_users(
        "OD-STOPS-UNIT",
        "trips with stops are protected one by one: a user with several trips would be on several paths, and no scale"
        " here covers that",
    )
    unit.refuse_weights("trips with stops")
    epsilon = budget.pure_epsilon("trips with stops")
    on_map = grid if isinstance(grid, MapGrid) else None
    of_space = grid.grid if isinstance(grid, MapGrid) else grid
    space = of_space if isinstance(of_space, Grid) else Grid(of_space)
    used = mechanism_named(mechanism) if isinstance(mechanism, str) else mechanism
    used.refuse(space)
    return StopsPlan(space, unit, budget, used, _step(unit, epsilon, used), on_map, acceptance)


def _step(unit: PrivacyUnit, epsilon: Fraction, mechanism: StopsMechanism) -> StopsStep:
    """Return the one draw of a mechanism. Raises OdError where its noise would cost more than it is charged for."""
    sensitivity = _sensitivity(unit)
    return StopsStep(sensitivity, epsilon, tuple(mechanism.scales(epsilon, sensitivity).items()))


def _sensitivity(unit: PrivacyUnit) -> int:
    """What a trip changes the counts of disjoint boxes by: a replaced one leaves a box and enters another."""
    return 2 if unit.neighbours == "bounded" else 1


def _defect(message: str) -> OdError:
    return OdError("OD-PLAN-INVALID", message, next_step="make plans with plan_stops; if you did, report this")
