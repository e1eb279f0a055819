"""What is refused before Spark is started, and what works where it is not installed."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from od_core import FlowTree, Geography, OdError
from od_core.ledger.object_store import LocalStore
from od_core.records.formats import RecordColumns
from od_core.records.segments import SegmentSource
from od_core.spark.counting import count_in_spark
from od_core.spark.session import open_session

WITHOUT_SPARK = """
import sys, pathlib
sys.modules["pyspark"] = None  # as where it is not installed
import od_core.spark.session
from od_core.errors import OdError
from od_core.spark.session import open_session
try:
    with open_session("local[2]", pathlib.Path(sys.argv[1])):
        pass
except OdError as error:
    print(error)
"""


def test_without_spark_the_package_imports_and_says_what_to_install(tmp_path: Path):
    command = [sys.executable, "-c", WITHOUT_SPARK, str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.startswith("OD-EXTRA-ABSENT: pyspark is not installed")
    assert "od-release[spark]" in said
    assert "Traceback" not in said
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("address", "settings", "code"),
    [
        ("local[2]", {"spark.speculation": "true"}, "OD-SPARK-SPECULATION"),
        ("sc://localhost:1", {"spark.speculation": "TRUE"}, "OD-SPARK-SPECULATION"),
        ("sc://localhost:1", {"spark.task.maxFailures": "2"}, "OD-SPARK-RETRIES"),
        ("spark://localhost:1", {"spark.task.maxFailures": "4"}, "OD-SPARK-RETRIES"),
        ("local-cluster[2,1,1024]", {"spark.task.maxFailures": "2"}, "OD-SPARK-RETRIES"),
        ("local[2,3]", {}, "OD-SPARK-RETRIES"),
        ("local[*, 2]", {}, "OD-SPARK-RETRIES"),
    ],
)
def test_settings_that_repeat_tasks_are_refused(tmp_path: Path, address: str, settings: dict[str, str], code: str):
    """Before a session is started: nothing is on the disk."""
    pytest.importorskip("pyspark")
    with pytest.raises(OdError) as refused, open_session(address, tmp_path / "spark", settings):
        pass
    assert refused.value.code == code
    assert not any(tmp_path.iterdir())


def test_segments_without_a_list_are_refused_before_the_session_is_used(tmp_path: Path):
    """Else the records would be counted without them."""
    zones = Geography.from_frame(pd.DataFrame({"zone": ["01", "02"]}), ["zone"])
    columns = RecordColumns(segments=(SegmentSource("mode", "mode"),))
    tree, store = FlowTree(zones, zones), LocalStore(tmp_path)
    with pytest.raises(OdError, match=r"OD-SEGMENT-SOURCE.*it is no breakdown of the release"):
        count_in_spark(None, "trips", columns, "2001-06", tree, store, "counts")  # type: ignore[arg-type]
