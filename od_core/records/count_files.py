"""Confidential: keep true leaf counts in a folder of files that are sorted by rank and written once.

A release reads all of the counts, those of a run of ranks, or one piece after another, so it may be of any size. The
files are written by DuckDB in one process or by the tasks of a cluster. The result does not depend on how the counts
are cut into files. See ``docs/decisions/0013-parts-and-spark.md``.
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
"""Leaf pairs of a file: held in memory while the file is written, and a few megabytes on disk."""

GROUP = 1 << 18
"""Leaf pairs of a row group, the smallest unit that a reader of a few ranks decodes."""

Ranked = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Ranks, strictly ascending, and the trips of each, at least 1; shape (pairs,) each."""

_SCHEMA = pa.schema([("rank", pa.int64()), ("trips", pa.int64())])
_MANIFEST = "counted.json"


@dataclass(frozen=True, repr=False)
class CountFile:
    """Confidential: one file of counts.

    Attributes:
        name: name in the store.
        first, last: the smallest and the largest rank in it.
        pairs, trips: number of its leaf pairs, and of their trips.
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
        store: the store that holds the files.
        folder: their folder in the store.
    """

    store: Store
    folder: str

    def __repr__(self) -> str:
        return "CountFiles(confidential)"

    @cached_property
    def files(self) -> tuple[CountFile, ...]:
        """The files in order of rank. Raises OdError if they are absent."""
        with self.store.read(f"{self.folder}/{_MANIFEST}") as manifest:
            return tuple(CountFile(**facts) for facts in json.loads(manifest.read()))

    @property
    def total(self) -> int:
        """Number of trips, n."""
        return sum(file.trips for file in self.files)

    def whole(self) -> TripCounts:
        """Return all counts. Memory is 16 bytes per leaf pair."""
        return self.between(0, self.files[-1].last + 1) if self.files else _counts([], 0)

    def between(self, first: int, end: int) -> TripCounts:
        """Return the counts of the ranks from ``first`` to before ``end``; row groups of other ranks are not read."""
        most = sum(file.pairs for file in self.files if file.first < end and file.last >= first)
        return _counts(self._pieces_between(first, end), most)

    def pieces(self) -> Iterator[Ranked]:
        """Yield ranks and trips in consecutive pieces; only one is in memory at a time."""
        for file in self.files:
            yield from self._pieces_of(file, file.first, file.last + 1)

    def column_pieces(self) -> Iterator[Ranked]:
        """Yield the arrays of :meth:`TripCounts.column_pieces` in consecutive pieces."""
        before = 0
        yield np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64)
        for rank, trips in self.pieces():
            running = before + np.cumsum(trips)
            before = int(running[-1])
            yield rank, running

    def at_level(self, tree: FlowTree, level: int, ranks: tuple[int, int] | None = None) -> TripCounts:
        """Return the trips of a level's nodes, each at the rank of its first leaf pair, computed piece by piece.

        At this level and above, they add the same trips as the leaf counts do (:meth:`TripCounts.add_to`). Memory is
        that of the nodes with trips.

        Args:
            tree: the flow tree that the trips were counted in.
            level: a level of that tree.
            ranks: ranks of whole nodes of that level, from the first to before the second; by default all.
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
        )  # adjacent pieces may share a node

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
    """Write consecutive counts into files named by ``stem`` and a number; :func:`finish_count_files` makes them valid.

    Raises:
        OdError: a file of such a name exists.
    """
    written = []
    for number, (rank, trips) in enumerate(_cut(batches)):
        name = f"{stem}{number:06d}.parquet"
        if not store.create_if_absent(name, _parquet(rank, trips)):
            raise OdError("OD-COUNTS-TWICE", "a file of counts exists already", next_step="count into a new folder")
        written.append(CountFile(name, int(rank[0]), int(rank[-1]), len(rank), int(trips.sum())))
    return written


def finish_count_files(store: Store, folder: str, files: Sequence[CountFile]) -> CountFiles:
    """Make written files the counts of a folder. Raises OdError if they overlap or the folder already has counts."""
    ordered = sorted(files, key=lambda file: file.first)
    apart = all(one.last < next_one.first for one, next_one in pairwise(ordered))
    manifest = json.dumps([asdict(file) for file in ordered]).encode()
    if not apart or not store.create_if_absent(f"{folder}/{_MANIFEST}", manifest):
        raise OdError("OD-COUNTS-TWICE", "leaf pairs were counted twice", next_step="count into a new folder")
    return CountFiles(store, folder)


def _cut(batches: Iterable[Ranked]) -> Iterator[Ranked]:
    """Yield the same counts in pieces of ``PAIRS``; the last piece has the rest."""
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
    """Return a Parquet file: ranks as differences to the one before; trips, mostly few, as numbers of a dictionary."""
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
    """Return consecutive counts as one value; there are at most ``most`` pairs."""
    rank, before = np.empty(most, dtype=np.int64), np.empty(most + 1, dtype=np.int64)
    before[0] = end = 0
    for ranks, trips in pieces:
        start, end = end, end + len(ranks)
        rank[start:end] = ranks
        np.cumsum(trips, out=before[start + 1 : end + 1])
        before[start + 1 : end + 1] += before[start]
    return TripCounts(rank[:end], before[: end + 1])


def _nodes_above(counts: TripCounts, tree: FlowTree, level: int) -> Nodes:
    """Return the nodes of a level that have trips, found by the top-down pass without noise."""
    root = np.zeros(1 if counts.total else 0, dtype=np.int32)
    nodes = Nodes(0, root, root, np.full(len(root), counts.total, dtype=np.int64))
    while nodes.level < level:
        children = []
        for expansion in tree.expand(nodes):
            trips = np.zeros(len(expansion), dtype=np.int64)
            counts.add_to(trips, tree, expansion)
            children.append(expansion.with_trips(trips))
        nodes = Nodes.joined(nodes.level + 1, children)
    return nodes
