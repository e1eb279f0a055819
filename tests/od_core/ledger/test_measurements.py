"""Each level is drawn once, kept, and never taken from a file that the ledger does not vouch for."""

import os
import shutil
import signal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from od_core import Ledger, OdError, ReleaseKey
from od_core.ledger.measurements import Charged, DurableMeasurements, MemoryMeasurements, begin_release
from od_core.records.counting import count_trips
from tests.od_core.files.disks import keep_other_bytes
from tests.od_core.ledger import ledger_rows
from tests.od_core.ledger.ledger_rows import FLOWS, charged, domain, ledger_at, rows, saved, small_plan, states
from tests.postgres import POINTER, server_of

pytestmark = [
    pytest.mark.usefixtures("engine"),
    pytest.mark.representatives("*sqlite*", "test_a_level_is_drawn_once_and_read_ever_after"),
]

PLAN = small_plan()
TRIPS = count_trips(FLOWS, PLAN.tree)
VALUES = {1: np.array([0, 348], dtype=np.int64), 2: np.array([-(2**61), -1, 0, 1, 2**61], dtype=np.int64)}
VALUES |= {3: np.random.default_rng(5).integers(-(2**40), 2**40, 70_000), 4: np.empty(0, dtype=np.int64)}


class Drawer:
    """Hands out the values of a level and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def of(self, level: int):
        def draw():
            self.asked.append(level)
            return np.array_split(VALUES[level] + len(self.asked) - 1, 3)

        return draw


def begun(ledger: Ledger, key: ReleaseKey, *, trips=TRIPS, plan=PLAN):
    """The measurements as a new process finds them."""
    opened = ledger_at(ledger.path)
    return begin_release(Charged(opened, key).confidential, opened, key, "commuters", plan, trips)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_waits_until_the_draw_is_kept(ledger, key, number):
    """Of both signals, as whoever handles them then sees it; a second one does not wait."""
    seen = []

    def draw():
        signal.raise_signal(number)
        seen.append("drawn")
        return [VALUES[1]]

    def stop(received, _frame):
        seen.append(received)
        raise KeyboardInterrupt

    def stopped(level, *, again=False):
        def twice():
            values = draw()
            signal.raise_signal(number)
            return values

        with pytest.raises(KeyboardInterrupt):
            begun(ledger, key).draw_once(PLAN.steps[level - 1], twice if again else draw)

    before = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        stopped(1)
        assert seen == ["drawn", number]
        stopped(2, again=True)
        assert {signal.getsignal(each) for each in before} == {stop}
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert states(ledger.path, str(key)) == {1: "MEASURED", 2: "DRAWING", 3: "RESERVED", 4: "RESERVED"}


def test_names_that_a_killed_process_left_are_durable_before_they_count(ledger, key, monkeypatch):
    """It may have died between making a folder, or renaming a file, and syncing the folder that the name is in."""
    begun(ledger, key)
    parts = ledger.path.parent / "confidential" / key.folder / "parts"
    parts.mkdir()
    synced, fsync = set(), os.fsync

    def watched(file: int) -> None:
        synced.add(Path(f"/proc/self/fd/{file}").readlink())
        fsync(file)

    monkeypatch.setattr(os, "fsync", watched)
    begun(ledger, key)
    root = ledger.path.parent
    assert synced >= {root, *(path for path in parts.parents if root in path.parents), parts}


def refused(code: str, call) -> str:
    """Text of a refusal with this code."""
    with pytest.raises(OdError, match=f"{code}:") as error:
        call()
    return str(error.value)


def not_wanted():
    raise AssertionError("a value was drawn")


def file_of(ledger: Ledger, level: int, draw: int = 1):
    [folder] = (ledger.path.parent / "confidential").glob("commuters/2001-06/r1")
    return folder / f"noisy_measurement_{level}.draw_{draw}.parquet"


@pytest.mark.parametrize("level", VALUES)
def test_a_level_is_drawn_once_and_read_ever_after(ledger, key, level):
    """The same int64 values at every later run, by draw, by read and in the file's digest."""
    drawer, step = Drawer(), PLAN.step(level)
    for _ in range(4):
        measurements = begun(ledger, key)
        for noisy in (measurements.draw_once(step, drawer.of(level)), measurements.read(step)):
            assert noisy.read_values().dtype == np.int64
            np.testing.assert_array_equal(noisy.read_values(), VALUES[level])
    assert drawer.asked == [level]
    assert states(ledger.path, str(key)) == {n: "MEASURED" if n == level else "RESERVED" for n in VALUES}
    assert charged(ledger.path) == Fraction(3, 7)


