"""A process: noise drawn inside a data frame, as one would at first write it, and what Spark makes of it.

Every draw is logged. Prints, as JSON, the draws in the order in which they were made, the result that came out in the
end (part to value), and the code with which this project refuses such a session.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from od_core.errors import OdError
from od_core.spark.session import SparkWorkers

PARTS = 8
Batches = Iterator[pa.RecordBatch]


def _draw(log: Path) -> Callable[[Batches], Batches]:
    def drawn(batches: Batches) -> Batches:
        for batch in batches:
            for part in batch[0].to_pylist():
                value = secrets.randbits(60)
                with os.fdopen(os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND), "w") as file:
                    file.write(f"{part} {value}\n")
                yield pa.RecordBatch.from_arrays([pa.array([part], pa.int32()), pa.array([value])], ["part", "noise"])

    return drawn


def main(folder: Path) -> None:
    from pyspark.sql import SparkSession

    settings = {
        "spark.local.dir": str(folder),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder}",
    }
    session = SparkSession.builder.master("local-cluster[2,1,1024]").config(map=settings).getOrCreate()
    log = folder / "draws"
    frame = session.range(0, PARTS, 1, PARTS).mapInArrow(_draw(log), "part INT, noise BIGINT")  # what spec 8 forbids
    frame.count()
    result = {row.part: row.noise for row in frame.collect()}
    try:
        SparkWorkers(session)
        refused = ""
    except OdError as error:
        refused = error.code
    session.stop()
    draws = [[int(number) for number in line.split()] for line in log.read_text(encoding="utf-8").splitlines()]
    json.dump({"draws": draws, "result": result, "refused": refused}, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
