"""Flights of every month, with noise of about the planned size from a test double.

The whole grid of months, budgets and trees, with the library's own noise, is in tests/statistical.
"""

from __future__ import annotations

import pytest

from od_core import Budget, PrivacyUnit, evaluate, release_flows
from tests.od_core.doubles import no_noise
from tests.od_core.invariants import AIRPORT_LEVELS, areas_by_zone, grouped, indexed
from tests.od_core.strategies import TREES

UNIT = PrivacyUnit("trip", neighbours="bounded")


@pytest.mark.parametrize("order", TREES)
def test_a_month_without_noise_is_the_month(order, flights, airports, airport_geography):
    records = flights["2001-06"]
    release = release_flows(
        records,
        airport_geography,
        unit=UNIT,
        budget=Budget(epsilon=1, delta=1e-8),
        tree=order,
        noise=no_noise(),
        fault_threshold=0,
        one_row_a_trip=True,
    )
    areas = areas_by_zone(airports, AIRPORT_LEVELS)
    flights_between = records[["origin", "destination"]].value_counts().rename("trips").reset_index()
    for pair in release.levels:
        truth = grouped(flights_between, areas, pair)
        assert indexed(release.flows_at(*pair), "trips").to_dict() == truth.to_dict()
    assert (evaluate(release, records, one_row_a_trip=True).drop(columns="level") == 0).all(axis=None)
