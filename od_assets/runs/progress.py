"""Show the progress of a Dagster run in this process on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import dagster as dg
from dagster import EventLogEntry
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from od_assets.terminal import PlainConsole, printable

Tell = Callable[[Progress, TaskID, EventLogEntry], None]
"""Function that updates the progress bar for an entry of the run's log."""


class _Description(ProgressColumn):
    """A column with the current description, which may contain names and is never interpreted as markup."""

    def __init__(self) -> None:
        super().__init__(Column(no_wrap=True))

    def render(self, task: Task) -> Text:
        return Text(printable(task.description))


@contextmanager
def followed(instance: dg.DagsterInstance, run_id: str, title: str, tell: Tell, *, transient: bool) -> Iterator[None]:
    """Show a progress bar, which ``tell`` updates, during this context. Afterwards, remove it if ``transient``."""
    columns = (_Description(), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=PlainConsole(stderr=True), transient=transient) as progress:
        task = progress.add_task(title, total=None)

        def advance(entry: EventLogEntry, _cursor: str) -> None:
            tell(progress, task, entry)

        instance.watch_event_logs(run_id, None, advance)
        try:
            yield
        finally:
            instance.end_watch_event_logs(run_id, advance)
            progress.update(task, description=title)
