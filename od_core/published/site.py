"""Write a static web site of all releases, from their bundles.

Only files that a bundle lists in its checksums reach the site. The same bundles give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import operator
import posixpath
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property, partial
from importlib.resources import files
from importlib.util import find_spec
from itertools import chain, groupby, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from markupsafe import Markup
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.files.durable import (
    PUBLIC_FILE_MODE,
    compute_file_digest,
    make_folder,
    write_checked,
    write_durably,
    write_if_changed,
)
from od_core.flows.arrays import Integers, Reals
from od_core.flows.interval_ends import CHOSEN_BEFORE, Selection
from od_core.flows.publishing.changes import compute_table_changes, describe_cautions, use_numbers_per_day
from od_core.flows.publishing.kind import FLOWS
from od_core.geography.codes import COORDINATES, WHOLE_SPACE
from od_core.geography.geography import Geography, compute_extent
from od_core.ledger.ledger import Withdrawal
from od_core.ledger.release_key import ReleaseKey
from od_core.meaning.subject import Nouns
from od_core.periods import Period
from od_core.publication.bundle_files import (
    ATLAS,
    BOUNDARIES,
    CERTIFICATE,
    CHECKSUMS,
    PACKAGE,
    PARQUET,
    REPORT,
    check_checksums,
    check_zip,
    list_bundle_contents,
    locate_table,
    locate_zip,
    read_checksums,
)
from od_core.publication.certificate import Certificate, format_release_title, has_intervals, is_selected, read_subject
from od_core.publication.certify import describe_promise
from od_core.publication.comparability import Comparability, check_comparability, count_period_days
from od_core.publication.read_back import REPAIR, read_bundle_certificate, read_withdrawals
from od_core.publication.tables import build_published_geography
from od_core.publication.templates import render_data, render_template
from od_core.published.opening import find_bundle_folders, find_bundle_kind, find_missing_bundles
from od_core.published.site_numbers import read_quoted_numbers
from od_core.published.site_pictures import draw_png

_PICTURE = re.compile(r'<svg (?=[^>]*role="img")(?:(?!</?svg\b).|<svg\b.*?</svg>)*</svg>', re.DOTALL)
_NAMES = re.compile(r'(\bid="|url\(#|href="#)')
"""A picture in a page, with its frames, and the beginnings of the names of its parts, unique in a page."""

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
        what = find_bundle_kind(self.certificate).what
        return f"{self.nouns.contents} ({what} releases)" if what else self.nouns.contents

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
        whole = [(f"{side}_level", "==", WHOLE_SPACE) for side in _SIDES]
        rows = pq.read_table(self.locate_table("flows"), filters=whole).to_pylist()
        if not rows:
            return None
        return {name: rows[0][name] for name in _VALUES if name in rows[0]}

    @property
    def picture(self) -> Markup | None:
        """The first picture of the report; None if it has none.

        Its parts are renamed, because a page may have pictures of several series, and names are unique in a page.
        """
        picture = _PICTURE.search((self.place / REPORT).read_text(encoding="utf-8"))
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


MOST_NUMBERS = 300_000
"""Largest number of flows of all periods together that the page of a series has, each with its interval."""

MOST_ROWS = 300
"""Largest number of areas of a level that the page lists without a program, those with the most trips."""

_SIDES, _VALUES = ("origin", "destination"), ("trips", "lower", "upper")


@dataclass(frozen=True, eq=False)
class OverTime:
    """The flows between large areas in each period of a series of releases, which have noise of their own.

    Areas of a side are numbered through its levels, the whole space first. The first axis of an array has length 3:
    trips, and the lower and upper end of their interval. The second axis has the periods. A number is NaN where a
    release does not list a pair.

    Attributes:
        periods: texts of the periods, oldest first.
        compared: for each period but the first, whether and how it is compared with the one before.
        days: number of days of each period.
        caution: what else than travel may have changed the flows.
        sides: the areas of origins and of destinations, which are those of the newest period.
        depths: for each side, number of the most detailed level between whose areas the page has flows.
        listed: for each side, number of the most detailed level of whose areas the page has totals.
        values: flows down to the levels of ``depths``; shape (3, periods, origins, destinations).
        totals: trips of each area down to the level of ``listed``, by side; shape (3, periods, areas).
        selected: for each period, whether its intervals hold for flows that are read because they were released.
        have_laplace_noise: for each period, whether its measurements have Laplace noise.
    """

    periods: tuple[str, ...]
    compared: tuple[Comparability, ...]
    days: tuple[int, ...]
    caution: str
    sides: tuple[Geography, ...]
    depths: tuple[int, int]
    listed: tuple[int, int]
    values: Reals
    totals: tuple[Reals, ...]
    selected: tuple[bool, ...]
    have_laplace_noise: tuple[bool, ...]

    @classmethod
    def from_releases(cls, newest: Sequence[SiteRelease]) -> OverTime:
        """Return the flows of releases with intervals, which are read from their bundles.

        ``newest`` has the last revision of each period, newest period first. The table of flows of each release is read
        once, and of it only the pairs of levels that the page has.
        """
        certificates = [release.certificate for release in newest][::-1]
        areas = pq.read_table(newest[0].locate_table("areas")).to_pandas()
        sides = tuple(build_published_geography(areas, certificates[-1]["geographies"][side], None) for side in _SIDES)
        # For each side, the number of areas of each level and of all levels above it.
        sizes = [np.cumsum([side.size(level) for level in range(side.depth + 1)]) for side in sides]
        most = MOST_NUMBERS // len(newest)
        depths = _find_deepest_levels(sizes, most, operator.mul)
        listed = _find_deepest_levels(sizes, most, operator.add)
        periods = len(newest)
        values = np.full((3, periods, sizes[0][depths[0]], sizes[1][depths[1]]), np.nan)
        areas_with_totals = [down_to[level] for down_to, level in zip(sizes, listed, strict=True)]
        totals = tuple(np.full((3, periods, number), np.nan) for number in areas_with_totals)
        for period, release in enumerate(reversed(newest)):
            totals_of_period = [total[:, period] for total in totals]
            _read_flows_into(values[:, period], totals_of_period, release, sides, depths, listed)
        compared = []
        cautions: dict[str, None] = {}  # in the order of the periods, each once
        for before, after in pairwise(certificates):
            compared.append(check_comparability(before, after))
            if compared[-1].is_possible:
                caution = describe_cautions(read_subject(after), before, after, lengths=False).strip()
                cautions |= {caution: None} if caution else {}
        return cls(
            periods=tuple(certificate["period"] for certificate in certificates),
            compared=tuple(compared),
            days=tuple(map(count_period_days, certificates)),
            caution=" ".join(cautions),
            sides=sides,
            depths=depths,
            listed=listed,
            values=values,
            totals=totals,
            selected=tuple(is_selected(certificate) for certificate in certificates),
            have_laplace_noise=tuple(any("scale" in level for level in one.get("levels", [])) for one in certificates),
        )

    @cached_property
    def data(self) -> dict[str, object]:
        """Data that the program of the page reads, JSON-ready, by name."""
        return {
            "periods": self.periods,
            "comparable": [compared.is_possible for compared in self.compared],
            "days": self.days,
            "sides": [_list_levels(side, deepest) for side, deepest in zip(self.sides, self.listed, strict=True)],
            "sizes": self.values.shape[2:],
            "deviations": self.deviations,
            "values": _encode_intervals(self.values),
            "totals": [_encode_intervals(total) for total in self.totals],
        }

    @cached_property
    def deviations(self) -> list[list[list[float]]]:
        """Number of standard deviations to the end of a change's interval that is towards 0; see :class:`Selection`.

        ``deviations[period][origin_level][destination_level]`` is the one for flows between areas of these levels.
        """
        origin_levels, destination_levels = (range(level + 1) for level in self.listed)
        deviations = []
        for period in range(len(self.periods)):
            of_period = []
            for origin_level in origin_levels:
                selections = [self._make_selection(period, (origin_level, level)) for level in destination_levels]
                of_period.append([selection.deviations_of_changes for selection in selections])
            deviations.append(of_period)
        return deviations

    def _make_selection(self, period: int, levels: tuple[int, int]) -> Selection:
        """Return the selection of flows between two levels in a period: from which flows people choose those they read.

        ``levels`` are the levels of origins and of destinations. It is ``CHOSEN_BEFORE`` if the page lacks the flows,
        or if the intervals of the release do not hold for flows that are chosen by their size.
        """
        origins, destinations = (self._make_area_slice(side, level) for side, level in enumerate(levels))
        if levels[0] <= self.depths[0] and levels[1] <= self.depths[1]:
            trips = self.values[0, period, origins, destinations]
        elif 0 in levels:
            trips = self.totals[0][0, period, origins] if levels[0] else self.totals[1][0, period, destinations]
        else:
            return CHOSEN_BEFORE
        if not self.selected[period]:
            return CHOSEN_BEFORE
        return Selection.from_numbers(trips, trips.size, has_laplace_noise=self.have_laplace_noise[period])

    def _make_area_slice(self, side: int, level: int) -> slice:
        """Return the positions of the areas of a level among the areas of all levels of a side (0 for origins)."""
        first = sum(self.sides[side].size(above) for above in range(level))
        return slice(first, first + self.sides[side].size(level))

    def list_largest_areas(self, level: int, end: int = 0) -> list[dict[str, object]]:
        """Return the ``MOST_ROWS`` areas of a level with the most trips in the last period, each as a dictionary.

        ``end`` is the side of the areas: 0 for origins, 1 for destinations. ``name`` is the area's name. ``ways`` has
        :meth:`_describe_areas` of the trips from it and of those to it; if the sides have different areas, only of the
        trips on this side.
        """
        side, other = self.sides[end], self.sides[1 - end]
        ends = (0, 1) if side.digest == other.digest else (end,)  # trips from an area, to it, or both
        areas_of_level = self._make_area_slice(end, level)
        totals = [self.totals[way][..., areas_of_level] for way in ends]
        trips_in_last_period = totals[0][0, -1]
        largest = np.argsort(-np.nan_to_num(trips_in_last_period), kind="stable")[:MOST_ROWS].tolist()
        ways = []
        for way, total in zip(ends, totals, strict=True):
            ways.append(self._describe_areas(total, (level, 0) if way == 0 else (0, level)))
        return [{"name": side.labels[level][area], "ways": [way[area] for way in ways]} for area in largest]

    def _describe_areas(self, values: Reals, levels: tuple[int, int]) -> list[dict[str, object]]:
        """Return the ``numbers`` of each area in all periods, and the ``change`` between the last two, if it is known.

        ``values`` are the trips of the areas with the ends of their intervals, shape (3, periods, areas), between the
        ``levels`` of origins and destinations. Changes are per day if the periods have different lengths.
        """
        described = [{"numbers": numbers} for numbers in _convert_to_integers(values.T).tolist()]
        if self.compared and self.compared[-1].is_possible:
            old, new = (pd.DataFrame(values[:, period].T, columns=[*_VALUES]).reset_index() for period in (-2, -1))
            deviations = min(of_period[levels[0]][levels[1]] for of_period in self.deviations[-2:])
            changes = compute_table_changes(old, new, ["index"], deviations, self.compared[-1].days)
            for row in use_numbers_per_day(changes).dropna().to_dict("records"):
                described[row["index"]]["change"] = row
        return described


def _list_levels(side: Geography, deepest: int) -> list[dict[str, object]]:
    """Return the areas of the levels of a side down to the ``deepest``, as the program of the page reads them."""
    return [
        {
            "level": side.level_names[level],
            "codes": side.codes[level],
            "labels": side.labels[level],
            "parents": side.parents[level].tolist(),
            **({} if side.aliases is None else {"aliases": side.aliases[level]}),
        }
        for level in range(deepest + 1)
    ]


def _find_deepest_levels(
    sizes: Sequence[Integers], most: int, count_numbers: Callable[[int, int], int]
) -> tuple[int, int]:
    """Return the deepest level of each side for which the page has at most ``most`` numbers of each period.

    Both sides go down together, and a side without a further level stays at its last one.

    Args:
        sizes: for each side, the number of areas of each level and of all levels above it.
        most: largest number of numbers.
        count_numbers: returns the number of numbers, given such a number of areas of origins and of destinations.
    """
    sizes_of_origins, sizes_of_destinations = sizes
    deepest = (0, 0)
    for step in range(max(map(len, sizes))):
        origin_level, destination_level = (min(step, len(down_to) - 1) for down_to in sizes)
        if count_numbers(sizes_of_origins[origin_level], sizes_of_destinations[destination_level]) <= most:
            deepest = origin_level, destination_level
    return deepest


def _read_flows_into(
    values: Reals,
    totals: Sequence[Reals],
    release: SiteRelease,
    sides: Sequence[Geography],
    depths: tuple[int, int],
    listed: tuple[int, int],
) -> None:
    """Read the flows of a release between areas, and the totals of the areas of either side, into arrays.

    Args:
        values: output for flows; shape (3, origins, destinations).
        totals: output for the totals of each side; shape (3, areas) each.
        release: release whose bundle is read.
        sides, depths, listed: attributes of :class:`OverTime`.
    """
    columns = [f"{side}_level" for side in _SIDES]
    are_pairs, are_totals = [], []  # a list of conditions that all hold, and a list of such lists
    for own, other in ((0, 1), (1, 0)):
        names = sides[own].level_names
        are_pairs.append((columns[own], "in", names[: depths[own] + 1]))
        are_totals.append([(columns[own], "in", names[: listed[own] + 1]), (columns[other], "==", WHOLE_SPACE)])
    rows = pq.read_table(
        release.locate_table("flows"),
        columns=[*columns, *_SIDES, *_VALUES],
        filters=[are_pairs, *are_totals],  # any of these lists
    ).to_pandas()
    numbers = rows[[*_VALUES]].to_numpy(np.float64).T
    origins, destinations = positions = [
        _find_area_positions(side, rows[[level, code]])
        for side, level, code in zip(sides, columns, _SIDES, strict=True)
    ]
    is_shown = (origins >= 0) & (origins < values.shape[1]) & (destinations >= 0) & (destinations < values.shape[2])
    values[:, origins[is_shown], destinations[is_shown]] = numbers[:, is_shown]
    for own, total in enumerate(totals):
        is_total = (positions[1 - own] == 0) & (positions[own] >= 0)  # the other side is the whole space, at position 0
        total[:, positions[own][is_total]] = numbers[:, is_total]


def _find_area_positions(side: Geography, areas: pd.DataFrame) -> NDArray[np.intp]:
    """Return the position of each area among the areas of all levels of a side; -1 if the side lacks it; shape (rows,).

    Each row of ``areas`` has the name of an area's level, and its code.
    """
    known = [(name, area) for name, codes in zip(side.level_names, side.codes, strict=True) for area in codes]
    return pd.MultiIndex.from_tuples(known).get_indexer(pd.MultiIndex.from_frame(areas))


def _convert_to_integers(values: Reals) -> NDArray[Any]:
    """Return numbers as integers, in the same shape; with None in place of NaN, as objects."""
    missing = np.isnan(values)
    whole = np.where(missing, 0, values).astype(np.int64)
    return np.where(missing, None, whole) if missing.any() else whole  # type: ignore[call-overload]


def _encode_intervals(values: Reals) -> list[list[int | None]]:
    """Return three flat lists: the trips, and how far the ends of their intervals are below and above them.

    The first axis of ``values`` has trips, lower and upper ends. A missing number becomes None.
    """
    trips, lower, upper = values
    return [_convert_to_integers(numbers).ravel().tolist() for numbers in (trips, trips - lower, upper - trips)]


_MOST_ENTRIES = 100  # largest number of releases in the feed

HOME, CATALOGUE, OVER_TIME, PERIODS = "index.html", "catalog.jsonld", "over_time.html", "periods.json"
"""Files of a site: its first page and the catalogue of all releases; and of a series, its flows over time, and the
places of the atlases of its periods, which they compare with each other."""

PICTURE, API = "picture.png", "api/v1/"
"""File of a series with the picture of its newest release; and the folder of the interface for programs."""

_MISSING = "its bundle is missing"


@dataclass(frozen=True)
class Site:
    """A written site: its folder, in which ``HOME`` is its first page, and its numbers of series and of releases.

    Attributes:
        changed: files that were written, relative to the folder. All others were there already.
        left_out: published releases that the site leaves out, and why: their bundles are missing or damaged.
    """

    folder: Path
    series: int
    releases: int
    changed: tuple[str, ...]
    left_out: Mapping[ReleaseKey, str]

    def refuse_left_out(self) -> None:
        """Raise OdError if published releases were left out."""
        if self.left_out:
            raise _make_left_out_error(self.left_out)


def write_site(releases: Path, folder: Path, site: SiteDescription, database: Path | None = None) -> Site:
    """Write the site of all published releases, or bring it up to date.

    Files that are there already with the same content are left alone, and so are files that are not part of the site. A
    release whose bundle is missing or damaged is left out, and the result says why. Its files that were copied before
    stay, but no page leads to them. Those of a withdrawn release are removed, and its page says why. A feed and a site
    map, which must state whole addresses, need the site's address.

    The releases in ``database``, and those of which only the zip file is there, are known to be published. Raises
    OdError if nothing is published, or all bundles are missing or damaged; the folder is that of the bundles, or lies
    in it; there is a file at or above its path; or the database cannot be read.
    """
    _refuse_folder(folder, releases)
    bundles = find_bundle_folders(releases)
    faults = dict.fromkeys(find_missing_bundles(releases, database), _MISSING)
    shown = []
    for key, place in bundles.items():
        fault = _find_bundle_fault(key, place, folder)
        if fault is None:
            shown.append(SiteRelease.from_bundle(key, place))
        else:
            faults[key] = fault
    left_out = dict(sorted(faults.items()))
    site = replace(site, withdrawn=read_withdrawals(releases))
    if not shown and not site.withdrawn:
        if left_out:
            raise _make_left_out_error(left_out)
        raise OdError(
            "OD-RELEASE-ABSENT", "no release is published here", next_step="release a period: od-release run SERIES"
        )
    pages = dict(_iterate_pages(site, shown))
    for key in site.withdrawn:
        _remove_withdrawn(key, folder, pages.keys())
    changed = [name for release in shown for name in _copy_bundle(release, folder)]
    written = {name: text.encode() for name, text in sorted(pages.items())}
    for of_series in _group_by_series(shown).values():
        newest = select_newest_revisions(of_series)[0]
        if newest.shared_picture not in written:
            written[newest.shared_picture] = draw_png(pages[f"{newest.key}.svg"])
    changed += [name for name, content in written.items() if write_if_changed(folder / name, content)]
    return Site(folder, len(_group_by_series(shown)), len(shown), tuple(changed), left_out)


def _refuse_folder(folder: Path, releases: Path) -> None:
    """Raise OdError if a site cannot be written to a folder: it is that of the bundles or a file, or lies in one."""
    if folder.resolve().is_relative_to(releases.resolve()):
        step = "name another folder for the site"
        raise OdError("OD-SITE-FOLDER", f"{folder} is the folder of the bundles, or lies in it", next_step=step)
    if any(place.is_file() for place in (folder, *folder.parents)):
        message = f"{folder} is a file, or lies below one"
        raise OdError("OD-SITE-FOLDER", message, next_step="name a folder for the site")


def _remove_withdrawn(key: ReleaseKey, folder: Path, pages: Set[str]) -> None:
    """Remove from a site the copied files of a withdrawn release.

    Other files of the release or its series are removed, too, unless they are among the written ``pages``, by name.
    """
    if list_bundle_contents(folder / str(key)).keys() - {HOME}:
        shutil.rmtree(folder / str(key))
    stale = {f"{key.release}/{OVER_TIME}", f"{key.release}/{PERIODS}", f"{key}.zip", f"{key}.croissant.json"}
    stale |= {f"{key}.svg", f"{key.release}/{PICTURE}"}
    for name in stale - pages:
        (folder / name).unlink(missing_ok=True)


def _iterate_pages(site: SiteDescription, found: Sequence[SiteRelease]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each file of the site that is in no bundle.

    ``found`` has all releases of the site, in the order of their keys.
    """
    by_series = _group_by_series(found)
    newest_by_series = {name: select_newest_revisions(of_series) for name, of_series in by_series.items()}
    flows_first = sorted(newest_by_series, key=lambda name: not newest_by_series[name][0].contents.startswith("flows"))
    series = {name: newest_by_series[name] for name in flows_first}
    comparable = {name: select_comparable_releases(newest) for name, newest in series.items()}
    over_time = {name: OverTime.from_releases(newest) for name, newest in comparable.items() if newest}
    yield HOME, render_template("site/home.html", site=site, series=series, releases=found, over_time=over_time)
    yield "404.html", render_template("site/404.html", site=site, series=series)
    yield CATALOGUE, render_catalogue(site, found)
    series_without_releases = {key.release for key in site.withdrawn} - by_series.keys()
    for place in (*map(str, site.withdrawn), *series_without_releases):
        yield f"{place}/{HOME}", render_template("site/withdrawn.html", site=site, place=place)
    for name, of_series in by_series.items():
        yield f"{name}/index.html", render_series_page(site, name, of_series, series)
    for name, flows in over_time.items():
        yield f"{name}/{OVER_TIME}", make_over_time_page(site, comparable[name][0], flows)
        with_atlas = [release for release in comparable[name] if any(file["path"] == ATLAS for file in release.files)]
        periods = [{"release": release.folder, "period": release.key.period} for release in with_atlas]
        yield f"{name}/{PERIODS}", _format_json(periods)
    for release in found:
        page_folder = release.folder.rpartition("/")[0] + "/"
        described = render_data("site/croissant.json", site=site, release=release, page_folder=page_folder)
        yield release.croissant, _format_json(described)
        yield f"{release.key}.svg", release.render_card(site)
        status = "newest" if release in newest_by_series[release.key.release] else "replaced"
        numbers = read_quoted_numbers(release.place, release.certificate.get("geographies", {}))
        yield _render_api_document(site, release.key, release=release, status=status, numbers=numbers)
    for key, one in site.withdrawn.items():
        yield _render_api_document(site, key, key=key, one=one)
    yield f"{API}index.json", _format_json(render_data("site/api_index.json", site=site, series=series, releases=found))
    yield f"{API}openapi.json", _format_json(render_data("site/openapi.json", site=site))
    if site.base is not None:
        newest = sorted(found, key=lambda release: (release.certificate["measured_at"], release.key), reverse=True)
        yield "feed.atom", render_template("site/feed.xml", site=site, newest=newest[:_MOST_ENTRIES])
        yield "sitemap.xml", render_template("site/sitemap.xml", site=site, series=series)


