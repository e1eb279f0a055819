"""The top-down pass: measure a level, estimate it below the level above (spec 1, "Algorithm").

``measure`` is the last function that sees confidential counts; ``estimate`` sees noisy values alone; ``run_level`` does
the one and then the other. All work in pieces of whole families, on all threads, and hold no more than the pieces in
flight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.plan import ReleasePlan, Step, ThresholdStep
from od_core.geography.flow_tree import Families, Nodes, Pairs
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
        step: what was planned and charged.
        parents: the nodes above that were kept; the measured cells are all their public children, in tree order
            (None for a measured root). Where levels in between are not measured, each child has one descendant.
            Nodes of the step's own level are themselves the cells: pairs whose count reached a threshold.
        noisy: true count plus noise of each cell; shape (cells,).
    """

    step: Step
    parents: Pairs | None
    noisy: NoisyVector

    def cells(self, plan: ReleasePlan) -> int:
        """Number of the measured cells, as the plan and the parents have it."""
        if self.parents is None:
            return 1
        return len(self.parents) if self._stands_alone else sum(map(len, plan.tree.families(self.parents)))

    @property
    def _stands_alone(self) -> bool:
        return self.parents is None or self.parents.level == self.step.level

    def pieces(self, plan: ReleasePlan) -> Iterator[tuple[Pairs, NDArray[np.int64]]]:
        """The measured cells and their noisy values, in tree order, piece by piece."""
        if self._stands_alone:
            cells = Pairs(self.step.level, _ROOT, _ROOT) if self.parents is None else self.parents
            yield cells, self.noisy.values()
            return
        for families, noisy in self.families(plan):
            children = families.children
            yield Pairs(self.step.level, children.origin, children.destination), noisy

    def families(self, plan: ReleasePlan) -> Iterator[tuple[Families, NDArray[np.int64]]]:
        """The measured families and their noisy values, piece by piece; none where the root was measured.

        Raises:
            OdError: there is not one value for each child.
        """
        if self.parents is None:
            return iter(())
        families = list(plan.tree.families(self.parents))
        if sum(map(len, families)) != len(self.noisy):
            raise OdError(
                "OD-MEASUREMENT-LENGTH",
                f"the measurement of level {self.step.level} has {len(self.noisy)} values, not one for each child of"
                " the nodes above",
                next_step="restore the measurement file from the archive",
                spent="the level's charge stands",
            )
        return zip(families, self.noisy.pieces(map(len, families)), strict=True)


def published_root(plan: ReleasePlan, total: int) -> Nodes | None:
    """The root with the exact n, where n is an invariant; None where the root is measured, or nothing but leaves."""
    return root_of(plan, total) if plan.publishes_total else None


def above_the_leaves(plan: ReleasePlan) -> Nodes:
    """All public nodes above the leaves, of unknown trips: for a plan that measures every leaf and nothing else."""
    nodes = plan.tree.public_nodes(plan.tree.depth - 1)
    return Nodes(nodes.level, nodes.origin, nodes.destination, np.zeros(len(nodes), dtype=np.int64))


