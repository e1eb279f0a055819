"""Run a release in parts: the driver, which writes to the ledger and gives tasks to the workers, and the tasks.

The driver measures and refines the levels of the first band, as in any release. Workers process each band below, one
task per part: they measure it from the top down, combine it with the bands below from the bottom up, and refine it from
the top down. For these bands, the driver reads noisy values and estimates only, and no true counts.

The functions with names in ``_part`` are tasks for :func:`run_on_all_parts`. Only :func:`measure_part` reads true
counts. The results of the other tasks depend on noisy values alone, so a part that is processed again has the same
result.

Tasks read and write files of these kinds, one per part:

- ``frontier``: the released nodes of the level above the band that belong to the part.
- ``passed``: the nodes of the part's levels after the top-down pass.
- ``leaf_sums``, ``rows``, ``histogram``: the sums, row sums and histogram of the part's leaves.
- ``below_<breakdown>_<category>``: sums over the bands below, for the last level of the part. There is one such file
  for each table of :func:`od_core.flows.estimation.levels.make_noisy_tables`: the totals and each category.
- ``risen_...``: the bottom-up estimates of the part's nodes, and ``sums_...``: their sums for the nodes of
  ``frontier``; for each table, too.
- ``above``: the refined trips of the nodes of ``frontier``; ``refined``: the totals of each level of the part; and
  ``last``: the refined trips of its last level above the leaves. The first and the last also have the trips by
  breakdown.
- ``leaves``: the part's released leaves, and ``segments``: their trips by breakdown.

All parts read the same ``largest`` (largest variances of each table and level), ``all_rows`` and ``posterior``.

A task is a function from a descriptor to an outcome, short texts with numbers of parts, codes and digests. All other
data is written to a store and read from it. So no message of an engine contains a count or a noisy value, and an engine
that repeats or loses a task does not change stored data (``docs/explanation/parts.md``).

Each part is measured once, in rounds that the ledger charges. A round is one draw of any parts of a step, each at most
once. Parts are disjoint, so a round is one vector query with the sensitivity of the step. A step is charged its rho
once per round, however many of its parts were lost.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import secrets
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Protocol, cast

import numpy as np
import pyarrow as pa

from od_core.errors import STAYS_CHARGED, OdError
from od_core.flows.estimation.empirical_bayes import (
    GridNoise,
    Posterior,
    Rows,
    estimate_posterior,
    estimate_posterior_leaves,
    make_leaf_histogram,
    sum_leaf_rows,
)
from od_core.flows.estimation.levels import Measurement, NoisyCounts, Tables, make_noisy_tables, refuse_beyond_memory
from od_core.flows.estimation.refinement import (
    ChildSums,
    RisenLevel,
    Trips,
    combine_levels_upwards,
    descend_levels,
    descend_segments,
    refine_above,
    refine_leaves_with_segments,
    select_nodes_with_trips,
    sum_measured_leaves,
)
from od_core.flows.measuring import measure_levels
from od_core.flows.plan import ReleasePlan
from od_core.geography.flow_tree import Nodes, Pairs
from od_core.ledger.chain import MEASURED, RESERVED
from od_core.ledger.ledger import Ledger
from od_core.ledger.measurements import Draw, DurableMeasurements, NoisyVector, write_noisy
from od_core.ledger.object_store import (
    Store,
    advise_to_read_details,
    compute_level_digest,
    list_part_files,
    name_part_file,
    store_error_detail,
)
from od_core.ledger.release_key import ReleaseKey
from od_core.noise.backends import NoiseSource, find_backend_name
from od_core.parallel import delay_interrupts, map_in_order
from od_core.privacy.plan import Step
from od_core.records.counts import CountFiles, TripCounts

ATTEMPTS = "attempts"
"""Folder of the attempts in the store. What it contains is computed again if it is absent."""

Arrays = dict[str, Any]
"""Arrays and numbers by name, through which tasks pass data to other tasks and to the driver. All are public."""

_SHAPES = b"shapes"
"""Key of the metadata of a stored file that has the shapes of its arrays, which are stored flat."""

_NODE_ARRAYS = ("origin", "destination", "trips")
"""Names of the arrays of :class:`od_core.geography.flow_tree.Nodes`."""

Part = Mapping[str, Any]
"""A parsed descriptor of a task: the numbers ``band`` and ``part``, and further arguments of the task by name."""


@dataclass(frozen=True)
class Work:
    """One attempt to run a release in parts. It is sent to every task.

    Attributes:
        store: Store of all files of the release in parts.
        attempt: Folder in the store for files that are computed from the measurements, anew in each attempt.
        plan_digest: SHA-256 of the file of the plan.
        counts: Folder of the count files in the store.
        noise: Source of the noise of the parts.
    """

    store: Store
    attempt: str
    plan_digest: str
    counts: str
    noise: NoiseSource

    @classmethod
    def begin_attempt(cls, plan: ReleasePlan, store: Store, counts: str, noise: NoiseSource) -> Work:
        """Start a new attempt: store the plan, and remove the folders of older attempts, but no measurements."""
        store.remove(ATTEMPTS)
        content = pickle.dumps(plan)
        digest = hashlib.sha256(content).hexdigest()
        store.create_if_absent(_name_plan_file(digest), content)
        return cls(store, f"{ATTEMPTS}/{secrets.token_hex(8)}", digest, counts, noise)

    def facts(self) -> dict[str, str]:
        """Return ``attempt``, ``plan_digest`` and ``counts`` as a dictionary for JSON, for a later step."""
        return {"attempt": self.attempt, "plan_digest": self.plan_digest, "counts": self.counts}

    @property
    def plan(self) -> ReleasePlan:
        """The plan of the release, read from the store once per process. Raises OdError if its digest differs."""
        return _read_plan(self.store, self.plan_digest)

    def save(self, kind: str, part: Part, arrays: Arrays) -> None:
        """Store arrays of a part, by name; do nothing if the file exists, which has the same content.

        ``kind`` is the kind of file, listed in the docstring of this module.
        """
        columns, shapes = [], []
        for value in arrays.values():
            array = np.asarray(value)
            columns.append(pa.LargeListArray.from_arrays([0, array.size], pa.array(array.ravel())))
            shapes.append(array.shape)
        batch = pa.record_batch(columns, names=list(arrays), metadata={_SHAPES: json.dumps(shapes)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        self.store.create_if_absent(self._name_file(kind, part), sink.getvalue(), durable=False)

    def load(self, kind: str, part: Part) -> Arrays:
        """Return the arrays that :meth:`save` stored, read-only. Raises OdError if the file is absent or incomplete."""
        name = self._name_file(kind, part)
        try:
            batch = pa.ipc.open_file(self.store.read(name)).get_batch(0)
        except (pa.ArrowInvalid, OSError):
            raise OdError(
                "OD-STORE-CUT",
                f"{name} in the store is incomplete",
                next_step="run the whole release again; it reads its measurements back and draws nothing twice",
                spent=STAYS_CHARGED,
            ) from None
        shapes = json.loads(batch.schema.metadata[_SHAPES])
        columns = zip(batch.schema.names, batch.columns, shapes, strict=True)
        return {name: column.flatten().to_numpy().reshape(shape) for name, column, shape in columns}

    def save_nodes(self, kind: str, part: Part, levels: Sequence[Nodes]) -> None:
        """Store the nodes of several levels of a part, with their trips, in one file; see :meth:`save`."""
        arrays: Arrays = {"levels": [nodes.level for nodes in levels]}
        for nodes in levels:
            arrays |= {f"{name}_{nodes.level}": getattr(nodes, name) for name in _NODE_ARRAYS}
        self.save(kind, part, arrays)

    def load_nodes(self, kind: str, part: Part) -> list[Nodes]:
        """Return the nodes that :meth:`save_nodes` stored, level by level. Raises OdError as :meth:`load` does."""
        arrays = self.load(kind, part)
        levels = []
        for level in arrays["levels"].tolist():
            origin, destination, trips = (arrays[f"{name}_{level}"] for name in _NODE_ARRAYS)
            levels.append(Nodes(level, origin, destination, trips))
        return levels

    def _name_file(self, kind: str, part: Part) -> str:
        """Return the name in the store of a file of a part."""
        return f"{self.attempt}/{kind}_{part['band']}.part_{part['part']:05d}"


def run_on_all_parts(workers: Workers, task: Callable[[Work, Part], None], work: Work, parts: Sequence[Part]) -> None:
    """Run a task on every part, and wait until all are done.

    Raises OdError if a task failed. The other tasks have run, and their stored results remain.
    """
    outcomes = workers.map(_Guarded(task, work), [json.dumps(dict(part)) for part in parts])
    failed = []
    for part, outcome in zip(parts, outcomes, strict=True):
        if outcome != _DONE:
            failed.append(f"{outcome} part {part['part']}")
    if failed:
        raise OdError(
            "OD-PARTS-FAILED",
            f"{len(failed)} of {len(parts)} parts failed: {', '.join(failed[:_MAX_NAMED_PARTS])}",
            next_step=f"{advise_to_read_details(work.store)}, then run the release again; it reads stored measurements"
            " back",
            spent=STAYS_CHARGED,
        )


_DONE = "done"
"""Outcome of a task that did not fail."""

_MAX_NAMED_PARTS = 5
"""Largest number of failed parts that a message names."""


@dataclass(frozen=True)
class _Guarded:
    """A task that never raises: it returns ``done`` or the code of its error, whose text it writes to the store.

    The text may be confidential, so it must not reach the messages of an engine.
    """

    task: Callable[[Work, Part], None]
    work: Work

    def __call__(self, descriptor: str) -> str:
        """Run the task on the part that a descriptor names, and return the outcome."""
        try:
            self.task(self.work, json.loads(descriptor))
        except OdError as error:
            store_error_detail(self.work.store, f"{error}\n{error.confidential_detail or ''}\n")
            return error.code
        except Exception:  # noqa: BLE001  # the text may contain a confidential value
            store_error_detail(self.work.store, traceback.format_exc())
            return "OD-PART-FAILED"
        return _DONE


@lru_cache(maxsize=1)
def _read_plan(store: Store, digest: str) -> ReleasePlan:
    """Return the plan that the driver stored. Raises OdError if its digest is another."""
    content = store.read(_name_plan_file(digest)).read_buffer()
    if hashlib.sha256(content).hexdigest() != digest:
        raise OdError(
            "OD-PART-PLAN",
            "the plan in the store differs from the plan of the driver",
            next_step="run the release again",
        )
    plan: ReleasePlan = pickle.loads(content)  # noqa: S301  # written by the driver, checked by its digest
    return plan


def _name_plan_file(digest: str) -> str:
    """Return the name in the store of the plan with a digest."""
    return f"plans/{digest}.pickle"


Task = Callable[[str], str]
"""A function from the descriptor of a task to its outcome, both short texts. It must be picklable and never raise."""


class Workers(Protocol):
    """An engine that runs tasks: the threads of this process, or the executors of Spark."""

    def map(self, task: Task, descriptors: Sequence[str]) -> list[str]:
        """Run the task on every descriptor, and return the outcomes in order. Raises OdError if a task was lost."""
        ...


class Threads:
    """An engine that runs tasks on ``OD_THREADS`` threads of this process or, by default, on one per processor."""

    def map(self, task: Task, descriptors: Sequence[str]) -> list[str]:
        """Run the task on every descriptor, and return the outcomes in order; see :meth:`Workers.map`."""
        return list(map_in_order(task, descriptors))


_CLAIMS = "claims/"
"""Beginning of the names of claims in the store."""


@dataclass(frozen=True)
class PartMeasurements:
    """The measurements of the steps of one part. Each step is claimed before it is drawn, and stored once.

    A claim is a file that is created exclusively and is durable before the first random bit is drawn. A part can be
    claimed once per round that the step was charged for. Only values that were read back from the store are used: of
    two processes that draw the same part, because one of them was presumed dead, only the first one stores its values.

    Attributes:
        store: Store of the claims and the measurements.
        part: Number of the part in its band.
        rounds: By number of the step, the rounds that it was charged for; 0 if all parts of it are measured.
    """

    store: Store
    part: int
    rounds: Mapping[int, int]

    def draw_once(self, step: Step, draw: Draw) -> NoisyVector:
        """Return the stored noisy values of a step. If there are none, claim the part, and draw and store them first.

        Raises:
            OdError: If the part was already claimed in every round but is not stored, or if the level is recorded as
                measured but the file of the part is missing.
        """
        name = name_part_file(step.number, self.part)
        if not self.store.has(name):
            if self.rounds[step.number] == 0:
                raise OdError(
                    "OD-MEASUREMENT-ABSENT",
                    f"step {step.number}, level {step.level}, of part {self.part} was measured, but its measurement is"
                    " missing",
                    next_step="restore the measurements of the parts from a backup",
                    spent=STAYS_CHARGED,
                )
            with delay_interrupts():
                self._claim_draw(step)
                sink = pa.BufferOutputStream()
                write_noisy(sink, draw())
                self.store.create_if_absent(name, sink.getvalue())
        return NoisyVector(partial(self.store.read, name))

    def _claim_draw(self, step: Step) -> None:
        """Claim the draw of this part in the first charged round in which nobody did. Raises OdError if all have."""
        owner = str(os.getpid()).encode()
        for number in range(1, self.rounds[step.number] + 1):
            if self.store.create_if_absent(f"{_CLAIMS}{step.number}.{self.part:05d}.{number}", owner):
                return
        raise OdError(
            "OD-LOST-DRAW",
            f"step {step.number}, level {step.level}, of part {self.part} was being drawn when its process ended, or"
            " is still being drawn",
            next_step="run the release again, which requests another round from the ledger",
            spent="the level stays charged",
        )


def read_claimed_rounds(store: Store, step: int) -> dict[int, int]:
    """Return the last round in which each claimed part of a step was claimed, by number of the part."""
    last_rounds: dict[int, int] = {}
    for name in store.list(f"{_CLAIMS}{step}."):
        _, part, claimed_round = name.removeprefix(_CLAIMS).split(".")  # as _claim_draw names them
        last_rounds[int(part)] = max(last_rounds.get(int(part), 0), int(claimed_round))
    return last_rounds


_MARK = "claims/begun"
"""File that marks a store as the one in which the release was begun, by a random text."""


def charge_rounds(
    ledger: Ledger, key: ReleaseKey, steps: Sequence[Step], store: Store, noise: str | None
) -> dict[int, int]:
    """Start and charge the draws (rounds) that the steps of a band need, and return the newest round of each step.

    The result has the number of the round, by number of the step; it is 0 for a measured step. A step that was never
    drawn starts its first round, which the reservation has charged. A step with a lost part starts another round, which
    is charged. Any other step goes on with its newest round. Call this function before any task of the band starts.
    ``noise`` is the name of the noise backend, for the ledger.

    Raises:
        OdError: If the cap does not allow another round; if the ledger does not record the draw of a claimed or stored
            part; if the release was begun in another store; or if the store does not create files exclusively.
    """
    rounds = {}
    states = {step.number: ledger.find_level_state(key, step.number) for step in steps}
    is_begun = any(state is not None and state.kind != RESERVED for state in states.values())
    marks = {content["store"] for _, content in ledger.list_begun_draws(key) if "store" in content}
    mark = _verify_store_mark(store, key, begun=is_begun, marks=marks)
    for step in steps:
        number, state = step.number, states[step.number]
        if state is None or state.kind == RESERVED:
            if read_claimed_rounds(store, number) or {*list_part_files(store, number)}:
                raise OdError(
                    "OD-LEDGER-ROLLED-BACK",
                    f"level {step.level} of {key} has measurements of parts that the ledger does not record",
                    next_step="restore the newest ledger; an older one does not record all that was spent",
                    spent=STAYS_CHARGED,
                )
            rounds[number] = ledger.start_draw(key, number, noise, mark)
        elif state.kind == MEASURED:
            rounds[number] = 0
        elif _has_lost_part(store, number, state.draw):
            rounds[number] = ledger.start_draw(key, number, noise, mark)
        else:
            rounds[number] = state.draw
            ledger.continue_draw(key, number, noise, mark)
    return rounds


def _has_lost_part(store: Store, number: int, newest: int) -> bool:
    """Return whether a part of step ``number`` was claimed in the newest round, ``newest``, and is not stored."""
    last_rounds = read_claimed_rounds(store, number)
    claimed = {name_part_file(number, part) for part, last_round in last_rounds.items() if last_round >= newest}
    unlisted = claimed - set(list_part_files(store, number))
    return not all(map(store.has, unlisted))  # a store may list a file later than it has it


def _verify_store_mark(store: Store, key: ReleaseKey, *, begun: bool, marks: Set[str]) -> str:
    """Return the digest of the mark of a store, after a check that the release began in this store.

    The claims in one store do not prevent a draw into another store, so a release must use a single store. ``marks``
    are the digests in the ledger's entries of the release, and ``begun`` states whether a level of the band has begun.
    If there is neither, the release begins here, and the mark is made. Raises OdError if the store is another one, or
    replaces files that exist.
    """
    if not (begun or marks):
        store.create_if_absent(_MARK, secrets.token_hex(16).encode())
    mark = hashlib.sha256(store.read(_MARK).read()).hexdigest() if store.has(_MARK) else None
    if mark is None or (marks and mark not in marks):
        raise OdError(
            "OD-STORE-OTHER",
            f"the store of parts is not the store in which {key} began, or it was emptied",
            next_step="restore the store, or declare the store in which the release began",
            spent=STAYS_CHARGED,
        )
    if store.create_if_absent(_MARK, b"again"):
        raise OdError(
            "OD-STORE-UNSAFE",
            "the store of parts replaces an existing file, so two draws could both be kept",
            next_step="use a folder, or a newer driver for this storage",
        )
    return mark


def _refuse_incomplete_list(store: Store, step: int, parts: int) -> None:
    """Raise OdError if the store has a part of a step that it does not list yet, which the digest would not cover."""
    unlisted = {name_part_file(step, part) for part in range(parts)} - {*list_part_files(store, step)}
    late = [name for name in sorted(unlisted) if store.has(name)]
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
    """Record in the ledger that each step of a band is measured, with a digest of its stored parts, or check this one.

    ``rounds`` is the result of :func:`charge_rounds`, and ``parts`` is the number of parts of the band.

    Raises:
        OdError: if parts of a measured step differ from those recorded, or the store does not list all its files.
    """
    for step in steps:
        _refuse_incomplete_list(store, step.number, parts)
        state, digest = ledger.find_level_state(key, step.number), compute_level_digest(store, step.number)
        if state is None or state.kind != MEASURED:
            ledger.finish_draw(key, step.number, rounds[step.number], digest)
        elif state.digest != digest:
            raise OdError(
                "OD-MEASUREMENT-CHANGED",
                f"the measurement of level {step.level} of {key} has changed",
                next_step="restore the measurements of the parts from a backup",
                spent=STAYS_CHARGED,
            )


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
    def from_frontier(cls, plan: ReleasePlan, number: int, frontier: Nodes) -> Band:
        """Return the band with the given number, at least 1; without parts if the plan has no bands.

        ``frontier`` is the released nodes of the last level above the band.
        """
        return cls(number, () if plan.bands is None else tuple(plan.bands.split_into_parts(frontier)))

    @property
    def tasks(self) -> list[Part]:
        """One descriptor per part: the numbers of the band and of the part."""
        return [{"band": self.number, "part": part} for part in range(len(self.parts))]


_ALL_PARTS: Part = {"band": 0, "part": 0}
"""Descriptor of the files that all parts read; no part has these numbers, because band 0 has no parts."""


def read_first_band_counts(plan: ReleasePlan, counts: CountFiles) -> TripCounts:
    """Return the confidential counts from which the first band is measured: sums over the nodes of its last level.

    Without bands, these are the counts of the leaf pairs.
    """
    if plan.bands is None:
        return counts.read_all()
    return counts.sum_at_level(plan.tree, plan.step_bands[0][-1].level)


def measure_band(
    plan: ReleasePlan, number: int, frontier: Nodes, work: Work, workers: Workers, measurements: DurableMeasurements
) -> Band:
    """Measure all levels of a band, each once, estimate them from the top down, store both, and return the band.

    ``number`` is that of the band, at least 1, and ``frontier`` are the released nodes of the last level above it.

    Raises:
        OdError: If a draw was lost and the cap does not allow another, if a part failed, or if the mechanism learns
            from whole levels and the first level of the band does not fit into memory.
    """
    steps, band = plan.step_bands[number], Band.from_frontier(plan, number, frontier)
    refuse_beyond_memory(plan, steps[0].level, frontier)
    ledger, key = measurements.ledger, measurements.key
    rounds = charge_rounds(ledger, key, steps, work.store, find_backend_name(work.noise))
    for task, nodes in zip(band.tasks, band.parts, strict=True):
        above_part = Nodes(frontier.level, frontier.origin[nodes], frontier.destination[nodes], frontier.trips[nodes])
        work.save_nodes("frontier", task, [above_part])
    run_on_all_parts(workers, measure_part, work, [{**task, "rounds": rounds} for task in band.tasks])
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
        root: The root with its exact trips if the total is an invariant; otherwise None.
        measured: The measurements of the first band, top level first.
        frontier: The released nodes of the last level of the first band.
        bands: The bands below, which must be measured.

    Returns:
        The refined nodes of the root and of each level of the first band, top first. Those of the bands below are
        stored; :func:`read_refined_pieces` reads them.
    """
    counts = make_noisy_tables(plan, measured)
    sums, largest = _combine_bands_upwards(counts, bands, work, workers)
    work.save("largest", _ALL_PARTS, largest)
    nodes, trips = refine_above(plan, root, counts, frontier, lambda name, category: sums[f"{name}_{category}"])
    last = bands[-1]
    if plan.mechanism.leaf_dial is not None:
        rows = Rows.sum_parts(plan, (Rows(**work.load("rows", task)) for task in last.tasks))
        rows.refuse_large()
        work.save("all_rows", _ALL_PARTS, vars(rows))
    for band in bands:
        for task, nodes_above_part in zip(band.tasks, band.parts, strict=True):
            work.save("above", task, {name: values[nodes_above_part] for name, values in trips.items()})
        run_on_all_parts(workers, descend_part, work, band.tasks)
        if band is not last:
            trips_of_parts = [work.load("last", task) for task in band.tasks]
            for name, trips_above in trips.items():
                empty = trips_above[:0]  # without parts, the arrays are empty, with the same categories
                trips[name] = np.concatenate([empty, *(trips_of_part[name] for trips_of_part in trips_of_parts)])
    if plan.mechanism.leaf_dial is not None and last.parts:
        histogram = sum(work.load("histogram", task)["counts"] for task in last.tasks)
        posterior = estimate_posterior(GridNoise.from_variance(plan.steps[-1].variance), np.asarray(histogram))
        work.save("posterior", _ALL_PARTS, vars(posterior))
        run_on_all_parts(workers, estimate_part_leaves, work, last.tasks)
    return nodes


