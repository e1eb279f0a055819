"""Check that the file of a period exists and is complete, and report files that changed after publication."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from od_assets.resources.folders import Folders
from od_assets.series.settings import SeriesSettings
from od_core.errors import OdError
from od_core.files.durable import absence, file_digest
from od_core.ledger.release_key import ReleaseKey
from od_core.periods import Period
from od_core.publication.bundle_integrity import CERTIFICATE

_DIGEST_LENGTH = 64
"""Number of hexadecimal digits of a SHA-256 digest."""


@dataclass(frozen=True)
class Arrival:
    """The state of the file of one period, without its content and size.

    Attributes:
        key: key of the period's release.
        waits: reason why the release cannot run yet, in words; None if it can run.
        written: time at which the file was last written; None if there is no file on this machine.
    """

    key: ReleaseKey
    waits: str | None
    written: datetime.datetime | None


def arrival(settings: SeriesSettings[Any, Any], period: Period, moment: datetime.datetime | None = None) -> Arrival:
    """Return the state of the file of a period: whether it exists, is complete, and no longer changes.

    If the series declares a ``complete`` marker, the marker must exist. The file must not have changed for the declared
    time; both its modification time and its change time count, because a copy cannot set the change time back. A file
    for all periods contains a period if it was last written on a day after that period. Records that an engine reads
    elsewhere have always arrived.

    Args:
        settings: settings of the series.
        period: a period that has ended.
        moment: the current time; None for now.
    """
    moment = moment or datetime.datetime.now(datetime.UTC)
    key, file = settings.key(period.text), settings.records_path(period.text)
    if not settings.records_are_here:
        return Arrival(key, None, None)
    if (absent := absence(file)) is not None:
        return Arrival(key, absent, None)
    status = file.stat()
    written = datetime.datetime.fromtimestamp(status.st_mtime, datetime.UTC)
    marker = settings.marker_path(period.text)
    if marker is not None and not marker.is_file():
        return Arrival(key, f"{file.name} exists, but {marker.name} does not", written)
    changed = datetime.datetime.fromtimestamp(max(status.st_mtime, status.st_ctime), datetime.UTC)
    if moment - changed < datetime.timedelta(seconds=settings.settled_seconds):
        return Arrival(key, f"{file.name} changed less than {settings.settled_seconds} seconds ago", written)
    if not settings.has_file_of_each and settings.periods.day(written) < period.end:
        return Arrival(key, f"{file.name} was last written before {period} ended", written)
    return Arrival(key, None, written)


def correction(
    settings: SeriesSettings[Any, Any], found: Arrival, published: ReleaseKey, folders: Folders
) -> str | None:
    """Return a sentence on how to release a published period again, or None if there is no reason to release it again.

    A new release of a period is charged again, so it is always run by hand. A file with several periods changes
    whenever a period is added, so its change is no reason.

    Args:
        settings: settings of the series.
        found: state of the file of the period.
        published: key of the newest release of the period.
        folders: the folders with the public bundles.
    """
    if found.key.revision > published.revision:
        return (
            f"{published} is published; {found.key} is charged again, so run it by hand:"
            f" od-release run {published.release} --period {published.period}"
        )
    certificate = folders.bundle(published) / CERTIFICATE
    if found.written is None or not settings.has_file_of_each or not certificate.is_file():
        return None
    if found.written <= datetime.datetime.fromtimestamp(certificate.stat().st_mtime, datetime.UTC):
        return None
    return (
        f"the file of {published} was written after its publication; if its records are corrected, release"
        f" them as revision {published.revision + 1}, which is charged again"
    )


def hold_to_marker(records: Path, marker: Path | None) -> None:
    """Check a file of records against its marker, a file with the SHA-256 as ``sha256sum`` writes it.

    A marker without a digest of this file states only that the file is complete.

    Raises:
        OdError: the declared marker is missing, or the file has another digest.
    """
    if marker is None:
        return
    if not marker.is_file():
        raise OdError(
            "OD-FILE-INCOMPLETE",
            f"{records.name} may be incomplete: there is no file {marker.name}",
            next_step="wait for that file, then run the release",
        )
    for line in marker.read_text(encoding="utf-8", errors="replace").splitlines():
        digest, _, name = line.partition(" ")
        if len(digest) == _DIGEST_LENGTH and name.strip().removeprefix("*") == records.name:
            if records.is_file() and file_digest(records) != digest.lower():
                raise OdError(
                    "OD-FILE-INCOMPLETE",
                    f"{records.name} does not have the SHA-256 that {marker.name} states",
                    next_step="copy the complete file again, then run the release",
                )
            return
