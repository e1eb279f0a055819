"""Define the tasks of a release in parts: their descriptors and outcomes, their shared data, and where they run.

A descriptor and an outcome are short texts: numbers of parts, codes, digests. Everything else goes through the store.
So no message or table of an engine holds a count or a noisy value, and an engine that repeats or loses a task changes
nothing that was stored (``docs/explanation/parts.md``).
"""

from __future__ import annotations

import hashlib
import json
import pickle
import secrets
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from od_core.errors import STAYS_CHARGED, OdError
from od_core.flows.plan import ReleasePlan
from od_core.geography.flow_tree import Nodes
from od_core.ledger.object_store import Store, keep_detail
from od_core.noise.sources import NoiseSource
from od_core.parallel import in_order

Part = Mapping[str, Any]
"""A parsed descriptor: ``band``, ``part`` and further arguments of the task."""


@dataclass(frozen=True)
class Work:
    """One attempt at a release in parts; sent to every task.

    Attributes:
        store: Where everything is kept.
        attempt: Folder for what can be made again from the measurements; another attempt makes it anew.
        plan_digest: SHA-256 of the plan's file.
        counts: Folder of the count files.
        noise: Source of the noise.
    """

    store: Store
    attempt: str
    plan_digest: str
    counts: str
    noise: NoiseSource

    @classmethod
    def begun(cls, plan: ReleasePlan, store: Store, counts: str, noise: NoiseSource) -> Work:
        """Start a new attempt, which removes the folders of older attempts but not their measurements."""
        store.remove("attempts")
        content = pickle.dumps(plan)
        digest = hashlib.sha256(content).hexdigest()
        store.create_if_absent(_plan_file(digest), content)
        _keep_plan(digest, plan)
        return cls(store, f"attempts/{secrets.token_hex(8)}", digest, counts, noise)

    def facts(self) -> dict[str, str]:
        """Return the location of the attempt as JSON-ready text for a later step of it."""
        return {"attempt": self.attempt, "plan_digest": self.plan_digest, "counts": self.counts}

    @property
    def plan(self) -> ReleasePlan:
        """The plan, read once in each process.

        Raises:
            OdError: If the file is not the driver's.
        """
        kept = _PLANS.get(self.plan_digest)
        return kept or _keep_plan(self.plan_digest, _read_plan(self.store, self.plan_digest))

    def save(self, kind: str, band: int, part: int, arrays: Arrays) -> None:
        """Keep the arrays that a part has made."""
        save_arrays(self.store, self._name(kind, band, part), arrays)

    def load(self, kind: str, band: int, part: int) -> Arrays:
        """Return the arrays kept for a part.

        Raises:
            OdError: If they are absent.
        """
        return load_arrays(self.store, self._name(kind, band, part))

    def save_nodes(self, kind: str, band: int, part: int, levels: Sequence[Nodes]) -> None:
        """Keep nodes of some levels, each with its trips."""
        arrays = {"levels": np.array([nodes.level for nodes in levels], dtype=np.int64)}
        for nodes in levels:
            arrays |= {f"{name}_{nodes.level}": getattr(nodes, name) for name in ("origin", "destination", "trips")}
        self.save(kind, band, part, arrays)

    def load_nodes(self, kind: str, band: int, part: int) -> list[Nodes]:
        """Return the nodes of all levels that were kept together, top first."""
        arrays = self.load(kind, band, part)
        names = ("origin", "destination", "trips")
        return [Nodes(level, *(arrays[f"{name}_{level}"] for name in names)) for level in arrays["levels"].tolist()]

    def _name(self, kind: str, band: int, part: int) -> str:
        return f"{self.attempt}/{kind}_{band}.part_{part:05d}"


def on_all(workers: Workers, task: Callable[[Work, Part], None], work: Work, parts: Sequence[Part]) -> None:
    """Run a task on every part.

    Raises:
        OdError: If a task failed. The others have done their work, and what they stored stays.
    """
    outcomes = workers.map(_Guarded(task, work), [json.dumps(dict(part)) for part in parts])
    failed = [
        f"{outcome} part {part['part']}" for part, outcome in zip(parts, outcomes, strict=True) if outcome != _DONE
    ]
    if failed:
        raise OdError(
            "OD-PARTS-FAILED",
            f"{len(failed)} of {len(parts)} parts failed: {', '.join(failed[:_SAID])}",
            next_step="read errors/ in the confidential store of parts, then run the release again; it reads stored"
            " measurements back",
            spent=STAYS_CHARGED,
        )


_DONE, _SAID = "done", 5


@dataclass(frozen=True)
class _Guarded:
    """A task from text to text that never raises: it returns the code of a failure, whose text stays in the store."""

    task: Callable[[Work, Part], None]
    work: Work

    def __call__(self, descriptor: str) -> str:
        """Run the task, as :data:`od_core.flows.parts.work.Task`."""
        try:
            self.task(self.work, json.loads(descriptor))
        except OdError as error:
            keep_detail(self.work.store, f"{error}\n{error.confidential_detail or ''}\n")
            return error.code
        except Exception:  # noqa: BLE001  # any text may hold a confidential value, so none leaves
            keep_detail(self.work.store, traceback.format_exc())
            return "OD-PART-FAILED"
        return _DONE


_PLANS: dict[str, ReleasePlan] = {}
"""The plan that this process uses, by its digest."""


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


def _keep_plan(digest: str, plan: ReleasePlan) -> ReleasePlan:
    _PLANS.clear()
    _PLANS[digest] = plan
    return plan


def _plan_file(digest: str) -> str:
    return f"plans/{digest}.pickle"


# Arrays in a file of a store, which parts hand to each other and to the driver. All of them are public.


Arrays = dict[str, NDArray[Any]]


def save_arrays(store: Store, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Keep arrays of one dimension, unless they are kept already; an array that is made again is the same."""
    columns = [pa.LargeListArray.from_arrays(np.array([0, len(array)]), pa.array(array)) for array in arrays.values()]
    batch = pa.record_batch(columns, names=list(arrays))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    store.create_if_absent(name, sink.getvalue(), durable=False)


def load_arrays(store: Store, name: str) -> Arrays:
    """Return the arrays of a file by their names; they are read-only.

    Raises:
        OdError: If the file is absent or incomplete.
    """
    try:
        batch = pa.ipc.open_file(store.read(name)).get_batch(0)
    except (pa.ArrowInvalid, OSError):
        raise OdError(
            "OD-STORE-CUT",
            f"{name} in the store is incomplete",
            next_step="run the whole release again; it reads its measurements back and draws nothing twice",
            spent=STAYS_CHARGED,
        ) from None
    return {name: batch[name].flatten().to_numpy() for name in batch.schema.names}


Task = Callable[[str], str]
"""A function from a descriptor to an outcome. It can be sent to another process, and never raises."""


class Workers(Protocol):
    """An engine that runs tasks: the threads of this process, or the executors of Spark."""

    def map(self, task: Task, descriptors: Sequence[str]) -> list[str]:
        """Return the outcome of every descriptor, in order.

        Raises:
            OdError: If the engine lost a task; what it had stored stays.
        """
        ...


class Threads:
    """The threads of this process: ``OD_THREADS``, or one for each processor. Parts in progress bound the memory."""

    def map(self, task: Task, descriptors: Sequence[str]) -> list[str]:
        """Return the outcome of every descriptor, in order; see :meth:`Workers.map`."""
        return list(in_order(task, descriptors))
