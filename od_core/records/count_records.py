"""Count loaded records in tree order with DuckDB, and write the SQL of the count, which also runs in Spark.

A rank is the position of a leaf pair (origin zone, destination zone) in tree order. The SQL finds the rank of each
record, counts the trips of each rank and sorts the ranks. The counts are written to files batch by batch. They equal
those of :func:`od_core.records.trip_counts.count_trips`, but the records need not fit in memory. They are confidential.

The SQL reads these relations:

- ``records``, with the columns origin and destination (text), in_period and, if the unit or the file needs them, trips,
  weight, or person (the user id, NULL if it is not valid);
- the public ``origin_zones`` and ``destination_zones`` of :func:`zone_tables`;
- for each breakdown, the column ``segment_`` and its name (text) of ``records``, and the public relation of
  :func:`category_tables`;
- under a user unit, the ``secret`` of :func:`od_core.records.contribution_bound.secret_table`.

The result for a record depends only on that record and on public data. The only exception is the contribution bound,
which also depends on the other records of the same user.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from od_core.errors import OdError, raise_alone
from od_core.files.duckdb_session import parquet_rows, quoted_text, scratch_database
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography, Numbers
from od_core.ledger.object_store import LocalStore, Store
from od_core.ledger.user_counters import UserCounters
from od_core.privacy.neighbours import FAULT_THRESHOLD
from od_core.privacy.unit import TRIP, PrivacyUnit
from od_core.records.contribution_bound import (
    bounded,
    check_user_column,
    id_patterns,
    keep_counters,
    set_secret,
    set_users,
)
from od_core.records.count_files import CountFiles, Ranked, finish_count_files, write_count_files
from od_core.records.faults import (
    FRACTION,
    MAX_COUNT,
    MISSING,
    NEGATIVE,
    SUM_TOO_LARGE,
    TOO_LARGE,
    bad_count,
    filled_with_zeros,
    not_counted,
    reading_errors,
    refuse_too_many_faults,
)
from od_core.records.segments import Breakdown, loaded_column
from od_core.records.trip_counts import TripCounts
from od_core.records.weights import check_weight_column, counted_trips


def zone_tables(tree: FlowTree) -> dict[str, pa.Table]:
    """Return the relations ``origin_zones`` and ``destination_zones``, by name.

    Each has one row per zone, with its code and its factors term_1, term_2 and so on. The rank (position in tree order)
    of a leaf pair is the sum of the products of its origin's and its destination's factors; see
    :meth:`FlowTree.rank_terms`.
    """
    return {
        f"{side}_zones": pa.table(
            {"code": geography.code_arrays[geography.depth]}
            | {f"term_{step}": np.ascontiguousarray(column) for step, column in enumerate(terms.T, start=1)}
        )
        for side, geography, terms in _sides(tree)
    }


def category_tables(breakdowns: Sequence[Breakdown]) -> dict[str, pa.Table]:
    """Return one relation for each breakdown, by name: its categories, and the position of each in the list."""
    return {
        f"{loaded_column(one.name)}_list": pa.table(
            {"category": one.categories, "position": np.arange(len(one.categories), dtype=np.int32)}
        )
        for one in breakdowns
    }


def ranked_records(
    tree: FlowTree,
    unit: PrivacyUnit,
    *,
    is_flows: bool,
    breakdowns: Sequence[Breakdown] = (),
    with_users: bool = False,
) -> str:
    """Return SQL whose result has one row per record: its rank, whether it is faulty, and its trips.

    The rank is the position, in tree order, of the leaf pair to which the record counts, or -1 if the record is not
    counted. Unlisted zones and categories are treated as in :func:`od_core.records.trip_counts.count_trips`. The column
    trips exists only for flows and for records with weights. With breakdowns, the column segment is the code of
    :mod:`od_core.records.segments`, and 0 for a record without one.

    Args:
        tree, unit, breakdowns: as in :func:`od_core.records.trip_counts.count_trips`.
        is_flows: whether the records have a column ``trips``. Its values must be whole numbers from 0 to 2^53.
        with_users: as in :func:`od_core.records.contribution_bound.bounded`.
    """
    placed = placed_records(tree, unit, is_flows=is_flows, breakdowns=breakdowns)
    if unit.kind == "trip":
        return placed
    return bounded(placed, unit.contribution_bound, by_segment=bool(breakdowns), with_users=with_users)


def placed_records(
    tree: FlowTree, unit: PrivacyUnit, *, is_flows: bool = False, breakdowns: Sequence[Breakdown] = ()
) -> str:
    """Return SQL whose result has one row per record, before the contribution bound of a user unit.

    For a user unit, it also has the columns person, origin and destination; see :func:`ranked_records`.
    """
    records, fields, is_valid = "records", "", "records.in_period"
    if unit.max_weight is not None:
        records = f"(SELECT *, {counted_trips(unit.max_weight)} AS trips FROM records) AS records"  # noqa: S608  # our own
        fields, is_valid = ", trips", f"{is_valid} AND records.trips IS NOT NULL"
    elif unit.kind != "trip":
        fields = ", person, records.origin, records.destination"
        is_valid = f"{is_valid} AND records.person IS NOT NULL"
    elif is_flows:
        fields = ", trips"
    return _ranked(tree, records, breakdowns, fields=fields, is_valid=is_valid)


def trips_by_rank(ranked: str, unit: PrivacyUnit, *, is_flows: bool, by_segment: bool = False) -> str:
    """Return SQL whose result has one row per rank, in any order: rank, trips, and faulty (the number of faulty trips).

    If the unit bounds weights, ``faulty`` is the number of faulty records, and a further column ``counted`` is the
    number of all records.

    Args:
        ranked: SQL of :func:`ranked_records` in brackets, or the name of a relation with its result.
        unit, is_flows: as in :func:`ranked_records`.
        by_segment: whether the records have a column segment. Then there is one row per rank and segment, with both.
    """
    each = "CAST(trips AS BIGINT)" if is_flows or unit.max_weight is not None else "1"
    trips = f"CAST(coalesce(sum({each}), 0) AS BIGINT)" if each != "1" else "count(*)"
    faulty = "count(CASE WHEN faulty THEN 1 END)"
    if is_flows:
        faulty = f"CAST(coalesce(sum(CASE WHEN faulty THEN {each} END), 0) AS BIGINT)"
    counted = ", count(*) AS counted" if unit.max_weight is not None else ""
    key = "rank, segment" if by_segment else "rank"
    return f"SELECT {key}, {trips} AS trips, {faulty} AS faulty{counted} FROM {ranked} GROUP BY {key}"  # noqa: S608  # our own


class Tally:
    """Confidential: the sums from which the share of faults is computed.

    :meth:`take` updates them while it reads the result of :func:`trips_by_rank`.

    Attributes:
        counted: number of trips read so far; for records with weights, number of records.
        faulty: number of faulty trips or records among them.
    """

    def __init__(self) -> None:
        self.counted = self.faulty = 0

    def take(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Ranked]:
        """Yield, for each batch, the ranks that have trips, the trips of each and, if there is one, its segment.

        Add the batch to the sums.
        """
        for batch in batches:
            columns = {name: batch[name].to_numpy() for name in batch.schema.names}
            self.counted += int(columns.get("counted", columns["trips"]).sum())
            self.faulty += int(columns["faulty"].sum())
            has_place = (columns["rank"] >= 0) & (columns["trips"] > 0)
            yield tuple(columns[name][has_place] for name in ("rank", "trips", "segment") if name in columns)


def lost_zeros(tree: FlowTree) -> str:
    """Return SQL that tells whether most unlisted zone codes have probably lost their leading zeros.

    A code has probably lost them if it is listed after it is padded with zeros to the usual length of the codes. The
    result is one row with the column ``lost``.
    """
    unlisted = " UNION ALL ".join(
        f"""
        SELECT listed.code AS listed FROM (
            SELECT {filled_with_zeros(f"records.{side}", geography.zones)} AS filled
            FROM records LEFT JOIN {side}_zones AS zones ON records.{side} = zones.code
            WHERE records.{side} IS NOT NULL AND zones.code IS NULL
        ) AS unlisted LEFT JOIN {side}_zones AS listed ON unlisted.filled = listed.code
        """  # noqa: S608  # our own
        for side, geography, _ in _sides(tree)
    )
    return f"SELECT 2 * count(listed) > count(*) AS lost FROM ({unlisted}) AS both_sides"  # noqa: S608  # our own


def _ranked(tree: FlowTree, records: str, breakdowns: Sequence[Breakdown], *, fields: str, is_valid: str) -> str:
    products = zip(*(_side_terms(f"{side}s", geography, terms) for side, geography, terms in _sides(tree)), strict=True)
    rank = " + ".join(
        f"CAST({origin} AS BIGINT) * {destination}"
        for origin, destination in products
        if "0" not in (origin, destination)
    )
    segment, joins, has_categories = _segments(breakdowns)
    is_valid = " AND ".join([is_valid, *has_categories])
    listed = [f"{side}s.code IS NOT NULL" for side, geography, _ in _sides(tree) if geography.unknown is None]
    has_rank = " AND ".join([is_valid, *listed])
    small = ", ".join(["origins", "destinations", *(loaded_column(one.name) for one in breakdowns)])
    # The hint in the SQL makes Spark send the zones and the lists of categories to all executors, so that it does not
    # move the records.
    return f"""
        SELECT /*+ BROADCAST({small}) */
            coalesce(CASE WHEN {has_rank} THEN {rank or "CAST(0 AS BIGINT)"} END, -1) AS rank,
            origins.code IS NULL OR destinations.code IS NULL OR ({is_valid}) IS NOT TRUE AS faulty
            {fields}{segment}
        FROM {records}
        LEFT JOIN origin_zones AS origins ON records.origin = origins.code
        LEFT JOIN destination_zones AS destinations ON records.destination = destinations.code
        {joins}
    """  # noqa: S608  # numbers, and names of our own


def _segments(breakdowns: Sequence[Breakdown]) -> tuple[str, str, list[str]]:
    """Return SQL for the field segment of a record, for the joins that it needs, and conditions that it has a code."""
    if not breakdowns:
        return "", "", []
    sizes = [len(one.categories) for one in breakdowns]
    digits, joins, has_categories = [], [], []
    for at, one in enumerate(breakdowns):
        column = loaded_column(one.name)
        joins.append(f"LEFT JOIN {column}_list AS {column} ON records.{column} = {column}.category")
        if one.unknown is None:
            has_categories.append(f"{column}.category IS NOT NULL")
        otherwise = 0 if one.unknown is None else one.categories.index(one.unknown)
        digits.append(f"coalesce({column}.position, {otherwise}) * {prod(sizes[at + 1 :])}")
    return f", CAST({' + '.join(digits)} AS INTEGER) AS segment", " ".join(joins), has_categories


def _side_terms(table: str, geography: Geography, terms: Numbers) -> list[str]:
    """Return SQL for each factor of a record's zone in the record's rank (see :func:`zone_tables`).

    A factor that is equal for all zones is a number in the SQL. An unlisted zone has the factors of the ``unknown``
    zone. Without an ``unknown`` zone, its record has no rank.
    """
    unknown = None if geography.unknown is None else geography.zones.index(geography.unknown)
    factors = []
    for step, column in enumerate(terms.T, start=1):
        name = f"{table}.term_{step}"
        if np.all(column == column[0]):
            factors.append(str(column[0]))
        else:
            factors.append(name if unknown is None else f"coalesce({name}, {column[unknown]})")
    return factors


def _sides(tree: FlowTree) -> tuple[tuple[str, Geography, Numbers], tuple[str, Geography, Numbers]]:
    """Return name, geography and factors of origins, then of destinations; factors have shape (zones, depth)."""
    origins, destinations = tree.rank_terms(tree.depth)
    return ("origin", tree.origin, origins), ("destination", tree.destination, destinations)


_BATCH = 1 << 17
"""Number of ranks that are taken from DuckDB at a time."""

_FAULTS = {
    MISSING: "trips IS NULL OR isnan(trips::DOUBLE)",
    NEGATIVE: "trips < 0",
    TOO_LARGE: f"trips > {MAX_COUNT}",
    FRACTION: "trips != floor(trips)",
}
"""SQL condition of each kind of invalid count, in the order in which they are reported."""


def count_records(
    records: Path,
    tree: FlowTree,
    store: Store,
    folder: str,
    *,
    unit: PrivacyUnit = TRIP,
    key: bytes = b"",
    period: str = "",
    fault_threshold: Fraction = FAULT_THRESHOLD,
    breakdowns: Sequence[Breakdown] = (),
    counters: UserCounters | None = None,
) -> CountFiles:
    """Count loaded records by leaf pair, write the counts to files in tree order, and return these files.

    Each record is assigned to its zones, assigned to the ``unknown`` zone or dropped, as in
    :func:`od_core.records.trip_counts.count_trips`. Then the contribution bound drops the records of a user above m.
    The memory is limited to that of DuckDB plus one file of counts.

    Args:
        records: Parquet file that ``load_records`` wrote. It has the columns origin and destination (text) and
            in_period, a column trips (BIGINT or DOUBLE) if a row is a flow, and the columns weight (DOUBLE) and user
            (text) if the unit needs them. DuckDB writes data that do not fit in memory to a temporary folder beside
            this file.
        tree: the public flow tree.
        store, folder: store and folder for the files of counts. After every exception, this function removes the
            folder.
        unit, key, period: as in :func:`od_core.records.trip_counts.count_trips`. The user id is always in column
            ``user``.
        fault_threshold: largest share of the trips that may be faulty.
        breakdowns: breakdowns by which trips are also counted, as in
            :func:`od_core.records.trip_counts.count_trips`. Each has a column ``segment_`` and its name (text).
        counters: as in :func:`od_core.records.trip_counts.count_trips`.

    Raises:
        OdError: a count is missing, negative, fractional, not finite or above 2^53; too many trips are faulty; the unit
            is a user, and the records have no column of user ids or have a column of trips; the records have weights
            and the unit has no ``max_weight``, or the reverse; they have no column of a breakdown; they cannot be read;
            memory or disk space does not suffice; or a method of ``counters`` raised it. No message contains a value of
            a record.
    """
    try:
        with scratch_database(records.parent, records) as connection:
            source = parquet_rows(records, numbered=True)
            columns = connection.sql(f"FROM {source}").columns
            check_weight_column(unit, columns)
            if unit.kind != "trip":
                check_user_column("user", unit, columns)
                set_secret(connection, key, period)
            _check_breakdowns(breakdowns, columns)
            is_flows = "trips" in columns
            if is_flows:
                _check_counts(connection, source)
            is_id = " AND ".join(f'regexp_matches("user", {quoted_text(pattern)})' for pattern in id_patterns(unit))
            fields = "*" if unit.kind == "trip" else f'*, CASE WHEN {is_id} THEN "user" END AS person'
            connection.execute(f"CREATE TEMP VIEW records AS SELECT {fields} FROM {source}")  # noqa: S608  # checked name
            for name, public in (zone_tables(tree) | category_tables(breakdowns)).items():
                connection.register(name, public)
            if counters is not None:
                set_users(connection, placed_records(tree, unit, breakdowns=breakdowns), counters.allowances())
            with_users = counters is not None
            ranked = ranked_records(tree, unit, is_flows=is_flows, breakdowns=breakdowns, with_users=with_users)
            by_rank = trips_by_rank(f"({ranked})", unit, is_flows=is_flows, by_segment=bool(breakdowns))
            pairs = connection.sql(f"{by_rank} ORDER BY {'rank, segment' if breakdowns else 'rank'}")
            has_lost_zeros = partial(_has_lost_zeros, connection, tree)
            counted = _counted(pairs, fault_threshold, has_lost_zeros)
            files = write_count_files(store, f"{folder}/", counted)
            if counters is not None:
                keep_counters(connection, counters)
            return finish_count_files(store, folder, files, breakdowns)
    except reading_errors() as error:
        store.remove(folder)
        raise_alone(not_counted(error))
    except BaseException:
        store.remove(folder)
        raise


def trip_counts_of(records: Path, tree: FlowTree, **settings: Any) -> TripCounts:
    """Return the counts of :func:`count_records` in memory. ``settings`` are its keyword arguments.

    The files of counts are written beside the records, and removed before this function returns.
    """
    store, folder = LocalStore(records.parent), f"counts-{secrets.token_hex(6)}"
    try:
        return count_records(records, tree, store, folder, **settings).whole()
    finally:
        store.remove(folder)


def _check_breakdowns(breakdowns: Sequence[Breakdown], columns: Sequence[str]) -> None:
    for one in breakdowns:
        if loaded_column(one.name) not in columns:
            raise OdError(
                "OD-TRIPS-COLUMN",
                f"the loaded records have no categories of breakdown {one.name!r}",
                next_step="declare where its categories are read from, and read the records again",
            )


def _check_counts(connection: duckdb.DuckDBPyConnection, source: str) -> None:
    """Raise OdError if a count is invalid or the sum of all counts is too large."""
    firsts = ", ".join(f"min(file_row_number) FILTER (WHERE {fault})" for fault in _FAULTS.values())
    total = "coalesce(sum(TRY_CAST(trips AS BIGINT)), 0)"  # used only if every count is valid
    query = f"SELECT count(*), {firsts}, {total} FROM {source}"  # noqa: S608  # fixed parts, checked name
    rows, *first_rows, trips = connection.execute(query).fetchall()[0]
    for what, row in zip(_FAULTS, first_rows, strict=True):
        if row is not None:
            raise bad_count(what, row=row, rows=rows)
    if trips > MAX_COUNT:
        raise bad_count(SUM_TOO_LARGE)


def _counted(
    pairs: duckdb.DuckDBPyRelation, fault_threshold: Fraction, has_lost_zeros: Callable[[], bool]
) -> Iterator[Ranked]:
    """Yield, for each batch, what :meth:`Tally.take` yields.

    After the last batch, raise OdError if too many trips are faulty.

    Args:
        pairs: result of the query of :func:`trips_by_rank`, in order of rank.
        fault_threshold: see :func:`count_records`.
        has_lost_zeros: see :func:`od_core.records.faults.refuse_too_many_faults`.
    """
    tally = Tally()
    yield from tally.take(pairs.to_arrow_reader(_BATCH))
    refuse_too_many_faults(tally.faulty, tally.counted, fault_threshold, lost_zeros=has_lost_zeros)


def _has_lost_zeros(connection: duckdb.DuckDBPyConnection, tree: FlowTree) -> bool:
    return bool(connection.execute(lost_zeros(tree)).fetchall()[0][0])
