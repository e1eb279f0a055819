"""Read records from a Spark table, and count them with Spark.

Records are read with the same values as by :func:`od_core.records.load.load_records`, each from its own fields alone. A
value that cannot be converted becomes NULL, and its record becomes a fault. The SQL that counts the trips of each rank,
the number of a leaf pair in tree order (:mod:`od_core.records.counting`), and the files of counts are the same as
with DuckDB.

Records and counts are confidential. No value of a record is in a query plan or in the result of a task: plans contain
only names of columns and the content of the release's declaration, the secret key and the period are passed as a
relation, and a task writes files, returns one word and catches all exceptions. See ``docs/how-to/parts-and-spark.md``.
"""

from __future__ import annotations

import json
import re
import secrets
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from functools import partial
from io import StringIO
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING, Unpack
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from od_core.errors import OdError, raise_without_context, strip_type_parameters, suggest_similar_name
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography
from od_core.ledger.object_store import Store, advise_to_read_details, store_error_detail
from od_core.ledger.user_counters import SCHEMA, USER_COLUMNS
from od_core.periods import Period
from od_core.records import faults
from od_core.records.counting import CountOptions, CountQuery, Tally, refuse_bad_counts
from od_core.records.counts import CountFile, CountFiles, finish_count_files, write_count_files
from od_core.records.formats import TABLE, ColumnName, RecordColumns, RecordFormat, quote_column_name
from od_core.records.load import RecordQuery
from od_core.records.open_file import refuse_folders_with_log, refuse_table_log
from od_core.records.points import PointPlacer
from od_core.records.segments import check_sources

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkQuery(RecordQuery):
    """The query of the records in a Spark data frame.

    Args:
        frame: the data frame, with one row per record.
        columns, time_zone: as in :class:`od_core.records.load.RecordQuery`; type TIMESTAMP has a zone.
        form: format of the records; see ``record_format`` of :func:`od_core.spark.counting.count_in_spark`.
        is_file: whether the data frame is read from Parquet files. Spark then gives type TIMESTAMP to INT96, too, which
            holds instants or local times, so the format must say ``timestamps: utc``.
    """

    dialect = "spark"

    def __init__(
        self,
        frame: DataFrame,
        columns: RecordColumns,
        form: RecordFormat,
        time_zone: str | None,
        *,
        is_file: bool = False,
    ) -> None:
        self._frame, self._is_file = frame, is_file
        types = {field.name: strip_type_parameters(field.dataType.simpleString()) for field in frame.schema.fields}
        super().__init__(types, columns, form, time_zone, "the table of records")

    def select_records(self, period: Period, geography: Geography, destinations: Geography) -> DataFrame:
        """Return a data frame of the records, with zone codes in place of coordinates.

        The arguments, columns and errors are those of :meth:`make_columns_sql`, with both geographies.
        """
        fields = self.make_columns_sql(period, geography, destinations)
        records = self._frame.where(self.make_condition_sql(period)).selectExpr(*fields)
        if not self._columns.has_points:
            return records
        placer = PointPlacer(self._columns, self._form.nowhere, geography, destinations)
        types = {placer.rename(field.name): field.dataType.simpleString() for field in records.schema.fields}
        types |= dict.fromkeys(placer.sides, "string")
        schema = ", ".join(f"{self._quote_name(name)} {kind}" for name, kind in types.items())
        return records.mapInArrow(placer.place_all, schema)

    def _make_missing_column_error(self, name: ColumnName, expected: Sequence[ColumnName]) -> OdError:
        """Return the OdError for a missing column of the table; the message does not list the columns that it has."""
        near = suggest_similar_name(name, tuple(self._types)) if isinstance(name, str) else ""
        message = f"the table of records has no column {quote_column_name(name)}{near}"
        return self._make_column_error("OD-TRIPS-COLUMN", message)

    def _make_column_error(self, code: str, message: str, next_step: str | None = None) -> OdError:
        """Return the OdError for a column of the table that is missing or has a wrong type."""
        step = next_step or "correct the table of records, or the columns named in the configuration"
        return OdError(code, message, next_step=step)

    def _quote_name(self, name: str) -> str:
        """Return a name of a column, quoted for Spark."""
        return f"`{name.replace('`', '``')}`"

    def _make_text_sql(self, value: str) -> str:
        """Return a text as SQL, written as bytes, because the session's settings decide what escapes in quotes mean."""
        return f"CAST(X'{value.encode().hex()}' AS STRING)"

    def _refuse_unclear_times(self, own_name: str, column_type: str) -> None:
        """Raise OdError if a TIMESTAMP may hold other times than Spark's instants: local times, or unstated ones."""
        if column_type != "timestamp" or self._time_zone is None:
            return
        if self._form.timestamps == "local":
            message = (
                f"column {own_name!r} holds timestamp, which Spark reads as instants, but they are declared as local"
            )
            step = "give a view in which the column has type TIMESTAMP_NTZ"
            raise self._make_column_error("OD-TRIPS-DATE", message, step)
        if self._form.timestamps is None and self._is_file:
            message = f"column {own_name!r} holds timestamp; in Parquet files, these may be instants or local times"
            step = "write timestamps: utc if they are instants, as Spark writes them; else give a view with local times"
            raise self._make_column_error("OD-TRIPS-DATE", message, step)


