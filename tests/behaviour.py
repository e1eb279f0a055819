"""Fix the clock and the keys, and so the noise: the same code then publishes the same bytes."""

from __future__ import annotations

import datetime
import os
import secrets
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch


class Clock(datetime.datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Clock:
        return cls(2001, 7, 1, 12, tzinfo=tz)


def fixed() -> tuple[Any, ...]:
    """Return contexts in which clock and keys, and so the noise that is derived from them, are always the same."""
    names = count()
    return (
        patch("od_core.ledger.chain.datetime", SimpleNamespace(datetime=Clock, UTC=datetime.UTC)),
        patch.object(secrets, "token_bytes", lambda size: b"k" * size),
        patch.object(secrets, "token_hex", lambda size: f"{next(names):0{2 * size}x}"),
        patch.object(os, "urandom", lambda size: b"u" * size),
    )
