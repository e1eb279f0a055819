"""Count loaded records in tree order with SQL, which DuckDB and Spark run alike.

A rank is the position of a leaf pair (origin zone, destination zone) in tree order. The SQL finds the rank of each
record, counts the trips of each rank and sorts the ranks. It reads these relations:

- ``records``, with the columns origin and destination (text), in_period and, if the unit or the file needs them, trips,
  weight, person (the user id, NULL if it is not valid), and ``segment_`` and the name of a breakdown (text);
- the public relations of :attr:`CountQuery.relations`;
- under a user unit, the ``secret`` of :func:`od_core.records.contribution_bound.secret_table`.

The result for a record depends only on that record and on public data. The only exception is the contribution bound,
which also depends on the other records of the same user. Counts are confidential.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from od_core.files.duckdb_session import quoted_text
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography, Numbers
from od_core.ledger.user_counters import UserCounters
from od_core.privacy.unit import PrivacyUnit
from od_core.records.contribution_bound import COUNTERS, SPARK_FUNCTIONS, bounded, id_patterns, secret_table, users_of
from od_core.records.faults import filled_with_zeros, refuse_too_many_faults
from od_core.records.segments import Breakdown, loaded_column
from od_core.records.weights import WEIGHT, counted_trips

if TYPE_CHECKING:
    import duckdb

T = TypeVar("T")

Ranked = tuple[NDArray[np.int64], ...]
"""Ranks (positions in tree order) of leaf pairs, ascending, and the trips of each, at least 1; shape (pairs,) each.

If trips are counted by segment, the third array is the code of :mod:`od_core.records.segments`, and a leaf pair
occurs once for each of its codes.
"""


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


def counted(
    connection: duckdb.DuckDBPyConnection,
    loaded: str,
    tree: FlowTree,
    take: Callable[[Iterator[Ranked]], T],
    *,
    unit: PrivacyUnit,
    key: bytes,
    period: str,
    fault_threshold: Fraction,
    breakdowns: Sequence[Breakdown],
    counters: UserCounters | None,
    advice: str = "",
) -> T:
    """Count loaded records with DuckDB, and return what ``take`` makes of the counts, which it gets in order of rank.

    ``loaded`` is the SQL of a relation with the columns of :func:`od_core.records.load.load_records`. The other
    arguments are those of :func:`od_core.records.trip_counts.count_trips`, and of
    :func:`od_core.records.faults.refuse_too_many_faults`, which this function calls.
    """
    is_flows, fields = "trips" in connection.sql(f"FROM {loaded}").columns, "*"
    if unit.max_weight is not None:
        fields = f"* REPLACE (TRY_CAST({WEIGHT} AS DOUBLE) AS {WEIGHT})"
    elif unit.kind != "trip":
        connection.execute(SPARK_FUNCTIONS)
        connection.register("secret", secret_table(key, period))
        is_id = " AND ".join(f'regexp_matches("user", {quoted_text(pattern)})' for pattern in id_patterns(unit))
        fields = f'*, CASE WHEN {is_id} THEN "user" END AS person'
    connection.execute(f"CREATE TEMP VIEW records AS SELECT {fields} FROM {loaded}")  # noqa: S608  # names of our own
    query = CountQuery(tree, unit, breakdowns, is_flows, counters is not None)
    for name, public in query.relations.items():
        connection.register(name, public)
    if counters is not None:
        allowances = counters.allowances()
        connection.register("allowances", allowances.table)
        connection.execute(f"CREATE TEMP TABLE users AS {users_of(query.placed, allowances)}")
    pairs, tally = connection.sql(f"{query.by_rank(f'({query.ranked})')} ORDER BY {query.key}"), Tally()
    counts = take(tally.take(pairs.to_arrow_reader(_BATCH)))

    def has_lost_zeros() -> bool:
        return bool(connection.execute(query.lost_zeros).fetchall()[0][0])

    refuse_too_many_faults(tally.faulty, tally.counted, fault_threshold, lost_zeros=has_lost_zeros, advice=advice)
    if counters is not None:
        counters.keep(connection.sql(f"{COUNTERS} ORDER BY ALL").to_arrow_reader())
    return counts
