"""Measure how often the 90 % intervals of indicators hold the truth, by the true size, on real flows.

    python -m benchmarks.indicators --case flights norway taxis nz_education --data FOLDER --runs 100
    python -m benchmarks.indicators --mechanism inftda --epsilon 0.1 1 10 --runs 20

Every run is an independent release with certified noise. Areas of all levels are counted together; shares of 0
are left out. "outflow plain" and the like are the intervals before their ends are made whole, cut at 0 and widened to
the released number. "likely higher" and "likely lower" are the outflows and inflows of zones that are marked so: their
share of all, how many are on that side, and the mean absolute errors of the released and the unbiased numbers. Data
sets other than the flights are read from the subfolders of FOLDER.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.estimator import data_set
from benchmarks.flights import FLIGHTS, read_flights
from benchmarks.measuring import machine, printed, steps
from od_core import Budget, PrivacyUnit, plan_release
from od_core.evaluation.known_flows import KnownFlows
from od_core.flows.indicators import distance_bands, indicators
from od_core.flows.interval_ends import DEVIATIONS
from od_core.flows.release import Release, run_plan
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography
from od_core.geography.places import ZoneDistances, has_distances
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counts import TripCounts
from od_core.records.zone_lists import read_zones

CASES = ("flights", "norway", "taxis", "uk", "nz_education", "random")
SIZES = (0, 1, 10, 100, 1_000, 10_000)
"""Smallest true number of each class."""

LEAST_CELLS = 1_000
"""Smallest number of intervals of a class that is shown, for 100 runs or more; for fewer runs, fewer are enough."""

Counts = NDArray[np.int64]
Reals = NDArray[np.float64]
PLAIN = ("outflow", "inflow", "within")
NUMBERS = (*PLAIN, "balance")
RATIOS = ("self_containment", "mean_distance")


def known(case: str, folder: Path | None, *, small: bool) -> KnownFlows:
    """Return the flows of a case, with the places of its zones if they are known."""
    if case != "flights":
        return data_set(case, folder, small=small)
    flights, areas = read_flights(FLIGHTS)
    zones = read_zones(FLIGHTS / "airports.csv")
    with_places = Geography.from_frame(zones, areas.levels, coordinates=("latitude", "longitude"))
    return KnownFlows.from_frame(case, "public", flights, with_places)


def true_indicators(tree: FlowTree, trips: TripCounts) -> pd.DataFrame:
    """Return the true indicators of all areas, in the order of :func:`indicators`, without shares.

    If zones have coordinates, ``far`` is the sum of the known distances, and ``known`` the number of trips with one.
    """
    pairs, count = tree.find_leaf_pairs(trips.rank), np.diff(trips.before)
    distances = ZoneDistances.from_tree(tree) if has_distances(tree) else None
    levels = []
    for level in range(1, tree.origin.depth + 1):
        origin, destination = (tree.origin.ancestors(level)[zones] for zones in (pairs.origin, pairs.destination))
        same, size = origin == destination, tree.origin.size(level)
        begun, ended, within = (
            np.bincount(areas[chosen], count[chosen], minlength=size).astype(np.int64)
            for areas, chosen in ((origin, ...), (destination, ...), (origin, same))
        )
        numbers = {"outflow": begun - within, "inflow": ended - within, "within": within, "balance": ended - begun}
        if distances is not None:
            apart = distances.compute_distances(pairs.origin, pairs.destination)
            known = ~np.isnan(apart)
            numbers["far"] = np.bincount(origin[known], (apart * count)[known], minlength=size)
            numbers["known"] = np.bincount(origin[known], count[known], minlength=size)
        levels.append(pd.DataFrame(numbers))
    return pd.concat(levels, ignore_index=True)


def true_bands(tree: FlowTree, trips: TripCounts) -> tuple[Counts, Counts]:
    """Return the true trips of each area by distance, in the order of :func:`distance_bands`, twice."""
    pairs, count, distances = tree.find_leaf_pairs(trips.rank), np.diff(trips.before), ZoneDistances.from_tree(tree)
    apart = distances.compute_distances(pairs.origin, pairs.destination)
    band = np.where(np.isnan(apart), 0, np.searchsorted(distances.edges, apart, side="right") + 1)
    bands = len(distances.edges) + 2
    rows = []
    for level in range(tree.origin.depth + 1):
        place = tree.origin.ancestors(level)[pairs.origin] * bands + band
        table = np.bincount(place, count, minlength=bands * tree.origin.size(level)).reshape(-1, bands)
        rows.append(table[:, 1:] if distances.all_known else table)
    true = np.concatenate([table.ravel() for table in rows]).astype(np.int64)
    return true, true


def plain_ends(release: Release) -> dict[str, tuple[Reals, Reals]]:
    """Return the ends of the intervals of all areas before anything is done to them, in the order of the indicators.

    Nothing was measured below dropped nodes, so an empty dictionary is returned if there are any.
    """
    if not release.intervals.nothing_dropped:
        return {}
    levels = [release.intervals.estimate_areas(level) for level in range(1, release.plan.tree.origin.depth + 1)]
    ends = {}
    for name in PLAIN:
        estimate = np.concatenate([getattr(areas, name).estimate for areas in levels])
        width = DEVIATIONS * np.sqrt(np.concatenate([getattr(areas, name).variance for areas in levels]))
        ends[f"{name} plain"] = (estimate - width, estimate + width)
    return ends


def of_marks(found: Sequence[pd.DataFrame], true: pd.DataFrame, zones: int) -> dict[str, Any]:
    """Return how many totals of zones, last in the tables of several releases, are marked, and their errors.

    A mark that no total has is left out.
    """
    rows = []
    for table, name in product(found, ("outflow", "inflow")):
        numbers = {"mark": f"{name}_likely", "released": name, "unbiased": f"{name}_unbiased"}
        of_zones = table[list(numbers.values())].tail(zones).set_axis(list(numbers), axis=1)
        rows.append(of_zones.assign(true=true[name].tail(zones).to_numpy()))
    every, shares = pd.concat(rows), {}
    for mark, sign in (("higher", 1), ("lower", -1)):
        marked = every[every["mark"] == mark]
        if marked.empty:
            continue
        shares[f"likely {mark}"] = {
            "percent of totals": round(100 * len(marked) / len(every), 1),
            "percent right": round(100 * float((sign * (marked["true"] - marked["released"]) > 0).mean()), 1),
            "error of the released": round(float((marked["released"] - marked["true"]).abs().mean()), 1),
            "error of the unbiased": round(float((marked["unbiased"] - marked["true"]).abs().mean()), 1),
        }
    return shares


def measure(data: KnownFlows, epsilon: str, runs: int, mechanism: str = "inftda_refined") -> dict[str, Any]:
    """Return, for each indicator and class of size, the percentage of intervals that hold the truth; then the marks."""
    plan = plan_release(
        data.geography,
        unit=PrivacyUnit("trip"),
        budget=Budget(epsilon=epsilon, delta="1e-8"),
        mechanism=mechanism,
        acceptance=NO_FAULTS,
    )
    true = true_indicators(plan.tree, data.trips)
    begun = (true["within"] + true["outflow"]).to_numpy()
    truth: dict[str, Any] = {name: (true[name].to_numpy(), abs(true[name].to_numpy())) for name in NUMBERS}
    truth["self_containment"] = (np.divide(true["within"], begun, where=begun > 0, out=np.zeros(len(true))), begun)
    if "far" in true:
        known = true["known"].to_numpy()
        mean = np.divide(true["far"], known, where=known > 0, out=np.zeros(len(true)))
        truth["mean_distance"] = (np.round(mean, 3), known)
        truth["distance_bands"] = true_bands(plan.tree, data.trips)
    truth |= {f"{name} plain": truth[name] for name in PLAIN}
    held: dict[tuple[str, int], list[float]] = defaultdict(list)
    cells: dict[tuple[str, int], int] = defaultdict(int)
    tables = []
    for _ in steps(range(runs), "Releasing"):
        release = run_plan(plan, data.trips, resolve_noise_source("table"), MemoryMeasurements())
        found = indicators(release)
        tables.append(found)
        ends = plain_ends(release)
        ends |= {
            name: (found[f"{name}_lower"].to_numpy(), found[f"{name}_upper"].to_numpy())
            for name in (*NUMBERS, *RATIOS)
            if name in truth
        }
        if "distance_bands" in truth:
            bands = distance_bands(release)
            ends["distance_bands"] = (bands["lower"].to_numpy(), bands["upper"].to_numpy())
        for name, (lower, upper) in ends.items():
            value, size = truth[name]
            inside = (lower <= value + 1e-6) & (value - 1e-6 <= upper)
            class_of = np.searchsorted(SIZES, size, side="right") - 1
            if name in RATIOS:
                class_of[value == 0] = -1  # a share of 0 cannot be missed from below
            for k in np.unique(class_of[class_of >= 0]).tolist():
                held[name, k].append(float(inside[class_of == k].mean()))
                cells[name, k] += int((class_of == k).sum())
    shares = {
        name: {
            f"{SIZES[k]:,} or more": round(100 * float(np.mean(held[name, k])), 1)
            for k in range(len(SIZES))
            if cells[name, k] >= min(LEAST_CELLS, 10 * runs)
        }
        for name in truth
    }
    return shares | of_marks(tables, true, len(data.geography.zones))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", nargs="+", choices=CASES, default=["flights"])
    parser.add_argument("--data", type=Path, help="folder with the data sets other than the flights")
    parser.add_argument("--epsilon", nargs="+", default=["1"])
    parser.add_argument("--mechanism", default="inftda_refined")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--small", action="store_true", help="few synthetic trips, for a trial")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cases, runs = (["random"], 2) if options.small else (options.case, options.runs)
    for case in cases:
        data = known(case, options.data, small=options.small)
        for epsilon in options.epsilon:
            result = measure(data, epsilon, runs, options.mechanism)
            stated = {
                "machine": machine(),
                "data": case,
                "mechanism": options.mechanism,
                "epsilon": epsilon,
                "runs": runs,
            }
            printed({**stated, "mechanism": options.mechanism, **result}, as_json=options.json)


if __name__ == "__main__":
    main()
