"""Confidential: open a file of records of any kind in DuckDB, and give access to its columns."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.parquet as pq

from od_core.errors import OdError, nearest_known, nearest_only, raise_alone
from od_core.files.data_frame import shown_columns
from od_core.files.duckdb_session import file_name, parquet_rows, quoted_name, quoted_text, scratch_database
from od_core.records.faults import reading_errors
from od_core.records.file_faults import (
    file_fault,
    is_compressed,
    refuse_incomplete,
    refuse_other_kinds,
    unreadable,
)
from od_core.records.format import ColumnName, RecordFormat, column_in, own_names, shown

if TYPE_CHECKING:
    import duckdb

_DIALECT = (
    "auto_detect = false, comment = '', nullstr = '', null_padding = false, ignore_errors = false, strict_mode = true,"
    " hive_partitioning = false"
)
"""Options with which every CSV file is read.

With ``hive_partitioning = false``, a folder named ``origin=x`` does not become a column.

The option ``parallel = false`` is not set. With it, DuckDB accepts long files whose fields contain line breaks, but it
also silently drops everything after a quote that is not closed. With several threads, DuckDB refuses both.
"""

_CODECS = {"utf-8": "utf-8-sig", "latin-1": "latin-1", "utf-16": "utf-16"}

_DELIMITERS = (",", ";", "\t", "|", ":")
"""Delimiters to suggest in the error message if the file has none of the expected columns with the stated delimiter."""

_NO_SUCH_SIGN = "\1"
"""Delimiter with which each line is read as one field. A file that contains this character is unreadable."""


UNSTATED_TIME = "TIMESTAMP OF AN UNSTATED ZONE"
"""Type of a Parquet column of times that may be instants or local times: neither the file nor the format says it."""


class OpenFile(NamedTuple):
    """A file of records that is open in DuckDB.

    Attributes:
        source: path of the file.
        form: format of its records.
        relation: its rows, as a DuckDB relation.
        connection: the connection that reads them.
        unstated_times: names of the columns of type ``UNSTATED_TIME``.
    """

    source: Path
    form: RecordFormat
    relation: duckdb.DuckDBPyRelation
    connection: duckdb.DuckDBPyConnection
    unstated_times: tuple[str, ...] = ()

    @property
    def types(self) -> dict[str, str]:
        """DuckDB type of every column by name, without parameters, which could be values of records."""
        kinds = zip(self.relation.columns, self.relation.types, strict=True)
        return {name: UNSTATED_TIME if name in self.unstated_times else str(kind.id).upper() for name, kind in kinds}

    def unstated_time(self, name: str) -> OdError:
        """Return the OdError for a column of type ``UNSTATED_TIME``, from which dates or hours are needed."""
        return file_fault(
            self.source,
            self.form,
            "OD-TRIPS-DATE",
            f"column {name!r} holds Parquet timestamps that do not state whether they are instants or local times",
            next_step="write timestamps: utc (instants, as Spark writes them) or timestamps: local (local times, as"
            " Impala does) next to the path of the files",
        )

    def missing(self, name: ColumnName, expected: Sequence[ColumnName]) -> OdError:
        """Return the OdError for a column that is missing or, as :meth:`repeated` finds, is there more than once.

        The message lists the columns of the file. If the file is CSV and has none of the expected columns, the message
        does not list them: the header may be missing, and the names may be values of the first record.

        Args:
            name: name of the missing column.
            expected: names of all columns that are needed.
        """
        columns = self.relation.columns
        if (repeated := self.repeated(name)) is not None:
            return repeated
        if self.form.container_of(self.source) == "csv" and not _has_any(expected, columns):
            return self._no_header(name, expected)
        near = nearest_only(name, tuple(columns)) if isinstance(name, str) else ""
        message = f"has no column {shown(name)}{near}; it has {shown_columns(columns)}"
        return file_fault(self.source, self.form, "OD-TRIPS-COLUMN", message)

    def repeated(self, name: ColumnName) -> OdError | None:
        """Return the OdError for a column whose name two columns of the file have; None if it occurs at most once."""
        asked = {one.lower() for one in ((name,) if isinstance(name, str) else name)}
        header = enumerate(_header(self.source, self.form), start=1)
        places = [str(place) for place, one in header if one.lower() in asked]
        if len(places) < 2:
            return None
        what = f"has a column more than once (case is ignored): {shown(name)} names its columns {' and '.join(places)}"
        step = "give each column that is used a name of its own"
        return file_fault(self.source, self.form, "OD-FILE-UNREADABLE", what, next_step=step)

    def _no_header(self, name: ColumnName, expected: Sequence[ColumnName]) -> OdError:
        source, form = self.source, self.form
        message = f"has no column {shown(name)}: its first line contains none of the expected columns"
        next_step = "add a header line with the column names, or correct the columns named in the configuration"
        other = next((one for one in _DELIMITERS if _has_any(expected, _first_line(source, form, one))), None)
        if other is not None:
            message += f", but it does if {other!r} separates the fields"
            next_step = f"write delimiter: {json.dumps(other)}"  # JSON text, which is valid YAML, also for a tab
            next_step += " next to the path of the files" if "delimiter" in form.takes else " with reader: table"
        detail = f"first line: {_header(source, form)!r}"
        return file_fault(source, form, "OD-TRIPS-COLUMN", message, next_step=next_step, detail=detail)


def _has_any(expected: Sequence[ColumnName], columns: Sequence[str]) -> bool:
    return any(column_in(name, columns) is not None for name in expected)


@contextmanager
def opened(source: Path, form: RecordFormat, folder: Path | None = None, *, whole: bool = False) -> Iterator[OpenFile]:
    """Open a file of records while this context lasts, in a database that can read no other file.

    An exception in the context that an unreadable file may cause becomes an OdError, without a cause or a context: its
    text may quote a record. It is raised when rows are read, which may be after others were read.

    Args:
        source: the file.
        form: format of its records.
        folder: folder of DuckDB's temporary files; None for a new one.
        whole: whether to check that the file is complete, which reads a text to its end.

    Raises:
        OdError: the file is of another kind; it has no header, or a column twice; the DuckDB file lacks the table; the
            file cannot be read; or memory or disk space does not suffice.
    """
    try:
        with (
            nullcontext(folder) if folder else TemporaryDirectory() as scratch,
            scratch_database(Path(scratch), *files_read(source)) as connection,
        ):
            yield open_records(connection, source, form, whole=whole)
    except reading_errors() as error:
        raise_alone(unreadable(source, form, error))


def open_records(
    connection: duckdb.DuckDBPyConnection, source: Path, form: RecordFormat, *, whole: bool = False
) -> OpenFile:
    """Open a file of records as a DuckDB relation. Its rows are read later.

    Args:
        connection: a connection that may read the paths of :func:`files_read`.
        source: the file.
        form: format of its records.
        whole: as in :func:`opened`.

    Raises:
        OdError: the file is of another kind; it is incomplete; it has no header, or a column twice; or the DuckDB file
            lacks the table.
        Exception: one of :func:`reading_errors`; the file cannot be read. It may also be raised while rows are read.
    """
    refuse_other_kinds(source, form)
    if whole:
        refuse_incomplete(source, form)
    unstated: tuple[str, ...] = ()
    match form.container_of(source):
        case "parquet":
            relation, unstated = _parquet(connection, source, form)
        case "duckdb":
            relation = _table(connection, source, form)
        case "lines":
            relation = connection.sql(_lines_query(source, form))
        case "csv":
            relation = connection.sql(_csv_query(source, form))
    return OpenFile(source, form, relation, connection, unstated)


def files_read(source: Path) -> list[Path]:
    """Return the paths that DuckDB reads: the source, and the write-ahead log that a database file may have."""
    return [source, source.with_name(f"{source.name}.wal")]


def _header(source: Path, form: RecordFormat) -> list[str]:
    """Return the names of the columns as a CSV or Parquet file states them; empty for other files.

    DuckDB gives other names to columns of Parquet files that have none, or that of another one.
    """
    match form.container_of(source):
        case "csv":
            return _first_line(source, form, form.text_delimiter)
        case "parquet":
            return list(pq.read_schema(source).names)
        case _:
            return []


def _first_line(source: Path, form: RecordFormat, delimiter: str) -> list[str]:
    """Return the fields of the first line of a CSV file."""
    opened = gzip.open if is_compressed(source) else open
    with opened(source, "rt", encoding=_CODECS[form.text_encoding], newline="") as file:
        return next(csv.reader(file, delimiter=delimiter), [])


def _csv_query(source: Path, form: RecordFormat) -> str:
    """Return a query for the columns of a CSV file. It states every option of the CSV dialect.

    DuckDB would guess an option that is not stated from a sample of the rows. One record could then change how others
    are read.
    """
    names = _header(source, form)
    if not names:
        what = "is empty and has no header line"
        raise file_fault(source, form, "OD-FILE-UNREADABLE", what, next_step="correct the file of records")
    columns = ", ".join(f"{quoted_text(name)}: 'VARCHAR'" for name in own_names(names))
    fields = f"header = true, delim = {quoted_text(form.text_delimiter)}, quote = '\"', escape = '\"'"
    return _read_csv(source, form, columns, fields)


def _lines_query(source: Path, form: RecordFormat) -> str:
    """Return a query for the fields of every line of a file of kind ``lines``.

    A line with more or fewer fields makes the file unreadable, as in CSV.
    """
    whole = f"header = false, delim = {quoted_text(_NO_SUCH_SIGN)}, quote = '', escape = ''"
    place = {name: f"fields[{number}]" for number, name in enumerate(form.fields, start=1)}
    joined = {name: " || ".join(place[part] for part in parts) for name, parts in form.joined}
    columns = ", ".join(f"{field} AS {quoted_name(name)}" for name, field in (place | joined).items())
    return f"""
        SELECT {columns} FROM (
            SELECT CASE WHEN len(fields) = {len(place)} THEN fields ELSE error('a line with other fields: ' || line) END
                AS fields
            FROM (
                SELECT line, list_filter(string_split(line, ' '), lambda field: field <> '') AS fields
                FROM ({_read_csv(source, form, "'line': 'VARCHAR'", whole)}))
            WHERE len(fields) > 0)
    """  # noqa: S608  # names of the published layout, and a query of our own


def _read_csv(source: Path, form: RecordFormat, columns: str, fields: str) -> str:
    compression = "gzip" if is_compressed(source) else "none"
    how = f"{fields}, {_DIALECT}, encoding = '{form.text_encoding}', compression = '{compression}'"
    return f"SELECT * FROM read_csv({quoted_text(file_name(source))}, columns = {{{columns}}}, {how})"  # noqa: S608  # quoted


def _parquet(
    connection: duckdb.DuckDBPyConnection, source: Path, form: RecordFormat
) -> tuple[duckdb.DuckDBPyRelation, tuple[str, ...]]:
    """Return the rows of a Parquet file, and its columns of times for which neither file nor format states a zone.

    Physical type INT96 has no annotation, and the old annotations of timestamps do not tell instants from local times.
    DuckDB reads both as local times. Source: Apache Parquet, LogicalTypes.md, sections "TIMESTAMP" and "Deprecated
    timestamp ConvertedType".
    """
    with pq.ParquetFile(source) as file:
        names, stored = own_names(file.schema_arrow.names), list(file.schema)
    relation = connection.sql(f"FROM {parquet_rows(source)} AS t({', '.join(map(quoted_name, names))})")
    unstated = tuple(one.path for one in stored if one.path in names and _lacks_zone(one))
    if not unstated or form.timestamps is None:
        return relation, unstated
    if form.timestamps == "utc":
        instants = (f"timezone('UTC', {quoted_name(name)}) AS {quoted_name(name)}" for name in unstated)
        relation = relation.project(f"* REPLACE ({', '.join(instants)})")
    return relation, ()


def _lacks_zone(column: pq.ColumnSchema) -> bool:
    """Return whether a Parquet column holds timestamps that do not state whether they are instants or local times."""
    stated: dict[str, Any] = json.loads(column.logical_type.to_json())
    return column.physical_type == "INT96" or (stated["Type"] == "Timestamp" and bool(stated["is_from_converted_type"]))


def _table(connection: duckdb.DuckDBPyConnection, source: Path, form: RecordFormat) -> duckdb.DuckDBPyRelation:
    """Return the table or view of a DuckDB file that the format names. A view cannot read another file."""
    connection.execute(f"ATTACH {quoted_text(str(source))} AS source (TYPE duckdb, READ_ONLY)")
    found = connection.sql(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_catalog = 'source' ORDER BY ALL"
    ).fetchall()
    tables = {name if schema == "main" else f"{schema}.{name}": (schema, name) for schema, name in found}
    if form.table not in tables:
        known = nearest_known(form.table, tuple(tables)) if tables else "it has no tables"
        raise file_fault(source, form, "OD-TRIPS-TABLE", f"has no table {form.table!r} ({known})")
    schema, name = tables[form.table]
    return connection.sql(f"SELECT * FROM source.{quoted_name(schema)}.{quoted_name(name)}")  # noqa: S608  # quoted


def record_schema(source: Path, form: RecordFormat) -> dict[str, str]:
    """Return the DuckDB type of every column, by column name.

    Treat the names as confidential if the file is CSV. If its header is missing, the names are the values of the first
    record. They are safe to show once one of them matches an expected column name.

    Raises:
        OdError: the file cannot be opened in its format.
    """
    with opened(source, form) as file:
        return file.types
