"""Measured numbers of groups: what one member changes in all draws together, nearest numbers, padded and cut sizes."""

from collections import Counter
from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls
from scipy.stats import wasserstein_distance

from od_core import Budget, Geography, OdError, PrivacyUnit, TopCodeEstimate, evaluate_group_sizes, plan_group_sizes
from od_core.group_sizes.groups import Frame, GroupSizes
from od_core.group_sizes.mechanisms import MECHANISMS
from od_core.group_sizes.nearest_curves import fit_numbers
from od_core.group_sizes.plan import SENSITIVITY, SENSITIVITY_OF_NUMBERS, GroupSizePlan
from od_core.group_sizes.publishing import GROUP_SIZES, open_group_sizes
from od_core.group_sizes.release import iterate_true_values
from tests.od_core.doubles import ListedLaplace
from tests.od_core.group_sizes.doubles import Measuring
from tests.od_core.group_sizes.test_publication import bundle, published
from tests.od_core.group_sizes.test_release import EXPECT_NOISE, GEOGRAPHY, R1, DrawsNothing, groups, released
from tests.od_core.group_sizes.test_sensitivity import BOUNDED, UNBOUNDED
from tests.od_core.group_sizes.test_sensitivity import GEOGRAPHY as SMALL
from tests.od_core.ledger.ledger_rows import declared, rows

# The oracle: Entities, Groups and Hierarchy of [kuo2018countofcounts, section 3], in plain lists. A group is seen in an
# area if it has an entity there, so a table is the sizes, of at least 1, of the groups of each area.

Table = tuple[tuple[int, ...], ...]
AREAS_OF_LEVEL = {1: ((0, 1), (2,)), 2: ((0,), (1,), (2,))}
"""Leaf areas a1, a2 and b1 below each area of A and B, and of the leaves."""

K, MOST = 2, 4
"""Top code, which sizes exceed, and number of entities of the largest table."""


def all_tables(entities: int) -> list[Table]:
    """Every table of three areas with at most some entities."""
    areas = [
        some for groups in range(entities + 1) for some in combinations_with_replacement(range(1, entities + 1), groups)
    ]
    areas = [some for some in areas if sum(some) <= entities]
    return [table for table in product(areas, repeat=3) if sum(map(sum, table)) <= entities]


def one_entity_more(table: Table) -> set[Table]:
    """An entity in any group of any area, or in one that was not seen there."""
    found = set()
    for area, sizes in enumerate(table):
        for size in {0, *sizes}:
            others = list(sizes)
            if size:
                others.remove(size)
            found.add((*table[:area], tuple(sorted([*others, size + 1])), *table[area + 1 :]))
    return found


def sizes_at(table: Table, level: int) -> list[list[int]]:
    return [sorted(size for area in areas for size in table[area]) for areas in AREAS_OF_LEVEL[level]]


def asked(table: Table, query: str, level: int, numbers: list[int]) -> list[int]:
    """A query of all areas of a level by its definition, of as many groups as published: the largest, or with zeros."""
    values = []
    for sizes, number in zip(sizes_at(table, level), numbers, strict=True):
        held = sorted(([0] * number + sizes)[len(sizes) :])
        assert len(held) == number
        histogram = [sum(min(size, K) == j for size in held) for j in range(K + 1)]
        cumulative = [sum(histogram[: j + 1]) for j in range(K)]
        values += {"histogram": histogram, "cumulative": cumulative, "sizes": [min(size, K) for size in held]}[query]
    return values


def counted(table: Table) -> GroupSizes:
    area = np.repeat(np.arange(3, dtype=np.int32), list(map(len, table)))
    return GroupSizes(area, np.array([size for sizes in table for size in sizes], dtype=np.int64))


def measured(frame: Frame, query, level: int, table: Table) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int64), *iterate_true_values(frame, query, level, counted(table))])


TABLES = all_tables(MOST)
NUMBERS = [[*numbers] for numbers in product(range(3), repeat=3)]
"""Published numbers of the leaf areas: below, at and above the true ones, and 0."""


def framed(numbers: list[int]) -> Frame:
    return Frame(SMALL, np.array(numbers), K, measured=True)


def at_level(numbers: list[int], level: int) -> list[int]:
    return [sum(numbers[area] for area in areas) for areas in AREAS_OF_LEVEL[level]]


