"""Publish sums of releases and model-assisted flows.

Derived flows of the series ``us_flights`` are published as releases of a series of their own, such as
``us_flights_sum``. The ledger does not know them, because they cost nothing.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from od_core.errors import OdError
from od_core.files.durable import lock_file
from od_core.flows.derived_flows import (
    MAX_ASSISTED_RELEASES,
    MIN_SUMMED_RELEASES,
    D,
    DerivedFlows,
    make_few_releases_error,
)
from od_core.flows.publishing.derived_kind import (
    ASSISTED,
    SUMS,
    DerivedKind,
    Source,
    index_releases_by_name,
    make_derived_certificate,
    open_published_source,
)
from od_core.flows.publishing.read_bundle import ReleaseRequest
from od_core.ledger.release_key import ReleaseKey, select_earlier_releases
from od_core.periods import Period
from od_core.publication.bundle import publish_folder, restore_folder, write_bundle
from od_core.publication.certificate import Certificate
from od_core.publication.comparability import check_comparability
from od_core.publication.read_back import (
    make_absent_release_error,
    make_missing_bundles_error,
    read_bundle_certificate,
    read_withdrawals,
    refuse_withdrawn,
)
from od_core.published.opening import find_bundle_folders, find_bundle_zips, open_bundle_folder

_LOCK_SECONDS = 60.0


@dataclass(frozen=True, eq=False)
class PublishedFlows:
    """Published derived flows.

    Attributes:
        key: key under which they are published.
        folder: folder of their bundle.
        flows: the flows.
        certificate: certificate in the folder.
        is_new: whether they were published by this call; otherwise, the bundle was there already.
    """

    key: ReleaseKey
    folder: Path
    flows: DerivedFlows
    certificate: Certificate
    is_new: bool


def publish_derived(kind: DerivedKind[D], releases: Path, keys: Sequence[ReleaseKey], period: str) -> PublishedFlows:
    """Publish flows that are derived from releases as a bundle, or return them if they are published already.

    Flows from the same releases, with the same certificates, keep their revision. Others, such as those after a new
    revision of a month, are the next revision.

    Args:
        kind: kind of derived flows.
        releases: folder of all public bundles.
        keys: releases of one series from which to derive, in the order of :meth:`DerivedKind.sort_releases`.
        period: text of the period of the flows.

    Raises:
        OdError: a release is of another series, not published, withdrawn, damaged or not of flows; the flows cannot be
            derived from these releases; the name of their series is taken by another one; another process publishes
            flows of this series; or the bundle cannot be written.
    """
    if len({key.release for key in keys}) > 1:
        message = f"the releases are of several series: {', '.join(sorted({key.release for key in keys}))}"
        raise OdError("OD-DERIVED-SERIES", message, next_step="name releases of one series")
    sources = [read_published_release(releases, key) for key in keys]
    if len({source.certificate["data_set"] for source in sources}) > 1:
        message = "the releases are charged to different data sets"
        raise OdError("OD-DERIVED-OTHER", message, next_step="name releases of one data set")
    name = f"{keys[0].release}_{kind.name}"
    busy = OdError("OD-DERIVED-LOCKED", f"another process publishes {name}", next_step="try again when it has finished")
    with lock_file(releases / f".{name}.lock", busy, seconds=_LOCK_SECONDS):
        key = _choose_release_key(kind, releases, ReleaseKey(name, period), [source.facts() for source in sources])
        folder = releases / key.folder
        restore_folder(folder, str(key))
        published = read_bundle_certificate(folder) if folder.exists() else None
        release_by_name = index_releases_by_name(sources)
        if published is None:
            flows = kind.derive_flows(release_by_name)
        else:
            flows = kind.derive_by_stated_rule(release_by_name, published)
        _refuse_different_records(flows, [source.certificate for source in sources if source.release in flows.parts])
        certificate = make_derived_certificate(kind, key, flows, sources, None if published is None else folder)
        render_report = partial(kind.render_report, flows)
        with publish_folder(lambda place: write_bundle(kind, flows, certificate, render_report, place), folder):
            refuse_withdrawn(releases, *keys)  # a release may have been withdrawn while the files were written
    return PublishedFlows(key, folder, flows, certificate, is_new=published is None)


def _refuse_different_records(flows: DerivedFlows, certificates: Sequence[Certificate]) -> None:
    """Raise OdError if the certificates of the releases that derived flows follow from state different records.

    ``certificates`` are those of these releases, at least one.
    """
    first, *others = certificates
    breakdowns = [breakdown.name for breakdown in flows.breakdowns]
    period = first["period"]  # the periods of a sum may have any lengths
    differing: dict[str, None] = {}  # in the order of the certificates, each once
    for other in others:
        differing |= dict.fromkeys(check_comparability(first, {**other, "period": period}, breakdowns).differing)
    if differing:
        raise OdError(
            "OD-DERIVED-OTHER",
            f"the releases have different {' and different '.join(differing)}, as their certificates state",
            next_step="name releases that count one column and one selection of records, in the same categories",
        )


def read_published_release(releases: Path, key: ReleaseKey) -> Source:
    """Return a published release of flows. Raises OdError if there is none, or it is withdrawn or damaged."""
    refuse_withdrawn(releases, key)
    if not (releases / key.folder).is_dir():
        if key in find_bundle_zips(releases):
            raise make_missing_bundles_error([key])
        raise _make_unpublished_error(f"{key} is not published here", releases)
    return open_published_source(releases, key)


def find_newest_revisions(releases: Path, series: str) -> list[ReleaseKey]:
    """Return the key of the newest revision of each published period of a series, sorted by the text of the period.

    A release of which only the zip file is there counts as published: without it, other releases would be chosen.
    Raises OdError if no release of the series is published.
    """
    keys = sorted({*find_bundle_folders(releases), *find_bundle_zips(releases)})
    newest = {key.period: key for key in keys if key.release == series}
    if not newest:
        raise _make_unpublished_error(f"no release of {series} is published here", releases)
    return list(newest.values())


def find_release_key(releases: Path, name: str, period: str | None = None) -> ReleaseKey:
    """Return the release that a user names: by its key, or the newest revision of a release of a series.

    Args:
        releases: folder of all public bundles.
        name: key of a release, such as us_flights/2001-06/r1, or name of a series.
        period: with a series, the period; by default the last one that is published.

    Raises:
        OdError: the key has another form or another period, or no such release of the series is published.
    """
    request = ReleaseRequest.parse(name, period, None)
    if request.revision is not None:
        return ReleaseKey.parse(name)
    matching = [key for key in find_newest_revisions(releases, name) if period is None or key.period == period]
    if not matching:
        raise _make_unpublished_error(f"no release of {name} for {period} is published here", releases)
    return max(matching, key=lambda key: (Period(key.period).end, key.revision))


def _make_unpublished_error(message: str, releases: Path) -> OdError:
    """Return the OdError for releases that are not published, with a list of those that are."""
    published = ", ".join(map(str, find_bundle_folders(releases))) or "none"
    return make_absent_release_error(f"{message}; published releases: {published}", "name published releases")


def _choose_release_key(
    kind: DerivedKind[D], releases: Path, first: ReleaseKey, sources: list[dict[str, object]]
) -> ReleaseKey:
    """Return the key of the published flows from the same releases or, if there are none, of the next revision.

    The next revision is one that no flows have had, not even flows that were withdrawn, or of which only the zip file
    is there.

    Args:
        kind: kind of the derived flows.
        releases: folder of all public bundles.
        first: key of the first revision.
        sources: facts of the releases, as the certificate of the flows states them.

    Raises:
        OdError: a release of the series is not of this kind, or a bundle cannot be opened.
    """
    newest = 0
    for key in read_withdrawals(releases):
        if (key.release, key.period) == (first.release, first.period):
            newest = max(newest, key.revision)
    for key, place in sorted((find_bundle_zips(releases) | find_bundle_folders(releases)).items()):
        if key.release != first.release:
            continue
        with open_bundle_folder(place) as folder:
            certificate = read_bundle_certificate(folder)
        if certificate.get("format") != kind.format:
            message = f"{key} is a release of a declared series, whose name derived flows need"
            raise OdError("OD-DERIVED-NAME", message, next_step=f"rename the declared series {key.release}")
        if key.period == first.period:
            if certificate.get("sources") == sources:
                return key
            newest = max(newest, key.revision)
    return ReleaseKey(first.release, first.period, newest + 1)


def find_newest_in_period(releases: Path, series: str, period: Period) -> list[ReleaseKey]:
    """Return the newest revisions of a series whose periods fill a period, sorted by period.

    Raises OdError if they do not fill it; if a release that is missing was withdrawn, the error says so.
    """

    def select_inside_period(keys: Iterable[ReleaseKey]) -> list[ReleaseKey]:
        """Return those keys that are of the series and lie within the period."""
        spans = {key: Period(key.period) for key in keys if key.release == series}
        return [key for key, span in spans.items() if period.first <= span.first and span.end <= period.end]

    chosen = select_inside_period(find_newest_revisions(releases, series))
    try:
        return SUMS.sort_releases(chosen, period.text)
    except OdError:
        covered = {key.period for key in chosen}
        withdrawn = select_inside_period(read_withdrawals(releases))
        refuse_withdrawn(releases, *(key for key in withdrawn if key.period not in covered))
        raise


def publish_sum(releases: Path, keys: Sequence[ReleaseKey], period: str | None = None) -> PublishedFlows:
    """Publish the sum of releases of flows as a bundle, or return it if it is published already.

    The periods of the releases must follow each other. ``period`` is that of the sum; None stands for their whole span.
    Raises OdError if there are fewer than ``MIN_SUMMED_RELEASES`` releases, the periods overlap or leave a gap, or as
    in :func:`publish_derived`.
    """
    if len(keys) < MIN_SUMMED_RELEASES:
        raise make_few_releases_error()
    keys = SUMS.sort_releases(keys, period)
    if period is None:
        spans = [Period(key.period) for key in keys]
        period = f"{spans[0].first}--{spans[-1].end - datetime.timedelta(days=1)}"
        if spans[0].length is not None and len({span.length for span in spans}) == 1:
            period = f"{spans[0].text}--{spans[-1].text}"
    return publish_derived(SUMS, releases, keys, period)


def find_earlier_releases(
    releases: Path, key: ReleaseKey, max_releases: int = MAX_ASSISTED_RELEASES - 1
) -> list[ReleaseKey]:
    """Return the latest published releases of the series before the release ``key``, sorted by period.

    They are in their newest revisions. At most ``max_releases`` are returned, and only those after the last release
    with other areas than ``key`` has. Raises OdError if no release of the series is published, two of them overlap,
    or a certificate cannot be read.
    """
    earlier = select_earlier_releases(key, find_newest_revisions(releases, key.release))
    latest = ASSISTED.sort_releases(earlier, None)[-max_releases:] if earlier and max_releases else []
    areas = _read_area_digests(releases, key) if latest else None
    for position in reversed(range(len(latest))):
        if _read_area_digests(releases, latest[position]) not in (None, areas):
            return latest[position + 1 :]
    return latest


def _read_area_digests(releases: Path, key: ReleaseKey) -> object:
    """Return the digests of the areas of a release, as its certificate states them.

    Return None if its folder is missing or it is not of flows: such a release is refused when it is opened.
    """
    folder = releases / key.folder
    return read_bundle_certificate(folder).get("geographies") if folder.is_dir() else None


def publish_assisted(releases: Path, key: ReleaseKey, max_releases: int = MAX_ASSISTED_RELEASES - 1) -> PublishedFlows:
    """Publish model-assisted estimates of a release as a bundle, or return them if they are published already.

    The estimates learn from at most ``max_releases`` published releases of the same series before this one, with the
    same areas. If other earlier releases are published later, the estimates from those are the next revision, and
    nothing that is published changes. Raises OdError as in :func:`find_earlier_releases` and :func:`publish_derived`.
    """
    return publish_derived(ASSISTED, releases, [*find_earlier_releases(releases, key, max_releases), key], key.period)
