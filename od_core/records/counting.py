"""Confidential: count records by leaf pair with SQL, which DuckDB and Spark run alike, in files and in memory.

A rank is the position of a leaf pair (origin zone, destination zone) in tree order. The SQL (``count.sql``) finds the
rank of each record, counts the trips of each rank and sorts the ranks. The treatment of a record depends only on that
record and on public data, with one exception: the contribution bound, which also depends on the other records of the
same user. See ``docs/explanation/privacy.md``.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from od_core.errors import OdError, raise_without_context
from od_core.files.data_frame import TableOrFile
from od_core.files.duckdb_session import (
    SqlMacros,
    connect_to_memory_database,
    make_machine_error,
    make_parquet_sql,
    open_scratch_database,
    quote_literal,
)
from od_core.geography.codes import format_pandas_advice
from od_core.geography.flow_tree import FlowTree, Pairs
from od_core.geography.geography import Geography, Numbers
from od_core.ledger.object_store import LocalStore, Store
from od_core.ledger.user_counters import UserCounters
from od_core.privacy.neighbours import FAULT_THRESHOLD
from od_core.privacy.unit import TRIP, PrivacyUnit
from od_core.records import faults
from od_core.records.callers_table import load_trips
from od_core.records.counts import CountFiles, Ranked, TripCounts, finish_count_files, write_count_files
from od_core.records.segments import Breakdown, name_segment_column

if TYPE_CHECKING:
    import duckdb

T = TypeVar("T")

_SQL = SqlMacros(
    Path(__file__).with_name("count.sql"),
    make_other_encoding_sql=faults.make_other_encoding_sql,
    make_zero_padding_sql=faults.make_zero_padding_sql,
    id_patterns=faults.list_id_patterns,
    quote_literal=quote_literal,
    IS_WEIGHT=faults.IS_WEIGHT,
    MAX_COUNT=faults.MAX_COUNT,
)

_SHA256_BLOCK_BYTES = 64
"""Block length of SHA-256 in bytes. The key is padded with zeros to this length (RFC 2104)."""


class CountOptions(TypedDict, total=False):
    """The attributes of a :class:`CountQuery` that a caller chooses, as keyword arguments."""

    unit: PrivacyUnit
    breakdowns: Sequence[Breakdown]
    key: bytes
    fault_threshold: Fraction
    counters: UserCounters | None


@dataclass(frozen=True)
class CountQuery:
    """What is counted: the SQL of the count, in ``count.sql``, and the relations that it reads.

    If the unit is a user, a record without a valid user id (missing, blank, or not matching ``id_pattern``) is a fault
    and is dropped. Of the remaining records of a user, at most m (the contribution bound) are counted. A record whose
    zone is not listed is assigned to the geography's ``unknown`` zone, and dropped if there is none. A record of a pair
    that cannot have trips is a fault and is dropped.

    Attributes:
        tree: the public flow tree.
        unit: the privacy unit.
        breakdowns: breakdowns by which trips are also counted. A record whose category is missing or not listed goes to
            the breakdown's ``unknown`` category. If there is none, the record is a fault and is dropped. The
            contribution bound chooses trips of the same leaf pairs with and without breakdowns, unless such a fault is
            dropped.
        key: secret of 32 to 64 bytes, chosen without using the data. For user units, it decides which trips count.
        period: period of the records. Other trips of a user are chosen in another period.
        fault_threshold: largest share of the trips that may be faulty.
        counters: for a unit of a year, the counters of users, by which M is kept, and which a count stores.
        is_flows: whether the records have a column ``trips``. Its values must be whole numbers from 0 to 2^53.
        is_located: whether the records have the columns of :meth:`locate_records`. Then the SQL joins no zones.
    """

    tree: FlowTree
    unit: PrivacyUnit = TRIP
    breakdowns: Sequence[Breakdown] = ()
    key: bytes = field(default=b"", repr=False)
    period: str = ""
    fault_threshold: Fraction = FAULT_THRESHOLD
    counters: UserCounters | None = field(default=None, repr=False)
    is_flows: bool = False
    is_located: bool = False

    @property
    def secret(self) -> pa.Table:
        """Confidential: the relation ``secret``, which has one row with the key and the period.

        The SQL reads them from this relation, so they appear in no query text and no query plan. The key is stored as
        the two padded keys of HMAC. Raises OdError if the key is shorter than 32 bytes, or longer than 64.
        """
        if not 32 <= len(self.key) <= _SHA256_BLOCK_BYTES:
            message = "the key that selects users' trips must have 32 to 64 bytes"
            raise OdError("OD-KEY-LENGTH", message, next_step="use ConfidentialFolder.read_or_make_key()")
        padded = self.key.ljust(_SHA256_BLOCK_BYTES, b"\0")
        inner_key = bytes(byte ^ 0x36 for byte in padded)
        outer_key = bytes(byte ^ 0x5C for byte in padded)
        return pa.table(
            {
                "inner_key": pa.array([inner_key], pa.binary()),
                "outer_key": pa.array([outer_key], pa.binary()),
                "period": [self.period],
            }
        )

    @property
    def relations(self) -> dict[str, pa.Table]:
        """The public tables that the SQL of the count reads, by name.

        ``origin_zones`` and ``destination_zones`` have one row per zone, with its code and its factors term_1, term_2
        and so on. The rank (position in tree order) of a leaf pair is the sum of the products of its origin's and its
        destination's factors; see :meth:`FlowTree.compute_rank_terms`. Each breakdown has a relation of its categories,
        and the digit of each in the code of :mod:`od_core.records.segments`.
        """
        relations = {}
        for side, geography, terms in self.sides:
            columns = {"code": geography.code_arrays[geography.depth]}
            for number, factors in enumerate(terms.T, start=1):
                columns[f"term_{number}"] = np.ascontiguousarray(factors)
            relations[f"{side}_zones"] = pa.table(columns)
        if self.tree.possible is not None and not self.is_located:
            relations["possible_pairs"] = pa.table({"rank": self.tree.possible_ranks})
        for breakdown, factor in self.segment_factors:
            digits = np.arange(len(breakdown.categories), dtype=np.int32) * factor
            categories = pa.table({"category": breakdown.categories, "digit": digits})
            relations[f"{name_segment_column(breakdown.name)}_list"] = categories
        return relations

    def locate_records(self, records: pa.Table) -> pa.Table:
        """Return loaded records in memory with the columns for which the SQL would otherwise join the zones.

        This takes a fifth of the time of the join. The struct columns ``origins`` and ``destinations`` have the number
        of a zone as the field ``code``, or NULL if the zone is not listed. The column ``pair`` has the rank of the leaf
        pair. If the tree says which pairs can have trips, the column ``is_possible`` says whether this one can.
        """
        located = records
        zone_numbers = []
        for side, geography, _ in self.sides:
            numbers = pc.index_in(records[side], geography.code_arrays[geography.depth]).combine_chunks()
            located = located.append_column(f"{side}s", pa.StructArray.from_arrays([numbers], ["code"]))
            # Without an unknown zone, a record of an unlisted zone is dropped, whatever its rank.
            number_of_unlisted = 0 if geography.unknown is None else geography.zones.index(geography.unknown)
            zone_numbers.append(numbers.fill_null(number_of_unlisted).to_numpy())
        ranks = self.tree.compute_first_ranks(Pairs(self.tree.depth, *zone_numbers))
        if self.tree.possible is not None:
            located = located.append_column("is_possible", pa.array(self.tree.are_possible(ranks)))
        return located.append_column("pair", pa.array(ranks))

    def render_sql(self, name: str, *arguments: object) -> str:
        """Return the SQL of a macro of ``count.sql``, which gets the query and further arguments."""
        return _SQL[name](self, *arguments)

    @property
    def group_columns(self) -> str:
        """Columns that identify a row of ``by_rank``."""
        return "rank, segment" if self.breakdowns else "rank"

    @property
    def sides(self) -> tuple[tuple[str, Geography, Numbers], tuple[str, Geography, Numbers]]:
        """Name, geography and factors of origins, then of destinations; factors have shape (zones, depth)."""
        origins, destinations = self.tree.compute_rank_terms(self.tree.depth)
        return ("origin", self.tree.origin, origins), ("destination", self.tree.destination, destinations)

    @property
    def rank_sql(self) -> str:
        """SQL for the rank of a record. A zone that is not listed counts as the ``unknown`` zone, if there is one.

        The rank is the sum of the products of factors that :attr:`relations` explains, without those that are 0.
        """
        if self.is_located:
            return "pair"
        origin_factors, destination_factors = (_list_factors_sql(*side) for side in self.sides)
        products = []
        for origin_factor, destination_factor in zip(origin_factors, destination_factors, strict=True):
            if "0" not in (origin_factor, destination_factor):
                products.append(f"CAST({origin_factor} AS BIGINT) * {destination_factor}")
        return " + ".join(products) or "CAST(0 AS BIGINT)"

    @property
    def possible_sql(self) -> str | None:
        """SQL condition that the leaf pair of a record can have trips; None if every pair can."""
        if self.tree.possible is None:
            return None
        if self.is_located:
            return "records.is_possible"
        return f"({self.rank_sql}) IN (SELECT rank FROM possible_pairs)"  # noqa: S608  # our own SQL

    @property
    def segment_factors(self) -> list[tuple[Breakdown, int]]:
        """Each breakdown, and the factor of the position of its category in the code of segments.

        The code of a record is the sum, over the breakdowns, of the position of its category times this factor.
        """
        sizes = [len(breakdown.categories) for breakdown in self.breakdowns]
        return [(breakdown, prod(sizes[position + 1 :])) for position, breakdown in enumerate(self.breakdowns)]


def _list_factors_sql(side: str, geography: Geography, terms: Numbers) -> list[str]:
    """Return the SQL of each factor of the zones of one side, in the rank of a leaf pair; see ``relations``.

    A factor that is equal for all zones is a number. An unlisted zone has the factors of the ``unknown`` zone.
    """
    is_constant = np.all(terms == terms[0], axis=0)
    factors = []
    for position in range(terms.shape[1]):
        column = f"{side}s.term_{position + 1}"
        if is_constant[position]:
            factors.append(str(terms[0, position]))
        elif geography.unknown is None:
            factors.append(column)
        else:
            unknown_zone = geography.zones.index(geography.unknown)
            factors.append(f"coalesce({column}, {terms[unknown_zone, position]})")
    return factors


class Tally:
    """Confidential: sums of the rows read so far, from which the share of faulty trips is computed.

    Attributes:
        counted: number of trips read so far; for records with weights, number of records.
        faulty: number of faulty trips or records among them.
    """

    def __init__(self) -> None:
        self.counted = self.faulty = 0

    def iterate_counts(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Ranked]:
        """Add the rows of the macro ``by_rank`` or ``by_row`` to the sums, and yield the counts of each batch.

        A yielded tuple has arrays of shape (rows,): the ranks, the trips and, if the batch has them, the codes of
        segments. It leaves out rows without trips, and faulty and surplus records, which have the rank -1.
        """
        for batch in batches:
            columns = {name: batch[name].to_numpy() for name in batch.schema.names}
            # Only records with weights have the column ``counted``: their trips are weights.
            self.counted += int(columns.get("counted", columns["trips"]).sum())
            self.faulty += int(columns["faulty"].sum())
            is_counted = (columns["rank"] >= 0) & (columns["trips"] > 0)
            yield tuple(columns[name][is_counted] for name in ("rank", "trips", "segment") if name in columns)


def refuse_bad_counts(rows: int, *bad_rows: int | None) -> None:
    """Raise OdError for the first kind of fault that the macro ``bad_counts`` found in the column of trips.

    ``rows`` is the number of all rows. ``bad_rows`` has one value for each of the ``kinds`` below: the position, from
    0, of the first row with this fault; -1 for a fault of the whole column; None without such a fault.
    """
    kinds = (faults.MISSING, faults.NEGATIVE, faults.TOO_LARGE, faults.FRACTION, faults.SUM_TOO_LARGE)
    for kind, row in zip(kinds, bad_rows, strict=True):
        if row is not None:
            raise faults.make_count_error(kind, row=None if row < 0 else row, rows=rows)


_RANKS_PER_BATCH = 1 << 17  # number of ranks that are taken from DuckDB at a time


def _count_loaded_records(
    connection: duckdb.DuckDBPyConnection,
    loaded: str,
    query: CountQuery,
    collect: Callable[[Iterator[Ranked]], T],
    *,
    advice: str = "",
) -> T:
    """Count loaded records by rank with DuckDB, and return what ``collect`` makes of the batches of counts.

    The counters of users, if the query has any, are stored, or compared with the stored ones.

    Args:
        connection: connection on which the SQL runs. Relations and tables are added to it.
        loaded: SQL of the relation of the loaded records.
        query: what is counted.
        collect: makes the result from the counts of all batches; see :meth:`Tally.iterate_counts`.
        advice: argument of :func:`od_core.records.faults.refuse_too_many_faults`.

    Raises:
        OdError: too many trips are faulty, the key has a wrong length, or a method of the counters raised it.
    """
    if query.tree.possible is not None:
        advice += ", or the list of possible pairs: a record of another pair is a fault, too"
    if query.unit.is_of_users:
        connection.register("secret", query.secret)
    connection.execute(query.render_sql("in_duckdb", loaded))
    for name, public in query.relations.items():
        connection.register(name, public)
    if query.counters is not None:
        allowances = query.counters.compute_allowances()
        connection.register("allowances", allowances.table)
        connection.execute(f"CREATE TEMP TABLE users AS {query.render_sql('users', allowances.others)}")
    ranked = f"({query.render_sql('ranked')})"
    if query.is_located and query.is_flows:  # mostly one row a pair: a sort in NumPy is faster than sums in SQL
        rows = query.render_sql("by_row", ranked)
    else:
        rows = f"{query.render_sql('by_rank', ranked)} ORDER BY {query.group_columns}"
    tally = Tally()
    counts = collect(tally.iterate_counts(connection.sql(rows).to_arrow_reader(_RANKS_PER_BATCH)))

    faults.refuse_too_many_faults(
        tally.faulty,
        tally.counted,
        query.fault_threshold,
        most_unlisted=lambda: _find_most_unlisted(connection, query),
        advice=advice,
    )
    if query.counters is not None:
        counters = connection.sql(f"{query.render_sql('counters')} ORDER BY ALL")
        query.counters.store_or_compare(counters.to_arrow_reader())
    return counts


def _find_most_unlisted(connection: duckdb.DuckDBPyConnection, query: CountQuery) -> tuple[bool, bool]:
    """Return whether most unlisted codes have lost leading zeros, and whether most have accents encoded otherwise.

    Return False for both if the zones were found in the records: such a zone list is confidential.
    """
    if query.tree.found is not None:
        return False, False
    lost_zeros, are_encoded_otherwise = connection.execute(query.render_sql("most_unlisted")).fetchall()[0]
    return lost_zeros, are_encoded_otherwise


@contextmanager
def _replace_reading_errors() -> Iterator[None]:
    """Replace a reading error that is raised in this context by an OdError, because its message may quote a value."""
    try:
        yield
    except faults.list_reading_errors() as error:
        lost = OdError(
            "OD-TRIPS-NOT-COUNTED",
            "the loaded records cannot be counted: their file is missing or damaged, or the counts cannot be written",
            next_step="run the release again from its first step, which reads the file of records",
            confidential_detail=str(error),
        )
        raise_without_context(make_machine_error(error, "the loaded records cannot be counted") or lost)


def count_trips(
    flows: TableOrFile,
    tree: FlowTree,
    *,
    one_row_a_trip: bool = False,
    columns: Mapping[str, str] | None = None,
    unread: Sequence[str] = (),
    period: str = "",
    **options: Unpack[CountOptions],
) -> TripCounts:
    """Return the trips of a caller's table, counted in memory by leaf pair (origin zone, destination zone).

    Args:
        flows: table, or path of a file as in :func:`od_core.records.callers_table.read_table`, with text columns
            ``origin`` and ``destination``, and either ``trips`` (whole numbers) or one row per trip. An optional column
            ``in_period`` (true or false) marks the records of the period. All others are faults and are dropped. If the
            unit is a user: one row per trip, with the unit's column of user ids (text or whole numbers). If the unit
            bounds weights: one row per record, with column ``weight``. Each breakdown has a text column with its name.
        one_row_a_trip: True if each row is known to be one trip. If False and there is no column of trips or weights, a
            table with columns that are not read is refused.
        columns: names of the columns in ``flows``, by these names.
        unread: further names, whose columns are known not to hold the number of trips of a row.
        tree, period, options: attributes of :class:`CountQuery`.

    Raises:
        OdError: as in :func:`od_core.records.callers_table.load_trips`; too many trips are faulty; ``options.key``
            has a wrong length; or a method of ``counters`` raised it.
    """
    query = CountQuery(tree, period=period, **options)
    records = load_trips(
        flows,
        query.unit,
        columns,
        query.breakdowns,
        one_row_a_trip=one_row_a_trip,
        unread=unread,
        has_one_side=tree.has_one_side,
    )
    categories = [category for breakdown in query.breakdowns for category in breakdown.categories]
    with _replace_reading_errors(), connect_to_memory_database() as connection:
        connection.register("loaded", query.locate_records(records))
        query = replace(query, is_flows="trips" in records.column_names, is_located=True)
        public = tree.public  # found areas are confidential
        advice = format_pandas_advice([*public.origin.zones, *public.destination.zones, *categories])
        collect = partial(TripCounts.from_rows, breakdowns=query.breakdowns)
        return _count_loaded_records(connection, "loaded", query, collect, advice=advice)


def count_records(
    records: Path, tree: FlowTree, store: Store, folder: str, *, period: str = "", **options: Unpack[CountOptions]
) -> CountFiles:
    """Count loaded records by leaf pair, write the counts to files in tree order, and return these files.

    The counts are those of :func:`count_trips`. The memory is limited to that of DuckDB plus one file of counts.

    Args:
        records: Parquet file that :func:`od_core.records.load.load_records` wrote. DuckDB writes data that do not fit
            in memory to a temporary folder beside this file.
        store, folder: store and folder for the files of counts. After every exception, this function removes the
            folder.
        tree, period, options: attributes of :class:`CountQuery`.

    Raises:
        OdError: ``count_trips`` would raise it for these records; they have no column of a breakdown; they cannot be
            read; or memory or disk space does not suffice. No message contains a value of a record.
    """
    query = CountQuery(tree, period=period, **options)
    try:
        with _replace_reading_errors(), open_scratch_database(records.parent, records) as connection:
            source = make_parquet_sql(records, numbered=True)
            columns = connection.sql(f"FROM {source}").columns
            faults.check_unit_columns(query.unit, columns, user="user")
            for breakdown in query.breakdowns:
                if name_segment_column(breakdown.name) not in columns:
                    message = f"the loaded records have no categories of breakdown {breakdown.name!r}"
                    step = "declare where its categories are read from, and read the records again"
                    raise OdError("OD-TRIPS-COLUMN", message, next_step=step)
            query = replace(query, is_flows="trips" in columns)
            if query.is_flows:
                bad_counts = connection.execute(query.render_sql("bad_counts", source, "file_row_number"))
                refuse_bad_counts(*bad_counts.fetchall()[0])
            write_files = partial(write_count_files, store, f"{folder}/")
            files = _count_loaded_records(connection, source, query, write_files)
            return finish_count_files(store, folder, files, query.breakdowns)
    except BaseException:
        store.remove(folder)
        raise


def count_records_in_memory(
    records: Path, tree: FlowTree, *, period: str = "", **options: Unpack[CountOptions]
) -> TripCounts:
    """Return the counts of :func:`count_records` in memory.

    The files of counts are written beside the records, and removed before this function returns.
    """
    store, folder = LocalStore(records.parent), f"counts-{secrets.token_hex(6)}"
    try:
        return count_records(records, tree, store, folder, period=period, **options).read_all()
    finally:
        store.remove(folder)


def query_loaded_records(
    records: Path,
    lists: Mapping[str, pa.Table],
    placed_sql: str,
    faulty_condition: str,
    result_sql: str,
    fault_threshold: Fraction,
) -> pa.Table:
    """Return the result of a query on loaded records, unless too many are faulty. The result is confidential.

    Args:
        records: file of :func:`od_core.records.load.load_records`, which is the relation ``records`` in the SQL.
        lists: public tables, by name, that the SQL reads.
        placed_sql: query of the relation ``placed``, which has one row for each record.
        faulty_condition: SQL condition of the faulty rows of ``placed``.
        result_sql: query of the result, which reads ``placed``.
        fault_threshold: largest share of the records that may be faulty.

    Raises:
        OdError: too many records are faulty, or they cannot be read.
    """
    tables = f"WITH records AS (FROM {make_parquet_sql(records)}), placed AS ({placed_sql})"
    numbers = f"SELECT count(*), count(*) FILTER (WHERE {faulty_condition}) FROM placed"  # noqa: S608  # our own SQL
    with _replace_reading_errors(), open_scratch_database(records.parent, records) as connection:
        for name, table in lists.items():
            connection.register(name, table)
        counted, faulty_rows = connection.execute(f"{tables} {numbers}").fetchall()[0]
        faults.refuse_too_many_faults(faulty_rows, counted, fault_threshold)
        return connection.sql(f"{tables} {result_sql}").to_arrow_table()
