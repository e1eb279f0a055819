"""Measure group-size tables: time and memory of every mechanism, and errors on flights and on synthetic groups.

    python -m benchmarks.group_sizes --json > results.json
    python -m benchmarks.group_sizes --read results.json --csv docs/reference/tables --figures docs/figures/group-sizes
    python -m benchmarks.group_sizes --part errors --case households --epsilon 1 --runs 3

The times are of measuring and estimating, from sorted groups to histograms, with noise of the backend ``table``. Each
mechanism runs in its own process, which gives its own peak memory. Every run of the errors is an independent draw; only
synthetic data have a seed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.flights import FLIGHTS
from benchmarks.group_size_figures import draw_figures
from benchmarks.measuring import (
    fresh_process,
    machine,
    printed,
    read_again,
    read_peak_memory_gigabytes,
    reset_peak_memory,
    steps,
)
from benchmarks.synthetic_groups import KnownGroups, census, departures, households, taxis
from benchmarks.tables import csv_figure, csv_flag, figure, write_tables
from od_core import Budget, PrivacyUnit
from od_core.evaluation.known_flows import SEED
from od_core.group_sizes.mechanisms import MECHANISMS, GroupSizeMechanism
from od_core.group_sizes.plan import GroupSizePlan, plan_group_sizes
from od_core.group_sizes.release import evaluate_group_sizes, run_plan
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source


@dataclass(frozen=True)
class Contender:
    """A mechanism with its options.

    Attributes:
        label: name in tables.
        mechanism, options: name and options of the mechanism in od_core.
        most_runs: largest number of runs, if it is limited.
        is_published: whether the mechanism is from a paper.
    """

    label: str
    mechanism: str
    options: tuple[tuple[str, Any], ...] = ()
    most_runs: int | None = None
    is_published: bool = True

    @property
    def made(self) -> GroupSizeMechanism:
        """The mechanism."""
        return MECHANISMS.make(self.mechanism, **dict(self.options))


CONTENDERS = (
    Contender("naive", "naive"),
    Contender("sizes", "sizes"),
    Contender("sizes, least absolute", "sizes", (("regression", "least_absolute"),)),
    Contender("cumulative", "cumulative"),
    Contender("cumulative, least squares", "cumulative", (("regression", "least_squares"),)),
    Contender("bottom_up, cumulative", "bottom_up", (("leaf", "cumulative"),)),
    Contender("bottom_up, sizes", "bottom_up", (("leaf", "sizes"),)),
    Contender("bottom_up_posterior, cumulative", "bottom_up_posterior", (("leaf", "cumulative"),), is_published=False),
    Contender("bottom_up_posterior, sizes", "bottom_up_posterior", (("leaf", "sizes"),), is_published=False),
    Contender("sizes_posterior", "sizes_posterior", is_published=False),
    Contender("histogram", "histogram", most_runs=3),
    Contender("histogram, as published", "histogram", (("area_totals", False),), most_runs=1),
    Contender("histogram_relaxed", "histogram_relaxed", most_runs=3),
    Contender("cumulative_dp", "cumulative_dp"),
    Contender("cumulative_dp, as published", "cumulative_dp", (("area_totals", False),), most_runs=3),
    Contender("top_down", "top_down", most_runs=3),
    Contender("top_down, as published", "top_down", (("area_totals", False),)),
    Contender("cumulative_nearest", "cumulative_nearest", most_runs=1),
    Contender("cumulative_relaxed", "cumulative_relaxed", most_runs=1),
)
"""The contenders with few runs take many seconds and are far from the best."""


def flights(month: str, *, small: bool) -> KnownGroups:
    """Return the departures of a month; if ``small``, with a small top code."""
    data = departures(FLIGHTS, month)
    return replace(data, top_code=5) if small else data


CASES: dict[str, Callable[[bool], KnownGroups]] = {
    "flights 2001-01": lambda small: flights("2001-01", small=small),
    "flights 2001-06": lambda small: flights("2001-06", small=small),
    "households": lambda small: households(SEED, states=3, counties=2, top_code=100) if small else households(SEED),
    "census": lambda small: census(SEED, counties=60, groups=500) if small else census(SEED, groups=200_000),
    "taxis": lambda small: taxis(SEED, zones=20, groups=500, top_code=500) if small else taxis(SEED),
}

UNIT = PrivacyUnit("trip", "unbounded")
EPSILONS, ALL_EPSILONS = ("1", "0.1"), ("0.01", "0.1", "1", "10")
NOISE = "table"
RUNS = 10
METRICS = {"distance": "earth_movers_distance", "l1": "l1_error"}


def speed_case(*, small: bool) -> KnownGroups:
    """Return 1,002,000 groups in 3,000 leaf areas and 3 levels, with a top code of 10,000; if ``small``, fewer."""
    if small:
        return households(SEED, states=3, counties=2, groups=10, top_code=100)
    return households(SEED, states=50, counties=60, groups=334, top_code=10_000)


@lru_cache(maxsize=1)
def data_set(case: str, *, small: bool) -> KnownGroups:
    """Return the groups of a case, made or read once for all contenders."""
    return CASES[case](small)


def planned(data: KnownGroups, mechanism: GroupSizeMechanism | None, epsilon: str) -> GroupSizePlan:
    """Return the plan of a mechanism, or of the one that the rule selects."""
    return plan_group_sizes(
        data.geography,
        data.groups.count_per_area(data.geography),
        unit=UNIT,
        budget=Budget(epsilon=epsilon),
        mechanism=mechanism,
        top_code=data.top_code,
    )


def speed(contender: Contender, *, small: bool) -> dict[str, Any]:
    """Measure the seconds and peak memory of a contender in this process, after a small release to warm up."""
    noise = resolve_noise_source(NOISE)
    few = speed_case(small=True)
    run_plan(planned(few, contender.made, "1"), few.groups, noise, MemoryMeasurements())
    data = speed_case(small=small)
    plan = planned(data, contender.made, "1")
    reset_peak_memory()
    start = time.perf_counter()
    release = run_plan(plan, data.groups, noise, MemoryMeasurements())
    return {
        "contender": contender.label,
        "groups": len(data.groups.size),
        "areas": sum(len(table) for table in release.histograms),
        "top_code": data.top_code,
        "seconds": time.perf_counter() - start,
        "peak_memory_gigabytes": read_peak_memory_gigabytes(),
    }


def errors(case: str, epsilon: str, contender: Contender, runs: int, *, small: bool) -> dict[str, Any]:
    """Measure the errors of a contender by level: means over areas and runs, least and most of the runs.

    A level has no earth mover's distance if an area has another number of groups in any run.
    """
    data, noise = data_set(case, small=small), resolve_noise_source(NOISE)
    plan = planned(data, contender.made, epsilon)
    if contender.most_runs is not None:
        runs = min(runs, contender.most_runs)
    levels: dict[str, list[Any]] = {metric: [] for metric in METRICS}
    seconds, violations = [], []
    for _ in range(runs):
        start = time.perf_counter()
        release = run_plan(plan, data.groups, noise, MemoryMeasurements())
        seconds.append(time.perf_counter() - start)
        table = evaluate_group_sizes(release, data.groups)
        violations.append(int(((table["total_error"] > 0) | (table["child_error"] > 0)).sum()))
        for metric, column in METRICS.items():
            by_level = table.groupby("level", sort=False)[column]
            levels[metric].append(by_level.mean().where(by_level.count() == by_level.size()).to_numpy())
    row: dict[str, Any] = {
        "case": case,
        "epsilon": epsilon,
        "contender": contender.label,
        "is_published": contender.is_published,
        "is_chosen": plan.mechanism == planned(data, None, epsilon).mechanism,
        "level_names": list(data.geography.levels),
        "runs": runs,
        "seconds_a_run": min(seconds),  # the first run may compile
        "violations": float(np.mean(violations)),
    }
    for metric, values in levels.items():
        for name, over in (("", np.mean), ("_least", np.min), ("_most", np.max)):
            figures = over(np.array(values, dtype=np.float64), axis=0)
            row[metric + name] = [None if np.isnan(figure) else float(figure) for figure in figures]
    return row


def csv_tables(results: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of ``group-sizes-times.csv``, and of ``group-sizes-errors.csv`` with one per level."""
    times = [
        {
            "mechanism": row["contender"],
            "seconds": csv_figure(row["seconds"]),
            "memory_gb": "" if row["peak_memory_gigabytes"] is None else f"{row['peak_memory_gigabytes']:.1f}",
        }
        for row in results["speed"]
    ]
    errors = [
        {
            "data_set": row["case"],
            "epsilon": row["epsilon"],
            "mechanism": row["contender"],
            "chosen": csv_flag(row["is_chosen"]),
            "level": level,
            "level_name": name,
            **{
                column: csv_figure(row[column][level - 1]) for column in ("distance", "distance_least", "distance_most")
            },
            "l1": csv_figure(row["l1"][level - 1]),
            "violations": csv_figure(row["violations"]),
            "seconds": csv_figure(row["seconds_a_run"]),
        }
        for row in results["errors"]
        for level, name in enumerate(row["level_names"], start=1)
    ]
    return {"group-sizes-times.csv": times, "group-sizes-errors.csv": errors}


