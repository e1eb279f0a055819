"""Publish sums of published releases of flows, such as a year from its months."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

from od_core.flows.flow_sum import LEAST, too_few
from od_core.flows.publishing.sum_kind import SUMS
from od_core.ledger.release_key import ReleaseKey
from od_core.periods import Period
from od_core.published.derived import PublishedFlows, newest_revisions, publish_derived


def newest_releases(releases: Path, series: str, period: Period) -> list[ReleaseKey]:
    """Return the newest revision of each published release of a series within a period, by their periods.

    Args:
        releases: folder of all public bundles.
        series: name of the series.
        period: period that the releases must fill exactly.

    Raises:
        OdError: a part of the period has no published release, or two releases overlap.
    """
    spans = {key: Period(key.period) for key in newest_revisions(releases, series)}
    inside = [key for key, span in spans.items() if period.first <= span.first and span.end <= period.end]
    return SUMS.in_sequence(inside, period.text)


def publish_sum(releases: Path, keys: Sequence[ReleaseKey], period: str | None = None) -> PublishedFlows:
    """Publish the sum of releases of flows as a bundle, or return it if it is published already.

    Args:
        releases: folder of all public bundles.
        keys: the releases; their periods must follow each other.
        period: period of the sum; by default the span from the first to the last day of the releases.

    Raises:
        OdError: the periods overlap or leave a gap, or as in :func:`od_core.published.derived.publish_derived`.
    """
    if len(keys) < LEAST:
        raise too_few()
    keys = SUMS.in_sequence(keys, period)
    return publish_derived(SUMS, releases, keys, period or _spanned(keys))


def _spanned(keys: Sequence[ReleaseKey]) -> str:
    """Return the period from the first to the last of consecutive periods, as text."""
    first, last = Period(keys[0].period), Period(keys[-1].period)
    if first.length is not None and all(Period(key.period).length == first.length for key in keys):
        return f"{first.text}--{last.text}"
    return f"{first.first}--{last.end - datetime.timedelta(days=1)}"
