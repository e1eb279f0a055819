"""Shrunk estimates against plain NumPy and linear algebra, and what must always hold of the release."""

import decimal
import math
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import pairwise, product

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from od_core import Budget, InfTDARefined, OdError, plan_release
from od_core.flows.estimation import families, shrinkage
from od_core.flows.estimation.families import compute_gravity_shares, iterate_families, sum_trips_by_node
from od_core.flows.estimation.least_squares import fit_least_squares
from od_core.flows.estimation.shrinkage import Division, Rule, shrink, shrink_children
from od_core.flows.release import run_plan
from od_core.geography.flow_tree import Nodes
from od_core.ledger.measurements import MemoryMeasurements
from tests.od_core.doubles import SeededLaplace, SeededNoise, no_noise
from tests.od_core.flows.estimation.test_empirical_bayes import GRID, counts_of, dense, lumped, plan_of_world
from tests.od_core.strategies import World


def gravity_world(seed=4):
    """Trips between zones of different size and distance, the same in both directions but for Poisson numbers."""
    zones = [(f"s{k:02}", f"s{k:02}z{z}") for k in range(9) for z in range(1 + (k * 5) % 7)]
    random = np.random.default_rng(seed)
    size = random.pareto(1.0, len(zones)) + 0.1
    near = random.gamma(0.3, 1 / 0.3, (len(zones), len(zones)))
    near = np.triu(near) + np.triu(near, 1).T
    pairs = product(enumerate(zones), repeat=2)
    flows = {(a, b): int(random.poisson(20 * size[i] * size[j] * near[i, j])) for (i, a), (j, b) in pairs}
    return World(zones, zones, {pair: trips for pair, trips in flows.items() if trips})


GRAVITY = gravity_world()

LEAVES = ({}, {"leaves": "empirical_bayes", "u": "1"})
"""Further options: deviations are normal, or a mixture whose small numbers are given in lumps."""


plan_of = partial(plan_of_world, estimate="shrunk")


# The release


@pytest.mark.slow
@pytest.mark.parametrize("leaves", LEAVES, ids=["normal", "mixture"])
def test_an_earlier_table_lowers_the_error_and_one_that_says_nothing_costs_little(leaves):
    """Total errors of 12 releases: each learns from another one of the same trips, and from its shuffled cells.

    By chance, a level learns from shuffled cells in one case of 40.
    """
    plan = plan_of(GRAVITY, epsilon="0.5", **leaves)
    counts, random = counts_of(plan, GRAVITY), np.random.default_rng(1)
    exact = run_plan(plan_of(GRAVITY, epsilon="10000"), counts, no_noise(), MemoryMeasurements())
    truth, found, same = dense(plan, exact), np.zeros(3), 0
    for seed in range(12):
        release, before = (run_plan(plan, counts, SeededNoise(k), MemoryMeasurements()) for k in (seed, seed + 12))
        fitted = fit_least_squares(plan, counts.total, release.measured)
        zones = random.permutation(len(plan.tree.origin.zones))
        mixed = dense(plan, before)[zones][:, random.permutation(zones)]
        public = plan.tree.list_public_nodes(plan.tree.depth)
        shuffled = Nodes(plan.tree.depth, public.origin, public.destination, mixed[public.origin, public.destination])
        learned = [leaves_of(plan, fitted, earlier) for earlier in (None, before.leaves, shuffled)]
        tables = [dense(plan, replace(release, leaves=leaves)) for leaves in learned]
        found += [np.abs(table - truth).sum() for table in tables]
        same += np.array_equal(tables[0], tables[2])
    without, learned, misled = found
    assert same >= 10
    assert learned < 0.98 * without
    assert misled < 1.01 * without


# Against plain NumPy


