"""Move the estimates of segments towards the profile of their parent, in whole levels.

Let r_i be the released trips of the children of a node, c_s the node's trips in each category, and n the sum of both.
If every child divided its trips among the categories as the node does, child i would have p_is = r_i c_s / n trips of
category s. These are its *profile*. How far true counts deviate from it is estimated from all cells of a level with
profiles of similar size: with E the estimate that fits both margins, and w the variance of its noise,

    tau^2 = max(0, mean of (E - p)^2 - w).

Then E moves towards p by the part w / (w + tau^2) of their distance, but by at most u standard deviations of its noise.
So a cell that differs much from its profile keeps most of the difference.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from od_core.flows.estimation.families import SIZES, pooled, size_of
from od_core.flows.projection.two_margins import fit_to_margins, fits
from od_core.kernels import kernel

_Values = NDArray[np.int64]
_Reals = NDArray[np.float64]


def move_to_profile(
    estimates: _Values,
    weights: _Values,
    variances: _Reals,
    totals: _Values,
    parents: _Values,
    offsets: _Values,
    bits: int,
    most: float,
) -> _Values:
    """Return estimates of all children of a level, moved towards the profiles of their parents.

    The result is for :func:`od_core.flows.projection.two_margins.project_to_margins`, which has most of the arguments.

    Args:
        estimates, weights, totals, parents, offsets, bits: as there, for a whole level.
        variances: variance of the estimates of each child; shape (children,).
        most: largest move of an estimate, in standard deviations of its noise.

    Returns:
        Shape (children, categories), in fixed point. The children of a family with one row or one column, which has no
        choice, and of a family that is too large for the projection, are unchanged.
    """
    moved = estimates.copy()
    squares, cells = np.zeros(SIZES), np.zeros(SIZES, dtype=np.int64)
    fitted = np.zeros(len(parents), dtype=np.bool_)
    sigma = math.sqrt(variances.max(initial=1.0))
    families = variances, totals, parents, offsets, bits, sigma
    _fit(weights, *families, moved, fitted, squares, cells)
    whole, number = pooled(cells, squares, cells.astype(np.float64))
    deviation = np.maximum(np.divide(whole, number, out=np.zeros(SIZES), where=number > 0), 0)
    _move(*families, fitted, deviation, most, moved)
    return moved


@kernel
def _fit(weights, variances, totals, parents, offsets, bits, sigma, moved, fitted, squares, cells):  # type: ignore[no-untyped-def]  # compiled
    """Replace estimates by E, mark these families, and add (E - p)^2 - w and the number of cells by size."""
    for parent in range(len(parents)):
        rows, columns = _choices(totals, parents[parent], offsets[parent], offsets[parent + 1])
        trips = parents[parent].sum()
        if len(rows) < 2 or len(columns) < 2 or not fits(moved, weights, rows, columns, trips, bits):
            continue
        fitted[parent] = True
        row_sums, column_sums = totals[rows], parents[parent][columns]
        values = fit_to_margins(moved, weights[rows], rows, columns, row_sums, column_sums, bits)
        siblings = variances[rows].sum()
        for i in range(len(rows)):
            noise = _noise(variances[rows[i]], siblings, len(columns))
            for s in range(len(columns)):
                profile = np.float64(row_sums[i]) * column_sums[s] / trips
                gap = values[s, i] / np.float64(1 << bits) - profile
                size = size_of(profile, sigma)
                squares[size] += gap * gap - noise
                cells[size] += 1
                moved[rows[i], columns[s]] = values[s, i]


@kernel
def _move(variances, totals, parents, offsets, bits, sigma, fitted, deviation, most, moved):  # type: ignore[no-untyped-def]  # compiled
    """Move E of the fitted families towards p."""
    for parent in np.flatnonzero(fitted):
        rows, columns = _choices(totals, parents[parent], offsets[parent], offsets[parent + 1])
        trips = parents[parent].sum()
        siblings = variances[rows].sum()
        for i in range(len(rows)):
            noise = _noise(variances[rows[i]], siblings, len(columns))
            limit = most * math.sqrt(noise)
            for s in range(len(columns)):
                profile = np.float64(totals[rows[i]]) * parents[parent][columns[s]] / trips
                value = moved[rows[i], columns[s]] / np.float64(1 << bits)
                step = (profile - value) * noise / (noise + deviation[size_of(profile, sigma)])
                moved[rows[i], columns[s]] += np.int64(np.rint(min(max(step, -limit), limit) * (1 << bits)))


@kernel
def _choices(totals, by_category, first, last):  # type: ignore[no-untyped-def]  # compiled
    """Return the children and the categories of a family that have trips."""
    return np.flatnonzero(totals[first:last]) + first, np.flatnonzero(by_category)


@kernel
def _noise(variance, siblings, columns):  # type: ignore[no-untyped-def]  # compiled
    """Return w, the variance that the noise gives to E of one child in a family with this sum of variances."""
    return variance * (1.0 - variance / siblings) * (1.0 - 1.0 / columns)
