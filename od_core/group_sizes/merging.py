"""Merge runs of equal sizes from several levels into consistent ones.

From the top down, the groups of an area are matched to those of its children, smallest with smallest. The two estimates
of the size of a matched group are replaced by their average, weighted by the inverse variances. The weight of the
average is the sum of the two weights. Sizes remain fractions down to the leaf areas, where they are rounded. All
arithmetic is in integers: ``Runs.totals`` and ``Runs.weights`` sum to the numerator and denominator of the average.

The source leaves two points open:

- The source matches all groups of one size at once. After a merge, groups of one size may differ in weight. Here, they
  are matched one weight at a time, smallest weight first.
- The matched groups of one size are divided among the children by largest remainders. Of equal remainders, that of the
  child that comes first in tree order is rounded up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from od_core.errors import NOTHING_SPENT, OdError
from od_core.group_sizes.groups import Counts, Frame, Query
from od_core.kernels import kernel


@dataclass(frozen=True, eq=False)
class Runs:
    """The groups of every area of a level as runs (groups of equal size and weight), in ascending order of size.

    A size is a fraction, ``totals / weights``. The weight of a size is the number of groups that it was estimated from,
    summed over merged estimates. It is proportional to the inverse variance (2 / (S eps^2) for S groups by ``sizes``,
    4 / (n eps^2) for n by ``cumulative`` [kuo2018countofcounts, section 5.1], 16 / (n eps^2) by ``naive``), because all
    levels have the same epsilon and query; where queries are mixed, weights by ``sizes`` are doubled. Those of medians
    are doubled at all levels, so that a size between two integers is exact.

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
    def from_pieces(cls, areas: int, area: Counts, groups: Counts, totals: Counts, weights: Counts) -> Runs:
        """Sort pieces of runs, in ``areas`` areas, and join pieces that differ only in the number of groups.

        ``area`` is the area of each piece. The other arrays are as in :class:`Runs`; shape (pieces,) each.
        """
        order = np.lexsort((weights, *compute_size_keys(totals, weights), area))
        area, groups, totals, weights = area[order], groups[order], totals[order], weights[order]
        begins_run = np.ones(len(area), dtype=np.bool_)
        begins_run[1:] = (np.diff(area) != 0) | (np.diff(totals) != 0) | (np.diff(weights) != 0)
        starts = np.flatnonzero(begins_run)
        groups_of_runs = np.add.reduceat(groups, starts) if len(starts) else groups
        return cls(_find_first_runs(area[starts], areas), groups_of_runs, totals[starts], weights[starts])

    @classmethod
    def from_histograms(cls, histograms: Counts) -> Runs:
        """Create the runs from integer histograms, shape (areas, sizes). A size's weight is its number of groups."""
        area, size = np.nonzero(histograms)
        groups = histograms[area, size]
        return cls(_find_first_runs(area, len(histograms)), groups, size * groups, groups)

    @classmethod
    def from_midpoints(cls, groups: Counts, least: Counts, greatest: Counts) -> Runs:
        """Create the runs of equal midpoints of two sizes of every group, which ascend in each area.

        ``groups`` has the number of groups of each area; shape (areas,). A midpoint can be half an integer, so all
        weights are twice the number of groups.
        """
        area, doubled = np.repeat(np.arange(len(groups)), groups), least + greatest
        begins_run = np.ones(len(area), dtype=np.bool_)
        begins_run[1:] = (np.diff(area) != 0) | (np.diff(doubled) != 0)
        starts = np.flatnonzero(begins_run)
        lengths = np.diff(np.append(starts, len(area)))
        return cls(_find_first_runs(area[starts], len(groups)), lengths, doubled[starts] * lengths, 2 * lengths)

    @property
    def areas(self) -> Counts:
        """Number of the area of every run; shape (runs,)."""
        return np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))


def compute_size_keys(totals: Counts, weights: Counts) -> tuple[NDArray[np.float64], Counts]:
    """Return two sort keys of the sizes ``totals / weights``: the rounded fractional part and the integer part of each.

    Pass them to ``numpy.lexsort`` in this order: the last key is the primary one. Equal sizes have equal keys, and a
    larger size is never sorted before a smaller one. If all weights are below 2^26, different sizes have different
    keys. With larger weights, sizes less than 2^-52 apart can have equal keys.
    """
    integer_part = totals // weights
    return (totals - integer_part * weights) / weights, integer_part


