"""Count how often the intervals of published cells contain the true counts, which must be public or synthetic."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import numpy as np
import pandas as pd

from od_core.evaluation.forecast import SIZE_CLASSES
from od_core.flows.arrays import Integers
from od_core.flows.estimation.fitted_tree import find_pairs
from od_core.flows.release import Release
from od_core.geography.flow_tree import Nodes
from od_core.geography.geography import Numbers

MOST_ZEROS = 5_000_000
"""Largest number of pairs of areas at a pair of levels for which :func:`coverage` includes pairs without trips."""


def coverage(releases: Iterable[Release], truth: Nodes) -> pd.DataFrame:
    """Return the share of cells whose interval contains the true count, by pair of levels and class of TRUE size.

    NOT private: the result depends on the true counts. A cell is a pair of areas. Its interval is that of a cell that
    was chosen before the release (``selected=False``), extended to the released number if necessary.

    Args:
        releases: releases of one plan, each with its own noise.
        truth: the true leaf nodes with their trips.

    Returns:
        One row per pair of levels and size class, with these columns:

        - origin_level and destination_level;
        - least_trips: smallest number of true trips of the class;
        - cells: number of cells of one release;
        - covered: share of the cells whose interval contains the true count, over all releases;
        - width: mean width of the intervals, upper minus lower end, over all releases, in trips.

        A pair of levels with more than ``MOST_ZEROS`` pairs of areas includes only cells with true trips.
    """
    rows = [row for release in releases for row in _rows(release, truth)]
    names = ["origin_level", "destination_level", "least_trips"]
    sums = (
        pd.DataFrame(rows).groupby(names, sort=False).agg({"cells": ["sum", "mean"], "covered": "sum", "width": "sum"})
    )
    table = pd.DataFrame(
        {
            "cells": sums["cells", "mean"].astype("int64"),
            "covered": sums["covered", "sum"] / sums["cells", "sum"],
            "width": sums["width", "sum"] / sums["cells", "sum"],
        }
    )
    return table.reset_index()


def _rows(release: Release, truth: Nodes) -> Iterable[dict[str, object]]:
    """Yield one row per pair of levels and size class: numbers of all and of covered cells, and sum of the widths."""
    tree = release.plan.tree
    for o_level, d_level in product(range(tree.origin.depth + 1), range(tree.destination.depth + 1)):
        origin, destination, true = tree.sum_trips(truth, o_level, d_level)
        width, pairs = tree.destination.size(d_level), tree.origin.size(o_level) * tree.destination.size(d_level)
        if pairs <= MOST_ZEROS:
            every, counts = np.arange(pairs), np.zeros(pairs, dtype=np.int64)
            counts[origin.astype(np.int64) * width + destination] = true
            origin, destination, true = (every // width).astype(np.int32), (every % width).astype(np.int32), counts
        lower, upper = release.intervals.compute_cell_bounds(o_level, d_level, origin, destination)
        released = _looked_up(tree.sum_trips(release.leaves, o_level, d_level), origin, destination, width)
        lower, upper = np.minimum(lower, released), np.maximum(upper, released)
        size_class = np.searchsorted(SIZE_CLASSES, true, side="right") - 1
        for number, least in enumerate(SIZE_CLASSES):
            mine = size_class == number
            if mine.any():
                yield {
                    "origin_level": tree.origin.level_names[o_level],
                    "destination_level": tree.destination.level_names[d_level],
                    "least_trips": least,
                    "cells": int(mine.sum()),
                    "covered": int(((lower <= true) & (true <= upper))[mine].sum()),
                    "width": int((upper - lower)[mine].sum()),
                }


def _looked_up(cells: tuple[Numbers, Numbers, Integers], origin: Numbers, destination: Numbers, width: int) -> Integers:
    """Return the trips of each pair (origin, destination), or 0 if the pair is not among the cells.

    Args:
        cells: origins, destinations and trips of the cells; shape (cells,) each.
        origin, destination: areas of the pairs; shape (pairs,) each.
        width: number of destination areas.
    """
    place = find_pairs(cells[0], cells[1], origin, destination, width)
    return np.where(place >= 0, np.append(cells[2], 0)[place], 0)
