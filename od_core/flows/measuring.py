"""Measure the flow tree: add noise to true counts, from the top level down [boninsegna2025inftda, Algorithm 1].

Confidential: the functions here read true counts and return noisy values, which are public. What follows from noisy
values alone is in :mod:`od_core.flows.estimation`, which cannot import true counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from od_core.errors import OdError
from od_core.flows.arrays import Integers
from od_core.flows.estimation.levels import Measurement, estimate_next_parents, refuse_beyond_memory
from od_core.flows.plan import ReleasePlan
from od_core.flows.step import AreaTotalStep, LaplaceLevelStep, SegmentStep, ThresholdStep
from od_core.geography.flow_tree import Expansion, Nodes
from od_core.ledger.measurements import Measurements
from od_core.noise.backends import (
    NodeNoiseSource,
    NoiseSource,
    PositionedLaplaceSource,
    check_noise,
    require_laplace_source,
)
from od_core.parallel import map_in_order
from od_core.privacy.plan import GaussianStep
from od_core.records.counts import TripCounts


def measure_levels(
    plan: ReleasePlan,
    steps: Sequence[GaussianStep],
    parents: Nodes | None,
    trips: TripCounts,
    noise: NoiseSource,
    measurements: Measurements,
) -> tuple[list[Measurement], Nodes | None]:
    """Measure consecutive levels of the flow tree, by total and by segment, and estimate the totals of each level.

    Each estimate is computed from the stored values, because another process may have stored its own first.

    Args:
        steps: All steps of these levels, in the order of the plan.
        parents: The estimated nodes of the level above the first of these levels; None if the first level is the root.
        trips: The true trips below these nodes, also those of each category.

    Returns:
        The measurements of the steps, and the estimated totals of the last level. They are None if the last level is
        the leaves and the mechanism refines, because then only the refinement estimates the leaves.
    """
    measured: list[Measurement] = []
    nodes = parents
    for level in dict.fromkeys(step.level for step in steps):
        above = None if level == 0 else nodes
        level_measured = measure_level(plan, plan.steps_at(level), above, trips, noise, measurements)
        measured += level_measured
        is_refined = plan.mechanism.refines and level == plan.steps[-1].level
        nodes = None if is_refined else estimate_next_parents(plan, level_measured, nodes)
    return measured, nodes


def measure_level(
    plan: ReleasePlan,
    steps: Sequence[GaussianStep],
    parents: Nodes | None,
    trips: TripCounts,
    noise: NoiseSource,
    measurements: Measurements,
) -> list[Measurement]:
    """Measure all steps of a level, or of the area totals of a side, and return the measurements in their order.

    A step that was drawn before is read instead. Area totals have no ``parents``. For the other arguments, see
    :func:`measure_levels`. Raises OdError before it draws if the values do not fit into memory.
    """
    refuse_beyond_memory(plan, steps[0].level, parents)
    draws = ((step, partial(measure, plan, step, parents, trips, noise)) for step in steps)
    return [Measurement(step, parents, measurements.draw_once(step, draw)) for step, draw in draws]


def measure(
    plan: ReleasePlan, step: GaussianStep, parents: Nodes | None, trips: TripCounts, noise: NoiseSource
) -> Iterator[Integers]:
    """Return the true counts of all children of ``parents``, plus noise: totals, or the trips in each category.

    Without parents, the counts are those of the root or, for a step of area totals, of the zones of the step's side.

    The true trips are confidential. The result is public: an iterator of the level's noisy counts in tree order, in
    pieces. Together, they are the one vector query that the step is charged for. Raises OdError if the trips were not
    counted by the breakdown, or the noise source returns invalid or too large values.
    """
    tables: Sequence[TripCounts] = [trips]
    if isinstance(step, SegmentStep):
        if step.breakdown not in trips.by_segment:
            raise OdError(
                "OD-TRIPS-SEGMENTS",
                f"the trips are not counted by breakdown {step.breakdown!r}",
                next_step="count them with the breakdowns of the plan",
            )
        tables = trips.by_segment[step.breakdown]
    if parents is None:
        totals = np.array([table.total for table in tables])
        counts = trips.sum_by_zone(plan.tree, step.side) if isinstance(step, AreaTotalStep) else totals
        return iter([draw_noise(step, noise, 0, len(counts)) + counts])
    return map_in_order(partial(_measure_piece, plan, step, tables, noise), plan.tree.expand(parents))


def _measure_piece(
    plan: ReleasePlan, step: GaussianStep, tables: Sequence[TripCounts], noise: NoiseSource, expansion: Expansion
) -> Integers:
    """Return the noisy counts of one piece of a level; shape (children * tables,). The true trips are confidential."""
    noisy = _draw_noise_of_piece(plan, step, noise, expansion, len(tables))
    for k, counts in enumerate(tables):
        counts.add_to(noisy[k :: len(tables)], plan.tree, expansion)
    noisy.flags.writeable = False  # the measurement is final from here on
    return noisy


def measure_present(step: ThresholdStep, trips: TripCounts, noise: NoiseSource) -> Iterator[Integers]:
    """Measure all pairs of zones with trips; yield the ranks and noisy counts of those that reach the threshold.

    The true trips are confidential. The result is public: it is in tree order and has no pair below the threshold, so
    it reveals neither a dropped pair nor the order of the input (``docs/explanation/noise.md``).

    Raises:
        OdError: If the noise source draws no Laplace noise or returns invalid values.
    """
    counts = np.diff(trips.before)
    noisy = check_noise(noise, require_laplace_source(noise).draw_laplace(step.scale, len(counts)), len(counts))
    noisy += counts
    released = noisy >= step.threshold
    yield trips.rank[released]
    yield noisy[released]


def draw_noise(step: GaussianStep, noise: NoiseSource, first: int, size: int) -> Integers:
    """Return the values ``first:first + size`` of the noise of a step; shape (size,). OdError if they are invalid."""
    if isinstance(step, LaplaceLevelStep) and isinstance(noise, PositionedLaplaceSource):
        drawn = noise.draw_laplace_at(step.scale, step.number, first, size)
    elif isinstance(step, LaplaceLevelStep):
        drawn = require_laplace_source(noise).draw_laplace(step.scale, size)
    else:
        drawn = noise.draw(step.variance, step.number, first, size)
    return check_noise(noise, drawn, size)


def _draw_noise_of_piece(
    plan: ReleasePlan, step: GaussianStep, noise: NoiseSource, expansion: Expansion, values_per_child: int
) -> Integers:
    """Return the noise of the children of one piece of a level; shape (children * values_per_child,).

    The values of a child follow each other: one for its total, or one for each category. A source by node is asked for
    those of each child, by its rank; any other source for the next values of the step.
    """
    size = len(expansion) * values_per_child
    if isinstance(step, LaplaceLevelStep) or not isinstance(noise, NodeNoiseSource):
        return draw_noise(step, noise, expansion.first * values_per_child, size)
    first_values = plan.tree.compute_first_ranks(expansion.children)[:, np.newaxis] * values_per_child
    ranks = (first_values + np.arange(values_per_child)).ravel()
    return check_noise(noise, noise.draw_nodes(step.variance, step.number, ranks), size)
