"""Read records from a Spark table, and count them with Spark.

Records are read with the same values as by :func:`od_core.records.load.load_records`, each from its own fields alone. A
value that cannot be converted becomes NULL, and its record becomes a fault. The SQL that counts the trips of each rank,
the number of a leaf pair in tree order (:mod:`od_core.records.count_records`), and the files of counts are the same as
with DuckDB.

Records and counts are confidential. No value of a record is in a query plan or in the result of a task: plans contain
only names of columns and the content of the release's declaration, the secret key and the period are passed as a
relation, and a task writes files, returns one word and catches all exceptions. See ``docs/how-to/parts-and-spark.md``.
"""

from __future__ import annotations

import datetime
import json
import secrets
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from od_core.errors import OdError, base_name, nearest_only, raise_alone
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography
from od_core.ledger.object_store import Store, keep_detail, read_details
from od_core.ledger.user_counters import SCHEMA, USER, UserCounters
from od_core.periods import Period
from od_core.privacy.neighbours import FAULT_THRESHOLD
from od_core.privacy.unit import TRIP, PrivacyUnit
from od_core.records.contribution_bound import (
    COUNTERS,
    IS_USER_ID,
    check_user_column,
    id_patterns,
    no_user_ids,
    secret_table,
    users_of,
)
from od_core.records.count_files import CountFile, CountFiles, finish_count_files, write_count_files
from od_core.records.count_records import (
    Tally,
    category_tables,
    lost_zeros,
    placed_records,
    ranked_records,
    trips_by_rank,
    zone_tables,
)
from od_core.records.faults import (
    MAX_COUNT,
    MISSING,
    NEGATIVE,
    SUM_TOO_LARGE,
    TOO_LARGE,
    bad_count,
    refuse_too_many_faults,
)
from od_core.records.formats import TABLE, ColumnName, RecordColumns, RecordFormat, column_in, shown
from od_core.records.load import refuse_unstated_rows
from od_core.records.segments import DAY_TYPES, DAYS, Breakdown, SegmentSource, check_sources
from od_core.records.weights import check_weight_column, no_weights

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


_WHOLE = ("tinyint", "smallint", "int", "bigint")
_TEXT = "string"
"""Spark's type name of text that is compared byte by byte. Type names of text with a collation are longer."""

_LOCAL_TIME = r"\A\d{4}-\d{2}-\d{2}([ T](([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?|24:00(:00(\.0+)?)?))?\z"
"""Pattern of a date or a time without a zone, as in :mod:`od_core.records.load`."""

_CLOCK = r"\A([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?\z"
_TIME = r"\A\d{4}-\d{2}-\d{2}[ T]([01]\d|2[0-3]):"
"""Patterns of a time alone, and of a date with a time of day."""

_EPOCH = datetime.date(1970, 1, 1)
_DAY_MICROSECONDS = 86_400_000_000
_CORRECT = "correct the table of records, or the columns named in the configuration"


