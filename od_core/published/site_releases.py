"""Describe a site and the releases that it lists."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow.parquet as pq

from od_core.errors import OdError
from od_core.geography.codes import COORDINATES
from od_core.ledger.release_key import ReleaseKey
from od_core.periods import Period
from od_core.publication.bundle import PACKAGE, PARQUET, zip_beside
from od_core.publication.certificate import Certificate
from od_core.publication.guarantee import promise
from od_core.publication.read_back import certificate_of
from od_core.publication.templates import filled
from od_core.published.opening import bundle_kind_of, derived_kind_of

_MAIL = re.compile(r"[^@\s:/<>\"]+@[^@\s:/<>\"]+")


@dataclass(frozen=True)
class SiteDescription:
    """What a site says of itself.

    Attributes:
        title: title of the site.
        url: address at which the site will be published, such as ``https://statistics.example/od``; None if unknown.
        publisher: name of the organisation that publishes the releases; None if not stated.
        licence: address of the licence of all releases, such as that of a Creative Commons licence; None if not stated.
        contact: address of electronic mail or of the web where readers ask about the releases; None if not stated.

    Raises:
        OdError: an address is not one of the web, nor, for the contact, one of mail; or the title or the publisher has
            characters that are not printable.
    """

    title: str
    url: str | None = None
    publisher: str | None = None
    licence: str | None = None
    contact: str | None = None

    def __post_init__(self) -> None:
        for name, text in (("title", self.title), ("publisher", self.publisher)):
            if text is not None and not (text.strip() and text.isprintable()):
                raise OdError(
                    "OD-SITE-TITLE",
                    f"the {name} is blank or has characters that are not printable",
                    next_step=f"give a {name} of one line",
                )
        for address in (self.url, self.licence, None if self.is_mail else self.contact):
            if address is not None:
                _refuse_no_address(address)

    @property
    def is_mail(self) -> bool:
        """Whether the contact is an address of electronic mail."""
        return self.contact is not None and self.contact.isprintable() and _MAIL.fullmatch(self.contact) is not None

    @property
    def base(self) -> str | None:
        """The address of the site with a slash at its end; None if it is unknown."""
        return None if self.url is None else self.url.rstrip("/") + "/"

    def address(self, file: str, *, within: str = "") -> str:
        """Return the address of a file of the site: whole if that of the site is known, and otherwise relative.

        Args:
            file: path of the file in the site.
            within: folder of the file that states a relative address, with a slash at its end.
        """
        return file.removeprefix(within) if self.base is None else self.base + file


def _refuse_no_address(url: str) -> None:
    parts = urlsplit(url)
    unusual = not url.isprintable() or any(sign in url for sign in ' "<>?#')
    if parts.scheme not in ("https", "http") or not parts.netloc or unusual:
        raise OdError(
            "OD-SITE-ADDRESS",
            f"{url[:80]!r} is not an address of the web",
            next_step="give an address such as https://statistics.example/od, or od@statistics.example as the contact",
        )


@dataclass(frozen=True, eq=False)
class SiteRelease:
    """A published release on a site.

    Attributes:
        place: folder of its bundle.
        files: name, description, media type, size in bytes and SHA-256 of each file, as its data package states them.
    """

    key: ReleaseKey
    place: Path
    certificate: Certificate
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
        return f"{whose}{site.title}: {filled('citation.txt', certificate=self.certificate)}"

    @property
    def days(self) -> tuple[str, str]:
        """First and last day of the period."""
        period = Period(self.key.period)
        return period.first.isoformat(), (period.end - timedelta(days=1)).isoformat()

    @property
    def extent(self) -> tuple[float, float, float, float] | None:
        """West, south, east and north ends of the coordinates of the zones, in degrees; None if they have none."""
        areas = self.place / PARQUET["areas"]
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


def newest_revisions(releases: Sequence[SiteRelease]) -> list[SiteRelease]:
    """Return the last revision of each period of a series, newest period first."""
    newest = {release.key.period: release for release in sorted(releases, key=lambda one: one.key)}
    return [newest[period] for period in sorted(newest, reverse=True)]
