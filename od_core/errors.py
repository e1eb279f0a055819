"""Define OdError and its subclasses, which are the errors of the library, and helpers for their messages."""

from __future__ import annotations

import difflib
import json
import re
from functools import partial
from typing import NoReturn, Self, cast

from od_core.notebook import Shown

NOTHING_SPENT = "nothing was spent"
"""Default of :attr:`OdError.spent`."""

STAYS_CHARGED = "any budget reserved earlier stays charged"
"""Value of :attr:`OdError.spent` for errors that may occur after the budget of a release was reserved."""


_SHOWN_BY_HIDDEN: dict[str, str] = {}
"""Values that no text of an error may contain, and the text to show in place of each. See :func:`hide_in_errors`."""

_USER_AND_PASSWORD = re.compile(r"^([^/]*:.*|[^/]*)@")
"""Pattern of the user and password at the beginning of an address without its scheme."""


def hide_in_errors(value: str, shown: str) -> None:
    """Replace a value, which may be a secret, by ``shown`` in the text of every later error of this process.

    A value of fewer than four characters, or of lower-case letters alone, may be a part of any sentence, so it is
    replaced only in quotes. ``shown`` is the public name of the value, such as ``{{ env.LAKE }}``. A blank value is
    ignored.
    """
    if value.strip():
        for form in {value, repr(value)[1:-1], json.dumps(value)[1:-1]}:  # as it is, and with the escapes of messages
            _SHOWN_BY_HIDDEN[" ".join(form.split())] = shown


def format_one_line(text: str) -> str:
    """Return a text on one line, with the values that :func:`hide_in_errors` was given replaced.

    >>> hide_in_errors("hunter-22", "{{ env.WORD }}")
    >>> format_one_line("there is no file /lake/hunter-22.csv")
    'there is no file /lake/{{ env.WORD }}.csv'
    """
    text = " ".join(text.split())
    if not _SHOWN_BY_HIDDEN:
        return text
    longest_first = sorted(_SHOWN_BY_HIDDEN, key=len, reverse=True)  # one may contain another
    pattern = "|".join(map(_make_hidden_pattern, longest_first))
    return re.sub(pattern, lambda match: _SHOWN_BY_HIDDEN[match[0]], text)


def remove_address_secrets(address: str) -> str:
    """Return an address without user, password, parameters and query. A text without ``://`` is returned as it is.

    A password that holds a ``/`` or an ``@`` is left out, too, although no library would accept it.

    >>> remove_address_secrets("postgresql://role:a/b@host/data?c=d"), remove_address_secrets("sc://host:15002/;token=x")
    ('postgresql://host/data', 'sc://host:15002/')
    >>> remove_address_secrets("s3://bucket/a@b.csv"), remove_address_secrets("local[4]")
    ('s3://bucket/a@b.csv', 'local[4]')
    """
    scheme, sign, rest = address.partition("://")
    if not sign:
        return address
    host_and_path, *_parameters = re.split("[?;]", re.sub(_USER_AND_PASSWORD, "", rest))
    return f"{scheme}://{host_and_path}"


def _make_hidden_pattern(value: str) -> str:
    """Return the regular expression that finds a hidden value in a text.

    A value that may be a part of any sentence (see :func:`hide_in_errors`) is found only in quotes, and any other value
    of fewer than eight characters only as a whole word.
    """
    escaped = re.escape(value)
    if len(value) < 4 or re.fullmatch("[a-z]+", value):
        return f"(?<=['\"]){escaped}(?=['\"])"
    return escaped if len(value) >= 8 else rf"(?<!\w){escaped}(?!\w)"