def read_unrefined_pieces(band: Band, work: Work, level: int) -> Iterator[Nodes]:
    """Yield the nodes of a level of a band as the top-down pass estimated them, one piece per part."""
    for task in band.tasks:
        yield from (nodes for nodes in work.load_nodes("passed", task) if nodes.level == level)


def read_refined_pieces(band: Band, work: Work, level: int) -> Iterator[Nodes]:
    """Yield the refined nodes of a level of a band, which may be the leaf level, one piece per part."""
    for task in band.tasks:
        if level == work.plan.tree.depth:
            yield from work.load_nodes("leaves", task)
            continue
        refined = work.load("refined", task)
        for nodes in work.load_nodes("passed", task):
            if nodes.level == level:
                yield select_nodes_with_trips(nodes, refined[str(level)])


def read_segment_pieces(band: Band, work: Work) -> Iterator[tuple[Nodes, Trips]]:
    """Yield the released leaves of the last band in tree order, one piece per part, and their trips by breakdown."""
    for task in band.tasks:
        (leaves,) = work.load_nodes("leaves", task)
        yield leaves, work.load("segments", task)


_TOTALS = "_0"
"""Name of the table of the totals: an empty name of a breakdown, and category 0."""


def _iterate_named_tables(counts: Tables) -> Iterator[tuple[str, list[NoisyCounts]]]:
    """Yield each table with its name in files, such as ``mode_0`` for the first category of ``mode``.

    A table has the noisy counts of each measured level, top first.
    """
    for breakdown, tables in counts.items():
        for category, table in enumerate(tables):
            yield f"{breakdown}_{category}", table


