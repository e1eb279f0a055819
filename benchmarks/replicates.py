"""Measure replicates of a release: how often intervals from them hold the truth, and how long they take.

    python -m benchmarks.replicates --case flights --epsilon 0.1 1 10 --runs 100
    python -m benchmarks.replicates --case flights --dropped --runs 50
    python -m benchmarks.replicates --case flights italy --epsilon 1 --costs

In each run, a release is made, and statistics are computed from its estimate and from 100 replicates. An interval is
1.645 standard deviations of the replicates to both sides of the estimate. If replicates are right, 90 % of the
intervals contain the true value. ``by quantiles`` is the same for the 5 % and 95 % quantiles of the replicates. The
bias is the mean of the replicates minus the estimate, in standard deviations.

``--dropped`` releases with a mechanism that drops nodes, and compares replicates of the noisy leaves, as released, with
those of the fitted leaves. The truth is then that of the measured pairs alone, and once that of all pairs.

``--costs`` measures only the seconds, the memory and the size of the files of 100 replicates, in one process. Processor
seconds are those of all threads.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.estimator import CASES, DELTA, EPSILONS, NOISE, VARIANTS, Variant, data_set, is_there, planned
from benchmarks.indicators import known
from benchmarks.intervals import true_leaves
from benchmarks.measuring import case_parser, machine, printed, read_peak_memory_gigabytes, reset_peak_memory, steps
from od_core.evaluation.known_flows import KnownFlows
from od_core.files.durable import PUBLIC_FILE_MODE, write_checked
from od_core.flows.estimation.fitted_tree import FittedTree, find_pairs
from od_core.flows.estimation.replicates import Replicates
from od_core.flows.release import Release, run_plan
from od_core.geography.flow_tree import FlowTree
from od_core.geography.places import compute_level_distances, has_distances
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source
from od_core.published.replicate_files import write_replicate_table

REPLICATES, DEVIATIONS, BANDS, SMOOTH = 100, 1.6448536269514722, 10, 10
OF_ALL = next(variant for variant in VARIANTS if variant.name == "refined")
DROPPING = next(variant for variant in VARIANTS if variant.name == "refined, tree dropped")
_Reals = NDArray[np.float64]


class Fitted(Replicates):
    """Replicates of the fitted leaves, also where nodes were dropped."""

    def __init__(self, fitted: FittedTree) -> None:
        super().__init__(fitted)
        self._are_fitted, self.estimate = True, self._leaf.estimate


@dataclass(frozen=True, eq=False)
class Found:
    """Values of a statistic in truth, by the estimate, and by each replicate; shapes (n,), (n,) and (replicates, n)."""

    truth: _Reals
    estimate: _Reals
    replicates: _Reals


def slope_of(ends: tuple[Any, Any], distance: _Reals) -> Callable[[_Reals, NDArray[Any], NDArray[Any]], float]:
    """Return a function that fits the power of the distance in a gravity model to totals of distance bands.

    Its arguments are the trips between the zones of ``ends``, and those that leave and that arrive at each zone.
    ``distance`` has all pairs of zones, shape (zones, zones).

    The expected trips of a band are in proportion to a power of its distance, and to the sum, over its pairs of zones,
    of the trips that leave the one and arrive at the other. They are fitted by Poisson regression. So all that is
    fitted are large sums. The last band has half of the pairs, and each other one half as many as the next. The result
    is NaN where noise leaves no such fit.
    """
    apart = distance > 0
    edges = np.quantile(distance[apart], 0.5 ** np.arange(BANDS - 1, 0, -1))
    band = np.searchsorted(edges, distance[apart], side="right")
    x = np.bincount(band, np.log(distance[apart]), BANDS) / np.bincount(band, minlength=BANDS)
    of_pair = np.full(distance.shape, BANDS)
    of_pair[apart] = band
    design, of_trips = np.column_stack([np.ones(BANDS), x - x.mean()]), of_pair[ends]

    def slope(trips: _Reals, sent: NDArray[Any], received: NDArray[Any]) -> float:
        total = np.bincount(of_trips, trips, BANDS + 1)[:BANDS]
        base = np.bincount(band, np.outer(sent, received)[apart], BANDS) / sent.sum()
        some = (total > 0) & (base > 0)
        power = np.polyfit(design[some, 1], np.log(total[some] / base[some]), 1, w=np.sqrt(total[some]))[::-1].copy()
        for _ in range(50):
            expected = base * np.exp(design @ power)
            try:
                step = np.linalg.solve(design.T @ (expected[:, None] * design), design.T @ (total - expected))
            except np.linalg.LinAlgError:
                return math.nan
            power += step
            if np.abs(step).max() < 1e-10:
                break
        return float(power[1])

    return slope


def smooth_weights(tree: FlowTree, number: int) -> _Reals:
    """Return weights between 0 and 2 that vary slowly with the places of both zones in their lists; shape (o, d)."""
    random = np.random.default_rng([2001, number])
    (start, end), phase = random.uniform(-6, 6, 2), random.uniform(0, 6)
    sizes = len(tree.origin.zones), len(tree.destination.zones)
    origin, destination = np.indices(sizes)
    weights: _Reals = 1 + np.cos(start * origin / sizes[0] + end * destination / sizes[1] + phase)
    return weights


def statistics(release: Release, ends: tuple[Any, Any]) -> Callable[[_Reals], dict[str, _Reals]]:
    """Return a function that computes all statistics of a table, given the trips of each pair of zones."""
    tree, (origin, destination) = release.tree, ends
    same, distance = tree.origin.digest == tree.destination.digest, None
    if has_distances(tree):
        every = np.indices((len(tree.origin.zones), len(tree.destination.zones)), dtype=np.int32)
        distance = compute_level_distances(
            tree, (tree.origin.depth, tree.destination.depth), every[0].ravel(), every[1].ravel()
        )
        distance = distance.reshape(every.shape[1:])
        slope = slope_of(ends, distance)
    area = tree.origin.ancestors(1)
    smooth = np.array([smooth_weights(tree, number)[ends] for number in range(SMOOTH)])

    def of(trips: _Reals) -> dict[str, _Reals]:
        sent = np.bincount(origin, trips, len(tree.origin.zones))
        received = np.bincount(destination, trips, len(tree.destination.zones))
        found: dict[str, Any] = {"trips from a zone": sent, "trips to a zone": received, "smooth sums": smooth @ trips}
        if same:
            found["share within zones"] = trips[origin == destination].sum() / trips.sum()
            found["share within the largest areas"] = trips[area[origin] == area[destination]].sum() / trips.sum()
        if distance is not None:
            found["mean distance"] = (trips * distance[ends]).sum() / trips.sum()
            found["gravity slope by distance bands"] = slope(trips, sent, received)
        positive = trips[trips > 0] / trips[trips > 0].sum()
        found["entropy"] = -(positive * np.log(positive)).sum()
        found["pairs of zones with trips"] = (trips >= 0.5).sum()
        found["largest flow"] = trips.max()
        return {name: np.atleast_1d(np.asarray(value, dtype=float)) for name, value in found.items()}

    return of


def run(data: KnownFlows, release: Release, replicates: Replicates, *, every_pair: bool) -> dict[str, Found]:
    """Return the statistics of one release; in truth, those of every pair of zones or of the measured ones."""
    origin, destination = replicates.ends
    true = true_leaves(data)
    at = find_pairs(true.origin, true.destination, origin, destination, len(release.tree.destination.zones))
    truth = np.where(at >= 0, np.append(true.trips, 0)[at], 0).astype(float)
    of = statistics(release, replicates.ends)
    each = [of(trips) for trips in replicates.tables(REPLICATES)]
    exact, estimated = of(truth), of(replicates.estimate)
    if every_pair:
        exact = statistics(release, (true.origin, true.destination))(true.trips.astype(float))
    return {name: Found(exact[name], estimated[name], np.array([own[name] for own in each])) for name in exact}


def coverage(name: str, runs: list[Found]) -> dict[str, Any]:
    """Return how often intervals of a statistic contain the truth, and its bias."""
    held, by_quantiles, bias = [], [], []
    for found in runs:
        deviation = found.replicates.std(axis=0, ddof=1)
        some = deviation > 0
        held.append((np.abs(found.truth - found.estimate) <= DEVIATIONS * deviation)[some])
        low, high = np.quantile(found.replicates, [0.05, 0.95], axis=0, method="weibull")
        by_quantiles.append(((low <= found.truth) & (found.truth <= high))[some])
        bias.append(((found.replicates.mean(axis=0) - found.estimate)[some]) / deviation[some])
    inside, quantiles = np.concatenate(held), np.concatenate(by_quantiles)
    return {
        "of": name,
        "releases": len(runs),
        "values": len(inside),
        "inside_90": float(inside.mean()),
        "by_quantiles": float(quantiles.mean()),
        "bias_in_deviations": float(np.concatenate(bias).mean()),
    }


def costs(data: KnownFlows, epsilon: str) -> dict[str, Any]:
    """Return the seconds, the memory and the size of the file of 100 replicates. Kernels are compiled before."""
    next(released(OF_ALL, data_set("random", None, small=True), EPSILONS[-1]).replicates(1))
    release = released(OF_ALL, data, epsilon)
    reset_peak_memory()
    begun, busy = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        path, replicates = Path(folder) / "replicates.parquet", release.replicated
        size = write_checked(
            path, lambda file: write_replicate_table(release.tree, replicates, REPLICATES, file), mode=PUBLIC_FILE_MODE
        ).size
    return {
        "replicates": REPLICATES,
        "leaves": len(replicates.estimate),
        "are_fitted": release.fitted.nothing_dropped,
        "trips_unseen": replicates.unseen,
        "seconds": time.perf_counter() - begun,
        "processor_seconds": time.process_time() - busy,
        "peak_memory_gigabytes": read_peak_memory_gigabytes(),
        "gigabytes_of_the_file": size / 1e9,
    }


def released(variant: Variant, data: KnownFlows, epsilon: str) -> Release:
    """Return a release of a data set."""
    return run_plan(
        planned(variant, data.geography, epsilon), data.trips, resolve_noise_source(NOISE), MemoryMeasurements()
    )


def covered(data: KnownFlows, epsilon: str, runs: int, *, dropped: bool) -> Iterator[dict[str, Any]]:
    """Yield the coverage of each statistic over some releases."""
    kinds: dict[str, tuple[type[Replicates], bool]] = {"all measured": (Replicates, False)}
    if dropped:
        kinds = {
            "noisy leaves": (Replicates, False),
            "noisy leaves, all pairs": (Replicates, True),
            "fitted leaves": (Fitted, False),
        }
    found: dict[tuple[str, str], list[Found]] = defaultdict(list)
    for _ in range(runs):
        release = released(DROPPING if dropped else OF_ALL, data, epsilon)
        for kind, (make, every_pair) in kinds.items():
            for name, own in run(data, release, make(release.fitted), every_pair=every_pair).items():
                found[kind, name].append(own)
    for (kind, name), each in found.items():
        yield {"replicates": kind} | coverage(name, each)


def main() -> None:
    """Print the coverage of statistics on every data set, or the costs."""
    parser = case_parser(__doc__, CASES, EPSILONS)
    parser.add_argument("--costs", action="store_true", help="measure only seconds, memory and size of the file")
    parser.add_argument("--dropped", action="store_true", help="release with a mechanism that drops nodes")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    cases = ["flights"] if options.small else [case for case in options.case if is_there(case, options.data)]
    for case, epsilon in steps(list(product(cases, options.epsilon)), "replicates"):
        data, own = known(case, options.data, small=options.small), {"case": case, "epsilon": epsilon}
        if options.costs or options.small:
            rows.append(own | costs(data, epsilon))
        if not options.costs:
            runs = 2 if options.small else options.runs
            rows += [own | row for row in covered(data, epsilon, runs, dropped=options.dropped)]
    printed({"machine": machine(), "delta": DELTA, "noise": NOISE, "replicates": rows}, as_json=options.json)


if __name__ == "__main__":
    main()
