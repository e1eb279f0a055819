"""Show the progress of a Dagster run in this process on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import dagster as dg
from dagster import DagsterEventType, EventLogEntry
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TimeElapsedColumn,
)
from rich.table import Column
from rich.text import Text

from od_assets.engines.step_messages import one_of_all
from od_assets.failures import asset_of
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
def followed(
    instance: dg.DagsterInstance, run_id: str, title: str, tell: Tell, total: int, *, transient: bool
) -> Iterator[None]:
    """Show a progress bar during this context.

    Args:
        instance, run_id: instance and id of the run, which need not have started.
        title: description of the bar before and after the run.
        tell: function that updates the bar.
        total: number of all steps or parts of the run.
        transient: whether to remove the bar afterwards. Then nothing is written unless standard error is a terminal.
    """
    console = PlainConsole(stderr=True)
    columns = (SpinnerColumn(), _Description(), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    hidden = transient and not console.is_terminal
    with Progress(*columns, console=console, transient=transient, disable=hidden) as progress:
        task = progress.add_task(title, total=total)

        def advance(entry: EventLogEntry, _cursor: str) -> None:
            tell(progress, task, entry)

        instance.watch_event_logs(run_id, None, advance)
        try:
            yield
        finally:
            instance.end_watch_event_logs(run_id, advance)
            progress.update(task, description=title)


def number_of_steps(job: dg.JobDefinition) -> int:
    """Return the number of steps of a job of assets and checks, each of which is one step."""
    return len(job.nodes)


def by_step(title: str) -> Tell:
    """Return a function that updates the bar with the current step and the completed steps and parts of steps."""
    completed = 0

    def tell(progress: Progress, task: TaskID, entry: EventLogEntry) -> None:
        nonlocal completed
        event, said = entry.dagster_event, one_of_all(entry)
        if said is not None:
            number, parts, name = said
            progress.update(task, completed=completed + number / parts, description=f"{title}: {name}")
        if event is None:
            return
        if event.event_type == DagsterEventType.STEP_START:
            progress.update(task, description=f"{title}: {asset_of(event.step_key)}")
        elif event.event_type == DagsterEventType.STEP_SUCCESS:
            completed += 1
            progress.update(task, completed=completed)

    return tell
