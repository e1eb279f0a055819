"""Variances as functions of the shares, against dense linear algebra over all zones and categories."""

import numpy as np
import pytest

from od_core import Budget, Geography, InfTDARefined, OdError, PrivacyUnit, ReleasePlan, plan_release
from od_core.flows import optimal_shares
from od_core.flows.optimal_shares import Quantity, VarianceModel
from od_core.privacy.neighbours import NO_FAULTS, Acceptance
from tests.od_core.oracles.variances import dense_variances, least_squares, level_rows, top_down, wanted_rows
from tests.od_core.strategies import geography_of

UNEVEN = geography_of([("A", "a", "1"), ("A", "a", "2"), ("A", "b", "3"), *(("B", "c", zone) for zone in "456")])
OTHER = geography_of([("X", "x", "7"), ("X", "y", "8"), ("Y", "z", "9"), ("Y", "z", "10"), ("Z", "w", "11")])
ONLY = geography_of([("A", "a", "1"), ("A", "b", "2"), ("B", "c", "3"), ("B", "d", "4"), ("B", "d", "5")])
"""Some nodes have one child; here, no level is without a node with several children."""

SINGLE = geography_of([("A", "a", "1"), ("A", "a", "2"), ("B", "b", "3"), ("B", "b", "4")])
"""Every region has one town, so two levels of the tree need no share."""

BREAKDOWNS = {"mode": ["car", "bus", "walk"], "day": ["work", "rest"]}


LAPLACE = InfTDARefined(noise_distribution="laplace")


def planned(geographies, order="destination", segments=None, **options) -> ReleasePlan:
    origin, destination = geographies
    unit = PrivacyUnit("trip", neighbours=options.pop("neighbours", "unbounded"))
    shares = options.pop("shares", ("geometric", "13/10"))
    budget = options.pop("budget", None) or Budget(rho=options.pop("rho", 2), delta="1e-8", shares=shares)
    given = {"destination_geography": destination, "tree": order, "segments": segments}
    return plan_release(origin, unit=unit, budget=budget, **given, **options)


def model_of(plan: ReleasePlan) -> VarianceModel:
    return VarianceModel(plan.tree, plan.neighbours, plan.mechanism, plan.segments)


def shares_of(plan: ReleasePlan, model: VarianceModel) -> np.ndarray:
    """The shares with which the plan was made, of the levels that have one."""
    levels = model.levels
    weights = np.array([1.3**number for number in range(len(levels))])
    return (weights / weights.sum())[[levels.index(level) for level in model.free_levels]]


def every_quantity(plan: ReleasePlan) -> list[Quantity]:
    names = [f"{o} x {d}" for o in plan.tree.origin.level_names for d in plan.tree.destination.level_names]
    if plan.tree.origin.digest == plan.tree.destination.digest:
        names += [f"{o} {part}" for o in plan.tree.origin.levels for part in ("within", "outflow", "inflow")]
    names += [f"{name} by {one.name}" for name in names for one in plan.breakdowns]
    return [Quantity.parse(name, plan.tree, plan.breakdowns) for name in names]


FEW = geography_of([("A", "1"), ("A", "2"), ("B", "3")])
PLANS = {
    "one list": {"geographies": (UNEVEN, UNEVEN)},
    "two lists": {"geographies": (ONLY, OTHER)},
    "one breakdown": {"geographies": (FEW, FEW), "segments": {"mode": BREAKDOWNS["mode"]}, "segment_share": "1/3"},
    "two breakdowns": {"geographies": (FEW, FEW), "segments": BREAKDOWNS, "segment_share": "1/3"},
}


@pytest.mark.parametrize("order", ["destination", "origin"])
@pytest.mark.parametrize("neighbours", ["unbounded", "bounded"])
@pytest.mark.parametrize("given", PLANS.values(), ids=PLANS)
def test_least_squares_has_the_variances_of_dense_algebra(given, neighbours, order):
    plan = planned(**given, order=order, neighbours=neighbours, acceptance=NO_FAULTS)
    model, covariance = model_of(plan), least_squares(plan)
    near = {"rel": 1e-5, "abs": 1e-5} if plan.breakdowns else {"rel": 1e-6, "abs": 1e-6}
    for quantity in every_quantity(plan):
        expected = dense_variances(plan, quantity, covariance)
        found = model.make_cell_variance_function(quantity)(shares_of(plan, model)) / 2
        assert found == pytest.approx(expected, **near), quantity.name
        mean = model.compute_mean_variance(quantity, shares_of(plan, model))
        assert mean / 2 == pytest.approx(expected.mean(), **near)


@pytest.mark.parametrize(
    ("neighbours", "acceptance"), [("unbounded", NO_FAULTS), ("bounded", NO_FAULTS), ("bounded", Acceptance())]
)
@pytest.mark.parametrize("sides", [(UNEVEN, UNEVEN), (ONLY, OTHER), (UNEVEN, Geography.whole())])
def test_with_laplace_noise_variances_fall_with_the_square_of_epsilon(sides, neighbours, acceptance):
    """At an epsilon of 1/20, all scales are above 20, so the variance is 2 scale^2 but for 1 part in 4,800.

    If a record may be left out, the root is measured, which a replaced record changes by less than other levels.
    """
    given = {"budget": Budget("1/20", shares=("geometric", "13/10")), "mechanism": LAPLACE}
    order = "destination" if sides[1].depth == 0 else "both"
    plan = planned(sides, order, neighbours=neighbours, acceptance=acceptance, **given)
    model, covariance = model_of(plan), least_squares(plan)
    assert model.power == 2
    for quantity in every_quantity(plan):
        expected = dense_variances(plan, quantity, covariance)
        found = model.make_cell_variance_function(quantity)(shares_of(plan, model)) * 20**2
        assert found == pytest.approx(expected, rel=5e-4, abs=1e-6), quantity.name
        mean = model.compute_mean_variance(quantity, shares_of(plan, model)) * 20**2
        assert mean == pytest.approx(expected.mean(), rel=5e-4, abs=1e-6)


