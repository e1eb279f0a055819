"""Estimates from measured area totals: each is linear in the measurements, which gives its variance by itself."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from od_core import Budget, Geography, InfTDARefined, PrivacyUnit, Release, evaluate_area_totals, release_flows
from od_core.flows.estimation.area_totals import include_area_totals
from od_core.flows.estimation.least_squares import build_measured_levels, fit_measured_levels
from od_core.flows.estimation.levels import combine_totals, select_area_totals
from od_core.ledger.measurements import NoisyVector
from tests.od_core.doubles import SeededNoise, no_noise

ZONES = pd.DataFrame({"region": list("AAABB"), "zone": ["a1", "a2", "a3", "b1", "b2"]})
GEOGRAPHY = Geography.from_frame(ZONES, ["region", "zone"])
PAIRS = [(o, d) for o in ZONES["zone"] for d in ZONES["zone"]]
FLOWS = pd.DataFrame(PAIRS, columns=["origin", "destination"]).assign(trips=np.arange(25) ** 2 % 17 + 3)


def released(order: str = "destination", mechanism: str | InfTDARefined = "inftda_refined", noise=None) -> Release:
    given = {"unit": PrivacyUnit("trip"), "budget": Budget(1, "1e-6"), "noise": noise or SeededNoise(3)}
    return release_flows(FLOWS, GEOGRAPHY, **given, tree=order, mechanism=mechanism, area_totals="1/5")


def changed(release: Release) -> Iterator[tuple[float, Release]]:
    """Yield the variance of each measured number, and the release with this number raised by 1,000."""
    for at, one in enumerate(release.measured):
        values = one.noisy.read_values()
        for k in range(len(values)):
            raised = values.copy()
            raised[k] += 1000
            measured = [*release.measured]
            measured[at] = replace(one, noisy=NoisyVector.from_arrays([raised]))
            yield float(one.step.variance), replace(release, measured=tuple(measured))


def variances(release: Release, estimate: Callable[[Release], np.ndarray]) -> np.ndarray:
    """Return the variance of a linear estimate of the measurements."""
    base, sums = estimate(release), 0.0
    for variance, other in changed(release):
        sums = sums + variance * ((estimate(other) - base) / 1000) ** 2
    return sums


def fitted(release: Release) -> np.ndarray:
    """Return the estimates of the leaves from all measurements, in tree order."""
    plan = release.plan
    levels = build_measured_levels(plan, int(release.leaves.trips.sum()), combine_totals(plan, release.measured))
    return fit_measured_levels(include_area_totals(plan, levels, select_area_totals(release.measured))[0])[-1].estimate


@pytest.mark.parametrize("order", ["destination", "origin"])
def test_the_total_of_a_zone_is_the_mean_of_the_tree_and_of_its_measurement(order):
    release = released(order)
    for pair, side in ((("zone", "all"), 0), (("all", "zone"), 1)):
        levels = release._find_level_numbers(*pair)
        tree, best = release.fitted.estimate_cells(*levels)[2], release.fitted.estimate_cells_with_totals(*levels)[2]
        measured = next(one for one in release.measured if getattr(one.step, "side", None) == side)
        direct = float(measured.step.variance)
        weights = 1 / tree.variance, 1 / direct
        mean = (tree.estimate * weights[0] + measured.noisy.read_values() * weights[1]) / (weights[0] + weights[1])
        np.testing.assert_allclose(best.estimate, mean)
        np.testing.assert_allclose(best.variance, 1 / (weights[0] + weights[1]))


NAMES = ("within", "begun", "outflow", "inflow")


def of_areas(release: Release, level: int) -> np.ndarray:
    """Return the estimates of each area of a level by their names, and last the inflow without the outflow."""
    areas = release.intervals.estimate_areas(level)
    each = [getattr(areas, name).estimate for name in NAMES]
    return np.array([*each, areas.inflow.estimate - areas.outflow.estimate])


@pytest.mark.parametrize("order", ["destination", "origin"])
def test_outflow_inflow_and_trips_within_have_the_variances_of_linear_estimates(order):
    release, levels = released(order), (1, 2)
    of_levels = variances(release, lambda one: np.hstack([of_areas(one, level) for level in levels]))
    sizes = [GEOGRAPHY.size(level) for level in levels]
    for level, found in zip(levels, np.split(of_levels, np.cumsum(sizes)[:-1], axis=1), strict=True):
        areas = release.intervals.estimate_areas(level)
        for name, of in zip(NAMES, found[:-1], strict=True):
            np.testing.assert_allclose(getattr(areas, name).variance, of, rtol=1e-6)
        both = areas.inflow.variance + areas.outflow.variance - 2 * areas.exchange
        np.testing.assert_allclose(both, found[-1], rtol=1e-6)


@pytest.mark.parametrize("order", ["destination", "origin"])
def test_a_weighted_sum_is_that_of_the_fit_of_all_measurements_with_its_variance(order):
    release = released(order)
    table = FLOWS.assign(weight=np.cos(np.arange(25)))[["origin", "destination", "weight"]]
    nodes = release.fitted.levels[-1].nodes
    zones = np.array(GEOGRAPHY.zones)
    known = table.set_index(["origin", "destination"])["weight"]
    weights = known.loc[list(zip(zones[nodes.origin], zones[nodes.destination], strict=True))].to_numpy()
    found = release.weighted_sum(table)
    assert found.value == pytest.approx(weights @ fitted(release), rel=1e-9)
    of = variances(release, lambda one: np.array([one.weighted_sum(table).value]))
    assert found.deviation == pytest.approx(math.sqrt(of[0]), rel=1e-6)


def test_replicates_spread_around_the_fit_of_all_measurements_as_it_does():
    """Their noise is a function of the measurements, so the result is the same each time."""
    release = released()
    np.testing.assert_allclose(release.replicated.estimate, fitted(release), rtol=1e-9)
    replicates = np.array(list(release.replicated.tables(400)))
    origins = release.replicated.ends[0]
    from_zones = np.array([np.bincount(origins, one) for one in replicates])
    of = variances(release, lambda one: np.bincount(origins, fitted(one)))
    np.testing.assert_allclose(from_zones.std(axis=0), np.sqrt(of), rtol=0.15)


def test_a_whole_margin_of_some_zones_uses_their_measurements():
    release = released()
    found = release.trips_between("zone", ["a1", "b2"], "all", ["all"])
    areas, leaf = release.fitted.estimate_cells_with_totals(2, 0)[2], release.intervals
    some = np.isin(GEOGRAPHY.zones, ["a1", "b2"])
    assert leaf.compute_sum_bounds(some, np.ones(5, dtype=bool)) == (found.lower, found.upper)
    one = leaf.compute_sum_bounds(np.isin(GEOGRAPHY.zones, ["a1"]), np.ones(5, dtype=bool))
    cells = leaf.compute_cell_bounds(2, 0, np.array([0], dtype=np.int32), np.array([0], dtype=np.int32))
    assert one == (cells[0][0], cells[1][0])
    assert tuple(release.trips_between("zone", [], "all", ["all"])) == (0, 0, 0)
    assert len(areas.estimate) == 5


def test_below_dropped_nodes_the_measured_total_counts_what_the_tree_does_not_see():
    """At keep_all_cap 0, a zone below a dropped node has the measured total alone."""
    release = released(mechanism=InfTDARefined(keep_all_cap=0), noise=no_noise())
    origins, _, best = release.fitted.estimate_cells_with_totals(2, 0)
    assert origins.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(best.estimate, FLOWS.groupby("origin")["trips"].sum().loc[list(GEOGRAPHY.zones)])


def test_errors_of_the_totals_of_zones_by_hand():
    release = released()
    flows = release.flows
    errors = evaluate_area_totals(release, flows)
    assert errors["side"].tolist() == ["origin", "destination"]
    assert errors[["root_mean_square_error", "largest_bias"]].to_numpy().tolist() == [[0, 0], [0, 0]]
    from_a1 = flows["origin"] == "a1"
    true = flows.assign(trips=np.where(from_a1, flows["trips"] * 2, flows["trips"]))
    row = evaluate_area_totals(release, true).iloc[0]
    assert row["root_mean_square_error"] == pytest.approx(flows.loc[from_a1, "trips"].sum() / math.sqrt(5))
    assert row["largest_bias"] == pytest.approx(-0.5 / 5)
