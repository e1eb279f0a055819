"""Confidential: the trips of every leaf pair, counted from the loaded records out of core by DuckDB.

The same counts as :func:`od_core.trips.count_trips`, for records that do not fit the memory: zones and their terms
of the rank are joined to each record, the rank in the flow tree is the key that records are grouped and sorted by.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from od_core.contribution_bound import IS_USER_ID, bounded, check_user_column, set_key
from od_core.flow_tree import FlowTree
from od_core.geography import Geography, Numbers
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
    not_counted,
    refuse_too_many_faults,
)
from od_core.trips import FAULT_THRESHOLD, TripCounts

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
    of a user above the contribution bound are cut. Memory beyond DuckDB's limit is 16 bytes a leaf pair with trips.

    Args:
        records: Parquet file as ``load_records`` leaves it: origin, destination (text), in_period, and trips (BIGINT
            or DOUBLE) where a row is a flow, user (text) where it is needed. What does not fit the memory goes beside
            it, and is removed.
        tree: the public flow tree.
        unit, key, period: as :func:`od_core.trips.count_trips`; the user id is in column ``user`` whatever the unit's
            column is called.
        fault_threshold: refuse the records when a larger share of their trips is faulty.

    Raises:
        OdError: a count is missing, negative, fractional, not finite or above 2^53; too many faulty trips; a user
            unit whose records have no user id, or weights; the records cannot be read, or memory and disk do not
            suffice. No message holds a value of a record.
    """
    try:
        with scratch_database(records.parent) as connection:
            source = f"read_parquet({quoted_text(file_name(records))}, file_row_number = true)"
            columns = connection.sql(f"FROM {source}").columns
            if unit.kind != "trip":
                check_user_column("user", unit, columns)
                set_key(connection, key, period)
            is_flows = "trips" in columns
            rows = _checked_rows(connection, source, is_flows=is_flows)
            _register_zones(connection, "origin_zones", tree.origin, tree.rank_terms(tree.depth)[0])
            _register_zones(connection, "destination_zones", tree.destination, tree.rank_terms(tree.depth)[1])
            if unit.kind == "trip":
                placed = _placed(source, tree, fields=", trips" if is_flows else "")
            else:
                fields = ', "user", records.origin, records.destination'
                whole = f"in_period AND regexp_matches(\"user\", '{IS_USER_ID}')"
                placed = bounded(_placed(source, tree, fields=fields, is_valid=whole), unit.contribution_bound)
            return _counted(connection.sql(_query(placed, is_flows=is_flows)), rows, fault_threshold)
    except (duckdb.Error, pa.ArrowException) as error:
        raise not_counted(error) from None


def _checked_rows(connection: duckdb.DuckDBPyConnection, source: str, *, is_flows: bool) -> int:
    """Number of rows; raises OdError where a count is no count, before anything is made of them."""
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


def _register_zones(connection: duckdb.DuckDBPyConnection, name: str, geography: Geography, terms: Numbers) -> None:
    """The public zones of one side: code, and what the zone brings to the rank of a pair."""
    columns = {f"term_{k}": np.ascontiguousarray(column) for k, column in enumerate(terms.T)}
    connection.register(name, pa.table({"code": pa.array(geography.zones, pa.string()), **columns}))


def _placed(source: str, tree: FlowTree, *, fields: str, is_valid: str = "in_period") -> str:
    """Rank of every record, -1 for one that is dropped, whether it is faulty, and the fields that are asked for."""
    return f"""
        SELECT
            coalesce(CASE WHEN {is_valid} THEN {rank_expression(tree)} END, -1) AS rank,
            origins.code IS NULL OR destinations.code IS NULL OR ({is_valid}) IS NOT TRUE AS faulty
            {fields}
        FROM {source} AS records
        LEFT JOIN origin_zones AS origins ON records.origin = origins.code
        LEFT JOIN destination_zones AS destinations ON records.destination = destinations.code
    """  # noqa: S608  # numbers, and the checked name of the file


def _query(placed: str, *, is_flows: bool) -> str:
    """Rank, trips and faulty trips of every leaf pair in tree order; what has no place has rank -1."""
    trips, faulty_trips = ("sum(trips::BIGINT)::BIGINT", "sum(trips::BIGINT)") if is_flows else ("count(*)", "count(*)")
    return f"""
        SELECT rank, {trips} AS trips, coalesce({faulty_trips} FILTER (WHERE faulty), 0)::BIGINT AS faulty
        FROM ({placed})
        GROUP BY rank
        ORDER BY rank
    """  # noqa: S608  # queries of our own


def rank_expression(tree: FlowTree) -> str:
    """The rank of a leaf pair as SQL over the terms of its zones (``FlowTree.rank_terms``), in 64-bit integers.

    An unlisted zone (NULL after the join) has the terms of the ``unknown`` zone, or makes the rank NULL.
    """
    origin_terms, destination_terms = tree.rank_terms(tree.depth)
    origins = _terms("origins", tree.origin, origin_terms)
    destinations = _terms("destinations", tree.destination, destination_terms)
    return " + ".join(f"{o} * {d}" for o, d in zip(origins, destinations, strict=True))


def _terms(table: str, geography: Geography, terms: Numbers) -> list[str]:
    names = [f"{table}.term_{k}::BIGINT" for k in range(terms.shape[1])]
    if geography.unknown is None:
        return names
    unknown = terms[geography.zones.index(geography.unknown)]
    return [f"coalesce({name}, {term})" for name, term in zip(names, unknown, strict=True)]


def _counted(pairs: duckdb.DuckDBPyRelation, rows: int, fault_threshold: Fraction) -> TripCounts:
    """The counts from a query's result, batch by batch; ``rows`` bounds the number of pairs."""
    rank = np.empty(rows, dtype=np.int64)  # pages that are not written to take no memory
    before = np.empty(rows + 1, dtype=np.int64)
    before[0] = kept = trips = faulty = 0
    for batch in pairs.to_arrow_reader(1 << 17):
        ranks, counts, faults = (batch[name].to_numpy() for name in ("rank", "trips", "faulty"))
        trips += int(counts.sum())
        faulty += int(faults.sum())
        placed = (ranks >= 0) & (counts > 0)
        end = kept + int(np.count_nonzero(placed))
        rank[kept:end] = ranks[placed]
        before[kept + 1 : end + 1] = before[kept] + np.cumsum(counts[placed])
        kept = end
    refuse_too_many_faults(faulty, trips, fault_threshold)
    return TripCounts(rank[:kept], before[: kept + 1])
