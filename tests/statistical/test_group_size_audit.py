"""Gray-box audit of group sizes: noisy measurements tell no more of a member than was planned; seeded defects are seen.

An auditor knows two neighbouring tables and the noisy measurements of one of them. A cell that a member changes by one
has two likelihood ratios under discrete Laplace noise: e^(1/scale) where the value is at least as far as the second
table's, else e^(-1/scale). So the number of such cells, over all levels, orders all outcomes by likelihood ratio, and
no test beats "at least n of them" (Neyman and Pearson). Its chances p0 and p1 under both tables are binomial, n is
fixed by the planned law before any draw, and any pure epsilon is at least log(p1 / p0).

The chances are bounded from so many draws by Clopper and Pearson, p1 from below and p0 from above, at half of 1e-6
each: a bound above the true log(p1 / p0) is seen with probability 1e-6 at most. Counts and scales are those that the
real measuring makes and asks for; the noise comes from the real backends.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import stats

from od_core import Budget, Geography, PrivacyUnit
from od_core.group_sizes.groups import GroupSizes
from od_core.group_sizes.plan import SENSITIVITY, TopCodeEstimate, plan_group_sizes
from od_core.group_sizes.release import measure_step
from od_core.noise.backends import resolve_noise_source
from tests.od_core.group_sizes.doubles import Measuring
from tests.statistical.laws import ALPHA, least_epsilon, sure_epsilon

CLAIM = 3
"""Epsilon of the plans: at less, the many cells of replaced members in H say too little for so many draws."""

RUNS = 400_000
"""Releases of each table."""

QUERIES = list(SENSITIVITY)
UNITS = {"unbounded": PrivacyUnit("trip", "unbounded"), "bounded": PrivacyUnit("trip", "bounded")}


@dataclass(frozen=True)
class Level:
    """The query of one level as it is measured: of both tables, and with the scale that is asked for."""

    scale: Fraction
    before: NDArray[np.int64]
    after: NDArray[np.int64]

    @property
    def change(self) -> NDArray[np.int64]:
        return self.after - self.before

    @property
    def changed(self) -> int:
        assert np.abs(self.change).max() <= 1
        return int(np.abs(self.change).sum())


class Asked:
    """Noise of 0, so that the counts are measured as they are; keeps the scale that is asked for."""

    def __init__(self) -> None:
        self.scales: set[Fraction] = set()

    def draw(self, variance, level, first, size):
        raise NotImplementedError

    def draw_laplace(self, scale, size):
        self.scales.add(scale)
        return np.zeros(size, dtype=np.int64)


TOP_CODE = 15

ESTIMATE = TopCodeEstimate(Fraction(1, 2), most=TOP_CODE)
"""With a margin above 3, so that without noise it is 15 for both tables: what they measure has the same cells."""


def measured_levels(
    query: str,
    unit: PrivacyUnit,
    *,
    depth: int = 2,
    top_code: int | TopCodeEstimate = TOP_CODE,
) -> list[Level]:
    """The levels of two neighbours: one member more in a group or, bounded, out of another group into this one.

    The sizes are far apart, so that no cell changes twice; the group with one more is the largest.
    """
    paths = [[f"level {k}" for k in range(1, depth)] + [leaf] for leaf in (["a"] if depth == 1 else ["a", "b"])]
    names = [f"n{k}" for k in range(depth)]
    geography = Geography.from_frame(pd.DataFrame(paths, columns=names, dtype="str"), names)
    sizes = [2, 4, 8, 12]
    more = [2, 4, 8, 13] if unit.neighbours == "unbounded" else [2, 4, 7, 13]
    levels, sides = [], []
    for table in (sizes, more):
        frame = pd.DataFrame({"group": range(4), "area": pd.Series(["a"] * 4, dtype="str"), "size": table})
        groups = GroupSizes.from_frame(frame, geography)
        given = {"unit": unit, "budget": Budget(epsilon=CLAIM), "mechanism": Measuring(query), "top_code": top_code}
        plan = plan_group_sizes(geography, groups.count_per_area(geography), **given)
        asked = [Asked() for _ in plan.steps]
        sides.append(
            [
                np.concatenate(list(measure_step(plan.frame, query, step, groups, source)))
                for step, source in zip(plan.steps, asked, strict=True)
            ]
        )
        levels = [scale for source in asked for scale in source.scales]
    return [Level(*level) for level in zip(levels, *sides, strict=True)]


def chances(levels: list[Level], least: int) -> tuple[float, float]:
    """Chances p0 and p1 of at least so many cells as far as the second table's, by the exact law."""
    laws = [np.ones(1), np.ones(1)]
    for level in levels:
        a = math.exp(-1 / level.scale)
        for side, up in enumerate((a / (1 + a), 1 / (1 + a))):
            cells = np.arange(level.changed + 1)
            laws[side] = np.convolve(laws[side], stats.binom.pmf(cells, level.changed, up))
    return float(laws[0][least:].sum()), float(laws[1][least:].sum())


def threshold(levels: list[Level], runs: int = RUNS) -> int:
    """The number of cells whose expected counts show most, by the law of these levels alone."""
    cells = sum(level.changed for level in levels)
    return max(range(cells + 1), key=lambda n: least_epsilon(tuple(round(runs * p) for p in chances(levels, n)), runs))


