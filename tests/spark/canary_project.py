"""The small project's month with the canary in it, on Spark: what succeeds, what is refused, what fails in a task.

Each in a folder of its own, in which all traces are left: event log, local folders, folders and logs of executors,
Dagster's storage, temporary files. What is printed is the public text of each failure.
"""

import os
import sys
import tempfile
from pathlib import Path

import dagster as dg
import pandas as pd

from tests.od_assets.canary import COUNT, ZONE, of_flows, planted
from tests.od_assets.conftest import ZONES, Project, failure_text

ROOT = Path(__file__).parents[2]

QUOTES = f"""
import od_core.records.counts
def quoting(self, noise, tree, families):
    raise ValueError("the trips of {ZONE} are {COUNT}")
od_core.records.counts.TripCounts.add_to = quoting
"""

KILLS = """
import os, od_core.records.counts
def killing(self, noise, tree, families):
    daemon = os.getppid()
    executor = int(open(f"/proc/{daemon}/stat").read().rpartition(")")[2].split()[1])
    for process in (executor, daemon, os.getpid()):
        os.kill(process, 9)
od_core.records.counts.TripCounts.add_to = killing
"""

SCENARIOS = dict.fromkeys(["success", "codes_of_another_type", "a_task_that_quotes", "an_executor_that_dies"], "1")
SCENARIOS |= {"too_many_faults": "0"}
"""What is tried, with the threshold of faults."""

MASTERS = dict.fromkeys(["success", "a_task_that_quotes", "an_executor_that_dies"], "local-cluster[1,1,1024]")
"""With executors of their own, where a task of theirs is to fail; what is refused before has none."""


def lake(scenario: str) -> pd.DataFrame:
    frame = planted().assign(date=lambda rows: pd.to_datetime(rows["date"]).dt.date)
    return frame.assign(origin=COUNT) if scenario == "codes_of_another_type" else frame


def run(root: Path, scenario: str) -> None:
    os.environ |= {"OD_PROJECT": str(root), "OD_VAR": str(root / "var"), "TMPDIR": str(root / "temporary")}
    tempfile.tempdir = None
    for name in ("dagster", "temporary", "events", "planted"):
        (root / name).mkdir(parents=True)
    if patch := {"a_task_that_quotes": QUOTES, "an_executor_that_dies": KILLS}.get(scenario):
        (root / "sitecustomize.py").write_text(patch, encoding="utf-8")
    instance = dg.DagsterInstance.local_temp(str(root / "dagster"), overrides={"telemetry": {"enabled": False}})
    project = Project(root, lambda: instance)
    ZONES.to_csv(root / "zones.csv", index=False)
    lake(scenario).to_parquet(root / "2001-01.parquet")
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{root / 'events'}",
        "spark.eventLog.compress": "false",
        "spark.executorEnv.PYTHONPATH": f"{root}:{ROOT}",
        "spark.executorEnv.PYTHONDONTWRITEBYTECODE": "1",
        "spark.sql.shuffle.partitions": "2",
    }
    component = of_flows(
        project,
        trips__files="./{period}.parquet",
        engine="spark",
        bands={"cuts": [2], "part_trips": 10**15},
        spark={"address": MASTERS.get(scenario, "local[1]"), "settings": settings},
        trips__fault_threshold=SCENARIOS[scenario],
    )
    print(f"{scenario}: {failure_text(project.run(component)) or 'published'}", flush=True)


if __name__ == "__main__":
    for name in SCENARIOS:
        run(Path(sys.argv[1]) / name, name)
