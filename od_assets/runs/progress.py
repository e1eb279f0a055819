"""A bar on standard error that follows a run of Dagster in this process."""

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
"""Moves the bar where an entry of the run's log says so."""


class _Description(ProgressColumn):
    """What is at work: a name may be in it, and no markup."""

    def __init__(self) -> None:
        super().__init__(Column(no_wrap=True))

    def render(self, task: Task) -> Text:
        return Text(printable(task.description))


@contextmanager
def followed(instance: dg.DagsterInstance, run_id: str, title: str, tell: Tell, *, transient: bool) -> Iterator[None]:
    """Show a bar while the body runs; it goes with it, or stays under its title."""
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


# What a failed run says of itself: a public line for each failed check and step.


def failure_lines(events: Sequence[dg.DagsterEvent]) -> list[str]:
    """One line for each failed check and failed step; nothing but what is in Dagster's storage anyway."""
    evaluations = [event.asset_check_evaluation_data for event in events if _is(event, "ASSET_CHECK_EVALUATION")]
    lines = [
        f"OD-CHECK-FAILED: {check.asset_key.to_user_string()}: {check.check_name}, which asks: {check.description}"
        " [nothing was published; next: correct the input or the declaration, then run it again]"
        for check in evaluations
        if not check.passed
    ]
    return [*lines, *_said(events)] or step_failures(events)


def step_failures(events: Sequence[dg.DagsterEvent]) -> list[str]:
    """One line for each failed step that says why; where none does, one for each."""
    failed = [event for event in events if _is(event, "STEP_FAILURE")]
    return _said(events) or [f"{event.step_key}: failed; see the run in the UI" for event in failed]


def _said(events: Sequence[dg.DagsterEvent]) -> list[str]:
    """What failed steps say of themselves."""
    failed = [event for event in events if _is(event, "STEP_FAILURE")]
    failures = [(event.step_key, event.step_failure_data.user_failure_data) for event in failed]
    return [f"{step}: {failure.description}" for step, failure in failures if failure and failure.description]


def _is(event: dg.DagsterEvent, kind: str) -> bool:
    return event.event_type == dg.DagsterEventType[kind]
