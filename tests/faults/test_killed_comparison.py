"""A comparison of mechanisms that is killed outright, and what is made again."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd

from od_core.evaluation.comparison import CONTENDERS, Run, compare, planned_runs, table
from tests.od_core.evaluation.test_comparison import SMALL, TWO


def _compare_slowly(folder: Path) -> None:
    """Enough runs to be killed among them."""
    compare(planned_runs(SMALL, TWO, epsilons=("0.1", "1", "10"), number=12), folder, SMALL)


def test_a_killed_comparison_goes_on_where_it_stopped(tmp_path):
    """Killed outright when some runs are there: their files stay as they are, and no worker goes on by itself."""
    runs = planned_runs(SMALL, TWO, epsilons=("0.1", "1", "10"), number=12)
    process = multiprocessing.get_context("spawn").Process(target=_compare_slowly, args=(tmp_path,))
    process.start()
    wait_for(lambda: len(list(tmp_path.glob("*.json"))) >= 20)
    workers = children_of(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    wait_for(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))
    there = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in tmp_path.glob("*.json")}
    assert 20 <= len(there) < len(runs)
    for path in there:
        json.loads(path.read_text(encoding="utf-8"))  # whole
    (tmp_path / ".killed.json.1.tmp").write_text("{", encoding="utf-8")
    told = []
    compare(runs, tmp_path, SMALL, progress=lambda run, made: told.append(made))
    assert told.count(False) == len(there)
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in there} == there
    assert {path.name for path in tmp_path.iterdir()} == {run.path(tmp_path).name for run in runs}
    assert (table(tmp_path)["runs"] == 12).all()
    first = table(tmp_path)
    compare(runs, tmp_path, SMALL)
    pd.testing.assert_frame_equal(table(tmp_path), first)


def children_of(parent: int) -> list[int]:
    """Processes that a process started, by the kernel."""
    text = "".join(path.read_text() for path in Path(f"/proc/{parent}/task").glob("*/children"))
    return [int(child) for child in text.split()]


def wait_for(happened) -> None:
    """Until it has happened, for a minute at most."""
    end = time.monotonic() + 300
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_another_plan_or_other_data_are_made_again(tmp_path):
    run = Run("small binary", CONTENDERS[0], "1", 1)
    made = []

    def again(run: Run, data_set: str) -> bool:
        compare([run], tmp_path, {run.data_set: SMALL[data_set]}, workers=1, progress=lambda _, new: made.append(new))
        return made[-1]

    assert again(run, "small binary")
    assert not again(run, "small binary")
    assert again(run, "small random")  # other data under the same name
    options = replace(run, contender=replace(run.contender, conversion="bun_steinke"))
    assert again(options, "small random")
    assert not again(options, "small random")