def _combine_bands_upwards(
    counts: Tables, bands: Sequence[Band], work: Work, workers: Workers
) -> tuple[dict[str, ChildSums], Arrays]:
    """Combine the noisy counts of all bands below the first from the bottom up.

    Returns:
        By table, the combined sums of the children of each node of the level above these bands; and the largest
        variances, by table and level, such as ``_0_5`` for the totals of level 5.
    """
    largest: Arrays = {}
    sums: dict[str, ChildSums] = {}
    for band in reversed(bands):
        if band is not bands[-1]:  # measure_part has combined the levels of the last band
            _save_sums_below(sums, band, work)
            run_on_all_parts(workers, combine_part_upwards, work, band.tasks)
        for table, _ in _iterate_named_tables(counts):
            sums_of_parts = [work.load(f"sums_{table}", task) for task in band.tasks]
            names = {name for arrays in sums_of_parts for name in arrays if name.startswith("largest_")}
            for name in names:
                largest[name.replace("largest", table)] = max(arrays[name] for arrays in sums_of_parts)
            empty = np.empty(0, dtype=np.int64)  # a band may have no parts
            noisy, difference, variance = (
                np.concatenate([empty, *(arrays[name] for arrays in sums_of_parts)])
                for name in ("noisy", "difference", "variance")
            )
            sums[table] = ChildSums(noisy, difference, variance)
    return sums, largest


