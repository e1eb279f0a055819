"""Measure what it gains to state which pairs can have trips: routes of earlier flights, or municipalities close by.

    python -m benchmarks.possible_pairs --data FOLDER --coordinates FILE --csv docs/reference/tables
    python -m benchmarks.possible_pairs --epsilon 1 --runs 5 --json
    python -m benchmarks.possible_pairs --data FOLDER --counties FILE --near 300

A flight of June on a route that no month before has is a fault, and is not counted; so is a commuter in Norway to a
municipality that is farther away. They are errors of the table nevertheless. Errors are of the released table against
all trips, means over independent draws of the certified noise. The file has the columns kommune, latitude and
longitude, separated by semicolons; without it, the flights alone are measured. We took the centroids of the boundaries
of 2018 in version 2019.8.27 of the R package fhidata, from Geonorge and under Creative Commons 0, as it says.

With a file of the coordinates of US counties (county, latitude, longitude), one release of the commuters between all
counties, or between those that are near, shows processor time and the largest memory beyond that of the data.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.estimator import NOISE, data_set
from benchmarks.flights import FLIGHTS
from benchmarks.measuring import machine, printed, steps
from benchmarks.square_levels import LEVEL, errors, make_unit, planned
from benchmarks.tables import write_csv
from od_core import Budget, Geography, InfTDARefined, ReleasePlan, plan_release
from od_core.evaluation.comparison import read_peak_memory_gigabytes, reset_peak_memory
from od_core.evaluation.forecast import arrange_counts_for_plan
from od_core.evaluation.known_flows import KnownFlows
from od_core.evaluation.metrics import compute_level_errors, make_leaf_nodes, sum_trips_by_level
from od_core.flows.release import run_plan
from od_core.geography.possible_pairs import PossiblePairs
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counts import TripCounts

MONTHS = ("2001-01", "2001-02", "2001-03", "2001-04", "2001-05")
KILOMETRES = (300, 500)
"""Largest distances of commuters in Norway, between the centroids of their municipalities."""

VARIANTS: Mapping[str, dict[str, Any]] = {
    "one side at a time": {},
    "one side at a time, auto": {"estimate": "auto"},
    "both sides": {"tree": "both"},
    "Laplace": {"tree": "both", "noise_distribution": "laplace"},
}
"""Options of the variants of both data sets."""

_WITHOUT_TOTALS: Mapping[str, dict[str, Any]] = {**VARIANTS, "both sides, auto": {"tree": "both", "estimate": "auto"}}
_WITH_TOTALS = {f"{name}, area totals": {**options, "area_totals": True} for name, options in _WITHOUT_TOTALS.items()}
ALL_VARIANTS = {**_WITHOUT_TOTALS, **_WITH_TOTALS}
"""Options of the variants of the flights."""


def read_routes(folder: Path, data: KnownFlows) -> PossiblePairs:
    """Return the pairs of airports with a flight in one of the months before."""
    months = [pd.read_parquet(folder / f"{month}.parquet", columns=["origin", "destination"]) for month in MONTHS]
    return PossiblePairs.from_frame(pd.concat(months).drop_duplicates(), data.geography, data.geography)


def find_near_pairs(coordinates: Path, code: str, data: KnownFlows, kilometres: int) -> PossiblePairs:
    """Return the pairs of zones that are at most so far apart, given the column of the codes of their coordinates."""
    places = pd.read_csv(coordinates, sep=";", dtype={code: str})
    places = places[places[code].isin(data.geography.zones)]
    located = Geography.from_frame(places, [code], coordinates=("latitude", "longitude"))
    near, zones = PossiblePairs.from_rule(located, located, distance_km=(0, kilometres)), np.array(located.zones)
    codes = pd.DataFrame({"origin": zones[near.origin], "destination": zones[near.destination]})
    return PossiblePairs.from_frame(codes, data.geography, data.geography)  # its zones are in another order


def list_rules(folder: Path | None, coordinates: Path | None) -> Iterator[tuple[str, str, PossiblePairs | None]]:
    """Yield each data set with the name of each rule of it, and the pairs that are possible by it; None is all."""
    yield "flights", "all pairs", None
    yield "flights", "routes of the months before", read_routes(FLIGHTS, data_set("flights", None, small=False))
    if folder is not None and coordinates is not None:
        data = data_set("norway", folder, small=False)
        yield "norway", "all pairs", None
        for kilometres in KILOMETRES:
            yield "norway", f"at most {kilometres} km", find_near_pairs(coordinates, "kommune", data, kilometres)


def measured(data: KnownFlows, plan: ReleasePlan, runs: int) -> dict[str, float]:
    """Return the mean errors of several releases of a plan, and the percentage of the trips that it does not count."""
    tree, truth = data.truth.tree, make_leaf_nodes(data.truth.tree, data.trips)
    counts, noise, rows = arrange_counts_for_plan(data, plan), resolve_noise_source(NOISE), []
    uncounted = 100 * (1 - counts.total / data.trips.total)
    for _ in range(runs):
        leaves = run_plan(plan, counts, noise, MemoryMeasurements()).leaves
        found = errors(data, truth, leaves)
        of_june = make_leaf_nodes(tree, TripCounts.from_pairs(tree, leaves.origin, leaves.destination, leaves.trips))
        true, released = (list(sum_trips_by_level(tree, nodes))[-1] for nodes in (truth, of_june))
        missed = compute_level_errors(true, released, tree.cells(tree.depth))["false_negative_rate"]
        shown = {name: error for name, error in found.items() if not name.startswith(LEVEL)}
        rows.append({"uncounted_percent": uncounted} | shown | {"missed_percent": 100 * missed})
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def measure_counties(folder: Path, coordinates: Path, kilometres: int | None) -> dict[str, float]:
    """Return processor time and memory of a release of commuters between counties: all, or those that are near."""
    data = data_set("us_counties", folder, small=False)
    near = None if kilometres is None else find_near_pairs(coordinates, "county", data, kilometres)
    reset_peak_memory()
    before, begun = read_peak_memory_gigabytes(), time.process_time()
    mechanism, unit = InfTDARefined(keep_all_cap=20_000_000, estimate="auto"), make_unit("unbounded", 1)
    plan = plan_release(
        data.geography, unit=unit, budget=Budget(1, "1e-6"), mechanism=mechanism, acceptance=NO_FAULTS, possible=near
    )
    counts, noise = arrange_counts_for_plan(data, plan), resolve_noise_source(NOISE)
    run_plan(plan, counts, noise, MemoryMeasurements())
    seconds, memory = time.process_time() - begun, (read_peak_memory_gigabytes() or 0) - (before or 0)
    return {"possible_pairs": plan.tree.cells(plan.tree.depth), "processor_seconds": seconds, "gigabytes": memory}


def main() -> None:
    """Measure every variant with all pairs and with the possible ones, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="write the figures to possible-pairs.csv there")
    parser.add_argument("--epsilon", nargs="+", default=["0.1", "1", "10"])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="folder of the data sets")
    parser.add_argument("--coordinates", type=Path, metavar="FILE", help="of the municipalities of Norway")
    parser.add_argument("--counties", type=Path, metavar="FILE", help="coordinates of US counties: only their cost")
    parser.add_argument("--near", type=int, metavar="KILOMETRES", help="the largest distance of counties")
    parser.add_argument("--small", action="store_true", help="few runs of few variants, to see that it runs")
    options = parser.parse_args()
    if options.counties:
        cost = measure_counties(options.data, options.counties, options.near)
        printed({"machine": machine(), "noise": NOISE, **cost}, as_json=options.json)
        return
    rows, given = [], [*list_rules(options.data, options.coordinates)]
    asked_of_rules = product(given, options.epsilon, ALL_VARIANTS)
    chosen = [asked for asked in asked_of_rules if asked[0][0] == "flights" or asked[2] in VARIANTS]
    runs = options.runs
    if options.small:
        chosen, runs = [asked for asked in chosen if asked[1:] == ("1", "Laplace")], 2
    for (case, rule, possible), epsilon, name in steps(chosen, "possible_pairs"):
        data = data_set(case, options.data, small=False)
        plan = planned(data, make_unit("unbounded", 1), epsilon, "1e-6", ALL_VARIANTS[name], possible)
        asked = {"data_set": case, "rule": rule, "epsilon": epsilon, "variant": name}
        rows.append(asked | {"possible_pairs": plan.tree.cells(plan.tree.depth)} | measured(data, plan, runs))
    if options.csv:
        texts = [{key: f"{v:.3g}" if isinstance(v, float) else v for key, v in row.items()} for row in rows]
        write_csv(options.csv / "possible-pairs.csv", texts)
    printed({"machine": machine(), "noise": NOISE, "rows": rows}, as_json=options.json)


if __name__ == "__main__":
    main()
