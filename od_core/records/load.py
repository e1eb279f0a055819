"""Load the records of a period from files into the confidential folder, and refuse rows whose meaning is not stated.

The file may be larger than the memory. The result is a Parquet file with the columns ``date``, ``origin``,
``destination`` (text codes), ``in_period`` and, if requested, ``stop_1``, ``stop_2`` and so on (text codes), ``trips``,
``weight`` (unchanged, NULL if it is not a number), ``user`` (text) and, for each breakdown, ``segment_`` and its name
(the category as text, NULL if it is missing). Every record is read by fixed rules from its own fields alone: nothing is
guessed from a sample of the file. No message quotes a record.

If a row stands for 100 trips and is counted as one trip, 99 are lost. What a row is cannot be seen in the records: a
number of trips may have any name, and a single mark such as ``*`` makes text of its column. So records are refused if
nothing states what a row is and they have an *unused* column, which no declaration reads and by which no rows are
selected. The names of the columns alone decide, so a refusal tells nothing about the records. Only ``od-release init``,
where a person answers, looks at the content (:func:`count_columns`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from od_core.errors import OdError, nearest_only
from od_core.files.data_frame import shown_columns
from od_core.files.duckdb_session import quoted_name, quoted_text, spill_folder
from od_core.files.durable import absence, write_durably
from od_core.geography.geography import Geography
from od_core.periods import Period
from od_core.records.contribution_bound import IS_USER_ID, no_user_ids
from od_core.records.faults import MAX_COUNT
from od_core.records.formats import TABLE, ColumnName, RecordColumns, RecordFormat, column_in
from od_core.records.open_file import CORRECT, UNSTATED_TIME, OpenFile, file_fault, opened, record_schema
from od_core.records.segments import DAY_TYPES, DAYS, SegmentSource
from od_core.records.weights import no_weights

if TYPE_CHECKING:
    import duckdb


FIRST_ROWS = 100_000
"""Largest number of rows that commands which declare an input read."""

_MANY_ROWS = 100
"""Smallest number of rows from which :func:`has_single_pairs` concludes that a file is a table of flows.

