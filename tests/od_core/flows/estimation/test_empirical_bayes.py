"""Leaves by empirical Bayes against plain NumPy and SciPy, step by step, and what must always hold of the release."""

import math
from fractions import Fraction
from functools import partial
from itertools import pairwise, product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from od_core import Budget, OdError, PrivacyUnit, plan_release
from od_core.flows.estimation import empirical_bayes
from od_core.flows.estimation import families as of_levels
from od_core.flows.estimation.empirical_bayes import GridNoise
from od_core.flows.estimation.families import assign_bins
from od_core.flows.estimation.levels import make_published_root
from od_core.flows.estimation.refinement import refine
from od_core.flows.estimation.shrinkage import round_in_lumps
from od_core.flows.mechanisms import KEEP_ALL_CAP, InfTDARefined
from od_core.flows.projection.onto_parents import project_to_total
from od_core.flows.release import run_plan
from od_core.geography import flow_tree
from od_core.ledger.measurements import MemoryMeasurements
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counts import TripCounts
from tests.od_core.doubles import ListedNoise, SeededNoise
from tests.od_core.strategies import World

UNITS = [PrivacyUnit("trip", "bounded"), PrivacyUnit("user", "unbounded", column="user", max_trips=2)]


def plan_of_world(world, tree="destination", unit=UNITS[0], **given):
    """A plan over the zones of a world; options of its mechanism and of its budget are among those given."""
    options = {name: given.pop(name) for name in ("estimate", "leaves", "u") if name in given}
    budget = Budget(given.pop("epsilon", "1"), "1e-8", conversion="tight", shares=given.pop("shares", None))
    mechanism = InfTDARefined(keep_all_cap=given.pop("cap", KEEP_ALL_CAP), **options)
    given |= {"destination_geography": world.destination, "acceptance": NO_FAULTS, "tree": tree}
    return plan_release(world.origin, unit=unit, budget=budget, mechanism=mechanism, **given)


plan_of = partial(plan_of_world, leaves="empirical_bayes")


def counts_of(plan, world):
    origin, destination = world.numbered(plan.tree.origin.depth, plan.tree.destination.depth)
    pairs = [(origin[o], destination[d]) for o, d in world.flows]
    ends = np.array(pairs, dtype=np.int32).reshape(-1, 2)
    return TripCounts.from_pairs(plan.tree, ends[:, 0], ends[:, 1], np.array(list(world.flows.values()), np.int64))


def table(nodes):
    return list(zip(nodes.origin.tolist(), nodes.destination.tolist(), nodes.trips.tolist(), strict=True))


def assert_whole_and_consistent(plan, counts, release):
    """Every level has whole trips of at least 1, which sum to the level above; the last one is released."""
    levels, _ = refine(plan, make_published_root(plan, counts.total), release.measured)
    assert table(levels[-1]) == table(release.leaves)
    if plan.publishes_total:
        assert release.leaves.trips.sum() == counts.total
    for above, nodes in pairwise(levels):
        assert nodes.trips.dtype == np.int64
        assert np.all(nodes.trips >= 1)
        assert plan.tree.has_consistent_sums(above, nodes)


def assert_equal_for_any_pieces_and_threads(monkeypatch, plan, counts):
    """The same noise gives the same leaves, more than 100, if all levels learn."""
    found = []
    for chunk, threads in [(1 << 18, "1"), (100, "2"), (1, "3")]:
        for module in (flow_tree, of_levels):
            monkeypatch.setattr(module, "CHILDREN_AT_ONCE", chunk)
        monkeypatch.setattr(of_levels, "_MIN_CELLS_TO_LEARN", 1)
        monkeypatch.setenv("OD_THREADS", threads)
        noise = ListedNoise([int((k * k * 7919) % 61) - 30 for k in range(997)])
        found.append(table(run_plan(plan, counts, noise, MemoryMeasurements()).leaves))
    assert len(found[0]) > 100
    assert found[1:] == found[:1] * 2