def _save_sums_below(sums: Mapping[str, ChildSums], band: Band, work: Work) -> None:
    """Divide the sums of each table among the parts of a band, and store them as the files ``below``.

    ``sums`` has one entry for each node of the band's last level, in tree order. So those of a part are consecutive.
    """
    first = 0
    for task in band.tasks:
        end = first + len(work.load_nodes("passed", task)[-1])
        for table, below in sums.items():
            work.save(f"below_{table}", task, {name: values[first:end] for name, values in vars(below).items()})
        first = end


def measure_part(work: Work, part: Part) -> None:
    """Measure the levels of a part, each once, estimate them from the top down, and store the results.

    The true counts are confidential; the stored results are public. If the part contains leaves and is refined as a
    part, also combine the levels of the part from the bottom up, and store the sums for the nodes above.
    """
    plan, band = work.plan, part["band"]
    (frontier,) = work.load_nodes("frontier", part)
    counts, ranks = CountFiles(work.store, work.counts), plan.tree.find_rank_range(frontier)
    steps, is_last = plan.step_bands[band], band == len(plan.step_bands) - 1
    trips = counts.read_ranks(*ranks) if is_last else counts.sum_at_level(plan.tree, steps[-1].level, ranks)
    rounds = {int(step): number for step, number in part["rounds"].items()}
    measurements = PartMeasurements(work.store, part["part"], rounds)
    measured, last = measure_levels(plan, steps, frontier, trips, work.noise, measurements)
    del trips  # frees the memory of the confidential counts
    parents_of_levels = {measurement.step.level: measurement.parents for measurement in measured}
    # The parents of the first level are the frontier; those of the others are the nodes of the level before.
    inner_nodes = cast(list[Nodes], [*parents_of_levels.values()][1:])
    work.save_nodes("passed", part, inner_nodes if last is None else [*inner_nodes, last])
    if last is not None:
        return  # the mechanism does not refine; or the part has no leaves, and combine_part_upwards combines its levels
    if plan.mechanism.learns_from_levels:
        return  # the driver refines, with whole levels
    tables = make_noisy_tables(plan, measured)
    (totals,) = tables[""]
    leaf_parents = inner_nodes[-1] if inner_nodes else frontier
    for table, (*above_leaves, leaf) in _iterate_named_tables(tables):
        sums = sum_measured_leaves(plan, leaf)
        _combine_part_levels(work, part, table, above_leaves, leaf_parents, sums)
        if table == _TOTALS:
            work.save("leaf_sums", part, {"noisy": sums.noisy})
    if plan.mechanism.leaf_dial is not None:
        work.save("rows", part, vars(sum_leaf_rows(plan, totals[-1]).drop_empty_ends()))


