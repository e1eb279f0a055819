"""Brackets of sizes: what one member changes, tables equal to those of sizes that were bracketed before, bad input."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.stats import wasserstein_distance

from od_core import Budget, OdError, PrivacyUnit, TopCodeEstimate, evaluate_group_sizes
from od_core.group_sizes.groups import Frame
from od_core.group_sizes.mechanisms import MECHANISMS, BottomUp, MixedQueries
from od_core.group_sizes.plan import SENSITIVITY, GroupSizePlan, plan_group_sizes
from od_core.group_sizes.publishing import GROUP_SIZES, open_group_sizes
from od_core.group_sizes.release import iterate_true_values
from tests.od_core.doubles import ListedLaplace, NoiseNotWanted
from tests.od_core.group_sizes.doubles import Measuring
from tests.od_core.group_sizes.test_intervals import constrained, normal_bounds, variance_of
from tests.od_core.group_sizes.test_publication import bundle, published
from tests.od_core.group_sizes.test_release import GEOGRAPHY, groups, released
from tests.od_core.group_sizes.test_sensitivity import AREAS, BOUNDED, UNBOUNDED, counted, max_change, more_by_one
from tests.od_core.group_sizes.test_sensitivity import GEOGRAPHY as SMALL

BRACKETS = (2, 3, 7, 10)
"""Sizes of ``groups`` are 0 to 3 and 12, so that brackets are met below, at and above their least sizes."""

SUPPORTED = [name for name, kind in MECHANISMS.items() if name != "mixed" and kind().query != "sizes"]
by_mechanism = pytest.mark.parametrize("name", SUPPORTED)


def bracketed(brackets=BRACKETS, given=None, **changes):
    return released(given, **{"top_code": None, "brackets": list(brackets), **changes})


def least_sizes(sizes: pd.Series, brackets=BRACKETS) -> pd.Series:
    """The largest of 0 and the brackets that is not above each size."""
    return sizes.map(lambda size: max(least for least in (0, *brackets) if least <= size))


def numbers_of_brackets(sizes: pd.Series, brackets=BRACKETS) -> pd.Series:
    return sizes.map(lambda size: sum(least <= size for least in brackets))


@pytest.mark.parametrize("brackets", [(1,), (2,), (1, 2), (1, 3), (2, 4)])
@pytest.mark.parametrize("query", ["histogram", "cumulative"])
def test_a_member_changes_the_query_as_much_as_without_brackets(brackets, query):
    """One more or less, and one replaced, over all small tables: never more than the noise covers, and as much."""
    largest, frame = 4, Frame(SMALL, counted((0, 0, 0, 0)).count_per_area(SMALL), len(brackets), brackets)
    values = {
        sizes: [np.concatenate([*iterate_true_values(frame, query, level, counted(sizes))]) for level in frame.levels]
        for sizes in product(range(largest + 2), repeat=len(AREAS))
    }
    tables = [sizes for sizes in values if max(sizes) <= largest]
    assert (
        max_change(values, [(sizes, more) for sizes in tables for more in more_by_one(sizes)])
        == [SENSITIVITY[query]] * 2
    )
    pairs = [pair for sizes in tables for pair in product(more_by_one(sizes), repeat=2)]
    assert max_change(values, pairs) == [2 * SENSITIVITY[query]] * 2
    for unit, factor in ((UNBOUNDED, 1), (BOUNDED, 2)):
        given = {"unit": unit, "budget": Budget(epsilon=1), "mechanism": Measuring(query), "brackets": brackets}
        plan = plan_group_sizes(SMALL, frame.groups, **given)
        assert {step.sensitivity for step in plan.steps} == {factor * SENSITIVITY[query]}


def test_a_member_with_a_larger_quantity_would_change_more_cumulative_counts_but_not_more_cells():
    """Why a member counts as 1: one of quantity z crosses up to z brackets, as far as they begin 1 apart."""
    brackets = (1, 2, 3, 4)
    frame = Frame(SMALL, np.array([1, 0, 0]), len(brackets), brackets)

    def values(size, query):
        table = pd.DataFrame({"group": [0], "area": pd.Series(["a1"], dtype="str"), "size": [size]})
        return np.concatenate([*iterate_true_values(frame, query, 1, type(counted((0,) * 4)).from_frame(table, SMALL))])

    for quantity in (1, 2, 4):
        changes = {
            query: np.abs(values(quantity, query) - values(0, query)).sum() for query in ("histogram", "cumulative")
        }
        assert changes == {"histogram": 2, "cumulative": quantity}


@by_mechanism
def test_tables_equal_those_of_sizes_that_were_bracketed_before(name):
    """The same noise on the numbers of the brackets, as sizes up to a top code; then the labels."""
    noise = [0, 2, -1, 3, 0, -2, 1]
    before = groups().assign(size=lambda table: numbers_of_brackets(table["size"]))
    of_numbers = released(before, mechanism=name, top_code=len(BRACKETS), noise=ListedLaplace(noise))
    release = bracketed(mechanism=name, noise=ListedLaplace(noise))
    labels = np.array([0, *BRACKETS])
    for mine, others in zip(release.histograms, of_numbers.histograms, strict=True):
        assert np.array_equal(mine, others)
    for table in ("histogram", "cumulative", "sizes"):
        expected = getattr(of_numbers, table)
        pd.testing.assert_frame_equal(getattr(release, table), expected.assign(size=labels[expected["size"]]))
    expected = of_numbers.at_most(range(len(BRACKETS)))
    pd.testing.assert_frame_equal(release.at_most(), expected.assign(size=labels[expected["size"]]))
    expected = of_numbers.measurements
    pd.testing.assert_frame_equal(release.measurements, expected.assign(position=labels[expected["position"]]))
    histogram = release.histogram.assign(members=release.histogram["size"] * release.histogram["groups"])
    members = release.members[release.members["level"] != "all"]
    in_all = members.set_index(["level", "area"])["members"]
    summed = histogram.groupby(["level", "area"])["members"].sum().reindex(in_all.index, fill_value=0)
    assert in_all.to_dict() == summed.to_dict()


@by_mechanism
def test_brackets_of_single_sizes_are_a_top_code(name):
    noise = [0, 2, -1, 3, 0, -2, 1]
    single = bracketed(range(1, 10), mechanism=name, noise=ListedLaplace(noise))
    plain = released(mechanism=name, noise=ListedLaplace(noise))
    for table in ("histogram", "cumulative", "sizes", "members", "measurements"):
        pd.testing.assert_frame_equal(getattr(single, table), getattr(plain, table))
    pd.testing.assert_frame_equal(single.at_most(), plain.at_most())


@pytest.mark.parametrize("name", ["naive", "cumulative", "bottom_up"])
def test_members_have_the_bounds_of_their_measurements(name):
    """By the normal equations: the members are the least sizes times the histogram that the noisy values give."""
    release = bracketed(mechanism=name)
    weights, variance = np.array([0, *BRACKETS]), variance_of(release.plan.level_steps[0].scale)
    members = release.members.set_index(["level", "area"])
    measured = release.measurements[release.measurements["level"] == "zone"]
    zones = {area: rows["noisy"].to_numpy() for area, rows in measured.groupby("area")}
    to_histogram = np.eye(len(weights))[:, :-1] - np.eye(len(weights), k=-1)[:, :-1]
    for area, number in groups().groupby("area").size().items():
        if name == "naive":
            bounds = normal_bounds(*constrained([zones[area]], number, weights, variance))
        else:
            estimate = weights @ (to_histogram @ zones[area]) + weights[-1] * number
            bounds = normal_bounds(float(estimate), float(variance * ((weights @ to_histogram) ** 2).sum()))
        row = members.loc[("zone", area)]
        most = weights[-1] * number
        assert (row["lower"], row["upper"]) == (
            min(bounds[0], most, row["members"]),
            max(min(bounds[1], most), row["members"]),
        )


def test_errors_are_in_members():
    """The earth mover's distance of SciPy between the sizes of groups, each as the least one of its bracket."""
    release = bracketed(noise=ListedLaplace([0, 3, -2]))
    errors = evaluate_group_sizes(release, groups()).set_index(["level", "area"])
    some = 0.0
    for area, rows in groups().groupby("area"):
        mine = release.sizes.query("level == 'zone' and area == @area")["size"]
        distance = wasserstein_distance(least_sizes(rows["size"]), mine) * len(rows)
        assert math.isclose(errors.loc[("zone", area), "earth_movers_distance"], distance, abs_tol=1e-9)
        some += distance
    assert some > 10


