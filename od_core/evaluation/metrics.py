"""Errors of a release against the truth, level by level (spec 2, "Metrics per level")."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.flow_tree import FlowTree, Nodes
from od_core.geography import Numbers
from od_core.release import Release
from od_core.trips import place_trips


def evaluate(release: Release, flows: pd.DataFrame) -> pd.DataFrame:
    """Errors of every level of the flow tree against the true flows. NOT private: it compares with the truth.

    All pairs count: those released, those true, and the public pairs that are neither.

    Args:
        release: the release to judge.
        flows: the true flows it was made from, as :func:`od_core.release_flows` takes them; all trips of a user count.

    Returns:
        One row a level 0 to T: level, max_abs_error (trips), mean_abs_error (trips, over all public pairs),
        false_discovery_rate (share of released positive pairs whose true count is 0), false_negative_rate
        (share of truly positive pairs that were released as 0); a rate over no pairs is 0.
    """
    tree = release.plan.tree
    truth = Nodes(tree.depth, *place_trips(flows, tree, fault_threshold=Fraction(1)))
    return pd.DataFrame([_errors(tree, level, truth, release.leaves) for level in range(tree.depth + 1)])


def _errors(tree: FlowTree, level: int, truth: Nodes, released: Nodes) -> dict[str, float]:
    true_pair, true_trips = _pairs(tree, tree.sums_at(truth, *tree.level_pair(level)), level)
    pair, trips = _pairs(tree, tree.sums_at(released, *tree.level_pair(level)), level)
    union = np.union1d(true_pair, pair)
    error = np.zeros(len(union), dtype=np.int64)
    error[np.searchsorted(union, pair)] += trips
    error[np.searchsorted(union, true_pair)] -= true_trips
    both = len(pair) + len(true_pair) - len(union)
    return {
        "level": level,
        "max_abs_error": int(np.abs(error).max(initial=0)),
        "mean_abs_error": float(np.abs(error).sum()) / tree.cells(level),
        "false_discovery_rate": (len(pair) - both) / len(pair) if len(pair) else 0.0,
        "false_negative_rate": (len(true_pair) - both) / len(true_pair) if len(true_pair) else 0.0,
    }


def _pairs(
    tree: FlowTree, sums: tuple[Numbers, Numbers, NDArray[np.int64]], level: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    origin, destination, trips = sums
    return origin.astype(np.int64) * tree.destination.size(tree.level_pair(level)[1]) + destination, trips
