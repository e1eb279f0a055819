"""Measure how often the 90 % intervals of weighted sums and of their ratios hold the truth, on real flows.

    python -m benchmarks.weighted_sums --case flights norway taxis uk nz_education --data FOLDER --runs 100

Every run is an independent release with certified noise. Rows and columns are all trips from and to each zone, counted
together. The smooth sums have ten weights that vary slowly with the places of the zones in their list, the same in
every run. Data sets other than the flights are read from the subfolders of FOLDER.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.estimator import EPSILONS
from benchmarks.indicators import known
from benchmarks.measuring import case_parser, machine, printed, steps
from benchmarks.replicates import OF_ALL, SMOOTH, released, smooth_weights
from od_core.evaluation.known_flows import KnownFlows
from od_core.flows.estimation.fitted_tree import Estimates
from od_core.flows.interval_ends import DEVIATIONS
from od_core.flows.release import Release
from od_core.flows.released_flows import Weights, make_zone_function
from od_core.geography.flow_tree import FlowTree
from od_core.geography.places import has_distances

CASES = ("flights", "norway", "taxis", "uk", "nz_education", "random")


def smooth(tree: FlowTree, number: int) -> pd.DataFrame:
    """Return weights between 0 and 2 of all pairs; see :func:`benchmarks.replicates.smooth_weights`."""
    weight = smooth_weights(tree, number)
    sides = [np.array(side.zones, dtype=object) for side in (tree.origin, tree.destination)]
    o, d = (each.ravel() for each in np.indices(weight.shape))
    return pd.DataFrame({"origin": sides[0][o], "destination": sides[1][d], "weight": weight.ravel()})


def asked_of(tree: FlowTree) -> dict[str, list[tuple[Weights, Weights | None]]]:
    """Return the weights of the measured sums and ratios, by name."""
    distance: list[tuple[Weights, Weights | None]] = [("distance", "has_distance")] if has_distances(tree) else []
    return {
        "within_zones": [("within", "trips")],
        "mean_distance": distance,
        "smooth": [(smooth(tree, number), None) for number in range(SMOOTH)],
    }


def true_value(data: KnownFlows, tree: FlowTree, weights: Weights, per: Weights | None) -> float:
    """Return a weighted sum of the true trips, or the ratio of two."""
    pairs, trips = tree.find_leaf_pairs(data.trips.rank), np.diff(data.trips.before)
    whole = 1.0 if per is None else true_value(data, tree, per, None)
    return float(make_zone_function(tree, weights)(pairs.origin, pairs.destination) @ trips) / whole


def margins(release: Release) -> dict[str, Estimates]:
    """Return the estimates of all trips from each zone and to each zone."""
    (fit,), tree = release.intervals.fits, release.plan.tree
    return {
        "rows": fit.estimate_cells(tree.origin.depth, 0)[2],
        "columns": fit.estimate_cells(0, tree.destination.depth)[2],
    }


def measure(data: KnownFlows, epsilon: str, runs: int) -> dict[str, Any]:
    """Return, for each kind of sum, the percentage of intervals that hold the truth."""
    tree = FlowTree(data.geography, data.geography)
    asked = asked_of(tree)
    pairs, trips = tree.find_leaf_pairs(data.trips.rank), np.diff(data.trips.before)
    true_margins = {
        "rows": np.bincount(pairs.origin, trips, minlength=len(tree.origin.zones)),
        "columns": np.bincount(pairs.destination, trips, minlength=len(tree.destination.zones)),
    }
    truth = {name: [true_value(data, tree, *each) for each in sums] for name, sums in asked.items()}
    held: dict[str, list[float]] = defaultdict(list)
    for _ in steps(range(runs), "Releasing"):
        release = released(OF_ALL, data, epsilon)
        for name, estimates in margins(release).items():
            apart = abs(estimates.estimate - true_margins[name])
            held[name].append(float((apart <= DEVIATIONS * np.sqrt(estimates.variance)).mean()))
        for name, sums in asked.items():
            for (weights, per), true in zip(sums, truth[name], strict=True):
                found = release.weighted_sum(weights, per=per)
                held[name].append(float(found.lower <= true <= found.upper))
    return {name: round(100 * float(np.mean(each)), 1) for name, each in held.items()}


def main() -> None:
    """Run the benchmark."""
    options = case_parser(__doc__, CASES, EPSILONS).parse_args()
    cases, runs = (["random"], 2) if options.small else (options.case, options.runs)
    for case in cases:
        data = known(case, options.data, small=options.small)
        for epsilon in options.epsilon[: 1 if options.small else None]:
            stated = {"machine": machine(), "data": case, "epsilon": epsilon, "runs": runs}
            printed({**stated, **measure(data, epsilon, runs)}, as_json=options.json)


if __name__ == "__main__":
    main()