_DONE_OUTCOME = "ok"
_FAILED_OUTCOME = "OD-SPARK-TASK"
_SUMMARY_FOLDER = "summaries"
_COUNTER_FOLDER = "users"


def count_in_spark(
    session: SparkSession,
    source: str,
    columns: RecordColumns,
    period: str,
    tree: FlowTree,
    store: Store,
    folder: str,
    *,
    record_format: RecordFormat = TABLE,
    time_zone: str | None = None,
    **options: Unpack[CountOptions],
) -> CountFiles:
    """Count the records of a period by leaf pair in Spark, and write the counts to files in tree order.

    The counts equal those of :func:`od_core.records.counting.count_records`. The session may be classic or Spark
    Connect. Its executors must have this package installed and must reach the store. ``spark.sql.shuffle.partitions``
    sets the number of tasks that write counts. The logs, the event log and the user interface of the session may show
    true counts, so they are confidential (``docs/how-to/parts-and-spark.md``).

    Args:
        session: the Spark session.
        source: path of a Parquet file or folder, or name of a table. A text that contains a slash is a path.
        columns: names of the columns. Zone codes must have type STRING. The date must have type DATE, TIMESTAMP_NTZ,
            STRING in the form of ISO 8601, or, if ``time_zone`` is given, TIMESTAMP (in Parquet files, only if
            ``record_format`` says ``timestamps="utc"``). Counts must be whole numbers, and weights must be numbers.
            User ids must have type STRING or be whole numbers. Categories must have type STRING or, with a lookup, be
            whole numbers or Booleans. A column with ``derive: number`` must have a numeric type.
        period: text of a :class:`od_core.periods.Period`.
        store, folder: store for the files of counts, and folder in it, new for each attempt; after every exception,
            this function removes it. Details of failed tasks go to the store's folder ``errors``.
        record_format: format of the records, of which only ``categories``, ``nowhere`` (codes that name no place),
            ``outside_period``, ``timestamps``, the columns of estimates and ``one_row_a_trip`` are used.
        time_zone: time zone in which values of type TIMESTAMP are assigned to days. If None, they are refused.
        tree, options: attributes of :class:`od_core.records.counting.CountQuery`. Each breakdown needs a source in
            ``columns``. This process reads and stores counters.

    Raises:
        OdError: ``count_records`` would raise it for these records; a column is missing or has another type; the source
            cannot be read, is a stream or a view that may give other records each time, or has files of a table whose
            log is not read; or Spark failed. No message quotes a record.
    """
    count = CountQuery(tree, period=period, is_flows=columns.trips is not None, **options)
    check_sources(columns.segments, count.breakdowns)
    names = [name for name in ("origin", "destination", "trips", "weight", "user") if getattr(columns, name)]
    faults.check_unit_columns(count.unit, names, user="user")
    try:
        with _replace_spark_errors():
            is_file = "/" in source
            frame = session.read.parquet(source) if is_file else session.table(source)
            query = SparkQuery(frame, columns, record_format, time_zone, is_file=is_file)
            files = _count_and_write(_SparkCount(session, count, {}), query, store, folder)
        return finish_count_files(store, folder, files, count.breakdowns)
    except BaseException:
        store.remove(folder)
        raise


