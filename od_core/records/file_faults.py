"""Define the errors for faulty files of records, shared by all readers. No message quotes a record."""

from __future__ import annotations

import gzip
import re
import zipfile
import zlib
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, cast

import numpy as np

from od_core.errors import InputError, OdError
from od_core.files.duckdb_session import of_machine
from od_core.files.durable import absence
from od_core.records.format import RecordColumns, RecordFormat, shown

CORRECT = "correct the file of records, or the columns named in the configuration"

GZIP_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error)
"""Exceptions that a truncated or damaged gzip file raises."""

_LONGEST_LINE = 2_000_000
"""Largest number of bytes of a line: DuckDB's limit, which is far above any record."""

_PIECE = 1 << 20


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


_KINDS_OF_FAULT = {
    "unterminated quote": "a field begins with a quote that is not closed, or has text after its closing quote",
    "Maximum line size": f"a line is longer than {_LONGEST_LINE:,} bytes",
    "Expected Number of Columns": "a line has more or fewer fields than the header",
    "a line with other fields": "a line has more or fewer fields than a record of this reader",
    "Parallel CSV Reader": "a line or a field is too long, or a quote is not closed",
    "state machine": "lines end in different ways (LF, CR LF or CR), or a quote stands where none may",
}
"""Description of a fault of a text, by the words with which DuckDB names it. They may also occur in a quoted record."""


def unreadable(source: Path, form: RecordFormat, error: Exception) -> OdError:
    """Return the OdError for a file that cannot be read, or for what the machine lacks to read it.

    The text of ``error`` becomes the confidential detail.
    """
    if (absent := absence(source)) is not None:
        step = "leave the file in its place until it is read, or correct the rights to read it"
        return OdError("OD-FILE-MISSING", absent, next_step=step, confidential_detail=str(error))
    if (other := of_machine(error, f"{source.name} cannot be read")) is not None:
        return other
    said = str(error)
    what = {"parquet": "Parquet", "duckdb": "a DuckDB file", "lines": f"lines of {len(form.fields)} fields"}
    message = f"cannot be read as {what.get(form.container_of(source), f'CSV in {form.text_encoding.upper()}')}"
    next_step = "correct the file of records"
    if isinstance(error, GZIP_ERRORS) or "GZIP" in said:
        message += ": it is truncated or damaged"
        next_step = "download the file again"
    elif isinstance(error, UnicodeError) or "encoded" in said or "unicode" in said.lower():
        message += ": it contains bytes that are invalid in this encoding"
        if "encoding" in form.takes:
            next_step = _other_encoding(source, form)
    elif form.container_of(source) in ("csv", "lines"):
        message += next((f": {kind}" for words, kind in _KINDS_OF_FAULT.items() if words in said), "")
    return file_fault(source, form, "OD-FILE-UNREADABLE", message, next_step=next_step, detail=said)


def _other_encoding(source: Path, form: RecordFormat) -> str:
    """Return the next step for a text that is invalid in its encoding. Latin-1 has no characters from 128 to 159."""
    if form.text_encoding == "utf-16":
        return "save the file as UTF-8"
    if form.text_encoding == "utf-8":
        with suppress(OSError, *GZIP_ERRORS), open_bytes(source) as text:
            if not any(map(_NOT_LATIN_1.search, iter(partial(text.read, _PIECE), b""))):
                return "write encoding: latin-1 next to the path of the files if they are Latin-1, or correct the file"
    return (
        "correct the file: save it as UTF-8 or, if it is in Windows-1252, as Western European spreadsheets write it,"
        " convert it: iconv -f WINDOWS-1252 -t UTF-8"
    )


_NOT_LATIN_1 = re.compile(rb"[\x80-\x9f]")


# First bytes of kinds of files, which serve only to refuse a file of the wrong kind. The declaration or the name
# decides how a file is read, because otherwise one record could change how others are read.


PARQUET, _DUCKDB, _GZIP, _ZIP = "a Parquet file", "a DuckDB file", "compressed with gzip", "a zip archive"
WORKBOOK = "an Excel workbook"
_HTML, _POINTER = "a web page (HTML)", "a pointer of Git LFS, without the content of the file"
_MARKS = {
    rb"PAR1": PARQUET,
    rb"\x1f\x8b": _GZIP,
    rb"PK\x03\x04": _ZIP,
    rb"\xd0\xcf\x11\xe0": WORKBOOK,
    rb".{8}DUCK": _DUCKDB,
    rb"\x28\xb5\x2f\xfd": "compressed with Zstandard",
    rb"\xfd7zXZ\0": "compressed with xz",
    rb"BZh[1-9]1AY&SY": "compressed with bzip2",
    rb"\x04\x22\x4d\x18": "compressed with LZ4",
    rb"7z\xbc\xaf\x27\x1c": "a 7-Zip archive",
    rb"SQLite format 3\0": "a database of SQLite",
    rb"ARROW1\0\0": "a Feather (Arrow) file",
    rb"\xff\xff\xff\xff.{3}\0": "a stream of Arrow",
    rb"ORC.{0,12}[\0-\x08]": "an ORC file",
    rb"Obj\x01": "an Avro file",
    rb"\x89HDF\r\n": "an HDF5 file",
    rb"\$FL[23]@": "a file of SPSS",
    rb"%PDF-": "a PDF document",
    rb"[\x03\x83\x8b\xf5].[\x01-\x0c][\x01-\x1f]": "a dBASE file (.dbf)",
    rb"version https://git-lfs\.": _POINTER,
    rb"(?i:\s*<(!doctype html|html|head|body))": _HTML,
    rb"\s*<\?xml": "an XML document",
    rb"""\s*(\[\s*)?[{\[]\s*(["{\[\]}]|\Z)""": "JSON",
}
"""Pattern of the first bytes of each kind."""
_TEXT_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "big-endian utf-16", b"\xef\xbb\xbf": "utf-8"}