class OdError(Shown, Exception):
    """An error whose text states what happened, whether budget was spent, and what to do next.

    The whole text is public. It may name columns, levels, zones of the public geography and budgets, but no value of
    the confidential records, no text of another library's error, and no value that :func:`hide_in_errors` was given.
    Other details go into ``confidential_detail``, which is never printed. The pipeline writes them to a file of mode
    0600.

    ``OdError(code, ...)`` creates an instance of the subclass that the code belongs to, so that a caller can write
    ``except BudgetExceeded``. ``docs/reference/errors.md`` lists all codes.

    Args:
        code: code of the error, such as ``OD-LEDGER-CAP``.
        message, next_step: what happened, and advice to the user.
        spent: whether budget was spent.
        confidential_detail: further details, or None.
        file: name of the declared file that is at fault, if the message names it.

    >>> type(OdError("OD-LEDGER-CAP", "the cap is reached", next_step="wait for the next period")).__name__
    'BudgetExceeded'
    """

    def __new__(cls, code: str, *_arguments: object, **_named: object) -> Self:
        """Create an instance of the subclass that the code belongs to. A subclass creates an instance of itself."""
        return cast("Self", super().__new__(find_error_class(code) if cls is OdError else cls))

    def __init__(
        self,
        code: str,
        message: str,
        *,
        next_step: str,
        spent: str = NOTHING_SPENT,
        confidential_detail: str | None = None,
        file: str | None = None,
    ) -> None:
        self.code = code
        self.message = format_one_line(message)
        self.next_step = format_one_line(next_step)
        self.spent = spent
        self.confidential_detail = confidential_detail
        self.file = file
        super().__init__(code, self.message)

    def _list_notebook_facts(self) -> dict[str, str]:
        """Return the parts of the error's text, by the names that a notebook shows."""
        return {"Error": self.code, "What": self.message, "Budget": self.spent, "Next step": self.next_step}

    def __str__(self) -> str:
        return f"{self.code}: {self.message} [{self.spent}; next: {self.next_step}]"

    def with_changes(self, **arguments: str) -> OdError:
        """Return a copy of the error in which the given arguments of the constructor are replaced."""
        names = ("code", "message", "next_step", "spent", "confidential_detail", "file")
        return OdError(**({name: getattr(self, name) for name in names} | arguments))

    def with_file(self, name: str) -> OdError:
        """Return a copy of the error whose message begins with the name of the file that is at fault."""
        return self.with_changes(message=f"{name}: {self.message}", file=name)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the error without its confidential detail, which must not reach another process."""
        return partial(OdError, next_step=self.next_step, spent=self.spent, file=self.file), (self.code, self.message)


def raise_without_context(error: OdError) -> NoReturn:
    """Raise an error without a cause and a context. Use it in a handler of an exception that may quote a record.

    ``raise ... from None`` would hide the handled exception, but keep it as the context, which programs may log.
    """
    try:
        raise error
    finally:
        error.__cause__ = error.__context__ = None


class BudgetError(OdError):
    """A budget, a charge or a plan that cannot be used.

    Examples:
        >>> Budget(epsilon=-1)
        Traceback (most recent call last):
        od_core.errors.BudgetError: OD-BUDGET-EPSILON: epsilon and rho must lie between 1e-30 and 1e9 ...
    """


class BudgetExceeded(BudgetError):  # noqa: N818  # the name that callers expect to read
    """A charge that the cap of the data set does not allow.

    Examples:
        >>> options = {"unit": unit, "budget": Budget(epsilon=9, delta="1e-8"), "ledger": ledger}
        >>> release_flows(flows, geography, **options, release_id="flights/2001-06/r2")
        Traceback (most recent call last):
        od_core.errors.BudgetExceeded: OD-LEDGER-CAP: ...
    """


class DeclarationError(OdError):
    """A setting, an option or a declaration that cannot be used.

    Examples:
        >>> release_flows(flows, geography, unit=unit, budget=budget, noise="none")
        Traceback (most recent call last):
        od_core.errors.DeclarationError: OD-NOISE-UNKNOWN: there is no noise backend 'none' ...
    """


class GeographyError(OdError):
    """A list of areas that is not a hierarchy, or an area or a level that does not exist.

    Examples:
        >>> release.flows_at("county", "zone")
        Traceback (most recent call last):
        od_core.errors.GeographyError: OD-LEVEL-UNKNOWN: there is no level 'county'; ...
    """


class InputError(OdError):
    """Records, counts or other data that cannot be used.

    Examples:
        >>> release_flows(flows.assign(origin="X9"), geography, unit=unit, budget=budget)
        Traceback (most recent call last):
        od_core.errors.InputError: OD-TRIPS-FAULTS: ...
    """


class NoiseError(OdError):
    """A noise source that cannot draw the requested noise, or that returns unusable values.

    Examples:
        >>> issubclass(NoiseError, OdError)  # a backend is unusable or cannot draw such noise
        True
    """


class LedgerError(OdError):
    """A ledger that is missing, damaged or older than the public releases, or a release that disagrees with it.

    Examples:
        >>> issubclass(LedgerError, OdError)  # the ledger is damaged, or lacks what is asked of it
        True
    """


class StorageError(OdError):
    """A disk, store, database or lineage backend that cannot be used, or a stored file that is missing or changed.

    Examples:
        >>> issubclass(StorageError, OdError)  # a disk, a database or an object store fails
        True
    """


class ReleaseError(OdError):
    """A release that does not exist, is not finished, or does not agree with its certificate.

    Examples:
        >>> open_release("no/such/folder")
        Traceback (most recent call last):
        od_core.errors.ReleaseError: OD-RELEASE-ABSENT: folder is not a bundle or database ...
    """


class ExecutionError(OdError):
    """A computation that failed, on this machine or in Spark, or software that is not installed.

    Examples:
        >>> issubclass(ExecutionError, OdError)  # a run was ended, or a process failed
        True
    """


_CODES: dict[type[OdError], str] = {
    BudgetError: "BUDGET CHARGE LEDGER-CAP-KIND LEDGER-CAP-REASON PLAN",
    BudgetExceeded: "LEDGER-CAP",
    DeclarationError: (
        "AREA-TOTALS ARRIVALS ASSIST BANDS BOUNDS CODE-LOCATION COMPARE CONFIG DERIVED DISCLOSURE DOMAIN ENGINE"
        " EVALUATION EXTRA FAULT-THRESHOLD FORECAST FORMATS FRESHNESS INIT INVENT MECHANISM NOISE-UNKNOWN PERIOD"
        " PROJECT READER PREFIX RELEASE-KEY QUANTITY RELEASE-UNKNOWN REPLICATES SEGMENT SERIES SHARES SITE SUM"
        " SYNTHETIC TABLE-CONFIDENTIAL TABLE-PUBLIC TARGET TESTING TIME-ZONE UI UNCOUNTED UNIT UPSTREAM WAREHOUSE"
    ),
    GeographyError: (
        "AREA CHANGES-GEOGRAPHY DISTANCES FORECAST-GEOGRAPHY FOUND-LEVELS GEOGRAPHY INDICATORS KNOWN-TOTALS"
        " LEVEL-UNKNOWN POSSIBLE-PAIRS TREE"
    ),
    InputError: "COUNTS FILE GROUPS INTOPT MEASUREMENT-LENGTH MEASUREMENT-ORDER NODES STOPS TABLE TRIPS WEIGHTS",
    NoiseError: "KEY-LENGTH NOISE",
    LedgerError: "IDENTITY KEY LEDGER LOST-DRAW REPLAY YEAR",
    StorageError: "DATABASE DISK LINEAGE MEASUREMENT NOTICE STAGED STORE SYSTEM",
    ReleaseError: "BUNDLE CERTIFICATE CHECK DERIVED-SOURCE INTERVAL LEVEL-UNMEASURED OMX PREVIOUS PUBLICATION RELEASE",
    ExecutionError: (
        "CONFIDENTIAL-ERROR FINDING INTERRUPTED LEVEL-MEMORY PART PARTS REFINEMENT SOLVER SPARK SYSTEM-MEMORY TASK"
    ),
}
"""Beginnings of the error codes of each class, without ``OD-``. A code belongs to the class with the longest match."""

_CLASS_OF_BEGINNING = {beginning: error for error, beginnings in _CODES.items() for beginning in beginnings.split()}


def find_error_class(code: str) -> type[OdError]:
    """Return the subclass of OdError that an error code belongs to; OdError itself if no class matches.

    The beginning of the code is shortened by one word at a time, until a class has it.
    """
    beginning = code.removeprefix("OD-")
    while beginning:
        if beginning in _CLASS_OF_BEGINNING:
            return _CLASS_OF_BEGINNING[beginning]
        beginning, _, _ = beginning.rpartition("-")
    return OdError


def suggest_similar_name(name: object, known: tuple[str, ...]) -> str:
    """Return a hint with the most similar known name, or an empty text if none is similar.

    Unlike :func:`suggest_known_names`, it never lists all known names, which may be too many or confidential.
    """
    close = _find_closest_name(name, known, 0.75)
    return "" if close is None else f" (did you mean {close!r}?)"


def suggest_known_names(name: object, known: tuple[str, ...]) -> str:
    """Return a hint with the most similar known name, or with all known names if none is similar.

    >>> suggest_known_names("us_flight", ("us_flights", "taxis"))
    "did you mean 'us_flights'?"
    >>> suggest_known_names("x", ("a", "b")), suggest_known_names("x", ())
    ('known: a, b', 'there are none')
    """
    if not known:
        return "there are none"
    close = _find_closest_name(name, known, 0.6)
    return f"known: {', '.join(known)}" if close is None else f"did you mean {close!r}?"


def _find_closest_name(name: object, known: tuple[str, ...], cutoff: float) -> str | None:
    """Return the most similar known name, ignoring case; None if no ratio of difflib (0 to 1) reaches ``cutoff``."""
    name_of_folded = {known_name.casefold(): known_name for known_name in known}
    closest = difflib.get_close_matches(str(name).casefold(), name_of_folded, n=1, cutoff=cutoff)
    return name_of_folded[closest[0]] if closest else None


def strip_type_parameters(kind: object) -> str:
    """Return the name of a column's type without its parameters: fields, values, fill values and units.

    Messages use this name, because a full type may contain values of records. For example, an enumeration lists them.

    >>> [strip_type_parameters(kind) for kind in ("struct<home: string>", "Sparse[float64, 3.5]", "decimal(9,2)")]
    ['struct', 'Sparse', 'decimal']
    """
    return re.split(r"[<(\[]", str(kind), maxsplit=1)[0]