def combine_part_upwards(work: Work, part: Part) -> None:
    """Combine the nodes of a part with the sums over the bands below, and store the files ``risen`` and ``sums``."""
    nodes = work.load_nodes("passed", part)[-1]
    for table, counts in _iterate_named_tables(_read_measured_tables(work, part)):
        _combine_part_levels(work, part, table, counts, nodes, ChildSums(**work.load(f"below_{table}", part)))


def descend_part(work: Work, part: Part) -> None:
    """Refine the nodes of a part, from the refined trips of the nodes above, and store ``refined`` and ``last``.

    In the last band, also store the refined leaves or, if they are estimated by empirical Bayes, their histogram.
    """
    plan, largest = work.plan, work.load("largest", _ALL_PARTS)
    above = work.load("above", part)
    levels = _read_risen_levels(work, part, _TOTALS, largest)
    trips_of_levels = descend_levels(plan, above.pop(""), levels)  # first of the level above the part
    refined = {}
    for level, trips in zip(levels, trips_of_levels[1:], strict=True):
        refined[str(level.nodes.level)] = trips
    work.save("refined", part, refined)
    last: Trips = {"": trips_of_levels[-1]}
    for breakdown, segments_above in above.items():
        tables = [f"{breakdown}_{category}" for category in range(segments_above.shape[1])]
        levels_of_categories = [_read_risen_levels(work, part, table, largest) for table in tables]
        last[breakdown] = descend_segments(plan, levels_of_categories, trips_of_levels[1:], segments_above)
    work.save("last", part, last)
    if part["band"] < len(plan.step_bands) - 1:
        return
    counts = _read_measured_tables(work, part)
    leaf = counts[""][0][-1]
    if plan.mechanism.leaf_dial is not None:
        histogram = make_leaf_histogram(plan, leaf, last[""], Rows(**work.load("all_rows", _ALL_PARTS)))
        work.save("histogram", part, {"counts": histogram})
        return
    leaves, segments_of_leaves = refine_leaves_with_segments(plan, counts, work.load("leaf_sums", part)["noisy"], last)
    work.save_nodes("leaves", part, [leaves])
    if plan.breakdowns:
        work.save("segments", part, segments_of_leaves)


