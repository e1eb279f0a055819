"""Count loaded records in tree order with DuckDB, and write the SQL of the count, which also runs in Spark.

A rank is the position of a leaf pair (origin zone, destination zone) in tree order. The SQL finds the rank of each
record, counts the trips of each rank and sorts the ranks. The counts are written to files batch by batch. They equal
those of :func:`od_core.records.trip_counts.count_trips`, but the records need not fit in memory. They are confidential.

The SQL reads these relations:

- ``records``, with the columns origin and destination (text), in_period and, if the unit or the file needs them, trips,
  weight, person (the user id, NULL if it is not valid), and ``segment_`` and the name of a breakdown (text);
- the public relations of :attr:`CountQuery.relations`;
- under a user unit, the ``secret`` of :func:`od_core.records.contribution_bound.secret_table`.

The result for a record depends only on that record and on public data. The only exception is the contribution bound,
which also depends on the other records of the same user.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
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


@dataclass(frozen=True)
class CountQuery:
    """The SQL of the count of records, and the public relations that it reads.

    Attributes:
        tree, unit, breakdowns: as in :func:`od_core.records.trip_counts.count_trips`.
        is_flows: whether the records have a column ``trips``. Its values must be whole numbers from 0 to 2^53.
        with_users: as in :func:`od_core.records.contribution_bound.bounded`.
    """

    tree: FlowTree
    unit: PrivacyUnit
    breakdowns: Sequence[Breakdown] = ()
    is_flows: bool = False
    with_users: bool = False

    @property
    def relations(self) -> dict[str, pa.Table]:
        """The public relations by name.

        ``origin_zones`` and ``destination_zones`` have one row per zone, with its code and its factors term_1, term_2
        and so on. The rank (position in tree order) of a leaf pair is the sum of the products of its origin's and its
        destination's factors; see :meth:`FlowTree.rank_terms`. Each breakdown has a relation of its categories, and the
        position of each in the list.
        """
        zones = {
            f"{side}_zones": pa.table(
                {"code": geography.code_arrays[geography.depth]}
                | {f"term_{step}": np.ascontiguousarray(column) for step, column in enumerate(terms.T, start=1)}
            )
            for side, geography, terms in self._sides
        }
        return zones | {
            f"{loaded_column(one.name)}_list": pa.table(
                {"category": one.categories, "position": np.arange(len(one.categories), dtype=np.int32)}
            )
            for one in self.breakdowns
        }

    @property
    def ranked(self) -> str:
        """SQL whose result has one row per record: its rank, whether it is faulty, and its trips.

        The rank is the position, in tree order, of the leaf pair to which the record counts, or -1 if the record is not
        counted. Unlisted zones and categories are treated as in :func:`od_core.records.trip_counts.count_trips`. The
        column trips exists only for flows and for records with weights. With breakdowns, the column segment is the code
        of :mod:`od_core.records.segments`, and 0 for a record without one.
        """
        if self.unit.kind == "trip":
            return self.placed
        bound, by_segment = self.unit.contribution_bound, bool(self.breakdowns)
        return bounded(self.placed, bound, by_segment=by_segment, with_users=self.with_users)

    @property
    def placed(self) -> str:
        """The same SQL before the contribution bound of a user unit, with the columns person, origin, destination."""
        records, fields, conditions = "records", "", ["records.in_period"]
        if self.unit.max_weight is not None:
            records = f"(SELECT *, {counted_trips(self.unit.max_weight)} AS trips FROM records) AS records"  # noqa: S608  # our own
            fields = ", trips"
            conditions.append("records.trips IS NOT NULL")
        elif self.unit.kind != "trip":
            fields = ", person, records.origin, records.destination"
            conditions.append("records.person IS NOT NULL")
        elif self.is_flows:
            fields = ", trips"
        digits, joins, size = [], [], prod(len(one.categories) for one in self.breakdowns)
        for one in self.breakdowns:
            column, size = loaded_column(one.name), size // len(one.categories)
            joins.append(f"LEFT JOIN {column}_list AS {column} ON records.{column} = {column}.category")
            if one.unknown is None:
                conditions.append(f"{column}.category IS NOT NULL")
            otherwise = 0 if one.unknown is None else one.categories.index(one.unknown)
            digits.append(f"coalesce({column}.position, {otherwise}) * {size}")
        if digits:
            fields += f", CAST({' + '.join(digits)} AS INTEGER) AS segment"
        is_valid = " AND ".join(conditions)
        listed = [f"{side}s.code IS NOT NULL" for side, geography, _ in self._sides if geography.unknown is None]
        small = ", ".join(["origins", "destinations", *(loaded_column(one.name) for one in self.breakdowns)])
        # The hint makes Spark send the zones and categories to all executors, so that it does not move the records.
        return f"""
            SELECT /*+ BROADCAST({small}) */
                coalesce(CASE WHEN {" AND ".join([is_valid, *listed])} THEN {self._rank} END, -1) AS rank,
                origins.code IS NULL OR destinations.code IS NULL OR ({is_valid}) IS NOT TRUE AS faulty
                {fields}
            FROM {records}
            LEFT JOIN origin_zones AS origins ON records.origin = origins.code
            LEFT JOIN destination_zones AS destinations ON records.destination = destinations.code
            {" ".join(joins)}
        """  # noqa: S608  # numbers, and names of our own

    def by_rank(self, ranked: str) -> str:
        """Return SQL whose result has one row per rank, in any order: rank, trips, and the number of faulty trips.

        If the unit bounds weights, ``faulty`` is the number of faulty records, and a further column ``counted`` is the
        number of all records. With breakdowns, there is one row per rank and segment, with both. ``ranked`` is the SQL
        :attr:`ranked` in brackets, or the name of a relation with its result.
        """
        each = "CAST(trips AS BIGINT)" if self.is_flows or self.unit.max_weight is not None else "1"
        trips = f"CAST(coalesce(sum({each}), 0) AS BIGINT)" if each != "1" else "count(*)"
        faulty = "count(CASE WHEN faulty THEN 1 END)"
        if self.is_flows:
            faulty = f"CAST(coalesce(sum(CASE WHEN faulty THEN {each} END), 0) AS BIGINT)"
        counted = ", count(*) AS counted" if self.unit.max_weight is not None else ""
        key = self.key
        return f"SELECT {key}, {trips} AS trips, {faulty} AS faulty{counted} FROM {ranked} GROUP BY {key}"  # noqa: S608  # our own

    @property
    def key(self) -> str:
        """Columns that identify a row of :meth:`by_rank`."""
        return "rank, segment" if self.breakdowns else "rank"

    @property
    def lost_zeros(self) -> str:
        """SQL that tells whether most unlisted zone codes have probably lost their leading zeros.

        A code has probably lost them if it is listed after it is padded with zeros to the usual length of the codes.
        The result is one row with the column ``lost``.
        """
        unlisted = " UNION ALL ".join(
            f"""
            SELECT listed.code AS listed FROM (
                SELECT {filled_with_zeros(f"records.{side}", geography.zones)} AS filled
                FROM records LEFT JOIN {side}_zones AS zones ON records.{side} = zones.code
                WHERE records.{side} IS NOT NULL AND zones.code IS NULL
            ) AS unlisted LEFT JOIN {side}_zones AS listed ON unlisted.filled = listed.code
            """  # noqa: S608  # our own
            for side, geography, _ in self._sides
        )
        return f"SELECT 2 * count(listed) > count(*) AS lost FROM ({unlisted}) AS both_sides"  # noqa: S608  # our own

    @property
    def _sides(self) -> tuple[tuple[str, Geography, Numbers], tuple[str, Geography, Numbers]]:
        """Name, geography and factors of origins, then of destinations; factors have shape (zones, depth)."""
        origins, destinations = self.tree.rank_terms(self.tree.depth)
        return ("origin", self.tree.origin, origins), ("destination", self.tree.destination, destinations)

    @property
    def _rank(self) -> str:
        """SQL for the rank of a record whose zones are listed, or unlisted on a side with an ``unknown`` zone."""
        products = zip(*(_factors(f"{side}s", geography, terms) for side, geography, terms in self._sides), strict=True)
        terms = [f"CAST({one} AS BIGINT) * {other}" for one, other in products if "0" not in (one, other)]
        return " + ".join(terms) or "CAST(0 AS BIGINT)"


def _factors(table: str, geography: Geography, terms: Numbers) -> list[str]:
    """Return SQL for each factor of a record's zone in the record's rank (see :attr:`CountQuery.relations`).

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


