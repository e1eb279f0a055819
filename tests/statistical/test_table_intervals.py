"""Intervals of group sizes and of boxes: how often they hold the truth, at least 88 times in a hundred.

The numbers of one run share their noise, the runs do not: so a run's share of covered numbers is one observation, and
the runs are compared with 88 % by Student's t, one-sided. All tests of a case together fail with probability 1e-6,
shared evenly. Intervals for half of the noise must be rejected by the same test.
"""

from fractions import Fraction
from functools import cache

import numpy as np
import pandas as pd
import pytest

from benchmarks.synthetic_groups import KnownGroups, households
from benchmarks.synthetic_stops import KnownPoints, gaussian
from benchmarks.table_intervals import covered_boxes, covered_groups, true_histograms
from od_core import Budget, PrivacyUnit
from od_core.evaluation.known_flows import SEED
from od_core.group_sizes import release as group_sizes
from od_core.group_sizes.intervals import NoisyGroups
from od_core.group_sizes.mechanisms import MECHANISMS
from od_core.group_sizes.plan import plan_group_sizes
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import require_laplace_source, resolve_noise_source
from od_core.stops import release as box_intervals
from od_core.stops import release as stops
from od_core.stops.plan import plan_stops
from od_core.stops.trajectories import Trajectories
from tests.statistical.laws import too_rarely_covered

LEAST, RUNS = 0.88, 40
UNIT = PrivacyUnit("trip", "unbounded")
GROUP_CASES = {
    "cumulative": ("cumulative", {}),
    "sums of cumulative counts": ("bottom_up", {"leaf": "cumulative"}),
    "sizes": ("sizes", {}),
    "sums of sizes": ("bottom_up", {"leaf": "sizes"}),
    "histogram": ("histogram_relaxed", {}),
}


@cache
def known() -> KnownGroups:
    return households(SEED, states=6, counties=5, groups=60, top_code=40)


@pytest.fixture
def not_widened(monkeypatch):
    """Intervals of the measurements alone: those that are widened to the released numbers hold at least as often."""
    monkeypatch.setattr(group_sizes, "_widen_bounds", lambda *released_and_bounds: released_and_bounds)


def covered(case: str) -> pd.DataFrame:
    """Shares of covered numbers by level and by what they count (groups of at most a size, members), one row a run."""
    data = known()
    name, options = GROUP_CASES[case]
    groups, mechanism = data.groups.count_per_area(data.geography), MECHANISMS.make(name, **options)
    given = {"unit": UNIT, "budget": Budget(epsilon=1), "mechanism": mechanism, "top_code": data.top_code}
    plan = plan_group_sizes(data.geography, groups, **given)
    true = [true_histograms(plan.frame, data, level) for level in range(data.geography.depth + 1)]
    runs = []
    for _ in range(RUNS):
        release = group_sizes.run_plan(plan, data.groups, resolve_noise_source("table"), MemoryMeasurements())
        levels = pd.DataFrame(covered_groups(release, true)).set_index("level")
        leaf = data.geography.levels[-1]
        shares = {f"groups, {level}": row["groups"] for level, row in levels.iterrows()}
        runs.append(shares | {"ends": levels.loc[leaf, "none_or_all"], "members": levels.loc[leaf, "members"]})
    return pd.DataFrame(runs).astype(float).dropna(axis=1)


@pytest.mark.parametrize("case", GROUP_CASES)
def test_groups_of_at_most_a_size_and_members_are_covered(case, not_widened):
    """Failure probability 1e-6 for each case."""
    shares = covered(case)
    assert {"ends", "members"} <= {*shares.columns}
    assert not too_rarely_covered(shares, LEAST), shares.mean()


@pytest.mark.parametrize("case", GROUP_CASES)
def test_intervals_for_half_of_the_noise_are_rejected(monkeypatch, case, not_widened):
    """The bounds from noisy sizes have slack here, so their noise is halved below, where they have little."""
    of = NoisyGroups.from_measured_levels

    def halved(frame, query, scale, measured, level):
        return of(frame, query, scale / 2, measured, level)

    monkeypatch.setattr(NoisyGroups, "from_measured_levels", halved)
    shares = covered(case)
    assert too_rarely_covered(shares[["members"]], LEAST)
    if "sizes" not in case:
        assert too_rarely_covered(shares.drop(columns="members"), LEAST)


def covered_of_one_size(used: Fraction) -> pd.DataFrame:
    """Shares of 200 areas whose 400 groups all have size 20, of which noisy sizes of scale 4 are bounded most closely.

    None of them has at most size 19, and all have at most size 20: the lower bound must be 0, and the upper one 400.
    """
    groups = np.full(200, 400)
    source, runs = require_laplace_source(resolve_noise_source("table")), []
    for _ in range(RUNS):
        noisy = 20 + source.draw_laplace(Fraction(4), int(groups.sum()))
        bounds = NoisyGroups("sizes", used, np.arange(41), groups, np.ones_like(groups), noisy)
        lower, upper = bounds.bound_cumulative_counts(np.array([19, 20]))
        runs.append({"none": (lower[:, 0] == 0).mean(), "all": (upper[:, 1] == 400).mean()})
    return pd.DataFrame(runs)


def test_noisy_sizes_are_covered_where_their_bounds_are_closest():
    """Each end may fail in one of twenty cases. Failure probability 1e-6."""
    shares = covered_of_one_size(Fraction(4))
    assert not too_rarely_covered(shares, 0.95), shares.mean()
    assert too_rarely_covered(covered_of_one_size(Fraction(3)), 0.95)


@cache
def points() -> KnownPoints:
    return gaussian(SEED, 2, 0.1, trips=20_000, side=64)


def covered_by_run(mechanism: str) -> pd.DataFrame:
    """Shares of covered boxes: of all, and of those with at least 10 true trips; one row a run."""
    data = points()
    plan = plan_stops(data.grid, unit=UNIT, budget=Budget(epsilon="0.5"), mechanism=mechanism)
    runs = []
    for _ in range(RUNS):
        trips = Trajectories(data.points, data.grid)
        release = stops.run_plan(plan, trips, resolve_noise_source("table"), MemoryMeasurements())
        table = covered_boxes(release, data)
        runs.append({"all": table["held"].mean(), "large": table.loc[table["true"] >= 10, "held"].mean()})
    return pd.DataFrame(runs)


@pytest.mark.parametrize("mechanism", ["identity", "ebp", "daf_entropy", "daf_homogeneity", "privtree"])
def test_boxes_are_covered(mechanism):
    """Failure probability 1e-6 for each mechanism."""
    shares = covered_by_run(mechanism)
    assert not too_rarely_covered(shares, LEAST), shares.mean()


@pytest.mark.parametrize("mechanism", ["daf_entropy", "privtree"])
def test_boxes_with_intervals_for_half_of_the_noise_are_rejected(monkeypatch, mechanism):
    reach = box_intervals.compute_laplace_reach
    monkeypatch.setattr(box_intervals, "compute_laplace_reach", lambda scale, *beyond: reach(scale / 2, *beyond))
    assert too_rarely_covered(covered_by_run(mechanism), LEAST)
