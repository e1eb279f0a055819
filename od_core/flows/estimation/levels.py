"""Hold the noisy counts of levels, combine the totals of a node with the sums of its segments, and estimate top down.

**Top down.** The estimate of a level follows from its noisy values and from the estimate of the level above
[boninsegna2025inftda, Algorithm 1]. A level is processed in pieces on all threads, and only the pieces in progress are
in memory. The children of a node are always in the same piece.

**Segments.** A level has one query for its totals and one for each breakdown. The sum of the noisy segments of a node
also estimates its trips. The best combination of both selects the nodes that are measured at the next level, and the
totals are estimated from it (``docs/explanation/segments.md``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from od_core.errors import STAYS_CHARGED, OdError
from od_core.flows.arrays import Integers, Reals
from od_core.flows.plan import ReleasePlan
from od_core.flows.step import AreaTotalStep, CombinedTotals, ThresholdStep, TotalStep
from od_core.geography.flow_tree import Expansion, Nodes, Pairs
from od_core.geography.geography import Numbers
from od_core.ledger.measurements import NoisyVector
from od_core.parallel import map_in_order, read_memory_limit
from od_core.privacy.plan import GaussianStep
from od_core.records.segments import MAX_BREAKDOWNS, MAX_CATEGORIES, Breakdown, find_breakdown

LIMIT = 1 << 61
"""Smallest sum of noisy values that is too large for 64-bit arithmetic."""

_ROOT = np.zeros(1, dtype=np.int32)
"""Area number of the root, as an array of shape (1,), for the origin and for the destination."""


@dataclass(frozen=True, eq=False)
class NoisyCounts:
    """Noisy counts of one level: a measurement, or a combination of the measurements of the level.

    Attributes:
        step: The step, or the combination of steps, with the variance of each count.
        parents: The nodes of the level above that were not dropped; None if the root was measured. The measured cells
            are all public children of these nodes, in tree order. If levels between the parents and the step's level
            are not measured, each child has exactly one descendant at the step's level, with the same area numbers. If
            the parents are nodes of the step's own level, they are the measured cells themselves: the pairs whose noisy
            counts reached a threshold.
        noisy: The noisy count of each cell; shape (cells,).
        exact: The counts before they were rounded to whole numbers, if they are a combination; shape (cells,).
    """

    step: TotalStep
    parents: Pairs | None
    noisy: NoisyVector
    exact: Reals | None = None

    def read_reals(self) -> Reals:
        """Return the noisy counts as real numbers; shape (cells,)."""
        return self.noisy.read_values().astype(np.float64) if self.exact is None else self.exact

    def count_cells(self, plan: ReleasePlan) -> int:
        """Return the number of measured cells, computed from the flow tree and the parents."""
        if self.parents is None:
            return len(list_parentless_cells(plan, self.step))
        return len(self.parents) if self._stands_alone else sum(map(len, plan.tree.expand(self.parents)))

    @property
    def _stands_alone(self) -> bool:
        """Whether the cells are listed themselves: a root, area totals, or pairs that reached a threshold.

        The cells of other steps are the children of ``parents``.
        """
        return self.parents is None or self.parents.level == self.step.level

    def iterate_pieces(self, plan: ReleasePlan, categories: int = 1) -> Iterator[tuple[Pairs, Integers]]:
        """Yield the measured cells in tree order, in pieces, and their noisy values: ``categories`` for each cell."""
        if self._stands_alone:
            cells = list_parentless_cells(plan, self.step) if self.parents is None else self.parents
            yield cells, self.noisy.read_values()
            return
        for expansion, noisy in self.expand_parents(plan, categories):
            children = expansion.children
            yield Pairs(self.step.level, children.origin, children.destination), noisy

    def expand_parents(self, plan: ReleasePlan, categories: int = 1) -> Iterator[tuple[Expansion, Integers]]:
        """Return an iterator of consecutive pieces: the expansion of some parents, and their children's noisy values.

        Each child has ``categories`` consecutive values. There are no pieces if the root was measured. Raises OdError
        if the number of noisy values does not match the number of children.
        """
        if self.parents is None:
            return iter(())
        expansions = list(plan.tree.expand(self.parents))
        sizes = [len(expansion) * categories for expansion in expansions]
        if sum(sizes) != len(self.noisy):
            message = f"{self.step.level} has {len(self.noisy)} values, but must have {sum(sizes)}"
            raise _make_length_error(message)
        return zip(expansions, self.noisy.iterate_pieces(sizes), strict=True)


def _make_length_error(message: str) -> OdError:
    return OdError(
        "OD-MEASUREMENT-LENGTH",
        f"the measurement of level {message}",
        next_step="restore the measurement file from the archive",
        spent="the level stays charged",
    )


@dataclass(frozen=True, eq=False)
class Measurement(NoisyCounts):
    """The noisy counts that were drawn for one planned step. They are public, and are never drawn again.

    The vector of a step by segment has one value for each category of the first cell, then of the second, and so on.
    """

    step: GaussianStep


def list_parentless_cells(plan: ReleasePlan, step: TotalStep) -> Pairs:
    """Return the cells of a step without parents: the root or, of area totals, the zones of the step's side.

    The other side of such a zone is the whole space.
    """
    if not isinstance(step, AreaTotalStep):
        return Pairs(step.level, _ROOT, _ROOT)
    geography = (plan.tree.origin, plan.tree.destination)[step.side]
    zones = np.arange(geography.size(geography.depth), dtype=np.int32)
    whole_space = np.zeros_like(zones)
    origin, destination = (whole_space, zones) if step.side == 1 else (zones, whole_space)
    return Pairs(step.level, origin, destination)


def make_measurement_order_error() -> OdError:
    """Return the error for a measurement that does not follow the one of the level above."""
    return OdError(
        "OD-MEASUREMENT-ORDER",
        "a measurement does not follow the measurement of the level above",
        next_step="report this defect",
    )


def make_published_root(plan: ReleasePlan, total: int) -> Nodes | None:
    """Return the root with the exact ``total`` if the plan publishes it as an invariant; otherwise None."""
    return make_root(plan, total) if plan.publishes_total else None


def list_leaf_parents(plan: ReleasePlan) -> Nodes:
    """Return all public nodes above the leaves, with 0 trips: the parents if a plan measures all leaves alone."""
    nodes = plan.tree.list_public_nodes(plan.tree.depth - 1)
    return Nodes(nodes.level, nodes.origin, nodes.destination, np.zeros(len(nodes), dtype=np.int64))


def estimate(plan: ReleasePlan, step: TotalStep, parents: Nodes | None, noisy: NoisyVector) -> Nodes:
    """Return the estimate of a whole level; see :func:`estimate_pieces`."""
    return Nodes.concatenate(step.level, estimate_pieces(plan, step, parents, noisy))


def estimate_pieces(plan: ReleasePlan, step: TotalStep, parents: Nodes | None, noisy: NoisyVector) -> Iterator[Nodes]:
    """Return an iterator of the estimated nodes of a level in tree order, in consecutive pieces.

    The mechanism projects the noisy values of the children of all ``parents``, which must have their trips. Nodes with
    the estimate 0 are left out, unless the plan keeps all nodes. If ``parents`` is None, the level is the root, and its
    estimate is the noisy value or 0, whichever is larger.

    Raises:
        OdError: If the number of noisy values differs from the number of the parents' children.
    """
    if parents is None:
        return iter([replace(make_root(plan, max(0, int(noisy.read_values()[0]))), level=step.level)])

    def estimate_piece(piece: tuple[Expansion, Integers]) -> Nodes:
        expansion, values = piece
        projected = plan.mechanism.project(values, parents.trips[expansion.parents], expansion.offsets)
        # Where levels above the step's are not measured, their nodes have one child each, with the same area numbers.
        return replace(expansion.with_trips(projected, keep_all=plan.keeps_all), level=step.level)

    return map_in_order(estimate_piece, NoisyCounts(step, parents, noisy).expand_parents(plan))


def make_root(plan: ReleasePlan, total: int) -> Nodes:
    """Return the root with the given total, as nodes of level 0.

    There is no node if the total is 0 and the plan drops nodes of 0. In that case, nothing below is measured.
    """
    area = np.zeros(1 if total > 0 or plan.keeps_all else 0, dtype=np.int32)
    return Nodes(0, area, area, np.full(len(area), total, dtype=np.int64))


def make_released_leaves(plan: ReleasePlan, step: ThresholdStep, kept: NoisyVector) -> tuple[Nodes, Measurement]:
    """Return the released leaves and their measurement, for a mechanism with a threshold.

    ``kept`` is the stored vector of the leaves that reached the threshold: all ranks, and then all noisy counts.
    """
    leaves = len(kept) // 2
    ranks, noisy = kept.iterate_pieces([leaves, leaves])
    pairs = plan.tree.find_leaf_pairs(ranks)
    measurement = Measurement(step, pairs, NoisyVector.from_arrays([noisy]))
    return Nodes(pairs.level, pairs.origin, pairs.destination, noisy), measurement


def refuse_large(values: Integers | Reals, limit: int) -> None:
    """Raise OdError if the magnitude of a value is ``limit`` or larger, so that sums may not fit 64 bits."""
    if values.size and (values.max() >= limit or values.min() <= -limit):
        raise make_overflow_error()


def make_overflow_error() -> OdError:
    """Return the error for sums that may not fit 64 bits."""
    return OdError(
        "OD-REFINEMENT-OVERFLOW",
        "the noisy values are too large for 64-bit sums",
        next_step="use mechanism inftda, or less noise",
        spent="draws already made stay charged",
    )


_BYTES_PER_VALUE = 24
"""Bytes of memory that a release in one pass needs for each measured value, from the draws to the segments of leaves.

