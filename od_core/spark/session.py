"""Start Spark sessions that are safe to use, and run tasks on their executors.

A session that runs parts must not repeat tasks. A session that is opened here also writes no file that other users can
read, as far as Spark's settings control this.

A task takes a short text, its descriptor, and returns a short text, its outcome. No data frame contains noise: Spark
computes a frame again if it is used twice, if an executor loses it, or if a task is retried, and the frame would then
contain other noise (``docs/explanation/parts.md``). Every job therefore distributes the descriptors and calls one
function, which stores its results in a :class:`od_core.ledger.object_store.Store`.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from od_core.errors import OdError, raise_without_context, remove_address_secrets
from od_core.extras import require
from od_core.flows.parts import Task
from od_core.ledger.confidential import LOCK_NAME, lock_folder
from od_core.parallel import use_one_thread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_NO_DUMPS = "-XX:-HeapDumpOnOutOfMemoryError -XX:-CreateCoredumpOnCrash -XX:+SuppressFatalErrorMessage"
"""Java options that prevent a crashing virtual machine from writing its memory to disk."""

_REMOTE_SETTINGS = {"spark.sql.session.timeZone": "UTC"}
"""Spark settings of a session on a Spark Connect server, whose operator sets the rest."""

_SAFE_SETTINGS = {
    "spark.speculation": "false",
    "spark.task.maxFailures": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    "spark.io.encryption.enabled": "true",
    "spark.log.level": "OFF",
    "spark.executor.defaultJavaOptions": _NO_DUMPS,
    "spark.python.worker.faulthandler.enabled": "false",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "false",
    **_REMOTE_SETTINGS,
}
"""Spark settings of a session on a master. Without them, the event log and the user interface would show true counts,
and temporary files and logs would contain values of records."""

_SCRATCH_PREFIX = "spark-"
"""Beginning of the names of the folders with the temporary files of sessions."""

_QUOTING_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Loggers with which PySpark writes error messages, which may quote records, to standard error."""


