"""The mechanisms of Kuo et al. against an oracle group by group, on random trees; what they promise of every output."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import chain

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from od_core import Geography, OdError
from od_core.group_sizes.groups import Frame
from od_core.group_sizes.mechanisms import MECHANISMS as MECHANISM_NAMES
from od_core.group_sizes.mechanisms import BottomUp, Cumulative, GroupSizeMechanism, MixedQueries, Naive, Sizes
from od_core.group_sizes.merging import Runs, compute_size_keys, merge_levels
from tests.od_core.group_sizes.trees import assert_consistent, random_geography
from tests.od_core.oracles import group_sizes as oracle
from tests.od_core.strategies import geography_of, zone_lists

MECHANISMS: list[GroupSizeMechanism] = [Naive(), Sizes(), Cumulative(), Cumulative("least_squares")]
MECHANISMS += [BottomUp(), BottomUp("sizes"), Sizes("least_absolute")]


def named(mechanism: GroupSizeMechanism) -> str:
    return " ".join((mechanism.name, *mechanism.options.values()))


every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS, ids=named)


@dataclass
class World:
    """Public facts, and the true sizes of the groups of every leaf area."""

    frame: Frame
    sizes: list[list[int]]

    def truth(self) -> list[np.ndarray]:
        codes = range(self.frame.top_code + 1)
        leaves = np.array([[sizes.count(size) for size in codes] for sizes in self.sizes], dtype=np.int64)
        return [self.frame.sum_at_level(leaves, level) for level in self.frame.levels]

    def measured(self, mechanism: GroupSizeMechanism) -> list[np.ndarray]:
        """True values of what the mechanism measures, in its shapes."""
        queries, codes = mechanism.list_level_queries(self.frame.geography.depth), np.arange(self.frame.top_code + 1)
        values: list[np.ndarray] = []
        for query, table in zip(queries, self.truth()[-len(queries) :], strict=True):
            if query == "histogram":
                values.append(table)
            elif query == "cumulative":
                values.append(np.ascontiguousarray(np.cumsum(table, axis=1)[:, :-1]))
            else:
                values.append(np.concatenate([np.repeat(codes, row) for row in table]))
        return values


def random_world(rng: np.random.Generator, most_groups: int = 7, most_top_code: int = 9) -> World:
    """Of one to four levels, one to three areas at the first, one to three children each."""
    tops, depth = int(rng.integers(1, 4)), int(rng.integers(1, 5))
    geography = random_geography(rng, tops=tops, depth=depth, max_fan_out=3)
    top_code = int(rng.integers(1, most_top_code + 1))
    groups = rng.integers(0, most_groups + 1, len(geography.zones)) * (rng.random(len(geography.zones)) < 0.9)
    sizes = [np.minimum(rng.geometric(0.3, number) - 1, top_code).tolist() for number in groups]
    return World(Frame(geography, groups.astype(np.int64), top_code), sizes)


def noisy_values(world: World, mechanism: GroupSizeMechanism, rng: np.random.Generator, p: float) -> list[np.ndarray]:
    """What the mechanism measures plus two-sided geometric noise."""
    true = world.measured(mechanism)
    return [each + rng.geometric(p, each.shape) - rng.geometric(p, each.shape) for each in true]


def children_of(geography: Geography) -> dict[str, list[str]]:
    """The tree of levels 1 to L by codes, each with its level: codes may repeat."""
    tree: dict[str, list[str]] = {}
    for level in range(2, geography.depth + 1):
        for code, parent in zip(geography.codes[level], geography.parents[level].tolist(), strict=True):
            tree.setdefault(f"{level - 1} {geography.codes[level - 1][parent]}", []).append(f"{level} {code}")
    return tree


def by_oracle(frame: Frame, mechanism: GroupSizeMechanism, noisy: list[np.ndarray], scale: Fraction) -> list[list[int]]:
    """Leaf histograms of the mechanism, group by group."""
    depth, geography = frame.geography.depth, frame.geography
    by_default = {"sizes": 2}
    powers = {"least_squares": 2, "least_absolute": 1}
    groups, queries = {}, mechanism.list_level_queries(depth)
    for level, query, values in zip(frame.levels[-len(queries) :], queries, noisy, strict=True):
        totals = frame.count_groups(level).tolist()
        ends = np.cumsum([0, *totals]).tolist()
        for area, (code, total) in enumerate(zip(geography.codes[level], totals, strict=True)):
            own = values[ends[area] : ends[area + 1]] if query == "sizes" else values[area]
            power = powers.get(mechanism.options.get("regression", ""), by_default.get(query, 1))
            groups[f"{level} {code}"] = oracle.groups_of(query, own.tolist(), total, frame.top_code, scale, power)
    leaves = [f"{depth} {code}" for code in geography.zones]
    if not mechanism.leaves_alone:
        groups = oracle.merged(children_of(geography), [f"1 {code}" for code in geography.codes[1]], groups)
    return [oracle.leaf_histogram(groups[leaf], frame.top_code) for leaf in leaves]


def assert_keeps_its_promise(frame: Frame, released: list[np.ndarray]) -> None:
    """Whole numbers of at least 0 that sum to G_r in every area, children to their parent cell by cell."""
    assert_consistent(frame, released, all_totals=True)


@given(st.data())
def test_every_mechanism_keeps_its_promise_and_equals_the_oracle_for_any_noisy_values(data):
    geography = geography_of(data.draw(zone_lists()))
    groups = np.array([data.draw(st.integers(0, 6)) for _ in geography.zones], dtype=np.int64)
    frame = Frame(geography, groups, data.draw(st.integers(1, 6)))
    values = st.integers(-4, 9) | st.integers(-(2**50), 2**50)
    noisy: dict[str, list[np.ndarray]] = {}
    for query in sorted({mechanism.query for mechanism in MECHANISMS}):
        for level in frame.levels:
            totals = frame.count_groups(level)
            cells = {"histogram": frame.top_code + 1, "cumulative": frame.top_code}
            shape = (totals.sum(),) if query == "sizes" else (len(totals), cells[query])
            size = int(np.prod(shape))
            drawn = data.draw(st.lists(values, min_size=size, max_size=size))
            noisy.setdefault(query, []).append(np.array(drawn, dtype=np.int64).reshape(shape))
    queries = st.lists(st.sampled_from(["cumulative", "sizes"]), min_size=geography.depth, max_size=geography.depth)
    for mechanism in (*MECHANISMS, MixedQueries(data.draw(queries))):
        asked = mechanism.list_level_queries(geography.depth)
        measured = [noisy[query][level - 1] for query, level in zip(asked, frame.levels[-len(asked) :], strict=True)]
        released = mechanism.estimate(frame, measured, Fraction(7, 3))
        assert_keeps_its_promise(frame, released)
        assert released[-1].tolist() == by_oracle(frame, mechanism, measured, Fraction(7, 3)), named(mechanism)


@pytest.mark.parametrize(
    ("queries", "depth", "what"),
    [
        (("cumulative",), 2, "1 queries are given for a geography of 2 levels"),
        ("cumulative, sizes, sizes", 2, "3 queries are given"),
        ((), 2, "0 queries"),
        ("cumulative, histogram", 2, "there is no query of mixed 'histogram'"),
        (("cumulative", 7), 2, "there is no query of mixed 7"),
    ],
)
def test_queries_that_do_not_fit_are_refused(queries, depth, what):
    with pytest.raises(OdError, match=f"OD-GROUPS-QUERIES: {what}"):
        MixedQueries(queries).list_level_queries(depth)


def test_the_regression_of_sizes_is_stated_only_where_it_is_not_that_of_published_releases():
    assert MECHANISM_NAMES.make("sizes").options == Sizes("least_squares").options == {}
    assert MECHANISM_NAMES.make("sizes", regression="least_squares") == Sizes()
    absolute = MECHANISM_NAMES.make("sizes", regression="least_absolute")
    assert absolute.options == {"regression": "least_absolute"}
    assert MECHANISM_NAMES.make("sizes", **absolute.options) == absolute != Sizes()


@pytest.mark.parametrize("kind", [Sizes, Cumulative])
def test_an_unknown_regression_is_refused(kind):
    with pytest.raises(OdError, match="OD-GROUPS-REGRESSION: there is no regression 'absolute'"):
        kind("absolute")


def test_noisy_sizes_are_replaced_by_medians_where_their_distances_are_absolute():
    """Noisy sizes 9, 1, 0: their mean is 10/3, their median 1; of 4, 1 all from 1 to 4 are best, and 2.5 the middle.

    The second row has a size of its own, 5; sizes are kept in halves, and weighed by the number of groups.
    """
    areas = pd.DataFrame({"leaf": ["a", "b"]}, dtype="str")
    frame = Frame(Geography.from_frame(areas, levels=["leaf"]), np.array([3, 3]), 9)
    noisy = np.array([9, 1, 0, 4, 1, 5])
    runs = Sizes("least_absolute").estimate_level(frame, 1, noisy, Fraction(1))
    assert runs.first.tolist() == [0, 1, 3]
    assert runs.groups.tolist() == [3, 2, 1]
    assert (runs.totals / runs.weights).tolist() == [1, 2.5, 5]
    assert runs.weights.tolist() == [6, 4, 2]
    histograms = Sizes("least_absolute").estimate(frame, [noisy], Fraction(1))[0]
    assert [np.repeat(np.arange(10), row).tolist() for row in histograms] == [[1, 1, 1], [3, 3, 5]]
    squares = Sizes().estimate(frame, [noisy], Fraction(1))[0]
    assert np.repeat(np.arange(10), squares[0]).tolist() == [3, 3, 3]


def test_ties_are_shared_as_in_the_example_of_the_paper():
    """Section 5.2.1: 300 groups of size 1 at the parent; 200, 100 and 100 at the children: halves of each match."""
    areas = pd.DataFrame({"top": ["t"] * 3, "leaf": ["c1", "c2", "c3"]}, dtype="str")
    geography = Geography.from_frame(areas, levels=["top", "leaf"])
    frame = Frame(geography, np.array([200, 100, 100]), 9)
    top = Runs.from_histograms(np.array([[0, 200, 0, 0, 0, 0, 0, 0, 0, 200]]))
    leaves = Runs.from_histograms(np.array([[0, 200] + [0] * 8, [0, 100] + [0] * 8, [0, 100] + [0] * 8]))
    merged = merge_levels(frame, [top, leaves])
    assert merged.first.tolist() == [0, 2, 4, 6]
    assert merged.groups.tolist() == [100, 100, 50, 50, 50, 50]
    assert merged.weights.tolist() == [400, 400, 300, 300, 300, 300]
    assert merged.totals.tolist() == [400, 2000, 300, 1900, 300, 1900]


def test_merges_as_the_oracle_does_to_the_last_fraction_where_sizes_have_several_weights():
    """The first level as if merged before: of one size, groups of several weights, which decides who shares what."""
    rng = np.random.default_rng(12)
    shared_in_turn = 0
    for _ in range(60):
        frame = random_world(rng).frame
        geography, first = frame.geography, np.repeat(np.arange(len(frame.count_groups(1))), frame.count_groups(1))
        sizes, weights = rng.integers(0, 4, len(first)), rng.integers(1, 4, len(first))
        levels = [Runs.from_pieces(len(frame.count_groups(1)), first, np.ones_like(first), sizes * weights, weights)]
        for level in frame.levels[1:]:
            runs = Runs.from_histograms(
                np.array([rng.multinomial(total, [0.25] * 4) for total in frame.count_groups(level)])
            )
            weights = rng.integers(1, 4, len(runs.groups))
            levels.append(Runs(runs.first, runs.groups, runs.totals // runs.groups * weights, weights))
        found = groups_by_area(geography, geography.depth, merge_levels(frame, levels))
        groups = {}
        for level, runs in zip(frame.levels, levels, strict=True):
            groups |= groups_by_area(geography, level, runs)
        merged = oracle.merged(children_of(geography), [f"1 {code}" for code in geography.codes[1]], groups)
        for area, own in found.items():
            assert sorted(own) == sorted(merged[area])
        shared_in_turn += len(set(levels[0].totals / levels[0].weights)) < len(levels[0].groups)
    assert shared_in_turn > 15


def groups_by_area(geography: Geography, level: int, runs: Runs) -> dict[str, list[oracle.Group]]:
    """Groups as the oracle has them, the unit of variance being 1 / weight."""
    found: dict[str, list[oracle.Group]] = {f"{level} {code}": [] for code in geography.codes[level]}
    names = list(found)
    rows = zip(*(column.tolist() for column in (runs.areas, runs.groups, runs.totals, runs.weights)), strict=True)
    for area, number, total, weight in rows:
        found[names[area]] += [(Fraction(total, weight), Fraction(1, weight))] * number
    return found


def test_the_matching_of_the_oracle_has_the_least_cost():
    """Lemma 5.4, against the assignment problem."""
    rng = np.random.default_rng(9)
    for _ in range(200):
        counts = rng.integers(0, 5, rng.integers(1, 4))
        drawn = {f"c{k}": rng.integers(0, 6, n).tolist() for k, n in enumerate(counts)}
        sizes = {area: [(Fraction(size), Fraction(1)) for size in own] for area, own in drawn.items()}
        parent = [(Fraction(int(s), 2), Fraction(1)) for s in rng.integers(0, 12, counts.sum())]
        matching = oracle.match(parent, sizes)
        assert sorted(group for group, _, _ in matching) == sorted(parent)
        assert sorted((c, g) for _, c, g in matching) == sorted((c, g) for c in sizes for g in sizes[c])
        below = [float(size) for size, _ in chain.from_iterable(sizes.values())]
        costs = np.abs(np.subtract.outer([float(size) for size, _ in parent], below))
        assert sum(abs(float(a[0] - b[0])) for a, _, b in matching) == costs[linear_sum_assignment(costs)].sum()


@given(
    st.lists(
        st.tuples(st.integers(0, 2**20), st.integers(1, 2**26 - 1)) | st.tuples(st.integers(0, 9), st.integers(1, 9)),
        min_size=2,
        max_size=8,
    ),
    st.integers(-1, 1),
)
def test_keys_order_sizes_as_fractions_do(fractions, shift):
    """Multiples are equal; neighbours of a large denominator are not."""
    numbers = [(size * weight + min(shift, size), weight) for size, weight in fractions]
    numbers += [(3 * total, 3 * weight) for total, weight in numbers if 3 * weight < 2**26]
    totals, weights = (np.array(side, dtype=np.int64) for side in zip(*numbers, strict=True))
    part, whole = compute_size_keys(totals, weights)
    keys = list(zip(whole.tolist(), part.tolist(), strict=True))
    exact = [Fraction(total, weight) for total, weight in numbers]
    for key, size in zip(keys, exact, strict=True):
        for other_key, other_size in zip(keys, exact, strict=True):
            assert (key < other_key, key == other_key) == (size < other_size, size == other_size)


@every_mechanism
def test_noisy_values_of_another_shape_are_refused(mechanism):
    world = random_world(np.random.default_rng(10))
    good = world.measured(mechanism)
    others, last = good[:-1], good[-1]
    bad = [others, [*good, last]]
    bad += [[*others, each] for each in (last[:-1], last.astype(np.float64), last.reshape(-1, 1))]
    for noisy in bad:
        with pytest.raises(OdError, match="OD-GROUPS-SHAPE"):
            mechanism.estimate(world.frame, noisy, Fraction(1))


@every_mechanism
@pytest.mark.parametrize("far", [2**62, -(2**63)])
def test_noisy_values_whose_sums_leave_64_bits_are_refused(mechanism, far):
    noisy = (world := random_world(np.random.default_rng(10))).measured(mechanism)
    noisy[-1].reshape(-1)[-1] = far
    with pytest.raises(OdError, match="OD-GROUPS-OVERFLOW") as error:
        mechanism.estimate(world.frame, noisy, Fraction(1))
    assert error.value.spent == "draws already made stay charged"


def test_groups_that_cannot_be_weighted_or_are_not_all_there_are_refused():
    geography = Geography.from_frame(pd.DataFrame({"leaf": ["a", "b"]}, dtype="str"), levels=["leaf"])
    with pytest.raises(OdError, match="OD-GROUPS-SIZE"):
        Cumulative().estimate(Frame(geography, np.array([2**31, 0]), 1), [np.array([[1], [1]])], Fraction(1))
    with pytest.raises(OdError, match="OD-GROUPS-TOTALS"):
        merge_levels(Frame(geography, np.array([2, 3]), 1), [Runs.from_histograms(np.array([[2, 1], [1, 1]]))])