def make_level_histograms(frame: Frame, leaves: Runs) -> list[Counts]:
    """Round ``leaves``, the sizes of the groups of the leaf areas, half up, and return the histograms of all levels.

    The histograms above the leaf level are sums of those of the leaf areas.
    """
    histograms = np.zeros((len(frame.groups), frame.top_code + 1), dtype=np.int64)
    sizes = (2 * leaves.totals + leaves.weights) // (2 * leaves.weights)
    np.add.at(histograms, (leaves.areas, sizes), leaves.groups)
    return frame.sum_every_level(histograms)


def _find_first_runs(area: Counts, areas: int) -> Counts:
    """Return :attr:`Runs.first` of ``areas`` areas, from the ascending ``area`` of each run."""
    return np.searchsorted(area, np.arange(areas + 1)).astype(np.int64)


def merge_levels(frame: Frame, levels: Sequence[Runs]) -> Runs:
    """Merge the estimates of all measured ``levels``, top first, and return the runs of the leaf areas.

    Raises OdError if an area does not have its public number of groups, so that the matching would not end.
    """
    measured = frame.levels[-len(levels) :]
    for level, runs in zip(measured, levels, strict=True):
        groups_before_run = np.append(0, np.cumsum(runs.groups))
        if not np.array_equal(np.diff(groups_before_run[runs.first]), frame.count_groups(level)):
            message = "an area does not have its public number of groups before the merging"
            step = "correct the method of that level"
            raise OdError("OD-GROUPS-TOTALS", message, next_step=step, spent="draws already made stay charged")
    merged = levels[0]
    for level, children in zip(measured[:-1], levels[1:], strict=True):  # `merged` belongs to `level`
        merged = _merge_level(merged, children, frame.geography.first_child[level].astype(np.int64))
    return merged


def _merge_level(parents: Runs, children: Runs, first_child: Counts) -> Runs:
    """Merge the sizes of a level with those of the next level, and return the merged sizes of the next level.

    The children of area a of the level are the areas ``first_child[a]:first_child[a + 1]`` of the next level.
    """
    fan_out = np.diff(first_child)  # number of children
    area = children.areas
    fraction, whole_part = compute_size_keys(children.totals, children.weights)
    parent_of_run = np.repeat(np.arange(len(fan_out)), fan_out)[area]
    order = np.lexsort((fraction, whole_part, parent_of_run))  # stable: equal sizes in tree order
    tied = np.zeros(len(order), dtype=np.bool_)
    tied[1:] = (np.diff(fraction[order]) == 0) & (np.diff(whole_part[order]) == 0)  # only read within one parent
    # Each run of a child ends in at most one piece. Every other piece is a child's share of a run of the parent.
    max_pieces = len(order) + int(np.minimum(parents.groups, fan_out[parents.areas]).sum())
    max_pieces = min(max_pieces, int(children.groups.sum()))
    pieces = tuple(np.empty(max_pieces, dtype=np.int64) for _ in range(4))
    number = _match_groups(
        (parents.first, parents.groups, parents.totals, parents.weights),
        children.first[first_child],
        (area[order], children.groups[order], children.totals[order], children.weights[order]),
        tied,
        pieces,
    )
    return Runs.from_pieces(len(children.first) - 1, *(piece[:number] for piece in pieces))


