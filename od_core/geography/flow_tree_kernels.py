"""Compile the loops over nodes and their children that the flow tree and its estimates run."""

from __future__ import annotations

import numpy as np

from od_core.kernels import kernel


@kernel
def sum_of_products(left, right, rows_left, rows_right, out):  # type: ignore[no-untyped-def]  # compiled
    """Write the scalar products of rows ``rows_left`` of ``left`` and rows ``rows_right`` of ``right`` to ``out``."""
    for i in range(len(out)):
        total = np.int64(0)
        for column in range(left.shape[1]):
            total += np.int64(left[rows_left[i], column]) * np.int64(right[rows_right[i], column])
        out[i] = total


@kernel
def running_fan_out(first_child, areas, ends):  # type: ignore[no-untyped-def]  # compiled
    """Write the running total of the areas' numbers of children to ``ends``."""
    total = np.int64(0)
    for i in range(len(areas)):
        total += first_child[areas[i] + 1] - first_child[areas[i]]
        ends[i] = total


@kernel
def keep_nonzero(trips, offsets, first_child, whole, divided_out, whole_out, trips_out):  # type: ignore[no-untyped-def]
    """Write each child that has trips to three arrays: both areas and the trips.

    ``divided_out`` receives the area on the refined side, and ``whole_out`` the area on the other side.
    """
    kept = 0
    for parent in range(len(offsets) - 1):
        for child in range(offsets[parent], offsets[parent + 1]):
            if trips[child] != 0:
                divided_out[kept] = first_child[parent] + (child - offsets[parent])
                whole_out[kept] = whole[parent]
                trips_out[kept] = trips[child]
                kept += 1


@kernel
def runs_of_children(split, whole, parent_of, divided, same, runs):  # type: ignore[no-untyped-def]  # compiled
    """Write the position of each parent's first child, and the end, to ``runs``. Stop at a child that has no parent."""
    child = 0
    for parent in range(len(split)):
        runs[parent] = child
        while child < len(divided) and parent_of[divided[child]] == split[parent] and same[child] == whole[parent]:
            child += 1
    runs[len(split)] = child


@kernel
def run_sums(values, runs):  # type: ignore[no-untyped-def]  # compiled
    """Return the sum of ``values[runs[p]:runs[p + 1]]`` for each p, added in order; shape (len(runs) - 1,)."""
    sums = np.zeros(len(runs) - 1, dtype=values.dtype)
    for run in range(len(sums)):
        for i in range(runs[run], runs[run + 1]):
            sums[run] += values[i]
    return sums
