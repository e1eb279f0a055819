"""Open and check Spark sessions that may run parts of a release.

In such a session no task is repeated, and nothing is written where others can read it.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from od_core.errors import OdError
from od_core.ledger.lock import LOCK_NAME, exclusive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_DUMPS = "-XX:-HeapDumpOnOutOfMemoryError -XX:-CreateCoredumpOnCrash -XX:+SuppressFatalErrorMessage"
"""Options that keep a crashing Java virtual machine from writing its memory to disk."""

_REMOTE = {"spark.sql.session.timeZone": "UTC"}

_SAFE = {
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
    **_REMOTE,
}
"""Settings of a session opened here; event log and interface would show true counts, and files and logs values."""

_SCRATCH = "spark-"

_QUOTING_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Loggers through which PySpark writes error messages, with the values in them, to standard error."""


@contextmanager
def open_session(address: str, folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Open a session of Spark Connect by a server's address (``sc://host:port``), or a classic one on a master.

    Args:
        address: address of the server; else the master, such as ``local[4]`` or ``spark://host:port``.
        folder: confidential; a classic session writes its files on this machine to a folder of mode 0700 in it. That
            folder is removed at the end, or by the next session if this process is killed.
        settings: Spark settings that add to or replace the safe ones. Operators are responsible for what these do not
            cover: the interface, event log, encryption and logs of a server, and what executors on other machines write
            to their logs.

    Yields:
        The session; it is stopped at the end.

    Raises:
        OdError: PySpark is absent, the session cannot be opened, this process has another one, or it repeats tasks.
    """
    _require_spark()
    chosen = (_REMOTE if address.startswith("sc://") else _SAFE | _of_master(address)) | dict(settings or {})
    _refuse_repetition(chosen.get)
    with _scratch(folder) as scratch:
        session = _started(address, scratch, chosen)
        try:
            check_session(session)
            yield session
        finally:
            session.stop()


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """Yield a new folder of mode 0700, removed at the end; also remove folders that killed processes left unlocked."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in folder.glob(f"{_SCRATCH}*"):
        with suppress(OdError, FileNotFoundError), exclusive(left, seconds=0):  # in use, or already removed
            shutil.rmtree(left, ignore_errors=True)
    new = Path(tempfile.mkdtemp(prefix="new-", dir=folder))
    (new / LOCK_NAME).touch(mode=0o600)
    with exclusive(new):
        scratch = new.rename(new.with_name(f"{_SCRATCH}{new.name}"))  # locked before others can see it
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def check_session(session: SparkSession) -> None:
    """Refuse a session that repeats tasks by itself, as far as its settings can be read.

    The protocol of :mod:`od_core.flows.parts` keeps a repeated task from drawing again. But the part is then lost, and
    a lost draw costs budget (``docs/explanation/parts.md``).

    Raises:
        OdError: ``OD-SPARK-SPECULATION`` or ``OD-SPARK-RETRIES``.
    """
    quiet_spark()
    _refuse_repetition(_settings_of(session))


def quiet_spark() -> None:
    """Stop what PySpark writes to standard error by itself.

    These are error messages, which quote values, and the advice to use an older pandas, which none of our jobs uses.
    """
    from pyspark.logger import PySparkLogger

    for name in _QUOTING_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)


def _require_spark() -> None:
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise OdError(
            "OD-SPARK-ABSENT", "PySpark is not installed", next_step="pip install -e '.[spark]' in the project's folder"
        ) from None
    quiet_spark()


def _started(address: str, scratch: Path, settings: Mapping[str, str]) -> SparkSession:
    """Start a session."""
    from pyspark.sql import SparkSession

    remote = address.startswith("sc://")
    if not remote and SparkSession.getActiveSession() is not None:
        raise OdError(
            "OD-SPARK-SESSION",
            "this process already has a Spark session with other settings",
            next_step="stop that session, or pass it to SparkWorkers",
        )
    try:
        if remote:
            return SparkSession.builder.remote(address).config(map={**settings}).create()
        os.environ["SPARK_LOCAL_DIRS"] = str(scratch)  # it takes precedence over spark.local.dir
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        places = {"spark.local.dir": str(scratch), "spark.driver.defaultJavaOptions": _driver_options(scratch)}
        return SparkSession.builder.config(map={**places, **settings}).getOrCreate()
    except Exception as error:  # noqa: BLE001  # of PySpark, py4j, gRPC or the operating system
        raise OdError(
            "OD-SPARK-SESSION",
            f"cannot open a Spark session at {address.partition(';')[0]}",  # what follows may be a token
            next_step="check that Spark runs and is reachable; a master needs Java 17 or later on this machine",
            confidential_detail=f"{type(error).__name__}: {error}",
        ) from None


def _of_master(address: str) -> dict[str, str]:
    """Return the settings of the master; a session on this machine alone accepts only local connections."""
    here = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return {"spark.master": address} | (here if address.startswith("local") else {})


def _driver_options(scratch: Path) -> str:
    return f"{_NO_DUMPS} -Djava.io.tmpdir={scratch}"


def _settings_of(session: SparkSession) -> Callable[[str], str | None]:
    """Return a function that gives a setting of the application, or None if it has no value or cannot be read."""
    from pyspark.errors import PySparkException

    def setting(name: str) -> str | None:
        try:
            value: str | None = session.conf.get(name, None)
        except PySparkException:  # some platforms hide the cluster's settings
            return None
        return value

    return setting


def _refuse_repetition(setting: Callable[[str], str | None]) -> None:
    if (setting("spark.speculation") or "false").lower() != "false":
        raise OdError(
            "OD-SPARK-SPECULATION",
            "this session starts a task a second time while the first attempt still runs",
            next_step="set spark.speculation to false for the application or cluster",
        )
    if (attempts := _attempts(setting)) > 1:
        raise OdError(
            "OD-SPARK-RETRIES",
            f"this session retries a failed task, up to {attempts} attempts in total",
            next_step="set spark.task.maxFailures to 1 for the application or cluster",
        )


def _attempts(setting: Callable[[str], str | None]) -> int:
    """Return how often a task is tried.

    This is 1 on a local master unless it names more. Otherwise it is the setting, by default Spark's own 4, or 1 if the
    master cannot be read.
    """
    master = setting("spark.master")
    if master is None:
        return int(setting("spark.task.maxFailures") or 1)
    if re.fullmatch(r"local(\[[^,\]]*\])?", master):
        return 1
    if local := re.fullmatch(r"local\[[^,\]]*,\s*(\d+)\s*\]", master):
        return int(local[1])
    return int(setting("spark.task.maxFailures") or 4)
