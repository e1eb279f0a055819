"""Check that the file of a period exists and is complete, and report files that changed after publication."""

import datetime
import glob
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from od_assets.resources.folders import Folders
from od_assets.series.series import G, P, Series
from od_core import OdError, ReleaseKey
from od_core.files.durable import compute_file_digest, find_file_fault, read_file_state, write_durably
from od_core.periods import Period
from od_core.publication.bundle_files import CERTIFICATE
from od_core.records.open_file import refuse_table_log

_SOURCE = "source_file.json"
"""File in the confidential folder of a release, with the state and the digest of the file that its records are from."""


@dataclass(frozen=True)
class Arrival:
    """The state of the file of one period, without its content and size."""

    key: ReleaseKey
    waits: str | None
    """Reason why the release cannot run yet, in words; None if it can run."""
    changed: datetime.datetime | None
    """Time at which the file was last written, renamed or replaced; None if there is no file on this machine."""


def list_record_files(path: Path) -> list[Path]:
    """Return the files in and below a folder of records, in the order of their paths.

    If the path is no folder, or the folder has no file, return the path itself. Hidden files, and files that describe a
    Parquet data set, are left out. Of several links to one file, only the first is returned.

    Raises OdError if the files are of a table whose log would not be read (see
    :func:`od_core.records.open_file.refuse_table_log`), or another name begins with an underscore, as in a folder that
    Spark is writing.
    """
    names = sorted(glob.glob("**/*", root_dir=path, recursive=True))  # noqa: PTH207  # it follows links
    real_paths = {path / name: (path / name).resolve() for name in names}
    if os.path.lexists(path):
        refuse_table_log(path, *{place.parent for place in (*real_paths, *real_paths.values())})
    parts: dict[Path, Path] = {}
    for part, real in real_paths.items():
        if part.name.startswith("_") and part.name not in ("_SUCCESS", "_metadata", "_common_metadata"):
            message = f"{path.name} has {part.name}, so some of its files may be no records, or be incomplete"
            step = "wait until it is written, or move what is no record elsewhere"
            if part.name.startswith(("_committed_", "_started_")):  # other files of the folder may be replaced ones
                step = "read the folder with Databricks, and write the records elsewhere with another writer as files"
            raise OdError("OD-FILE-INCOMPLETE", message, next_step=step)
        if not part.name.startswith("_") and not part.is_dir():
            parts.setdefault(real, part)
    return [*parts.values()] or [path]


def check_arrival(series: Series[P, G], period: Period, moment: datetime.datetime | None = None) -> Arrival:
    """Return the state of the file of a period: whether it exists, is complete, and no longer changes.

    If the series declares a ``complete`` marker, the marker must exist. The file must not have changed for the declared
    time; both its modification time and its change time count, because a copy cannot set the change time back. A file
    for all periods contains a period if it was last written on a day after that period. Records that an engine reads
    elsewhere have always arrived, and so have those of a stored table.

    Args:
        period: a period that has ended.
        moment: time at which the state is checked; None for now.
    """
    moment = moment or datetime.datetime.now(datetime.UTC)
    key, file = series.key(period.text), series.locate_records_file(period.text)
    if not series.records_are_here or series.stored_table is not None:
        return Arrival(key, None, None)
    try:
        parts = list_record_files(file)
    except OdError as error:
        return Arrival(key, error.message, None)
    for part in parts:
        fault = find_file_fault(part)
        if fault is not None:
            return Arrival(key, fault, None)
    states = [part.stat() for part in parts]
    modified_last = max(state.st_mtime for state in states)
    changed_last = max(modified_last, *(state.st_ctime for state in states))
    modified = datetime.datetime.fromtimestamp(modified_last, datetime.UTC)
    changed = datetime.datetime.fromtimestamp(changed_last, datetime.UTC)
    marker = series.locate_marker_file(period.text)
    if marker is not None and not marker.is_file():
        return Arrival(key, f"{file.name} exists, but {marker.name} does not", changed)
    settled = 0 if series.arrivals is None else series.arrivals.settled_seconds
    if moment - changed < datetime.timedelta(seconds=settled):
        return Arrival(key, f"{file.name} changed less than {settled} seconds ago", changed)
    if not series.has_file_of_each and series.periods.convert_to_day(modified) < period.end:
        return Arrival(key, f"{file.name} was last written before {period} ended", changed)
    return Arrival(key, None, changed)


