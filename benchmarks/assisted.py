"""Measure model-assisted flows of monthly releases: what they gain, and what earlier releases that mislead cost.

    python -m benchmarks.assisted --data FOLDER --runs 20
    python -m benchmarks.assisted --case flights --epsilon 1 --runs 20 --json

Each run releases the months of a series. For months that have enough before them, the estimates are compared with the
releases, and both with the published algorithm at the same epsilon and delta. The taxis, 10,000 trips a month, are read
from the subfolder ``nyc_yellow_taxi`` of FOLDER. For ``pandemic``, April 2020 is estimated after January to March.

The estimates are also made after earlier tables that were altered in the ways of ``WAYS``. Costs are the changes of
mean errors from the estimates of a release ``alone``, which learn from no other. Runs are paired: all estimates of a
run have the same measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.estimator import DELTA, EPSILONS, METRICS, NOISE, PAPER, VARIANTS, planned
from benchmarks.flights import FLIGHTS
from benchmarks.measuring import case_parser, machine, printed, steps
from od_core import FlowTree, Geography
from od_core.evaluation.known_flows import KnownFlows
from od_core.flows.derived_flows import MAX_ASSISTED_RELEASES, choose_release_rule, estimate_last_leaves
from od_core.flows.release import Release, run_plan
from od_core.geography.flow_tree import Nodes
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source
from od_core.records.zone_lists import read_zones

FIRST = {"flights": 3, "taxis": 6, "pandemic": 3}
"""Number of months before the first one that is compared."""

REFINED = next(variant for variant in VARIANTS if variant.name == "refined")

Table = NDArray[np.int64]
"""Trips from every zone to every zone; shape (zones, zones)."""

_LARGE = 1_000
"""Smallest number of cells of a level whose costs are shown. Smaller levels learn nothing."""


def flights(_folder: Path | None, *, small: bool) -> list[KnownFlows]:
    """Return the flights of each month."""
    zones = pd.read_csv(FLIGHTS / "airports.csv", dtype=str, keep_default_na=False)
    geography = Geography.from_frame(zones, levels=["region", "division", "state", "airport"])
    months = [pd.read_parquet(path) for path in sorted(FLIGHTS.glob("*.parquet"))]
    return [_known(month, geography) for month in (months[: FIRST["flights"] + 1] if small else months)]


def taxis(folder: Path | None, *, small: bool) -> list[KnownFlows]:
    """Return the taxi trips of each month of 2018 and 2019. Raises ValueError if there is no folder."""
    return _taxi_months(folder, slice(FIRST["taxis"] + 1 if small else 24))


def pandemic(folder: Path | None, *, small: bool) -> list[KnownFlows]:  # noqa: ARG001  # four months are few
    """Return the taxi trips of January to April 2020. Raises ValueError if there is no folder."""
    return _taxi_months(folder, slice(24, 28))


def _taxi_months(folder: Path | None, chosen: slice) -> list[KnownFlows]:
    if folder is None:
        raise ValueError("the taxis are read from --data")
    place = folder / "nyc_yellow_taxi"
    geography = Geography.from_frame(read_zones(place / "zones.csv"), levels=["borough", "service_area", "taxi_zone"])
    names = {"PULocationID": "origin", "DOLocationID": "destination"}
    trips = pd.read_csv(place / "trips.csv.gz", usecols=["month", *names], dtype=str).rename(columns=names)
    return [_known(month, geography) for _, month in list(trips.groupby("month"))[chosen]]


def _known(month: pd.DataFrame, geography: Geography) -> KnownFlows:
    return KnownFlows.from_frame("month", "public", month[["origin", "destination"]], geography)


CASES = {"flights": flights, "taxis": taxis, "pandemic": pandemic}


def errors(month: KnownFlows, leaves: Nodes) -> NDArray[np.float64]:
    """Return the errors of a table at every level below the root; shape (levels, metrics)."""
    _, *levels = month.truth.compute_errors(leaves)
    return np.array([[level[metric] for metric in METRICS] for level in levels], dtype=np.float64)


def permuted_zones(table: Table, random: np.random.Generator) -> Table:
    """Give each pair of zones the trips of another pair, as if the zones had been confused."""
    order = random.permutation(len(table))
    return table[np.ix_(order, order)]


def permuted_cells(table: Table, random: np.random.Generator) -> Table:
    """Give each cell the trips of any other cell, so that not even sums of zones remain."""
    return random.permutation(table.reshape(-1)).reshape(table.shape)


def collapsed(table: Table, random: np.random.Generator) -> Table:
    """Move all trips to half of the destinations to one of the others."""
    order = random.permutation(len(table))
    gone, rest = np.split(order, [len(order) // 2])
    moved = table.copy()
    moved[:, rest[0]] += table[:, gone].sum(axis=1)
    moved[:, gone] = 0
    return moved


WAYS: dict[str, Callable[[Table, np.random.Generator], Table]] = {
    "permuted zones": permuted_zones,
    "permuted cells": permuted_cells,
    "collapsed": collapsed,
}
"""Ways in which earlier tables mislead. The total stays."""


def altered(tree: FlowTree, leaves: Nodes, way: str, seed: int) -> Nodes:
    """Return leaves altered in a way; the same seed alters several tables alike."""
    zones = len(tree.origin.zones)
    table = np.zeros((zones, zones), dtype=np.int64)
    table[leaves.origin, leaves.destination] = leaves.trips
    table = WAYS[way](table, np.random.default_rng(seed))
    nodes = tree.list_public_nodes(tree.depth)
    return Nodes(tree.depth, nodes.origin, nodes.destination, table[nodes.origin, nodes.destination])


def estimates(own: Release, before: Sequence[Release], seed: int) -> dict[str, Nodes]:
    """Return the released table and the estimates: alone, with the releases before, and with these altered."""
    found = {"refined": own.leaves, "alone": estimate_last_leaves([own], choose_release_rule(own, None))}
    for name in ("assisted", *WAYS):

        def seen(leaves: Nodes, name: str = name) -> Nodes:
            return leaves if name == "assisted" else altered(own.tree, leaves, name, seed)

        rule = choose_release_rule(own, seen(before[-1].leaves))
        found[name] = estimate_last_leaves([own], rule, seen(estimate_last_leaves(before, rule)))
    return found


def run(months: Sequence[KnownFlows], first: int, epsilon: str) -> dict[str, NDArray[np.float64]]:
    """Return the mean errors over the months from ``first`` of one series of releases, by what was estimated."""
    noise, random = resolve_noise_source(NOISE), np.random.default_rng()
    paper, refined = (planned(variant, months[0].geography, epsilon) for variant in (PAPER, REFINED))
    releases = [run_plan(refined, month.trips, noise, MemoryMeasurements()) for month in months]
    found: dict[str, list[NDArray[np.float64]]] = {}
    for number in range(first, len(months)):
        month, before = months[number], releases[max(0, number + 1 - MAX_ASSISTED_RELEASES) : number]
        tables = {"paper": run_plan(paper, month.trips, noise, MemoryMeasurements()).leaves}
        tables |= estimates(releases[number], before, int(random.integers(2**32)))
        for name, leaves in tables.items():
            found.setdefault(name, []).append(errors(month, leaves))
    return {name: np.mean(values, axis=0) for name, values in found.items()}


def compared(
    case: str, epsilon: str, tree: FlowTree, found: Sequence[dict[str, NDArray[np.float64]]]
) -> list[dict[str, Any]]:
    """Return errors relative to the published algorithm, and costs relative to ``alone``; one row for each estimate.

    Costs are those of the largest errors of the levels and of the total error of the leaves, each with two standard
    errors, and the largest costs of a level of at least 1,000 cells.
    """
    every = {name: np.array([one[name][:, :2] for one in found]) for name in found[0]}  # run, level, metric
    mean = {name: np.mean([one[name] for one in found], axis=0) for name in found[0]}
    large = np.array([tree.cells(level) >= _LARGE for level in range(1, tree.depth + 1)])
    rows = []
    for name in found[0]:
        if name == "paper":
            continue
        ratio = mean[name][:, :2] / np.maximum(mean["paper"][:, :2], 1e-12)
        change = (every[name] - every["alone"]) / np.maximum(mean["alone"][:, :2], 1e-12)
        largest, total = change[:, :, 0].mean(axis=1), change[:, -1, 1]
        rows.append(
            {
                "case": case,
                "epsilon": epsilon,
                "estimate": name,
                "runs": len(found),
                "max_abs_error_over_levels": float(ratio[:, 0].mean()),
                "max_abs_error_of_leaves": float(ratio[-1, 0]),
                "total_abs_error_of_leaves": float(ratio[-1, 1]),
                "false_discovery_rate": float(mean[name][-1, 2]),
                "false_negative_rate": float(mean[name][-1, 3]),
                "cost": {
                    "largest_errors": _with_spread(largest),
                    "total_error": _with_spread(total),
                    "largest_error_of_a_level": float(change[:, large, 0].mean(axis=0).max(initial=-1)),
                    "total_error_of_a_level": float(change[:, large, 1].mean(axis=0).max(initial=-1)),
                },
            }
        )
    return rows


def _with_spread(changes: NDArray[np.float64]) -> list[float]:
    """Return the mean of the changes of several runs, and two standard errors; 0 for a single run."""
    spread = 2 * changes.std(ddof=1) / np.sqrt(len(changes)) if len(changes) > 1 else 0.0
    return [float(changes.mean()), float(spread)]


def main() -> None:
    """Release every series and print the figures."""
    options = case_parser(__doc__, CASES, EPSILONS).parse_args()
    rows: list[dict[str, Any]] = []
    for case, epsilon in steps(list(product(options.case, options.epsilon)), "assisted"):
        months = CASES[case](options.data, small=options.small)
        runs = 1 if options.small else options.runs
        found = [run(months, FIRST[case], epsilon) for _ in range(runs)]
        rows += compared(case, epsilon, months[0].tree, found)
    printed({"machine": machine(), "delta": DELTA, "noise": NOISE, "cases": rows}, as_json=options.json)


if __name__ == "__main__":
    main()
