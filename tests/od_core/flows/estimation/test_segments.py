"""Segments against dense linear algebra, against releases without segments, and against the truth.

The oracles are those of the specification: one fit of all queries at once, which knows nothing of the two fits into
which it falls apart; the release without segments, where segments say nothing; and the truth, where there is no noise.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import groupby, product
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from od_core import Budget, PrivacyUnit, plan_release, release_flows
from od_core.flows.confidence import lower_bound, upper_bound
from od_core.flows.estimation import intervals, segment_intervals
from od_core.flows.estimation.least_squares import least_squares
from od_core.flows.estimation.segment_levels import combined_totals, segment_counts
from od_core.flows.release import run_plan
from od_core.flows.step import CombinedTotals
from od_core.geography import flow_tree
from od_core.ledger.measurements import MemoryMeasurements
from od_core.privacy.neighbours import DEFAULT_ACCEPTANCE, NO_FAULTS
from od_core.records.trip_counts import count_trips
from tests.od_core.doubles import ListedNoise, SeededNoise, no_noise
from tests.od_core.flows.estimation.test_intervals import assert_is_interval
from tests.od_core.mutants import forget_the_contrasts_in_a_segment, weigh_sums_of_segments_as_totals
from tests.od_core.oracles.inftda import Tree, inftda
from tests.od_core.oracles.intervals import UNITS, meets, within
from tests.od_core.oracles.segments import DROPPING, KEEPING, ROOT, SegmentCase, frame_of, made, segment_case

pytestmark = pytest.mark.usefixtures("one_memory_database")

RANDOMS = st.randoms(use_true_random=True)
MECHANISMS = pytest.mark.parametrize("mechanism", [KEEPING, DROPPING], ids=["all kept", "some dropped"])


def assert_close(found, expected, scale=0.0) -> None:
    """To 1e-9 of the largest of them: estimates are differences of large sums."""
    expected = np.asarray(expected, dtype=float)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * max(np.abs(expected).max(initial=1), scale))


# -- one fit of all queries --------------------------------------------------------------------------------------------


def agrees_with_linear_algebra(random: Random, mechanism) -> None:
    """Totals of every measured node, and each category of every breakdown: estimates and variances."""
    case = segment_case(random, mechanism)
    dense, plan, measured = case.dense, case.plan, case.release.measured
    n = case.trips if plan.publishes_total else None
    combined = case.combined()
    for counts in combined_totals(plan, measured):
        expected = combined[counts.step.level]
        assert_close(counts.reals(), [value for value, _ in expected.values()])
        rounded = [value - noisy for (value, _), noisy in zip(expected.values(), counts.noisy.values(), strict=True)]
        assert np.abs(rounded).max(initial=0) <= 0.5 + 1e-9
        assert_close([float(counts.step.variance)] * len(expected), [variance for _, variance in expected.values()])
    totals = least_squares(plan, n, combined_totals(plan, measured))
    if not dense.columns:
        assert case.trips == 0 or mechanism is DROPPING
        return
    largest, widest = np.abs(dense.estimate).sum(), dense.covariance.diagonal().max()
    fits = {}
    for level in totals:
        nodes = case.named(level.nodes.level, level.nodes)
        expected = [dense.total(dense.inside(node)) for node in nodes]
        assert_close(level.estimate, [h for h, _ in expected], largest)
        assert_close(level.variance, [v for _, v in expected], widest)
        fits |= dict(zip(nodes, zip(level.estimate, level.variance, strict=True), strict=True))
    assert set(fits) >= {node for _, _, _, _, nodes in case.measured() for node in nodes}
    for name, listed in case.segments.items():
        own = [least_squares(plan, None, counts) for counts in segment_counts(plan, measured, name)]
        assert len(own) == len(listed)
        for levels in zip(*own, strict=True):
            nodes, k = case.named(levels[0].nodes.level, levels[0].nodes), len(listed)
            fitted = np.array([level.estimate for level in levels])
            for s, category in enumerate(listed):
                expected = [dense.segment(dense.inside(node), name, category) for node in nodes]
                total, doubt = np.array([fits[node] for node in nodes]).reshape(-1, 2).T
                assert_close(fitted[s] + (total - fitted.sum(axis=0)) / k, [h for h, _ in expected], largest)
                variance = doubt / k**2 + levels[s].variance * (1 - 1 / k)
                assert_close(variance, [v for _, v in expected], widest)


@MECHANISMS
@settings(max_examples=10)
@given(random=RANDOMS)
def test_every_node_has_the_totals_and_segments_of_linear_algebra(mechanism, random: Random):
    agrees_with_linear_algebra(random, mechanism)


def test_a_combination_with_wrong_weights_is_found(monkeypatch):
    weigh_sums_of_segments_as_totals(monkeypatch)
    with pytest.raises(AssertionError):
        agrees_with_linear_algebra(Random(2), KEEPING)  # noqa: S311


def cells_of(case: SegmentCase, levels: tuple[int, int]) -> tuple[list, np.ndarray]:
    """All public pairs of two levels by their areas, and by their numbers."""
    origins, destinations = case.areas(0, levels[0]), case.areas(1, levels[1])
    numbers = np.array(list(product(range(len(origins)), range(len(destinations)))), dtype=np.int32)
    return [(origins[o], destinations[d]) for o, d in numbers], numbers


def sums_agree_with_linear_algebra(random: Random) -> None:
    """Every cell at every pair of levels, and sums over sets of zones, where all nodes were kept."""
    case = segment_case(random, most_pairs=16)
    dense, release = case.dense, case.release
    if not dense.columns:
        return
    largest, widest = np.abs(dense.estimate).sum(), dense.covariance.diagonal().max()
    for name, listed in case.segments.items():
        found = release.segment_intervals(name)
        for levels in case.level_pairs():
            origin, destination, total = found._totals.cells(*levels)
            places = dict.fromkeys(zip(origin.tolist(), destination.tolist(), strict=True))
            areas, numbers = cells_of(case, levels)
            assert sorted(places) == [tuple(pair) for pair in numbers.tolist()]
            nodes = [(case.areas(0, levels[0])[o], case.areas(1, levels[1])[d]) for o, d in places]
            own = [category.cells(*levels)[2] for category in found._categories]
            bounds = [np.array(ends) for ends in found.of_cells(*levels, numbers[:, 0], numbers[:, 1])]
            for s, (category, estimates) in enumerate(
                zip(listed, segment_intervals._segments(total, own), strict=True)
            ):
                expected = [dense.segment(dense.inside(node), name, category) for node in nodes]
                assert_close(estimates.estimate, [h for h, _ in expected], largest)
                assert_close(estimates.variance, [v for _, v in expected], widest)
                for area, lower, upper in zip(areas, bounds[0][:, s], bounds[1][:, s], strict=True):
                    assert_is_interval((lower, upper), *dense.segment(dense.inside(area), name, category))
        for _ in range(3):
            chosen = [[zone for zone in zones if random.random() < 0.5] for zones in (case.origins, case.destinations)]
            masks = [
                np.array([zone in mine for zone in case.areas(side, case.tree.origin.depth)])
                for side, mine in enumerate(chosen)
            ]
            taken = [o in chosen[0] and d in chosen[1] for o, d in dense.columns]
            total = found._totals.sum_between(*masks)
            own = [category.sum_between(*masks) for category in found._categories]
            lower, upper = found.of_sum(*masks)
            for s, (category, estimates) in enumerate(
                zip(listed, segment_intervals._segments(total, own), strict=True)
            ):
                fit = dense.segment(taken, name, category)
                assert_close(estimates.estimate, [fit[0]], largest)
                assert_close(estimates.variance, [fit[1]], widest)
                assert_is_interval((lower[s], upper[s]), *fit)


@settings(max_examples=10)
@given(random=RANDOMS)
def test_every_cell_and_every_sum_has_the_segments_of_linear_algebra(random: Random):
    sums_agree_with_linear_algebra(random)


def test_intervals_without_the_differences_of_categories_are_found(monkeypatch):
    forget_the_contrasts_in_a_segment(monkeypatch)
    with pytest.raises(AssertionError):
        sums_agree_with_linear_algebra(Random(2))  # noqa: S311


@settings(max_examples=15)
@given(random=RANDOMS)
def test_where_nodes_were_dropped_contrasts_are_those_of_linear_algebra(random: Random):
    """Sums without the trips of dropped nodes: contrasts of all measurements, totals of the finest measured nodes.

    Totals of kept nodes were selected by their noise, so their fit is not used. A cell below a dropped node is at most
    the trips of that node, or those of the node in its category.
    """
    case = segment_case(random, DROPPING, most_trips=random.choice([2, 9]), budget={"rho": random.choice([1, 5])})
    dense, combined, plan = case.dense, case.combined(), case.plan
    dropped = {node for node in dense.columns if len(node[0]) + len(node[1]) < case.tree.depth}
    if not dropped:
        return
    known = {0: [ROOT]} if plan.publishes_total else {}
    known |= {level: list(nodes) for level, nodes in combined.items()}
    for name, listed in case.segments.items():
        found, k = case.release.segment_intervals(name), len(listed)
        for levels in case.level_pairs():
            areas, numbers = cells_of(case, levels)
            finest = next(
                nodes
                for level, nodes in known.items()
                if all(mine >= theirs for mine, theirs in zip(case.tree.level_pair(level), levels, strict=True))
            )
            lower, upper = found.of_cells(*levels, numbers[:, 0], numbers[:, 1])
            for cell, low, high in zip(areas, lower, upper, strict=True):
                mine = [node for node in finest if within(node, cell)]
                above = [node for node in dropped if within(cell, node) and node not in mine]
                for s, category in enumerate(listed):
                    if not mine:
                        tops = [top_of(dense, node, name, category) for node in above or dropped if meets(node, cell)]
                        assert low[s] == 0
                        assert high[s] == tops[0] if above else high[s] <= sum(tops)
                        continue
                    taken = [any(within(column, node) for node in mine) for column in dense.columns]
                    if len(mine) == 1:  # a measured node, by this name or another
                        if within(cell, mine[0]):
                            assert_is_interval((low[s], high[s]), *dense.segment(taken, name, category))
                        continue
                    contrast, doubt = dense.contrast(taken, name, category)
                    total = sum(combined_at(combined, node)[0] for node in mine)
                    noise = sum(combined_at(combined, node)[1] for node in mine)
                    about = (np.array([contrast + total / k + error]) for error in (-1e-6, 1e-6))
                    below, above_it = (
                        [int(bound(end, np.array([doubt + noise / k**2]))[0]) for bound in (lower_bound, upper_bound)]
                        for end in about
                    )
                    assert below[0] <= low[s] <= above_it[0]
                    unseen = [node for node in dropped if meets(node, cell) and node not in mine]
                    assert (
                        below[1] <= high[s] <= above_it[1] + sum(top_of(dense, node, name, category) for node in unseen)
                    )


def top_of(dense, node, name: str, category: str) -> int:
    """Most trips of a dropped node in a category: those of the category, or all."""
    fits = dense.total(dense.inside(node)), dense.segment(dense.inside(node), name, category)
    return min(int(upper_bound(*(np.array([value]) for value in fit))[0]) for fit in fits)


def combined_at(combined, node):
    return next(nodes[node] for nodes in combined.values() if node in nodes)


@settings(max_examples=15)
@given(random=RANDOMS)
def test_one_tree_is_measured_selected_by_the_combined_totals(random: Random):
    """The same nodes for the totals and every segment: those that InfTDA keeps, given the rounded combination."""
    case = segment_case(random, DROPPING, shares="uniform", budget={"rho": random.choice([Fraction(1, 50), 1, 5])})
    tree = Tree(case.origins, case.destinations, case.tree.order)
    flows = {}
    for (origin, destination, *_), trips in case.truth.items():
        flows[origin, destination] = flows.get((origin, destination), 0) + trips
    steps = [counts.step.level for counts in combined_totals(case.plan, case.release.measured)]
    noisy = dict(zip(steps, (c.noisy.values() for c in combined_totals(case.plan, case.release.measured)), strict=True))
    for _, same in groupby(case.release.measured, lambda m: m.step.level):
        assert len({tuple(case.cells(m.step)) for m in same}) == 1
    nodes = {step.level: case.cells(step) for step in case.plan.steps}
    reference = inftda(
        tree,
        flows,
        lambda level, k: int(noisy[level][k]) - case.true(nodes[level][k]) if k < len(noisy[level]) else 0,
        total_is_public=case.plan.publishes_total,
    )
    for level in steps:
        assert list(reference.noisy[level]) == nodes[level]


@MECHANISMS
@settings(max_examples=10)
@given(random=RANDOMS)
def test_each_query_is_one_vector_of_true_counts_and_noise(mechanism, random: Random):
    """All nodes in the first category, then in the second: each cell has noise of its own position."""
    noise = SeededNoise(random.randrange(2**32))
    case = segment_case(random, mechanism, noise=noise)
    for m in case.release.measured:
        name, nodes = getattr(m.step, "breakdown", None), case.cells(m.step)
        categories = [None] if name is None else case.segments[name]
        true = [case.true(node, category and name, category) for category in categories for node in nodes]
        drawn = noise.draw(m.step.variance, m.step.number, 0, len(true))
        assert (m.noisy.values() - drawn).tolist() == true


# -- integers ----------------------------------------------------------------------------------------------------------


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


@settings(max_examples=10)
@given(random=RANDOMS)
def test_released_segments_are_nearly_the_conditional_least_squares(random: Random):
    """Far from 0, where no estimate is cut: children, given their totals and their parent's segments, to two trips."""
    case = segment_case(
        random, least_trips=10**6, most_trips=2 * 10**6, budget={"rho": Fraction(1, 1000)}, most_pairs=12
    )
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


