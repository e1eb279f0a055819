"""Measure the accuracy of mechanisms on eight data sets at equal (epsilon, delta), against the published algorithm.

    python -m benchmarks.estimator --csv docs/reference/tables --data FOLDER
    python -m benchmarks.estimator --case flights --variant refined shrunk --epsilon 1 --runs 100 --json
    python -m benchmarks.estimator --paired auto blue_down --case uk --runs 20 --data FOLDER

``--paired`` compares tables with that of ``refined`` from the same measurements: those of other variants, and those of
the published methods in :mod:`benchmarks.rivals`.

Every run is an independent draw of the certified noise, without a seed. A ratio divides the mean error over the runs by
that of ``paper``, and has a 99 % bootstrap interval. Norway, the taxis, the United Kingdom and the
counties of the United States are read from the subfolders of FOLDER that ``READ`` names.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.flights import FLIGHTS, us_flights
from benchmarks.measuring import machine, printed, read_peak_memory_gigabytes, steps
from benchmarks.ratios import ABOVE, NOT_ABOVE, ratios_of_means
from benchmarks.rivals import RIVALS
from benchmarks.tables import csv_figure, markdown_table, write_csv
from od_core import Budget, Geography, PrivacyUnit, ReleasePlan, plan_release
from od_core.evaluation.known_flows import SEED, KnownFlows, make_binary_flows, make_italy_flows, make_random_tree_flows
from od_core.flows.estimation.least_squares import build_measured_levels
from od_core.flows.estimation.levels import Measurement, make_published_root
from od_core.flows.estimation.refinement import refine, select_nodes_with_trips
from od_core.flows.mechanisms import MECHANISMS
from od_core.flows.release import run_plan
from od_core.geography.flow_tree import Nodes
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source
from od_core.privacy.accounting import round_up_to_float
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.zone_lists import read_zones


@dataclass(frozen=True)
class Variant:
    """A mechanism with its options, conversion and shares; None selects the default of the mechanism."""

    name: str
    mechanism: str
    conversion: str | None = None
    shares: str | None = None
    options: tuple[tuple[str, Any], ...] = ()


PAPER = Variant("paper", "inftda", "bun_steinke", "uniform")
"""The algorithm of [boninsegna2025inftda], by whose errors the errors of all other variants are divided."""

VARIANTS = (
    PAPER,
    Variant("tight", "inftda", "tight", "uniform"),
    Variant("exact", "inftda", "exact", "uniform"),
    Variant("+shares", "inftda", "exact", "geography"),
    Variant("refined, bun_steinke, uniform", "inftda_refined", "bun_steinke", "uniform"),
    Variant("refined, bun_steinke", "inftda_refined", "bun_steinke"),
    Variant("refined", "inftda_refined"),
    Variant("refined, tree dropped", "inftda_refined", options=(("keep_all_cap", 0),)),
    Variant("empirical bayes", "inftda_refined", options=(("leaves", "empirical_bayes"),)),
    Variant("shrunk", "inftda_refined", options=(("estimate", "shrunk"),)),
    Variant("auto", "inftda_refined", options=(("estimate", "auto"),)),
    Variant(
        "shrunk, empirical bayes",
        "inftda_refined",
        options=(("estimate", "shrunk"), ("leaves", "empirical_bayes")),
    ),
)

EPSILONS = ("0.1", "1", "10")
DELTA = "1e-8"
NOISE = "table"
METRICS = ("max_abs_error", "mean_abs_error", "false_discovery_rate", "false_negative_rate")

RATES = {"false discoveries": "false_discovery_rate", "false negatives": "false_negative_rate"}

LEGEND = """Ratios of mean errors to those of `paper` at the same epsilon and delta: ! is significantly above 1,
? is not known to be at most 1 (99 % bootstrap interval over the runs). Rates are of the leaves, with those of `paper`
in brackets.
"""

Errors = dict[str, NDArray[np.float64]]
"""Errors of the runs at levels 1 to T for each metric; shape (runs, T)."""


def commuters(name: str, *levels: str) -> Callable[[Path], KnownFlows]:
    """Return a function that reads a table of commuters by area of residence and of work, given its folder."""

    def read(folder: Path) -> KnownFlows:
        flows = pd.read_csv(folder / "flows.csv.gz", dtype={"origin": str, "destination": str})
        geography = Geography.from_frame(read_zones(folder / "zones.csv"), levels)
        return KnownFlows.from_frame(name, "public", flows.rename(columns={"count": "trips"}), geography)

    return read


def taxis(folder: Path) -> KnownFlows:
    """Read taxi trips by zone of pick-up and of drop-off."""
    ends = {"PULocationID": "origin", "DOLocationID": "destination"}
    records = pd.read_csv(folder / "trips.csv.gz", usecols=list(ends), dtype=str).rename(columns=ends)
    levels = ["borough", "service_area", "taxi_zone"]
    geography = Geography.from_frame(read_zones(folder / "zones.csv"), levels=levels)
    return KnownFlows.from_frame("taxis", "public", records, geography)


def education(folder: Path) -> KnownFlows:
    """Read travel to education by area of residence and of study."""
    listed = pd.read_csv(folder / "flows.csv.gz", dtype={"origin": str, "destination": str})
    flows = listed.groupby(["origin", "destination"], as_index=False)["trips"].sum()
    levels, places = ["part", "district", "sa3"], ("latitude", "longitude")
    geography = Geography.from_frame(read_zones(folder / "zones.csv"), levels, coordinates=places)
    return KnownFlows.from_frame("nz_education", "public", flows, geography)


MADE: dict[str, Callable[[bool], KnownFlows]] = {
    "binary": lambda small: KnownFlows.from_synthetic_flows(
        make_binary_flows(SEED, levels=4, trips=5_000) if small else make_binary_flows(SEED)
    ),
    "random": lambda small: KnownFlows.from_synthetic_flows(
        make_random_tree_flows(SEED, levels=2, zones=40, trips=20_000) if small else make_random_tree_flows(SEED)
    ),
    "italy": lambda small: KnownFlows.from_synthetic_flows(make_italy_flows(SEED, scale=0.01 if small else 1.0)),
    "flights": lambda _small: us_flights(FLIGHTS),
}

READ: dict[str, tuple[str, Callable[[Path], KnownFlows]]] = {
    "nz_education": ("nz_education_2018", education),
    "norway": ("norway_commuting_2017", commuters("norway", "landsdel", "fylke", "kommune")),
    "taxis": ("nyc_yellow_taxi", taxis),
    "uk": ("uk_census2011_lad_commute", commuters("uk", "country", "region", "utla", "lad")),
    "us_counties": (
        "us_acs_county_commute_2011_2015",
        commuters("us_counties", "region", "division", "state", "county"),
    ),
}

CASES = (*MADE, *READ)
RUNS = {"italy": 10, "us_counties": 10}
MOST_RUNS = 100


@lru_cache(maxsize=1)
def data_set(case: str, folder: Path | None, *, small: bool) -> KnownFlows:
    """Return the flows of a case, made or read once for all of its variants."""
    if case in MADE or folder is None:
        return MADE[case](small)
    name, read = READ[case]
    return read(folder / name)


def is_there(case: str, folder: Path | None) -> bool:
    """Return whether a case needs no files, or its files are in the folder."""
    return case in MADE or (folder is not None and (folder / READ[case][0]).is_dir())


def planned(variant: Variant, geography: Geography, epsilon: str, area_totals: str | None = None) -> ReleasePlan:
    """Return the plan of a variant; ``area_totals`` is their share of the budget, if they are measured."""
    mechanism = MECHANISMS[variant.mechanism](**dict(variant.options))
    budget = Budget(epsilon, DELTA, conversion=variant.conversion, shares=variant.shares)
    asked: dict[str, Any] = {"unit": PrivacyUnit("trip"), "budget": budget, "mechanism": mechanism}
    return plan_release(geography, **asked, acceptance=NO_FAULTS, area_totals=area_totals)


def errors_of_runs(plan: ReleasePlan, data: KnownFlows, runs: int) -> Errors:
    """Return the errors of several independent releases of a plan. Raises ValueError if n is not kept."""
    noise = resolve_noise_source(NOISE)
    leaves = (run_plan(plan, data.trips, noise, MemoryMeasurements()).leaves for _ in range(runs))
    rows = [errors_by_level(data, table) for table in leaves]
    values = np.array(rows, dtype=np.float64)
    return {metric: values[:, :, number] for number, metric in enumerate(METRICS)}


def errors_by_level(data: KnownFlows, leaves: Nodes) -> list[list[float]]:
    """Return the metrics of a table at levels 1 to T. Raises ValueError if n is not kept."""
    root, *levels = data.truth.compute_errors(leaves)
    if root["max_abs_error"] != 0:
        raise ValueError("the leaves do not sum to n")
    return [[level[metric] for metric in METRICS] for level in levels]


def means(errors: Errors) -> list[dict[str, float]]:
    """Return the mean errors of the runs, one row per level from 1 to T."""
    by_metric = {metric: values.mean(axis=0).tolist() for metric, values in errors.items()}
    rows = zip(*by_metric.values(), strict=True)
    return [{"level": level, **dict(zip(by_metric, row, strict=True))} for level, row in enumerate(rows, start=1)]


def ratios(errors: Errors, reference: Errors) -> dict[str, Any]:
    """Return the ratios of mean errors to those of the reference, of each level and as a mean over the levels."""
    result: dict[str, Any] = {}
    for metric in ("max_abs_error", "mean_abs_error"):
        by_level, over_levels = ratios_of_means(errors[metric], reference[metric])
        result[metric] = [ratio.to_dict() for ratio in by_level]
        result[f"{metric}_over_levels"] = over_levels.to_dict()
    return result


def measured(
    case: str, epsilon: str, data: KnownFlows, runs: int, variants: Sequence[Variant] = VARIANTS
) -> Iterator[dict[str, Any]]:
    """Yield the figures of every variant at one epsilon, with the published algorithm first."""
    reference: Errors = {}
    for variant in variants:
        plan = planned(variant, data.geography, epsilon)
        # Compiles kernels and builds noise tables.
        run_plan(plan, data.trips, resolve_noise_source(NOISE), MemoryMeasurements())
        start = time.perf_counter()
        errors = errors_of_runs(plan, data, runs)
        seconds = (time.perf_counter() - start) / runs
        leaf_error = errors["mean_abs_error"][:, -1].mean() * plan.tree.cells(plan.tree.depth)
        yield {
            "case": case,
            "epsilon": epsilon,
            "variant": variant.name,
            "runs": runs,
            "conversion": plan.conversion,
            "shares": plan.budget.format_shares(plan.mechanism.default_shares),
            "rho": round_up_to_float(plan.spent.rho),
            "seconds_a_run": seconds,
            "total_abs_error_of_leaves": float(leaf_error),
            "levels": means(errors),
            "ratios": ratios(errors, reference) if reference else None,
        }
        reference = reference or errors


def paired(case: str, epsilon: str, data: KnownFlows, runs: int, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the changes of errors from ``refined`` to other tables of the same measurements, with standard errors.

    The names are those of variants with the same steps, or of :data:`benchmarks.rivals.RIVALS`.
    ``largest_error_change`` is the mean over the levels. Other figures are of both, ``refined`` first. Processor time
    is that of all threads, from the measurements to the table.
    """
    by_name = {variant.name: variant for variant in VARIANTS}
    every = ["refined", *names]
    plans = [planned(by_name.get(name, by_name["refined"]), data.geography, epsilon) for name in every]
    rows, seconds = [], []
    for _ in range(runs + 1):
        measured = run_plan(plans[0], data.trips, resolve_noise_source(NOISE), MemoryMeasurements()).measured
        tables, ends = [], [time.process_time()]
        for name, plan in zip(every, plans, strict=True):
            tables.append(estimated(name, plan, data.trips.total, measured))
            ends.append(time.process_time())
        rows.append([errors_by_level(data, leaves) for leaves in tables])
        seconds.append(np.diff(ends))
    errors = np.array(rows[1:], dtype=np.float64)  # run, table, level, metric; the first run compiles kernels
    mean, spent = errors.mean(axis=0), np.mean(seconds[1:], axis=0)
    totals = mean[:, -1, METRICS.index("mean_abs_error")] * plans[0].tree.cells(plans[0].tree.depth)
    for number, name in enumerate(names, start=1):
        change = (errors[:, number] - errors[:, 0]) / np.maximum(mean[0], np.finfo(float).tiny)
        figures = {"largest_error_change": change[:, :, 0].mean(axis=1), "leaf_error_change": change[:, -1, 1]}
        yield {
            "case": case,
            "epsilon": epsilon,
            "variant": name,
            "runs": runs,
            **{title: float(each.mean()) for title, each in figures.items()},
            **{
                f"{title}_standard_error": float(each.std() / max(1, runs - 1) ** 0.5)
                for title, each in figures.items()
            },
            "largest_error_change_by_level": change[:, :, 0].mean(axis=0).tolist(),
            **{rate: mean[[0, number], -1, METRICS.index(rate)].tolist() for rate in RATES.values()},
            "total_abs_error_of_leaves": totals[[0, number]].tolist(),
            "processor_seconds": spent[[0, number]].tolist(),
        }


