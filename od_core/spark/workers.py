"""Run tasks on Spark executors. A task takes a short text, its descriptor, and returns a short text, its outcome.

No data frame contains noise: Spark computes a frame again if it is used twice, if an executor loses it, or if a task is
retried, and the frame would then contain other noise (``docs/explanation/parts.md``). Every job therefore distributes
the descriptors and calls one function, which stores its results in a :class:`od_core.ledger.object_store.Store`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from od_core.errors import OdError, raise_alone
from od_core.flows.parts.work import Task
from od_core.parallel import on_one_thread
from od_core.spark.session import check_session, quiet_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_FAILED = "OD-TASK-FAILED"
"""Outcome of a task that raised an exception, although tasks must not. The exception is discarded."""

_Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class SparkWorkers:
    """Workers that run tasks on the executors of a Spark session, classic or Spark Connect.

    The executors must have this package installed.

    Attributes:
        session: the session, which must not repeat tasks (:func:`od_core.spark.session.check_session`).

    Raises:
        OdError: the session repeats tasks by itself.
    """

    session: SparkSession = field(repr=False)

    def __post_init__(self) -> None:
        check_session(self.session)

    def map(self, task: Task, descriptors: Sequence[str]) -> list[str]:
        """Run a task on every descriptor, and return the outcomes in the same order.

        Each descriptor is processed by one Spark task on one thread.

        Raises:
            OdError: the job failed (``OD-SPARK-JOB``). Spark's own message may quote a value, so it is in the
                confidential detail.
        """
        if not descriptors:
            return []
        quiet_spark()
        count = len(descriptors)
        table = pa.table({"part": pa.array(range(count), pa.int32()), "descriptor": pa.array(descriptors, pa.string())})
        try:
            parts = self.session.createDataFrame(table, "part INT, descriptor STRING").repartitionById(count, "part")
            rows = parts.mapInArrow(_each(task), "part INT, outcome STRING").collect()
        except Exception as error:  # noqa: BLE001  # of classic Spark or Spark Connect
            raise_alone(_failed_job(f"{type(error).__name__}: {error}"))
        outcomes = dict(sorted((row.part, row.outcome) for row in rows))
        if len(rows) != count or list(outcomes) != list(range(count)):
            raise _failed_job(f"{len(rows)} outcomes of {count} tasks")
        return list(outcomes.values())


def _each(task: Task) -> Callable[[_Batches], _Batches]:
    """Return the function that executors run, which converts batches of descriptors to batches of outcomes."""

    def outcomes(batches: _Batches) -> _Batches:
        for batch in batches:
            found = [_outcome(task, descriptor.as_py()) for descriptor in batch["descriptor"]]
            yield pa.RecordBatch.from_arrays([batch["part"], pa.array(found, pa.string())], ["part", "outcome"])

    return outcomes


def _outcome(task: Task, descriptor: str) -> pa.Scalar:
    """Run a task, and return its outcome, or ``TASK_FAILED`` if the task raised an exception.

    No exception is passed on, because Spark would log it with the values that it quotes.
    """
    try:
        with on_one_thread():
            return pa.scalar(task(descriptor), pa.string())
    except BaseException:  # noqa: BLE001  # no exception may pass through, not even SystemExit
        return pa.scalar(TASK_FAILED)


def _failed_job(detail: str) -> OdError:
    return OdError(
        "OD-SPARK-JOB",
        "Spark did not complete the job",
        next_step="check that every executor has this package and reaches the store, then run the job again",
        spent="budget reserved earlier stays charged; stored measurements are kept",
        confidential_detail=detail,
    )
