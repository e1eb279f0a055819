"""Whether the file of a period is there and whole, and what a file that came too late would take."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from od_assets.resources.warehouse import Warehouse
from od_assets.series.settings import SeriesSettings
from od_core.errors import OdError
from od_core.files.durable import absence, file_digest
from od_core.ledger.release_key import ReleaseKey
from od_core.periods import Period
from od_core.publication.bundle_integrity import CERTIFICATE

_DIGEST_LENGTH = 64
"""Hexadecimal digits of SHA-256."""


@dataclass(frozen=True)
class Arrival:
    """The file of one period, seen from outside: nothing of its content or size.

    Attributes:
        key: the release that it is for.
        waits: what is still waited for; None where the release may run.
        written: when the file was last written; None where there is none.
    """

    key: ReleaseKey
    waits: str | None
    written: datetime.datetime | None


def arrival(settings: SeriesSettings[Any, Any], period: Period, moment: datetime.datetime | None = None) -> Arrival:
    """Whether the records of a period have arrived: the file is there, whole, and no longer written to.

    It is whole once its ``complete`` marker is there, where the series declares one, and once it has not changed for
    the declared time, by the file system's own clock, which no copy sets back. One file for all periods holds a period
    once it is written to after that period's end.

    Args:
        settings: of the series.
        period: that has ended.
        moment: now, if left out.
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
        return Arrival(key, f"{file.name} is there, {marker.name} is not", written)
    changed = datetime.datetime.fromtimestamp(max(status.st_mtime, status.st_ctime), datetime.UTC)
    if moment - changed < datetime.timedelta(seconds=settings.settled_seconds):
        return Arrival(key, f"{file.name} changed less than {settings.settled_seconds} seconds ago", written)
    if not settings.has_file_of_each and settings.periods.day(written) < period.end:
        return Arrival(key, f"{file.name} was last written to before {period} had ended", written)
    return Arrival(key, None, written)


def correction(
    settings: SeriesSettings[Any, Any], found: Arrival, published: ReleaseKey, warehouse: Warehouse
) -> str | None:
    """What it takes to release a published period once more; None where nothing speaks for it.

    That is always done by hand: it is charged again. A file of several periods is written to whenever one of them
    comes, which says nothing of those before it.

    Args:
        settings: of the series.
        found: the file of the period.
        published: its newest release.
        warehouse: where it is public.
    """
    if found.key.revision > published.revision:
        return (
            f"{published} is published; {found.key}, which is charged again, is run by hand:"
            f" od-release run {published.release} --period {published.period}"
        )
    certificate = warehouse.bundle(published) / CERTIFICATE
    if found.written is None or not settings.has_file_of_each or not certificate.is_file():
        return None
    if found.written <= datetime.datetime.fromtimestamp(certificate.stat().st_mtime, datetime.UTC):
        return None
    return (
        f"the file of {published} was written after its publication: where its records are corrected, they take"
        f" revision {published.revision + 1}, which is charged again"
    )


def hold_to_marker(records: Path, marker: Path | None) -> None:
    """Refuse records that are not those whose SHA-256 the marker states, as ``sha256sum`` writes it.

    A marker that names no digest of this file says that it is whole, and nothing of its content.

    Raises:
        OdError: there is no such marker, or the file has another digest.
    """
    if marker is None:
        return
    if not marker.is_file():
        raise OdError(
            "OD-FILE-INCOMPLETE",
            f"{records.name} is not said to be whole: there is no file {marker.name}",
            next_step="wait for it; the release runs once it is there",
        )
    for line in marker.read_text(encoding="utf-8", errors="replace").splitlines():
        digest, _, name = line.partition(" ")
        if len(digest) == _DIGEST_LENGTH and name.strip().removeprefix("*") == records.name:
            if records.is_file() and file_digest(records) != digest.lower():
                raise OdError(
                    "OD-FILE-INCOMPLETE",
                    f"{records.name} is not the file whose SHA-256 {marker.name} states",
                    next_step="copy the file again, whole, then run the release",
                )
            return
