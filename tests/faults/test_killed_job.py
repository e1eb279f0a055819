"""The whole job killed, resumed, and run twice at once: nothing is drawn twice under one charge."""

import json
import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import dagster as dg
import pytest

from od_core import open_release
from od_core.ledger.release_key import ReleaseKey
from tests.od_core.ledger.ledger_rows import ledger_at
from tests.postgres import server_of

ROOT = Path(__file__).resolve().parents[2]
KEY = ReleaseKey("us_flights", "2001-03", 1)
RUN = [sys.executable, "-m", "od_assets.cli", "run", "us_flights", "--period", KEY.period, "--json"]


@pytest.fixture
def environment(engine, tmp_path) -> dict[str, str]:
    ledger = {"OD_LEDGER": address} if (address := server_of(tmp_path / "ledger.sqlite")) else {}
    return {**os.environ, **ledger, "OD_VAR": str(tmp_path), "OD_PROJECT": str(ROOT)}


def finished(environment: dict[str, str]) -> dict[str, object]:
    done = subprocess.run(RUN, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    facts: dict[str, object] = json.loads(done.stdout)[0]
    return facts


SIGNS = ("raw_trips.parquet", "noisy_measurement_5.draw_1.parquet", "flows.parquet")
"""Files that appear one after the other: before the first draw, between two draws, after the last."""


def killed_at(sign: Path, environment: dict[str, str]) -> None:
    """Run the job until the file is there."""
    with subprocess.Popen(RUN, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 300
        while not sign.exists():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)


def test_a_release_killed_three_times_is_resumed(tmp_path, environment):
    folder = tmp_path / "confidential" / str(KEY)
    before: dict[str, bytes] = {}
    for sign in SIGNS:
        killed_at(folder / sign, environment)
        assert not (tmp_path / "releases").exists()
        assert {name: (folder / name).read_bytes() for name in before} == before
        before = {path.name: path.read_bytes() for path in folder.glob("noisy_measurement_*")}

    facts = finished(environment)
    assert {name: (folder / name).read_bytes() for name in before} == before
    release = open_release(tmp_path / "releases" / str(KEY))
    ledger = ledger_at(tmp_path / "ledger.sqlite")
    steps = release.plan.charged_steps  # of the flow tree and of area totals
    lost = [step for step in steps if ledger.count_draws(KEY, step.number) > 1]
    assert len(lost) <= 1  # at most the level that was being drawn when the process died
    expected = sum((step.rho for step in lost), start=release.plan.spent.rho)
    assert release.spent.rho == expected == Fraction(facts["spent"]["rho_exact"])  # type: ignore[index]
    assert sum(1 for _ in folder.glob("noisy_measurement_*")) == len(steps)
    with dg.DagsterInstance.from_config(str(tmp_path / "dagster")) as instance:
        statuses = sorted(run.status.value for run in instance.get_runs())
    assert statuses == ["FAILURE"] * 3 + ["SUCCESS"]  # the dead runs were swept


def test_two_runs_at_once_draw_once(tmp_path, environment):
    runs = [
        subprocess.Popen(RUN, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outcomes = [run.communicate(timeout=300) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outcomes
    release, ledger = open_release(tmp_path / "release.duckdb"), ledger_at(tmp_path / "ledger.sqlite")
    assert ledger.balance("us_flights", KEY.period).spent == release.plan.spent.rho
    assert all(ledger.count_draws(KEY, step.number) == 1 for step in release.plan.charged_steps)
