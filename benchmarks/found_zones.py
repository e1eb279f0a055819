"""Measure what it costs that no list of zones is public: flights whose airports are found in the records.

    python -m benchmarks.found_zones --csv docs/reference/tables
    python -m benchmarks.found_zones --epsilon 1 --runs 5 --json

The code of an airport begins with that of its state. Regions, divisions and states are public, or fewer of them. Rivals
have a public list of all airports. Errors are of the released pairs of airports against all flights of June: a flight
of a pair that is not released is an error, also if it is in a remainder. They are means over independent draws of the
certified noise, for one trip under unbounded neighbours.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.estimator import NOISE
from benchmarks.flights import FLIGHTS, FLIGHTS_MONTH
from benchmarks.measuring import machine, printed, steps
from benchmarks.tables import write_csv
from od_core import Budget, Geography, PrivacyUnit, plan_release
from od_core.flows.found_areas import FoundTrips, find_areas
from od_core.flows.release import Release, run_plan
from od_core.geography.found_levels import REMAINDER
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counting import count_trips

LEVELS = ("region", "division", "state", "airport")
FOUND: Mapping[str, Any] = {"mechanism": "inftda_stability", "found": {"airport": None}}
VARIANTS: Mapping[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "stability histogram, public list": (LEVELS, {"mechanism": "stability_histogram"}),
    "inftda, public list": (LEVELS, {"mechanism": "inftda"}),
    "inftda, public list, both sides": (LEVELS, {"mechanism": "inftda", "tree": "both"}),
    "inftda_refined, public list": (LEVELS, {"mechanism": "inftda_refined"}),
    "found, one side at a time": (LEVELS[:3], {**FOUND}),
    "found, both sides": (LEVELS[:3], {**FOUND, "tree": "both"}),
    "found, both sides, 4/5 for airports": (LEVELS[:3], {**FOUND, "tree": "both", "shares": ["1/20"] * 4 + ["4/5"]}),
    "found, both sides, only states public": (LEVELS[2:3], {**FOUND, "tree": "both"}),
    "found, no public level, both sides": ((), {**FOUND, "found": {"state": 2, "airport": None}, "tree": "both"}),
}
"""Public levels and options of a plan, by name."""


def read_flights() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the flights of June 2001 and the list of airports, with codes that begin with those of their states."""
    airports = pd.read_csv(FLIGHTS / "airports.csv", dtype=str, keep_default_na=False)
    code_of = dict(zip(airports["airport"], airports["state"] + airports["airport"], strict=True))
    flights = pd.read_parquet(FLIGHTS / f"{FLIGHTS_MONTH}.parquet", columns=["origin", "destination"])
    pairs = flights.groupby(["origin", "destination"]).size().rename("trips").reset_index()
    sides = {side: pairs[side].map(code_of).astype("str") for side in ("origin", "destination")}
    return pairs.assign(**sides), airports.assign(airport=airports["airport"].map(code_of))


def compute_errors(release: Release, true: pd.Series) -> dict[str, float]:
    """Return the errors of the released pairs of airports, and of pairs of states; ``true`` is by pair of codes."""
    released = release.flows.set_index(["origin", "destination"])["trips"]
    is_remainder = np.array([any(code.endswith(REMAINDER) for code in pair) for pair in released.index], dtype=np.bool_)
    pairs, total = released[~is_remainder], float(true.sum())
    one, other = true.align(pairs, fill_value=0)
    states = [
        table.groupby([table.index.get_level_values(side).str[:2] for side in (0, 1)]).sum()
        for table in (true, released)
    ]
    of_states = states[0].sub(states[1], fill_value=0).abs()
    return {
        "leaf_error_percent": 100 * float((one - other).abs().sum()) / total,
        "found_pairs": float((one[other > 0] > 0).sum()),
        "missed_percent": 100 * float((other[one > 0] == 0).mean()),
        "missed_trips_percent": 100 * float(one[other == 0].sum()) / total,
        "false_discoveries_percent": 100 * float((one[other > 0] == 0).mean()) if (other > 0).any() else 0.0,
        "remainder_percent": 100 * float(released[is_remainder].sum()) / total,
        "state_error_percent": 100 * float(of_states.sum()) / total,
    }


def measured(flights: pd.DataFrame, airports: pd.DataFrame, epsilon: str, name: str, runs: int) -> dict[str, Any]:
    """Return the mean errors of several releases of a variant."""
    levels, options = VARIANTS[name]
    zones = airports.drop_duplicates(levels[-1]) if levels else airports
    geography = Geography.from_frame(zones, list(levels)) if levels else Geography.whole()
    given = {key: option for key, option in options.items() if key != "shares"}
    budget = Budget(epsilon, "1e-6", shares=options.get("shares"))
    unit = PrivacyUnit("trip", "unbounded")
    plan = plan_release(geography, unit=unit, budget=budget, acceptance=NO_FAULTS, **given)
    tree, noise = find_areas(flights, plan.tree, None), resolve_noise_source(NOISE)
    trips = count_trips(flights, tree, unit=unit)
    true = flights.set_index(["origin", "destination"])["trips"]
    counted = trips if tree.found is None else FoundTrips(tree, trips)
    rows = [compute_errors(run_plan(plan, counted, noise, MemoryMeasurements()), true) for _ in range(runs)]
    facts = plan.steps[-1].noise_facts
    means = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
    return {"threshold": facts.get("threshold", ""), "deviation": float(plan.steps[-1].variance) ** 0.5, **means}


def main() -> None:
    """Measure every variant at every epsilon, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="write the figures to found-zones.csv there")
    parser.add_argument("--epsilon", nargs="+", default=["0.1", "1", "10"])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--small", action="store_true", help="few runs of few variants, to see that it runs")
    options = parser.parse_args()
    flights, airports = read_flights()
    rows = []
    chosen, runs = [*product(options.epsilon, VARIANTS)], options.runs
    if options.small:
        chosen, runs = [("1", name) for name in VARIANTS if name.startswith("found, both sides")], 2
    for epsilon, name in steps(chosen, "found_zones"):
        rows.append({"epsilon": epsilon, "variant": name, **measured(flights, airports, epsilon, name, runs)})
    if options.csv:
        texts = [{key: f"{v:.3g}" if isinstance(v, float) else v for key, v in row.items()} for row in rows]
        write_csv(options.csv / "found-zones.csv", texts)
    printed({"machine": machine(), "noise": NOISE, "rows": rows}, as_json=options.json)


if __name__ == "__main__":
    main()
