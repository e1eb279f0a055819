"""Measure how often the intervals of numbers that are read because they were published above 0 contain the truth.

    python -m benchmarks.selected --data FOLDER --csv docs/reference/tables
    python -m benchmarks.selected --case flights --variant least_squares auto --epsilon 1 --runs 20 --markdown

Figures are of the published numbers above 0 at all pairs of levels, and of lists of the largest: flows between
different zones, changes, and indicators. ``before`` are intervals of numbers that were chosen before the release.

Every run is an independent draw of the certified noise, without a seed. The flights are compared with those of April.
Other flows are compared with made-up ones of a later period, and all are with another release of the same flows, of
which every change is noise. Norway, the United Kingdom, the taxis, three divisions of the United States (498 of 3,142
counties) and New Zealand are read from the subfolders of FOLDER.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from benchmarks import segments
from benchmarks.estimator import EPSILONS, NOISE, READ, data_set
from benchmarks.flights import FLIGHTS
from benchmarks.measuring import machine, printed, read_again, steps
from benchmarks.tables import markdown_table, write_csv
from od_core import Budget, Geography, PrivacyUnit, Release, ReleasePlan, plan_release
from od_core.evaluation.known_flows import SEED, KnownFlows
from od_core.evaluation.metrics import make_leaf_nodes, tabulate_trips_by_category
from od_core.flows.arrays import Integers
from od_core.flows.estimation.fitted_tree import Estimates, find_pairs
from od_core.flows.estimation.intervals import compute_bounds, fill_pairs_if_few
from od_core.flows.indicators import indicators
from od_core.flows.mechanisms import InfTDARefined
from od_core.flows.publishing.changes import changes, compute_table_changes
from od_core.flows.release import run_plan
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Numbers
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counting import count_trips
from od_core.records.counts import TripCounts
from od_core.records.zone_lists import read_zones

CASES = ("flights", "norway", "uk", "taxis", "us_divisions")
VARIANTS = {
    "least_squares": CASES,
    "auto": CASES[:3],
    "bounded": CASES[:3],
    "area_totals": CASES[:3],
    "segments": ("flights", "taxis"),
}
"""The cases of each variant."""

DELTAS = {"unbounded": "1e-6", "bounded": "1e-8"}
AREA_TOTALS = "1/10"
EARLIER_FLIGHTS = "2001-04"
DIVISIONS = ("New England", "Middle Atlantic", "Mountain")
CHANGE = 0.2
"""Standard deviation of the logarithm of the growth of made-up flows of a later period, which are Poisson."""

SIZES = (0, 1, 2, 4, 8, 16)
"""Least published size of each class, in standard deviations of the estimate."""

PUBLISHED_AS_NONE, EXACT = -2, -1
"""Classes of numbers that were published as 0, and of larger ones that are known exactly."""

LEAST_NUMBERS = 300
"""Least number of published numbers of a class, or of a pair of levels, for which its share is compared."""

LARGEST, AREAS = 100, 24
"""Numbers of flows and of changes, and of areas by outflow and by inflow, in lists of the largest."""

Pair = tuple[Numbers, Numbers]
"""Origins and destinations of cells."""


@dataclass(frozen=True)
class Known:
    """Public flows of a period and of another one, with the name of a breakdown if they are by category.

    Attributes:
        was: flows of an earlier or made-up later period; None if flows are by category.
    """

    tree: FlowTree
    trips: TripCounts
    was: TripCounts | None = None
    categories: tuple[str, ...] = ()
    segment: str | None = None

    @property
    def leaf_pair(self) -> tuple[str, str]:
        """The names of the levels of the zones."""
        return self.tree.level_names[-1]

    def cells(self, levels: tuple[int, int], counts: TripCounts | None = None) -> tuple[Numbers, Numbers, Integers]:
        """Return all public pairs of two levels with their true trips; shape (pairs,), or (pairs, categories)."""
        counts = self.trips if counts is None else counts
        leaves = make_leaf_nodes(self.tree, counts)
        values = leaves.trips if self.segment is None else tabulate_trips_by_category(counts, self.segment)
        origin, destination, trips = self.tree.sum_values(leaves, values, *levels)
        return fill_pairs_if_few(self.tree, *levels, origin, destination, trips)


@lru_cache(maxsize=1)
def known(case: str, folder: Path | None, *, by_category: bool, small: bool) -> Known:
    """Return the flows of a case."""
    if by_category:
        data = segments.DATA["us_flights" if case == "flights" else case](folder and folder / READ.get(case, [""])[0])
        tree, one_row_a_trip = FlowTree(data.geography, data.geography), "trips" not in data.trips
        counts = count_trips(data.trips, tree, breakdowns=[data.breakdown], one_row_a_trip=one_row_a_trip)
        return Known(tree, counts, categories=tuple(data.breakdown.categories), segment=data.breakdown.name)
    flows = three_divisions(folder) if case == "us_divisions" and folder else data_set(case, folder, small=small)
    if case != "flights":
        return Known(flows.tree, flows.trips, changed(flows.trips))
    file = FLIGHTS / f"{EARLIER_FLIGHTS}.parquet"
    april = KnownFlows.from_frame(EARLIER_FLIGHTS, "public", file, flows.geography, one_row_a_trip=True)
    return Known(flows.tree, flows.trips, april.trips)


def three_divisions(folder: Path) -> KnownFlows:
    """Read commuters within and between three divisions of the United States by county."""
    files, ends = folder / READ["us_counties"][0], ["origin", "destination"]
    zones, flows = read_zones(files / "zones.csv"), pd.read_csv(files / "flows.csv.gz", dtype=dict.fromkeys(ends, str))
    zones = zones[zones["division"].isin(DIVISIONS)]
    flows = flows[flows[ends].isin(set(zones["county"])).all(axis=1)].rename(columns={"count": "trips"})
    geography = Geography.from_frame(zones, ("region", "division", "state", "county"))
    return KnownFlows.from_frame("us_divisions", "public", flows, geography)


def changed(counts: TripCounts) -> TripCounts:
    """Return made-up trips of a later period between the same zones: the same for the same trips."""
    generator, trips = np.random.default_rng(SEED), np.diff(counts.before)
    growth = np.exp(CHANGE * generator.standard_normal(len(trips)))
    return TripCounts.from_ranks(counts.rank, generator.poisson(trips * growth).astype(np.int64))


def planned(variant: str, epsilon: str, flows: Known) -> ReleasePlan:
    """Return the plan of a variant."""
    neighbours: Literal["bounded", "unbounded"] = "bounded" if variant == "bounded" else "unbounded"
    return plan_release(
        flows.tree.origin,
        unit=PrivacyUnit("trip", neighbours),
        budget=Budget(epsilon, DELTAS[neighbours]),
        mechanism=InfTDARefined(estimate="auto") if variant == "auto" else InfTDARefined(),
        acceptance=NO_FAULTS,
        area_totals=AREA_TOTALS if variant == "area_totals" else None,
        segments=None if flows.segment is None else {flows.segment: flows.categories},
    )


def estimated(release: Release, levels: tuple[int, int], segment: str | None, cells: Pair) -> list[Estimates]:
    """Return the unbiased estimates of cells, of each category in turn if there are any."""
    if segment is not None:
        return release.fit_segment(segment).estimate_cells(*levels, *cells)
    fit = release.fitted
    origins, destinations, estimates = fit.estimate_cells_with_totals(*levels)
    place = find_pairs(origins, destinations, *cells, release.tree.destination.size(levels[1]))
    return [fit.take_estimates(levels, *cells, place, estimates)]


def of_levels(release: Release, flows: Known) -> Iterator[pd.DataFrame]:
    """Yield, for each pair of levels and class of published size, sums over its numbers: how many, held, and widths."""
    depth, names = flows.tree.origin.depth, flows.tree.origin.level_names
    for o_level, d_level in product(range(depth + 1), repeat=2):
        levels, pair = (o_level, d_level), (names[o_level], names[d_level])
        *cells, true = flows.cells(levels)
        table = release.flows_at(*pair, segment=flows.segment, interval=True).assign(true=true.ravel())
        estimates = estimated(release, levels, flows.segment, (cells[0], cells[1]))
        chosen_before = np.stack([compute_bounds(each)[0] for each in estimates], axis=1).ravel()
        deviation = np.sqrt(np.stack([each.variance for each in estimates], axis=1)).ravel()
        trips, is_known = table["trips"].to_numpy(), deviation == 0
        deviation[is_known] = np.inf
        size = np.searchsorted(SIZES, trips / deviation, side="right") - 1
        sums: dict[str, Any] = {
            "pair": " to ".join(pair),
            "size": np.where(trips == 0, PUBLISHED_AS_NONE, np.where(is_known, EXACT, size)),
            "numbers": 1,
        }
        for name, lower in (("_before", np.minimum(chosen_before, trips)), ("", table["lower"])):
            interval = table.assign(lower=lower)
            sums[f"held{name}"] = held(interval)
            sums[f"width{name}"] = (interval["upper"] - interval["lower"]) / deviation
        yield pd.DataFrame(sums).groupby(["pair", "size"], as_index=False).sum()


def held(table: pd.DataFrame, number: str = "") -> pd.Series[bool]:
    """Return whether intervals contain the numbers in the column ``true``; ``number`` begins the names of the ends."""
    return (table[f"{number}lower"] <= table["true"]) & (table["true"] <= table[f"{number}upper"])


def of_lists(release: Release, other: Release | None, was: Release | None, flows: Known) -> dict[str, float]:
    """Return the shares of intervals that contain the truth, of lists of the largest.

    ``other`` is another release of the same flows, and ``was`` one of another period.
    """
    pair, keys = flows.leaf_pair, ["origin", "destination", *([] if flows.segment is None else [flows.segment])]
    levels = flows.tree.origin.depth, flows.tree.destination.depth
    true, found = flows.cells(levels)[2].ravel(), dict[str, float]()
    asked: dict[str, Any] = {"segment": flows.segment, "interval": True}
    for name, selected in (("_before", False), ("", True)):
        now = release.flows_at(*pair, **asked, selected=selected).assign(true=true)
        apart = now[now["origin"] != now["destination"]]
        found[f"flows{name}"] = held(apart.nlargest(LARGEST, "trips")).mean()
        for title, old, old_true in (
            ("unchanged", other, true),
            ("changes", was, None if flows.was is None else flows.cells(levels, flows.was)[2].ravel()),
        ):
            if old is not None and old_true is not None:
                before = old.flows_at(*pair, **asked, selected=False)
                table = (
                    compute_table_changes(before, now, keys) if name else changes(old, release, *pair, flows.segment)
                )
                known_change = now[keys].assign(true=true - old_true)
                found[f"{title}{name}"] = held(table.head(LARGEST).merge(known_change, on=keys)).mean()
    if flows.segment is None:
        zones, truth = [pair[0]], replace(release, leaves=make_leaf_nodes(flows.tree, flows.trips))
        own, right = indicators(release, zones), indicators(truth, zones, interval=False)
        lists = [held(own.assign(true=right[name]).nlargest(AREAS, name), f"{name}_") for name in ("outflow", "inflow")]
        found["indicators"] = pd.concat(lists).mean()
    return found


def measured(case: str, variant: str, epsilon: str, flows: Known, runs: int) -> list[dict[str, Any]]:
    """Return the figures of several releases of a case: of all pairs of levels, and of zones, with the lists."""
    plan, noise = planned(variant, epsilon, flows), resolve_noise_source(NOISE)
    tables: list[pd.DataFrame] = []
    lists: list[dict[str, float]] = []
    other = None
    for _ in range(runs):
        release = run_plan(plan, flows.trips, noise, MemoryMeasurements())
        was = None if flows.was is None else run_plan(plan, flows.was, noise, MemoryMeasurements())
        tables += of_levels(release, flows)
        lists.append(of_lists(release, other, was, flows))
        other = release
    means = {f"largest_{name}": float(value) for name, value in pd.DataFrame(lists).mean().items()}
    known = {"data_set": case, "variant": variant, "epsilon": epsilon, "runs": runs}
    cells = pd.concat(tables)
    of_zones = cells[cells["pair"] == " to ".join(flows.leaf_pair)]
    return [
        known | {"levels": "all pairs"} | of_published(cells),
        known | {"levels": "zones"} | of_published(of_zones) | means,
    ]


def of_published(cells: pd.DataFrame) -> dict[str, Any]:
    """Return shares of intervals that contain the truth, and mean widths in standard deviations."""
    names = ["numbers", "held_before", "held", "width_before", "width"]
    published = cells[cells["size"] > PUBLISHED_AS_NONE]
    known, whole = published[published["size"] > EXACT], published[names].sum()
    by_pair, by_size = (_many(table.groupby(by)[names].sum()) for table, by in ((published, "pair"), (known, "size")))
    of_sizes = known[names].sum()
    return {
        "published": whole["numbers"] / cells["numbers"].sum(),
        "held_before": whole["held_before"] / whole["numbers"],
        "held": whole["held"] / whole["numbers"],
        "least_of_pairs_before": _least(by_pair["held_before"]),
        "least_of_pairs": _least(by_pair["held"]),
        "least_of_sizes_before": _least(by_size["held_before"]),
        "least_of_sizes": _least(by_size["held"]),
        "of_all_cells": cells["held"].sum() / cells["numbers"].sum(),
        "width_before": of_sizes["width_before"] / of_sizes["numbers"],
        "width": of_sizes["width"] / of_sizes["numbers"],
        "pairs": by_pair.to_dict("index"),
        "sizes": by_size.rename(index=dict(enumerate(map(str, SIZES)))).to_dict("index"),
    }


def _many(sums: pd.DataFrame) -> pd.DataFrame:
    """Return the shares and the mean widths of those classes with enough numbers, from sums over their numbers."""
    many = sums[sums["numbers"] >= LEAST_NUMBERS]
    return many.div(many["numbers"], axis=0).assign(numbers=many["numbers"])


def _least(shares: pd.Series[float]) -> float | None:
    return None if shares.empty else float(shares.min())


LISTS = ("flows", "changes", "unchanged")


def csv_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the figures as in ``uncertainty-selected.csv``."""

    def percent(row: dict[str, Any], name: str) -> str:
        return "" if row.get(name) is None else f"{100 * row[name]:.1f}"

    shares = {
        "published_percent": "published",
        "before_percent": "held_before",
        "percent": "held",
        "least_pair_of_levels_percent": "least_of_pairs",
        "least_size_before_percent": "least_of_sizes_before",
        "least_size_percent": "least_of_sizes",
        "all_cells_percent": "of_all_cells",
    }
    lists = {f"largest_{name}{when}_percent": f"largest_{name}{when}" for name in LISTS for when in ("_before", "")} | {
        "largest_indicators_percent": "largest_indicators"
    }
    return [
        {name: row[name] for name in ("data_set", "variant", "epsilon", "runs", "levels")}
        | {column: percent(row, name) for column, name in shares.items()}
        | {f"{name}_deviations": f"{row[name]:.2f}" for name in ("width_before", "width")}
        | {"width_ratio": f"{row['width'] / row['width_before']:.3f}"}
        | {column: percent(row, name) for column, name in lists.items()}
        for row in rows
    ]


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return a table of the main figures: of zones, and in brackets of all pairs of levels."""
    figures, lines = csv_rows(rows), []
    for every, zones in zip(figures[::2], figures[1::2], strict=True):
        shown = ("before_percent", "percent", "least_size_before_percent", "least_size_percent")
        line = {"case": zones["data_set"].replace("_", " ") + _also(zones["variant"]), "epsilon": zones["epsilon"]}
        for name, title in zip(shown, ("before", "now", "least class, before", "now "), strict=True):
            line[title] = f"{zones[name] or '-'} ({every[name] or '-'})"
        lines.append(line | {"width": f"{zones['width_ratio']} ({every['width_ratio']})"})
    return "\n".join(markdown_table(lines))


def _also(variant: str) -> str:
    return "" if variant == "least_squares" else f", {variant.replace('_', ' ')}"


def main() -> None:
    """Measure every case and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--read", nargs="+", type=Path, help="JSON results to read again, for --markdown and --csv")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="write uncertainty-selected.csv in this folder")
    parser.add_argument("--small", action="store_true", help="small data and two runs, to see that it runs")
    parser.add_argument("--case", nargs="+", choices=CASES, default=CASES, metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--variant", nargs="+", choices=VARIANTS, default=VARIANTS, metavar="NAME")
    parser.add_argument("--epsilon", nargs="+", default=EPSILONS)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="folder of the data sets")
    options = parser.parse_args()
    results: dict[str, Any] = {"machine": machine(), "deltas": DELTAS, "noise": NOISE}
    results |= read_again(options.read, ["cases"]) if options.read else {"cases": measured_cases(options)}
    if options.csv:
        write_csv(options.csv / "uncertainty-selected.csv", csv_rows(results["cases"]))
    if options.markdown:
        print(markdown(results["cases"]))
        return
    printed(results if options.json else results | {"cases": csv_rows(results["cases"])}, as_json=options.json)


def measured_cases(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the figures of the chosen cases, variants and values of epsilon."""
    asked = [
        (case, variant)
        for case, variant in product(options.case, options.variant)
        if case in VARIANTS[variant] and (case == "flights" or options.data)
    ]
    if options.small:
        asked = [("synthetic" if variant == "segments" else "binary", variant) for variant in options.variant]
    rows = []
    for (case, variant), epsilon in steps(list(product(asked, options.epsilon)), "selected"):
        flows = known(case, options.data, by_category=variant == "segments", small=options.small)
        rows += measured(case, variant, epsilon, flows, 2 if options.small else options.runs)
    return rows


if __name__ == "__main__":
    main()
