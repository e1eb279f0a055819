"""Two runs at once: of one draw, of one new folder. ``test_races.py`` has those of one release."""

import contextlib
import threading
from fractions import Fraction

import numpy as np
import pytest

from od_core import OdError
from od_core.files.durable import compute_file_digest
from od_core.ledger.confidential import ConfidentialFolder, lock_folder
from tests.faults.full_disk import KEY, PLAN, begun
from tests.faults.worker import R1
from tests.od_core.ledger.ledger_rows import charged, domain, ledger_at


def test_a_run_that_does_not_end_is_waited_for_and_then_named(tmp_path):
    """The lock goes with its holder; until then nobody else is let in."""
    with lock_folder(tmp_path):
        with pytest.raises(OdError) as refused, lock_folder(tmp_path, seconds=0.3):
            pytest.fail("two were let in")
        assert refused.value.code == "OD-RELEASE-LOCKED"
    with lock_folder(tmp_path, seconds=0.0):
        pass


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("first_to_end", ["older", "newer"])
def test_a_draw_that_another_has_overtaken_is_not_taken_for_it(tmp_path, first_to_end):
    """The ledger vouches for no file but that of the draw that it names; whatever ends first, one value stands."""
    ledger = ledger_at(tmp_path / "ledger.sqlite")
    ledger.declare(domain(1))
    step, newer_draws, older_ends, newer_ends = PLAN.step(1), *(threading.Event() for _ in range(3))

    def older_draw():
        newer.start()
        newer_draws.wait(10)
        if first_to_end == "newer":
            newer_ends.wait(10)
        return [np.array([1, 1])]

    def newer_draw():
        newer_draws.set()
        if first_to_end == "older":
            older_ends.wait(10)
        return [np.array([2, 2])]

    def run_newer():
        with contextlib.suppress(OdError):
            begun(tmp_path, ledger_at(ledger.path)).draw_once(step, newer_draw)
        newer_ends.set()

    newer = threading.Thread(target=run_newer)
    older = begun(tmp_path, ledger)
    with contextlib.suppress(OdError):
        older.draw_once(step, older_draw)
    older_ends.set()
    newer.join(20)

    def not_wanted():
        raise AssertionError("a value was drawn")

    values = begun(tmp_path, ledger_at(ledger.path)).draw_once(step, not_wanted).read_values().tolist()
    assert values in ([1, 1], [2, 2])
    state = ledger.find_level_state(KEY, 1)
    path = tmp_path / "confidential" / R1 / f"noisy_measurement_1.draw_{state.draw}.parquet"
    assert compute_file_digest(path) == state.digest
    assert values == [state.draw] * 2
    assert charged(ledger.path, level=1) == 2 * Fraction(3, 70)


@pytest.mark.parametrize("when", ["while it is written", "before it is written", "without its folder"])
def test_a_live_draw_without_a_lock_ends_in_an_error_without_a_path(tmp_path, when):
    """On a file system without locks, a second run removes the temporary file of the first, which still draws."""
    ledger = ledger_at(tmp_path / "ledger.sqlite")
    ledger.declare(domain(1))
    step, folder = PLAN.step(1), tmp_path / "confidential" / R1

    def overtake():
        begun(tmp_path, ledger_at(ledger.path)).draw_once(step, lambda: [np.array([2, 2])])
        if when == "without its folder":
            folder.rename(tmp_path / "moved")

    def pieces():
        yield np.array([1])
        overtake()
        yield np.array([1])

    def draw():
        if when == "before it is written":
            overtake()
        return pieces() if when != "before it is written" else [np.array([1, 1])]

    with pytest.raises(OdError, match="OD-LEDGER-STATE:") as refused:
        begun(tmp_path, ledger).draw_once(step, draw)
    assert str(tmp_path) not in str(refused.value)
    assert "any budget reserved earlier stays charged" in str(refused.value)
    if when != "without its folder":
        values = begun(tmp_path, ledger_at(ledger.path)).draw_once(step, lambda: pytest.fail("a value was drawn"))
        assert values.read_values().tolist() == [2, 2]
    assert charged(ledger.path, level=1) == 2 * Fraction(3, 70)


def test_two_that_make_the_key_of_a_new_folder_have_one(tmp_path, started):
    """A fingerprint under a key that the other one replaced would be lost for ever."""
    processes = [started("worker", "key", tmp_path, name) for name in ("one", "two")]
    outcomes = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outcomes
    kept = ConfidentialFolder(tmp_path / "confidential").read_or_make_key().hex()
    assert [output.strip() for output, _ in outcomes] == [kept, kept]
