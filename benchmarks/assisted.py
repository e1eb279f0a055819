"""Measure model-assisted flows of monthly releases: what they gain, and what earlier releases that mislead cost.

    python -m benchmarks.assisted --data FOLDER --runs 20
    python -m benchmarks.assisted --case flights --epsilon 1 --runs 20 --json

Each run releases the months of a series. For months that have enough before them, the estimates are compared with the
releases, and both with the published algorithm at the same epsilon and delta. The taxis, 10,000 trips a month, are read
from the subfolder ``nyc_yellow_taxi`` of FOLDER. For ``misled``, the zones of the earlier releases are permuted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.estimator import DELTA, EPSILONS, METRICS, NOISE, PAPER, VARIANTS, planned
from benchmarks.measuring import case_parser, machine, printed, steps
from benchmarks.release import FLIGHTS
from od_core import FlowTree, Geography, assist_release
from od_core.evaluation.known_flows import KnownFlows
from od_core.flows.assisted_flows import MOST, learned
from od_core.flows.release import run_plan
from od_core.geography.flow_tree import Nodes
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.sources import noise_named
from od_core.records.zone_lists import read_zones

FIRST = {"flights": 3, "taxis": 6}
"""Number of months before the first one that is compared."""

REFINED = next(variant for variant in VARIANTS if variant.name == "refined")
COMPARED = ("refined", "alone", "assisted", "misled")


def flights(_folder: Path | None, *, small: bool) -> list[KnownFlows]:
    """Return the flights of each month."""
    zones = pd.read_csv(FLIGHTS / "airports.csv", dtype=str, keep_default_na=False)
    geography = Geography.from_frame(zones, levels=["region", "division", "state", "airport"])
    months = [pd.read_parquet(path) for path in sorted(FLIGHTS.glob("*.parquet"))]
    return [_known(month, geography) for month in (months[: FIRST["flights"] + 1] if small else months)]


def taxis(folder: Path | None, *, small: bool) -> list[KnownFlows]:
    """Return the taxi trips of each of the first 24 months. Raises ValueError if there is no folder."""
    if folder is None:
        raise ValueError("the taxis are read from --data")
    place = folder / "nyc_yellow_taxi"
    geography = Geography.from_frame(read_zones(place / "zones.csv"), levels=["borough", "service_area", "taxi_zone"])
    names = {"PULocationID": "origin", "DOLocationID": "destination"}
    trips = pd.read_csv(place / "trips.csv.gz", usecols=["month", *names], dtype=str).rename(columns=names)
    months = [own for _, own in trips.groupby("month")]
    return [_known(month, geography) for month in months[: FIRST["taxis"] + 1 if small else 24]]


def _known(month: pd.DataFrame, geography: Geography) -> KnownFlows:
    return KnownFlows.from_frame("month", "public", month[["origin", "destination"]], geography)


CASES = {"flights": flights, "taxis": taxis}


def errors(month: KnownFlows, leaves: Nodes) -> NDArray[np.float64]:
    """Return the errors of a table at every level below the root; shape (levels, metrics)."""
    _, *levels = month.truth.errors(leaves)
    return np.array([[level[metric] for metric in METRICS] for level in levels], dtype=np.float64)


def permuted(tree: FlowTree, leaves: Nodes, random: np.random.Generator) -> Nodes:
    """Return leaves whose zones are permuted: each pair of zones has the trips of another pair."""
    zones = len(tree.origin.zones)
    order, matrix = random.permutation(zones), np.zeros((zones, zones), dtype=np.int64)
    matrix[order[leaves.origin], order[leaves.destination]] = leaves.trips
    nodes = tree.public_nodes(tree.depth)
    return Nodes(tree.depth, nodes.origin, nodes.destination, matrix[nodes.origin, nodes.destination])


def run(months: Sequence[KnownFlows], first: int, epsilon: str) -> dict[str, NDArray[np.float64]]:
    """Return the mean errors over the months from ``first`` of one series of releases, by what was estimated."""
    noise, random = noise_named(NOISE), np.random.default_rng()
    paper, refined = (planned(variant, months[0].geography, epsilon) for variant in (PAPER, REFINED))
    releases = [run_plan(refined, month.trips, noise, MemoryMeasurements()) for month in months]
    found: dict[str, list[NDArray[np.float64]]] = {name: [] for name in ("paper", *COMPARED)}
    for number in range(first, len(months)):
        month, own = months[number], releases[number]
        before = releases[max(0, number + 1 - MOST) : number]
        wrong = permuted(own.tree, assist_release(before).leaves, random)
        alone, assisted = assist_release([own]), assist_release([*before, own])
        tables = {
            "paper": run_plan(paper, month.trips, noise, MemoryMeasurements()).leaves,
            "refined": own.leaves,
            "alone": alone.leaves,
            "assisted": assisted.leaves,
            "misled": learned(own, alone.rule, wrong),
        }
        for name, leaves in tables.items():
            found[name].append(errors(month, leaves))
    return {name: np.mean(values, axis=0) for name, values in found.items()}


def compared(case: str, epsilon: str, found: Sequence[dict[str, NDArray[np.float64]]]) -> list[dict[str, Any]]:
    """Return ratios of mean errors to those of the published algorithm, one row for each estimate."""
    mean = {name: np.mean([one[name] for one in found], axis=0) for name in found[0]}
    rows = []
    for name in COMPARED:
        ratio = mean[name][:, :2] / np.maximum(mean["paper"][:, :2], 1e-12)
        rows.append(
            {
                "case": case,
                "epsilon": epsilon,
                "estimate": name,
                "runs": len(found),
                "max_abs_error_over_levels": float(ratio[:, 0].mean()),
                "max_abs_error_of_leaves": float(ratio[-1, 0]),
                "total_abs_error_of_leaves": float(ratio[-1, 1]),
                "worst_level_against_alone": float((mean[name][:, 0] / mean["alone"][:, 0]).max()),
                "false_discovery_rate": float(mean[name][-1, 2]),
                "false_negative_rate": float(mean[name][-1, 3]),
            }
        )
    return rows


def main() -> None:
    """Release every series and print the figures."""
    options = case_parser(__doc__, CASES, EPSILONS).parse_args()
    rows: list[dict[str, Any]] = []
    for case, epsilon in steps(list(product(options.case, options.epsilon)), "assisted"):
        months = CASES[case](options.data, small=options.small)
        runs = 1 if options.small else options.runs
        rows += compared(case, epsilon, [run(months, FIRST[case], epsilon) for _ in range(runs)])
    printed({"machine": machine(), "delta": DELTA, "noise": NOISE, "cases": rows}, as_json=options.json)


if __name__ == "__main__":
    main()