def _count_and_write(spark_count: _SparkCount, query: SparkQuery, store: Store, folder: str) -> list[CountFile]:
    """Return the files of counts that Spark writes to a folder of the store, and keep the counters of users, if any.

    ``spark_count`` is without relations. Raises OdError if too many records are faulty, or for the reasons of
    :func:`_select_records`.
    """
    session, count = spark_count.session, spark_count.count
    spark_count.relations["records"] = _select_records(session, query, count)
    spark_count.add_tables(count.relations | ({"secret": count.secret} if count.unit.is_of_users else {}))
    ranked = spark_count.run_query("ranked").repartitionByRange("rank")
    by_rank = _SparkCount(session, count, {"ranked": ranked}).run_query("by_rank", "ranked")
    files, tally = _write_ranked_counts(by_rank.sortWithinPartitions("rank"), store, folder)
    faults.refuse_too_many_faults(
        tally.faulty,
        tally.counted,
        count.fault_threshold,
        most_unlisted=lambda: spark_count.run_query("most_unlisted").collect()[0],
    )
    if count.counters is not None:
        counters = _collect_counters(spark_count.run_query("counters"), store, f"{folder}/{_COUNTER_FOLDER}")
        count.counters.store_or_compare(counters.to_batches())
    return files


def _select_records(session: SparkSession, query: SparkQuery, count: CountQuery) -> DataFrame:
    """Return the records to count; for a unit of users, with the valid user ids as a further column ``person``.

    Raises OdError if the source may give other records each time, has files of a table with a log, or has bad counts.
    """
    records = query.select_records(Period(count.period), count.tree.origin, count.tree.destination)
    plans = _read_plans(records)
    _refuse_unstable_source(records, plans)
    _refuse_tables_with_log(session, records, plans)
    if count.unit.is_of_users:
        patterns = faults.list_id_patterns(count.unit)
        is_id = " AND ".join(query.make_match_sql("`user`", pattern) for pattern in patterns)
        records = records.selectExpr("*", f"CASE WHEN {is_id} THEN `user` END AS person")
    if count.counters is not None:  # counts and counters are two queries, which must see the same users
        records = records.localCheckpoint()
    if count.is_flows:
        bad_counts = _SparkCount(session, count, {"flows": records}).run_query("bad_counts", "flows", "-1")
        refuse_bad_counts(*bad_counts.collect()[0])
    return records


@dataclass(frozen=True, repr=False)
class _SparkCount:
    """A count in a Spark session, and the relations that its queries read, by name."""

    session: SparkSession
    count: CountQuery
    relations: dict[str, DataFrame]

    def run_query(self, name: str, *arguments: object) -> DataFrame:
        """Return the result of a macro of ``count.sql``, in which Spark replaces names in braces by the relations."""
        views = [f"{relation} AS (SELECT * FROM {{{relation}}})" for relation in self.relations]  # noqa: S608  # our own
        text = self.count.render_sql(name, *arguments)
        return self.session.sql(f"WITH {', '.join(views)} {text}", None, **self.relations)

    def add_tables(self, tables: Mapping[str, pa.Table]) -> None:
        """Add tables to the relations, by name; for a unit of a year, also ``allowances`` and ``users``."""
        for name, table in tables.items():
            self.relations[name] = self.session.createDataFrame(table)
        if self.count.counters is not None:
            allowances = self.count.counters.compute_allowances()
            self.relations["allowances"] = self.session.createDataFrame(allowances.table)
            self.relations["users"] = self.run_query("users", allowances.others)


_Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, repr=False)
class _Task:
    """A task that writes one file for a partition of a data frame, and returns its outcome as one word.

    If a partition is processed twice, the first file is kept.

    Attributes:
        store, folder: store of the files, and folder in it. A file has the number of its partition as its name.
        content: returns the content of the file, given the batches of rows and the number of the partition.
    """

    store: Store
    folder: str
    content: Callable[[_Batches, int], bytes | pa.Buffer]

    def __call__(self, batches: _Batches) -> _Batches:
        """Write the file of a partition, given its rows, and yield one row with the outcome."""
        outcome = _DONE_OUTCOME
        try:
            from pyspark import TaskContext

            part = TaskContext().partitionId()
            self.store.create_if_absent(f"{self.folder}/{part:06d}", self.content(batches, part))
        except BaseException:  # noqa: BLE001  # Spark logs exceptions of tasks, with the values that they quote
            store_error_detail(self.store, traceback.format_exc())
            outcome = _FAILED_OUTCOME
        yield pa.record_batch({"outcome": pa.array([outcome], pa.string())})


def _write_partition_files(frame: DataFrame, task: _Task) -> Iterator[pa.NativeFile]:
    """Run a task on each partition, and yield each file that it wrote, open. Raises OdError if a task failed."""
    outcomes = [row.outcome for row in frame.mapInArrow(task, "outcome STRING").collect()]
    files = task.store.list(f"{task.folder}/")
    if outcomes != [_DONE_OUTCOME] * len(files):
        message = "a task of Spark could not write the counts of its part"
        raise OdError(
            _FAILED_OUTCOME, message, next_step=f"{advise_to_read_details(task.store)}, then run the release again"
        )
    for name in files:
        with task.store.read(name) as file:
            yield file


def _write_counts(store: Store, folder: str, batches: _Batches, part: int) -> bytes:
    """Write the counts of one partition to files, and return a summary of them as JSON.

    ``batches`` have the rows of the macro ``by_rank``, and ``part`` is the number of the partition. The summary lists
    the files, because a partition that is processed twice leaves two sets of files.
    """
    tally = Tally()
    prefix = f"{folder}/{part:06d}.{secrets.token_hex(6)}."
    files = write_count_files(store, prefix, tally.iterate_counts(batches))
    summary = {"counted": tally.counted, "faulty": tally.faulty, "files": [asdict(file) for file in files]}
    return json.dumps(summary).encode()


def _write_ranked_counts(ranked: DataFrame, store: Store, folder: str) -> tuple[list[CountFile], Tally]:
    """Write counts to files, and return the descriptions of the files and the tally of all trips.

    ``ranked`` has the rows of the macro ``by_rank``, sorted by rank within each partition.
    """
    files, tally = [], Tally()
    task = _Task(store, f"{folder}/{_SUMMARY_FOLDER}", partial(_write_counts, store, folder))
    for file in _write_partition_files(ranked, task):
        summary = json.loads(file.read())
        tally.counted += summary["counted"]
        tally.faulty += summary["faulty"]
        files += [CountFile(**facts) for facts in summary["files"]]
    return files, tally


