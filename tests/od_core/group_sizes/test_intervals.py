"""Intervals of group sizes: against plain computations from the measurements, and what is asked wrongly."""

import math
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from od_core import Budget, GroupSizeRelease, OdError
from od_core.flows.interval_ends import compute_lower_bound, compute_upper_bound
from od_core.group_sizes import intervals
from od_core.group_sizes.intervals import NoisyGroups, list_interval_sizes
from od_core.group_sizes.mechanisms import MECHANISMS
from tests.od_core.group_sizes.test_release import BOUNDED, GEOGRAPHY, TOP_CODE, groups, released

LEVELS = GEOGRAPHY.level_names
BOTTOM_UP = {"cumulative": ("bottom_up", {"leaf": "cumulative"}), "sizes": ("bottom_up", {"leaf": "sizes"})}


def reach(scale: Fraction) -> int:
    """The least h with P(|noise| <= h) >= 0.9, by adding probabilities."""
    a = math.exp(-1 / scale)
    h, inside = 0, (1 - a) / (1 + a)
    while inside < 0.9:
        h += 1
        inside += 2 * (1 - a) / (1 + a) * a**h
    return h


def noisy_by_area(release: GroupSizeRelease, level: int) -> dict[str, list[np.ndarray]]:
    """The noisy values of the measured areas that each area of a level consists of, from the published table."""
    table, geography = release.measurements, release.frame.geography
    table = table[table["level"].isin([geography.level_names[step.level] for step in release.plan.level_steps])]
    sources = [s for s in range(level, geography.depth + 1) if (table["level"] == geography.level_names[s]).any()]
    measured = table[table["level"] == geography.level_names[sources[0]]]
    source = sources[0]
    owners = {}
    for zone in range(len(geography.zones)):
        child = geography.codes[source][geography.ancestors(source)[zone]]
        owners[child] = geography.codes[level][geography.ancestors(level)[zone]]
    found: dict[str, list[np.ndarray]] = {code: [] for code in geography.codes[level]}
    for child, owner in owners.items():
        found[owner].append(measured.loc[measured["area"] == child, "noisy"].to_numpy())
    return found


def group_totals(release: GroupSizeRelease, level: int) -> dict[str, int]:
    geography = release.frame.geography
    codes = [geography.codes[level][area] for area in geography.ancestors(level)]
    return pd.Series(release.frame.groups).groupby(pd.Index(codes)).sum().to_dict()


def within(bounds, most, released):
    lower, upper = (min(max(int(end), 0), most) for end in bounds)
    return min(lower, released), max(upper, released)


def normal_bounds(estimate: float, variance: float) -> tuple[int, int]:
    one, other = np.array([estimate]), np.array([variance])
    return int(compute_lower_bound(one, other)[0]), int(compute_upper_bound(one, other)[0])


def variance_of(scale: Fraction) -> float:
    a = math.exp(-1 / scale)
    return 2 * a / (1 - a) ** 2


def constrained(noisy: list[np.ndarray], total: int, weights: np.ndarray, variance: float) -> tuple[float, float]:
    """Least squares by the normal equations: histograms of several areas whose numbers of groups are known together."""
    summed = np.sum(noisy, axis=0)
    cells = len(summed)
    fit = np.eye(cells) - np.ones((cells, cells)) / cells
    estimate = fit @ summed + total / cells
    covariance = fit * variance * len(noisy)
    return float(weights @ estimate), float(weights @ covariance @ weights)


