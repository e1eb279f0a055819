"""Find the bundles of the published releases that a command names."""

from __future__ import annotations

from pathlib import Path

from od_assets.resources.folders import Folders
from od_core.errors import OdError
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.read_back import lost
from od_core.published.opening import missing_bundles, published_bundles


def bundle_named(name: str) -> Path:
    """Return the place of a bundle, given the key of a release published here or a path.

    Raises:
        OdError: the release is not published here, or its bundle is missing.
    """
    place = Path(name)
    if place.exists():
        return place
    key, releases = ReleaseKey.parse(name), Folders().releases
    refuse_lost(key)
    if not (releases / key.folder).is_dir():
        published = ", ".join(map(str, published_bundles(releases))) or "none"
        raise OdError(
            "OD-RELEASE-ABSENT",
            f"{key} is not published here; published releases: {published}",
            next_step="name a published release, or the folder of a bundle",
        )
    return releases / key.folder


def refuse_lost(key: ReleaseKey) -> None:
    """Raise OdError if a release is published here, as its zip file or the database shows, but its bundle is missing.

    The database is read only if there is no bundle, because another program may be writing to it.
    """
    folders = Folders()
    if not folders.bundle(key).is_dir() and key in missing_bundles(folders.releases, folders.database):
        raise lost([key])
