"""What is wrong with a file of records, said alike by every reader; no message holds a value of a record."""

from __future__ import annotations

import csv
import gzip
import zlib
from pathlib import Path

import duckdb

from od_core.errors import OdError
from od_core.readers.record_format import RecordFormat

CORRECT = "correct the file of records, or the columns named in the configuration"

GZIP_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error)
"""What a file in gzip that is cut short or damaged raises."""

READING_ERRORS = (duckdb.Error, UnicodeError, csv.Error, *GZIP_ERRORS)
"""What a file that cannot be read raises; what they say may quote it."""


def file_fault(
    source: Path,
    form: RecordFormat,
    code: str,
    message: str,
    *,
    next_step: str = CORRECT,
    detail: str | None = None,
) -> OdError:
    """An error about a file.

    Args:
        source, form: the file, and how its records should stand in it; both are named.
        code, next_step: see OdError.
        message: goes on after the name of the file: what it has, holds or is.
        detail: confidential.
    """
    named = f"{source.name} (reader {form.name!r}) {message}"
    return OdError(code, named, next_step=next_step, confidential_detail=detail)


def unreadable(source: Path, form: RecordFormat, error: Exception) -> OdError:
    """The error for a file that cannot be read as what it should be."""
    said = str(error)
    what = {"parquet": "Parquet", "duckdb": "a DuckDB file", "lines": f"lines of {len(form.fields)} fields"}
    message = f"cannot be read as {what.get(form.container_of(source), f'CSV in {form.text_encoding.upper()}')}"
    next_step = "correct the file of records"
    if isinstance(error, GZIP_ERRORS) or "GZIP" in said:
        message += ": it is cut short or damaged"
        next_step = "fetch the file anew"
    elif isinstance(error, UnicodeError) or "encoded" in said or "unicode" in said.lower():
        message += ": it holds a sign that this encoding has not"
        if "encoding" in form.takes and form.encoding is None:
            next_step = "write encoding: latin-1 beside the path of the files if they are Latin-1, or correct the file"
    return file_fault(source, form, "OD-FILE-UNREADABLE", message, next_step=next_step, detail=said)
