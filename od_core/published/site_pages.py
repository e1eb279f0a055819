"""Write the pages of a site: the first page with all series, and a page for each series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from od_core.publication.bundle import ATLAS
from od_core.publication.html.report_certificate import limitations, protected
from od_core.publication.html.report_page import bar, number, page, paragraph, table
from od_core.publication.markup import Markup, element, joined
from od_core.published.site_catalogue import dataset_markup
from od_core.published.site_description import SiteDescription
from od_core.published.site_releases import SiteRelease, newest_revisions


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
