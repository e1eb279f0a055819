"""Releases that are measured and published, killed after random times, and begun again."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

from od_core import release_flows
from od_core.ledger.release_key import ReleaseKey
from od_core.noise.opendp import OpenDPNoise
from tests.faults.publisher import publish
from tests.faults.worker import BUDGET, side_file, watched
from tests.od_core.doubles import no_noise
from tests.od_core.ledger.ledger_rows import FLOWS, GEOGRAPHY, TRIP


def storm(folder: Path, kills: int, seed: int) -> None:
    """Runs until so many were killed; once one comes to its end, the next revision is released."""
    release_flows(
        FLOWS, GEOGRAPHY, unit=TRIP, budget=BUDGET, noise=no_noise(), fault_threshold=0
    )  # compiles what the children share
    generator, revision, killed, usual = random.Random(seed), 1, 0, 0.0  # noqa: S311  # when to kill
    while killed < kills:
        key, begun = ReleaseKey("commuters", "2001-06", revision), time.monotonic()
        child = os.fork()
        if child == 0:
            OpenDPNoise.draw = watched(side_file(folder, str(key)), seconds=0.005)
            publish(folder, key=key)
            os._exit(0)
        if usual:
            time.sleep(generator.uniform(0.0, 1.1 * usual))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        usual = usual or time.monotonic() - begun
        killed += status != 0
        revision += status == 0
        print("ended" if status == 0 else "killed", flush=True)


if __name__ == "__main__":
    storm(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
