"""Confidential: hold the true trips of leaf pairs, in memory or in files that are sorted by rank and written once.

The rank of a leaf pair (origin zone, destination zone) is its position in tree order. Files are read whole, by a range
of ranks, or one after another, so a release may be larger than the memory. They are written by one process that runs
DuckDB, or by the tasks of a cluster. The result of a release does not depend on how the counts are cut into files. See
``docs/decisions/0013-parts-and-spark.md``.

The counts stay confidential until ``measure`` in ``od_core.flows.measuring`` adds noise. They are not printed
or put into messages, and they are stored only in memory or in the confidential folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.geography.flow_tree import Expansion, FlowTree, Pairs, find_rank_position
from od_core.geography.geography import Numbers
from od_core.kernels import kernel
from od_core.ledger.object_store import Store
from od_core.notebook import Confidential
from od_core.parallel import map_in_order
from od_core.records.segments import Breakdown, split_by_category

MAX_PAIRS_ADDED_SINGLY = 16
"""Largest mean number of leaf pairs per child for which :meth:`TripCounts.add_to` adds the pairs one by one."""

PAIRS_PER_FILE = 1 << 20
"""Number of leaf pairs per file. They are in memory while the file is written, and take a few megabytes on disk."""

PAIRS_PER_ROW_GROUP = 1 << 18
"""Number of leaf pairs per row group. A reader of a few counts decodes at least one row group."""

_SCHEMA = pa.schema([("rank", pa.int64()), ("trips", pa.int64()), ("segment", pa.int32())])
_MANIFEST = "counted.json"

Ranked = tuple[NDArray[np.int64], ...]
"""Ranks (positions in tree order) of leaf pairs, ascending, and the trips of each, at least 1; shape (pairs,) each.

