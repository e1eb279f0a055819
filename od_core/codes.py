"""Public codes of areas, groups and places: plain text that no spreadsheet runs and no reader mistakes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pandas as pd

from od_core.errors import OdError

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
                f"column {name!r} holds {value!r}, which is not text;"
                " codes read as numbers lose their leading zeros: read the column as text",
            )
        if not value.strip():
            raise _fault("OD-GEOGRAPHY-BLANK-CODE", f"column {name!r} has a blank code")
        if value != value.strip():
            raise _fault("OD-GEOGRAPHY-PADDED-CODE", f"column {name!r}: code {value!r} has spaces around it")
        if len(value) > MAX_CODE_LENGTH:
            raise _fault(
                "OD-GEOGRAPHY-LONG-CODE",
                f"column {name!r}: the code that begins with {value[:20]!r} has {len(value)} characters,"
                f" more than {MAX_CODE_LENGTH}",
            )
        if _FORMULA.search(value) or not value.isprintable():
            raise _fault(
                "OD-GEOGRAPHY-FORMULA",
                f"column {name!r}: code {value!r} could run as a formula in a spreadsheet, or cannot be printed",
            )


def check_case(codes: Sequence[str], name: str) -> None:
    """No two codes differ in case alone. Raises OdError."""
    seen: dict[str, str] = {}
    for code in codes:
        other = seen.setdefault(code.casefold(), code)
        if other != code:
            raise _fault("OD-GEOGRAPHY-CASE", f"column {name!r}: codes {other!r} and {code!r} differ in case alone")


def _fault(code: str, message: str) -> OdError:
    return OdError(code, message, next_step="correct the public geography")