def test_measurements_of_one_call_are_drawn_once_each():
    memory, drawer = MemoryMeasurements(), Drawer()
    for _ in range(3):
        for level in (1, 2):
            found = memory.draw_once(PLAN.step(level), drawer.of(level)).read_values()
            np.testing.assert_array_equal(found, VALUES[level] + level - 1)
    assert drawer.asked == [1, 2]


def test_only_a_measured_level_is_read(ledger, key):
    measurements = begun(ledger, key)
    refused("OD-MEASUREMENT-ABSENT", lambda: measurements.read(PLAN.step(1)))
    ledger.start_draw(key, 1)
    refused("OD-MEASUREMENT-ABSENT", lambda: measurements.read(PLAN.step(1)))


def test_a_changed_or_missing_file_is_never_drawn_anew(ledger, key):
    """Any one byte, a byte more or less, another level's file, or none: refused until the file is back."""
    measurements, drawer = begun(ledger, key), Drawer()
    for level in (1, 2):
        measurements.draw_once(PLAN.step(level), drawer.of(level))
    path, before = file_of(ledger, 2), rows(ledger.path)
    whole = path.read_bytes()
    places = {0, len(whole) // 2, len(whole) - 1, *np.random.default_rng(3).integers(len(whole), size=20).tolist()}
    changed = [whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :] for place in places]
    step = PLAN.step(2)
    for content in (*changed, whole + b"\0", whole[:-1], b"", file_of(ledger, 1).read_bytes()):
        path.write_bytes(content)
        for call in (lambda: begun(ledger, key).draw_once(step, not_wanted), lambda: measurements.read(step)):
            assert "level 2 of commuters/2001-06/r1 is changed" in refused("OD-MEASUREMENT-CHANGED", call)
    path.unlink()
    text = refused("OD-MEASUREMENT-CHANGED", lambda: begun(ledger, key).draw_once(PLAN.step(2), not_wanted))
    assert "is missing" in text
    assert path.name in text
    path.write_bytes(whole)
    np.testing.assert_array_equal(measurements.draw_once(PLAN.step(2), not_wanted).read_values(), VALUES[2] + 1)
    assert rows(ledger.path) == before


def test_a_draw_that_the_disk_did_not_keep_is_not_measured(ledger, key, monkeypatch):
    """The ledger's digest is of what was drawn, not of what a disk gives back; the draw is lost, and charged again."""
    measurements, drawer = begun(ledger, key), Drawer()
    with monkeypatch.context() as lying:
        keep_other_bytes(lying)
        refused("OD-DISK-DAMAGED", lambda: measurements.draw_once(PLAN.step(3), drawer.of(3)))
    assert states(ledger.path, str(key))[3] == "DRAWING"
    assert not file_of(ledger, 3).exists()
    np.testing.assert_array_equal(begun(ledger, key).draw_once(PLAN.step(3), drawer.of(3)).read_values(), VALUES[3] + 1)


