"""Combine the noisy totals of each node with the sums of its noisy segments.

A level has one query for its totals and one for each breakdown. The sum of the noisy segments of a node also estimates
its trips. The best combination of both selects the nodes that are measured at the next level, and the totals are
estimated from it. Its noise is uncorrelated with the differences between the segments of a node, so the selection does
not bias them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from od_core.errors import STAYS_CHARGED, OdError
from od_core.flows.estimation.refinement import LIMIT, refuse_large
from od_core.flows.estimation.top_down import Measurement, NoisyCounts, estimate
from od_core.flows.plan import ReleasePlan
from od_core.flows.step import CombinedTotals, SegmentStep
from od_core.geography.flow_tree import Nodes, Pairs
from od_core.ledger.measurements import NoisyArray
from od_core.parallel import memory
from od_core.records.segments import MOST_CATEGORIES, Breakdown, find


@dataclass(frozen=True, eq=False)
class CombinedCounts(NoisyCounts):
    """The totals of a level, combined with the sums of their segments.

    Attributes:
        noisy: The combination, rounded to whole numbers; shape (cells,).
        multiples: The combination times ``divisor``, exact; shape (cells,).
        divisor: Sum of the weights of the combination.
    """

    multiples: NDArray[np.int64]
    divisor: int

    def reals(self) -> NDArray[np.float64]:
        """Return the combination as real numbers; shape (cells,)."""
        return self.multiples / float(self.divisor)


_BYTES = 24
"""Bytes of memory that a release in one pass needs for each measured value, from the draws to the segments of leaves.

