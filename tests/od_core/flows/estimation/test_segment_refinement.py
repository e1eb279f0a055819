"""Released segments: nearly the conditional least squares, with both margins, and without noise the truth.

They are compared with releases without segments, where segments say nothing.
"""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core.flows.estimation import intervals
from od_core.flows.estimation.least_squares import fit_least_squares
from od_core.flows.estimation.levels import combine_totals, make_published_root
from od_core.flows.estimation.refinement import refine
from od_core.flows.estimation.shrinkage import Rule, shrink
from od_core.flows.release import run_plan
from od_core.geography import flow_tree
from od_core.ledger.measurements import MemoryMeasurements
from tests.od_core.doubles import PlacedLaplace, SeededNoise, no_noise
from tests.od_core.oracles.intervals import within
from tests.od_core.oracles.segments import DROPPING, KEEPING, LAPLACE, ROOT, SegmentCase, cells_of, segment_case
from tests.od_core.strategies import trees_for

RANDOMS = st.randoms(use_true_random=True)
SHRUNK = (
    replace(KEEPING, estimate="shrunk"),
    replace(DROPPING, estimate="shrunk", leaves="empirical_bayes", u="1/2", segment_profile=1),
    replace(DROPPING, estimate="auto"),
)
MECHANISMS_AND_OPTIONS = pytest.mark.parametrize(
    "mechanisms",
    [
        [KEEPING, replace(KEEPING, segment_profile=1), SHRUNK[0]],
        [DROPPING, replace(DROPPING, segment_profile=2)],
        SHRUNK[1:],
        [LAPLACE, replace(LAPLACE, keep_all_cap=0, segment_profile=1), replace(LAPLACE, estimate="auto")],
    ],
    ids=["all kept", "some dropped", "some dropped, learned", "Laplace noise"],
)
"""Of which each example has one."""


def risen(case: SegmentCase, name: str, s: int) -> dict:
    """Estimate and variance of each node from itself and the nodes below it, for one category."""
    own = [
        dict(zip(nodes, ((row[s], variance) for row in values), strict=True))
        for _, each, variance, values, nodes in case.measured()
        if each == name
    ]
    found: list[dict] = [own[-1]]
    for level in reversed(own[:-1]):
        below, here = found[-1], {}
        for node, (x, s2) in level.items():
            children = [below[child] for child in below if within(child, node)]
            z, v = (sum(column) for column in zip(*children, strict=True)) if children else (0, np.inf)
            here[node] = (x + (z - x) * s2 / (s2 + v), 1 / (1 / s2 + 1 / v)) if children else (x, s2)
        found.append(here)
    return dict(enumerate(reversed(found)))


@given(random=RANDOMS)
def test_released_segments_are_nearly_the_conditional_least_squares(random: Random):
    """Far from 0, where no estimate is cut: children, given their totals and their parent's segments, to two trips."""
    given = {"least_trips": 10**6, "most_trips": 2 * 10**6, "budget": {"rho": Fraction(1, 1000)}}
    case = segment_case(random, **given, most_pairs=12)
    leaves = dict(zip(case.named(case.tree.depth, case.release.leaves), range(10**6), strict=False))
    for name in case.segments:
        k, released = len(case.segments[name]), case.release.segments[name]

        def at(node, released=released):
            return sum(released[place] for leaf, place in leaves.items() if within(leaf, node))

        up = [risen(case, name, s) for s in range(k)]
        top = np.array([next(iter(up[s][0].values()))[0] for s in range(k)])  # the root, by this name or another
        assert np.abs(at(ROOT) - (top + (at(ROOT).sum() - top.sum()) / k)).max() <= 2
        for level in range(len(up[0]) - 1):
            for parent in up[0][level]:
                family = [node for node in up[0][level + 1] if within(node, parent)]
                c = np.array([[up[s][level + 1][node][0] for s in range(k)] for node in family])
                v = np.array([up[0][level + 1][node][1] for node in family])[:, None]
                e = c + v / v.sum() * (at(parent) - c.sum(axis=0))
                n = np.array([at(node) for node in family])
                e += (n.sum(axis=1, keepdims=True) - e.sum(axis=1, keepdims=True)) / k
                assert np.abs(n - e).max() <= 2


@pytest.mark.representatives("some dropped, learned")
@pytest.mark.usefixtures("small_levels_learn")
@MECHANISMS_AND_OPTIONS
@given(random=RANDOMS)
def test_released_segments_sum_to_the_released_totals(mechanisms, random: Random):
    """At every pair of levels: whole numbers of at least 0; and the totals are listed as without segments."""
    case = segment_case(random, random.choice(mechanisms))
    release, names = case.release, (case.tree.origin.level_names, case.tree.destination.level_names)
    for name, listed in case.segments.items():
        table = release.segments[name]
        assert (table.dtype, table.shape) == (np.int64, (len(release.leaves), len(listed)))
        assert (table >= 0).all()
        assert table.sum(axis=1).tolist() == release.leaves.trips.tolist()
        for o_level, d_level in case.level_pairs():
            levels = names[0][o_level], names[1][d_level]
            by_segment = release.flows_at(*levels, segment=name)
            assert list(by_segment) == ["origin", "destination", name, "trips"]
            summed: Counter = Counter()
            for origin, destination, _, trips in by_segment.to_numpy().tolist():
                summed[origin, destination] += trips
            assert summed == {tuple(pair): trips for *pair, trips in release.flows_at(*levels).to_numpy().tolist()}
    if case.plan.publishes_total:
        assert release.leaves.trips.sum() == case.trips


