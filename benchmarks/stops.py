"""Measure trips with stops: errors of range queries with every mechanism, and time and memory of large releases.

    python -m benchmarks.stops --json > results.json
    python -m benchmarks.stops --read results.json --csv docs/reference/tables
    python -m benchmarks.stops --part errors --case "flights, 4 dimensions" --epsilon 0.1 --runs 3
    python -m benchmarks.stops --part scale
    python -m benchmarks.stops --part errors --data FOLDER --case "Auckland, 2 dimensions" "Auckland, 4 dimensions"

Errors are relative, as means over 1,000 queries; a figure is the median of several runs. Every run is an independent
draw of the noise of the backend ``table``; only synthetic data and queries have a seed. Times are of the draw of a
mechanism, from points to noisy boxes. In the part ``scale``, each draw runs in its own process, which gives its own
peak memory. Cities and taxis are read from a folder beside the project, and measured if they are named.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cities import CITIES
from benchmarks.flights import FLIGHTS, FLIGHTS_MONTH
from benchmarks.measuring import (
    fresh_process,
    machine,
    printed,
    read_again,
    read_peak_memory_gigabytes,
    reset_peak_memory,
    steps,
)
from benchmarks.range_queries import covering_ranges, filled_ranges, random_ranges, ranges_about, sized_ranges
from benchmarks.stops_tables import ANSWER_ZERO, COUNTS, FLOORS, KINDS, REFERENCE, csv_tables, in_short
from benchmarks.synthetic_stops import KnownPoints, connections, flights, gaussian, zipf
from benchmarks.tables import write_tables
from od_core.errors import OdError
from od_core.evaluation.known_flows import SEED
from od_core.noise.backends import require_laplace_source, resolve_noise_source
from od_core.stops.geometry import Boxes, BoxIndex, Counts, Grid, Ranges, Reals, count_trips_by_cell
from od_core.stops.mechanisms import MECHANISMS, BudgetPath, StopsMechanism
from od_core.stops.release import (
    choose_default_error_floors,
    compute_entropy,
    compute_mean_relative_error,
    count_trips_in_ranges,
    make_counts_nonnegative,
)


@dataclass(frozen=True)
class Contender:
    """A mechanism with its options."""

    label: str
    mechanism: str
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def made(self) -> StopsMechanism:
        """The mechanism."""
        return MECHANISMS.make(self.mechanism, **dict(self.options))


CONTENDERS = (
    Contender("identity", "identity"),
    Contender("uniform", "uniform"),
    Contender("eug", "eug"),
    Contender("ebp", "ebp"),
    Contender("mkm", "mkm"),
    Contender(REFERENCE, "daf_entropy", (("rounding", "nearest"),)),
    Contender("daf_entropy", "daf_entropy"),
    Contender("daf_homogeneity", "daf_homogeneity"),
    Contender("privtree", "privtree"),
)

OPTIONS = (
    Contender("eug, r = 1/100", "eug", (("query_size", "1/100"),)),
    Contender("eug, r = 1/10000", "eug", (("query_size", "1/10000"),)),
    *(
        Contender(f"daf_entropy, {stop} {threshold}", "daf_entropy", (("stop", stop), ("threshold", threshold)))
        for stop, threshold in (
            ("count", "3"),
            ("depth", "3"),
            ("entropy", "1/100"),
            ("entropy", "1/10000"),
            ("extent", "1/10000"),
        )
    ),
)
"""Other options of mechanisms, which are measured only if they are named."""

CLOUDS: dict[str, tuple[Callable[..., KnownPoints], tuple[float, ...]]] = {
    "gaussian": (gaussian, (0.05, 0.2)),
    "zipf": (zipf, (1.5, 2.5)),
}


def cloud(kind: str, shape: float, dimensions: int, *, small: bool) -> KnownPoints:
    """Return a synthetic cloud after [shaham2022stops, section 6.1]; if ``small``, with few points."""
    make = CLOUDS[kind][0]
    return make(SEED, dimensions, shape, trips=2_000) if small else make(SEED, dimensions, shape)


def flown(*, two_legs: bool, small: bool) -> KnownPoints:
    """Return the flights of a month, or connections made from them; if ``small``, one of every 500."""
    data = connections(FLIGHTS, FLIGHTS_MONTH, SEED) if two_legs else flights(FLIGHTS, FLIGHTS_MONTH)
    return replace(data, points=data.points[::500].copy()) if small else data


CASES: Mapping[str, Callable[..., KnownPoints]] = {
    f"{kind} {shape:g}, {dimensions} dimensions": partial(cloud, kind, shape, dimensions)
    for dimensions, (kind, (_, shapes)) in product((2, 4, 6), CLOUDS.items())
    for shape in shapes
} | {
    "flights, 4 dimensions": partial(flown, two_legs=False),
    "two-leg flights (synthetic), 6 dimensions": partial(flown, two_legs=True),
}

EPSILONS = ("0.1", "0.3", "0.5")
NOISE = "table"
RUNS, QUERIES = 7, 1_000
ENDS: dict[str, Callable[[Sequence[float]], float]] = {"": statistics.median, "_least": min, "_most": max}
"""Statistics of the figures of several runs."""


@dataclass(frozen=True, eq=False)
class Questions:
    """A data set, its queries, one kind after the other, and their true answers."""

    data: KnownPoints
    ranges: Ranges
    true: Counts
    floors: tuple[float, float]
    kinds: tuple[str, ...] = KINDS

    def of(self, kind: str) -> slice:
        """Return which of all queries are of a kind."""
        queries = len(self.true) // len(self.kinds)
        return slice(self.kinds.index(kind) * queries, (self.kinds.index(kind) + 1) * queries)

    def errors(self, answered: Reals, kind: str) -> dict[str, float]:
        """Return the mean relative error of the answers to one kind of queries, by floor."""
        some = self.of(kind)
        return {
            name: compute_mean_relative_error(self.true[some], answered[some], floor)
            for name, floor in zip(FLOORS, self.floors, strict=True)
        }

    def workload(self, kind: str) -> dict[str, float]:
        """Return what one kind of queries asks for, in percent, and the entropy of the cells in bits."""
        true, trips = self.true[self.of(kind)], len(self.data.points)
        few, some = (100 * float(np.mean(true < floor)) for floor in (1.0, self.floors[0]))
        rows = count_trips_by_cell(self.data.points, self.data.grid)
        return {
            "empty_percent": few,
            "below_thousandth_percent": some,
            "median_trips_percent": 100 * float(np.median(true)) / max(1, trips),
            "trips": trips,
            "bits_of_cells": compute_entropy(rows[:, -1].astype(np.int64)),
        }


@lru_cache(maxsize=1)
def questions(case: str, *, small: bool, folder: Path | None = None) -> Questions:
    """Return the questions of a case, made once for all contenders. ``folder`` has the data of cities and taxis."""
    data = CASES[case](small=small) if case in CASES else _of_folder(case, folder, small=small)
    queries, grid, points = 20 if small else QUERIES, data.grid, data.points
    kinds = {
        "random": random_ranges(grid, queries, SEED),
        "sized": sized_ranges(grid, queries, SEED),
        "about records": ranges_about(points, grid, queries, SEED),
        "filled": filled_ranges(points, grid, queries, SEED),
    }
    if grid.dimensions == 2:
        kinds |= {f"{share} % of each side": covering_ranges(grid, queries, SEED, share / 100) for share in COVERED}
    ranges = np.concatenate([*kinds.values()])
    true = count_trips_in_ranges(count_trips_by_cell(points, grid), ranges)
    return Questions(data, ranges, true, choose_default_error_floors(len(points)), tuple(kinds))


MOST_PAIRS = 10**11
"""Largest number of pairs of a box and a filled cell for which the entropy of the boxes is measured."""

COVERED = (1, 2, 5, 10)
"""Shares of each side of a map that queries of a fixed coverage have, in percent [shaham2022stops, figure 6]."""


def _of_folder(case: str, folder: Path | None, *, small: bool) -> KnownPoints:
    if folder is None:
        raise OdError("OD-BENCHMARK-DATA", f"{case} needs --data FOLDER", next_step="name the folder of the data")
    data = CITIES[case](folder, seed=SEED)
    return replace(data, points=data.points[::100].copy()) if small else data


def root(epsilon: str) -> BudgetPath:
    """Return the path of the root with the whole budget remaining; trips are added or removed."""
    return BudgetPath(require_laplace_source(resolve_noise_source(NOISE)), 1, Fraction(epsilon))


def answered_by(asked: Questions, boxes: Boxes) -> dict[str, Reals]:
    """Return the answers from the noisy counts, and those from the integer counts."""
    index = BoxIndex.from_boxes(boxes.lower, boxes.upper)
    counts = {"noisy": boxes.noisy, "whole": make_counts_nonnegative(boxes.noisy)}
    return {name: index.answer_queries(values, asked.ranges) for name, values in counts.items()}


def never_materialised(asked: Questions, epsilon: str) -> dict[str, Reals]:
    """Return the answers of IDENTITY where there are more cells than can be listed.

    An answer is the truth plus the noise of the V cells of the query. With a = e^-epsilon, the sum of V discrete
    Laplace draws is the difference of two negative binomial draws with parameters V and 1 - a. So every answer has its
    exact distribution, and the mean error its exact expectation. However, the answers of a run do not share the noise
    of the cells that queries have in common.
    """
    generator = np.random.default_rng()
    cells = np.prod((asked.ranges[:, :, 1] - asked.ranges[:, :, 0] + 1).astype(np.float64), axis=1)
    chance = -math.expm1(-float(epsilon))
    up, down = (generator.negative_binomial(cells, chance) for _ in range(2))
    return {"noisy": asked.true + (up - down)}


def errors(
    case: str, epsilon: str, contender: Contender, runs: int, *, small: bool, folder: Path | None = None
) -> list[dict[str, Any]]:
    """Measure the errors of several runs of a contender, one row per kind of queries: medians, least and most."""
    asked = questions(case, small=small, folder=folder)
    made, grid = contender.made, asked.data.grid
    row: dict[str, Any] = {"case": case, "epsilon": epsilon, "contender": contender.label, "runs": runs}
    answered: list[dict[str, Reals]] = []
    seconds, boxes, bits = [], [], []
    rows = count_trips_by_cell(asked.data.points, grid) if case in CITIES else None
    try:
        made.refuse_grid(grid)
        for _ in range(runs):
            points = asked.data.points.copy()
            start = time.perf_counter()
            drawn = made.draw_boxes(points, grid, root(epsilon))
            seconds.append(time.perf_counter() - start)
            boxes.append(len(drawn.boxes))
            if rows is not None and len(drawn.boxes) == grid.cells:
                bits.append(compute_entropy(rows[:, -1].astype(np.int64)))
            elif rows is not None and len(drawn.boxes) * len(rows) <= MOST_PAIRS:
                of_boxes = np.stack([drawn.boxes.lower, drawn.boxes.upper], axis=2).astype(np.int64)
                bits.append(compute_entropy(count_trips_in_ranges(rows, of_boxes)))
            answered.append(answered_by(asked, drawn.boxes))
        row |= {"boxes": statistics.median(boxes), "seconds": statistics.median(seconds)}
        row |= {"bits_of_boxes": statistics.median(bits)} if bits else {}
    except OdError as error:
        row["refused"] = error.message
        answered = []
        if contender.mechanism == "identity":
            answered = [never_materialised(asked, epsilon) for _ in range(runs)]
    return [row | {"queries": kind} | figures(asked, answered, kind) for kind in asked.kinds]


def answers_of_zero(case: str, epsilon: str, *, small: bool, folder: Path | None = None) -> list[dict[str, Any]]:
    """Return the errors of answering 0, one row per kind of queries, and what the queries ask for."""
    asked = questions(case, small=small, folder=folder)
    zero = np.zeros(len(asked.true))
    row = {"case": case, "epsilon": epsilon, "contender": ANSWER_ZERO, "runs": 1}
    return [
        row | {"queries": kind} | figures(asked, [dict.fromkeys(COUNTS, zero)], kind) | asked.workload(kind)
        for kind in asked.kinds
    ]


def figures(asked: Questions, answered: Sequence[dict[str, Reals]], kind: str) -> dict[str, float | None]:
    """Return the median, least and most error over the runs, by counts and floor; None where there is no answer."""
    found: dict[str, float | None] = {}
    for counts, floor in product(COUNTS, FLOORS):
        values = [asked.errors(run[counts], kind)[floor] for run in answered if counts in run]
        for end, over in ENDS.items():
            found[f"{counts}_{floor}{end}"] = over(values) if values else None
    return found


SCALES: dict[str, tuple[int, int]] = {
    "1 M trips, 256^6": (1_000_000, 256),
    "10 M trips, 256^6": (10_000_000, 256),
    "1 M trips, 10^6": (1_000_000, 10),
}
"""Number of trips, and cells of a side, in six dimensions. In the last case, IDENTITY has a million boxes."""


def scale(name: str, contender: Contender, *, small: bool) -> dict[str, Any]:
    """Measure the time and peak memory of one draw at epsilon 1, and the time of 1,000 random queries, in this process.

    A small draw to load the kernels comes first and does not count. The points are made before the peak memory is
    reset, and are part of it.
    """
    trips, side = SCALES[name]
    trips, queries = (2_000, 20) if small else (trips, QUERIES)
    grid = Grid((side,) * 6)
    row: dict[str, Any] = {"case": name, "contender": contender.label, "trips": trips}
    try:
        contender.made.refuse_grid(grid)
    except OdError as error:
        return row | {"refused": error.message}
    ranges = random_ranges(grid, queries, SEED)
    few = gaussian(SEED, 6, 0.05, trips=500, side=4)
    warm = contender.made.draw_boxes(few.points, few.grid, root("1")).boxes
    BoxIndex.from_boxes(warm.lower, warm.upper).answer_queries(warm.noisy, random_ranges(few.grid, 3, SEED))
    points = gaussian(SEED, 6, 0.05, trips=trips, side=side).points
    reset_peak_memory()
    start = time.perf_counter()
    try:
        boxes = contender.made.draw_boxes(points, grid, root("1")).boxes
    except OdError as error:
        return row | {"refused": error.message}
    row |= {"boxes": len(boxes), "seconds": time.perf_counter() - start}
    row["peak_memory_gigabytes"] = read_peak_memory_gigabytes()
    start = time.perf_counter()
    BoxIndex.from_boxes(boxes.lower, boxes.upper).answer_queries(boxes.noisy, ranges)
    return row | {"query_seconds": time.perf_counter() - start}


def measured(
    part: str,
    cases: Sequence[str],
    epsilons: Sequence[str],
    runs: int,
    contenders: Sequence[Contender] = CONTENDERS,
    *,
    small: bool,
    folder: Path | None = None,
) -> dict[str, Any]:
    """Measure all figures that are requested."""
    results: dict[str, Any] = {"machine": machine(), "noise": NOISE, "scale": [], "errors": []}
    if part != "errors":
        for name, contender in steps(list(product(SCALES, contenders)), "scale"):
            if small:  # too small for a separate process
                results["scale"].append(scale(name, contender, small=True))
                continue
            results["scale"] += json.loads(fresh_process("benchmarks.stops", "--scale-of", name, contender.label))
    if part != "scale":
        for case, epsilon in steps(list(product(cases, epsilons)), "errors"):
            results["errors"] += answers_of_zero(case, epsilon, small=small, folder=folder)
            for contender in contenders:
                results["errors"] += errors(case, epsilon, contender, runs, small=small, folder=folder)
    return results


def main() -> None:
    """Measure the figures, or read measured ones, and print them."""
    every = {contender.label: contender for contender in (*CONTENDERS, *OPTIONS)}
    labels = [contender.label for contender in CONTENDERS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="write the tables to CSV files in this folder")
    parser.add_argument("--small", action="store_true", help="small data and few runs, to see that it runs")
    parser.add_argument("--part", choices=("scale", "errors", "all"), default="all")
    parser.add_argument("--case", nargs="+", choices=(*CASES, *CITIES), default=tuple(CASES), metavar="NAME")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="folder with the data of cities and taxis")
    parser.add_argument("--epsilon", nargs="+", help=f"instead of {', '.join(EPSILONS)}")
    parser.add_argument("--runs", type=int, help=f"of each mechanism, instead of {RUNS}")
    parser.add_argument("--contender", nargs="+", choices=every, default=labels, metavar="NAME", help="some of them")
    parser.add_argument("--read", type=Path, nargs="+", metavar="FILE", help="figures printed by --json before")
    parser.add_argument("--scale-of", nargs=2, metavar=("CASE", "CONTENDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.scale_of:
        case, label = options.scale_of
        print(json.dumps([scale(case, every[label], small=options.small)]))
        return
    if options.read:
        results = read_again(options.read, ("scale", "errors"))
    else:
        some = [every[label] for label in options.contender]
        runs = options.runs or (1 if options.small else RUNS)
        epsilons = options.epsilon or (EPSILONS[-1:] if options.small else EPSILONS)
        folder = options.data
        results = measured(options.part, options.case, epsilons, runs, some, small=options.small, folder=folder)
    if options.csv:
        write_tables(options.csv, csv_tables(results))
    printed(results if options.json else in_short(results), as_json=options.json)


if __name__ == "__main__":
    main()