def estimated(name: str, plan: ReleasePlan, total: int, measured: Sequence[Measurement]) -> Nodes:
    """Return the leaves with trips by a variant that refines, whose plan is given, or by a rival."""
    if name not in RIVALS:
        return refine(plan, make_published_root(plan, total), measured)[0][-1]
    levels = build_measured_levels(plan, total, measured)
    return select_nodes_with_trips(levels[-1].nodes, RIVALS[name](levels)[-1])


def paired_lines(rows: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the lines of a table of the figures of :func:`paired`."""
    lines = []
    for row in rows:
        line = {"data set": row["case"], "epsilon": row["epsilon"], "table": row["variant"]}
        for heading, name in (("total error of the leaves", "leaf_error"), ("max error", "largest_error")):
            error = 2 * row[f"{name}_change_standard_error"]
            line[heading] = f"{row[f'{name}_change']:+.1%} ({100 * error:.1f})"
        line |= {heading: " → ".join(f"{each:.1%}" for each in row[rate]) for heading, rate in RATES.items()}
        line["processor seconds"] = " → ".join(f"{each:.2g}" for each in row["processor_seconds"])
        lines.append(line)
    return lines


def summary(row: dict[str, Any], paper: dict[str, Any]) -> dict[str, str]:
    """Return one line of a table: ratios to the errors of ``paper``, and rates of the leaves for both."""
    leaves, paper_leaves = row["levels"][-1], paper["levels"][-1]
    by_level = row["ratios"]["max_abs_error"]
    return {
        "data set": row["case"],
        "variant": row["variant"],
        "max error": _text(row["ratios"]["max_abs_error_over_levels"]),
        "max error by level": " ".join(map(_text, by_level)),
        "total error of the leaves": _text(row["ratios"]["mean_abs_error"][-1]),
        **{heading: f"{leaves[rate]:.1%} ({paper_leaves[rate]:.1%})" for heading, rate in RATES.items()},
    }


def _text(ratio: dict[str, Any]) -> str:
    """Return the ratio, marked ``!`` if it is significantly above 1, or ``?`` if the runs do not decide."""
    if ratio["ratio"] is None:
        return "-"
    mark = {NOT_ABOVE: "", ABOVE: "!"}.get(ratio["verdict"], "?")
    return f"{ratio['ratio']:.2f}{mark}"


def summaries(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, str]]]:
    """Return the lines of every epsilon, by data set and variant, without ``paper``, whose ratios are all 1."""
    papers = {(row["case"], row["epsilon"]): row for row in rows if row["variant"] == PAPER.name}
    tables: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        if row["variant"] != PAPER.name:
            lines = tables.setdefault(f"epsilon {row['epsilon']}", [])
            lines.append(summary(row, papers[row["case"], row["epsilon"]]))
    return tables


def markdown(rows: Sequence[dict[str, Any]], skipped: Sequence[str] = ()) -> str:
    """Return one table per epsilon, and what was skipped."""
    text = [LEGEND]
    for title, lines in summaries(rows).items():
        text += [f"### {title}", "", *markdown_table(lines)]
    text += [f"Skipped: {'; '.join(skipped)}."] if skipped else []
    return "\n".join(text)


def gains(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per quantity and level of every variant, as in ``estimator-gains.csv``."""
    found = []

    def add(row: dict[str, Any], quantity: str, level: int | str, value: str, verdict: str = "") -> None:
        known = {"data_set": row["case"], "epsilon": row["epsilon"], "variant": row["variant"]}
        found.append(known | {"quantity": quantity, "level": level, "value": value, "verdict": verdict})

    for row in rows:
        if row["ratios"]:
            errors = row["ratios"]["max_abs_error"]
            compared = [("max_error_ratio", "mean", row["ratios"]["max_abs_error_over_levels"])]
            compared += [("max_error_ratio", str(level), ratio) for level, ratio in enumerate(errors, start=1)]
            compared.append(("total_error_ratio", "leaves", row["ratios"]["mean_abs_error"][-1]))
            for quantity, level, ratio in compared:
                value = "" if ratio["ratio"] is None else f"{ratio['ratio']:.2f}"
                add(row, quantity, level, value, ratio["verdict"])
        for heading, rate in RATES.items():
            percent = f"{100 * row['levels'][-1][rate]:.1f}"
            add(row, f"{heading.replace(' ', '_')}_percent", "leaves", percent)
    return found


def published_methods(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the figures of :func:`paired`, as in ``estimator-published-methods.csv``."""
    lines = []
    for row in rows:
        line = {"data_set": row["case"], "epsilon": row["epsilon"], "variant": row["variant"]}
        for heading, name in (("total_error", "leaf_error"), ("max_error", "largest_error")):
            line[f"{heading}_change_percent"] = f"{100 * row[f'{name}_change']:.1f}"
            line[f"{heading}_two_standard_errors_points"] = f"{200 * row[f'{name}_change_standard_error']:.1f}"
        for heading, rate in RATES.items():
            name = f"{heading.replace(' ', '_')}_percent"
            line[f"refined_{name}"], line[name] = (f"{100 * each:.1f}" for each in row[rate])
        name = "processor_seconds"
        line[f"refined_{name}"], line[name] = map(csv_figure, row[name])
        lines.append(line)
    return lines


def main() -> None:
    """Release every data set with every variant and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--markdown", action="store_true", help="print one Markdown table an epsilon")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="write the figures to a CSV file in this folder")
    parser.add_argument("--small", action="store_true", help="small data and few runs, to see that it runs")
    parser.add_argument("--case", nargs="+", choices=CASES, default=CASES, metavar="NAME", help=", ".join(CASES))
    names = [variant.name for variant in VARIANTS]
    parser.add_argument("--variant", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument(
        "--paired",
        nargs="+",
        choices=["shrunk", "auto", *RIVALS],
        help="tables to compare with that of refined from the same measurements",
    )
    parser.add_argument("--epsilon", nargs="+", default=EPSILONS)
    parser.add_argument(
        "--runs", type=int, help=f"of each variant, instead of {MOST_RUNS} (Italy and US counties: {RUNS['italy']})"
    )
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="folder of the data sets of READ")
    options = parser.parse_args()
    cases = [case for case in options.case if is_there(case, options.data)]
    variants = [variant for variant in VARIANTS if variant == PAPER or variant.name in options.variant]
    if options.paired:
        compared = [
            row
            for case, epsilon in steps(list(product(cases, options.epsilon)), "estimator")
            for row in paired(
                case, epsilon, data_set(case, options.data, small=options.small), options.runs or 20, options.paired
            )
        ]
        if options.csv:
            write_csv(options.csv / "estimator-published-methods.csv", published_methods(compared))
        if options.markdown:
            print("\n".join(markdown_table(paired_lines(compared))))
        else:
            printed({"machine": machine(), "delta": DELTA, "noise": NOISE, "paired": compared}, as_json=options.json)
        return
    rows: list[dict[str, Any]] = []
    for case, epsilon in steps(list(product(cases, options.epsilon)), "estimator"):
        runs = options.runs or (3 if options.small else RUNS.get(case, MOST_RUNS))
        rows += measured(case, epsilon, data_set(case, options.data, small=options.small), runs, variants)
    skipped = [f"{case}, whose files are not in --data" for case in options.case if case not in cases]
    if options.csv:
        write_csv(options.csv / "estimator-gains.csv", gains(rows))
    if options.markdown:
        print(markdown(rows, skipped))
        return
    results: dict[str, Any] = {"machine": machine(), "delta": DELTA, "noise": NOISE, "skipped": skipped}
    results["peak_memory_gigabytes"] = read_peak_memory_gigabytes()
    printed(results | ({"cases": rows} if options.json else summaries(rows)), as_json=options.json)


if __name__ == "__main__":
    main()
