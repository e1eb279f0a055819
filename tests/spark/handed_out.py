"""A process: tasks handed to the workers of one kind of session, told as JSON.

Called with ``connect`` it is the server of Spark Connect, and its own client; else it is given the master.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from od_core.errors import OdError
from od_core.ledger.confidential import lock_folder
from od_core.parallel import choose_thread_count
from od_core.spark.session import SparkWorkers, open_session, silence_spark
from tests.spark.plans import plans_of

CANARY = "CANARY77"


def late_first(descriptor: str) -> str:
    """Those that come first are done last."""
    number = int(descriptor.partition(" ")[0])
    time.sleep(0.3 if number < 2 else 0)
    return f"{descriptor} on {choose_thread_count()} in {os.getpid()}"


def bad(descriptor: str) -> Any:
    if descriptor == "raises":
        raise ValueError(CANARY)
    if descriptor == "leaves":
        raise SystemExit(CANARY)
    return {"number": 77, "surrogate": "\ud800"}.get(descriptor, descriptor)


def dies(descriptor: str) -> str:
    os._exit(7)


def on_disk(descriptor: str) -> str:
    """Files of the session that show a descriptor, seen while its shuffle files are there."""
    files = [path for path in Path(descriptor.partition(" ")[0]).rglob("*") if path.is_file()]
    shown = [path.name for path in files if CANARY.encode() in path.read_bytes()]
    return f"{bool(files)} {shown}"


class Unreadable:
    """A task that fails where it is unpacked, before any of our code can catch it."""

    def __call__(self, descriptor: str) -> str:
        return descriptor

    def __reduce__(self) -> tuple[object, ...]:
        return int, (CANARY,)


@contextmanager
def session_of(kind: str, folder: Path) -> Iterator[Any]:
    if kind != "connect":
        plain = {"spark.shuffle.compress": "false"}  # so that what is not encrypted would be seen
        with open_session(kind, folder, plain) as session:
            yield session
        return
    from pyspark.sql import SparkSession

    silence_spark()
    of_server = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.local.dir": str(folder / "server"),
        "spark.io.encryption.enabled": "true",
        "spark.shuffle.compress": "false",
    }
    server = SparkSession.builder.remote("local[2]").config(map=of_server).getOrCreate()
    del os.environ["SPARK_LOCAL_REMOTE"]  # by which the end of any session ends the server, which others then wait for
    with open_session("sc://localhost", folder) as session:
        yield session
    server.stop()


def main(kind: str, folder: Path) -> None:
    found: dict[str, Any] = {}
    of_killed, in_use = folder / "spark-of-killed", folder / "spark-in-use"
    for scratch in (of_killed, in_use):
        scratch.mkdir(mode=0o700)
        (scratch / "shuffled").write_text(CANARY)
    with lock_folder(in_use), session_of(kind, folder) as session:
        found["removed"] = [not (scratch / "shuffled").exists() for scratch in (of_killed, in_use)]
        shutil.rmtree(in_use)
        workers = SparkWorkers(session)
        found["master"] = session.conf.get("spark.master")
        with plans_of() as ran:
            for count in (0, 1, 50):
                found[str(count)] = workers.map(late_first, [f"{number} {CANARY}" for number in range(count)])
            found["errors"] = workers.map(bad, ["raises", "fine", "leaves", "number", "surrogate"])
        found["on disk"] = [*workers.map(on_disk, [f"{folder} {CANARY}"] * 2), on_disk(str(folder))]
        found["plans"], found["handed out only"] = ran.plans, ran.handed_out_only
        found["failures"] = [failure(workers, task) for task in (dies, Unreadable())]
        found["quoted"] = quoted(session)
        found["alive"] = workers.map(str.upper, ["a", "b"])
        found["modes"] = sorted(
            {oct(path.stat().st_mode & 0o777) for path in folder.iterdir() if path.name != "server"}
        )
        if kind != "connect":
            found["second"] = failure_of_second(folder)
            found["others"] = others(session)
    found["left"] = [path.name for path in folder.iterdir() if path.name != "server"]
    json.dump(found, sys.stdout)


def failure(workers: SparkWorkers, task: Any) -> dict[str, Any]:
    try:
        workers.map(task, ["a", "b"])
    except OdError as error:
        return {"text": str(error), "detail": bool(error.confidential_detail), "cause": str(error.__cause__)}
    return {}


def quoted(session: Any) -> bool:
    """An error that quotes a value, as PySpark would write it to standard error by itself."""
    from pyspark.errors import PySparkException

    try:
        session.sql(f"SELECT CAST('{CANARY}' AS INT)").collect()
    except PySparkException as error:
        return CANARY in str(error)
    return False


def failure_of_second(folder: Path) -> str:
    try:
        with open_session("local[1]", folder):
            return ""
    except OdError as error:
        return error.code


def others(session: Any) -> dict[str, bool]:
    """Whether the helper of plans sees what it must not let pass."""
    told = {}
    frame = session.range(3)
    with plans_of() as ran:
        frame.collect()
    told["another source"] = ran.handed_out_only
    with plans_of() as ran:
        cached = frame.cache()
        cached.count()
    told["cached"] = bool(ran.kept) and not ran.handed_out_only
    cached.unpersist(True)
    with plans_of() as ran:
        session.sparkContext.parallelize([1]).count()
    told["an RDD"] = ran.jobs_of_no_query == 1 and not ran.handed_out_only
    return told


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
