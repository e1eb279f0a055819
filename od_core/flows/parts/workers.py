"""Who works on the parts of a release: the threads of this process, or the executors of Spark.

Work is handed out as short texts and its outcome taken back as short texts, in order. What is measured or made of it
goes through the :class:`od_core.ledger.object_store.Store` alone: an engine that repeats a task, or loses one, changes
nothing that was kept (spec 8, sections 2 to 4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from od_core.parallel import in_order

Task = Callable[[str], str]
"""From a descriptor to an outcome; it can be sent to another process, and never raises."""


class Workers(Protocol):
    """Where tasks run."""

    def map(self, task: Task, descriptors: Sequence[str]) -> list[str]:
        """The outcome of every descriptor, in order.

        Raises:
            OdError: the engine lost a task; what it had kept is kept.
        """
        ...


class Threads:
    """The threads of this process, so many as there are processors; memory is bounded by the parts in flight."""

    def map(self, task: Task, descriptors: Sequence[str]) -> list[str]:
        """As :meth:`Workers.map`."""
        return list(in_order(task, descriptors))
