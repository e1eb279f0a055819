"""Run a release in parts: the driver, which writes to the ledger and gives tasks to the workers, and the tasks.

The driver measures and refines the levels of the first band, as in any release. Workers process each band below, one
task per part: they measure it from the top down, combine it with the bands below from the bottom up, and refine it from
the top down. For these bands, the driver reads noisy values and estimates only, and no true counts.

The functions with names in ``_part`` are tasks for :func:`od_core.flows.parts.work.on_all`. Only :func:`measure_part`
reads true counts. The results of the other tasks depend on noisy values alone, so a part that is processed again has
the same result.

Tasks read and write files of these kinds, one per part:

- ``frontier``: the released nodes of the level above the band that belong to the part.
- ``passed``: the nodes of the part's levels after the top-down pass.
- ``leaf_sums``, ``rows``, ``histogram``: the sums, row sums and histogram of the part's leaves.
- ``below_<breakdown>_<category>``: sums over the bands below, for the last level of the part. There is one such file
  for each table of :func:`od_core.flows.estimation.levels.tables_of`: the totals and each category.
- ``risen_...``: the bottom-up estimates of the part's nodes, and ``sums_...``: their sums for the nodes of
  ``frontier``; for each table, too.
- ``above``: the refined trips of the nodes of ``frontier``; ``refined``: the totals of each level of the part; and
  ``last``: the refined trips of its last level above the leaves. The first and the last also have the trips by
  breakdown.
- ``leaves``: the part's released leaves, and ``segments``: their trips by breakdown.

All parts read the same ``largest`` (largest variances of each table and level), ``all_rows`` (row sums of all leaves)
and ``posterior``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.arrays import Integers
from od_core.flows.estimation.count_distribution import GridNoise, Posterior, posterior_of
from od_core.flows.estimation.empirical_bayes import Rows, leaf_histogram, leaf_rows, posterior_leaves
from od_core.flows.estimation.levels import Measurement, NoisyCounts, Tables, refuse_beyond_memory, tables_of
from od_core.flows.estimation.refinement import (
    ChildSums,
    RisenLevel,
    Trips,
    descend_segments,
    leaf_sums,
    leaves_with_segments,
    refine_above,
    rise,
    trips_by_level,
    with_trips,
)
from od_core.flows.measuring import measure_levels
from od_core.flows.parts.rounds import PartMeasurements, granted_rounds, record_measured
from od_core.flows.parts.work import Arrays, Part, Work, Workers, on_all
from od_core.flows.plan import ReleasePlan
from od_core.geography.flow_tree import Nodes, Pairs
from od_core.ledger.measurements import DurableMeasurements, NoisyVector
from od_core.ledger.object_store import part_file
from od_core.noise.sources import backend_name
from od_core.records.counts import CountFiles, TripCounts


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
        """Return the band of a number, at least 1. ``frontier`` is the released nodes of the last level above it."""
        return cls(number, () if plan.bands is None else tuple(plan.bands.parts(frontier)))

    @property
    def tasks(self) -> list[Part]:
        """One descriptor per part: the numbers of the band and of the part."""
        return [{"band": self.number, "part": part} for part in range(len(self.parts))]


_ALL: Part = {"band": 0, "part": 0}
"""Descriptor of the files that all parts read."""


def first_band_counts(plan: ReleasePlan, counts: CountFiles) -> TripCounts:
    """Return the confidential counts from which the first band is measured; all counts if the plan has no bands."""
    if plan.bands is None:
        return counts.whole()
    return counts.at_level(plan.tree, plan.step_bands[0][-1].level)


def measure_band(
    plan: ReleasePlan, number: int, frontier: Nodes, work: Work, workers: Workers, measurements: DurableMeasurements
) -> Band:
    """Measure all levels of a band, each once, estimate them from the top down, store both, and return the band.

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
    for task, nodes in zip(band.tasks, band.parts, strict=True):
        own = Nodes(frontier.level, frontier.origin[nodes], frontier.destination[nodes], frontier.trips[nodes])
        work.save_nodes("frontier", task, [own])
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
    """
    counts = tables_of(plan, measured)
    sums, largest = _risen_bands(counts, bands, work, workers)
    work.save("largest", _ALL, largest)
    nodes, trips = refine_above(plan, root, counts, frontier, lambda name, k: sums[f"{name}_{k}"])
    last = bands[-1]
    if plan.mechanism.leaf_dial is not None:
        rows = Rows.joined(plan, (Rows(**work.load("rows", task)) for task in last.tasks))
        rows.refuse_large()
        work.save("all_rows", _ALL, vars(rows))
    for band in bands:
        for task, above in zip(band.tasks, band.parts, strict=True):
            work.save("above", task, {name: own[above] for name, own in trips.items()})
        on_all(workers, descend_part, work, band.tasks)
        if band is not last:
            parts = [work.load("last", task) for task in band.tasks]
            trips = {name: _joined([own[name] for own in parts], empty[:0]) for name, empty in trips.items()}
    if plan.mechanism.leaf_dial is not None and last.parts:
        leaves = sum(work.load("histogram", task)["counts"] for task in last.tasks)
        posterior = posterior_of(GridNoise.of(plan.steps[-1].variance), np.asarray(leaves))
        work.save("posterior", _ALL, vars(posterior))
        on_all(workers, leaves_part, work, last.tasks)
    return nodes


def passed_pieces(band: Band, work: Work, level: int) -> Iterator[Nodes]:
    """Yield the nodes of a level of a band that the top-down pass released, one piece per part."""
    for task in band.tasks:
        yield from (nodes for nodes in work.load_nodes("passed", task) if nodes.level == level)


def refined_pieces(band: Band, work: Work, level: int) -> Iterator[Nodes]:
    """Yield the refined nodes of a level of a band, which may be the leaf level, one piece per part."""
    for task in band.tasks:
        if level == work.plan.tree.depth:
            yield from work.load_nodes("leaves", task)
            continue
        refined = work.load("refined", task)
        for nodes in work.load_nodes("passed", task):
            if nodes.level == level:
                yield with_trips(nodes, refined[str(level)])


def segment_pieces(band: Band, work: Work) -> Iterator[tuple[Nodes, Trips]]:
    """Yield the released leaves of the last band in tree order, one piece per part, and their trips by breakdown."""
    for task in band.tasks:
        (leaves,) = work.load_nodes("leaves", task)
        yield leaves, work.load("segments", task)


_TOTALS = "_0"
"""Name of the files of the totals."""


def _each(counts: Tables) -> Iterator[tuple[str, list[NoisyCounts]]]:
    """Yield each table, by the name that its files have."""
    for name, tables in counts.items():
        for k, own in enumerate(tables):
            yield f"{name}_{k}", own


def _risen_bands(
    counts: Tables, bands: Sequence[Band], work: Work, workers: Workers
) -> tuple[dict[str, ChildSums], Arrays]:
    """Combine the measured levels from the bottom up, through all bands below the first.

    Return the sums of each table over the first of these levels, and the largest variances by ``<table>_<level>``.
    """
    largest: Arrays = {}
    sums: dict[str, ChildSums] = {}
    for band in reversed(bands):
        if band is not bands[-1]:
            _save_below(band, work, sums)
            on_all(workers, rise_part, work, band.tasks)
        for table, _ in _each(counts):
            said = [work.load(f"sums_{table}", task) for task in band.tasks]
            for name in {name for arrays in said for name in arrays if name.startswith("largest_")}:
                largest[name.replace("largest", table)] = max(arrays[name] for arrays in said)
            names = ("noisy", "difference", "variance")
            sums[table] = ChildSums(*(_joined([arrays[name] for arrays in said]) for name in names))
    return sums, largest


def _save_below(band: Band, work: Work, sums: Mapping[str, ChildSums]) -> None:
    """Store, for each part of a band, the sums over the band below for the part's last level."""
    first = 0
    for task in band.tasks:
        end = first + len(work.load_nodes("passed", task)[-1])
        for table, own in sums.items():
            work.save(f"below_{table}", task, {name: values[first:end] for name, values in vars(own).items()})
        first = end


