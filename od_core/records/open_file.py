"""Open record files, and say what is wrong with them."""

from __future__ import annotations

import csv
import glob
import gzip
import io
import json
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from od_core.errors import InputError, OdError, raise_without_context, suggest_known_names, suggest_similar_name
from od_core.files.data_frame import format_column_names
from od_core.files.duckdb_session import (
    SqlMacros,
    escape_path_wildcards,
    make_machine_error,
    make_parquet_sql,
    open_scratch_database,
    quote_identifier,
    quote_literal,
)
from od_core.files.durable import find_file_fault, read_file_state
from od_core.periods import Period
from od_core.records.faults import list_reading_errors
from od_core.records.formats import (
    ColumnName,
    RecordColumns,
    RecordFormat,
    find_column,
    make_column_names,
    quote_column_name,
)
from od_core.records.json_payload import JsonPayload

if TYPE_CHECKING:
    import duckdb


T = TypeVar("T")

CORRECT_FILE_STEP = "correct the file of records, or the columns named in the configuration"
"""Usual next step of an error about the columns of a file."""

GZIP_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error)
"""Exceptions that a truncated or damaged gzip file raises."""

_MAX_LINE_BYTES = 2_000_000  # bytes: DuckDB's limit, which is far above any record

_PIECE_BYTES = 1 << 20  # number of bytes of a text that are read at a time

_MAX_TITLE_LINES = 50  # number of lines in which a missing header is searched

_RECORDS_AT_ONCE = 500  # number of records of a JSON payload in a batch; a route may have thousands of points

EXCEL_DELIMITER_LINE = re.compile("(?i)sep=.?")
"""First line of a CSV file that tells Excel the delimiter, which no other program reads."""


def add_file_to_error(error: OdError, file: str, columns: RecordColumns) -> OdError:
    """Return an error of counting with the file's name and, in some messages, its own column names.

    Counting reads loaded records, whose columns have fixed names, so its errors name neither the file nor its columns.
    The result is a copy of ``error`` whose message begins with ``file``, has the file's own name for column ``trips``,
    and lists all columns that are read if the code is OD-TRIPS-FAULTS. An error that is no :class:`InputError`, such as
    one about the counters of users, is returned unchanged, except OD-SPARK-FAILED.
    """
    if not isinstance(error, InputError) and error.code != "OD-SPARK-FAILED":  # Spark may not find the records
        return error
    message = error.message
    if columns.trips is not None:
        message = message.replace("column 'trips'", f"column {quote_column_name(columns.trips)}")
    if error.code == "OD-TRIPS-FAULTS":
        message += f"; the columns are {', '.join(map(quote_column_name, columns.names))}"
    return error.with_changes(message=f"{file}: {message}")


_KINDS, _KINDS_OF_FAULT, _TABLE_LOGS = yaml.safe_load_all(
    Path(__file__).with_name("kinds.yaml").read_text(encoding="utf-8")
)
PARQUET, WORKBOOK, _DUCKDB = "a Parquet file", "an Excel workbook", "a DuckDB file"
_GZIP, _ZIP, _JSON = "compressed with gzip", "a zip archive", "JSON"

_TEXT_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "big-endian utf-16", b"\xef\xbb\xbf": "utf-8"}


def refuse_table_log(path: Path, *inner: Path) -> None:
    """Raise OdError if a file or folder is in a table whose log says which of its files and rows are valid.

    Such a table is looked for in ``path``, in the folders ``inner``, from which files are read, too, and in all folders
    above them, both as the paths are written and after their links are followed.
    """
    folders: set[Path] = set()
    for written in (path, *inner):
        for target in (Path(os.path.abspath(written)), Path(os.path.realpath(written))):  # noqa: PTH100  # links are kept
            folders.update((target, *target.parents))

    def has_log(folder: Path, patterns: Sequence[str]) -> bool:
        """Return whether a path is a folder that has a file of one of the patterns."""
        is_folder = os.path.isdir(folder)  # noqa: PTH112  # it raises nothing
        return is_folder and any(_has_file(folder, pattern) for pattern in patterns)

    refuse_folders_with_log(path.name, folders, has_log)


