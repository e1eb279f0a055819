"""Public codes of areas, groups and places: plain text that no spreadsheet runs and no reader mistakes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.errors import OdError, nearest_known

_FORMULA = re.compile('(^|[,;|"])\\s*[-=+@\uff0d\uff1d\uff0b\uff20]')
"""What a spreadsheet may run: a formula's sign, narrow or wide, where a cell begins; cells end at commas in one country
and at semicolons in another. Codes are published as they are, so such codes are refused: changed in the CSV alone, they
would no longer be the codes of the other files. A signed number is refused with them, though harmless by itself: one
rule is easier to trust than one with exceptions, and records whose code is -1 for "elsewhere" can go to ``unknown``.
"""

MAX_CODE_LENGTH = 250
"""In characters: what is longer is no code, but a field whose end was not found."""


def text_codes(column: pd.Series, name: str) -> list[str]:
    """The codes of a public column, checked one by one. Raises OdError as :func:`check_codes`."""
    codes = list(column.astype(object))
    check_codes(codes, name)
    return codes


def check_codes(codes: Sequence[Any], name: str) -> None:
    """Codes are text, not blank, without spaces around them, and cannot run as a formula. Raises OdError."""
    for value in codes:
        if not isinstance(value, str):
            if pd.isna(value):
                raise _fault("OD-GEOGRAPHY-MISSING-CODE", f"column {name!r} has a row without a code")
            raise _fault(
                "OD-GEOGRAPHY-NOT-TEXT",
                f"column {name!r} holds a code that is not text;"
                " codes read as numbers lose their leading zeros: read the column as text",
                f"code {value!r}",
            )
        if not value.strip():
            raise _fault("OD-GEOGRAPHY-BLANK-CODE", f"column {name!r} has a blank code")
        if value != value.strip():
            message = f"column {name!r} holds a code with spaces around it"
            raise _fault("OD-GEOGRAPHY-PADDED-CODE", message, f"code {value!r}")
        if len(value) > MAX_CODE_LENGTH:
            raise _fault(
                "OD-GEOGRAPHY-LONG-CODE",
                f"column {name!r} holds a code of more than {MAX_CODE_LENGTH} characters",
                f"the code that begins with {value[:20]!r} has {len(value)} characters",
            )
        if _FORMULA.search(value) or not value.isprintable():
            raise _fault(
                "OD-GEOGRAPHY-FORMULA",
                f"column {name!r} holds a code that could run as a formula in a spreadsheet, or cannot be printed",
                f"code {value!r}",
            )


def check_case(codes: Sequence[str], name: str) -> None:
    """No two codes differ in case alone. Raises OdError."""
    seen: dict[str, str] = {}
    for code in codes:
        other = seen.setdefault(code.casefold(), code)
        if other != code:
            message = f"column {name!r} holds codes that differ in case alone"
            raise _fault("OD-GEOGRAPHY-CASE", message, f"codes {other!r} and {code!r}")


def no_column(code: str, table: str, name: str, columns: Sequence[str], expected: Sequence[str]) -> OdError:
    """The error for a column that a public list lacks.

    Its columns are listed only where one of the expected ones is among them: without a header its first line is a row,
    and where the path is that of the records it is a record.

    Args:
        code: of the error.
        table: the list, in words.
        name: of the column.
        columns: that the list has.
        expected: all columns that are looked for.
    """
    if any(one in columns for one in expected):
        return _fault(code, f"{table} has no column {name!r} ({nearest_known(name, tuple(columns))})")
    message = f"{table} has no column {name!r}, nor any other of the columns that are expected"
    return _fault(code, message, f"its columns: {list(columns)!r}")


def _fault(code: str, message: str, detail: str | None = None) -> OdError:
    """A detail quotes the list, which may be the records where its path is wrong; so it is confidential."""
    return OdError(code, message, next_step="correct the public geography", confidential_detail=detail)


# Coordinates of zones, in degrees: for maps alone.


Degrees = NDArray[np.float64]

COORDINATES = ("latitude", "longitude")
"""Names of the columns of coordinates in published tables."""

_MOST_DEGREES = (90, 180)


def degrees(column: pd.Series, name: str) -> Degrees:
    """Degrees of a column of numbers or of text; blanks and missing values are not a number. Raises OdError."""
    try:
        return np.array([math.nan if pd.isna(value) or value == "" else float(value) for value in column])
    except (TypeError, ValueError):
        raise _coordinates_fault(f"column {name!r} has a value that is no number of degrees") from None


def check_coordinates(coordinates: Degrees, zones: tuple[str, ...]) -> None:
    """Degrees of latitude and longitude, both or none of them, for every zone. Raises OdError."""
    if coordinates.shape != (len(zones), 2):
        raise OdError(
            "OD-GEOGRAPHY-SHAPE",
            "there is not one latitude and one longitude for each zone",
            next_step="correct the public geography",
        )
    absent = np.isnan(coordinates).all(axis=1)
    wrong = ~(absent | (np.abs(coordinates) <= _MOST_DEGREES).all(axis=1))
    if wrong.any():
        zone = zones[int(np.flatnonzero(wrong)[0])]
        raise _coordinates_fault("a zone has no such place: its degrees are half or out of range", f"zone {zone!r}")


def _coordinates_fault(message: str, detail: str | None = None) -> OdError:
    next_step = "correct the public geography"
    return OdError("OD-GEOGRAPHY-COORDINATES", message, next_step=next_step, confidential_detail=detail)
