"""Show the progress of a Dagster run in this process on standard error, and explain its failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import dagster as dg
from dagster import EventLogEntry
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from od_assets.cli.terminal import PlainConsole, printable

Tell = Callable[[Progress, TaskID, EventLogEntry], None]
"""Updates the progress bar for an entry of the run's log."""


class _Description(ProgressColumn):
    """A column with the current description, which may contain names and is never read as markup."""

    def __init__(self) -> None:
        super().__init__(Column(no_wrap=True))

    def render(self, task: Task) -> Text:
        return Text(printable(task.description))


@contextmanager
def followed(instance: dg.DagsterInstance, run_id: str, title: str, tell: Tell, *, transient: bool) -> Iterator[None]:
    """Show a progress bar while the body runs; at the end it stays with its title, unless ``transient``."""
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


def failure_lines(events: Sequence[dg.DagsterEvent]) -> list[str]:
    """Return one line for each failed check and step; only what Dagster's storage contains already."""
    evaluations = [event.asset_check_evaluation_data for event in events if _is(event, "ASSET_CHECK_EVALUATION")]
    lines = [
        f"OD-CHECK-FAILED: {check.asset_key.to_user_string()}: {check.check_name}, which asks: {check.description}"
        " [nothing was published; next: correct the input or the declaration, then run it again]"
        for check in evaluations
        if not check.passed
    ]
    return [*lines, *_said(events)] or step_failures(events)


def step_failures(events: Sequence[dg.DagsterEvent]) -> list[str]:
    """Return one line for each failed step with a description; if there is none, one line for every failed step."""
    failed = [event for event in events if _is(event, "STEP_FAILURE")]
    return _said(events) or [f"{event.step_key}: failed; see the run in the UI" for event in failed]


def _said(events: Sequence[dg.DagsterEvent]) -> list[str]:
    """Return the descriptions of failed steps."""
    failed = [event for event in events if _is(event, "STEP_FAILURE")]
    failures = [(event.step_key, event.step_failure_data.user_failure_data) for event in failed]
    return [f"{step}: {failure.description}" for step, failure in failures if failure and failure.description]


def _is(event: dg.DagsterEvent, kind: str) -> bool:
    return event.event_type == dg.DagsterEventType[kind]
