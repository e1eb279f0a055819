"""Define the tasks of a release in parts: their descriptors and outcomes, their shared data, and their workers.

A task is a function from a descriptor to an outcome, short texts with numbers of parts, codes and digests. All other
data is written to a store and read from it. So no message of an engine contains a count or a noisy value, and an engine
that repeats or loses a task does not change stored data (``docs/explanation/parts.md``).
"""

from __future__ import annotations

import hashlib
import json
import pickle
import secrets
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from od_core.errors import STAYS_CHARGED, OdError
from od_core.flows.plan import ReleasePlan
from od_core.geography.flow_tree import Nodes
from od_core.ledger.object_store import Store, keep_detail, read_details
from od_core.noise.sources import NoiseSource
from od_core.parallel import in_order

ATTEMPTS = "attempts"
"""Folder of the attempts in the store. What it contains is computed again if it is absent."""

Arrays = dict[str, Any]
"""Arrays and numbers by name, through which tasks pass data to other tasks and to the driver. All are public."""

_SHAPES, _OF_NODES = b"shapes", ("origin", "destination", "trips")

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
    """

    store: Store
    attempt: str
    plan_digest: str
    counts: str
    noise: NoiseSource

    @classmethod
    def begun(cls, plan: ReleasePlan, store: Store, counts: str, noise: NoiseSource) -> Work:
        """Start a new attempt: store the plan, and remove the folders of older attempts, but no measurements."""
        store.remove(ATTEMPTS)
        content = pickle.dumps(plan)
        digest = hashlib.sha256(content).hexdigest()
        store.create_if_absent(_plan_file(digest), content)
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

        ``kind`` is the kind of file, listed in :mod:`od_core.flows.parts.release`.
        """
        values = {name: np.asarray(array) for name, array in arrays.items()}
        columns = [pa.LargeListArray.from_arrays([0, one.size], pa.array(one.ravel())) for one in values.values()]
        shapes = json.dumps([one.shape for one in values.values()])
        batch = pa.record_batch(columns, names=list(values), metadata={_SHAPES: shapes})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        self.store.create_if_absent(self._name(kind, part), sink.getvalue(), durable=False)

    def load(self, kind: str, part: Part) -> Arrays:
        """Return the arrays that :meth:`save` stored, read-only. Raises OdError if the file is absent or incomplete."""
        name = self._name(kind, part)
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
        arrays: dict[str, Any] = {"levels": [nodes.level for nodes in levels]}
        for nodes in levels:
            arrays |= {f"{name}_{nodes.level}": getattr(nodes, name) for name in _OF_NODES}
        self.save(kind, part, arrays)

    def load_nodes(self, kind: str, part: Part) -> list[Nodes]:
        """Return the nodes that :meth:`save_nodes` stored, level by level. Raises OdError as :meth:`load` does."""
        arrays = self.load(kind, part)
        return [Nodes(level, *(arrays[f"{name}_{level}"] for name in _OF_NODES)) for level in arrays["levels"].tolist()]

    def _name(self, kind: str, part: Part) -> str:
        return f"{self.attempt}/{kind}_{part['band']}.part_{part['part']:05d}"


def on_all(workers: Workers, task: Callable[[Work, Part], None], work: Work, parts: Sequence[Part]) -> None:
    """Run a task on every part, and wait until all are done.

    Raises OdError if a task failed. The other tasks have run, and their stored results remain.
    """
    outcomes = workers.map(_Guarded(task, work), [json.dumps(dict(part)) for part in parts])
    failed = [
        f"{outcome} part {part['part']}" for part, outcome in zip(parts, outcomes, strict=True) if outcome != _DONE
    ]
    if failed:
        raise OdError(
            "OD-PARTS-FAILED",
            f"{len(failed)} of {len(parts)} parts failed: {', '.join(failed[:_SAID])}",
            next_step=f"{read_details(work.store)}, then run the release again; it reads stored measurements back",
            spent=STAYS_CHARGED,
        )


_DONE, _SAID = "done", 5


@dataclass(frozen=True)
class _Guarded:
    """A function from a descriptor to an outcome, which runs a task and never raises an error.

    The outcome is ``done`` or the code of the error, whose text may be confidential and is written to the store only.
    """

    task: Callable[[Work, Part], None]
    work: Work

    def __call__(self, descriptor: str) -> str:
        """Run the task on the part of the descriptor, and return the outcome."""
        try:
            self.task(self.work, json.loads(descriptor))
        except OdError as error:
            keep_detail(self.work.store, f"{error}\n{error.confidential_detail or ''}\n")
            return error.code
        except Exception:  # noqa: BLE001  # the text may contain a confidential value
            keep_detail(self.work.store, traceback.format_exc())
            return "OD-PART-FAILED"
        return _DONE


@lru_cache(maxsize=1)
def _read_plan(store: Store, digest: str) -> ReleasePlan:
    content = store.read(_plan_file(digest)).read_buffer()
    if hashlib.sha256(content).hexdigest() != digest:
        raise OdError(
            "OD-PART-PLAN",
            "the plan in the store differs from the plan of the driver",
            next_step="run the release again",
        )
    plan: ReleasePlan = pickle.loads(content)  # noqa: S301  # written by the driver, checked by its digest
    return plan


def _plan_file(digest: str) -> str:
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
        return list(in_order(task, descriptors))
