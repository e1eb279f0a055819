"""Measure what area totals, measured beside the flow tree, gain and cost at equal (epsilon, delta).

    python -m benchmarks.area_totals --data FOLDER --csv docs/reference/tables
    python -m benchmarks.area_totals --case flights --epsilon 1 --estimate auto --share 1/10 1/20 --runs 5 --json

Each data set is released without area totals and with them, and by the published algorithm. Every run is an independent
draw of the certified noise, without a seed. Errors are of the released table, against the true flows. Coverage is that
of the 90 % intervals of the totals of zones and of the indicators of all areas, of some of the runs.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.estimator import DELTA, NOISE, PAPER, Variant, data_set, is_there, planned
from benchmarks.measuring import machine, printed, steps
from benchmarks.tables import write_csv
from od_core import Release
from od_core.evaluation.known_flows import KnownFlows
from od_core.evaluation.metrics import (
    compute_area_total_errors,
    compute_level_errors,
    make_leaf_nodes,
    sum_trips_by_level,
    sum_trips_by_zone,
)
from od_core.flows.indicators import indicators
from od_core.flows.release import run_plan
from od_core.geography.flow_tree import Nodes
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source

CASES = ("flights", "norway", "taxis", "uk", "us_counties", "nz_education")
EPSILONS = ("0.1", "1", "10")
VARIANTS = {
    "least_squares": Variant("refined", "inftda_refined"),
    "auto": Variant("auto", "inftda_refined", options=(("estimate", "auto"),)),
    "paper": PAPER,
}
ESTIMATES = tuple(VARIANTS)
SHARES = ("0", "1/10")

COVERED = 5
"""Number of runs whose intervals are compared with the truth."""


def errors(data: KnownFlows, truth: Nodes, leaves: Nodes) -> dict[str, float]:
    """Return the errors of one released table."""
    tree, found = data.truth.tree, dict[str, float]()
    rows = compute_area_total_errors(sum_trips_by_zone(tree, truth), sum_trips_by_zone(tree, leaves))
    for side, row in zip(("from", "to"), rows, strict=True):
        found[f"error_{side}"], found[f"bias_{side}_percent"] = row["root_mean_square_error"], 100 * row["largest_bias"]
    pairs = zip(data.truth.levels, sum_trips_by_level(tree, leaves), strict=True)
    levels = [compute_level_errors(*pair, tree.cells(level)) for level, pair in enumerate(pairs)]
    found["leaf_error_percent"] = 100 * levels[-1]["mean_abs_error"] * tree.cells(tree.depth) / data.trips.total
    found["largest_error"] = float(np.mean([level["max_abs_error"] for level in levels[1:]]))
    found["false_discoveries_percent"] = 100 * levels[-1]["false_discovery_rate"]
    found["false_negatives_percent"] = 100 * levels[-1]["false_negative_rate"]
    return found


def coverage(release: Release, truth: Nodes) -> dict[str, float]:
    """Return the share of intervals that contain the truth, and the mean width of those of the totals of zones."""
    known, found = replace(release, leaves=truth), dict[str, float]()
    whole, zones = release.tree.origin.level_names[0], release.tree.origin.levels[-1]
    own, true = release.flows_at(zones, whole, interval=True), known.flows_at(zones, whole)
    trips = true.set_index("origin")["trips"].reindex(own["origin"], fill_value=0).to_numpy()
    found["totals_covered_percent"] = 100 * float(np.mean((own["lower"] <= trips) & (trips <= own["upper"])))
    found["width_of_totals"] = float(np.mean(own["upper"] - own["lower"]))
    if release.tree.same_geography:
        own, true = indicators(release), indicators(known, interval=False)
        names = ("outflow", "inflow", "balance")
        inside = [(own[f"{name}_lower"] <= true[name]) & (true[name] <= own[f"{name}_upper"]) for name in names]
        found["indicators_covered_percent"] = 100 * float(np.mean(inside))
    return found


def measured(case: str, epsilon: str, estimate: str, share: str, data: KnownFlows, runs: int) -> dict[str, Any]:
    """Return the mean figures of several releases; biases also with two standard errors."""
    variant = VARIANTS[estimate]
    plan = planned(variant, data.geography, epsilon, None if share == "0" else share)
    noise = resolve_noise_source(NOISE)
    truth, rows, covered = make_leaf_nodes(data.truth.tree, data.trips), [], []
    for run in range(runs):
        release = run_plan(plan, data.trips, noise, MemoryMeasurements())
        rows.append(errors(data, truth, release.leaves))
        if run < COVERED:
            covered.append(coverage(release, truth))
    figures: dict[str, Any] = {"data_set": case, "epsilon": epsilon, "estimate": estimate, "share": share, "runs": runs}
    figures["noise"] = float(plan.area_total_steps[0].variance) ** 0.5 if plan.area_total_steps else None
    for name in rows[0]:
        values = np.array([row[name] for row in rows])
        figures[name] = float(values.mean())
        if name.startswith("bias"):
            figures[f"{name}_two_errors"] = 2 * float(values.std(ddof=1)) / math.sqrt(runs) if runs > 1 else None
    for name in ("totals_covered_percent", "width_of_totals", "indicators_covered_percent"):
        found = [row[name] for row in covered if name in row]
        figures[name] = float(np.mean(found)) if found else None
    return figures


def csv_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the figures with three digits, as in ``area-totals.csv``."""

    def text(value: Any) -> Any:
        return "" if value is None else f"{value:.3g}" if isinstance(value, float) else value

    return [{name: text(value) for name, value in row.items()} for row in rows]


def main() -> None:
    """Measure every data set and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--csv", type=Path, metavar="FOLDER", help="write the figures to area-totals.csv in this folder"
    )
    parser.add_argument("--small", action="store_true", help="small data and few runs, to see that it runs")
    parser.add_argument("--case", nargs="+", choices=CASES, default=CASES, metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--epsilon", nargs="+", default=EPSILONS)
    parser.add_argument("--estimate", nargs="+", choices=ESTIMATES, default=ESTIMATES)
    parser.add_argument("--share", nargs="+", default=SHARES, help="shares of the budget; 0 measures no area totals")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="folder of the data sets")
    options = parser.parse_args()
    cases = ["random"] if options.small else [case for case in options.case if is_there(case, options.data)]
    runs = 2 if options.small else options.runs
    asked = product(cases, options.epsilon, options.estimate, options.share)
    wanted = [one for one in asked if one[2] != "paper" or one[3] == "0"]
    rows = []
    for case, epsilon, estimate, share in steps(wanted, "area_totals"):
        data = data_set(case, options.data, small=options.small)
        rows.append(measured(case, epsilon, estimate, share, data, runs))
    if options.csv:
        write_csv(options.csv / "area-totals.csv", csv_rows(rows))
    printed({"machine": machine(), "delta": DELTA, "noise": NOISE, "rows": rows}, as_json=options.json)


if __name__ == "__main__":
    main()