class Sheet:
    """A level as matrices of all cells, with the refined side in rows."""

    def __init__(self, plan, fitted, above):
        tree, level = plan.tree, fitted.nodes.level
        self.side = 0 if tree.refines_origin(level) else 1
        sides = (tree.origin, tree.destination)
        at = tree.level_pair(level)
        self.shape = (sides[self.side].size(at[self.side]), sides[1 - self.side].size(at[1 - self.side]))
        self.rows = (fitted.nodes.origin, fitted.nodes.destination)[self.side]
        self.columns = (fitted.nodes.origin, fitted.nodes.destination)[1 - self.side]
        self.h, self.v = self.matrix(fitted.estimate), self.matrix(fitted.own)
        self.sigma, self.noisy = math.sqrt(fitted.noise), self.matrix(fitted.noisy)
        self.parent = sides[self.side].parents[at[self.side]]
        wide = np.zeros((self.parent.max() + 1, self.shape[1])), np.zeros((self.parent.max() + 1, self.shape[1]))
        upper = (above.nodes.origin, above.nodes.destination)[self.side], (above.nodes.origin, above.nodes.destination)
        for matrix, values in zip(wide, (above.estimate, above.variance), strict=True):
            matrix[upper[0], upper[1][1 - self.side]] = values
        self.parent_h, self.parent_variance = (matrix[self.parent] for matrix in wide)

    def matrix(self, values):
        full = np.zeros(self.shape, dtype=np.asarray(values).dtype)
        full[self.rows, self.columns] = values
        return full

    def families(self):
        for a, column in product(range(self.parent.max() + 1), range(self.shape[1])):
            yield np.flatnonzero(self.parent == a), column

    def shares(self):
        others = self.h.sum(axis=1)[:, None] - self.h
        weight = np.maximum(others, 0) + self.sigma / 2 * math.sqrt(self.shape[1] - 1)
        p = np.zeros(self.shape)
        for f, c in self.families():
            p[f, c] = weight[f, c] / weight[f, c].sum() if weight[f, c].any() else 1 / len(f)
        return p

    def sizes(self, p):
        q = np.maximum(p * self.parent_h / self.sigma, 1e-300)
        return np.clip(np.floor(2 * np.log2(q)).astype(int) + 50, 0, 95)

    def fitted(self, cells, sizes, top, bottom):
        """Ratio of the sums of two matrices over the chosen cells of similar size, for all cells of these sizes."""
        ratio, number = np.zeros(self.shape), bins_of(cells, sizes, 200)[sizes]
        for one in range(number.max() + 1):
            whole = bottom[cells & (number == one)].sum()
            ratio[number == one] = top[cells & (number == one)].sum() / whole if whole > 0 else 0
        return ratio

    def several(self):
        return np.isin(self.parent, np.flatnonzero(np.bincount(self.parent) > 1))[:, None] & np.full(self.shape, True)

    def deviations(self, p):
        """r, and the variance that noise alone gives to it, by cell."""
        siblings = np.zeros(self.shape)
        for f, c in self.families():
            siblings[f, c] = self.v[f, c].sum()
        noise = self.v - self.v**2 / siblings + (self.v / siblings - p) ** 2 * self.parent_variance
        return self.h - p * self.parent_h, np.maximum(noise, 0.05 * self.v)

    def dispersion(self, p):
        """The variance of the deviations, by cell."""
        r, noise = self.deviations(p)
        excess = r**2 - noise
        d = self.fitted(self.several(), self.sizes(p), excess, 1 - p)
        return np.maximum(np.maximum(d, 0.001 * self.sigma**2), excess)

    def mixtures(self, p):
        """The bin of each size, and the weights of the components in each bin."""
        r, noise = self.deviations(p)
        place = np.floor((r / np.sqrt(noise) + 7) * 10).astype(int)
        known, sizes = self.several() & (place >= 0) & (place < 210), self.sizes(p)
        bin_of, weights = bins_of(known, sizes, 100), []
        densities = norm.pdf(-6.95 + 0.1 * np.arange(210)[:, None], scale=np.sqrt(1 + LAMBDAS))
        for one in range(bin_of.max() + 1):
            cells = np.bincount(place[known & (bin_of[sizes] == one)], minlength=210)
            pi = np.full(13, 1 / 13)
            for _ in range(100):
                joint = densities * pi
                pi = cells @ (joint / joint.sum(axis=1, keepdims=True)) + np.repeat([0, 3], [10, 3])
                pi /= pi.sum()
            weights.append(pi)
        return bin_of, np.array(weights)


