"""Process one part with the same kernels as a whole tree, from its nodes down to the last level of its band.

Each public function is a task (:func:`od_core.flows.parts.work.on_all`). Only :func:`measure_part` sees counts. All
others are functions of noisy values, so a part that is processed twice gives the same result twice.

A part has files of these kinds: its nodes of the level above (``frontier``); the nodes of its own levels after the
top-down pass (``passed``), and combined with the levels below (``risen``); the sums from the bands below (``below``),
of its leaves (``leaf_sums``, ``rows``, ``histogram``) and for the nodes above (``sums``); the refined trips of its
nodes of the level above (``totals``) and of its own nodes (``refined``); and its leaves (``leaves``). All parts of a
band share ``common`` and ``posterior``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from od_core.errors import STAYS_CHARGED, OdError
from od_core.flows.estimation.count_distribution import Posterior
from od_core.flows.estimation.empirical_bayes import Rows, leaf_histogram, leaf_rows, posterior_leaves, row_areas
from od_core.flows.estimation.refinement import ChildSums, RisenLevel, descend, leaf_sums, projected_leaves, rise
from od_core.flows.estimation.top_down import Measurement, run_levels
from od_core.flows.parts.work import Arrays, Part, Work
from od_core.flows.plan import ReleasePlan
from od_core.geography.flow_tree import Nodes, Pairs
from od_core.ledger.measurements import Draw, NoisyVector, write_noisy
from od_core.ledger.object_store import Store, part_file
from od_core.privacy.plan import Step
from od_core.records.count_files import CountFiles


def measure_part(work: Work, part: Part) -> None:
    """Measure the levels of a band below a part's nodes, each once, and estimate them: confidential in, public out.

    If the band contains the leaves and the mechanism refines, also compute the sums of the leaves for the nodes above.
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
    """Combine the nodes of a part with the sums of the bands below (``below``), and keep sums for the nodes above."""
    kept = work.load_nodes("passed", part["band"], part["part"])[-1]
    _rise(work, part, _measured(work, part), kept, sums_from(work.load("below", part["band"], part["part"])))


def descend_part(work: Work, part: Part) -> None:
    """Refine the nodes of a part, below nodes with the given refined trips.

    In the last band, also make the leaves or, if they are estimated by empirical Bayes, count their noisy values.
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
    """Estimate the leaves of a part by empirical Bayes, once the noisy values of all parts are counted."""
    plan, band, number = work.plan, part["band"], part["part"]
    dial, common, leaf = plan.mechanism.leaf_dial, work.load("common", band, 0), _measured(work, part)[-1]
    if dial is None:
        raise OdError("OD-PART-ORDER", "these leaves are projected, not estimated", next_step="report this defect")
    known, trips = posterior_from(work.load("posterior", band, 0)), work.load("refined", band, number)["last"]
    leaves = posterior_leaves(plan, leaf, trips, dial, rows_from(plan, common), known)
    work.save_nodes("leaves", band, number, [_joined(leaf, leaves)])


_RISEN = ("runs", "noisy", "difference", "variance")


def _measured(work: Work, part: Part) -> list[Measurement]:
    """Return the stored measurements of a part, top first."""
    band, number = part["band"], part["part"]
    above = [*work.load_nodes("frontier", band, number), *work.load_nodes("passed", band, number)]
    return [
        Measurement(step, nodes, NoisyVector(partial(work.store.read, part_file(step.level, number))))
        for step, nodes in zip(work.plan.step_bands[band], above, strict=False)
    ]


def _rise(work: Work, part: Part, measured: list[Measurement], kept: Pairs, sums: ChildSums) -> None:
    """Keep the nodes of a part, combined with the levels below, and their sums for the nodes above the part."""
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
    """Return sums over children as arrays."""
    return {"noisy": sums.noisy, "difference": sums.difference, "variance": sums.variance}


def sums_from(arrays: Arrays) -> ChildSums:
    """Return the sums from the arrays of :func:`packed_sums`."""
    return ChildSums(arrays["noisy"], arrays["difference"], arrays["variance"])


def packed_rows(rows: Rows) -> Arrays:
    """Return rows as arrays, from the first area that has any to the last."""
    there = np.flatnonzero(rows.cells)
    first, end = (int(there[0]), int(there[-1]) + 1) if len(there) else (0, 0)
    bounds = np.array([first, rows.largest], dtype=np.int64)
    return {"row_sums": rows.sums[first:end], "row_cells": rows.cells[first:end], "row_bounds": bounds}


def rows_from(plan: ReleasePlan, arrays: Arrays) -> Rows:
    """Return the rows from the arrays of :func:`packed_rows`."""
    first, largest = arrays["row_bounds"].tolist()
    whole = []
    for name in ("row_sums", "row_cells"):
        values = np.zeros(row_areas(plan), dtype=np.int64)
        values[first : first + len(arrays[name])] = arrays[name]
        whole.append(values)
    return Rows(whole[0], whole[1], largest)


def packed_posterior(posterior: Posterior) -> Arrays:
    """Return a posterior as arrays."""
    return {
        "bin_of": posterior.bin_of,
        "mean": posterior.mean.ravel(),
        "deviation": posterior.deviation.ravel(),
        "bins": np.array([len(posterior.mean)], dtype=np.int64),
    }


def posterior_from(arrays: Arrays) -> Posterior:
    """Return the posterior from the arrays of :func:`packed_posterior`."""
    bins = int(arrays["bins"][0])
    return Posterior(arrays["bin_of"], *(arrays[name].reshape(bins, -1) for name in ("mean", "deviation")))


_CLAIMS = "claims/"


@dataclass(frozen=True)
class PartMeasurements:
    """Measurements of the levels of one part, each claimed before it is drawn, and stored once.

    See ``docs/explanation/parts.md``.

    A claim is a file that is created exclusively, and is durable before the first random bit. A part can be claimed
    once in each round that the ledger granted its level. The values used are those read back. If two processes drew,
    because one was presumed dead, the one that stored its values second discards them.

    Attributes:
        store: Where they are kept.
        part: Number of the part in its band.
        rounds: Number of rounds that the ledger granted each level; 0 if all of the level was measured before.
    """

    store: Store
    part: int
    rounds: Mapping[int, int]

    def once(self, step: Step, draw: Draw) -> NoisyVector:
        """Return the noisy values of a step: the stored ones, or else those drawn and stored now.

        Raises:
            OdError: If the part's level was claimed in every granted round, but never stored; or if it was measured,
                but is missing.
        """
        name = part_file(step.level, self.part)
        if not self.store.has(name):
            if self.rounds[step.level] == 0:
                raise OdError(
                    "OD-MEASUREMENT-ABSENT",
                    f"level {step.level} of part {self.part} was measured, but its measurement is missing",
                    next_step="restore the measurements of the parts from a backup",
                    spent=STAYS_CHARGED,
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
            f"level {level} of part {self.part} was being drawn when its process ended, or is still being drawn",
            next_step="run the release again, which requests another round from the ledger",
            spent="the level stays charged",
        )


def claimed_rounds(store: Store, level: int) -> dict[int, int]:
    """Return the parts of a level that were ever claimed, each with its last round."""
    rounds: dict[int, int] = {}
    for name in store.list(f"{_CLAIMS}{level}."):
        _, part, number = name.removeprefix(_CLAIMS).split(".")
        rounds[int(part)] = max(rounds.get(int(part), 0), int(number))
    return rounds