class Tally:
    """Confidential: the sums from which the share of faults is computed.

    :meth:`take` updates them while it reads the result of :meth:`CountQuery.by_rank`.

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
        store, folder: store and folder for the files of counts. After every exception, this function removes the
            folder.
        breakdowns: as in ``count_trips``. Each has a column ``segment_`` and its name (text).
        tree, unit, key, period, fault_threshold, counters: as in ``count_trips``. The user id is in column ``user``.

    Raises:
        OdError: ``count_trips`` would raise it for these records; they have no column of a breakdown; they cannot be
            read; or memory or disk space does not suffice. No message contains a value of a record.
    """
    try:
        with scratch_database(records.parent, records) as connection:
            source = parquet_rows(records, numbered=True)
            columns = connection.sql(f"FROM {source}").columns
            check_weight_column(unit, columns)
            if unit.kind != "trip":
                check_user_column("user", unit, columns)
                set_secret(connection, key, period)
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
            is_id = " AND ".join(f'regexp_matches("user", {quoted_text(pattern)})' for pattern in id_patterns(unit))
            fields = "*" if unit.kind == "trip" else f'*, CASE WHEN {is_id} THEN "user" END AS person'
            connection.execute(f"CREATE TEMP VIEW records AS SELECT {fields} FROM {source}")  # noqa: S608  # checked name
            query = CountQuery(tree, unit, breakdowns, is_flows, counters is not None)
            for name, public in query.relations.items():
                connection.register(name, public)
            if counters is not None:
                set_users(connection, query.placed, counters.allowances())
            pairs = connection.sql(f"{query.by_rank(f'({query.ranked})')} ORDER BY {query.key}")
            tally = Tally()
            files = write_count_files(store, f"{folder}/", tally.take(pairs.to_arrow_reader(_BATCH)))

            def has_lost_zeros() -> bool:
                return bool(connection.execute(query.lost_zeros).fetchall()[0][0])

            refuse_too_many_faults(tally.faulty, tally.counted, fault_threshold, lost_zeros=has_lost_zeros)
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