@pytest.mark.representatives("normal")
@pytest.mark.usefixtures("small_levels_learn")
@pytest.mark.parametrize("mechanism", SHRUNK[:2], ids=["normal", "mixture"])
@given(random=RANDOMS)
def test_totals_are_those_that_are_shrunk_from_the_combined_measurements(mechanism, random: Random):
    """At every level, whatever the segments are; and the intervals are those of least squares, which need no model."""
    seed, noise, order = (
        random.randrange(2**32),
        SeededNoise(random.randrange(2**32)),
        random.choice(trees_for(mechanism)),
    )
    case, plain = (
        segment_case(Random(seed), each, noise=noise, order=order)  # noqa: S311
        for each in (mechanism, replace(mechanism, estimate="least_squares", leaves="chebyshev", u="3/2"))
    )
    release, root = case.release, make_published_root(case.plan, case.trips)
    levels, segments = refine(case.plan, root, release.measured)
    totals = combine_totals(case.plan, release.measured)
    if totals[-1].parents is not None:
        fitted = fit_least_squares(case.plan, case.trips if case.plan.publishes_total else None, totals)
        trips = shrink(case.plan, fitted, Rule(u=mechanism.leaf_dial))
        without_root = levels[len(levels) - len(fitted) :]  # an unmeasured root above one node is given, too
        for nodes, level, own in zip(without_root, fitted, trips, strict=True):
            expected = zip(level.nodes.origin[own > 0], level.nodes.destination[own > 0], own[own > 0], strict=True)
            assert list(zip(nodes.origin, nodes.destination, nodes.trips, strict=True)) == list(expected)
    assert np.array_equal(levels[-1].trips, release.leaves.trips)
    for name in case.segments:
        assert np.array_equal(segments[name], release.segments[name])
        for pair in case.level_pairs():
            _, numbers = cells_of(case, pair)
            both = (each.release.segment_intervals(name) for each in (case, plain))
            same = (each.compute_cell_bounds(*pair, numbers[:, 0], numbers[:, 1]) for each in both)
            assert all(map(np.array_equal, *same))


# -- no noise ----------------------------------------------------------------------------------------------------------


@pytest.mark.representatives("some dropped", "chosen")
@pytest.mark.usefixtures("small_levels_learn")
@pytest.mark.parametrize(
    "mechanism", [KEEPING, DROPPING, *SHRUNK], ids=["all kept", "some dropped", "normal", "mixture", "chosen"]
)
@given(random=RANDOMS)
def test_without_noise_the_truth_is_released_at_every_pair_of_levels(mechanism, random: Random):
    """With a large budget where totals are shrunk, which expect noise as it is planned."""
    large = {"budget": {"rho": 10**6}, "segment_share": "1/2"} if mechanism.estimate != "least_squares" else {}
    most = 9 if large else random.choice([1, 9, 10**9])
    case = segment_case(random, mechanism, noise=no_noise(), most_trips=most, **large)
    release, names = case.release, (case.tree.origin.level_names, case.tree.destination.level_names)
    for o_level, d_level in case.level_pairs():
        levels = names[0][o_level], names[1][d_level]
        for name in case.segments:
            place = 2 + list(case.segments).index(name)
            expected: Counter = Counter()
            for cell, trips in case.truth.items():
                codes = [(cell[side][:n] or ("all",))[-1] for side, n in enumerate((o_level, d_level))]
                expected[*codes, cell[place]] += trips
            rows = [row for row in release.flows_at(*levels, segment=name).to_numpy().tolist() if row[3] > 0]
            assert {tuple(row[:3]): row[3] for row in rows} == +expected
            assert len(rows) == len(+expected)


# -- pieces and threads ------------------------------------------------------------------------------------------------


@pytest.mark.representatives("some dropped")
@pytest.mark.usefixtures("small_levels_learn")
@MECHANISMS_AND_OPTIONS
@given(random=RANDOMS)
def test_neither_pieces_nor_threads_change_a_byte(mechanisms, random: Random):
    """Measurements, released tables and intervals; noise is a function of level and position."""
    noise = PlacedLaplace(random.randrange(2**32))
    case, found = segment_case(random, random.choice(mechanisms), noise=noise, most_pairs=60), set()
    for chunk, block, threads in ((1 << 17, 1 << 20, "1"), (1, 1, "3"), (7, 5, "2")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(flow_tree, "CHILDREN_AT_ONCE", chunk)
            patch.setattr(intervals, "_BLOCK", block, raising=False)
            patch.setenv("OD_THREADS", threads)
            release = run_plan(case.plan, case.counts, noise, MemoryMeasurements())
            arrays = [m.noisy.read_values() for m in release.measured]
            arrays += [release.leaves.origin, release.leaves.destination, release.leaves.trips]
            for name in case.segments:
                arrays.append(release.segments[name])
                for levels in case.level_pairs():
                    _, numbers = cells_of(case, levels)
                    arrays += release.segment_intervals(name).compute_cell_bounds(*levels, numbers[:, 0], numbers[:, 1])
            found.add(b"|".join(np.ascontiguousarray(array).tobytes() for array in arrays))
    assert len(found) == 1
