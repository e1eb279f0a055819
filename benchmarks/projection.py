"""Measure the processor time of a child in IntOpt, in each order, and in the Euclidean projection."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from od_core.flows.projection.onto_parents import ORDERS, project_children, project_children_euclidean

PROJECTIONS: dict[str, Callable[..., NDArray[np.int64]]] = {
    **{order: partial(project_children, order=order) for order in ORDERS},  # IntOpt
    "euclidean": project_children_euclidean,
}
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


def nanoseconds_of_a_child(projection: str, fan_out: int, filled: float, children: int = CHUNK) -> float:
    """Return the processor time of a projection, the median of five after one that does not count."""
    level = noisy_level(fan_out, filled, children)
    project, seconds = PROJECTIONS[projection], []
    for _ in range(6):
        start = time.process_time()
        project(*level)
        seconds.append(time.process_time() - start)
    return statistics.median(seconds[1:]) / len(level[0]) * 1e9
