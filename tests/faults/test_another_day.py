"""A stopped release resumed on another day, and under a clock that was set back."""

import datetime
import signal
from fractions import Fraction

import pytest

from od_core import open_release
from tests.faults.account import assert_account, drawn, measurement_files
from tests.faults.publisher import KEY
from tests.faults.worker import LEVEL_RHO, RHO, declare
from tests.od_core.ledger.ledger_rows import charged, ledger_at, rows


def ended(process) -> str:
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output


def published_files(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "releases/r1").rglob("*.*")}


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("days", [400, -400])
def test_a_release_is_resumed_whatever_the_clock_says(tmp_path, started, days):
    """What is measured is kept, the lost draw is charged, and a replay on a third day gives the same bytes."""
    ledger = declare(tmp_path, Fraction(1))
    process = started("worker", "die", tmp_path, 3, "during the draw")
    process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    history, kept = rows(ledger.path), measurement_files(tmp_path)
    assert len(kept) == 2

    ended(started("another_day", days, "publisher", tmp_path))
    assert rows(ledger.path)[: len(history)] == history
    assert measurement_files(tmp_path).items() >= kept.items()
    assert charged(ledger.path) == RHO + LEVEL_RHO
    assert_account(tmp_path)
    resumed = datetime.datetime.fromisoformat(rows(ledger.path)[-1]["at"])
    stopped = datetime.datetime.fromisoformat(history[-1]["at"])
    assert abs((resumed - stopped).total_seconds() - 86_400 * days) < 3_600
    assert open_release(tmp_path / "releases/r1").spent.rho == RHO + LEVEL_RHO

    public, entries, draws = published_files(tmp_path), rows(ledger.path), drawn(tmp_path)
    ended(started("another_day", -days, "publisher", tmp_path))
    assert (published_files(tmp_path), rows(ledger.path), drawn(tmp_path)) == (public, entries, draws)
    assert ledger_at(ledger.path).is_published(KEY)
