"""Processes that race for releases: no level is drawn twice under one charge, and none is lost without a charge."""

import json
import os

import pytest

RACES = int(os.environ.get("OD_RACES", "25"))
"""Races of each kind; ``OD_RACES=1000 pytest tests/faults/test_races.py`` is the long trial, of 6 minutes."""


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("lock", ["locked", "unlocked"])
def test_races_keep_the_account(engine, tmp_path, started, lock):
    """With the lock of releases, and without it: as if a host had lost its session, the ledger alone decides."""
    process = started("races", tmp_path, RACES, lock)
    output, errors = process.communicate(timeout=3_600)
    assert process.returncode == 0, output + errors
    *_, last = output.splitlines()
    found = json.loads(last)
    assert found["races"] == RACES
    assert found["levels"] <= found["draws"] <= found["charges"]
    assert found["charges"] > found["levels"], "nobody was killed in mid-draw, so the trial shows nothing"
    print(found, "refused:", output.count("refused"))
