"""Confidential: count the trips of every leaf pair from the loaded records, out of core, by DuckDB.

The counts equal those of :func:`od_core.records.trip_counts.count_trips`, for records that do not fit in memory. DuckDB
finds the rank of each record (:mod:`od_core.records.count_query`), counts the records of each rank and sorts the ranks.
The results are written to files batch by batch.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from od_core.files.duckdb_session import parquet_rows, scratch_database
from od_core.geography.flow_tree import FlowTree
from od_core.ledger.object_store import LocalStore, Store
from od_core.privacy.neighbours import FAULT_THRESHOLD
from od_core.privacy.unit import TRIP, PrivacyUnit
from od_core.records.contribution_bound import IS_USER_ID, check_user_column, set_secret
from od_core.records.count_files import CountFiles, Ranked, finish_count_files, write_count_files
from od_core.records.count_query import Tally, lost_zeros, ranked_records, trips_by_rank, zone_tables
from od_core.records.faults import (
    FRACTION,
    MAX_COUNT,
    MISSING,
    NEGATIVE,
    SUM_TOO_LARGE,
    TOO_LARGE,
    bad_count,
    not_counted,
    refuse_too_many_faults,
)
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
"""SQL conditions of invalid counts, in the order in which they are reported."""


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
) -> CountFiles:
    """Place the loaded records in the public geographies, one by one, and count them in tree order.

    Each record is placed, sent to the ``unknown`` zone or dropped as in
    :func:`od_core.records.trip_counts.count_trips`. Then the records of a user above the contribution bound are cut.
    Memory is DuckDB's limit plus one file of counts.

    Args:
        records: Parquet file that ``load_records`` wrote: origin, destination (text), in_period; trips (BIGINT or
            DOUBLE) if a row is a flow; weight (DOUBLE) and user (text) if they are needed. DuckDB spills beside this
            file what does not fit in memory, and removes it.
        tree: the public flow tree.
        store, folder: where the counts are written; the folder is removed if the records are refused.
        unit, key, period: as in :func:`od_core.records.trip_counts.count_trips`; the user id is in column ``user``,
            whatever the name of the unit's column.
        fault_threshold: refuse the records if a larger share of their trips is faulty.

    Raises:
        OdError: a count is missing, negative, fractional, not finite or above 2^53; too many faulty trips; a user unit
            whose records have no user id, or have weights; weights without a bound, or a bound without weights; the
            records cannot be read, or memory and disk do not suffice. No message holds a value of a record.
    """
    try:
        with scratch_database(records.parent, records) as connection:
            source = parquet_rows(records, numbered=True)
            columns = connection.sql(f"FROM {source}").columns
            check_weight_column(unit, columns)
            if unit.kind != "trip":
                check_user_column("user", unit, columns)
                set_secret(connection, key, period)
            is_flows = "trips" in columns
            if is_flows:
                _check_counts(connection, source)
            person = f'CASE WHEN regexp_matches("user", \'{IS_USER_ID}\') THEN "user" END AS person'
            fields = "*" if unit.kind == "trip" else f"*, {person}"
            connection.execute(f"CREATE TEMP VIEW records AS SELECT {fields} FROM {source}")  # noqa: S608  # checked name
            for name, zones in zone_tables(tree).items():
                connection.register(name, zones)
            ranked = f"({ranked_records(tree, unit, is_flows=is_flows)})"
            pairs = connection.sql(f"{trips_by_rank(ranked, unit, is_flows=is_flows)} ORDER BY rank")
            has_lost_zeros = partial(_has_lost_zeros, connection, tree)
            counted = _counted(pairs, fault_threshold, has_lost_zeros)
            return finish_count_files(store, folder, write_count_files(store, f"{folder}/", counted))
    except (duckdb.Error, pa.ArrowException) as error:
        store.remove(folder)
        raise not_counted(error) from None
    except BaseException:
        store.remove(folder)
        raise


def trip_counts_of(records: Path, tree: FlowTree, **settings: Any) -> TripCounts:
    """Return the counts of :func:`count_records` in memory; their files stand beside the records until then."""
    store, folder = LocalStore(records.parent), f"counts-{secrets.token_hex(6)}"
    try:
        return count_records(records, tree, store, folder, **settings).whole()
    finally:
        store.remove(folder)


def _check_counts(connection: duckdb.DuckDBPyConnection, source: str) -> None:
    """Raise OdError for an invalid count, before any count is used."""
    firsts = ", ".join(f"min(file_row_number) FILTER (WHERE {fault})" for fault in _FAULTS.values())
    total = "coalesce(sum(TRY_CAST(trips AS BIGINT)), 0)"  # valid if all counts are
    query = f"SELECT count(*), {firsts}, {total} FROM {source}"  # noqa: S608  # fixed parts, checked name
    rows, *first_rows, trips = connection.sql(query).fetchall()[0]
    for what, row in zip(_FAULTS, first_rows, strict=True):
        if row is not None:
            raise bad_count(what, row=row, rows=rows)
    if trips > MAX_COUNT:
        raise bad_count(SUM_TOO_LARGE)


def _counted(
    pairs: duckdb.DuckDBPyRelation, fault_threshold: Fraction, has_lost_zeros: Callable[[], bool]
) -> Iterator[Ranked]:
    """Yield ranks that have trips, and these trips, batch by batch; at the end, refuse too many faults.

    Args:
        pairs: the query, in order of rank.
        fault_threshold: see :func:`count_records`.
        has_lost_zeros: see :func:`od_core.records.faults.refuse_too_many_faults`.
    """
    tally = Tally()
    yield from tally.take(pairs.to_arrow_reader(_BATCH))
    refuse_too_many_faults(tally.faulty, tally.counted, fault_threshold, lost_zeros=has_lost_zeros)


def _has_lost_zeros(connection: duckdb.DuckDBPyConnection, tree: FlowTree) -> bool:
    return bool(connection.sql(lost_zeros(tree)).fetchall()[0][0])
