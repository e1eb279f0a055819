"""Count, measure and estimate one part of a release, in rounds that the ledger grants.

The functions with names in ``_part`` are tasks for :func:`od_core.flows.parts.work.on_all`. Only :func:`measure_part`
reads true counts. The results of the other tasks depend on noisy values alone, so a part that is processed again has
the same result.

Tasks read and write files of these kinds, one per part:

- ``frontier``: the released nodes of the level above the band that belong to the part.
- ``passed``: the nodes of the part's levels after the top-down pass.
- ``leaf_sums``, ``rows``, ``histogram``: the sums, row sums and histogram of the part's leaves.
- ``below_<table>``: sums over the bands below, for the last level of the part. The tables are those of
  :func:`od_core.flows.estimation.segment_levels.tables_of`: the totals and each category.
- ``risen_<table>``: the bottom-up estimates of the part's nodes, and ``sums_<table>``: their sums for the nodes of
  ``frontier``.
- ``totals``: the refined trips of the nodes of ``frontier``, and ``refined``: those of the part's own nodes. Both also
  have the trips in the categories of each breakdown.
- ``leaves``: the part's released leaves, and ``segments``: their trips in the categories of each breakdown.

All parts of a band read the same ``common`` (largest variances, and the row sums of all leaves) and ``posterior``.

The ledger records the rounds in which the steps of a band may be drawn, and the steps that are measured. A step
measures a level by total or by segment. A round is one draw of any parts of a step, each at most once. Parts are
disjoint, so a round is one vector query with the sensitivity of the step. A step is charged its rho once per round,
however many of its parts were lost (``docs/explanation/parts.md``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from od_core.errors import STAYS_CHARGED, OdError
from od_core.flows.estimation.count_distribution import Posterior
from od_core.flows.estimation.empirical_bayes import Rows, leaf_histogram, leaf_rows, posterior_leaves, row_areas
from od_core.flows.estimation.refinement import ChildSums, RisenLevel, descend, leaf_sums, projected_leaves, rise
from od_core.flows.estimation.segment_levels import TOTALS, Table, counts_of
from od_core.flows.estimation.segment_refinement import descend_segments, leaves_with_segments
from od_core.flows.estimation.top_down import Measurement, NoisyCounts
from od_core.flows.measuring import measure_levels
from od_core.flows.parts.work import Arrays, Part, Work
from od_core.flows.plan import ReleasePlan
from od_core.geography.flow_tree import Nodes, Pairs
from od_core.interrupts import finished_first
from od_core.ledger.entries import MEASURED, RESERVED
from od_core.ledger.ledger import Ledger
from od_core.ledger.measurements import Draw, NoisyVector, write_noisy
from od_core.ledger.object_store import Store, kept_digest, part_file, part_files
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.plan import Step
from od_core.records.count_files import CountFiles


def measure_part(work: Work, part: Part) -> None:
    """Measure the levels of a part, each once, estimate them from the top down, and store the results.

    The true counts are confidential; the stored results are public. If the part contains leaves and is refined as a
    part, also combine the levels of the part from the bottom up, and store the sums for the nodes above.
    """
    plan, band, number = work.plan, part["band"], part["part"]
    (frontier,) = work.load_nodes("frontier", band, number)
    counts, ranks = CountFiles(work.store, work.counts), plan.tree.rank_range(frontier)
    steps, is_last = plan.step_bands[band], band == len(plan.step_bands) - 1
    trips = counts.between(*ranks) if is_last else counts.at_level(plan.tree, steps[-1].level, ranks)
    kept = PartMeasurements(work.store, number, {int(step): count for step, count in part["rounds"].items()})
    measured, last = measure_levels(plan, steps, frontier, trips, work.noise, kept, shared=True)
    del trips
    _, *above = {m.step.level: m.parents for m in measured}.values()
    below = [nodes for nodes in above if isinstance(nodes, Nodes)]
    work.save_nodes("passed", band, number, below if last is None else [*below, last])
    if last is not None or plan.mechanism.learns_from_levels:
        return
    by_table = counts_of(plan, measured)
    for table, (*inner, leaf) in by_table.items():
        sums = leaf_sums(plan, leaf)
        _rise(work, part, table, inner, below[-1] if below else frontier, sums)
        if table == TOTALS:
            work.save("leaf_sums", band, number, {"noisy": sums.noisy})
    if plan.mechanism.leaf_dial is not None:
        work.save("rows", band, number, packed_rows(leaf_rows(plan, by_table[TOTALS][-1])))


def rise_part(work: Work, part: Part) -> None:
    """Combine the nodes of a part with the sums over the bands below, and store the files ``risen`` and ``sums``."""
    kept = work.load_nodes("passed", part["band"], part["part"])[-1]
    for table, counts in _measured(work, part).items():
        sums = sums_from(work.load(f"below_{table}", part["band"], part["part"]))
        _rise(work, part, table, counts, kept, sums)


def descend_part(work: Work, part: Part) -> None:
    """Refine the nodes of a part, from the refined trips of the nodes above (file ``totals``), and store ``refined``.

    In the last band, also store the refined leaves or, if they are estimated by empirical Bayes, their histogram.
    """
    plan, band, number = work.plan, part["band"], part["part"]
    totals, common = work.load("totals", band, number), work.load("common", band, 0)
    levels = _risen(work, part, TOTALS)
    passed = [totals["trips"]]
    for level in levels:
        passed.append(descend(plan, level, passed[-1], float(common[f"totals_{level.nodes.level}"][0])))
    trips = passed[-1]
    refined = {f"trips_{level.nodes.level}": own for level, own in zip(levels, passed[1:], strict=True)}
    above = {}
    for name, segments in segments_from(plan, totals).items():
        risen = [_risen(work, part, Table(name, k)) for k in range(segments.shape[1])]
        largest = [float(common[f"{Table(name)}_{level.nodes.level}"][0]) for level in levels]
        above[name] = descend_segments(plan, risen, passed[1:], segments, largest)
    work.save("refined", band, number, refined | {"trips": trips} | packed_segments(above))
    if band < len(plan.step_bands) - 1:
        return
    counts = _measured(work, part)
    leaf = counts[TOTALS][-1]
    if plan.mechanism.leaf_dial is not None:
        histogram = leaf_histogram(plan, leaf, trips, rows_from(plan, common))
        work.save("histogram", band, number, {"counts": histogram.ravel()})
        return
    noisy = work.load("leaf_sums", band, number)["noisy"]
    if plan.segments is None:
        work.save_nodes("leaves", band, number, [_joined(leaf, projected_leaves(plan, leaf, noisy, trips))])
    else:
        leaves, of_leaves = leaves_with_segments(plan, counts, noisy, trips, above)
        work.save_nodes("leaves", band, number, [leaves])
        work.save("segments", band, number, packed_segments(of_leaves))


def leaves_part(work: Work, part: Part) -> None:
    """Estimate the leaves of a part by empirical Bayes, and store them.

    The driver must have stored the file ``posterior``, which it computes from the histograms of all parts.

    Raises:
        OdError: If the plan does not estimate leaves by empirical Bayes.
    """
    plan, band, number = work.plan, part["band"], part["part"]
    dial, common, leaf = plan.mechanism.leaf_dial, work.load("common", band, 0), _measured(work, part)[TOTALS][-1]
    if dial is None:
        raise OdError("OD-PART-ORDER", "these leaves are projected, not estimated", next_step="report this defect")
    known, trips = posterior_from(work.load("posterior", band, 0)), work.load("refined", band, number)["trips"]
    leaves = posterior_leaves(plan, leaf, trips, dial, rows_from(plan, common), known)
    work.save_nodes("leaves", band, number, [_joined(leaf, leaves)])


_RISEN = ("runs", "noisy", "difference", "variance")


def _measured(work: Work, part: Part) -> dict[Table, list[NoisyCounts]]:
    """Return what each table is estimated from, of the stored measurements of a part, top level first."""
    plan, band, number = work.plan, part["band"], part["part"]
    steps = plan.step_bands[band]
    nodes = [*work.load_nodes("frontier", band, number), *work.load_nodes("passed", band, number)]
    above = dict(zip(dict.fromkeys(step.level for step in steps), nodes, strict=False))
    measured = [
        Measurement(step, above[step.level], NoisyVector(partial(work.store.read, part_file(step.number, number))))
        for step in steps
    ]
    return counts_of(plan, measured)


def _risen(work: Work, part: Part, table: Table) -> list[RisenLevel]:
    """Return the estimates of a table that :func:`_rise` stored, top level first."""
    risen = work.load(f"risen_{table}", part["band"], part["part"])
    return [
        RisenLevel(nodes, *(risen[f"{name}_{nodes.level}"] for name in _RISEN))
        for nodes in work.load_nodes("passed", part["band"], part["part"])
    ]


def _rise(work: Work, part: Part, table: Table, counts: Sequence[NoisyCounts], kept: Pairs, sums: ChildSums) -> None:
    """Combine the levels of a part from the bottom up, and store the files ``risen`` and ``sums`` of a table.

    Args:
        work, part, table: The attempt, the part and the table.
        counts: What the table is estimated from at these levels, without the leaves, top level first.
        kept: The nodes of the last of these levels that the top-down pass did not drop.
        sums: Sums over the measured children of ``kept``.
    """
    levels, above = rise(work.plan, counts, kept, sums)
    risen: Arrays = {}
    for level in levels:
        risen |= {f"{name}_{level.nodes.level}": getattr(level, name) for name in _RISEN}
    work.save(f"risen_{table}", part["band"], part["part"], risen)
    largest = {f"largest_{level.nodes.level}": np.array([level.largest_variance]) for level in levels}
    work.save(f"sums_{table}", part["band"], part["part"], largest | packed_sums(above))


def _joined(leaf: NoisyCounts, pieces: Iterator[Nodes]) -> Nodes:
    return Nodes.joined(leaf.step.level, pieces)


def packed_sums(sums: ChildSums) -> Arrays:
    """Return sums over children as arrays, for a file of the store."""
    return {"noisy": sums.noisy, "difference": sums.difference, "variance": sums.variance}


def sums_from(arrays: Arrays) -> ChildSums:
    """Return the sums that :func:`packed_sums` packed."""
    return ChildSums(arrays["noisy"], arrays["difference"], arrays["variance"])


def packed_segments(segments: Mapping[str, NDArray[np.int64]]) -> Arrays:
    """Return trips by breakdown, shape (nodes, categories) each, as arrays for a file of the store."""
    return {f"segments_{name}": trips.ravel() for name, trips in segments.items()}


def segments_from(plan: ReleasePlan, arrays: Arrays) -> dict[str, NDArray[np.int64]]:
    """Return the trips by breakdown that :func:`packed_segments` packed; empty without breakdowns."""
    return {one.name: arrays[f"segments_{one.name}"].reshape(-1, len(one.categories)) for one in plan.breakdowns}


def packed_rows(rows: Rows) -> Arrays:
    """Return row sums (:class:`od_core.flows.estimation.empirical_bayes.Rows`) as arrays, for a file of the store.

    The areas before the first and after the last area that has leaves are left out.
    """
    there = np.flatnonzero(rows.cells)
    first, end = (int(there[0]), int(there[-1]) + 1) if len(there) else (0, 0)
    bounds = np.array([first, rows.largest], dtype=np.int64)
    return {"row_sums": rows.sums[first:end], "row_cells": rows.cells[first:end], "row_bounds": bounds}


def rows_from(plan: ReleasePlan, arrays: Arrays) -> Rows:
    """Return the row sums that :func:`packed_rows` packed."""
    first, largest = arrays["row_bounds"].tolist()
    whole = []
    for name in ("row_sums", "row_cells"):
        values = np.zeros(row_areas(plan), dtype=np.int64)
        values[first : first + len(arrays[name])] = arrays[name]
        whole.append(values)
    return Rows(whole[0], whole[1], largest)


def packed_posterior(posterior: Posterior) -> Arrays:
    """Return a posterior as one-dimensional arrays, for a file of the store."""
    return {
        "bin_of": posterior.bin_of,
        "mean": posterior.mean.ravel(),
        "deviation": posterior.deviation.ravel(),
        "bins": np.array([len(posterior.mean)], dtype=np.int64),
    }


def posterior_from(arrays: Arrays) -> Posterior:
    """Return the posterior that :func:`packed_posterior` packed."""
    bins = int(arrays["bins"][0])
    return Posterior(arrays["bin_of"], *(arrays[name].reshape(bins, -1) for name in ("mean", "deviation")))


_CLAIMS = "claims/"


@dataclass(frozen=True)
class PartMeasurements:
    """The measurements of the steps of one part. Each step is claimed before it is drawn, and stored once.

    A claim is a file that is created exclusively and is durable before the first random bit is drawn. A part can be
    claimed once per round that the step was charged for. Only values that were read back from the store are used. Two
    processes may draw the same part if one of them was presumed dead. The values of the process that stores second are
    then discarded (``docs/explanation/parts.md``).

    Attributes:
        store: Store of the claims and the measurements.
        part: Number of the part in its band.
        rounds: By number of the step, the rounds that it was charged for; 0 if all parts of it are measured.
    """

    store: Store
    part: int
    rounds: Mapping[int, int]

    def once(self, step: Step, draw: Draw) -> NoisyVector:
        """Return the stored noisy values of a step. If there are none, claim the part, and draw and store them first.

        Raises:
            OdError: If the part was already claimed in every round but is not stored, or if the level is recorded as
                measured but the file of the part is missing.
        """
        name = part_file(step.number, self.part)
        if not self.store.has(name):
            if self.rounds[step.number] == 0:
                raise OdError(
                    "OD-MEASUREMENT-ABSENT",
                    f"step {step.number}, level {step.level}, of part {self.part} was measured, but its measurement is"
                    " missing",
                    next_step="restore the measurements of the parts from a backup",
                    spent=STAYS_CHARGED,
                )
            with finished_first():
                self._claim(step)
                sink = pa.BufferOutputStream()
                write_noisy(sink, draw())
                self.store.create_if_absent(name, sink.getvalue())
        return NoisyVector(partial(self.store.read, name))

    def _claim(self, step: Step) -> None:
        mine = str(os.getpid()).encode()
        for number in range(1, self.rounds[step.number] + 1):
            if self.store.create_if_absent(f"{_CLAIMS}{step.number}.{self.part:05d}.{number}", mine):
                return
        raise OdError(
            "OD-LOST-DRAW",
            f"step {step.number}, level {step.level}, of part {self.part} was being drawn when its process ended, or"
            " is still being drawn",
            next_step="run the release again, which requests another round from the ledger",
            spent="the level stays charged",
        )


def claimed_rounds(store: Store, step: int) -> dict[int, int]:
    """Return the last round in which each claimed part of a step was claimed, by number of the part."""
    rounds: dict[int, int] = {}
    for name in store.list(f"{_CLAIMS}{step}."):
        _, part, number = name.removeprefix(_CLAIMS).split(".")
        rounds[int(part)] = max(rounds.get(int(part), 0), int(number))
    return rounds


_MARK = "claims/begun"
"""File that marks a store as the one in which the release was begun."""


def granted_rounds(
    ledger: Ledger, key: ReleaseKey, steps: Sequence[Step], store: Store, noise: str | None
) -> dict[int, int]:
    """Return how many rounds each step of a band is charged for, by number of the step; 0 for a measured step.

    Call this function before any task of the band starts. For each step that was never drawn, it starts the first
    round, which the reservation has charged. For each step with a part that was claimed in the newest round but is not
    stored, it starts and charges another round. A measured step gets no further round.

    Args:
        ledger: The ledger, which has the reservation of the release.
        steps: Steps of the band.
        store: Store of the claims and the measurements of parts.
        noise: Name of the noise backend.

    Raises:
        OdError: If the cap does not allow another round; if the ledger does not record the draw of a claimed or stored
            part; if the release was begun in another store; or if the store does not create files exclusively.
    """
    rounds = {}
    states = {step.number: ledger.level_state(key, step.number) for step in steps}
    _mark_or_find(store, key, begun=any(state is not None and state.kind != RESERVED for state in states.values()))
    for step in steps:
        number, state = step.number, states[step.number]
        claimed, kept = claimed_rounds(store, number), {*part_files(store, number)}
        if (state is None or state.kind == RESERVED) and (claimed or kept):
            raise OdError(
                "OD-LEDGER-ROLLED-BACK",
                f"level {step.level} of {key} has measurements of parts that the ledger does not record",
                next_step="restore the newest ledger; an older one does not record all that was spent",
                spent=STAYS_CHARGED,
            )
        if state is None or state.kind == RESERVED:
            rounds[number] = ledger.start_draw(key, number, noise)
            continue
        if state.kind == MEASURED:
            rounds[number] = 0
            continue
        missing = {part_file(number, part) for part, last in claimed.items() if last >= state.draw} - kept
        is_lost = (not store.has(name) for name in missing)  # a store may list a file later than it has it
        rounds[number] = ledger.start_draw(key, number, noise) if any(is_lost) else state.draw
    return rounds


def _mark_or_find(store: Store, key: ReleaseKey, *, begun: bool) -> None:
    """Mark the store of a release that has not begun, or check the mark if the release has ``begun``.

    The claims in one store do not prevent a draw into another store, so a release must use a single store.

    Raises:
        OdError: If the release was begun in another store, or if the store does not create files exclusively.
    """
    if begun and not store.has(_MARK):
        raise OdError(
            "OD-STORE-OTHER",
            f"the store of parts is not the store in which {key} began, or it was emptied",
            next_step="restore the store, or declare the store in which the release began",
            spent=STAYS_CHARGED,
        )
    store.create_if_absent(_MARK, b"begun")
    if store.create_if_absent(_MARK, b"again"):
        raise OdError(
            "OD-STORE-UNSAFE",
            "the store of parts replaces an existing file, so two draws could both be kept",
            next_step="use a folder, or a newer driver for this storage",
        )


def _refuse_late_list(store: Store, step: int, parts: int) -> None:
    """Raise OdError if the store has a part of a step that it does not list yet, which the digest would not cover."""
    listed = {*part_files(store, step)}
    unlisted = (name for part in range(parts) if (name := part_file(step, part)) not in listed)
    late = [name for name in unlisted if store.has(name)]
    if late:
        raise OdError(
            "OD-STORE-LISTING",
            f"the store of parts does not list all files that it has: {late[0]} is one of {len(late)}",
            next_step="run the release again after a while; nothing is drawn again",
            spent=STAYS_CHARGED,
        )


def record_measured(
    ledger: Ledger, key: ReleaseKey, steps: Sequence[Step], store: Store, rounds: Mapping[int, int], parts: int
) -> None:
    """Record in the ledger that each step of a band is measured, with a digest of its stored parts.

    For a step that is already recorded as measured, check the digest instead. ``rounds`` is the result of
    :func:`granted_rounds`, and ``parts`` is the number of parts of the band.

    Raises:
        OdError: If the stored parts of a measured step differ from those recorded, or if the store does not list all
            files that it has.
    """
    for step in steps:
        _refuse_late_list(store, step.number, parts)
        state, digest = ledger.level_state(key, step.number), kept_digest(store, step.number)
        if state is None or state.kind != MEASURED:
            ledger.finish_draw(key, step.number, rounds[step.number], digest)
        elif state.digest != digest:
            raise OdError(
                "OD-MEASUREMENT-CHANGED",
                f"the measurement of level {step.level} of {key} has changed",
                next_step="restore the measurements of the parts from a backup",
                spent=STAYS_CHARGED,
            )