def _render_api_document(site: SiteDescription, of: ReleaseKey, **values: object) -> tuple[str, str]:
    """Return the name and the text of the document of a release in the interface for programs."""
    here = f"{API}{of.release}/{of.period}/"
    return f"{API}{of}.json", _format_json(render_data("site/api_release.json", site=site, here=here, **values))


def _group_by_series(releases: Sequence[SiteRelease]) -> dict[str, list[SiteRelease]]:
    """Return the releases of each series, by its name. The releases must be in the order of their keys."""
    return {name: [*of_series] for name, of_series in groupby(releases, key=lambda release: release.key.release)}


def render_series_page(
    site: SiteDescription,
    name: str,
    releases: Sequence[SiteRelease],
    series: Mapping[str, Sequence[SiteRelease]] = MappingProxyType({}),
) -> str:
    """Return the HTML text of the page of a series, from all its releases.

    ``series`` has the last revisions of each series of the site, for links to releases of other series.
    """
    newest = select_newest_revisions(releases)
    return render_template(
        "site/series.html",
        site=site,
        name=name,
        releases=sorted(releases, key=lambda release: release.key, reverse=True),
        newest=newest,
        series=series,
        described=make_dataset_markup(site, name, newest),
        over_time=bool(select_comparable_releases(newest)),
    )


