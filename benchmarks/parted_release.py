"""Run a release in parts in one process, from the counts to the table, as the steps of a Dagster project do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.estimation.levels import Measurement, make_published_root, refuse_beyond_memory
from od_core.flows.estimation.refinement import refine
from od_core.flows.measuring import measure_levels
from od_core.flows.parts import (
    Band,
    Work,
    Workers,
    measure_band,
    read_first_band_counts,
    read_refined_pieces,
    read_segment_pieces,
    read_unrefined_pieces,
    refine_bands,
)
from od_core.flows.plan import ReleasePlan
from od_core.geography.flow_tree import Nodes
from od_core.ledger.measurements import DurableMeasurements
from od_core.noise.backends import NoiseSource
from od_core.records.counts import CountFiles


@dataclass(frozen=True, eq=False)
class PartedRelease:
    """A release whose lower levels are stored in parts.

    Attributes:
        top: Released nodes of the root and of each level of the first band, top first. If the mechanism learns from
            whole levels, those of all levels.
        bands: The bands that were estimated in parts: those below the first, or none if the mechanism learns from whole
            levels.
        work: The attempt whose folder has the files of these bands.
        segments: If there are no such bands, the trips of the leaves by breakdown; shape (leaves, categories) each.
    """

    top: list[Nodes]
    bands: list[Band]
    work: Work
    segments: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)

    def pieces(self, level: int) -> Iterator[Nodes]:
        """Yield the released nodes of the root or of a measured level in tree order, in consecutive pieces."""
        for nodes in self.top:
            if nodes.level == level:
                yield nodes
        refines = self.work.plan.mechanism.refines
        for band in self.bands:
            if level in (step.level for step in self.work.plan.step_bands[band.number]):
                yield from (read_refined_pieces if refines else read_unrefined_pieces)(band, self.work, level)

    def segment_pieces(self) -> Iterator[tuple[Nodes, dict[str, NDArray[np.int64]]]]:
        """Yield the released leaves in consecutive pieces, and their trips by breakdown; see :func:`segment_pieces`."""
        if not self.bands:
            return iter([(self.top[-1], dict(self.segments))])
        return read_segment_pieces(self.bands[-1], self.work)


def run_in_parts(
    plan: ReleasePlan, counts: CountFiles, noise: NoiseSource, measurements: DurableMeasurements, workers: Workers
) -> PartedRelease:
    """Measure and estimate a release with bands: the first band as a whole, and the other bands in parts.

    If the mechanism refines, all bands are also refined: in parts, or all levels as a whole if it learns from whole
    levels.

    Args:
        plan: The plan of the release, with bands.
        counts: Confidential counts, in the store of the measurements.
        noise: Source of the noise, which is sent to the workers.
        measurements: Store of the measurements. Those of parts are in ``measurements.store``.
        workers: Engine that runs the tasks of parts.

    Raises:
        OdError: As in :func:`measure_band` and :func:`refine_bands`.
    """
    steps = plan.step_bands[0]
    coarse = read_first_band_counts(plan, counts)
    root = make_published_root(plan, counts.total)
    measured, frontier = measure_levels(plan, steps, root, coarse, noise, measurements)
    if frontier is None:
        raise OdError("OD-BANDS", "the plan has no bands", next_step="plan the release with bands")
    work = Work.begin_attempt(plan, measurements.store, counts.folder, noise)
    bands, above = [], frontier
    for number, own in enumerate(plan.step_bands[1:], start=1):
        bands.append(measure_band(plan, number, above, work, workers, measurements))
        if number < len(plan.step_bands) - 1:
            above = Nodes.concatenate(own[-1].level, read_unrefined_pieces(bands[-1], work, own[-1].level))
    if plan.mechanism.learns_from_levels:
        whole = [*measured, *_measured_in_parts(plan, frontier, bands, work, measurements)]
        refuse_beyond_memory(plan, plan.tree.depth, whole[-1].parents)
        levels, segments = refine(plan, root, whole)
        return PartedRelease(levels, [], work, segments)
    if plan.mechanism.refines:
        return PartedRelease(refine_bands(plan, root, measured, frontier, bands, work, workers), bands, work)
    passed = [*([] if root is None else [root]), *(m.parents for m in measured[1:] if isinstance(m.parents, Nodes))]
    return PartedRelease([*passed, frontier], bands, work)


def _measured_in_parts(
    plan: ReleasePlan, frontier: Nodes, bands: Sequence[Band], work: Work, measurements: DurableMeasurements
) -> Iterator[Measurement]:
    """Yield the measurements of all levels below the first band, each as a whole, top level first.

    Args:
        frontier: The released nodes of the last level of the first band.
        bands: The bands below, which must be measured.
        work, measurements: See :func:`measure_band`.
    """
    above = frontier
    for band in bands:
        for level in dict.fromkeys(step.level for step in plan.step_bands[band.number]):
            for step in plan.steps_at(level):
                yield Measurement(step, above, measurements.read(step))
            above = Nodes.concatenate(level, read_unrefined_pieces(band, work, level))
