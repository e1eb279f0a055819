"""Which levels and which noise have the least expected error: a choice from public facts alone."""

import math
from fractions import Fraction

import numpy as np
import pytest

from od_core import Bands, Budget, Geography, InfTDARefined, PrivacyUnit, ReleasePlan, plan_release
from od_core.flows.accuracy import compute_error_ratio
from od_core.flows.plan import WORTHWHILE_RATIO
from od_core.privacy.neighbours import NO_FAULTS
from tests.od_core.strategies import geography_of

ZONES = geography_of([(region, f"{region}{zone}") for region in "abc" for zone in "123456"])
LAPLACE = InfTDARefined(noise_distribution="laplace")
TRIP = PrivacyUnit("trip", "unbounded")
PURE = {"budget": Budget(1), "mechanism": LAPLACE, "tree": "both"}


def planned(**changes) -> ReleasePlan:
    return plan_release(ZONES, **{"unit": TRIP, "budget": Budget(1, "1e-6"), "acceptance": NO_FAULTS} | changes)


def square_errors(plan: ReleasePlan) -> list[float]:
    """At regions x regions and zones x zones."""
    pairs = [plan.tree.level_pair(level) for level in range(plan.tree.depth + 1)]
    return [plan.expected_errors[pairs.index((k, k))] for k in (1, 2)]


@pytest.mark.parametrize("tree", ["destination", "origin", "both"])
@pytest.mark.parametrize("share", [None, "1/10"])
def test_the_least_geometric_mean_is_found(tree, share):
    plan = planned(tree=tree, area_totals=share)
    pure = planned(**PURE, area_totals=share and "31/100")
    found = plan.find_less_error()
    assert found is not None
    assert found[0].digest == pure.digest
    ratios = np.array(square_errors(pure)) / np.array(square_errors(plan))
    assert found[1] == pytest.approx(math.prod(ratios) ** 0.5, rel=1e-12)
    assert found[1] <= WORTHWHILE_RATIO
    few = planned(tree="both", area_totals=share)
    assert math.prod(square_errors(few)) > math.prod(square_errors(pure))


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        pytest.param({}, True, id="a trip"),
        pytest.param({"unit": PrivacyUnit("user_period", "unbounded", "id", 1)}, True, id="a user, period by period"),
        pytest.param({"unit": PrivacyUnit("user", "unbounded", "id", 1)}, False, id="a user in all periods"),
        pytest.param({"unit": PrivacyUnit("user_period", "unbounded", "id", 2, max_trips_pair=1)}, False, id="pairs"),
        pytest.param({"budget": Budget(rho="1/50", delta="1e-6")}, False, id="rho"),
        pytest.param({"mechanism": InfTDARefined(estimate="shrunk")}, True, id="shrunk estimates"),
    ],
)
def test_laplace_noise_is_only_proposed_where_its_promise_is_kept_as_well(changes, fits):
    """Elsewhere, fewer levels with Gaussian noise may still be: here, they have less error for every unit."""
    found = planned(**changes).find_less_error()
    assert found is not None
    plan, ratio = found
    assert plan.tree.order == "both"
    assert plan.mechanism.has_laplace_noise == fits
    assert ratio == pytest.approx(compute_error_ratio(square_errors(planned(**changes)), square_errors(plan)))


@pytest.mark.parametrize(
    "changes",
    [
        PURE,
        {"segments": {"mode": ["car", "bus"]}},
        {"bands": Bands((2,))},
        {"mechanism": "inftda"},
        {"tree": "both", "unit": PrivacyUnit("user", "unbounded", "id", 1)},
        {"tree": "both", "unit": PrivacyUnit("trip", "bounded"), "budget": Budget(1, "1e-4")},
    ],
)
def test_nothing_is_proposed_beside_what_is_best_refused_or_nearly_as_good(changes):
    assert planned(**changes).find_less_error() is None


@pytest.mark.parametrize(
    ("changes", "share"),
    [
        ({"tree": "both"}, "1/10"),
        (PURE, "31/100"),  # of each side 0.45 of a level's: 0.9 / (2 + 0.9)
        (PURE | {"budget": Budget(4)}, "31/200"),
        ({"budget": Budget(10, "1e-6"), "tree": "both"}, "1/10"),
    ],
)
@pytest.mark.parametrize("area_totals", [None, "1/2"])
def test_area_totals_have_half_the_share_where_the_laplace_noise_of_a_leaf_is_below_one_trip(
    changes, share, area_totals
):
    """Whether they are measured already has no part in it: with what they leave, the noise is above one trip."""
    plan = planned(**changes, area_totals=area_totals)
    assert plan.usual_area_total_share == Fraction(share)
    other = planned(budget=Budget(changes.get("budget", Budget(1)).epsilon, "1e-6"), area_totals="1/10")
    assert other.with_levels_and_noise("both", plan.mechanism.noise_distribution).area_totals == Fraction(share)


def test_counts_by_one_hierarchy_have_other_noise_on_the_same_levels():
    counts = {"destination_geography": Geography.whole()}
    found = planned(**counts).find_less_error()
    assert found is not None
    plan, ratio = found
    assert plan.digest == planned(**counts, **PURE | {"tree": "destination"}).digest
    assert ratio == pytest.approx(compute_error_ratio(planned(**counts).expected_errors[1:], plan.expected_errors[1:]))


def test_exact_levels_are_left_out_of_the_ratio():
    assert compute_error_ratio([0.0, 0.0, 2.0, 8.0], [0.0, 3.0, 1.0, 1.0]) == pytest.approx(0.25)
    assert compute_error_ratio([0.0], [0.0]) == 1
