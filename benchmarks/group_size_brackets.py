"""Compare group sizes released by brackets with those of all sizes up to a top code, bracketed after the release.

    python -m benchmarks.group_size_brackets --csv docs/reference/tables
    python -m benchmarks.group_size_brackets --small --json

The error is the L1 distance of the histograms over the brackets, as a mean over the areas of a level and over the runs.
Every run is an independent draw of noise, without a seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.group_sizes import CASES, EPSILONS, NOISE, UNIT, data_set
from benchmarks.measuring import machine, printed, steps
from benchmarks.synthetic_groups import KnownGroups
from benchmarks.tables import csv_figure, write_csv
from od_core import Budget
from od_core.group_sizes.groups import Counts
from od_core.group_sizes.plan import plan_group_sizes
from od_core.group_sizes.release import iterate_true_values, run_plan
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source

BRACKETS = (1, 2, 3, 4, 5, 6, 7, 10, 20, 50, 100, 200, 500, 1000)
MECHANISMS = ("cumulative", "bottom_up", "bottom_up_posterior", "cumulative_dp", "top_down")
COMPARED = ("census", "flights 2001-01")
RUNS = 5


def bracketed(histograms: Counts, cells: Counts, brackets: int) -> Counts:
    """Return histograms over brackets, given the bracket of each size; shape (areas, brackets + 1)."""
    sums = np.zeros((brackets + 1, len(histograms)), dtype=np.int64)
    np.add.at(sums, cells, histograms.T)
    return sums.T


def errors(data: KnownGroups, mechanism: str, epsilon: str, runs: int) -> tuple[list[float], list[float]]:
    """Return the errors by level of releases by brackets, and of releases of all sizes."""
    brackets = [size for size in BRACKETS if size <= data.top_code]
    given: dict[str, Any] = {"unit": UNIT, "budget": Budget(epsilon=epsilon), "mechanism": mechanism}
    groups = data.groups.count_per_area(data.geography)
    by_brackets = plan_group_sizes(data.geography, groups, brackets=brackets, **given)
    of_all_sizes = plan_group_sizes(data.geography, groups, top_code=data.top_code, **given)
    frame, noise = by_brackets.frame, resolve_noise_source(NOISE)
    cells = frame.find_cells(np.arange(data.top_code + 1))
    levels = [np.concatenate([*iterate_true_values(frame, "histogram", k, data.groups)]) for k in frame.levels]
    found = []
    for plan in (by_brackets, of_all_sizes):
        rows = []
        for _ in range(runs):
            histograms = run_plan(plan, data.groups, noise, MemoryMeasurements()).histograms
            if plan is of_all_sizes:
                histograms = tuple(bracketed(each, cells, len(brackets)) for each in histograms)
            pairs = zip(histograms, levels, strict=True)
            rows.append([float(np.abs(each - true.reshape(each.shape)).sum(axis=1).mean()) for each, true in pairs])
        found.append(np.mean(rows, axis=0).tolist())
    return found[0], found[1]


def measured(
    cases: Sequence[str], epsilons: Sequence[str], mechanisms: Sequence[str], runs: int, *, small: bool
) -> list[dict[str, Any]]:
    """Return one row for each case, epsilon and mechanism, with the errors of all levels, top first."""
    rows = []
    for case, epsilon, mechanism in steps(list(product(cases, epsilons, mechanisms)), "releases"):
        data = data_set(case, small=small)
        l1, l1_all_sizes = errors(data, mechanism, epsilon, runs)
        row = {"case": case, "epsilon": epsilon, "mechanism": mechanism, "level_names": list(data.geography.levels)}
        rows.append(row | {"runs": runs, "l1": l1, "l1_all_sizes": l1_all_sizes})
    return rows


def csv_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of ``group-sizes-brackets.csv``, one for each level."""
    return [
        {
            "data_set": row["case"],
            "epsilon": row["epsilon"],
            "mechanism": row["mechanism"],
            "runs": row["runs"],
            "level": level,
            "level_name": name,
            "l1": csv_figure(row["l1"][level - 1]),
            "l1_all_sizes": csv_figure(row["l1_all_sizes"][level - 1]),
        }
        for row in rows
        for level, name in enumerate(row["level_names"], start=1)
    ]


def main() -> None:
    """Measure the errors, and print or write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="write the table to a CSV file in this folder")
    parser.add_argument("--small", action="store_true", help="small data and few runs, to see that it runs")
    parser.add_argument("--case", nargs="+", choices=CASES, default=COMPARED, metavar="NAME")
    parser.add_argument("--epsilon", nargs="+", default=EPSILONS)
    parser.add_argument("--runs", type=int, default=RUNS)
    options = parser.parse_args()
    runs = 1 if options.small else options.runs
    rows = measured(options.case, options.epsilon, MECHANISMS, runs, small=options.small)
    if options.csv:
        write_csv(options.csv / "group-sizes-brackets.csv", csv_rows(rows))
    printed({"machine": machine(), "noise": NOISE, "errors": rows}, as_json=options.json)


if __name__ == "__main__":
    main()
