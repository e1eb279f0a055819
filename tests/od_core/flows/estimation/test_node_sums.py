"""Sums of fitted nodes carried to the root, against linear algebra: estimate and variance of any sum."""

import tracemalloc
from types import SimpleNamespace

import numpy as np

from od_core.flows.estimation.fitted_tree import NodeSums


def test_sums_of_dropped_children_take_no_memory():
    """Sums of their own would take 960 MB: 200,000 children overlap 100 areas each, and one of them is divided."""
    children, areas = 200_000, 100
    own, siblings = np.ones(children), np.array([float(children)])
    level = SimpleNamespace(offsets=np.array([0, children]), own=own, siblings=siblings, divided=np.array([7]))
    sums = NodeSums(np.array([0, areas]), np.ones((6, areas)), np.zeros(1, np.int64))
    dropped = np.ones((3, children))
    first, count = np.zeros(children, np.int64), np.full(children, areas)
    tracemalloc.start()
    above = sums.sum_to_parents(level, first, count, dropped=dropped)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert above.values[3].tolist() == [children + 1] * areas
    assert peak < 50_000_000
