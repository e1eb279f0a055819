"""Tasks on the executors of Spark, in every kind of session: outcomes in order, codes for errors."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.spark.handed_out import CANARY
from tests.spark.plans import HANDED_OUT

KINDS = ["local-cluster[2,1,1024]", "connect"]


@pytest.fixture(scope="module", params=KINDS)
def found(request, spark_process, tmp_path_factory) -> dict[str, Any]:
    """What the process of one kind of session told, and all that it wrote to standard error."""
    folder: Path = tmp_path_factory.mktemp("spark")
    done = spark_process("handed_out", request.param, folder)
    return {**json.loads(done.stdout), "kind": request.param, "stderr": done.stderr}


@pytest.mark.parametrize("count", [0, 1, 50])
def test_outcomes_come_in_the_order_of_the_descriptors(found, count):
    """Though the first are done last; and each is worked on by one thread, whatever the operator allows a process."""
    outcomes = found[str(count)]
    assert [outcome.rpartition(" in ")[0] for outcome in outcomes] == [f"{n} {CANARY} on 1" for n in range(count)]
    processes = {outcome.rpartition(" in ")[2] for outcome in outcomes}
    assert len(processes) == min(count, 2)


def test_a_task_that_raises_is_a_code(found):
    failed = "OD-TASK-FAILED"
    assert found["errors"] == [failed, "fine", failed, failed, failed]


def test_a_job_that_fails_is_an_error_without_its_text(found):
    """A process that ends, and a task that cannot be unpacked; what Spark says is for the confidential side alone."""
    for failure in found["failures"]:
        assert failure["text"].startswith("OD-SPARK-JOB: ")
        assert failure["detail"]
        assert failure["cause"] == "None"
        assert CANARY not in failure["text"]
    assert found["alive"] == ["A", "B"]  # the session serves on


def test_nothing_of_a_task_is_in_a_log_or_on_the_disk(found):
    """Descriptors pass through shuffle files; errors of tasks by the logs of executors, failed jobs by the driver's.

    What Spark itself says of a failed job is in the logs of executors that are machines of their own: it is of our
    code and its surroundings, since what a task says does not leave it.
    """
    assert found["quoted"]
    assert CANARY not in found["stderr"]
    assert found["on disk"][:2] == ["True []"] * 2  # there are files, and they show nothing
    assert found["on disk"][2].endswith(" []")
    assert set(found["modes"]) <= {"0o700"}
    assert found["left"] == []


def test_what_a_killed_process_left_is_removed_and_what_is_in_use_is_not(found):
    assert found["removed"] == [True, False]


def test_plans_hold_descriptors_and_outcomes_alone(found):
    """No noise can be in a data frame: relation, exchange and our function are all that is run, and nothing is kept."""
    assert found["plans"] == [[[name, list(columns)] for name, columns in HANDED_OUT]] * 3
    assert found["handed out only"]


def test_a_session_tells_what_it_is_checked_by(found):
    assert found["master"] == found["kind"].replace("connect", "local[2]")


def test_a_process_has_one_session_of_its_own(found):
    if found["kind"] == "connect":
        pytest.skip("asked of one kind")
    assert found["second"] == "OD-SPARK-SESSION"


def test_other_plans_are_seen(found):
    """The helper of plans tells another source, a cached relation and an RDD from what is handed out."""
    if found["kind"] == "connect":
        pytest.skip("asked of one kind")
    assert found["others"] == {"another source": False, "cached": True, "an RDD": True}