LAMBDAS = np.array([0.001, 0.02, 0.06, 0.15, 0.4, 1, 2.5, 6, 16, 50, 200, 1000, 10000])
GRID_OF_T = -7 + 0.1 * np.arange(211)


def bins_of(cells, sizes, least):
    """The bin of each size: neighbouring sizes until there are enough of the chosen cells, and enough remain."""
    group, own, left, groups = 0, 0, int(cells.sum()), []
    for size in range(96):
        if own >= least and left >= least:
            group, own = group + 1, 0
        groups.append(group)
        here = int((cells & (sizes == size)).sum())
        own, left = own + here, left - here
    return np.array(groups)


def said_of_parent(p, d, z, v):
    """Estimate of c and its variance, if z = p c + e + noise and the e sum to 0, by linear algebra."""
    spread = np.diag(d) - np.outer(d, d) / d.sum() + np.diag(v)
    weights = np.linalg.solve(spread, p)
    return weights @ z / (weights @ p), 1 / (weights @ p)


def estimated(plan, fitted, sheets, shares, u=None):
    """The trips of each level as matrices; ``u`` is None if the leaves are estimated as every other level."""
    kept = [sheet.dispersion(p) for sheet, p in zip(sheets, shares, strict=True)]
    z, v = [sheets[-1].noisy.astype(float)], [np.full(sheets[-1].shape, fitted[-1].noise)]
    for k in range(len(sheets) - 1, -1, -1):
        sheet, level = sheets[k], fitted[k]
        own_z, own_v = level.noisy.astype(float), np.full(len(level.nodes), level.noise)
        for f, c in sheet.families():
            said, spread = said_of_parent(shares[k][f, c], kept[k][f, c], z[0][f, c], v[0][f, c])
            pair = (sheet.parent[f[0]], c)[:: 1 if sheet.side == 0 else -1]
            at = np.flatnonzero((level.nodes.origin == pair[0]) & (level.nodes.destination == pair[1]))
            weight = level.noise / (level.noise + spread)
            own_z[at] += weight * (said - own_z[at])
            own_v[at] = weight * spread
        z.insert(0, sheets[k - 1].matrix(own_z) if k else own_z.reshape(1, 1))
        v.insert(0, sheets[k - 1].matrix(own_v) if k else own_v.reshape(1, 1))
    trips = [np.maximum(np.floor(z[0] + 0.5), 0).astype(np.int64)]
    for k, sheet in enumerate(sheets, start=1):
        own = np.zeros(sheet.shape, dtype=np.int64)
        above = trips[-1] if k == 1 or sheets[k - 2].side == sheet.side else trips[-1].T
        if u is not None:
            furthest, least = (1.5 if k == len(sheets) else 1), u * sheets[-1].sigma
            trips.append(by_mixture(sheet, shares[k - 1], above, (z[k], v[k]), furthest, least))
            continue
        for f, c in sheet.families():
            total, d = int(above[sheet.parent[f[0]], c]), kept[k - 1][f, c]
            mean = shares[k - 1][f, c] * total
            m = np.floor(mean + (z[k][f, c] - mean) * d / (d + v[k][f, c]) + 0.5).astype(np.int64)
            own[f, c] = plan.mechanism.project(m, np.array([total]), np.array([0, len(f)]))
        trips.append(own)
    return trips