@MECHANISMS
@settings(max_examples=10)
@given(random=RANDOMS)
def test_released_segments_sum_to_the_released_totals(mechanism, random: Random):
    """At every pair of levels: whole numbers of at least 0; and the totals are listed as without segments."""
    case = segment_case(random, mechanism)
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
            summed = by_segment.groupby(["origin", "destination"])["trips"].sum()
            totals = release.flows_at(*levels).set_index(["origin", "destination"])["trips"]
            assert summed.sort_index().to_dict() == totals.sort_index().to_dict()
    if case.plan.publishes_total:
        assert release.leaves.trips.sum() == case.trips


def without_segments(case: SegmentCase, noise, **changes):
    """The release without segments at the noise that the totals have with them."""
    spent = sum(step.rho for step in case.plan.steps if not step.by_segment)
    plan = plan_release(
        case.tree.origin,
        destination_geography=case.tree.destination,
        unit=case.plan.unit,
        budget=Budget(rho=spent, delta=1e-8, shares=case.plan.budget.shares),
        mechanism=case.plan.mechanism,
        tree=case.tree.order,
        acceptance=NO_FAULTS,
    )
    counts = count_trips(frame_of(case.truth, case.segments).drop(columns=list(case.segments)), plan.tree)
    return run_plan(plan, counts, noise, MemoryMeasurements())