def select_comparable_releases(newest: Sequence[SiteRelease]) -> list[SiteRelease]:
    """Return those of the last revisions of a series whose flows can be compared: measured flows with intervals."""
    measured = [release for release in newest if find_bundle_kind(release.certificate) is FLOWS]
    return [release for release in measured if has_intervals(release.certificate)]


def make_over_time_page(site: SiteDescription, latest: SiteRelease, flows: OverTime) -> str:
    """Return the HTML text of the page of the flows of a series in each period; ``latest`` is its newest release."""
    program = (files("od_core.publication") / "templates/site/over_time.js").read_text(encoding="utf-8")
    return render_template(
        "site/over_time.html",
        site=site,
        latest=latest,
        flows=flows,
        data=_make_data_element(flows.data, 'type="application/json" id="data"'),
        program=Markup(program),  # noqa: S704 - of this package
        digest=base64.b64encode(hashlib.sha256(program.encode()).digest()).decode(),
        bound=MOST_NUMBERS,
    )


def make_dataset_markup(site: SiteDescription, name: str, newest: Sequence[SiteRelease]) -> Markup:
    """Return the description of a series for search engines: a schema.org ``Dataset`` as JSON-LD in an element.

    ``newest`` has the last revision of each period, newest period first.
    """
    description = render_data("site/dataset.json", site=site, name=name, newest=newest)
    return _make_data_element(description, 'type="application/ld+json"')