If trips are counted by segment, the third array is the code of :mod:`od_core.records.segments`, and a leaf pair
occurs once for each of its codes.
"""


@dataclass(frozen=True, eq=False, repr=False)
class TripCounts(Confidential):
    """Confidential: the trips of every leaf pair (origin zone, destination zone) that has any, in tree order.

    Raises OdError if the arrays have other shapes, or do not ascend; or the categories of a breakdown have other trips.

    Attributes:
        rank: position of each leaf pair in tree order; strictly ascending; shape (pairs,).
        before: number of trips of all earlier pairs, for each pair, then the number of all trips; strictly ascending;
            shape (pairs + 1,).
        by_segment: for each breakdown, by its name, the trips of each category, in the order of the categories. The
            trips of all categories of a breakdown sum to ``total``. Empty without breakdowns.
    """

    rank: NDArray[np.int64]
    before: NDArray[np.int64]
    by_segment: Mapping[str, tuple[TripCounts, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ascends = all((np.diff(values) > 0).all() for values in (self.rank, self.before))
        if len(self.before) != len(self.rank) + 1 or not ascends:
            raise OdError("OD-TRIPS-ORDER", "leaf counts are not in tree order", next_step="report this defect")
        for name, segments in self.by_segment.items():
            if sum(category.total for category in segments) != self.total:
                message = f"the categories of breakdown {name!r} do not have as many trips as all records"
                raise OdError("OD-TRIPS-SEGMENTS", message, next_step="report this defect")

    def iterate_column_pieces(self) -> Iterator[tuple[NDArray[np.int64], ...]]:
        """Yield the arrays ``rank`` and ``before``, and those of the segments, once, as one block."""
        yield self.rank, self.before, *self.iterate_segment_columns()

    def iterate_segment_columns(self) -> Iterator[NDArray[np.int64]]:
        """Yield three arrays for each breakdown, which together state the trips of each category of each leaf pair.

        The first has the number of categories with trips for each leaf pair, shape (pairs,). The others have the
        positions of these categories and their trips, pair by pair, shape (sum of the first,) each. The arrays of
        consecutive leaf pairs can be joined, so a fingerprint does not depend on how counts are cut into files.
        """
        for segments in self.by_segment.values():
            rank = np.concatenate([of_category.rank for of_category in segments])
            category = np.repeat(np.arange(len(segments)), [len(of_category.rank) for of_category in segments])
            trips = np.concatenate([np.diff(of_category.before) for of_category in segments])
            order = np.argsort(rank, kind="stable")
            yield np.diff(np.searchsorted(rank[order], self.rank, side="right"), prepend=0)
            yield category[order]
            yield trips[order]

    @property
    def total(self) -> int:
        """Number of all trips."""
        return int(self.before[-1])

    def sum_by_zone(self, tree: FlowTree, side: int) -> NDArray[np.int64]:
        """Return the trips from each origin zone (``side`` 0) or to each destination zone (1); shape (zones,)."""
        geography = (tree.origin, tree.destination)[side]
        trips = np.zeros(geography.size(geography.depth), dtype=np.int64)

        def count_piece(first: int) -> tuple[Numbers, NDArray[np.int64]]:
            """Return the zones on the side, and the trips, of up to ``PAIRS_PER_FILE`` leaf pairs from a position."""
            pairs = tree.find_leaf_pairs(self.rank[first : first + PAIRS_PER_FILE])
            return (pairs.origin, pairs.destination)[side], np.diff(self.before[first : first + PAIRS_PER_FILE + 1])

        for zones, counts in map_in_order(count_piece, range(0, len(self.rank), PAIRS_PER_FILE)):
            np.add.at(trips, zones, counts)
        return trips

    def add_to(self, noise: NDArray[np.int64], tree: FlowTree, expansion: Expansion) -> None:
        """Add the true trips of each child of an expansion to its noise, in place, so that it becomes a measurement.

        A row of an expansion has the children of one node. Their leaf pairs are a range of ranks, in the order of the
        children. Within it, each zone of the side that is split has as many ranks as the node's area on the other side
        has zones.

        Args:
            noise: noise of each child, row by row; shape (children,). It is overwritten.
            tree: the flow tree, whose ranks these counts have.
            expansion: the children of consecutive nodes of the level above.
        """
        level = expansion.level
        origin_level, destination_level = tree.level_pair(level)
        origin_side = tree.origin, origin_level, expansion.origin
        destination_side = tree.destination, destination_level, expansion.destination
        split_side, other_side = destination_side, origin_side
        if expansion.splits_origin:
            split_side, other_side = origin_side, destination_side
        split, level_of_children, parents = split_side
        other, level_of_other, areas = other_side
        level_of_rows = 2 * level - 1 if tree.refines_both else level - 1  # in the tree that refines the sides in turn
        first_ranks = tree.in_turn.compute_first_ranks(Pairs(level_of_rows, expansion.origin, expansion.destination))
        ranks_per_zone = other.count_zones_below(level_of_other)[areas]
        first_zone = split.first_zone[level_of_children]
        if tree.possible is not None:  # a row may begin after the first child of its area
            first_zone_of_row = first_zone[expansion.first_child].astype(np.int64)
            zones_left_out = first_zone_of_row - split.first_zone[level_of_children - 1][parents]
            first_ranks += ranks_per_zone * zones_left_out
        _add_counts(
            noise,
            self.rank,
            self.before,
            first_ranks,
            ranks_per_zone,
            expansion.row_offsets,
            expansion.first_child,
            first_zone,
            split.ancestors(level_of_children),
            MAX_PAIRS_ADDED_SINGLY,
        )

    @classmethod
    def from_pairs(cls, tree: FlowTree, origin: Numbers, destination: Numbers, trips: NDArray[np.int64]) -> TripCounts:
        """Return the counts of leaf pairs in any order, and sum the trips of equal pairs.

        ``origin`` and ``destination`` are zone numbers, and ``trips`` the trips of each pair; shape (pairs,) each.
        """
        return cls.from_ranks(tree.compute_first_ranks(Pairs(tree.depth, origin, destination)), trips)

    @classmethod
    def from_ranks(cls, rank: NDArray[np.int64], trips: NDArray[np.int64]) -> TripCounts:
        """Return the counts of ranks in any order and their trips; shape (pairs,) each. Equal ranks are summed."""
        return cls.from_rows([(rank, trips)])

    @classmethod
    def from_rows(cls, pieces: Iterable[Ranked], breakdowns: Sequence[Breakdown] = ()) -> TripCounts:
        """Return the counts of pieces, each with the ranks and trips of its rows, in any order.

        The trips of equal ranks are summed. If there are breakdowns, each piece has a third array, with the code of the
        segments of each row (:mod:`od_core.records.segments`).
        """
        no_rows: Ranked = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        if breakdowns:
            no_rows = *no_rows, np.empty(0, dtype=np.int32)
        rank, trips, *codes = _concatenate_rows([no_rows, *pieces])
        if (rank[1:] < rank[:-1]).any():
            if breakdowns:
                rank, order = _sort_ranks(rank, np.arange(len(rank)))
                trips, codes = trips[order], [codes[0][order]]
            else:
                rank, trips = _sort_ranks(rank, trips)
        by_segment = {}
        for position, breakdown in enumerate(breakdowns):
            rows_by_category = split_by_category(codes[0], position, breakdowns)
            by_segment[breakdown.name] = tuple(cls._merge_ranks(rank[rows], trips[rows]) for rows in rows_by_category)
        return cls._merge_ranks(rank, trips, by_segment)  # last, because it overwrites the ranks

    @classmethod
    def _merge_ranks(
        cls,
        rank: NDArray[np.int64],
        trips: NDArray[np.int64],
        by_segment: Mapping[str, tuple[TripCounts, ...]] | None = None,
    ) -> TripCounts:
        """Return the counts of ranks that ascend but may repeat, and overwrite ``rank``.

        The trips of equal ranks are summed, and ranks without trips are left out. ``by_segment`` is that of the result.
        """
        before = np.empty(len(rank) + 1, dtype=np.int64)
        pairs = _merge_equal_ranks(rank, trips, before)
        if pairs < len(rank):
            rank, before = rank[:pairs].copy(), before[: pairs + 1].copy()
        return cls(rank, before, by_segment or {})


_DIGIT_BITS = 13
"""Number of bits of a digit of :func:`_sort_ranks`, whose table of 2^13 positions takes 64 KB."""

_DIGIT_MASK = (1 << _DIGIT_BITS) - 1
"""Mask of the last digit of a number."""


@kernel
def _sort_ranks(rank: NDArray[np.int64], values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the ranks in ascending order, and the values in the same order, by a stable radix sort.

    There must be at least one rank, and none below 0. The sort begins with the least significant digit. Both arrays,
    of shape (rows,), are overwritten.
    """
    next_rank, next_values = np.empty_like(rank), np.empty_like(values)
    shift, largest = 0, rank.max()
    while shift < 63 and largest >> shift:  # a rank has 63 bits; a shift by 64 or more is not defined
        starts = np.zeros((1 << _DIGIT_BITS) + 1, dtype=np.int64)  # position of the first rank with each digit
        for number in rank:
            starts[((number >> shift) & _DIGIT_MASK) + 1] += 1
        starts = np.cumsum(starts)
        for row in range(len(rank)):
            digit = (rank[row] >> shift) & _DIGIT_MASK
            next_rank[starts[digit]], next_values[starts[digit]] = rank[row], values[row]
            starts[digit] += 1
        rank, next_rank = next_rank, rank
        values, next_values = next_values, values
        shift += _DIGIT_BITS
    return rank, values


