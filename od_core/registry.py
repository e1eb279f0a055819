"""Find objects by name, such as mechanisms and noise backends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from inspect import signature
from typing import TypeVar

from od_core.errors import OdError, suggest_known_names

T = TypeVar("T")


def choose(what: str, name: object, known: Mapping[str, T], *, code: str, next_step: str) -> T:
    """Return the object with a name. Raises OdError, which suggests known names, if there is none.

    ``what`` is the kind of object for the message, such as ``noise backend``.
    """
    refuse_unknown(what, name, known, code=code, next_step=next_step)
    return known[str(name)]


def refuse_unknown(what: str, name: object, known: Collection[str], *, code: str, next_step: str) -> None:
    """Raise OdError if a name is not among the known ones. The arguments are those of :func:`choose`."""
    if not isinstance(name, str) or name not in known:
        hint = suggest_known_names(name, tuple(known))
        raise OdError(code, f"there is no {what} {name!r} ({hint})", next_step=next_step)


class Registry(dict[str, Callable[..., T]]):
    """The mechanisms for one kind of release, by name.

    Args:
        tables: kind of tables that the mechanisms release, in words for messages.
        makers: functions that return a mechanism for given options, by name of the mechanism.
    """

    def __init__(self, tables: str, makers: Mapping[str, Callable[..., T]]) -> None:
        super().__init__(makers)
        self._tables = tables

    def make(self, mechanism: str | T, **options: object) -> T:
        """Return the mechanism with a name and options. If ``mechanism`` is not a name, return it unchanged.

        Raises OdError if the name or an option is unknown.
        """
        if not isinstance(mechanism, str):
            return mechanism
        maker = choose(
            "mechanism",
            mechanism,
            self,
            code="OD-MECHANISM-UNKNOWN",
            next_step=f"choose a mechanism for {self._tables}",
        )
        try:
            return maker(**options)
        except TypeError:
            suggestion = suggest_known_names(", ".join(options), tuple(signature(maker).parameters))
            message = f"mechanism {mechanism!r} does not have the options: {', '.join(options)} ({suggestion})"
            raise OdError("OD-MECHANISM-OPTIONS", message, next_step="correct the mechanism's options") from None
