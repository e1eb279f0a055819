"""Measure the children per second of IntOpt, in each order, and of the Euclidean projection.

They are measured by fan-out and by the share of children with trips.

python -m benchmarks.projection --json
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measuring import machine, peak_memory_gigabytes, printed, steps, timed
from od_core.flows.projection.onto_parents import ORDERS, project_children, project_children_euclidean

PROJECTIONS: dict[str, Callable[..., NDArray[np.int64]]] = {
    **{order: partial(project_children, order=order) for order in ORDERS},  # IntOpt
    "euclidean": project_children_euclidean,
}
FAN_OUTS = (2, 6, 20, 35, 62, 110, 190, 2000)
FILLED = (0.02, 0.3, 1.0)
CHUNK = 1 << 18
"""Number of children that a release processes at a time."""

SIGMA = 10.0
SEED = 20010101

Level = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def noisy_level(fan_out: int, filled: float, children: int) -> Level:
    """Return noisy children, totals and offsets of one level, where a share of the children has heavy-tailed trips."""
    generator = np.random.default_rng([SEED, fan_out])
    parents = children // fan_out
    trips = np.ceil(generator.pareto(1.1, (parents, fan_out)).clip(0, 1e5))
    trips[generator.random(trips.shape) >= filled] = 0
    noisy = np.rint(trips + generator.normal(0.0, SIGMA, trips.shape)).astype(np.int64)
    totals = np.rint(trips.sum(axis=1) + generator.normal(0.0, SIGMA / 2, parents)).clip(1).astype(np.int64)
    return noisy.ravel(), totals, np.arange(parents + 1) * fan_out


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--small", action="store_true", help="small levels, to see that it runs")
    options = parser.parse_args()
    children, repeats = (20_000, 1) if options.small else (CHUNK, 15)
    cases = [(name, filled, fan_out) for name in PROJECTIONS for filled in FILLED for fan_out in FAN_OUTS]
    rates: list[dict[str, Any]] = []
    for projection, filled, fan_out in steps(cases, "Projections"):
        noisy, totals, offsets = noisy_level(fan_out, filled, children)
        project = partial(PROJECTIONS[projection], noisy, totals, offsets)
        seconds = timed(project, repeats=repeats)
        millions = {name: len(noisy) / seconds[of] / 1e6 for name, of in (("median", "median"), ("most", "least"))}
        rates.append(
            {"projection": projection, "filled": filled, "fan_out": fan_out, "million_children_a_second": millions}
        )
    results = {"machine": machine(), "threads": 1, "sigma": SIGMA, "peak_memory_gigabytes": peak_memory_gigabytes()}
    figures = {"projections": rates} if options.json else {"million_children_a_second_by_fan_out": _by_fan_out(rates)}
    printed(results | figures, as_json=options.json)


def _by_fan_out(rates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per projection and share, with one column per fan-out."""
    rows: dict[tuple[str, float], dict[str, Any]] = {}
    for rate in rates:
        of = {"projection": rate["projection"], "filled": rate["filled"]}
        row = rows.setdefault((rate["projection"], rate["filled"]), of)
        row[str(rate["fan_out"])] = rate["million_children_a_second"]["median"]
    return list(rows.values())


if __name__ == "__main__":
    main()
