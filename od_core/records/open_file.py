"""Open record files, and say what is wrong with them."""

from __future__ import annotations

import csv
import glob
import gzip
import json
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, TypeVar, cast

import numpy as np
import pyarrow.parquet as pq
import yaml

from od_core.errors import InputError, OdError, raise_alone, suggest_known_names, suggest_similar_name
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
from od_core.records.faults import list_reading_errors
from od_core.records.formats import (
    ColumnName,
    RecordColumns,
    RecordFormat,
    find_column,
    make_column_names,
    quote_column_name,
)

if TYPE_CHECKING:
    import duckdb


T = TypeVar("T")

CORRECT = "correct the file of records, or the columns named in the configuration"

GZIP_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error)
"""Exceptions that a truncated or damaged gzip file raises."""

_LONGEST_LINE = 2_000_000  # bytes: DuckDB's limit, which is far above any record

_PIECE = 1 << 20

_MOST_TITLE_LINES = 50

FOR_EXCEL = re.compile("(?i)sep=.?")
"""First line of a CSV file that tells Excel the delimiter, which no other program reads."""


def add_file_to_error(error: OdError, file: str, columns: RecordColumns) -> OdError:
    """Return a copy of an error of counting that names the file of the records and its own columns.

    Loaded records have columns of fixed names, but the user knows only those of the file. An error that does not
    concern the records, such as one of the counters of users, is returned as it is.
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
_GZIP, _ZIP = "compressed with gzip", "a zip archive"

_TEXT_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "big-endian utf-16", b"\xef\xbb\xbf": "utf-8"}


def refuse_table_log(path: Path, *inner: Path) -> None:
    """Raise OdError if a file or folder is in a table whose log says which of its files and rows are valid.

    The path is taken as it is given, and as its links lead. ``inner`` are folders from which files are read, too.
    """
    ends = [Path(to(place)) for place in (path, *inner) for to in (os.path.abspath, os.path.realpath)]
    folders = {folder for end in ends for folder in (end, *end.parents)}

    def finds(folder: Path, logs: Sequence[str]) -> bool:
        return os.path.isdir(folder) and any(_has(folder, log) for log in logs)  # noqa: PTH112  # it raises nothing

    refuse_logs(path.name, folders, finds)


def _has(folder: Path, log: str) -> bool:
    """Return whether a folder has a file of a pattern. Its list, if it tells, is read once until it changes."""
    if glob.has_magic(log.partition("/")[0]):
        return _has_match(folder, log, *read_file_state(folder))
    return any(glob.iglob(log, root_dir=folder))  # noqa: PTH207  # it takes half the time


@lru_cache(maxsize=4096)
def _has_match(folder: Path, log: str, *_state: int) -> bool:
    return any(glob.iglob(log, root_dir=folder))  # noqa: PTH207


def refuse_logs(named: str, folders: Iterable[T], finds: Callable[[T, Sequence[str]], bool]) -> None:
    """Raise OdError if ``finds`` finds a file of one of some patterns, those of a table's log, in a folder."""
    for folder in folders:
        for table, logs in _TABLE_LOGS.items():
            if finds(folder, logs):
                message = f"{named} is in a table of {table}, whose log is not read: some files or rows may be invalid"
                step = "let the asset, or an export, write plain Parquet files outside that table, and name these"
                raise OdError("OD-FILE-INCOMPLETE", message, next_step=step)


def advise_on_file_kind(kind: str) -> str:
    """Return the next step for a file of a kind that is not read."""
    is_packed = kind.startswith("compressed") or "archive" in kind
    usual = "unpack it" if is_packed else "save its table as Parquet or as CSV, with codes as text"
    return str(_KINDS[kind].get("step", usual))


def find_file_kind(source: Path) -> str | None:
    """Return the kind of a file, such as ``an Excel workbook``, by its first bytes; None if they are of no kind.

    Raises OSError if the file cannot be read.
    """
    with source.open("rb") as file:
        first = file.read(64)
    container = next(
        (kind for kind, facts in _KINDS.items() if re.match(facts["marks"].encode(), first, re.DOTALL)), None
    )
    if container == _ZIP:
        with suppress(zipfile.BadZipFile), zipfile.ZipFile(source) as archive:
            return WORKBOOK if any(name.startswith("xl/workbook.") for name in archive.namelist()) else _ZIP
    return container


