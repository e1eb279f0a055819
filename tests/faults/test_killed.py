"""A release killed at every point of a draw: charged for what may have been drawn, and never drawn twice for it."""

from __future__ import annotations

import signal
from fractions import Fraction

import pytest

from od_core import OdError
from od_core.noise.opendp import OpenDPNoise
from tests.faults.account import LEVELS, assert_account, assert_resumed, drawn, measurement_files
from tests.faults.worker import LEVEL_RHO, POINTS, R1, RHO, declare, released, side_file, watched
from tests.od_core.ledger.ledger_rows import charged, ledger_at, rows, states

pytestmark = pytest.mark.usefixtures("engine")

LOST = {"before the head": 0, "after DRAWING": 0, "during the draw": 1, "while writing": 1, "before the rename": 1}
"""Points at which a draw is lost, and whether bits were asked for by then."""


@pytest.mark.parametrize(
    ("level", "point"), [*((3, point) for point in POINTS), (1, "during the draw"), (4, "after the rename")]
)
def test_a_release_killed_at_a_draw_is_resumed(tmp_path, started, monkeypatch, level, point):
    declare(tmp_path, Fraction(1))
    process = started("worker", "die", tmp_path, level, point)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL, errors
    path = tmp_path / "ledger.sqlite"
    reached = {"before DRAWING": "RESERVED", "after MEASURED": "MEASURED"}.get(point, "DRAWING")
    expected = {k: "MEASURED" if k < level else reached if k == level else "RESERVED" for k in LEVELS}
    assert states(path, R1) == expected
    whole = point in ("after the rename", "after MEASURED")
    assert len(measurement_files(tmp_path)) == level - 1 + whole
    assert drawn(tmp_path)[level] == LOST.get(point, int(whole))
    assert charged(path) == RHO
    assert_account(tmp_path)
    assert_resumed(tmp_path, monkeypatch, lost=int(point in LOST))


def test_a_lost_draw_that_the_cap_does_not_allow_again_stays_lost(tmp_path, started, monkeypatch):
    """Nothing is drawn, charged or lost by trying; a cap raised with a reason lets the release go on."""
    ledger = declare(tmp_path, RHO)
    started("worker", "die", tmp_path, 2, "during the draw").communicate(timeout=300)
    monkeypatch.setattr(OpenDPNoise, "draw", watched(side_file(tmp_path)))
    before, files, draws = rows(ledger.path), measurement_files(tmp_path), drawn(tmp_path)
    for _ in range(2):
        with pytest.raises(OdError, match="OD-LEDGER-CAP: drawing a lost level again") as refused:
            released(ledger_at(ledger.path))
        assert "0 remains" in str(refused.value)
        assert (rows(ledger.path), measurement_files(tmp_path), drawn(tmp_path)) == (before, files, draws)
    declare(tmp_path, RHO + LEVEL_RHO, "one draw more after a power cut")
    assert_resumed(tmp_path, monkeypatch, lost=1)
