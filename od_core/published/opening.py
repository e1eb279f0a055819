"""Open published releases of any kind."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from od_core.errors import OdError
from od_core.flows.publishing.derived_kind import ASSISTED, SUMS
from od_core.flows.publishing.kind import FLOWS
from od_core.flows.publishing.read_bundle import ReleaseRequest, open_flows
from od_core.group_sizes.publishing import GROUP_SIZES
from od_core.ledger.release_key import ReleaseKey
from od_core.noise.backends import DRY_RUN
from od_core.publication.bundle_files import CERTIFICATE
from od_core.publication.certificate import Certificate, is_derived
from od_core.publication.database import list_stored_releases
from od_core.publication.kind import BundleKind
from od_core.publication.read_back import (
    make_absent_release_error,
    name_bundle,
    read_bundle_certificate,
    read_withdrawals,
    refuse_incomplete,
    refuse_newer_bundle,
)
from od_core.stops.publishing import STOPS

if TYPE_CHECKING:
    from od_core.flows.derived_flows import DerivedFlows
    from od_core.flows.release import Release
    from od_core.group_sizes.release import GroupSizeRelease
    from od_core.stops.release import StopsRelease


KINDS: Mapping[str, BundleKind[Any]] = {kind.format: kind for kind in (FLOWS, GROUP_SIZES, STOPS, SUMS, ASSISTED)}
"""All kinds of bundles, by the format that certificates state. This is the only list of them."""


def find_bundle_kind(certificate: Certificate) -> BundleKind[Any]:
    """Return the kind of bundle of a certificate: of releases or of derived flows; see :data:`KINDS`.

    Raises OdError if it is unknown, or the certificate is of a dry run.
    """
    named_format = certificate.get("format")
    if certificate.get("noise") == DRY_RUN:
        message = f"{certificate['release']} is a dry run: its noise is public, and it has no guarantee"
        raise OdError("OD-CERTIFICATE-DRY-RUN", message, next_step="look at the pages of its bundle, or run a release")
    if named_format in KINDS:
        return KINDS[named_format]
    raise OdError(
        "OD-CERTIFICATE-FORMAT",
        f"the certificate states the format {str(named_format)[:60]!r}, which this version does not read",
        next_step="use the version of the software that the certificate names",
    )


def open_release(
    path: str | Path, release: str | None = None, period: str | None = None, revision: int | None = None
) -> Release | DerivedFlows | GroupSizeRelease | StopsRelease:
    """Return a published release, read from a bundle (a folder or a .zip file) or from ``release.duckdb``.

    Args:
        path: the folder, the .zip file or the database.
        release: name of the series, such as ``us_flights``, or the whole key ``us_flights/2001-06/r1``; may be left out
            if the database contains only one series.
        period, revision: period and revision of the release; by default the newest.

    Returns:
        The whole release, in memory. Its class depends on the contents: flows, flows that are derived from releases
        (a sum, or model-assisted flows), group sizes or trips with stops. Derived flows are computed from the bundles
        of their releases, which must lie below the same folder.

    Raises:
        OdError: the file or the release does not exist (the message lists published releases); a later version of this
            software published it in another format; ``release`` is a key of another period or revision than asked for,
            or is left out, but there are several series; the release in the database is not of flows; or the tables and
            the certificate of the release contradict each other.

    Examples:
        >>> open_release(bundle).flows.columns.tolist()
        ['origin', 'destination', 'trips']
    """
    place, request = Path(path), ReleaseRequest.parse(release, period, revision)
    if place.is_dir() or _is_zip(place):
        _, opened = open_bundle(place, request)
        return opened
    return open_flows(place, request)


def open_bundle(
    place: Path, request: ReleaseRequest | None = None
) -> tuple[ReleaseKey, Release | DerivedFlows | GroupSizeRelease | StopsRelease]:
    """Return the key and the release of a bundle, which is a folder or a .zip file at ``place``.

    ``request`` is the requested series, period and revision, which the bundle must match; by default, any. For errors,
    see :func:`open_release`.
    """
    with open_bundle_folder(place) as folder:
        certificate = read_bundle_certificate(folder)
        key = (request or ReleaseRequest()).find_newest([ReleaseKey.parse(certificate["release"])])
        kind = find_bundle_kind(certificate)
        refuse_newer_bundle(certificate)
        with refuse_incomplete(name_bundle(folder)):
            return key, kind.open(folder)


@contextmanager
def open_bundle_folder(bundle: Path) -> Iterator[Path]:
    """Yield the folder of a bundle. A .zip file is unpacked while this context lasts.

    Raises OdError if a .zip file is damaged, or has no certificate.
    """
    if not _is_zip(bundle):
        yield bundle
        return
    with TemporaryDirectory(prefix="od-release-open-") as folder:
        try:
            with zipfile.ZipFile(bundle) as packed:
                packed.extractall(folder)
        except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, NotImplementedError):
            raise make_absent_release_error(f"{bundle.name} is not a complete .zip file") from None
        unpacked = next((path.parent for path in sorted(Path(folder).rglob(CERTIFICATE))), None)
        if unpacked is None:
            raise make_absent_release_error(f"{bundle.name} does not hold a bundle: it lacks {CERTIFICATE}")
        yield unpacked


def find_bundle_folders(releases: Path) -> dict[ReleaseKey, Path]:
    """Return the folders of all bundles below the folder ``releases``, by release key and in the order of the keys."""
    return _index_by_release_key(releases, filter(Path.is_dir, releases.glob("*/*/r*")))


def find_bundle_zips(releases: Path) -> dict[ReleaseKey, Path]:
    """Return the zip files of all bundles below the folder ``releases``, by release key, in the order of the keys."""
    return _index_by_release_key(releases, filter(Path.is_file, releases.glob("*/*/r*.zip")))


def find_missing_bundles(releases: Path, database: Path | None = None) -> list[ReleaseKey]:
    """Return the published releases whose bundles are missing, in the order of their keys.

    They are known by their zip files, which are beside their folders, and by the release database if it is at hand.
    Raises OdError if the database cannot be read.
    """
    published = set(find_bundle_zips(releases))
    if database is not None:
        published.update(list_stored_releases(database))
    return sorted(published - find_bundle_folders(releases).keys() - read_withdrawals(releases).keys())


def _index_by_release_key(releases: Path, paths: Iterable[Path]) -> dict[ReleaseKey, Path]:
    """Return the paths of bundles by key, in the order of the keys, without those of withdrawn releases."""
    bundles = {}
    withdrawn = read_withdrawals(releases)
    for path in paths:
        with suppress(OdError):  # what is not named after a release is not a bundle
            bundles[ReleaseKey.parse(path.relative_to(releases).as_posix().removesuffix(".zip"))] = path
    return {key: path for key, path in sorted(bundles.items()) if key not in withdrawn}


def list_derived_releases(releases: Path) -> list[ReleaseKey]:
    """Return the keys of all published derived flows; a bundle whose certificate cannot be read is left out."""
    derived = []
    for key, folder in find_bundle_folders(releases).items():
        with suppress(OdError):  # verification reports faults of bundles
            if is_derived(read_bundle_certificate(folder)):
                derived.append(key)
    return derived


def _is_zip(path: Path) -> bool:
    """Return whether a path is that of a .zip file that exists."""
    return path.suffix == ".zip" and path.is_file()