def by_mixture(sheet, p, above, known, furthest, least):
    """The trips of a level from the posterior means under a mixture, in lumps."""
    own, (bin_of, weights), (z, v) = np.zeros(sheet.shape, dtype=np.int64), sheet.mixtures(p), known
    omega = weights[:, None] * norm.pdf(GRID_OF_T[:, None], scale=np.sqrt(1 + LAMBDAS))
    kept = (omega @ (LAMBDAS / (1 + LAMBDAS))) / omega.sum(axis=2)
    for f, c in sheet.families():
        total = int(above[sheet.parent[f[0]], c])
        if total == 0:
            continue
        q, spread = p[f, c] * total, np.sqrt(v[f, c])
        t = (z[f, c] - q) / spread
        sizes = np.clip(np.floor(2 * np.log2(np.maximum(q / sheet.sigma, 1e-300))).astype(int) + 50, 0, 95)
        part = [np.interp(one, GRID_OF_T, kept[at], 1, 1) for one, at in zip(t, bin_of[sizes], strict=True)]
        m = q + (z[f, c] - q) * np.array(part)
        linear = z[f, c] + (total - z[f, c].sum()) * v[f, c] / v[f, c].sum()
        m = np.clip(m, linear - furthest * spread, linear + furthest * spread)
        shift = brentq(lambda s, m, total: np.maximum(m + s, 0).sum() - total, -1e7, 1e7, (m, total), 1e-12)
        w = [Fraction(value) for value in np.maximum(m + shift, 0)]
        w[int(np.argmax(w))] += total - sum(w)
        own[f, c] = lumped(w, least, max(1, int(least))) if len(w) > 1 else [total]
    return own


def blended(sheet, p, other, sigma, least=-math.inf):
    tau = np.zeros(sheet.shape)
    for f, c in sheet.families():
        tau[f, c] = (other[f, c] + sigma * p[f, c]) / (other[f, c].sum() + sigma)
    gap = (tau - p) * sheet.parent_h
    left = (sheet.h - p * sheet.parent_h) * gap
    cells, sizes = sheet.several() & (sheet.parent_h > 0), sheet.sizes(p)
    slope = np.clip(sheet.fitted(cells, sizes, left, gap**2), 0, 1)
    bin_of = bins_of(cells, sizes, 200)
    each = [left[cells & (bin_of[sizes] == one)] for one in range(bin_of.max() + 1)]
    scores = [own.sum() / np.linalg.norm(own) if own.any() else 0 for own in each]
    if sum(scores) / math.sqrt(len(scores)) < least:
        return p
    shares = np.maximum(p + slope * (tau - p), 0)
    for f, c in sheet.families():
        shares[f, c] /= shares[f, c].sum()
    return shares


def at_level(plan, sheet, level, leaves):
    """Trips of each cell of a level, from a matrix of leaves."""
    at = plan.tree.level_pair(level)
    o, d = plan.tree.origin.ancestors(at[0]), plan.tree.destination.ancestors(at[1])
    full = np.zeros((plan.tree.origin.size(at[0]), plan.tree.destination.size(at[1])))
    np.add.at(full, (o[:, None], d[None, :]), leaves)
    return full if sheet.side == 0 else full.T


