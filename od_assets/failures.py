"""Turn errors of assets and checks into Dagster failures with one public line and no retry."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import dagster as dg

from od_assets.interrupts import refuse_if_received
from od_core.errors import STAYS_CHARGED, OdError
from od_core.ledger.confidential import ConfidentialFolder

_STEP = re.compile(r"(.+?)(__levels)?__([a-z0-9]+(?:_[a-z0-9]+)*)(__checks)?")
"""Pattern of a step of an asset: its series, whose name may have two underscores, perhaps ``levels``, and its name."""


@contextmanager
def failures_without_values(confidential: ConfidentialFolder) -> Iterator[None]:
    """Replace any error in this context by a Dagster Failure with one public line.

    Dagster stores the text of every exception and of its cause, so neither may quote a confidential value. The details
    are written to the confidential folder. No step begins after an interrupt that a library has swallowed.
    """
    with public_failures(), confidential.errors_stay_inside(spent=STAYS_CHARGED):
        yield


@contextmanager
def public_failures() -> Iterator[None]:
    """Replace an OdError by a Dagster Failure with its text. Use this only for steps without confidential data."""
    refuse_if_received()
    failed: OdError | None = None
    try:
        yield
    except OdError as error:
        failed = error
    if failed is not None:
        raise dg.Failure(description=str(failed), allow_retries=False) from None


def failure_lines(events: Sequence[dg.DagsterEvent]) -> list[str]:
    """Return one line for each failed check and step. All of this text is already in Dagster's storage."""
    evaluations = [event.asset_check_evaluation_data for event in events if _is(event, "ASSET_CHECK_EVALUATION")]
    lines = [
        f"OD-CHECK-FAILED: {check.asset_key.to_user_string()}: check {check.check_name} failed. It requires:"
        f" {check.description} [nothing was published; next: correct the input or the declaration, then run it again]"
        for check in evaluations
        if not check.passed
    ]
    return step_failures(events, lines)


def step_failures(events: Sequence[dg.DagsterEvent], lines: Sequence[str] = ()) -> list[str]:
    """Return some lines, and one per failed step that has a description; if there are none, one per failed step."""
    failed = [event for event in events if _is(event, "STEP_FAILURE")]
    failures = [(asset_of(event.step_key), event.step_failure_data.user_failure_data) for event in failed]
    said = [f"{asset}: {failure.description}" for asset, failure in failures if failure and failure.description]
    return [*lines, *said] or [f"{asset}: failed; see the run in the UI" for asset, _ in failures]


def asset_of(step: str | None) -> str:
    """Return the key of the asset that a step makes or checks, as Dagster writes keys."""
    found = _STEP.fullmatch(step or "")
    return str(step) if found is None else f"{found[1]}{'/levels' if found[2] else ''}/{found[3]}"


def _is(event: dg.DagsterEvent, kind: str) -> bool:
    return event.event_type == dg.DagsterEventType[kind]
