"""Count the trips of a table in memory, by pairs of zones and by categories, and hold such counts.

The table is one that a caller of the library passes. It is read by the names that the caller gives its columns, which
all messages use. No message quotes a record.

The counts stay confidential until ``measure`` in ``od_core.flows.measuring`` adds noise. They are not printed
or put into messages, and they are stored only in memory or in the confidential folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from od_core.errors import OdError, base_name
from od_core.files.data_frame import TableOrFile, column_names
from od_core.geography.codes import READ_AS_TEXT, lost_to_pandas
from od_core.geography.flow_tree import Expansion, FlowTree, Pairs
from od_core.geography.geography import Geography, Numbers
from od_core.kernels import kernel
from od_core.ledger.user_counters import UserCounters
from od_core.privacy.neighbours import FAULT_THRESHOLD
from od_core.privacy.unit import TRIP, PrivacyUnit
from od_core.records.contribution_bound import bounded_counts, check_user_column, may_hold_text, texts, user_ids
from od_core.records.faults import MAX_COUNT, SUM_TOO_LARGE, bad_count, refuse_too_many_faults, usual_length
from od_core.records.record_query import refuse_unused
from od_core.records.segments import Breakdown, by_category, segment_codes
from od_core.records.table_file import IN_PERIOD, read_table, whole_numbers
from od_core.records.weights import check_weight_column, weighed

ROLES = ("origin", "destination", "trips", "weight")
"""Roles of columns, which are also their default names. The unit names the column of user ids."""


class TripTable:
    """Confidential: the trips of a table that a caller passes.

    Raises OdError if the table cannot be read; ``columns`` is not valid; a column is missing, occurs twice or
    contradicts the unit; zone codes are numbers; or a column of categories contains no text, or is also the column of
    user ids or of ``in_period``.

    Args:
        flows: table or path of a file; see :func:`od_core.records.table_file.read_table`.
        unit: the privacy unit, which names the column of user ids.
        columns: names of columns by role (``origin``, ``destination``, ``trips``, ``weight``, or the name of a
            breakdown). Other roles have the default name.
        breakdowns: breakdowns by which the trips are counted. Each has a column.
    """

    def __init__(
        self,
        flows: TableOrFile,
        unit: PrivacyUnit = TRIP,
        columns: Mapping[str, str] | None = None,
        breakdowns: Sequence[Breakdown] = (),
    ) -> None:
        self.unit, self.breakdowns = unit, breakdowns
        segments = [one.name for one in breakdowns]
        names = self.names = column_names(columns, (*ROLES, *segments), "the unit names the column of user ids")
        _refuse_shared(names, segments, unit)
        always = ("origin", "destination", *segments, *(columns or {}))
        user = [] if unit.column is None else [unit.column]
        self.table = read_table(
            flows,
            [name for role, name in names.items() if role in always],
            [names["trips"], names["weight"], IN_PERIOD, *user],
            numbers=[names["trips"]],
            named="the records",
            code="OD-TRIPS-COLUMN",
        )
        check_weight_column(unit, self.table.columns, weight=names["weight"], trips=names["trips"])
        for column in user:
            check_user_column(column, unit, self.table.columns, trips=names["trips"])
        for role in ("origin", "destination", *segments):
            self._refuse_no_text(role)

    def __len__(self) -> int:
        return len(self.table.frame)

    def column(self, role: str) -> pd.Series:
        """Return the column of a role."""
        return self.table.frame[self.names[role]]

    @property
    def trips(self) -> NDArray[np.int64]:
        """Number of trips of each row; shape (rows,).

        Raises OdError if they, or their sum, are not whole numbers from 0 to 2^53.
        """
        if self.names["trips"] not in self.table.frame.columns:
            return np.ones(len(self), dtype=np.int64)
        return _whole_counts(self.column("trips"))

    @property
    def segment_codes(self) -> NDArray[np.int32]:
        """Segments of each record as one number, -1 for a record that lacks a category it needs; shape (rows,)."""
        return segment_codes([self.column(one.name) for one in self.breakdowns], self.breakdowns, len(self))

    @property
    def in_period(self) -> NDArray[np.bool_]:
        """Mask of the records of the period, all records if there is no column ``in_period``; shape (rows,)."""
        if IN_PERIOD not in self.table.frame.columns:
            return np.ones(len(self), dtype=np.bool_)
        inside = self.table.frame[IN_PERIOD].eq(True).fillna(False)  # a missing value is False
        return inside.to_numpy(dtype=bool)

    def refuse_unstated_rows(self) -> None:
        """Raise OdError if each row counts as one trip though the table has unused columns, and nothing states it."""
        if self.names["trips"] in self.table.frame.columns or self.unit.max_weight is not None:
            return
        roles = ("origin", "destination", *(one.name for one in self.breakdowns))
        read = (*(self.names[role] for role in roles), IN_PERIOD, str(self.unit.column))
        unused = [name for name in self.table.columns if name not in read]
        step = (
            'give one_row_a_trip=True if each row is one trip, or columns={"trips": COLUMN} if COLUMN holds the number'
        )
        refuse_unused(unused, self.table.named, f"{step} of trips of a row")

    def _refuse_no_text(self, role: str) -> None:
        """Raise OdError if a column of codes holds numbers, or a column of categories holds no text."""
        column, name = self.column(role), self.names[role]
        if not column.notna().any():
            return
        if role not in ROLES and not may_hold_text(column):
            message = f"{base_name(column.dtype)}; the categories of a breakdown must be text"
            step = f"give column {name!r} the listed categories as text: {READ_AS_TEXT}"
        elif role in ROLES and pd.api.types.is_numeric_dtype(column.dtype):
            message = "numbers; zone codes must be text, because numbers lose leading zeros"
            step = f"read column {name!r} as text: {READ_AS_TEXT}"
        else:
            return
        raise OdError("OD-TRIPS-NOT-TEXT", f"column {name!r} holds {message}", next_step=step)


def _refuse_shared(names: Mapping[str, str], segments: Sequence[str], unit: PrivacyUnit) -> None:
    """Raise OdError if a breakdown shares its name or its column with user ids, or its column with the period."""
    taken = {
        IN_PERIOD: ("that marks the records of the period", "name another column"),
        unit.column: ("of user ids", "name another column, or give the breakdown another name"),
    }
    for role in segments:
        shared = role if unit.column == role else names[role]
        if shared in taken:
            what, step = taken[shared]
            message = f"column {shared!r} is both the column of breakdown {role!r} and that {what}"
            raise OdError("OD-TABLE-COLUMNS", message, next_step=step)


def _whole_counts(column: pd.Series) -> NDArray[np.int64]:
    """Return the counts as int64. Raises OdError unless they and their sum are whole numbers from 0 to 2^53."""
    name = str(column.name)

    def fault(what: str, faulty: NDArray[np.bool_] | None) -> OdError:
        row = None if faulty is None else int(np.argmax(faulty))
        return bad_count(what, column=name, row=row, rows=len(column))

    counts = whole_numbers(column, fault)
    if np.sum(counts, dtype=np.float64) > 2.0 * MAX_COUNT or int(counts.sum()) > MAX_COUNT:
        raise bad_count(SUM_TOO_LARGE, column=name)
    return counts


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
        if len(self.before) != len(self.rank) + 1 or not (_ascends(self.rank) and _ascends(self.before)):
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
        return cls.from_ranks(tree, tree.first_rank(Pairs(tree.depth, origin, destination)), trips)

    @classmethod
    def from_ranks(
        cls,
        tree: FlowTree,
        rank: NDArray[np.int64],
        trips: NDArray[np.int64],
        code: NDArray[np.integer[Any]] | None = None,
        breakdowns: Sequence[Breakdown] = (),
    ) -> TripCounts:
        """Return the counts as :meth:`from_pairs` does, from the ranks of leaf pairs. ``rank`` is overwritten.

        With ``breakdowns``, ``code`` has the segments of each pair (:mod:`od_core.records.segments`).
        """
        if code is None or not breakdowns:
            return cls._merged(*_sorted_by_rank(rank, trips, tree.cells(tree.depth)))
        rank, order = _sorted_by_rank(rank, np.arange(len(rank)), tree.cells(tree.depth))
        return cls.from_sorted_segments(rank, trips[order], code[order], breakdowns)

    @classmethod
    def from_sorted_segments(
        cls,
        rank: NDArray[np.int64],
        trips: NDArray[np.int64],
        code: NDArray[np.integer[Any]],
        breakdowns: Sequence[Breakdown],
    ) -> TripCounts:
        """Return the counts as :meth:`from_ranks` does, from ranks in ascending order. Overwrites no array."""
        by_segment = {
            one.name: tuple(cls._merged(rank[pairs], trips[pairs]) for pairs in by_category(code, at, breakdowns))
            for at, one in enumerate(breakdowns)
        }
        return cls._merged(rank.copy(), trips.copy(), by_segment)

    @classmethod
    def _merged(
        cls,
        rank: NDArray[np.int64],
        trips: NDArray[np.int64],
        by_segment: Mapping[str, tuple[TripCounts, ...]] | None = None,
    ) -> TripCounts:
        """Return the counts of ascending ranks. Equal ranks are summed. Both arrays are overwritten."""
        pairs = _merge_equal(rank, trips)
        before = np.zeros(pairs + 1, dtype=np.int64)
        np.cumsum(trips[:pairs], out=before[1:])
        return cls(rank[:pairs], before, by_segment or {})


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
    bounds weights, :mod:`od_core.records.weights` defines how many trips a record counts.

    Zones are numbers of the geographies. A record whose zone is not listed is assigned to the geography's ``unknown``
    zone. If there is no such zone, the record is dropped. The treatment of a record depends on no other record
    (``docs/explanation/privacy.md``).

    Args:
        flows: table, or path of a file as in :func:`od_core.records.table_file.read_table`, with text columns
            ``origin`` and ``destination``, and either ``trips`` (whole numbers) or one row per trip. An optional column
            ``in_period`` (true or false) marks the records of the period. All others are faults and are dropped. If the
            unit is a user: one row per trip, with the unit's column of user ids (text or whole numbers). If the unit
            bounds weights: one row per record, with column ``weight``.
        tree: the public flow tree.
        fault_threshold: largest share of the trips that may be faulty.
        columns: names of the columns in ``flows``, by these names.
        unit: the privacy unit.
        key: secret of 32 to 64 bytes, chosen without using the data. For user units, it decides which trips count.
        period: period of the records. Other trips of a user are chosen in another period.
        one_row_a_trip: True if each row is known to be one trip. If False and there is no column of trips or weights,
            a table with columns that are not read is refused.
        breakdowns: breakdowns by which trips are also counted. Each has a text column with its name, which ``columns``
            may change. A record whose category is missing or not listed goes to the breakdown's ``unknown`` category.
            If there is none, the record is a fault and is dropped. The contribution bound chooses trips of the same
            leaf pairs with and without breakdowns, unless such a fault is dropped.
        counters: for unit ``user_year``, the counters of users, by which M is kept, and which this call stores.

    Raises:
        OdError: a column is missing or not text; a count is negative, fractional, not finite or above 2^53; too many
            trips are faulty; the unit is a user, and its column is missing or contains neither text
            nor whole numbers, the records have a column of trips, or the key has a wrong length; the records have
            weights and the unit has no ``max_weight``, or the reverse; nothing states what a row is; a
            column of categories contains no text, or is also another column; or a method of ``counters`` raised it.
    """
    table = TripTable(flows, unit, columns, breakdowns)
    if not one_row_a_trip:
        table.refuse_unstated_rows()
    code = table.segment_codes
    is_whole, weights, ids = code >= 0, None, None
    if unit.max_weight is not None:
        weights, has_weight = weighed(table.column("weight"), unit.max_weight)
        is_whole &= has_weight
    elif unit.kind != "trip":
        ids, is_id = user_ids(table.table.frame[unit.column], unit)
        is_whole &= is_id
    origin, destination, trips, placed = _placed(table, tree, fault_threshold, is_whole)
    ranks, code = tree.first_rank(Pairs(tree.depth, origin[placed], destination[placed])), code[placed]
    if ids is None:
        return TripCounts.from_ranks(tree, ranks, (trips if weights is None else weights)[placed], code, breakdowns)
    fields = {"person": ids, **{side: texts(table.column(side)) for side in ("origin", "destination")}}
    records = pa.table(fields).filter(pa.array(placed)).append_column("rank", pa.array(ranks))
    if breakdowns:
        records = records.append_column("segment", pa.array(code))
    counts = bounded_counts(records, unit.contribution_bound, key, period, counters)
    return TripCounts.from_ranks(tree, *counts, breakdowns)