Measured: 21 to 24, for 4 to 32 categories and 20 to 260 million values."""

_PROFILE_BYTES_PER_VALUE = 24
"""Bytes that are added if segments are moved to profiles: the estimates of the leaves, those of all pieces joined, and
the moved ones. Computed for leaves that all have trips."""

_BYTES_PER_LEAF_WITH_TOTALS = 120
"""Bytes for each measured leaf if least squares use area totals, for which whole levels are in memory. Measured: 122,
for 48 million leaves, with all else that the release needs."""

ASSISTING_BYTES = 250
"""Bytes for each measured leaf if estimates also learn from an earlier release, and their measurements have been fitted
before. Measured with an earlier version: 243."""


def refuse_beyond_memory(plan: ReleasePlan, level: int, parents: Pairs | None) -> None:
    """Raise OdError if the values of a level need more memory than this process may use.

    Levels by segment, and levels of estimates that are shrunk or use area totals, are checked; others are read piece by
    piece. The error is raised before the level is drawn, because a process that runs out of memory loses its draw. In a
    release in parts, a level below the first band needs the memory of a few parts only, and is checked only if
    estimates learn from whole levels: for each part before it is drawn, and as a whole when all parts are known.

    Args:
        parents: The estimated nodes whose children are measured; None if the level is the root.
    """
    estimator = plan.mechanism.estimator
    needs_whole_levels = plan.mechanism.learns_from_levels or plan.uses_area_totals
    has_segments_here = plan.segments is not None and level <= plan.step_bands[0][-1].level
    if parents is None or not (needs_whole_levels or has_segments_here):
        return
    cells = sum(map(len, plan.tree.expand(parents)))
    bytes_per_cell = max(estimator.leaf_bytes, _BYTES_PER_LEAF_WITH_TOTALS if plan.uses_area_totals else 0)
    values, needed = plan.tables * cells, cells * bytes_per_cell
    if plan.segments is not None:
        needed += values * (
            _BYTES_PER_VALUE if plan.mechanism.segment_profile is None else _BYTES_PER_VALUE + _PROFILE_BYTES_PER_VALUE
        )
    if needed > read_memory_limit():
        smaller = _suggest_smaller_release(plan)
        raise OdError(
            "OD-PARTS-NEEDED",
            f"level {level} has {values:,} values in {plan.tables} table{'s' if plan.tables > 1 else ''}, which need"
            f" about {needed / 1e9:,.0f} GB of memory; this process may use {read_memory_limit() / 1e9:,.0f} GB",
            next_step=f"run the release on a larger machine, or release a revision {smaller}",
            spent=STAYS_CHARGED,
        )


def _suggest_smaller_release(plan: ReleasePlan) -> str:
    """Return, in words that follow "a revision", how a plan would need less memory."""
    if plan.mechanism.shrinks:
        return f"without estimate: {plan.mechanism.estimator.estimate}"
    if plan.uses_area_totals:
        return "without known totals" if plan.known else "without area_totals"
    if plan.mechanism.segment_profile is not None:
        return "without segment_profile, or with fewer categories"
    return "with bands or fewer categories"


def estimate_next_parents(plan: ReleasePlan, measured: Sequence[Measurement], parents: Nodes | None) -> Nodes | None:
    """Return the estimated nodes of a level, whose children are measured next.

    Args:
        measured: All measurements of the level, of its totals and by segment.
        parents: The estimated nodes of the level above; None if the level is the root. If only the segments of the
            level were measured, because it is an exact root, ``parents`` are this root, and are returned.
    """
    totals = combine_totals(plan, measured)
    if not totals:
        return parents
    (total,) = totals  # of one level
    return estimate(plan, total.step, None if total.parents is None else parents, total.noisy)


def split_by_category(measurement: Measurement, breakdown: Breakdown) -> Integers:
    """Return the noisy values of a measurement by segment; shape (categories, cells).

    Raises:
        OdError: If the number of values is not a multiple of the number of categories, or a value is too large.
    """
    categories = len(breakdown.categories)
    if len(measurement.noisy) % categories != 0:
        raise _make_length_error(
            f"{measurement.step.level} by {breakdown.name} has {len(measurement.noisy)} values, which is not a multiple"
            f" of its {categories} categories"
        )
    values = np.ascontiguousarray(measurement.noisy.read_values().reshape(-1, categories).T)
    refuse_large(values, LIMIT // MAX_CATEGORIES)  # so that the values of all categories can be added
    return values


def list_segment_counts(plan: ReleasePlan, measured: Sequence[Measurement], name: str) -> list[list[NoisyCounts]]:
    """Return the noisy counts by a breakdown: a list for each category, which has those of each level, top first."""
    breakdown, steps = find_breakdown(plan.breakdowns, name), plan.segment_steps(name)
    of_categories: list[list[NoisyCounts]] = [[] for _ in breakdown.categories]
    for measurement in (m for m in measured if m.step in steps):
        values = split_by_category(measurement, breakdown)
        for k, of_category in enumerate(of_categories):
            of_category.append(NoisyCounts(measurement.step, measurement.parents, NoisyVector(values[k])))
    return of_categories


MeasuredTotals = Mapping[int, tuple[Reals, float]]
"""Measured totals of the zones of each side that has some, by its number, and the variance of their noise."""

SideTotals = Mapping[int, tuple[Reals, float | Reals]]
"""Measured or known totals of the zones of each side that has some, by its number, and the variance of their errors.