def test_without_noise_groups_count_as_the_least_size_of_their_bracket():
    release = bracketed(noise=ListedLaplace([0]))
    truth = groups().assign(size=least_sizes(groups()["size"]))
    zones = release.histogram[release.histogram["level"] == "zone"]
    assert zones.set_index(["area", "size"])["groups"].to_dict() == truth.groupby(["area", "size"]).size().to_dict()
    assert release.members["members"].iloc[0] == truth["size"].sum()
    assert "sizes 0 to 10" in str(release._describe_contents())


class DrawsNothing(NoiseNotWanted):
    """Test double for calls that must be refused before anything is drawn."""

    def draw_laplace(self, scale, size):
        raise AssertionError("drew noise")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        *(({"brackets": bad}, "OD-GROUPS-BRACKETS: .*at least one whole number") for bad in ([], [0, 2], [-1], [1.5])),
        *(({"brackets": bad}, "OD-GROUPS-BRACKETS: .*whole number") for bad in ([True], "12", 5, [2**31], [[1]])),
        *(({"brackets": bad}, "OD-GROUPS-BRACKETS: .*ascend") for bad in ([2, 2], [3, 1])),
        ({"top_code": 9}, "OD-GROUPS-BRACKETS: .*beside a top code"),
        ({"top_code": TopCodeEstimate(Fraction(1, 2), 9)}, "OD-GROUPS-BRACKETS: .*beside a"),
        ({"mechanism": None}, "OD-GROUPS-CHOICE: .*not for brackets"),
        ({"mechanism": "sizes"}, "OD-GROUPS-BRACKETS: .*sorted sizes"),
        ({"mechanism": "sizes_posterior"}, "OD-GROUPS-BRACKETS: .*sorted sizes"),
        ({"mechanism": BottomUp("sizes")}, "OD-GROUPS-BRACKETS: .*sorted sizes"),
        ({"mechanism": MixedQueries("cumulative, sizes")}, "OD-GROUPS-BRACKETS: .*sorted sizes"),
        ({"unit": PrivacyUnit("trip", "unbounded", max_weight=2)}, "OD-UNIT-WEIGHTS"),
    ],
)
def test_bad_input(changes, code):
    with pytest.raises(OdError, match=code):
        released(**{"noise": DrawsNothing(), "top_code": None, "brackets": [2, 5], **changes})


