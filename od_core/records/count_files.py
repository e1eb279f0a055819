"""Confidential: true leaf counts in a folder of files sorted by rank, each written once (spec 8, section 4).

A release of any size reads of them what it needs: all of them, those of a run of ranks, or piece by piece. Whoever
counts writes them, DuckDB in one process or the tasks of a cluster, and the cut into files tells nothing of the counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.geography.flow_tree import FlowTree, Nodes
from od_core.ledger.object_store import Store
from od_core.records.trip_counts import TripCounts

PAIRS = 1 << 20
"""Leaf pairs of a file: what is held while it is written, and a few megabytes when it is."""

GROUP = 1 << 18
"""Leaf pairs of a row group: so much more than it asks for is what a reader of a few ranks decodes."""

Ranked = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Ranks, strictly ascending, and the trips of each, at least 1; shape (pairs,) each."""

_SCHEMA = pa.schema([("rank", pa.int64()), ("trips", pa.int64())])
_MANIFEST = "counted.json"


@dataclass(frozen=True, repr=False)
class CountFile:
    """Confidential: one file.

    Attributes:
        name: in the store.
        first, last: the smallest and the largest rank in it.
        pairs, trips: how many leaf pairs it has, and their trips in all.
    """

    name: str
    first: int
    last: int
    pairs: int
    trips: int

    def __repr__(self) -> str:
        return "CountFile(confidential)"


@dataclass(frozen=True, repr=False)
class CountFiles:
    """Confidential: the trips of every leaf pair that has any, in files; it can be sent to another process.

    Attributes:
        store: where the files are.
        folder: in the store.
    """

    store: Store
    folder: str

    def __repr__(self) -> str:
        return "CountFiles(confidential)"

    @cached_property
    def files(self) -> tuple[CountFile, ...]:
        """The files in order of rank. Raises OdError where they are absent."""
        with self.store.read(f"{self.folder}/{_MANIFEST}") as manifest:
            return tuple(CountFile(**facts) for facts in json.loads(manifest.read()))

    @property
    def total(self) -> int:
        """Number of trips, n."""
        return sum(file.trips for file in self.files)

    def whole(self) -> TripCounts:
        """All counts. Memory is 16 bytes a leaf pair."""
        return self.between(0, self.files[-1].last + 1) if self.files else _counts([], 0)

    def between(self, first: int, end: int) -> TripCounts:
        """The counts of the ranks from ``first`` to before ``end``; no row group of other ranks is read."""
        most = sum(file.pairs for file in self.files if file.first < end and file.last >= first)
        return _counts(self._pieces_between(first, end), most)

    def pieces(self) -> Iterator[Ranked]:
        """Ranks and trips in consecutive pieces, each of which is held alone."""
        for file in self.files:
            yield from self._pieces_of(file, file.first, file.last + 1)

    def column_pieces(self) -> Iterator[Ranked]:
        """As :meth:`TripCounts.column_pieces` of all counts, cut."""
        before = 0
        yield np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64)
        for rank, trips in self.pieces():
            running = before + np.cumsum(trips)
            before = int(running[-1])
            yield rank, running

    def at_level(self, tree: FlowTree, level: int, ranks: tuple[int, int] | None = None) -> TripCounts:
        """The trips of the nodes of a level, each at the rank of its first leaf pair, made piece by piece.

        What they add at this level and those above is what the leaf counts add (:meth:`TripCounts.add_to`). Memory is
        that of the nodes with trips.

        Args:
            tree: the flow tree that the trips were counted in.
            level: of that tree.
            ranks: of whole nodes of that level, from the first to before the second; all if left out.
        """
        firsts, counts = [], []
        for rank, trips in self.pieces() if ranks is None else self._pieces_between(*ranks):
            nodes = _nodes_above(_counts([(rank, trips)], len(rank)), tree, level)
            firsts.append(tree.first_rank(nodes))
            counts.append(nodes.trips)
        if not firsts:
            return _counts([], 0)
        return TripCounts.from_ranks(
            tree, np.concatenate(firsts), np.concatenate(counts)
        )  # neighbours may share a node

    def _pieces_between(self, first: int, end: int) -> Iterator[Ranked]:
        for file in self.files:
            if file.first < end and file.last >= first:
                yield from self._pieces_of(file, first, end)

    def _pieces_of(self, file: CountFile, first: int, end: int) -> Iterator[Ranked]:
        with pq.ParquetFile(self.store.read(file.name)) as opened:
            for number in range(opened.num_row_groups):
                ranks = opened.metadata.row_group(number).column(0).statistics
                if ranks.min < end and ranks.max >= first:
                    table = opened.read_row_group(number, use_threads=False)
                    rank, trips = (table[name].to_numpy() for name in _SCHEMA.names)
                    start, stop = np.searchsorted(rank, [first, end])
                    yield rank[start:stop], trips[start:stop]