def assert_same_totals(release, other) -> None:
    for column in ("origin", "destination", "trips"):
        assert getattr(release.leaves, column).tobytes() == getattr(other.leaves, column).tobytes()


@MECHANISMS
@settings(max_examples=10)
@given(random=RANDOMS)
def test_totals_that_are_measured_alone_are_todays_byte_for_byte(mechanism, random: Random):
    """Where sums of segments have the weight 0, from the same draws."""
    noise = SeededNoise(random.randrange(2**32))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            CombinedTotals,
            "of",
            classmethod(lambda cls, total, _: cls(total.level, (1, *[0] * len(_)), total.variance)),
        )
        case = segment_case(random, mechanism, noise=noise)
        alone = without_segments(case, noise)
        assert [step.variance for step in alone.plan.steps] == [total.variance for total in case.plan.totals]
        assert_same_totals(case.release, alone)


class SameSums:
    """Test double: noise of which the first category has that of the total, and the others none."""

    def __init__(self, noise: ListedNoise, depth: int) -> None:
        self.noise, self.depth = noise, depth
        self.cells: dict[int, int] = {0: 1}

    def draw(self, variance, level, first, size):
        if level <= self.depth:
            self.cells[level] = first + size
        at = level % (self.depth + 1)
        drawn = self.noise.draw(variance, at, first, size)
        return np.where(first + np.arange(size) < self.cells[at], drawn, 0)


