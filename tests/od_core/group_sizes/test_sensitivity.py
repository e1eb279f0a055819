"""L1 sensitivities by exhaustive enumeration of small tables: never passed, and attained (spec 4)."""

from functools import cache
from itertools import product

import numpy as np
import pandas as pd
import pytest

from od_core import Budget, Geography, PrivacyUnit
from od_core.group_sizes.groups import GroupSizes, Query
from od_core.group_sizes.plan import SENSITIVITY, plan_group_sizes
from od_core.group_sizes.release import iterate_true_values
from tests.od_core.group_sizes.doubles import Measuring

GEOGRAPHY = Geography.from_frame(pd.DataFrame({"r": ["A", "A", "B"], "a": ["a1", "a2", "b1"]}), levels=["r", "a"])
AREAS = pd.Series(["a1", "a1", "a2", "b1"], dtype="str")
TOP_CODE = 2
LARGEST = 3
"""Above the top code: members beyond it change nothing."""

UNBOUNDED, BOUNDED = PrivacyUnit("trip", "unbounded"), PrivacyUnit("trip", "bounded")


@cache
def counted(sizes: tuple[int, ...]) -> GroupSizes:
    """Groups of these sizes, which all queries share."""
    return GroupSizes.from_frame(pd.DataFrame({"group": range(len(AREAS)), "area": AREAS, "size": sizes}), GEOGRAPHY)


def queries(sizes: tuple[int, ...], query: Query) -> list[np.ndarray]:
    """The query at both levels."""
    plan = plan_of(query, UNBOUNDED, counted(sizes))
    truth = counted(sizes)
    return [np.concatenate([*iterate_true_values(plan.frame, query, level, truth)]) for level in plan.frame.levels]


def plan_of(query: Query, unit: PrivacyUnit, groups: GroupSizes):
    given = {"unit": unit, "budget": Budget(epsilon=1), "mechanism": Measuring(query), "top_code": TOP_CODE}
    return plan_group_sizes(GEOGRAPHY, groups.count_per_area(GEOGRAPHY), **given)


def more_by_one(sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The same groups with one member more in any of them."""
    return [tuple(size + (k == group) for k, size in enumerate(sizes)) for group in range(len(sizes))]


@pytest.mark.parametrize("query", SENSITIVITY)
def test_sensitivities(query):
    values = {sizes: queries(sizes, query) for sizes in product(range(LARGEST + 2), repeat=len(AREAS))}
    tables = [sizes for sizes in values if max(sizes) <= LARGEST]
    added = max_change(values, [(sizes, more) for sizes in tables for more in more_by_one(sizes)])
    assert added == [SENSITIVITY[query]] * 2
    pairs = [pair for sizes in tables for pair in product(more_by_one(sizes), repeat=2)]
    replaced = max_change(values, pairs)
    assert replaced == [2 * SENSITIVITY[query]] * 2


def max_change(values, neighbours) -> list[int]:
    """Largest L1 distance at each level."""
    changes = [[int(np.abs(x - y).sum()) for x, y in zip(values[a], values[b], strict=True)] for a, b in neighbours]
    return np.max(changes, axis=0).tolist()


@pytest.mark.parametrize("query", SENSITIVITY)
@pytest.mark.parametrize(("unit", "factor"), [(UNBOUNDED, 1), (BOUNDED, 2)])
def test_the_plan_scales_its_noise_by_them(query, unit, factor):
    groups = GroupSizes.from_frame(pd.DataFrame({"group": [1], "area": AREAS[:1], "size": [0]}), GEOGRAPHY)
    plan = plan_of(query, unit, groups)
    assert [step.level for step in plan.steps] == [1, 2]
    assert {step.sensitivity for step in plan.steps} == {factor * SENSITIVITY[query]}
    assert {step.scale for step in plan.steps} == {2 * factor * SENSITIVITY[query]}
    assert sum(step.epsilon for step in plan.steps) == plan.spent.epsilon == 1
