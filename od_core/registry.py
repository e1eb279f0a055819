"""Find objects by name, such as mechanisms and noise backends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from inspect import signature
from typing import TypeVar

from od_core.errors import OdError, suggest_known_names

T = TypeVar("T")


def find_by_name(kind: str, name: object, known: Mapping[str, T], *, code: str, next_step: str) -> T:
    """Return the known object with this name. Raises OdError, which suggests known names, if there is none.

    Args:
        kind: kind of object for the message, such as ``noise backend``.
        name: name that a user gave.
        known: objects by name.
        code, next_step: code and advice of the error.
    """
    refuse_unknown(kind, name, known, code=code, next_step=next_step)
    return known[str(name)]


def refuse_unknown(kind: str, name: object, known: Collection[str], *, code: str, next_step: str) -> None:
    """Raise OdError if a name is not among the known ones. The arguments are those of :func:`find_by_name`."""
    if not isinstance(name, str) or name not in known:
        hint = suggest_known_names(name, tuple(known))
        raise OdError(code, f"there is no {kind} {name!r} ({hint})", next_step=next_step)


class Registry(dict[str, Callable[..., T]]):
    """The mechanisms for one kind of release: a dictionary from each name to a function that returns the mechanism.

    Args:
        tables: kind of tables that the mechanisms release, in words for messages.
        makers: functions that return a mechanism for given options, by name of the mechanism.
    """

    def __init__(self, tables: str, makers: Mapping[str, Callable[..., T]]) -> None:
        super().__init__(makers)
        self._tables = tables

    def make(self, mechanism: str | T, **options: object) -> T:
        """Return the mechanism with this name and options. An object that is not a name is returned unchanged.

        Raises OdError if the name or an option is unknown, or the value of an option is not valid.
        """
        if not isinstance(mechanism, str):
            return mechanism
        maker = find_by_name(
            "mechanism",
            mechanism,
            self,
            code="OD-MECHANISM-UNKNOWN",
            next_step=f"choose a mechanism for {self._tables}",
        )
        try:
            return maker(**options)
        except TypeError:  # an unknown option; an invalid value raises OdError
            option_names = ", ".join(options)
            suggestion = suggest_known_names(option_names, tuple(signature(maker).parameters))
            message = f"mechanism {mechanism!r} does not have the options: {option_names} ({suggestion})"
            raise OdError("OD-MECHANISM-OPTIONS", message, next_step="correct the mechanism's options") from None