In a shorter file, each pair of places may occur only once by chance.
"""

_NUMBER = r"[\s\p{Z}]*[-+]?\p{Nd}[\p{Nd}\p{Z}\s.,''\x{2019}_]*"
"""RE2 pattern of a number within quotes of SQL: in any digits, possibly padded, grouped or with decimals."""


def unused_columns(there: Iterable[str], columns: RecordColumns, form: RecordFormat) -> list[str]:
    """Return the columns that are not read and by which no rows are selected, in the order of the records.

    Args:
        there: names of all columns of the records.
        columns: the columns that are read.
        form: format of the records.
    """
    names = list(there)
    used = {column_in(name, names) for name in (*columns.names, *(column for column, _ in form.categories))}
    return [name for name in names if name not in used]


def refuse_unstated_rows(there: Iterable[str], columns: RecordColumns, form: RecordFormat, table: str) -> None:
    """Raise OdError if the records have unused columns, and nothing states whether a row is one trip.

    Nothing is refused if a column of trips or weights is named, or if the format states that a row is one trip.

    Args:
        there: names of all columns of the records.
        columns: the columns that are read.
        form: format of the records.
        table: description of the table, with which the message begins.
    """
    if not form.one_row_a_trip and columns.counts_rows:
        step = "one_row_a_trip: true if each row is one trip, or columns: {trips: COLUMN} if COLUMN holds the number"
        unused = unused_columns(there, columns, form)
        refuse_unused(unused, table, f"write {step} of trips of a row, next to the path of the files")


def refuse_unused(unused: list[str], table: str, next_step: str) -> None:
    """Raise OdError if there are unused columns.

    Args:
        unused: names of the unused columns.
        table: description of the table, with which the message begins.
        next_step: next step of the error, which says how to state the meaning of a row.
    """
    if unused:
        columns = "column" if len(unused) == 1 else "columns"
        raise OdError(
            "OD-TRIPS-ROWS",
            f"{table}: nothing says whether a row is one trip, and unused {columns} might hold the number of trips:"
            f" {shown_columns(unused)}",
            next_step=next_step,
        )


def count_columns(source: Path, columns: list[str], form: RecordFormat) -> list[str]:
    """Confidential: return the columns that look like counts, as most of their first values are numbers.

    Args:
        source: the file of records.
        columns: the columns to look at, named as in the file.
        form: format of the records in the file.

    Raises:
        OdError: the file cannot be read.
    """
    texts = [f"nullif(trim({quoted_name(name)}::VARCHAR), '')" for name in columns]
    are_numbers = [f"2 * count_if(regexp_full_match({text}, '{_NUMBER}')) > count({text})" for text in texts]
    if not columns:
        return []
    return [
        name for name, is_number in zip(columns, _of_first_rows(source, form, are_numbers), strict=True) if is_number
    ]


def has_single_pairs(source: Path, columns: RecordColumns, form: RecordFormat) -> bool:
    """Confidential: return whether the first rows, at least 100, each have another pair of places, as tables of flows.

    Args:
        source: the file of records.
        columns: the columns that are read. Origin and destination must be there.
        form: format of the records in the file.

    Raises:
        OdError: the file cannot be read.
    """
    there = list(record_schema(source, form))
    ends = [quoted_name(str(column_in(end, there))) for end in (columns.origin, columns.destination)]
    rows, pairs = _of_first_rows(source, form, ["count(*)", f"count(DISTINCT ({', '.join(ends)}))"])
    return bool(rows >= _MANY_ROWS and pairs == rows)


def _of_first_rows(source: Path, form: RecordFormat, asked: list[str]) -> tuple[int, ...]:
    """Return the values of SQL aggregates over the first rows of a file."""
    with opened(source, form) as file:
        found: tuple[int, ...] = file.relation.limit(FIRST_ROWS).aggregate(", ".join(asked)).fetchall()[0]
    return found


_TEXT_TYPES = ("VARCHAR", "ENUM")
_WHOLE_TYPES = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
_FLOAT_TYPES = ("FLOAT", "DOUBLE")
_ID_TYPES = (*_TEXT_TYPES, *_WHOLE_TYPES, "UBIGINT", "HUGEINT")
_CATEGORY_TYPES = (*_ID_TYPES, "BOOLEAN")
_COUNT_TYPES = (*_WHOLE_TYPES, "UBIGINT", "HUGEINT", *_FLOAT_TYPES, "DECIMAL", "VARCHAR")
_TIME_TYPES = ("DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")
_ALL_MISSING = "NULL"
_ZONED_TIME = "TIMESTAMP WITH TIME ZONE"
_LOCAL_DAY = r"\d{4}-\d{2}-\d{2}"
_CLOCK = r"\d{2}:\d{2}(:\d{2}(\.\d+)?)?"
_LOCAL_TIME = rf"{_LOCAL_DAY}([ T]{_CLOCK})?"
"""Pattern of a date or time without a zone. With a zone, a column of text could mix times of several zones."""


_FRACTION = r"\s*[+-]?[0-9_]*\.[0-9_]*[1-9][0-9_]*\s*"
"""RE2 pattern of a text that is a decimal fraction."""


class RecordQuery:
    """The query that reads the rows of an open file, which are the relation ``records`` in the query.

    Args:
        file: the open file.
        columns: names of the columns to read.
        time_zone: time zone in which times that have a zone are assigned to days. If None, such times are refused.

    Raises:
        OdError: a column is missing, or there are unused columns and nothing states what a row is.
    """

    def __init__(self, file: OpenFile, columns: RecordColumns, time_zone: str | None) -> None:
        self._file, self._columns, self._time_zone = file, columns, time_zone
        self._types = file.types
        expected = (*columns.names, *(column for column, _ in file.form.categories))
        for name in expected:
            if column_in(name, list(self._types)) is None:
                raise file.missing(name, expected)
        table = f"{file.source.name} (reader {file.form.name!r})"
        refuse_unstated_rows(self._types, columns, file.form, table)

    def text(self, period: Period, geography: Geography | None, destinations: Geography | None) -> str:
        """Return the SQL, whose result has the columns that the module docstring lists.

        Args:
            period: period of the records.
            geography: geography of origins and stops, or None.
            destinations: geography of the destinations, or None.

        Raises:
            OdError: a column has the wrong type.
        """
        columns, form = self._columns, self._file.form
        date, day = ("NULL::TIMESTAMP", "NULL::DATE") if columns.date is None else self._date(columns.date)
        is_inside = f"{day} >= DATE '{period.first}' AND {day} < DATE '{period.end}'"
        codes = {name: self._code(column) for name, column in columns.codes.items()}
        areas = {"destination": destinations}
        fields = [
            f"{date} AS date",
            *(f"{_placed(code, form, areas.get(name, geography))} AS {name}" for name, code in codes.items()),
            f"coalesce({is_inside}, {columns.date is None}) AS in_period",
        ]
        if columns.trips is not None:
            fields.append(f"{self._count(columns.trips)} AS trips")
        if columns.weight is not None:
            fields.append(f"{self._weight(columns.weight)} AS weight")
        if columns.user is not None:
            fields.append(f'{self._user(columns.user)} AS "user"')
        fields += [f"{self._segment(source)} AS {source.loaded}" for source in columns.segments]
        conditions = [self._is_category(column, values) for column, values in form.categories]
        if form.outside_period == "drop":
            conditions.append(f"coalesce({is_inside}, true)")
        rows = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT {', '.join(fields)} FROM records{rows}"  # noqa: S608  # checked types, quoted names and texts

    def _named(self, name: ColumnName) -> tuple[str, str]:
        """Return the name of a column as the file writes it, and its type."""
        column = str(column_in(name, list(self._types)))
        return column, self._types[column]

    def _fault(self, code: str, message: str, next_step: str = CORRECT) -> OdError:
        return file_fault(self._file.source, self._file.form, code, message, next_step=next_step)

    def _code(self, name: ColumnName) -> str:
        """Return SQL for a zone code as text. Raises OdError if the column has the wrong type."""
        column, kind = self._named(name)
        code, form = quoted_name(column), self._file.form
        others = (*_WHOLE_TYPES, *_FLOAT_TYPES, _ALL_MISSING) if form.has_numbered_zones else ()
        if (text := _as_text(code, kind, others)) is not None:
            return text
        raise self._fault(
            "OD-TRIPS-NOT-TEXT",
            f"column {column!r} holds {kind}; zone codes must be text, because numbers lose leading zeros",
        )

    def _date(self, name: ColumnName) -> tuple[str, str]:
        """Return the SQL of :func:`local_time_and_day` for a column.

        Raises:
            OdError: the column has another type; or has times with a time zone and no time zone is declared, or times
                for which the file does not state whether they have one.
        """
        name, kind = self._named(name)
        if kind == UNSTATED_TIME:
            raise self._file.unstated_time(name)
        found = local_time_and_day(quoted_name(name), kind, self._time_zone)
        if found is not None:
            return found
        raise self._fault(
            "OD-TRIPS-DATE",
            f"column {name!r} holds {kind}, not dates or local times without a zone",
            "declare the time_zone in which days begin, or give local times" if kind == _ZONED_TIME else CORRECT,
        )

    def _count(self, name: ColumnName) -> str:
        """Return SQL for the trips of a row: infinity above 2^53, and NULL for text that is not a number."""
        name, kind = self._named(name)
        if kind not in _COUNT_TYPES:
            raise self._fault("OD-TRIPS-COUNT", f"column {name!r} holds {kind}, not numbers of trips")
        column = quoted_name(name)
        if kind in _WHOLE_TYPES:
            return f"{column}::BIGINT"
        return as_count(column, kind)

    def _weight(self, name: str) -> str:
        """Return SQL for the weight of a row, NULL if not a number. ``count_records`` rounds and limits it later."""
        kind = self._types[name]
        if kind not in _COUNT_TYPES:
            raise no_weights(f"{self._file.source.name}: column {name!r} holds {kind}")
        return f"TRY_CAST({quoted_name(name)} AS DOUBLE)"

    def _user(self, name: str) -> str:
        kind = self._types[name]
        if kind not in _ID_TYPES:
            raise no_user_ids(f"{self._file.source.name}: column {name!r} holds {kind}")
        return f"{quoted_name(name)}::VARCHAR"

    def _segment(self, source: SegmentSource) -> str:
        """Return SQL for the category of a record as text, NULL if it is missing.

        Raises:
            OdError: the column has the wrong type, or has times with a time zone and no time zone is declared.
        """
        if source.derive == "number":
            return self._band(source)
        if source.derive == "hour":
            text = self._hour(source.column)
        elif source.derive == "text":
            text = self._category(source)
        else:
            _, day = self._date(source.column)
            names = DAYS if source.derive == "day_of_week" else DAY_TYPES
            text = f"CASE isodow({day}) {_when((str(number), name) for number, name in enumerate(names, start=1))} END"
        if not source.lookup:
            return text
        return f"CASE {text} {_when((quoted_text(found), category) for found, category in source.lookup)} END"

    def _category(self, source: SegmentSource) -> str:
        """Return SQL for the text of a column, or, if it is looked up, also for a whole number or a Boolean as text."""
        kind, column = self._types[source.column], quoted_name(source.column)
        others = (_ALL_MISSING, *((*_CATEGORY_TYPES, *_FLOAT_TYPES) if source.lookup else ()))
        if (text := _as_text(column, kind, others)) is not None:
            return text
        raise self._fault(
            "OD-TRIPS-NOT-TEXT",
            f"column {source.column!r} holds {kind}; the categories of breakdown {source.breakdown!r} must be text",
            CORRECT if source.lookup else "declare a lookup, which states the category of each value",
        )

    def _hour(self, name: str) -> str:
        """Return SQL for the hour of a column of times, "00" to "23". A date alone has none.

        The hour of text is read from the text itself, because the cast to TIMESTAMP rounds to microseconds.
        """
        kind, column = self._types[name], quoted_name(name)
        if kind == "DATE":
            raise self._fault("OD-TRIPS-DATE", f"column {name!r} holds DATE, which has no hour")
        if kind == "TIME":
            return f"lpad(hour({column})::VARCHAR, 2, '0')"
        if kind == "VARCHAR":
            is_time = f"regexp_full_match({column}, '{_LOCAL_DAY}[ T]{_CLOCK}') AND TRY_CAST({column} AS TIMESTAMP)"
            is_clock = f"regexp_full_match({column}, '{_CLOCK}') AND TRY_CAST({column} AS TIME)"
            of_time = f"WHEN {is_time} IS NOT NULL THEN substring({column}, 12, 2)"
            return f"CASE {of_time} WHEN {is_clock} IS NOT NULL THEN left({column}, 2) END"
        time, _ = self._date(name)
        return f"strftime({column if kind in _TIME_TYPES else time}, '%H')"

    def _band(self, source: SegmentSource) -> str:
        """Return SQL for the band of a number."""
        kind, column = self._types[source.column], quoted_name(source.column)
        if kind not in _COUNT_TYPES:
            raise self._fault("OD-TRIPS-CATEGORY", f"column {source.column!r} holds {kind}, not numbers")
        number = f"TRY_CAST({column} AS DOUBLE)"
        *lower, last = map(quoted_text, source.bands)
        below = (
            f"WHEN {number} < {limit!r}::DOUBLE THEN {band}" for limit, band in zip(source.breaks, lower, strict=True)
        )
        return f"CASE WHEN isfinite({number}) THEN CASE {' '.join(below)} ELSE {last} END END"

    def _is_category(self, name: str, values: tuple[str, ...]) -> str:
        """Return SQL for whether a column of a row has one of the selected values."""
        if self._types[name] not in _CATEGORY_TYPES:
            raise self._fault("OD-TRIPS-CATEGORY", f"column {name!r} holds {self._types[name]}, not categories")
        return f"coalesce({quoted_name(name)}::VARCHAR, '') IN ({', '.join(map(quoted_text, values))})"


def local_time_and_day(column: str, kind: str, time_zone: str | None) -> tuple[str, str] | None:
    """Return two SQL expressions for a column: the local time and its day. Both are NULL without a valid date.

    Times with a time zone are converted to the declared time zone, and the day is that of the result. Otherwise the day
    is read from the column itself, or from its whole microseconds: the cast to TIMESTAMP rounds and may move a time to
    the next day.

    Args:
        column: quoted name of the column.
        kind: its type.
        time_zone: declared time zone; None if there is none.

    Returns:
        The expressions; None for another type, or for times with a time zone if no time zone is declared.
    """
    if kind == "TIMESTAMP_NS":  # whole microseconds: DuckDB 2.0 rounds the cast to DATE, too
        column = f"make_timestamp(epoch_ns({column}) // 1000 - (epoch_ns({column}) % 1000 < 0)::BIGINT)"
    if kind in _TIME_TYPES:
        return f"TRY_CAST({column} AS TIMESTAMP)", f"TRY_CAST({column} AS DATE)"
    if kind == "VARCHAR":
        time = f"CASE WHEN regexp_full_match({column}, '{_LOCAL_TIME}') THEN TRY_CAST({column} AS TIMESTAMP) END"
        return time, f"CASE WHEN {time} IS NOT NULL THEN TRY_CAST(left({column}, 10) AS DATE) END"
    if kind == _ZONED_TIME and time_zone is not None:
        time = f"try(timezone({quoted_text(time_zone)}, {column}))"
        return time, f"TRY_CAST({time} AS DATE)"
    return None


def as_count(column: str, kind: str = "VARCHAR") -> str:
    """Return SQL for a count in a column of text or numbers as DOUBLE, NULL if it is not a number.

    A number above 2^53 becomes infinity, and a fraction never becomes a whole number: as DOUBLE, 2^53 + 1 would be
    2^53, and the decimal 2.00000000000000000001 would be 2.

    Args:
        column: SQL of the column.
        kind: its type.
    """
    exceeds = f"TRY_CAST({column} AS HUGEINT) > {MAX_COUNT}"
    fraction = {"DECIMAL": f"{column} <> trunc({column})", "VARCHAR": f"regexp_full_match({column}, '{_FRACTION}')"}
    half = f" WHEN {fraction[kind]} THEN 0.5::DOUBLE" if kind in fraction else ""
    return f"CASE WHEN {exceeds} THEN 'inf'::DOUBLE{half} ELSE TRY_CAST({column} AS DOUBLE) END"


def _as_text(column: str, kind: str, others: Collection[str]) -> str | None:
    """Return SQL for a column as text, or None if its type is neither text nor one of ``others``."""
    if kind in _FLOAT_TYPES and kind in others:
        return _whole_as_text(column)
    return f"{column}::VARCHAR" if kind in (*_TEXT_TYPES, *others) else None


def _whole_as_text(column: str) -> str:
    """Return SQL for a column of floats as text.

    Whole numbers are stored as floats if some are missing: 7.0 is the text 7, and 7.5 stays 7.5.
    """
    is_whole = f"isfinite({column}) AND {column} = floor({column}) AND abs({column}) <= {MAX_COUNT}"
    whole = f"CASE WHEN {is_whole} THEN {column}::BIGINT::VARCHAR ELSE {column}::VARCHAR END"
    return f"CASE WHEN NOT isnan({column}) THEN {whole} END"


def _when(cases: Iterable[tuple[str, str]]) -> str:
    """Return the cases of a CASE expression, from the SQL of each value and the category that it gives."""
    return " ".join(f"WHEN {value} THEN {quoted_text(category)}" for value, category in cases)


def _placed(code: str, form: RecordFormat, geography: Geography | None) -> str:
    """Return SQL that replaces codes that name no place, such as abroad, by the geography's ``unknown`` zone.

    Codes that are zones of the geography stay unchanged, and so do all codes if there is no ``unknown`` zone.

    Args:
        code: SQL of the code.
        form: format of the records, whose ``nowhere`` lists the codes that name no place.
        geography: geography of the code, or None.
    """
    if geography is None or geography.unknown is None:
        return code
    nowhere = [quoted_text(one) for one in form.nowhere if one not in ("", *geography.zones)]
    conditions = [f"{code} IN ({', '.join(nowhere)})"] if nowhere else []
    if "" in form.nowhere:
        conditions.append(f"regexp_matches({code}, '{IS_USER_ID}') IS NOT TRUE")
    if not conditions:
        return code
    return f"CASE WHEN {' OR '.join(conditions)} THEN {quoted_text(geography.unknown)} ELSE {code} END"


_ANY_ZONE = "UTC"
"""Time zone for times that have one: it changes days, and not whether there is one."""


def has_dates(source: Path, column: str, form: RecordFormat) -> bool:
    """Return whether one of the first records of a file has a date in a column, or whether there is no record.

    Args:
        source: the file.
        column: name of the column, as the file writes it.
        form: format of the records in the file.

    Raises:
        OdError: the file cannot be read, or does not state whether the times of the column have a zone.
    """
    with opened(source, form) as file:
        if file.types[column] == UNSTATED_TIME:
            raise file.unstated_time(column)
        found = local_time_and_day(quoted_name(column), file.types[column], _ANY_ZONE)
        if found is None:
            return False
        rows, dated = file.relation.limit(FIRST_ROWS).aggregate(f"count(*), count({found[1]})").fetchall()[0]
        return bool(dated or not rows)


def load_records(
    source: Path,
    columns: RecordColumns,
    period: str,
    target: Path,
    *,
    record_format: RecordFormat = TABLE,
    geography: Geography | None = None,
    destination_geography: Geography | None = None,
    time_zone: str | None = None,
) -> None:
    """Copy the records of a file into the confidential folder, and mark those of the period.

    A row is left out if the format's categories do not select it, or if it belongs to another period and
    ``outside_period`` of the format is ``drop``. A row that is left out counts neither as a record nor as a fault.

    Args:
        source: the file.
        columns: names of the columns in the file.
        period: text of a :class:`od_core.periods.Period`.
        target: Parquet file to write, durably and with mode 0600.
        record_format: format of the file; by default CSV or Parquet with any columns.
        geography: geography of the zones. Codes in the format's ``nowhere`` are replaced by its ``unknown`` zone,
            unless they are zones. Without an ``unknown`` zone, they stay unchanged.
        destination_geography: geography of the destinations, if it differs from ``geography``.
        time_zone: time zone in which times that have a zone are assigned to days, such as ``Europe/Rome``. If None,
            such times are refused. Local times are not converted.

    Raises:
        OdError: the file is missing, may not be read, is unreadable, or has another kind than its name or the format
            states; a column is missing or has the wrong type (such as numbers for codes, or times with a zone without a
            ``time_zone``); each row counts as one trip, and an unnamed column may contain the trips of a row; the time
            zone is unknown; or the disk is full.
    """
    form = record_format
    form.refuse_estimates(columns)
    refuse_absent(source)
    with opened(source, form, target.parent, whole=True) as file:
        _check_time_zone(file.connection, time_zone)
        query = RecordQuery(file, columns, time_zone).text(
            Period(period), geography, destination_geography or geography
        )
        written = spill_folder(target.parent) / target.name
        file.connection.register("records", file.relation)
        file.connection.sql(query).write_parquet(str(written))
        write_durably(target, written.replace)


def refuse_absent(source: Path) -> None:
    """Raise OdError if a file of records is missing or may not be read."""
    if (absent := absence(source)) is not None:
        step = "wait for the file of records, or correct its path or the rights to read it"
        raise OdError("OD-FILE-MISSING", absent, next_step=step)


def _check_time_zone(connection: duckdb.DuckDBPyConnection, name: str | None) -> None:
    if name is None:
        return
    known = tuple(one for (one,) in connection.sql("SELECT name FROM pg_timezone_names()").fetchall())
    if name not in known:
        raise OdError(
            "OD-TIME-ZONE",
            f"there is no time zone {name!r}{nearest_only(name, known)}",
            next_step="use a name such as Europe/Rome or America/New_York",
        )
