"""Choose things by name, such as mechanisms, noise backends and readers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from od_core.errors import OdError, nearest_known

T = TypeVar("T")


def choose(what: str, name: object, known: Mapping[str, T], *, code: str, next_step: str) -> T:
    """Return what a name stands for.

    Args:
        what: what is chosen, such as ``noise backend``.
        name: the chosen name.
        known: everything that can be chosen, by name.
        code: code of the error.
        next_step: next step of the error.

    Raises:
        OdError: the name is unknown; the message has the nearest known one, or all of them.
    """
    refuse_unknown(what, name, known, code=code, next_step=next_step)
    return known[str(name)]


def refuse_unknown(what: str, name: object, known: Collection[str], *, code: str, next_step: str) -> None:
    """Refuse a name that is not known; see :func:`choose`. Raises OdError."""
    if not isinstance(name, str) or name not in known:
        hint = nearest_known(name, tuple(known))
        raise OdError(code, f"there is no {what} {name!r} ({hint})", next_step=next_step)


class Registry(dict[str, Callable[..., T]]):
    """The mechanisms for one kind of release, by name.

    Args:
        tables: what they are for, in words for messages.
        makers: functions that make a mechanism from its options, by name.
    """

    def __init__(self, tables: str, makers: Mapping[str, Callable[..., T]]) -> None:
        super().__init__(makers)
        self._tables = tables

    def make(self, mechanism: str | T, **options: Any) -> T:
        """Return the mechanism of a name with its options, or the given mechanism itself.

        Raises:
            OdError: the name or an option is unknown.
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
            raise OdError(
                "OD-MECHANISM-OPTIONS",
                f"mechanism {mechanism!r} does not have the options: {', '.join(options)}",
                next_step="correct the mechanism's options",
            ) from None
