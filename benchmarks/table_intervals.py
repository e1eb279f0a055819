"""Measure how often the 90 % intervals of group sizes and of boxes hold the truth, on flights and on synthetic data.

    python -m benchmarks.table_intervals --markdown
    python -m benchmarks.table_intervals --case households --epsilon 1 --runs 20 --json
    python -m benchmarks.table_intervals --case flights gaussian --csv docs/reference/tables

Every run is an independent release with certified noise. The true numbers are public or synthetic. Of group sizes, a
row has one level: the coverage of the numbers of groups of at most each size (apart from each other, the true numbers
that are 0 or all groups of the area) and of the numbers of members, with the mean widths of the intervals. Of boxes, a
row has one class of true numbers of trips, or those that were published above 0; ``before`` are intervals of boxes that
were chosen before the release.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.group_sizes import data_set, planned
from benchmarks.measuring import machine, printed, read_again, steps
from benchmarks.stops import CASES as POINTS
from benchmarks.synthetic_groups import KnownGroups
from benchmarks.synthetic_stops import KnownPoints
from benchmarks.tables import csv_figure, markdown_table, write_csv
from od_core import Budget, PrivacyUnit
from od_core.group_sizes import release as group_sizes
from od_core.group_sizes.groups import Counts, Frame
from od_core.group_sizes.intervals import list_interval_sizes
from od_core.group_sizes.mechanisms import MECHANISMS
from od_core.group_sizes.release import GroupSizeRelease, iterate_true_values
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source
from od_core.stops import release as stops
from od_core.stops.geometry import count_trips_by_cell
from od_core.stops.plan import plan_stops
from od_core.stops.release import StopsRelease, count_trips_in_ranges
from od_core.stops.trajectories import Trajectories

GROUPS = ("flights 2001-06", "households")
BOXES = {"flights": "flights, 4 dimensions", "gaussian": "gaussian 0.05, 2 dimensions"}
MEASURED = {
    "bottom_up_posterior, cumulative": ("bottom_up_posterior", {"leaf": "cumulative"}),
    "bottom_up_posterior, sizes": ("bottom_up_posterior", {"leaf": "sizes"}),
    "cumulative": ("cumulative", {}),
    "sizes_posterior": ("sizes_posterior", {}),
    "naive": ("naive", {}),
}
"""Mechanisms that differ in what they measure, and at which levels."""

TREES = ("privtree", "daf_entropy", "daf_homogeneity", "eug")
CLASSES = (0, 1, 10, 100)
"""Least true number of trips of each class of boxes."""

PUBLISHED = -1
"""In place of a class: boxes of any, whose published counts are above 0."""

CLASS_NAMES = {0: "0", 1: "1 to 9", 10: "10 to 99", 100: "100 or more", PUBLISHED: "published above 0"}

LEAST_NUMBERS = 1_000
"""Least number of areas in all runs together for which the Markdown table has the coverage of members."""

NOISE = "table"


def true_histograms(frame: Frame, data: KnownGroups, level: int) -> Counts:
    """Return the true histograms of a level; level 0 is the whole space. The result is confidential."""
    of_leaves = np.concatenate(list(iterate_true_values(frame, "histogram", frame.geography.depth, data.groups)))
    return frame.sum_at_level(of_leaves.reshape(len(frame.groups), -1), level)


def covered_groups(release: GroupSizeRelease, histograms: list[Counts]) -> list[dict[str, Any]]:
    """Return the coverage and the widths of the intervals of each level of a release, the whole space first."""
    frame, rows = release.frame, []
    sizes = list_interval_sizes(frame.top_code)
    for level, true in enumerate(histograms):
        at_most, members = np.cumsum(true, axis=1)[:, sizes], true @ np.arange(frame.top_code + 1)
        groups = true.sum(axis=1, keepdims=True)
        inner = (at_most > 0) & (at_most < groups)
        _, lower, upper = release.bound_groups_at_most(level, sizes)
        _, least, most = release.bound_members(level)
        held = (lower <= at_most) & (at_most <= upper)
        not_widened = release.make_noisy_groups(level).bound_cumulative_counts(sizes)
        held_before = (not_widened[0] <= at_most) & (at_most <= not_widened[1])
        rows.append(
            {
                "level": frame.geography.level_names[level],
                "areas": len(members),
                "groups": held[inner].mean() if inner.any() else None,
                "before_widening": held_before[inner].mean() if inner.any() else None,
                "none_or_all": held[~inner].mean() if not inner.all() else None,
                "width": (upper - lower)[inner].mean() if inner.any() else None,
                "of_groups": float(groups.mean()),
                "members": ((least <= members) & (members <= most)).mean(),
                "width_of_members": (most - least).mean(),
                "of_members": float(members.mean()),
            }
        )
    return rows


def group_size_coverage(data: KnownGroups, measured: str, epsilon: str, runs: int) -> pd.DataFrame:
    """Return the mean coverage and widths over several releases by a mechanism of ``MEASURED``, one row per level."""
    name, options = MEASURED[measured]
    plan = planned(data, MECHANISMS.make(name, **options), epsilon)
    true = [true_histograms(plan.frame, data, level) for level in range(data.geography.depth + 1)]
    rows = []
    for _ in steps(range(runs), f"{data.name}, {measured}"):
        release = group_sizes.run_plan(plan, data.groups, resolve_noise_source(NOISE), MemoryMeasurements())
        rows += covered_groups(release, true)
    return pd.DataFrame(rows).groupby("level", sort=False).mean().reset_index()


def covered_boxes(release: StopsRelease, data: KnownPoints) -> pd.DataFrame:
    """Return, for each box of a release, its true number of trips, whether its interval holds it, and its width.

    ``published`` says whether its count is above 0. ``before`` are intervals that do not allow for this selection.
    """
    boxes = release.measured
    cells = count_trips_by_cell(data.points, data.grid)
    ranges = np.stack([boxes.lower, boxes.upper], axis=2).astype(np.int64)
    true = count_trips_in_ranges(cells, ranges)
    columns = {"true": true, "published": release.counts > 0}
    for name, of in (("_before", replace(release, selected=False)), ("", release)):
        lower, upper = of.intervals
        columns |= {f"held{name}": (lower <= true) & (true <= upper), f"width{name}": upper - lower}
    return pd.DataFrame(columns)


def box_coverage(data: KnownPoints, mechanism: str, epsilon: str, runs: int) -> pd.DataFrame:
    """Return the mean coverage and widths over several releases, one row per class of true numbers of trips.

    A further row has the boxes of all classes that were published above 0.
    """
    plan = plan_stops(
        data.grid, unit=PrivacyUnit("trip", "unbounded"), budget=Budget(epsilon=epsilon), mechanism=mechanism
    )
    trips = Trajectories(data.points, data.grid)
    tables = []
    for _ in steps(range(runs), f"{data.name}, {mechanism}"):
        release = stops.run_plan(plan, trips, resolve_noise_source(NOISE), MemoryMeasurements())
        tables.append(covered_boxes(release, data))
    table = pd.concat(tables)
    table["least_trips"] = np.array(CLASSES)[np.searchsorted(CLASSES, table["true"], side="right") - 1]
    published = table[table["published"]].assign(least_trips=PUBLISHED)
    names = ["held_before", "held", "width_before", "width"]
    by_class = pd.concat([table, published]).groupby("least_trips")[names]
    return by_class.mean().join(by_class.size().rename("boxes")).reset_index()


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as dictionaries, for JSON."""
    rows: list[dict[str, Any]] = json.loads(table.to_json(orient="records"))
    return rows


