"""Confidential: store true leaf counts in a folder of files that are sorted by rank and written once.

The rank of a leaf pair (origin zone, destination zone) is its position in tree order. A reader can take all counts, the
counts of a range of ranks, or one file after another. So a release may be larger than the memory. The files are
written by one process that runs DuckDB, or by the tasks of a cluster. The result of a release does not depend on how
the counts are cut into files. See ``docs/decisions/0013-parts-and-spark.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from od_core.errors import OdError
from od_core.geography.flow_tree import FlowTree, Nodes
from od_core.ledger.object_store import Store
from od_core.records.count_query import Ranked
from od_core.records.segments import Breakdown
from od_core.records.trip_counts import TripCounts

PAIRS = 1 << 20
"""Number of leaf pairs per file. They are in memory while the file is written, and take a few megabytes on disk."""

GROUP = 1 << 18
"""Number of leaf pairs per row group. A reader of a few counts decodes at least one row group."""

_SCHEMA = pa.schema([("rank", pa.int64()), ("trips", pa.int64()), ("segment", pa.int32())])
_MANIFEST = "counted.json"


@dataclass(frozen=True, repr=False)
class CountFile:
    """Confidential: the description of one file of counts.

    Attributes:
        name: name in the store.
        first, last: smallest and largest rank in the file. A rank is the position of a leaf pair in tree order.
        pairs: number of leaf pairs in the file, each counted once for each code of its segments.
        trips: number of trips of these pairs.
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
    """Confidential: the trips of every leaf pair (origin zone, destination zone) that has any, in files of a folder.

    The object refers to the files and contains no counts until they are read. It can be sent to another process.
    """

    store: Store
    folder: str

    def __repr__(self) -> str:
        return "CountFiles(confidential)"

    @cached_property
    def _manifest(self) -> dict[str, Any]:
        with self.store.read(f"{self.folder}/{_MANIFEST}") as manifest:
            facts = json.loads(manifest.read())
        return facts if isinstance(facts, dict) else {"files": facts, "breakdowns": []}

    @cached_property
    def files(self) -> tuple[CountFile, ...]:
        """The files in order of rank. Raises OdError if the counts were not finished by :func:`finish_count_files`."""
        return tuple(CountFile(**facts) for facts in self._manifest["files"])

    @cached_property
    def breakdowns(self) -> tuple[Breakdown, ...]:
        """The breakdowns by which the trips are also counted."""
        return tuple(map(Breakdown.from_facts, self._manifest["breakdowns"]))

    @property
    def total(self) -> int:
        """Number of trips in all files."""
        return sum(file.trips for file in self.files)

    @property
    def _end(self) -> int:
        return self.files[-1].last + 1 if self.files else 0

    def whole(self) -> TripCounts:
        """Read all counts into memory, and return them. They take 16 bytes per leaf pair, and as much per segment."""
        return self.between(0, self._end)

    def between(self, first: int, end: int) -> TripCounts:
        """Return the counts of the ranks from ``first`` to ``end`` - 1. Row groups without such ranks are not read."""
        if self.breakdowns:
            return TripCounts.of_rows(self._rows_between(first, end), self.breakdowns)
        most = sum(file.pairs for file in self.files if file.first < end and file.last >= first)
        rank, before = np.empty(most, dtype=np.int64), np.zeros(most + 1, dtype=np.int64)
        stop = 0
        for ranks, trips in self._rows_between(first, end):
            start, stop = stop, stop + len(ranks)
            rank[start:stop] = ranks
            before[start + 1 : stop + 1] = before[start] + np.cumsum(trips)
        return TripCounts(rank[:stop], before[: stop + 1])

    def column_pieces(self) -> Iterator[Ranked]:
        """Yield the arrays of :meth:`TripCounts.column_pieces` for all counts, in consecutive blocks."""
        before = 0
        yield np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64)
        for rows in self._rows_between(0, self._end):
            counts = TripCounts.of_rows([rows], self.breakdowns)
            yield counts.rank, before + counts.before[1:], *counts.segment_columns()
            before += counts.total

    def at_level(self, tree: FlowTree, level: int, ranks: tuple[int, int] | None = None) -> TripCounts:
        """Return the trips of the nodes of a level, each stored under the rank of the node's first leaf pair.

        The result replaces the leaf counts at this level and above: :meth:`TripCounts.add_to` adds the same trips
        there. Only one file and the nodes that have trips are in memory. If the trips are counted by segment, the
        result also has the trips of each node by segment. ``ranks`` are the first rank, and the last rank plus 1, of
        the leaf pairs of whole nodes of that level; all by default.
        """
        first, end = (0, self._end) if ranks is None else ranks
        of_nodes = []
        for rank, *trips_and_code in self._rows_between(first, end):
            at = tree.first_rank(_nodes_above(TripCounts.of_rows([(rank, trips_and_code[0])]), tree, level))
            node = at[np.searchsorted(at, rank, side="right") - 1]
            names = ("rank", "trips", "segment")[: 1 + len(trips_and_code)]
            rows = pd.DataFrame(dict(zip(names, (node, *trips_and_code), strict=True)))
            summed = rows.groupby([name for name in names if name != "trips"], as_index=False)["trips"].sum()
            of_nodes.append(tuple(summed[name].to_numpy() for name in names))
        return TripCounts.of_rows(of_nodes, self.breakdowns)

    def _rows_between(self, first: int, end: int) -> Iterator[Ranked]:
        """Yield the rows of a range of ranks, one file at a time. No rank is in two files."""
        for file in self.files:
            if file.first < end and file.last >= first:
                with pq.ParquetFile(self.store.read(file.name)) as opened:
                    groups = (opened.metadata.row_group(number) for number in range(opened.num_row_groups))
                    ranks = [group.column(0).statistics for group in groups]
                    wanted = [number for number, own in enumerate(ranks) if own.min < end and own.max >= first]
                    rank, *others = map(np.asarray, opened.read_row_groups(wanted, use_threads=False).columns)
                start, stop = np.searchsorted(rank, [first, end])
                yield rank[start:stop], *(column[start:stop] for column in others)