def grid_world(width=9, depth_two=7, seed=4):
    """A few hundred thousand trips between zones of different size, most pairs empty."""
    zones = [(f"s{k:02}", f"s{k:02}z{z}") for k in range(width) for z in range(1 + (k * 5) % depth_two)]
    random = np.random.default_rng(seed)
    size = random.pareto(1.0, len(zones)) + 0.1
    pairs = ((one, other) for one, other in product(enumerate(zones), repeat=2) if random.random() < 0.15)
    flows = {(a, b): int(random.poisson(40 * size[i] * size[j])) for (i, a), (j, b) in pairs}
    return World(zones, zones, {pair: trips for pair, trips in flows.items() if trips})


GRID = grid_world()

# The release


def most_likely(noise, counts, prior, iterations):
    """The distribution of true counts by the textbook's expectation-maximisation."""
    seen = counts > 0
    for _ in range(iterations):
        joint = prior[:, None] * noise.likelihood[:, seen]
        prior = (joint / joint.sum(axis=0)) @ counts[seen] / counts.sum()
    return prior


def moments(noise, prior):
    """Mean and deviation of the true count given each noisy value, in steps of the grid."""
    n, weight = np.arange(len(prior)), prior[:, None] * noise.likelihood
    total = weight.sum(axis=0)
    mean = np.where(total > 0, n @ weight / total, np.maximum(noise.low + np.arange(noise.points), 0))
    return mean, np.sqrt(np.where(total > 0, ((n[:, None] - mean) ** 2 * weight).sum(axis=0) / total, 0))


def leaves_of_the_rule(plan, measurement, totals):
    """Its five steps once more, in dictionaries."""
    noise, u = GridNoise.from_variance(measurement.step.variance), float(plan.mechanism.u)
    side = 0 if plan.tree.refines_origin(plan.tree.depth) else 1
    mine = (plan.tree.origin, plan.tree.destination)[side].parents[-1]
    rows, families = {}, {}
    for cells, noisy in measurement.iterate_pieces(plan):
        columns = (cells.origin.tolist(), cells.destination.tolist(), noisy.tolist())
        for origin, destination, x in zip(*columns, strict=True):
            area, other = (origin, destination) if side == 0 else (destination, origin)
            rows.setdefault(area, []).append(x)
            families.setdefault((int(mine[area]), other), {})[area] = x
    priors = {}
    for key, family in families.items():
        reach = {area: noise.sigma / 2 * (len(rows[area]) - 1) ** 0.5 for area in family}
        part = {area: max(sum(rows[area]) - x, 0) + reach[area] for area, x in family.items()}
        whole = sum(part.values())
        for area in family:
            priors[key, area] = totals.get(key, 0) * (part[area] / whole if whole else 1 / len(family))
    counts = np.zeros((24, noise.points), dtype=np.int64)
    octaves = {cell: min(max(math.floor(math.log2(m / noise.sigma)) + 19, 0), 23) for cell, m in priors.items() if m}
    for (key, area), octave in octaves.items():
        point = max(math.floor(families[key][area] / noise.step + 0.5) - noise.low, 0)
        if len(families[key]) > 1 and point < noise.points:
            counts[octave, point] += 1
    bin_of = assign_bins(counts.sum(axis=1), empirical_bayes._MIN_CELLS_PER_BIN)
    assert bin_of[-1] >= 3
    start = np.full(len(noise.likelihood), 0.5 / (len(noise.likelihood) - 1))
    start[0] = 0.5
    start = most_likely(noise, counts.sum(axis=0), start, 300)
    mean, deviation = np.empty((2, bin_of[-1] + 1, noise.points))
    for at in range(bin_of[-1] + 1):
        prior = most_likely(noise, counts[bin_of == at].sum(axis=0), start, 150)
        mean[at], deviation[at] = moments(noise, prior)
    grid = noise.step * (noise.low + np.arange(noise.points))
    found = {}
    for key, family in families.items():
        total, x = totals.get(key, 0), np.array(list(family.values()))
        if total == 0:
            continue
        own = [bin_of[octaves[key, area]] for area in family]
        m = np.array([noise.step * np.interp(value, grid, mean[at]) for value, at in zip(x, own, strict=True)])
        d = np.array([noise.step * np.interp(value, grid, deviation[at]) for value, at in zip(x, own, strict=True)])
        m = np.maximum(np.clip(m, x - 2 * noise.sigma, x + 2 * noise.sigma), 0)
        d = np.maximum(d, noise.sigma / 1024)
        m, d = np.where(x > 10 * noise.sigma, x, m), np.where(x > 10 * noise.sigma, noise.sigma, d)
        shift = brentq(lambda s, m, d, total: np.maximum(m + s * d, 0).sum() - total, -1e6, 1e6, (m, d, total), 1e-12)
        w = [Fraction(value) for value in np.maximum(m + shift * d, 0)]
        w[int(np.argmax(w))] += total - sum(w)
        trips = lumped(w, u * noise.sigma, max(1, int(u * noise.sigma))) if len(w) > 1 else [total]
        found |= {(key, area): n for area, n in zip(family, trips, strict=True) if n}
    return found


