"""Group sizes of areas, equal ones together: what is estimated of an area between noisy values and histograms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from od_core.group_sizes.groups import Counts, Frame


@dataclass(frozen=True, eq=False)
class Runs:
    """For every area of a level its groups by ascending size, in runs of one size and one variance.

    A size is a fraction, ``totals / weights``. The weight is the inverse of its variance, in a unit common to all
    levels: the number of groups that the size was estimated from (spec 4, "Consistency": at one scale of noise the
    variances are 2/(S eps^2), 4/(n eps^2) or 16/(n eps^2), so that only S or n tells them apart).

    Attributes:
        first: runs ``first[a]:first[a + 1]`` are those of area a; shape (areas + 1,).
        groups: how many groups a run holds, at least 1; shape (runs,).
        totals: size times weight, at least 0; shape (runs,).
        weights: at least 1; shape (runs,).
    """

    first: Counts
    groups: Counts
    totals: Counts
    weights: Counts

    @classmethod
    def of_pieces(cls, areas: int, area: Counts, groups: Counts, totals: Counts, weights: Counts) -> Runs:
        """Runs of pieces in any order, one entry a piece: sorted, and equal ones together.

        Pieces of one size lie in ascending order of weight.
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
        """Runs of whole numbers of groups by size, one row an area; every size weighs its number of groups."""
        area, size = np.nonzero(histograms)
        groups = histograms[area, size]
        return cls(_first(area, len(histograms)), groups, size * groups, groups)

    @classmethod
    def joined(cls, parts: Sequence[Runs]) -> Runs:
        """The areas of all parts, one part after the other."""
        first = np.cumsum(np.concatenate([[0], *(np.diff(part.first) for part in parts)]))
        return cls(
            first,
            np.concatenate([part.groups for part in parts]),
            np.concatenate([part.totals for part in parts]),
            np.concatenate([part.weights for part in parts]),
        )

    @property
    def areas(self) -> Counts:
        """The area of every run; shape (runs,)."""
        return np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))


def size_keys(totals: Counts, weights: Counts) -> tuple[NDArray[np.float64], Counts]:
    """Two keys that order sizes, the second one first: the whole part, and the rest as a correctly rounded float.

    Equal sizes have equal keys, larger sizes never smaller ones. Different sizes have different keys where weights are
    below 2^26; beyond that, sizes less than 2^-52 apart may count as equal, on every machine alike.
    """
    whole = totals // weights
    return (totals - whole * weights) / weights, whole


def tables(frame: Frame, leaves: Runs) -> list[Counts]:
    """Histograms of all measured levels, from the sizes at the leaf areas, rounded to the nearest (halves up).

    Returns:
        Levels 1 to L, top first, the leaf level last; shape (areas, K + 1) each; the others are sums of it.
    """
    histograms = np.zeros((len(frame.groups), frame.top_code + 1), dtype=np.int64)
    sizes = (2 * leaves.totals + leaves.weights) // (2 * leaves.weights)
    np.add.at(histograms, (leaves.areas, sizes), leaves.groups)
    return [*(frame.sums(histograms, level) for level in frame.levels[:-1]), histograms]


def _first(area: NDArray[np.int64], areas: int) -> Counts:
    """Where the runs of each area begin, from the areas of the runs in ascending order."""
    return np.searchsorted(area, np.arange(areas + 1)).astype(np.int64)
