"""Consistency of group sizes that were estimated by area and level (Kuo et al., Algorithms 1 and 2; spec 4).

Top down, the groups of an area are matched to those of its children, smallest with smallest. Matched groups are one
group with two estimates of its size; the child takes their average, weighted by the inverse of their variances, and
the sum of the weights. Sizes stay fractions until the leaf areas, whose histograms are then summed. All is whole
numbers: the sum of ``Runs.totals`` and that of ``Runs.weights`` are the numerator and the denominator of the average.

What the paper leaves open is settled here:

- It matches all groups of one size at once. After a merge, groups of one size may differ in weight; then those of less
  weight come first, each weight by itself.
- Equal remainders: the child that comes first in tree order rounds up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from od_core.errors import OdError
from od_core.group_sizes.estimation.runs import Runs, size_keys
from od_core.group_sizes.groups import Counts, Frame
from od_core.group_sizes.mechanisms.mechanism import Query
from od_core.kernels import kernel


class MergedLevels:
    """Defaults of a mechanism without options that measures every level and merges them: what it promises."""

    options: ClassVar[dict[str, str]] = {}
    leaves_alone: ClassVar[bool] = False
    adds_up: ClassVar[bool] = True
    keeps_totals: ClassVar[bool] = True


def merge(frame: Frame, levels: Sequence[Runs]) -> Runs:
    """Sizes of the groups at the leaf areas, with what all levels say of them.

    Args:
        frame: what is public.
        levels: of every measured level, top first: the sizes estimated from it alone, G_r groups an area.

    Raises:
        OdError: an area with another number of groups; the matching would have no end.
    """
    for level, runs in zip(frame.levels, levels, strict=True):
        groups = np.zeros(len(runs.first) - 1, dtype=np.int64)
        np.add.at(groups, runs.areas, runs.groups)
        if not np.array_equal(groups, frame.totals(level)):
            raise OdError(
                "OD-GROUPS-TOTALS",
                "an area has not its public number of groups before the merging",
                next_step="correct the method of that level",
                spent="what was drawn stays charged",
            )
    merged = levels[0]
    for level, children in zip(frame.levels[:-1], levels[1:], strict=True):  # `merged` is of this level
        merged = _merge_level(merged, children, frame.geography.first_child[level].astype(np.int64))
    return merged


def _merge_level(parents: Runs, children: Runs, first_child: Counts) -> Runs:
    """Sizes of the children's groups with what their parents say; p has ``first_child[p]:first_child[p + 1]``."""
    fan_out = np.diff(first_child)
    area = children.areas
    part, whole = size_keys(children.totals, children.weights)
    of_parent = np.repeat(np.arange(len(fan_out)), fan_out)[area]
    order = np.lexsort((part, whole, of_parent))  # stable: equal sizes in tree order
    tied = np.zeros(len(order), dtype=np.bool_)
    tied[1:] = (np.diff(part[order]) == 0) & (np.diff(whole[order]) == 0)  # read below one parent only
    # A child's run ends in one piece at most; any other piece is a share of a parent's run.
    most = len(order) + int(np.minimum(parents.groups, fan_out[parents.areas]).sum())
    most = min(most, int(children.groups.sum()))
    pieces = tuple(np.empty(most, dtype=np.int64) for _ in range(4))
    found = _match(
        (parents.first, parents.groups, parents.totals, parents.weights),
        children.first[first_child],
        (area[order], children.groups[order], children.totals[order], children.weights[order]),
        tied,
        pieces,
    )
    return Runs.of_pieces(len(children.first) - 1, *(piece[:found] for piece in pieces))


@kernel
def _match(parents, child_runs, children, tied, pieces):  # type: ignore[no-untyped-def]  # compiled
    """Match and merge below every parent; the number of pieces.

    ``children`` are runs by ascending size below one parent after the other (``child_runs[p]:child_runs[p + 1]``);
    ``tied`` says which have the size of the run before. Their numbers of groups are counted down to 0.
    """
    first, groups, totals, weights = parents
    area, left, child_totals, child_weights = children
    piece_area, piece_groups, piece_totals, piece_weights = pieces
    found = 0
    for parent in range(len(first) - 1):
        begin = end = child_runs[parent]
        unmatched_below = np.int64(0)  # groups left in runs begin:end, the smallest size that has any
        for run in range(first[parent], first[parent + 1]):
            unmatched = groups[run]
            while unmatched > 0:
                if unmatched_below == 0:
                    begin, end = end, end + 1
                    while end < child_runs[parent + 1] and tied[end]:
                        end += 1
                    unmatched_below = left[begin:end].sum()
                matched = min(unmatched, unmatched_below)
                shares = _shares(matched, left[begin:end], unmatched_below)
                for k in range(end - begin):
                    if shares[k] > 0:
                        at = begin + k
                        left[at] -= shares[k]
                        piece_area[found], piece_groups[found] = area[at], shares[k]
                        piece_totals[found] = totals[run] + child_totals[at]
                        piece_weights[found] = weights[run] + child_weights[at]
                        found += 1
                unmatched -= matched
                unmatched_below -= matched
    return found


@kernel
def _shares(matched, left, total):  # type: ignore[no-untyped-def]  # compiled
    """Share so many groups in proportion to ``left`` with sum ``total``, by largest remainders.

    No share exceeds what is left there: a quota that is no whole number is less than the whole number ``left``.
    """
    if matched == total:
        return left.copy()
    shares, remainders = np.empty_like(left), np.empty_like(left)
    rest = matched
    for k in range(len(left)):
        shares[k] = matched * left[k] // total
        remainders[k] = matched * left[k] - shares[k] * total
        rest -= shares[k]
    if rest > 0:
        for k in np.argsort(-remainders, kind="mergesort")[:rest]:  # stable
            shares[k] += 1
    return shares


# What every mechanism asks of noisy values before it reads them: their shapes, and sums that fit 64 bits.


def check_noisy(frame: Frame, query: Query, levels: Sequence[int], noisy: Sequence[Counts]) -> None:
    """Raise where the noisy values are not those of the query at these levels, or too large to add up."""
    if len(levels) * (int(frame.groups.sum()) + 1) >= 1 << 31 or frame.top_code >= 1 << 31:
        raise OdError(
            "OD-GROUPS-SIZE",
            "groups times levels, and the top code, must be below 2^31",
            next_step="release parts of the geography by themselves, or choose a smaller top code",
        )
    if len(noisy) != len(levels):
        raise _shape()
    for level, values in zip(levels, noisy, strict=True):
        totals = frame.totals(level)
        cells = {"histogram": frame.top_code + 1, "cumulative": frame.top_code}
        expected = (int(totals.sum()),) if query == "sizes" else (len(totals), cells[query])
        if values.shape != expected or values.dtype != np.int64:
            raise _shape()
        longest = int(totals.max(initial=1)) if query == "sizes" else cells[query]
        if max(int(values.max(initial=0)), -int(values.min(initial=0))) * longest >= 1 << 60:
            raise OdError(
                "OD-GROUPS-OVERFLOW",
                "the noisy values are too large for 64-bit sums",
                next_step="use a larger share of the budget, or a smaller top code",
                spent="what was drawn stays charged",
            )


def _shape() -> OdError:
    return OdError(
        "OD-GROUPS-SHAPE",
        "the noisy values have not the shape of what the mechanism measures",
        next_step="give whole numbers of 64 bits, one array a measured level, top first",
    )
