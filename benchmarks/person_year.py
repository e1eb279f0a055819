"""Measure what a bound of a user's trips in a year costs in time, and gains in accuracy, against a bound a month alone.

    python -m benchmarks.person_year --speed --records 100000000 --users 5000000
    python -m benchmarks.person_year --pair-cap-speed --records 100000000 --users 5000000 --places 4
    python -m benchmarks.person_year --accuracy --trips 10000000 --users 500000 --data FOLDER
    python -m benchmarks.person_year --pair-caps --trips 10000000 --users 500000 --data FOLDER
    python -m benchmarks.person_year --each-level --trips 10000000 --users 500000 --data FOLDER
    python -m benchmarks.person_year --noise-alone --runs 20

All users are made up. Speed: records of one month are counted under unit ``user_period`` with m = 10, and under unit
``user_year`` with m = 10 and M = 40, after earlier months were counted and drawn. Speed of a pair cap: the same month,
with m = 10 alone and with m = 10 and c = 1, in turn. Accuracy: monthly releases at the same rho for a whole year, with
m alone and with several M, of a synthetic panel and of the New York taxis, which are read from the subfolder
``nyc_yellow_taxi`` of FOLDER. Pair caps: the same releases with a cap c of a user's trips between the same two zones.
Each level: one release, and a table for each level with its own caps, as Tumult Analytics makes them. Noise alone:
releases of the US flights at the same promise for a user with and without a cap, in which all trips are counted. All
other errors are those of the trips that were made, those that are cut included.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.counting import NATION, REGION, geography, make_zones
from benchmarks.estimator import data_set
from benchmarks.measuring import machine, printed, read_peak_memory_gigabytes, steps
from benchmarks.synthetic_users import MONTHS, Panel, mobility_panel, taxi_panel, write_loaded_records
from benchmarks.tables import write_tables
from od_core import Budget, FlowTree, PrivacyUnit, ReleasePlan, plan_release
from od_core.evaluation.forecast import Mask, RepeatableNoise, UserTrips, simulate_errors_of_contribution_bounds
from od_core.evaluation.metrics import align_trips
from od_core.flows.release import run_plan
from od_core.flows.staging import StagedRelease
from od_core.geography.flow_tree import Pairs
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.ledger import Ledger
from od_core.ledger.measurements import MemoryMeasurements
from od_core.ledger.release_key import ReleaseKey
from od_core.ledger.staged_files import hold_to_input
from od_core.ledger.user_counters import SCHEMA, UserCounters
from od_core.noise.backends import resolve_noise_source
from od_core.privacy.budget import Cap
from od_core.privacy.domain import CALENDAR, PrivacyDomain
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counting import count_records
from od_core.records.counts import TripCounts

DATA_SET = "users"
KEY = b"a key of the benchmark, of 32 by"
DELTA = "1e-8"
IDS = "[0-9a-f]{16}"
UNITS = {
    "m alone": PrivacyUnit("user_period", "unbounded", "user", 10),
    "m and M": PrivacyUnit("user_year", "unbounded", "user", 10, max_trips_year=40, id_pattern=IDS),
}
CAPPED = {"m alone": UNITS["m alone"], "m and c": replace(UNITS["m alone"], max_trips_pair=1)}
EARLIER = 6
"""Number of earlier months of the year that have counters."""

RATIOS = ("seconds", "processor_seconds")
"""What is compared. On a machine with other work, the processor time tells more."""


def counters_of(folder: Path, month: int) -> UserCounters:
    """Return the counters of a month (1 to 12) in a folder with a ledger."""
    confidential, ledger = ConfidentialFolder(folder / "confidential"), Ledger(folder / "ledger.sqlite")
    key = ReleaseKey(DATA_SET, f"2001-{month:02d}")
    return UserCounters(confidential, ledger, key, DATA_SET, UNITS["m and M"], "month", CALENDAR)


def make_earlier_months(folder: Path) -> int:
    """Write counters of earlier months of the users of a month, enter a draw of each, and return the rows.

    In every earlier month, a user has from 0 to as many trips as in this one, and at most 40 in all.
    """
    public, this = geography(folder), counters_of(folder, EARLIER + 1)
    unit, ledger = this.unit, this.ledger
    ledger.declare(PrivacyDomain(DATA_SET, unit, Cap(rho=Fraction(1)), "a benchmark"))
    plan = plan_release(public, unit=unit, budget=Budget(rho=Fraction(1, 100), delta=DELTA), acceptance=NO_FAULTS)
    table = pq.read_table(this._locate_counters(this.key))  # the counters of this month, made without earlier ones
    this._locate_counters(this.key).unlink()
    now = table["counted"].to_numpy()
    left, generator, rows = np.full(len(now), unit.max_trips_year), np.random.default_rng(1), 0
    nothing = TripCounts.from_pairs(plan.tree, *np.empty((3, 0), dtype=np.int64))
    for month in range(1, EARLIER + 1):
        counted = np.minimum(generator.integers(0, now + 1), left).astype(np.int32)
        left = left - counted
        counters = counters_of(folder, month)
        kept = table.set_column(2, SCHEMA.field(2), pa.array(counted)).filter(pa.array(counted > 0))
        counters.store_or_compare(kept.to_batches())
        counters.hold_to_input(nothing)
        ledger.reserve(counters.key, DATA_SET, plan)
        ledger.start_draw(counters.key, plan.steps[0].number)
        rows += len(kept)
    return rows


def count_month(name: str, folder: Path) -> dict[str, Any]:
    """Count the records of a month under a unit, and check what is checked before the first draw."""
    public, staged = geography(folder), StagedRelease(folder)
    tree = FlowTree(public, public)
    tree.compute_rank_terms(tree.depth)
    unit, confidential = (UNITS | CAPPED)[name], ConfidentialFolder(folder / "confidential")
    counters = counters_of(folder, EARLIER + 1) if unit.kind == "user_year" else None
    key = ReleaseKey(DATA_SET, "2001-07")
    at_start, start, busy = read_peak_memory_gigabytes(), time.perf_counter(), time.process_time()
    trips = count_records(
        staged.records, tree, staged.store, staged.begin_trip_counts(), unit=unit, key=KEY, period="2001-07",
        counters=counters,
    )  # fmt: skip
    counted = time.perf_counter()
    if counters is None:
        hold_to_input(confidential, key, trips, drawn=False)
    else:
        counters.hold_to_input(trips)
        counters.check_counts_and_bounds(trips)
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "count_seconds": counted - start,
        "check_seconds": seconds - (counted - start),
        "processor_seconds": time.process_time() - busy,
        "peak_memory_gigabytes": read_peak_memory_gigabytes(),
        "of_it_before": at_start,
        "trips": trips.total,
    }


def speed(records: int, users: int, *, small: bool) -> dict[str, Any]:
    """Measure both units, each in a process of its own."""
    rows = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_zones(REGION if small else NATION, folder)
        write_loaded_records(StagedRelease(folder).records, geography(folder), records, users)
        rows["m and M, first month"] = in_child("m and M", folder)
        earlier = make_earlier_months(folder)
        rows |= {name: in_child(name, folder) for name in UNITS}
    ratios = {f"ratio_of_{what}": rows["m and M"][what] / rows["m alone"][what] for what in RATIOS}
    return {"records": records, "users": users, "rows_of_earlier_months": earlier, "units": rows, **ratios}


def pair_cap_speed(records: int, users: int, places: int, rounds: int, *, small: bool) -> dict[str, Any]:
    """Measure counts with and without a pair cap in turn, each in a process of its own, and their least times."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_zones(REGION if small else NATION, folder)
        write_loaded_records(StagedRelease(folder).records, geography(folder), records, users, places)
        rows = [{"unit": unit} | in_child(unit, folder) for _ in range(rounds) for unit in CAPPED]
    least = {(unit, what): min(row[what] for row in rows if row["unit"] == unit) for unit in CAPPED for what in RATIOS}
    ratios = {f"ratio_of_{what}": least["m and c", what] / least["m alone", what] for what in RATIOS}
    return {"records": records, "users": users, "places": places, "counts": rows, **ratios}


