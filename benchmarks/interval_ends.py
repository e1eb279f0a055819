"""Measure released flows that lie outside the interval of the least-squares estimate, to which the interval is widened.

The interval is the usual one, of flows that were chosen before the release.

    python -m benchmarks.interval_ends --markdown
    python -m benchmarks.interval_ends --epsilon 1 --runs 20 --json

Every run is an independent release of one month of flights, without a seed. The truth is public.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.estimator import DELTA, EPSILONS, NOISE, data_set
from benchmarks.intervals import VARIANTS, released, true_leaves
from benchmarks.measuring import machine, printed, steps
from benchmarks.tables import markdown_table
from od_core import Release
from od_core.evaluation.known_flows import KnownFlows
from od_core.flows.estimation.fitted_tree import find_pairs
from od_core.geography.flow_tree import Nodes

SHOWN = (("all", "airport"), ("airport", "all"), ("state", "state"), ("state", "airport"), ("airport", "airport"))
"""Pairs of levels in the Markdown table. Between regions and divisions, fewer than 1 % of the intervals are widened."""


def of_release(release: Release, truth: Nodes) -> pd.DataFrame:
    """Return one row per positive released flow of every pair of levels, with whether its interval was widened."""
    tree, tables = release.plan.tree, []
    names = tree.origin.level_names
    for (o, origin_level), (d, destination_level) in product(enumerate(names), repeat=2):
        origin, destination, trips = tree.sum_trips(release.leaves, o, d)
        lower, upper = release.intervals.compute_cell_bounds(o, d, origin, destination)
        true_origin, true_destination, true_trips = tree.sum_trips(truth, o, d)
        place = find_pairs(true_origin, true_destination, origin, destination, tree.destination.size(d))
        true = np.where(place >= 0, np.append(true_trips, 0)[place], 0)
        tables.append(
            pd.DataFrame(
                {
                    "origin_level": origin_level,
                    "destination_level": destination_level,
                    "flows": 1,
                    "widened": (trips < lower) | (trips > upper),
                    "released_error": np.abs(trips - true),
                    "centre_error": np.abs((lower + upper) / 2 - true),
                    "covered_before": (lower <= true) & (true <= upper),
                    "covered": (np.minimum(lower, trips) <= true) & (true <= np.maximum(upper, trips)),
                }
            )
        )
    return pd.concat(tables)


def measured(epsilon: str, data: KnownFlows, runs: int) -> pd.DataFrame:
    """Return one row per pair of levels: how many intervals are widened, and errors and coverage of those that are."""
    truth, pair = true_leaves(data), ["origin_level", "destination_level"]
    flows = pd.concat(of_release(released(VARIANTS[0], epsilon, data), truth) for _ in range(runs))
    all_flows, widened = flows.groupby(pair, sort=False), flows[flows["widened"]].groupby(pair, sort=False)
    columns = ["released_error", "centre_error", "covered_before", "covered"]
    table = all_flows["flows"].sum().to_frame().assign(widened=all_flows["widened"].sum())
    table = table.join(widened[columns].mean()).assign(covered_of_all=all_flows["covered"].mean())
    return table.reset_index().assign(epsilon=epsilon, runs=runs)


def markdown(table: pd.DataFrame) -> str:
    """Return the pairs of levels in ``SHOWN`` as a Markdown table."""
    rows = [
        {
            "epsilon": row["epsilon"],
            "flows": f"{row['origin_level']} to {row['destination_level']}",
            "widened": f"{row['widened'] / row['flows']:.1%}",
            "error of the released number": f"{row['released_error']:.1f}",
            "error of the centre": f"{row['centre_error']:.1f}",
            "coverage before": f"{row['covered_before']:.0%}",
            "coverage as published": f"{row['covered']:.0%}",
            "coverage of all positive flows": f"{row['covered_of_all']:.1%}",
        }
        for row in table.to_dict("records")
        if (row["origin_level"], row["destination_level"]) in SHOWN and row["widened"]
    ]
    return "\n".join(markdown_table(rows))


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    parser.add_argument("--small", action="store_true", help="small data and one run, to see that it runs")
    parser.add_argument("--epsilon", nargs="+", default=EPSILONS)
    parser.add_argument("--runs", type=int, help="releases of each epsilon, instead of 100")
    options = parser.parse_args()
    data, runs = data_set("flights", None, small=options.small), options.runs or (1 if options.small else 100)
    tables = [measured(epsilon, data, runs) for epsilon in steps(list(options.epsilon), "interval ends")]
    table = pd.concat(tables, ignore_index=True)
    if options.markdown:
        print(markdown(table))
        return
    results: dict[str, Any] = {"machine": machine(), "delta": DELTA, "noise": NOISE}
    printed(results | {"pairs_of_levels": json.loads(table.to_json(orient="records"))}, as_json=options.json)


if __name__ == "__main__":
    main()
