"""Measure the accuracy of releases by segment on real and synthetic flows, for several divisions of the budget.

Each design is compared with two others: a release without segments, for the totals, and one release of each segment
with the whole budget, for the segments. Both comparisons are ratios of the mean largest error, averaged over levels,
and of the mean error at the leaves, averaged over the runs.

python -m benchmarks.segments --data us_flights --epsilon 1 --runs 20 --json

With ``--noise``, releases with fewer levels, and with Laplace noise at these levels, are compared instead with releases
with Gaussian noise and the tree ``destination``. All of them have segments.

python -m benchmarks.segments --noise bounded unbounded --data us_flights --epsilon 1 --runs 20 --json

The data us_flights are in the repository. Taxis by hour and travel to education by mode are read from the folder
``--folder``, which has the tables trips.csv.gz or flows.csv.gz, and zones.csv.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.measuring import machine, printed, steps
from od_core import Budget, Geography, PrivacyUnit
from od_core.evaluation.metrics import Truth
from od_core.flows.mechanisms import InfTDARefined
from od_core.flows.plan import ReleasePlan, plan_release
from od_core.flows.release import Release, run_plan
from od_core.geography.flow_tree import Nodes
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source
from od_core.privacy.neighbours import NO_FAULTS
from od_core.privacy.plan import GaussianStep
from od_core.records.counting import count_trips
from od_core.records.counts import TripCounts
from od_core.records.segments import Breakdown

ROOT = Path(__file__).parents[1]
SHARES = ("1/4", "1/2", "3/4")
"""Shares of the totals in the budget of a level."""

OPTIONS = {
    "profile": InfTDARefined(segment_profile=Fraction(1)),
    "shrunk": InfTDARefined(estimate="shrunk"),
    "auto": InfTDARefined(estimate="auto"),
}
"""Options that are compared at equal shares of totals and segments."""

LEVELS_AND_NOISE: dict[str, dict[str, Any]] = {
    "one side at a time": {},
    "both sides": {"tree": "both"},
    "both sides, area totals": {"tree": "both", "area_totals": "1/10"},
    "Laplace": {"tree": "both"},
    "Laplace, area totals": {"tree": "both", "area_totals": "18/100"},
    "Laplace, auto": {"tree": "both", "estimate": "auto"},
}
"""Options of releases with segments whose levels and noise differ; names of Laplace noise begin with its name."""

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class Data(NamedTuple):
    """Trips with one breakdown, and their geography."""

    trips: pd.DataFrame
    geography: Geography
    breakdown: Breakdown


def us_flights(_folder: Path | None) -> Data:
    """Return the flights of June 2001 by day of the week."""
    trips = pd.read_parquet(ROOT / "data/us_flights/2001-06.parquet")
    trips["day"] = pd.to_datetime(trips["date"]).dt.day_name()
    zones = pd.read_csv(ROOT / "data/us_flights/airports.csv", dtype=str, keep_default_na=False)
    geography = Geography.from_frame(zones, ("region", "division", "state", "airport"))
    return Data(trips[["origin", "destination", "day"]], geography, Breakdown("day", DAYS))


def taxis(folder: Path | None) -> Data:
    """Return a sample of taxi trips by hour of the pick-up."""
    zones, trips = _tables(folder, "trips.csv.gz")
    trips["hour"] = trips["pickup_datetime"].str[11:13]
    trips = trips.rename(columns={"PULocationID": "origin", "DOLocationID": "destination"})
    geography = Geography.from_frame(zones, ("borough", "service_area", "taxi_zone"))
    hours = tuple(f"{hour:02d}" for hour in range(24))
    return Data(trips[["origin", "destination", "hour"]], geography, Breakdown("hour", hours))


def nz_education(folder: Path | None) -> Data:
    """Return travel to education in New Zealand by mode."""
    zones, trips = _tables(folder, "flows.csv.gz")
    trips["trips"] = trips["trips"].astype(np.int64)
    geography = Geography.from_frame(zones, ("part", "district", "sa3"))
    return Data(trips, geography, Breakdown("mode", tuple(sorted(trips["mode"].unique()))))


def synthetic(_folder: Path | None) -> Data:
    """Return few synthetic trips between few zones by three categories."""
    rng = np.random.default_rng(1)
    codes = [f"z{number:02d}" for number in range(20)]
    zones = pd.DataFrame({"region": [code[:2] for code in codes], "zone": codes})
    places = rng.integers(0, 20, (2, 5_000)) * rng.integers(0, 20, (2, 5_000)) // 20
    columns = {side: np.array(codes)[place] for side, place in zip(("origin", "destination"), places, strict=True)}
    categories = ("car", "bus", "walk")
    trips = pd.DataFrame({**columns, "mode": np.array(categories)[rng.integers(0, 3, 5_000)]})
    return Data(trips, Geography.from_frame(zones, ("region", "zone")), Breakdown("mode", categories))


DATA = {read.__name__: read for read in (us_flights, taxis, nz_education, synthetic)}


def _tables(folder: Path | None, name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    if folder is None:
        raise SystemExit("give --folder, which has the tables of this data set")
    zones, trips = (pd.read_csv(folder / file, dtype=str, keep_default_na=False) for file in ("zones.csv", name))
    return zones, trips


class Errors:
    """Largest and mean errors of totals and segments at every level, summed over runs.

    Args:
        data: the trips.
        counts: their counts, which the releases are made from.
    """

    def __init__(self, data: Data, counts: TripCounts, plan: ReleasePlan) -> None:
        self._totals = Truth.from_counts(plan.tree, counts)
        self._segments = Truth.from_counts(plan.tree, counts, data.breakdown.name)
        self.runs: dict[str, list[NDArray[np.float64]]] = {}

    def add(self, design: str, leaves: Nodes, segments: NDArray[np.int64] | None) -> None:
        """Add a run of a design; ``segments`` has the trips of each leaf by category."""
        self.runs.setdefault(f"{design}: totals", []).append(_table(self._totals.compute_errors(leaves)))
        if segments is not None:
            self.runs.setdefault(f"{design}: segments", []).append(
                _table(self._segments.compute_errors(leaves, segments))
            )

    def ratios(self, design: str, baseline: str) -> dict[str, float]:
        """Return how many times as large the errors of a design are as those of a baseline."""
        own, other = (np.mean(self.runs[name], axis=0) for name in (design, baseline))
        below = other[:, 0] > 0  # the root of a baseline may be exact
        return {
            "largest error, mean of levels": float(np.mean(own[below, 0] / other[below, 0])),
            "mean error at the leaves": float(own[-1, 1] / other[-1, 1]),
        }

    def rates(self, design: str) -> dict[str, float]:
        """Return the rates of false discoveries and false negatives at the leaves."""
        mean = np.mean(self.runs[design], axis=0)[-1]
        return {"false_discovery_rate": float(mean[2]), "false_negative_rate": float(mean[3])}


def _table(rows: list[dict[str, float]]) -> NDArray[np.float64]:
    """Return the errors of every level; shape (levels, 4)."""
    return np.array([list(row.values())[1:] for row in rows])


def per_segment(data: Data, counts: TripCounts, plan: ReleasePlan) -> tuple[Nodes, NDArray[np.int64]]:
    """Return the leaves and their trips by category from one release of each category with the whole budget."""
    released = [_run(plan, category).leaves for category in counts.by_segment[data.breakdown.name]]
    rank = [plan.tree.compute_first_ranks(leaves) for leaves in released]
    both = np.unique(np.concatenate(rank))
    segments = np.zeros((len(both), len(released)), dtype=np.int64)
    for k, (own, leaves) in enumerate(zip(rank, released, strict=True)):
        segments[np.searchsorted(both, own), k] = leaves.trips
    pairs = plan.tree.find_leaf_pairs(both)
    return Nodes(plan.tree.depth, pairs.origin, pairs.destination, segments.sum(axis=1)), segments


_SMALL_PART = Fraction(1, 1_000)
"""Part of their share that segments above the leaves keep in :class:`LeafSegments`, at 1,000 times the variance."""


class LeafSegments(ReleasePlan):
    """A plan whose segments above the leaves give their share to the totals. Only the leaves tell segments apart."""

    @classmethod
    def of(cls, plan: ReleasePlan) -> LeafSegments:
        """Return the plan with the budget of another plan."""
        return cls(plan.tree, plan.unit, plan.budget, plan.mechanism, None, plan.acceptance, plan.segments)

    @cached_property
    def steps(self) -> tuple[GaussianStep, ...]:
        """The steps of the plan, with the charge moved."""
        return _to_totals(super().steps, self.tree.depth)


def _to_totals(steps: Sequence[GaussianStep], depth: int) -> tuple[GaussianStep, ...]:
    """Move the charge of segments above the leaves to the totals of their level or, at an exact root, of the next."""
    taken, moved = {step.level: Fraction(0) for step in steps}, []
    has_totals = {step.level for step in steps if not step.by_segment}
    for step in steps:
        if step.by_segment and step.level < depth:
            taken[step.level if step.level in has_totals else step.level + 1] += step.rho * (1 - _SMALL_PART)
    for step in steps:
        rho = step.rho
        if step.by_segment and step.level < depth:
            rho *= _SMALL_PART
        elif not step.by_segment:
            rho += taken[step.level]
        moved.append(replace(step, variance=Fraction(step.sensitivity_squared) / (2 * rho)))
    return tuple(moved)


def _run(plan: ReleasePlan, counts: TripCounts) -> Release:
    return run_plan(plan, counts, resolve_noise_source("table"), MemoryMeasurements())


def measure(data: Data, epsilon: Fraction, runs: int) -> dict[str, Any]:
    """Return the ratios of errors and the rates of all designs."""
    unit = PrivacyUnit("trip")
    whole = plan_release(data.geography, unit=unit, budget=Budget(epsilon=epsilon, delta=1e-8), acceptance=NO_FAULTS)
    equal = Budget(rho=whole.spent.rho, delta=1e-8)
    # A replaced trip may leave one segment and enter another. Two releases change then, each by one trip.
    half, alone = Budget(rho=whole.spent.rho / 2, delta=1e-8), PrivacyUnit("trip", "unbounded")
    separate_plan = plan_release(data.geography, unit=alone, budget=half)
    designs = {
        f"{share} for totals": plan_release(
            data.geography,
            unit=unit,
            budget=equal,
            acceptance=NO_FAULTS,
            segments={data.breakdown.name: data.breakdown.categories},
            segment_share=1 - Fraction(share),
        )
        for share in SHARES
    }
    for name, mechanism in OPTIONS.items():
        designs[f"1/2, {name}"] = plan_release(
            data.geography,
            unit=unit,
            budget=equal,
            mechanism=mechanism,
            acceptance=NO_FAULTS,
            segments={data.breakdown.name: data.breakdown.categories},
        )
    designs["leaves only"] = LeafSegments.of(designs["1/2 for totals"])
    counts = count_trips(data.trips, whole.tree, breakdowns=[data.breakdown], one_row_a_trip=True)
    errors = Errors(data, counts, whole)
    for _ in steps(range(runs), "Releasing"):
        errors.add("without segments", _run(whole, counts).leaves, None)
        errors.add("per segment", *per_segment(data, counts, separate_plan))
        for name, plan in designs.items():
            release = _run(plan, counts)
            errors.add(name, release.leaves, release.segments[data.breakdown.name])
    plain, separate = "without segments: totals", "per segment: segments"
    return {
        "totals, compared with a release without segments": {
            name: errors.ratios(f"{name}: totals", plain) for name in (*designs, "per segment")
        },
        "segments, compared with a release of each": {
            name: errors.ratios(f"{name}: segments", separate) for name in designs
        },
        "segments at the leaves": {name: errors.rates(f"{name}: segments") for name in (*designs, "per segment")},
    }


def compare_levels_and_noise(
    data: Data, relation: str, epsilon: Fraction, delta: str, runs: int
) -> list[dict[str, Any]]:
    """Return the errors of releases with segments, divided by those of the first."""
    rows, first = list[dict[str, Any]](), dict[str, float]()
    for name, given in LEVELS_AND_NOISE.items():
        noise = "laplace" if name.startswith("Laplace") else "gaussian"
        options = dict(given)
        estimate = options.pop("estimate", "least_squares")
        plan = plan_release(
            data.geography,
            unit=PrivacyUnit("trip", relation),  # type: ignore[arg-type]  # one of the choices of the command
            budget=Budget(epsilon, 0 if noise == "laplace" else delta),
            mechanism=InfTDARefined(noise_distribution=noise, estimate=estimate),
            acceptance=NO_FAULTS,
            segments={data.breakdown.name: data.breakdown.categories},
            **options,
        )
        one_row_a_trip = "trips" not in data.trips
        counts = count_trips(data.trips, plan.tree, breakdowns=[data.breakdown], one_row_a_trip=one_row_a_trip)
        errors = Errors(data, counts, plan)
        for _ in steps(range(runs), name):
            release = _run(plan, counts)
            errors.add(name, release.leaves, release.segments[data.breakdown.name])
        square = [k for k in range(1, plan.tree.depth + 1) if len({*plan.tree.level_pair(k)}) == 1]
        found = dict[str, float]()
        for of in ("segments", "totals"):
            mean = np.mean(errors.runs[f"{name}: {of}"], axis=0)
            found |= {f"{of}_leaf_error": mean[-1, 1], f"{of}_largest_error": mean[square, 0].mean()}
            found[f"{of}_false_discoveries"] = mean[-1, 2]
        first = first or found
        facts = {"relation": relation, "delta": delta, "epsilon": str(epsilon), "variant": name}
        ratios = {key: float(value / first[key]) for key, value in found.items()}
        rows.append(facts | ratios)
    return rows


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", choices=sorted(DATA), default="us_flights")
    parser.add_argument("--folder", type=Path, help="folder with the tables of taxis or nz_education")
    parser.add_argument("--epsilon", type=Fraction, default=Fraction(1))
    parser.add_argument("--noise", nargs="+", choices=["bounded", "unbounded"], help="compare levels and noise")
    parser.add_argument("--delta", default="1e-6", help="delta of Gaussian noise, with --noise")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--small", action="store_true", help="few synthetic trips, for a trial")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    name = "synthetic" if options.small else options.data
    runs = 2 if options.small else options.runs
    data = DATA[name](options.folder)
    result: dict[str, Any]
    if options.noise:
        rows = [
            row
            for relation in options.noise
            for row in compare_levels_and_noise(data, relation, options.epsilon, options.delta, runs)
        ]
        result = {"rows": rows}
    else:
        result = measure(data, options.epsilon, runs)
    printed(
        {"machine": machine(), "data": name, "epsilon": str(options.epsilon), "runs": runs, **result},
        as_json=options.json,
    )


if __name__ == "__main__":
    main()
