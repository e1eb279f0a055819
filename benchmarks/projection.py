"""Children a second of IntOpt, by fan-out, by the share of children with trips, and by order.

python -m benchmarks.projection --json
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.measuring import machine, peak_memory_gigabytes, timed
from od_core.projection.chebyshev import ORDERS, project_children

FAN_OUTS = (2, 6, 20, 35, 62, 110, 190, 2000)
FILLED = (0.02, 0.3, 1.0)
CHUNK = 1 << 18
"""Children that a release works on at a time."""

SIGMA = 10.0
SEED = 20010101

Level = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def noisy_level(fan_out: int, filled: float, children: int) -> Level:
    """Noisy children, totals and offsets of one level: a share of the children has heavy-tailed trips."""
    generator = np.random.default_rng([SEED, fan_out])
    parents = children // fan_out
    trips = np.ceil(generator.pareto(1.1, (parents, fan_out)).clip(0, 1e5))
    trips[generator.random(trips.shape) >= filled] = 0
    noisy = np.rint(trips + generator.normal(0.0, SIGMA, trips.shape)).astype(np.int64)
    totals = np.rint(trips.sum(axis=1) + generator.normal(0.0, SIGMA / 2, parents)).clip(1).astype(np.int64)
    return noisy.ravel(), totals, np.arange(parents + 1) * fan_out


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--small", action="store_true", help="small levels, to see that it runs")
    options = parser.parse_args()
    children, repeats = (20_000, 1) if options.small else (CHUNK, 15)
    cases = [(order, filled, fan_out) for order in ORDERS for filled in FILLED for fan_out in FAN_OUTS]
    rates: list[dict[str, Any]] = []
    for order, filled, fan_out in track(cases, "IntOpt", console=Console(stderr=True), transient=True):
        noisy, totals, offsets = noisy_level(fan_out, filled, children)
        project = partial(project_children, noisy, totals, offsets, order)
        seconds = timed(project, repeats=repeats)
        millions = {name: len(noisy) / seconds[of] / 1e6 for name, of in (("median", "median"), ("most", "least"))}
        rates.append({"order": order, "filled": filled, "fan_out": fan_out, "million_children_a_second": millions})
    if options.json:
        results = {"machine": machine(), "threads": 1, "sigma": SIGMA, "peak_memory_gigabytes": peak_memory_gigabytes()}
        print(json.dumps(results | {"intopt": rates}, indent=2))
        return
    table = Table("order", "filled", *map(str, FAN_OUTS), title="IntOpt: million children a second, by fan-out")
    for start in range(0, len(rates), len(FAN_OUTS)):
        row = rates[start : start + len(FAN_OUTS)]
        medians = [f"{rate['million_children_a_second']['median']:.0f}" for rate in row]
        table.add_row(row[0]["order"], str(row[0]["filled"]), *medians)
    Console().print(table)


if __name__ == "__main__":
    main()