@pytest.mark.parametrize("query", SENSITIVITY)
def test_the_queries_are_those_of_the_largest_groups_with_zeros(query):
    for table, numbers, level in product(TABLES[::3], NUMBERS, AREAS_OF_LEVEL):
        expected = asked(table, query, level, at_level(numbers, level))
        assert measured(framed(numbers), query, level, table).tolist() == expected


def test_the_number_of_an_area_is_that_of_its_groups_with_a_member():
    """A group of size 0 that is listed is not counted."""
    for table, level in product(TABLES, AREAS_OF_LEVEL):
        assert measured(framed([0, 0, 0]), "numbers", level, table).tolist() == list(map(len, sizes_at(table, level)))
    assert measured(framed([0, 0, 0]), "numbers", 2, ((0, 0, 3), (), (0,))).tolist() == [1, 0, 0]


def neighbours_of(unit: PrivacyUnit, most: int = MOST) -> set[tuple[Table, Table]]:
    """Pairs of tables of at most some entities that differ by one entity more, or by one that is elsewhere."""
    tables = all_tables(most - 1)
    if unit == UNBOUNDED:
        return {(table, more) for table in tables for more in one_entity_more(table)}
    return {pair for table in tables for pair in product(one_entity_more(table), repeat=2)}


@pytest.mark.representatives
@pytest.mark.parametrize(("unit", "factor"), [(UNBOUNDED, 1), (BOUNDED, 2)])
@pytest.mark.parametrize("query", SENSITIVITY)
def test_one_member_costs_epsilon_in_all_draws_together_and_no_less(unit, factor, query):
    """The loss of a draw is at most the L1 change over its scale. Over all tables, and all numbers that are published.

    The changes of one pair of tables and one vector of published numbers are added up over all steps. The largest sum
    is epsilon: the noise is wide enough, and no wider.
    """
    given = {"unit": unit, "budget": Budget(epsilon=1), "mechanism": Measuring(query), "top_code": K}
    plan = plan_group_sizes(SMALL, groups_share="1/3", **given)
    pairs = neighbours_of(unit)
    tables = sorted({table for pair in pairs for table in pair})
    place = {table: k for k, table in enumerate(tables)}
    one, other = (np.array([place[pair[end]] for pair in pairs]) for end in (0, 1))
    of_numbers, worst = Fraction(0), Fraction(0)
    losses = Counter[int]()
    frames = [framed(numbers) for numbers in NUMBERS]
    sums = np.zeros((len(frames), len(pairs)), dtype=np.int64)
    denominator = int(np.lcm.reduce([step.scale.numerator for step in plan.steps]))
    for step in plan.steps:
        weight = int(denominator / step.scale)
        assert denominator / step.scale == weight
        largest = 0
        for number, frame in enumerate(frames):
            values = np.array([measured(frame, plan.query_of(step), step.level, table) for table in tables])
            changes = np.abs(values[one] - values[other]).sum(axis=1)
            sums[number] += weight * changes
            largest = max(largest, int(changes.max()))
        losses[step.number] = largest
        assert largest == step.sensitivity
    worst = Fraction(int(sums.max()), denominator)
    assert worst == plan.spent.epsilon == 1
    of_numbers = sum(step.epsilon for step in plan.steps if plan.query_of(step) == "numbers")
    assert of_numbers == Fraction(1, 3)
    assert losses == {1: factor * SENSITIVITY[query], 2: factor * SENSITIVITY[query], 4: factor, 5: factor}


def test_one_member_moves_the_padded_and_cut_sizes_by_a_vector_of_length_one():
    """The squared L2 change: 1 of numbers, cumulative counts and sizes, and 2 of histograms; moved, 2 and 6."""
    changed: dict[tuple[str, str], int] = {}
    for (name, unit), numbers in product((("added", UNBOUNDED), ("moved", BOUNDED)), ([1, 2, 1], [0, 1, 2])):
        for one, other in neighbours_of(unit, MOST - 1):
            for query in (*SENSITIVITY, "numbers"):
                values = [measured(framed(numbers), query, 2, table) for table in (one, other)]
                square = int(((values[0] - values[1]) ** 2).sum())
                changed[name, query] = max(changed.get((name, query), 0), square)
    added = {query: changed["added", query] for query in (*SENSITIVITY, "numbers")}
    assert added == {"histogram": 2, "cumulative": 1, "sizes": 1, "numbers": SENSITIVITY_OF_NUMBERS}
    moved = {query: changed["moved", query] for query in (*SENSITIVITY, "numbers")}
    assert moved == {"histogram": 6, "cumulative": 2, "sizes": 2, "numbers": 2}


