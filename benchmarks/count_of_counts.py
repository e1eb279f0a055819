"""Measure group sizes as the papers show them, at their full numbers of groups, which are given by area and size.

    python -m benchmarks.count_of_counts --json > results.json
    python -m benchmarks.count_of_counts --read results.json --csv docs/reference/tables
    python -m benchmarks.count_of_counts --part census --noise opendp

The census has the numbers of [fioretto2019hierarchical, section 11.1]. Its times are of everything from the file of
numbers to the released tables. The housing has those of [kuo2018countofcounts, section 6], with K = 100,000.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.measuring import machine, printed, read_again, read_peak_memory_gigabytes, reset_peak_memory, steps
from benchmarks.synthetic_groups import STATES, KnownGroups, full_number
from benchmarks.tables import csv_figure, write_tables
from od_core import Budget, MixedQueries, PrivacyUnit, release_group_sizes
from od_core.evaluation.known_flows import SEED
from od_core.geography.geography import Geography
from od_core.group_sizes.groups import Counts, Frame, GroupSizes
from od_core.group_sizes.mechanisms import BottomUp, GroupSizeMechanism, Leaf, Naive
from od_core.group_sizes.merging import Runs
from od_core.group_sizes.plan import plan_group_sizes
from od_core.group_sizes.release import GroupSizeRelease, evaluate_group_sizes, iterate_true_values, run_plan
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source
from od_core.publication.number_formats import list_size_classes

UNIT = PrivacyUnit("trip", "unbounded")
PARTS = ("census", "merging", "by_size")
NOISE = "table"
RUNS = 10
EPSILONS = ("0.1", "1")
"""Epsilon of each level, as on the axes of the paper."""


@dataclass(frozen=True)
class Plain(MixedQueries):
    """The naive strategy, in which matched sizes are averaged without weights [kuo2018countofcounts, section 5.3].

    As in the source, sizes are rounded before they are merged, and an average is merged with the next level as one
    estimate. So the weight of a level is that of all levels above it together.
    """

    def estimate_level(self, frame: Frame, level: int, noisy: Counts, scale: Fraction) -> Runs:
        """Return the rounded sizes of the groups of a level, with one weight for all."""
        runs = super().estimate_level(frame, level, noisy, scale)
        sizes = (2 * runs.totals + runs.weights) // (2 * runs.weights)
        weights = np.full_like(sizes, 1 << max(level - 2, 0))
        return Runs.from_pieces(len(runs.first) - 1, runs.areas, runs.groups, sizes * weights, weights)


C: Leaf = "cumulative"
G: Leaf = "sizes"

SYMBOLS = {C: "H_c", G: "H_g"}


def contenders(depth: int, *, mixed: bool) -> dict[str, GroupSizeMechanism]:
    """Return the mechanisms of the paper by label; without ``mixed``, only those that do not measure sorted sizes."""
    made: dict[str, GroupSizeMechanism] = {"naive": Naive(), "bottom_up, H_c": BottomUp()}
    for queries in product((C, G), repeat=depth):
        if set(queries) == {C} or (mixed and (depth == 2 or len(set(queries)) == 1)):
            label = " x ".join(SYMBOLS[query] for query in queries)
            made |= {f"{label}, weighted": MixedQueries(queries), f"{label}, plain": Plain(queries)}
    return made


def housing(groups: int, *, states: int = STATES, counties: int | None = None) -> KnownGroups:
    """Return the partially synthetic housing of the paper with some groups, K = 100,000."""
    sizes, each = (1, 10_001), True
    return full_number(
        SEED,
        states=states,
        counties=counties,
        groups=groups,
        top_code=100_000,
        outliers=sizes,
        outliers_of_each_state=each,
    )


HOUSING: dict[str, Callable[[], KnownGroups]] = {
    "nation": lambda: housing(240_908_081),
    "nation, a hundredth": lambda: housing(2_409_081),
    "west coast": lambda: housing(36_900_000, states=3, counties=133),
    "small": lambda: full_number(SEED, states=2, counties=None, groups=3_000, top_code=60, outliers=(1, 50)),
}
"""The partially synthetic housing: 52 states, or the 133 counties of California, Oregon and Washington, which have 15.3
per cent of the people. With sorted sizes, the noisy values of the nation alone would take 2 GB a level."""

WITH_SIZES = ("nation, a hundredth", "west coast", "small")
"""Data sets on which sorted sizes are measured, too."""


@lru_cache(maxsize=1)
def data_set(case: str) -> KnownGroups:
    """Return the groups of a case, made once for all contenders."""
    return HOUSING[case]()


def released(data: KnownGroups, mechanism: GroupSizeMechanism, epsilon: str, depth: int) -> GroupSizeRelease:
    """Return a release whose budget is ``epsilon`` for each of ``depth`` levels."""
    plan = plan_group_sizes(
        data.geography,
        data.groups.count_per_area(data.geography),
        unit=UNIT,
        budget=Budget(epsilon=Fraction(epsilon) * depth),
        mechanism=mechanism,
        top_code=data.top_code,
    )
    return run_plan(plan, data.groups, resolve_noise_source(NOISE), MemoryMeasurements())


def omniscient(data: KnownGroups, epsilon: str) -> list[float]:
    """Return the omniscient line [kuo2018countofcounts, section 6.2] of each level: the mean over its areas.

    It is the number of distinct sizes of an area times sqrt(2) over the epsilon of the level.
    """
    frame = Frame(data.geography, data.groups.count_per_area(data.geography), data.top_code)
    line: list[float] = []
    for level in frame.levels:
        histograms = np.concatenate([*iterate_true_values(frame, "histogram", level, data.groups)])
        distinct = int(np.count_nonzero(histograms)) / data.geography.size(level)
        line.append(distinct * math.sqrt(2) / float(Fraction(epsilon)))
    return line


def merging(case: str, epsilon: str, label: str, runs: int) -> dict[str, Any]:
    """Measure the errors of a contender by level: the mean over areas and runs, and the deviation of this mean."""
    data = data_set(case)
    depth = data.geography.depth
    mechanism, distances, seconds = contenders(depth, mixed=True)[label], [], []
    for _ in range(runs):
        start = time.perf_counter()
        release = released(data, mechanism, epsilon, depth)
        seconds.append(time.perf_counter() - start)
        errors = evaluate_group_sizes(release, data.groups).groupby("level", sort=False)["earth_movers_distance"]
        distances.append(errors.mean().to_numpy())
    return {
        "case": case,
        "groups": int(data.groups.groups.sum()),
        "epsilon": epsilon,
        "mechanism": label,
        "level_names": list(data.geography.levels),
        "distance": np.mean(distances, axis=0).tolist(),
        "deviation": (np.std(distances, axis=0, ddof=min(runs - 1, 1)) / math.sqrt(runs)).tolist(),
        "omniscient": omniscient(data, epsilon),
        "runs": runs,
        "seconds": min(seconds),
    }


def by_size(case: str, epsilon: str, query: Leaf, runs: int) -> list[dict[str, Any]]:
    """Measure where the errors of one area are, the whole nation: the part of its distance in each class of sizes."""
    data, nation = data_set(case), Geography.from_frame(pd.DataFrame({"nation": ["nation"]}), levels=["nation"])
    rows = data.to_frame().groupby("size", as_index=False)["groups"].sum().assign(area="nation")
    data = replace(data, geography=nation, groups=GroupSizes.from_frame(rows, nation))
    frame = Frame(data.geography, data.groups.count_per_area(data.geography), data.top_code)
    true = np.cumsum(np.concatenate([*iterate_true_values(frame, "histogram", 1, data.groups)]))
    mechanism, errors = MixedQueries((query,)), []
    for _ in range(runs):
        found = np.cumsum(released(data, mechanism, epsilon, 1).histograms[0][0])
        errors.append(np.abs(found - true))
    error, classes = np.mean(errors, axis=0), []
    for low, high in [(0, 0), *list_size_classes(data.top_code)]:
        up_to, below = int(true[min(high, data.top_code)]), int(true[low - 1]) if low else 0
        part = float(error[low : high + 1].sum())
        classes.append(
            {
                "epsilon": epsilon,
                "query": query,
                "from_size": low,
                "groups": up_to - below,
                "distance": part,
                "runs": runs,
            }
        )
    return classes


def full_census(*, small: bool) -> KnownGroups:
    """Return 117,630,445 groups in 7,592 counties, K = 1,000; if ``small``, fewer of all."""
    if small:
        return full_number(SEED, states=3, counties=6, groups=50_000, top_code=50, outliers=(10, 40))
    return full_number(SEED)


def census(noise: str, mechanism: str | None, *, small: bool) -> dict[str, Any]:
    """Measure a release of the census at epsilon 1; without a mechanism, with the one that the rule selects."""

    def from_file(groups: Path, data: KnownGroups) -> GroupSizeRelease:
        return release_group_sizes(
            groups,
            data.geography,
            unit=UNIT,
            budget=Budget(epsilon=1),
            mechanism=mechanism,
            top_code=data.top_code,
            noise=noise,
        )

    with tempfile.TemporaryDirectory() as folder:
        path, few = Path(folder, "census.csv"), full_census(small=True)
        few.to_frame().to_csv(path, index=False)
        from_file(path, few)  # warms up
        data = full_census(small=small)
        data.to_frame().to_csv(path, index=False)
        reset_peak_memory()
        start = time.perf_counter()
        release = from_file(path, data)
        seconds, memory = time.perf_counter() - start, read_peak_memory_gigabytes()
    errors = evaluate_group_sizes(release, data.groups).groupby("level", sort=False)
    return {
        "groups": int(data.groups.groups.sum()),
        "members": data.groups.total,
        "rows": len(data.groups.size),
        "areas": sum(map(len, release.histograms)),
        "top_code": data.top_code,
        "mechanism": release.plan.mechanism.name,
        "noise": noise,
        "seconds": seconds,
        "peak_memory_gigabytes": memory,
        "distance": errors["earth_movers_distance"].mean().tolist(),
        "l1_of_level": errors["l1_error"].sum().tolist(),
    }


def csv_tables(results: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each file of ``docs/reference/tables``, by its name."""
    of_census = [
        {
            **{name: row[name] for name in ("groups", "rows", "mechanism", "noise")},
            "seconds": csv_figure(row["seconds"]),
            "memory_gb": "" if row["peak_memory_gigabytes"] is None else f"{row['peak_memory_gigabytes']:.1f}",
            "level": level,
            "distance": csv_figure(distance),
            "l1_of_level": csv_figure(l1),
        }
        for row in results["census"]
        for level, (distance, l1) in enumerate(zip(row["distance"], row["l1_of_level"], strict=True), start=1)
    ]
    of_merging = [
        {
            "data_set": row["case"],
            **{name: row[name] for name in ("groups", "epsilon", "mechanism")},
            "level_name": name,
            **{column: csv_figure(row[column][k]) for column in ("distance", "deviation", "omniscient")},
            "runs": row["runs"],
            "seconds": csv_figure(row["seconds"]),
        }
        for row in results["merging"]
        for k, name in enumerate(row["level_names"])
    ]
    of_sizes = [{**row, "distance": csv_figure(row["distance"])} for row in results["by_size"]]
    names = ("full-census", "kuo", "by-size")
    tables = zip(names, (of_census, of_merging, of_sizes), strict=True)
    return {f"group-sizes-{name}.csv": rows for name, rows in tables}


