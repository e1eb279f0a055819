"""Measure what it gains to state which pairs can have trips: on the flights of June, the routes of the months before.

    python -m benchmarks.possible_pairs --csv docs/reference/tables
    python -m benchmarks.possible_pairs --epsilon 1 --runs 5 --json

A flight of a route that no month before has is a fault, and is not counted; it is an error of the table nevertheless.
Errors are of the released table against all flights of June, means over independent draws of the certified noise.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.estimator import NOISE
from benchmarks.flights import FLIGHTS, us_flights
from benchmarks.measuring import machine, printed, steps
from benchmarks.square_levels import LEVEL, errors, make_unit, planned
from benchmarks.tables import write_csv
from od_core import ReleasePlan
from od_core.evaluation.forecast import arrange_counts_for_plan
from od_core.evaluation.known_flows import KnownFlows
from od_core.evaluation.metrics import compute_level_errors, make_leaf_nodes, sum_trips_by_level
from od_core.flows.release import run_plan
from od_core.geography.possible_pairs import PossiblePairs
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source
from od_core.records.counts import TripCounts

MONTHS = ("2001-01", "2001-02", "2001-03", "2001-04", "2001-05")
VARIANTS: Mapping[str, dict[str, Any]] = {
    "one side at a time": {},
    "one side at a time, auto": {"estimate": "auto"},
    "both sides": {"tree": "both"},
    "Laplace": {"tree": "both", "noise_distribution": "laplace"},
}


def read_routes(folder: Path, data: KnownFlows) -> PossiblePairs:
    """Return the pairs of airports with a flight in one of the months before."""
    months = [pd.read_parquet(folder / f"{month}.parquet", columns=["origin", "destination"]) for month in MONTHS]
    return PossiblePairs.from_frame(pd.concat(months).drop_duplicates(), data.geography, data.geography)


def measured(data: KnownFlows, plan: ReleasePlan, runs: int) -> dict[str, float]:
    """Return the mean errors of several releases of a plan."""
    tree, truth = data.truth.tree, make_leaf_nodes(data.truth.tree, data.trips)
    counts, noise, rows = arrange_counts_for_plan(data, plan), resolve_noise_source(NOISE), []
    for _ in range(runs):
        leaves = run_plan(plan, counts, noise, MemoryMeasurements()).leaves
        found = errors(data, truth, leaves)
        of_june = make_leaf_nodes(tree, TripCounts.from_pairs(tree, leaves.origin, leaves.destination, leaves.trips))
        true, released = (list(sum_trips_by_level(tree, nodes))[-1] for nodes in (truth, of_june))
        missed = compute_level_errors(true, released, tree.cells(tree.depth))["false_negative_rate"]
        shown = {name: error for name, error in found.items() if not name.startswith(LEVEL)}
        rows.append(shown | {"missed_percent": 100 * missed})
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def main() -> None:
    """Measure every variant with all pairs and with the possible ones, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="write the figures to possible-pairs.csv there")
    parser.add_argument("--epsilon", nargs="+", default=["0.1", "1", "10"])
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    data = us_flights(FLIGHTS)
    routes = read_routes(FLIGHTS, data)
    rows = []
    for epsilon, name, is_stated in steps([*product(options.epsilon, VARIANTS, (False, True))], "possible_pairs"):
        plan = planned(data, make_unit("unbounded", 1), epsilon, "1e-6", VARIANTS[name], routes if is_stated else None)
        pairs = plan.tree.cells(plan.tree.depth)
        found = measured(data, plan, options.runs)
        rows.append({"epsilon": epsilon, "variant": name, "possible_pairs": pairs, **found})
    if options.csv:
        texts = [{key: f"{v:.3g}" if isinstance(v, float) else v for key, v in row.items()} for row in rows]
        write_csv(options.csv / "possible-pairs.csv", texts)
    printed({"machine": machine(), "noise": NOISE, "rows": rows}, as_json=options.json)


if __name__ == "__main__":
    main()