def _placed(
    table: TripTable, tree: FlowTree, fault_threshold: Fraction, is_whole: NDArray[np.bool_]
) -> tuple[Numbers, Numbers, NDArray[np.int64], NDArray[np.bool_]]:
    """Return each record's origin zone, destination zone, trips and whether it is counted; shape (records,) each.

    ``is_whole`` is a mask of the records that have all else that is needed: user id or weight, and categories.
    """
    trips, valid = table.trips, table.in_period & is_whole
    origin = tree.origin.zone_numbers(table.column("origin"))
    destination = tree.destination.zone_numbers(table.column("destination"))
    faulty = int(trips[(origin < 0) | (destination < 0) | ~valid].sum())
    lost_zeros = partial(_lost_zeros, table, (origin, tree.origin), (destination, tree.destination))
    categories = [category for one in table.breakdowns for category in one.categories]
    advice = lost_to_pandas([*tree.origin.zones, *tree.destination.zones, *categories])
    refuse_too_many_faults(faulty, int(trips.sum()), fault_threshold, lost_zeros=lost_zeros, advice=advice)
    origin = _to_unknown_zone(origin, tree.origin)
    destination = _to_unknown_zone(destination, tree.destination)
    return origin, destination, trips, (origin >= 0) & (destination >= 0) & valid


