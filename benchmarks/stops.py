"""Trips with stops: errors of range queries under every mechanism, and time and memory of large releases.

    python -m benchmarks.stops --json > results.json
    python -m benchmarks.stops --read results.json --markdown
    python -m benchmarks.stops --part errors --case "flights, 4 dimensions" --epsilon 0.1 --runs 3
    python -m benchmarks.stops --part scale

Errors are relative, means over 1,000 queries; a figure is the median of some runs. Every run is an independent draw of
the table's noise: there is no seed but that of made-up data and of the queries. Times are of one mechanism's draw, from
points to noisy boxes; in the part ``scale`` each runs in a process of its own, so that its peak of memory is its own.
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

from benchmarks.measuring import (
    fresh_process,
    machine,
    peak_memory_gigabytes,
    printed,
    read_again,
    reset_peak_memory,
    steps,
)
from benchmarks.range_queries import random_ranges, ranges_about, sized_ranges
from benchmarks.release import FLIGHTS
from benchmarks.stops_tables import ANSWER_ZERO, COUNTS, FLOORS, KINDS, REFERENCE, in_short, markdown
from benchmarks.synthetic_stops import KnownPoints, connections, flights, gaussian, zipf
from od_core.errors import OdError
from od_core.evaluation.known_flows import FLIGHTS_MONTH, SEED
from od_core.noise.sources import laplace_source, noise_named
from od_core.stops.geometry.boxes import Boxes
from od_core.stops.geometry.grid import Counts, Grid
from od_core.stops.geometry.queries import BoxIndex, Ranges, Reals
from od_core.stops.mechanisms import mechanism_named
from od_core.stops.mechanisms.mechanism import StopsMechanism
from od_core.stops.mechanisms.path import Path as ChargedPath
from od_core.stops.metrics import headline_floors, mean_relative_error, true_answers
from od_core.stops.release import whole_counts


@dataclass(frozen=True)
class Contender:
    """A mechanism with its options."""

    label: str
    mechanism: str
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def made(self) -> StopsMechanism:
        """The mechanism."""
        return mechanism_named(self.mechanism, **dict(self.options))


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

CLOUDS: dict[str, tuple[Callable[..., KnownPoints], tuple[float, ...]]] = {
    "gaussian": (gaussian, (0.05, 0.2)),
    "zipf": (zipf, (1.5, 2.5)),
}


def cloud(kind: str, shape: float, dimensions: int, *, small: bool) -> KnownPoints:
    """One of the paper's clouds; where small, of few points."""
    make = CLOUDS[kind][0]
    return make(SEED, dimensions, shape, trips=2_000) if small else make(SEED, dimensions, shape)


def flown(*, two_legs: bool, small: bool) -> KnownPoints:
    """Flights of a month, or connections made up of them; where small, one of 500."""
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
"""What is kept of the figures of some runs."""


@dataclass(frozen=True, eq=False)
class Questions:
    """A data set, the queries of each kind behind one another, and their true answers."""

    data: KnownPoints
    ranges: Ranges
    true: Counts
    floors: tuple[float, float]

    def errors(self, answered: Reals, kind: str) -> dict[str, float]:
        """Mean relative error of the answers to one kind of queries, by floor."""
        queries = len(self.true) // len(KINDS)
        some = slice(KINDS.index(kind) * queries, (KINDS.index(kind) + 1) * queries)
        return {
            name: mean_relative_error(self.true[some], answered[some], floor)
            for name, floor in zip(FLOORS, self.floors, strict=True)
        }


@lru_cache(maxsize=1)
def questions(case: str, *, small: bool) -> Questions:
    """Those of a case, made once for all contenders."""
    data, queries = CASES[case](small=small), 20 if small else QUERIES
    ranges = np.concatenate(
        [
            random_ranges(data.grid, queries, SEED),
            sized_ranges(data.grid, queries, SEED),
            ranges_about(data.points, data.grid, queries, SEED),
        ]
    )
    return Questions(data, ranges, true_answers(data.points, ranges), headline_floors(len(data.points)))


def root(epsilon: str) -> ChargedPath:
    """A path with the whole budget left; trips are added or removed."""
    return ChargedPath(laplace_source(noise_named(NOISE)), 1, Fraction(epsilon))


def answered_by(asked: Questions, boxes: Boxes) -> dict[str, Reals]:
    """Answers by the counts as they were drawn, and by those made whole."""
    index = BoxIndex.of(boxes.lower, boxes.upper)
    counts = {"noisy": boxes.noisy, "whole": whole_counts(boxes.noisy)}
    return {name: index.answers(values, asked.ranges) for name, values in counts.items()}


def never_materialised(asked: Questions, epsilon: str) -> dict[str, Reals]:
    """What IDENTITY would answer on more cells than can be listed: truth plus the noise of the query's V cells.

    The sum of V discrete Laplace draws with a = e^-epsilon is the difference of two negative binomial ones, V and
    1 - a each. So every answer has its exact law, and the mean error its expectation; but answers of one run do not
    share the noise of the cells that queries have in common.
    """
    generator = np.random.default_rng()
    cells = np.prod((asked.ranges[:, :, 1] - asked.ranges[:, :, 0] + 1).astype(np.float64), axis=1)
    chance = -math.expm1(-float(epsilon))
    up, down = (generator.negative_binomial(cells, chance) for _ in range(2))
    return {"noisy": asked.true + (up - down)}


