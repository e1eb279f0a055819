"""Define OdError, the error type of the library, and helpers that word its messages."""

from __future__ import annotations

import difflib
import re


class OdError(Exception):
    """An error that says what happened, whether budget was spent, and what to do next.

    The whole text is public: a message names columns, levels, zones of the public geography and budgets,
    never a value of the confidential records. Anything further goes into ``confidential_detail``, which is
    never printed. The pipeline writes it to a file of mode 0600.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        next_step: str,
        spent: str = "nothing was spent",
        confidential_detail: str | None = None,
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = " ".join(message.split())
        self.next_step = " ".join(next_step.split())
        self.spent = spent
        self.confidential_detail = confidential_detail

    def __str__(self) -> str:
        return f"{self.code}: {self.message} [{self.spent}; next: {self.next_step}]"

    def in_file(self, name: str) -> OdError:
        """Return the same error with the name of the file that it was found in."""
        return OdError(
            self.code,
            f"{name}: {self.message}",
            next_step=self.next_step,
            spent=self.spent,
            confidential_detail=self.confidential_detail,
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle only the public parts, so that an error reaches another process without its detail."""
        return (_rebuilt, (self.code, self.message, self.next_step, self.spent))


def _rebuilt(code: str, message: str, next_step: str, spent: str) -> OdError:
    return OdError(code, message, next_step=next_step, spent=spent)


def nearest_only(name: object, known: tuple[str, ...]) -> str:
    """Return a hint with the nearest known name, or an empty text. For known names that may be confidential."""
    close = _closest(name, known, 0.75)
    return "" if close is None else f" (did you mean {close!r}?)"


def nearest_known(name: object, known: tuple[str, ...]) -> str:
    """Return a hint for an unknown name: the nearest known name, or all of them."""
    close = _closest(name, known, 0.6)
    return f"known: {', '.join(known)}" if close is None else f"did you mean {close!r}?"


def _closest(name: object, known: tuple[str, ...], cutoff: float) -> str | None:
    """Return the most similar known name, ignoring case; ``cutoff`` is difflib's similarity, from 0 to 1."""
    in_any_case = {one.casefold(): one for one in known}
    close = difflib.get_close_matches(str(name).casefold(), in_any_case, n=1, cutoff=cutoff)
    return in_any_case[close[0]] if close else None


def base_name(kind: object) -> str:
    """Return the name of a data frame's type without its fields, values, fill values and units.

    Messages name a column's type by it, because a full type may hold values of records, as an enumeration does.

    >>> base_name("struct<home: string>"), base_name("Sparse[float64, 3.5]"), base_name("decimal(9,2)")
    ('struct', 'Sparse', 'decimal')
    """
    return re.split(r"[<(\[]", str(kind), maxsplit=1)[0]
