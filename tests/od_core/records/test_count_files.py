"""Counts in files are the counts, however they are cut into files and whatever of them is read."""

import hashlib
import hmac
import secrets
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import FlowTree, OdError
from od_core.flows.staging import StagedRelease
from od_core.ledger import confidential
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.object_store import LocalStore
from od_core.records import counts as held_counts
from od_core.records.counts import CountFiles, TripCounts, finish_count_files, write_count_files
from tests.od_core.strategies import TREES, geography_of, zone_lists


@pytest.fixture(params=[(1, 1), (3, 2), (8, 3), (100, 7)], ids=lambda cut: f"files of {cut[0]}, groups of {cut[1]}")
def cut(request, monkeypatch) -> None:
    pairs, group = request.param
    monkeypatch.setattr(held_counts, "PAIRS_PER_FILE", pairs)
    monkeypatch.setattr(held_counts, "PAIRS_PER_ROW_GROUP", group)


def some_counts(most: int = 60) -> st.SearchStrategy[tuple[np.ndarray, np.ndarray]]:
    """Ranks, far apart or side by side, and trips."""
    ranks = st.sets(st.integers(0, 50) | st.integers(0, 2**62 - 1), max_size=most).map(sorted)
    trips = st.lists(st.integers(1, 3) | st.integers(1, 2**45), min_size=most, max_size=most)
    both = st.tuples(ranks, trips)
    return both.map(lambda one: (np.array(one[0], np.int64), np.array(one[1][: len(one[0])], np.int64)))


def in_memory(rank: np.ndarray, trips: np.ndarray) -> TripCounts:
    return TripCounts(rank, np.concatenate(([0], np.cumsum(trips, dtype=np.int64))))


def kept(folder: Path, rank: np.ndarray, trips: np.ndarray, batch: int = 5) -> CountFiles:
    """Through files, in batches of a size."""
    store = LocalStore(folder)
    name = f"counts_{secrets.token_hex(6)}"
    batches = [(rank[k : k + batch], trips[k : k + batch]) for k in range(0, len(rank), batch)]
    return finish_count_files(store, name, write_count_files(store, f"{name}/", batches))


@given(some_counts(), st.integers(1, 9))
def test_the_fingerprint_is_that_of_the_counts_however_they_are_cut(tmp_path, cut, monkeypatch, counts, hashed):
    """An HMAC of the number of pairs and the HMACs of a million numbers at a time, of the ranks and then the sums."""
    monkeypatch.setattr(confidential, "_INTEGERS_PER_BLOCK", hashed)
    folder, whole = ConfidentialFolder(tmp_path / "confidential"), in_memory(*counts)
    digests = [
        hmac.digest(folder.read_or_make_key(), column[start : start + hashed].astype("<i8").tobytes(), "sha256")
        for column in (whole.rank, whole.before)
        for start in range(0, len(column), hashed)
    ]
    message = len(whole.rank).to_bytes(8) + b"".join(digests)
    expected = hmac.new(folder.read_or_make_key(), message, hashlib.sha256).hexdigest()
    assert folder.compute_fingerprint(whole.iterate_column_pieces()) == expected
    assert folder.compute_fingerprint(kept(tmp_path, *counts).iterate_column_pieces()) == expected


@st.composite
def trees_with_counts(draw: st.DrawFn) -> tuple[FlowTree, np.ndarray, np.ndarray]:
    origins = draw(zone_lists())
    destinations = draw(zone_lists(depth=len(origins[0])))
    tree = FlowTree(geography_of(origins), geography_of(destinations), draw(st.sampled_from(TREES)))
    ranks = sorted(draw(st.sets(st.integers(0, tree.cells(tree.depth) - 1), max_size=40)))
    trips = draw(st.lists(st.integers(1, 9), min_size=len(ranks), max_size=len(ranks)))
    return tree, np.array(ranks, np.int64), np.array(trips, np.int64)


