"""What an asset says of its parts while it is at work, and how that is read again."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from dagster import EventLogEntry

_SECONDS_BETWEEN = 2
"""A message takes Dagster a thirtieth of a second: as long as a file of a small bundle."""

_ONE_OF_ALL = re.compile(r"(\d+) of (\d+): (.*)")


def one_of_all(entry: EventLogEntry) -> tuple[int, int, str] | None:
    """What an asset says of its parts, as ``3 of 40: flows.csv``: number, how many there are, which; else None."""
    found = _ONE_OF_ALL.match(entry.user_message)
    return None if found is None else (int(found[1]), int(found[2]), found[3])


def now_and_then(say: Callable[[str], None]) -> Callable[[int, int, str], None]:
    """Says which of all parts is at work, as :func:`one_of_all` reads it; nothing where all is done in two seconds."""
    said = time.monotonic()

    def tell(number: int, parts: int, name: str) -> None:
        nonlocal said
        if time.monotonic() - said >= _SECONDS_BETWEEN:
            said = time.monotonic()
            say(f"{number} of {parts}: {name}")

    return tell