def _lost_zeros(table: TripTable, origins: tuple[Numbers, Geography], destinations: tuple[Numbers, Geography]) -> bool:
    """Return whether most unlisted zone codes (number -1) are listed after padding with zeros to the usual length."""
    unlisted = listed = 0
    for side, (numbers, geography) in {"origin": origins, "destination": destinations}.items():
        codes = pd.Series(texts(table.column(side)[numbers < 0]).drop_null().to_pylist(), dtype="str")
        unlisted += len(codes)
        listed += int((geography.zone_numbers(codes.str.rjust(usual_length(geography.zones), "0")) >= 0).sum())
    return 2 * listed > unlisted


def _to_unknown_zone(numbers: Numbers, geography: Geography) -> Numbers:
    """Replace unlisted zones (-1) by the geography's unknown zone, if it has one."""
    if geography.unknown is None:
        return numbers
    return np.where(numbers < 0, np.int32(geography.zones.index(geography.unknown)), numbers).astype(np.int32)


def _sorted_by_rank(
    rank: NDArray[np.int64], trips: NDArray[np.int64], ranks: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return both arrays in order of rank. ``rank`` may be overwritten; ``ranks`` is the number of possible ranks.

    If they fit, a rank and its position are packed into one 64-bit word, because NumPy sorts words several times as
    fast as it computes a sort order. The words overwrite ``rank`` to save memory: an array for a nation is half a
    gigabyte.
    """
    bits = len(rank).bit_length()
    if (ranks - 1).bit_length() + bits > 63:
        order = np.argsort(rank, kind="stable")
        return rank[order], trips[order]
    _append_position(rank, bits)
    rank.sort()
    sorted_trips = np.empty_like(trips)
    _gather_by_position(rank, bits, trips, sorted_trips)
    return rank, sorted_trips


def _ascends(values: NDArray[np.int64]) -> bool:
    """Return whether every value is larger than the one before it."""
    return bool(np.all(values[1:] > values[:-1]))


@kernel
def _append_position(rank, bits):  # type: ignore[no-untyped-def]  # compiled
    """Replace each rank by a word that combines the rank and its position in the array."""
    for i in range(len(rank)):
        rank[i] = (rank[i] << bits) | i


@kernel
def _gather_by_position(words, bits, trips, trips_out):  # type: ignore[no-untyped-def]  # compiled
    """Write the trips at each word's position to ``trips_out``, and replace the words by their ranks."""
    for i in range(len(words)):
        trips_out[i] = trips[words[i] & ((1 << bits) - 1)]
        words[i] >>= bits


@kernel
def _merge_equal(rank, trips):  # type: ignore[no-untyped-def]  # compiled
    """Sum the trips of equal ranks, and move pairs with trips to the front, in place. Return the number of pairs."""
    pairs = 0
    for i in range(len(rank)):
        if trips[i] == 0:
            continue
        if pairs > 0 and rank[pairs - 1] == rank[i]:
            trips[pairs - 1] += trips[i]
        else:
            rank[pairs], trips[pairs] = rank[i], trips[i]
            pairs += 1
    return pairs


@kernel
def _add_counts(noisy, rank, before, first_rank, whole_zones, offsets, first_child, first_zone, area_of, few):  # type: ignore[no-untyped-def]
    """Add each child's trips to ``noisy``. ``first_zone`` and ``area_of`` are of the geography that is refined."""
    start = 0
    for parent in range(len(first_rank)):
        base, width, child = first_rank[parent], whole_zones[parent], first_child[parent]
        first, last = offsets[parent], offsets[parent + 1]
        zone = np.int64(first_zone[child])
        end = base + width * (np.int64(first_zone[child + last - first]) - zone)
        start = _position(rank, start, base)
        stop = _position(rank, start, end)
        if stop - start <= few * (last - first):
            for leaf in range(start, stop):
                area = area_of[zone + (rank[leaf] - base) // width]
                noisy[first + area - child] += before[leaf + 1] - before[leaf]
        else:
            begin = start
            for at in range(first, last):
                next_zone = np.int64(first_zone[child + at - first + 1])
                after = _position(rank, begin, base + width * (next_zone - zone))
                noisy[at] += before[after] - before[begin]
                begin = after
        start = stop


@kernel
def _position(rank, start, wanted):  # type: ignore[no-untyped-def]  # compiled
    """Return the first position at or after ``start`` with a rank of at least ``wanted``, by exponential search."""
    low, high, step = start, start, 1
    while high < len(rank) and rank[high] < wanted:
        low = high + 1
        high += step
        step *= 2
    high = min(high, len(rank))
    while low < high:
        middle = (low + high) // 2
        if rank[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low
