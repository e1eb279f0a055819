"""A bar on standard error that follows a run of Dagster in this process."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import dagster as dg
from dagster import EventLogEntry
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

Tell = Callable[[Progress, TaskID, EventLogEntry], None]
"""Moves the bar where an entry of the run's log says so."""

_SECONDS_BETWEEN = 2
"""A message takes Dagster a thirtieth of a second: as long as a file of a small bundle."""

_ONE_OF_ALL = re.compile(r"(\d+) of (\d+): (.*)")


@contextmanager
def followed(instance: dg.DagsterInstance, run_id: str, title: str, tell: Tell, *, transient: bool) -> Iterator[None]:
    """Show a bar while the body runs; it goes with it, or stays under its title."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=transient) as progress:
        task = progress.add_task(title, total=None)

        def advance(entry: EventLogEntry, _cursor: str) -> None:
            tell(progress, task, entry)

        instance.watch_event_logs(run_id, None, advance)
        try:
            yield
        finally:
            instance.end_watch_event_logs(run_id, advance)
            progress.update(task, description=title)


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