# Nearest numbers.

NOISY = st.lists(st.integers(-3, 5), min_size=5, max_size=5)


def distance(leaves, noisy) -> int:
    """Squared distance over the levels of A = a1 + a2, B = b1, and the leaves."""
    a1, a2, b1 = leaves
    return sum((x - y) ** 2 for x, y in zip([a1 + a2, b1, a1, a2, b1], noisy, strict=True))


@given(NOISY)
@settings(max_examples=60, deadline=None)
def test_published_numbers_are_the_nearest_ones(noisy):
    """By enumeration of all whole numbers of at least 0."""
    found = fit_numbers(SMALL, [np.array(noisy[:2]), np.array(noisy[2:])], Fraction(1, 50))
    assert (found >= 0).all()
    assert distance(found.tolist(), noisy) == min(distance(leaves, noisy) for leaves in product(range(7), repeat=3))


def test_numbers_of_a_large_tree_are_near_the_nearest_real_ones():
    """Against the solver of SciPy for non-negative least squares: by half a group an area at most, on average."""
    zones = pd.DataFrame({"zone": [f"z{k:03d}" for k in range(240)]})
    zones["region"] = zones["zone"].str[:3]
    geography = Geography.from_frame(zones, ["region", "zone"])
    generator = np.random.default_rng(5)
    true = generator.poisson(generator.choice([0, 1, 30], 240))
    sums = np.concatenate([(geography.parents[2] == np.arange(24)[:, None]).astype(float), np.eye(240)])
    noisy = np.rint(sums @ true + generator.laplace(0, 4, 264)).astype(np.int64)
    found = fit_numbers(geography, [noisy[:24], noisy[24:]], Fraction(4))
    _, least = nnls(sums, noisy)
    assert (found >= 0).all()
    assert np.abs(sums @ found - noisy).max() < 60
    assert ((sums @ found - noisy) ** 2).sum() < least**2 + 264 / 4


# Plans.


@given(
    share=st.fractions(min_value=0, max_value=1).filter(lambda share: 0 < share < 1),
    top=st.sampled_from([None, Fraction(1, 7)]),
    unit=st.sampled_from([UNBOUNDED, BOUNDED]),
    name=st.sampled_from(list(MECHANISMS)),
)
@settings(deadline=None)
def test_numbers_have_their_share_and_the_sizes_the_rest(share, top, unit, name):
    given = {"unit": unit, "budget": Budget(epsilon=2), "mechanism": name, "groups_share": share}
    top_code = 9 if top is None else TopCodeEstimate(top, 9)
    if top is not None and share + top >= 1:
        with pytest.raises(OdError, match="OD-GROUPS-NUMBERS"):
            plan_group_sizes(GEOGRAPHY, top_code=top_code, **given)
        return
    plan = plan_group_sizes(GEOGRAPHY, top_code=top_code, **given)
    numbers = [step for step in plan.steps if plan.query_of(step) == "numbers"]
    assert [step.level for step in numbers] == [1, 2]
    assert {step.sensitivity for step in numbers} == {unit.differing_units}
    assert {step.epsilon for step in numbers} == {share * 2 / 2}
    assert {step.scale for step in numbers} == {unit.differing_units / share}
    rest = 2 * (1 - share - (top or 0)) / len(plan.level_steps)
    assert {step.epsilon for step in plan.level_steps} == {rest}
    assert sum(step.epsilon for step in plan.steps) == plan.spent.epsilon == 2
    assert len({step.number for step in plan.steps}) == len(plan.steps)
    assert [*plan.steps[-len(plan.level_steps) :]] == [*plan.level_steps]
    again = GroupSizePlan.from_facts(plan.stored_facts, GEOGRAPHY, None)
    assert again.digest == plan.digest
    assert plan.replan(plan.unit, plan.budget).digest == plan.digest
    assert not {"groups", "groups_by_area"} & {*plan.facts()}


