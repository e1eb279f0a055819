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
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
from jinja2 import Environment, StrictUndefined
from numpy.typing import NDArray

from od_core.files.duckdb_session import quoted_text
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography, Numbers
from od_core.ledger.user_counters import USER, UserCounters
from od_core.privacy.unit import PrivacyUnit
from od_core.records.contribution_bound import id_patterns, secret_table
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


_SQL: Any = (
    Environment(undefined=StrictUndefined)  # noqa: S701  # SQL
    .from_string(
        Path(__file__).with_name("count.sql").read_text(encoding="utf-8"), {"filled_with_zeros": filled_with_zeros}
    )
    .module
)

COUNTERS = f"SELECT {', '.join(USER)}, counted, trips FROM users"  # noqa: S608  # names of our own
"""SQL of the rows of :data:`od_core.ledger.user_counters.SCHEMA`, from the relation ``users``."""

SPARK_FUNCTIONS = """
    CREATE TEMP MACRO sha2(value, bits) AS sha256(value);
    CREATE TEMP MACRO conv(value, radix, wanted) AS CAST('0x' || value AS BIGINT);
"""
"""Statements for DuckDB that define functions under their names in Spark, so that both run the same SQL."""


@dataclass(frozen=True)
class CountQuery:
    """The SQL of the count of records, in ``count.sql``, and the public relations that it reads.

    Attributes:
        tree, unit, breakdowns: as in :func:`od_core.records.trip_counts.count_trips`.
        is_flows: whether the records have a column ``trips``. Its values must be whole numbers from 0 to 2^53.
        with_users: whether some users are allowed fewer trips, as the relation ``users`` states.
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
        digit of each in the code of :mod:`od_core.records.segments`.
        """
        zones = {
            f"{side}_zones": pa.table(
                {"code": geography.code_arrays[geography.depth]}
                | {f"term_{step}": np.ascontiguousarray(column) for step, column in enumerate(terms.T, start=1)}
            )
            for side, geography, terms in self.sides
        }
        return zones | {
            f"{loaded_column(one.name)}_list": pa.table(
                {"category": one.categories, "digit": np.arange(len(one.categories), dtype=np.int32) * size}
            )
            for one, size in self._sizes
        }

    def sql(self, name: str, *given: object) -> str:
        """Return the SQL of a macro of ``count.sql``, which gets the query and further arguments."""
        return str(getattr(_SQL, name)(self, *given))

    @property
    def key(self) -> str:
        """Columns that identify a row of ``by_rank``."""
        return "rank, segment" if self.breakdowns else "rank"

    @property
    def counted_trips(self) -> str | None:
        """SQL for the trips that a record with a weight counts; None if records have no weights."""
        return None if self.unit.max_weight is None else counted_trips(self.unit.max_weight)

    @property
    def counts_trips(self) -> bool:
        """Whether records have a number of trips, so that a record is not one trip."""
        return self.is_flows or self.unit.max_weight is not None

    @property
    def sides(self) -> tuple[tuple[str, Geography, Numbers], tuple[str, Geography, Numbers]]:
        """Name, geography and factors of origins, then of destinations; factors have shape (zones, depth)."""
        origins, destinations = self.tree.rank_terms(self.tree.depth)
        return ("origin", self.tree.origin, origins), ("destination", self.tree.destination, destinations)

    @property
    def rank(self) -> str:
        """SQL for the rank of a record whose zones are listed, or unlisted on a side with an ``unknown`` zone.

        It has those factors of :attr:`relations` that are equal for all zones as numbers. An unlisted zone has the
        factors of the ``unknown`` zone.
        """
        factors = []
        for side, geography, terms in self.sides:
            unknown = None if geography.unknown is None else geography.zones.index(geography.unknown)
            names = [f"{side}s.term_{step}" for step in range(1, terms.shape[1] + 1)]
            if unknown is not None:
                names = [f"coalesce({name}, {terms[unknown, step]})" for step, name in enumerate(names)]
            is_same = np.all(terms == terms[0], axis=0)
            factors.append([str(terms[0, step]) if is_same[step] else name for step, name in enumerate(names)])
        products = [
            f"CAST({one} AS BIGINT) * {other}" for one, other in zip(*factors, strict=True) if "0" not in (one, other)
        ]
        return " + ".join(products) or "CAST(0 AS BIGINT)"

    @property
    def digits(self) -> list[str]:
        """SQL for the digit of each breakdown in the code of a record's segments, 0 for a category that is faulty."""
        others = [0 if one.unknown is None else one.categories.index(one.unknown) for one in self.breakdowns]
        return [
            f"coalesce({loaded_column(one.name)}.digit, {position * size})"
            for position, (one, size) in zip(others, self._sizes, strict=True)
        ]

    @property
    def _sizes(self) -> list[tuple[Breakdown, int]]:
        """Each breakdown, and the number by which its positions are multiplied in the code of segments."""
        numbers = [len(one.categories) for one in self.breakdowns]
        return [(one, prod(numbers[at + 1 :])) for at, one in enumerate(self.breakdowns)]


class Tally:
    """Confidential: the sums from which the share of faults is computed.

    Attributes:
        counted: number of trips read so far; for records with weights, number of records.
        faulty: number of faulty trips or records among them.
    """

    def __init__(self) -> None:
        self.counted = self.faulty = 0

    def take(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Ranked]:
        """Add the result of ``by_rank`` to the sums, and yield it in batches.

        A batch has the ranks that have trips, the trips of each and, if there is one, its segment.
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
    query: CountQuery,
    take: Callable[[Iterator[Ranked]], T],
    *,
    key: bytes,
    period: str,
    fault_threshold: Fraction,
    counters: UserCounters | None,
    advice: str = "",
) -> T:
    """Count loaded records with DuckDB, and return what ``take`` makes of the counts, which it gets in order of rank.

    ``loaded`` is the SQL of a relation with the columns of :func:`od_core.records.load.load_records`. The other
    arguments are those of :func:`od_core.records.trip_counts.count_trips`, and of
    :func:`od_core.records.faults.refuse_too_many_faults`, which this function calls.
    """
    unit, fields = query.unit, "*"
    if unit.max_weight is not None:
        fields = f"* REPLACE (TRY_CAST({WEIGHT} AS DOUBLE) AS {WEIGHT})"
    elif unit.kind != "trip":
        connection.execute(SPARK_FUNCTIONS)
        connection.register("secret", secret_table(key, period))
        is_id = " AND ".join(f'regexp_matches("user", {quoted_text(pattern)})' for pattern in id_patterns(unit))
        fields = f'*, CASE WHEN {is_id} THEN "user" END AS person'
    connection.execute(f"CREATE TEMP VIEW records AS SELECT {fields} FROM {loaded}")  # noqa: S608  # names of our own
    for name, public in query.relations.items():
        connection.register(name, public)
    if counters is not None:
        allowances = counters.allowances()
        connection.register("allowances", allowances.table)
        connection.execute(f"CREATE TEMP TABLE users AS {query.sql('users', allowances.others)}")
    by_rank, tally = query.sql("by_rank", f"({query.sql('ranked')})"), Tally()
    pairs = connection.sql(f"{by_rank} ORDER BY {query.key}")
    counts = take(tally.take(pairs.to_arrow_reader(_BATCH)))

    refuse_too_many_faults(
        tally.faulty,
        tally.counted,
        fault_threshold,
        lost_zeros=lambda: bool(connection.execute(query.sql("lost_zeros")).fetchall()[0][0]),
        advice=advice,
    )
    if counters is not None:
        counters.keep(connection.sql(f"{COUNTERS} ORDER BY ALL").to_arrow_reader())
    return counts
