"""A store keeps each file once: the same contract for a folder and for an object store."""

import stat
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from od_core.errors import OdError
from od_core.ledger.object_store import FsspecStore, LocalStore, store_at


@pytest.fixture(params=["folder", "object store"])
def store(request, tmp_path):
    if request.param == "folder":
        return LocalStore(tmp_path / "store")
    return FsspecStore(f"memory://{uuid.uuid4().hex}")


def content(store, name: str) -> bytes:
    return store.read(name).read()


def test_the_first_content_stays(store):
    assert store.create_if_absent("a/one", b"first")
    assert not store.create_if_absent("a/one", b"second")
    assert content(store, "a/one") == b"first"


@pytest.mark.parametrize("durable", [True, False])
def test_nothing_temporary_stays_beside_a_file(tmp_path, durable):
    assert LocalStore(tmp_path).create_if_absent("a/one", b"first", durable=durable)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["one"]


@pytest.mark.parametrize("durable", [True, False])
def test_of_many_at_once_one_wins_and_its_content_is_kept(tmp_path, durable):
    store = LocalStore(tmp_path)  # fsspec's files in memory, a double, are not made for threads
    contents = [bytes([number]) * 10_000 for number in range(64)]
    with ThreadPoolExecutor(16) as threads:
        won = list(threads.map(lambda mine: store.create_if_absent("claim", mine, durable=durable), contents))
    assert sum(won) == 1
    assert content(store, "claim") == contents[won.index(True)]
    assert store.list("") == ["claim"]


def test_names_are_those_of_one_folder_that_begin_so(store):
    for name in ("claims/5.1", "claims/5.2", "claims/51.1", "claims/below/5.3", "other"):
        store.create_if_absent(name, b"x")
    assert store.list("claims/5.") == ["claims/5.1", "claims/5.2"]
    assert store.list("claims/") == ["claims/5.1", "claims/5.2", "claims/51.1"]
    assert store.list("nothing/") == []
    assert store.has("claims/below/5.3")
    assert not store.has("claims/5")


def test_what_is_absent_is_said(store):
    with pytest.raises(OdError, match="OD-STORE-MISSING: a/none"):
        store.read("a/none")


def test_a_folder_is_removed_and_nothing_else(store):
    store.create_if_absent("attempts/one/file", b"x")
    store.create_if_absent("attempts2/file", b"x")
    store.remove("attempts")
    store.remove("never there")
    assert not store.has("attempts/one/file")
    assert store.has("attempts2/file")
    assert store.create_if_absent("attempts/one/file", b"y")


def test_it_reads_at_any_place(store):
    store.create_if_absent("file", b"0123456789")
    file = store.read("file")
    file.seek(4)
    assert file.read(3) == b"456"


def test_files_are_their_owners_alone(tmp_path):
    store = LocalStore(tmp_path / "confidential" / "store")
    store.create_if_absent("claims/deep/file", b"x")
    for path in (tmp_path / "confidential" / "store").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


def test_a_writer_that_dies_leaves_no_file(tmp_path):
    """Killed when all is written and nothing is linked; the name is free, and no rest of it is listed."""
    script = """
import os, pathlib, sys
from od_core.ledger.object_store import LocalStore
pathlib.Path.hardlink_to = lambda self, target: os.kill(os.getpid(), 9)
LocalStore(pathlib.Path(sys.argv[1])).create_if_absent("claims/one", b"half")
"""
    died = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    store = LocalStore(tmp_path)
    assert died.returncode == -9
    assert list((tmp_path / "claims").iterdir())
    assert store.list("claims/") == []
    assert store.create_if_absent("claims/one", b"whole")
    assert content(store, "claims/one") == b"whole"


@pytest.mark.parametrize(
    "address", ["file:///tmp/store", "ftp://host/store", "hdfs://host/store", "https://host/store"]
)
def test_storage_that_does_not_create_exclusively_is_refused(address):
    with pytest.raises(OdError, match="OD-STORE-UNSAFE"):
        store_at(address)