@contextmanager
def open_session(address: str, folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Open a Spark session for the time of this context, and stop it at its end.

    Args:
        address: address of a Spark Connect server (``sc://host:port``), or the master of a classic session, such as
            ``local[4]`` or ``spark://host:port``.
        folder: confidential folder. A classic session writes its files on this machine to a subfolder of mode 0700. The
            subfolder is removed at the end. If this process is killed, the next session removes it.
        settings: Spark settings that add to or replace those of this module. The user interface, event log, encryption
            and logs of a server, and the logs of executors on other machines, are set by their operators.

    Raises:
        OdError: PySpark is not installed, this process has another session, or this one fails or repeats tasks.
    """
    require("spark")
    silence_spark()
    all_settings = (
        dict(_REMOTE_SETTINGS) if address.startswith("sc://") else {**_SAFE_SETTINGS, "spark.master": address}
    )
    if address.startswith("local"):  # it accepts connections from this machine only
        all_settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    all_settings |= settings or {}
    _refuse_repetition(all_settings.get)
    with _make_scratch_folder(folder) as scratch:
        session = _start_session(address, scratch, all_settings)
        try:
            check_session(session)
            yield session
        finally:
            session.stop()


@contextmanager
def _make_scratch_folder(folder: Path) -> Iterator[Path]:
    """Yield a new folder of mode 0700, which is removed at the end. First remove the folders of killed processes."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left_behind in folder.glob(f"{_SCRATCH_PREFIX}*"):
        with suppress(OdError, FileNotFoundError), lock_folder(left_behind, seconds=0):  # in use, or already removed
            shutil.rmtree(left_behind, ignore_errors=True)
    new = Path(tempfile.mkdtemp(prefix="new-", dir=folder))
    (new / LOCK_NAME).touch(mode=0o600)
    with lock_folder(new):
        # It is locked before it gets the name that other sessions look for.
        scratch = new.rename(new.with_name(f"{_SCRATCH_PREFIX}{new.name}"))
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def check_session(session: SparkSession) -> None:
    """Raise OdError if a session starts a task twice or retries a failed one, as far as its settings can be read.

    If a task is repeated, :mod:`od_core.flows.parts` prevents a second draw of the noise. But the first draw of the
    part may then be lost, and a new draw costs budget (``docs/explanation/parts.md``).
    """
    silence_spark()
    from pyspark.errors import PySparkException

    def read_setting(name: str) -> str | None:
        """Return a setting of the session; None if it is not set or cannot be read."""
        with suppress(PySparkException):  # some platforms hide the cluster's settings
            value: str | None = session.conf.get(name, None)  # make lint also runs where PySpark is not installed
            return value
        return None

    _refuse_repetition(read_setting)


def silence_spark() -> None:
    """Suppress PySpark's error messages on standard error, which quote values, and its irrelevant pandas warning."""
    from pyspark.logger import PySparkLogger

    for name in _QUOTING_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)


def _start_session(address: str, scratch: Path, settings: Mapping[str, str]) -> SparkSession:
    """Start a session, and return it. A classic session writes its temporary files to the folder ``scratch``.

    Raises OdError if this process has another classic session, or the session cannot be opened.
    """
    from pyspark.sql import SparkSession

    is_remote = address.startswith("sc://")
    if not is_remote and SparkSession.getActiveSession() is not None:
        message = "this process already has a Spark session with other settings"
        raise OdError("OD-SPARK-SESSION", message, next_step="stop that session, or pass it to SparkWorkers")
    try:
        if is_remote:
            return SparkSession.builder.remote(address).config(map={**settings}).create()
        os.environ["SPARK_LOCAL_DIRS"] = str(scratch)  # it takes precedence over spark.local.dir
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        options = f"{_NO_DUMPS} -Djava.io.tmpdir={scratch}"
        own_settings = {"spark.local.dir": str(scratch), "spark.driver.defaultJavaOptions": options}
        return SparkSession.builder.config(map={**own_settings, **settings}).getOrCreate()
    except Exception as error:  # noqa: BLE001  # of PySpark, py4j, gRPC or the operating system
        raise OdError(
            "OD-SPARK-SESSION",
            f"cannot open a Spark session at {remove_address_secrets(address)}",
            next_step="check that Spark runs and is reachable; a master needs Java 17 or later on this machine",
            confidential_detail=f"{type(error).__name__}: {error}",
        ) from None


def _refuse_repetition(read_setting: Callable[[str], str | None]) -> None:
    """Raise OdError if a session's settings let Spark start a task twice or retry a failed one.

    On a ``local`` master, a task has one attempt, or as many as the second number of a master such as ``local[4, 2]``.
    On other masters, it has as many as ``spark.task.maxFailures`` says, by default 4. If the master cannot be read, the
    default is taken as 1. ``read_setting`` returns a setting by its name; None if it is not set.
    """
    if (read_setting("spark.speculation") or "false").lower() != "false":
        message = "this session starts a task a second time while the first attempt still runs"
        step = "set spark.speculation to false for the application or cluster"
        raise OdError("OD-SPARK-SPECULATION", message, next_step=step)
    master = read_setting("spark.master")
    local = re.fullmatch(r"local(?:\[[^,\]]*(?:,\s*(?P<attempts>\d+)\s*)?\])?", master or "")
    if local:
        attempts = int(local["attempts"] or 1)
    else:
        default_attempts = 4 if master else 1
        attempts = int(read_setting("spark.task.maxFailures") or default_attempts)
    if attempts > 1:
        message = f"this session retries a failed task, up to {attempts} attempts in total"
        step = "set spark.task.maxFailures to 1 for the application or cluster"
        raise OdError("OD-SPARK-RETRIES", message, next_step=step)


TASK_FAILED = "OD-TASK-FAILED"
"""Outcome of a task that raised an exception, although tasks must not. The exception is discarded."""

_Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class SparkWorkers:
    """Workers that run tasks on the executors of a Spark session, classic or Spark Connect.

    The executors need this package. Raises OdError if the session repeats tasks by itself (:func:`check_session`).
    """

    session: SparkSession = field(repr=False)

    def __post_init__(self) -> None:
        check_session(self.session)

    def map(self, task: Task, descriptors: Sequence[str]) -> list[str]:
        """Return the outcome of a task for every descriptor, in the same order.

        Each descriptor is processed by one Spark task on one thread. Raises OdError if the job failed
        (``OD-SPARK-JOB``). Spark's own message is its confidential detail.
        """
        if not descriptors:
            return []
        silence_spark()
        count = len(descriptors)
        table = pa.table({"part": pa.array(range(count), pa.int32()), "descriptor": pa.array(descriptors, pa.string())})
        try:
            parts = self.session.createDataFrame(table, "part INT, descriptor STRING").repartitionById(count, "part")
            rows = parts.mapInArrow(_make_executor_function(task), "part INT, outcome STRING").collect()
        except Exception as error:  # noqa: BLE001  # of classic Spark or Spark Connect
            raise_without_context(_make_failed_job_error(f"{type(error).__name__}: {error}"))
        outcomes = dict(sorted((row.part, row.outcome) for row in rows))
        if len(rows) != count or list(outcomes) != list(range(count)):
            raise _make_failed_job_error(f"{len(rows)} outcomes of {count} tasks")
        return list(outcomes.values())


def _make_executor_function(task: Task) -> Callable[[_Batches], _Batches]:
    """Return the function that executors run, which converts batches of descriptors to batches of outcomes.

    It passes on no exception of a task, because Spark would log it with the values that it quotes.
    """

    def run_task(descriptor: str) -> pa.Scalar:
        """Return the outcome of the task for a descriptor; ``TASK_FAILED`` if it raised an exception."""
        try:
            with use_one_thread():
                return pa.scalar(task(descriptor), pa.string())
        except BaseException:  # noqa: BLE001  # not even SystemExit may pass through
            return pa.scalar(TASK_FAILED)

    def run_batches(batches: _Batches) -> _Batches:
        """Yield a batch of outcomes for each batch of descriptors."""
        for batch in batches:
            outcomes = pa.array(map(run_task, batch["descriptor"].to_pylist()), pa.string())
            yield pa.RecordBatch.from_arrays([batch["part"], outcomes], ["part", "outcome"])

    return run_batches


def _make_failed_job_error(detail: str) -> OdError:
    """Return the OdError for a Spark job that did not return the outcomes of all tasks; ``detail`` is confidential."""
    return OdError(
        "OD-SPARK-JOB",
        "Spark did not complete the job",
        next_step="check that every executor has this package and reaches the store, then run the job again",
        spent="budget reserved earlier stays charged; stored measurements are kept",
        confidential_detail=detail,
    )
