"""Confidential: the trips of every leaf pair, counted from the loaded records out of core by DuckDB.

The same counts as :func:`od_core.trips.count_trips`, for records that do not fit the memory: the numbers of the zones
are joined to each record, the records of a pair of zones are counted by DuckDB, and what is left, one row a pair, is
put into the order of the flow tree here, which takes a fraction of the time that DuckDB takes to sort it.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from od_core.contribution_bound import IS_USER_ID, bounded, check_user_column, set_key
from od_core.flow_tree import FlowTree, Pairs
from od_core.geography import Geography
from od_core.privacy.unit import TRIP, PrivacyUnit
from od_core.readers.scratch import file_name, quoted_text, scratch_database
from od_core.trip_faults import (
    FRACTION,
    MAX_COUNT,
    MISSING,
    NEGATIVE,
    SUM_TOO_LARGE,
    TOO_LARGE,
    bad_count,
    filled_with_zeros,
    not_counted,
    refuse_too_many_faults,
)
from od_core.trips import FAULT_THRESHOLD, TripCounts
from od_core.weights import check_weight_column, counted_trips

_FAULTS = {
    MISSING: "trips IS NULL OR isnan(trips::DOUBLE)",
    NEGATIVE: "trips < 0",
    TOO_LARGE: f"trips > {MAX_COUNT}",
    FRACTION: "trips != floor(trips)",
}
"""What no count is, in the order in which it is said."""


def count_records(
    records: Path,
    tree: FlowTree,
    *,
    unit: PrivacyUnit = TRIP,
    key: bytes = b"",
    period: str = "",
    fault_threshold: Fraction = FAULT_THRESHOLD,
) -> TripCounts:
    """Place the loaded records in the public geographies, one by one, and count them in tree order.

    Each record is placed, sent to the ``unknown`` zone or dropped as in :func:`od_core.trips.count_trips`; then those
    of a user above the contribution bound are cut. Memory is DuckDB's limit and then, when DuckDB is done, 32 bytes a
    leaf pair with trips.

    Args:
        records: Parquet file as ``load_records`` leaves it: origin, destination (text), in_period, and trips (BIGINT
            or DOUBLE) where a row is a flow, weight (DOUBLE) and user (text) where they are needed. What does not fit
            the memory goes beside it, and is removed.
        tree: the public flow tree.
        unit, key, period: as :func:`od_core.trips.count_trips`; the user id is in column ``user`` whatever the unit's
            column is called.
        fault_threshold: refuse the records when a larger share of their trips is faulty.

    Raises:
        OdError: a count is missing, negative, fractional, not finite or above 2^53; too many faulty trips; a user
            unit whose records have no user id, or weights; weights without a bound, or the reverse; the records
            cannot be read, or memory and disk do not suffice. No message holds a value of a record.
    """
    try:
        with scratch_database(records.parent) as connection:
            file = quoted_text(file_name(records))
            source = f"read_parquet({file})"
            columns = connection.sql(f"FROM {source}").columns
            check_weight_column(unit, columns)
            if unit.kind != "trip":
                check_user_column("user", unit, columns)
                set_key(connection, key, period)
            is_flows = "trips" in columns
            rows = _checked_rows(connection, file, is_flows=is_flows)
            _register_zones(connection, "origin_zones", tree.origin)
            _register_zones(connection, "destination_zones", tree.destination)
            if unit.max_weight is not None:
                counted = f"(SELECT *, {counted_trips(unit.max_weight)} AS trips FROM {source})"  # noqa: S608  # our own
                placed = _placed(counted, tree, fields=", trips", is_valid="in_period AND trips IS NOT NULL")
            elif unit.kind == "trip":
                placed = _placed(source, tree, fields=", trips" if is_flows else "")
            else:
                fields = ', "user", records.origin, records.destination'
                whole = f"in_period AND regexp_matches(\"user\", '{IS_USER_ID}')"
                placed = bounded(_placed(source, tree, fields=fields, is_valid=whole), unit.contribution_bound)
            pairs = connection.sql(_query(placed, is_flows=is_flows, has_weights=unit.max_weight is not None))
            lost_zeros = partial(_lost_zeros, connection, source, tree)
            rank, trips = _counted(pairs, rows, tree, fault_threshold, lost_zeros)
    except (duckdb.Error, pa.ArrowException) as error:
        raise not_counted(error) from None
    return TripCounts.from_ranks(tree, rank, trips)


def _checked_rows(connection: duckdb.DuckDBPyConnection, file: str, *, is_flows: bool) -> int:
    """Number of rows; raises OdError where a count is no count, before anything is made of them."""
    source = f"read_parquet({file}, file_row_number = true)"
    if not is_flows:
        return _one_row(connection, f"SELECT count(*) FROM {source}")[0]  # noqa: S608  # checked name
    firsts = ", ".join(f"min(file_row_number) FILTER (WHERE {fault})" for fault in _FAULTS.values())
    total = "coalesce(sum(TRY_CAST(trips AS BIGINT)), 0)"  # of use where all are counts
    query = f"SELECT count(*), {firsts}, {total} FROM {source}"  # noqa: S608  # fixed parts, checked name
    rows, *first_rows, trips = _one_row(connection, query)
    for what, row in zip(_FAULTS, first_rows, strict=True):
        if row is not None:
            raise bad_count(what, row=row, rows=rows)
    if trips > MAX_COUNT:
        raise bad_count(SUM_TOO_LARGE)
    return rows


def _one_row(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[int, ...]:
    (row,) = connection.sql(query).fetchall()
    return tuple(row)


def _register_zones(connection: duckdb.DuckDBPyConnection, name: str, geography: Geography) -> None:
    """The public zones of one side: code and number."""
    numbers = np.arange(len(geography.zones), dtype=np.int64)
    connection.register(name, pa.table({"code": pa.array(geography.zones, pa.string()), "number": numbers}))


def _placed(source: str, tree: FlowTree, *, fields: str, is_valid: str = "in_period") -> str:
    """Place of every record, -1 for one that is dropped, whether it is faulty, and the fields that are asked for.

    The place is the number of the record's pair of zones: origin's number times destinations, plus destination's.
    """
    origin, destination = _zone("origins", tree.origin), _zone("destinations", tree.destination)
    place = f"{origin} * {len(tree.destination.zones)} + {destination}"
    return f"""
        SELECT
            coalesce(CASE WHEN {is_valid} THEN {place} END, -1) AS place,
            origins.code IS NULL OR destinations.code IS NULL OR ({is_valid}) IS NOT TRUE AS faulty
            {fields}
        FROM {source} AS records
        LEFT JOIN origin_zones AS origins ON records.origin = origins.code
        LEFT JOIN destination_zones AS destinations ON records.destination = destinations.code
    """  # noqa: S608  # numbers, and the checked name of the file


def _zone(table: str, geography: Geography) -> str:
    """Number of a record's zone; of the ``unknown`` zone, or NULL, where the zone is not listed."""
    if geography.unknown is None:
        return f"{table}.number"
    return f"coalesce({table}.number, {geography.zones.index(geography.unknown)})"


