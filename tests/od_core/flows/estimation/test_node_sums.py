"""Sums of fitted nodes carried to the root, against linear algebra: estimate and variance of any sum."""

from __future__ import annotations

import tracemalloc
from random import Random
from types import SimpleNamespace

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from od_core.flows.estimation.fitted_tree import NodeSums
from od_core.flows.estimation.least_squares import least_squares
from tests.od_core.flows.estimation.test_least_squares import nodes_of
from tests.od_core.oracles.intervals import DROPPING, KEEPING, case_of, within

RANDOMS = st.randoms(use_true_random=True)


def carried_to_the_root(levels, taken) -> NodeSums:
    """The sum of some nodes of each level, none of them below another."""
    sums = NodeSums.of_level(levels[-1], taken[-1])
    for level, above, mine in zip(reversed(levels[1:]), reversed(levels[:-1]), reversed(taken[:-1]), strict=True):
        below = sums.carried(level, np.zeros(len(level.nodes), dtype=np.int64))
        sums = NodeSums.of_level(above, mine)
        sums.values[:, above.divided] += below.values
    return sums


@given(random=RANDOMS, kept=st.booleans())
def test_any_sum_of_nodes_has_the_estimate_and_the_variance_of_linear_algebra(random: Random, kept: bool):
    """Of nodes of all levels at once, where nodes were dropped, too: a' C a."""
    case = case_of(random, KEEPING if kept else DROPPING)
    levels = least_squares(case.release.plan, case.trips, case.release.measured)
    dense = case.dense
    assume(len(dense.columns) > 1)
    taken, chosen = [], []
    for level in levels:
        nodes = nodes_of(case, level)
        mine = [random.random() < 0.4 and not any(within(node, other) for other in chosen) for node in nodes]
        chosen += [node for node, is_taken in zip(nodes, mine, strict=True) if is_taken]
        taken.append(np.array(mine))
    sums = carried_to_the_root(levels, taken)
    inside = np.array([any(within(column, node) for node in chosen) for column in dense.columns])
    estimate, variance = dense.sum_of(inside)
    scale = 1 + np.abs(dense.estimate).sum() + np.abs(dense.covariance).sum()
    found = sums.estimates(levels[0].variance)
    assert found.estimate.shape == (1,)
    np.testing.assert_allclose(found.estimate, [estimate], atol=1e-9 * scale)
    np.testing.assert_allclose(found.variance, [variance], atol=1e-9 * scale)


@given(random=RANDOMS)
def test_sums_apart_for_every_area_are_the_sums_one_by_one(random: Random):
    """Below a level above, one sum for each of the finest areas of one side, in their order; noisy values, too."""
    case = case_of(random, KEEPING)
    tree, levels, dense = case.tree, least_squares(case.release.plan, case.trips, case.release.measured), case.dense
    side = random.randrange(2)
    geography = (tree.origin, tree.destination)[side]
    assume(len(levels) > 1)  # not with one zone on each side
    hub = random.randrange(len(levels) - 1)
    noisy = random.random() < 0.5
    sums = NodeSums.of_level(levels[-1], noisy=noisy)
    for level in reversed(levels[hub + 1 :]):
        at = tree.level_pair(level.nodes.level)[side]
        mine = (level.nodes.origin, level.nodes.destination)[side]
        sums = sums.carried(level, geography.first_zone[at][mine].astype(np.int64))
    leaves = nodes_of(case, levels[-1])
    places = {zone: k for k, zone in enumerate(case.areas(side, geography.depth))}
    last = {column: k for k, column in enumerate(dense.columns)}
    covariance = dense.covariance
    found = 0
    estimates = sums.estimates(levels[hub].variance)
    for k, node in enumerate(nodes_of(case, levels[hub])):
        zones = [z for z in places if z[: len(node[side])] == node[side]]
        assert sums.offsets[k + 1] - sums.offsets[k] == len(zones)
        for zone in sorted(zones, key=places.__getitem__):
            mine = [leaf for leaf in leaves if within(leaf, node) and leaf[side] == zone]
            a = np.zeros(len(dense.columns))
            a[[last[leaf] for leaf in mine]] = 1
            if noisy:
                values = [dense.cells[levels[-1].nodes.level][leaf] for leaf in mine]
                estimate, variance = (sum(column) for column in zip(*values, strict=True))
            else:
                estimate, variance = a @ dense.estimate, a @ covariance @ a
            scale = 1 + np.abs(dense.estimate).sum() + np.abs(covariance).sum()
            np.testing.assert_allclose(estimates.estimate[found], estimate, atol=1e-9 * scale)
            np.testing.assert_allclose(estimates.variance[found], variance, atol=1e-9 * scale)
            found += 1
    assert found == len(estimates.estimate)


def test_sums_of_dropped_children_take_no_memory():
    """Sums of their own would take 960 MB: 200,000 children overlap 100 areas each, and one of them is divided."""
    children, areas = 200_000, 100
    level = SimpleNamespace(
        offsets=np.array([0, children]),
        own=np.ones(children),
        siblings=np.array([float(children)]),
        divided=np.array([7]),
    )
    sums, unseen = NodeSums(np.array([0, areas]), np.ones((6, areas))), np.ones((3, children))
    first, count = np.zeros(children, np.int64), np.full(children, areas)
    tracemalloc.start()
    above = sums.carried(level, first, count, unseen=unseen)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert above.values[3].tolist() == [children + 1] * areas
    assert peak < 50_000_000