def in_child(name: str, folder: Path) -> dict[str, Any]:
    """Return what :func:`count_month` measures in a child process."""
    command = [sys.executable, "-m", "benchmarks.person_year", "--step", name, str(folder)]
    child = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603  # ourselves
    measured: dict[str, Any] = json.loads(child.stdout)
    return measured


CAPS = tuple((m, most, c) for m, most in ((10, 40), (10, 120), (40, 160), (40, 480)) for c in (None, 1, 2, 5))
"""m, M and c of the releases with and without a pair cap; the larger M of an m never binds."""

GRID = tuple((m, most) for m in (1, 2, 5, 10, 20) for most in (10, 20, 40, 60, 120) if m <= most < MONTHS * m)


def in_months(panel: Panel) -> list[UserTrips]:
    """Return the trips of each month of a panel."""
    tree = FlowTree(panel.geography, panel.geography)
    zones = (zone.astype(np.int32) for zone in (panel.origin, panel.destination))
    rank = tree.compute_first_ranks(Pairs(tree.depth, *zones))
    is_now = (panel.month == month for month in range(MONTHS))
    return [UserTrips(tree, rank[now], panel.user[now]) for now in is_now]


def counted_trips(months: Sequence[UserTrips], m: int, most: int, of_pair: int | None) -> list[NDArray[np.bool_]]:
    """Return which trips of each month are counted if the months are counted in their order; shape (trips,) each."""
    left, counted = np.full(max(int(trips.user.max()) for trips in months) + 1, most), []
    for trips in months:
        counted.append(trips.mark_counted_trips(m, of_pair, left))
        left = left - np.bincount(trips.user[counted[-1]], minlength=len(left))
    return counted


