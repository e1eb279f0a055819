"""``run --all`` told to end at random moments, by both signals: no period is begun after it, and no draw is lost.

Two moments by default; ``OD_INTERRUPTS=20 pytest tests/faults/test_interrupted.py`` for more.
"""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from od_core.ledger.chain import DRAWING
from tests.od_assets.conftest import ATTRIBUTES, DOMAIN, ZONES, records
from tests.od_core.ledger.ledger_rows import rows
from tests.projects import declare, declare_domain, define_all, make_dg_project

MOMENTS = int(os.environ.get("OD_INTERRUPTS", "2"))
PERIODS = [f"2001-{month:02d}" for month in range(1, 13)]


def make_project(root: Path) -> None:
    defs = make_dg_project(root)
    ZONES.to_csv(root / "zones.csv", index=False)
    for period in PERIODS:
        records(500).assign(date=f"{period}-15").to_csv(root / f"{period}.csv", index=False)
    define_all(root)
    declare_domain(defs, DOMAIN)
    declare(defs, "trips", "OdRelease", ATTRIBUTES | {"periods": {"first": PERIODS[0], "last": PERIODS[-1]}})
    declare(defs, "warehouse", "OdWarehouse", {})


def begun(root: Path, var: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"OD_PROJECT": str(root), "OD_VAR": str(var), "PYTHONPATH": str(root)}
    command = [sys.executable, "-m", "od_assets.cli", "run", "trips", "--all"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    handled = rf"SigCgt:\s*{'[0-9a-f]' * 12}[4-7c-f]"  # Python handles SIGTERM, signal 15
    while not re.search(handled, Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")):
        assert process.poll() is None
        time.sleep(0.01)
    return process


def entries(var: Path) -> list[dict[str, Any]]:
    """All entries of the ledger; none before it has been made."""
    with suppress(sqlite3.OperationalError):
        return rows(var / "ledger.sqlite") if (var / "ledger.sqlite").exists() else []
    return []


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux says which signals a process handles")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_all_periods_end_at_once_and_lose_no_draw(number, tmp_path):
    make_project(tmp_path)
    moments = np.random.default_rng([MOMENTS, number])
    for moment in range((MOMENTS + 1) // 2):
        var = tmp_path / f"var{moment}"
        process = begun(tmp_path, var)
        after = moments.integers(30)  # a period has 14 entries in the ledger
        while len(entries(var)) < after:
            assert process.poll() is None
            time.sleep(0.02)
        time.sleep(moments.uniform(0, 0.3))
        before = {row["release"] for row in entries(var)}
        os.killpg(process.pid, number)  # as a terminal does
        output, errors = process.communicate(timeout=300)
        left = rf"OD-INTERRUPTED: stopped by {number.name}(: (\d+) of 12 periods were not run)? \[.*\n"
        said = re.fullmatch(left, errors)
        assert said is not None, errors
        assert process.returncode == 128 + number
        found = entries(var)
        published = sum(row["kind"] == "PUBLISHED" for row in found)
        if said[2] is not None:  # else it was told before it knew the periods
            assert int(said[2]) in (12 - published, 12 - published + 1), output
        assert len({row["release"] for row in found} - before) <= 1  # one may have begun before the signal arrived
        newest = {(row["release"], row["level"]): row for row in found if row["level"] is not None}
        assert all(row["kind"] != DRAWING and row["draw"] == 1 for row in newest.values())