The variance is that of the noise, which all measured totals have, or one for each total; shape (zones,)."""


def select_area_totals(measured: Sequence[Measurement]) -> MeasuredTotals:
    """Return the noisy area totals and their variance, by the side that they are measured on."""
    return {
        measurement.step.side: (measurement.read_reals(), float(measurement.step.variance))
        for measurement in measured
        if isinstance(measurement.step, AreaTotalStep)
    }


def list_side_totals(plan: ReleasePlan, measured: MeasuredTotals) -> SideTotals:
    """Return area totals by side: the known ones of the plan and, of a side without those, the measured ones.

    A zone of which no pair can have trips has the measured total 0 without variance.
    """
    totals: dict[int, tuple[Reals, float | Reals]] = {**measured}
    if (possible := plan.tree.possible) is not None:
        for side, (noisy, noise) in measured.items():
            zones = np.bincount((possible.origin, possible.destination)[side], minlength=len(noisy))
            has_pairs = (zones > 0).astype(np.float64)
            totals[side] = noisy * has_pairs, noise * has_pairs
    return {**totals, **{known.number: (known.trips, known.variances) for known in plan.known}}


def sum_variances(variance: float | Reals, area: Integers | Numbers, areas: int) -> Reals:
    """Return the variance of the sum of the totals of the zones of each area; shape (areas,).

    ``variance`` is that of each zone, as in :data:`SideTotals`, and ``area`` the number of its area; shape (zones,).
    """
    if isinstance(variance, float):
        return (variance * np.bincount(area, minlength=areas)).astype(np.float64)
    return np.bincount(area, variance, minlength=areas).astype(np.float64)


Tables = dict[str, list[list[NoisyCounts]]]
"""The noisy counts that each table of a release is estimated from, by the name of a breakdown: for each of its
categories, those of every level, top first. The empty name has one such list, of the totals."""


def make_noisy_tables(plan: ReleasePlan, measured: Sequence[Measurement]) -> Tables:
    """Return the noisy counts of each table at some levels, given the measurements of all steps of these levels."""
    segments = {breakdown.name: list_segment_counts(plan, measured, breakdown.name) for breakdown in plan.breakdowns}
    totals: list[NoisyCounts] = [counts for counts in measured if not isinstance(counts.step, AreaTotalStep)]
    if segments:
        totals = _combine_level_totals(plan, measured, segments)
    return {"": [totals]} | segments


def combine_totals(plan: ReleasePlan, measured: Sequence[Measurement]) -> list[NoisyCounts]:
    """Return the noisy totals from which each level is estimated, top level first.

    Without segments, these are the measurements. With segments, they are the weighted means of the totals of a level
    and the sums of their segments; see :class:`od_core.flows.step.CombinedTotals`. An exact root is left out.
    """
    (totals,) = make_noisy_tables(plan, measured)[""]
    return totals


def _combine_level_totals(plan: ReleasePlan, measured: Sequence[Measurement], segments: Tables) -> list[NoisyCounts]:
    """Return the noisy totals of each measured level: the weighted mean of its totals and of the sums of its segments.

    A level whose total is not measured, such as an exact root, is left out.
    """
    combined: list[NoisyCounts] = []
    for total in plan.totals:
        of_totals = next((m for m in measured if m.step.level == total.level), None)  # within a level, totals are first
        if of_totals is None or not isinstance(total, CombinedTotals):
            continue
        weight_of_total, *weights = total.weights
        weighted_sum = _multiply_by_weight(of_totals.noisy.read_values(), weight_of_total)
        for categories, weight in zip(segments.values(), weights, strict=True):
            of_breakdown = np.zeros_like(weighted_sum)
            for levels in categories:
                (counts,) = (counts for counts in levels if counts.step.level == total.level)
                of_breakdown += counts.noisy.read_values()
            weighted_sum += _multiply_by_weight(of_breakdown, weight)
        refuse_large(weighted_sum, LIMIT // 2)  # it is doubled below
        divisor = sum(total.weights)
        rounded = NoisyVector((2 * weighted_sum + divisor) // (2 * divisor))
        combined.append(NoisyCounts(total, of_totals.parents, rounded, weighted_sum / float(divisor)))
    return combined


_MAX_TERMS = 1 + MAX_BREAKDOWNS
"""Largest number of terms of a weighted sum of totals: the measured total, and the sum of each breakdown."""


def _multiply_by_weight(values: Integers, weight: int) -> Integers:
    """Return values times a weight, a term of a weighted sum of totals.

    Raises OdError if a product may be ``LIMIT / _MAX_TERMS`` or larger. Below it, the sum of all terms fits 64 bits.
    """
    refuse_large(values, LIMIT // max(1, _MAX_TERMS * weight))
    return values * weight
