"""Describe a site and the releases on it, as its pages need them."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import numpy as np
import pyarrow.parquet as pq
from markupsafe import Markup

from od_core.errors import OdError
from od_core.geography.codes import COORDINATES, WHOLE_SPACE
from od_core.geography.geography import compute_extent
from od_core.languages import name_in_language, translate
from od_core.ledger.ledger import Withdrawal
from od_core.ledger.release_key import ReleaseKey
from od_core.meaning.subject import Nouns
from od_core.periods import Period
from od_core.publication.bundle_files import (
    BOUNDARIES,
    PACKAGE,
    PARQUET,
    REPORT,
    locate_table,
    locate_zip,
)
from od_core.publication.certificate import (
    Certificate,
    format_release_title,
    read_subject,
    translate_certificate,
)
from od_core.publication.certify import describe_promise
from od_core.publication.comparability import check_comparability
from od_core.publication.read_back import read_bundle_certificate
from od_core.publication.templates import render_template
from od_core.published.opening import find_bundle_kind

_PICTURE = re.compile(r'<svg (?=[^>]*role="img")(?:(?!</?svg\b).|<svg\b.*?</svg>)*</svg>', re.DOTALL)
_NAMES = re.compile(r'(\bid="|url\(#|href="#)')
"""A picture in a page, with its frames, and the beginnings of the names of its parts, unique in a page."""

SIDES, VALUES = ("origin", "destination"), ("trips", "lower", "upper")
"""Sides of a flow, and columns of its number and of the ends of its interval."""

PICTURE = "picture.png"
"""File of a series with the picture of its newest release."""

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
        withdrawn: the releases that were withdrawn, which :func:`write_site` finds.
        languages: the other languages of its releases, which it finds, too. In each, the site has a home page and pages
            of the series.

    Raises:
        OdError: an address is not one of the web (the contact: of the web or of mail), or a text has unprintable
            characters.
    """

    title: str
    url: str | None = None
    publisher: str | None = None
    licence: str | None = None
    contact: str | None = None
    withdrawn: Mapping[ReleaseKey, Withdrawal] = field(default_factory=dict)
    languages: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, text in (("title", self.title), ("publisher", self.publisher)):
            if text is not None and not (text.strip() and text.isprintable()):
                message = f"the {name} is blank or has characters that are not printable"
                raise OdError("OD-SITE-TITLE", message, next_step=f"give a {name} of one line")
        addresses = [self.url, self.licence]
        if not self.is_mail:
            addresses.append(self.contact)
        for address in addresses:
            if address is not None:
                _refuse_invalid_address(address)

    @property
    def is_mail(self) -> bool:
        """Whether the contact is an e-mail address."""
        return self.contact is not None and self.contact.isprintable() and _MAIL.fullmatch(self.contact) is not None

    @property
    def base(self) -> str | None:
        """Address of the site with a slash at its end; None if it is unknown."""
        return None if self.url is None else self.url.rstrip("/") + "/"

    def make_address(self, file: str, *, page_folder: str = "") -> str:
        """Return the address of a file of the site: absolute if the site has an address, and otherwise relative.

        ``page_folder`` is the folder of the page that states the address, with a slash at its end; empty for the root
        of the site.
        """
        return posixpath.relpath(file, page_folder or ".") if self.base is None else self.base + file


def _refuse_invalid_address(url: str) -> None:
    """Raise OdError if a text is not a web address (http or https) without a query and a fragment."""
    parts = urlsplit(url)
    has_odd_signs = not url.isprintable() or any(sign in url for sign in ' "<>?#')
    if parts.scheme not in ("https", "http") or not parts.netloc or has_odd_signs:
        step = "give an address such as https://statistics.example/od, or od@statistics.example as the contact"
        raise OdError("OD-SITE-ADDRESS", f"{url[:80]!r} is not an address of the web", next_step=step)