def is_compressed(source: Path) -> bool:
    """Return whether a file is compressed by gzip, judged by its name."""
    return source.suffix == ".gz"


def open_bytes(source: Path) -> IO[bytes]:
    """Open a file for reading bytes. If its name ends in .gz, the bytes are decompressed."""
    return cast("IO[bytes]", gzip.open(source)) if is_compressed(source) else source.open("rb")


def has_nul(text: bytes, *, is_wide: bool = False) -> bool:
    """Return whether a text has a NUL character; ``is_wide`` says whether it is in UTF-16."""
    return not np.frombuffer(text, "<u2", len(text) // 2).all() if is_wide else b"\0" in text


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
        if (absent := find_file_fault(self.source)) is not None:
            step = "leave the file in its place until it is read, or correct the rights to read it"
            return OdError("OD-FILE-MISSING", absent, next_step=step, confidential_detail=str(error))
        if (other := make_machine_error(error, f"{self.source.name} cannot be read")) is not None:
            return other
        fields = f"lines of {len(self.form.fields)} fields"
        texts = {"parquet": "Parquet", "duckdb": "a DuckDB file", "lines": fields}
        message = f"cannot be read as {texts.get(self.container, f'CSV in {self.form.text_encoding.upper()}')}"
        reason, step = self._find_reason_and_step(error)
        return self.make_file_error("OD-FILE-UNREADABLE", message + reason, next_step=step, detail=str(error))

    def _find_reason_and_step(self, error: Exception) -> tuple[str, str]:
        """Return why the file cannot be read, as the end of a message, blank if unknown; and the next step."""
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
        known = _KINDS_OF_FAULT.items() if self.container in ("csv", "lines") else ()
        return next((f": {kind}" for words, kind in known if words in text), ""), step

    def _advise_on_encoding(self) -> str:
        """Return the next step for a text that is invalid in its encoding. Latin-1 has no characters 128 to 159."""
        if self.form.text_encoding == "utf-16":
            return "save the file as UTF-8"
        if self.form.text_encoding == "utf-8":
            not_latin_1 = re.compile(rb"[\x80-\x9f]").search
            with suppress(OSError, *GZIP_ERRORS), open_bytes(self.source) as text:
                if not any(map(not_latin_1, iter(partial(text.read, _PIECE), b""))):
                    step = "write encoding: latin-1 next to the path of the files if they are Latin-1"
                    return f"{step}, or correct the file"
        return (
            "correct the file: save it as UTF-8 or, if it is in Windows-1252, as Western European spreadsheets write"
            " it, convert it: iconv -f WINDOWS-1252 -t UTF-8"
        )

    def refuse_incomplete(self) -> None:
        """Read a text to its end, and check that nothing is missing that DuckDB would not miss.

        DuckDB drops what stands after the last end of a line once it is larger than its buffer of 32 MB, and version 1
        reads a truncated gzip file as a shorter one.

        Raises OdError if the text contains a NUL character, as does a copy that stopped after its space was reserved,
        or a file with a hole; or if the last line is longer than any record. Raises ``GZIP_ERRORS``.
        """
        since_end = 0  # bytes since the last end of a line
        with open_bytes(self.source) as text:
            for piece in iter(partial(text.read, _PIECE), b""):
                if has_nul(piece, is_wide=self.form.text_encoding == "utf-16"):
                    raise make_incomplete_file_error(f"{self.named} contains NUL characters")
                last = piece.rfind(b"\n" if b"\n" in piece else b"\r")
                since_end = since_end + len(piece) if last < 0 else len(piece) - last - 1
        if since_end > _LONGEST_LINE:
            raise make_incomplete_file_error(
                f"{self.named} ends with more than {_LONGEST_LINE:,} bytes without an end of a line"
            )

    def refuse_other_kinds(self) -> None:
        """Check by the first bytes that the file has the kind and the encoding of its format.

        A file in UTF-16 must have a byte order mark, because DuckDB would find no records in big-endian text and report
        no error. Raises OdError, also if an option of the format does not apply to the file; OSError if it cannot be
        read; and ``GZIP_ERRORS``.
        """
        self.form.refuse_options_of_text(self.source)
        container, usual = find_file_kind(self.source), _GZIP if is_compressed(self.source) else None
        expected = {"parquet": PARQUET, "duckdb": _DUCKDB}.get(self.container, usual)
        if container != expected:
            message = f"is not {expected}" if container is None else f"is {container}"
            step = (
                "correct its name, or the reader in the declaration"
                if container is None
                else advise_on_file_kind(container)
            )
            if self.form.container != "named" and container in (None, PARQUET, _DUCKDB, _ZIP, WORKBOOK):
                step = "use the file as it is published, or reader: table"
            raise self.make_file_error("OD-FILE-UNREADABLE", message, next_step=step)
        if self.container in ("csv", "lines"):
            self._refuse_other_encoding()

    def _refuse_other_encoding(self) -> None:
        """Check the byte order mark of a text; see :meth:`refuse_other_kinds`."""
        with open_bytes(self.source) as text:
            first = text.read(3)
        mark = next((meaning for mark, meaning in _TEXT_MARKS.items() if first.startswith(mark)), None)
        encoding = self.form.text_encoding
        if mark == encoding or (mark is None and encoding != "utf-16"):
            return
        message = "does not begin with the byte order mark of little-endian UTF-16"
        if mark is not None:
            message = f"has the byte order mark of {mark.upper()}"
        step = "save the file as UTF-8"
        if mark in ("utf-8", "utf-16") and "encoding" in self.form.takes:
            step = f"write encoding: {mark} next to the path of the files"
        raise self.make_file_error(
            "OD-FILE-UNREADABLE", f"{message}, but is read as {encoding.upper()}", next_step=step
        )

    def read_header(self) -> list[str]:
        """Return the names of the columns as a CSV or Parquet file states them; empty for other files.

        DuckDB gives other names to columns of Parquet files that have none, or that of another one.
        """
        if self.container == "parquet":
            return list(pq.read_schema(self.source).names)
        return [*chain(*self.read_first_lines(self.form.delimiter or ",", 1))] if self.container == "csv" else []

    def read_first_lines(self, delimiter: str, most: int) -> list[list[str]]:
        """Return the fields of the first lines of a CSV file, at most ``most`` lines."""
        opened = gzip.open if is_compressed(self.source) else open
        with opened(self.source, "rt", encoding=_CODECS[self.form.text_encoding], newline="") as file:
            return list(islice(csv.reader(file, delimiter=delimiter), most))

    def make_csv_sql(self) -> str:
        """Return a query for the columns of a CSV file. Raises OdError if it has no header."""
        names = self.read_header()
        if not names:
            fault = (
                "begins with an empty line, and not with its"
                if self.read_first_lines(",", 1)
                else "is empty and has no"
            )
            raise self.make_file_error("OD-FILE-UNREADABLE", f"{fault} header line")
        return _SQL["csv"](self, make_column_names(names))

    def read_parquet_rows(
        self, connection: duckdb.DuckDBPyConnection
    ) -> tuple[duckdb.DuckDBPyRelation, tuple[str, ...]]:
        """Return the rows of a Parquet file, and its columns of times for which neither file nor format states a zone.

        Physical type INT96 has no annotation, and the old annotations of timestamps do not tell instants from local
        times. DuckDB reads both as local times. Source: Apache Parquet, LogicalTypes.md, sections "TIMESTAMP" and
        "Deprecated timestamp ConvertedType".
        """
        with pq.ParquetFile(self.source) as file:
            names, stored = make_column_names(file.schema_arrow.names), list(file.schema)
        relation = connection.sql(
            f"FROM {make_parquet_sql(self.source)} AS t({', '.join(map(quote_identifier, names))})"
        )
        without_zone = tuple(column.path for column in stored if column.path in names and _lacks_zone(column))
        if not without_zone or self.form.timestamps is None:
            return relation, without_zone
        if self.form.timestamps == "utc":
            instants = (
                f"timezone('UTC', {quote_identifier(name)}) AS {quote_identifier(name)}" for name in without_zone
            )
            relation = relation.project(f"* REPLACE ({', '.join(instants)})")
        return relation, ()

    def read_table_rows(self, connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyRelation:
        """Return the table or view of a DuckDB file that the format names. A view cannot read another file.

        Text has no collation: it is compared by its bytes, as that of other files and of the geography.
        """
        connection.execute(f"ATTACH {quote_literal(str(self.source))} AS source (TYPE duckdb, READ_ONLY)")
        tables_found = connection.sql(
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_catalog = 'source' ORDER BY ALL"
        ).fetchall()
        tables = {name if schema == "main" else f"{schema}.{name}": (schema, name) for schema, name in tables_found}
        if self.form.table not in tables:
            tables_named = suggest_known_names(self.form.table, tuple(tables)) if tables else "it has no tables"
            raise self.make_file_error(
                "OD-TRIPS-TABLE", f"has no table {self.form.table!r} ({tables_named})", next_step=CORRECT
            )
        schema, name = tables[self.form.table]
        table = connection.sql(f"SELECT * FROM source.{quote_identifier(schema)}.{quote_identifier(name)}")  # noqa: S608  # quoted
        of_text = (name for name, kind in zip(table.columns, table.types, strict=True) if kind.id == "varchar")
        texts = ", ".join(f"CAST({name} AS VARCHAR) COLLATE C AS {name}" for name in map(quote_identifier, of_text))
        return table.project(f"* REPLACE ({texts})") if texts else table


@dataclass(frozen=True)
class OpenFile(RecordFile):
    """A file of records that is open in DuckDB.

    Attributes:
        relation, connection: its rows, and the connection that reads them.
        unstated_times: names of the columns of type ``UNSTATED_TIME``.
    """

    relation: duckdb.DuckDBPyRelation
    connection: duckdb.DuckDBPyConnection
    unstated_times: tuple[str, ...] = ()

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
        """Return the OdError for a column that is missing or, as :meth:`find_repeated_column_error` finds, repeated.

        The message lists the columns of the file. If the file is CSV and has none of the expected columns, the message
        does not list them: the header may be missing, and the names may be values of the first record.
        """
        columns = self.relation.columns
        if (repeated := self.find_repeated_column_error(name)) is not None:
            return repeated
        if self.container == "csv" and not _has_any(expected, columns):
            return self._make_missing_header_error(name, expected)
        near = suggest_similar_name(name, tuple(columns)) if isinstance(name, str) else ""
        message, step = f"has no column {quote_column_name(name)}{near}; it has {format_column_names(columns)}", CORRECT
        folders = [part.partition("=")[0] for part in self.source.parts[:-1] if "=" in part]
        if find_column(name, folders) is not None:
            message += "; only the name of a folder holds it, and names of folders are no columns"
            step = "write the column into the files (in DuckDB: WRITE_PARTITION_COLUMNS)"
        return self.make_file_error("OD-TRIPS-COLUMN", message, next_step=step)

    def _make_missing_header_error(self, name: ColumnName, expected: Sequence[ColumnName]) -> OdError:
        """Return the OdError for a column that is missing, as all others are that the first line should name."""
        message = f"has no column {quote_column_name(name)}: its first line contains none of the expected columns"
        own = self.form.delimiter or ","
        lines = {sign: self.read_first_lines(sign, _MOST_TITLE_LINES) for sign in (own, *",;\t|:")}
        places = ((k, sign) for k in range(_MOST_TITLE_LINES) for sign, rows in lines.items() if k < len(rows))
        place, other = next((at for at in places if _has_any(expected, lines[at[1]][at[0]])), (0, own))
        steps = []
        if (for_excel := FOR_EXCEL.fullmatch(own.join(lines[own][0]))) is not None:
            message = (
                f"has no column {quote_column_name(name)}: its first line is {for_excel[0]!r}, which is for Excel alone"
            )
        if place:
            message += f", but line {place + 1} contains them"
            steps.append(f"remove what is above line {place + 1}")
        if other != own:
            message += f"{' if' if place else ', but it does if'} {other!r} separates the fields"
            where = "next to the path of the files" if "delimiter" in self.form.takes else "with reader: table"
            steps.append(f"write delimiter: {json.dumps(other)} {where}")  # JSON is valid YAML, also for a tab
        add = "add a header line with the column names, or correct the columns named in the configuration"
        detail = f"first line: {self.read_header()!r}"
        return self.make_file_error("OD-TRIPS-COLUMN", message, next_step=", and ".join(steps) or add, detail=detail)

    def find_repeated_column_error(self, name: ColumnName) -> OdError | None:
        """Return the OdError for a column whose name two columns of the file have; None if it occurs at most once."""
        requested = {column.lower() for column in ((name,) if isinstance(name, str) else name)}
        places = [str(place) for place, column in enumerate(self.read_header(), start=1) if column.lower() in requested]
        if len(places) < 2:
            return None
        named = f"{quote_column_name(name)} names its columns {' and '.join(places)}"
        fault = f"has a column more than once (case is ignored): {named}"
        return self.make_file_error(
            "OD-FILE-UNREADABLE", fault, next_step="give each column that is used a name of its own"
        )


def _has_any(expected: Sequence[ColumnName], columns: Sequence[str]) -> bool:
    return any(find_column(name, columns) is not None for name in expected)


@contextmanager
def open_record_file(
    source: Path, form: RecordFormat, folder: Path | None = None, *, whole: bool = False
) -> Iterator[OpenFile]:
    """Open a file of records while this context lasts, in a database that can read no other file.

    DuckDB's temporary files are in ``folder``, or in a new one. ``whole`` states whether to check that the file is
    complete, which reads a text to its end. An exception in the context that an unreadable file may cause becomes an
    OdError, without a cause or a context: its text may quote a record. It may be raised after rows were read.

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
                case _:
                    relation = connection.sql(file.make_csv_sql())
            yield OpenFile(source, form, relation, connection, unstated)
    except list_reading_errors() as error:
        raise_alone(file.make_unreadable_file_error(error))


def _lacks_zone(column: pq.ColumnSchema) -> bool:
    """Return whether a Parquet column holds timestamps that do not state whether they are instants or local times."""
    kind: dict[str, object] = json.loads(column.logical_type.to_json())
    return column.physical_type == "INT96" or (kind["Type"] == "Timestamp" and bool(kind["is_from_converted_type"]))


def record_schema(source: Path, form: RecordFormat) -> dict[str, str]:
    """Return the DuckDB type of every column by name. Raises OdError if the file cannot be opened in its format.

    Treat the names as confidential if the file is CSV. If its header is missing, the names are the values of the first
    record. They are safe to show once one of them matches an expected column name.
    """
    with open_record_file(source, form) as file:
        return file.types


_FIRST_ROWS = 1000  # number of rows with which the first line is compared


def is_header(first: Sequence[str], rows: Sequence[Sequence[str | None]]) -> bool:
    """Return whether the first line of a file is certainly a header, judging by the next rows; None is an empty field.

    It is one if each of its fields begins with a letter and is no value of these rows, and if in one column every row
    has a digit, but the first line has none. A first record would have to be written unlike all others to pass. Not
    every header passes.

    >>> is_header(["date", "origin"], [["2001-01-03", "Z00"]])
    True
    >>> is_header(["Rome", "Z01"], [["Rome", "Z02"]]), is_header(["from", "to"], [["Rome", "Milan"]])
    (False, False)
    """
    values = [[row[place] or "" for row in rows] for place in range(len(first))]
    values_of_rows = set().union(*values)
    if not rows or not all(re.match(r"[^\W\d]", name) and name not in values_of_rows for name in first):
        return False
    has_digit = re.compile(r"\d").search
    return any(not has_digit(name) and all(map(has_digit, column)) for name, column in zip(first, values, strict=True))


def has_header(source: Path, form: RecordFormat) -> bool:
    """Return whether the first line of a CSV file is certainly a header. Raises OdError if it cannot be read."""
    with open_record_file(source, form) as file:
        return is_header(file.relation.columns, file.relation.limit(_FIRST_ROWS).fetchall())
