"""Publish sums of published releases of flows, and read them back. Only public bundles are read.

A sum of releases of the series ``us_flights`` is published as a release of the series ``us_flights_sum``, whose period
spans the periods of the releases. The ledger does not know it, because it costs nothing.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

from od_core.errors import OdError
from od_core.files.durable import make_folder
from od_core.files.lock import locked
from od_core.flows.flow_sum import LEAST, FlowSum, too_few
from od_core.flows.publishing.sum_certificate import sum_certificate
from od_core.flows.publishing.sum_kind import SUMS
from od_core.flows.publishing.sum_sources import SUM_FORMAT, published_source, summed
from od_core.ledger.release_key import ReleaseKey
from od_core.periods import Length, Period, following
from od_core.publication.bundle import staged_folder, write_bundle
from od_core.publication.read_back import certificate_of
from od_core.published.opening import published_bundles

SUFFIX = "_sum"
"""End of the series name of sums."""

_NAMED = 3
"""Largest number of periods that a message names."""

_LOCK_SECONDS = 60.0


@dataclass(frozen=True, eq=False)
class PublishedSum:
    """A published sum.

    Attributes:
        key: series, period and revision of the sum.
        folder: its bundle.
        total: the sum.
        certificate: its certificate.
        is_new: whether it was published by this call; otherwise, the bundle was there already.
    """

    key: ReleaseKey
    folder: Path
    total: FlowSum
    certificate: dict[str, Any]
    is_new: bool


def newest_releases(releases: Path, series: str, period: Period) -> list[ReleaseKey]:
    """Return the newest revision of each published release of a series within a period, by their periods.

    Args:
        releases: folder of all public bundles.
        series: name of the series.
        period: period that the releases must fill exactly.

    Raises:
        OdError: a part of the period has no published release, or two releases overlap.
    """
    newest = {key.period: key for key in published_bundles(releases) if key.release == series}
    if not newest:
        raise _absent(f"no release of {series} is published here", releases)
    spans = {key: Period(key.period) for key in newest.values()}
    inside = [key for key, span in spans.items() if period.first <= span.first and span.end <= period.end]
    return in_sequence(inside, period)


def publish_sum(releases: Path, keys: Sequence[ReleaseKey], period: str | None = None) -> PublishedSum:
    """Publish the sum of releases of flows as a bundle, or return it if it is published already.

    A sum of the same releases, with the same certificates, keeps its revision. Another one, such as the sum after a new
    revision of a month, is the next revision.

    Args:
        releases: folder of all public bundles.
        keys: the releases; their periods must follow each other.
        period: period of the sum; by default the span from the first to the last day of the releases.

    Raises:
        OdError: the periods overlap or leave a gap; a release is not published, damaged or not of flows; the releases
            cannot be summed (:func:`od_core.flows.flow_sum.sum_releases`); the name of the sums is taken by another
            series; or the bundle cannot be written.
    """
    if len(keys) < LEAST:
        raise too_few()
    keys = in_sequence(list(keys), None if period is None else Period(period))
    if len({key.release for key in keys}) > 1:
        raise OdError(
            "OD-SUM-SERIES",
            f"the releases are of several series: {', '.join(sorted({key.release for key in keys}))}",
            next_step="sum releases of one series",
        )
    for key in keys:
        if not (releases / key.folder).is_dir():
            raise _absent(f"{key} is not published here", releases)
    sources = [published_source(releases, key) for key in keys]
    if len({source.certificate["data_set"] for source in sources}) > 1:
        raise OdError(
            "OD-SUM-OTHER", "the releases are charged to different data sets", next_step="sum releases of one data set"
        )
    total = summed(sources)
    name, spanned = f"{keys[0].release}{SUFFIX}", period or _spanned(keys)
    make_folder(releases)
    with locked(releases / f".{name}.lock", _held(name), seconds=_LOCK_SECONDS):
        key = _revision(releases, ReleaseKey(name, spanned), [source.facts() for source in sources])
        certificate, folder = sum_certificate(key, total, sources), releases / key.folder
        is_new = not folder.exists()
        report = SUMS.report(total, certificate)
        with staged_folder(lambda place: write_bundle(SUMS, total, certificate, report, place), folder):
            pass
    return PublishedSum(key, folder, total, certificate, is_new)


def in_sequence(keys: list[ReleaseKey], period: Period | None) -> list[ReleaseKey]:
    """Return keys in the order of their periods, which must follow each other and fill ``period`` if it is given.

    Raises:
        OdError: two periods overlap, or a part of the period has no release.
    """
    spans = sorted(((Period(key.period), key) for key in keys), key=lambda one: (one[0].first, one[0].end, one[1]))
    for (one, earlier), (other, later) in pairwise(spans):
        if other.first < one.end:
            raise OdError(
                "OD-SUM-OVERLAP",
                f"{earlier} and {later} cover the same days, which would be counted twice",
                next_step="name one release for each period",
            )
    length = spans[0][0].length if spans else None
    first, end = (period.first, period.end) if period else (spans[0][0].first, spans[-1][0].end)
    ends, begins = [first, *(span.end for span, _ in spans)], [*(span.first for span, _ in spans), end]
    gaps = [(begin, until) for begin, until in zip(ends, begins, strict=True) if begin < until]
    missing = [text for begin, until in gaps for text in _named(begin, until, length)]
    if missing:
        raise OdError(
            "OD-SUM-PERIOD",
            f"no release is published for {', '.join(missing[:_NAMED])}"
            f"{f' and {len(missing) - _NAMED} more periods' if len(missing) > _NAMED else ''}",
            next_step="release the missing periods, or choose periods that are published and follow each other",
        )
    return [key for _, key in spans]


def _named(begin: datetime.date, until: datetime.date, length: Length | None) -> Iterator[str]:
    """Yield the periods between two days: by the given length if it fits, and otherwise as one span of days."""
    if length is not None:
        parts = list(takewhile(lambda part: part.first < until, following(begin, length)))
        if parts[0].first == begin and parts[-1].end == until:
            yield from (part.text for part in parts)
            return
    last = until - datetime.timedelta(days=1)
    yield begin.isoformat() if begin == last else f"{begin}--{last}"


def _spanned(keys: Sequence[ReleaseKey]) -> str:
    """Return the period from the first to the last of consecutive periods, as text."""
    first, last = Period(keys[0].period), Period(keys[-1].period)
    if first.length is not None and all(Period(key.period).length == first.length for key in keys):
        return f"{first.text}--{last.text}"
    return f"{first.first}--{last.end - datetime.timedelta(days=1)}"


def _revision(releases: Path, first: ReleaseKey, sources: list[dict[str, Any]]) -> ReleaseKey:
    """Return the key of the published sum of the same releases or, if there is none, of the next revision.

    Raises:
        OdError: a certificate of an earlier revision cannot be read, or is not that of a sum.
    """
    newest = 0
    for key, folder in published_bundles(releases).items():
        if key.release != first.release:
            continue
        stated = certificate_of(folder)
        if stated.get("format") != SUM_FORMAT:
            raise OdError(
                "OD-SUM-NAME",
                f"{key} is a release of a declared series, whose name is that of the sums",
                next_step=f"rename the declared series {key.release}",
            )
        if key.period == first.period:
            if stated.get("sources") == sources:
                return key
            newest = key.revision
    return ReleaseKey(first.release, first.period, newest + 1)


def _absent(message: str, releases: Path) -> OdError:
    published = ", ".join(map(str, published_bundles(releases))) or "none"
    return OdError(
        "OD-RELEASE-ABSENT", f"{message}; published releases: {published}", next_step="name published releases"
    )


def _held(name: str) -> OdError:
    return OdError("OD-SUM-LOCKED", f"another process publishes {name}", next_step="try again when it has finished")
