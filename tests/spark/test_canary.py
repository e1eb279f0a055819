"""Planted values are found nowhere outside the confidential folder when Spark counts and works, whatever happens."""

import pytest

from tests.od_assets.canary import FORMS, leaks
from tests.spark.canary_project import SCENARIOS

EXPECTED = {
    "success": "published",
    "too_many_faults": "OD-TRIPS-FAULTS",
    "codes_of_another_type": "OD-TRIPS-NOT-TEXT",
    "a_task_that_quotes": "OD-PARTS-FAILED",
    "an_executor_that_dies": "OD-SPARK-JOB",
}


@pytest.fixture(scope="module")
def done(tmp_path_factory, spark_process):
    root = tmp_path_factory.mktemp("canary")
    return root, spark_process("canary_project", root)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nothing_planted_is_found(done, scenario):
    root, process = done
    lines = [line for line in process.stdout.splitlines() if line.startswith(f"{scenario}: ")]
    assert len(lines) == 1
    assert EXPECTED[scenario] in lines[0]
    assert leaks(root / scenario, process.stdout + process.stderr) == []
    assert [path for path in (root / scenario / "events").rglob("*") if path.is_file()], "there is no event log"
    local = (root / scenario / "var" / "confidential" / "spark").rglob("*")
    assert not [path for path in local if path.is_file()], "files of Spark are left"


def test_the_details_of_what_failed_stay_inside(done):
    root, _ = done
    errors = (root / "a_task_that_quotes" / "var" / "confidential").rglob("errors/*.txt")
    assert any(FORMS["zone"] in path.read_bytes() for path in errors)