def planned(panel: Panel, m: int, most: int, of_pair: int | None, yearly: Fraction) -> ReleasePlan:
    """Return the plan of a month. If every month is released once, a year costs a user the rho ``yearly``."""
    unit = PrivacyUnit("user_year", "unbounded", "user", m, None, most, IDS, of_pair)

    def of_month(rho: Fraction) -> ReleasePlan:
        budget = Budget(rho=rho, delta=DELTA)
        return plan_release(panel.geography, unit=unit, budget=budget, acceptance=NO_FAULTS)

    plan = of_month(Fraction(1))
    return of_month(yearly / plan.rho_of_year(plan.spent, MONTHS))


def accuracy(
    panel: Panel, runs: int, bounds: Sequence[tuple[int, int, int | None]], yearly: Fraction
) -> Iterator[dict[str, Any]]:
    """Yield the errors of the first and the last month for each m, M and c, of which c may be None."""
    trips, with_caps = in_months(panel), any(of_pair for _, _, of_pair in bounds)
    for m, most, of_pair in steps(bounds, panel.name):
        plan, counted = planned(panel, m, most, of_pair, yearly), counted_trips(trips, m, most, of_pair)
        found = [simulate_errors_of_contribution_bounds(plan, trips[at], counted[at], runs) for at in (0, -1)]
        figures = {
            "error": [one["error"][-1] for one in found],
            "error_of_areas": [one["error"][-3] for one in found],
            "cut": [one["cut"] for one in found],
        }
        if with_caps:
            figures["error_of_counted"] = [one["error_of_counted"][-1] for one in found]
            figures["within_c"] = [one["within_c"] for one in found]
        yield {
            "m": m,
            "M": "none" if most == MONTHS * m else most,
            **({"c": of_pair or "none"} if with_caps else {}),
            "rho_of_a_month": float(plan.spent.rho),
            **{
                f"{what}_{at}": value
                for what, values in figures.items()
                for at, value in zip(("first", "last"), values, strict=True)
            },
        }


