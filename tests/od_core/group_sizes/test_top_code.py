"""An estimated top code: what it may tell of a member, how seldom it is too low, and one K whatever happens."""

from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import Budget, OdError, ReleaseKey, TopCodeEstimate, evaluate_group_sizes, plan_group_sizes
from od_core.group_sizes.groups import Frame, GroupSizes
from od_core.group_sizes.mechanisms import MECHANISMS
from od_core.group_sizes.plan import MAX_MISS_PROBABILITY, SENSITIVITY, TOP_CODE_LEVEL, compute_top_code_margin
from od_core.group_sizes.release import iterate_true_values, run_plan
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.measurements import begin_release
from od_core.noise.backends import resolve_noise_source
from tests.od_core.group_sizes import test_release
from tests.od_core.group_sizes.test_release import BOUNDED, EXPECT_NOISE, GEOGRAPHY, R1, UNBOUNDED, groups, released
from tests.od_core.group_sizes.test_sensitivity import GEOGRAPHY as SMALL
from tests.od_core.group_sizes.test_sensitivity import LARGEST, more_by_one
from tests.od_core.ledger.ledger_rows import declared, rows

CAPPED, ROOMY = LARGEST - 1, LARGEST + 10
"""Bounds of the top code below and above the largest sizes."""

HALF = TopCodeEstimate(Fraction(1, 2), most=50)
KEY = ReleaseKey.parse(R1)


def planned(**changes):
    counted = GroupSizes.from_frame(groups(), GEOGRAPHY)
    arguments = {"unit": UNBOUNDED, "budget": Budget(epsilon=1), "mechanism": "cumulative", "top_code": HALF}
    return plan_group_sizes(GEOGRAPHY, counted.count_per_area(GEOGRAPHY), **arguments | changes)


class NoiseOnTheLargest:
    """Test double: the given noise on the largest size, which is measured by itself, and none on longer vectors."""

    def __init__(self, noise: int) -> None:
        self.noise = noise

    def draw(self, variance, level, first, size):
        raise NotImplementedError

    def draw_laplace(self, scale, size):
        return np.full(size, self.noise if size == 1 else 0, dtype=np.int64)


def test_the_largest_size_changes_by_at_most_one():
    """For members added and for members replaced, in every small table; and it does change by one. Capped, too."""
    largest = {}
    areas = pd.Series(["a1", "a1", "b1"], dtype="str")
    for sizes in product(range(LARGEST + 2), repeat=len(areas)):
        frame = pd.DataFrame({"group": range(len(areas)), "area": areas, "size": sizes})
        counted = GroupSizes.from_frame(frame, SMALL)
        per_area = counted.count_per_area(SMALL)
        for most in (CAPPED, ROOMY):
            [values] = iterate_true_values(Frame(SMALL, per_area, most), "sizes", TOP_CODE_LEVEL, counted)
            assert values.tolist() == [min(most, max(sizes))]
            largest[most, sizes] = int(values[0])
    tables = [sizes for most, sizes in largest if most == CAPPED and max(sizes) <= LARGEST]
    for most in (CAPPED, ROOMY):
        added = {abs(largest[most, sizes] - largest[most, more]) for sizes in tables for more in more_by_one(sizes)}
        pairs = [pair for sizes in tables for pair in product(more_by_one(sizes), repeat=2)]
        replaced = {abs(largest[most, one] - largest[most, other]) for one, other in pairs}
        assert added == replaced == {0, 1}


@given(st.fractions(min_value=Fraction(1, 20), max_value=2_000, max_denominator=1_000))
def test_the_largest_size_is_seldom_above_the_margin(scale):
    """P(Z < -margin) by summing the law: at most 1/1000, and more than that for the next smaller margin."""
    noise = np.arange(-(60 * int(scale) + 60), 60 * int(scale) + 61)
    law = np.exp(-np.abs(noise) / float(scale))
    law /= law.sum()
    low = compute_top_code_margin(scale)
    assert low >= 0
    assert law[noise < -low].sum() <= float(MAX_MISS_PROBABILITY) * (1 + 1e-9)
    assert low == 0 or law[noise < -(low - 1)].sum() > float(MAX_MISS_PROBABILITY) * (1 - 1e-6)


@given(
    share=st.fractions(min_value=0, max_value=1).filter(lambda share: 0 < share < 1),
    epsilon=st.fractions(min_value=Fraction(1, 1000), max_value=50),
    unit=st.sampled_from([UNBOUNDED, BOUNDED]),
    name=st.sampled_from(list(MECHANISMS)),
)
def test_the_draw_has_its_share_and_the_levels_share_the_rest(share, epsilon, unit, name):
    plan = planned(top_code=TopCodeEstimate(share), budget=Budget(epsilon=epsilon), unit=unit, mechanism=name)
    first, *levels = plan.steps
    assert (first.level, first.sensitivity, first.epsilon) == (0, 1, share * epsilon)
    assert first.scale == 1 / (share * epsilon)
    depth = plan.frame.geography.depth
    assert [step.level for step in levels] == ([depth] if plan.mechanism.leaves_alone else [*range(1, depth + 1)])
    factor = 2 if unit == BOUNDED else 1
    for step in levels:
        assert step.epsilon == (1 - share) * epsilon / len(levels)
        assert step.scale == factor * SENSITIVITY[plan.mechanism.query] / step.epsilon
    assert sum(step.epsilon for step in plan.steps) == plan.spent.epsilon == epsilon
    assert plan.charge.rho == sum(step.epsilon**2 / 2 for step in plan.steps)