def _has_file(folder: Path, pattern: str) -> bool:
    """Return whether a folder has a file that matches a glob pattern.

    If the first part of the pattern has wildcards, the folder is listed, and the result is cached until it changes.
    """
    if glob.has_magic(pattern.partition("/")[0]):
        return _list_and_match(folder, pattern, *read_file_state(folder))
    return any(glob.iglob(pattern, root_dir=folder))  # noqa: PTH207  # it takes half the time


@lru_cache(maxsize=4096)
def _list_and_match(folder: Path, pattern: str, *_state: int) -> bool:
    """Return whether a folder has a file that matches a glob pattern.

    ``_state`` (:func:`read_file_state`) only makes the cache forget a folder that has changed.
    """
    return any(glob.iglob(pattern, root_dir=folder))  # noqa: PTH207


def refuse_folders_with_log(named: str, folders: Iterable[T], has_log: Callable[[T, Sequence[str]], bool]) -> None:
    """Raise OdError if a folder has a log of a table, which says which of the table's files and rows are valid.

    ``named`` is the name of what is read, with which the message begins. ``has_log`` returns whether a folder has a
    file that matches one of the given glob patterns.
    """
    for folder in folders:
        for table, patterns in _TABLE_LOGS.items():
            if has_log(folder, patterns):
                message = f"{named} is in a table of {table}, whose log is not read: some files or rows may be invalid"
                step = "let the asset, or an export, write plain Parquet files outside that table, and name these"
                raise OdError("OD-FILE-INCOMPLETE", message, next_step=step)


def advise_on_file_kind(kind: str) -> str:
    """Return the next step of an error about a file whose kind, a key of ``kinds.yaml``, is not read."""
    is_packed = kind.startswith("compressed") or "archive" in kind
    default_step = "unpack it" if is_packed else "save its table as Parquet or as CSV, with codes as text"
    return str(_KINDS[kind].get("step", default_step))


def find_file_kind(source: Path) -> str | None:
    """Return the kind of a file, such as ``an Excel workbook``, by its first bytes; None for an unknown kind.

    Text is of no known kind. Raises OSError if the file cannot be read.
    """
    with source.open("rb") as file:
        first_bytes = file.read(64)
    for kind, facts in _KINDS.items():
        if re.match(facts["marks"].encode(), first_bytes, re.DOTALL):
            return WORKBOOK if kind == _ZIP and _is_workbook(source) else str(kind)
    return None


def _is_workbook(source: Path) -> bool:
    """Return whether a zip archive is an Excel workbook; False if it is damaged."""
    with suppress(zipfile.BadZipFile), zipfile.ZipFile(source) as archive:
        return any(name.startswith("xl/workbook.") for name in archive.namelist())
    return False


def is_compressed(source: Path) -> bool:
    """Return whether a file is compressed by gzip, judged by its name."""
    return source.suffix == ".gz"


def open_bytes(source: Path) -> IO[bytes]:
    """Open a file for reading bytes. If its name ends in .gz, the bytes are decompressed."""
    return cast("IO[bytes]", gzip.open(source)) if is_compressed(source) else source.open("rb")


