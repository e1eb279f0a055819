"""Write a static web site of all releases, from their bundles.

Only files that a bundle lists in its checksums reach the site. The same bundles give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from itertools import chain, groupby
from pathlib import Path
from types import MappingProxyType

from markupsafe import Markup

from od_core.errors import OdError
from od_core.files.durable import (
    PUBLIC_FILE_MODE,
    compute_file_digest,
    make_folder,
    write_checked,
    write_durably,
    write_if_changed,
)
from od_core.flows.publishing.kind import FLOWS
from od_core.languages import ENGLISH, get_language, list_languages, name_in_language, use_language
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.bundle_files import (
    ATLAS,
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
from od_core.publication.certificate import (
    has_intervals,
)
from od_core.publication.read_back import REPAIR, read_withdrawals
from od_core.publication.templates import render_data, render_template
from od_core.published.flows_over_time import MOST_NUMBERS, OverTime
from od_core.published.opening import find_bundle_folders, find_bundle_kind, find_missing_bundles
from od_core.published.site_numbers import read_quoted_numbers
from od_core.published.site_pictures import draw_png
from od_core.published.site_release import PICTURE, SiteDescription, SiteRelease, select_newest_revisions

_MOST_ENTRIES = 100  # largest number of releases in the feed

HOME, CATALOGUE, OVER_TIME, PERIODS = "index.html", "catalog.jsonld", "over_time.html", "periods.json"
"""Files of a site: its first page and the catalogue of all releases; and of a series, its flows over time, and the
places of the atlases of its periods, which they compare with each other."""

API = "api/v1/"
"""Folder of the interface for programs."""

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
    languages = sorted({language for release in shown for language in release.certificate.get("translations", {})})
    site = replace(site, withdrawn=read_withdrawals(releases), languages=tuple(languages))
    if not shown and not site.withdrawn:
        if left_out:
            raise _make_left_out_error(left_out)
        raise OdError(
            "OD-RELEASE-ABSENT", "no release is published here", next_step="release a period: od-release run SERIES"
        )
    pages = dict(_iterate_pages(site, shown))
    written = {name: text.encode() for name, text in sorted(pages.items())}
    for of_series in _group_by_series(shown).values():
        newest = select_newest_revisions(of_series)[0]
        picture = newest.shared_picture
        if picture not in written:
            written[picture] = draw_png(pages[f"{newest.key}.svg"], folder / picture)
    for key in site.withdrawn:
        _remove_withdrawn(key, folder, written.keys())
    changed = [name for release in shown for name in _copy_bundle(release, folder)]
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

    Other files of the release or its series, and pages in languages that the site no longer has, are removed, too,
    unless they are among the written ``pages``, by name.
    """
    if {f"{key}/{name}" for name in list_bundle_contents(folder / str(key))} - pages:
        shutil.rmtree(folder / str(key))
    stale = {
        f"{key.release}/{PERIODS}",
        f"{key.release}/{PICTURE}",
        f"{key}.zip",
        f"{key}.croissant.json",
        f"{key}.svg",
    }
    for language in (ENGLISH, *list_languages()):
        with use_language(language):
            home, over_time = name_in_language(HOME), name_in_language(OVER_TIME)
        stale |= {home, f"{key.release}/{home}", f"{key.release}/{over_time}"}
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
    for language in (ENGLISH, *site.languages):
        with use_language(language):
            yield from _iterate_pages_in_language(site, {name: by_series[name] for name in series}, over_time)
    yield "404.html", render_template("site/404.html", site=site, series=series)
    yield CATALOGUE, render_catalogue(site, found)
    for name in over_time:
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


def _iterate_pages_in_language(
    site: SiteDescription, series: Mapping[str, Sequence[SiteRelease]], over_time: Mapping[str, OverTime]
) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page for readers that is written in every language of the site.

    Args:
        site: description of the site.
        series: all releases of each series, by its name, in the order of the home page.
        over_time: flows of the series that have a page of flows over time, by their names.
    """
    translated = {name: [release.translate() for release in of_series] for name, of_series in series.items()}
    newest = {name: select_newest_revisions(of_series) for name, of_series in translated.items()}
    home, releases = name_in_language(HOME), [*chain.from_iterable(translated.values())]
    yield home, render_template("site/home.html", site=site, series=newest, releases=releases, over_time=over_time)
    series_without_releases = {key.release for key in site.withdrawn} - series.keys()
    for place in (*map(str, site.withdrawn), *series_without_releases):
        yield f"{place}/{home}", render_template("site/withdrawn.html", site=site, place=place)
    for name, of_series in translated.items():
        yield f"{name}/{home}", render_series_page(site, name, of_series, newest)
        if name in over_time:
            latest = select_comparable_releases(newest[name])[0]
            yield f"{name}/{name_in_language(OVER_TIME)}", make_over_time_page(site, latest, over_time[name])


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
        described=make_dataset_markup(site, name, newest) if get_language() == ENGLISH else "",  # once is enough
        over_time=bool(select_comparable_releases(newest)),
    )


def select_comparable_releases(newest: Sequence[SiteRelease]) -> list[SiteRelease]:
    """Return those of the last revisions of a series whose flows can be compared: measured flows with intervals."""
    measured = [release for release in newest if find_bundle_kind(release.certificate) is FLOWS]
    return [release for release in measured if has_intervals(release.certificate)]


def make_over_time_page(site: SiteDescription, latest: SiteRelease, flows: OverTime) -> str:
    """Return the HTML text of the page of the flows of a series in each period; ``latest`` is its newest release."""
    program = (files("od_core.publication") / "templates/site/over_time.js").read_text(encoding="utf-8")
    words = render_data("site/over_time.yaml", certificate=latest.certificate)
    return render_template(
        "site/over_time.html",
        site=site,
        latest=latest,
        flows=flows,
        data=_make_data_element({**flows.data, "words": words}, 'type="application/json" id="data"'),
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