class SparkQuery:
    """A query that reads the records in a Spark data frame.

    Args:
        frame: the data frame, with one row per record.
        columns: names of the columns of the data frame.
        form: format of the records; see ``record_format`` of :func:`od_core.spark.counting.count_in_spark`.
        time_zone: time zone in which values of type TIMESTAMP are assigned to days. If None, they are refused.
        is_file: whether the data frame is read from Parquet files. Spark then gives type TIMESTAMP to INT96, too, which
            holds instants or local times, so the format must say ``timestamps: utc``.
        id_patterns: result of :func:`od_core.records.contribution_bound.id_patterns`.

    Raises:
        OdError: a column is missing, the column of trips contains estimates, or a column that ``columns`` does not name
            may contain the trips of a row.
    """

    def __init__(
        self,
        frame: DataFrame,
        columns: RecordColumns,
        form: RecordFormat,
        time_zone: str | None,
        id_patterns: Sequence[str] = (IS_USER_ID,),
        *,
        is_file: bool = False,
    ) -> None:
        form.refuse_estimates(columns)
        self._frame, self._columns, self._form, self._time_zone = frame, columns, form, time_zone
        self._id_patterns, self._is_file = id_patterns, is_file
        self._types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
        for name in (*columns.names, *(column for column, _ in form.categories)):
            if column_in(name, list(self._types)) is None:
                near = nearest_only(name, tuple(self._types)) if isinstance(name, str) else ""
                raise _fault("OD-TRIPS-COLUMN", f"the table of records has no column {shown(name)}{near}")
        refuse_unstated_rows(self._types, columns, form, "the table of records")

    def records(self, period: Period, geography: Geography, destinations: Geography) -> DataFrame:
        """Return a data frame of the records, with the columns origin, destination and in_period (a Boolean).

        It also has the columns trips, weight and person if the columns of the query name them, and the category of each
        breakdown. ``person`` is the user id as text, or NULL if the id is not valid.

        Args:
            period: period of the records.
            geography: geography of the origins.
            destinations: geography of the destinations.

        Raises:
            OdError: a column has the wrong type.
        """
        from pyspark.sql import functions as F  # noqa: N812  # the usual name

        columns, form = self._columns, self._form
        is_inside = F.lit(True) if columns.date is None else self._is_inside(columns.date, period)
        fields = [
            self._placed(columns.origin, geography).alias("origin"),
            self._placed(columns.destination, destinations).alias("destination"),
            F.coalesce(is_inside, F.lit(False)).alias("in_period"),
        ]
        if columns.trips is not None:
            fields.append(self._whole(columns.trips).alias("trips"))
        if columns.weight is not None:
            fields.append(self._weight(columns.weight).alias("weight"))
        if columns.user is not None:
            fields.append(self._person(columns.user).alias("person"))
        fields += [self._segment(source).alias(source.loaded) for source in columns.segments]
        frame = self._frame
        for column, values in form.categories:
            frame = frame.where(self._is_category(column, values))
        if form.outside_period == "drop":
            frame = frame.where(F.coalesce(is_inside, F.lit(True)))
        return frame.select(*fields)

    def _column(self, name: ColumnName) -> tuple[Column, str, str]:
        """Return a column, its name in the data frame, and the name of its type."""
        from pyspark.sql import functions as F  # noqa: N812

        found = str(column_in(name, list(self._types)))
        quoted = found.replace("`", "``")
        return F.col(f"`{quoted}`"), found, self._types[found]

    def _placed(self, name: ColumnName, geography: Geography) -> Column:
        """Return a column of zone codes, in which codes that name no place become the geography's ``unknown`` zone.

        If there is no such zone, all codes are unchanged. Raises OdError if the column has the wrong type.
        """
        from pyspark.sql import functions as F  # noqa: N812

        code, found, kind = self._column(name)
        if kind != _TEXT:
            message = f"column {found!r} holds {base_name(kind)}; zone codes must be text without a collation"
            raise _fault("OD-TRIPS-NOT-TEXT", message)
        if geography.unknown is None:
            return code
        is_nowhere = code.isin([one for one in self._form.nowhere if one not in ("", *geography.zones)])
        if "" in self._form.nowhere:
            is_nowhere = is_nowhere | ~F.coalesce(code.rlike(IS_USER_ID), F.lit(False))
        return F.when(is_nowhere, F.lit(geography.unknown)).otherwise(code)

    def _is_inside(self, name: ColumnName, period: Period) -> Column:
        """Return a Boolean column that tells whether a record's date is in the period, or NULL without a valid date."""
        from pyspark.sql import functions as F  # noqa: N812

        column, found, kind = self._column(name)
        if self._is_instant(found, kind):
            local = self._local(column)
            first, end = ((day - _EPOCH).days * _DAY_MICROSECONDS for day in (period.first, period.end))
            return (local >= F.lit(first)) & (local < F.lit(end))
        day = self._day(column, found, kind)
        return (day >= F.lit(period.first)) & (day < F.lit(period.end))

    def _is_instant(self, found: str, kind: str) -> bool:
        """Return whether a column holds instants, for which a time zone is declared. Raise OdError if nothing says."""
        if kind != "timestamp" or self._time_zone is None:
            return False
        stated = self._form.timestamps
        if stated == "local":
            message = f"column {found!r} holds timestamp, which Spark reads as instants, but they are declared as local"
            raise _fault("OD-TRIPS-DATE", message, "give a view in which the column has type TIMESTAMP_NTZ")
        if stated is None and self._is_file:
            message = f"column {found!r} holds timestamp; in Parquet files, these may be instants or local times"
            step = "write timestamps: utc if they are instants, as Spark writes them; else give a view with local times"
            raise _fault("OD-TRIPS-DATE", message, step)
        return True

    def _local(self, column: Column) -> Column:
        """Return the local time of a TIMESTAMP in microseconds since 1970, for the declared time zone.

        Local times are treated as if they were UTC, so that the time zone of the session has no effect.
        """
        from pyspark.sql import functions as F  # noqa: N812

        return F.unix_micros(F.from_utc_timestamp(column, str(self._time_zone)))

    def _day(self, column: Column, found: str, kind: str) -> Column:
        """Return the day of a date or of a local time, or NULL. Raises OdError if the column has another type."""
        from pyspark.sql import functions as F  # noqa: N812

        if kind == _TEXT:
            return F.when(column.rlike(_LOCAL_TIME), F.substring(column, 1, 10).try_cast("date"))
        if kind in ("date", "timestamp_ntz"):
            return column.try_cast("date")
        next_step = (
            "declare the time_zone in which days begin, or give local times" if kind == "timestamp" else _CORRECT
        )
        message = f"column {found!r} holds {base_name(kind)}, not dates or local times without a zone"
        raise _fault("OD-TRIPS-DATE", message, next_step)

    def _whole(self, name: ColumnName) -> Column:
        column, found, kind = self._column(name)
        if kind not in _WHOLE:
            raise _fault("OD-TRIPS-COUNT", f"column {found!r} holds {base_name(kind)}, not whole numbers of trips")
        return column.try_cast("bigint")

    def _weight(self, name: str) -> Column:
        column, found, kind = self._column(name)
        if not _is_number(kind):
            raise no_weights(f"column {found!r} holds {base_name(kind)}")
        return column.try_cast("double")

    def _person(self, name: str) -> Column:
        from pyspark.sql import functions as F  # noqa: N812

        column, found, kind = self._column(name)
        if kind not in (_TEXT, *_WHOLE):
            raise no_user_ids(f"column {found!r} holds {base_name(kind)}")
        text = column.try_cast("string")
        return F.when(reduce(and_, (text.rlike(pattern) for pattern in self._id_patterns)), text)

    def _segment(self, source: SegmentSource) -> Column:
        """Return the category of a record as text, or NULL. Raises OdError if the column has the wrong type."""
        from pyspark.sql import functions as F  # noqa: N812

        if source.derive == "number":
            return self._band(source)
        if source.derive == "hour":
            text = F.lpad(self._hour(source.column).cast("string"), 2, "0")
        elif source.derive == "text":
            text = self._category(source)
        else:
            names = DAYS if source.derive == "day_of_week" else DAY_TYPES
            text = _when(self._weekday(source.column), list(enumerate(names)))
        return _when(text, source.lookup) if source.lookup else text

    def _category(self, source: SegmentSource) -> Column:
        """Return the text of a column or, if it is looked up, also a whole number or a Boolean as text."""
        column, found, kind = self._column(source.column)
        if kind not in (_TEXT, *(("boolean", *_WHOLE) if source.lookup else ())):
            message = f"column {found!r} holds {base_name(kind)}; the categories of breakdown {source.breakdown!r} must"
            meant = "be text, whole numbers or Booleans" if source.lookup else "be text without a collation"
            raise _fault("OD-TRIPS-NOT-TEXT", f"{message} {meant}")
        return column.try_cast("string")

    def _hour(self, name: str) -> Column:
        """Return the hour of a local time as a whole number, or NULL."""
        from pyspark.sql import functions as F  # noqa: N812

        column, found, kind = self._column(name)
        if kind == "date":
            raise _fault("OD-TRIPS-DATE", f"column {found!r} holds date, which has no hour")
        if self._is_instant(found, kind):
            return _whole_part(F.pmod(self._local(column), F.lit(_DAY_MICROSECONDS)), _DAY_MICROSECONDS // 24)
        if kind == "timestamp_ntz":
            return F.hour(column)
        day = self._day(column, found, kind)
        of_time = F.when(column.rlike(_TIME) & day.isNotNull(), F.substring(column, 12, 2))
        return F.coalesce(of_time, F.when(column.rlike(_CLOCK), F.substring(column, 1, 2))).try_cast("int")

    def _weekday(self, name: str) -> Column:
        """Return the day of the week of a date or local time, 0 for Monday, or NULL."""
        from pyspark.sql import functions as F  # noqa: N812

        column, found, kind = self._column(name)
        if self._is_instant(found, kind):
            return F.pmod(_whole_part(self._local(column), _DAY_MICROSECONDS) + F.lit(_EPOCH.weekday()), F.lit(7))
        return F.weekday(self._day(column, found, kind))

    def _band(self, source: SegmentSource) -> Column:
        """Return the band of a number, or NULL if it is not finite."""
        from pyspark.sql import functions as F  # noqa: N812

        column, found, kind = self._column(source.column)
        if not _is_number(kind):
            raise _fault("OD-TRIPS-CATEGORY", f"column {found!r} holds {base_name(kind)}, not numbers")
        number = column.try_cast("double")
        *lower, last = source.bands
        band = F.lit(last)
        for limit, name in reversed(list(zip(source.breaks, lower, strict=True))):
            band = F.when(number < F.lit(limit), F.lit(name)).otherwise(band)
        return F.when(F.abs(number) < F.lit(float("inf")), band)  # NaN is greater than infinity

    def _is_category(self, name: str, values: tuple[str, ...]) -> Column:
        from pyspark.sql import functions as F  # noqa: N812

        column, found, kind = self._column(name)
        if kind not in (_TEXT, "boolean", *_WHOLE):
            raise _fault("OD-TRIPS-CATEGORY", f"column {found!r} holds {base_name(kind)}, not categories")
        return F.coalesce(column.try_cast("string"), F.lit("")).isin(list(values))


def _when(value: Column, cases: Sequence[tuple[str | int, str]]) -> Column:
    """Return the text of the case that a value equals, or NULL if there is none."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.coalesce(*(F.when(value == F.lit(case), F.lit(text)) for case, text in cases))


def _is_number(kind: str) -> bool:
    """Return whether a type is of numbers, whole or not."""
    return kind in (*_WHOLE, "float", "double") or kind.startswith("decimal(")


def _whole_part(value: Column, divisor: int) -> Column:
    """Return a whole number divided by a divisor, rounded down.

    The quotient is exact: the dividend is a multiple of the divisor, and both are exact as DOUBLE.
    """
    from pyspark.sql import functions as F  # noqa: N812

    return ((value - F.pmod(value, F.lit(divisor))) / F.lit(divisor)).cast("bigint")


def _fault(code: str, message: str, next_step: str = _CORRECT) -> OdError:
    return OdError(code, message, next_step=next_step)


_DONE = "ok"
_TASK_FAILED = "OD-SPARK-TASK"
_SUMMARIES = "summaries"
_USERS = "users"


def count_in_spark(
    session: SparkSession,
    source: str,
    columns: RecordColumns,
    period: str,
    tree: FlowTree,
    store: Store,
    folder: str,
    *,
    unit: PrivacyUnit = TRIP,
    key: bytes = b"",
    fault_threshold: Fraction = FAULT_THRESHOLD,
    record_format: RecordFormat = TABLE,
    time_zone: str | None = None,
    breakdowns: Sequence[Breakdown] = (),
    counters: UserCounters | None = None,
) -> CountFiles:
    """Count the records of a period by leaf pair in Spark, and write the counts to files in tree order.

    The counts equal those of :func:`od_core.records.count_records.count_records`. The session may be classic or Spark
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
        period: text of a :class:`od_core.periods.Period`. If the unit is a user, it also affects which trips of a user
            are counted.
        tree: the public flow tree.
        store: store for the files of counts. Details of failed tasks go to its folder ``errors``.
        folder: folder in the store. Each attempt needs a new folder. After every exception, this function removes it.
        unit, key, fault_threshold: as in :func:`od_core.records.count_records.count_records`.
        record_format: format of the records, of which only ``categories``, ``nowhere`` (codes that name no place),
            ``outside_period``, ``timestamps``, the columns of estimates and ``one_row_a_trip`` are used.
        time_zone: time zone in which values of type TIMESTAMP are assigned to days. If None, they are refused.
        breakdowns: breakdowns by which trips are also counted, each with a source in ``columns``.
        counters: as in :func:`od_core.records.count_records.count_records`. This process reads and stores their files.

    Raises:
        OdError: ``count_records`` would raise it for these records; a column is missing or has another type; the source
            cannot be read, or is a stream or a view with random values; or Spark failed. No message contains a value of
            a record.
    """
    check_sources(columns.segments, breakdowns)
    names = [name for name in ("origin", "destination", "trips", "weight", "user") if getattr(columns, name)]
    check_weight_column(unit, names)
    if unit.kind != "trip":
        check_user_column("user", unit, names)
    secret = secret_table(key, period) if unit.kind != "trip" else None
    is_flows = columns.trips is not None
    try:
        with _spark_errors_stay_inside():
            is_file = "/" in source
            frame = session.read.parquet(source) if is_file else session.table(source)
            _refuse_unstable(frame)
            query = SparkQuery(frame, columns, record_format, time_zone, id_patterns(unit), is_file=is_file)
            records = query.records(Period(period), tree.origin, tree.destination)
            if counters is not None:  # counts and counters are two queries, which must see the same users
                records = records.localCheckpoint()
            if is_flows:
                _check_counts(records)
            public = zone_tables(tree) | category_tables(breakdowns)
            with _Relations(session, records, public, secret) as relations:
                if counters is not None:
                    allowances = counters.allowances()
                    relations.add("allowances", session.createDataFrame(allowances.table))
                    placed = placed_records(tree, unit, breakdowns=breakdowns)
                    relations.add("users", relations.sql(users_of(placed, allowances)))
                asked = ranked_records(
                    tree, unit, is_flows=is_flows, breakdowns=breakdowns, with_users=counters is not None
                )
                ranked = relations.named("ranked", relations.sql(asked).repartitionByRange("rank"))
                by_rank = trips_by_rank(ranked, unit, is_flows=is_flows, by_segment=bool(breakdowns))
                counts = session.sql(by_rank).sortWithinPartitions("rank")
                outcomes = counts.mapInArrow(_WriteCounts(store, folder), "outcome STRING").collect()
                files, tally = _written(store, folder, [row.outcome for row in outcomes])

                def has_lost_zeros() -> bool:
                    return bool(relations.sql(lost_zeros(tree)).collect()[0].lost)

                refuse_too_many_faults(tally.faulty, tally.counted, fault_threshold, lost_zeros=has_lost_zeros)
                if counters is not None:
                    counters.keep(_counters(relations.sql(COUNTERS), store, f"{folder}/{_USERS}").to_batches())
        return finish_count_files(store, folder, files, breakdowns)
    except BaseException:
        store.remove(folder)
        raise


class _Relations:
    """Temporary views of the relations that the SQL of :mod:`od_core.records.count_records` reads.

    No other query uses the names of the views. The views are dropped at the end of the context.
    """

    def __init__(
        self, session: SparkSession, records: DataFrame, public: Mapping[str, pa.Table], secret: pa.Table | None
    ) -> None:
        self._session, self._prefix = session, f"od_{secrets.token_hex(8)}"
        self._relations = {"records": records}
        for name, table in public.items():
            self._relations[name] = session.createDataFrame(table)
        if secret is not None:
            self._relations["secret"] = session.createDataFrame(secret)
        self._views: list[str] = []

    def __enter__(self) -> _Relations:
        self._common: list[str] = []
        for name, frame in self._relations.items():
            self.add(name, frame)
        return self

    def __exit__(self, *_: object) -> None:
        for view in self._views:
            with suppress(Exception):  # the session may be gone
                self._session.catalog.dropTempView(view)

    def named(self, name: str, frame: DataFrame) -> str:
        """Register a data frame as a temporary view, and return the name of the view."""
        view = f"{self._prefix}_{name}"
        frame.createOrReplaceTempView(view)
        self._views.append(view)
        return view

    def add(self, name: str, frame: DataFrame) -> None:
        """Let later queries use a data frame under the name of its relation in ``count_query``."""
        self._common.append(f"{name} AS (SELECT * FROM {self.named(name, frame)})")  # noqa: S608  # our own SQL

    def sql(self, text: str) -> DataFrame:
        """Return the result of a query that uses the relations' names in ``count_query``, such as ``records``."""
        return self._session.sql(f"WITH {', '.join(self._common)} {text}")


@dataclass(frozen=True, repr=False)
class _Task(ABC):
    """A task that writes one partition to the store and returns one word, which states whether it succeeded.

    Attributes:
        store: store to write to.
        folder: folder of the files in the store.
    """

    store: Store
    folder: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"outcome": pa.array([self._outcome(batches)], pa.string())})

    def _outcome(self, batches: Iterator[pa.RecordBatch]) -> str:
        try:
            from pyspark import TaskContext

            self.write(batches, TaskContext().partitionId())
        except BaseException:  # noqa: BLE001  # Spark logs exceptions of tasks, with the values that they quote
            keep_detail(self.store, traceback.format_exc())
            return _TASK_FAILED
        return _DONE

    @abstractmethod
    def write(self, batches: Iterator[pa.RecordBatch], part: int) -> None:
        """Write the rows of the partition with number ``part``."""