@pytest.mark.parametrize("neighbours", ["unbounded", "bounded"])
def test_top_down_estimates_have_the_variances_of_their_coefficients(neighbours):
    plan = planned((UNEVEN, UNEVEN), mechanism="inftda", neighbours=neighbours, acceptance=NO_FAULTS)
    model = model_of(plan)
    spread, estimates = top_down(plan.tree, {step.level: step.variance for step in plan.steps})
    leaves, below = estimates[-1], level_rows(plan.tree, plan.tree.depth)
    for quantity in every_quantity(plan):
        rows = wanted_rows(plan.tree, quantity) @ below.T @ leaves
        found = model.make_cell_variance_function(quantity)(shares_of(plan, model)) / 2
        assert found == pytest.approx(rows**2 @ spread, rel=1e-9, abs=1e-9), quantity.name


def test_chosen_cells_are_those_of_all():
    plan = planned((UNEVEN, UNEVEN))
    model = model_of(plan)
    shares = shares_of(plan, model)
    for quantity in every_quantity(plan):
        every = model.make_cell_variance_function(quantity)(shares)
        width = plan.tree.destination.size(quantity.destination_level) if quantity.part == "all" else 1
        places = np.arange(len(every))[::-2]
        origin = (places // width).astype(np.int32)
        destination = (places % width).astype(np.int32) if quantity.part == "all" else origin
        variance = model.make_cell_variance_function(quantity, (origin, destination))
        assert variance(shares) == pytest.approx(every[places], rel=1e-12)


def test_levels_whose_nodes_have_one_child_need_no_share():
    plan = planned((SINGLE, SINGLE), shares="geography")
    model = model_of(plan)
    assert [plan.tree.largest_fan_out(level) for level in model.levels] == [2, 2, 1, 1, 2, 2, 0]
    assert model.free_levels == [0, 1, 4, 5, 6] == [step.level for step in plan.totals]
    shares = np.array([float(step.rho) / 2 for step in plan.totals])
    covariance = least_squares(plan)
    for quantity in every_quantity(plan):
        expected = dense_variances(plan, quantity, covariance)
        assert model.make_cell_variance_function(quantity)(shares) / 2 == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_few_shapes_change_the_mean_little(monkeypatch):
    generator = np.random.default_rng(3)
    towns = [(f"r{r}", f"r{r}t{t}") for r in range(6) for t in range(generator.integers(1, 6))]
    zones = geography_of([(*town, f"{town[1]}z{z}") for town in towns for z in range(generator.integers(1, 7))])
    plan = planned((zones, zones))
    exact = model_of(plan)
    quantities = [Quantity.parse(name, plan.tree) for name in (" x ".join(pair) for pair in plan.tree.level_names)]
    shares = shares_of(plan, exact)
    expected = [exact.compute_mean_variance(quantity, shares) for quantity in quantities]
    monkeypatch.setattr(optimal_shares, "MAX_SHAPES_PER_LEVEL", 4)
    found = [model_of(plan).compute_mean_variance(quantity, shares) for quantity in quantities]
    assert found != expected
    assert found == pytest.approx(expected, rel=0.05)


def test_a_sum_of_too_many_flows_is_refused(monkeypatch):
    plan = planned((UNEVEN, UNEVEN))
    monkeypatch.setattr(optimal_shares, "MAX_SUMMED_NODES", 35)
    with pytest.raises(OdError, match=r"OD-QUANTITY-TOO-LARGE.*36 flows"):
        model_of(plan).make_cell_variance_function(Quantity.parse(f"{plan.tree.origin.levels[-1]} outflow", plan.tree))


def test_names_of_quantities():
    plan = planned((UNEVEN, UNEVEN), segments={"mode": ["car", "bus"]})
    levels: tuple[str, ...] = plan.tree.origin.levels
    first, second = levels[:2]
    both = Quantity.parse(f"  {first}  x {second} by mode", plan.tree, plan.breakdowns)
    assert (both.origin_level, both.destination_level, both.part) == (1, 2, "all")
    assert both.breakdown is plan.breakdowns[0]
    assert Quantity.parse(f"{second} inflow", plan.tree).part == "inflow"
    assert Quantity.parse(f"{first} within", plan.tree).origin_level == 1
    with pytest.raises(OdError, match=rf"OD-QUANTITY-UNKNOWN.*did you mean '{first} x {second}'"):
        Quantity.parse(f"{first} X {second}", plan.tree)
    with pytest.raises(OdError, match=r"OD-QUANTITY-UNKNOWN.*levels: "):
        Quantity.parse("everything", plan.tree)
    two = planned((ONLY, OTHER))
    with pytest.raises(OdError, match=r"OD-QUANTITY-UNKNOWN"):
        Quantity.parse(f"{first} within", two.tree)
