r"""Run two models on draws given a published release, and print how far their results vary.

    od-release run us_flights --period 2001-06
    python examples/draws/results_with_their_uncertainty.py \
        var/releases/us_flights/2001-06/r1 data/us_flights/airports.csv

The first is a gravity model: the expected trips between two airports are in proportion to powers of the trips that
leave the one and arrive at the other, and of their distance. The second counts functional regions [nystuen1961graph]:
each airport belongs to the one that most of its trips go to, if that one is larger.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from od_core import open_release

DRAWS = 100
EARTH = 6371.0  # kilometres


def distances(zones: pd.DataFrame) -> np.ndarray:
    """Return great-circle distances in kilometres; shape (zones, zones)."""
    north, east = np.radians(zones["latitude"].to_numpy(float)), np.radians(zones["longitude"].to_numpy(float))
    half = (np.sin((north[:, None] - north) / 2)) ** 2
    half += np.cos(north[:, None]) * np.cos(north) * np.sin((east[:, None] - east) / 2) ** 2
    return 2 * EARTH * np.arcsin(np.sqrt(np.clip(half, 0, 1)))


def gravity(trips: np.ndarray, distance: np.ndarray) -> float:
    """Return the power of the distance in a gravity model, fitted by Poisson regression to all pairs of zones."""
    sent, received = trips.sum(axis=1), trips.sum(axis=0)
    used = (sent[:, None] > 0) & (received > 0) & (distance > 0)
    there = np.broadcast_arrays(np.log(np.maximum(sent, 1))[:, None], np.log(np.maximum(received, 1)), distance)
    x = np.column_stack([np.ones(used.sum()), there[0][used], there[1][used], np.log(there[2][used])])
    y, power = trips[used], np.array([-np.log(trips.sum()), 1.0, 1.0, 0.0])
    for _ in range(50):
        expected = np.exp(np.clip(x @ power, -30, 30))
        step = np.linalg.solve(x.T @ (expected[:, None] * x), x.T @ (y - expected))
        power += step
        if np.abs(step).max() < 1e-8:
            break
    return float(power[3])


def regions(trips: np.ndarray) -> float:
    """Return the number of functional regions of the zones that trips leave."""
    between = trips - np.diag(np.diag(trips))
    size, most = trips.sum(axis=0), between.argmax(axis=1)
    leads = (between.sum(axis=1) > 0) & (size >= size[most])
    return float(leads.sum())


def main() -> None:
    """Print the results for the release itself, and the 90 % intervals of the results for the draws."""
    release = open_release(Path(sys.argv[1]))
    geography = release.tree.origin
    zones = pd.read_csv(sys.argv[2], dtype={geography.levels[-1]: str}, keep_default_na=False)
    zones = zones.set_index(geography.levels[-1]).loc[list(geography.zones)]
    places, distance = {code: k for k, code in enumerate(geography.zones)}, distances(zones)

    def matrix(flows: pd.DataFrame) -> np.ndarray:
        trips = np.zeros((len(places), len(places)))
        trips[flows["origin"].map(places), flows["destination"].map(places)] = flows["trips"]
        return trips

    tables = [matrix(flows) for flows in release.draws(DRAWS)]
    results = {"power of the distance": lambda trips: gravity(trips, distance), "functional regions": regions}
    for name, result in results.items():
        low, middle, high = np.quantile([result(trips) for trips in tables], [0.05, 0.5, 0.95])
        released = result(matrix(release.flows))
        print(f"{name}: {middle:.4g}, 90 % interval {low:.4g} to {high:.4g}; released table {released:.4g}")


if __name__ == "__main__":
    main()