@pytest.mark.parametrize(
    ("tree", "cap", "epsilon", "u", "possible"),
    [
        ("destination", KEEP_ALL_CAP, "0.2", "1.5", None),
        ("destination", 0, "1", "0.7", None),
        ("origin", KEEP_ALL_CAP, "5", "2", None),
        ("origin", 0, "0.2", "1.5", None),
        ("destination", KEEP_ALL_CAP, "0.2", "1.5", 0.7),
        ("origin", KEEP_ALL_CAP, "5", "2", 0.7),
    ],
)
def test_leaves_are_those_of_the_rule(monkeypatch, tree, cap, epsilon, u, possible):
    """Real numbers found in another way: some may be rounded to another side, and which of two equal cells is first.

    All pairs can have trips, or those that have some, and a part of the others.
    """
    monkeypatch.setattr(empirical_bayes, "_MIN_CELLS_PER_BIN", 40)
    given = {}
    if possible is not None:
        random = np.random.default_rng(6)
        pairs = [pair for pair in product(GRID.origins, repeat=2) if pair in GRID.flows or random.random() < possible]
        codes = [(one[-1], other[-1]) for one, other in pairs]
        given["possible"] = pd.DataFrame(codes, columns=["origin", "destination"])
    plan = plan_of(GRID, tree, u=u, epsilon=epsilon, cap=cap, **given)
    counts = counts_of(plan, GRID)
    sigma = float(plan.steps[-1].variance) ** 0.5
    far = np.random.default_rng(1).normal(0, sigma, 997) * np.where(np.arange(997) % 40, 1, 4)
    noise = SeededNoise(1) if cap else ListedNoise(np.rint(far).astype(int).tolist())
    release = run_plan(plan, counts, noise, MemoryMeasurements())
    root = make_published_root(plan, counts.total)
    *_, above, leaves = levels = refine(plan, root, release.measured)[0]
    least_squares = refine(plan_of_world(GRID, tree, epsilon=epsilon, cap=cap, **given), root, release.measured)[0]
    assert [*map(table, levels[:-1])] == [*map(table, least_squares[:-1])]
    mine, other = (0, 1) if plan.tree.refines_origin(plan.tree.depth) else (1, 0)
    totals = {(row[mine], row[other]): row[2] for row in table(above)}
    areas = (plan.tree.origin, plan.tree.destination)[mine].parents[-1]
    found = {((int(areas[row[mine]]), row[other]), row[mine]): row[2] for row in table(leaves)}
    expected = leaves_of_the_rule(plan, release.measured[-1], totals)
    assert len(totals) > 100
    different = {cell: abs(found.get(cell, 0) - expected.get(cell, 0)) for cell in found | expected}
    assert len({cell[0] for cell, by in different.items() if by > 1}) <= len(totals) / 50
    assert sum(by > 0 for by in different.values()) <= 20


def dense(plan, release):
    full = np.zeros((len(plan.tree.origin.zones), len(plan.tree.destination.zones)), dtype=np.int64)
    full[release.leaves.origin, release.leaves.destination] = release.leaves.trips
    return full


def test_values_beyond_the_limit_are_refused():
    plan = plan_of(GRID)
    with pytest.raises(OdError, match="OD-REFINEMENT-OVERFLOW"):
        run_plan(plan, counts_of(plan, GRID), ListedNoise([2**45, -(2**45)]), MemoryMeasurements())


# The options