@pytest.mark.representatives("destination-5-*", "origin-0.2-*")
@pytest.mark.usefixtures("small_levels_learn")
@pytest.mark.parametrize(
    ("tree", "epsilon", "leaves", "has_earlier"),
    [
        ("destination", "0.2", LEAVES[0], False),
        ("destination", "5", LEAVES[0], True),
        ("origin", "1", LEAVES[0], False),
        ("destination", "0.5", LEAVES[1], False),
        ("origin", "0.2", LEAVES[1], True),
    ],
)
def test_the_table_is_that_of_the_rule(tree, epsilon, leaves, has_earlier):
    """Real numbers are found in another way, so a few may be rounded to another side."""
    plan = plan_of(GRAVITY, tree, epsilon=epsilon, **leaves)
    u = float(plan.mechanism.u) if leaves else None
    counts = counts_of(plan, GRAVITY)
    release, before = (run_plan(plan, counts, SeededNoise(seed), MemoryMeasurements()) for seed in (2, 3))
    fitted = fit_least_squares(plan, counts.total, release.measured)
    sheets = [Sheet(plan, level, above) for above, level in pairwise(fitted)]

    def moved(shares, table, least=-math.inf):
        others = [at_level(plan, s, level.nodes.level, table) for s, level in zip(sheets, fitted[1:], strict=True)]
        return [blended(*each, sheets[-1].sigma, least) for each in zip(sheets, shares, others, strict=True)]

    def table_of(shares):
        own = estimated(plan, fitted, sheets, shares, u)[-1]
        return own if sheets[-1].side == 0 else own.T

    shares = [sheet.shares() for sheet in sheets]
    for each, sheet, p in zip(iterate_families(plan, fitted), sheets, shares, strict=True):
        assert np.allclose(sheet.matrix(compute_gravity_shares(each)), p, rtol=1e-9)
    if has_earlier:
        shares = moved(shares, dense(plan, before), least=2)
    first = table_of(shares)
    expected = table_of(moved(shares, first.T))
    earlier = before.leaves if has_earlier else None
    found = dense(plan, replace(release, leaves=leaves_of(plan, fitted, earlier)))
    assert found.sum() == expected.sum()
    assert np.count_nonzero(found - expected) <= 0.01 * np.count_nonzero(found)
    assert np.count_nonzero(found - first) > 0.1 * np.count_nonzero(found)  # the second round counts
    assert np.array_equal(found, dense(plan, release)) == (not has_earlier)


def leaves_of(plan, fitted, earlier):
    trips = shrink(plan, fitted, Rule(u=plan.mechanism.leaf_dial), earlier)[-1]
    return Nodes(plan.tree.depth, fitted[-1].nodes.origin, fitted[-1].nodes.destination, trips)


def test_the_trips_of_a_node_go_to_the_children_that_were_not_dropped():
    """Where the shares predict exactly and the noise is large, in proportion to the shares of those that are left."""
    p, trusted = np.array([0.5, 0.3, 0.2]), np.full(families.SIZES, 1e-12)
    noise = np.full(3, 1e6)
    known = (p, np.array([100.0]), np.array([0.0]), 1e3)
    given = families.PredictedFamilies(np.array([0, 3]), 100 * p, noise, np.array([3e6]), *known)
    kept, estimate = np.array([0, 2]), np.empty(2)
    shrink_children(given, trusted, Division(kept, np.array([0, 2]), np.zeros(3), noise, np.array([70])), estimate)
    assert np.allclose(estimate, [50, 20])


def test_trips_of_nodes_are_those_of_the_table():
    """At the nodes that were measured, from leaves that need not be."""
    plan = plan_of(GRID, "origin", cap=0, epsilon="0.5")
    release = run_plan(plan, counts_of(plan, GRID), SeededNoise(3), MemoryMeasurements())
    fitted = fit_least_squares(plan, None, release.measured)
    public = plan.tree.list_public_nodes(plan.tree.depth)
    trips = np.random.default_rng(1).poisson(3.0, len(public))
    some = trips > 1
    given = Nodes(plan.tree.depth, public.origin[some], public.destination[some], trips[some])
    full, measured = np.zeros((2, plan.tree.origin.size(2), plan.tree.destination.size(2)))
    full[given.origin, given.destination] = given.trips
    measured[fitted[-1].nodes.origin, fitted[-1].nodes.destination] = 1
    for level, found in zip(fitted[1:], sum_trips_by_node(plan, fitted, given), strict=True):
        sides = zip((plan.tree.origin, plan.tree.destination), plan.tree.level_pair(level.nodes.level), strict=True)
        o, d = (geography.ancestors(at) for geography, at in sides)
        sums = np.zeros((o.max() + 1, d.max() + 1))
        np.add.at(sums, (o[:, None], d[None, :]), full * measured)
        assert np.allclose(found, sums[level.nodes.origin, level.nodes.destination])


