"""Weighted sums of flows and their ratios, against dense linear algebra, and what cannot be a weight."""

import math
from itertools import product
from random import Random
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from od_core import Budget, Geography, OdError, sum_releases
from od_core.flows.estimation import intervals
from od_core.flows.interval_ends import DEVIATIONS, ROUNDING, compute_upper_bound
from od_core.flows.released_flows import WeightedSum
from tests.od_core.doubles import SeededNoise, no_noise, usual_release
from tests.od_core.oracles.intervals import DROPPING, KEEPING, Case, case_of, within

RANDOMS = st.integers(0, 2**32).map(Random)
ZONES = pd.DataFrame({"state": list("aabbb"), "zone": ["a1", "a2", "b1", "b2", "b3"]})
PLACES = ZONES.assign(latitude=[50, 51, 52, 53, math.nan], longitude=[1, 2, 3, 4, math.nan])


def table_of(case: Case, random: Random) -> pd.DataFrame:
    """A weight for about two thirds of the pairs of zones, in random order."""
    pairs = [(o[-1], d[-1]) for o, d in product(case.origins, case.destinations) if random.random() < 0.7]
    random.shuffle(pairs)
    table = pd.DataFrame(pairs, columns=["origin", "destination"], dtype=str)
    return table.assign(weight=[random.gauss(0, 3) for _ in pairs])


def function_of(table: pd.DataFrame):
    weights = {(o, d): w for o, d, w in table.itertuples(index=False)}
    return lambda origins, destinations: [weights.get(pair, 0.0) for pair in zip(origins, destinations, strict=True)]


def dense_weights(case: Case, table: pd.DataFrame) -> np.ndarray:
    """The weight of each column, which is a pair of zones."""
    weights = {(o, d): w for o, d, w in table.itertuples(index=False)}
    return np.array([weights.get((o[-1], d[-1]), 0.0) for o, d in case.dense.columns])


def test_the_interval_of_an_exact_total_contains_it():
    """Its ends are those of floating-point sums, which differ from the total by their rounding."""
    pairs, budget = list(product(ZONES["zone"], repeat=2)), Budget(epsilon=1, delta="1e-6")
    flows = pd.DataFrame(pairs, columns=["origin", "destination"]).assign(trips=range(7, 7 + len(pairs)))
    geography, total = Geography.from_frame(ZONES, ["state", "zone"]), int(flows["trips"].sum())
    for seed in range(5):
        released = usual_release(flows, geography, budget=budget, noise=SeededNoise(seed))
        found = released.weighted_sum("trips")
        assert found.lower <= total <= found.upper
        assert found.upper - found.lower < 1e-4


@given(random=RANDOMS, confidence=st.sampled_from([0.5, 0.9, 0.99]))
def test_value_variance_and_ratio_are_those_of_linear_algebra(random: Random, confidence: float):
    """Of tables and functions of weights, of both signs, where no node was dropped."""
    budget = {"epsilon": random.choice([1, 10])}
    case = case_of(random, KEEPING, budget=budget, least_trips=1, most_trips=40, most_pairs=36)
    one, other = (table_of(case, random) for _ in range(2))
    a, b = dense_weights(case, one), dense_weights(case, other)
    estimate, covariance = case.dense.estimate, case.dense.covariance
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    scale = 1e-9 * (1 + (abs(a) + abs(b)).sum() * (1 + abs(estimate).max() + covariance.max()))
    found = case.release.weighted_sum(one, confidence=confidence)
    assert found == case.release.weighted_sum(function_of(one), confidence=confidence)
    assert found.value == pytest.approx(a @ estimate, abs=scale)
    variance = max(0.0, a @ covariance @ a)
    assert found.deviation**2 == pytest.approx(variance, abs=scale * (1 + abs(a).sum()))
    assert (found.upper - found.value) == pytest.approx(z * found.deviation, abs=scale)
    assert (found.value - found.lower) == pytest.approx(z * found.deviation, abs=scale)
    assert found.unmeasured == (0, 0)
    flows = case.release.flows.merge(one, on=["origin", "destination"])
    assert found.released == pytest.approx((flows["trips"] * flows["weight"]).sum(), abs=scale)

    whole, spread = b @ estimate, b @ covariance @ b
    if whole**2 <= z**2 * spread * 1.01:
        event("the denominator may be 0")
        return
    ratio = case.release.weighted_sum(one, per=other, confidence=confidence)
    assert ratio.value == pytest.approx(a @ estimate / whole, rel=1e-6, abs=scale / abs(whole))
    for end in (ratio.lower, ratio.upper):  # as far from 0 as its own interval is wide
        rest = a - end * b
        apart = (rest @ estimate) ** 2 - z**2 * (rest @ covariance @ rest)
        assert apart == pytest.approx(0, abs=1e-5 * (1 + (rest @ estimate) ** 2 + abs(rest).sum() ** 2))
    assert ratio.lower <= ratio.value * (1 + 1e-9) + scale
    assert ratio.value <= ratio.upper * (1 + 1e-9) + scale
    linear = a - ratio.value * b
    deviation = math.sqrt(max(0.0, linear @ covariance @ linear)) / abs(whole)
    assert ratio.deviation == pytest.approx(deviation, rel=1e-4, abs=1e-4)