def test_a_plan_says_what_each_step_measures():
    plan = plan_group_sizes(
        GEOGRAPHY, unit=UNBOUNDED, budget=Budget(epsilon=1), mechanism="cumulative", top_code=3, groups_share="1/4"
    )
    assert plan.to_frame()["measured"].tolist() == [
        *["the number of groups"] * 2,
        *["the number of groups of each size or less"] * 2,
    ]
    assert plan.verdicts()[1].startswith("zone, the number of groups: the noise")
    assert "measured" not in released().plan.to_frame()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        *(({"groups_share": share}, "OD-GROUPS-NUMBERS") for share in (0, 1, "3/2", -1)),
        ({"groups_share": "a quarter"}, "OD-BUDGET-NUMBER"),
        ({"mechanism": None}, "OD-GROUPS-CHOICE.*public numbers"),
        ({"unit": PrivacyUnit("user", "unbounded", "id", 3)}, "OD-GROUPS-UNIT"),
        ({"budget": Budget(rho=1, delta="1e-8")}, "OD-BUDGET-KIND"),
        ({"top_code": TopCodeEstimate("3/4", 9)}, "OD-GROUPS-NUMBERS"),
        ({"top_code": None, "brackets": [2, 5]}, "OD-GROUPS-BRACKETS.*begin at 1"),
    ],
)
def test_bad_input(changes, code):
    with pytest.raises(OdError, match=code):
        released(**{"noise": DrawsNothing(), "groups_share": "1/4", **changes})


def test_numbers_that_are_both_given_and_measured_are_refused():
    given = {"unit": UNBOUNDED, "budget": Budget(epsilon=1), "mechanism": "cumulative", "top_code": 3}
    with pytest.raises(OdError, match="OD-GROUPS-NUMBERS"):
        plan_group_sizes(GEOGRAPHY, [1] * 4, groups_share="1/4", **given)


# Releases.


class NoiseOf:
    """Test double: the given noise on the numbers of groups, whose scale is 8, and none on what is measured later."""

    def __init__(self, *levels: list[int]) -> None:
        self.levels = list(levels)

    def draw(self, variance, level, first, size):
        raise NotImplementedError

    def draw_laplace(self, scale, size):
        noise = self.levels.pop(0) if self.levels else [0] * size
        return np.array(noise, dtype=np.int64)


def seen() -> pd.DataFrame:
    return groups()[lambda table: table["size"] > 0]


@pytest.mark.representatives
@pytest.mark.parametrize("name", [name for name in MECHANISMS if name not in EXPECT_NOISE])
def test_without_noise_the_groups_with_members_are_released(name):
    """Groups of size 0 in the input change nothing; area 04 has no groups at all."""
    release = released(mechanism=name, groups_share="1/4", noise=ListedLaplace([0]))
    truth = seen().assign(size=lambda table: table["size"].clip(upper=9))
    zones = release.histogram[release.histogram["level"] == "zone"]
    assert zones.set_index(["area", "size"])["groups"].to_dict() == truth.groupby(["area", "size"]).size().to_dict()
    errors = evaluate_group_sizes(release, groups())
    assert (errors[["earth_movers_distance", "l1_error", "total_error", "child_error"]] == 0).all(axis=None)
    numbers = release.numbers.set_index(["level", "area"])
    assert (numbers.loc["zone"]["slots"] == numbers.loc["zone"]["noisy"] + 18).all()
    for _, row in numbers.iterrows():
        assert row["lower"] <= row["groups"] <= row["upper"]
    assert numbers.loc["zone"]["groups"].to_dict() == {"04": 0} | truth.groupby("area").size().to_dict()