def each_level(panel: Panel, runs: int, yearly: Fraction) -> Iterator[dict[str, Any]]:
    """Yield the errors of the first month, at each level of both sides, of one release and of a table for each level.

    The tables are those of Tumult Analytics [berghel2022tumult]: each has an equal share of the rho, bounds of its own,
    which are m, and at the leaves also c, and discrete Gaussian noise in every public cell. They are also compared with
    negative numbers set to 0. All errors are total absolute ones against the trips that were made, per trip; those at
    the leaves also against people by pair, if c is 1.
    """
    trips = in_months(panel)[0]
    tree, every = trips.tree, np.ones(len(trips.rank), dtype=np.bool_)
    for m, of_pair in steps([(10, None), (10, 1), (40, None), (40, 1)], panel.name):
        plan = planned(panel, m, MONTHS * m, of_pair, yearly)
        released = simulate_errors_of_contribution_bounds(plan, trips, trips.mark_counted_trips(m, of_pair), runs)
        levels = range(2, tree.depth + 1, 2)
        for level in levels:
            is_leaf, cells = level == tree.depth, tree.cells(level)
            cap = of_pair if is_leaf else None
            squared = m**2 if cap is None else m * cap
            truths: dict[Literal["error", "error_of_counted"], Mask] = {"error": every}
            if is_leaf:
                truths["error_of_counted"] = trips.mark_counted_trips(len(every), cap)
            for figure, truth in truths.items():
                pair = (
                    trips.count_flows(chosen).truth.levels[level]
                    for chosen in (truth, trips.mark_counted_trips(m, cap))
                )
                true, kept = (np.pad(values, (0, cells - len(values))) for values in align_trips(*pair))
                noise = RepeatableNoise(level).draw(
                    squared * len(levels) / (2 * plan.spent.rho), level, 0, runs * cells
                )
                noisy = kept + noise.reshape(runs, cells)
                yield {
                    **{"m": m, "c": of_pair or "none", "level": " x ".join(tree.level_names[level]), "figure": figure},
                    "one_release": released[figure][level],
                    "each_level": float(np.abs(noisy - true).sum()) / runs / int(truth.sum()),
                    "cut_at_zero": float(np.abs(np.maximum(noisy, 0) - true).sum()) / runs / int(truth.sum()),
                }


IN_CSV = ("pair caps", "each level")