class _WriteCounts(_Task):
    """A task that writes the counts of one partition to files, and last a summary that lists them.

    If a partition is processed twice, only the first summary is stored, and only the files in this summary are used.
    """

    def write(self, batches: Iterator[pa.RecordBatch], part: int) -> None:
        """See :meth:`_Task.write`."""
        tally, stem = Tally(), f"{self.folder}/{part:06d}.{secrets.token_hex(6)}."
        files = write_count_files(self.store, stem, tally.take(batches))
        summary = {"counted": tally.counted, "faulty": tally.faulty, "files": [asdict(file) for file in files]}
        self.store.create_if_absent(f"{self.folder}/{_SUMMARIES}/{part:06d}.json", json.dumps(summary).encode())


class _WriteCounters(_Task):
    """A task that writes the counters of the users in one partition to a file.

    If a partition is processed twice, the first file is kept, since both have the same users.
    """

    def write(self, batches: Iterator[pa.RecordBatch], part: int) -> None:
        """See :meth:`_Task.write`."""
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_batches([batch.cast(SCHEMA) for batch in batches], SCHEMA), sink)
        self.store.create_if_absent(f"{self.folder}/{part:06d}.parquet", sink.getvalue())


def _counters(users: DataFrame, store: Store, folder: str) -> pa.Table:
    """Return the counters of users, sorted by user. Tasks write them to files in the store, which are then removed.

    Raises:
        OdError: a task failed or wrote no file.
    """
    outcomes = users.mapInArrow(_WriteCounters(store, folder), "outcome STRING").collect()
    files = store.list(f"{folder}/")
    _refuse_failed([row.outcome for row in outcomes], files, store)
    tables = []
    for name in files:
        with store.read(name) as file:
            tables.append(pq.read_table(file, schema=SCHEMA))
    store.remove(folder)
    return pa.concat_tables([SCHEMA.empty_table(), *tables]).sort_by([(name, "ascending") for name in USER])