@pytest.mark.representatives
@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("noise", [-100, 400])
@pytest.mark.parametrize("changes", [{}, {"top_code": 1}, {"top_code": TopCodeEstimate("1/2", 20)}])
def test_tables_have_the_slots_of_noisy_numbers_whatever_these_are(name, noise, changes):
    """Noisy numbers below 0 in all areas, too small and too large; no groups; K = 1, and an estimated K."""
    for table in (groups(), groups().iloc[:0]):
        release = released(table, mechanism=name, groups_share="1/4", noise=ListedLaplace([noise]), **changes)
        slots, numbers = release.frame.groups, release.numbers.set_index("level")
        reach = reach_of(release.plan.steps[-3].scale)
        assert (slots >= reach).all()
        if noise == -100:
            assert (slots == reach).all()
        assert numbers.loc["zone", "slots"].tolist() == slots.tolist()
        for level, histograms in zip(release.frame.levels, release.histograms, strict=True):
            assert (histograms >= 0).all()
            assert not histograms[:, 0].any()
            named = GEOGRAPHY.levels[level - 1]
            assert numbers.loc[named, "groups"].tolist() == histograms.sum(axis=1).tolist()
            if release.plan.mechanism.keeps_totals:
                assert (histograms.sum(axis=1) <= release.frame.count_groups(level)).all()
        widths = [len(noisy) for step, noisy in release.measured if release.plan.query_of(step) == "sizes"]
        if release.plan.queries[2] == "sizes":
            assert widths[-1] == slots.sum()
        evaluate_group_sizes(release, table)
        assert [*GROUP_SIZES.check_invariants(release)] == []


def reach_of(scale: Fraction) -> int:
    """Least r that discrete Laplace noise exceeds, on both sides, in at most 1 of 10 cases."""
    a = np.exp(-1 / float(scale))
    return next(r for r in range(10_000) if 2 * a ** (r + 1) / (1 + a) <= 0.1)


@pytest.mark.parametrize("name", MECHANISMS)
def test_areas_may_have_no_slots(name):
    """Noise so narrow that there is no margin, and a noisy number of 0 or less in all areas."""
    budget = Budget(epsilon=200)
    release = released(mechanism=name, groups_share="1/2", budget=budget, noise=ListedLaplace([-100]))
    assert release.frame.groups.tolist() == [0] * 4
    assert release.histogram.empty
    assert evaluate_group_sizes(release, groups())["total_error"].sum() == 2 * (groups()["size"] > 0).sum()


def test_too_many_slots_are_refused_before_sizes_are_drawn():
    with pytest.raises(OdError, match=r"OD-GROUPS-SIZE: .*below 2\^31.*draws already made stay charged"):
        released(groups_share="1/4", noise=NoiseOf([0, 0, 1 << 31], [0, 0, 0, 1 << 31]))


def test_slots_come_from_the_draw_and_not_from_the_list():
    """Noise that says more and fewer groups; that of the regions is the sum of that of the zones.

    Where there are too few slots for the groups, even with the margin, the smallest groups are left out.
    """
    given = groups(400)
    kept = given[given["size"] > 0]
    true = kept.groupby("area").size()
    noise = [4, -30, 7, 2]
    at_regions = [noise[0] + noise[1], noise[2], noise[3]]
    release = released(given, mechanism="bottom_up", groups_share="1/4", noise=NoiseOf(at_regions, noise))
    assert reach_of(Fraction(8)) == 18
    expected = [int(true.get(area, 0)) + more + 18 for area, more in zip(GEOGRAPHY.zones, noise, strict=True)]
    assert release.frame.groups.tolist() == expected
    zones = release.histogram[release.histogram["level"] == "zone"].set_index(["area", "size"])["groups"].to_dict()
    for area, cut in zip(GEOGRAPHY.zones, [0, 12, 0, 0], strict=True):
        held = sorted(kept.loc[kept["area"] == area, "size"].clip(upper=9))[cut:]
        assert {size: zones.get((area, size), 0) for size in range(10)} == {j: held.count(j) for j in range(10)}
    errors = evaluate_group_sizes(release, given).set_index(["level", "area"])
    assert errors.loc["zone"]["total_error"].tolist() == [0, 12, 0, 0]
    left_out = sorted(kept.loc[kept["area"] == "02", "size"])[:12]
    distance = wasserstein_distance([0] * 12, left_out) * 12
    assert errors.loc["zone"]["earth_movers_distance"].tolist() == pytest.approx([0, distance, 0, 0])


