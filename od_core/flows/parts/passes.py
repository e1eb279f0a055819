"""What is done with one part: the same kernels as for a whole tree, from its nodes down to the last level of its band.

Each function is a task (:func:`od_core.flows.parts.work.on_all`). Only :func:`measure_part` sees counts; all others are
functions of noisy values, so that a part that is worked on twice is the same twice.

A part has files of these kinds: its nodes of the level above (``frontier``), those of its own levels as the top-down
pass left them (``passed``), what they learnt from below (``risen``), the trips of its nodes above (``totals``) and of
its own nodes (``refined``), and its leaves (``leaves``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from od_core.errors import OdError
from od_core.flows.estimation.count_distribution import Posterior
from od_core.flows.estimation.empirical_bayes import Rows, leaf_histogram, leaf_rows, posterior_leaves, row_areas
from od_core.flows.estimation.refinement import ChildSums, RisenLevel, descend, leaf_sums, projected_leaves, rise
from od_core.flows.estimation.top_down import Measurement, run_levels
from od_core.flows.parts.work import Arrays, Part, Work
from od_core.flows.plan import ReleasePlan
from od_core.geography.flow_tree import Nodes, Pairs
from od_core.ledger.measurements import Draw, NoisyVector, write_noisy
from od_core.ledger.object_store import Store, part_file
from od_core.ledger.protocols import PlannedStep
from od_core.records.count_files import CountFiles


def measure_part(work: Work, part: Part) -> None:
    """Confidential in, public out: measure the levels of a band below the nodes of a part, each once, and estimate.

    Where the leaves are measured, and are refined, they say at once what they know about the nodes above.
    """
    plan, band, number = work.plan, part["band"], part["part"]
    (frontier,) = work.load_nodes("frontier", band, number)
    counts, ranks = CountFiles(work.store, work.counts), plan.tree.rank_range(frontier)
    steps, is_last = plan.step_bands[band], band == len(plan.step_bands) - 1
    trips = counts.between(*ranks) if is_last else counts.at_level(plan.tree, steps[-1].level, ranks)
    kept = PartMeasurements(work.store, number, {int(level): count for level, count in part["rounds"].items()})
    measured, last = run_levels(plan, steps, frontier, trips, work.noise, kept, shared=True)
    below = [m.parents for m in measured[1:] if isinstance(m.parents, Nodes)]
    work.save_nodes("passed", band, number, below if last is None else [*below, last])
    if last is None:
        leaf = measured[-1]
        sums = leaf_sums(plan, leaf)
        work.save("leaf_sums", band, number, {"noisy": sums.noisy})
        _rise(work, part, measured[:-1], below[-1] if below else frontier, sums)
        if plan.mechanism.leaf_dial is not None:
            work.save("rows", band, number, packed_rows(leaf_rows(plan, leaf)))


def rise_part(work: Work, part: Part) -> None:
    """Of a band that has bands below it: what these have said (``below``) goes on to the nodes above the part."""
    kept = work.load_nodes("passed", part["band"], part["part"])[-1]
    _rise(work, part, _measured(work, part), kept, sums_from(work.load("below", part["band"], part["part"])))


def descend_part(work: Work, part: Part) -> None:
    """Refine the nodes of a part, below nodes whose refined trips are given; and count the leaves' noisy values.

    Where the leaves are not estimated by empirical Bayes, they are made at once.
    """
    plan, band, number = work.plan, part["band"], part["part"]
    trips = work.load("totals", band, number)["trips"]
    common, risen = work.load("common", band, 0), work.load("risen", band, number)
    refined: Arrays = {}
    for nodes in work.load_nodes("passed", band, number):
        level = RisenLevel(nodes, *(risen[f"{name}_{nodes.level}"] for name in _RISEN))
        trips = descend(plan, level, trips, float(common[f"largest_{nodes.level}"][0]))
        refined[f"trips_{nodes.level}"] = trips
    work.save("refined", band, number, refined | {"last": trips})
    if band < len(plan.step_bands) - 1:
        return
    leaf = _measured(work, part)[-1]
    if plan.mechanism.leaf_dial is not None:
        counts = leaf_histogram(plan, leaf, trips, rows_from(plan, common))
        work.save("histogram", band, number, {"counts": counts.ravel()})
    else:
        noisy = work.load("leaf_sums", band, number)["noisy"]
        work.save_nodes("leaves", band, number, [_joined(leaf, projected_leaves(plan, leaf, noisy, trips))])


def leaves_part(work: Work, part: Part) -> None:
    """The leaves of a part by empirical Bayes, once the noisy values of all parts are counted."""
    plan, band, number = work.plan, part["band"], part["part"]
    dial, common, leaf = plan.mechanism.leaf_dial, work.load("common", band, 0), _measured(work, part)[-1]
    if dial is None:
        raise OdError("OD-PART-ORDER", "these leaves are projected, not estimated", next_step="report this defect")
    known, trips = posterior_from(work.load("posterior", band, 0)), work.load("refined", band, number)["last"]
    leaves = posterior_leaves(plan, leaf, trips, dial, rows_from(plan, common), known)
    work.save_nodes("leaves", band, number, [_joined(leaf, leaves)])


_RISEN = ("runs", "noisy", "difference", "variance")


def _measured(work: Work, part: Part) -> list[Measurement]:
    """The kept measurements of a part, top first."""
    band, number = part["band"], part["part"]
    above = [*work.load_nodes("frontier", band, number), *work.load_nodes("passed", band, number)]
    return [
        Measurement(step, nodes, NoisyVector(partial(work.store.read, part_file(step.level, number))))
        for step, nodes in zip(work.plan.step_bands[band], above, strict=False)
    ]


def _rise(work: Work, part: Part, measured: list[Measurement], kept: Pairs, sums: ChildSums) -> None:
    """Keep what the nodes of a part have learnt from below, and what they say about the nodes above the part."""
    levels, above = rise(work.plan, measured, kept, sums)
    risen: Arrays = {}
    for level in levels:
        risen |= {f"{name}_{level.nodes.level}": getattr(level, name) for name in _RISEN}
    work.save("risen", part["band"], part["part"], risen)
    largest = {f"largest_{level.nodes.level}": np.array([level.largest_variance]) for level in levels}
    work.save("sums", part["band"], part["part"], largest | packed_sums(above))


def _joined(leaf: Measurement, pieces: Iterator[Nodes]) -> Nodes:
    return Nodes.joined(leaf.step.level, pieces)


def packed_sums(sums: ChildSums) -> Arrays:
    """What children say, as arrays."""
    return {"noisy": sums.noisy, "difference": sums.difference, "variance": sums.variance}


def sums_from(arrays: Arrays) -> ChildSums:
    """The reverse of :func:`packed_sums`."""
    return ChildSums(arrays["noisy"], arrays["difference"], arrays["variance"])


def packed_rows(rows: Rows) -> Arrays:
    """Rows as arrays, from the first area that has any to the last."""
    there = np.flatnonzero(rows.cells)
    first, end = (int(there[0]), int(there[-1]) + 1) if len(there) else (0, 0)
    bounds = np.array([first, rows.largest], dtype=np.int64)
    return {"row_sums": rows.sums[first:end], "row_cells": rows.cells[first:end], "row_bounds": bounds}


def rows_from(plan: ReleasePlan, arrays: Arrays) -> Rows:
    """The reverse of :func:`packed_rows`."""
    first, largest = arrays["row_bounds"].tolist()
    whole = []
    for name in ("row_sums", "row_cells"):
        values = np.zeros(row_areas(plan), dtype=np.int64)
        values[first : first + len(arrays[name])] = arrays[name]
        whole.append(values)
    return Rows(whole[0], whole[1], largest)


def packed_posterior(posterior: Posterior) -> Arrays:
    """A posterior as arrays."""
    return {
        "bin_of": posterior.bin_of,
        "mean": posterior.mean.ravel(),
        "deviation": posterior.deviation.ravel(),
        "bins": np.array([len(posterior.mean)], dtype=np.int64),
    }


def posterior_from(arrays: Arrays) -> Posterior:
    """The reverse of :func:`packed_posterior`."""
    bins = int(arrays["bins"][0])
    return Posterior(arrays["bin_of"], *(arrays[name].reshape(bins, -1) for name in ("mean", "deviation")))


# The measurement of one level of one part: claimed before it is drawn, and kept once (spec 8, section 3).
#
# A claim is a file that is created exclusively, and durable before the first random bit. A part may be claimed once in
# each round that the ledger has granted its level. What is used is what is read back: of two that drew, since one was
# taken for dead, the loser lets go of its vector.


_CLAIMS = "claims/"


@dataclass(frozen=True)
class PartMeasurements:
    """Measurements of one part.

    Attributes:
        store: where they are kept.
        part: its number in the band.
        rounds: how many rounds the ledger has granted each level; none where all of it was measured.
    """

    store: Store
    part: int
    rounds: Mapping[int, int]

    def once(self, step: PlannedStep, draw: Draw) -> NoisyVector:
        """As :meth:`od_core.ledger.measurements.Measurements.once`.

        Raises:
            OdError: the level of the part was claimed in every round that is granted, and never kept; or it was
                measured, and is missing.
        """
        name = part_file(step.level, self.part)
        if not self.store.has(name):
            if self.rounds[step.level] == 0:
                raise OdError(
                    "OD-MEASUREMENT-ABSENT",
                    f"level {step.level} of part {self.part} was measured, and is missing",
                    next_step="restore the measurements of parts from a backup",
                    spent="what was set aside before stays charged",
                )
            self._claim(step.level)
            sink = pa.BufferOutputStream()
            write_noisy(sink, draw())
            self.store.create_if_absent(name, sink.getvalue())
        return NoisyVector(partial(self.store.read, name))

    def _claim(self, level: int) -> None:
        mine = str(os.getpid()).encode()
        for number in range(1, self.rounds[level] + 1):
            if self.store.create_if_absent(f"{_CLAIMS}{level}.{self.part:05d}.{number}", mine):
                return
        raise OdError(
            "OD-LOST-DRAW",
            f"level {level} of part {self.part} was being drawn when its process ended, or still is",
            next_step="run the release again: it asks the ledger for another round",
            spent="the level's charge stands",
        )


def claimed_rounds(store: Store, level: int) -> dict[int, int]:
    """The parts of a level that were ever claimed, and the last round of each."""
    rounds: dict[int, int] = {}
    for name in store.list(f"{_CLAIMS}{level}."):
        _, part, number = name.removeprefix(_CLAIMS).split(".")
        rounds[int(part)] = max(rounds.get(int(part), 0), int(number))
    return rounds
