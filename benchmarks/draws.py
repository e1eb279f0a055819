"""Measure draws given a release: how long they take, and how often 90 % intervals of them hold the truth.

    python -m benchmarks.draws --case flights norway taxis --data FOLDER --runs 20
    python -m benchmarks.draws --case flights --epsilon 1 --runs 20 --json
    python -m benchmarks.draws --case flights italy --epsilon 1 --costs

In each run, a release is made, and 119 tables are drawn given it. The middle 90 % of 99 of them are an interval: of
single flows, by their mean in the other 20; of all trips to and from each zone; and of four statistics of the whole
table. If the model of the draws holds, 90 % of the intervals contain the true value, and the mean rank of the true one
among the draws is 0.5. Single flows are those of every level below the root.

``--costs`` measures only the seconds and the memory of 1, 10 and 100 draws given one release, in one process. Processor
seconds are those of all threads.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.estimator import CASES, DELTA, EPSILONS, NOISE, VARIANTS, data_set, is_there, planned
from benchmarks.intervals import true_leaves
from benchmarks.measuring import case_parser, machine, peak_memory_gigabytes, printed, reset_peak_memory, steps
from od_core.evaluation.known_flows import KnownFlows
from od_core.evaluation.metrics import sums_by_level
from od_core.flows.release import Release, run_plan
from od_core.geography.flow_tree import FlowTree, Nodes
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.sources import noise_named

BEFORE, DRAWS = 20, 99
COSTS = (1, 10, 100)
EDGES = (0, 0.1, 1, 5, 20, 100, 1000)
REFINED = next(variant for variant in VARIANTS if variant.name == "refined")
_Reals = NDArray[np.float64]


def at_every_level(tree: FlowTree, tables: list[Nodes]) -> Iterator[NDArray[np.int64]]:
    """Yield the trips of each table at every node of a level that has trips in any of them; shape (tables, nodes)."""
    each = [list(sums_by_level(tree, table)) for table in tables]
    for level in range(1, tree.depth + 1):
        known = np.unique(np.concatenate([own[level][0] for own in each]))
        trips = np.zeros((len(tables), len(known)), dtype=np.int64)
        for row, own in zip(trips, each, strict=True):
            rank, sums = own[level]
            row[np.searchsorted(known, rank)] = sums
        yield trips


def statistics(tree: FlowTree, leaves: Nodes) -> dict[str, _Reals]:
    """Return statistics that no query of a release measures."""
    zones = len(tree.origin.zones)
    sent, received = (np.bincount(end, leaves.trips, zones) for end in (leaves.origin, leaves.destination))
    area = tree.origin.ancestors(1)
    inside = leaves.trips[area[leaves.origin] == area[leaves.destination]].sum() / leaves.trips.sum()
    largest = np.sort(leaves.trips)[-10:].sum() / leaves.trips.sum()
    return {
        "trips from a zone": sent,
        "trips to a zone": received,
        "share inside large areas": np.array([inside]),
        "share of the 10 largest flows": np.array([largest]),
        "pairs of zones with trips": np.array([float(len(leaves))]),
        "zones that receive more than they send": np.array([float((received > sent).sum())]),
    }


def ranks(draws: NDArray[Any], truth: NDArray[Any], random: np.random.Generator) -> _Reals:
    """Return the rank of each true value among the draws, from 0 to 1; equal values in random order."""
    below, equal = (draws < truth).sum(axis=0), (draws == truth).sum(axis=0)
    rank: _Reals = (below + random.random(len(truth)) * (equal + 1)) / (len(draws) + 1)
    return rank


def run(data: KnownFlows, epsilon: str, found: dict[str, list[_Reals]]) -> float:
    """Add the ranks of one release by class, and return the seconds of 100 draws."""
    release, random = released(data, epsilon), np.random.default_rng()
    begun = time.perf_counter()
    tables = list(release.drawn_leaves(BEFORE + DRAWS))
    seconds = (time.perf_counter() - begun) * 100 / len(tables)
    tree, truth = release.tree, true_leaves(data)
    for trips in at_every_level(tree, [truth, *tables]):
        mean = trips[1 : 1 + BEFORE].mean(axis=0)
        rank = ranks(trips[1 + BEFORE :], trips[0], random)
        for number, edge in enumerate(EDGES):
            last = np.inf if number + 1 == len(EDGES) else EDGES[number + 1]
            found[f"flow of {edge} and more"].append(rank[(mean >= edge) & (mean < last)])
    exact, drawn = statistics(tree, truth), [statistics(tree, table) for table in tables[BEFORE:]]
    for name, value in exact.items():
        found[name].append(ranks(np.array([own[name] for own in drawn]), value, random))
    return seconds


def costs(data: KnownFlows, epsilon: str) -> Iterator[dict[str, Any]]:
    """Yield the seconds and the memory of some numbers of draws given one release. Kernels are compiled before."""
    next(released(data_set("random", None, small=True), EPSILONS[-1]).drawn_leaves(1))
    release = released(data, epsilon)
    for number in COSTS:
        reset_peak_memory()
        begun, busy = time.perf_counter(), time.process_time()
        flows = sum(len(leaves) for leaves in release.drawn_leaves(number))
        yield {
            "draws": number,
            "flows_a_draw": flows / number,
            "seconds": time.perf_counter() - begun,
            "processor_seconds": time.process_time() - busy,
            "peak_memory_gigabytes": peak_memory_gigabytes(),
        }


def released(data: KnownFlows, epsilon: str) -> Release:
    """Return a release of a data set."""
    plan = planned(REFINED, data.geography, epsilon)
    return run_plan(plan, data.trips, noise_named(NOISE), MemoryMeasurements())


def main() -> None:
    """Draw given releases of every data set and print the figures."""
    parser = case_parser(__doc__, CASES, EPSILONS)
    parser.add_argument("--costs", action="store_true", help="measure only seconds and memory, given one release")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    cases = ["flights"] if options.small else [case for case in options.case if is_there(case, options.data)]
    for case, epsilon in steps(list(product(cases, options.epsilon)), "draws"):
        if options.costs or options.small:
            data = data_set(case, options.data, small=options.small)
            rows += [{"case": case, "epsilon": epsilon} | row for row in costs(data, epsilon)]
        if options.costs:
            continue
        data, found = data_set(case, options.data, small=options.small), defaultdict[str, list[_Reals]](list)
        seconds = [run(data, epsilon, found) for _ in range(1 if options.small else options.runs)]
        for name, each in found.items():
            rank = np.concatenate(each)
            if len(rank):
                inside = float(((rank > 0.05) & (rank < 0.95)).mean())
                own = {"of": name, "values": len(rank), "inside_90": inside, "mean_rank": float(rank.mean())}
                rows.append({"case": case, "epsilon": epsilon, "runs": len(seconds)} | own)
        rows.append(
            {"case": case, "epsilon": epsilon, "of": "seconds of 100 draws", "values": float(np.median(seconds))}
        )
    printed({"machine": machine(), "delta": DELTA, "noise": NOISE, "draws": rows}, as_json=options.json)


if __name__ == "__main__":
    main()
