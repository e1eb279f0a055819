"""Load the records of a period from files into the confidential folder, by fixed rules.

The file may be larger than the memory. The result is a Parquet file with the columns ``date``, ``origin``,
``destination`` (text codes), ``in_period`` and, if requested, ``stop_1``, ``stop_2`` and so on (text codes), ``trips``,
``size``, ``weight`` (unchanged, NULL if it is not a number), ``user`` (text) and, for each breakdown, ``segment_`` and
its name (the category as text, NULL if it is missing). Nothing is guessed from a sample of the file. No message quotes
a record.

A row becomes a record by its own fields alone. :class:`RecordQuery` has the rules, and ``dialects.yaml`` the types and
functions of DuckDB, in which :class:`FileQuery` reads files, and of Spark (:class:`od_core.spark.counting.SparkQuery`).
A value that cannot be converted becomes NULL.

If a row stands for 100 trips and is counted as one trip, 99 are lost. What a row is cannot be seen in the records: a
number of trips may have any name, and a single mark such as ``*`` makes text of its column. So records are refused if
nothing states what a row is and they have an *unused* column, which no declaration reads and by which no rows are
selected. The names of the columns alone decide, so a refusal tells nothing about the records. Only ``od-release init``,
where a person answers, looks at the content (:func:`find_likely_count_columns`).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, ClassVar, Literal

import pyarrow.parquet as pq
import yaml

from od_core.errors import OdError
from od_core.files.data_frame import format_column_names
from od_core.files.duckdb_session import SqlMacros, locate_spill_folder, quote_identifier, quote_literal
from od_core.files.durable import compute_file_digest, find_file_fault, write_durably
from od_core.geography.codes import WHOLE_SPACE
from od_core.geography.geography import Geography
from od_core.periods import Period, check_time_zone
from od_core.records.faults import IS_USER_ID, MAX_COUNT, make_user_id_error, make_weight_type_error
from od_core.records.formats import (
    TABLE,
    ColumnName,
    PointColumns,
    RecordColumns,
    RecordFormat,
    find_column,
    list_names,
)
from od_core.records.open_file import CORRECT_FILE_STEP, UNSTATED_TIME, OpenFile, open_record_file
from od_core.records.points import LATITUDE, LONGITUDE, POINT, PointPlacer
from od_core.records.segments import DAY_TYPES, DAYS, SegmentSource
from od_core.records.stored_table import StoredTable, open_stored_table

if TYPE_CHECKING:
    import duckdb


def list_unused_columns(all_columns: Iterable[str], columns: RecordColumns, form: RecordFormat) -> list[str]:
    """Return those of all columns that are neither read nor used to select rows, in the same order."""
    names = list(all_columns)
    selecting = [column for column, _values in form.categories]
    used = {find_column(name, names) for name in (*columns.names, *selecting)}
    return [name for name in names if name not in used]


def refuse_unused_columns(unused: list[str], table: str, next_step: str) -> None:
    """Raise OdError if a table has unused columns. ``next_step`` says how to state the meaning of a row."""
    if unused:
        columns = "column" if len(unused) == 1 else "columns"
        raise OdError(
            "OD-TRIPS-ROWS",
            f"{table}: nothing says whether a row is one trip, and unused {columns} might hold the number of trips:"
            f" {format_column_names(unused)}",
            next_step=next_step,
        )


_SQL = SqlMacros(Path(__file__).with_name("fields.sql"), MAX_COUNT=MAX_COUNT)
_DIALECTS = yaml.safe_load(Path(__file__).with_name("dialects.yaml").read_text(encoding="utf-8"))


class RecordQuery(ABC):
    """The SQL query that turns each selected row of a table into a record; subclasses know the dialect of SQL.

    Raises OdError if a column is missing, the column of trips contains estimates, or there are unused columns and
    nothing states what a row is.

    Args:
        types: type of every column of the table, by name.
        columns: names of the columns to read.
        form: format of the records.
        time_zone: time zone in which times that have a zone are assigned to days. If None, such times are refused.
        table: description of the table, with which a message begins.

    Attributes:
        dialect: name of the database in ``dialects.yaml``.
        message_start: beginning of messages on weights and user ids.
    """

    dialect: ClassVar[str]
    message_start: str = ""

    def __init__(
        self, types: Mapping[str, str], columns: RecordColumns, form: RecordFormat, time_zone: str | None, table: str
    ) -> None:
        form.refuse_estimates(columns)
        self._types, self._columns, self._form, self._time_zone = types, columns, form, time_zone
        self._rules = _DIALECTS[self.dialect]
        expected = (*columns.names, *(column for column, _ in form.categories))
        for name in expected:
            if find_column(name, list(types)) is None:
                raise self._make_missing_column_error(name, expected)
        if not form.one_row_a_trip and columns.counts_rows:
            role = "trips" if columns.destination is not None else "count"
            other = f"columns: {{{role}: COLUMN}} for the COLUMN with the number of trips of a row"
            if columns.user is not None:
                other = "expand the file to one row a trip"
            step = f"write one_row_a_trip: true next to the path of the files if each row is one trip; else {other}"
            refuse_unused_columns(list_unused_columns(types, columns, form), table, step)

    def make_columns_sql(
        self, period: Period, geography: Geography | None, destinations: Geography | None
    ) -> list[str]:
        """Return the SQL of the columns of a record, each with its name. Raises OdError if a column has the wrong type.

        These are the codes of zones or the points to be placed in them, whether the record is of the period, and what
        else the columns of the query name: its trips, weight and user, and each category as text. ``geography`` is that
        of origins and stops.
        """
        columns = self._columns
        expressions: dict[str, str] = {}
        for name, column in columns.codes.items():
            if isinstance(column, PointColumns):
                expressions |= self._make_point_sql(name, column)
            elif columns.axes:
                expressions[name] = self._make_cell_sql(name, column)
            else:
                areas = destinations if name == "destination" else geography
                expressions[name] = self._replace_nowhere_codes(self._make_code_sql(column), areas)
        if columns.destination is None:
            expressions["destination"] = self._make_text_sql(WHOLE_SPACE)
        expressions["in_period"] = f"coalesce({self._make_period_condition(period)}, {columns.date is None})"
        if columns.trips is not None:
            expressions["trips"] = self._make_count_sql(columns.trips)
        if columns.size is not None:
            expressions["size"] = self._make_count_sql(columns.size)
        if columns.weight is not None:
            expressions["weight"] = self._make_weight_sql(columns.weight)
        if columns.user is not None:
            expressions[self._quote_name("user")] = self._make_user_sql(columns.user)
        expressions |= {source.loaded: self._make_segment_sql(source) for source in columns.segments}
        return [f"{sql} AS {name}" for name, sql in expressions.items()]

    def make_condition_sql(self, period: Period) -> str:
        """Return the SQL condition of the rows that are records. Raises OdError if a column has the wrong type."""
        conditions = [self._make_category_condition(column, values) for column, values in self._form.categories]
        if self._form.outside_period == "drop":
            conditions.append(f"coalesce({self._make_period_condition(period)}, true)")
        return " AND ".join(conditions) or "true"

    @abstractmethod
    def _make_missing_column_error(self, name: ColumnName, expected: Sequence[ColumnName]) -> OdError:
        """Return the OdError for a missing column; ``expected`` are all columns that are needed."""

    @abstractmethod
    def _make_column_error(self, code: str, message: str, next_step: str | None = None) -> OdError:
        """Return the OdError for a column of a wrong type. By default, the step is to correct declaration or file."""

    @abstractmethod
    def _quote_name(self, name: str) -> str:
        """Return a name of a column, quoted for the dialect of SQL."""

    @abstractmethod
    def _make_text_sql(self, value: str) -> str:
        """Return a text as a literal of the dialect of SQL."""

    @abstractmethod
    def _refuse_unclear_times(self, own_name: str, column_type: str) -> None:
        """Raise OdError if nothing says whether the times of a column are instants or local times.

        Otherwise, and for a column of another type, do nothing. ``own_name`` is the name of the column as the table
        writes it, and ``column_type`` its type in the dialect of SQL.
        """

    def make_match_sql(self, text: str, pattern: str) -> str:
        """Return SQL for whether a part of ``text``, itself SQL, matches a regular expression; NULL for NULL."""
        return Template(self._rules["matches"]).substitute(column=text, pattern=self._make_text_sql(pattern))

    def _make_time_sql(self, part: TimePart, name: ColumnName) -> str:
        """Return SQL for the local time, the day or the hour of a column. Raises OdError if its type has none."""
        column, own_name, kind = self._find_column(name)
        self._refuse_unclear_times(own_name, kind)
        if part == "hour" and kind == self._rules["date"]:
            raise self._make_column_error("OD-TRIPS-DATE", f"column {own_name!r} holds {kind}, which has no hour")
        sql = make_time_part_sql(self.dialect, part, column, kind, self._time_zone, self._make_text_sql)
        if sql is None:
            is_zoned = kind in self._rules["zoned"]
            step = "declare the time_zone in which days begin, or give local times" if is_zoned else None
            message = f"column {own_name!r} holds {kind}, not dates or local times without a zone"
            raise self._make_column_error("OD-TRIPS-DATE", message, step)
        return sql

    def _find_column(self, name: ColumnName) -> tuple[str, str, str]:
        """Return the SQL of a column, its name as the table writes it, and its type."""
        own_name = str(find_column(name, list(self._types)))
        return self._quote_name(own_name), own_name, self._types[own_name]

    def _require_column_type(
        self, name: ColumnName, types: str, code: str, must_be: str, step: str | None = None
    ) -> tuple[str, str]:
        """Return the SQL of a column and its type. Raises OdError if the type is not allowed.

        Args:
            name: declared name of the column.
            types: name of the list of allowed types in ``dialects.yaml``.
            code: code of the error.
            must_be: end of its message, which says what the column must hold, with the punctuation before it.
            step: its next step; None for the usual one.
        """
        column, own_name, kind = self._find_column(name)
        if kind not in self._rules[types]:
            raise self._make_column_error(code, f"column {own_name!r} holds {kind}{must_be}", step)
        return column, kind

    def _make_period_condition(self, period: Period) -> str:
        """Return the SQL condition that the date of a row is in the period; NULL if the row has no valid date."""
        day = "CAST(NULL AS DATE)" if self._columns.date is None else self._make_time_sql("day", self._columns.date)
        return f"{day} >= DATE '{period.first}' AND {day} < DATE '{period.end}'"

    def _make_code_sql(self, name: ColumnName) -> str:
        """Return SQL for the zone code of a row as text. Raises OdError if the column cannot hold codes."""
        types = "zone_numbers" if self._form.has_numbered_zones else "text"
        must_be = f"; zone codes must be {self._rules['must_be']['codes']}"
        return _SQL["as_text"](*self._require_column_type(name, types, "OD-TRIPS-NOT-TEXT", must_be))

    def _make_point_sql(self, place: str, columns: PointColumns) -> dict[str, str]:
        """Return SQL for the coordinates of ``place``, such as ``origin``, by the column names of :class:`PointPlacer`.

        Raises OdError if a column cannot hold points or degrees.
        """
        if len(columns.names) == 1:
            [name] = columns.names
            column, _ = self._require_column_type(name, "points", "OD-TRIPS-COORDINATE", ", not points as WKT or WKB")
            return {f"{place}_{POINT}": column}
        return {
            f"{place}_{ending}": f"TRY_CAST({self._require_degrees(name)} AS DOUBLE)"
            for ending, name in zip((LONGITUDE, LATITUDE), columns.names, strict=True)
        }

    def _require_degrees(self, name: ColumnName) -> str:
        """Return the SQL of a column of degrees. Raises OdError if it cannot hold numbers."""
        return self._require_column_type(name, "numbers", "OD-TRIPS-COORDINATE", ", not coordinates in degrees")[0]

    def _make_cell_sql(self, name: str, coordinate: ColumnName) -> str:
        """Return SQL for the number of the cell, along its axis, in which a coordinate lies, as text.

        ``name`` is that of the column of loaded records, and ``coordinate`` that of the column of the file. Raises
        OdError if the column cannot hold numbers.
        """
        column = self._require_degrees(coordinate)
        # The columns origin, stop_1, stop_2, ... and destination hold longitude and latitude in turn.
        stop_number = int(name.partition("_")[2] or 0)
        is_latitude = name == "destination" or stop_number % 2 == 1
        longitudes, latitudes = self._columns.axes
        return _SQL["cell"](column, *(latitudes if is_latitude else longitudes))

    def _replace_nowhere_codes(self, code: str, geography: Geography | None) -> str:
        """Return SQL that replaces codes that name no place, such as abroad, by the ``unknown`` zone.

        ``code`` is the SQL of a code. Without a geography or an ``unknown`` zone, it is returned unchanged.
        """
        if geography is None or geography.unknown is None:
            return code
        nowhere = [self._make_text_sql(value) for value in self._form.nowhere if value not in ("", *geography.zones)]
        is_visible = self.make_match_sql(code, IS_USER_ID) if "" in self._form.nowhere else None
        return _SQL["placed"](code, nowhere, is_visible, self._make_text_sql(geography.unknown))

    def _make_count_sql(self, name: ColumnName) -> str:
        """Return SQL for the trips of a row; infinity above 2^53, NULL if no number. Raises OdError for a bad type."""
        column, kind = self._require_column_type(
            name, "counts", "OD-TRIPS-COUNT", f", not {self._rules['must_be']['trips']}"
        )
        return f"CAST({column} AS BIGINT)" if kind in self._rules["whole"] else _SQL["as_count"](column, kind)

    def _make_weight_sql(self, name: str) -> str:
        """Return SQL for the unrounded weight of a row; NULL if not a number. Raises OdError for a wrong type."""
        column, own_name, kind = self._find_column(name)
        if kind not in self._rules["numbers"]:
            raise make_weight_type_error(f"{self.message_start}column {own_name!r} holds {kind}")
        return f"TRY_CAST({column} AS DOUBLE)"

    def _make_user_sql(self, name: str) -> str:
        """Return SQL for the user id of a row as text. Raises OdError if the column cannot hold ids."""
        column, own_name, kind = self._find_column(name)
        if kind not in self._rules["ids"]:
            raise make_user_id_error(f"{self.message_start}column {own_name!r} holds {kind}")
        return _SQL["as_text"](column, kind)

    def _make_segment_sql(self, source: SegmentSource) -> str:
        """Return SQL for the category of a record as text, NULL if it is missing. Raises OdError for a wrong type."""
        match source.derive:
            case "number":
                return self._make_band_sql(source)
            case "hour":
                text = self._make_time_sql("hour", source.column)
            case "text":
                text = self._make_category_sql(source)
            case _:
                names = DAYS if source.derive == "day_of_week" else DAY_TYPES
                cases = [(str(number), name) for number, name in enumerate(names, start=1)]
                day = self._make_time_sql("day", source.column)
                text = self._make_case_sql(Template(self._rules["weekday"]).substitute(column=day), cases)
        if not source.lookup:
            return text
        cases = [(self._make_text_sql(value), category) for value, category in source.lookup]
        return self._make_case_sql(text, cases)

    def _make_category_sql(self, source: SegmentSource) -> str:
        """Return SQL for the text of a column. Raises OdError if the column has another type.

        If the source has a lookup, the column may also hold whole numbers or Booleans.
        """
        words = self._rules["must_be"]
        if source.lookup:
            types, allowed, step = "looked_up", words["looked_up"], ""
        else:
            types, allowed, step = "category_texts", words["categories"], words["no_lookup"]
        must_be = f"; the categories of breakdown {source.breakdown!r} must be {allowed}"
        column, kind = self._require_column_type(source.column, types, "OD-TRIPS-NOT-TEXT", must_be, step)
        self._refuse_never_given(source.column, kind, (text for text, _ in source.lookup), "OD-SEGMENT-SOURCE")
        return _SQL["as_text"](column, kind)

    def _make_band_sql(self, source: SegmentSource) -> str:
        """Return SQL for the band of a number as text, NULL for a value that is not a finite number."""
        column, _ = self._require_column_type(source.column, "numbers", "OD-TRIPS-CATEGORY", ", not numbers")
        *lower_bands, last_band = map(self._make_text_sql, source.bands)
        return _SQL["band"](column, list(zip(source.breaks, lower_bands, strict=True)), last_band)

    def _make_category_condition(self, name: str, values: tuple[str, ...]) -> str:
        """Return the SQL condition that a column has one of ``values``. The value "" also stands for NULL."""
        column, kind = self._require_column_type(name, "categories", "OD-TRIPS-CATEGORY", ", not categories")
        self._refuse_never_given(name, kind, filter(None, values), "OD-TRIPS-CATEGORY")
        return f"coalesce(CAST({column} AS STRING), '') IN ({', '.join(map(self._make_text_sql, values))})"

    def _refuse_never_given(self, name: ColumnName, kind: str, texts: Iterable[str], code: str) -> None:
        """Raise OdError with ``code`` if a column never gives one of the declared texts, such as ``True`` or ``1.0``.

        ``kind`` is the type of the column. Booleans give ``true`` and ``false``, and whole numbers no decimals.
        """
        pattern = self._rules["given_texts"].get(kind, self._rules["given_texts"]["others"])
        for text in texts:
            if not re.fullmatch(pattern, text):
                _, own_name, _ = self._find_column(name)
                message = f"column {own_name!r} holds {kind}, which never gives the declared text {text!r}"
                step = "write true and false for Booleans, and numbers without leading zeros or a final .0"
                raise self._make_column_error(code, message, step)

    def _make_case_sql(self, value: str, cases: Iterable[tuple[str, str]]) -> str:
        """Return SQL for the category of a value, NULL for a value without a category.

        ``value`` is the SQL of the value. ``cases`` has the SQL of each value with a category, and the category.
        """
        whens = (f"WHEN {condition} THEN {self._make_text_sql(category)}" for condition, category in cases)
        return f"CASE {value} {' '.join(whens)} END"


class FileQuery(RecordQuery):
    """The query of the records of an open file in DuckDB. Its rows are the relation ``records`` in the query."""

    dialect = "duckdb"

    def __init__(self, file: OpenFile, columns: RecordColumns, time_zone: str | None) -> None:
        self._file, self.message_start = file, f"{file.source.name}: "
        super().__init__(file.types, columns, file.form, time_zone, file.named)

    def make_query_sql(self, period: Period, geography: Geography | None, destinations: Geography | None) -> str:
        """Return the query. Its result has a column ``date`` and those of :meth:`RecordQuery.make_columns_sql`."""
        date = "NULL::TIMESTAMP" if self._columns.date is None else self._make_time_sql("time", self._columns.date)
        fields = [f"{date} AS date", *self.make_columns_sql(period, geography, destinations)]
        return f"SELECT {', '.join(fields)} FROM records WHERE {self.make_condition_sql(period)}"  # noqa: S608  # checked types, quoted names and texts

    def _make_missing_column_error(self, name: ColumnName, expected: Sequence[ColumnName]) -> OdError:
        """Return the OdError for a missing column of the file; ``expected`` are all columns that are needed."""
        return self._file.make_missing_column_error(name, expected)

    def _make_column_error(self, code: str, message: str, next_step: str | None = None) -> OdError:
        """Return the OdError for a column of the file that has a wrong type."""
        return self._file.make_file_error(code, message, next_step=next_step or CORRECT_FILE_STEP)

    _quote_name, _make_text_sql = staticmethod(quote_identifier), staticmethod(quote_literal)

    def _refuse_unclear_times(self, own_name: str, column_type: str) -> None:
        """Raise OdError if neither the file nor its format says whether times are instants or local times."""
        if column_type == UNSTATED_TIME:
            raise self._file.make_unstated_time_error(own_name)


_POINTS_AT_ONCE = 1 << 20
"""Number of records whose points are placed at once."""

TimePart = Literal["time", "day", "hour"]


def make_time_part_sql(
    dialect: str, part: TimePart, column: str, kind: str, time_zone: str | None, quote: Callable[[str], str]
) -> str | None:
    """Return SQL for the local time, the day or the hour of a column; NULL for a value without a valid one.

    Return None if the type has no such part, or if its times have a time zone and ``time_zone`` is None.

    Args:
        dialect: name of the dialect of SQL in ``dialects.yaml``.
        part: what is wanted of the time.
        column, kind: SQL of the column, and its type.
        time_zone: time zone to which times that have a zone are converted.
        quote: returns a text as a literal of SQL.
    """
    rules = _DIALECTS[dialect]
    if kind not in rules[part] or (kind in rules["zoned"] and time_zone is None):
        return None
    patterns = {name: quote(pattern) for name, pattern in rules["patterns"].items()}
    return Template(rules[part][kind]).substitute(patterns, column=column, zone=quote(str(time_zone)))


def make_count_sql(column: str, kind: str = "VARCHAR") -> str:
    """Return SQL for the number of trips in a column of DuckDB's type ``kind``; ``column`` is the SQL of the column.

    The result is infinity above 2^53, and NULL if the value is not a number.
    """
    return _SQL["as_count"](column, kind)


FIRST_ROWS = 100_000
"""Largest number of rows that commands which declare an input read."""

_MIN_JUDGED_ROWS = 100  # in a shorter file, each pair of places may occur only once by chance

_NUMBER = r"[\s\p{Z}]*[-+]?\p{Nd}[\p{Nd}\p{Z}\s.,''\x{2019}_]*"
"""RE2 pattern of a number within quotes of SQL: in any digits, possibly padded, grouped or with decimals."""


def find_likely_count_columns(source: Path, columns: list[str], form: RecordFormat) -> list[str]:
    """Confidential: return the columns of a file that look like counts, as most of their first values are numbers.

    ``columns`` are those to look at, named as in the file. Raises OdError if the file cannot be read.
    """
    texts = [f"nullif(trim({quote_identifier(name)}::VARCHAR), '')" for name in columns]
    mostly_numbers = [f"2 * count_if(regexp_full_match({text}, '{_NUMBER}')) > count({text})" for text in texts]
    with open_record_file(source, form) as file:
        are_likely = _aggregate_first_rows(file, *mostly_numbers) if columns else ()
    return [name for name, is_likely in zip(columns, are_likely, strict=True) if is_likely]


def has_no_repeated_pair(source: Path, columns: RecordColumns, form: RecordFormat) -> bool:
    """Confidential: return whether no pair of places occurs twice in the first rows, as in a table of flows.

    Return False for fewer than ``_MIN_JUDGED_ROWS`` rows, and for points, which hardly ever occur twice. The file must
    have the columns of codes. Raises OdError if it cannot be read.
    """
    if columns.has_points:
        return False
    with open_record_file(source, form) as file:
        places = list(columns.codes.values())[:2]  # origin and destination, or the one place of counts
        declared = [name for place in places for name in list_names(place)]
        own_names = [str(find_column(name, list(file.types))) for name in declared]
        names = ", ".join(map(quote_identifier, own_names))
        rows, pairs = _aggregate_first_rows(file, "count(*)", f"count(DISTINCT ({names}))")
    return rows >= _MIN_JUDGED_ROWS and pairs == rows


def hold_degrees(source: Path, longitude: str, latitude: str, form: RecordFormat) -> bool:
    """Confidential: return whether most of the first values of two columns can be a longitude and a latitude.

    The columns are named as in the file, and hold numbers or their texts. Raises OdError if it cannot be read.
    """
    mostly_degrees = [
        f"2 * count_if(abs(TRY_CAST({quote_identifier(name)}::VARCHAR AS DOUBLE)) <= {max_degrees}) >= count(*)"
        for name, max_degrees in ((longitude, 180), (latitude, 90))
    ]
    with open_record_file(source, form) as file:
        return all(_aggregate_first_rows(file, *mostly_degrees))


def _aggregate_first_rows(file: OpenFile, *aggregates: str) -> tuple[int, ...]:
    """Return the result of each SQL aggregate over the first ``FIRST_ROWS`` rows of a file."""
    return tuple(file.relation.limit(FIRST_ROWS).aggregate(", ".join(aggregates)).fetchall()[0])


def has_dates(source: Path, column: str, form: RecordFormat) -> bool:
    """Return whether a column has a date in one of the file's first records; also True if there are no records.

    The column is named as the file writes it. Raises OdError if the file cannot be read, or does not state whether the
    times of the column have a zone.
    """
    with open_record_file(source, form) as file:
        if file.types[column] == UNSTATED_TIME:
            raise file.make_unstated_time_error(column)
        day = make_time_part_sql("duckdb", "day", quote_identifier(column), file.types[column], "UTC", quote_literal)
        if day is None:
            return False
        rows, dated = _aggregate_first_rows(file, "count(*)", f"count({day})")
        return bool(dated or not rows)


def load_records(
    source: Path | StoredTable,
    columns: RecordColumns,
    period: str,
    target: Path,
    *,
    record_format: RecordFormat = TABLE,
    geography: Geography | None = None,
    destination_geography: Geography | None = None,
    time_zone: str | None = None,
) -> str | None:
    """Copy the records of a file or a stored table into the confidential folder, and mark those of the period.

    Return the name of the state of the table that was read; None for a file, or if the store does not keep states.

    A row is left out if the format's categories do not select it, or if it belongs to another period and
    ``outside_period`` of the format is ``drop``. A row that is left out counts neither as a record nor as a fault.

    Args:
        source, columns: the file or the table, and the names of its columns.
        period: text of a :class:`od_core.periods.Period`.
        target: Parquet file to write, durably and with mode 0600.
        record_format: format of the file; by default CSV or Parquet with any columns.
        geography, destination_geography: geography of the zones, and of the destinations if it differs. Points are
            placed in their boundaries. Codes in the format's ``nowhere`` are replaced by its ``unknown`` zone, unless
            they are zones or there is none.
        time_zone: time zone in which times that have a zone are assigned to days, such as ``Europe/Rome``. If None,
            such times are refused. Local times are not converted.

    Raises:
        OdError: the file is missing, may not be read, is unreadable, or has another kind than its name or the format
            states; a column is missing or has the wrong type (such as numbers for codes, or times with a zone without a
            ``time_zone``); each row counts as one trip, and an unnamed column may contain the trips of a row; the time
            zone is unknown; or the disk is full.
    """
    form = record_format
    opened: AbstractContextManager[OpenFile]
    if isinstance(source, StoredTable):
        opened = open_stored_table(source, form, target.parent)
    else:
        refuse_absent_file(source)
        opened = open_record_file(source, form, target.parent, whole=True)
    if time_zone is not None:
        check_time_zone(time_zone)
    with opened as file:
        query = FileQuery(file, columns, time_zone).make_query_sql(
            Period(period), geography, destination_geography or geography
        )
        temporary = locate_spill_folder(target.parent) / target.name
        file.register_records(columns, Period(period))
        records = file.connection.sql(query)
        if columns.has_points:
            _write_placed_records(records, temporary, columns, form, geography, destination_geography or geography)
        else:
            records.write_parquet(str(temporary))
        write_durably(target, temporary.replace)
        return file.snapshot


def _write_placed_records(
    records: duckdb.DuckDBPyRelation,
    target: Path,
    columns: RecordColumns,
    form: RecordFormat,
    geography: Geography | None,
    destinations: Geography | None,
) -> None:
    """Write records to a Parquet file, with the codes of zones in place of coordinates.

    ``geography`` has the zones of origins and stops. Raises OdError if a geography is missing, its boundaries are no
    partition, or most points of a large file are recognizably wrong; see :meth:`PointPlacer.refuse_other_degrees`.
    """
    if geography is None or destinations is None:
        message = "records with coordinates are read without zones in which they could lie"
        raise OdError("OD-GEOGRAPHY-BOUNDARIES", message, next_step="give a geography with boundaries")
    placer = PointPlacer(columns, form.nowhere, geography, destinations)
    reader = records.to_arrow_reader(_POINTS_AT_ONCE)
    with pq.ParquetWriter(target, placer.place_schema(reader.schema)) as writer:
        for number, batch in enumerate(reader):
            if number == 0:
                placer.refuse_other_degrees(batch)
            writer.write_batch(placer.place(batch))


_FILE_ENDING = re.compile(r"(\.(csv|tsv|txt|json|parquet))?(\.gz)?$", re.IGNORECASE)
"""Ending of a file name that says how the file is written and compressed."""


def refuse_repeated_tables(files: Sequence[tuple[Path, str | None]], form: RecordFormat) -> None:
    """Raise OdError if two files of a period hold the same table, whose records would be counted twice.

    ``files`` has existing files, each with the name of a table in it, or None. A table without rows may occur again.
    """
    has_rows = cache(lambda source, table: _has_rows(source, form.with_options(table=table)))  # each is opened once
    sizes = Counter(file.stat().st_size for file, _ in files)
    seen: dict[tuple[object, ...], Path] = {}
    for file, table in files:
        state = file.stat()
        key_by_reason: dict[str, tuple[object, ...]] = {  # two tables are the same if one of their keys is equal
            "are two names of one file": (state.st_dev, state.st_ino, table),
            "hold one table in two containers": (file.parent, _FILE_ENDING.sub("", file.name), table),
        }
        if sizes[state.st_size] > 1:  # a file of a size of its own need not be read
            key_by_reason["have the same content"] = (compute_file_digest(file), table)
        for reason, key in key_by_reason.items():
            other = seen.setdefault(key, file)
            if other != file and has_rows(other, table) and has_rows(file, table):
                message = f"{other.name} and {file.name} {reason}, so records would be counted twice"
                step = "keep one of them; if their records differ, write them to one file"
                raise OdError("OD-FILE-REPEATED", message, next_step=step, confidential_detail=f"{other}, {file}")


def _has_rows(source: Path, form: RecordFormat) -> bool:
    """Return whether a file of records has a row. Raises OdError if it cannot be read."""
    with open_record_file(source, form) as file:
        return bool(file.relation.limit(1).fetchall())


def refuse_absent_file(source: Path) -> None:
    """Raise OdError if a file of records is missing or may not be read."""
    absent = find_file_fault(source)
    if absent is not None:
        step = "wait for the file of records, or correct its path or the rights to read it"
        raise OdError("OD-FILE-MISSING", absent, next_step=step)