@pytest.mark.representatives
@given(trees_with_counts())
def test_nodes_of_a_level_add_at_it_and_above_what_their_leaves_add(tmp_path, cut, given_):
    """Also where a node's leaf pairs stand in several files. They are the nodes with trips, each at its first leaf."""
    tree, rank, trips = given_
    files, leaves = kept(tmp_path, rank, trips), in_memory(rank, trips)
    for level in range(tree.depth + 1):
        nodes = files.sum_at_level(tree, level)
        assert nodes.total == leaves.total
        firsts = tree.compute_first_ranks(tree.list_public_nodes(level))
        expected = np.searchsorted(firsts, rank, side="right") - 1
        assert nodes.rank.tolist() == firsts[np.unique(expected)].tolist()
        for above in range(level):
            for families in tree.expand(tree.list_public_nodes(above)):
                of_nodes, of_leaves = np.zeros((2, len(families)), dtype=np.int64)
                nodes.add_to(of_nodes, tree, families)
                leaves.add_to(of_leaves, tree, families)
                np.testing.assert_array_equal(of_nodes, of_leaves)


@pytest.fixture
def thirty(tmp_path, monkeypatch) -> CountFiles:
    """Ranks 0, 7, ... 203 in three files of two groups."""
    monkeypatch.setattr(held_counts, "PAIRS_PER_FILE", 10)
    monkeypatch.setattr(held_counts, "PAIRS_PER_ROW_GROUP", 5)
    return kept(tmp_path, np.arange(30) * 7, np.arange(30) + 1)


def test_files_are_for_their_owner_alone_and_say_nothing(tmp_path, thirty):
    paths = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(paths) == 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600}
    assert repr(thirty) == "CountFiles(confidential)"
    assert repr(thirty.files[0]) == "CountFile(confidential)"


def test_what_is_not_asked_for_is_not_read(tmp_path, thirty):
    """Neither another file nor another group of a file that is read."""
    first, second, third = (tmp_path / file.name for file in thirty.files)
    first.unlink()
    content = bytearray(second.read_bytes())
    content[4:12] = b"\xff" * 8
    second.write_bytes(content)
    third.unlink()
    assert thirty.read_ranks(15 * 7, 20 * 7).rank.tolist() == [k * 7 for k in range(15, 20)]
    with pytest.raises(OdError, match="OD-STORE-MISSING"):
        thirty.read_all()
    with pytest.raises(Exception):  # noqa: B017, PT011  # what a damaged page gives is Arrow's to say
        thirty.read_ranks(10 * 7, 20 * 7)


def test_what_is_counted_twice_is_refused(tmp_path, thirty):
    store, files = LocalStore(tmp_path), list(thirty.files)
    one = [(np.array([7]), np.array([1]))]
    for again in (
        lambda: write_count_files(store, f"{thirty.folder}/", one),
        lambda: finish_count_files(store, thirty.folder, files),
        lambda: finish_count_files(store, "other", [*files, replace(files[0], first=63, last=64)]),
    ):
        with pytest.raises(OdError, match="OD-COUNTS-TWICE"):
            again()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_of_a_release_the_last_counts_are_kept(tmp_path, elsewhere):
    """A count that nobody came to keep is removed by the next; one that was kept, as soon as another is."""
    staged, folders = StagedRelease(tmp_path), []
    if elsewhere:
        staged.store = LocalStore(tmp_path / "elsewhere")

    def kept() -> set[str]:
        return {f"trip_counts/{path.name}" for path in (staged.store.folder / "trip_counts").iterdir()}

    for trips in (1, 2, 3, 4):
        folders.append(staged.begin_trip_counts())
        files = write_count_files(staged.store, f"{folders[-1]}/", [(np.array([5]), np.array([trips]))])
        if trips % 2:
            staged.save_trip_counts(finish_count_files(staged.store, folders[-1], files))
            assert kept() == {folders[-1]}
        assert staged.open_trip_counts().total == (1 if trips < 3 else 3)
        assert staged.open_trip_counts().store == staged.store
    assert len(set(folders)) == 4
    assert kept() == set(folders[2:])
    staged.begin_trip_counts()
    assert kept() == {folders[2]}