@pytest.mark.parametrize(
    "make",
    [
        lambda: TopCodeEstimate(Fraction(0)),
        lambda: TopCodeEstimate(Fraction(1)),
        lambda: TopCodeEstimate(most=0),
        lambda: TopCodeEstimate(most=2.5),
        lambda: TopCodeEstimate(most=1 << 31),
    ],
)
def test_an_estimate_of_nothing_is_refused(make):
    with pytest.raises(OdError, match="OD-GROUPS-TOP-CODE"):
        make()


@pytest.mark.representatives
@pytest.mark.parametrize("name", [name for name in MECHANISMS if name not in EXPECT_NOISE])
@pytest.mark.parametrize("noise", [-100, -16, 0, 11, 10**6])
def test_the_table_is_that_of_the_noisy_largest_size_and_the_margin(name, noise):
    """Sizes go up to 12; the levels have no noise."""
    release = released(mechanism=name, top_code=HALF, noise=NoiseOnTheLargest(noise))
    top_code = min(max(12 + noise + compute_top_code_margin(Fraction(2)), 1), 50)
    assert release.frame.top_code == top_code
    assert {table.shape[1] for table in release.histograms} == {top_code + 1}
    truth = groups()
    truth["size"] = truth["size"].clip(upper=top_code)
    assert test_release.of_zones(release) == truth.groupby(["area", "size"]).size().to_dict()
    assert (evaluate_group_sizes(release, groups())[["l1_error", "total_error", "child_error"]] == 0).all(axis=None)
    assert release.cumulative["size"].max() == top_code
    first = release.measurements.iloc[0]
    assert first.to_dict() == {"area": "all", "level": "all", "position": 0, "noisy": 12 + noise, "scale": 2.0}
    assert set(release.measurements["level"][1:]) <= {"region", "zone"}


@pytest.mark.parametrize("name", EXPECT_NOISE)
def test_a_mechanism_is_told_the_noise_of_the_levels(name):
    """Not that of the largest size, which is a hundredth of it here."""
    release = released(mechanism=name, top_code=TopCodeEstimate(Fraction(99, 100), most=50))
    mechanism, frame = release.plan.mechanism, release.frame
    levels = 1 if mechanism.leaves_alone else frame.geography.depth
    scale = SENSITIVITY[mechanism.query] * levels * Fraction(100)
    noisy = [frame.reshape_to_rows(mechanism.query, values.read_values()) for _, values in release.measured[1:]]
    for table, expected in zip(release.histograms, mechanism.estimate(frame, noisy, scale), strict=True):
        np.testing.assert_array_equal(table, expected)


class StopsBefore:
    """Measurements of a process that dies before a step, or while it draws it."""

    def __init__(self, measurements, level, *, drawing):
        self.measurements, self.level, self.drawing = measurements, level, drawing

    def draw_once(self, step, draw):
        if step.level == self.level:
            if self.drawing:
                return self.measurements.draw_once(step, dying)
            raise KeyboardInterrupt
        return self.measurements.draw_once(step, draw)


def dying():
    raise KeyboardInterrupt


@pytest.mark.representatives
@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("drawing", [False, True])
def test_a_resumed_release_has_the_top_code_of_the_first_draw(tmp_path, level, drawing):
    ledger = declared(tmp_path, "departures", BOUNDED)
    counted = GroupSizes.from_frame(groups(), GEOGRAPHY)
    plan = planned(unit=BOUNDED)
    confidential = ConfidentialFolder(tmp_path / "confidential")
    kept = begin_release(confidential, ledger, KEY, "departures", plan, counted, "table")
    with pytest.raises(KeyboardInterrupt):
        run_plan(plan, counted, resolve_noise_source("table"), StopsBefore(kept, level, drawing=drawing))
    [noisy] = kept.read(plan.steps[0]).read_values() if level > 0 else [None]
    arguments = {"unit": BOUNDED, "top_code": HALF, "ledger": ledger, "release_id": R1}
    resumed = released(**arguments)
    if noisy is None:  # nothing was measured; a lost draw is never used
        [noisy] = kept.read(plan.steps[0]).read_values()
    assert resumed.frame.top_code == HALF.compute_top_code(int(noisy), Fraction(2))
    assert resumed.measurements["noisy"][0] == noisy
    draws = Counter(row["level"] for row in rows(ledger.path) if row["kind"] == "DRAWING")
    assert draws == {0: 1, 1: 1, 2: 1} | ({level: 2} if drawing else {})
    history = rows(ledger.path)
    again = released(**arguments)
    assert rows(ledger.path) == history
    pd.testing.assert_frame_equal(again.measurements, resumed.measurements)
    pd.testing.assert_frame_equal(again.histogram, resumed.histogram)
    assert again.spent == resumed.spent
    lost = Fraction(1, 4) if level > 0 else Fraction(1, 2)
    assert resumed.spent.epsilon == 1 + (lost if drawing else 0)
