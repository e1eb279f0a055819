r"""Fit a gravity model to a published release, and print its interval and its bias from replicates.

    od-release run us_flights --period 2001-06
    python examples/replicates/results_with_their_uncertainty.py \
        var/releases/us_flights/2001-06/r1 data/us_flights/airports.csv

The expected trips between two airports are in proportion to the trips that leave the one and arrive at the other, and
to a power of their distance. The model is fitted by Poisson regression to the totals of ten bands of distance: sums of
thousands of flows, of which replicates know the errors. Single flows are small against their noise, so a model that is
fitted to their logarithms, or to which flows are above 0, would be biased. The last result shows this: in most
releases, its bias is more than half a standard error.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from od_core import open_release

REPLICATES = 100
BANDS = 10
EARTH = 6371.0  # kilometres
DEVIATIONS = 1.645  # of a normal distribution, to both sides: 90 %


def distances(zones: pd.DataFrame) -> np.ndarray:
    """Return great-circle distances in kilometres; shape (zones, zones)."""
    north, east = np.radians(zones["latitude"].to_numpy(float)), np.radians(zones["longitude"].to_numpy(float))
    half = (np.sin((north[:, None] - north) / 2)) ** 2
    half += np.cos(north[:, None]) * np.cos(north) * np.sin((east[:, None] - east) / 2) ** 2
    return 2 * EARTH * np.arcsin(np.sqrt(np.clip(half, 0, 1)))


def mean_distance(trips: np.ndarray, distance: np.ndarray) -> float:
    """Return the mean distance of a trip: a ratio of two sums."""
    return float((trips * distance).sum() / trips.sum())


def gravity(trips: np.ndarray, distance: np.ndarray) -> float:
    """Return the power of the distance, fitted by Poisson regression to the totals of distance bands."""
    apart = distance > 0
    edges = np.quantile(distance[apart], np.linspace(0, 1, BANDS + 1)[1:-1])
    band = np.searchsorted(edges, distance[apart], side="right")
    attraction = np.outer(trips.sum(axis=1), trips.sum(axis=0)) / trips.sum()
    total, base = (np.bincount(band, values[apart], BANDS) for values in (trips, attraction))
    far = np.bincount(band, np.log(distance[apart]), BANDS) / np.bincount(band, minlength=BANDS)
    x, power = np.column_stack([np.ones(BANDS), far - far.mean()]), np.array([np.log(total.sum() / base.sum()), 0.0])
    for _ in range(50):
        expected = base * np.exp(x @ power)
        step = np.linalg.solve(x.T @ (expected[:, None] * x), x.T @ (total - expected))
        power += step
        if np.abs(step).max() < 1e-10:
            break
    return float(power[1])


def pairs(trips: np.ndarray, _distance: np.ndarray) -> float:
    """Return the number of pairs of zones with trips, which no replicate knows."""
    return float((trips >= 0.5).sum())


def main() -> None:
    """Print each result by the estimate, its 90 % interval and its bias."""
    release = open_release(Path(sys.argv[1]))
    geography = release.tree.origin
    zones = pd.read_csv(sys.argv[2], dtype={geography.levels[-1]: str}, keep_default_na=False)
    distance = distances(zones.set_index(geography.levels[-1]).loc[list(geography.zones)])
    replicated = release.replicated  # as arrays; release.replicates(100) yields them as frames with codes

    def matrix(trips: np.ndarray) -> np.ndarray:
        table = np.zeros(distance.shape)
        table[replicated.ends] = trips
        return table

    estimate = matrix(replicated.estimate)
    tables = [matrix(trips) for trips in replicated.tables(REPLICATES)]
    results = {"power of the distance": gravity, "mean distance": mean_distance, "pairs with trips": pairs}
    for name, result in results.items():
        value, each = result(estimate, distance), np.array([result(table, distance) for table in tables])
        error, bias = each.std(ddof=1), each.mean() - value
        if abs(bias) > error / 2:
            print(f"{name}: {value:.5g}; no interval holds, since the bias is {bias / error:.1f} standard errors")
            continue
        low, high = value - DEVIATIONS * error, value + DEVIATIONS * error
        print(f"{name}: {value:.5g}, 90 % interval {low:.5g} to {high:.5g}; bias {bias:.2g}")


if __name__ == "__main__":
    main()
