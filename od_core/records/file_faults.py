"""Define the errors for faulty files of records, shared by all readers. No message quotes a record."""

from __future__ import annotations

import csv
import gzip
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

from od_core.errors import InputError, OdError
from od_core.records.format import RecordColumns, RecordFormat, shown

CORRECT = "correct the file of records, or the columns named in the configuration"

GZIP_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error)
"""Exceptions that a truncated or damaged gzip file raises."""


def reading_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that an unreadable file raises. Their messages may quote the file."""
    import duckdb  # takes a third of a second, and a release in memory rarely needs it

    return (duckdb.Error, UnicodeError, csv.Error, *GZIP_ERRORS)


def file_fault(
    source: Path,
    form: RecordFormat,
    code: str,
    message: str,
    *,
    next_step: str = CORRECT,
    detail: str | None = None,
) -> OdError:
    """Return an OdError about a file. Its message begins with the names of the file and the reader.

    Args:
        source: the file.
        form: format of the records, which has the name of the reader.
        code, next_step: as in :class:`OdError`.
        message: rest of the sentence about the file, such as "is empty".
        detail: confidential detail.
    """
    named = f"{source.name} (reader {form.name!r}) {message}"
    return OdError(code, named, next_step=next_step, confidential_detail=detail)


def in_records(error: OdError, file: str, columns: RecordColumns) -> OdError:
    """Return a copy of an error of counting that names the file of the records and its own columns.

    Loaded records have columns of fixed names, but the user knows only those of the file. An error that does not
    concern the records, such as one of the counters of users, is returned as it is.

    Args:
        error: error of counting loaded records.
        file: name of the file.
        columns: names of the columns in the file.
    """
    if not isinstance(error, InputError) and error.code != "OD-SPARK-FAILED":  # Spark may not find the records
        return error
    message = error.message
    if columns.trips is not None:
        message = message.replace("column 'trips'", f"column {shown(columns.trips)}")
    if error.code == "OD-TRIPS-FAULTS":
        message += f"; the columns are {', '.join(map(shown, columns.names))}"
    return error.changed(message=f"{file}: {message}")


def unreadable(source: Path, form: RecordFormat, error: Exception) -> OdError:
    """Return the OdError for a file that cannot be read. The text of ``error`` becomes the confidential detail."""
    said = str(error)
    what = {"parquet": "Parquet", "duckdb": "a DuckDB file", "lines": f"lines of {len(form.fields)} fields"}
    message = f"cannot be read as {what.get(form.container_of(source), f'CSV in {form.text_encoding.upper()}')}"
    next_step = "correct the file of records"
    if isinstance(error, GZIP_ERRORS) or "GZIP" in said:
        message += ": it is truncated or damaged"
        next_step = "download the file again"
    elif isinstance(error, UnicodeError) or "encoded" in said or "unicode" in said.lower():
        message += ": it contains bytes that are invalid in this encoding"
        if "encoding" in form.takes and form.encoding is None:
            next_step = "write encoding: latin-1 next to the path of the files if they are Latin-1, or correct the file"
    return file_fault(source, form, "OD-FILE-UNREADABLE", message, next_step=next_step, detail=said)


# First bytes of kinds of files, which serve only to refuse a file of the wrong kind. The declaration or the name
# decides how a file is read, because otherwise one record could change how others are read.


_PARQUET, _DUCKDB, _GZIP, _ZIP = "a Parquet file", "a DuckDB file", "compressed with gzip", "a zip archive"
WORKBOOK = "an Excel workbook"
_MARKS = {b"PAR1": _PARQUET, b"\x1f\x8b": _GZIP, b"PK\3\4": _ZIP, b"\xd0\xcf\x11\xe0": WORKBOOK}
_TEXT_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "big-endian utf-16", b"\xef\xbb\xbf": "utf-8"}

WHAT_TO_DO = {
    _PARQUET: "give it a name that ends in .parquet",
    _DUCKDB: "write table: and the name of its table next to the path of the files",
    _GZIP: "give it a name that ends in .gz",
    WORKBOOK: "save its sheet as CSV UTF-8, with codes that keep their leading zeros",
}


def kind_of(source: Path) -> str | None:
    """Return the kind of a file, such as ``an Excel workbook``, by its first bytes; None if they are of no kind.

    Raises:
        OSError: the file cannot be read.
    """
    with source.open("rb") as file:
        first = file.read(16)
    if first[8:12] == b"DUCK":
        return _DUCKDB
    found = next((what for mark, what in _MARKS.items() if first.startswith(mark)), None)
    if found == _ZIP:
        with suppress(zipfile.BadZipFile), zipfile.ZipFile(source) as archive:
            return WORKBOOK if any(name.startswith("xl/workbook.") for name in archive.namelist()) else _ZIP
    return found


def is_compressed(source: Path) -> bool:
    """Return whether a file is compressed by gzip, judged by its name."""
    return source.suffix == ".gz"


def open_bytes(source: Path) -> IO[bytes]:
    """Open a file for reading bytes. If its name ends in .gz, the bytes are decompressed."""
    return cast("IO[bytes]", gzip.open(source)) if is_compressed(source) else source.open("rb")


def refuse_truncated(source: Path) -> None:
    """Read a file that is compressed by gzip to its end, because DuckDB 1 reads a truncated file as a shorter one.

    Raises:
        GZIP_ERRORS: the file is truncated or damaged.
    """
    import duckdb

    if not (is_compressed(source) and duckdb.__version__.startswith("1.")):
        return
    with open_bytes(source) as file:
        while file.read(1 << 20):
            pass


def refuse_other_kinds(source: Path, form: RecordFormat) -> None:
    """Check by the first bytes that a file has the kind and the encoding of its format.

    Raises:
        OdError: the kind or the encoding differs, the file cannot be opened, or its format has an option that does not
            apply to the file.
        GZIP_ERRORS: the file is compressed and damaged.
    """
    form.refuse_options_of_text(source)
    try:
        found = kind_of(source)
    except OSError as error:
        raise unreadable(source, form, error) from None
    container = form.container_of(source)
    wanted = {"parquet": _PARQUET, "duckdb": _DUCKDB}.get(container, _GZIP if is_compressed(source) else None)
    if found != wanted:
        raise _other_kind(source, form, found, wanted)
    if container in ("csv", "lines"):
        with open_bytes(source) as text:
            _refuse_other_encoding(source, form, text.read(3))


def _other_kind(source: Path, form: RecordFormat, found: str | None, wanted: str | None) -> OdError:
    message = f"is not {wanted}" if found is None else f"is {found}"
    next_step = WHAT_TO_DO.get(
        str(found), "correct its name, or the reader in the declaration" if found is None else "unpack it"
    )
    if form.container != "named" and found != _GZIP:
        next_step = "use the file as it is published, or reader: table"
    return file_fault(source, form, "OD-FILE-UNREADABLE", message, next_step=next_step)


def _refuse_other_encoding(source: Path, form: RecordFormat, first: bytes) -> None:
    """Raise OdError if the byte order mark of a text belongs to another encoding than that of its format.

    A file in UTF-16 must have a byte order mark, because DuckDB would find no records in big-endian text and report no
    error.

    Args:
        source, form: as for :func:`file_fault`.
        first: first bytes of the text.
    """
    mark = next((what for mark, what in _TEXT_MARKS.items() if first.startswith(mark)), None)
    wanted = form.text_encoding
    if mark == wanted or (mark is None and wanted != "utf-16"):
        return
    found = (
        "does not begin with the byte order mark of little-endian UTF-16"
        if mark is None
        else f"has the byte order mark of {mark.upper()}"
    )
    next_step = "save the file as UTF-8"
    if mark in ("utf-8", "utf-16") and "encoding" in form.takes:
        next_step = f"write encoding: {mark} next to the path of the files"
    message = f"{found}, but is read as {wanted.upper()}"
    raise file_fault(source, form, "OD-FILE-UNREADABLE", message, next_step=next_step)
