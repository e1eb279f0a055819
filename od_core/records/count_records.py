"""Confidential: count the trips of every leaf pair from a file of loaded records, with DuckDB.

The counts equal those of :func:`od_core.records.trip_counts.count_trips`, but the records need not fit in memory.
DuckDB finds the rank (position in tree order) of each record's leaf pair (:mod:`od_core.records.count_query`), counts
the records of each rank and sorts the ranks. The results are written to files batch by batch.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from od_core.errors import OdError, raise_alone
from od_core.files.duckdb_session import parquet_rows, quoted_text, scratch_database
from od_core.geography.flow_tree import FlowTree
from od_core.ledger.object_store import LocalStore, Store
from od_core.ledger.user_counters import UserCounters
from od_core.privacy.neighbours import FAULT_THRESHOLD
from od_core.privacy.unit import TRIP, PrivacyUnit
from od_core.records.contribution_bound import check_user_column, id_patterns, keep_counters, set_secret, set_users
from od_core.records.count_files import CountFiles, Ranked, finish_count_files, write_count_files
from od_core.records.count_query import (
    Tally,
    category_tables,
    lost_zeros,
    placed_records,
    ranked_records,
    trips_by_rank,
    zone_tables,
)
from od_core.records.faults import (
    FRACTION,
    MAX_COUNT,
    MISSING,
    NEGATIVE,
    SUM_TOO_LARGE,
    TOO_LARGE,
    bad_count,
    not_counted,
    reading_errors,
    refuse_too_many_faults,
)
from od_core.records.segment_source import loaded_column
from od_core.records.segments import Breakdown
from od_core.records.trip_counts import TripCounts
from od_core.records.weights import check_weight_column

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