def _written(store: Store, folder: str, outcomes: list[str]) -> tuple[list[CountFile], Tally]:
    """Return the descriptions of the files that all tasks wrote, and the total numbers of counted and faulty trips.

    Raises:
        OdError: a task failed or wrote no summary.
    """
    summaries = store.list(f"{folder}/{_SUMMARIES}/")
    _refuse_failed(outcomes, summaries, store)
    files, tally = [], Tally()
    for name in summaries:
        with store.read(name) as file:
            summary = json.loads(file.read())
        tally.counted += summary["counted"]
        tally.faulty += summary["faulty"]
        files += [CountFile(**facts) for facts in summary["files"]]
    return files, tally


def _refuse_failed(outcomes: Sequence[str], files: Sequence[str], store: Store) -> None:
    """Raise OdError if a task failed, or if there is not one file of each task."""
    if any(outcome != _DONE for outcome in outcomes) or len(files) != len(outcomes):
        raise OdError(
            _TASK_FAILED,
            "a task of Spark could not write the counts of its part",
            next_step=f"{read_details(store)}, then run the release again",
        )


def _refuse_unstable(source: DataFrame) -> None:
    """Raise OdError if a source is a stream, or its definition shows that each query may read other records.

    Spark Connect does not show the definition of a view.
    """
    plan = getattr(source, "_jdf", None)
    if source.isStreaming or (plan is not None and not plan.queryExecution().analyzed().deterministic()):
        raise OdError(
            "OD-SPARK-SOURCE",
            "the source of the records may give other records whenever it is read: it is a stream, or a view with"
            " random values",
            next_step="write the records to a table or to files, and name these",
        )


def _check_counts(records: DataFrame) -> None:
    """Raise OdError if a count is invalid or the counts' sum is too large. Spark returns only the kinds of faults."""
    from pyspark.sql import functions as F  # noqa: N812

    trips = F.col("trips")
    faults = {MISSING: trips.isNull(), NEGATIVE: trips < 0, TOO_LARGE: trips > MAX_COUNT}
    has = [F.coalesce(F.bool_or(fault), F.lit(False)) for fault in faults.values()]
    is_too_large = F.coalesce(F.sum(trips.cast("decimal(38,0)")) > F.lit(MAX_COUNT), F.lit(False))
    for what, found in zip([*faults, SUM_TOO_LARGE], records.agg(*has, is_too_large).collect()[0], strict=True):
        if found:
            raise bad_count(what)


@contextmanager
def _spark_errors_stay_inside() -> Iterator[None]:
    """Replace exceptions of Spark in this context by an OdError that quotes Spark only in its confidential detail.

    Messages of Spark may quote rows.
    """
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
        raise_alone(failed)
