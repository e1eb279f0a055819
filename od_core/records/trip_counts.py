"""Count the trips of a table in memory, by pairs of zones and by categories, and hold such counts.

The table is one that a caller of the library passes. It is read by the names that the caller gives its columns, which
all messages use. No message quotes a record.

The counts stay confidential until ``measure`` in ``od_core.flows.measuring`` adds noise. They are not printed
or put into messages, and they are stored only in memory or in the confidential folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from od_core.errors import OdError, raise_alone
from od_core.files.data_frame import TableOrFile
from od_core.files.duckdb_session import memory_database
from od_core.geography.codes import lost_to_pandas
from od_core.geography.flow_tree import Expansion, FlowTree, Pairs, position_of
from od_core.geography.geography import Numbers
from od_core.kernels import kernel
from od_core.ledger.user_counters import UserCounters
from od_core.privacy.neighbours import FAULT_THRESHOLD
from od_core.privacy.unit import TRIP, PrivacyUnit
from od_core.records.count_query import CountQuery, Ranked, counted
from od_core.records.faults import not_counted, reading_errors
from od_core.records.segments import Breakdown, by_category
from od_core.records.table_file import loaded_trips

FEW_PAIRS = 16
"""Largest mean number of leaf pairs per child for which :meth:`TripCounts.add_to` adds the pairs one by one."""


@dataclass(frozen=True, eq=False, repr=False)
class TripCounts:
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
        if len(self.before) != len(self.rank) + 1 or any(
            (np.diff(each) <= 0).any() for each in (self.rank, self.before)
        ):
            raise OdError("OD-TRIPS-ORDER", "leaf counts are not in tree order", next_step="report this defect")
        for name, segments in self.by_segment.items():
            if sum(one.total for one in segments) != self.total:
                raise OdError(
                    "OD-TRIPS-SEGMENTS",
                    f"the categories of breakdown {name!r} do not have as many trips as all records",
                    next_step="report this defect",
                )

    def __repr__(self) -> str:
        return "TripCounts(confidential)"

    def column_pieces(self) -> Iterator[tuple[NDArray[np.int64], ...]]:
        """Yield the arrays ``rank`` and ``before``, and those of :meth:`segment_columns`, once, as one block."""
        yield self.rank, self.before, *self.segment_columns()

    def segment_columns(self) -> Iterator[NDArray[np.int64]]:
        """Yield three arrays for each breakdown, which together state the trips of each category of each leaf pair.

        The first has the number of categories with trips for each leaf pair, shape (pairs,). The others have the
        positions of these categories and their trips, pair by pair, shape (sum of the first,) each. The arrays of
        consecutive leaf pairs can be joined, so a fingerprint does not depend on how counts are cut into files.
        """
        for segments in self.by_segment.values():
            rank = np.concatenate([one.rank for one in segments])
            category = np.repeat(np.arange(len(segments)), [len(one.rank) for one in segments])
            trips = np.concatenate([np.diff(one.before) for one in segments])
            order = np.argsort(rank, kind="stable")
            yield np.diff(np.searchsorted(rank[order], self.rank, side="right"), prepend=0)
            yield category[order]
            yield trips[order]

    @property
    def total(self) -> int:
        """Number of all trips."""
        return int(self.before[-1])

    def add_to(self, noise: NDArray[np.int64], tree: FlowTree, expansion: Expansion) -> None:
        """Add the true trips of each child to its noise, shape (children,), in place: it becomes a measurement.

        The leaf pairs below a parent are a range of ranks, in the order of its children. If there are few pairs, each
        is added to its child. If there are many, a search finds the last pair of each child.
        """
        level, side = expansion.level, 0 if expansion.splits_origin else 1
        sides = (tree.origin, expansion.origin), (tree.destination, expansion.destination)
        (split, _), (whole, areas) = sides[side], sides[1 - side]
        at = tree.level_pair(level)
        _add_counts(
            noise,
            self.rank,
            self.before,
            tree.first_rank(Pairs(level - 1, expansion.origin, expansion.destination)),
            whole.zones_below(at[1 - side])[areas],
            expansion.offsets,
            expansion.first_child,
            split.first_zone[at[side]],
            split.ancestors(at[side]),
            FEW_PAIRS,
        )

    @classmethod
    def from_pairs(cls, tree: FlowTree, origin: Numbers, destination: Numbers, trips: NDArray[np.int64]) -> TripCounts:
        """Count leaf pairs given by zone numbers and trips, shape (pairs,), in any order. Equal pairs are summed."""
        return cls.from_ranks(tree.first_rank(Pairs(tree.depth, origin, destination)), trips)

    @classmethod
    def from_ranks(cls, rank: NDArray[np.int64], trips: NDArray[np.int64]) -> TripCounts:
        """Return the counts as :meth:`from_pairs` does, from the ranks of leaf pairs."""
        order = np.argsort(rank, kind="stable")
        return cls._merged(rank[order], trips[order])

    @classmethod
    def of_rows(cls, rows: Iterable[Ranked], breakdowns: Sequence[Breakdown] = ()) -> TripCounts:
        """Return the counts of rows in order of rank, which have the code of the segments if there are breakdowns."""
        none = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
        pieces = [none if breakdowns else none[:2], *rows]
        rank, trips, *code = map(np.concatenate, zip(*pieces, strict=True))
        by_segment = {
            one.name: tuple(cls._merged(rank[pairs], trips[pairs]) for pairs in by_category(code[0], at, breakdowns))
            for at, one in enumerate(breakdowns)
        }
        return cls._merged(rank, trips, by_segment)

    @classmethod
    def _merged(
        cls,
        rank: NDArray[np.int64],
        trips: NDArray[np.int64],
        by_segment: Mapping[str, tuple[TripCounts, ...]] | None = None,
    ) -> TripCounts:
        """Return the counts of ascending ranks. Equal ranks are summed, and those without trips left out."""
        rank, trips = rank[trips != 0], trips[trips != 0]
        starts = np.flatnonzero(np.diff(rank, prepend=-1))
        before = np.concatenate(([0], np.cumsum(trips)))
        return cls(rank[starts], before[np.append(starts, len(rank))], by_segment or {})


def count_trips(
    flows: TableOrFile,
    tree: FlowTree,
    *,
    unit: PrivacyUnit = TRIP,
    key: bytes = b"",
    period: str = "",
    fault_threshold: Fraction = FAULT_THRESHOLD,
    one_row_a_trip: bool = False,
    columns: Mapping[str, str] | None = None,
    breakdowns: Sequence[Breakdown] = (),
    counters: UserCounters | None = None,
) -> TripCounts:
    """Assign each record to its zones, and count the trips of each leaf pair (origin zone, destination zone).

    If the unit is a user, a record without a valid user id (missing, blank, or not matching ``id_pattern``) is a fault
    and is dropped. Of the remaining records of a user, at most m (the contribution bound) are counted. If the unit
    bounds weights, :mod:`od_core.records.weights` defines how many trips a record counts. A record whose zone is not
    listed is assigned to the geography's ``unknown`` zone, and dropped if there is none. The treatment of a record
    depends on no other record (``docs/explanation/privacy.md``).

    Args:
        flows: table, or path of a file as in :func:`od_core.records.table_file.read_table`, with text columns
            ``origin`` and ``destination``, and either ``trips`` (whole numbers) or one row per trip. An optional column
            ``in_period`` (true or false) marks the records of the period. All others are faults and are dropped. If the
            unit is a user: one row per trip, with the unit's column of user ids (text or whole numbers). If the unit
            bounds weights: one row per record, with column ``weight``.
        tree: the public flow tree.
        unit: the privacy unit.
        key: secret of 32 to 64 bytes, chosen without using the data. For user units, it decides which trips count.
        period: period of the records. Other trips of a user are chosen in another period.
        fault_threshold: largest share of the trips that may be faulty.
        one_row_a_trip: True if each row is known to be one trip. If False and there is no column of trips or weights, a
            table with columns that are not read is refused.
        columns: names of the columns in ``flows``, by these names.
        breakdowns: breakdowns by which trips are also counted. Each has a text column with its name, which ``columns``
            may change. A record whose category is missing or not listed goes to the breakdown's ``unknown`` category.
            If there is none, the record is a fault and is dropped. The contribution bound chooses trips of the same
            leaf pairs with and without breakdowns, unless such a fault is dropped.
        counters: for unit ``user_year``, the counters of users, by which M is kept, and which this call stores.

    Raises:
        OdError: as in :func:`od_core.records.table_file.loaded_trips`; too many trips are faulty; the key has a wrong
            length; or a method of ``counters`` raised it.
    """
    records = loaded_trips(flows, unit, columns, breakdowns, one_row_a_trip=one_row_a_trip)
    categories = [category for one in breakdowns for category in one.categories]
    try:
        with memory_database() as connection:
            connection.register("loaded", records)
            return counted(
                connection,
                "loaded",
                CountQuery(tree, unit, breakdowns, "trips" in records.column_names, counters is not None),
                partial(TripCounts.of_rows, breakdowns=breakdowns),
                key=key,
                period=period,
                fault_threshold=fault_threshold,
                counters=counters,
                advice=lost_to_pandas([*tree.origin.zones, *tree.destination.zones, *categories]),
            )
    except reading_errors() as error:
        raise_alone(not_counted(error))


@kernel
def _add_counts(noisy, rank, before, first_rank, whole_zones, offsets, first_child, first_zone, area_of, few):  # type: ignore[no-untyped-def]
    """Add each child's trips to ``noisy``. ``first_zone`` and ``area_of`` are of the geography that is refined."""
    start = 0
    for parent in range(len(first_rank)):
        base, width, child = first_rank[parent], whole_zones[parent], first_child[parent]
        first, last = offsets[parent], offsets[parent + 1]
        zone = np.int64(first_zone[child])
        end = base + width * (np.int64(first_zone[child + last - first]) - zone)
        start = position_of(rank, start, base)
        stop = position_of(rank, start, end)
        if stop - start <= few * (last - first):
            for leaf in range(start, stop):
                area = area_of[zone + (rank[leaf] - base) // width]
                noisy[first + area - child] += before[leaf + 1] - before[leaf]
        else:
            begin = start
            for at in range(first, last):
                next_zone = np.int64(first_zone[child + at - first + 1])
                after = position_of(rank, begin, base + width * (next_zone - zone))
                noisy[at] += before[after] - before[begin]
                begin = after
        start = stop