def test_a_draw_that_fails_is_charged_when_it_is_drawn_again(ledger, key):
    """The first bit may have been asked for; the new draw is kept under its own number."""
    with pytest.raises(AssertionError, match="was drawn"):
        begun(ledger, key).draw_once(PLAN.step(3), not_wanted)
    drawer = Drawer()
    for _ in range(2):
        np.testing.assert_array_equal(begun(ledger, key).draw_once(PLAN.step(3), drawer.of(3)).read_values(), VALUES[3])
    assert drawer.asked == [3]
    assert [row["draw"] for row in ledger_rows.reservations(ledger.path, level=3)] == [1, 2]
    assert charged(ledger.path) == Fraction(3, 7) + Fraction(3, 7) * Fraction(3, 10)
    assert file_of(ledger, 3, draw=2).exists()
    assert not file_of(ledger, 3).exists()


@pytest.mark.parametrize(
    ("lost", "backup"),
    [(0, "none"), (0, "empty"), (0, "declared"), (0, "reserved"), (1, "none"), (1, "reserved"), (1, 1), (2, 1), (2, 2)],
)
def test_a_ledger_older_than_a_measurement_is_rolled_back(ledger, key, lost, backup):
    """A level measured after some lost draws, then a ledger from before: the file is not drawn again, nor lost."""
    copies = {"none": None, "empty": b"", "declared": saved(ledger.path)}
    measurements, drawer = begun(ledger, key), Drawer()
    copies["reserved"] = saved(ledger.path)
    for draw in range(1, lost + 1):
        assert ledger.start_draw(key, 1) == draw
        copies[draw] = saved(ledger.path)
    measurements.draw_once(PLAN.step(1), drawer.of(1))
    files = {path: path.read_bytes() for path in file_of(ledger, 1).parent.glob("*.parquet")}
    assert list(files) == [file_of(ledger, 1, draw=lost + 1)]

    ledger_rows.put_back(ledger.path, copies[backup])

    def reopened():
        older = ledger_at(ledger.path)
        if backup in ("none", "empty"):
            older.declare(domain(1))
        begun(older, key).draw_once(PLAN.step(1), not_wanted)

    refused("OD-LEDGER-ROLLED-BACK", reopened)
    head = ledger.path.parent / "confidential" / "ledger.head"
    head.unlink()
    refused("OD-LEDGER-ROLLED-BACK" if backup in ("none", "empty", "declared") else "OD-LEDGER-HEAD", reopened)
    newest = rows(ledger.path)[-1]
    head.write_text(f"{newest['number']:012d} {newest['hash']}", encoding="utf-8")
    refused("OD-LEDGER-ROLLED-BACK", reopened)  # the measurement itself tells
    assert {path: path.read_bytes() for path in file_of(ledger, 1).parent.glob("*.parquet")} == files


def test_a_release_is_held_to_its_input_and_key(ledger, key):
    """Other records, another key or a lost fingerprint stop a begun release; put back, it goes on."""
    drawer = Drawer()
    begun(ledger, key).draw_once(PLAN.step(1), drawer.of(1))
    before, folder = rows(ledger.path), ledger.path.parent / "confidential"
    one_more = count_trips(FLOWS.assign(trips=[41, 7, 1, 300]), PLAN.tree)
    moved = count_trips(FLOWS.assign(destination=["bb", "ab", "aa", "bb"]), PLAN.tree)
    for other in (one_more, moved, count_trips(FLOWS[:0], PLAN.tree)):
        text = refused("OD-REPLAY-INPUT-CHANGED", lambda other=other: begun(ledger, key, trips=other))
        assert "revision" in text
    begun(ledger, key, trips=count_trips(FLOWS[::-1], PLAN.tree))

    identity, hmac_key = folder / "commuters/2001-06/r1/identity.json", folder / "hmac.key"
    kept = identity.read_bytes(), hmac_key.read_bytes()
    identity.unlink()
    refused("OD-IDENTITY-MISSING", lambda: begun(ledger, key))
    assert not identity.exists()
    identity.write_bytes(kept[0])
    hmac_key.unlink()
    refused("OD-KEY-LOST", lambda: begun(ledger, key))
    hmac_key.write_bytes(bytes(32))
    assert "keep confidential/hmac.key" in refused("OD-KEY-LOST", lambda: begun(ledger, key))
    kept_values = DurableMeasurements(identity.parent, ledger, key).read(PLAN.step(1))
    np.testing.assert_array_equal(kept_values.read_values(), VALUES[1])
    hmac_key.write_bytes(kept[1])
    np.testing.assert_array_equal(begun(ledger, key).draw_once(PLAN.step(1), not_wanted).read_values(), VALUES[1])
    assert rows(ledger.path) == before


