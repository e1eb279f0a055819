"""Measure table 7 and figures 7 to 9 of Fioretto et al. again, with every mechanism for group sizes.

    python -m benchmarks.published_group_sizes --csv docs/reference/tables --figures docs/figures/group-sizes
    python -m benchmarks.published_group_sizes --part table --case census --epsilon 1 --json

*Table*: the errors of every mechanism on synthetic taxis and households in the shapes that the paper describes, because
its files are not public: both the L1 errors of the paper and earth mover's distances, as sums over the areas of a
level. Each mechanism runs 30 times, or as often as fits into some seconds, and at least once. *Runtime*: seconds
against the number of sizes N, where each mechanism stops at the first N that takes too long. Integer programs are
solved by HiGHS. M_dp^OP and the integer programs without a limit on their size are in this file, since nobody would
release with them.

Seconds are those of the processor, all threads together, as on the single core of the paper.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy

from benchmarks.group_size_figures import draw_published
from benchmarks.group_sizes import CASES, CONTENDERS, NOISE, Contender, data_set, planned
from benchmarks.measuring import machine, printed, read_again, steps
from benchmarks.synthetic_groups import KnownGroups, taxis
from benchmarks.tables import csv_figure, write_tables
from od_core.evaluation.known_flows import SEED
from od_core.group_sizes.area_totals import compute_relaxed_prices, find_nearest_histograms, round_relaxed_solution
from od_core.group_sizes.groups import Counts, Frame, GroupSizes
from od_core.group_sizes.mechanisms import CumulativeNearest, GroupSizeMechanism, Histogram
from od_core.group_sizes.nearest_curves import find_optimal_curves, fit_real_curves, round_curves
from od_core.group_sizes.release import evaluate_group_sizes, run_plan
from od_core.group_sizes.top_totals import choose_root_values, make_tree_below_top
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source

PAPER_NAMES = {
    "histogram_relaxed": "M_H^r",
    "histogram, as published": "M_H^dp",
    "cumulative_relaxed": "M_c^r",
    "cumulative_dp, as published": "M_c^dp",
    "top_down, as published": "TopDown",
}
"""Names in the paper of the mechanisms that are in its table 7. M_c^ch is not private as it is stated."""

DATA_SETS = ("taxis", "census")
EPSILONS = ("0.1", "0.5", "1")
RUNS = 30
SECONDS = 1.0
"""Processor seconds of a mechanism on a data set at an epsilon after which no further run begins."""

UNITS = {"taxis": 1e4, "census": 1e3}
"""What the paper multiplies its L1 errors by."""

PAPER: dict[tuple[str, str], dict[str, tuple[tuple[float, float, float], int]]] = {
    ("taxis", "0.1"): {
        "M_H^r": ((25.4, 158.7, 904.4), 18206),
        "M_H^dp": ((26.6, 121.9, 915.7), 0),
        "M_c^r": ((47.9, 153.2, 551.6), 19460),
        "M_c^dp": ((19.9, 65.6, 644.3), 0),
        "TopDown": ((26.6, 93.0, 809.1), 0),
    },
    ("taxis", "0.5"): {
        "M_H^r": ((8.6, 81.2, 364.2), 18591),
        "M_H^dp": ((5.5, 31.0, 408.9), 0),
        "M_c^r": ((46.7, 153.5, 450.7), 19531),
        "M_c^dp": ((4.0, 16.4, 352.9), 0),
        "TopDown": ((5.3, 20.3, 242.1), 0),
    },
    ("taxis", "1"): {
        "M_H^r": ((7.7, 77.2, 279.0), 18085),
        "M_H^dp": ((3.1, 19.8, 328.5), 0),
        "M_c^r": ((47.1, 154.2, 447.1), 19706),
        "M_c^dp": ((2.0, 8.7, 307.8), 0),
        "TopDown": ((2.6, 10.3, 138.4), 0),
    },
    ("census", "0.1"): {
        "M_H^r": ((40.3, 54.3, 802.1), 1966),
        "M_H^dp": ((10.3, 38.4, 825.4), 0),
        "M_c^r": ((23.1, 64.5, 632.2), 1715),
        "M_c^dp": ((0.9, 23.2, 550.6), 0),
        "TopDown": ((3.7, 35.0, 820.5), 0),
    },
    ("census", "0.5"): {
        "M_H^r": ((39.4, 37.9, 216.3), 1990),
        "M_H^dp": ((2.4, 9.4, 230.8), 0),
        "M_c^r": ((23.1, 61.0, 494.2), 1718),
        "M_c^dp": ((0.2, 5.8, 159.1), 0),
        "TopDown": ((0.9, 8.6, 228.4), 0),
    },
    ("census", "1"): {
        "M_H^r": ((40.7, 39.2, 130.0), 1989),
        "M_H^dp": ((1.2, 5.1, 128.8), 0),
        "M_c^r": ((24.1, 63.0, 494.5), 1728),
        "M_c^dp": ((0.1, 3.2, 91.0), 0),
        "TopDown": ((0.5, 4.6, 127.2), 0),
    },
}
"""L1 errors by level, and constraint violations, of table 7 without M_c^ch."""


def errors(case: str, epsilon: str, contender: Contender, runs: int, seconds: float, *, small: bool) -> dict[str, Any]:
    """Measure the errors of a mechanism by level: means over the runs of sums over the areas.

    A violation is an area and a size whose children do not sum to it. A level has no earth mover's distance if an area
    has another number of groups in any run.
    """
    data, noise = data_set(case, small=small), resolve_noise_source(NOISE)
    plan = planned(data, contender.made, epsilon)
    few = CASES[case](True)
    run_plan(planned(few, contender.made, epsilon), few.groups, noise, MemoryMeasurements())  # loads the kernels
    levels: dict[str, list[Any]] = {"l1": [], "distance": []}
    taken: list[float] = []
    violations: list[int] = []
    while not taken or (len(taken) < runs and sum(taken) + taken[-1] <= seconds):
        start = time.process_time()
        release = run_plan(plan, data.groups, noise, MemoryMeasurements())
        taken.append(time.process_time() - start)
        by_level = evaluate_group_sizes(release, data.groups).groupby("level", sort=False)
        levels["l1"].append(by_level["l1_error"].sum().to_numpy(dtype=np.float64))
        levels["distance"].append(by_level["earth_movers_distance"].agg(lambda column: column.sum(skipna=False)))
        inner = list(plan.frame.levels)[:-1]
        violations.append(
            sum(int(np.count_nonzero(release.sum_child_histograms(k) != release.histograms_of(k))) for k in inner)
        )
    row: dict[str, Any] = {
        "case": case,
        "epsilon": epsilon,
        "contender": contender.label,
        "level_names": list(data.geography.levels),
        "runs": len(taken),
        "seconds_a_run": float(np.mean(taken)),
        "violations": float(np.mean(violations)),
    }
    for metric, values in levels.items():
        table = np.array(values, dtype=np.float64)
        deviations = table.std(axis=0, ddof=1) if len(table) > 1 else np.full(table.shape[1], np.nan)
        for name, figures in ((metric, table.mean(axis=0)), (f"{metric}_deviation", deviations)):
            row[name] = [None if np.isnan(figure) else float(figure) for figure in figures]
    return row


class OptimisedTables(Histogram):
    """M_dp^OP: the dynamic program of M_H^dp, where an optimisation problem is solved for each value of each node.

    The children's cost tables are given to the solver as they are, so it does not use that they are convex. A table has
    the values within ``REACH`` standard deviations of the noisy value, or of the sum of the children's, above 0, and
    twice as many where these do not reach the number of groups. The paper takes three variances, at which not one tree
    is solved in a minute.
    """

    REACH = 3

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Any) -> list[Counts]:
        """Return the histograms of all levels; see :meth:`GroupSizeMechanism.estimate`."""
        leaves = np.empty_like(noisy[-1])
        for top, total in enumerate(frame.count_groups(1).tolist()):
            rows, first_child = make_tree_below_top(frame, top)
            columns = np.concatenate([values[of_rows] for values, of_rows in zip(noisy, rows, strict=True)]).T
            reach = int(np.ceil(self.REACH * (2**0.5) * float(scale)))
            roots = None
            while roots is None:
                solved = [self.tables(column, first_child, reach, total) for column in columns.tolist()]
                lows = np.array([low[0] for low, _ in solved])
                slopes = [np.diff(costs[0]).astype(np.int64) for _, costs in solved]
                roots, _ = choose_root_values(lows, slopes, np.arange(len(columns)), total)
                reach *= 2  # if the values do not reach the number of groups
            for size, ((low, costs), root) in enumerate(zip(solved, roots.tolist(), strict=True)):
                values = [root] * len(low)
                for node in range(len(first_child) - 1):
                    children = range(first_child[node], first_child[node + 1])
                    _, shares = self.divided([(low[c], costs[c]) for c in children], values[node])
                    for child, share in zip(children, shares, strict=True):
                        values[child] = share
                leaves[rows[-1], size] = values[len(first_child) - 1 :]
        return frame.sum_every_level(leaves)

    def tables(
        self, column: list[int], first_child: Counts, reach: int, total: int
    ) -> tuple[list[int], list[list[float]]]:
        """Return the least value and the costs of every node for the noisy values of one size."""
        low, costs = [0] * len(column), [list[float]()] * len(column)
        for node in reversed(range(len(column))):
            first, last = max(0, column[node] - reach), max(0, column[node] + reach)
            below: list[float] | None = None
            if node < len(first_child) - 1:
                children = [(low[c], costs[c]) for c in range(first_child[node], first_child[node + 1])]
                least = sum(begin for begin, _ in children)
                first = max(least, min(first, least + sum(len(table) - 1 for _, table in children)))
                last = max(first, min(last, least + sum(len(table) - 1 for _, table in children)))
                below = [self.divided(children, value)[0] for value in range(first, last + 1)]
            own = [(value - column[node]) ** 2 for value in range(first, last + 1)]
            low[node] = first
            costs[node] = [float(a + b) for a, b in zip(own, below or [0.0] * len(own), strict=True)]
        return low, costs

    @staticmethod
    def divided(children: list[tuple[int, list[float]]], value: int) -> tuple[float, list[int]]:
        """Return the least cost of children that sum to a value, and their values: equations 4b to 4d of the paper."""
        sizes = [len(table) for _, table in children]
        values = np.concatenate([low + np.arange(size) for (low, _), size in zip(children, sizes, strict=True)])
        one_each = scipy.sparse.csr_array(
            (np.ones(len(values)), (np.repeat(np.arange(len(sizes)), sizes), np.arange(len(values))))
        )
        found = scipy.optimize.milp(
            np.concatenate([table for _, table in children]),
            integrality=np.ones(len(values)),
            bounds=scipy.optimize.Bounds(0, 1),
            constraints=[
                scipy.optimize.LinearConstraint(one_each, 1, 1),
                scipy.optimize.LinearConstraint(values[np.newaxis].astype(np.float64), value, value),
            ],
            options={"mip_rel_gap": 0.0},
        )
        chosen = found.x > 0.5
        return float(round(found.fun)), values[chosen].tolist()


class IntegerHistogram(Histogram):
    """M_H: an integer program of any size."""

    def estimate(self, frame: Frame, noisy: Sequence[Counts], scale: Any) -> list[Counts]:
        """Return the histograms of all levels; see :meth:`GroupSizeMechanism.estimate`."""
        return find_nearest_histograms(
            frame, noisy, round_relaxed_solution(frame, noisy, compute_relaxed_prices(frame, noisy))
        )


class IntegerCumulative(CumulativeNearest):
    """M_c: an integer program of any size."""

    def estimate_curves(self, frame: Frame, noisy: Sequence[Counts]) -> list[Counts]:
        """Return the nearest cumulative counts."""
        return find_optimal_curves(frame, noisy, round_curves(frame, fit_real_curves(frame, noisy))[-1])


def _made(label: str) -> Callable[[], GroupSizeMechanism]:
    return lambda: next(contender.made for contender in CONTENDERS if contender.label == label)


RACERS: dict[str, Callable[[], GroupSizeMechanism]] = {
    "M_H": IntegerHistogram,
    "M_c": IntegerCumulative,
    "M_dp^OP": lambda: OptimisedTables(area_totals=False),
    **{name: _made(label) for label, name in PAPER_NAMES.items()},
}
"""The mechanisms of figure 7 by their names in the paper, without M_c^ch."""

SIZES = (2, 5, 10, 20, 30, 40, 50)
TIMEOUT = 60
"""Processor seconds after which a mechanism is stopped; the paper takes 30 minutes."""

LEAST_SECONDS = 0.2
"""Processor seconds for which a mechanism runs, again and again."""


def few_sizes(largest: int, zones: int = 263) -> KnownGroups:
    """Return taxis of some zones with a hundredth of their sizes, without those of more than ``largest`` trips."""
    data = taxis(SEED, zones=zones, groups=13_282 * zones // 263, top_code=13_282)
    size = data.groups.size // 100
    kept = size <= largest
    return replace(data, groups=GroupSizes(data.groups.area[kept], size[kept]), top_code=largest)


def race(racer: str, largest: int, zones: int = 263) -> dict[str, Any]:
    """Measure the seconds of a mechanism for sizes up to ``largest`` at epsilon 1, after a small release.

    They are the mean of several runs if one takes little time, since the clock of the processor is coarse.
    """
    noise = resolve_noise_source(NOISE)
    data = few_sizes(1, zones)
    run_plan(planned(data, RACERS[racer](), "1"), data.groups, noise, MemoryMeasurements())
    data = few_sizes(largest, zones)
    plan = planned(data, RACERS[racer](), "1")
    start, runs, seconds = time.process_time(), 0, 0.0
    while seconds < LEAST_SECONDS:
        run_plan(plan, data.groups, noise, MemoryMeasurements())
        runs, seconds = runs + 1, time.process_time() - start
    return {"racer": racer, "sizes": largest, "seconds": seconds / runs}


def races(racers: Sequence[str], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Measure all mechanisms, each in its own process, up to the first number of sizes that takes too long."""
    context = multiprocessing.get_context("fork")
    rows = []
    for racer in steps(racers, "runtime"):
        for largest in sizes:
            receiving, sending = context.Pipe(duplex=False)
            process = context.Process(target=_limited, args=(racer, largest, sending))
            process.start()
            sending.close()
            process.join()
            if process.exitcode == -signal.SIGXCPU:
                rows.append({"racer": racer, "sizes": largest, "seconds": None})
                break
            rows.append(receiving.recv())
    return rows