@kernel
def _merge_equal_ranks(rank: NDArray[np.int64], trips: NDArray[np.int64], before: NDArray[np.int64]) -> int:
    """Sum the trips of equal ranks in place, and return the number of different ranks that have trips.

    Args:
        rank: ranks in ascending order, equal ones in succession; shape (rows,). If the result is n, the first n become
            the different ranks that have trips.
        trips: trips of each row; shape (rows,).
        before: output, shape (rows + 1,). The first n become the trips of all earlier ranks, and the next the total.
    """
    pairs, before[0] = 0, 0
    for row in range(len(rank)):
        if trips[row] != 0:
            if pairs == 0 or rank[pairs - 1] != rank[row]:
                rank[pairs], before[pairs + 1] = rank[row], before[pairs]
                pairs += 1
            before[pairs] += trips[row]
    return pairs


@kernel
def _add_counts(noisy, rank, before, first_rank, ranks_per_zone, offsets, first_child, first_zone, area_of, max_single):  # type: ignore[no-untyped-def]
    """Add each child's trips to its noise, row by row. A row has the children of one node (:class:`Expansion`).

    Args:
        noisy: noise of each child, which becomes its noisy count; shape (children,).
        rank, before: confidential counts of leaf pairs, as in :class:`TripCounts`.
        first_rank: first rank of the leaf pairs of each row; shape (rows,), ascending.
        ranks_per_zone: number of ranks of each row for each zone of the side that is split; shape (rows,).
        offsets: position in ``noisy`` of the first child of each row, then the number of children; shape (rows + 1,).
        first_child: area of the first child of each row, on the side that is split; shape (rows,).
        first_zone: first zone of each area of the children's level on this side, then the number of zones.
        area_of: area, at the children's level, of each zone of this side.
        max_single: largest mean number of leaf pairs per child for which the pairs of a row are added one by one. For
            more, a search finds the last pair of each child.
    """
    start = 0
    for row in range(len(first_rank)):
        row_rank, width, child = first_rank[row], ranks_per_zone[row], first_child[row]
        first, last = offsets[row], offsets[row + 1]
        row_zone = np.int64(first_zone[child])
        end_rank = row_rank + width * (np.int64(first_zone[child + last - first]) - row_zone)
        start = find_rank_position(rank, start, row_rank)  # the rows ascend, so no earlier pair is searched again
        stop = find_rank_position(rank, start, end_rank)
        if stop - start <= max_single * (last - first):
            for leaf in range(start, stop):
                area = area_of[row_zone + (rank[leaf] - row_rank) // width]
                noisy[first + area - child] += before[leaf + 1] - before[leaf]
        else:
            begin = start
            for position in range(first, last):
                next_zone = np.int64(first_zone[child + position - first + 1])
                end = find_rank_position(rank, begin, row_rank + width * (next_zone - row_zone))
                noisy[position] += before[end] - before[begin]
                begin = end
        start = stop


@dataclass(frozen=True, repr=False)
class CountFile(Confidential):
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


@dataclass(frozen=True, repr=False)
class CountFiles(Confidential):
    """Confidential: the trips of every leaf pair (origin zone, destination zone) that has any, in files of a folder.

    The object refers to the files and contains no counts until they are read. It can be sent to another process.
    """

    store: Store
    folder: str

    @cached_property
    def _manifest(self) -> dict[str, Any]:
        """The facts of the ``files`` and of the ``breakdowns`` that :func:`finish_count_files` wrote."""
        with self.store.read(f"{self.folder}/{_MANIFEST}") as manifest:
            facts = json.loads(manifest.read())
        return facts if isinstance(facts, dict) else {"files": facts, "breakdowns": []}  # without any, a list alone

    @cached_property
    def files(self) -> tuple[CountFile, ...]:
        """The files in order of rank. Raises OdError if the counts were not finished by :func:`finish_count_files`."""
        return tuple(CountFile(**facts) for facts in self._manifest["files"])

    @cached_property
    def breakdowns(self) -> tuple[Breakdown, ...]:
        """The breakdowns by which the trips are also counted."""
        return tuple(Breakdown(**facts) for facts in self._manifest["breakdowns"])

    @property
    def total(self) -> int:
        """Number of trips in all files."""
        return sum(file.trips for file in self.files)

    @property
    def _end_rank(self) -> int:
        """One more than the largest rank; 0 without counts."""
        return self.files[-1].last + 1 if self.files else 0

    def read_all(self) -> TripCounts:
        """Read all counts into memory, and return them. They take 16 bytes per leaf pair, and as much per segment."""
        return self.read_ranks(0, self._end_rank)

    def read_ranks(self, first: int, end: int) -> TripCounts:
        """Return the counts of the ranks from ``first`` to ``end`` - 1. Row groups without such ranks are not read."""
        if self.breakdowns:
            return TripCounts.from_rows(self._read_rows_between(first, end), self.breakdowns)
        max_pairs = sum(file.pairs for file in self.files if file.first < end and file.last >= first)
        rank, before = np.empty(max_pairs, dtype=np.int64), np.zeros(max_pairs + 1, dtype=np.int64)
        stop = 0
        for ranks, trips in self._read_rows_between(first, end):
            start, stop = stop, stop + len(ranks)
            rank[start:stop] = ranks
            before[start + 1 : stop + 1] = before[start] + np.cumsum(trips)
        return TripCounts(rank[:stop], before[: stop + 1])

    def iterate_column_pieces(self) -> Iterator[Ranked]:
        """Yield the arrays of :meth:`TripCounts.iterate_column_pieces` for all counts, in consecutive blocks."""
        before = 0
        yield np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64)  # the array ``before`` begins with 0
        for rows in self._read_rows_between(0, self._end_rank):
            counts = TripCounts.from_rows([rows], self.breakdowns)
            yield counts.rank, before + counts.before[1:], *counts.iterate_segment_columns()
            before += counts.total

    def sum_at_level(self, tree: FlowTree, level: int, ranks: tuple[int, int] | None = None) -> TripCounts:
        """Return the trips of the nodes of a level, each stored under the rank of the node's first leaf pair.

        The result replaces the leaf counts at this level and above: :meth:`TripCounts.add_to` adds the same trips
        there. Only one file and the nodes that have trips are in memory. If the trips are counted by segment, the
        result also has the trips of each node by segment. ``ranks`` are the first rank, and the last rank plus 1, of
        the leaf pairs of whole nodes of that level; None stands for all leaf pairs.
        """
        first, end = (0, self._end_rank) if ranks is None else ranks
        sums_of_files = []
        for rank, *trips_and_code in self._read_rows_between(first, end):
            first_ranks = tree.compute_first_ranks(tree.find_ancestors(tree.find_leaf_pairs(rank), level))
            rank_of_node = first_ranks[np.searchsorted(first_ranks, rank, side="right") - 1]
            columns = {"rank": rank_of_node, **dict(zip(("trips", "segment"), trips_and_code, strict=False))}
            keys = [name for name in columns if name != "trips"]
            sums = pd.DataFrame(columns).groupby(keys, as_index=False)["trips"].sum()
            sums_of_files.append(tuple(sums[name].to_numpy() for name in columns))
        return TripCounts.from_rows(sums_of_files, self.breakdowns)

    def _read_rows_between(self, first: int, end: int) -> Iterator[Ranked]:
        """Yield the rows with ranks from ``first`` to ``end`` - 1, one file at a time. No rank is in two files."""
        for file in self.files:
            if file.first < end and file.last >= first:
                with pq.ParquetFile(self.store.read(file.name)) as opened:
                    groups = []
                    for group in range(opened.num_row_groups):
                        ranks = opened.metadata.row_group(group).column(0).statistics  # the first column is the rank
                        if ranks.min < end and ranks.max >= first:
                            groups.append(group)
                    rank, *others = map(np.asarray, opened.read_row_groups(groups, use_threads=False).columns)
                start, stop = np.searchsorted(rank, [first, end])
                yield rank[start:stop], *(column[start:stop] for column in others)