def choices(rows: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the selection of the rule for every data set and epsilon, with ratios of its distances by level.

    A ratio divides the distance by the least distance of a published mechanism. There is none if that is below one
    member.
    """
    lines = []
    for row in rows:
        if row["is_chosen"]:
            case = row["case"], row["epsilon"]
            published = [other for other in rows if other["is_published"]]
            rivals = [other["distance"] for other in published if (other["case"], other["epsilon"]) == case]
            least = [min(value for value in level if value is not None) for level in zip(*rivals, strict=True)]
            ratios = [mine / best if best >= 1 else None for mine, best in zip(row["distance"], least, strict=True)]
            lines.append(
                {
                    "data set": row["case"],
                    "epsilon": row["epsilon"],
                    "chosen": row["contender"],
                    "to the best published, by level": " / ".join("-" if r is None else f"{r:.2f}" for r in ratios),
                }
            )
    return sorted(lines, key=lambda line: (line["data set"], float(line["epsilon"])))


def _error_line(row: dict[str, Any], names: str) -> dict[str, str]:
    ends = zip(row["distance_least"], row["distance_most"], strict=True)
    return {
        "mechanism": f"**{row['contender']}**" if row["is_chosen"] else row["contender"],
        f"earth mover's distance an area: {names}": " / ".join(map(_figure, row["distance"])),
        "least..most": " / ".join(
            "-" if least is None else f"{_figure(least)}..{_figure(most)}" for least, most in ends
        ),
        "L1 an area": " / ".join(map(_figure, row["l1"])),
        "violations": _figure(row["violations"]),
        "seconds": _figure(row["seconds_a_run"]),
    }


def _figure(value: float | None) -> str:
    return figure(value, whole=".0f")


def in_short(results: dict[str, Any]) -> dict[str, Any]:
    """Return one line per contender, for a terminal."""
    lines = [
        {"data set": row["case"], "epsilon": row["epsilon"], **_error_line(row, "from the top down")}
        for row in results["errors"]
    ]
    chosen = choices(results["errors"])
    return {"machine": results["machine"], "speed": results["speed"], "choices of the rule": chosen, "errors": lines}


def measured(
    part: str,
    cases: Sequence[str],
    epsilons: Sequence[str],
    runs: int,
    contenders: Sequence[Contender] = CONTENDERS,
    *,
    small: bool,
) -> dict[str, Any]:
    """Measure all figures that are requested."""
    results: dict[str, Any] = {"machine": machine(), "noise": NOISE, "speed": [], "errors": []}
    if part != "errors":
        for contender in steps(contenders, "times"):
            if small:  # too small for a separate process
                results["speed"].append(speed(contender, small=True))
                continue
            results["speed"] += json.loads(fresh_process("benchmarks.group_sizes", "--speed-of", contender.label))
    if part != "speed":
        for case, epsilon, contender in steps(list(product(cases, epsilons, contenders)), "errors"):
            results["errors"].append(errors(case, epsilon, contender, runs, small=small))
    return results


def main() -> None:
    """Measure the figures, or read measured ones, and print them."""
    labels = [contender.label for contender in CONTENDERS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="write the tables to CSV files in this folder")
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="draw figures, too")
    parser.add_argument("--small", action="store_true", help="small data and few runs, to see that it runs")
    parser.add_argument("--part", choices=("speed", "errors", "all"), default="all")
    parser.add_argument("--case", nargs="+", choices=CASES, default=tuple(CASES), metavar="NAME")
    parser.add_argument("--epsilon", nargs="+", help=f"instead of {' and '.join(EPSILONS)}")
    parser.add_argument("--all", action="store_true", help=f"epsilon {', '.join(ALL_EPSILONS)}")
    parser.add_argument("--runs", type=int, help=f"of each mechanism, instead of {RUNS}")
    parser.add_argument("--contender", nargs="+", choices=labels, default=labels, metavar="NAME", help="some of them")
    parser.add_argument("--read", type=Path, nargs="+", metavar="FILE", help="figures printed by --json before")
    parser.add_argument("--speed-of", choices=labels, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.speed_of:
        contender = CONTENDERS[labels.index(options.speed_of)]
        print(json.dumps([speed(contender, small=options.small)]))
        return
    if options.read:
        results = read_again(options.read, ("speed", "errors"))
    else:
        epsilons = options.epsilon or (ALL_EPSILONS if options.all else EPSILONS[:1] if options.small else EPSILONS)
        runs = options.runs or (1 if options.small else RUNS)
        some = [contender for contender in CONTENDERS if contender.label in options.contender]
        results = measured(options.part, options.case, epsilons, runs, some, small=options.small)
    if options.figures:
        draw_figures(pd.DataFrame(results["errors"]), options.figures)
    if options.csv:
        write_tables(options.csv, csv_tables(results))
    printed(results if options.json else in_short(results), as_json=options.json)


if __name__ == "__main__":
    main()
