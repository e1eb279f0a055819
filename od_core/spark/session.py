"""Sessions of Spark that may be handed parts of a release.

No task is repeated, and nothing is written where others read.
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
"""A dying machine of Java writes its memory nowhere."""

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
"""Of a session of our own: its event log and its interface tell true counts, its files and logs values (spec 8, 5)."""

_SCRATCH = "spark-"

_QUOTING_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""By which PySpark writes the text of an error, and the value in it, to this process's standard error."""


@contextmanager
def open_session(address: str, folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session by the address of a Spark Connect server (``sc://host:port``), or a classic one on a master.

    Args:
        address: of the server; else the master, as ``local[4]`` or ``spark://host:port``.
        folder: confidential; what a classic session puts on the disk of this machine is in a folder of mode 0700
            in it, which is removed in the end, or by the next session where this process is killed.
        settings: of Spark, instead of or beside the safe ones. Operators see to what these do not reach: interface,
            event log, encryption and logs of a server, and what executors on other machines write to their logs.

    Raises:
        OdError: PySpark is absent, the session cannot be had, this process has another, or it repeats tasks.
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
    """A new folder of mode 0700; those of processes that were killed, whose locks went with them, are removed."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in folder.glob(f"{_SCRATCH}*"):
        with suppress(OdError, FileNotFoundError), exclusive(left, seconds=0):  # in use, or another removes it
            shutil.rmtree(left, ignore_errors=True)
    new = Path(tempfile.mkdtemp(prefix="new-", dir=folder))
    (new / LOCK_NAME).touch(mode=0o600)
    with exclusive(new):
        scratch = new.rename(new.with_name(f"{_SCRATCH}{new.name}"))  # locked before it can be taken for left
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def check_session(session: SparkSession) -> None:
    """Refuse a session that repeats tasks by itself, as far as it says so.

    The protocol of :mod:`od_core.flows.parts` keeps a repeated task from drawing again; but then the part is lost, and
    a lost draw costs budget (spec 8, section 3).

    Raises:
        OdError: ``OD-SPARK-SPECULATION`` or ``OD-SPARK-RETRIES``.
    """
    quiet_spark()
    _refuse_repetition(_settings_of(session))


def quiet_spark() -> None:
    """Keep PySpark from what it writes to standard error of itself.

    Texts of errors, which quote values; and the advice to use an older pandas, which is used by none of our jobs.
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
    """A session of our own."""
    from pyspark.sql import SparkSession

    remote = address.startswith("sc://")
    if not remote and SparkSession.getActiveSession() is not None:
        raise OdError(
            "OD-SPARK-SESSION",
            "this process has a session of Spark already, with settings of its own",
            next_step="stop it, or hand it to SparkWorkers",
        )
    try:
        if remote:
            return SparkSession.builder.remote(address).config(map={**settings}).create()
        os.environ["SPARK_LOCAL_DIRS"] = str(scratch)  # it goes before spark.local.dir
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        places = {"spark.local.dir": str(scratch), "spark.driver.defaultJavaOptions": _driver_options(scratch)}
        return SparkSession.builder.config(map={**places, **settings}).getOrCreate()
    except Exception as error:  # noqa: BLE001  # of PySpark, py4j, gRPC or the operating system
        raise OdError(
            "OD-SPARK-SESSION",
            f"no session of Spark at {address.partition(';')[0]}",  # what follows may be a token
            next_step="see that it runs and is reached; a master needs Java 17 or later on this machine",
            confidential_detail=f"{type(error).__name__}: {error}",
        ) from None


def _of_master(address: str) -> dict[str, str]:
    """The master itself; a session on this machine alone listens to this machine alone."""
    here = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return {"spark.master": address} | (here if address.startswith("local") else {})


def _driver_options(scratch: Path) -> str:
    return f"{_NO_DUMPS} -Djava.io.tmpdir={scratch}"


def _settings_of(session: SparkSession) -> Callable[[str], str | None]:
    """The settings that the application runs with, None for those that have no value or are not told."""
    from pyspark.errors import PySparkException

    def setting(name: str) -> str | None:
        try:
            value: str | None = session.conf.get(name, None)
        except PySparkException:  # some platforms tell nothing of the cluster
            return None
        return value

    return setting


def _refuse_repetition(setting: Callable[[str], str | None]) -> None:
    if (setting("spark.speculation") or "false").lower() != "false":
        raise OdError(
            "OD-SPARK-SPECULATION",
            "this session starts tasks a second time while the first still runs",
            next_step="set spark.speculation to false for the application or cluster",
        )
    if (attempts := _attempts(setting)) > 1:
        raise OdError(
            "OD-SPARK-RETRIES",
            f"this session tries a task that failed again, up to {attempts} times in all",
            next_step="set spark.task.maxFailures to 1 for the application or cluster",
        )


def _attempts(setting: Callable[[str], str | None]) -> int:
    """Times that a task is tried: one on a local master unless it names more, else Spark's own default of 4."""
    master = setting("spark.master")
    if master is None:
        return int(setting("spark.task.maxFailures") or 1)
    if re.fullmatch(r"local(\[[^,\]]*\])?", master):
        return 1
    if local := re.fullmatch(r"local\[[^,\]]*,\s*(\d+)\s*\]", master):
        return int(local[1])
    return int(setting("spark.task.maxFailures") or 4)
