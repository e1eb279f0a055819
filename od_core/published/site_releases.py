"""State what the pages and the catalogue of a site say of a published release, from its certificate and its areas."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from od_core.geography.codes import COORDINATES
from od_core.ledger.release_key import ReleaseKey
from od_core.periods import Period
from od_core.publication.bundle import AREAS_FILE, PACKAGE
from od_core.publication.bundle_integrity import zip_beside
from od_core.publication.certificate import promise
from od_core.publication.citation import citation
from od_core.publication.read_back import certificate_of
from od_core.published.kinds import bundle_kind_of, derived_kind_of
from od_core.published.site_description import SiteDescription


@dataclass(frozen=True, eq=False)
class SiteRelease:
    """A published release on a site.

    Attributes:
        key: series, period and revision.
        place: folder of its bundle.
        certificate: its certificate.
        files: name, description, media type, size in bytes and SHA-256 of each file, as its data package states them.
    """

    key: ReleaseKey
    place: Path
    certificate: dict[str, Any]
    files: tuple[dict[str, Any], ...]

    @classmethod
    def of(cls, key: ReleaseKey, place: Path) -> SiteRelease:
        """Return the release of a bundle whose certificate and data package match their checksums."""
        package = json.loads((place / PACKAGE).read_text(encoding="utf-8"))
        return cls(key, place, certificate_of(place), tuple(package["resources"]))

    @property
    def folder(self) -> str:
        """Folder of the release on the site, without a slash at its end."""
        return str(self.key)

    @property
    def croissant(self) -> str:
        """File of its Croissant description, which is beside its folder, because it is no part of the bundle."""
        return f"{self.key}.croissant.json"

    @property
    def title(self) -> str:
        """Title of the release for catalogues."""
        return f"{self.key.release}: {self.contents} of {self.key.period}"

    @property
    def contents(self) -> str:
        """What the release has, such as ``flows``, or ``flows (sums of releases)`` if they are derived."""
        contents, derived = bundle_kind_of(self.certificate).contents, derived_kind_of(self.certificate)
        return contents if derived is None else f"{contents} ({derived.what} releases)"

    @property
    def promise(self) -> str:
        """The guarantee in sentences."""
        return promise(self.certificate["guarantee"])

    def citation(self, site: SiteDescription) -> str:
        """Return the text with which to cite the release."""
        whose = "" if site.publisher is None else f"{site.publisher}. "
        return f"{whose}{site.title}: {citation(self.certificate)}"

    @property
    def period(self) -> Period:
        """The period of the release."""
        return Period(self.key.period)

    @property
    def extent(self) -> tuple[float, float, float, float] | None:
        """West, south, east and north ends of the coordinates of the zones, in degrees; None if they have none."""
        areas = self.place / AREAS_FILE
        if not areas.is_file() or not {*COORDINATES} <= {*pq.read_schema(areas).names}:
            return None
        degrees = np.stack([pq.read_table(areas)[name].to_numpy() for name in COORDINATES[::-1]])
        if np.isnan(degrees).all():
            return None
        ends = [float(end) for end in (*np.nanmin(degrees, axis=1), *np.nanmax(degrees, axis=1))]
        return ends[0], ends[1], ends[2], ends[3]

    @property
    def zip_bytes(self) -> int:
        """Size of the zip file of the bundle."""
        return zip_beside(self.place).stat().st_size

    @property
    def trips(self) -> int | None:
        """Released trips; None if the release counts something else."""
        trips: int | None = self.certificate["contents"].get("trips")
        return trips


def newest_revisions(releases: Sequence[SiteRelease]) -> list[SiteRelease]:
    """Return the last revision of each period of a series, newest period first."""
    newest = {release.key.period: release for release in sorted(releases, key=lambda one: one.key)}
    return [newest[period] for period in sorted(newest, reverse=True)]