def has_nul(text: bytes, *, is_wide: bool = False) -> bool:
    """Return whether a text has a NUL character. ``is_wide`` says that it is little-endian UTF-16."""
    if not is_wide:
        return b"\0" in text
    code_units = np.frombuffer(text, "<u2", len(text) // 2)
    return not code_units.all()


def make_incomplete_file_error(what: str) -> OdError:
    """Return the OdError for a text whose end is missing; ``what`` begins its message."""
    step = "copy or download it again, and compare its size and checksum; if it is whole, save it as UTF-8"
    return OdError("OD-FILE-INCOMPLETE", f"{what}, so its copy probably stopped part-way", next_step=step)


_SQL = SqlMacros(
    Path(__file__).with_name("files.sql"),
    file_name=escape_path_wildcards,
    is_compressed=is_compressed,
    quote_identifier=quote_identifier,
    quote_literal=quote_literal,
)

_CODECS = {"utf-8": "utf-8-sig", "latin-1": "latin-1", "utf-16": "utf-16"}


UNSTATED_TIME = "TIMESTAMP OF AN UNSTATED ZONE"
"""Type of a Parquet column of times that may be instants or local times: neither the file nor the format says it."""


@dataclass(frozen=True)
class RecordFile:
    """A file of records, and the format in which it is read."""

    source: Path
    form: RecordFormat

    @property
    def container(self) -> str:
        """Kind of the file; see :meth:`RecordFormat.resolve_container`."""
        return self.form.resolve_container(self.source)

    @property
    def named(self) -> str:
        """Names of the file and of the reader, with which a message begins."""
        return f"{self.source.name} (reader {self.form.name!r})"

    def make_file_error(
        self, code: str, message: str, *, next_step: str = "correct the file of records", detail: str | None = None
    ) -> OdError:
        """Return an OdError about the file. ``message`` is the rest of a sentence about it, such as "is empty"."""
        return OdError(code, f"{self.named} {message}", next_step=next_step, confidential_detail=detail)

    def make_unreadable_file_error(self, error: Exception) -> OdError:
        """Return the OdError for a file that cannot be read, because of a fault of the file or of the machine.

        The text of ``error`` becomes the confidential detail.
        """
        absent = find_file_fault(self.source)
        if absent is not None:
            step = "leave the file in its place until it is read, or correct the rights to read it"
            return OdError("OD-FILE-MISSING", absent, next_step=step, confidential_detail=str(error))
        machine_error = make_machine_error(error, f"{self.source.name} cannot be read")
        if machine_error is not None:
            return machine_error
        expected = {
            "parquet": "Parquet",
            "duckdb": "a DuckDB file",
            "lines": f"lines of {len(self.form.fields)} fields",
            "json": "JSON",
            "csv": f"CSV in {self.form.text_encoding.upper()}",
        }
        message = f"cannot be read as {expected[self.container]}"
        reason, step = self._find_reason_and_step(error)
        return self.make_file_error("OD-FILE-UNREADABLE", message + reason, next_step=step, detail=str(error))

    def _find_reason_and_step(self, error: Exception) -> tuple[str, str]:
        """Return the reason why the file cannot be read, judged by the error's type and text, and the next step.

        The reason is the end of a message, and an empty text if it is unknown.
        """
        text, step = str(error), "correct the file of records"
        if isinstance(error, GZIP_ERRORS) or "GZIP" in text:
            return ": it is truncated or damaged", "download the file again"
        if isinstance(error, UnicodeError) or "encoded" in text or "unicode" in text.lower():
            step = self._advise_on_encoding() if "encoding" in self.form.takes else step
            return ": it contains bytes that are invalid in this encoding", step
        if "Could not set lock" in text or "file handle conflict" in text:
            return ": a program has it open to write to it", "wait until that program closes it"
        if "crypt" in text and self.container in ("parquet", "duckdb"):
            return ": it is encrypted", "decrypt it"
        for words, kind in _KINDS_OF_FAULT.items():
            if words in text:
                return f": {kind}", step
        return "", step

    def _advise_on_encoding(self) -> str:
        """Return the next step of an error about a text that has invalid bytes in its encoding."""
        if self.form.text_encoding == "utf-16":
            return "save the file as UTF-8"
        if self.form.text_encoding == "utf-8" and self._may_be_latin_1():
            step = "write encoding: latin-1 next to the path of the files if they are Latin-1"
            return f"{step}, or correct the file"
        return (
            "correct the file: save it as UTF-8 or, if it is in Windows-1252, as Western European spreadsheets write"
            " it, convert it: iconv -f WINDOWS-1252 -t UTF-8"
        )

    def _may_be_latin_1(self) -> bool:
        """Return whether the text has no byte from 128 to 159, which Latin-1 does not use; False if unreadable."""
        find_unused_byte = re.compile(rb"[\x80-\x9f]").search
        with suppress(OSError, *GZIP_ERRORS), open_bytes(self.source) as text:
            pieces = iter(partial(text.read, _PIECE_BYTES), b"")
            return not any(find_unused_byte(piece) for piece in pieces)
        return False

    def refuse_incomplete(self) -> None:
        """Read a text to its end, and raise OdError if it is cut off in a way that DuckDB does not notice.

        DuckDB drops the text after the last end of a line if that text is larger than DuckDB's buffer of 32 MB.
        DuckDB 1 reads a truncated gzip file as a shorter one.

        Raises OdError if the text contains a NUL character, as in a file with a hole, or in a copy that stopped after
        its space was reserved; or if the last line is longer than any record. Raises one of ``GZIP_ERRORS`` if a gzip
        file is truncated or damaged.
        """
        last_line = 0  # bytes since the last end of a line
        with open_bytes(self.source) as text:
            for piece in iter(partial(text.read, _PIECE_BYTES), b""):
                if has_nul(piece, is_wide=self.form.text_encoding == "utf-16"):
                    raise make_incomplete_file_error(f"{self.named} contains NUL characters")
                position = piece.rfind(b"\n" if b"\n" in piece else b"\r")
                if position < 0:
                    last_line += len(piece)
                else:
                    last_line = len(piece) - position - 1
        if last_line > _MAX_LINE_BYTES:
            raise make_incomplete_file_error(
                f"{self.named} ends with more than {_MAX_LINE_BYTES:,} bytes without an end of a line"
            )

    def refuse_other_kinds(self) -> None:
        """Raise OdError if the first bytes show that the file has another kind or encoding than its format.

        A file in UTF-16 must have a byte order mark, because DuckDB would find no records in big-endian text and report
        no error. Raises OdError, too, if an option of the format does not apply to the file; OSError if it cannot be
        read; and one of ``GZIP_ERRORS`` if a gzip file is truncated or damaged.
        """
        self.form.refuse_options_of_text(self.source)
        kind = find_file_kind(self.source)
        kind_of_text = _GZIP if is_compressed(self.source) else None
        kinds = {"parquet": PARQUET, "duckdb": _DUCKDB, "json": kind_of_text or _JSON}
        expected = kinds.get(self.container, kind_of_text)
        if kind != expected:
            if kind is None:
                message, step = f"is not {expected}", "correct its name, or the reader in the declaration"
            else:
                message, step = f"is {kind}", advise_on_file_kind(kind)
            if self.form.container != "named" and kind in (None, PARQUET, _DUCKDB, _ZIP, WORKBOOK):
                step = "use the file as it is published, or reader: table"
            raise self.make_file_error("OD-FILE-UNREADABLE", message, next_step=step)
        if self.container in ("csv", "lines", "json"):
            self._refuse_other_encoding()

    def _refuse_other_encoding(self) -> None:
        """Raise OdError if a text has the byte order mark of another encoding, or is UTF-16 and has none."""
        with open_bytes(self.source) as text:
            first_bytes = text.read(3)
        marked = next((encoding for mark, encoding in _TEXT_MARKS.items() if first_bytes.startswith(mark)), None)
        encoding = self.form.text_encoding
        if marked == encoding or (marked is None and encoding != "utf-16"):
            return
        message = "does not begin with the byte order mark of little-endian UTF-16"
        if marked is not None:
            message = f"has the byte order mark of {marked.upper()}"
        step = "save the file as UTF-8"
        if marked in ("utf-8", "utf-16") and "encoding" in self.form.takes:
            step = f"write encoding: {marked} next to the path of the files"
        raise self.make_file_error(
            "OD-FILE-UNREADABLE", f"{message}, but is read as {encoding.upper()}", next_step=step
        )

    def read_header(self) -> list[str]:
        """Return the names of the columns as a CSV or Parquet file states them; empty for other files.

        DuckDB gives other names to columns of Parquet files that have none, or that of another one.
        """
        if self.container == "parquet":
            return list(pq.read_schema(self.source).names)
        if self.container != "csv":
            return []
        lines = self.read_first_lines(self.form.delimiter or ",", 1)
        return lines[0] if lines else []

    def read_first_lines(self, delimiter: str, max_lines: int) -> list[list[str]]:
        """Return the fields of each of the first lines of a CSV file, at most ``max_lines`` lines."""
        opened = gzip.open if is_compressed(self.source) else open
        with opened(self.source, "rt", encoding=_CODECS[self.form.text_encoding], newline="") as file:
            return list(islice(csv.reader(file, delimiter=delimiter), max_lines))

    def make_csv_sql(self) -> str:
        """Return a query for the columns of a CSV file. Raises OdError if it has no header."""
        names = self.read_header()
        if not names:
            has_lines = bool(self.read_first_lines(",", 1))
            fault = "begins with an empty line, and not with its" if has_lines else "is empty and has no"
            raise self.make_file_error("OD-FILE-UNREADABLE", f"{fault} header line")
        return _SQL["csv"](self, make_column_names(names))

    def read_json_rows(self, connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyRelation:
        """Return the fields of the records of a JSON payload, as text. A field that is an object or a list is JSON."""
        kinds = json.dumps(dict.fromkeys(self.form.fields, "VARCHAR"))
        schema = pa.schema([("record", pa.string())])
        reader = pa.RecordBatchReader.from_batches(schema, self._read_json_batches(schema))
        return connection.from_arrow(reader).project(f"unnest(json_transform(record, {quote_literal(kinds)}))")

    def _read_json_batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the records of a payload, each as its JSON, in batches of the schema, which has one column of text."""
        with open_bytes(self.source) as file, io.TextIOWrapper(file, "utf-8") as text:
            records = JsonPayload(text).list_records(str(self.form.list_name))
            while batch := list(islice(records, _RECORDS_AT_ONCE)):
                yield pa.record_batch([pa.array(batch, pa.string())], schema)

    def compute_columns(self, rows: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
        """Return the rows with the columns that the format computes (:attr:`RecordFormat.computed`).

        A computed column replaces the column of the same name. It is not computed if the file has none of the columns
        that its SQL reads.
        """
        computed: dict[str, str] = {}
        for name, sql in self.form.computed:
            template = Template(sql)
            columns_read: dict[str, str] = {}  # SQL of each identifier of the template
            for identifier in template.get_identifiers():
                column = find_column((name if identifier == "column" else identifier,), rows.columns)
                columns_read[identifier] = "NULL" if column is None else quote_identifier(column)
            if any(sql_of_column != "NULL" for sql_of_column in columns_read.values()):
                computed[find_column((name,), rows.columns) or name] = template.substitute(columns_read)
        kept = [quote_identifier(column) for column in rows.columns if column not in computed]
        added = [f"{sql} AS {quote_identifier(column)}" for column, sql in computed.items()]
        return rows.project(", ".join(kept + added)) if added else rows

    def read_parquet_rows(
        self, connection: duckdb.DuckDBPyConnection
    ) -> tuple[duckdb.DuckDBPyRelation, tuple[str, ...]]:
        """Return the rows of a Parquet file, and the names of its columns of type ``UNSTATED_TIME``.

        Physical type INT96 has no annotation, and the old annotations of timestamps do not tell instants from local
        times. DuckDB reads both as local times. If the format states what they are, no column has this type, and
        instants are converted to times with a zone. Source: Apache Parquet, LogicalTypes.md, sections "TIMESTAMP" and
        "Deprecated timestamp ConvertedType".
        """
        with pq.ParquetFile(self.source) as file:
            names = make_column_names(file.schema_arrow.names)
            stored = list(file.schema)
        relation = connection.sql(
            f"FROM {make_parquet_sql(self.source)} AS t({', '.join(map(quote_identifier, names))})"
        )
        without_zone = tuple(column.path for column in stored if column.path in names and _lacks_zone(column))
        if not without_zone or self.form.timestamps is None:
            return relation, without_zone
        if self.form.timestamps == "utc":
            instants = [f"timezone('UTC', {column}) AS {column}" for column in map(quote_identifier, without_zone)]
            relation = relation.project(f"* REPLACE ({', '.join(instants)})")
        return relation, ()

    def read_table_rows(self, connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyRelation:
        """Return the rows of the table or view of a DuckDB file that the format names. A view cannot read other files.

        Columns of text lose their collation, so that text is compared by its bytes, like that of other files and of the
        geography. Raises OdError if the file has no such table or view.
        """
        connection.execute(f"ATTACH {quote_literal(str(self.source))} AS source (TYPE duckdb, READ_ONLY)")
        tables_found = connection.sql(
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_catalog = 'source' ORDER BY ALL"
        ).fetchall()
        tables: dict[str, tuple[str, str]] = {}
        for schema, name in tables_found:
            tables[name if schema == "main" else f"{schema}.{name}"] = (schema, name)
        if self.form.table not in tables:
            tables_named = suggest_known_names(self.form.table, tuple(tables)) if tables else "it has no tables"
            raise self.make_file_error(
                "OD-TRIPS-TABLE", f"has no table {self.form.table!r} ({tables_named})", next_step=CORRECT_FILE_STEP
            )
        schema, name = tables[str(self.form.table)]
        table = connection.sql(f"SELECT * FROM source.{quote_identifier(schema)}.{quote_identifier(name)}")  # noqa: S608  # quoted
        texts = []
        for name, kind in zip(table.columns, table.types, strict=True):
            if kind.id == "varchar":
                column = quote_identifier(name)
                texts.append(f"CAST({column} AS VARCHAR) COLLATE C AS {column}")
        return table.project(f"* REPLACE ({', '.join(texts)})") if texts else table


@dataclass(frozen=True)
class OpenFile(RecordFile):
    """A file of records that is open in DuckDB.

    Attributes:
        relation, connection: rows of the file, and the connection that reads them.
        unstated_times: names of the columns of type ``UNSTATED_TIME``.
    """

    relation: duckdb.DuckDBPyRelation
    connection: duckdb.DuckDBPyConnection
    unstated_times: tuple[str, ...] = ()

    @property
    def snapshot(self) -> str | None:
        """Name of the state of a stored table that is read; None for a file, and if the store keeps no states."""
        return None

    def register_records(self, _columns: RecordColumns, _period: Period) -> None:
        """Register the rows as the relation ``records``, for a query that reads them once.

        A subclass may register only the given columns, and the rows that may be of the period.
        """
        self.connection.register("records", self.relation)

    @property
    def types(self) -> dict[str, str]:
        """DuckDB type of every column by name, without parameters, which could be values of records."""
        kinds = zip(self.relation.columns, self.relation.types, strict=True)
        return {name: UNSTATED_TIME if name in self.unstated_times else str(kind.id).upper() for name, kind in kinds}

    def make_unstated_time_error(self, name: str) -> OdError:
        """Return the OdError for a column of type ``UNSTATED_TIME``, from which dates or hours are needed."""
        return self.make_file_error(
            "OD-TRIPS-DATE",
            f"column {name!r} holds Parquet timestamps that do not state whether they are instants or local times",
            next_step="write timestamps: utc (instants, as Spark writes them) or timestamps: local (local times, as"
            " Impala does) next to the path of the files",
        )

    def make_missing_column_error(self, name: ColumnName, expected: Sequence[ColumnName]) -> OdError:
        """Return the OdError for a column that the file lacks, or has twice (:meth:`find_repeated_column_error`).

        The message lists the columns of the file. If the file is CSV and has none of the expected columns, the message
        does not list them: the header may be missing, and the names may be values of the first record.
        """
        columns = self.relation.columns
        repeated = self.find_repeated_column_error(name)
        if repeated is not None:
            return repeated
        if self.container == "csv" and not _has_any(expected, columns):
            return self._make_missing_header_error(name, expected)
        near = suggest_similar_name(name, tuple(columns)) if isinstance(name, str) else ""
        message = f"has no column {quote_column_name(name)}{near}; it has {format_column_names(columns)}"
        step = CORRECT_FILE_STEP
        folders = [part.partition("=")[0] for part in self.source.parts[:-1] if "=" in part]
        if find_column(name, folders) is not None:
            message += "; only the name of a folder holds it, and names of folders are no columns"
            step = "write the column into the files (in DuckDB: WRITE_PARTITION_COLUMNS)"
        return self.make_file_error("OD-TRIPS-COLUMN", message, next_step=step)

    def _make_missing_header_error(self, name: ColumnName, expected: Sequence[ColumnName]) -> OdError:
        """Return the OdError for a column of a CSV file whose first line names none of the expected columns.

        If an early line names one of them, perhaps with another delimiter, the message says which line and delimiter.
        """
        message = f"has no column {quote_column_name(name)}: its first line contains none of the expected columns"
        own_delimiter = self.form.delimiter or ","
        first_line = own_delimiter.join(self.read_first_lines(own_delimiter, 1)[0])
        if EXCEL_DELIMITER_LINE.fullmatch(first_line):
            message = (
                f"has no column {quote_column_name(name)}: its first line is {first_line!r}, which is for Excel alone"
            )
        line, delimiter = self._find_header(expected, own_delimiter)
        steps = []
        if line > 1:
            message += f", but line {line} contains them"
            steps.append(f"remove what is above line {line}")
        if delimiter != own_delimiter:
            message += f"{' if' if line > 1 else ', but it does if'} {delimiter!r} separates the fields"
            where = "next to the path of the files" if "delimiter" in self.form.takes else "with reader: table"
            steps.append(f"write delimiter: {json.dumps(delimiter)} {where}")  # JSON is valid YAML, also for a tab
        add_header = "add a header line with the column names, or correct the columns named in the configuration"
        step = ", and ".join(steps) or add_header
        detail = f"first line: {self.read_header()!r}"
        return self.make_file_error("OD-TRIPS-COLUMN", message, next_step=step, detail=detail)

    def _find_header(self, expected: Sequence[ColumnName], own_delimiter: str) -> tuple[int, str]:
        """Return the line number, from 1, and the delimiter of the first line that names an expected column.

        Without such a line among the first ``_MAX_TITLE_LINES``, return 1 and ``own_delimiter``.
        """
        delimiters = (own_delimiter, *",;\t|:")
        lines_by_delimiter = {delimiter: self.read_first_lines(delimiter, _MAX_TITLE_LINES) for delimiter in delimiters}
        for position in range(_MAX_TITLE_LINES):
            for delimiter, lines in lines_by_delimiter.items():
                if position < len(lines) and _has_any(expected, lines[position]):
                    return position + 1, delimiter
        return 1, own_delimiter

    def find_repeated_column_error(self, name: ColumnName) -> OdError | None:
        """Return the OdError for a column whose name two columns of the file have; None if it occurs at most once."""
        alternatives = {alternative.lower() for alternative in ((name,) if isinstance(name, str) else name)}
        header = enumerate(self.read_header(), start=1)
        numbers = [str(number) for number, column in header if column.lower() in alternatives]
        if len(numbers) < 2:
            return None
        named = f"{quote_column_name(name)} names its columns {' and '.join(numbers)}"
        fault = f"has a column more than once (case is ignored): {named}"
        return self.make_file_error(
            "OD-FILE-UNREADABLE", fault, next_step="give each column that is used a name of its own"
        )


def _has_any(expected: Sequence[ColumnName], columns: Sequence[str]) -> bool:
    """Return whether one of the expected columns is among the columns of a file."""
    return any(find_column(name, columns) is not None for name in expected)


@contextmanager
def open_record_file(
    source: Path, form: RecordFormat, folder: Path | None = None, *, whole: bool = False
) -> Iterator[OpenFile]:
    """Open a file of records while this context lasts, in a database that can read no other file.

    DuckDB's temporary files are in ``folder``, or in a new one. ``whole`` states whether to check that the file is
    complete, which reads a text to its end. A reading error in the context becomes an OdError without a cause or a
    context, because its text may quote a record. Such an error may occur after rows were read.

    Raises OdError if the file is of another kind, or of a table whose log is not read; it is incomplete; it has no
    header, or a column twice; the DuckDB file lacks the table; the file cannot be read; or memory or disk space does
    not suffice.
    """
    refuse_table_log(source)
    file = RecordFile(source, form)
    log = source.with_name(f"{source.name}.wal")  # which a database file may have
    try:
        with (
            nullcontext(folder) if folder else TemporaryDirectory() as scratch,
            open_scratch_database(Path(scratch), source, log) as connection,
        ):
            file.refuse_other_kinds()
            if whole and file.container in ("csv", "lines"):
                file.refuse_incomplete()
            unstated: tuple[str, ...] = ()
            match file.container:
                case "parquet":
                    relation, unstated = file.read_parquet_rows(connection)
                case "duckdb":
                    relation = file.read_table_rows(connection)
                case "lines":
                    relation = connection.sql(_SQL["lines"](file))
                case "json":
                    relation = file.read_json_rows(connection)
                case _:
                    relation = connection.sql(file.make_csv_sql())
            yield OpenFile(source, form, file.compute_columns(relation), connection, unstated)
    except list_reading_errors() as error:
        raise_without_context(file.make_unreadable_file_error(error))


def _lacks_zone(column: pq.ColumnSchema) -> bool:
    """Return whether a Parquet column holds timestamps that do not state whether they are instants or local times."""
    kind: dict[str, object] = json.loads(column.logical_type.to_json())
    return column.physical_type == "INT96" or (kind["Type"] == "Timestamp" and bool(kind["is_from_converted_type"]))


def read_column_types(source: Path, form: RecordFormat) -> dict[str, str]:
    """Return the DuckDB type of every column by name. Raises OdError if the file cannot be opened in its format.

    Treat the names as confidential if the file is CSV. If its header is missing, the names are the values of the first
    record. They are safe to show once one of them matches an expected column name.
    """
    with open_record_file(source, form) as file:
        return file.types


_FIRST_ROWS = 1000  # number of rows with which the first line is compared


def is_header(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> bool:
    """Return whether the first line of a file is certainly a header, judging by the next rows; None is an empty field.

    It is a header if each of its fields begins with a letter and is no value of the next rows, and if in one column
    every row has a digit, but the first line has none. Only a first record that is written unlike all others would pass
    as a header. Not every header passes.

    >>> is_header(["date", "origin"], [["2001-01-03", "Z00"]])
    True
    >>> is_header(["Rome", "Z01"], [["Rome", "Z02"]]), is_header(["from", "to"], [["Rome", "Milan"]])
    (False, False)
    """
    if not rows:
        return False
    columns = [[row[position] or "" for row in rows] for position in range(len(names))]
    values = set().union(*columns)
    if not all(re.match(r"[^\W\d]", name) and name not in values for name in names):
        return False
    find_digit = re.compile(r"\d").search
    for name, column in zip(names, columns, strict=True):
        if not find_digit(name) and all(map(find_digit, column)):
            return True
    return False


def has_header(source: Path, form: RecordFormat) -> bool:
    """Return whether the first line of a CSV file is certainly a header. Raises OdError if it cannot be read."""
    with open_record_file(source, form) as file:
        rows = file.relation.limit(_FIRST_ROWS).project("CAST(COLUMNS(*) AS VARCHAR)")
        return is_header(file.relation.columns, rows.fetchall())
