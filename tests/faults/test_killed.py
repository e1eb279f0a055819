"""A release killed at every point of a draw: charged for what may have been drawn, and never drawn twice for it."""

from __future__ import annotations

import signal
from collections import Counter
from fractions import Fraction

import pandas as pd
import pytest

from od_core import OdError
from od_core.archive.files import file_digest
from od_core.archive.ledger import Ledger
from od_core.privacy.opendp_noise import OpenDPNoise
from tests.faults.worker import LEVEL_RHO, POINTS, R1, RHO, declare, released, side_file, watched
from tests.od_core.archive.ledger_rows import assert_chain, charged, reservations, rows, states

LOST = {"before the head": 0, "after DRAWING": 0, "during the draw": 1, "while writing": 1, "before the rename": 1}
"""Points at which a draw is lost, and whether bits were asked for by then."""

LEVELS = (1, 2, 3, 4)


def drawn(folder, release_id=R1) -> Counter:
    """How often each level asked for random bits, in all processes."""
    side = side_file(folder, release_id)
    return Counter(map(int, side.read_text().split())) if side.exists() else Counter()


def measurement_files(folder, release_id=R1) -> dict[str, str]:
    place = folder / "confidential" / release_id
    return (
        {path.name: file_digest(path) for path in place.glob("noisy_measurement_*.parquet")} if place.exists() else {}
    )


def charges(folder, level, release_id=R1) -> int:
    return len(reservations(folder / "ledger.sqlite", level=level, release=release_id))


def assert_account(folder, release_id=R1) -> None:
    """No more draws than charges at any level; every measured level has the file that the ledger vouches for."""
    path, files = folder / "ledger.sqlite", measurement_files(folder, release_id)
    assert_chain(path)
    for level in LEVELS:
        assert drawn(folder, release_id)[level] <= charges(folder, level, release_id)
    measured = [row for row in rows(path) if row["kind"] == "MEASURED" and row["release"] == release_id]
    assert len({row["level"] for row in measured}) == len(measured)
    for row in measured:
        assert files[f"noisy_measurement_{row['level']}.draw_{row['draw']}.parquet"] in row["content"]


def assert_resumed(folder, monkeypatch, *, lost: int, release_id=R1) -> None:
    """The release comes to its end, charged for the plan and the lost draws, and is the same ever after."""
    monkeypatch.setattr(OpenDPNoise, "draw", watched(side_file(folder, release_id)))
    before, kept, path = drawn(folder, release_id), measurement_files(folder, release_id), folder / "ledger.sqlite"
    release = released(Ledger(path), release_id)
    assert release.spent.rho == charged(path, release=release_id) == RHO + lost * LEVEL_RHO
    assert set(states(path, release_id).values()) == {"MEASURED"}
    assert measurement_files(folder, release_id).items() >= kept.items()
    for level in LEVELS:
        has_file = any(name.startswith(f"noisy_measurement_{level}.") for name in kept)
        assert drawn(folder, release_id)[level] - before[level] == (0 if has_file else 1)
    assert_account(folder, release_id)
    draws, history = drawn(folder, release_id), rows(path)
    again = released(Ledger(path), release_id)
    pd.testing.assert_frame_equal(again.measurements, release.measurements)
    pd.testing.assert_frame_equal(again.flows, release.flows)
    assert (drawn(folder, release_id), rows(path)) == (draws, history)


@pytest.mark.parametrize(
    ("level", "point"), [*((3, point) for point in POINTS), (1, "during the draw"), (4, "after the rename")]
)
def test_a_release_killed_at_a_draw_is_resumed(tmp_path, started, monkeypatch, level, point):
    declare(tmp_path, Fraction(1))
    process = started("worker", "die", tmp_path, level, point)
    _, errors = process.communicate(timeout=60)
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
    started("worker", "die", tmp_path, 2, "during the draw").communicate(timeout=60)
    monkeypatch.setattr(OpenDPNoise, "draw", watched(side_file(tmp_path)))
    before, files, draws = rows(ledger.path), measurement_files(tmp_path), drawn(tmp_path)
    for _ in range(2):
        with pytest.raises(OdError, match="OD-LEDGER-CAP: drawing a lost level again") as refused:
            released(Ledger(ledger.path))
        assert "0 is left" in str(refused.value)
        assert (rows(ledger.path), measurement_files(tmp_path), drawn(tmp_path)) == (before, files, draws)
    declare(tmp_path, RHO + LEVEL_RHO, "one draw more after a power cut")
    assert_resumed(tmp_path, monkeypatch, lost=1)


def test_a_storm_of_kills_never_draws_for_nothing(tmp_path, started, monkeypatch):
    """Killed at random times, many times over: no draw without its charge, nothing measured lost."""
    declare(tmp_path, Fraction(100))
    output, errors = started("worker", "storm", tmp_path, 40, 7).communicate(timeout=120)
    assert output.split().count("killed") >= 10, errors
    path = tmp_path / "ledger.sqlite"
    releases = {row["release"] for row in rows(path) if row["kind"] == "DRAWING"}
    assert len(releases) >= 2
    for release_id in releases:
        assert_account(tmp_path, release_id)
        files = measurement_files(tmp_path, release_id)
        lost = 0
        for level, state in states(path, release_id).items():
            draws = charges(tmp_path, level, release_id)
            adopted = f"noisy_measurement_{level}.draw_{draws}.parquet" in files
            lost += draws - 1 + (state == "DRAWING" and not adopted)
        assert_resumed(tmp_path, monkeypatch, lost=lost, release_id=release_id)