def run_levels(
    plan: ReleasePlan,
    steps: Sequence[Step],
    parents: Nodes | None,
    trips: TripCounts,
    noise: NoiseSource,
    measurements: Measurements,
    *,
    shared: bool = False,
) -> tuple[list[Measurement], Nodes | None]:
    """Measure consecutive levels below some nodes, each once, and estimate each below the one above.

    Args:
        plan: the plan of the release.
        steps: of the levels, top first.
        parents: the released nodes above the first; None where the root is the first.
        trips: the true trips below these nodes.
        noise: what is drawn by.
        measurements: where measurements are kept.
        shared: whether another process may keep its draw of a level first; then nothing but what is kept is used.

    Returns:
        The measurements, and the estimate of the last level; None where the leaves are estimated by refinement alone.

    Raises:
        OdError: as :func:`run_level`.
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
    step: Step,
    parents: Nodes | None,
    trips: TripCounts,
    noise: NoiseSource,
    measurements: Measurements,
) -> tuple[NoisyVector, Nodes]:
    """Measure a level once, and estimate it below the released nodes of the level above.

    A piece that is drawn now is estimated at once, while it is in the cache; one that was kept is read from its file.
    The estimate is the same, and it is handed on only when the measurement is kept.

    Raises:
        OdError: as :func:`measure`, :func:`estimate` and the measurements say.
    """
    estimates: list[Nodes | None] = []

    def draw() -> Iterator[NDArray[np.int64]]:
        if parents is None:
            yield from measure(plan, step, None, trips, noise)
            return

        def drawn(families: Families) -> tuple[NDArray[np.int64], Nodes | None]:
            noisy = _measured(plan, step, trips, noise, families)
            try:
                return noisy, _estimated(plan, step, parents, families, noisy)
            except Exception:  # noqa: BLE001  # met again below, when the draw is kept and not lost with it
                return noisy, None

        for noisy, nodes in in_order(drawn, plan.tree.families(parents)):
            estimates.append(nodes)
            yield noisy

    kept = measurements.once(step, draw)
    whole = [nodes for nodes in estimates if nodes is not None]
    if whole and len(whole) == len(estimates):
        return kept, Nodes.joined(step.level, whole)
    return kept, estimate(plan, step, parents, kept)


def measure(
    plan: ReleasePlan, step: Step, parents: Nodes | None, trips: TripCounts, noise: NoiseSource
) -> Iterator[NDArray[np.int64]]:
    """Confidential in, public out: the true counts of all children of the released nodes, plus noise.

    Returns:
        Noisy counts of the level in tree order, in consecutive pieces: the vector query that the step pays for.

    Raises:
        OdError: the noise source does not keep its contract, or its values are too large.
    """
    if parents is None:
        return iter([_drawn(noise, step, 0, 1) + trips.total])
    return in_order(partial(_measured, plan, step, trips, noise), plan.tree.families(parents))


def estimate(plan: ReleasePlan, step: Step, parents: Nodes | None, noisy: NoisyVector) -> Nodes:
    """The whole estimate of a level, from its pieces; see :func:`estimate_pieces`."""
    return Nodes.joined(step.level, estimate_pieces(plan, step, parents, noisy))


def estimate_pieces(plan: ReleasePlan, step: Step, parents: Nodes | None, noisy: NoisyVector) -> Iterator[Nodes]:
    """Integers that, but for ``all_leaves``, are at least 0 and sum to the level above; 0 is dropped with its branch.

    A function of public values alone, the same at every call.

    Raises:
        OdError: the noisy values are not those of the parents' children.
    """
    if parents is None:
        root = root_of(plan, max(0, int(noisy.values()[0])))
        return iter([at_step(step, root)])
    pieces = Measurement(step, parents, noisy).families(plan)
    return in_order(lambda piece: _estimated(plan, step, parents, *piece), pieces)


def _measured(
    plan: ReleasePlan, step: Step, trips: TripCounts, noise: NoiseSource, families: Families
) -> NDArray[np.int64]:
    """Confidential in, public out: one piece of a level."""
    if isinstance(noise, NodeNoiseSource):
        drawn = noise.draw_nodes(step.variance, step.level, plan.tree.first_rank(families.children))
        noisy = checked_noise(noise, drawn, len(families))
    else:
        noisy = _drawn(noise, step, families.first, len(families))
    trips.add_to(noisy, plan.tree, families)
    noisy.flags.writeable = False  # from here on it is what was measured
    return noisy


def _estimated(plan: ReleasePlan, step: Step, parents: Nodes, families: Families, noisy: NDArray[np.int64]) -> Nodes:
    """Public in and out: one piece of a level."""
    totals = parents.trips[families.parents]
    projected = plan.mechanism.project(noisy, totals, families.offsets)
    return at_step(step, families.with_trips(projected, keep_all=plan.keeps_all))


def root_of(plan: ReleasePlan, total: int) -> Nodes:
    """The root; none where its total is 0, since then nothing below it is measured, unless every node is."""
    area = np.zeros(1 if total > 0 or plan.keeps_all else 0, dtype=np.int32)
    return Nodes(0, area, area, np.full(len(area), total, dtype=np.int64))


def at_step(step: Step, nodes: Nodes) -> Nodes:
    """Estimated nodes at the level of their step, where those in between have one child each.

    Such a child has its parent's area numbers and trips: both stand in tree order.
    """
    return Nodes(step.level, nodes.origin, nodes.destination, nodes.trips)


def _drawn(noise: NoiseSource, step: Step, first: int, size: int) -> NDArray[np.int64]:
    """Noise for one piece of a level, checked."""
    return checked_noise(noise, noise.draw(step.variance, step.level, first, size), size)


# Measuring the leaf pairs with trips alone, under a threshold (``docs/stability-histogram.md``; spec 2).
#
# ``measure_present`` sees confidential counts. What it hands on is what reached the threshold, and in tree order, so
# that neither a pair that was dropped nor the order of the input shows.


def measure_present(step: ThresholdStep, trips: TripCounts, noise: NoiseSource) -> Iterator[NDArray[np.int64]]:
    """Confidential in, public out: the ranks of the pairs whose noisy count reaches the threshold, then these counts.

    Raises:
        OdError: the noise source draws no Laplace noise or does not keep its contract.
    """
    counts = np.diff(trips.before)
    noisy = checked_noise(noise, laplace_source(noise).draw_laplace(step.scale, len(counts)), len(counts))
    noisy += counts
    released = noisy >= step.threshold
    yield trips.rank[released]
    yield noisy[released]


def present_leaves(plan: ReleasePlan, step: ThresholdStep, kept: NoisyVector) -> tuple[Nodes, Measurement]:
    """The released table and its measurement, from what :func:`measure_present` handed on."""
    ranks, noisy = kept.pieces([len(kept) // 2] * 2)
    pairs = plan.tree.pairs_at(ranks)
    measurement = Measurement(step, pairs, NoisyVector.in_memory([noisy]))
    return Nodes(pairs.level, pairs.origin, pairs.destination, noisy), measurement
