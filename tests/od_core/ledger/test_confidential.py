"""The confidential folder: who may read it, one key, and no value in an error that leaves it."""

import errno
import os
import pickle
import stat
import traceback
from pathlib import Path

import duckdb
import numpy as np
import pytest

from od_core import Ledger, OdError
from od_core.errors import STAYS_CHARGED
from od_core.files.durable import write_durably
from od_core.flows.staging import StagedRelease
from od_core.geography.flow_tree import Nodes
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.measurements import begin_release
from od_core.records.counting import count_trips
from od_core.records.counts import TripCounts, finish_count_files, write_count_files
from tests.od_core.ledger.ledger_rows import FLOWS, domain, small_plan

CANARY = "QX-CANARY-7731"


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def assert_closed(folder):
    """Everything in it, and itself, is for its owner alone."""
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in folder.rglob("*"):
        assert stat.S_IMODE(path.lstat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_the_ledger_is_read_by_all_and_written_by_its_owner_whatever_the_umask(tmp_path, umask):
    """With the files that SQLite makes beside it."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    with ledger.keep_open():
        ledger.declare(domain(1))
        assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.glob("ledger.sqlite*")} == {0o644}
        assert len(list(tmp_path.glob("ledger.sqlite*"))) == 3


def test_all_that_a_release_keeps_is_closed_whatever_the_umask(tmp_path, key, umask):
    """Folders 0700, files 0600, also where the folder was there before and open; no temporary file is left."""
    folder = tmp_path / "var" / "confidential"
    (folder / "commuters").mkdir(parents=True, mode=0o755)
    folder.chmod(0o777)
    confidential, ledger, plan = ConfidentialFolder(folder), Ledger(tmp_path / "ledger.sqlite"), small_plan()
    ledger.declare(domain(1))
    trips = count_trips(FLOWS, plan.tree)
    begin_release(confidential, ledger, key, "commuters", plan, trips).draw_once(plan.step(1), lambda: [np.arange(3)])
    staged = StagedRelease(confidential.make_subfolder(key.folder))
    save_counts(staged, trips)
    staged.save_estimate(0, [Nodes(0, np.zeros(1, np.int32), np.zeros(1, np.int32), np.array([348]))])
    with pytest.raises(OdError), confidential.keep_errors_confidential():
        raise ValueError(CANARY)
    assert len([path for path in folder.rglob("*") if path.is_file()]) == 9
    assert not list(folder.rglob("*.tmp"))
    assert_closed(folder)


def save_counts(staged: StagedRelease, trips: TripCounts) -> None:
    folder = staged.begin_trip_counts()
    files = write_count_files(staged.store, f"{folder}/", [(trips.rank, np.diff(trips.before))])
    staged.save_trip_counts(finish_count_files(staged.store, folder, files))


def test_staged_counts_and_estimates_come_back(tmp_path):
    staged, trips = StagedRelease(tmp_path), count_trips(FLOWS, small_plan().tree)
    for read in (staged.open_trip_counts, lambda: staged.read_estimate(2)):
        with pytest.raises(OdError, match="OD-STAGED-FILE-MISSING"):
            read()
    save_counts(staged, trips)
    np.testing.assert_array_equal(staged.open_trip_counts().read_all().rank, trips.rank)
    np.testing.assert_array_equal(staged.open_trip_counts().read_all().before, trips.before)
    nodes = Nodes(2, np.array([0, 1], np.int32), np.array([1, 0], np.int32), np.array([2**53, 1]))
    staged.save_estimate(2, [nodes])
    back = staged.read_estimate(2)
    assert back.level == 2
    for name in ("origin", "destination", "trips"):
        assert getattr(back, name).dtype == getattr(nodes, name).dtype
        np.testing.assert_array_equal(getattr(back, name), getattr(nodes, name))


def test_the_key_is_made_once_and_names_fingerprints(tmp_path):
    """32 bytes that no other folder has; equal counts give equal fingerprints under one key alone."""
    one, other = ConfidentialFolder(tmp_path / "one"), ConfidentialFolder(tmp_path / "other")
    assert len(one.read_or_make_key()) == 32
    assert one.read_or_make_key() == ConfidentialFolder(tmp_path / "one").read_or_make_key() != other.read_or_make_key()
    assert one.compute_key_name() == ConfidentialFolder(tmp_path / "one").compute_key_name() != other.compute_key_name()
    assert one.read_or_make_key().hex()[:16] != one.compute_key_name()
    tree = small_plan().tree
    same, more = count_trips(FLOWS, tree), count_trips(FLOWS.assign(trips=[40, 7, 2, 300]), tree)
    again = count_trips(FLOWS[::-1], tree).iterate_column_pieces()
    assert one.compute_fingerprint(same.iterate_column_pieces()) == one.compute_fingerprint(again)
    both = ((one, same), (one, more), (other, same))
    prints = {folder.compute_fingerprint(trips.iterate_column_pieces()) for folder, trips in both}
    assert len(prints) == 3


def behind(error: BaseException, cause: BaseException | None = None) -> BaseException:
    """An error that was raised from another, or while another was handled, which quotes a record."""
    error.__cause__, error.__context__ = cause, cause or ValueError(CANARY)
    return error


def with_a_note(error: BaseException) -> BaseException:
    error.add_note(CANARY)
    return error


OF_OTHERS = {
    "plain": ValueError(CANARY),
    "in a chain": behind(KeyError(f"around {CANARY}"), ValueError(CANARY)),
    "in a group": ExceptionGroup("two", [ValueError(CANARY), ExceptionGroup("more", [KeyError(CANARY)])]),
    "with a note": with_a_note(RuntimeError("see the note")),
    "with half a character, of which UTF-8 has no form": ValueError(f"{CANARY} \udcff"),
    "from a database": duckdb.ConversionException(CANARY),
}
WITH_A_DETAIL = OdError("OD-TEST", "a public line", next_step="go on", confidential_detail=CANARY)


def all_that_is_shown(error: BaseException) -> str:
    """What a log, a notebook or another process may see of an error."""
    shown = [str(error), repr(error), "".join(traceback.format_exception(error)), repr(error.args)]
    return "\n".join(shown) + pickle.dumps(error).decode("latin-1")


def outside(folder: Path, error: BaseException) -> OdError:
    """What is raised of an error in a confidential folder."""
    confidential = ConfidentialFolder(folder / "confidential")
    with pytest.raises(OdError) as seen, confidential.keep_errors_confidential():
        raise error
    assert CANARY not in all_that_is_shown(seen.value)
    assert_closed(folder / "confidential")
    return seen.value


def detail_in(folder: Path) -> Path:
    """The only file of details, which has the text."""
    [detail] = (folder / "confidential" / "errors").iterdir()
    assert CANARY in detail.read_text(encoding="utf-8")
    return detail


@pytest.mark.parametrize("name", OF_OTHERS)
def test_the_text_of_any_error_stays_inside(tmp_path, name):
    """Outside: a code, what was spent, and the name of the file that holds the rest."""
    seen = outside(tmp_path, OF_OTHERS[name])
    assert (seen.code, seen.spent) == ("OD-CONFIDENTIAL-ERROR", STAYS_CHARGED)
    assert f"read {detail_in(tmp_path)}" in str(seen)


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        (OSError(errno.EIO, os.strerror(errno.EIO), CANARY), "OD-SYSTEM", "Input/output error"),
        (OSError(errno.ESTALE, os.strerror(errno.ESTALE), CANARY), "OD-SYSTEM", "Stale file handle"),
        (OSError(errno.EROFS, os.strerror(errno.EROFS), CANARY), "OD-SYSTEM", "Read-only file system"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), CANARY), "OD-DISK-WRITE", "is full"),
        (MemoryError(CANARY), "OD-SYSTEM-MEMORY", "the memory does not suffice"),
        (duckdb.OutOfMemoryException(f"Out of Memory Error: {CANARY}"), "OD-SYSTEM-MEMORY", "does not suffice"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_fault_of_the_machine_is_named(tmp_path, fault, code, words):
    """What happened, what is charged and what to do; the text stays inside all the same."""
    seen = outside(tmp_path, fault)
    assert (seen.code, seen.spent) == (code, STAYS_CHARGED)
    assert words in seen.message
    assert seen.next_step.endswith(f"; read {detail_in(tmp_path)}")


def test_an_error_of_this_library_leaves_without_its_detail(tmp_path):
    seen = outside(tmp_path, WITH_A_DETAIL)
    assert pickle.loads(pickle.dumps(seen)).confidential_detail is None  # noqa: S301  # its own bytes
    detail = detail_in(tmp_path)
    assert str(seen) == f"OD-TEST: a public line [nothing was spent; next: go on; read {detail}]"
    assert "a public line" in detail.read_text(encoding="utf-8")


@pytest.mark.parametrize("cause", [None, ValueError(CANARY)], ids=["while another is handled", "from another"])
def test_an_error_of_this_library_leaves_without_the_one_behind_it(tmp_path, cause):
    assert outside(tmp_path, behind(OdError("OD-TEST", "a public line", next_step="go on"), cause)).code == "OD-TEST"


@pytest.mark.parametrize("error", [OF_OTHERS["plain"], OF_OTHERS["from a database"], WITH_A_DETAIL])
def test_the_text_stays_inside_where_its_file_cannot_be_written(tmp_path, error):
    """As on a full disk: the error is then without its details, not without its walls."""
    confidential = ConfidentialFolder(tmp_path / "confidential")
    (tmp_path / "confidential" / "errors").write_text("in the way of the folder")
    with pytest.raises(Exception) as seen, confidential.keep_errors_confidential():  # noqa: PT011  # any text is looked at
        raise error
    assert CANARY not in all_that_is_shown(seen.value)
    assert isinstance(seen.value, OdError)


def test_a_file_is_whole_or_absent(tmp_path):
    """A write that fails leaves the old file, or none, and nothing beside it."""

    def half(path):
        path.write_bytes(b"new, but not wh")
        raise OSError(28, "No space left on device")

    for old in (None, b"old"):
        path = tmp_path / "file"
        if old is not None:
            path.write_bytes(old)
        with pytest.raises(OSError, match="No space"):
            write_durably(path, half)
        left = {found.name: found.read_bytes() for found in tmp_path.iterdir()}
        assert left == ({} if old is None else {"file": old})
    write_durably(tmp_path / "file", lambda path: path.write_bytes(b"new"), mode=0o640)
    assert {found.name: found.read_bytes() for found in tmp_path.iterdir()} == {"file": b"new"}
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_a_file_of_details_is_named_by_its_full_path_where_the_folder_is_relative(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert outside(Path(), OF_OTHERS["plain"]).next_step.startswith(f"read {detail_in(tmp_path)}, ")