def describe_rerelease(series: Series[P, G], found: Arrival, published: ReleaseKey, folders: Folders) -> str | None:
    """Return a sentence on how to release a published period again, or None if there is no reason to do so.

    The reason is a newer declared revision, or a change of the content of the period's own file.
    A new release of a period is charged again, so it is always run by hand.

    Args:
        found: the present state of the period's file.
        published: key of the newest published release of the period.
    """
    if found.key.revision > published.revision:
        run = f"od-release run {series.stated_name} --period {published.period}"
        return f"{published} was published; {found.key} is charged again, so run it by hand: {run}"
    if found.changed is None:  # there is no file on this machine
        return None
    file = series.locate_records_file(found.key.period)
    may_hold_others = not series.has_file_of_each or file.is_dir()  # it also changes whenever a period is added
    if may_hold_others or not _was_changed_since(file, published, folders):
        return None
    step = f"release them as revision {published.revision + 1}, which is charged again"
    return f"the file of {published} was changed after it was read; if its records are corrected, {step}"


def _was_changed_since(file: Path, published: ReleaseKey, folders: Folders) -> bool:
    """Return whether a file differs from the one from which a published release was made.

    Of a release by an earlier version, which stored no digest, a file differs if it was written after publication.
    """
    source_file = folders.var / "confidential" / published.folder / _SOURCE
    if source_file.is_file():
        return _has_other_content(file, json.loads(source_file.read_text(encoding="utf-8")))
    certificate = folders.locate_bundle(published) / CERTIFICATE  # an earlier version of this software stored no state
    return certificate.is_file() and certificate.stat().st_mtime < file.stat().st_mtime


@contextmanager
def store_source_state(folder: Path, file: Path) -> Iterator[None]:
    """Store, in ``folder``, the state and the digest of a file after the body of this context has read it.

    :func:`describe_rerelease` compares them. If there is no file, the body must raise the error. Raises OdError if the
    file was changed during the context.
    """
    state = read_file_state(file) if file.is_file() else None
    yield
    facts = {"state": state, "digest": compute_file_digest(file)}
    if read_file_state(file) != state:
        raise make_changed_file_error(file)
    write_durably(folder / _SOURCE, lambda path: path.write_text(json.dumps(facts), encoding="utf-8"))


def make_changed_file_error(file: Path) -> OdError:
    """Return the OdError for a file, or a folder of files, that another program changed while it was read."""
    step = "wait until the file is complete, then run the release"
    return OdError("OD-FILE-INCOMPLETE", f"{file.name} was changed while it was read", next_step=step)


def _has_other_content(file: Path, stated: Mapping[str, Any]) -> bool:
    """Return whether the content of a file differs from the stated ``digest`` at the stated ``state``.

    The content is read only if the state has changed, but not the size, which is its first number.
    """
    state, stated_state = read_file_state(file), stated["state"]
    if state == stated_state:
        return False
    has_other_size = state[0] != stated_state[0]
    return has_other_size or _compute_digest_once(file, *state) != stated["digest"]


@lru_cache(maxsize=1024)
def _compute_digest_once(file: Path, *_state: int) -> str:
    """Return the digest of a file. ``_state`` is part of the key of the cache, so a changed file is read again."""
    return compute_file_digest(file)


def hold_to_marker(records: Path, marker: Path | None) -> None:
    """Check that the marker of a file of records exists, and that the file has the digest that the marker states.

    The lines of a marker are as ``sha256sum`` writes them, also with ``--tag``. A marker without a digest of this file
    states only that the file is complete. Without a declared marker (None), nothing is checked.

    Raises:
        OdError: the declared marker is missing, or the file has another digest.
    """
    if marker is None:
        return
    if not marker.is_file():
        message = f"{records.name} may be incomplete: there is no file {marker.name}"
        raise OdError("OD-FILE-INCOMPLETE", message, next_step="wait for that file, then run the release")
    text = marker.read_text(encoding="utf-8", errors="replace")
    # Make a line of the form "SHA256 (NAME) = DIGEST" one of the form "DIGEST  NAME", or of "DIGEST *NAME".
    text = re.sub(r"(?m)^SHA256 \((.*)\) = (\w+)$", r"\2  \1", text)
    digests = set()
    for line in text.splitlines():
        digest, _, name = line.partition(" ")
        is_of_records = Path(name.strip().removeprefix("*")).name == records.name  # whatever the folder
        if is_of_records and len(digest) == 64:  # hexadecimal digits of a SHA-256
            digests.add(digest.lower())
    if digests and records.is_file() and compute_file_digest(records) not in digests:
        message = f"{records.name} does not have the SHA-256 that {marker.name} states"
        raise OdError("OD-FILE-INCOMPLETE", message, next_step="copy the complete file again, then run the release")
