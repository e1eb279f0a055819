"""Expectations are checked in a process that was started for them, with the same results and errors as here."""

import os
import select
import signal
import subprocess
import sys

import pandas as pd
import pytest

from od_assets.checks.expectation_process import run_check, run_expectation_process
from od_assets.checks.expectations import check_flow_expectations

PARENT = """
import time
from od_assets.checks import expectation_process as module
started = module.subprocess.Popen
def popen(*arguments, **options):
    process = started(*arguments, **options)
    print(process.pid, flush=True)
    return process
module.subprocess.Popen = popen
with module.run_expectation_process():
    time.sleep(60)
"""


def is_elsewhere(here: int) -> dict[str, bool]:
    return {"elsewhere": os.getpid() != here}


def fails(here: int) -> dict[str, bool]:
    raise ValueError("here" if os.getpid() == here else "elsewhere")


@pytest.mark.slow
def test_a_check_runs_in_the_process_with_its_results_and_its_errors(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "great_expectations", raising=False)
    here = os.getpid()
    flows = pd.DataFrame({"origin": ["A"], "destination": ["B"], "trips": [1]})
    with run_expectation_process():
        assert run_check(is_elsewhere, here) == {"elsewhere": True}
        met = run_check(check_flow_expectations, flows, ["A"], ["A"], tmp_path / "there")
        with pytest.raises(ValueError, match=r"^here$"):
            run_check(fails, here)
        assert run_check(is_elsewhere, here) == {"elsewhere": False}  # the process ended with the error
    assert run_check(is_elsewhere, here) == {"elsewhere": False}
    monkeypatch.undo()
    assert met == check_flow_expectations(flows, ["A"], ["A"], tmp_path / "here")
    assert not all(met.values())
    assert sorted(path.name for path in (tmp_path / "there").rglob("*.html"))


def test_no_process_is_started_where_great_expectations_is_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "great_expectations", sys)
    with run_expectation_process():
        assert run_check(is_elsewhere, os.getpid()) == {"elsewhere": False}


@pytest.mark.slow
def test_the_process_ends_when_its_parent_is_killed():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        parent.send_signal(signal.SIGKILL)
    try:
        assert select.select([child], [], [], 120)[0], "the process still runs"
    finally:
        os.close(child)