def expected(release: GroupSizeRelease, level: int, size: int | None) -> dict[str, tuple[int, int]]:
    """Bounds before they are widened, of groups of at most a size or, without one, of members; not for sizes."""
    query = next(query for source, query in release.plan.queries.items() if source >= level)
    scale = release.plan.level_steps[0].scale
    totals, top = group_totals(release, level), release.frame.top_code
    bounds = {}
    for area, noisy in noisy_by_area(release, level).items():
        total, variance = totals[area], variance_of(scale)
        if query == "histogram":
            weights = np.arange(top + 1) if size is None else (np.arange(top + 1) <= size) * 1
            bounds[area] = normal_bounds(*constrained(noisy, total, weights, variance))
        elif query == "sizes":
            assert size is None
            values = np.concatenate(noisy)
            bounds[area] = normal_bounds(float(values.sum()), variance * len(values))
        elif size is None:
            bounds[area] = normal_bounds(float(top * total - np.sum(noisy)), variance * top * len(noisy))
        elif len(noisy) == 1:
            value = int(noisy[0][size])
            bounds[area] = value - reach(scale), value + reach(scale)
        else:
            bounds[area] = normal_bounds(float(np.sum(noisy, axis=0)[size]), variance * len(noisy))
    return bounds


@pytest.mark.representatives
@pytest.mark.parametrize("unit", [None, BOUNDED])
@pytest.mark.parametrize("name", ["naive", "cumulative", "bottom_up"])
def test_groups_of_at_most_a_size_have_the_bounds_of_their_measurements(name, unit):
    release = released(mechanism=name, **({} if unit is None else {"unit": unit}))
    found = release.at_most(range(TOP_CODE)).set_index(["level", "area", "size"])
    assert len(found) == TOP_CODE * (1 + 3 + 4)
    cumulative = release.cumulative.set_index(["level", "area", "size"])["groups"]
    for level, level_name in enumerate(LEVELS):
        totals = group_totals(release, level)
        for size in range(TOP_CODE):
            for area, bounds in expected(release, level, size).items():
                row = found.loc[(level_name, area, size)]
                if level:
                    assert row["groups"] == cumulative.loc[(level_name, area, size)]
                assert (row["lower"], row["upper"]) == within(bounds, totals[area], row["groups"])


@pytest.mark.exhaustive
@pytest.mark.representatives("naive", "cumulative", "sizes_posterior", "histogram", "top_down")
@pytest.mark.parametrize("name", MECHANISMS)
def test_members_have_the_bounds_of_their_measurements(name):
    release = released(mechanism=name)
    found = release.members.set_index(["level", "area"])
    for level, level_name in enumerate(LEVELS):
        totals = group_totals(release, level)
        for area, bounds in expected(release, level, None).items():
            row = found.loc[(level_name, area)]
            assert (row["lower"], row["upper"]) == within(bounds, TOP_CODE * totals[area], row["members"])
            if level:
                sizes = release.sizes
                mine = sizes[(sizes["level"] == level_name) & (sizes["area"] == area)]
                assert row["members"] == mine["size"].sum()


@cache
def share_within(counted: int, number: int, tail: float, *, exact: bool):
    """The interval of a share by SciPy's test of one, which finds exact ends by another way."""
    return stats.binomtest(counted, number).proportion_ci(1 - 2 * tail, "exact" if exact else "wilson")


def by_shifts(noisy: np.ndarray, groups: int, scale: Fraction, size: int, *, exact: bool) -> tuple[int, int]:
    """The bounds from noisy sizes, one distance after the other."""
    tail = 1 - math.exp(-1 / 80) if exact else 1 / 80
    a = math.exp(-1 / scale)
    best = [0.0, float(groups)]
    for multiple in (0, 1, 2, 4):
        distance = math.ceil(multiple * scale)
        inside = 1 - a ** (distance + 1) / (1 + a)
        counts = (sum(int(value) <= bound for value in noisy) for bound in (size - distance, size + distance))
        below, above = (share_within(count, groups, tail, exact=exact) for count in counts)
        best[0] = max(best[0], groups * (below.low - (1 - inside)) / inside)
        best[1] = min(best[1], groups * above.high / inside)
    return math.ceil(best[0] - 1e-6), math.floor(best[1] + 1e-6)


