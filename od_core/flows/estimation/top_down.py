"""Measure and estimate the flow tree from the top down [boninsegna2025inftda, Algorithm 1].

``measure`` is the last function that sees confidential counts; ``estimate`` sees noisy values alone; ``run_level`` does
both in turn. All work in pieces that hold all children of their parents, on all threads, and hold only the pieces in
progress in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.plan import GaussianStep, ReleasePlan, ThresholdStep
from od_core.geography.flow_tree import Expansion, Nodes, Pairs
from od_core.ledger.measurements import Measurements, NoisyVector
from od_core.noise.sources import NodeNoiseSource, NoiseSource, checked_noise, laplace_source
from od_core.parallel import in_order
from od_core.records.trip_counts import TripCounts

_ROOT = np.zeros(1, dtype=np.int32)
"""Number of the one area of level 0, on either side."""


@dataclass(frozen=True, eq=False)
class Measurement:
    """The noisy counts of one level: public by the guarantee, never drawn again.

    Attributes:
        step: The step that was planned and charged.
        parents: The nodes above that were kept. The measured cells are all their public children, in tree order. None
            for a measured root. Where levels in between are not measured, each child has one descendant. Nodes of the
            step's own level are themselves the cells: pairs whose count reached a threshold.
        noisy: True count plus noise of each cell; shape (cells,).
    """

    step: GaussianStep
    parents: Pairs | None
    noisy: NoisyVector

    def cells(self, plan: ReleasePlan) -> int:
        """Return the number of measured cells that follows from the plan and the parents."""
        if self.parents is None:
            return 1
        return len(self.parents) if self._stands_alone else sum(map(len, plan.tree.expand(self.parents)))

    @property
    def _stands_alone(self) -> bool:
        return self.parents is None or self.parents.level == self.step.level

    def pieces(self, plan: ReleasePlan) -> Iterator[tuple[Pairs, NDArray[np.int64]]]:
        """Yield the measured cells and their noisy values, in tree order, piece by piece."""
        if self._stands_alone:
            cells = Pairs(self.step.level, _ROOT, _ROOT) if self.parents is None else self.parents
            yield cells, self.noisy.values()
            return
        for expansion, noisy in self.expanded(plan):
            children = expansion.children
            yield Pairs(self.step.level, children.origin, children.destination), noisy

    def expanded(self, plan: ReleasePlan) -> Iterator[tuple[Expansion, NDArray[np.int64]]]:
        """Return the children of the parents with their noisy values, piece by piece; nothing if the root was measured.

        Raises:
            OdError: If there is not one value for each child.
        """
        if self.parents is None:
            return iter(())
        expansions = list(plan.tree.expand(self.parents))
        if sum(map(len, expansions)) != len(self.noisy):
            raise OdError(
                "OD-MEASUREMENT-LENGTH",
                f"the measurement of level {self.step.level} has {len(self.noisy)} values, but must have one for"
                " each child of the nodes above",
                next_step="restore the measurement file from the archive",
                spent="the level stays charged",
            )
        return zip(expansions, self.noisy.pieces(map(len, expansions)), strict=True)


def published_root(plan: ReleasePlan, total: int) -> Nodes | None:
    """Return the root with the exact n if n is an invariant; None if the root, or nothing but leaves, is measured."""
    return root_of(plan, total) if plan.publishes_total else None


def above_the_leaves(plan: ReleasePlan) -> Nodes:
    """Return all public nodes above the leaves with 0 trips, for a plan that measures every leaf and nothing else."""
    nodes = plan.tree.public_nodes(plan.tree.depth - 1)
    return Nodes(nodes.level, nodes.origin, nodes.destination, np.zeros(len(nodes), dtype=np.int64))


def run_levels(
    plan: ReleasePlan,
    steps: Sequence[GaussianStep],
    parents: Nodes | None,
    trips: TripCounts,
    noise: NoiseSource,
    measurements: Measurements,
    *,
    shared: bool = False,
) -> tuple[list[Measurement], Nodes | None]:
    """Measure consecutive levels below some nodes, each once, and estimate each below the one above.

    Args:
        plan: The plan of the release.
        steps: Steps of the levels, top first.
        parents: The released nodes above the first level; None if the root is the first.
        trips: The true trips below these nodes.
        noise: Source of the noise.
        measurements: Store of the measurements.
        shared: Whether another process may store its draw of a level first. If so, only stored values are used.

    Returns:
        The measurements, and the estimate of the last level. The estimate is None if the leaves are estimated by
        refinement alone.

    Raises:
        OdError: As :func:`run_level`.
    """
    measured, nodes = [], parents
    for step in steps:
        below: Nodes | None = None
        is_refined = plan.mechanism.refines and step is plan.steps[-1]
        if is_refined or shared:
            noisy = measurements.once(step, partial(measure, plan, step, nodes, trips, noise))
            below = None if is_refined else estimate(plan, step, nodes, noisy)
        else:
            noisy, below = run_level(plan, step, nodes, trips, noise, measurements)
        measured.append(Measurement(step, nodes, noisy))
        nodes = below
    return measured, nodes


def run_level(
    plan: ReleasePlan,
    step: GaussianStep,
    parents: Nodes | None,
    trips: TripCounts,
    noise: NoiseSource,
    measurements: Measurements,
) -> tuple[NoisyVector, Nodes]:
    """Measure a level once, and estimate it below the released nodes of the level above.

    A newly drawn piece is estimated at once, while it is in the cache. A stored measurement is read from its file. Both
    give the same estimate, which is returned only once the measurement is stored.

    Raises:
        OdError: As :func:`measure`, :func:`estimate` and the measurements.
    """
    estimates: list[Nodes | None] = []

    def draw() -> Iterator[NDArray[np.int64]]:
        if parents is None:
            yield from measure(plan, step, None, trips, noise)
            return

        def drawn(expansion: Expansion) -> tuple[NDArray[np.int64], Nodes | None]:
            noisy = _measured(plan, step, trips, noise, expansion)
            try:
                return noisy, _estimated(plan, step, parents, expansion, noisy)
            except Exception:  # noqa: BLE001  # raised again below, after the draw is stored
                return noisy, None

        for noisy, nodes in in_order(drawn, plan.tree.expand(parents)):
            estimates.append(nodes)
            yield noisy

    kept = measurements.once(step, draw)
    whole = [nodes for nodes in estimates if nodes is not None]
    if whole and len(whole) == len(estimates):
        return kept, Nodes.joined(step.level, whole)
    return kept, estimate(plan, step, parents, kept)


def measure(
    plan: ReleasePlan, step: GaussianStep, parents: Nodes | None, trips: TripCounts, noise: NoiseSource
) -> Iterator[NDArray[np.int64]]:
    """Return the true counts of all children of the released nodes, plus noise: confidential in, public out.

    Returns:
        Noisy counts of the level in tree order, in consecutive pieces: the vector query that the step is charged for.

    Raises:
        OdError: If the noise source breaks its contract, or its values are too large.
    """
    if parents is None:
        return iter([_drawn(noise, step, 0, 1) + trips.total])
    return in_order(partial(_measured, plan, step, trips, noise), plan.tree.expand(parents))


def estimate(plan: ReleasePlan, step: GaussianStep, parents: Nodes | None, noisy: NoisyVector) -> Nodes:
    """Return the whole estimate of a level, from its pieces; see :func:`estimate_pieces`."""
    return Nodes.joined(step.level, estimate_pieces(plan, step, parents, noisy))


def estimate_pieces(
    plan: ReleasePlan, step: GaussianStep, parents: Nodes | None, noisy: NoisyVector
) -> Iterator[Nodes]:
    """Return integers of at least 0 that sum to the level above; nodes of 0 are dropped with their branch.

    With ``all_leaves``, they are the measured values, which may be negative. If the plan keeps all nodes, nodes of 0
    stay. The estimate depends on public values alone and is the same at every call.

    Raises:
        OdError: If the noisy values are not those of the parents' children.
    """
    if parents is None:
        root = root_of(plan, max(0, int(noisy.values()[0])))
        return iter([at_step(step, root)])
    pieces = Measurement(step, parents, noisy).expanded(plan)
    return in_order(lambda piece: _estimated(plan, step, parents, *piece), pieces)


def _measured(
    plan: ReleasePlan, step: GaussianStep, trips: TripCounts, noise: NoiseSource, expansion: Expansion
) -> NDArray[np.int64]:
    """Return one piece of a level, measured: confidential in, public out."""
    if isinstance(noise, NodeNoiseSource):
        drawn = noise.draw_nodes(step.variance, step.level, plan.tree.first_rank(expansion.children))
        noisy = checked_noise(noise, drawn, len(expansion))
    else:
        noisy = _drawn(noise, step, expansion.first, len(expansion))
    trips.add_to(noisy, plan.tree, expansion)
    noisy.flags.writeable = False  # the measurement is final from here on
    return noisy


def _estimated(
    plan: ReleasePlan, step: GaussianStep, parents: Nodes, expansion: Expansion, noisy: NDArray[np.int64]
) -> Nodes:
    """Return one piece of a level, estimated: public in, public out."""
    totals = parents.trips[expansion.parents]
    projected = plan.mechanism.project(noisy, totals, expansion.offsets)
    return at_step(step, expansion.with_trips(projected, keep_all=plan.keeps_all))


def root_of(plan: ReleasePlan, total: int) -> Nodes:
    """Return the root, or no node if its total is 0 and the plan drops nodes of 0; nothing below is then measured."""
    area = np.zeros(1 if total > 0 or plan.keeps_all else 0, dtype=np.int32)
    return Nodes(0, area, area, np.full(len(area), total, dtype=np.int64))


def at_step(step: GaussianStep, nodes: Nodes) -> Nodes:
    """Return estimated nodes at the level of their step, if each node of the levels in between has one child.

    Such a child has its parent's area numbers and trips, and both are in tree order.
    """
    return Nodes(step.level, nodes.origin, nodes.destination, nodes.trips)


def _drawn(noise: NoiseSource, step: GaussianStep, first: int, size: int) -> NDArray[np.int64]:
    """Return noise for one piece of a level, checked."""
    return checked_noise(noise, noise.draw(step.variance, step.level, first, size), size)


def measure_present(step: ThresholdStep, trips: TripCounts, noise: NoiseSource) -> Iterator[NDArray[np.int64]]:
    """Return the pairs of zones whose noisy count reaches the threshold: confidential in, public out.

    Only pairs with trips are measured (``docs/explanation/noise.md``). The result is in tree order and holds nothing
    below the threshold, so it reveals neither a dropped pair nor the order of the input.

    Yields:
        The ranks of the pairs, then their noisy counts.

    Raises:
        OdError: If the noise source draws no Laplace noise or breaks its contract.
    """
    counts = np.diff(trips.before)
    noisy = checked_noise(noise, laplace_source(noise).draw_laplace(step.scale, len(counts)), len(counts))
    noisy += counts
    released = noisy >= step.threshold
    yield trips.rank[released]
    yield noisy[released]


def present_leaves(plan: ReleasePlan, step: ThresholdStep, kept: NoisyVector) -> tuple[Nodes, Measurement]:
    """Return the released table and its measurement, from the values of :func:`measure_present`."""
    ranks, noisy = kept.pieces([len(kept) // 2] * 2)
    pairs = plan.tree.pairs_at(ranks)
    measurement = Measurement(step, pairs, NoisyVector.in_memory([noisy]))
    return Nodes(pairs.level, pairs.origin, pairs.destination, noisy), measurement
