"""Write a static web site of all releases, from their bundles.

Only files that a bundle lists in its checksums reach the site. The same bundles give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from markupsafe import Markup

from od_core.errors import OdError
from od_core.files.durable import (
    PUBLIC_FILE_MODE,
    file_digest,
    make_folder,
    write_checked,
    write_durably,
    write_if_other,
)
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.bundle import (
    AREAS_FILE,
    ATLAS,
    CERTIFICATE,
    PACKAGE,
    faulty_files,
    stated_digests,
    zip_beside,
    zip_faults,
)
from od_core.publication.codebook import CHECKSUMS
from od_core.publication.html.certificate_page import limitations, protected
from od_core.publication.html.report_page import bar, number, page, paragraph, table
from od_core.publication.markup import element, joined
from od_core.publication.read_back import REPAIR
from od_core.published.opening import missing_bundles, published_bundles
from od_core.published.site_catalogue import atom_feed, catalogue, croissant, dataset_markup, sitemap
from od_core.published.site_releases import SiteDescription, SiteRelease, newest_revisions


def home_page(site: SiteDescription, by_series: Mapping[str, Sequence[SiteRelease]]) -> str:
    """Return the HTML text of the first page.

    Args:
        site: what the site says of itself.
        by_series: the releases of each series, by its name.
    """
    rows = []
    for name, releases in sorted(by_series.items()):
        newest = newest_revisions(releases)
        rows.append(
            (
                element("a", name, href=f"{name}/index.html"),
                newest[0].contents,
                newest[0].certificate["data_set"],
                number(len(newest)),
                element("a", newest[0].key.period, href=f"{newest[0].folder}/report.html"),
            )
        )
    releases = [one for own in by_series.values() for one in own]
    read = joined(
        element("li", "Every number contains noise, except those that are stated as exact."),
        element(
            "li", "Most flows have a 90 % interval, which states how far noise may have moved them. A 0 has one, too."
        ),
        element("li", "A difference between two periods may be noise: the reports mark changes that are not."),
        element("li", "Cite the series, the period and the revision; each series page has a text for it."),
    )
    programs = [
        paragraph(
            element("a", "catalog.jsonld", href="catalog.jsonld"),
            " describes all releases and their files in the vocabulary DCAT. Each release has a description in the"
            " format Croissant, which its series page links.",
        )
    ]
    if site.base is not None:
        programs.append(
            paragraph(element("a", "feed.atom", href="feed.atom"), " is a feed of new releases and revisions.")
        )
    return page(
        site.title,
        "Statistics of trips between areas, published with differential privacy.",
        [
            ("series", number(len(by_series))),
            ("releases", number(len(releases))),
            ("newest measurement", max(one.certificate["measured_at"] for one in releases)[:10]),
        ],
        [
            (
                "Series",
                table(
                    "All series with their newest report",
                    ("series", "contents", "data set", "periods", "newest report"),
                    rows,
                    numbers={3},
                ),
            ),
            ("How to read the numbers", element("ul", read)),
            ("For programs", joined(*programs)),
        ],
    )


def series_page(site: SiteDescription, name: str, releases: Sequence[SiteRelease]) -> str:
    """Return the HTML text of the page of a series.

    Args:
        site: what the site says of itself.
        name: name of the series.
        releases: its releases.
    """
    newest = newest_revisions(releases)
    latest = newest[0]
    sections = [
        ("Releases", _releases(releases, newest)),
        *_over_time(newest),
        ("What is protected in the newest release", protected(latest.certificate)),
        ("How to cite", _citation(site, latest)),
        ("Assumptions and limitations", limitations(latest.certificate)),
    ]
    back = element("a", site.title, href="../index.html")
    return page(
        name,
        joined("A series of ", latest.contents, f" of data set {latest.certificate['data_set']}. ", back),
        [("periods", number(len(newest))), ("newest period", latest.key.period)],
        sections,
        head=dataset_markup(site, name, newest),
    )


def _releases(releases: Sequence[SiteRelease], newest: Sequence[SiteRelease]) -> Markup:
    rows = []
    for one in sorted(releases, key=lambda release: release.key, reverse=True):
        place = f"{one.key.period}/r{one.key.revision}"
        pages = {"report": "report.html", "atlas": ATLAS, "certificate": "certificate.html", "codebook": "codebook.md"}
        listed = {file["path"] for file in one.files}
        links = [element("a", text, href=f"{place}/{file}") for text, file in pages.items() if file in listed]
        size = f"all files, {one.zip_bytes / 1e6:,.1f} MB"
        rows.append(
            (
                one.key.period,
                number(one.key.revision) if one in newest else f"{one.key.revision}, replaced",
                one.certificate["measured_at"][:10],
                joined(links[0], *chain.from_iterable((", ", link) for link in links[1:])),
                joined(
                    element("a", size, href=f"{place}.zip"),
                    ", ",
                    element("a", "Croissant", href=one.croissant.removeprefix(f"{one.key.release}/")),
                ),
            )
        )
    return table("All releases, newest first", ("period", "revision", "measured", "read", "download"), rows)


def _over_time(newest: Sequence[SiteRelease]) -> list[tuple[str, Markup]]:
    """Return the section with the trips of each period; an empty list for one period or other contents."""
    counted = [(one, one.trips) for one in newest if one.trips is not None]
    if len(counted) < 2:
        return []
    most = max(trips for _, trips in counted)
    exact = ["exact" if "trips" in one.certificate["exact"] else "with noise" for one, _ in counted]
    rows = [
        (one.key.period, number(trips), said, bar(trips, most))
        for (one, trips), said in zip(counted, exact, strict=True)
    ]
    return [
        (
            "Trips by period",
            table("Trips of each period", ("period", "trips", "published", ""), rows, numbers={1}, bars={3}),
        )
    ]


def _citation(site: SiteDescription, release: SiteRelease) -> Markup:
    return joined(
        paragraph("For the newest release. Another revision has different noise and different numbers."),
        element("blockquote", release.citation(site)),
        paragraph(
            *(
                ["The publisher has not stated a licence here."]
                if site.licence is None
                else ["Licence: ", element("a", site.licence, href=site.licence), "."]
            )
        ),
    )


HOME, CATALOGUE = "index.html", "catalog.jsonld"
"""Files of a site: its first page, and the catalogue of all releases."""

_BLOCK = 1 << 20

_MISSING = "its bundle is missing"


@dataclass(frozen=True)
class Site:
    """A written site.

    Attributes:
        folder: its folder; ``HOME`` in it is its first page.
        series: number of series.
        releases: number of releases.
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
            raise _left_out(self.left_out)