def errors(case: str, epsilon: str, contender: Contender, runs: int, *, small: bool) -> list[dict[str, Any]]:
    """Errors of some runs of one contender, a row for each kind of queries: medians, least and most."""
    asked = questions(case, small=small)
    made, grid = contender.made, asked.data.grid
    row: dict[str, Any] = {"case": case, "epsilon": epsilon, "contender": contender.label, "runs": runs}
    answered: list[dict[str, Reals]] = []
    seconds, boxes = [], []
    try:
        made.refuse(grid)
        for _ in range(runs):
            points = asked.data.points.copy()
            start = time.perf_counter()
            drawn = made.draw(points, grid, root(epsilon))
            seconds.append(time.perf_counter() - start)
            boxes.append(len(drawn.boxes))
            answered.append(answered_by(asked, drawn.boxes))
        row |= {"boxes": statistics.median(boxes), "seconds": statistics.median(seconds)}
    except OdError as error:
        row["refused"] = error.message
        answered = []
        if contender.mechanism == "identity":
            answered = [never_materialised(asked, epsilon) for _ in range(runs)]
    return [row | {"queries": kind} | figures(asked, answered, kind) for kind in KINDS]


def answers_of_zero(case: str, epsilon: str, *, small: bool) -> list[dict[str, Any]]:
    """The errors of answering 0, a row for each kind of queries."""
    asked = questions(case, small=small)
    zero = np.zeros(len(asked.true))
    row = {"case": case, "epsilon": epsilon, "contender": ANSWER_ZERO, "runs": 1}
    return [row | {"queries": kind} | figures(asked, [dict.fromkeys(COUNTS, zero)], kind) for kind in KINDS]


def figures(asked: Questions, answered: Sequence[dict[str, Reals]], kind: str) -> dict[str, float | None]:
    """Median, least and most error over the runs by counts and floor; None where there is no answer."""
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
"""Trips and side, in six dimensions; on the last IDENTITY has a million boxes."""


def scale(name: str, contender: Contender, *, small: bool) -> dict[str, Any]:
    """Seconds and peak memory of one draw and of 1,000 random queries, in this process, at epsilon 1.

    A draw of few trips that does not count goes before it, for the kernels; the points are made before the peak is
    taken, and are part of it.
    """
    trips, side = SCALES[name]
    trips, queries = (2_000, 20) if small else (trips, QUERIES)
    grid = Grid((side,) * 6)
    row: dict[str, Any] = {"case": name, "contender": contender.label, "trips": trips}
    try:
        contender.made.refuse(grid)
    except OdError as error:
        return row | {"refused": error.message}
    ranges = random_ranges(grid, queries, SEED)
    few = gaussian(SEED, 6, 0.05, trips=500, side=4)
    warm = contender.made.draw(few.points, few.grid, root("1")).boxes
    BoxIndex.of(warm.lower, warm.upper).answers(warm.noisy, random_ranges(few.grid, 3, SEED))
    points = gaussian(SEED, 6, 0.05, trips=trips, side=side).points
    reset_peak_memory()
    start = time.perf_counter()
    try:
        boxes = contender.made.draw(points, grid, root("1")).boxes
    except OdError as error:
        return row | {"refused": error.message}
    row |= {"boxes": len(boxes), "seconds": time.perf_counter() - start}
    row["peak_memory_gigabytes"] = peak_memory_gigabytes()
    start = time.perf_counter()
    BoxIndex.of(boxes.lower, boxes.upper).answers(boxes.noisy, ranges)
    return row | {"query_seconds": time.perf_counter() - start}


def measured(
    part: str,
    cases: Sequence[str],
    epsilons: Sequence[str],
    runs: int,
    contenders: Sequence[Contender] = CONTENDERS,
    *,
    small: bool,
) -> dict[str, Any]:
    """All figures that are asked for."""
    results: dict[str, Any] = {"machine": machine(), "noise": NOISE, "scale": [], "errors": []}
    if part != "errors":
        for name, contender in steps(list(product(SCALES, contenders)), "scale"):
            if small:  # too little to be worth a process
                results["scale"].append(scale(name, contender, small=True))
                continue
            results["scale"] += json.loads(fresh_process("benchmarks.stops", "--scale-of", name, contender.label))
    if part != "scale":
        for case, epsilon in steps(list(product(cases, epsilons)), "errors"):
            results["errors"] += answers_of_zero(case, epsilon, small=small)
            for contender in contenders:
                results["errors"] += errors(case, epsilon, contender, runs, small=small)
    return results


def main() -> None:
    """Measure, or read what was measured, and print the figures."""
    labels = [contender.label for contender in CONTENDERS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables")
    parser.add_argument("--small", action="store_true", help="small data and few runs, to see that it runs")
    parser.add_argument("--part", choices=("scale", "errors", "all"), default="all")
    parser.add_argument("--case", nargs="+", choices=CASES, default=tuple(CASES), metavar="NAME")
    parser.add_argument("--epsilon", nargs="+", help=f"instead of {', '.join(EPSILONS)}")
    parser.add_argument("--runs", type=int, help=f"of each mechanism, instead of {RUNS}")
    parser.add_argument("--contender", nargs="+", choices=labels, default=labels, metavar="NAME", help="some of them")
    parser.add_argument("--read", type=Path, nargs="+", metavar="FILE", help="figures printed by --json before")
    parser.add_argument("--scale-of", nargs=2, metavar=("CASE", "CONTENDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.scale_of:
        case, label = options.scale_of
        print(json.dumps([scale(case, CONTENDERS[labels.index(label)], small=options.small)]))
        return
    if options.read:
        results = read_again(options.read, ("scale", "errors"))
    else:
        some = [contender for contender in CONTENDERS if contender.label in options.contender]
        runs = options.runs or (1 if options.small else RUNS)
        epsilons = options.epsilon or (EPSILONS[-1:] if options.small else EPSILONS)
        results = measured(options.part, options.case, epsilons, runs, some, small=options.small)
    if options.markdown:
        print(markdown(results))
        return
    printed(results if options.json else in_short(results), as_json=options.json)


if __name__ == "__main__":
    main()
