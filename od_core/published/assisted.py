"""Publish model-assisted estimates of a published release of flows, which learn from the releases before it."""

from __future__ import annotations

from pathlib import Path

from od_core.flows.assisted_flows import MOST
from od_core.flows.publishing.assisted_kind import ASSISTED
from od_core.ledger.release_key import ReleaseKey
from od_core.periods import Period
from od_core.published.derived import PublishedFlows, newest_revisions, publish_derived


def releases_before(releases: Path, key: ReleaseKey, most: int = MOST - 1) -> list[ReleaseKey]:
    """Return the published releases of a series before one of them, in their newest revisions, by their periods.

    Args:
        releases: folder of all public bundles.
        key: the release.
        most: largest number of releases; the latest are returned.

    Raises:
        OdError: no release of the series is published, or two of them overlap.
    """
    begin = Period(key.period).first
    before = [one for one in newest_revisions(releases, key.release) if Period(one.period).end <= begin]
    return ASSISTED.in_sequence(before, None)[-most:] if before and most else []


def publish_assisted(releases: Path, key: ReleaseKey, most: int = MOST - 1) -> PublishedFlows:
    """Publish model-assisted estimates of a release as a bundle, or return them if they are published already.

    They learn from the published releases of the same series before it. If another one is published later, or a new
    revision of one of them, the estimates from these are the next revision; nothing that is published changes.

    Args:
        releases: folder of all public bundles.
        key: the release.
        most: largest number of earlier releases to learn from.

    Raises:
        OdError: as in :func:`releases_before` and :func:`od_core.published.derived.publish_derived`.
    """
    return publish_derived(ASSISTED, releases, [*releases_before(releases, key, most), key], key.period)