def write_site(releases: Path, folder: Path, site: SiteDescription, database: Path | None = None) -> Site:
    """Write the site of all published releases, or bring it up to date.

    Files that are there already with the same content are left alone, and so are files that are not part of the site. A
    release whose bundle is missing or damaged is left out, and the result says why. Its files that were copied before
    stay, but no page leads to them.

    Args:
        releases: folder of all public bundles.
        folder: folder of the site.
        site: what the site says of itself. Only with its address, the site has a feed and a site map, which must
            state whole addresses.
        database: the release database. Its releases, and those of which only the zip file is there, are known to be
            published.

    Raises:
        OdError: nothing is published, or all bundles are missing or damaged; the folder is that of the bundles, or lies
            in it; there is a file at or above its path; or the database cannot be read.
    """
    _refuse_among_bundles(folder, releases)
    if any(place.is_file() for place in (folder, *folder.parents)):
        raise OdError(
            "OD-SITE-FOLDER", f"{folder} is a file, or lies below one", next_step="name a folder for the site"
        )
    bundles = published_bundles(releases)
    faults = {key: fault for key, place in bundles.items() if (fault := _fault(key, place, folder)) is not None}
    left_out = dict(sorted((dict.fromkeys(missing_bundles(releases, database), _MISSING) | faults).items()))
    found = [SiteRelease.of(key, place) for key, place in bundles.items() if key not in faults]
    if not found and left_out:
        raise _left_out(left_out)
    if not found:
        raise OdError(
            "OD-RELEASE-ABSENT", "no release is published here", next_step="release a period: od-release run SERIES"
        )
    names = dict.fromkeys(release.key.release for release in found)
    by_series = {name: [one for one in found if one.key.release == name] for name in names}
    pages = {HOME: home_page(site, by_series), CATALOGUE: catalogue(site, by_series)}
    pages |= {f"{name}/index.html": series_page(site, name, own) for name, own in by_series.items()}
    pages |= {release.croissant: croissant(site, release) for release in found}
    if site.base is not None:
        pages |= {"feed.atom": atom_feed(site, site.base, found), "sitemap.xml": sitemap(site.base, by_series)}
    changed = [name for release in found for name in _copied(release, folder)]
    changed += [name for name, text in sorted(pages.items()) if write_if_other(folder / name, text.encode())]
    return Site(folder, len(by_series), len(found), tuple(changed), left_out)