@pytest.mark.parametrize(("epsilon", "exact"), [("0.2", True), ("20", True), ("0.2", False)])
@pytest.mark.parametrize("leaves_alone", [True, False])
def test_noisy_sizes_are_counted_at_several_distances(leaves_alone, epsilon, exact):
    name, options = BOTTOM_UP["sizes"] if leaves_alone else ("sizes", {})
    release = released(groups(300), mechanism=MECHANISMS.make(name, **options), budget=Budget(epsilon=epsilon))
    release = replace(release, exact=exact)
    scale = release.plan.level_steps[0].scale
    found = release.at_most(range(TOP_CODE)).set_index(["level", "area", "size"])
    for level, level_name in enumerate(LEVELS):
        totals = group_totals(release, level)
        for area, noisy in noisy_by_area(release, level).items():
            for size in range(TOP_CODE):
                row, total = found.loc[(level_name, area, size)], totals[area]
                bounds = by_shifts(np.concatenate(noisy), total, scale, size, exact=exact) if total else (0, 0)
                assert (row["lower"], row["upper"]) == within(bounds, total, row["groups"])


@pytest.mark.parametrize("number", range(1, 13))
def test_each_end_fails_with_an_equal_part_of_one_in_twenty(number):
    """Indicators that are worst for a mean are 0, 1 or of one probability [hoeffding1956distribution]."""
    counted, trials = np.arange(number + 1.0), np.float64(number)
    upper, lower = (intervals._compute_exact_end(counted, trials, sign) for sign in (1, -1))
    assert lower[::-1] == pytest.approx(number - upper, abs=1e-12)  # so that the lower ends hold if the upper ones do
    worst = 0.0
    for most, mean in enumerate(upper[:-1]):  # just above this mean, an end fails with `most` successes or fewer
        for ones, zeros in product(range(number), range(number)):
            others = number - ones - zeros
            if others > 0 and 0 <= mean - ones <= others:
                worst = max(worst, stats.binom.cdf(most - ones, others, (mean - ones) / others))
    assert 0.0124 < worst <= 0.0125


@pytest.mark.parametrize(("number", "scale"), [(1, 3), (2, 20)])
def test_few_groups_of_one_size_are_covered_beside_it(number, scale):
    """By adding the probabilities of nearly all noisy sizes. Wilson's intervals hold in 83 to 87 % of cases here."""
    noise = np.arange(-8 * scale, 8 * scale + 1)
    noisy = np.stack(np.meshgrid(*[20 + noise] * number), axis=-1).reshape(-1, number)
    chance = np.prod(stats.dlaplace.pmf(noisy - 20, 1 / scale), axis=1)
    ones, sizes = np.ones(len(noisy), dtype=np.int64), np.array([19, 20])
    bounds = NoisyGroups("sizes", Fraction(scale), np.arange(41), number * ones, ones, np.sort(noisy).ravel())
    true = np.where(sizes >= 20, number, 0)
    held = {}
    for exact in (True, False):
        lower, upper = bounds.bound_cumulative_counts(sizes, exact=exact)
        held[exact] = (chance @ ((lower <= true) & (true <= upper))).min()
    assert held[True] >= 0.9 > 0.87 > held[False] > 0.83


@pytest.mark.parametrize("sizes", [[], [-1], [TOP_CODE], [2, 2], [0.5], [True]])
def test_sizes_that_no_table_has_are_refused(sizes):
    said = f"OD-GROUPS-SIZES: sizes must be ascending whole numbers from 0 to {TOP_CODE - 1}"
    with pytest.raises(OdError, match=said):
        released().at_most(sizes)


@pytest.mark.parametrize("top_code", [1, 99, 101, 110, 1000, 123_456])
def test_listed_sizes_have_at_most_two_significant_digits(top_code):
    every = [size for size in range(top_code) if len(str(size).rstrip("0")) <= 2]
    assert list_interval_sizes(top_code).tolist() == every