def test_intervals_of_numbers_are_exact_and_those_of_sizes_are_refused():
    """A noisy number is within r of the true one with probability 1 - 2 a^(r + 1) / (1 + a), a = exp(-1 / scale)."""
    release = released(groups_share="1/4", noise=ListedLaplace([1, -1]))
    scale = release.plan.steps[0].scale
    assert scale == 8
    a = np.exp(-1 / float(scale))
    for _, row in release.numbers.iterrows():
        reach = (row["noisy"] - row["lower"]) if row["lower"] > 0 else (row["upper"] - row["noisy"])
        assert 1 - 2 * a ** (reach + 1) / (1 + a) >= 0.9
        assert 1 - 2 * a**reach / (1 + a) < 0.9 or row["groups"] in (row["lower"], row["upper"])
    for ask in (release.at_most, lambda: release.members):
        with pytest.raises(OdError, match="OD-GROUPS-INTERVALS"):
            ask()
    assert {*released().numbers} == {"area", "level", "groups"}


def test_the_whole_space_has_an_interval():
    """Of the sum of three noisy numbers of regions, as if its noise were normal."""
    release = released(groups_share="1/4", noise=ListedLaplace([1, -1]))
    ((lower,), (upper,)) = release.bound_numbers(0)
    noisy = release.numbers[release.numbers["level"] == "region"]["noisy"].sum()
    deviation = (3 * 2 * np.exp(-1 / 8) / (1 - np.exp(-1 / 8)) ** 2) ** 0.5
    assert abs((upper - lower) / 2 - 1.6449 * deviation) < 1.5
    assert lower < noisy < upper


def test_a_ledger_charges_numbers_and_sizes_once(tmp_path):
    ledger = declared(tmp_path, "departures", BOUNDED)
    arguments = {"unit": BOUNDED, "ledger": ledger, "release_id": R1, "groups_share": "1/5"}
    first = released(**arguments)
    reserved = [row for row in rows(ledger.path) if row["kind"] == "RESERVED"]
    charges = {row["level"]: row["epsilon"] for row in reserved}
    assert charges == {1: "2/5", 2: "2/5", 4: "1/10", 5: "1/10"}
    drawn = [row["level"] for row in rows(ledger.path) if row["kind"] == "DRAWING"]
    assert drawn == [4, 5, 1, 2]
    history = rows(ledger.path)
    again = released(**arguments)
    assert rows(ledger.path) == history
    pd.testing.assert_frame_equal(again.numbers, first.numbers)
    pd.testing.assert_frame_equal(again.histogram, first.histogram)
    with pytest.raises(OdError, match=r"OD-REPLAY-PLAN-CHANGED.*groups_share"):
        released(**arguments | {"groups_share": "1/4"})


def test_a_bundle_has_measured_numbers_and_comes_back(tmp_path):
    release, certificate = published(tmp_path, groups_share="1/4")
    assert not any("number of groups" in one for one in certificate["invariants"])
    assert certificate["interval"] is None
    assert [step.get("measured") for step in certificate["levels"]] == ["numbers of groups"] * 2 + [None] * 2
    assert "which groups there are" not in certificate["guarantee"]["public"]
    assert "than are public" not in certificate["guarantee"]["input"]
    assert "are measured first, for 1/4 of epsilon" in " ".join(certificate["guarantee"]["input"].split())
    folder = tmp_path / "r1"
    files = bundle(release, certificate, folder)
    assert not {"tables/cumulative.parquet", "tables/members_by_area.parquet"} & {*files}
    opened = open_group_sizes(folder)
    for name in ("numbers", "histogram", "measurements"):
        pd.testing.assert_frame_equal(getattr(opened, name), getattr(release, name))
    report = " ".join(files["report.html"].decode().split())
    lower, upper = (int(end[0]) for end in release.bound_numbers(0))
    assert f"by noisy measurements (90 % interval of the number: {lower} to {upper})" in report
    assert "which are public" not in report
    assert "groups, public" not in report
    assert "The sizes have no intervals." in files["codebook.md"].decode()
    stored = GROUP_SIZES.make_tables(release, certificate)
    assert {*stored} == {"group_sizes", "group_size_measurements", "group_numbers"}
    assert [*GROUP_SIZES.check_invariants(release)] == []
    path = folder / "tables/groups_by_area.parquet"
    table = pd.read_parquet(path)
    changes = {"groups": "numbers of groups", "noisy": "noisy measurements|histogram|numbers of groups"}
    for column, what in changes.items():
        table.assign(**{column: table[column] + 1}).to_parquet(path, index=False)
        with pytest.raises(OdError, match=f"OD-BUNDLE-CHANGED: the published ({what})"):
            open_group_sizes(folder)