@kernel
def _match_groups(parents, child_runs, children, tied, pieces):  # type: ignore[no-untyped-def]  # compiled
    """Match the groups of every parent to those of its children, and return the number of pieces.

    A piece is a number of groups of one child with the same merged size. The area, the number of groups, the total and
    the weight of each piece are written into ``pieces``. ``children`` has the runs of all children in ascending order
    of size. Those of parent p are ``child_runs[p]:child_runs[p + 1]``. Their numbers of groups are overwritten with 0.
    ``tied`` marks the runs that have the same size as the run before.
    """
    first, groups, totals, weights = parents
    area, left, child_totals, child_weights = children
    piece_area, piece_groups, piece_totals, piece_weights = pieces
    pieces_made = 0
    for parent in range(len(first) - 1):
        begin = end = child_runs[parent]
        unmatched_below = np.int64(0)  # groups left in the children's runs begin:end, of the smallest size left
        for run in range(first[parent], first[parent + 1]):
            unmatched = groups[run]
            while unmatched > 0:
                if unmatched_below == 0:
                    begin, end = end, end + 1
                    while end < child_runs[parent + 1] and tied[end]:
                        end += 1
                    unmatched_below = left[begin:end].sum()
                matched = min(unmatched, unmatched_below)
                shares = _divide_in_proportion(matched, left[begin:end], unmatched_below)
                for k in range(end - begin):
                    if shares[k] > 0:
                        child_run = begin + k
                        left[child_run] -= shares[k]
                        piece_area[pieces_made], piece_groups[pieces_made] = area[child_run], shares[k]
                        piece_totals[pieces_made] = totals[run] + child_totals[child_run]
                        piece_weights[pieces_made] = weights[run] + child_weights[child_run]
                        pieces_made += 1
                unmatched -= matched
                unmatched_below -= matched
    return pieces_made


@kernel
def _divide_in_proportion(matched: int, left: Counts, total: np.int64) -> Counts:
    """Divide ``matched`` groups in proportion to ``left`` by largest remainders, and return the integer shares.

    ``total`` is the sum of ``left``, and ``matched`` is at most ``total``. No share exceeds its entry of ``left``,
    because an exact share that is not an integer is less than this entry.
    """
    if matched == total:
        return left.copy()
    shares, remainders = np.empty_like(left), np.empty_like(left)
    unshared = matched
    for k in range(len(left)):
        shares[k] = matched * left[k] // total
        remainders[k] = matched * left[k] - shares[k] * total
        unshared -= shares[k]
    if unshared > 0:
        for k in np.argsort(-remainders, kind="mergesort")[:unshared]:  # stable: ties in tree order
            shares[k] += 1
    return shares


def refuse_too_many(frame: Frame, levels: Sequence[int], *, spent: str = NOTHING_SPENT) -> None:
    """Raise OdError if a table with some measured levels has too many groups or sizes for 64-bit sums.

    A weight is at most twice the number of groups times the number of levels. A total is at most a weight times the top
    code. ``spent`` is what the error says of the budget that was spent before.
    """
    if len(levels) * (int(frame.groups.sum()) + 1) >= 1 << 31 or frame.top_code >= 1 << 30:
        message = "the number of groups times the number of levels must be below 2^31, and the top code below 2^30"
        step = "release parts of the geography separately, or choose a smaller top code"
        raise OdError("OD-GROUPS-SIZE", message, next_step=step, spent=spent)


def check_noisy(frame: Frame, queries: Sequence[Query], levels: Sequence[int], noisy: Sequence[Counts]) -> None:
    """Raise OdError if a table is too large, or if noisy values do not fit the query of each level, top first.

    Noisy values do not fit if they have another shape or type, or if their sums may exceed 64 bits.
    """
    refuse_too_many(frame, levels)
    widths = [frame.count_query_values(query, level) for query, level in zip(queries, levels, strict=True)]
    shapes = [
        (int(width.sum()),) if query == "sizes" else (len(width), int(width[0]))
        for query, width in zip(queries, widths, strict=True)
    ]
    if [values.shape for values in noisy] != shapes or any(values.dtype != np.int64 for values in noisy):
        message = "the noisy values do not have the shape of what the mechanism measures"
        step = "give 64-bit whole numbers, with one array per measured level, top first"
        raise OdError("OD-GROUPS-SHAPE", message, next_step=step)
    for width, values in zip(widths, noisy, strict=True):
        if max(int(values.max(initial=0)), -int(values.min(initial=0))) * int(width.max(initial=1)) >= 1 << 60:
            message = "the noisy values are too large for 64-bit sums"
            step = "use a larger share of the budget, or a smaller top code"
            raise OdError("OD-GROUPS-OVERFLOW", message, next_step=step, spent="draws already made stay charged")