def _limited(racer: str, largest: int, sending: Any) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (TIMEOUT, resource.RLIM_INFINITY))
    sending.send(race(racer, largest))


def csv_tables(results: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of ``group-sizes-fioretto.csv``, one per level, and of ``group-sizes-fioretto-runtime.csv``."""
    table = []
    for row in results["errors"]:
        name = PAPER_NAMES.get(row["contender"], "")
        published, violations = PAPER[row["case"], row["epsilon"]].get(name, ((None,) * 3, None))
        for level, level_name in enumerate(row["level_names"]):
            paper = published[level]
            table.append(
                {
                    "data_set": row["case"],
                    "epsilon": row["epsilon"],
                    "mechanism": row["contender"],
                    "paper_name": name,
                    "runs": row["runs"],
                    "level": level + 1,
                    "level_name": level_name,
                    **{column: csv_figure(row[column][level]) for column in ("l1", "l1_deviation")},
                    "paper_l1": csv_figure(None if paper is None else paper * UNITS[row["case"]]),
                    **{column: csv_figure(row[column][level]) for column in ("distance", "distance_deviation")},
                    "violations": csv_figure(row["violations"]),
                    "paper_violations": csv_figure(violations),
                    "seconds": csv_figure(row["seconds_a_run"]),
                }
            )
    runtime = [
        {"paper_name": row["racer"], "sizes": row["sizes"], "seconds": csv_figure(row["seconds"])}
        for row in results["runtime"]
    ]
    return {"group-sizes-fioretto.csv": table, "group-sizes-fioretto-runtime.csv": runtime}


def main() -> None:
    """Measure the figures, or read measured ones, and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="write the tables to CSV files in this folder")
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="draw figures, too")
    parser.add_argument("--small", action="store_true", help="small data and one run, to see that it runs")
    parser.add_argument("--part", choices=("table", "runtime", "all"), default="all")
    parser.add_argument("--case", nargs="+", choices=DATA_SETS, default=DATA_SETS)
    parser.add_argument("--epsilon", nargs="+", choices=EPSILONS)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="after which no further run begins")
    parser.add_argument("--read", type=Path, nargs="+", metavar="FILE", help="figures printed by --json before")
    options = parser.parse_args()
    if options.read:
        results = read_again(options.read, ("errors", "runtime"))
    else:
        results = {"machine": machine(), "noise": NOISE, "errors": [], "runtime": []}
        runs = 1 if options.small else options.runs
        epsilons = options.epsilon or (EPSILONS[-1:] if options.small else EPSILONS)
        if options.part != "runtime":
            for case, epsilon, contender in steps(list(product(options.case, epsilons, CONTENDERS)), "errors"):
                row = errors(case, epsilon, contender, runs, options.seconds, small=options.small)
                results["errors"].append(row)
        if options.part != "table" and options.small:
            results["runtime"] = [race(racer, 2, zones=6) for racer in RACERS]
        elif options.part != "table":
            results["runtime"] = races(list(RACERS), SIZES)
    if options.figures:
        draw_published(pd.DataFrame(results["errors"]), pd.DataFrame(results["runtime"]), TIMEOUT, options.figures)
    if options.csv:
        write_tables(options.csv, csv_tables(results))
    printed(results, as_json=options.json)


if __name__ == "__main__":
    main()