def _encode_counters(batches: _Batches, _part: int) -> pa.Buffer:
    """Return the counters of the users of one partition as a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches([batch.cast(SCHEMA) for batch in batches], SCHEMA), sink)
    return sink.getvalue()


def _collect_counters(users: DataFrame, store: Store, folder: str) -> pa.Table:
    """Return the counters of users, sorted by user. Tasks write them to a folder, which is then removed."""
    files = _write_partition_files(users, _Task(store, folder, _encode_counters))
    tables = [pq.read_table(file, schema=SCHEMA) for file in files]
    store.remove(folder)
    return pa.concat_tables([SCHEMA.empty_table(), *tables]).sort_by([(name, "ascending") for name in USER_COLUMNS])


_UNSTABLE_OPERATOR = re.compile(
    r"""(?mx)^[ :+|-]*(?:
        Sample\ (?!.*\ -?\d+,\ \w+$)  # its last but one argument is the seed
        | (?:LocalLimit|Offset|Deduplicate)\b
        | (?:Aggregate|Window)\ .*\b
          (?:first|last|any_value|nth_value|collect_(?:list|set)|listagg|string_agg|(?:max|min)_by|mode)\(
    )"""
)
"""Operator of an analyzed plan whose rows may differ from query to query: a sample without a seed, which Spark then
draws; a limit, an offset or a row of each group, because equal rows have no order; or an aggregate that depends on the
order."""


def _read_plans(records: DataFrame) -> str:
    """Return the text of all plans of a query, from the parsed to the physical one. They contain no record."""
    with redirect_stdout(StringIO()) as printed:
        records.explain(extended=True)
    return printed.getvalue()


def _refuse_unstable_source(records: DataFrame, plans: str) -> None:
    """Raise OdError if the records may differ from query to query.

    ``plans`` is the text of :func:`_read_plans`, which shows this, except for random values: of these, only a classic
    session knows.
    """
    java_frame = getattr(records, "_jdf", None)
    is_random = java_frame is not None and not java_frame.queryExecution().analyzed().deterministic()
    if records.isStreaming or is_random or _UNSTABLE_OPERATOR.search(plans.partition("== Optimized")[0]):
        raise OdError(
            "OD-SPARK-SOURCE",
            "the source of the records may give other records whenever it is read: it is a stream, or a view with"
            " random values, with a sample without a seed, with a limit, or with the first or any of several values",
            next_step="write the records to a table or to files, and name these; or state the seed (REPEATABLE)",
        )


def _refuse_tables_with_log(session: SparkSession, records: DataFrame, plans: str) -> None:
    """Raise OdError if files of a table with a log are read without the log.

    ``plans`` shows the index of the files that are read. A reader of a log has an index of its own. With an index of
    plain files, no file that the query reads may be in a table with a log.
    """
    if "Location: " in plans and not re.search(r"Location: (Pruned)?(InMemory|Catalog)FileIndex\b", plans):
        return
    folders = sorted({file.rpartition("/")[0] for file in records.inputFiles()})
    addresses: dict[str, None] = {}  # of the folders and those above them, in order, each once
    for folder in folders:
        if folder.startswith("file:"):  # Spark does not say where links lead
            refuse_table_log(Path(unquote(urlsplit(folder).path)))
        beginnings = accumulate(folder.split("/"), "{}/{}".format)
        addresses |= dict.fromkeys(islice(beginnings, 2, None))  # after the scheme and the blank that follows it
    refuse_folders_with_log("the source of the records", addresses, partial(_has_log_in_spark, session))


def _has_log_in_spark(session: SparkSession, folder: str, patterns: Sequence[str]) -> bool:
    """Return whether a folder that Spark reads has a file or folder that matches one of the glob patterns.

    ``folder`` is a percent-encoded address. Return False for a folder that may not be read.
    """
    address = re.sub(r"[\\{}\[\]*?,^]", r"\\\g<0>", unquote(folder))  # escaped, so that it is no pattern
    try:
        _ = session.read.format("binaryFile").load(f"{address}/{{{','.join(patterns)}}}").schema
    except Exception as error:
        if re.search("PATH_NOT_FOUND|AccessDenied|AccessControl|Forbidden", str(error)):
            return False
        raise
    return True


@contextmanager
def _replace_spark_errors() -> Iterator[None]:
    """Replace exceptions of Spark, which may quote rows, by an OdError with their text as confidential detail."""
    try:
        yield
    except OdError:
        raise
    except Exception as error:  # noqa: BLE001  # of Spark, its gateway or its channel
        failed = OdError(
            "OD-SPARK-FAILED",
            "Spark cannot read or count the records",
            next_step="check that the source exists and is readable, and that the executors have this package",
            confidential_detail=str(error),
        )
        raise_without_context(failed)
