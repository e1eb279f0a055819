"""Write and parse messages on the progress of an asset, such as ``3 of 40: flows.csv``."""

import re
import time
from collections.abc import Callable

from dagster import EventLogEntry

_SECONDS_BETWEEN = 2
"""Least number of seconds between two messages. Dagster takes 1/30 s per message, as long as writing a small file."""

_ONE_OF_ALL = re.compile(r"(\d+) of (\d+): (.*)")


def one_of_all(entry: EventLogEntry) -> tuple[int, int, str] | None:
    """Return the number, the total and the name in a message such as ``3 of 40: flows.csv``, or None."""
    found = _ONE_OF_ALL.match(entry.user_message)
    return None if found is None else (int(found[1]), int(found[2]), found[3])


def now_and_then(say: Callable[[str], None]) -> Callable[[int, int, str], None]:
    """Return a function that passes messages such as ``3 of 40: flows.csv`` to ``say``, at most once in two seconds."""
    said = time.monotonic()

    def tell(number: int, parts: int, name: str) -> None:
        nonlocal said
        if time.monotonic() - said >= _SECONDS_BETWEEN:
            said = time.monotonic()
            say(f"{number} of {parts}: {name}")

    return tell