def _refuse_among_bundles(folder: Path, releases: Path) -> None:
    """Raise OdError if the site would lie among the bundles."""
    if folder.resolve().is_relative_to(releases.resolve()):
        raise OdError(
            "OD-SITE-FOLDER",
            f"{folder} is the folder of the bundles, or lies in it",
            next_step="name another folder for the site",
        )


def _left_out(faults: Mapping[ReleaseKey, str]) -> OdError:
    named = ", ".join(f"{key} ({fault})" for key, fault in faults.items())
    is_damaged = any(fault != _MISSING for fault in faults.values())
    return OdError(
        "OD-BUNDLE-DAMAGED" if is_damaged else "OD-BUNDLE-ABSENT",
        f"the site leaves out published releases: {named}",
        next_step=f"for each: {REPAIR}; then write the site again",
    )


def _fault(key: ReleaseKey, place: Path, folder: Path) -> str | None:
    """Return the first fault of a bundle or its zip file, or None if it has none.

    Files that were copied to the site before, with the same checksums, are not examined again.
    """
    stated, target = stated_digests(place), folder / str(key)
    if not stated:
        return f"{CHECKSUMS} is missing or cannot be read"
    for name in (CERTIFICATE, PACKAGE, *({AREAS_FILE} & {*stated})):  # pages are made from these at every call
        if not (place / name).is_file() or file_digest(place / name) != stated.get(name):
            return f"{name} is missing or does not match its checksum"
    zipped = zip_beside(place)
    if not zipped.is_file():
        return f"{zipped.name} is missing"
    if not _same(place / CHECKSUMS, target / CHECKSUMS):
        for name, fault in faulty_files(place):
            return f"{name} {fault}"
    return None if _same(zipped, zip_beside(target)) else next(zip_faults(place, str(key), zipped), None)


def _same(file: Path, other: Path) -> bool:
    return other.is_file() and file_digest(other) == file_digest(file)


def _copied(release: SiteRelease, folder: Path) -> Iterator[str]:
    """Copy the files of a sound bundle and its zip file, and yield the names of those that were not there.

    The checksums are copied last. Where they are there already, the other files were copied before.
    """
    target, sums = folder / release.folder, release.place / CHECKSUMS
    if not _same(sums, target / CHECKSUMS):
        for name in sorted(stated_digests(release.place)):
            yield from _copy(release.place / name, target / name, f"{release.folder}/{name}")
        write_if_other(target / CHECKSUMS, sums.read_bytes())
        yield f"{release.folder}/{CHECKSUMS}"
    zipped, there = zip_beside(release.place), zip_beside(target)
    if not _same(zipped, there):
        yield from _copy(zipped, there, f"{release.folder}.zip")


def _copy(source: Path, target: Path, name: str) -> Iterator[str]:
    make_folder(target.parent)

    def write(place: Path) -> None:
        with source.open("rb") as file:
            blocks = iter(lambda: file.read(_BLOCK), b"")
            write_checked(place, lambda copy: [copy.write(block) for block in blocks], mode=PUBLIC_FILE_MODE)

    write_durably(target, write, mode=PUBLIC_FILE_MODE)
    yield name