def in_csv(results: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the rows of all panels for one of :data:`IN_CSV`, with rounded figures."""
    found = {panel: rows for panel, rows in results.items() if panel.endswith(f", {name}")}
    return [
        {"data_set": panel.split(",")[0]}
        | {key: f"{one:.3g}" if isinstance(one, float) else one for key, one in row.items()}
        for panel, rows in found.items()
        for row in rows
    ]


def noise_alone(runs: int, *, small: bool) -> Iterator[dict[str, Any]]:
    """Yield mean errors of the flights by m, epsilon and c, and their ratio to those without a cap; no trip is cut."""
    flights, noise = data_set("flights", None, small=small), resolve_noise_source("table")
    for m, epsilon in product((10, 40), ("1", "10")):
        without: NDArray[np.float64] | None = None
        for c in (None, 1, 5):
            unit = PrivacyUnit("user", column="user", max_trips=m, max_trips_pair=c)
            plan = plan_release(flights.geography, unit=unit, budget=Budget(epsilon, DELTA))
            errors = list[list[float]]()
            for _ in range(runs):
                levels = flights.truth.compute_errors(run_plan(plan, flights.trips, noise, MemoryMeasurements()).leaves)
                errors.append(
                    [levels[-1]["mean_abs_error"], float(np.mean([row["max_abs_error"] for row in levels[1:]]))]
                )
            found = np.mean(errors, axis=0)
            without = found if without is None else without
            (leaf, largest), (leaf_ratio, largest_ratio) = found.tolist(), (found / without).tolist()
            errors_and_ratios = {"leaf_error": leaf, "leaf_ratio": leaf_ratio, "largest_error": largest}
            yield {"m": m, "epsilon": epsilon, "c": c, **errors_and_ratios, "largest_ratio": largest_ratio}


def main() -> None:
    """Parse the arguments, measure, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speed", action="store_true", help="measure times alone")
    parser.add_argument("--pair-cap-speed", action="store_true", help="measure times with and without a pair cap alone")
    parser.add_argument("--accuracy", action="store_true", help="measure errors alone")
    parser.add_argument("--pair-caps", action="store_true", help="measure errors with and without pair caps alone")
    parser.add_argument("--each-level", action="store_true", help="compare with a table for each level alone")
    parser.add_argument(
        "--noise-alone", action="store_true", help="compare the noise of the flights with pair caps alone"
    )
    parser.add_argument("--records", type=int, default=10_000_000, help="records of the month, for times")
    parser.add_argument("--users", type=int, default=500_000, help="users of the month, or of the panel")
    parser.add_argument("--places", type=int, default=4, help="places of each end of a user's trips, for a pair cap")
    parser.add_argument("--rounds", type=int, default=2, help="counts with and without a pair cap")
    parser.add_argument("--trips", type=int, default=2_000_000, help="trips of the panel in the year")
    parser.add_argument("--zones", type=int, default=400, help="zones of the panel")
    parser.add_argument("--guests", type=float, default=0.25, help="share of the users with trips in two months only")
    parser.add_argument("--taxi-users", type=int, default=20_000, help="users among whom the taxi trips are shared out")
    parser.add_argument("--rho", type=Fraction, default=Fraction(1), help="rho of a year, for one user")
    parser.add_argument("--runs", type=int, default=5, help="releases of each kind and month")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where the taxis are")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="write the tables of pair caps and levels here, too")
    parser.add_argument("--small", action="store_true", help="small data and one run, to see that it runs")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--step", nargs=2, metavar=("NAME", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        print(json.dumps(count_month(options.step[0], Path(options.step[1]))))
        return
    parts = (options.speed, options.pair_cap_speed, options.accuracy, options.pair_caps, options.each_level)
    small, every = options.small, not any((*parts, options.noise_alone))
    results: dict[str, Any] = {"machine": machine()}
    records, users = (20_000, 2_000) if small else (options.records, options.users)
    if options.speed or every:
        results["speed"] = speed(records, users, small=small)
    if options.pair_cap_speed or every:
        results["pair cap speed"] = pair_cap_speed(records, users, options.places, options.rounds, small=small)
    if options.noise_alone or every:
        results["noise alone"] = list(noise_alone(1 if small else options.runs, small=small))
    if any(parts[2:]) or every:
        trips, users, zones = (20_000, 2_000, 40) if small else (options.trips, options.users, options.zones)
        panels: list[Callable[[], Panel]] = [lambda: mobility_panel(trips, users, zones, options.guests)]
        if options.data is not None:
            panels.append(lambda: taxi_panel(options.data / "nyc_yellow_taxi", options.taxi_users))
        for make in panels:
            panel = make()
            grid, caps, runs = ([(5, 20)], [(5, 20, 1)], 1) if small else (GRID, CAPS, options.runs)
            without = sorted({(m, MONTHS * m, None) for m, _ in grid} | {(*each, None) for each in grid})
            if options.accuracy or every:
                results[panel.name] = list(accuracy(panel, runs, without, options.rho))
            if options.pair_caps or every:
                results[f"{panel.name}, pair caps"] = list(accuracy(panel, runs, caps, options.rho))
            if options.each_level or every:
                results[f"{panel.name}, each level"] = list(each_level(panel, runs, options.rho))
    if options.csv is not None:
        write_tables(options.csv, {f"{name.replace(' ', '-')}.csv": in_csv(results, name) for name in IN_CSV})
    printed(results, as_json=options.json)


if __name__ == "__main__":
    main()