def write_count_files(store: Store, stem: str, batches: Iterable[Ranked]) -> list[CountFile]:
    """Write counts in order of rank into files, and return the descriptions of the files.

    The names of the files are ``stem`` and a number. Readers see the files only after :func:`finish_count_files` has
    listed them. Raises OdError if a file of one of these names exists.
    """
    written = []
    for number, rows in enumerate(_cut(batches)):
        name = f"{stem}{number:06d}.parquet"
        rank, trips = rows[:2]
        if not store.create_if_absent(name, _parquet(rows)):
            raise OdError("OD-COUNTS-TWICE", "a file of counts exists already", next_step="count into a new folder")
        written.append(CountFile(name, int(rank[0]), int(rank[-1]), len(rank), int(trips.sum())))
    return written


def finish_count_files(
    store: Store, folder: str, files: Sequence[CountFile], breakdowns: Sequence[Breakdown] = ()
) -> CountFiles:
    """Write the list of all files of :func:`write_count_files`, which completes a folder, and return its counts.

    Raises OdError if the ranks of two files overlap, or the folder is complete already.
    """
    ordered = sorted(files, key=lambda file: file.first)
    apart = all(one.last < next_one.first for one, next_one in pairwise(ordered))
    listed: Any = [asdict(file) for file in ordered]
    if breakdowns:
        listed = {"files": listed, "breakdowns": [one.facts() for one in breakdowns]}
    manifest = json.dumps(listed).encode()
    if not apart or not store.create_if_absent(f"{folder}/{_MANIFEST}", manifest):
        raise OdError("OD-COUNTS-TWICE", "leaf pairs were counted twice", next_step="count into a new folder")
    return CountFiles(store, folder)


def _cut(batches: Iterable[Ranked]) -> Iterator[Ranked]:
    """Yield the same counts in arrays of ``PAIRS`` leaf pairs. The last array may be shorter.

    If leaf pairs occur once for each code, an array may be shorter or longer, so that no leaf pair is in two arrays.
    """
    waiting: list[Ranked] = []
    for batch in batches:
        waiting.append(batch)
        if sum(len(rank) for rank, *_ in waiting) >= PAIRS:
            rows = _concatenated(waiting)
            rank = rows[0]
            ends = np.unique(np.searchsorted(rank, rank[PAIRS::PAIRS]))
            *cut, rest = zip(*(np.split(column, ends[ends > 0]) for column in rows), strict=True)
            yield from cut
            waiting = [rest]
    if any(len(rank) for rank, *_ in waiting):
        yield _concatenated(waiting)


def _concatenated(pieces: Sequence[Ranked]) -> Ranked:
    return tuple(map(np.concatenate, zip(*pieces, strict=True)))


def _parquet(rows: Ranked) -> pa.Buffer:
    """Return counts as a Parquet file: ranks as differences; trips and segments, often few values, by a dictionary."""
    schema = pa.schema(list(_SCHEMA)[: len(rows)])
    buffer = pa.BufferOutputStream()
    pq.write_table(
        pa.table(list(rows), schema=schema),
        buffer,
        row_group_size=GROUP,
        compression="none",
        use_dictionary=schema.names[1:],
        column_encoding={"rank": "DELTA_BINARY_PACKED"},
    )
    return buffer.getvalue()


def _nodes_above(counts: TripCounts, tree: FlowTree, level: int) -> Nodes:
    """Return the nodes of a level that have trips, found by expanding the nodes with trips of each level above."""
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
