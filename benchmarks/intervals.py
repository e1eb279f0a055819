"""Measure coverage, width, time and memory of the intervals of published cells.

    python -m benchmarks.intervals --markdown --csv docs/reference/tables
    python -m benchmarks.intervals --case flights --epsilon 1 --runs 20 --json

Every run is an independent draw of the certified noise, without a seed. Cells are classified by their TRUE size, which
is known because all data are public or synthetic.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.coverage import coverage
from benchmarks.estimator import DELTA, EPSILONS, NOISE, data_set
from benchmarks.measuring import machine, printed, read_peak_memory_gigabytes, reset_peak_memory, steps
from benchmarks.tables import csv_flag, markdown_table, write_csv
from od_core import Budget, PrivacyUnit, Release, plan_release
from od_core.evaluation.forecast import SIZE_CLASSES
from od_core.evaluation.known_flows import KnownFlows
from od_core.flows.mechanisms import MECHANISMS
from od_core.flows.release import run_plan
from od_core.geography.flow_tree import Nodes
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source
from od_core.privacy.neighbours import NO_FAULTS

CASES = ("flights", "binary", "random", "italy")
RUNS = {"flights": 100, "binary": 50, "random": 50, "italy": 5}

LEAST_CELLS = 1000
"""Least number of cells of a class, over all runs, from which its coverage is known to about 2 percentage points."""


@dataclass(frozen=True)
class Variant:
    """A mechanism with its options. The intervals depend only on what is measured."""

    name: str
    mechanism: str = "inftda_refined"
    options: tuple[tuple[str, Any], ...] = ()


VARIANTS = (
    Variant("default"),
    Variant("nodes dropped", options=(("keep_all_cap", 0),)),
)


def released(variant: Variant, epsilon: str, data: KnownFlows) -> Release:
    """Return an independent release."""
    mechanism = MECHANISMS[variant.mechanism](**dict(variant.options))
    budget = Budget(epsilon, DELTA)
    plan = plan_release(
        data.geography, unit=PrivacyUnit("trip"), budget=budget, mechanism=mechanism, acceptance=NO_FAULTS
    )
    return run_plan(plan, data.trips, resolve_noise_source(NOISE), MemoryMeasurements())


def true_leaves(data: KnownFlows) -> Nodes:
    """Return the true trips of all pairs that have any, in tree order."""
    pairs = data.tree.find_leaf_pairs(data.trips.rank)
    return Nodes(pairs.level, pairs.origin, pairs.destination, np.diff(data.trips.before))


def measured(variant: Variant, case: str, epsilon: str, data: KnownFlows, runs: int) -> dict[str, Any]:
    """Measure coverage and widths over several runs, and time and memory of all pairs of levels of one release."""
    truth = true_leaves(data)
    table = coverage((released(variant, epsilon, data) for _ in range(runs)), truth)
    release = released(variant, epsilon, data)
    reset_peak_memory()
    start = time.perf_counter()
    for origin_level, destination_level in product(data.geography.level_names, repeat=2):
        release.flows_at(origin_level, destination_level, interval=True)
    seconds = time.perf_counter() - start
    return {
        "case": case,
        "variant": variant.name,
        "epsilon": epsilon,
        "runs": runs,
        "seconds_of_all_intervals": seconds,
        "peak_memory_gigabytes": read_peak_memory_gigabytes(),
        "classes": table.to_dict("records"),
    }


def least_covered(row: dict[str, Any]) -> dict[str, str]:
    """Return one line: least and most coverage of each class over the pairs of levels, and width at the leaves."""
    classes = pd.DataFrame(row["classes"])
    last = classes.iloc[-1]
    leaf = classes[(classes.origin_level == last.origin_level) & (classes.destination_level == last.destination_level)]
    line = {name: str(row[name]) for name in ("case", "variant", "epsilon", "runs")}
    for least in SIZE_CLASSES:
        some = classes[(classes.least_trips == least) & (classes.cells * row["runs"] >= LEAST_CELLS)]
        width = leaf[leaf.least_trips == least].width
        text = "-" if some.empty else f"{some.covered.min():.1%} to {some.covered.max():.1%}"
        line[_class_name(least)] = text + (f" ({width.iloc[0]:.0f})" if len(width) else "")
    return line


def by_level(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row per pair of levels and class of true size, as in ``intervals.csv``."""
    return [
        {
            "data_set": row["case"],
            "variant": row["variant"],
            "runs": row["runs"],
            "origin_level": entry["origin_level"],
            "destination_level": entry["destination_level"],
            "true_trips": _class_name(entry["least_trips"]),
            "covered_percent": f"{100 * entry['covered']:.1f}",
            "mean_width_trips": f"{entry['width']:.0f}",
            "fewer_than_1000_cells": csv_flag(entry["cells"] * row["runs"] < LEAST_CELLS),
        }
        for entry in row["classes"]
    ]


def _class_name(least: int) -> str:
    above = {low: high - 1 for low, high in pairwise(SIZE_CLASSES)}
    if least not in above:
        return f"{least}+"
    return str(least) if above[least] == least else f"{least}-{above[least]}"


def main() -> None:
    """Measure every data set and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--markdown", action="store_true", help="print the summary as a Markdown table")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="write all pairs of levels at epsilon 1 to a file")
    parser.add_argument("--small", action="store_true", help="small data and few runs, to see that it runs")
    parser.add_argument("--case", nargs="+", choices=CASES, default=CASES, metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--epsilon", nargs="+", default=EPSILONS)
    parser.add_argument("--runs", type=int, help="of each, instead of 100 (flights), 50, and 5 (Italy)")
    options = parser.parse_args()
    rows = []
    for case, epsilon, variant in steps(list(product(options.case, options.epsilon, VARIANTS)), "intervals"):
        runs = options.runs or (1 if options.small else RUNS[case])
        if case == "italy" and not options.small and variant != VARIANTS[0]:
            continue  # the default already drops nodes, because there are too many pairs
        rows.append(measured(variant, case, epsilon, data_set(case, None, small=options.small), runs))
    if options.csv:
        lines = [line for row in rows if row["epsilon"] == "1" for line in by_level(row)]
        write_csv(options.csv / "intervals.csv", lines)
    if options.markdown:
        print("\n".join(markdown_table(least_covered(row) for row in rows)))
        return
    results: dict[str, Any] = {"machine": machine(), "delta": DELTA, "noise": NOISE}
    printed(results | {"cases": rows if options.json else [least_covered(row) for row in rows]}, as_json=options.json)


if __name__ == "__main__":
    main()
