"""Store the estimated group sizes of areas as runs of equal sizes, between noisy values and histograms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from od_core.group_sizes.groups import Counts, Frame


@dataclass(frozen=True, eq=False)
class Runs:
    """The groups of every area of a level by ascending size, in runs of one size and one variance.

    A size is a fraction, ``totals / weights``. The weight is the inverse of the variance of the size, in a unit common
    to all levels: the number of groups that the size was estimated from. At one noise scale the variances are
    2/(S eps^2) or 4/(n eps^2) [kuo2018countofcounts, section 5.1], or 16/(n eps^2) for ``naive``, so only S or n
    matters.

    Attributes:
        first: runs ``first[a]:first[a + 1]`` belong to area a; shape (areas + 1,).
        groups: number of groups of a run, at least 1; shape (runs,).
        totals: size times weight, at least 0; shape (runs,).
        weights: weight of the size, at least 1; shape (runs,).
    """

    first: Counts
    groups: Counts
    totals: Counts
    weights: Counts

    @classmethod
    def of_pieces(cls, areas: int, area: Counts, groups: Counts, totals: Counts, weights: Counts) -> Runs:
        """Create runs from pieces in any order, one entry per piece: sort them and join equal ones.

        Pieces of one size are in ascending order of weight.
        """
        order = np.lexsort((weights, *size_keys(totals, weights), area))
        area, groups, totals, weights = area[order], groups[order], totals[order], weights[order]
        starts = np.ones(len(area), dtype=np.bool_)
        starts[1:] = (np.diff(area) != 0) | (np.diff(totals) != 0) | (np.diff(weights) != 0)
        places = np.flatnonzero(starts)
        together = np.add.reduceat(groups, places) if len(places) else groups
        return cls(_first(area[places], areas), together, totals[places], weights[places])

    @classmethod
    def of_histograms(cls, histograms: Counts) -> Runs:
        """Create runs from integer histograms, one row per area; the weight of a size is its number of groups."""
        area, size = np.nonzero(histograms)
        groups = histograms[area, size]
        return cls(_first(area, len(histograms)), groups, size * groups, groups)

    @classmethod
    def joined(cls, parts: Sequence[Runs]) -> Runs:
        """Join the areas of all parts, one part after the other."""
        first = np.cumsum(np.concatenate([[0], *(np.diff(part.first) for part in parts)]))
        return cls(
            first,
            np.concatenate([part.groups for part in parts]),
            np.concatenate([part.totals for part in parts]),
            np.concatenate([part.weights for part in parts]),
        )

    @property
    def areas(self) -> Counts:
        """Area of every run; shape (runs,)."""
        return np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))


def size_keys(totals: Counts, weights: Counts) -> tuple[NDArray[np.float64], Counts]:
    """Return two keys that order sizes: the fractional part as a correctly rounded float, and the integer part.

    The integer part, which comes second, is the primary key. Equal sizes have equal keys, and a larger size never has a
    smaller key. Different sizes have different keys if weights are below 2^26. Beyond that, sizes less than 2^-52 apart
    may count as equal, on every machine alike.
    """
    whole = totals // weights
    return (totals - whole * weights) / weights, whole


def tables(frame: Frame, leaves: Runs) -> list[Counts]:
    """Compute the histograms of all levels from the sizes at the leaf areas, rounded half up.

    Returns:
        Histograms of levels 1 to L, top first; shape (areas, K + 1) each. Upper levels are sums of the leaf level.
    """
    histograms = np.zeros((len(frame.groups), frame.top_code + 1), dtype=np.int64)
    sizes = (2 * leaves.totals + leaves.weights) // (2 * leaves.weights)
    np.add.at(histograms, (leaves.areas, sizes), leaves.groups)
    return [*(frame.sums(histograms, level) for level in frame.levels[:-1]), histograms]


def _first(area: NDArray[np.int64], areas: int) -> Counts:
    """Return the first run of each area, given the areas of the runs in ascending order."""
    return np.searchsorted(area, np.arange(areas + 1)).astype(np.int64)