def write_count_files(store: Store, stem: str, batches: Iterable[Ranked]) -> list[CountFile]:
    """Write consecutive counts into files named by ``stem`` and a number; they are not yet counts of anything.

    Raises:
        OdError: there is a file of such a name.
    """
    written = []
    for number, (rank, trips) in enumerate(_cut(batches)):
        name = f"{stem}{number:06d}.parquet"
        if not store.create_if_absent(name, _parquet(rank, trips)):
            raise OdError("OD-COUNTS-TWICE", "a file of counts was there already", next_step="count into a new folder")
        written.append(CountFile(name, int(rank[0]), int(rank[-1]), len(rank), int(trips.sum())))
    return written


def finish_count_files(store: Store, folder: str, files: Sequence[CountFile]) -> CountFiles:
    """Make written files the counts of a folder. Raises OdError where they are not apart, or it has counts."""
    ordered = sorted(files, key=lambda file: file.first)
    apart = all(one.last < next_one.first for one, next_one in pairwise(ordered))
    manifest = json.dumps([asdict(file) for file in ordered]).encode()
    if not apart or not store.create_if_absent(f"{folder}/{_MANIFEST}", manifest):
        raise OdError("OD-COUNTS-TWICE", "leaf pairs were counted twice", next_step="count into a new folder")
    return CountFiles(store, folder)


def _cut(batches: Iterable[Ranked]) -> Iterator[Ranked]:
    """The same counts, ``PAIRS`` of them at a time; the last piece has the rest."""
    waiting: list[Ranked] = []
    for batch in batches:
        waiting.append(batch)
        if sum(len(rank) for rank, _ in waiting) >= PAIRS:
            rank, trips = map(np.concatenate, zip(*waiting, strict=True))
            whole = len(rank) - len(rank) % PAIRS
            yield from ((rank[start : start + PAIRS], trips[start : start + PAIRS]) for start in range(0, whole, PAIRS))
            waiting = [(rank[whole:], trips[whole:])]
    if any(len(rank) for rank, _ in waiting):
        rank, trips = map(np.concatenate, zip(*waiting, strict=True))
        yield rank, trips


def _parquet(rank: NDArray[np.int64], trips: NDArray[np.int64]) -> pa.Buffer:
    """Ranks as what they exceed the one before by; trips, of which most are few, as numbers of a dictionary."""
    buffer = pa.BufferOutputStream()
    pq.write_table(
        pa.table([rank, trips], schema=_SCHEMA),
        buffer,
        row_group_size=GROUP,
        compression="none",
        use_dictionary=["trips"],
        column_encoding={"rank": "DELTA_BINARY_PACKED"},
    )
    return buffer.getvalue()


def _counts(pieces: Iterable[Ranked], most: int) -> TripCounts:
    """Consecutive counts as one value; they are ``most`` pairs at most."""
    rank, before = np.empty(most, dtype=np.int64), np.empty(most + 1, dtype=np.int64)
    before[0] = end = 0
    for ranks, trips in pieces:
        start, end = end, end + len(ranks)
        rank[start:end] = ranks
        np.cumsum(trips, out=before[start + 1 : end + 1])
        before[start + 1 : end + 1] += before[start]
    return TripCounts(rank[:end], before[: end + 1])


def _nodes_above(counts: TripCounts, tree: FlowTree, level: int) -> Nodes:
    """The nodes of a level that have trips, found as a pass without noise would find them."""
    root = np.zeros(1 if counts.total else 0, dtype=np.int32)
    nodes = Nodes(0, root, root, np.full(len(root), counts.total, dtype=np.int64))
    while nodes.level < level:
        children = []
        for families in tree.families(nodes):
            trips = np.zeros(len(families), dtype=np.int64)
            counts.add_to(trips, tree, families)
            children.append(families.with_trips(trips))
        nodes = Nodes.joined(nodes.level + 1, children)
    return nodes