_NONE = np.empty(0, dtype=np.int64)


def _joined(arrays: Sequence[NDArray[Any]], none: Integers = _NONE) -> NDArray[Any]:
    return np.concatenate([none, *arrays])


def measure_part(work: Work, part: Part) -> None:
    """Measure the levels of a part, each once, estimate them from the top down, and store the results.

    The true counts are confidential; the stored results are public. If the part contains leaves and is refined as a
    part, also combine the levels of the part from the bottom up, and store the sums for the nodes above.
    """
    plan, band, number = work.plan, part["band"], part["part"]
    (frontier,) = work.load_nodes("frontier", part)
    counts, ranks = CountFiles(work.store, work.counts), plan.tree.rank_range(frontier)
    steps, is_last = plan.step_bands[band], band == len(plan.step_bands) - 1
    trips = counts.between(*ranks) if is_last else counts.at_level(plan.tree, steps[-1].level, ranks)
    kept = PartMeasurements(work.store, number, {int(step): count for step, count in part["rounds"].items()})
    measured, last = measure_levels(plan, steps, frontier, trips, work.noise, kept, shared=True)
    del trips
    _, *above = {m.step.level: m.parents for m in measured}.values()
    below = [nodes for nodes in above if isinstance(nodes, Nodes)]
    work.save_nodes("passed", part, below if last is None else [*below, last])
    if last is not None or plan.mechanism.learns_from_levels:
        return
    tables = tables_of(plan, measured)
    for table, (*inner, leaf) in _each(tables):
        sums = leaf_sums(plan, leaf)
        _rise(work, part, table, inner, below[-1] if below else frontier, sums)
        if table == _TOTALS:
            work.save("leaf_sums", part, {"noisy": sums.noisy})
    if plan.mechanism.leaf_dial is not None:
        work.save("rows", part, vars(leaf_rows(plan, tables[""][0][-1]).trimmed()))


