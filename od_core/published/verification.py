"""Verify that a published release follows from its measurements and agrees with the ledger, or repair it.

All steps after the measurements are deterministic, so they are repeated: the tables are estimated and all files are
written again, and compared byte by byte with the published files; where another version worded them differently, by
their numbers and checksums. Verification needs no record, no true count and no key. See
``docs/explanation/assurance.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np

from od_core.errors import OdError
from od_core.flows.derived_flows import D
from od_core.flows.publishing.derived_kind import (
    DerivedKind,
    Source,
    index_releases_by_name,
    make_derived_certificate,
    open_published_sources,
)
from od_core.ledger.balance import Balance
from od_core.ledger.measurements import DurableMeasurements, NoisyVector
from od_core.privacy.plan import PlannedRelease, Step
from od_core.publication.bundle import list_bundle_tables, write_bundle
from od_core.publication.bundle_differences import list_differing_files, reword_as_published
from od_core.publication.bundle_files import CERTIFICATE, check_bundle, is_zip_sound, locate_zip
from od_core.publication.certificate import (
    Certificate,
    CheckResult,
    compute_certificate_digest,
    has_intervals,
    list_failed_checks,
    read_certificate,
    read_publisher_texts,
)
from od_core.publication.certify import build_certificate, read_release_context
from od_core.publication.file_formats import check_file_rows
from od_core.publication.kind import BundleKind, Examination, Kind, R, ReleaseContext, T
from od_core.publication.read_back import REPAIR, has_lost_areas, read_bundle_certificate, refuse_newer_bundle
from od_core.published.opening import KINDS, find_bundle_kind, open_bundle_folder
from od_core.published.publishing import Published, publish_files

INCOMPLETE = "OD-BUNDLE-INCOMPLETE"
"""Error code that begins a line on a file that was published without rows or columns of its table."""

_REPUBLISH_STEP = (
    f"use flows.parquet instead of the files without rows; {REPAIR}; then publish every copy of the bundle again"
)
"""Next step for a bundle that was published with files that lack rows."""


@dataclass(frozen=True)
class Finding:
    """The outcome of one part of a verification, such as ``files`` or ``ledger``.

    Attributes:
        fault: one line that describes the faults of the part, or None if it has no fault.
        next_step: one line that tells how to repair the part, or None if there is no fault or no known repair.

    Examples:
        >>> [finding for finding in verify_release(published) if finding.fault is not None]
        []
    """

    part: str
    fault: str | None
    next_step: str | None = None


def verify_release(published: Published) -> list[Finding]:
    """Verify a published release, and return one finding for each part. No file is changed, and no noise is drawn.

    If the bundle cannot be opened, the only findings are those on its files and on this error.

    Examples:
        >>> [finding.part for finding in verify_release(published)]
        ['files', 'flows', 'invariants', 'bundle', 'measurements', 'ledger', 'database']
    """
    faults = _run_examination(lambda: check_bundle(published.bundle))
    files = Finding("files", faults, None if faults is None else REPAIR)
    part = "bundle"  # the part of a finding if the bundle or its sources cannot be opened
    try:
        certificate = read_certificate(published.bundle / CERTIFICATE)
        kind: Any = find_bundle_kind(certificate)
        refuse_newer_bundle(certificate)
        if kind.is_derived:
            part = "sources"
            sources = open_published_sources(published.bundle, certificate)
            examinations: dict[str, Examination] = {
                "sources": lambda: iter(()),
                "bundle": lambda: _compare_derived_bundle(kind, published, sources, certificate),
            }
        else:
            public = kind.open(published.bundle)
            recomputed, own_examinations = kind.recompute_release(public, certificate)
            examinations = {
                **own_examinations,
                "bundle": lambda: _compare_measured_bundle(published, kind, recomputed, certificate),
                "measurements": lambda: _check_measurements(published, kind.list_measurements(public)),
                "ledger": lambda: _check_ledger(published, public, certificate),
                "database": lambda: kind.find_differences(published.database, public, published.key, certificate),
            }
    except Exception as error:  # noqa: BLE001  # every error that a damaged file causes is a finding
        return [files, Finding(part, _format_error(error))]
    findings = [files]
    for name, examine in examinations.items():
        fault = _run_examination(examine)
        findings.append(Finding(name, fault, _REPUBLISH_STEP if fault is not None and INCOMPLETE in fault else None))
    return findings


def _compare_derived_bundle(
    kind: DerivedKind[D], published: Published, sources: Sequence[Source], stated: Certificate
) -> Iterator[str]:
    """Yield one line for each file of a bundle of derived flows that differs from the one that its releases give.

    ``sources`` are these releases, and ``stated`` is the certificate in the bundle. The order of the releases counts.
    """
    keys = [source.key for source in sources]
    if kind.sort_releases(keys, published.key.period) != keys:
        yield "its releases are not in the order of their periods"
    flows = kind.derive_by_stated_rule(index_releases_by_name(sources), stated)
    facts = make_derived_certificate(kind, published.key, flows, sources, published.bundle)
    yield from _compare_bundle_files(
        published, kind, flows, facts, partial(kind.render_report, flows), "the bundles of the releases give"
    )


def _run_examination(examine: Examination) -> str | None:
    """Return all faults that an examination finds, or the exception that it raises, in one line; None for no fault."""
    try:
        return "; ".join(examine()) or None
    except Exception as error:  # noqa: BLE001  # every error that a damaged file causes is a finding
        return _format_error(error)


def _format_error(error: Exception) -> str:
    """Return an error as the fault of a file, in one line. The text of an error of other software is left out."""
    return str(error) if isinstance(error, OdError) else f"missing or unreadable ({type(error).__name__})"


def _compare_measured_bundle(published: Published, kind: Kind[R], recomputed: R, stated: Certificate) -> Iterator[str]:
    """Yield one line for failed checks, and one for each file that differs from what measurements and ledger give.

    ``recomputed`` is the release computed again, and ``stated`` the certificate in the bundle.
    """
    if list_failed_checks(stated["checks"]):
        yield "a check failed before publication"
    release, facts, context = _certify_again(published, kind, recomputed, stated, published.bundle)
    render_report = partial(kind.render_report, release, context=context)
    source = "the measurements and the ledger give"
    yield from _compare_bundle_files(published, kind, release, facts, render_report, source, context.balance)


def _certify_again(
    published: Published, kind: Kind[R], recomputed: R, stated: Certificate, bundle: Path
) -> tuple[R, Certificate, ReleaseContext[R]]:
    """Return a recomputed release with its charges from the ledger, its certificate made again, and its context.

    The certificate has the wording of the published one in the folder ``bundle``.
    """
    ledger, key = published.ledger, published.key
    checks = []
    for stated_check in map(dict, stated["checks"]):
        names = [name for name in CheckResult.__annotations__ if name in stated_check]  # in the order of publication
        checks.append(cast("CheckResult", {name: stated_check[name] for name in names}))
    release = replace(
        recomputed, spent=ledger.compute_spent_budget(key, recomputed.plan), noise=ledger.read_noise_backends(key)
    )
    facts = build_certificate(
        kind,
        release,
        key,
        stated["data_set"],
        checks,
        record=ledger.record(key),
        records=stated["records"],
        about=read_publisher_texts(stated),
        formats=stated.get("formats", ()),
        intervals=has_intervals(stated),
    )
    facts = reword_as_published(facts, bundle, ledger.read_publication(key).get("certificate"))
    return release, facts, read_release_context(kind, ledger, key, stated["data_set"], published.releases)


def repair_release(published: Published) -> Certificate | None:
    """Make the missing or damaged files of a published release again, in its bundle, its zip file and the database.

    They follow from the release's own certificate and measurements, and from the tables in the folder or, if those are
    damaged, in the zip file. Nothing is drawn or charged. No declaration is read, because it may have changed since.

    Return the certificate in the public folder; None if neither folder nor zip file has what was published. Raises
    OdError as :func:`od_core.published.publishing.publish_files`, or if the ledger or a measurement is damaged.
    """
    places = [published.bundle]
    zip_file = locate_zip(published.bundle)
    if is_zip_sound(str(published.key), zip_file):
        places.append(zip_file)
    for place in places:
        with open_bundle_folder(place) as folder:
            recomputed = _recompute_bundle(published, folder)
            if recomputed is not None:
                kind, release, stated = recomputed
                return publish_files(published, kind, *_certify_again(published, kind, release, stated, folder))
    return None


def _recompute_bundle(published: Published, folder: Path) -> tuple[Kind[Any], Any, Certificate] | None:
    """Return the kind, the recomputed release and the certificate of a bundle's folder.

    Return None if the folder does not have what was published: its certificate or measurements are others, or a file
    that is needed is damaged; and for derived flows.
    """
    try:
        stated = read_bundle_certificate(folder)
        if compute_certificate_digest(stated) != published.ledger.read_publication(published.key).get("certificate"):
            return None
        kind: Any = KINDS[stated["format"]]
        if kind.is_derived or has_lost_areas(folder):
            return None
        public = kind.open(folder)
        recomputed, _ = kind.recompute_release(public, stated)
    except Exception:  # noqa: BLE001  # any error that a damaged file causes
        return None
    if any(_check_measurements(published, kind.list_measurements(public))):
        return None
    return kind, recomputed, stated


def _compare_bundle_files(
    published: Published,
    kind: BundleKind[T],
    release: T,
    facts: Certificate,
    render_report: Callable[[Certificate], str],
    source: str,
    balance: Balance | None = None,
) -> Iterator[str]:
    """Yield one line for each file of a public bundle that differs from the file that is made again.

    The files that are made again have all rows of their tables, because :func:`write_bundle` checks this. So only the
    rows of differing files are checked here.

    Args:
        published: locations of the release.
        kind, release, facts, report, balance: arguments of :func:`write_bundle`; ``facts`` is the certificate.
        source: end of a line: what gives the file that is made again.
    """
    with TemporaryDirectory(prefix="od-release-verify-") as name:
        write_bundle(kind, release, facts, render_report, Path(name), balance=balance)
        changed = list_differing_files(Path(name), published.bundle)
    if not changed:
        return
    listed = [file for file in list_bundle_tables(kind, release, facts) if (published.bundle / file.name).is_file()]
    faults = dict(check_file_rows(published.bundle, listed))
    for file in changed:
        if file in faults:
            yield f"{INCOMPLETE}: {file} {faults[file]}"
        else:
            yield f"{file} differs from the file that {source}"


def _check_measurements(published: Published, measured: Iterable[tuple[Step, NoisyVector]]) -> Iterator[str]:
    """Yield one line for each level whose public measurements differ from those that were drawn and stored."""
    measurements = DurableMeasurements(published.measurements, published.ledger, published.key)
    for step, noisy in measured:
        if not np.array_equal(measurements.read(step).read_values(), noisy.read_values()):
            yield f"the public measurements of level {step.level} differ from those that were drawn"


def _check_ledger(published: Published, public: PlannedRelease, stated: Certificate) -> Iterator[str]:
    """Yield one line for each contradiction between the ledger and a public release; ``stated`` is its certificate.

    Raises OdError if the ledger is damaged, or the release was reserved with another plan.
    """
    ledger, key = published.ledger, published.key
    ledger.verify()
    ledger.hold_to_plan(key, stated["data_set"], public.plan)
    entered = ledger.read_publication(key)
    digest = entered.get("certificate")
    if digest is None:
        yield "the ledger does not record its publication"
    elif digest != compute_certificate_digest(stated):
        yield "its certificate differs from the one that was published"
    if entered.get("exact", {}) != stated["exact"]:
        yield "the ledger records other exact numbers"
    if ledger.compute_spent_budget(key, public.plan) != public.spent:
        yield "the ledger records another charge"
    if ledger.read_noise_backends(key) != public.noise:
        yield "the ledger records another noise backend"
    record = ledger.record(key)
    if stated.get("ledger") != {"entry": record.entry.number, "hash": record.entry.hash}:
        yield "its certificate names another ledger entry"
