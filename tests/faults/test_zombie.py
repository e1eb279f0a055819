"""A task that was taken for dead wakes up after its part was drawn again: one file, and the loser reads it back."""

import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.parted_release import run_in_parts
from od_core.flows.bands import Bands
from od_core.flows.estimation.levels import make_published_root
from od_core.flows.measuring import measure_levels
from od_core.flows.mechanisms import InfTDARefined
from od_core.flows.parts import Threads, Work, charge_rounds, read_claimed_rounds, read_first_band_counts
from od_core.geography.flow_tree import Nodes
from od_core.ledger.object_store import LocalStore, compute_part_digest, name_part_file
from od_core.noise.backends import resolve_noise_source
from od_core.records.counts import CountFiles
from tests.faults.zombie import StoppingStore
from tests.od_core.flows.parts.passes import begun, counted, kept_counts, plan_of, small_italy
from tests.od_core.ledger.ledger_rows import charged

ROOT = Path(__file__).parents[2]
LEVEL, PART = 5, 1


@pytest.mark.usefixtures("engine")
def test_a_late_commit_loses_and_uses_what_is_kept(tmp_path):
    flows = small_italy()
    plan = plan_of(flows, Bands((4,), 6_000), mechanism=InfTDARefined(keep_all_cap=0))
    store = LocalStore(tmp_path / "store")
    counts, file = kept_counts(store, counted(plan, flows)), name_part_file(LEVEL, PART)
    noise = resolve_noise_source("table")

    # The first run: its first band is measured, the rounds are charged, and one task gets no further than its draw.
    measurements, steps = begun(tmp_path, plan, counts), plan.step_bands[0]
    root = make_published_root(plan, counts.total)
    _, frontier = measure_levels(plan, steps, root, read_first_band_counts(plan, counts), noise, measurements)
    rounds = charge_rounds(measurements.ledger, measurements.key, plan.step_bands[1], store, "table")
    work = Work.begin_attempt(plan, store, counts.folder, noise)
    nodes = plan.bands.split_into_parts(frontier)[PART]
    own = Nodes(frontier.level, frontier.origin[nodes], frontier.destination[nodes], frontier.trips[nodes])
    work.save_nodes("frontier", {"band": 1, "part": PART}, [own])
    stopping = replace(work, store=StoppingStore(store.folder, file))
    task = tmp_path / "task"
    task.write_bytes(pickle.dumps((stopping, {"band": 1, "part": PART, "rounds": rounds}, file)))
    command = [sys.executable, "-m", "tests.faults.zombie", str(task)]
    zombie = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        wait_until_stopped(zombie.pid)
        assert not store.has(file)
        assert read_claimed_rounds(store, LEVEL) == {PART: 1}

        # The second run takes it for dead, and draws the part in another round.
        run_in_parts(plan, CountFiles(store, counts.folder), noise, begun(tmp_path, plan, counts), Threads())
        kept = compute_part_digest(store, file)
        assert read_claimed_rounds(store, LEVEL)[PART] == 2
        assert charged(tmp_path / "ledger.sqlite") == plan.spent.rho + plan.step(LEVEL).rho
        zombie.send_signal(signal.SIGCONT)
        said, _ = zombie.communicate(timeout=300)
    finally:
        zombie.kill()
        zombie.wait()
    assert said.splitlines() == ["lost the race", kept]
    assert compute_part_digest(store, file) == kept


def wait_until_stopped(process: int) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "T":
            return
        time.sleep(0.05)
    raise AssertionError("the task did not reach its draw")
