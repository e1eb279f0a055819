"""Indicators of areas: their numbers by hand, their variances by linear algebra, and their shares by the definition."""

import math
from itertools import product
from random import Random

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import Budget, Geography, InfTDARefined, OdError, PrivacyUnit, Release, release_flows
from od_core.flows.estimation.fitted_tree import Estimates
from od_core.flows.estimation.intervals import bound_ratio
from od_core.flows.indicators import indicators
from od_core.flows.interval_ends import DEVIATIONS
from tests.od_core.doubles import SeededNoise, no_noise, usual_release
from tests.od_core.oracles.intervals import DROPPING, KEEPING, UNITS, Case, made, random_zones, within
from tests.od_core.publication import examples
from tests.od_core.strategies import trees_for

RANDOMS = st.randoms(use_true_random=True)
NUMBERS = ("outflow", "inflow", "within", "balance")


def case_of(random: Random, mechanisms, least_trips: int = 0, noise=None) -> Case:
    """A release whose origins and destinations are the same zones."""
    while len(zones := random_zones(random, random.randint(1, 3))) > 8:
        pass
    filled = 1.0 if least_trips else random.choice([0.2, 1.0])
    size = len(zones), len(zones)
    numpy_random = np.random.default_rng(random.randrange(2**32))
    truth = numpy_random.integers(least_trips, least_trips + 40, size) * (numpy_random.random(size) < filled)
    return made(
        zones,
        zones,
        truth,
        mechanism=(mechanism := random.choice(list(mechanisms))),
        unit=random.choice(UNITS),
        budget=Budget(rho=random.choice(["1e-6", "1/10", 3]), delta=1e-8),
        order=random.choice(trees_for(mechanism)),
        noise=noise or SeededNoise(random.randrange(2**32)),
    )


def true_numbers(case: Case, level: int) -> pd.DataFrame:
    """Of each area of a level, from the true table."""
    rows = []
    for area in case.areas(0, level):
        within, begun, ended = case.true(area, area), case.true(area, ()), case.true((), area)
        rows.append((begun - within, ended - within, within, ended - begun))
    return pd.DataFrame(rows, columns=list(NUMBERS))


@given(random=RANDOMS)
def test_without_noise_indicators_are_the_truth(random: Random):
    """But for leaves that are drawn together by the noise that is stated."""
    exact = [one for one in (*KEEPING, *DROPPING) if one != InfTDARefined(leaves="empirical_bayes")]
    case = case_of(random, exact, noise=no_noise())
    table = indicators(case.release)
    for level, name in enumerate(case.tree.origin.levels, start=1):
        own, true = table[table["level"] == name].reset_index(drop=True), true_numbers(case, level)
        assert own["area"].tolist() == list(case.tree.origin.codes[level])
        for column in NUMBERS:
            assert own[column].tolist() == true[column].tolist()
        begun = true["within"] + true["outflow"]
        share = (true["within"] / begun.where(begun > 0)).astype(float)
        assert own["self_containment"].to_numpy() == pytest.approx(share.to_numpy(), abs=1e-6, nan_ok=True)


@given(random=RANDOMS)
def test_intervals_contain_the_released_numbers(random: Random):
    """Whole numbers, and shares from 0 to 1; without intervals, the same numbers."""
    case = case_of(random, [*KEEPING, *DROPPING])
    table = indicators(case.release)
    for column in (*NUMBERS, "self_containment"):
        there = table[column].notna()
        assert (table[f"{column}_lower"] <= table[column])[there].all()
        assert (table[column] <= table[f"{column}_upper"])[there].all()
    trips = table[[f"{column}_lower" for column in NUMBERS if column != "balance"]]
    assert (trips >= 0).all(axis=None) or case.release.may_be_negative
    shares = table[["self_containment_lower", "self_containment_upper"]]
    assert shares.stack().between(0, 1).all()
    assert table["self_containment"].dropna().between(0, 1).all()
    plain = indicators(case.release, interval=False)
    pd.testing.assert_frame_equal(plain, table[list(plain)])
    assert list(table)[-4:] == ["outflow_unbiased", "outflow_likely", "inflow_unbiased", "inflow_likely"]
    assert list(plain) == ["level", "area", *NUMBERS, "self_containment"]
    last = case.tree.origin.levels[-1]
    one = table[table["level"] == last].reset_index(drop=True)
    pd.testing.assert_frame_equal(indicators(case.release, [last]), one)


