"""Try again what failed for a passing reason, in runs that nobody watches, and never where noise may have been drawn.

A step that may have drawn noise fails instead: a draw that it lost is charged, and only a person should decide to
charge another one. A run that somebody started by hand fails at once, because they can see why.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager

import dagster as dg

from od_assets.resources.dead_runs import UNATTENDED
from od_core.errors import OdError

WAITS = (30, 120, 480)
"""Seconds before the second, third and fourth attempt."""

_PASSING = {"OD-DATABASE-LOCKED", "OD-DISK-WRITE", "OD-LEDGER-UNAVAILABLE", "OD-RELEASE-LOCKED"}
"""Codes of errors that may pass without anybody changing the project: a lock, a full disk, a server that is away."""

_BACKFILL = "dagster/backfill"
"""Tag of the runs of a backfill."""


def _plan_retry(
    error: OdError, number: int, tags: Mapping[str, str], log: Callable[[str], None], what: str
) -> float | None:
    """Return the seconds after which to try again, and write them to a log; None if the attempt is not to be repeated.

    Args:
        number: number of the failed attempt, from 0.
        tags: tags of the run.
        log: function that writes a message to the log of the run.
        what: name of what was attempted, ``step`` or ``run``.
    """
    is_unwatched = bool((UNATTENDED | {_BACKFILL}) & tags.keys())
    if number >= len(WAITS) or error.code not in _PASSING or not is_unwatched:
        return None
    again = f"tried again in {WAITS[number]} s ({number + 1} of {len(WAITS)})"
    log(f"{error} Nothing was drawn in this {what}, which is {again}.")
    return WAITS[number]


@contextmanager
def request_retry(context: dg.AssetExecutionContext, may_have_drawn: Callable[[], bool]) -> Iterator[None]:
    """Ask Dagster to try a step again if it raises an OdError for a passing reason before it may have drawn noise."""
    try:
        yield
    except OdError as error:
        number = context.op_execution_context.retry_number
        seconds = None
        if not may_have_drawn():
            seconds = _plan_retry(error, number, context.run.tags, context.log.warning, "step")
        if seconds is None:
            raise
        raise dg.RetryRequested(max_retries=len(WAITS), seconds_to_wait=seconds) from None


@contextmanager
def enter_with_retries(
    make: Callable[[], AbstractContextManager[None]], context: dg.InitResourceContext
) -> Iterator[None]:
    """Enter the context that ``make`` returns at the beginning of a run, and try again if that fails temporarily.

    An OdError of another kind, or of the last attempt, is raised.
    """
    tags = {} if context.run is None else context.run.tags
    with ExitStack() as stack:
        for number in range(len(WAITS) + 1):
            try:
                stack.enter_context(make())
                break
            except OdError as error:
                log = _ignore if context.log is None else context.log.warning
                seconds = _plan_retry(error, number, tags, log, "run")
                if seconds is None:
                    raise
                time.sleep(seconds)
        yield


def _ignore(_message: str) -> None:
    """Do nothing with a message, in place of the log that a run lacks."""