def seen(levels: list[Level], least: int, *, backend: str = "table", runs: int = RUNS) -> tuple[int, int]:
    """How often, of so many releases of each table, the event happened. Cells without change are not drawn."""
    source, result = resolve_noise_source(backend), []
    for is_after in (False, True):
        far = np.zeros(runs, dtype=np.int64)
        for level in levels:
            cells = np.flatnonzero(level.change)
            drawn = source.draw_laplace(level.scale, runs * len(cells)).reshape(runs, len(cells))
            noisy = (level.after if is_after else level.before)[cells] + drawn
            sign = level.change[cells]
            far += np.count_nonzero(noisy * sign >= level.after[cells] * sign, axis=1)
        result.append(int(np.count_nonzero(far >= least)))
    return result[0], result[1]


def shown(levels: list[Level], *, backend: str = "table", runs: int = RUNS) -> float:
    """The lower bound of epsilon from fresh draws, its threshold fixed before them."""
    return least_epsilon(seen(levels, threshold(levels, runs), backend=backend, runs=runs), runs)


def chance_to_miss(levels: list[Level], bound: float, runs: int = RUNS) -> float:
    """Probability, at most, that draws of these levels show no more than the bound."""
    return ALPHA if sure_epsilon(chances(levels, threshold(levels, runs)), runs) > bound else 1.0


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_member_changes_as_many_cells_as_the_plan_says(query, unit, depth):
    """So the auditor's best epsilon, if all cells are far, is the claim: exactly, before any draw."""
    levels = measured_levels(query, UNITS[unit], depth=depth)
    assert len(levels) == depth
    assert sum(Fraction(level.changed) / level.scale for level in levels) == CLAIM
    cells = sum(level.changed for level in levels)
    p0, p1 = chances(levels, cells)
    assert math.log(p1 / p0) == pytest.approx(CLAIM)
    for n in range(1, cells):
        p0, p1 = chances(levels, n)
        assert math.log(p1 / p0) < CLAIM


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("query", QUERIES)
def test_measurements_tell_no_more_than_claimed_and_nearly_that(query, unit):
    """Each direction fails with probability 1e-6; noise beyond the plan would fail the second."""
    levels = measured_levels(query, UNITS[unit])
    bound = shown(levels)
    assert bound <= CLAIM
    assert chance_to_miss(levels, 0.6 * CLAIM) <= ALPHA
    assert bound > 0.6 * CLAIM


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("query", QUERIES)
def test_an_estimated_top_code_is_within_the_claim_and_uncharged_it_is_not(query, unit):
    """The group that changes is the largest. Each direction, and the defect, fails with probability 1e-6.

    The defect: K is drawn with its share, and the levels as if they had the whole budget.
    """
    estimated = measured_levels(query, UNITS[unit], top_code=ESTIMATE)
    assert len(estimated) == 3
    assert sum(Fraction(level.changed) / level.scale for level in estimated) == CLAIM
    bound = shown(estimated)
    assert bound <= CLAIM
    assert chance_to_miss(estimated, 0.6 * CLAIM) <= ALPHA
    assert bound > 0.6 * CLAIM
    uncharged = [estimated[0], *measured_levels(query, UNITS[unit])]
    assert chance_to_miss(uncharged, CLAIM) <= ALPHA
    assert shown(uncharged) > CLAIM


OPENDP_RUNS = 20_000
"""OpenDP draws some 50,000 to 100,000 values a second."""


def test_the_noise_of_opendp_keeps_the_claim_and_half_of_it_does_not():
    """Fails with probability 1e-6 each."""
    levels = measured_levels("histogram", UNITS["unbounded"], depth=1)
    assert shown(levels, backend="opendp", runs=OPENDP_RUNS) <= CLAIM
    halved = scaled(levels, Fraction(1, 2))
    assert chance_to_miss(halved, CLAIM, OPENDP_RUNS) <= ALPHA
    assert shown(halved, backend="opendp", runs=OPENDP_RUNS) > CLAIM


def scaled(levels: list[Level], factor: Fraction) -> list[Level]:
    return [replace(level, scale=level.scale * factor) for level in levels]


def sensitivity_of_one_cell(query: str, unit: PrivacyUnit) -> list[Level]:
    """Sensitivity 1 where a member changes two cells of H (4 where replaced: one half, too)."""
    return scaled(measured_levels(query, unit), Fraction(1, 2))


def a_level_left_out_of_the_split(query: str, unit: PrivacyUnit) -> list[Level]:
    """Noise for one level fewer than are measured."""
    levels = measured_levels(query, unit, depth=3)
    return scaled(levels, Fraction(2, 3))


def a_level_drawn_again(query: str, unit: PrivacyUnit) -> list[Level]:
    """Both draws are seen under one charge."""
    levels = measured_levels(query, unit)
    return [*levels, levels[-1]]


def replaced_members_scaled_as_added_ones(query: str, _unit: PrivacyUnit) -> list[Level]:
    """The bounded neighbours, the noise of unbounded ones."""
    added, replaced = (measured_levels(query, UNITS[name]) for name in ("unbounded", "bounded"))
    return [replace(level, scale=other.scale) for level, other in zip(replaced, added, strict=True)]


DEFECTS = [
    *(("histogram", unit, sensitivity_of_one_cell) for unit in UNITS),
    *((query, unit, a_level_left_out_of_the_split) for query in QUERIES for unit in UNITS),
    *((query, unit, a_level_drawn_again) for query in QUERIES for unit in UNITS),
    *((query, "bounded", replaced_members_scaled_as_added_ones) for query in QUERIES),
]


@pytest.mark.parametrize(("query", "unit", "defect"), DEFECTS)
def test_a_defect_is_caught(query, unit, defect):
    """Fails with probability 1e-6 each: so seldom the defect is missed."""
    levels = defect(query, UNITS[unit])
    assert chance_to_miss(levels, CLAIM) <= ALPHA
    assert shown(levels) > CLAIM
