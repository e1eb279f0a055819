"""Confidential: find out whether the first line of a text file is certainly a header, and not a record."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from od_core.records.format import RecordFormat
from od_core.records.open_file import opened

_FIRST_ROWS = 1000
"""Number of rows with which the first line is compared."""

_NAME = re.compile(r"[^\W\d].*", re.DOTALL)
"""Pattern of a name of a column: it begins with a letter or an underscore."""

_DIGIT = re.compile(r"\d")


def is_header(first: Sequence[str], rows: Sequence[Sequence[str | None]]) -> bool:
    """Return whether the first line of a file is certainly a header, judging by the rows that follow it.

    It is one if each of its fields begins with a letter and is no value of these rows, and if in one column every row
    has a digit, but the first line has none. A first record would have to be written unlike all others to pass. Not
    every header passes.

    Args:
        first: fields of the first line.
        rows: fields of the next rows; None for an empty one.

    >>> is_header(["date", "origin"], [["2001-01-03", "Z00"]])
    True
    >>> is_header(["Rome", "Z01"], [["Rome", "Z02"]]), is_header(["from", "to"], [["Rome", "Milan"]])
    (False, False)
    """
    values = [[row[place] or "" for row in rows] for place in range(len(first))]
    seen = set().union(*values)
    if not rows or not all(_NAME.fullmatch(name) and name not in seen for name in first):
        return False
    return any(
        not _DIGIT.search(name) and all(map(_DIGIT.search, column)) for name, column in zip(first, values, strict=True)
    )


def has_header(source: Path, form: RecordFormat) -> bool:
    """Return whether the first line of a CSV file of records is certainly a header, and not a record.

    Raises:
        OdError: the file cannot be read.
    """
    with opened(source, form) as file:
        return is_header(file.relation.columns, file.relation.limit(_FIRST_ROWS).fetchall())
