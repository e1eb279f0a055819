"""Planning pages for tests, random settings of their controls, and the plans that Python makes of the same settings."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from od_core import Budget, Geography, PrivacyUnit, ReleasePlan, plan_release
from od_core.flows.mechanisms import InfTDARefined
from od_core.flows.planning_page import EPSILONS, render_planning_page
from od_core.privacy.accounting import compute_tight_epsilon
from od_core.privacy.budget import Cap
from od_core.privacy.neighbours import NO_FAULTS, Acceptance

CAP = Cap(rho="1/2")


def zones(branches: list[list[int]], levels: list[str]) -> pd.DataFrame:
    """Return a zone list of three levels: the number of zones of each middle area of each upper area."""
    paths = [
        (f"{levels[0]}{a}", f"{levels[1]}{a}.{b}", f"{levels[2]}{a}.{b}.{c}")
        for a, middle in enumerate(branches)
        for b, number in enumerate(middle)
        for c in range(number)
    ]
    return pd.DataFrame(paths, columns=levels)


UNEVEN = zones([[7, 2, 2], [5], [1, 3], [1]], ["region", "town", "zone"])
OTHER = zones([[2], [4, 1, 1]], ["province", "district", "work"])
SINGLE = zones([[1], [1]], ["region", "town", "zone"])
COUNTRY = zones([[7, 2, 2, 5]], ["country", "town", "zone"])
FOUR = UNEVEN.assign(only=UNEVEN["zone"] + "only")
DEEP = UNEVEN.assign(fourth=UNEVEN["zone"] + "d", fifth=UNEVEN["zone"] + "e")


@dataclass(frozen=True)
class Setting:
    """What a reader chooses: as in ``atlas/src/planning/state.ts``, but by value, not by number."""

    epsilon: str | None
    """None for the declared budget."""
    unit: str
    relation: str
    trips: int
    levels: tuple[int, ...]
    segments: bool
    weights: tuple[int, ...] | None
    yearly: int | None = None
    """For unit ``user_year``, the largest number of counted trips of a year."""
    pair: int | None = None
    """For user units, the pair cap; None without."""


@dataclass(frozen=True)
class Case:
    """A declared plan: its zone lists and what :func:`od_core.plan_release` takes."""

    origins: pd.DataFrame
    destinations: pd.DataFrame | None = None
    unit: PrivacyUnit = field(default_factory=lambda: PrivacyUnit("trip"))
    budget: Budget = field(default_factory=lambda: Budget(epsilon="0.7", delta="1e-8"))
    options: dict[str, Any] = field(default_factory=dict)
    unknown: bool = False
    periods: int = 12
    has_one_side: bool = False

    @property
    def depth(self) -> int:
        return len(self.origins.columns)

    def _geography(self, frame: pd.DataFrame, kept: tuple[int, ...]) -> Geography:
        levels = [frame.columns[at - 1] for at in kept]
        unknown = frame[levels[-1]].iloc[-1] if self.unknown else None
        return Geography.from_frame(frame[levels].drop_duplicates(), levels, unknown=unknown)

    @property
    def sides(self) -> tuple[pd.DataFrame, ...]:
        if self.has_one_side:
            return (self.origins,)
        return self.origins, self.origins if self.destinations is None else self.destinations

    def declared(self) -> ReleasePlan:
        return self._plan(tuple(range(1, self.depth + 1)), self.unit, self.budget, segments=True)

    def _plan(self, kept: tuple[int, ...], unit: PrivacyUnit, budget: Budget, *, segments: bool) -> ReleasePlan:
        options = {"acceptance": NO_FAULTS} | self.options
        if not segments:
            options = {name: value for name, value in options.items() if not name.startswith("segment")}
        if min(side[side.columns[kept[-1] - 1]].nunique() for side in self.sides) == 1:
            options.pop("area_totals", None)  # the flow tree measures the totals of an only zone
        other = Geography.whole() if self.has_one_side else None
        if self.destinations is not None:
            other = self._geography(self.destinations, kept)
        sides = {"destination_geography": other}
        return plan_release(self._geography(self.origins, kept), unit=unit, budget=budget, **sides, **options)

    @property
    def has_segments(self) -> bool:
        return "segments" in self.options

    def plan(self, setting: Setting) -> ReleasePlan:
        """The plan of a setting: with the declared shares, or with weights and the conversion that is stated."""
        user = setting.unit != "trip"
        weight = None if user else self.unit.max_weight
        pattern = None if setting.yearly is None else self.unit.id_pattern
        counted = (setting.trips if user else None, weight, setting.yearly, pattern, setting.pair)
        unit = PrivacyUnit(setting.unit, setting.relation, "user" if user else None, *counted)
        budget = self.budget
        if setting.epsilon is not None:
            budget = replace(budget, epsilon=Fraction(setting.epsilon), rho=None)
        if setting.weights is None:
            try:
                return self._plan(setting.levels, unit, budget, segments=setting.segments)
            except Exception as error:
                if getattr(error, "code", "") != "OD-BUDGET-SHARES":
                    raise
                return self._plan(setting.levels, unit, replace(budget, shares=None), segments=setting.segments)
        uniform = replace(budget, shares="uniform")
        steps = self._plan(setting.levels, unit, uniform, segments=setting.segments).steps
        levels = sorted({step.level for step in steps})
        own = [setting.weights[self._declared_level(setting.levels, level)] for level in levels]
        shares = [Fraction(weight, sum(own)) for weight in own]
        conversion = "bun_steinke" if budget.conversion == "bun_steinke" else "tight"
        budget = replace(budget, shares=tuple(shares), conversion=conversion if budget.delta else None)
        return self._plan(setting.levels, unit, budget, segments=setting.segments)

    def _declared_level(self, kept: tuple[int, ...], level: int) -> int:
        """The level of the tree over all levels that refines the same sides to the same level of areas."""
        if level == 0 or self.has_one_side or self.options.get("tree") == "both":
            return level and kept[level - 1]
        return 2 * kept[(level + 1) // 2 - 1] - level % 2

    def write(self, folder: Path, name: str = "flows") -> str:
        """Write the page, and return its address."""
        path = folder / "planning.html"
        text = self.page_of_flows if name == "flows" else render_planning_page(self.declared(), name, CAP, self.periods)
        path.write_text(text, encoding="utf-8")
        return path.as_uri()

    @cached_property
    def page_of_flows(self) -> str:
        """The page, made once for all tests of a case: it holds a plan for each budget."""
        return render_planning_page(self.declared(), "flows", CAP, self.periods)

    def epsilons(self) -> list[str | None]:
        """The budgets that the page offers, in the order of the slider; None is the declared one."""
        offered: dict[str | None, Fraction] = {each: Fraction(each) for each in EPSILONS}
        declared = self.budget.epsilon
        if declared is None:
            declared = compute_tight_epsilon(self.budget.compute_total_rho("tight"), self.budget.delta)
        offered = {each: value for each, value in offered.items() if value != declared} | {None: declared}
        return sorted(offered, key=lambda each: offered[each])

    def settings(self, number: int, seed: int) -> Iterator[Setting]:
        """Random settings of the page."""
        random = np.random.default_rng(seed)
        sets = [kept for size in range(1, self.depth + 1) for kept in combinations(range(1, self.depth + 1), size)]
        if self.depth > 4:
            sets = [kept for kept in sets if kept[-1] - kept[0] == len(kept) - 1]
        user = "user" if self.unit.kind == "trip" else self.unit.kind
        units = ["trip"] if self.unit.max_weight else ["trip", user]
        weighted = self.options.get("mechanism") != "vanilla_gauss"
        for _ in range(number):
            weights = tuple(int(each) for each in random.integers(1, 101, len(self.sides) * self.depth + 1))
            setting = Setting(
                self.epsilons()[random.integers(len(self.epsilons()))],
                str(random.choice(units)),
                str(random.choice(["bounded", "unbounded"])),
                int(random.integers(1, 40)),
                sets[random.integers(len(sets))] if random.random() < 0.7 else sets[-1],
                self.has_segments and random.random() < 0.7,
                weights if weighted and random.random() < 0.5 else None,
            )
            if setting.unit == "user_year":
                most = setting.trips * (self.periods + 2)
                setting = replace(setting, yearly=int(random.integers(setting.trips, most)))
            if setting.unit != "trip" and setting.trips > 1 and random.random() < 0.7:
                setting = replace(setting, pair=int(random.integers(1, min(setting.trips, 8))))
            if len(setting.levels) == 1 and len(self.plan(setting)._list_measured_levels()) == 1:
                setting = replace(setting, weights=None)  # the only level has the whole budget
            yield setting

    def fragment(self, setting: Setting) -> str:
        """The end of the address that leads to a setting."""
        parts = {
            "budget": self.epsilons().index(setting.epsilon),
            "unit": setting.unit,
            "neighbours": setting.relation,
            **({} if setting.unit == "trip" else {"trips": setting.trips, "pair": setting.pair or setting.trips}),
            **({} if setting.yearly is None else {"yearly": setting.yearly}),
            "levels": ",".join(map(str, setting.levels)),
            **({"segments": int(setting.segments)} if self.has_segments else {}),
            **({} if setting.weights is None else {"weights": ",".join(map(str, setting.weights))}),
        }
        return "#" + "&".join(f"{name}={value}" for name, value in parts.items())


MODES = {"mode": ["car", "bus", "other"], "purpose": ["work", "leisure"]}


def case(*sides: pd.DataFrame, **stated: Any) -> Case:
    """A case of zone lists, whose fields are stated beside the options of the plan."""
    fields = {name: stated.pop(name) for name in Case.__annotations__ if name in stated}
    return Case(*sides, options=stated, **fields)


BY_MODE = {"mode": MODES["mode"]}
LAPLACE: dict[str, Any] = {"mechanism": InfTDARefined(noise_distribution="laplace"), "budget": Budget("0.7")}
TIGHT = {"delta": "1e-8", "conversion": "tight"}

CASES = {
    "uneven": case(UNEVEN),
    "two sides": case(
        UNEVEN, OTHER, unit=PrivacyUnit("user", "unbounded", "person", 7), budget=Budget(3, "1e-6"), tree="origin"
    ),
    "segments": case(UNEVEN, budget=Budget(1, "1e-5", conversion="tight"), segments=MODES, segment_share="3/10"),
    "segments, exactly": case(UNEVEN, unknown=True, segments=BY_MODE, acceptance=Acceptance()),
    "not refined": case(UNEVEN, budget=Budget("0.35", "1e-8"), mechanism="inftda"),
    "leaves": case(UNEVEN, OTHER, mechanism="vanilla_gauss"),
    "rho": case(UNEVEN, budget=Budget(rho="0.001", delta="1e-7", shares="uniform")),
    "dropped": case(OTHER, mechanism=InfTDARefined(keep_all_cap=0)),
    "dropped segments": case(
        OTHER, budget=Budget(1, **TIGHT), mechanism=InfTDARefined(keep_all_cap=60), segments=MODES
    ),
    "weights": case(SINGLE, unit=PrivacyUnit("trip", "unbounded", max_weight=12), unknown=True),
    "listed shares": case(
        UNEVEN,
        unit=PrivacyUnit("user_period", "bounded", "person", 3),
        budget=Budget(2, "1e-8", conversion="bun_steinke", shares=["1/4"] * 2 + ["1/8"] * 3 + ["1/16"] * 2),
    ),
    "area totals": case(UNEVEN, OTHER, area_totals="1/7", segments=MODES),
    "area totals, exactly": case(UNEVEN, area_totals="1/10", tree="origin"),
    "both sides": case(UNEVEN, OTHER, tree="both", area_totals="1/7", unit=PrivacyUnit("trip", "unbounded")),
    "both sides, segments": case(FOUR, tree="both", segments=BY_MODE, acceptance=Acceptance()),
    "both sides, dropped": case(OTHER, tree="both", mechanism=InfTDARefined(keep_all_cap=0)),
    "both sides, not refined": case(UNEVEN, tree="both", mechanism="inftda"),
    "laplace": case(UNEVEN, OTHER, **LAPLACE, tree="both", area_totals="1/7", unit=PrivacyUnit("trip", "unbounded")),
    "laplace, exact total": case(FOUR, **LAPLACE | {"budget": Budget("0.3", shares="uniform")}, tree="both"),
    "laplace, people": case(
        UNEVEN, **LAPLACE, tree="both", unit=PrivacyUnit("user_period", "bounded", "person", 9, max_trips_pair=2)
    ),
    "laplace, dropped": case(
        OTHER,
        budget=Budget(8),
        tree="both",
        mechanism=InfTDARefined(keep_all_cap=0, noise_distribution="laplace"),
        unit=PrivacyUnit("trip", max_weight=4),
    ),
    "laplace, counts": case(UNEVEN, **LAPLACE, has_one_side=True, unit=PrivacyUnit("user", "unbounded", "person", 5)),
    "lost records": case(FOUR, acceptance=Acceptance(), budget=Budget(20, "1e-3")),
    "deep": case(DEEP, budget=Budget(5, **TIGHT, shares=["geometric", "6/5"])),
    "a year": case(
        UNEVEN,
        unit=PrivacyUnit("user_year", "bounded", "person", 10, max_trips_year=25, id_pattern="[0-9a-f]{16}"),
        segments=BY_MODE,
        periods=7,
    ),
    "people": case(
        UNEVEN,
        OTHER,
        unit=PrivacyUnit("user_period", "bounded", "person", 40, max_trips_pair=2),
        area_totals="1/7",
        segments=MODES,
    ),
    "counts": case(UNEVEN, segments=MODES, has_one_side=True),
    "counts of people": case(
        UNEVEN,
        unit=PrivacyUnit("user", "bounded", "person", 12, max_trips_pair=1),
        unknown=True,
        has_one_side=True,
        mechanism="inftda",
    ),
    "counted weights": case(UNEVEN, unit=PrivacyUnit("trip", max_weight=9), has_one_side=True),
    "people of a year": case(
        UNEVEN,
        OTHER,
        unit=PrivacyUnit("user_year", "bounded", "person", 25, None, 60, "[0-9a-f]{16}", max_trips_pair=1),
        area_totals="1/7",
        tree="origin",
        periods=7,
    ),
    "one country": case(COUNTRY, unit=PrivacyUnit("trip", "unbounded")),
    "one country, dropped": case(
        COUNTRY, unit=PrivacyUnit("trip", "unbounded"), mechanism=InfTDARefined(keep_all_cap=0)
    ),
}
"""Between them, they have every kind of mechanism and noise, conversion, rule of shares, and unit."""
