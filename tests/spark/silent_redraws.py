"""A process: noise drawn inside a data frame, as one would at first write it, and what Spark makes of it.

Every draw is logged, with the executor that made it. Prints, as JSON by case, the draws in the order in which they
were made, the result that came out in the end (part to value, or nothing), and the error if there was one.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa

from od_core.errors import OdError
from od_core.spark.session import SparkWorkers

PARTS = 8
SCHEMA = "part INT, noise BIGINT"
Batches = Iterator[pa.RecordBatch]


@dataclass
class Case:
    """One way to draw again.

    Attributes:
        log: a line a draw: part, value, and the executor's process.
        fails: times that part 3 fails after its draw.
        result: the value of each part that came out.
        error: what Spark said instead.
    """

    session: Any
    log: Path
    fails: int = 0
    result: dict[int, int] = field(default_factory=dict)
    error: str = ""

    def noisy(self) -> Any:
        """A data frame of 8 parts, each with a random draw: what spec 8 forbids."""
        return self.session.range(0, PARTS, 1, PARTS).mapInArrow(_draw(self.log, self.fails), SCHEMA)

    def draws(self) -> list[tuple[int, int, int]]:
        lines = self.log.read_text().splitlines()
        return [(int(part), int(value), int(executor)) for part, value, executor in map(str.split, lines)]

    def collect(self, frame: Any) -> dict[int, int]:
        return {row.part: row.noise for row in frame.collect()}


def _draw(log: Path, fails: int) -> Callable[[Batches], Batches]:
    def drawn(batches: Batches) -> Batches:
        for batch in batches:
            for part in batch[0].to_pylist():
                time.sleep(0.1)  # so that both executors have some of the parts
                value = secrets.randbits(60)
                append(log, f"{part} {value} {executor()}")
                tries = sum(line.startswith("3 ") for line in log.read_text().splitlines())
                if part == 3 and tries <= fails:
                    raise ValueError("after the draw")
                yield pa.RecordBatch.from_arrays([pa.array([part], pa.int32()), pa.array([value])], ["part", "noise"])

    def append(path: Path, line: str) -> None:
        with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND), "w") as file:
            file.write(line + "\n")

    def executor() -> int:
        """The machine of Java two processes above."""
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
        return int(daemon)

    return drawn


def _reduce(log: Path) -> Callable[[Batches], Batches]:
    """Reducers that take their time: they say which part they have read."""

    def read(batches: Batches) -> Batches:
        for batch in batches:
            time.sleep(0.4)
            with os.fdopen(os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND), "w") as file:
                file.writelines(f"{part}\n" for part in batch[0].to_pylist())
            yield batch

    return read


def two_actions(case: Case) -> None:
    frame = case.noisy()
    frame.count()
    case.result = case.collect(frame)


def cache_and_lost_executor(case: Case) -> None:
    frame = case.noisy().cache()
    frame.count()
    kill(case.draws()[0][2])
    case.result = case.collect(frame)
    frame.unpersist()


def lost_executor_while_reducers_read(case: Case) -> None:
    """Killed once three reducers are done, of the two executors the one whose draws are waited for by more reducers."""
    read_log = case.log.with_suffix(".read")
    frame = case.noisy().repartitionById(PARTS, "part").mapInArrow(_reduce(read_log), SCHEMA)
    killer = Thread(target=kill_one, args=(case, read_log))
    killer.start()
    try:
        case.result = case.collect(frame)
    finally:
        killer.join()


def kill_one(case: Case, read_log: Path) -> None:
    deadline = time.monotonic() + 300
    while not read_log.exists() or len(done := read_log.read_text().split()) < 3:
        if time.monotonic() > deadline:
            return
        time.sleep(0.01)
    waiting = [executor for part, _, executor in case.draws() if str(part) not in done]
    time.sleep(0.1)  # the driver hears of the third
    kill(max(set(waiting), key=waiting.count))


def without_checksums(case: Case) -> None:
    for name in CHECKSUMS:
        case.session.conf.set(name, "false")
    try:
        lost_executor_while_reducers_read(case)
    finally:
        for name in CHECKSUMS:
            case.session.conf.unset(name)


def exception_after_the_draw(case: Case) -> None:
    case.fails = 2
    case.result = case.collect(case.noisy())


CHECKSUMS = (
    "spark.sql.shuffle.orderIndependentChecksum.enabled",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch",
)
CASES = (
    two_actions,
    exception_after_the_draw,
    cache_and_lost_executor,
    without_checksums,
    lost_executor_while_reducers_read,
)


def kill(executor: int) -> None:
    os.kill(executor, signal.SIGKILL)


def both_executors(session: Any) -> None:
    """Wait until two are there: a lost one is replaced."""
    while session.sparkContext._jsc.sc().getExecutorMemoryStatus().size() < 3:
        time.sleep(0.05)


def refused(session: Any) -> str:
    """As which this project refuses to work in such a session."""
    try:
        SparkWorkers(session)
    except OdError as error:
        return error.code
    return ""


def main(folder: Path) -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    settings = {
        "spark.local.dir": str(folder),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.driver.host": "127.0.0.1",
        "spark.shuffle.io.maxRetries": "0",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder}",
    }
    session = SparkSession.builder.master("local-cluster[2,1,1024]").config(map=settings).getOrCreate()
    found: dict[str, Any] = {}
    for number, work in enumerate(CASES):
        both_executors(session)
        case = Case(session, folder / f"{number}.draws")
        try:
            work(case)
        except (Py4JError, PySparkException) as error:
            case.error = str(error)
        found[work.__name__] = {
            "draws": [draw[:2] for draw in case.draws()],
            "result": case.result,
            "error": case.error,
        }
    told = {"cases": found, "refused": refused(session)}
    session.stop()
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