def rise_part(work: Work, part: Part) -> None:
    """Combine the nodes of a part with the sums over the bands below, and store the files ``risen`` and ``sums``."""
    kept = work.load_nodes("passed", part)[-1]
    for table, counts in _each(_measured(work, part)):
        _rise(work, part, table, counts, kept, ChildSums(**work.load(f"below_{table}", part)))


def descend_part(work: Work, part: Part) -> None:
    """Refine the nodes of a part, from the refined trips of the nodes above, and store ``refined`` and ``last``.

    In the last band, also store the refined leaves or, if they are estimated by empirical Bayes, their histogram.
    """
    plan, variances = work.plan, work.load("largest", _ALL)
    totals, *by_breakdown = work.load("above", part).items()

    def risen(table: str) -> list[RisenLevel]:
        arrays, levels = work.load(f"risen_{table}", part), []
        for nodes in work.load_nodes("passed", part):
            own = {name: arrays[f"{name}_{nodes.level}"] for name in _RISEN}
            levels.append(RisenLevel(nodes, **own, largest=float(variances[f"{table}_{nodes.level}"])))
        return levels

    levels = risen(_TOTALS)
    trips = trips_by_level(plan, totals[1], levels)
    work.save("refined", part, {str(level.nodes.level): own for level, own in zip(levels, trips[1:], strict=True)})
    last: Trips = {"": trips[-1]}
    for name, segments in by_breakdown:
        categories = [risen(f"{name}_{k}") for k in range(segments.shape[1])]
        last[name] = descend_segments(plan, categories, trips[1:], segments)
    work.save("last", part, last)
    if part["band"] < len(plan.step_bands) - 1:
        return
    counts = _measured(work, part)
    leaf = counts[""][0][-1]
    if plan.mechanism.leaf_dial is not None:
        histogram = leaf_histogram(plan, leaf, last[""], Rows(**work.load("all_rows", _ALL)))
        work.save("histogram", part, {"counts": histogram})
        return
    leaves, segments_of_leaves = leaves_with_segments(plan, counts, work.load("leaf_sums", part)["noisy"], last)
    work.save_nodes("leaves", part, [leaves])
    if plan.breakdowns:
        work.save("segments", part, segments_of_leaves)


def leaves_part(work: Work, part: Part) -> None:
    """Estimate the leaves of a part by empirical Bayes, and store them. Raises OdError if the plan does not."""
    plan, leaf = work.plan, _measured(work, part)[""][0][-1]
    if plan.mechanism.leaf_dial is None:
        raise OdError("OD-PART-ORDER", "these leaves are projected, not estimated", next_step="report this defect")
    rows, posterior = Rows(**work.load("all_rows", _ALL)), Posterior(**work.load("posterior", _ALL))
    trips = work.load("last", part)[""]
    leaves = posterior_leaves(plan, leaf, trips, plan.mechanism.leaf_dial, rows, posterior)
    work.save_nodes("leaves", part, [Nodes.joined(leaf.step.level, leaves)])


def _measured(work: Work, part: Part) -> Tables:
    """Return the tables of the stored measurements of a part."""
    plan, number, steps = work.plan, part["part"], work.plan.step_bands[part["band"]]
    nodes = [*work.load_nodes("frontier", part), *work.load_nodes("passed", part)]
    above = dict(zip(dict.fromkeys(step.level for step in steps), nodes, strict=False))
    measured = [
        Measurement(step, above[step.level], NoisyVector(partial(work.store.read, part_file(step.number, number))))
        for step in steps
    ]
    return tables_of(plan, measured)


_RISEN = ("runs", "noisy", "difference", "variance")


def _rise(work: Work, part: Part, table: str, counts: Sequence[NoisyCounts], kept: Pairs, sums: ChildSums) -> None:
    """Combine the levels of a part by :func:`rise`, and store the files ``risen`` and ``sums`` of a table."""
    levels, above = rise(work.plan, counts, kept, sums)
    risen: Arrays = {}
    for level in levels:
        risen |= {f"{name}_{level.nodes.level}": getattr(level, name) for name in _RISEN}
    work.save(f"risen_{table}", part, risen)
    largest = {f"largest_{level.nodes.level}": level.largest for level in levels}
    work.save(f"sums_{table}", part, largest | vars(above))
