"""Estimate histograms from the top down: the histogram of an area is fixed, and is divided among its children.

This is the TopDown algorithm as [fioretto2019hierarchical, section 10] compares it: a least squares problem of two
consecutive levels, whose result is rounded so that it adds up, and then the next two levels. With the number of groups
of the top areas alone, each size of an area is a problem of its own, which is solved exactly. With those of all areas,
a problem has sums over children and over sizes. It is solved over the reals, and rounded as in
:mod:`od_core.group_sizes.area_totals`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from od_core.flows.projection.onto_parents import project_children_euclidean
from od_core.group_sizes.area_totals import shared_among_children, thresholds
from od_core.group_sizes.cost_tables import refuse_too_large
from od_core.group_sizes.groups import Counts, Frame
from od_core.group_sizes.nearest_curves import Reals, alternated


def from_the_top_down(frame: Frame, noisy: Sequence[Counts], *, area_totals: bool) -> list[Counts]:
    """Return histograms in which children sum to their parent, from noisy ones; shape (areas, K + 1) per level.

    All areas have their numbers of groups if ``area_totals``, else the top areas alone. Raises OdError if a value is
    2^40 or more.
    """
    refuse_too_large(frame, noisy)
    sizes = frame.top_code + 1
    tops = project_children_euclidean(noisy[0].ravel(), frame.totals(1), np.arange(len(noisy[0]) + 1) * sizes)
    histograms = [tops.reshape(-1, sizes)]
    for level, values in enumerate(noisy[1:], start=2):
        above, first = histograms[-1], frame.geography.first_child[level - 1]
        if area_totals:
            nearest = _nearest(frame, level, values, above)
            histograms.append(shared_among_children(frame, nearest.__getitem__, level - 1, above))
        else:
            offsets = (np.arange(sizes)[:, np.newaxis] * len(values) + first[:-1]).ravel()
            of_sizes = project_children_euclidean(values.T.ravel(), above.T.ravel(), np.append(offsets, values.size))
            histograms.append(np.ascontiguousarray(of_sizes.reshape(sizes, -1).T))
    return histograms


def _nearest(frame: Frame, level: int, noisy: Counts, above: Counts) -> Reals:
    """Return nearly the nearest real histograms of a level with its numbers of groups and the sums ``above``."""
    totals, parents = frame.totals(level), frame.geography.parents[level]
    first = frame.geography.first_child[level - 1]
    children = np.diff(first)[:, np.newaxis]
    nothing = np.zeros((1, noisy.shape[1]))

    def adding_up(values: Reals) -> Reals:
        return values + ((above - np.add.reduceat(values, first[:-1])) / children)[parents]

    def with_totals(rows: slice, values: Reals) -> Reals:
        prices = np.zeros(len(values))
        thresholds(values, nothing, np.zeros_like(parents[rows]), nothing, True, totals[rows], prices)
        return np.maximum(values + prices[:, np.newaxis], 0.0)

    return alternated(noisy.astype(np.float64), adding_up, with_totals)