def test_levels_too_small_to_learn_from_leave_least_squares_as_they_are(monkeypatch):
    """But for what is rounded, which is at most 1 at each of four levels: least squares round in fixed point."""
    monkeypatch.setattr(families, "_MIN_CELLS_TO_LEARN", 10**9)
    counts = counts_of(plan_of(GRID), GRID)
    plans = (plan_of(GRID, estimate=estimate) for estimate in ("shrunk", "least_squares"))
    leaves = [dense(plan, run_plan(plan, counts, SeededNoise(5), MemoryMeasurements())) for plan in plans]
    assert np.abs(leaves[0] - leaves[1]).max() <= 4
    assert np.count_nonzero(leaves[0] != leaves[1]) < 0.05 * np.count_nonzero(leaves[0])


# The option


def test_what_it_cannot_be_combined_with_is_refused():
    with pytest.raises(OdError, match="OD-MECHANISM-OPTION: there is no estimate 'shrunken'"):
        InfTDARefined(estimate="shrunken")


def test_leaves_with_laplace_noise_keep_the_part_that_is_expected():
    """Of the sum of a normal deviation and Laplace noise of variance 1, against sums over a fine grid; within 0.01."""
    deviation = np.linspace(-100, 100, 400_001)
    t = np.arange(-70, 141) / 10
    densities, kept = shrinkage._compute_densities(0, has_laplace_noise=True)
    at_centres, _ = shrinkage._compute_densities(1, has_laplace_noise=True)
    for j, variance in enumerate(map(float, shrinkage._LAMBDAS)):
        if not 0.1 < variance < 300:
            continue
        prior = np.exp(-(deviation**2) / (2 * variance))
        exact = np.array([prior * np.exp(-math.sqrt(2) * np.abs(one - deviation)) for one in t[70::5]])
        expected = exact @ deviation / exact.sum(axis=1)
        np.testing.assert_allclose(kept[70::5, j][1:], expected[1:] / t[70::5][1:], atol=0.01)
        near = t[70::5] <= 6
        ratio = densities[70::5, j][near] / exact.sum(axis=1)[near]
        np.testing.assert_allclose(ratio / ratio[0], 1, atol=0.1)
        between = np.sqrt(densities[70:90, j] * densities[71:91, j])
        np.testing.assert_allclose(at_centres[70:90, j], between, rtol=0.02)


@pytest.mark.parametrize("has_laplace_noise", [False, True])
def test_densities_do_not_depend_on_the_callers_decimal_numbers(has_laplace_noise):
    compute = shrinkage._compute_densities.__wrapped__
    expected = compute(0, has_laplace_noise)
    with decimal.localcontext(prec=6, rounding=decimal.ROUND_CEILING):
        found = compute(0, has_laplace_noise)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_only_leaves_with_laplace_noise_are_estimated_with_it():
    """Also at levels of other noise, and of Gaussian noise, everything is normal."""
    plan = plan_of_world(GRAVITY, estimate="shrunk", epsilon="0.5")
    release = run_plan(plan, counts_of(plan, GRAVITY), SeededNoise(1), MemoryMeasurements())
    fitted = fit_least_squares(plan, counts_of(plan, GRAVITY).total, release.measured)
    assert [own.has_laplace_noise for own in iterate_families(plan, fitted)] == [False] * (len(fitted) - 1)
    laplace = InfTDARefined(noise_distribution="laplace")
    plan = plan_release(plan.tree.origin, unit=plan.unit, budget=Budget(1), mechanism=laplace, tree="both")
    release = run_plan(plan, counts_of(plan, GRAVITY), SeededLaplace(1), MemoryMeasurements())
    fitted = fit_least_squares(plan, release.exact_trips, release.measured)
    assert [own.has_laplace_noise for own in iterate_families(plan, fitted)] == [False] * (len(fitted) - 2) + [True]