def _query(placed: str, *, is_flows: bool, has_weights: bool) -> str:
    """Place, whether faulty, trips, and what the share of faults counts, of every pair of zones, in any order."""
    trips = "coalesce(sum(trips::BIGINT), 0)::BIGINT" if is_flows or has_weights else "count(*)"
    counted = "count(*)" if has_weights else trips
    return f"""
        SELECT place, faulty, {trips} AS trips, {counted} AS counted FROM ({placed}) GROUP BY place, faulty
    """  # noqa: S608  # our own


def _counted(
    pairs: duckdb.DuckDBPyRelation,
    rows: int,
    tree: FlowTree,
    fault_threshold: Fraction,
    lost_zeros: Callable[[], bool],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rank and trips of every leaf pair, in any order, from a query's result, batch by batch.

    Args:
        pairs: the query.
        rows: number of records, which bounds the number of pairs.
        tree, fault_threshold: see :func:`count_records`.
        lost_zeros: see :func:`od_core.trip_faults.refuse_too_many_faults`.
    """
    rank = np.empty(rows, dtype=np.int64)  # pages that are not written to take no memory
    trips = np.empty(rows, dtype=np.int64)
    kept = all_counted = faulty = 0
    for batch in pairs.to_arrow_reader(1 << 17):
        place, is_faulty, counts, counted = (
            batch[name].to_numpy(zero_copy_only=False) for name in ("place", "faulty", "trips", "counted")
        )
        all_counted += int(counted.sum())
        faulty += int(counted[is_faulty].sum())
        placed = place >= 0
        origin, destination = np.divmod(place[placed], len(tree.destination.zones))
        end = kept + len(origin)
        rank[kept:end] = tree.first_rank(Pairs(tree.depth, origin.astype(np.int32), destination.astype(np.int32)))
        trips[kept:end] = counts[placed]
        kept = end
    refuse_too_many_faults(faulty, all_counted, fault_threshold, lost_zeros=lost_zeros)
    return rank[:kept], trips[:kept]


def _lost_zeros(connection: duckdb.DuckDBPyConnection, source: str, tree: FlowTree) -> bool:
    """Whether most of the codes that are not listed would be, with zeros before them to the usual length."""
    unlisted = listed = 0
    for side, geography in (("origin", tree.origin), ("destination", tree.destination)):
        filled, zones = filled_with_zeros(side, geography.zones), f"(SELECT code FROM {side}_zones)"  # noqa: S608  # our own
        query = f"""
            SELECT count(*), count(*) FILTER (WHERE {filled} IN {zones}) FROM {source} WHERE {side} NOT IN {zones}
        """  # noqa: S608  # numbers, and the checked name of the file
        of_side = _one_row(connection, query)
        unlisted, listed = unlisted + of_side[0], listed + of_side[1]
    return 2 * listed > unlisted
