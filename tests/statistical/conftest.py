"""Real releases of the flights: every month, three budgets, both trees, with the library's own noise."""

import itertools
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from od_core import Budget, PrivacyUnit, Release, release_flows
from od_core.noise.backends import BACKENDS
from tests.od_core.invariants import AIRPORT_LEVELS, areas_by_zone, grouped

BUDGETS = ("0.1", "1", "10")
TREES = ("destination", "origin")


@dataclass
class FlightRelease:
    """A release and, for each level, what was measured minus what is true."""

    month: str
    epsilon: str
    order: str
    release: Release
    residuals: dict[int, NDArray[np.int64]]
    empty: dict[int, NDArray[np.bool_]]

    def standardised(self, level: int) -> NDArray[np.float64]:
        return self.residuals[level] / float(self.release.plan.step(level).variance) ** 0.5


@pytest.fixture(scope="session")
def make_release(flights, airports, airport_geography):
    """A release of one month; the truth it is held against is a group-by of the records."""
    areas = areas_by_zone(airports, AIRPORT_LEVELS)
    pairs = {
        month: records.assign(trips=1).groupby(["origin", "destination"], as_index=False)["trips"].sum()
        for month, records in flights.items()
    }

    def make(month, epsilon, order, noise="opendp"):
        unit = PrivacyUnit("trip", neighbours="bounded")
        budget = Budget(epsilon=epsilon, delta=1e-8, shares="uniform")  # one law for all levels
        given = {"tree": order, "noise": noise, "fault_threshold": 0, "one_row_a_trip": True}
        release = release_flows(flights[month], airport_geography, unit=unit, budget=budget, **given)
        residuals, empty = {}, {}
        for measurement in release.measured:
            level = measurement.step.level
            table = release.measurements_at(level)
            cells = pd.MultiIndex.from_frame(table[["origin", "destination"]])
            truth = grouped(pairs[month], areas, release.levels[level]).reindex(cells, fill_value=0).to_numpy()
            residuals[level] = table["noisy"].to_numpy() - truth
            empty[level] = truth == 0
        return FlightRelease(month, epsilon, order, release, residuals, empty)

    return make


@pytest.fixture(scope="session")
def releases_with(make_release, flights):
    """By backend: 36 releases, about 850,000 noisy values; of OpenDP, which takes a minute for so many, 24.

    Even so, each month, each budget and each tree stands with all of the other two.
    """

    @cache
    def made(backend: str) -> list[FlightRelease]:
        asked = itertools.product(enumerate(flights), enumerate(BUDGETS), enumerate(TREES))
        return [
            make_release(month, epsilon, order, backend)
            for (i, month), (j, epsilon), (k, order) in asked
            if backend != "opendp" or (i + j + k) % 3 > 0
        ]

    return made


@pytest.fixture(scope="session", params=sorted(BACKENDS))
def real_releases(request, releases_with) -> list[FlightRelease]:
    """The releases of each backend in turn."""
    return releases_with(request.param)
