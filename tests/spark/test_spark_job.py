"""The job of a release that Spark counts and works on, in a session that each step opens for itself."""

import sys
from pathlib import Path

import pandas as pd
import pytest

from od_assets.resources.warehouse import Warehouse
from od_core import open_release
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from od_core.published.verification import verify_release
from tests.od_assets.conftest import (
    SEGMENTS,
    Project,
    failure_text,
    make_project,
    project,
    public_bytes,
    records,
    records_by_mode,
)

__all__ = ["make_project", "project"]

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # sockets of PySpark

KEY = ReleaseKey("trips", "2001-01", 1)
SPARK = {
    "engine": "spark",
    "spark": {"address": "local[2]", "settings": {"spark.sql.shuffle.partitions": "3"}},
    "bands": {"cuts": [2], "part_trips": 300},
    "trips__files": "lake/{period}.parquet",
}


def write_lake(project: Project, frame: pd.DataFrame) -> None:
    (project.root / "lake").mkdir(exist_ok=True)
    frame = frame.assign(date=pd.to_datetime(frame["date"]).dt.date)
    frame.to_parquet(project.root / "lake" / "2001-01.parquet")


def test_a_month_is_published_and_a_second_run_changes_nothing(project):
    write_lake(project, records())
    project.publish(project.component(**SPARK))
    release = open_release(project.var / "releases" / str(KEY))
    assert int(release.flows["trips"].sum()) == len(records())
    ledger = Ledger(project.var / "ledger.sqlite")
    assert ledger.compute_spent_budget(KEY, release.plan) == release.plan.spent
    assert not (project.var / "confidential" / str(KEY) / "raw_trips.parquet").exists()
    verify_release(Warehouse().locate_release(KEY))

    files = public_bytes(project.var)
    assert project.run(project.component(**SPARK)).success
    assert public_bytes(project.var) == files
    assert ledger.balance("trips", "2001-01").spent == release.plan.spent.rho

    write_lake(project, records(1999))
    again = project.run(project.component(**SPARK))
    assert "OD-REPLAY-INPUT-CHANGED" in failure_text(again)
    assert public_bytes(project.var) == files


SUBMIT = [
    str(Path(sys.executable).with_name("spark-submit")),
    "--master",
    "local[2]",
    "--conf",
    "spark.ui.enabled=false",
]


def test_steps_that_are_submitted_publish_the_same_way(project, monkeypatch):
    """Each is a process of spark-submit; what it prints is kept from the run, and thrown away where it ends well.

    The release is by segment, which all steps have to know.
    """
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    write_lake(project, records_by_mode())
    submitted = SPARK | {"spark": {"submit": SUBMIT}, "segments": SEGMENTS}
    project.publish(project.component(**submitted))
    release = open_release(project.var / "releases" / str(KEY))
    assert int(release.flows["trips"].sum()) == len(records())
    for name in SEGMENTS:
        own = release.flows_at("zone", "zone", segment=name)
        sums = own.groupby(["origin", "destination"], as_index=False)["trips"].sum()
        pd.testing.assert_frame_equal(sums, release.flows)
    assert Ledger(project.var / "ledger.sqlite").compute_spent_budget(KEY, release.plan) == release.plan.spent
    assert not list((project.var / "confidential" / "spark").iterdir())

    write_lake(project, records_by_mode().assign(origin=7))
    refused = project.run(project.component(**submitted))
    assert "OD-TRIPS-NOT-TEXT" in failure_text(refused)
    nothing = project.run(project.component(**submitted | {"spark": {"submit": ["false"]}}))
    assert "OD-SPARK-SUBMIT" in failure_text(nothing)
