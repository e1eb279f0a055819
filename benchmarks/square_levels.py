"""Measure what levels of the same detail on both sides gain, also with Laplace noise, against one side at a time.

    python -m benchmarks.square_levels --data FOLDER --csv docs/reference/tables
    python -m benchmarks.square_levels --data FOLDER --case flights --epsilon 1 --relation bounded --delta 1e-8 --json

Every variant is released at equal (epsilon, delta), or with Laplace noise at epsilon alone, and every run is an
independent draw of the certified noise. Errors are of the released table, against the true flows: the total error of
the flows between zones, the largest ratio of a square level, the mean over these levels of the largest error, those of
the totals of zones and of the number of all trips, and false discoveries among the flows between zones.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.estimator import NOISE, data_set, is_there
from benchmarks.measuring import machine, printed, steps
from benchmarks.tables import write_csv
from od_core import Budget, InfTDARefined, PossiblePairs, PrivacyUnit, ReleasePlan, plan_release
from od_core.evaluation.forecast import arrange_counts_for_plan
from od_core.evaluation.known_flows import KnownFlows
from od_core.evaluation.metrics import (
    compute_area_total_errors,
    compute_level_errors,
    make_leaf_nodes,
    sum_trips_by_level,
    sum_trips_by_zone,
)
from od_core.flows.release import run_plan
from od_core.geography.flow_tree import Nodes
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counts import TripCounts

CASES = ("flights", "norway", "taxis", "uk")
VARIANTS: Mapping[str, dict[str, Any]] = {
    "one side at a time": {},
    "both sides": {"tree": "both"},
    "both sides, area totals": {"tree": "both", "area_totals": "usual"},
    "both sides, area totals, auto": {"tree": "both", "area_totals": "usual", "estimate": "auto"},
    "Laplace": {"tree": "both", "noise_distribution": "laplace"},
    "Laplace, area totals": {"tree": "both", "noise_distribution": "laplace", "area_totals": "usual"},
    "Laplace, area totals, auto": {
        "tree": "both",
        "noise_distribution": "laplace",
        "area_totals": "usual",
        "estimate": "auto",
    },
}
"""Options of each variant; the errors of all are divided by those of the first."""

LEVEL = "error_of_level_"
"""Begins the names of the mean absolute errors of the square levels, of which the largest ratio is shown."""


def make_unit(relation: str, trips: int) -> PrivacyUnit:
    """Return the unit of a trip, or of a user with at most a number of trips, who makes all of them."""
    user = () if trips == 1 else ("user", trips)
    return PrivacyUnit("user_period" if user else "trip", relation, *user)  # type: ignore[arg-type]  # known relations


def planned(
    data: KnownFlows,
    unit: PrivacyUnit,
    epsilon: str,
    delta: str,
    options: Mapping[str, Any],
    possible: PossiblePairs | None = None,
) -> ReleasePlan:
    """Return the plan of a variant."""
    of_mechanism = {name: options[name] for name in ("estimate", "noise_distribution") if name in options}
    plan = plan_release(
        data.geography,
        unit=unit,
        budget=Budget(epsilon, 0 if "noise_distribution" in options else delta),
        mechanism=InfTDARefined(**of_mechanism),
        acceptance=NO_FAULTS,
        tree=options.get("tree", "destination"),
        possible=possible,
    )
    return replace(plan, area_totals=plan.usual_area_total_share) if "area_totals" in options else plan


def errors(data: KnownFlows, truth: Nodes, leaves: Nodes) -> dict[str, float]:
    """Return the errors of one released table, whose leaves may be in the order of another tree."""
    tree, found = data.truth.tree, dict[str, float]()
    leaves = make_leaf_nodes(tree, TripCounts.from_pairs(tree, leaves.origin, leaves.destination, leaves.trips))
    pairs = zip(data.truth.levels, sum_trips_by_level(tree, leaves), strict=True)
    levels = [compute_level_errors(*pair, tree.cells(level)) for level, pair in enumerate(pairs)]
    found["leaf_error_percent"] = 100 * levels[-1]["mean_abs_error"] * tree.cells(tree.depth) / data.trips.total
    for level in range(2, tree.depth + 1, 2):
        found[f"{LEVEL}{level}"] = levels[level]["mean_abs_error"]
    found["largest_error"] = float(np.mean([level["max_abs_error"] for level in levels[2::2]]))
    rows = compute_area_total_errors(sum_trips_by_zone(tree, truth), sum_trips_by_zone(tree, leaves))
    for side, row in zip(("from", "to"), rows, strict=True):
        found[f"error_{side}"] = row["root_mean_square_error"]
    found["error_of_all"] = abs(float(leaves.trips.sum() - truth.trips.sum()))
    found["false_discoveries_percent"] = 100 * levels[-1]["false_discovery_rate"]
    return found


def measured(data: KnownFlows, plan: ReleasePlan, runs: int) -> dict[str, float]:
    """Return the mean errors of several releases of a plan."""
    truth, counts = make_leaf_nodes(data.truth.tree, data.trips), arrange_counts_for_plan(data, plan)
    noise = resolve_noise_source(NOISE)
    rows = [errors(data, truth, run_plan(plan, counts, noise, MemoryMeasurements()).leaves) for _ in range(runs)]
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def main() -> None:
    """Measure every data set and print the figures, with their ratios to the first variant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="write the figures to square-levels.csv there")
    parser.add_argument("--small", action="store_true", help="small data and few runs, to see that it runs")
    parser.add_argument("--case", nargs="+", choices=CASES, default=CASES, metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--epsilon", nargs="+", default=["0.1", "1", "2", "5", "10"])
    parser.add_argument("--relation", nargs="+", choices=["bounded", "unbounded"], default=["bounded", "unbounded"])
    parser.add_argument("--delta", default="1e-6")
    parser.add_argument("--trips", nargs="+", type=int, default=[1], help="of the unit: 1, or those of a user")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="folder of the data sets")
    options = parser.parse_args()
    cases = ["random"] if options.small else [case for case in options.case if is_there(case, options.data)]
    rows, first = [], dict[str, float]()
    for case, trips, relation, epsilon, name in steps(
        [*product(cases, options.trips, options.relation, options.epsilon, VARIANTS)], "square_levels"
    ):
        data = data_set(case, options.data, small=options.small)
        plan = planned(data, make_unit(relation, trips), epsilon, options.delta, VARIANTS[name])
        found = measured(data, plan, 2 if options.small else options.runs)
        first = found if name == next(iter(VARIANTS)) else first
        ratios = {f"{one}_ratio": found[one] / first[one] if first[one] else None for one in found}
        of_levels = [ratios.pop(f"{one}_ratio") or 0.0 for one in list(found) if one.startswith(LEVEL)]
        ratios["largest_level_error_ratio"] = max(of_levels)
        unit = {"trips_of_unit": trips, "relation": relation}
        facts = {"data_set": case, **unit, "delta": options.delta, "epsilon": epsilon, "variant": name}
        rows.append(facts | {one: error for one, error in found.items() if not one.startswith(LEVEL)} | ratios)
    if options.csv:
        texts = [{key: f"{v:.3g}" if isinstance(v, float) else v or "" for key, v in row.items()} for row in rows]
        write_csv(options.csv / "square-levels.csv", texts)
    printed({"machine": machine(), "noise": NOISE, "rows": rows}, as_json=options.json)


if __name__ == "__main__":
    main()