@pytest.mark.parametrize("u", [0, "0.0999", 101, -1, "nan", "inf", "x", None, "1/0", True + 100])
def test_a_dial_that_is_none_is_refused(u):
    with pytest.raises(OdError, match="OD-MECHANISM-OPTION: u must be"):
        InfTDARefined(leaves="empirical_bayes", u=u)
    with pytest.raises(OdError, match="OD-MECHANISM-OPTION: there is no leaf estimator 'bayes'"):
        InfTDARefined(leaves="bayes")


# Its parts


@pytest.mark.parametrize("variance", [Fraction(1, 1000), Fraction(1, 2), Fraction(7), Fraction(1000), Fraction(10**12)])
def test_the_likelihood_is_the_gaussian_and_the_grid_is_fine(variance):
    noise = GridNoise.from_variance(variance)
    sigma = float(variance) ** 0.5
    x = noise.step * (noise.low + np.arange(noise.points))
    n = noise.step * np.arange(len(noise.likelihood))
    expected = norm.logpdf(x - n[:, None], scale=sigma) - norm.logpdf(0, scale=sigma)
    assert np.allclose(noise.likelihood, np.exp(expected), rtol=1e-9, atol=1e-300)
    assert noise.step == max(1, int(sigma) // 8)
    assert x[0] <= -8 * sigma < x[-1] >= 10 * sigma
    assert n[-1] >= 12 * sigma


FAMILIES = st.integers(1, 6).flatmap(
    lambda size: st.tuples(
        st.lists(st.floats(0, 50), min_size=size, max_size=size),
        st.lists(st.floats(0.01, 10), min_size=size, max_size=size),
        st.integers(1, 200),
    )
)


@given(family=FAMILIES)
def test_the_projection_is_the_nearest_point_of_its_sum(family):
    """Against the best of all sets of cells that are not 0: exact, by enumeration."""
    mean, deviation, total = np.array(family[0]), np.array(family[1]), family[2]
    found = mean.copy()
    project_to_total(found, deviation, float(total))
    assert np.all(found >= 0)
    assert found.sum() == pytest.approx(total, rel=1e-9)
    best = np.inf
    for chosen in product([False, True], repeat=len(mean)):
        if any(chosen):
            kept = np.array(chosen)
            shift = (total - mean[kept].sum()) / deviation[kept].sum()
            w = np.where(kept, mean + shift * deviation, 0.0)
            if np.all(w >= -1e-12):
                best = min(best, ((w - mean) ** 2 / deviation).sum())
    assert ((found - mean) ** 2 / deviation).sum() == pytest.approx(best, rel=1e-6, abs=1e-9)


def lumped(w, least, lump):
    """The rule in its own words, with exact numbers."""
    total, large = sum(w), [i for i in range(len(w)) if w[i] >= least]
    trips, carry = [0] * len(w), Fraction(0)
    for i in large:
        trips[i] = math.floor(w[i] + carry + Fraction(1, 2))
        carry += w[i] - trips[i]
    left = total - sum(trips)
    others = sorted(set(range(len(w))) - set(large), key=lambda i: -w[i])
    queue = others * (int(left) + 1)
    while others and left >= lump:
        trips[queue.pop(0)] += lump
        left -= lump
    if not large and left:
        trips[queue.pop(0)] += left
    for place, i in enumerate(large):
        given = left // (len(large) - place)
        trips[i] += given
        left -= given
    return trips


@given(
    eighths=st.lists(st.integers(0, 400), min_size=1, max_size=9), least=st.integers(1, 300), lump=st.integers(1, 40)
)
def test_lumps_go_to_the_largest_and_what_is_less_than_one_to_the_rounded(eighths, least, lump):
    """Eighths are exact as real numbers too."""
    eighths[-1] += -sum(eighths) % 8
    w = [Fraction(value, 8) for value in eighths]
    trips = np.empty(len(w), dtype=np.int64)
    round_in_lumps(np.array(w, dtype=np.float64), int(sum(w)), least / 8, lump, trips)
    assert trips.tolist() == lumped(w, Fraction(least, 8), lump)
    assert trips.min() >= 0
    assert trips.sum() == sum(w)


def test_what_real_numbers_lose_goes_to_the_largest():
    trips = np.empty(3, dtype=np.int64)
    round_in_lumps(np.array([5.0, 90.0, 7.0]), 99, 1.0, 1, trips)
    assert trips.tolist() == [5, 87, 7]