def write_count_files(store: Store, stem: str, batches: Iterable[Ranked]) -> list[CountFile]:
    """Write counts in order of rank into files, and return the descriptions of the files.

    The names of the files are ``stem`` and a number. Readers see the files only after :func:`finish_count_files` has
    listed them. Raises OdError if a file of one of these names exists.
    """
    written = []
    for number, rows in enumerate(_split_batches(batches)):
        name = f"{stem}{number:06d}.parquet"
        rank, trips, *_code = rows
        if not store.create_if_absent(name, _encode_parquet(rows)):
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
    are_apart = all(earlier.last < later.first for earlier, later in pairwise(ordered))
    facts: object = [asdict(file) for file in ordered]
    if breakdowns:
        facts = {"files": facts, "breakdowns": [breakdown.facts() for breakdown in breakdowns]}
    manifest = json.dumps(facts).encode()
    if not are_apart or not store.create_if_absent(f"{folder}/{_MANIFEST}", manifest):
        raise OdError("OD-COUNTS-TWICE", "leaf pairs were counted twice", next_step="count into a new folder")
    return CountFiles(store, folder)


def _split_batches(batches: Iterable[Ranked]) -> Iterator[Ranked]:
    """Yield counts in arrays of about ``PAIRS_PER_FILE`` rows, the last one shorter. No leaf pair is in two arrays."""
    waiting: list[Ranked] = []
    for batch in batches:
        waiting.append(batch)
        if sum(len(rank) for rank, *_ in waiting) >= PAIRS_PER_FILE:
            rows = _concatenate_rows(waiting)
            rank, *_others = rows
            # Cut at the first row of a leaf pair, which has a row for each code of its segments.
            starts = np.unique(np.searchsorted(rank, rank[PAIRS_PER_FILE::PAIRS_PER_FILE]))
            columns_in_parts = (np.split(column, starts[starts > 0]) for column in rows)
            *parts, remainder = zip(*columns_in_parts, strict=True)
            yield from parts
            waiting = [remainder]
    if any(len(rank) for rank, *_ in waiting):
        yield _concatenate_rows(waiting)


def _concatenate_rows(pieces: Sequence[Ranked]) -> Ranked:
    """Return consecutive pieces of counts as one piece: each of its columns joins those of the pieces."""
    return tuple(map(np.concatenate, zip(*pieces, strict=True)))


def _encode_parquet(rows: Ranked) -> pa.Buffer:
    """Return counts as a Parquet file.

    Ranks are stored as differences. Trips and segments, which often have few values, are stored by a dictionary.
    """
    schema = pa.schema(list(_SCHEMA)[: len(rows)])
    buffer = pa.BufferOutputStream()
    pq.write_table(
        pa.table(list(rows), schema=schema),
        buffer,
        row_group_size=PAIRS_PER_ROW_GROUP,
        compression="none",
        use_dictionary=schema.names[1:],
        column_encoding={"rank": "DELTA_BINARY_PACKED"},
    )
    return buffer.getvalue()