def measured(options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of all chosen cases, mechanisms and values of epsilon, by kind of release."""
    runs = 1 if options.small else options.runs
    groups: list[dict[str, Any]] = []
    boxes: list[dict[str, Any]] = []
    for epsilon in options.epsilon:
        for case in (name for name in GROUPS if name in options.case):
            data = data_set(case, small=options.small)
            for name in MEASURED:
                table = group_size_coverage(data, name, epsilon, runs)
                groups += records(table.assign(case=case, measured=name, epsilon=epsilon, runs=runs))
        for case in (name for name in BOXES if name in options.case):
            points = POINTS[BOXES[case]](small=options.small)
            for name in TREES:
                table = box_coverage(points, name, epsilon, runs)
                boxes += records(table.assign(case=case, mechanism=name, epsilon=epsilon))
    return {"group_sizes": groups, "boxes": boxes}


def _range(shares: Iterable[float | None]) -> str:
    """Return the least and the largest of some shares, in percent."""
    known = [share for share in shares if share is not None]
    return f"{min(known):.1%} to {max(known):.1%}" if known else "-"


def _widths(levels: Sequence[dict[str, Any]], width: str, whole: str) -> str:
    """Return the mean widths of the whole space and of the leaf areas, as shares of the true numbers."""
    shares = [row[width] / row[whole] for row in (levels[0], levels[-1])]
    return ", ".join(f"{share:.2g}" for share in shares)


def markdown(results: dict[str, list[dict[str, Any]]]) -> str:
    """Return the results as two Markdown tables. Of group sizes, a row has all levels."""
    of_case = groupby(results["group_sizes"], key=itemgetter("case", "epsilon", "measured"))
    group_rows = []
    for (case, epsilon, mechanism), rows in of_case:
        levels = list(rows)
        group_rows.append(
            {
                "data": case,
                "epsilon": epsilon,
                "mechanism": mechanism,
                "groups of at most a size": _range(row["groups"] for row in levels),
                "before it is widened": _range(row["before_widening"] for row in levels),
                "true number 0 or all": _range(row["none_or_all"] for row in levels),
                "width": _widths(levels, "width", "of_groups"),
                "members": _range(row["members"] for row in levels if row["areas"] * row["runs"] >= LEAST_NUMBERS),
                "width of members": _widths(levels, "width_of_members", "of_members"),
            }
        )
    cases: dict[tuple[str, ...], dict[str, str]] = {}
    for row in results["boxes"]:
        of = {"data": row["case"], "epsilon": row["epsilon"], "mechanism": row["mechanism"]}
        line = cases.setdefault(tuple(of.values()), of | dict.fromkeys(CLASS_NAMES.values(), "-"))
        before = f"{row['held_before']:.1%} → " if row["least_trips"] == PUBLISHED else ""
        line[CLASS_NAMES[row["least_trips"]]] = f"{before}{row['held']:.1%} ({row['width']:,.0f})"
    return "\n".join(line for rows in (group_rows, [*cases.values()]) if rows for line in markdown_table(rows))


def csv_rows(boxes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the figures of boxes as in ``uncertainty-boxes.csv``."""
    return [
        {
            "data": row["case"],
            "epsilon": row["epsilon"],
            "mechanism": row["mechanism"],
            "trips": ("true " if row["least_trips"] != PUBLISHED else "") + CLASS_NAMES[row["least_trips"]],
            "before_percent": f"{100 * row['held_before']:.1f}",
            "percent": f"{100 * row['held']:.1f}",
            "mean_width_before": csv_figure(row["width_before"]),
            "mean_width": csv_figure(row["width"]),
        }
        for row in boxes
    ]


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--read", nargs="+", type=Path, help="JSON results to read again, for --markdown")
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="write uncertainty-boxes.csv in this folder")
    parser.add_argument("--small", action="store_true", help="small data and one run, to see that it runs")
    parser.add_argument("--case", nargs="+", choices=(*GROUPS, *BOXES), default=(*GROUPS, *BOXES), metavar="NAME")
    parser.add_argument("--epsilon", nargs="+", default=["0.1", "1"])
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    results = read_again(options.read, ("group_sizes", "boxes")) if options.read else measured(options)
    if options.csv:
        write_csv(options.csv / "uncertainty-boxes.csv", csv_rows(results["boxes"]))
    if options.markdown:
        print(markdown(results))
        return
    printed({"machine": machine(), "runs": options.runs, "noise": NOISE, **results}, as_json=options.json)


if __name__ == "__main__":
    main()
