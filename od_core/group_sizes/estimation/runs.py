"""Store the estimated group sizes of areas as runs of equal sizes, until they are converted to histograms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from od_core.group_sizes.groups import Counts, Frame


@dataclass(frozen=True, eq=False)
class Runs:
    """The groups of every area of a level as runs (groups of equal size and weight), in ascending order of size.

    A size is a fraction, ``totals / weights``. The weight of a size is the number of groups that it was estimated from,
    summed over merged estimates. It is proportional to the inverse variance. At epsilon eps, the variance is taken as
    2 / (S eps^2) for ``sizes``, 4 / (n eps^2) for ``cumulative`` [kuo2018countofcounts, section 5.1] and
    16 / (n eps^2) for ``naive``. All levels have the same query and eps, so that only the numbers of groups S or n
    matter.

    Attributes:
        first: runs ``first[a]:first[a + 1]`` belong to area a; shape (areas + 1,).
        groups: number of groups in each run, at least 1; shape (runs,).
        totals: size times weight of each run, at least 0; shape (runs,).
        weights: weight of each run, at least 1; shape (runs,).
    """

    first: Counts
    groups: Counts
    totals: Counts
    weights: Counts

    @classmethod
    def of_pieces(cls, areas: int, area: Counts, groups: Counts, totals: Counts, weights: Counts) -> Runs:
        """Sort pieces of runs by area, size and weight, and join pieces that differ only in the number of groups.

        Args:
            areas: number of areas.
            area: area of each piece; shape (pieces,).
            groups, totals, weights: as in :class:`Runs`, for each piece; shape (pieces,).
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
        """Create the runs from integer histograms, shape (areas, sizes). A size's weight is its number of groups."""
        area, size = np.nonzero(histograms)
        groups = histograms[area, size]
        return cls(_first(area, len(histograms)), groups, size * groups, groups)

    @classmethod
    def joined(cls, parts: Sequence[Runs]) -> Runs:
        """Concatenate parts, each of which has the runs of some consecutive areas."""
        first = np.cumsum(np.concatenate([[0], *(np.diff(part.first) for part in parts)]))
        return cls(
            first,
            np.concatenate([part.groups for part in parts]),
            np.concatenate([part.totals for part in parts]),
            np.concatenate([part.weights for part in parts]),
        )

    @property
    def areas(self) -> Counts:
        """Number of the area of every run; shape (runs,)."""
        return np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))


def size_keys(totals: Counts, weights: Counts) -> tuple[NDArray[np.float64], Counts]:
    """Return two sort keys of the sizes ``totals / weights``: their rounded fractional parts, and integer parts.

    Pass them to ``numpy.lexsort`` in this order: the last key, the integer part, is the primary one. Equal sizes have
    equal keys, and a larger size is never sorted before a smaller one. If all weights are below 2^26, different sizes
    have different keys. With larger weights, sizes less than 2^-52 apart can have equal keys. The keys are the same on
    every machine.
    """
    whole = totals // weights
    return (totals - whole * weights) / weights, whole


def tables(frame: Frame, leaves: Runs) -> list[Counts]:
    """Round ``leaves``, the sizes of the groups of the leaf areas, half up, and return the histograms of all levels.

    Returns:
        Histograms of levels 1 to L, top first; shape (areas, K + 1) each. Those above the leaf level are sums of the
        leaf areas' histograms.
    """
    histograms = np.zeros((len(frame.groups), frame.top_code + 1), dtype=np.int64)
    sizes = (2 * leaves.totals + leaves.weights) // (2 * leaves.weights)
    np.add.at(histograms, (leaves.areas, sizes), leaves.groups)
    return frame.every_level(histograms)


def _first(area: NDArray[np.int64], areas: int) -> Counts:
    """Return the first run of each area, then the number of runs; shape (areas + 1,).

    ``area`` has the area of each run, in ascending order.
    """
    return np.searchsorted(area, np.arange(areas + 1)).astype(np.int64)