@given(random=RANDOMS)
def test_dropped_nodes_add_at_most_their_bounds_with_the_extreme_weights_below_them(random: Random):
    case = case_of(random, DROPPING, budget={"epsilon": random.choice([1, 10])}, most_trips=random.choice([3, 60]))
    table, dense = table_of(case, random), case.dense
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "_BLOCK", random.choice([1, 3, 1 << 20]))
        found = case.release.weighted_sum(table)
        estimate = case.release.intervals.estimate_weighted_sum(_by_number(case, table), DEVIATIONS)
    event(f"dropped: {case.drops}")
    if not case.drops:
        return
    weights = {(o, d): w for o, d, w in table.itertuples(index=False)}
    leaves = dense.cells[max(dense.cells)]
    measured = {(o[-1], d[-1]): cell for (o, d), cell in leaves.items()}
    value = sum(weights.get(pair, 0.0) * noisy for pair, (noisy, _) in measured.items())
    variance = sum(weights.get(pair, 0.0) ** 2 * s2 for pair, (_, s2) in measured.items())
    least = most = 0.0
    for node in dense.columns:
        if node in leaves:
            continue
        fitted = (np.array([part]) for part in dense.of_node(node))
        top = float(compute_upper_bound(*fitted)[0])
        pairs = product(case.origins, case.destinations)
        below = [weights.get((o[-1], d[-1]), 0.0) for o, d in pairs if within((o, d), node)]
        least, most = least + min(0.0, *below) * top, most + max(0.0, *below) * top
    if not leaves and case.release.plan.publishes_total and case.trips:
        return  # nothing is known but the total, which is no column of the linear algebra
    assert found.value == pytest.approx(value, abs=1e-6)
    assert found.deviation == pytest.approx(math.sqrt(variance), abs=1e-6)
    assert (estimate.min_dropped, estimate.max_dropped) == pytest.approx((least, most), abs=1e-6)
    assert least - 1e-6 <= found.unmeasured[0] <= 0 <= found.unmeasured[1] <= most + 1e-6
    reach, rounding = DEVIATIONS * math.sqrt(variance), ROUNDING * abs(value) + 1e-6
    assert value - reach + least - rounding <= found.lower <= value + 1e-6
    assert value - 1e-6 <= found.upper <= value + reach + most + rounding


def _by_number(case: Case, table: pd.DataFrame):
    weight = function_of(table)
    origins, destinations = case.tree.origin.zones, case.tree.destination.zones
    return lambda o, d: np.array(weight([origins[k] for k in o], [destinations[k] for k in d]), dtype=float)


@pytest.fixture(scope="module")
def trips() -> pd.DataFrame:
    random = np.random.default_rng(3)
    codes = ZONES["zone"].to_numpy()
    places = {side: codes[random.integers(0, 5, 4_000)] for side in ("origin", "destination")}
    return pd.DataFrame(places | {"mode": np.array(["car", "bus", "walk"])[random.integers(0, 3, 4_000)]})


def released(trips: pd.DataFrame, noise=None, **options):
    geography = Geography.from_frame(PLACES, ["state", "zone"], coordinates=("latitude", "longitude"))
    budget, segments = Budget(rho="1/10", delta="1e-8"), {"mode": ["car", "bus", "walk"]}
    return usual_release(trips, geography, budget=budget, segments=segments, noise=noise or SeededNoise(4), **options)


def test_public_quantities_without_noise_are_those_of_the_trips(trips):
    """With zones at places of their own, and one at none."""
    release = released(trips, no_noise())
    assert release.weighted_sum("trips").value == 4_000
    own = (trips["origin"] == trips["destination"]).mean()
    assert release.weighted_sum("within", per="trips").value == pytest.approx(own)
    places = PLACES.set_index("zone")[["latitude", "longitude"]]
    start, end = (np.radians(places.loc[trips[side]].to_numpy(float)) for side in ("origin", "destination"))
    half = np.sin((end - start) / 2) ** 2
    apart = half[:, 0] + np.cos(start[:, 0]) * np.cos(end[:, 0]) * half[:, 1]
    far = 2 * 6371.0088 * np.arcsin(np.sqrt(apart))
    assert release.weighted_sum("distance").value == pytest.approx(np.nansum(far), rel=1e-6)
    mean = release.weighted_sum("distance", per="has_distance")
    assert mean.value == mean.released == pytest.approx(np.nanmean(far), rel=1e-6)


