"""Measure how often the intervals of changes contain the true change, over repeated releases of two months of flights.

    python -m benchmarks.changes --markdown
    python -m benchmarks.changes --runs 40 --json

Every run is an independent draw of the certified noise, without a seed. The flights are public, so their true changes
are known.
"""

from __future__ import annotations

import argparse
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.estimator import DELTA, NOISE
from benchmarks.flights import FLIGHTS, read_flights
from benchmarks.intervals import LEAST_CELLS
from benchmarks.measuring import machine, printed, steps
from od_core import Budget, PrivacyUnit, plan_release
from od_core.evaluation.known_flows import KnownFlows
from od_core.flows.publishing.changes import changes
from od_core.flows.release import run_plan
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source
from od_core.privacy.neighbours import NO_FAULTS

MONTHS = ("2001-02", "2001-05")
EPSILONS = (("1", "1"), ("10", "1"), ("0.1", "0.1"))
"""Epsilons of the earlier and the later release: equal, or one of them with ten times as much noise."""

LEVELS = (
    ("region", "region"),
    ("division", "state"),
    ("state", "state"),
    ("region", "airport"),
    ("airport", "airport"),
)
CLASSES = ("none in both", "unchanged", "changed, up to 99", "changed, 100 to 999", "changed, 1000 or more")
"""Classes by change and by the larger of the two true flows."""


def known_months() -> list[KnownFlows]:
    """Return both months, over the same airports."""
    _, geography = read_flights(FLIGHTS)
    return [
        KnownFlows.from_frame(month, "public", FLIGHTS / f"{month}.parquet", geography, one_row_a_trip=True)
        for month in MONTHS
    ]


def true_changes(months: list[KnownFlows], levels: tuple[str, str], pairs: pd.Index[Any]) -> pd.DataFrame:
    """Return the true change of the given pairs of areas, and its class."""
    flows = []
    for month in months:
        leaves, areas = month.tree.find_leaf_pairs(month.trips.rank), month.geography.to_frame()
        sides = [
            areas[level].to_numpy()[zones]
            for level, zones in zip(levels, (leaves.origin, leaves.destination), strict=True)
        ]
        summed = pd.Series(np.diff(month.trips.before)).groupby(sides).sum()
        flows.append(summed.reindex(pairs, fill_value=0).to_numpy())
    change, larger = flows[1] - flows[0], np.maximum(*flows)
    size = np.searchsorted((100, 1000), larger, side="right") + 2
    return pd.DataFrame(
        {"true": change, "class": np.where(larger == 0, 0, np.where(change == 0, 1, size))}, index=pairs
    )


def measured(months: list[KnownFlows], epsilons: tuple[str, str], runs: int) -> list[dict[str, Any]]:
    """Return the cells, coverage, mean width and significant share of each pair of levels and class."""
    noise, rows = resolve_noise_source(NOISE), []
    plans = [
        plan_release(month.geography, unit=PrivacyUnit("trip"), budget=Budget(epsilon, DELTA), acceptance=NO_FAULTS)
        for month, epsilon in zip(months, epsilons, strict=True)
    ]
    for _ in range(runs):
        pair = [
            run_plan(plan, month.trips, noise, MemoryMeasurements()) for plan, month in zip(plans, months, strict=True)
        ]
        for levels in LEVELS:
            found = changes(pair[0], pair[1], *levels).set_index(["origin", "destination"])
            truth = true_changes(months, levels, found.index)
            held = (found["lower"] <= truth["true"]) & (truth["true"] <= found["upper"])
            table = pd.DataFrame(
                {
                    "class": truth["class"],
                    "covered": held.astype(float),
                    "width": (found["upper"] - found["lower"]).astype(float),
                    "significant": found["significant"].astype(float),
                }
            )
            means = table.groupby("class").agg({"covered": ["size", "mean"], "width": "mean", "significant": "mean"})
            rows += [
                (*levels, CLASSES[number], *row) for number, row in zip(means.index, means.to_numpy(), strict=True)
            ]
    names = ["origin_level", "destination_level", "class", "cells", "covered", "width", "significant"]
    frame = pd.DataFrame(rows, columns=names)
    means = frame.groupby(names[:3], sort=False).mean().reset_index()
    text = f"{epsilons[0]} and {epsilons[1]}"
    return [{"epsilons": text, "runs": runs} | {str(k): v for k, v in row.items()} for row in means.to_dict("records")]


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return a table with one line per pair of levels: the coverage of each class, with the mean width."""
    lines = [f"| epsilon | levels | {' | '.join(CLASSES)} |", f"|{'---|' * (2 + len(CLASSES))}"]
    for epsilons, levels in product(map(" and ".join, EPSILONS), LEVELS):
        cells = {
            row["class"]: f"{row['covered']:.1%}{_few(row)} ({row['width']:.0f})"
            for row in rows
            if (row["epsilons"], row["origin_level"], row["destination_level"]) == (epsilons, *levels)
        }
        lines.append(f"| {epsilons} | {' to '.join(levels)} | {' | '.join(cells.get(name, '') for name in CLASSES)} |")
    return "\n".join(lines)


def _few(row: dict[str, Any]) -> str:
    return "" if row["cells"] * row["runs"] >= LEAST_CELLS else "*"


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    parser.add_argument("--small", action="store_true", help="one run, to see that it runs")
    parser.add_argument("--runs", type=int, default=40)
    options = parser.parse_args()
    runs = 1 if options.small else options.runs
    rows = [row for epsilons in steps(list(EPSILONS), "changes") for row in measured(known_months(), epsilons, runs)]
    if options.markdown:
        print(markdown(rows))
        return
    printed({"machine": machine(), "delta": DELTA, "noise": NOISE, "cases": rows}, as_json=options.json)


if __name__ == "__main__":
    main()
