"""Measuring a level of a group-size table: the last function that sees confidential sizes (spec 4)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from od_core.group_sizes.frame import Counts, Frame
from od_core.group_sizes.groups import GroupSizes
from od_core.group_sizes.mechanisms.mechanism import Query
from od_core.group_sizes.plan import TOP_CODE_LEVEL, LaplaceStep
from od_core.noise.sources import NoiseSource, checked_noise, laplace_source

CELLS = 1 << 20
"""Values that are worked on at a time, or those of one area."""


def measure(frame: Frame, query: Query, step: LaplaceStep, groups: GroupSizes, noise: NoiseSource) -> Iterator[Counts]:
    """Confidential in, public out: the query of every area of a level plus noise, in consecutive pieces.

    At ``TOP_CODE_LEVEL`` it is the largest size, capped at the frame's top code: the public bound in the plan's frame.

    Raises:
        OdError: the noise source draws no Laplace noise or does not keep its contract.
    """
    source = laplace_source(noise)
    for counts in true_values(frame, query, step.level, groups):
        noisy = checked_noise(noise, source.draw_laplace(step.scale, len(counts)), len(counts))
        noisy += counts
        noisy.flags.writeable = False  # from here on it is what was measured
        yield noisy


def true_values(frame: Frame, query: Query, level: int, groups: GroupSizes) -> Iterator[Counts]:
    """Confidential: the query of every area of a level, flat, in pieces of whole areas."""
    sizes = np.minimum(groups.size, frame.top_code)
    if level == TOP_CODE_LEVEL:
        yield np.array([sizes.max(initial=0)], dtype=np.int64)
        return
    ends = np.concatenate(([0], np.cumsum(frame.totals(level))))  # groups of an area stand side by side
    starts = _pieces(widths(frame, query, level))
    for first, last in pairwise(starts):
        members = sizes[ends[first] : ends[last]]
        area = np.repeat(np.arange(last - first), np.diff(ends[first : last + 1]))
        if query == "sizes":
            yield members[np.lexsort((members, area))]
            continue
        cells = np.bincount(area * (frame.top_code + 1) + members, minlength=(last - first) * (frame.top_code + 1))
        histogram = cells.reshape(last - first, frame.top_code + 1)
        yield (histogram if query == "histogram" else np.cumsum(histogram, axis=1)[:, :-1]).astype(np.int64).ravel()


def cells(frame: Frame, query: Query, level: int) -> int:
    """Number of values that the query of a level has."""
    return int(widths(frame, query, level).sum())


def widths(frame: Frame, query: Query, level: int) -> Counts:
    """Number of values of every area of a level; shape (areas,). The whole space has its largest size alone."""
    if level == TOP_CODE_LEVEL:
        return np.ones(1, dtype=np.int64)
    totals = frame.totals(level)
    return totals if query == "sizes" else np.full(len(totals), frame.top_code + (query == "histogram"))


def rows(frame: Frame, query: Query, flat: Counts) -> Counts:
    """The values of a level as mechanisms take them: one row an area, but for ``sizes``."""
    if query == "sizes":
        return flat
    return flat.reshape(-1, frame.top_code + (query == "histogram"))


def _pieces(cells: Counts) -> list[int]:
    """Areas at which pieces begin, and their end: about ``CELLS`` values a piece, at least one area."""
    ends = np.cumsum(cells)
    starts = [0]
    while starts[-1] < len(cells):
        done = ends[starts[-1] - 1] if starts[-1] else 0
        starts.append(max(starts[-1] + 1, int(np.searchsorted(ends, done + CELLS, side="right"))))
    return starts
