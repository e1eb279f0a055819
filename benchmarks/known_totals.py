"""Measure what it gains if the trips from and to each zone are known beforehand, exactly or with an error of 2 %.

    python -m benchmarks.known_totals --data FOLDER --csv docs/reference/tables
    python -m benchmarks.known_totals --data FOLDER --case flights --runs 5 --json

The known totals are the true ones, times 1 plus an error of 2 % that is normal and new in each run. Every run is an
independent draw of the certified noise. Errors are of the released table, against the true flows; coverage is that of
the 90 % intervals of the totals of zones and of the indicators of all areas.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.area_totals import coverage
from benchmarks.area_totals import errors as area_total_errors
from benchmarks.estimator import NOISE, data_set, is_there
from benchmarks.measuring import machine, printed, steps
from benchmarks.possible_pairs import VARIANTS
from benchmarks.square_levels import make_unit, planned
from benchmarks.tables import write_csv
from od_core import KnownTotals, ReleasePlan
from od_core.evaluation.forecast import arrange_counts_for_plan
from od_core.evaluation.known_flows import KnownFlows
from od_core.evaluation.metrics import make_leaf_nodes, sum_trips_by_zone
from od_core.flows.known_totals import SIDES
from od_core.flows.release import run_plan
from od_core.geography.flow_tree import Nodes
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source
from od_core.records.counts import TripCounts

CASES = ("flights", "norway", "taxis")
KNOWN: Mapping[str, tuple[str | None, str | None]] = {
    "none": (None, None),
    "origins, 2 %": ("1/50", None),
    "origins, exact": ("0", None),
    "both, 2 %": ("1/50", "1/50"),
    "both, exact": ("0", "0"),
}
"""Errors of the known totals of the origins and of the destinations."""

COVERED = 5
"""Number of runs whose intervals are compared with the truth."""


def draw_known(data: KnownFlows, truth: Nodes, name: str, generator: np.random.Generator) -> tuple[KnownTotals, ...]:
    """Return the known totals of a run."""
    found = []
    true = sum_trips_by_zone(data.truth.tree, truth)
    for side, error in zip(SIDES, KNOWN[name], strict=True):
        if error is not None:
            factor = 1 + float(Fraction(error)) * generator.standard_normal(len(true[side]))
            found.append(KnownTotals(side, np.maximum(true[side] * factor, 0.0), Fraction(error)))
    return tuple(found)


def measured(data: KnownFlows, plan: ReleasePlan, name: str, runs: int) -> dict[str, float]:
    """Return the mean errors of several releases of a plan with known totals, and the coverage of some."""
    truth, noise, generator = (
        make_leaf_nodes(data.truth.tree, data.trips),
        resolve_noise_source(NOISE),
        np.random.default_rng(),
    )
    tree, rows = data.truth.tree, list[dict[str, float]]()
    counts = arrange_counts_for_plan(data, plan)
    for run in range(runs):
        release = run_plan(
            replace(plan, known=draw_known(data, truth, name, generator)), counts, noise, MemoryMeasurements()
        )
        leaves = release.leaves
        in_order = TripCounts.from_pairs(tree, leaves.origin, leaves.destination, leaves.trips)
        rows.append(area_total_errors(data, truth, make_leaf_nodes(tree, in_order)))
        if run < COVERED:
            own_truth = make_leaf_nodes(plan.tree, counts)
            rows[-1] |= coverage(release, own_truth)
    return {figure: float(np.mean([row[figure] for row in rows if figure in row])) for figure in rows[0]}


def main() -> None:
    """Measure every variant without and with known totals, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="write the figures to known-totals.csv there")
    parser.add_argument("--case", nargs="+", choices=CASES, default=CASES, metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--variant", nargs="+", choices=VARIANTS, default=[*VARIANTS], metavar="NAME")
    parser.add_argument("--known", nargs="+", choices=KNOWN, default=[*KNOWN], metavar="NAME")
    parser.add_argument("--epsilon", nargs="+", default=["0.1", "1", "10"])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="folder of the data sets")
    parser.add_argument("--small", action="store_true", help="few runs of few variants, to see that it runs")
    options = parser.parse_args()
    cases = [case for case in options.case if is_there(case, options.data)]
    chosen, runs = [*product(cases, options.epsilon, options.variant, options.known)], options.runs
    if options.small:
        chosen, runs = [("flights", "1", "both sides", name) for name in KNOWN], 2
    rows = []
    for case, epsilon, variant, name in steps(chosen, "known_totals"):
        data = data_set(case, options.data, small=False)
        found = measured(data, planned(data, make_unit("unbounded", 1), epsilon, "1e-6", VARIANTS[variant]), name, runs)
        rows.append({"data_set": case, "epsilon": epsilon, "variant": variant, "known": name, **found})
    if options.csv:
        texts = [
            {key: "" if v != v else f"{v:.3g}" if isinstance(v, float) else v for key, v in row.items()} for row in rows
        ]
        write_csv(options.csv / "known-totals.csv", texts)
    printed({"machine": machine(), "noise": NOISE, "rows": rows}, as_json=options.json)


if __name__ == "__main__":
    main()