def _make_data_element(value: object, attributes: str) -> Markup:
    """Return a ``script`` element with JSON.

    A browser ends its text at "</" and decodes no character references, so < and > are escaped as JSON escapes them.
    """
    text = json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e")
    return Markup(f"<script {attributes}>{text}</script>")  # noqa: S704 - escaped above


def render_catalogue(site: SiteDescription, releases: Sequence[SiteRelease]) -> str:
    """Return the catalogue of releases, which are in the order of their keys, as JSON-LD in the vocabulary DCAT 3."""
    series = [of_series[-1] for of_series in _group_by_series(releases).values()]
    values = {"site": site, "base": site.base or "", "series": series, "releases": releases}
    return _format_json(render_data("site/catalog.json", **values))


def _format_json(value: object) -> str:
    """Return a value as the text of a JSON file."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _make_left_out_error(faults: Mapping[ReleaseKey, str]) -> OdError:
    """Return the OdError for published releases that a site leaves out, given the fault of each."""
    faulty = ", ".join(f"{key} ({fault})" for key, fault in faults.items())
    is_damaged = any(fault != _MISSING for fault in faults.values())
    message = f"the site leaves out published releases: {faulty}"
    step = f"for each: {REPAIR}; then write the site again"
    return OdError("OD-BUNDLE-DAMAGED" if is_damaged else "OD-BUNDLE-ABSENT", message, next_step=step)


def _find_bundle_fault(key: ReleaseKey, place: Path, folder: Path) -> str | None:
    """Return in words the first fault of a bundle in the folder ``place``, or of its zip file; None if there is none.

    Files that were copied to the site in ``folder`` before are not examined again.
    """
    digests, target = read_checksums(place), folder / str(key)
    if not digests:
        return f"{CHECKSUMS} is missing or cannot be read"
    tables = [locate_table(place, PARQUET[name]).relative_to(place).as_posix() for name in ("areas", "flows")]
    shown_files = (CERTIFICATE, PACKAGE, *(name for name in (*tables, REPORT) if name in digests))
    for name in shown_files:
        if not (place / name).is_file() or compute_file_digest(place / name) != digests.get(name):
            return f"{name} is missing or does not match its checksum"
    zip_file = locate_zip(place)
    if not zip_file.is_file():
        return f"{zip_file.name} is missing"
    if not _is_copy(place / CHECKSUMS, target / CHECKSUMS):
        for name, fault in check_checksums(place):
            return f"{name} {fault}"
    return None if _is_copy(zip_file, locate_zip(target)) else next(check_zip(place, str(key), zip_file), None)


def _is_copy(file: Path, other: Path) -> bool:
    """Return whether ``other`` exists and has the same content."""
    return other.is_file() and compute_file_digest(other) == compute_file_digest(file)


def _copy_bundle(release: SiteRelease, folder: Path) -> Iterator[str]:
    """Copy the files of a sound bundle and its zip file to the site, and yield the names of those that were not there.

    The checksums are copied last. If they are there already, the other files were copied before.
    """
    target, sums = folder / release.folder, release.place / CHECKSUMS
    if not _is_copy(sums, target / CHECKSUMS):
        for name in sorted(read_checksums(release.place)):
            _copy_whole(release.place / name, target / name)
            yield f"{release.folder}/{name}"
        write_if_changed(target / CHECKSUMS, sums.read_bytes())
        yield f"{release.folder}/{CHECKSUMS}"
    zip_file, target_zip = locate_zip(release.place), locate_zip(target)
    if not _is_copy(zip_file, target_zip):
        _copy_whole(zip_file, target_zip)
        yield f"{release.folder}.zip"


def _copy_whole(source: Path, target: Path) -> None:
    """Copy a file, and check that the copy is complete before it replaces an earlier one."""
    make_folder(target.parent)

    def write(place: Path) -> None:
        """Copy the file to a temporary path, and read it back."""
        with source.open("rb") as file:
            write_checked(place, partial(shutil.copyfileobj, file), mode=PUBLIC_FILE_MODE)

    write_durably(target, write, mode=PUBLIC_FILE_MODE)
