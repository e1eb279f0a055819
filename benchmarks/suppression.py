"""Measure what a table of flows loses, and what it reveals, if small numbers are suppressed, and if it is released.

    python -m benchmarks.suppression
    python -m benchmarks.suppression --runs 40 --json

The tables have the flights of June 2001, and of its first day, by pair of airports. Suppressed, they have ``<15`` in
place of each number from 1 to 14, and the exact total from and to every airport, as tables with margins do. The flights
are public, so that their true numbers are known.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.estimator import DELTA, NOISE
from benchmarks.flights import FLIGHTS, read_flights
from benchmarks.measuring import machine, printed, steps
from od_core import Budget, Geography, PrivacyUnit, plan_release
from od_core.evaluation.known_flows import KnownFlows
from od_core.flows.release import run_plan
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source
from od_core.privacy.neighbours import NO_FAULTS

EPSILON = "1"
AREA_TOTALS = "1/5"
"""Share of the budget for the trips from and to each airport, in one of the two releases."""

LEAST = 15
"""Smallest number that is published."""

Matrix = NDArray[np.int64]


def by_subtraction(true: Matrix, least: int = LEAST) -> tuple[Matrix, Matrix]:
    """Return the least and the largest number that each suppressed cell may have; shape of ``true``, for each.

    Only public numbers are used: that a suppressed cell has 1 to ``least`` - 1, the other cells, and the sums of rows
    and columns. A cell has at least what its row lacks if all other suppressed cells of the row are as large as they
    may be, and at most what it lacks if they are as small as they may be. This is repeated until nothing changes.
    """
    hidden = (true > 0) & (true < least)
    low, high = np.where(hidden, 1, true), np.where(hidden, least - 1, true)
    while True:
        before = low.sum(), high.sum()
        for axis in (0, 1):
            lacking = true.sum(axis=axis, keepdims=True)
            low = np.maximum(low, lacking - (high.sum(axis=axis, keepdims=True) - high))
            high = np.minimum(high, lacking - (low.sum(axis=axis, keepdims=True) - low))
        if (low.sum(), high.sum()) == before:
            return low, high


def summed(cells: Matrix, areas: NDArray[np.int64], number: int) -> Matrix:
    """Return a matrix of larger areas, of which each zone is in one; shape (number, number)."""
    sums = np.zeros((number, number), dtype=cells.dtype)
    np.add.at(sums, (areas[:, np.newaxis], areas[np.newaxis, :]), cells)
    return sums


def errors(name: str, cells: NDArray[Any], true: Matrix, geography: Geography) -> dict[str, Any]:
    """Return the errors of a table, in flights, of numbers that would be suppressed, of airports and of states."""
    hidden, depth = (true > 0) & (true < LEAST), geography.depth
    out, outflows = cells.sum(axis=1), true.sum(axis=1)
    states = geography.ancestors(depth - 1).astype(np.int64)
    of_states = [summed(each.astype(np.float64), states, geography.size(depth - 1)) for each in (cells, true)]
    flown = outflows > 0
    off = np.abs(out - outflows)[flown]
    return {
        "table": name,
        "error_of_small": float(np.abs(cells - true)[hidden].mean()),
        "error_of_outflow": float(off.mean()),
        "airports_off_by_a_tenth": float((off > outflows[flown] / 10).sum()),
        "error_of_states": float(np.abs(of_states[0] - of_states[1])[of_states[1] > 0].mean()),
        "missing_percent": 100 * max(0.0, 1 - float(cells.sum() / true.sum())),
    }


def measured(case: str, trips: pd.DataFrame, geography: Geography, runs: int) -> list[dict[str, Any]]:
    """Return what is suppressed and found again, and the errors of each table; those of releases are means."""
    known = KnownFlows.from_frame(case, "public", trips, geography, one_row_a_trip=True)
    pairs = known.tree.find_leaf_pairs(known.trips.rank)
    true = np.zeros((len(geography.zones),) * 2, dtype=np.int64)
    true[pairs.origin, pairs.destination] = np.diff(known.trips.before)
    hidden = (true > 0) & (true < LEAST)
    low, high = by_subtraction(true)
    found = hidden & (low == high)
    even = np.where(hidden, LEAST / 2, true)  # the middle of 1 to 14
    rows = [errors("suppressed, empty", np.where(hidden, 0, true), true, geography)]
    rows.append(errors("suppressed, filled evenly", even, true, geography))
    facts = {
        "pairs": int((true > 0).sum()),
        "suppressed": int(hidden.sum()),
        "found_by_subtraction": int(found.sum()),
        "found_with_one_flight": int((found & (true == 1)).sum()),
    }
    rows = [row | facts for row in rows]
    unit, budget = PrivacyUnit("trip"), Budget(EPSILON, DELTA)
    for share in (None, AREA_TOTALS):
        plan = plan_release(geography, unit=unit, budget=budget, area_totals=share, acceptance=NO_FAULTS)
        releases = []
        for _ in range(runs):
            leaves = run_plan(plan, known.trips, resolve_noise_source(NOISE), MemoryMeasurements()).leaves
            cells = np.zeros_like(true)
            cells[leaves.origin, leaves.destination] = leaves.trips
            releases.append(errors("", cells, true, geography))
        means = {name: float(np.mean([row[name] for row in releases])) for name in releases[0] if name != "table"}
        rows.append({"table": "released" if share is None else "released with area totals", **means})
    return [{"case": case, **row} for row in rows]


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--small", action="store_true", help="one release, to see that it runs")
    parser.add_argument("--runs", type=int, default=40)
    options = parser.parse_args()
    month, geography = read_flights(FLIGHTS)
    day = pd.read_parquet(FLIGHTS / "2001-06.parquet").loc[lambda rows: rows["date"].astype(str) == "2001-06-01"]
    cases = {"June 2001": month, "1 June 2001": day[["origin", "destination"]]}
    runs = 1 if options.small else options.runs
    found = [row for case in steps([*cases], "cases") for row in measured(case, cases[case], geography, runs)]
    facts = {"machine": machine(), "delta": DELTA, "noise": NOISE, "epsilon": EPSILON, "runs": runs}
    printed(facts | {"cases": found}, as_json=options.json)


if __name__ == "__main__":
    main()