Measured: 21 to 24, for 4 to 32 categories and 20 to 260 million values."""

_PROFILE_BYTES = 24
"""Bytes that are added if segments are moved to profiles: the estimates of the leaves, those of all pieces joined, and
the moved ones. Computed for leaves that all have trips."""

SHRUNK_BYTES = 150
"""The same for shrunk estimates, which need whole levels as real numbers. Measured: 143, for 65 million leaves."""

_CHOOSING_BYTES = 210
"""The same if held-out noise chooses between estimates. Measured: 197 for 1.4 million leaves, 176 for 3.7 million."""

ASSISTING_BYTES = 250
"""The same if estimates also learn from an earlier release, and their measurements have been fitted before. Measured
with an earlier version: 243."""

_TOTALS_BYTES = {"shrunk": SHRUNK_BYTES, "auto": _CHOOSING_BYTES}


def refuse_beyond_memory(plan: ReleasePlan, level: int, parents: Pairs | None) -> None:
    """Raise OdError if the values of a level need more memory than this process may use.

    Levels by segment and levels of shrunk estimates are checked; others are read piece by piece.

    Their number follows from public estimates. The error is raised before the level is drawn, because a process that
    runs out of memory loses its draw. In a release in parts, the bands below the first need the memory of a few parts
    only, unless estimates learn from whole levels. These are checked for each part before it is drawn, and as a whole
    when all parts are known, before they are estimated.

    Args:
        parents: The estimated nodes whose children are measured; None if the level is the root.
    """
    learns = plan.mechanism.learns_from_levels
    whole = learns or (plan.segments is not None and level <= plan.step_bands[0][-1].level)
    if not whole or parents is None:
        return
    cells = sum(map(len, plan.tree.expand(parents)))
    values, needed = plan.tables * cells, cells * _TOTALS_BYTES.get(plan.mechanism.estimate, 0)
    if plan.segments is not None:
        needed += values * (_BYTES if plan.mechanism.segment_profile is None else _BYTES + _PROFILE_BYTES)
    if needed > memory():
        smaller = "with bands or fewer categories"
        if plan.mechanism.shrinks:
            smaller = f"without estimate: {plan.mechanism.estimate}"
        elif plan.mechanism.segment_profile is not None:
            smaller = "without segment_profile, or with fewer categories"
        raise OdError(
            "OD-PARTS-NEEDED",
            f"level {level} has {values:,} values in {plan.tables} table{'s' * (plan.tables > 1)}, which need about"
            f" {needed / 1e9:,.0f} GB of memory; this process may use {memory() / 1e9:,.0f} GB",
            next_step=f"run the release on a larger machine, or release a revision {smaller}",
            spent=STAYS_CHARGED,
        )


def next_parents(plan: ReleasePlan, measured: Sequence[Measurement], parents: Nodes | None) -> Nodes | None:
    """Return the estimated nodes of a level, whose children are measured next.

    Args:
        measured: All measurements of the level.
        parents: The estimated nodes of the level above. They are returned if the level is an exact root.
    """
    totals = combined_totals(plan, measured)
    if not totals:
        return parents
    return estimate(plan, totals[0].step, None if totals[0].parents is None else parents, totals[0].noisy)


@dataclass(frozen=True, eq=False)
class DecodedMeasurement(Measurement):
    """A measurement by segment whose values are in memory as an array.

    Attributes:
        values: The noisy values; shape (categories, cells).
    """

    values: NDArray[np.int64]


def _decoded(plan: ReleasePlan, measured: Sequence[Measurement]) -> list[Measurement]:
    """Return measurements with the values by segment in memory, so that each file is read once."""
    return [
        DecodedMeasurement(m.step, m.parents, m.noisy, by_category(m, find(plan.breakdowns, m.step.breakdown)))
        if isinstance(m.step, SegmentStep)
        else m
        for m in measured
    ]


def by_category(measurement: Measurement, breakdown: Breakdown) -> NDArray[np.int64]:
    """Return the noisy values of a measurement by segment; shape (categories, cells).

    Raises:
        OdError: If the number of values is not a multiple of the number of categories, or a value is too large.
    """
    if isinstance(measurement, DecodedMeasurement):
        return measurement.values
    categories = len(breakdown.categories)
    if len(measurement.noisy) % categories:
        raise OdError(
            "OD-MEASUREMENT-LENGTH",
            f"the measurement of level {measurement.step.level} by {breakdown.name} has {len(measurement.noisy)}"
            f" values, which is not a multiple of its {categories} categories",
            next_step="restore the measurement file from the archive",
            spent="the level stays charged",
        )
    values = np.ascontiguousarray(measurement.noisy.values().reshape(-1, categories).T)
    refuse_large(values, LIMIT // MOST_CATEGORIES)  # so that the values of all categories can be added
    return values


def segment_counts(plan: ReleasePlan, measured: Sequence[Measurement], name: str) -> list[list[NoisyCounts]]:
    """Return the measurements of a breakdown, category by category; each has the levels in order, top first.

    Args:
        measured: The measurements of all steps.
        name: Name of the breakdown.
    """
    breakdown, steps = find(plan.breakdowns, name), plan.segment_steps(name)
    own = [(m, by_category(m, breakdown)) for m in measured if m.step in steps]
    return [
        [NoisyCounts(m.step, m.parents, NoisyArray(values[k])) for m, values in own]
        for k in range(len(breakdown.categories))
    ]


@dataclass(frozen=True)
class Table:
    """One of the tables that a release is estimated from: the totals, or one category of a breakdown.

    Attributes:
        breakdown: Name of the breakdown; empty for the totals.
        category: Position of the category; 0 for the totals.
    """

    breakdown: str = ""
    category: int = 0

    def __str__(self) -> str:
        return f"{self.breakdown}_{self.category}" if self.breakdown else "totals"


TOTALS = Table()


def tables_of(plan: ReleasePlan) -> list[Table]:
    """Return the tables of a release, the totals first."""
    categories = [Table(one.name, k) for one in plan.breakdowns for k in range(len(one.categories))]
    return [TOTALS, *categories]


def counts_of(plan: ReleasePlan, measured: Sequence[Measurement]) -> dict[Table, list[NoisyCounts]]:
    """Return what each table of a release is estimated from, top level first.

    Args:
        measured: The measurements of all steps of some levels.

    Raises:
        OdError: As in :func:`by_category`.
    """
    measured = _decoded(plan, measured)
    counts = {TOTALS: combined_totals(plan, measured)}
    for breakdown in plan.breakdowns:
        of_categories = segment_counts(plan, measured, breakdown.name)
        counts |= {Table(breakdown.name, k): own for k, own in enumerate(of_categories)}
    return counts


def combined_totals(plan: ReleasePlan, measured: Sequence[Measurement]) -> list[NoisyCounts]:
    """Return what the totals of each level are estimated from, top level first.

    Without segments, these are the measurements. An exact root is left out.

    Args:
        measured: The measurements of all steps of some levels.
    """
    if plan.segments is None:
        return list(measured)
    combined: list[NoisyCounts] = []
    for total in plan.totals:
        own = [m for m in measured if m.step.level == total.level]
        if own and isinstance(total, CombinedTotals):
            combined.append(_combined(plan, total, own))
    return combined


def _combined(plan: ReleasePlan, total: CombinedTotals, measured: Sequence[Measurement]) -> CombinedCounts:
    """Return the weighted mean of the totals of a level and the sums of their segments; see ``CombinedTotals``."""
    of_totals, *of_segments = measured
    divisor = sum(total.weights)
    multiples = _weighted(of_totals.noisy.values(), total.weights[0])
    for m, breakdown, weight in zip(of_segments, plan.breakdowns, total.weights[1:], strict=True):
        multiples += _weighted(by_category(m, breakdown).sum(axis=0), weight)
    refuse_large(multiples, LIMIT // 2)
    rounded = (2 * multiples + divisor) // (2 * divisor)
    return CombinedCounts(total, of_totals.parents, NoisyArray(rounded), multiples, divisor)


def _weighted(values: NDArray[np.int64], weight: int) -> NDArray[np.int64]:
    """Return values times a weight. Raises OdError if they are too large."""
    refuse_large(values, LIMIT // max(1, 4 * weight))
    return values * weight
