"""Compare tables from the same measurements at equal shares of false discoveries.

    python -m benchmarks.false_discoveries --case norway taxis uk flights --data FOLDER
    python -m benchmarks.false_discoveries --case norway --epsilon 1 --runs 5 --data FOLDER --csv docs/reference/tables

``refined`` (the default), ``auto`` and the published methods of :mod:`benchmarks.rivals` make tables from the same
certified noise, without a seed. A threshold t sets released leaves with fewer than t trips to 0: the larger it is, the
fewer are false discoveries (pairs that are released, but have no trips). Each table is read where it has a given share
of false discoveries, between the smallest t with at most this share and the next smaller t. The share is that of
``refined`` or ``auto`` without a threshold, or one of ``SHARES``. A table that has a smaller share without a threshold
is read without one. Only the truth tells which t this is, so no table can be published in this way.

A threshold drops trips, and sums that follow the leaves lose them, too. ``rescaled_error`` is the error of leaves that
are multiplied, all of a node of level 2 by the same number, so that they have the trips that the node had before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.estimator import CASES, DELTA, EPSILONS, NOISE, RUNS, VARIANTS, data_set, estimated, planned
from benchmarks.measuring import case_parser, machine, printed, steps
from benchmarks.rivals import RIVALS
from benchmarks.tables import write_csv
from od_core.evaluation.known_flows import KnownFlows
from od_core.evaluation.metrics import align_trips, sum_trips_by_level
from od_core.flows.arrays import Integers
from od_core.flows.estimation.refinement import select_nodes_with_trips
from od_core.flows.release import run_plan
from od_core.geography.flow_tree import Nodes
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source

TABLES = ("refined", "auto", *RIVALS)
SHARES = {"5 %": 0.05, "10 %": 0.10, "25 %": 0.25}
TOP = 3
"""The total and the two levels below it."""

ERRORS = ("leaf_error", "rescaled_error")
FIGURES = ("false_discoveries", "false_negatives", *ERRORS, "trips_lost", "level_1_error", "level_2_error")
"""Errors are the sum of all absolute errors, in parts of all trips, as the trips lost are."""


@dataclass(frozen=True, eq=False)
class Curve:
    """The first three of ``FIGURES`` at each threshold from 1 that changes a table; shape (thresholds,) each.

    The last threshold leaves no flow.
    """

    thresholds: Integers
    false_discoveries: NDArray[np.float64]
    false_negatives: NDArray[np.float64]
    leaf_error: NDArray[np.float64]

    @classmethod
    def of(cls, true: Integers, found: Integers) -> Curve:
        """Create the curve from the true and the released trips of leaves that have some of either."""
        values, place = np.unique(found[found > 0], return_inverse=True)
        there, gap = true[found > 0], np.abs(found - true)[found > 0]

        def kept(of_each: Integers) -> NDArray[np.float64]:
            sums = np.bincount(place, of_each, len(values) + 1)
            from_above: NDArray[np.float64] = np.cumsum(sums[::-1], dtype=np.float64)[::-1]
            return from_above

        flows, not_there = kept(np.ones_like(there)), kept((there == 0).astype(np.int64))
        return cls(
            np.append(values, values.max(initial=0) + 1),
            not_there / np.maximum(flows, 1),
            1 - (flows - not_there) / max(1, int(np.count_nonzero(true))),
            1 + kept(gap - there) / int(true.sum()),
        )

    def at(self, share: float) -> list[tuple[int, float]]:
        """Return one or two positions, with weights, between which the share of false discoveries becomes this."""
        last = int(np.argmax(self.false_discoveries <= share))
        if last == 0:
            return [(0, 1.0)]
        above, below = self.false_discoveries[last - 1 : last + 1]
        weight = float((above - share) / (above - below))
        return [(last - 1, 1 - weight), (last, weight)]


def top_errors(data: KnownFlows, leaves: Nodes) -> list[float]:
    """Return the sum of all absolute errors of each of the top levels, in parts of all trips."""
    pairs = zip(data.truth.levels, islice(sum_trips_by_level(data.tree, leaves), TOP), strict=False)
    return [float(np.abs(np.subtract(*align_trips(*pair))).sum() / data.trips.total) for pair in pairs]


def rescaled_error(data: KnownFlows, leaves: Nodes, left: Integers) -> float:
    """Return the error of leaves of which a threshold left ``left`` trips, rescaled; see the module docstring."""
    rank = data.tree.compute_first_ranks(leaves)
    nodes = data.tree.compute_first_ranks(data.tree.find_ancestors(leaves, TOP - 1))
    node = np.searchsorted(nodes, rank, side="right") - 1
    before, after = np.bincount(node, leaves.trips), np.bincount(node, left)
    rescaled = left * (before / np.maximum(after, 1))[node]
    true, found = align_trips(data.truth.levels[-1], (rank, leaves.trips))
    there = true[found > 0]  # in the order of the leaves, which is that of the tree
    return float(1 + (np.abs(rescaled - there) - there).sum() / data.trips.total)


def figures_at(data: KnownFlows, leaves: Nodes, curve: Curve, share: float) -> list[float]:
    """Return the threshold at which released leaves have at most this share of false discoveries, and ``FIGURES``."""
    of_leaves = (curve.thresholds, curve.false_discoveries, curve.false_negatives, curve.leaf_error)
    found = np.zeros(1 + len(FIGURES))
    for k, weight in curve.at(share):
        left = np.where(leaves.trips >= curve.thresholds[k], leaves.trips, 0)
        others = [rescaled_error(data, leaves, left), *top_errors(data, select_nodes_with_trips(leaves, left))]
        found += weight * np.array([*(float(each[k]) for each in of_leaves), *others])
    return [float(each) for each in found]


def compared(case: str, epsilon: str, data: KnownFlows, runs: int) -> Iterator[dict[str, Any]]:
    """Yield the mean figures of each table at each share that it reaches in a run, with two standard errors."""
    by_name = {variant.name: variant for variant in VARIANTS}
    plans = {name: planned(by_name.get(name, by_name["refined"]), data.geography, epsilon) for name in TABLES}
    places = ("no threshold", "refined", "auto", *SHARES)
    figures = np.zeros((runs, len(TABLES), len(places), 1 + len(FIGURES)))
    reached = np.zeros((len(TABLES), len(places)), dtype=np.int64)
    for run in range(runs):
        measured = run_plan(plans["refined"], data.trips, resolve_noise_source(NOISE), MemoryMeasurements()).measured
        leaves = [estimated(name, plan, data.trips.total, measured) for name, plan in plans.items()]
        levels = [(data.tree.compute_first_ranks(table), table.trips) for table in leaves]
        curves = [Curve.of(*align_trips(data.truth.levels[-1], level)) for level in levels]
        own = [float(curve.false_discoveries[0]) for curve in curves]
        for number, (table, curve) in enumerate(zip(leaves, curves, strict=True)):
            shares = [own[number], own[0], own[1], *SHARES.values()]
            reached[number] += np.array(shares) <= own[number]
            figures[run, number] = [figures_at(data, table, curve, share) for share in shares]

    def two_errors(values: NDArray[np.float64]) -> float:
        return float(2 * values.std() / max(1, runs - 1) ** 0.5)

    for number, place in product(range(len(TABLES)), range(len(places))):
        if not reached[number, place]:
            continue
        means = figures[:, number, place].mean(axis=0).tolist()
        row = {"data_set": case, "epsilon": epsilon, "runs": runs, "at": places[place], "table": TABLES[number]}
        row |= {"runs_that_reach_it": int(reached[number, place]), "threshold": means[0]}
        row |= {f"{name}_percent": 100 * mean for name, mean in zip(FIGURES, means[1:], strict=True)}
        for name, base in product(ERRORS, (0, 1)):
            error = figures[:, :, place, 1 + FIGURES.index(name)]
            row[f"{name}_two_standard_errors"] = 100 * two_errors(error[:, number])
            change = (error[:, number] - error[:, base]) / error[:, base].mean()
            row[f"{name}_from_{TABLES[base]}_percent"] = 100 * float(change.mean())
            row[f"{name}_from_{TABLES[base]}_two_standard_errors"] = 100 * two_errors(change)
        yield row


def csv_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the figures with three digits, as in ``rivals-false-discoveries.csv``."""

    def text(value: Any) -> Any:
        return np.format_float_positional(value, 3, fractional=False, trim="-") if isinstance(value, float) else value

    return [{name: text(value) for name, value in row.items()} for row in rows]


def main() -> None:
    """Make the tables, and print the figures."""
    parser = case_parser(__doc__, CASES, EPSILONS)
    text = "write the figures to rivals-false-discoveries.csv in this folder"
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help=text)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for case, epsilon in steps(list(product(options.case, options.epsilon)), "false_discoveries"):
        runs = 2 if options.small else min(options.runs, RUNS.get(case, options.runs))
        rows += compared(case, epsilon, data_set(case, options.data, small=options.small), runs)
    if options.csv:
        write_csv(options.csv / "rivals-false-discoveries.csv", csv_rows(rows))
    printed({"machine": machine(), "delta": DELTA, "noise": NOISE, "rows": rows}, as_json=options.json)


if __name__ == "__main__":
    main()