@dataclass(frozen=True, eq=False)
class SiteRelease:
    """A published release on a site.

    Attributes:
        key, certificate: key and certificate of the release.
        place: folder of its bundle.
        files: name, description, media type, size in bytes and SHA-256 of each file, as its data package states them.
    """

    key: ReleaseKey
    place: Path
    certificate: Certificate
    files: tuple[dict[str, object], ...]

    @classmethod
    def from_bundle(cls, key: ReleaseKey, place: Path) -> SiteRelease:
        """Return the release of a bundle in a folder, whose certificate and data package match their checksums."""
        package = json.loads((place / PACKAGE).read_text(encoding="utf-8"))
        return cls(key, place, read_bundle_certificate(place), tuple(package["resources"]))

    def translate(self) -> SiteRelease:
        """Return the release with the sentences of its certificate in the language that is used, if it has them."""
        return replace(self, certificate=translate_certificate(self.certificate))

    def find_page(self, file: str) -> str:
        """Return the name of a page of the bundle in the language that is used or, if it has none, in English."""
        name = name_in_language(file)
        return name if any(listed["path"] == name for listed in self.files) else file

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
        if "about" in self.certificate:
            return format_release_title(self.certificate, "")
        return f"{self.key.release}: {self.contents} of {self.key.period}"

    @property
    def contents(self) -> str:
        """What the release has, such as ``flows``, or ``flows (sums of releases)`` if they are derived."""
        if self.derived is None:
            return self.nouns.contents
        kinds = {"sum": translate("sums of releases"), "assisted": translate("estimates from releases")}
        return f"{self.nouns.contents} ({kinds[self.derived]})"

    @cached_property
    def nouns(self) -> Nouns:
        """The nouns with which pages speak of it."""
        return read_subject(self.certificate).nouns

    def is_comparable_to(self, other: SiteRelease) -> bool:
        """Return whether both have the same contents and data set, and count the same trips between the same areas."""
        if (self.contents, self.certificate["data_set"]) != (other.contents, other.certificate["data_set"]):
            return False
        return check_comparability(self.certificate, other.certificate).is_possible

    def find_exact_release(self, series: Mapping[str, Sequence[SiteRelease]]) -> SiteRelease | None:
        """Return another release that publishes exactly the number of all trips, which this one publishes with noise.

        Such a release counts the same records of the same data set and days within the same bounds, maybe between other
        areas. Return None if there is none, or if this release publishes no number of trips, or the exact one.
        ``series`` has the releases of each series.
        """
        if "trips" not in self.certificate["contents"] or "trips" in self.certificate["exact"]:
            return None
        data_set = self.certificate["data_set"]
        areas = cast("Certificate", {"geographies": self.certificate.get("geographies")})
        for other in chain.from_iterable(series.values()):
            stated = other.certificate
            is_candidate = (stated["data_set"], other.days) == (data_set, self.days) and "trips" in stated["exact"]
            # With the areas of this release, so that other areas do not matter.
            if is_candidate and check_comparability(self.certificate, {**stated, **areas}).is_possible:
                return other
        return None

    @property
    def derived(self) -> str | None:
        """Kind of flows that are derived from releases, ``sum`` or ``assisted``; None for a measured release."""
        return getattr(find_bundle_kind(self.certificate), "name", None)

    def locate_table(self, name: str) -> Path:
        """Return the path of a Parquet table of the bundle, by its name in ``PARQUET``."""
        return locate_table(self.place, PARQUET[name])

    @cached_property
    def total(self) -> dict[str, int] | None:
        """Number of all ``trips``, and the ends ``lower`` and ``upper`` of its interval, if it has one.

        None if the release has no flows, or its table has no row of the whole space.
        """
        if not self.locate_table("flows").is_file():
            return None
        whole = [(f"{side}_level", "==", WHOLE_SPACE) for side in SIDES]
        rows = pq.read_table(self.locate_table("flows"), filters=whole).to_pylist()
        if not rows:
            return None
        return {name: rows[0][name] for name in VALUES if name in rows[0]}

    @property
    def picture(self) -> Markup | None:
        """The first picture of the report; None if it has none.

        Its parts are renamed, because a page may have pictures of several series, and names are unique in a page.
        """
        picture = _PICTURE.search((self.place / self.find_page(REPORT)).read_text(encoding="utf-8"))
        if picture is None:
            return None
        return Markup(_NAMES.sub(rf"\g<1>{self.key.release}-", picture[0]))  # noqa: S704 - from a report

    def render_card(self, site: SiteDescription) -> str:
        """Return the picture of the release for sharing, as SVG: title and figure beside the picture of the report."""
        place = ' x="436" y="55" width="740" height="520"'
        picture = re.sub(r' width="[\d.]+" height="[\d.]+"', place, self.picture or "", count=1)
        return render_template("site/card.svg", site=site, release=self, picture=Markup(picture))  # noqa: S704

    @property
    def shared_picture(self) -> str:
        """File of the picture of the newest release of the series: PNG, or SVG where Matplotlib is not installed."""
        return f"{self.key.release}/{PICTURE}" if find_spec("matplotlib") else f"{self.key}.svg"

    @property
    def promise(self) -> str:
        """The guarantee in sentences."""
        return describe_promise(self.certificate["guarantee"])

    def format_citation(self, site: SiteDescription) -> str:
        """Return the text with which to cite the release."""
        whose = "" if site.publisher is None else f"{site.publisher}. "
        return f"{whose}{site.title}: {render_template('citation.txt', certificate=self.certificate)}"

    @property
    def period_in_words(self) -> str:
        """The period as people write it, such as ``June 2001``."""
        return Period(self.key.period).in_words

    @property
    def days(self) -> tuple[str, str]:
        """First and last day of the period."""
        period = Period(self.key.period)
        return period.first.isoformat(), (period.end - timedelta(days=1)).isoformat()

    @property
    def extent(self) -> tuple[float, float, float, float] | None:
        """West, south, east and north ends of the areas' boundaries or, without boundaries, of their coordinates.

        None if the bundle states neither.
        """
        boundaries, areas = locate_table(self.place, BOUNDARIES), self.locate_table("areas")
        if boundaries.is_file():
            return compute_extent(pq.read_table(boundaries)["geometry"].to_pylist())
        if not areas.is_file() or not {*COORDINATES} <= {*pq.read_schema(areas).names}:
            return None
        latitude_column, longitude_column = COORDINATES
        degrees = np.stack([pq.read_table(areas)[name].to_numpy() for name in (longitude_column, latitude_column)])
        if np.isnan(degrees).all():
            return None
        west, south = np.nanmin(degrees, axis=1).tolist()
        east, north = np.nanmax(degrees, axis=1).tolist()
        return west, south, east, north

    @property
    def zip_bytes(self) -> int:
        """Size of the zip file of the bundle."""
        return locate_zip(self.place).stat().st_size


def select_newest_revisions(releases: Sequence[SiteRelease]) -> list[SiteRelease]:
    """Return the last revision of each period of a series, newest period first."""
    newest = {release.key.period: release for release in sorted(releases, key=lambda release: release.key)}
    return [newest[period] for period in sorted(newest, reverse=True)]
