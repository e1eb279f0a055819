"""How often intervals hold the truth, and how wide they are. NOT private: it compares with the truth."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import numpy as np
import pandas as pd

from od_core.flows.estimation.intervals import Counts, find_pairs
from od_core.flows.release import Release
from od_core.geography.flow_tree import Nodes
from od_core.geography.geography import Numbers

SIZE_CLASSES = (0, 1, 10, 100, 1000)
"""Least true trips of each class of cells."""

MOST_ZEROS = 5_000_000
"""Public pairs of two levels up to which those without trips are looked at."""


def coverage(releases: Iterable[Release], truth: Nodes) -> pd.DataFrame:
    """Of cells of each class of TRUE size, at every pair of levels: the share whose interval holds the truth.

    Args:
        releases: of one plan, each with noise of its own.
        truth: the true leaf nodes.

    Returns:
        origin_level, destination_level, least_trips (of the class), cells (of one release), covered (share),
        width (mean of upper - lower, in trips), in all releases together. At pairs of levels with more than
        ``MOST_ZEROS`` public pairs those without trips are left out.
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
    """Counts of one release: cells, those whose interval holds the truth, and the sum of the widths."""
    tree = release.plan.tree
    for o_level, d_level in product(range(tree.origin.depth + 1), range(tree.destination.depth + 1)):
        origin, destination, true = tree.sums_at(truth, o_level, d_level)
        width, pairs = tree.destination.size(d_level), tree.origin.size(o_level) * tree.destination.size(d_level)
        if pairs <= MOST_ZEROS:
            every, counts = np.arange(pairs), np.zeros(pairs, dtype=np.int64)
            counts[origin.astype(np.int64) * width + destination] = true
            origin, destination, true = (every // width).astype(np.int32), (every % width).astype(np.int32), counts
        lower, upper = release.intervals.of_cells(o_level, d_level, origin, destination)
        released = _looked_up(tree.sums_at(release.leaves, o_level, d_level), origin, destination, width)
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


def _looked_up(cells: tuple[Numbers, Numbers, Counts], origin: Numbers, destination: Numbers, width: int) -> Counts:
    """Trips of pairs of areas, 0 where they are not among the cells; ``width`` is the number of destinations."""
    place = find_pairs(cells[0], cells[1], origin, destination, width)
    return np.where(place >= 0, np.append(cells[2], 0)[place], 0)