@given(random=RANDOMS)
def test_estimates_and_variances_are_those_of_linear_algebra(random: Random):
    """Of the trips within, from and to each area, where no node was dropped; and the interval of their share."""
    case = case_of(random, KEEPING, least_trips=100)
    dense = case.dense
    for level in range(1, case.tree.origin.depth + 1):
        found = case.release.intervals.estimate_areas(level)
        for k, area in enumerate(case.areas(0, level)):
            inside = np.array([[within((o, d), node) for o, d in dense.columns] for node in [(area, ()), ((), area)]])
            taken = {"within": inside[0] & inside[1], "begun": inside[0]}
            taken |= {"outflow": inside[0] & ~inside[1], "inflow": inside[1] & ~inside[0]}
            for name, columns in taken.items():
                estimate, variance = dense.sum_of(columns)
                own = getattr(found, name)
                assert own.estimate[k] == pytest.approx(estimate, rel=1e-6, abs=1e-6 * (1 + variance**0.5))
                assert own.variance[k] == pytest.approx(variance, rel=1e-6, abs=1e-6)
            shared = taken["outflow"].astype(float) @ dense.covariance @ taken["inflow"]
            assert found.exchange[k] == pytest.approx(shared, rel=1e-6, abs=1e-6)


@given(random=RANDOMS)
def test_the_likely_side_of_a_total_follows_from_linear_algebra(random: Random):
    """Where no node was dropped: from the estimate and variance of each total, and its interval before it is cut at 0.

    An end that floating-point rounding may move says nothing.
    """
    case = case_of(random, KEEPING)
    table, dense = indicators(case.release).set_index(["level", "area"]), case.dense
    for level, name in enumerate(case.tree.origin.levels, start=1):
        for code, area in zip(case.tree.origin.codes[level], case.areas(0, level), strict=True):
            ends = [(area, ()), ((), area)]
            from_it, to_it = (np.array([within((o, d), node) for o, d in dense.columns]) for node in ends)
            row = table.loc[(name, code)]
            for column, taken in (("outflow", from_it & ~to_it), ("inflow", to_it & ~from_it)):
                estimate, variance = dense.sum_of(taken)
                width = DEVIATIONS * variance**0.5
                reach, released = max(width + 0.25, 0.5, math.ceil(width - 0.5)), row[column]
                assert abs(row[f"{column}_unbiased"] - estimate) <= 0.5 + 1e-6 * (1 + abs(estimate))
                low, high = math.ceil(estimate - reach), math.floor(estimate + reach)
                ends = (estimate - reach, estimate + reach, estimate + 0.5, width - 0.5, reach)
                if any(abs(end - round(end)) < 1e-5 * (1 + variance**0.5) for end in ends):
                    continue
                if released < reach:
                    assert row[f"{column}_likely"] == ""
                elif released <= low and round(estimate) > released:
                    assert row[f"{column}_likely"] == "higher"
                elif released >= high and released > round(estimate):
                    assert row[f"{column}_likely"] == "lower"
                else:
                    assert row[f"{column}_likely"] == ""


LARGE = "a"
PAIRS = list(product("abcdefghij", repeat=2))
"""Ten zones. If all trips begin, or end, in the first one, small areas gain what it loses."""


def of_one_large(side: str, order: str, **changes) -> pd.DataFrame:
    """The indicators of the zones of 40 releases of 10,000 trips that all begin, or end, in one of them."""
    return pd.concat([indicators(one_large(side, order, k, **changes)) for k in range(40)])


def one_large(side: str, order: str, seed: int, **changes) -> Release:
    geography = Geography.from_frame(pd.DataFrame({"zone": list("abcdefghij")}), ["zone"])
    flows = pd.DataFrame(PAIRS, columns=["origin", "destination"])
    flows["trips"] = 1000 * (flows[side] == LARGE)
    given_ = {"unit": PrivacyUnit("trip"), "budget": Budget("0.05", "1e-6"), "tree": order} | changes
    return release_flows(flows, geography, **given_, noise=SeededNoise(seed))


ORDERS = [("origin", "destination", "outflow"), ("destination", "origin", "inflow")]
SIDES = pytest.mark.parametrize(("side", "order", "name"), ORDERS)


