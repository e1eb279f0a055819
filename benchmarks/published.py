"""Compare the errors published in [boninsegna2025inftda] with ours, at half of the stated rho.

Half of it is the budget that the authors' runs spent, because their code divides the budget by 2T where T levels are
measured. Their errors on binary trees can be compared in numbers. Those on real commuters can be compared in kind only,
because our data of that shape are synthetic.
"""

from __future__ import annotations

import argparse
from fractions import Fraction
from typing import Any

import numpy as np

from benchmarks.measuring import machine, printed
from od_core import Budget, PrivacyUnit, plan_release
from od_core.evaluation.comparison import read_published_results
from od_core.evaluation.known_flows import KnownFlows, list_synthetic_data_sets
from od_core.flows.release import run_plan
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source
from od_core.privacy.accounting import find_rho_for_epsilon
from od_core.privacy.neighbours import NO_FAULTS

DELTA = Fraction(1, 10**8)
TOP_DOWN = ("inftda", "tda_l2")

BINARY_COMPLETE = (0, 30, 39, 67, 77, 100, 118, 113, 126, 131, 140, 146, 152, 146, 148, 148, 137)
"""Published median of InfTDA's largest absolute error on the complete binary data set at epsilon 1, levels 0 to 16."""


def medians(data: KnownFlows, mechanism: str, epsilon: str, runs: int) -> list[dict[str, float]]:
    """Return the medians of several runs at half of the rho that the authors state, one row per level."""
    budget = Budget(rho=find_rho_for_epsilon(Fraction(epsilon), DELTA, "bun_steinke") / 2, delta=DELTA)
    plan = plan_release(
        data.geography, unit=PrivacyUnit("trip"), budget=budget, mechanism=mechanism, acceptance=NO_FAULTS
    )
    noise = resolve_noise_source("table")
    errors = [
        data.truth.compute_errors(run_plan(plan, data.trips, noise, MemoryMeasurements()).leaves) for _ in range(runs)
    ]
    return [
        {metric: float(np.median([run[metric] for run in level])) for metric in level[0]}
        for level in zip(*errors, strict=True)
    ]


def binary_complete(runs: int) -> list[dict[str, Any]]:
    """Return the largest absolute errors at epsilon 1 by level, with their ratios to the published ones."""
    data = list_synthetic_data_sets()["binary complete"]()
    rows = []
    for mechanism in TOP_DOWN:
        ours = [level["max_abs_error"] for level in medians(data, mechanism, "1", runs)]
        for level in range(1, len(ours)):
            published = BINARY_COMPLETE[level]
            rows.append(
                {
                    "mechanism": mechanism,
                    "level": level,
                    "max_abs_error": ours[level],
                    "published_for_inftda": published,
                    "ratio": ours[level] / published,
                }
            )
    return rows


def italy(runs: int) -> list[dict[str, Any]]:
    """Return errors and rates of the top-down mechanisms on synthetic flows like Italy's, and the published ones."""
    data = list_synthetic_data_sets()["italy"]()
    rows = []
    for result in read_published_results():
        if result["contender"] not in TOP_DOWN:
            continue
        levels = medians(data, result["contender"], result["epsilon"], runs)
        discoveries, negatives = result["false_discovery_rate"], result["false_negative_rate"]
        rows.append(
            {
                "epsilon": result["epsilon"],
                "mechanism": result["contender"],
                "largest_errors": " ".join(f"{level['max_abs_error']:.0f}" for level in levels),
                "published": " ".join(map(str, result["max_abs_error"])),
                "false_discoveries": f"{levels[-1]['false_discovery_rate']:.1%} ({discoveries} %)",
                "false_negatives": f"{levels[-1]['false_negative_rate']:.1%} ({negatives} %)",
            }
        )
    return rows


def main() -> None:
    """Run both comparisons and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--small", action="store_true", help="few runs, to see that it runs")
    options = parser.parse_args()
    results: dict[str, Any] = {"machine": machine()}
    results |= {"binary complete, epsilon 1": binary_complete(2 if options.small else 20)}
    if not options.small:
        results["italy"] = italy(5)
    printed(results, as_json=options.json)


if __name__ == "__main__":
    main()
