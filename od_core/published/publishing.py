"""Put a measured release in its place: its bundle, the public database and the entry in the ledger."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from od_core.errors import OdError
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.bundle import publish_folder, write_bundle
from od_core.publication.bundle_differences import reword_as_published
from od_core.publication.certificate import Certificate, compute_certificate_digest
from od_core.publication.kind import Kind, R, ReleaseContext
from od_core.publication.read_back import read_bundle_certificate


@dataclass(frozen=True)
class Published:
    """The locations of the files of a published release.

    Attributes:
        key: key of the release.
        bundle: public folder of the release.
        database: file of the public release database.
        ledger: ledger to which the release was charged.
        measurements: folder of the release's measurement files, below the confidential folder.

    Examples:
        >>> published.bundle == bundle
        True
    """

    key: ReleaseKey
    bundle: Path
    database: Path
    ledger: Ledger
    measurements: Path

    @property
    def releases(self) -> Path:
        """Folder that contains the bundles of all releases."""
        return self.bundle.parents[len(self.key.folder.parts) - 1]

    @classmethod
    def from_folder(cls, folder: Path, release: ReleaseKey | str, ledger: Ledger | None = None) -> Published:
        """Return the locations of a release below a folder with the layout of the folder ``var`` of a project.

        The ledger is the file ``ledger.sqlite`` of the folder, unless another one is given.

        Examples:
            >>> Published.from_folder(folder, "us_flights/2001-06/r1").database == folder / "release.duckdb"
            True
        """
        key = release if isinstance(release, ReleaseKey) else ReleaseKey.parse(release)
        bundle, measurements = folder / "releases" / key.folder, folder / "confidential" / key.folder
        return cls(key, bundle, folder / "release.duckdb", ledger or Ledger(folder / "ledger.sqlite"), measurements)

    def find_certificate_digest(self) -> str | None:
        """Return the digest of the published certificate; None if there is none.

        The ledger states it. If a run died before it entered the publication in the ledger, it is computed from the
        certificate in the public folder, which must name the release's last ledger entry.
        """
        published: str | None = self.ledger.read_publication(self.key).get("certificate")
        if published is None and self.bundle.exists():
            with suppress(OdError):  # it is damaged, or nothing is measured
                certificate, entry = read_bundle_certificate(self.bundle), self.ledger.record(self.key).entry
                if certificate.get("ledger") == {"entry": entry.number, "hash": entry.hash}:
                    return compute_certificate_digest(certificate)
        return published


def publish_release(
    place: Published,
    kind: Kind[R],
    release: R,
    facts: Certificate,
    context: ReleaseContext[R],
    *,
    tell: Callable[[int, int, str], None] | None = None,
) -> Certificate:
    """Publish a release, or publish it again, and return the certificate in the public folder.

    The publication is entered in the ledger after the files and the database are written, so that a release which the
    ledger calls public has all of them. If a call is killed at any step, the next one ends with the same files. For
    arguments and errors, see :func:`publish_files`. Raises OdError, too, if a level of the release is not measured.
    """
    public = publish_files(place, kind, release, facts, context, tell=tell)
    place.ledger.publish(place.key, compute_certificate_digest(public), public["exact"])
    return public


def publish_files(
    place: Published,
    kind: Kind[R],
    release: R,
    facts: Certificate,
    context: ReleaseContext[R],
    *,
    tell: Callable[[int, int, str], None] | None = None,
) -> Certificate:
    """Write the bundle of a release and its rows in the database, and return the certificate in the public folder.

    The files are written to a hidden folder first, then the database, and then the folder gets its public name.

    Args:
        place: locations of the files.
        kind, release: kind of the release, and its result.
        facts: certificate of the release, as this version of the software words it. If the release was published by an
            earlier version, that wording stays.
        context: see :func:`od_core.publication.certify.read_release_context`.
        tell: see :func:`od_core.publication.bundle.write_bundle`.

    Raises:
        OdError: as :func:`od_core.publication.bundle.publish_folder`.
    """
    published = place.find_certificate_digest()
    facts = reword_as_published(facts, place.bundle, published)
    write = partial(
        write_bundle,
        kind,
        release,
        facts,
        partial(kind.render_report, release, context=context),
        tell=tell,
        balance=context.balance,
    )
    with publish_folder(write, place.bundle, published) as public:
        kind.store(place.database, release, place.key, public)
    return public