@pytest.mark.parametrize(
    "mechanism", ["sizes", "sizes_posterior", BottomUp("sizes"), MixedQueries("sizes, cumulative")]
)
def test_a_plan_of_sorted_sizes_by_brackets_is_refused_before_there_are_groups(mechanism):
    given = {"unit": UNBOUNDED, "budget": Budget(epsilon=1), "brackets": [1, 5]}
    assert plan_group_sizes(SMALL, [1, 0, 2], mechanism="cumulative", **given).queries == {
        1: "cumulative",
        2: "cumulative",
    }
    with pytest.raises(OdError, match=r"OD-GROUPS-BRACKETS: .*sorted sizes"):
        plan_group_sizes(SMALL, [1, 0, 2], mechanism=mechanism, **given)


@pytest.mark.parametrize("sizes", [[1], [0, 4], [10], [3, 2], [2.0]])
def test_intervals_are_for_the_least_sizes_of_brackets_but_the_last(sizes):
    release = bracketed()
    assert release.at_most([0, 3])["size"].unique().tolist() == [0, 3]
    with pytest.raises(OdError, match=r"OD-GROUPS-SIZES: .*of 0, 2, 3, 7 "):
        release.at_most(sizes)


def test_the_facts_of_a_plan_give_it_again():
    plan = bracketed().plan
    facts = plan.stored_facts
    assert (facts["top_code"], facts["brackets"]) == (10, [2, 3, 7, 10])
    again = GroupSizePlan.from_facts(facts, GEOGRAPHY, plan.frame.groups)
    assert again.digest == plan.digest
    assert plan.replan(plan.unit, plan.budget).digest == plan.digest
    assert "brackets" not in released().plan.facts()
    assert {"brackets"} <= plan.features
    assert "brackets" not in released().plan.features


def test_a_bundle_says_what_its_sizes_stand_for_and_comes_back(tmp_path):
    release, certificate = published(tmp_path, top_code=None, brackets=[1, 2, 3, 5, 1200])
    assert certificate["contents"]["top_code"] == 1200
    assert "the brackets of sizes" in certificate["invariants"]
    assert "brackets begin at 0, 1, 2, 3, 5, 1,200." in " ".join(certificate["guarantee"]["input"].split())
    folder = tmp_path / "r1"
    files = bundle(release, certificate, folder)
    opened = open_group_sizes(folder)
    pd.testing.assert_frame_equal(opened.histogram, release.histogram)
    assert opened.frame.brackets == release.frame.brackets == (1, 2, 3, 5, 1200)
    codebook = " ".join(files["codebook.md"].decode().split())
    assert "They begin at 0, 1, 2, 3, 5, 1,200." in codebook
    report = " ".join(files["report.html"].decode().split())
    assert "sizes of a bracket counted as its least size, and sizes above 1,200 counted as 1,200, they have" in report
    assert "Brackets begin at 0, 1, 2, 3, 5, 1,200." in report
    classes = report.partition("by their number of")[2]
    assert all(f">{name}</th>" in classes for name in ("0", "1", "2 to 4", "5 to 1,199", "1,200 or more"))
    summary = GROUP_SIZES.make_summary(release)
    top = release.histogram[release.histogram["level"] == "region"]
    assert summary["members"].iloc[0] == (top["size"] * top["groups"]).sum()
    assert summary["largest_size"].iloc[0] == top["size"].max()