def _read_risen_levels(work: Work, part: Part, table: str, largest: Arrays) -> list[RisenLevel]:
    """Return the bottom-up estimates of a table for the nodes of a part, level by level, top first.

    ``largest`` has the largest variances by table and level, such as ``_0_5``.
    """
    arrays, levels = work.load(f"risen_{table}", part), []
    for nodes in work.load_nodes("passed", part):
        estimates = {name: arrays[f"{name}_{nodes.level}"] for name in _RISEN_ARRAYS}
        levels.append(RisenLevel(nodes, **estimates, largest=float(largest[f"{table}_{nodes.level}"])))
    return levels


def estimate_part_leaves(work: Work, part: Part) -> None:
    """Estimate the leaves of a part by empirical Bayes, and store them.

    Raises OdError if the plan does not estimate leaves by empirical Bayes.
    """
    plan, leaf = work.plan, _read_measured_tables(work, part)[""][0][-1]
    if plan.mechanism.leaf_dial is None:
        raise OdError("OD-PART-ORDER", "these leaves are projected, not estimated", next_step="report this defect")
    rows, posterior = Rows(**work.load("all_rows", _ALL_PARTS)), Posterior(**work.load("posterior", _ALL_PARTS))
    trips = work.load("last", part)[""]
    leaves = estimate_posterior_leaves(plan, leaf, trips, plan.mechanism.leaf_dial, rows, posterior)
    work.save_nodes("leaves", part, [Nodes.concatenate(leaf.step.level, leaves)])


