"""Count loaded records in a file, which may be larger than the memory, into files of counts."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from od_core.errors import OdError, raise_alone
from od_core.files.duckdb_session import parquet_rows, scratch_database
from od_core.geography.flow_tree import FlowTree
from od_core.ledger.object_store import LocalStore, Store
from od_core.ledger.user_counters import UserCounters
from od_core.privacy.neighbours import FAULT_THRESHOLD
from od_core.privacy.unit import TRIP, PrivacyUnit
from od_core.records import faults
from od_core.records.count_files import CountFiles, finish_count_files, write_count_files
from od_core.records.count_query import CountQuery, counted
from od_core.records.segments import Breakdown, loaded_column
from od_core.records.trip_counts import TripCounts
from od_core.records.weights import check_unit_columns

if TYPE_CHECKING:
    import duckdb

_FAULTS = {
    faults.MISSING: "trips IS NULL OR isnan(trips::DOUBLE)",
    faults.NEGATIVE: "trips < 0",
    faults.TOO_LARGE: f"trips > {faults.MAX_COUNT}",
    faults.FRACTION: "trips != floor(trips)",
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
    :func:`od_core.records.trip_counts.count_trips`, whose other arguments this function shares. Then the contribution
    bound drops the records of a user above m. The memory is limited to that of DuckDB plus one file of counts.

    Args:
        records: Parquet file that ``load_records`` wrote. It has the columns origin and destination (text) and
            in_period, a column trips (BIGINT or DOUBLE) if a row is a flow, the columns weight (DOUBLE) and user (text)
            if the unit needs them, and for each breakdown a column ``segment_`` and its name (text). DuckDB writes data
            that do not fit in memory to a temporary folder beside this file.
        store, folder: store and folder for the files of counts. After every exception, this function removes the
            folder.

    Raises:
        OdError: ``count_trips`` would raise it for these records; they have no column of a breakdown; they cannot be
            read; or memory or disk space does not suffice. No message contains a value of a record.
    """
    try:
        with scratch_database(records.parent, records) as connection:
            source = parquet_rows(records, numbered=True)
            columns = connection.sql(f"FROM {source}").columns
            check_unit_columns(unit, columns, user="user")
            for one in breakdowns:
                if loaded_column(one.name) not in columns:
                    raise OdError(
                        "OD-TRIPS-COLUMN",
                        f"the loaded records have no categories of breakdown {one.name!r}",
                        next_step="declare where its categories are read from, and read the records again",
                    )
            is_flows = "trips" in columns
            if is_flows:
                _check_counts(connection, source)
            files = counted(
                connection,
                source,
                CountQuery(tree, unit, breakdowns, is_flows, counters is not None),
                partial(write_count_files, store, f"{folder}/"),
                key=key,
                period=period,
                fault_threshold=fault_threshold,
                counters=counters,
            )
            return finish_count_files(store, folder, files, breakdowns)
    except faults.reading_errors() as error:
        store.remove(folder)
        raise_alone(faults.not_counted(error))
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


def _check_counts(connection: duckdb.DuckDBPyConnection, source: str) -> None:
    """Raise OdError if a count is invalid or the sum of all counts is too large."""
    firsts = ", ".join(f"min(file_row_number) FILTER (WHERE {fault})" for fault in _FAULTS.values())
    total = "coalesce(sum(TRY_CAST(trips AS BIGINT)), 0)"  # used only if every count is valid
    query = f"SELECT count(*), {firsts}, {total} FROM {source}"  # noqa: S608  # fixed parts, checked name
    rows, *first_rows, trips = connection.execute(query).fetchall()[0]
    for what, row in zip(_FAULTS, first_rows, strict=True):
        if row is not None:
            raise faults.bad_count(what, row=row, rows=rows)
    if trips > faults.MAX_COUNT:
        raise faults.bad_count(faults.SUM_TOO_LARGE)
