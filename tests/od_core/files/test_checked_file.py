"""Files that are written: what they hold is what was handed over, or an error tells; and new folders are durable."""

import hashlib
from contextlib import suppress

import pytest

from od_core import OdError
from od_core.files import durable as files
from od_core.files.durable import make_folder, replace_folder, write_checked
from od_core.ledger.confidential import lock_folder
from od_core.ledger.object_store import LocalStore
from tests.od_core.files.disks import keep_other_bytes, room_for, umask


def mode(path):
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o277])
def test_a_file_holds_what_was_handed_over(tmp_path, mask):
    with umask(mask):
        pieces = (b"one", memoryview(b" two"))
        written = write_checked(tmp_path / "file", lambda file: [file.write(piece) for piece in pieces], mode=0o644)
    assert (tmp_path / "file").read_bytes() == b"one two"
    assert (written.digest, written.size) == (hashlib.sha256(b"one two").hexdigest(), 7)
    assert mode(tmp_path / "file") == 0o644


def careless(file):
    """A library that loses errors, as HDF5 does when it closes a file."""
    for _ in range(10):
        with suppress(OSError):
            file.write(bytes(100))


def test_an_error_that_was_lost_on_the_way_is_raised(tmp_path):
    with pytest.raises(OSError, match="File too large"), room_for(550):
        write_checked(tmp_path / "file", careless, mode=0o644)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_keeps_other_bytes_is_found(tmp_path, monkeypatch):
    keep_other_bytes(monkeypatch)
    with pytest.raises(OdError, match="OD-DISK-DAMAGED"):
        write_checked(tmp_path / "file", lambda file: file.write(b"content"), mode=0o644)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_only_their_owner_may_write_into_new_folders(tmp_path, mask):
    """Whatever the umask; what was there before stays as it is."""
    above = mode(tmp_path)
    with umask(mask), lock_folder(tmp_path / "one" / "two"):
        assert mode(tmp_path / "one" / "two" / "release.lock") == 0o600
    assert [mode(path) for path in (tmp_path / "one", tmp_path / "one" / "two")] == [0o755, 0o755]
    assert mode(tmp_path) == above


def test_every_parent_of_a_new_folder_is_made_durable(tmp_path, monkeypatch):
    """After its new name stands in it; the first one that was there, too. A second time there is nothing to do."""
    synced = []
    monkeypatch.setattr(files, "sync", lambda path: synced.append((path, sorted(one.name for one in path.iterdir()))))
    (tmp_path / "there").mkdir()
    make_folder(tmp_path / "there" / "a" / "b" / "c")
    there = tmp_path / "there"
    assert synced == [(there, ["a"]), (there / "a", ["b"]), (there / "a" / "b", ["c"])]
    make_folder(tmp_path / "there" / "a" / "b" / "c")
    assert len(synced) == 3


def test_a_file_in_the_place_of_a_folder_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "file")


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_folder_takes_the_place_of_another(tmp_path, monkeypatch, exchanges):
    """Also on file systems that cannot let two folders change places."""
    if not exchanges:
        monkeypatch.setattr(files, "_try_exchange_folders", lambda *_: False)
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text(name)
    replace_folder(tmp_path / "old", tmp_path / "new", aside=tmp_path / "aside")
    found = {path.name: [file.name for file in path.iterdir()] for path in tmp_path.iterdir()}
    assert found == {"old": ["new"], "aside": ["old"]}


def test_a_folder_that_is_not_there_cannot_be_replaced(tmp_path):
    (tmp_path / "new").mkdir()
    with pytest.raises(FileNotFoundError):
        replace_folder(tmp_path / "old", tmp_path / "new", aside=tmp_path / "aside")
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_a_kept_file_is_what_was_given(tmp_path, monkeypatch):
    """Nothing is kept of one that the disk changed: what it measured could never be read back."""
    store = LocalStore(tmp_path / "store")
    keep_other_bytes(monkeypatch)
    with pytest.raises(OdError, match="OD-DISK-DAMAGED"):
        store.create_if_absent("parts/one", b"content")
    assert store.list("parts/") == []