@MECHANISMS
@settings(max_examples=10)
@given(random=RANDOMS, listed=st.lists(st.integers(-9, 9), min_size=1, max_size=12))
def test_sums_of_segments_that_say_the_same_change_no_total(mechanism, random: Random, listed):
    """Whatever they weigh: the combination is the noisy total itself, and all precisions grow by one factor."""
    noise = ListedNoise(listed)
    unit = random.choice([PrivacyUnit("trip"), PrivacyUnit("trip", "unbounded")])
    depth = 2 * random.randint(1, 2)
    origins, destinations = ([(side, f"{side}{k}")[-depth // 2 :] for k in range(3)] for side in "od")
    segments = {"mode": ["car", "bus", "walk"], "hour": ["am", "pm"]}
    truth = Counter({cell: random.choice([0, 0, 1, 8]) for cell in product(origins, destinations, *segments.values())})
    case = made(
        origins,
        destinations,
        segments,
        truth,
        noise=SameSums(noise, depth),
        mechanism=mechanism,
        unit=unit,
        budget={"rho": 1},
        segment_share=random.choice([None, "1/5", "0.9"]),
    )
    assert_same_totals(case.release, without_segments(case, noise))


# -- no noise ----------------------------------------------------------------------------------------------------------

TINY = {
    "one zone": ([("z",)], [("z",)]),
    "one zone of three levels": ([("a", "b", "z")], [("a", "b", "z")]),
    "levels of one child": ([("a", "b", "y"), ("a", "b", "z")], [("c", "d", "x"), ("c", "e", "w")]),
    "unequal": ([("a", "v"), ("b", "w"), ("b", "x")], [("c", "y")]),
}


def assert_is_the_truth(case: SegmentCase) -> None:
    release, names = case.release, (case.tree.origin.level_names, case.tree.destination.level_names)
    for o_level, d_level in case.level_pairs():
        levels = names[0][o_level], names[1][d_level]
        for name in case.segments:
            place = 2 + list(case.segments).index(name)
            expected: Counter = Counter()
            for cell, trips in case.truth.items():
                codes = [(cell[side][:n] or ("all",))[-1] for side, n in enumerate((o_level, d_level))]
                expected[*codes, cell[place]] += trips
            found = release.flows_at(*levels, segment=name)
            rows = found[found["trips"] > 0].to_numpy().tolist()
            assert {tuple(row[:3]): row[3] for row in rows} == +expected
            assert len(rows) == len(+expected)


@MECHANISMS
@settings(max_examples=10)
@given(random=RANDOMS)
def test_without_noise_the_truth_is_released_at_every_pair_of_levels(mechanism, random: Random):
    assert_is_the_truth(segment_case(random, mechanism, noise=no_noise(), most_trips=random.choice([1, 9, 10**9])))


@MECHANISMS
@pytest.mark.parametrize("trips", [0, 7])
@pytest.mark.parametrize("unit", UNITS[1:4], ids=["exact", "noisy", "users"])
@pytest.mark.parametrize("zones", TINY)
def test_without_noise_the_smallest_trees_are_released(mechanism, trips, unit, zones):
    """One zone, levels of one child, no trips."""
    origins, destinations = TINY[zones]
    segments = {"mode": ["car", "bus"], "hour": ["am", "noon", "pm"]}
    cells = list(product(origins, destinations, *segments.values()))
    truth = Counter(dict.fromkeys(cells[1::2], trips))
    case = made(
        origins, destinations, segments, truth, noise=no_noise(), mechanism=mechanism, unit=unit, budget={"rho": 1}
    )
    assert_is_the_truth(case)
    for name, listed in segments.items():
        lower, upper = case.release.segment_intervals(name).of_cells(0, 0, *np.zeros((2, 1), dtype=np.int32))
        true = [case.true(ROOT, name, category) for category in listed]
        assert (lower[0] <= true).all()
        assert (true <= upper[0]).all()


def test_records_are_released_by_segment_as_they_are():
    """From one row a trip: the records' columns, whose categories that are not listed go to the unknown one."""
    origins = destinations = [("a", "aa"), ("a", "ab"), ("b", "ba")]
    segments = {"mode": ["car", "bus", "else"]}
    rows = [("aa", "ba", "car"), ("aa", "ba", "car"), ("aa", "ba", "horse"), ("ba", "ba", "bus"), ("ba", "aa", "else")]
    frame = frame_of(Counter(), segments).drop(columns="trips").reindex(range(len(rows)))
    frame[["origin", "destination", "mode"]] = rows
    case = made(origins, destinations, segments, Counter(), noise=no_noise(), budget={"rho": 1})
    release = release_flows(
        frame,
        case.tree.origin,
        unit=UNITS[0],
        budget=Budget(rho=1, delta=1e-8),
        segments=segments,
        segment_unknown={"mode": "else"},
        fault_threshold=DEFAULT_ACCEPTANCE.fault_threshold,
        noise=no_noise(),
    )
    found = release.flows_at("level_2", "level_2", segment="mode")
    assert sorted(row for row in found.to_numpy().tolist() if row[-1]) == [
        ["aa", "ba", "car", 2],
        ["aa", "ba", "else", 1],
        ["ba", "aa", "else", 1],
        ["ba", "ba", "bus", 1],
    ]


# -- pieces and threads ------------------------------------------------------------------------------------------------


@MECHANISMS
@settings(max_examples=4)
@given(random=RANDOMS)
def test_neither_pieces_nor_threads_change_a_byte(mechanism, random: Random):
    """Measurements, released tables and intervals; noise is a function of level and position."""
    seed, noise = random.randrange(2**32), SeededNoise(random.randrange(2**32))
    found = set()
    for chunk, block, threads in ((1 << 17, 1 << 20, "1"), (1, 1, "3"), (7, 5, "2")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(flow_tree, "CHUNK_CHILDREN", chunk)
            patch.setattr(intervals, "_BLOCK", block, raising=False)
            patch.setenv("OD_THREADS", threads)
            case = segment_case(Random(seed), mechanism, noise=noise, most_pairs=60)  # noqa: S311
            arrays = [m.noisy.values() for m in case.release.measured]
            arrays += [case.release.leaves.origin, case.release.leaves.destination, case.release.leaves.trips]
            for name in case.segments:
                arrays.append(case.release.segments[name])
                for levels in case.level_pairs():
                    _, numbers = cells_of(case, levels)
                    arrays += case.release.segment_intervals(name).of_cells(*levels, numbers[:, 0], numbers[:, 1])
            found.add(b"|".join(np.ascontiguousarray(array).tobytes() for array in arrays))
    assert len(found) == 1
