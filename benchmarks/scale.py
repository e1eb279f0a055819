"""Measure time and memory of whole releases, from counts in tree order to the released table.

    python -m benchmarks.scale --json
    python -m benchmarks.scale --case italy --epsilon 1 --noise table
    python -m benchmarks.scale --case italy_sections --mechanism inftda_refined --estimate auto --repeats 1

Times include the ledger and durable measurement files. Making the data is not included; sorting it is shown apart. Each
case runs in its own process, which gives its own peak memory, and checks the invariants.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.durable import check_invariants, durable_release, figures, unwritten_seconds
from benchmarks.measuring import fresh_process, machine, printed, read_peak_memory_gigabytes, reset_peak_memory, steps
from benchmarks.sections import italy_sections
from od_core import Budget, PrivacyUnit, ReleasePlan, plan_release, release_flows
from od_core.evaluation.known_flows import SyntheticFlows, make_binary_flows, make_italy_flows, make_random_tree_flows
from od_core.flows.estimators import ESTIMATES
from od_core.flows.mechanisms import MECHANISMS, InfTDARefined
from od_core.noise.backends import resolve_noise_source
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counts import TripCounts
from od_core.warmup import compile_all_kernels

SEED = 20010101

CASES: dict[str, Callable[[bool], SyntheticFlows]] = {
    "binary": lambda small: make_binary_flows(SEED, levels=4, trips=5_000) if small else make_binary_flows(SEED),
    "random": lambda small: (
        make_random_tree_flows(SEED, levels=2, zones=40, trips=20_000) if small else make_random_tree_flows(SEED)
    ),
    "italy": lambda small: make_italy_flows(SEED, scale=0.01 if small else 1.0),
    "italy_sections": lambda small: italy_sections(SEED, scale=0.01 if small else 1.0),
}

RUNS = [
    ("italy", "1", "table"),
    ("italy", "10", "table"),
    ("italy", "1", "opendp"),
    ("binary", "1", "table"),
    ("random", "1", "table"),
    ("italy_sections", "1", "table"),
    ("italy_sections", "10", "table"),
]
"""Case, epsilon and noise. All run with mechanism inftda, and those with noise ``table`` also with inftda_refined."""


def measured(
    case: str,
    epsilon: str,
    noise: str,
    *,
    mechanism: str = "inftda",
    estimate: str | None = None,
    area_totals: str | None = None,
    repeats: int,
    small: bool,
) -> dict[str, Any]:
    """Measure one case in this process: medians of several repeats, after one that does not count.

    An estimate is an option of ``inftda_refined``; None is the default of the mechanism. ``area_totals`` is their share
    of the budget, if they are measured.
    """
    if not small:
        compile_all_kernels()  # kernels are loaded or compiled once per process
    flows = CASES[case](small)
    budget = Budget(epsilon=epsilon, delta="1e-8", conversion="tight")
    chosen = mechanism if estimate is None else InfTDARefined(estimate=estimate)
    plan = plan_release(
        flows.geography,
        unit=PrivacyUnit("trip"),
        budget=budget,
        mechanism=chosen,
        acceptance=NO_FAULTS,
        area_totals=area_totals,
    )
    _ = plan.digest  # digests of geographies are computed once per process
    reset_peak_memory()  # making the data has raised it
    start = time.perf_counter()
    trips = TripCounts.from_pairs(plan.tree, flows.origin, flows.destination, flows.trips)
    result: dict[str, Any] = {
        "case": case,
        "epsilon": epsilon,
        "noise": noise,
        "mechanism": plan.mechanism.name,
        "estimate": plan.mechanism.estimator.estimate,
        "area_totals": area_totals,
        "threads": os.environ.get("OD_THREADS", "all"),
        "zones": len(flows.geography.zones),
        "pairs": len(trips.rank),
        "trips": trips.total,
        "levels": plan.tree.depth,
        "sort_seconds": time.perf_counter() - start,
    }
    facade = None
    if len(flows.trips) <= 1_000_000:  # the pairs of italy_sections as text would fill the memory
        facade = functools.partial(_facade_seconds, flows.to_frame(), flows, plan, noise)
    del flows
    phases: list[dict[str, float]] = []
    for _repeat in range(repeats + 1):
        with durable_release(plan, trips, resolve_noise_source(noise)) as (release, seconds):
            phases.append(seconds)
            check_invariants(release, trips.total)
            result |= figures(release)
            del release
    unwritten = [unwritten_seconds(plan, trips, resolve_noise_source(noise)) for _ in range(max(1, repeats))]
    result["seconds_without_ledger_and_files"] = statistics.median(unwritten)
    kept = phases[1:] or phases
    result["seconds"] = {phase: statistics.median(run[phase] for run in kept) for phase in kept[0]}
    result["least_and_most"] = [min(run["total"] for run in kept), max(run["total"] for run in kept)]
    result["peak_memory_gigabytes"] = read_peak_memory_gigabytes()
    if facade is not None:
        result["facade_seconds"] = statistics.median(facade() for _ in range(max(1, repeats)))
    return result


def _facade_seconds(frame: Any, flows: SyntheticFlows, plan: ReleasePlan, noise: str) -> float:
    """Return the seconds of ``release_flows`` from table to table, without a ledger."""
    start = time.perf_counter()
    release = release_flows(
        frame,
        flows.geography,
        unit=plan.unit,
        budget=plan.budget,
        mechanism=plan.mechanism,
        noise=noise,
        fault_threshold=0,
        area_totals=plan.area_totals,
    )
    _ = release.flows
    return time.perf_counter() - start


def main() -> None:
    """Run the cases, each in its own process, and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--small", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--case", choices=CASES, help="one case alone, in this process")
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--noise", default="table")
    parser.add_argument("--mechanism", default="inftda", choices=sorted(MECHANISMS))
    parser.add_argument("--estimate", choices=ESTIMATES, help="of one case; needs mechanism inftda_refined")
    parser.add_argument("--area-totals", help="share of the budget for area totals; needs mechanism inftda_refined")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if (options.estimate or options.area_totals) and (options.mechanism != InfTDARefined.name or not options.case):
        parser.error("--estimate and --area-totals need --case and --mechanism inftda_refined")
    repeats = 1 if options.small else options.repeats
    if options.case:
        run = options.case, options.epsilon, options.noise
        asked = {"mechanism": options.mechanism, "estimate": options.estimate, "area_totals": options.area_totals}
        case = measured(*run, **asked, repeats=repeats, small=options.small)
        printed({"machine": machine(), "cases": [case]}, as_json=options.json)
        return
    cases = []
    refined = [(*run, "inftda_refined") for run in RUNS if run[-1] == "table"]
    for name, epsilon, noise, mechanism in steps([*((*run, "inftda") for run in RUNS), *refined], "scale"):
        if options.small:  # too small for a separate process
            cases.append(measured(name, epsilon, noise, mechanism=mechanism, repeats=1, small=True))
            continue
        chosen = ["--case", name, "--epsilon", epsilon, "--noise", noise, "--repeats", str(repeats)]
        chosen += ["--mechanism", mechanism]
        cases += json.loads(fresh_process("benchmarks.scale", *chosen))["cases"]
    printed({"machine": machine(), "cases": cases}, as_json=options.json)


if __name__ == "__main__":
    main()
