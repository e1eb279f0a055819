"""Run a release in parts, from the driver: the process that writes to the ledger and gives tasks to the workers.

The driver measures and refines the levels of the first band, as in any release. Workers process each band below, one
task per part: they measure it from the top down, combine it with the bands below from the bottom up, and refine it from
the top down. For these bands, the driver reads noisy values and estimates only, and no true counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.estimation.empirical_bayes import OCTAVES, Rows, leaf_posterior, row_areas
from od_core.flows.estimation.refinement import (
    ChildSums,
    nodes_with_trips,
    rise,
    trips_by_level,
    with_trips,
)
from od_core.flows.estimation.segment_levels import TOTALS, Table, counts_of, refuse_beyond_memory, tables_of
from od_core.flows.estimation.segment_refinement import refined_levels, segments_from_root
from od_core.flows.estimation.top_down import Measurement, published_root
from od_core.flows.measuring import measure_levels
from od_core.flows.parts.passes import (
    descend_part,
    granted_rounds,
    leaves_part,
    measure_part,
    packed_posterior,
    packed_rows,
    packed_segments,
    packed_sums,
    record_measured,
    rise_part,
    rows_from,
    segments_from,
    sums_from,
)
from od_core.flows.parts.work import Arrays, Part, Work, Workers, on_all
from od_core.flows.plan import ReleasePlan
from od_core.geography.flow_tree import Nodes
from od_core.ledger.measurements import DurableMeasurements
from od_core.noise.sources import NoiseSource, backend_name
from od_core.records.count_files import CountFiles
from od_core.records.trip_counts import TripCounts


@dataclass(frozen=True, eq=False)
class Band:
    """A band that is measured in parts, which means any band except the first.

    Attributes:
        number: Number of the band. The first band of the plan, which is measured as a whole, has number 0.
        parts: One slice per part: the range, among the released nodes of the level above the band, of those nodes
            whose descendants the part contains.
    """

    number: int
    parts: tuple[slice, ...]

    @classmethod
    def below(cls, plan: ReleasePlan, number: int, frontier: Nodes) -> Band:
        """Return a band below the first.

        Args:
            number: Number of the band, at least 1.
            frontier: The released nodes of the last level above the band.
        """
        return cls(number, () if plan.bands is None else tuple(plan.bands.parts(frontier)))

    @property
    def tasks(self) -> list[Part]:
        """One descriptor per part: the numbers of the band and of the part."""
        return [{"band": self.number, "part": part} for part in range(len(self.parts))]


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
                yield from (refined_pieces if refines else passed_pieces)(band, self.work, level)

    def segment_pieces(self) -> Iterator[tuple[Nodes, dict[str, NDArray[np.int64]]]]:
        """Yield the released leaves in consecutive pieces, and their trips by breakdown; see :func:`segment_pieces`."""
        if not self.bands:
            return iter([(self.top[-1], dict(self.segments))])
        return segment_pieces(self.bands[-1], self.work)


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
    coarse = first_band_counts(plan, counts)
    root = published_root(plan, counts.total)
    measured, frontier = measure_levels(plan, steps, root, coarse, noise, measurements)
    if frontier is None:
        raise OdError("OD-BANDS", "the plan has no bands", next_step="plan the release with bands")
    work = Work.begun(plan, measurements.store, counts.folder, noise)
    bands, above = [], frontier
    for number, own in enumerate(plan.step_bands[1:], start=1):
        bands.append(measure_band(plan, number, above, work, workers, measurements))
        if number < len(plan.step_bands) - 1:
            above = Nodes.joined(own[-1].level, passed_pieces(bands[-1], work, own[-1].level))
    if plan.mechanism.learns_from_levels:
        whole = [*measured, *_measured_in_parts(plan, frontier, bands, work, measurements)]
        refuse_beyond_memory(plan, plan.tree.depth, whole[-1].parents)
        levels, segments = refined_levels(plan, root, whole)
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
            above = Nodes.joined(level, passed_pieces(band, work, level))


def first_band_counts(plan: ReleasePlan, counts: CountFiles) -> TripCounts:
    """Return the confidential counts from which the first band is measured; all counts if the plan has no bands."""
    if plan.bands is None:
        return counts.whole()
    return counts.at_level(plan.tree, plan.step_bands[0][-1].level)


def measure_band(
    plan: ReleasePlan, number: int, frontier: Nodes, work: Work, workers: Workers, measurements: DurableMeasurements
) -> Band:
    """Measure all levels of a band, each once, estimate them from the top down, and return the band.

    The noisy values and the estimates are stored per part.

    Args:
        plan: The plan of the release, with bands.
        number: Number of the band, at least 1.
        frontier: The released nodes of the last level above the band.
        work: The attempt in whose folder the parts are stored.
        workers: Engine that runs the tasks of the parts.
        measurements: Provides the ledger and the key of the release.

    Raises:
        OdError: If a draw was lost and the cap does not allow another, if a part failed, or if the mechanism learns
            from whole levels and the first level of the band does not fit into memory.
    """
    steps, band = plan.step_bands[number], Band.below(plan, number, frontier)
    refuse_beyond_memory(plan, steps[0].level, frontier)
    ledger, key = measurements.ledger, measurements.key
    rounds = granted_rounds(ledger, key, steps, work.store, backend_name(work.noise))
    for part, nodes in enumerate(band.parts):
        own = Nodes(frontier.level, frontier.origin[nodes], frontier.destination[nodes], frontier.trips[nodes])
        work.save_nodes("frontier", number, part, [own])
    on_all(workers, measure_part, work, [{**task, "rounds": rounds} for task in band.tasks])
    record_measured(ledger, key, steps, work.store, rounds, len(band.parts))
    return band


def refine_bands(
    plan: ReleasePlan,
    root: Nodes | None,
    measured: Sequence[Measurement],
    frontier: Nodes,
    bands: Sequence[Band],
    work: Work,
    workers: Workers,
) -> list[Nodes]:
    """Refine all bands. The result equals that of :func:`od_core.flows.estimation.refinement.refine`.

    Args:
        plan: The plan of the release, with bands.
        root: The root with its exact trips if the total is an invariant; otherwise None.
        measured: The measurements of the first band, top level first.
        frontier: The released nodes of the last level of the first band.
        bands: The bands below, which must be measured.
        work, workers: See :func:`measure_band`.

    Returns:
        The refined nodes of the root and of each level of the first band, top first. Those of the bands below are
        stored; :func:`refined_pieces` reads them.

    Raises:
        OdError: If a part failed, or as in :func:`od_core.flows.estimation.refinement.refine`.
    """
    sums, largest = _rise(bands, work, workers)
    by_table = counts_of(plan, measured)
    risen = {table: rise(plan, counts, frontier, sums[table]) for table, counts in by_table.items()}
    levels, _ = risen[TOTALS]
    passed = trips_by_level(plan, root, levels)
    trips, segments = passed[-1], segments_from_root(plan, risen, levels, passed)
    rows = _rows(plan, bands[-1], work)
    for band in bands:
        for part, nodes in enumerate(band.parts):
            own = {name: of_breakdown[nodes] for name, of_breakdown in segments.items()}
            work.save("totals", band.number, part, {"trips": trips[nodes]} | packed_segments(own))
        work.save("common", band.number, 0, largest | (rows if band is bands[-1] else {}))
        on_all(workers, descend_part, work, band.tasks)
        trips, segments = _refined(plan, band, work)
    if plan.mechanism.leaf_dial is not None and bands[-1].parts:
        last = bands[-1]
        counts = np.sum(
            [work.load("histogram", last.number, part)["counts"] for part in range(len(last.parts))], axis=0
        )
        work.save("posterior", last.number, 0, packed_posterior(leaf_posterior(plan, counts.reshape(OCTAVES, -1))))
        on_all(workers, leaves_part, work, last.tasks)
    return nodes_with_trips(root, levels, passed)


def _refined(plan: ReleasePlan, band: Band, work: Work) -> tuple[NDArray[np.int64], dict[str, NDArray[np.int64]]]:
    """Return the refined trips of the nodes above the next band, and those in the categories of each breakdown."""
    if band.number == len(plan.step_bands) - 1:
        return _joined([]), {}
    parts = [work.load("refined", band.number, part) for part in range(len(band.parts))]
    segments = [segments_from(plan, arrays) for arrays in parts]
    none = {one.name: np.empty((0, len(one.categories)), dtype=np.int64) for one in plan.breakdowns}
    return _joined([arrays["trips"] for arrays in parts]), {
        name: np.concatenate([empty, *(own[name] for own in segments)]) for name, empty in none.items()
    }


def passed_pieces(band: Band, work: Work, level: int) -> Iterator[Nodes]:
    """Yield the nodes of a level of a band that the top-down pass released, one piece per part."""
    for part in range(len(band.parts)):
        yield from (nodes for nodes in work.load_nodes("passed", band.number, part) if nodes.level == level)


def refined_pieces(band: Band, work: Work, level: int) -> Iterator[Nodes]:
    """Yield the refined nodes of a level of a band, which may be the leaf level, one piece per part."""
    for part in range(len(band.parts)):
        if level == work.plan.tree.depth:
            yield from work.load_nodes("leaves", band.number, part)
            continue
        refined = work.load("refined", band.number, part)
        for nodes in work.load_nodes("passed", band.number, part):
            if nodes.level == level:
                yield with_trips(nodes, refined[f"trips_{level}"])


def segment_pieces(band: Band, work: Work) -> Iterator[tuple[Nodes, dict[str, NDArray[np.int64]]]]:
    """Yield the released leaves in tree order, one piece per part, and their trips in the categories of each breakdown.

    The trips by breakdown have the shape (leaves, categories).

    Args:
        band: The last band, which is refined.
        work: The attempt in whose folder it is stored.
    """
    for part in range(len(band.parts)):
        (leaves,) = work.load_nodes("leaves", band.number, part)
        yield leaves, segments_from(work.plan, work.load("segments", band.number, part))


def _rise(bands: Sequence[Band], work: Work, workers: Workers) -> tuple[dict[Table, ChildSums], Arrays]:
    """Combine the measured levels from the bottom up, through all bands below the first.

    Returns:
        For each table, the sums over the first level of these bands for each node above it; and, by the name
        ``<table>_<level>``, the largest variance of the table's nodes of each of their levels.
    """
    largest: Arrays = {}
    sums: dict[Table, ChildSums] = {}
    for band in reversed(bands):
        if band is not bands[-1]:
            _save_below(band, work, sums)
            on_all(workers, rise_part, work, band.tasks)
        for table in tables_of(work.plan):
            said = [work.load(f"sums_{table}", band.number, part) for part in range(len(band.parts))]
            for name in {name for arrays in said for name in arrays if name.startswith("largest_")}:
                largest[name.replace("largest", str(table))] = max(arrays[name] for arrays in said)
            parts = [sums_from(arrays) for arrays in said]
            sums[table] = ChildSums(
                _joined([part.noisy for part in parts]),
                _joined([part.difference for part in parts]),
                np.concatenate([np.empty(0), *(part.variance for part in parts)]),
            )
    return sums, largest


def _save_below(band: Band, work: Work, sums: Mapping[Table, ChildSums]) -> None:
    """Store, for each part of a band, the sums over the band below for the part's last level."""
    first = 0
    for part in range(len(band.parts)):
        end = first + len(work.load_nodes("passed", band.number, part)[-1])
        for table, own in sums.items():
            below = ChildSums(own.noisy[first:end], own.difference[first:end], own.variance[first:end])
            work.save(f"below_{table}", band.number, part, packed_sums(below))
        first = end


def _rows(plan: ReleasePlan, band: Band, work: Work) -> Arrays:
    """Return the row sums of all leaves, packed as arrays; see :class:`od_core.flows.estimation.empirical_bayes.Rows`.

    Return no arrays if the leaves are not estimated by empirical Bayes. Raises OdError if noisy values of leaves are
    too large.
    """
    if plan.mechanism.leaf_dial is None:
        return {}
    parts = (rows_from(plan, work.load("rows", band.number, part)) for part in range(len(band.parts)))
    rows = Rows.joined(row_areas(plan), parts)
    rows.refuse_large()
    return packed_rows(rows)


def _joined(arrays: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([np.empty(0, dtype=np.int64), *arrays])