def test_categories_are_weighed_as_sums_of_them_are(trips):
    release, k = released(trips), 1
    origins, destinations = (np.isin(ZONES["zone"], chosen) for chosen in (["a1", "b2"], ["b1", "b2", "b3"]))
    pairs = [*product(ZONES["zone"][origins], ZONES["zone"][destinations])]
    chosen = pd.DataFrame(pairs, columns=["origin", "destination"])
    found = release.weighted_sum(chosen.assign(weight=2.0), segment="mode", category="bus")
    expected = release.fit_segment("mode").sum_between(origins, destinations)[k]
    assert found.value == pytest.approx(2 * expected.estimate[0])
    assert found.deviation**2 == pytest.approx(4 * expected.variance[0])
    in_table = release.trips_between("zone", ["a1", "b2"], "zone", ["b1", "b2", "b3"], segment="mode", category="bus")
    assert found.released == 2 * in_table.trips
    share = release.weighted_sum("within", per="trips", segment="mode", category="bus")
    assert 0 < share.lower < share.value < share.upper < 1


def test_releases_are_added(trips):
    """Their estimates, and the variances of these."""
    each = [released(trips, SeededNoise(seed)) for seed in (5, 6)]
    both = sum_releases(each)
    for options in ({}, {"segment": "mode", "category": "car"}):
        one, other = (release.weighted_sum("distance", **options) for release in each)
        found = both.weighted_sum("distance", **options)
        assert found.value == pytest.approx(one.value + other.value)
        assert found.deviation == pytest.approx(math.hypot(one.deviation, other.deviation))
        assert found.released == pytest.approx(one.released + other.released)
    assert isinstance(both.weighted_sum("distance", per="trips"), WeightedSum)


WEIGHT = pd.DataFrame({"origin": ["a1", "a2"], "destination": ["b1", "b1"], "weight": [1.0, 2.0]})


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        ("distances", r"no quantity 'distances' \(did you mean 'distance'\?\)"),
        (7, "weights are of type int"),
        (WEIGHT.drop(columns="weight"), "no column 'weight'"),
        (WEIGHT.assign(weight=[1, math.nan]), "a weight is missing or infinite"),
        (WEIGHT.assign(weight=[1, math.inf]), "a weight is missing or infinite"),
        (WEIGHT.assign(weight=["1", "much"]), "a weight is not a number"),
        (WEIGHT.assign(origin=["a1", "a9"]), "the unknown zone 'a9'"),
        (WEIGHT.assign(origin="a1"), "a pair of zones has two weights"),
        (lambda o, d: np.full(len(o), -math.inf), "a weight is missing or infinite"),
        (lambda o, d: [1.0, 2.0, 3.0], "returned the shape"),
        (lambda o, d: None, "a weight is missing or infinite"),
    ],
)
def test_what_cannot_be_a_weight_is_refused(trips, weights, says):
    release = released(trips)
    for options in ({"weights": weights}, {"weights": "trips", "per": weights}):
        with pytest.raises(OdError, match="OD-WEIGHTS: ") as refused:
            release.weighted_sum(**options)
        refused.match(says)


def test_what_has_no_answer_is_refused(trips):
    release = released(trips)
    with pytest.raises(OdError, match="OD-WEIGHTS-RATIO: the denominator of the ratio may be 0"):
        release.weighted_sum("trips", per=lambda o, d: np.zeros(len(o)))
    with pytest.raises(OdError, match="OD-WEIGHTS: confidence is 1"):
        release.weighted_sum("trips", confidence=1)
    with pytest.raises(OdError, match=r"OD-WEIGHTS: confidence is 0\.9999999999999999"):
        release.weighted_sum("trips", confidence=0.9999999999999999)  # of which half the rest is no float
    with pytest.raises(OdError, match="OD-SEGMENT"):
        release.weighted_sum("trips", segment="modes", category="car")
    zones, pairs = Geography.from_frame(ZONES, ["state", "zone"]), trips[["origin", "destination"]]
    without = usual_release(pairs, zones, mechanism="stability_histogram", noise="table")
    with pytest.raises(OdError, match="OD-INTERVAL-MECHANISM"):
        without.weighted_sum("trips")


def test_weights_that_were_chosen_from_the_release_are_warned_of():
    """A fifth of 144 pairs have trips: that 30 listed pairs are all released above 0 is no chance."""
    zones = pd.DataFrame([(f"s{k // 4}", f"s{k // 4}z{k}") for k in range(12)], columns=["state", "zone"])
    pairs = list(product(zones["zone"], repeat=2))
    flows = pd.DataFrame(pairs[::5], columns=["origin", "destination"]).assign(trips=500)
    release = usual_release(flows, Geography.from_frame(zones, ["state", "zone"]), budget=Budget(10, "1e-6"))
    chosen = release.flows.nlargest(25, "trips").assign(weight=1.0)
    with pytest.warns(UserWarning, match="all 25 pairs of zones with a weight were released above 0"):
        release.weighted_sum(chosen)
    release.weighted_sum(chosen.head(2))  # may well be chance
    released = set(release.flows[["origin", "destination"]].itertuples(index=False, name=None))
    absent = pd.DataFrame([pair for pair in pairs if pair not in released][:1], columns=["origin", "destination"])
    release.weighted_sum(pd.concat([chosen, absent.assign(weight=1.0)]))