@pytest.mark.representatives("destination-*")
@SIDES
def test_trips_that_a_large_area_lost_to_small_ones_are_marked(side, order, name):
    """And the unbiased number beside the released one is the truth on average, within five standard errors."""
    found = of_one_large(side, order)
    large, small = found[found["area"] == LARGE], found[found["area"] != LARGE]
    assert large[name].mean() < 0.95 * 9000
    assert (large[f"{name}_likely"] == "higher").mean() > 0.5
    assert not (large[f"{name}_likely"] == "lower").any()
    error = large[f"{name}_unbiased"].std() / 40**0.5
    assert large[f"{name}_unbiased"].mean() == pytest.approx(9000, abs=5 * error)
    assert (small[f"{name}_likely"] == "").all()  # their numbers are below the half-width of their intervals


@pytest.mark.representatives("origin-*")
@SIDES
def test_a_side_whose_totals_were_measured_is_not_marked(side, order, name):
    found = of_one_large(side, order, area_totals="1/10")
    assert (found[f"{name}_likely"] == "").all()


@given(random=RANDOMS)
def test_weighted_sums_are_those_of_linear_algebra(random: Random):
    """Of the trips that begin in each area, where no node was dropped."""
    case = case_of(random, KEEPING, least_trips=100)
    dense, geography = case.dense, case.tree.origin
    place, size = {zone: k for k, zone in enumerate(geography.zones)}, geography.size(geography.depth)
    numbers = np.random.default_rng(random.randrange(2**32))
    weights, groups = numbers.uniform(-5, 5, (size, size)), numbers.integers(0, 3, (size, size))
    for level in range(geography.depth + 1):
        functions = (lambda o, d: weights[o, d], lambda o, d: groups[o, d])
        found = case.release.intervals.estimate_begun_trips(level, *functions, 3)
        for (k, area), group in product(enumerate(case.areas(0, level)), range(3)):
            pairs = [(place[o[-1]], place[d[-1]], within((o, d), (area, ()))) for o, d in dense.columns]
            taken = np.array([weights[o, d] * (inside and groups[o, d] == group) for o, d, inside in pairs])
            estimate, variance = dense.sum_of(taken)
            own = found[group]
            assert own.estimate[k] == pytest.approx(estimate, rel=1e-6, abs=1e-6 * (1 + variance**0.5))
            assert own.variance[k] == pytest.approx(variance, rel=1e-6, abs=1e-6)


@given(
    part=st.floats(-50, 500),
    rest=st.floats(-50, 500),
    variances=st.tuples(st.floats(0.1, 400), st.floats(0.1, 400)),
    correlation=st.floats(-0.9, 0.9),
)
def test_the_interval_of_a_share_has_the_shares_that_the_definition_accepts(part, rest, variances, correlation):
    """On a grid of shares: r is accepted if N - r B is at most z of its deviations from 0."""
    v_part, v_rest = variances
    together = v_part + v_rest + 2 * correlation * (v_part * v_rest) ** 0.5
    whole = part + rest
    covariance = (together + v_part - v_rest) / 2
    both = ((part, v_part), (whole, together))
    given = [Estimates.from_nodes(np.array([value]), np.array([variance])) for value, variance in both]
    low, high = (float(end[0]) for end in bound_ratio(*given, np.array([covariance]), 1.0))
    if whole <= 0 or whole**2 <= DEVIATIONS**2 * together:
        assert (low, high) == (0, 1)
        return
    r = np.linspace(0, 1, 401)
    accepted = (part - r * whole) ** 2 <= DEVIATIONS**2 * (v_part - 2 * r * covariance + r * r * together)
    between = (low <= r) & (r <= high)
    near = np.minimum(abs(r - low), abs(r - high)) < 1e-9
    # A share outside 0 to 1 is cut to the nearest end, which is then in the interval although it was not accepted.
    assert (accepted == between)[~near & (r > 0) & (r < 1)].all()


def test_other_destinations_have_no_indicators():
    """Neither in the library nor in the bundle."""
    made_of_two = examples.release("other destinations")
    with pytest.raises(OdError, match="OD-INDICATORS-AREAS"):
        indicators(made_of_two)


def test_the_mean_distance_of_very_many_trips_is_that_of_one():
    """Their metres do not fit 64 bits. From the equator to the pole is a quarter of the circumference."""
    places = pd.DataFrame({"zone": ["a", "b"], "latitude": [0.0, 90.0], "longitude": [0.0, 0.0]})
    geography = Geography.from_frame(places, ["zone"], coordinates=("latitude", "longitude"))
    flows = pd.DataFrame({"origin": ["a"], "destination": ["b"], "trips": [10**13]})
    released = usual_release(flows, geography, noise=no_noise())
    assert indicators(released).set_index("area").loc["a", "mean_distance"] == pytest.approx(10_007.5, abs=1)
