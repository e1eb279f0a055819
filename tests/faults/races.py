"""Races for one release after another: two processes at once, or a killed one and its successor.

Each race forks its processes from this one, which has imported all they need, so that they meet within milliseconds.
"""

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from od_core import OdError
from od_core.files.durable import compute_file_digest
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.measurements import begin_release
from od_core.ledger.release_key import ReleaseKey
from od_core.records.counting import count_trips
from tests.od_core.ledger.ledger_rows import FLOWS, assert_chain, domain, ledger_at, rows, small_plan

PLAN = small_plan("1/100")
TRIPS = count_trips(FLOWS, PLAN.tree)
CHANCE = random.Random(7)  # noqa: S311  # of the trial, not of noise


def release(folder: Path, key: ReleaseKey, locked: bool) -> None:
    """Measure all levels; each draw leaves a line before its first random bit."""
    side = os.open(folder / "draws", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    ledger = ledger_at(folder / "ledger.sqlite")
    with ledger.lock_for_release() if locked else nullcontext(), ledger.keep_open():
        measurements = begin_release(ConfidentialFolder(folder / "confidential"), ledger, key, "commuters", PLAN, TRIPS)
        for step in PLAN.steps:

            def draw(level=step.level):
                os.write(side, f"{key} {level}\n".encode())
                time.sleep(CHANCE.random() / 200)
                return [np.array([os.getpid(), level])]

            measurements.draw_once(step, draw)


def started(folder: Path, key: ReleaseKey, locked: bool) -> int:
    """Fork a process that releases, and return its number. It ends with 0, or with 3 where it was refused."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        CHANCE.seed()
        release(folder, key, locked)
        status = 0
    except (OdError, FileNotFoundError) as error:  # without the lock, the other one removes files as left behind
        print(json.dumps({"refused": getattr(error, "code", "file")}), flush=True)
        status = 3
    finally:
        os._exit(status)


def drawn(folder: Path) -> int:
    """Draws so far."""
    return (folder / "draws").read_bytes().count(b"\n")


def ended(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def race(folder: Path, key: ReleaseKey, locked: bool, kills: bool) -> None:
    first, before = started(folder, key, locked), drawn(folder)
    if kills:
        until = before + CHANCE.randint(0, len(PLAN.steps))
        while drawn(folder) < until and not os.waitid(os.P_PID, first, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            time.sleep(0.0005)
        time.sleep(CHANCE.random() / 100)
        os.kill(first, signal.SIGKILL)
        ended(first)
    second = started(folder, key, locked)
    statuses = [ended(second)] if kills else [ended(first), ended(second)]
    assert not locked or set(statuses) == {0}, statuses
    assert set(statuses) <= {0, 3}, statuses
    assert ended(started(folder, key, locked)) == 0


def check(folder: Path, races: int) -> dict[str, int]:
    """Hold draws, charges and files against each other, for every release; return how much of each there was."""
    path = folder / "ledger.sqlite"
    assert_chain(path)
    kinds: Counter[tuple[str, str, int]] = Counter()
    for row in rows(path):
        kinds[row["kind"], row["release"], row["level"]] += 1
        if row["kind"] == "MEASURED":
            file = f"noisy_measurement_{row['level']}.draw_{row['draw']}.parquet"
            digest = json.loads(row["content"])["digest"]
            assert compute_file_digest(folder / "confidential" / row["release"] / file) == digest
    draws = Counter(tuple(line.split()) for line in (folder / "draws").read_text().splitlines())
    for revision in range(1, races + 1):
        key = str(ReleaseKey("commuters", "2001-06", revision))
        for step in PLAN.steps:
            charged = kinds["RESERVED", key, step.level]
            begun = kinds["DRAWING", key, step.level]
            assert kinds["MEASURED", key, step.level] == 1
            assert draws[key, str(step.level)] <= begun <= charged, (key, step.level)
            assert begun == charged  # none is charged that was not begun
    counted = {kind: sum(n for (each, *_), n in kinds.items() if each == kind) for kind in ("RESERVED", "DRAWING")}
    levels = races * len(PLAN.steps)
    return {"races": races, "draws": sum(draws.values()), "charges": counted["RESERVED"], "levels": levels}


def main(folder: Path, races: int, locked: bool) -> None:
    (folder / "draws").touch()
    ledger_at(folder / "ledger.sqlite").declare(domain(races))
    for revision in range(1, races + 1):
        race(folder, ReleaseKey("commuters", "2001-06", revision), locked, kills=revision % 2 == 0)
    print(json.dumps(check(folder, races)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "locked")
