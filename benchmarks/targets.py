"""Measure how often releases with a budget for targets meet them, and what shares that minimise errors gain.

    python -m benchmarks.targets --case flights norway taxis --data FOLDER --releases 200
    python -m benchmarks.targets --shares --case flights norway taxis binary random --data FOLDER

Each data set serves as the public table on which the budget is tuned, and as the truth of the releases. Every release
has noise of its own. Data sets other than the flights are read from the subfolders of FOLDER.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.estimator import MADE, READ, data_set
from benchmarks.measuring import machine, printed
from od_core import Budget, InfTDARefined, PrivacyUnit, ReleasePlan, plan_release
from od_core.evaluation.forecast import arrange_counts_for_plan, simulate_releases
from od_core.evaluation.known_flows import KnownFlows
from od_core.evaluation.targets import (
    Target,
    compute_target_ratios,
    find_target_budget,
    select_target_classes,
    with_amount,
)
from od_core.privacy.neighbours import NO_FAULTS

DELTA = "1e-8"
RUNS = 1000
RELEASES = 200

TARGETS: dict[str, tuple[tuple[str, ...], ...]] = {
    "flights": (
        ("state x state: flows >= 1000 within 5 % in 90 %",),
        ("airport x airport: flows >= 100 within 20 % in 90 %",),
        (
            "division outflow: flows >= 1000 within 1 % in 95 %",
            "state x state: flows >= 300 within 5 % in 90 %",
            "airport x airport: flows >= 100 within 20 % in 90 %",
        ),
    ),
    "norway": (
        ("fylke x fylke: flows >= 1000 within 3 % in 90 %",),
        ("kommune x kommune: flows >= 100 within 10 % in 90 %",),
        ("fylke x fylke: flows >= 1000 within 1 % in 90 %", "kommune x kommune: flows >= 200 within 10 % in 90 %"),
    ),
    "taxis": (
        ("borough x borough: flows >= 100 within 5 % in 90 %",),
        ("taxi_zone x taxi_zone: flows >= 20 within 30 % in 90 %",),
        ("borough x borough: flows >= 100 within 3 % in 90 %", "taxi_zone inflow: flows >= 100 within 10 % in 90 %"),
    ),
}
"""Sets of targets of each data set."""


def planned(data: KnownFlows, *, laplace: bool, shares: Any = None) -> ReleasePlan:
    """Return the plan of a release of a data set at epsilon 1, with Gaussian noise or, at few levels, Laplace noise."""
    given: dict[str, Any] = {"unit": PrivacyUnit("trip"), "acceptance": NO_FAULTS}
    if not laplace:
        return plan_release(data.geography, budget=Budget(1, DELTA, shares=shares), **given)
    mechanism = InfTDARefined(noise_distribution="laplace")
    return plan_release(data.geography, budget=Budget(1, shares=shares), mechanism=mechanism, tree="both", **given)


def met(data: KnownFlows, texts: tuple[str, ...], runs: int, releases: int, *, laplace: bool) -> dict[str, Any]:
    """Return the budget for a set of targets, and the share of new releases that meet all of them."""
    plan = planned(data, laplace=laplace)
    targets = [Target.parse(text, plan.tree) for text in texts]
    start = time.perf_counter()
    found = find_target_budget(plan, targets, data, runs)
    seconds = time.perf_counter() - start
    chosen = with_amount(plan, found.amount, found.shares)
    trips = arrange_counts_for_plan(data, chosen)
    classes = select_target_classes(chosen, targets, trips)
    ratios = [max(compute_target_ratios(classes, release)) for release in simulate_releases(chosen, trips, releases)]
    return {
        "targets": list(texts),
        "flows": [cost.flows for cost in found.costs],
        "binds": [cost.binds for cost in found.costs],
        "epsilon": float(chosen.spent.epsilon),
        "gap": found.gap,
        "met": float(np.mean(np.array(ratios) <= 1)),
        "seconds": seconds,
    }


def gains(data: KnownFlows, *, laplace: bool = False) -> list[dict[str, Any]]:
    """Return the sum of the expected errors of some levels with each rule of shares, at epsilon 1."""
    names = [" x ".join(pair) for pair in planned(data, laplace=laplace).tree.level_names]
    rows = []
    for objective in (names[1:], names[-1:], names[2::2]):
        errors = {}
        for rule in ("uniform", "geography", {"minimise": objective}):
            plan = planned(data, laplace=laplace, shares=rule)
            every = dict(zip(names, plan.expected_errors, strict=True))
            errors["minimise" if isinstance(rule, dict) else rule] = sum(every[name] for name in objective)
        gain = 1 - errors["minimise"] / min(errors["uniform"], errors["geography"])
        rows.append({"objective": objective, **errors, "gain": gain})
    return rows


def main() -> None:
    """Parse the arguments, measure, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs="+", choices=(*MADE, *READ), default=["flights"])
    parser.add_argument("--data", type=Path, help="folder with the data sets")
    parser.add_argument("--runs", type=int, default=RUNS, help="simulated releases at a time while tuning")
    parser.add_argument("--releases", type=int, default=RELEASES, help="new releases per set of targets")
    parser.add_argument("--shares", action="store_true", help="measure shares that minimise errors instead")
    parser.add_argument("--laplace", action="store_true", help="with Laplace noise at few levels")
    parser.add_argument("--small", action="store_true", help="few runs on small data, to see that this works")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    runs, releases = (10, 5) if arguments.small else (arguments.runs, arguments.releases)
    results: dict[str, Any] = {}
    for case in arguments.case:
        data = data_set(case, arguments.data, small=arguments.small)
        if arguments.shares:
            results[case] = gains(data, laplace=arguments.laplace)
        else:
            sets = TARGETS.get(case, ())
            results[case] = [met(data, texts, runs, releases, laplace=arguments.laplace) for texts in sets]
    printed({"machine": machine(), **results}, as_json=arguments.json)


if __name__ == "__main__":
    main()