@pytest.mark.parametrize("replaced", [None, b"", bytes(31), bytes(33)], ids=["missing", "empty", "cut", "longer"])
@pytest.mark.parametrize("lost", ["key", "key and fingerprints"])
def test_a_lost_key_is_not_replaced_and_nothing_is_charged(ledger, key, replaced, lost):
    """Not for another period either: with two keys, the releases of both could never be repaired together."""
    begun(ledger, key).draw_once(PLAN.step(1), Drawer().of(1))
    before, folder = rows(ledger.path), ledger.path.parent / "confidential"
    path, other = folder / "hmac.key", ReleaseKey("commuters", "2001-07")
    kept = path.read_bytes()
    path.unlink() if replaced is None else path.write_bytes(replaced)
    if lost == "key and fingerprints" and server_of(ledger.path) is None:  # only the ledger knows of the release
        (folder / "commuters/2001-06/r1/identity.json").unlink()
    assert "from a backup" in refused("OD-KEY-LOST", lambda: begun(ledger, other))
    assert rows(ledger.path) == before
    assert (path.read_bytes() if path.exists() else None) == replaced
    path.write_bytes(kept)
    begun(ledger, other)


def test_a_folder_without_releases_makes_its_own_key(ledger, key, tmp_path):
    """Also one that joins a ledger in which other folders have releases, and one whose first release was refused."""
    begun(ledger, key).draw_once(PLAN.step(1), Drawer().of(1))
    if server_of(ledger.path):
        joined = tmp_path / "joined"
        (joined / "confidential").mkdir(parents=True)
        for name in ("confidential/ledger.head", POINTER):
            shutil.copy(ledger.path.parent / name, joined / name)
        begun(ledger_at(joined / "ledger.sqlite"), ReleaseKey("commuters", "2001-07"))
        assert len({(folder / "confidential/hmac.key").read_bytes() for folder in (joined, ledger.path.parent)}) == 2
    else:
        first = Ledger(tmp_path / "first" / "ledger.sqlite")
        first.declare(domain("1/100"))
        refused("OD-LEDGER-CAP", lambda: begun(first, key))
        first.declare(domain(1, "room for one"))
        begun(first, key)


def test_before_the_first_draw_input_and_fingerprint_may_change(ledger, key):
    """What is drawn from is what the release is held to; a draw that was begun holds it."""
    begun(ledger, key)
    identity = ledger.path.parent / "confidential/commuters/2001-06/r1/identity.json"
    content = identity.read_bytes()
    identity.unlink()
    begun(ledger, key, trips=count_trips(FLOWS[:2], PLAN.tree))
    assert identity.read_bytes() != content
    begun(ledger, key)
    assert identity.read_bytes() == content
    ledger.start_draw(key, 1)
    refused("OD-REPLAY-INPUT-CHANGED", lambda: begun(ledger, key, trips=count_trips(FLOWS[:2], PLAN.tree)))
    for damaged in (b"", content[:-9]):
        identity.write_bytes(damaged)
        with pytest.raises(OdError):
            begun(ledger, key)
        assert identity.read_bytes() == damaged
    identity.unlink()
    refused("OD-IDENTITY-MISSING", lambda: begun(ledger, key))


def test_what_the_cap_refuses_leaves_nothing_behind(ledger, key):
    refused("OD-LEDGER-CAP", lambda: begun(ledger, key, plan=small_plan(2)))
    assert not list((ledger.path.parent / "confidential").rglob("identity.json"))