def _read_measured_tables(work: Work, part: Part) -> Tables:
    """Return the noisy counts of a part, of the totals and each category, by table.

    The first level of the part has the children of the nodes in ``frontier``, and each other one the children of the
    nodes of the level before it in ``passed``. The last nodes in ``passed`` may have their children in another band.
    """
    plan, steps = work.plan, work.plan.step_bands[part["band"]]
    levels = list(dict.fromkeys(step.level for step in steps))
    nodes = [*work.load_nodes("frontier", part), *work.load_nodes("passed", part)]
    parents_of = dict(zip(levels, nodes[: len(levels)], strict=True))
    measured = []
    for step in steps:
        noisy = NoisyVector(partial(work.store.read, name_part_file(step.number, part["part"])))
        measured.append(Measurement(step, parents_of[step.level], noisy))
    return make_noisy_tables(plan, measured)


_RISEN_ARRAYS = ("runs", "noisy", "difference", "variance")
"""Names of the arrays of :class:`od_core.flows.estimation.refinement.RisenLevel` that differ between parts."""


def _combine_part_levels(
    work: Work, part: Part, table: str, counts: Sequence[NoisyCounts], kept: Pairs, sums: ChildSums
) -> None:
    """Combine the levels of a part upwards, and store the files ``risen`` and ``sums`` of a table.

    For ``counts``, ``kept`` and ``sums``, see :func:`od_core.flows.estimation.refinement.combine_levels_upwards`.
    """
    levels, above = combine_levels_upwards(work.plan, counts, kept, sums)
    risen: Arrays = {}
    for level in levels:
        risen |= {f"{name}_{level.nodes.level}": getattr(level, name) for name in _RISEN_ARRAYS}
    work.save(f"risen_{table}", part, risen)
    largest = {f"largest_{level.nodes.level}": level.largest for level in levels}
    work.save(f"sums_{table}", part, largest | vars(above))