WHAT_TO_DO = {
    PARQUET: "give it a name that ends in .parquet",
    _DUCKDB: "write table: and the name of its table next to the path of the files",
    _GZIP: "give it a name that ends in .gz",
    WORKBOOK: "save its sheet as CSV UTF-8, with codes that keep their leading zeros",
    _POINTER: "fetch the content: git lfs pull",
    _HTML: "download the file itself: a server may answer with a page that asks for a login or reports an error",
}
"""What to do with a file of a kind; for other kinds, see :func:`what_to_do`."""


def what_to_do(kind: str) -> str:
    """Return the next step for a file of a kind that is not read."""
    is_packed = kind.startswith("compressed") or "archive" in kind
    return WHAT_TO_DO.get(kind, "unpack it" if is_packed else "save its table as Parquet or as CSV, with codes as text")


def kind_of(source: Path) -> str | None:
    """Return the kind of a file, such as ``an Excel workbook``, by its first bytes; None if they are of no kind.

    Raises:
        OSError: the file cannot be read.
    """
    with source.open("rb") as file:
        first = file.read(64)
    found = next((what for mark, what in _MARKS.items() if re.match(mark, first, re.DOTALL)), None)
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


def refuse_incomplete(source: Path, form: RecordFormat) -> None:
    """Read a text to its end, and check that nothing is missing that DuckDB would not miss.

    DuckDB drops what stands after the last end of a line once it is larger than its buffer of 32 MB, and version 1
    reads a truncated gzip file as a shorter one.

    Raises:
        OdError: the text contains a NUL character, as does a copy that stopped after its space was reserved, or a file
            with a hole; or what stands after the last end of a line is longer than any record.
        GZIP_ERRORS: the file is truncated or damaged.
    """
    if form.container_of(source) not in ("csv", "lines"):
        return
    named, is_wide = f"{source.name} (reader {form.name!r})", form.text_encoding == "utf-16"
    since_end = 0  # bytes since the last end of a line
    with open_bytes(source) as text:
        while piece := text.read(_PIECE):
            if has_nul(piece, is_wide=is_wide):
                raise incomplete(f"{named} contains NUL characters")
            last = piece.rfind(b"\n" if b"\n" in piece else b"\r")
            since_end = since_end + len(piece) if last < 0 else len(piece) - last - 1
    if since_end > _LONGEST_LINE:
        raise incomplete(f"{named} ends with more than {_LONGEST_LINE:,} bytes without an end of a line")


def has_nul(text: bytes, *, is_wide: bool = False) -> bool:
    """Return whether a text has a NUL character; ``is_wide`` says whether it is in UTF-16."""
    return not np.frombuffer(text, "<u2", len(text) // 2).all() if is_wide else b"\0" in text


def incomplete(what: str) -> OdError:
    """Return the OdError for a text whose end is missing; ``what`` begins its message."""
    step = "copy or download it again, and compare its size and checksum; if it is whole, save it as UTF-8"
    return OdError("OD-FILE-INCOMPLETE", f"{what}, so its copy probably stopped part-way", next_step=step)


def refuse_other_kinds(source: Path, form: RecordFormat) -> None:
    """Check by the first bytes that a file has the kind and the encoding of its format.

    Raises:
        OdError: the kind or the encoding differs, or the format has an option that does not apply to the file.
        OSError: the file cannot be read.
        GZIP_ERRORS: the file is compressed and damaged.
    """
    form.refuse_options_of_text(source)
    found = kind_of(source)
    container = form.container_of(source)
    wanted = {"parquet": PARQUET, "duckdb": _DUCKDB}.get(container, _GZIP if is_compressed(source) else None)
    if found != wanted:
        raise _other_kind(source, form, found, wanted)
    if container in ("csv", "lines"):
        with open_bytes(source) as text:
            _refuse_other_encoding(source, form, text.read(3))


def _other_kind(source: Path, form: RecordFormat, found: str | None, wanted: str | None) -> OdError:
    message = f"is not {wanted}" if found is None else f"is {found}"
    next_step = "correct its name, or the reader in the declaration" if found is None else what_to_do(found)
    if form.container != "named" and found in (None, PARQUET, _DUCKDB, _ZIP, WORKBOOK):
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
