"""A release killed at every point of a draw: charged for what may have been drawn, and never drawn twice for it."""

import signal
from fractions import Fraction

import pyarrow.parquet as pq
import pytest

from od_core import OdError
from od_core.noise.opendp import OpenDPNoise
from tests.faults import worker
from tests.faults.account import assert_account, assert_resumed, drawn, measurement_files
from tests.od_core.ledger.ledger_rows import charged, ledger_at, rows, states

pytestmark = pytest.mark.usefixtures("engine")

LOST = {"before the head": 0, "after DRAWING": 0, "during the draw": 1, "while writing": 1, "before the rename": 1}
"""Points at which a draw is lost, and whether bits were asked for by then."""


KILLED = [
    *((worker.R1, 3, point) for point in worker.POINTS),
    (worker.R1, 1, "during the draw"),
    (worker.R1, 4, "after the rename"),
    (worker.BY_SEGMENT, 5, "during the draw"),  # the first query of all: the root by the first breakdown
    (worker.BY_SEGMENT, 8, "while writing"),
    (worker.BY_SEGMENT, 14, "after the rename"),  # the last
    (worker.BY_YEAR, 0, "during the draw"),
    (worker.BY_YEAR, 4, "after the rename"),
]
"""Releases, numbers of steps and points. By segment, the noise of one category is drawn, and of the others not yet."""


@pytest.mark.parametrize(("release_id", "step", "point"), KILLED)
def test_a_release_killed_at_a_draw_is_resumed(tmp_path, started, monkeypatch, release_id, step, point):
    """Only the draw that was lost is charged again, which by segment is one of several of its level."""
    worker.declare(tmp_path, Fraction(1))
    process = started("worker", "die", tmp_path, step, point, release_id)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL, errors
    path, order = tmp_path / "ledger.sqlite", list(worker.charges_of(release_id))
    reached = {"before DRAWING": "RESERVED", "after MEASURED": "MEASURED"}.get(point, "DRAWING")
    done = order.index(step)
    expected = dict.fromkeys(order[:done], "MEASURED") | {step: reached} | dict.fromkeys(order[done + 1 :], "RESERVED")
    assert states(path, release_id) == expected
    whole = point in ("after the rename", "after MEASURED")
    assert len(measurement_files(tmp_path, release_id)) == done + whole
    assert drawn(tmp_path, release_id)[step] == LOST.get(point, int(whole))
    assert charged(path) == worker.RHO
    assert_account(tmp_path, release_id)
    assert_resumed(tmp_path, monkeypatch, lost=[step] if point in LOST else [], release_id=release_id)


@pytest.mark.parametrize(("release_id", "step"), [(worker.R1, 2), (worker.BY_SEGMENT, 7)])
def test_a_lost_draw_that_the_cap_does_not_allow_again_stays_lost(tmp_path, started, monkeypatch, release_id, step):
    """Nothing is drawn, charged or lost by trying; a cap raised with a reason lets the release go on."""
    ledger = worker.declare(tmp_path, worker.RHO)
    started("worker", "die", tmp_path, step, "during the draw", release_id).communicate(timeout=300)
    monkeypatch.setattr(OpenDPNoise, "draw", worker.watched(worker.side_file(tmp_path, release_id)))

    def account():
        return rows(ledger.path), measurement_files(tmp_path, release_id), drawn(tmp_path, release_id)

    before = account()
    for _ in range(2):
        with pytest.raises(OdError, match="OD-LEDGER-CAP: drawing a lost level again") as refused:
            worker.released(ledger_at(ledger.path), release_id)
        assert "0 remains" in str(refused.value)
        assert account() == before
    worker.declare(tmp_path, worker.RHO + worker.charges_of(release_id)[step], "one draw more after a power cut")
    assert_resumed(tmp_path, monkeypatch, lost=[step], release_id=release_id)


@pytest.mark.parametrize("point", worker.COUNTING)
def test_users_of_a_year_whose_counting_is_killed_are_counted_again(tmp_path, started, monkeypatch, point):
    """Nothing was reserved or drawn; the next month has what is left of the year, whatever the killed count left."""
    worker.declare(tmp_path, Fraction(1))
    process = started("worker", "die", tmp_path, 0, point, worker.BY_YEAR)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL, errors
    path = tmp_path / "ledger.sqlite"
    assert (states(path, worker.BY_YEAR), charged(path), drawn(tmp_path, worker.BY_YEAR)) == ({}, 0, {})
    assert not [file for file in tmp_path.rglob("*.parquet") if file.stat().st_mode & 0o077]
    assert_resumed(tmp_path, monkeypatch, release_id=worker.BY_YEAR)
    later = worker.released(ledger_at(path), "people/2001-07/r1")
    counted = [
        sum(pq.read_table(file)["counted"].to_pylist())
        for file in sorted((tmp_path / "confidential" / "user-counters").rglob("*.parquet"))
    ]
    assert counted == [180, 90]
    assert later.spent.rho == worker.RHO
