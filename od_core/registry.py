"""Make mechanisms by name, with options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from od_core.errors import OdError, nearest_known

Made = TypeVar("Made")


def mechanism_of(makers: Mapping[str, Callable[..., Made]], name: str, tables: str, options: Mapping[str, Any]) -> Made:
    """Make the mechanism of a name with its options.

    Args:
        makers: makers of mechanisms, by name.
        name: name of the mechanism.
        tables: tables that it is for, in words for the message.
        options: options of the mechanism.

    Raises:
        OdError: the name or an option is unknown.
    """
    if name not in makers:
        raise OdError(
            "OD-MECHANISM-UNKNOWN",
            f"there is no mechanism {name!r} for {tables} ({nearest_known(name, tuple(makers))})",
            next_step="choose a known mechanism",
        )
    try:
        return makers[name](**options)
    except TypeError:
        raise OdError(
            "OD-MECHANISM-OPTIONS",
            f"mechanism {name!r} does not have the options: {', '.join(options)}",
            next_step="correct the mechanism's options",
        ) from None