def measured(
    parts: Sequence[str],
    cases: Sequence[str],
    noise: str = NOISE,
    runs: int = RUNS,
    epsilons: Sequence[str] = EPSILONS,
    labels: Sequence[str] = (),
) -> dict[str, Any]:
    """Measure the figures of some parts; with the case ``small``, small ones. No ``labels`` are all of them."""
    results: dict[str, Any] = {"machine": machine(), "census": [], "merging": [], "by_size": []}
    small = "small" in cases
    if "census" in parts:
        results["census"] += [census(noise, mechanism, small=small) for mechanism in (None, "sizes")]
    if "merging" in parts:
        work = [
            (case, epsilon, label)
            for case in cases
            for epsilon in epsilons
            for label in contenders(data_set(case).geography.depth, mixed=case in WITH_SIZES)
            if not labels or label in labels
        ]
        results["merging"] += [merging(*item, runs) for item in steps(work, "merging")]
    if "by_size" in parts:
        for epsilon, query in steps(list(product(epsilons, (C, G))), "by size"):
            results["by_size"] += by_size("small" if small else "nation, a hundredth", epsilon, query, runs)
    return results


def main() -> None:
    """Measure the figures, or read measured ones, and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="write the tables to CSV files in this folder")
    parser.add_argument("--small", action="store_true", help="small data, to see that it runs")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--case", nargs="+", choices=HOUSING, default=list(HOUSING)[:-1], metavar="NAME")
    parser.add_argument("--epsilon", nargs="+", default=EPSILONS, help="of each level")
    parser.add_argument("--mechanism", nargs="+", default=(), metavar="NAME", help="some of them")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--noise", default=NOISE, help="noise backend of the census")
    parser.add_argument("--read", type=Path, nargs="+", metavar="FILE", help="figures printed by --json before")
    options = parser.parse_args()
    if options.read:
        results = read_again(options.read, PARTS)
    elif options.small:
        results = measured(options.part, ["small"], runs=2, epsilons=EPSILONS[:1])
    else:
        results = measured(options.part, options.case, options.noise, options.runs, options.epsilon, options.mechanism)
    if options.csv:
        write_tables(options.csv, csv_tables(results))
    printed(results, as_json=options.json)


if __name__ == "__main__":
    main()
