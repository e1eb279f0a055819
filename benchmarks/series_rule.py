"""Measure how often a series changes the rule that held-out noise chooses, with and without its earlier evidence.

    python -m benchmarks.series_rule --case norway uk --epsilon 0.1 --runs 8 --data FOLDER
    python -m benchmarks.series_rule --case months --epsilon 1 --runs 8 --data FOLDER

Each run is a series of 12 releases of one table, or of New York's taxi trips in the months of 2018 (``months``), by
certified noise without a seed. All tables of a release are estimated from the same measurements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np

from benchmarks.assisted import errors, taxis
from benchmarks.estimator import CASES, NOISE, VARIANTS, data_set, planned
from benchmarks.measuring import case_parser, machine, printed, steps
from od_core import ReleasePlan
from od_core.evaluation.known_flows import KnownFlows
from od_core.flows.estimation.least_squares import build_measured_levels
from od_core.flows.estimation.refinement import select_nodes_with_trips
from od_core.flows.estimation.rule_choice import Choice, choose_rule_with_evidence, read_earlier_evidence
from od_core.flows.estimation.shrinkage import LEAST_SQUARES, Rule, shrink
from od_core.flows.release import run_plan
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source

LENGTH = 12
"""Number of releases of a series."""

AUTO = next(variant for variant in VARIANTS if variant.name == "auto")
REFINED = next(variant for variant in VARIANTS if variant.name == "refined")


def after(plan: ReleasePlan, choice: Choice) -> ReleasePlan:
    """Return the plan of the release after one with a choice."""
    stated = {"release": None, "plan": plan.stored_facts, **choice.facts()}
    return replace(plan, earlier=read_earlier_evidence(plan, stated))


def series(months: list[KnownFlows], epsilon: str) -> tuple[dict[str, list[Rule]], dict[str, list[Any]]]:
    """Return the rules of a series and its errors (levels, metrics), by the way of choosing."""
    alone, plain = (planned(variant, months[0].geography, epsilon) for variant in (AUTO, REFINED))
    rules: dict[str, list[Rule]] = {"alone": [], "pooled": []}
    found: dict[str, list[Any]] = {"refined": [], "alone": [], "pooled": []}
    pooled = alone
    for month in months:
        release = run_plan(plain, month.trips, resolve_noise_source(NOISE), MemoryMeasurements())
        levels = build_measured_levels(plain, month.trips.total, release.measured)
        choice = choose_rule_with_evidence(pooled, levels)
        rules["alone"].append(choose_rule_with_evidence(alone, levels).rule)
        rules["pooled"].append(choice.rule)
        pooled = after(pooled, choice)
        tables = {LEAST_SQUARES: errors(month, release.leaves)}
        for rule in {each[-1] for each in rules.values()} - {LEAST_SQUARES}:
            trips = shrink(plain, levels, rule)[-1]
            tables[rule] = errors(month, select_nodes_with_trips(levels[-1].nodes, trips))
        found["refined"].append(tables[LEAST_SQUARES])
        for way, chosen in rules.items():
            found[way].append(tables[chosen[-1]])
    return rules, found


def measured(months: list[KnownFlows], case: str, epsilon: str, runs: int) -> Iterator[dict[str, Any]]:
    """Yield one row for each way of choosing: each release alone, or by pooled evidence.

    Errors are changes from those of least squares: the total of the leaves and the mean of the largest of each level,
    in parts, and the share of false discoveries.
    """
    each = [series(months, epsilon) for _ in range(runs)]
    base = np.array([found["refined"] for _, found in each])  # run, release, level, metric
    for way in ("alone", "pooled"):
        own = np.array([found[way] for _, found in each])
        largest, total, false = (own[..., number].mean(axis=(0, 1)) for number in range(3))
        largest_before, total_before, false_before = (base[..., number].mean(axis=(0, 1)) for number in range(3))
        some = largest_before > 0
        changes = [sum(one != other for one, other in pairwise(rules[way])) for rules, _ in each]
        yield {
            "case": case,
            "epsilon": epsilon,
            "rule": way,
            "changes": float(np.mean(changes)),
            "total_error": float(total[-1] / total_before[-1] - 1),
            "largest_errors": float((largest[some] / largest_before[some]).mean() - 1),
            "false_discovery_rate": float(false[-1] - false_before[-1]),
            "last_rules": ", ".join(sorted({str(rules[way][-1].facts()) for rules, _ in each})),
        }


def main() -> None:
    """Release the series and print the figures."""
    parser = case_parser(__doc__, [*CASES, "months"], ["0.1"])
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for case, epsilon in steps(list(product(options.case, options.epsilon)), "series_rule"):
        if case == "months":
            months = taxis(options.data, small=options.small)[:LENGTH]
        else:
            months = [data_set(case, options.data, small=options.small)] * (2 if options.small else LENGTH)
        rows += measured(months, case, epsilon, 1 if options.small else options.runs)
    printed({"machine": machine(), "noise": NOISE, "releases": LENGTH, "rows": rows}, as_json=options.json)


if __name__ == "__main__":
    main()
