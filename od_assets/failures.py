"""Turn errors of assets, of checks and of Dagster's own storage into one public line each.

Errors of assets and checks become Dagster failures without a retry, but for :mod:`od_assets.resources.retries`.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

import dagster as dg

from od_assets.interrupts import refuse_if_interrupted
from od_core.errors import STAYS_CHARGED, OdError, raise_without_context
from od_core.files.durable import can_write, choose_writing_advice, describe_rights
from od_core.ledger.confidential import ConfidentialFolder, lock_folder

if TYPE_CHECKING:  # the definitions of a project do not need it
    from sqlalchemy.exc import DBAPIError

_STEP = re.compile(r"(.+?)(__levels)?__([a-z0-9]+(?:_[a-z0-9]+)*)(__checks)?")
"""Pattern of a step of an asset: its series, whose name may have two underscores, perhaps ``levels``, and its name."""


@contextmanager
def convert_errors_without_values(
    confidential: ConfidentialFolder, retries: AbstractContextManager[None] | None = None
) -> Iterator[None]:
    """Replace any error in this context by a Dagster Failure with one public line.

    Dagster stores the text of every exception and of its cause, so neither may quote a confidential value. The details
    are written to the confidential folder.

    Args:
        retries: context that may turn the public error into a request to try the step again.

    Raises:
        Interrupted: this process was interrupted before, which a library may have hidden, so no step begins.
    """
    with convert_errors_to_failures(), retries or nullcontext(), confidential.keep_errors_confidential():
        yield


@contextmanager
def convert_errors_to_failures() -> Iterator[None]:
    """Replace an OdError in this context by a Dagster Failure with its text. The step must have no confidential data.

    Raises Interrupted if this process was interrupted before the context.
    """
    refuse_if_interrupted()
    try:
        yield
    except OdError as error:
        raise dg.Failure(description=str(error), allow_retries=False) from None


_UNPUBLISHED = (
    "nothing was published; next: see what od-release doctor says, correct the input or the declaration, and run it"
    " again"
)
_NEXT = {
    "stays_as_published": (
        "what is public has changed; next: see what od-release verify says, and run it again, which repairs the bundle"
    )
}
"""What a failed check means for what is public, and the next step, by the name of the check."""


def describe_failures(events: Sequence[dg.DagsterEvent], name: str = "") -> list[str]:
    """Return one line for each failed check and for each reason of failed steps; without either, for each failed step.

    A reason that several steps state has the asset of the first one. All of this text is already in Dagster's storage.

    Args:
        events: events of one run.
        name: name of the series or comparison, as in :func:`name_asset_of_step`.
    """
    evaluations = [event.asset_check_evaluation_data for event in events if _has_type(event, "ASSET_CHECK_EVALUATION")]
    lines = [
        f"OD-CHECK-FAILED: {check.asset_key.to_user_string()}: check {check.check_name} failed."
        f" {'It found' if check.check_name in _NEXT else 'It requires'}: {check.description}"
        f" [{_NEXT.get(check.check_name, _UNPUBLISHED)}]"
        for check in evaluations
        if not check.passed and check.severity == dg.AssetCheckSeverity.ERROR  # a warning fails no run
    ]
    failed = [event for event in events if _has_type(event, "STEP_FAILURE")]
    asset_of_reason: dict[str, str] = {}
    for event in failed:
        failure = event.step_failure_data.user_failure_data
        if failure and failure.description:
            asset_of_reason.setdefault(failure.description, name_asset_of_step(event.step_key, name))
    sentences = [f"{asset}: {reason}" for reason, asset in asset_of_reason.items()]
    failed_assets = [name_asset_of_step(event.step_key, name) for event in failed]
    return [*lines, *sentences] or [f"{asset}: failed; see the run in the UI" for asset in failed_assets]


def name_asset_of_step(step: str | None, name: str = "") -> str:
    """Return the key of the asset that a step makes or checks, as Dagster writes keys.

    ``name`` is that of the series or comparison; its first word may be the prefix of the project.
    """
    prefix, _, name_without_prefix = name.partition("_")
    if name_without_prefix and step is not None and step.startswith(f"{prefix}__{name_without_prefix}__"):
        return f"{prefix}/{name_asset_of_step(step.removeprefix(f'{prefix}__'))}"
    match = _STEP.fullmatch(step or "")
    if match is None:
        return str(step)
    folder = "/levels" if match[2] else ""
    return f"{match[1]}{folder}/{match[3]}"


def _has_type(event: dg.DagsterEvent, event_type: str) -> bool:
    """Return whether an event has the type of Dagster with this name."""
    return event.event_type == dg.DagsterEventType[event_type]


NEEDED = 16 << 20
"""Bytes that Dagster's storage needs for a run: SQLite keeps up to 4 MiB of log beside each of its four databases."""


@contextmanager
def open_dagster_instance() -> Iterator[dg.DagsterInstance]:
    """Yield the instance of ``DAGSTER_HOME``. Raises OdError if its storage cannot be used, now or in the context.

    Root is warned on standard error if the folder belongs to another user.
    """
    from sqlalchemy.exc import DBAPIError

    home = Path(os.environ["DAGSTER_HOME"])
    if os.geteuid() == 0:
        owner = home.parent.stat().st_uid
        if owner != 0:
            print(
                f"Files that root makes in {home.parent} cannot be changed by its owner, user {owner}.", file=sys.stderr
            )
    mask_before = os.umask(0o022)  # Dagster's files get the modes of public files; our own files set their modes
    try:
        with lock_folder(home):  # otherwise two processes may create Dagster's tables at once
            instance = dg.DagsterInstance.get()
        with redirect_stderr(cast("TextIO", _WithoutStorageFaults(sys.stderr))), instance:
            yield instance
    except DBAPIError as error:
        raise_without_context(make_storage_error(error, home))
    finally:
        os.umask(mask_before)


def make_storage_error(error: DBAPIError, home: Path) -> OdError:
    """Return the OdError for a fault of the database of Dagster's runs and events, without the text of the fault.

    ``home`` is Dagster's home, which has the database unless that is on a server.
    """
    name = getattr(error.orig, "sqlite_errorname", None)
    kept = "what was measured is in the ledger and is not lost"
    unwritable = next((place for place in [*sorted(home.rglob("*.db")), home] if not can_write(place)), None)
    free = shutil.disk_usage(home).free
    if unwritable is not None:
        code, step = "OD-SYSTEM", choose_writing_advice(unwritable)
        cause = f"cannot be used: {describe_rights(unwritable)}"
    elif name is not None and (name == "SQLITE_FULL" or free < NEEDED):  # some calls report a full disk otherwise
        code, step = "OD-DISK-WRITE", "free space on its disk, then run again, which draws nothing twice"
        cause = f"is full: {free / (1 << 20):.1f} MiB are free for {home}, and a run needs about {NEEDED >> 20} MiB"
    else:
        code, step = "OD-SYSTEM", "check the disk or the server of Dagster's storage, then run again"
        cause = f"cannot be used: its database reports {name or type(error).__name__}"
    return OdError(code, f"Dagster's storage {cause}; {kept}", next_step=step, spent=STAYS_CHARGED)


class _WithoutStorageFaults:
    """Standard error, without the text that Dagster writes when it cannot store a message of a run."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text unless it is from such a failure, and return its length in any case, as files do."""
        if "Exception while writing logger call to event log" not in text:
            self._stream.write(text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
