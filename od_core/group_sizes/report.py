"""Write the HTML report of a group-size table from the release, its certificate and the ledger alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from markupsafe import Markup

from od_core.group_sizes.estimation.intervals import listed_sizes
from od_core.group_sizes.groups import Counts
from od_core.group_sizes.plan import MEASURED
from od_core.group_sizes.release import GroupSizeRelease
from od_core.privacy.stability import laplace_reach
from od_core.publication.html.certificate_page import (
    common_sections,
    confidence,
    promise_figures,
    protected,
    under_title,
)
from od_core.publication.html.report_page import (
    band_chart,
    bar,
    bars,
    between,
    class_text,
    heat_table,
    number,
    page,
    paragraph,
    rounded,
    scrolled,
    size_classes,
    table,
    with_interval,
)
from od_core.publication.kind import ReleaseContext
from od_core.publication.markup import element, joined

MOST_AREAS = 24
"""Largest number of areas that the report shows one by one."""


def group_size_report(
    release: GroupSizeRelease, certificate: dict[str, Any], context: ReleaseContext[GroupSizeRelease]
) -> str:
    """Return the report of a release as HTML; see :meth:`od_core.publication.kind.Kind.report`."""
    frame = release.frame
    interval = confidence(certificate)
    sections = [
        ("Main results", _main_results(release, certificate, interval)),
        ("What is protected", protected(certificate)),
        ("Sizes of groups", _distribution(release, interval)),
        *([("Members of groups in areas", _members_by_area(release, interval))] if interval else []),
        ("Groups by area and size", _by_area(release)),
        ("Expected error by level", _errors(release)),
        *common_sections(certificate, context),
    ]
    figures: list[tuple[str, object]] = [
        ("groups, public", number(frame.groups.sum())),
        ("members", number(_members(_whole(release)))),
        ("top code", number(frame.top_code)),
        *promise_figures(certificate),
    ]
    title = f"Group sizes: {certificate['release'].split('/')[0]}, {certificate['period']}"
    return page(title, under_title(certificate), figures, sections)


def group_size_pictures(release: GroupSizeRelease, certificate: dict[str, Any]) -> dict[str, Markup]:
    """Return charts of the sizes of groups in the whole space, as SVG by title: numbers and, with intervals, a band."""
    title = "Groups by their size"
    drawn = {title: bars(title, _classed(_whole(release)))}
    return drawn if confidence(certificate) is None else drawn | {BAND: _band(release)}


BAND = "Share of the groups with at most each number of members"


def _band(release: GroupSizeRelease) -> Markup:
    """Return the chart of the share of all groups that have at most each size, with the band of its intervals."""
    top_code, groups = release.frame.top_code, int(release.frame.groups.sum())
    sizes = listed_sizes(top_code)
    drawn = [np.append(values[0], groups) / groups for values in release.bounds_at_most(0, sizes)]
    return band_chart(BAND, "members of a group", [*sizes.tolist(), top_code], *(values.tolist() for values in drawn))


def _main_results(release: GroupSizeRelease, certificate: dict[str, Any], interval: str | None) -> Markup:
    """Return the main results as a list of sentences."""
    frame = release.frame
    members, lower, upper = (int(values[0]) for values in release.bounds_of_members(0))
    reach = f" ({interval} interval: {between(lower, upper)})" if interval else ""
    groups = int(frame.groups.sum())
    middle = int(np.searchsorted(np.cumsum(_whole(release)), (groups + 1) // 2))
    sentences = [
        f"{certificate['period']} has {number(groups)} groups, which are public.",
        f"The groups have {number(members)} members{reach}, {rounded(members / groups)} on average.",
        f"Half of the groups have at most {number(middle)} members, by the released sizes.",
    ]
    if interval and middle < frame.top_code:
        at_most, least, most = (int(values[0, 0]) for values in release.bounds_at_most(0, np.array([middle])))
        sentences.append(
            f"{number(at_most)} groups have at most {number(middle)} members ({interval} interval:"
            f" {between(least, most)})."
        )
    return element("ul", *(element("li", sentence) for sentence in sentences))


def _whole(release: GroupSizeRelease) -> Counts:
    """Return the histogram of the whole space, which is the sum over the areas of the first level; shape (K + 1,)."""
    whole: Counts = release.histograms[0].sum(axis=0)
    return whole


def _members(histogram: Counts) -> int:
    return int(histogram @ np.arange(len(histogram)))


def _classes(top_code: int) -> list[tuple[int, int]]:
    """Return the first and last size of each class: 0, 1, 2 to 3, 4 to 10 and so on, up to the top code."""
    return [(low, min(high, top_code)) for low, high in [(0, 0), *size_classes(top_code)]]


def _classed(histogram: Counts) -> list[tuple[str, int]]:
    """Sum a histogram by classes of sizes, and return the name and the number of groups of each class."""
    summed = np.concatenate([[0], np.cumsum(histogram)])
    return [(class_text(low, high), int(summed[high + 1] - summed[low])) for low, high in _classes(len(histogram) - 1)]


def _distribution(release: GroupSizeRelease, interval: str | None) -> Markup:
    whole, top_code = _whole(release), release.frame.top_code
    classes, groups, members = _classed(whole), int(whole.sum()), _members(whole)
    longest = max(value for _, value in classes)
    up_to: list[tuple[object, ...]] = [()] * len(classes)
    if interval:
        ends = np.array([high for _, high in _classes(top_code) if high < top_code])
        at_most, lower, upper = (values[0].tolist() for values in release.bounds_at_most(0, ends))
        up_to = [
            (with_interval(number(value), between(*reach)),)
            for value, *reach in zip(at_most, lower, upper, strict=True)
        ]
        up_to += [(number(groups),)] * (len(classes) - len(up_to))
    rows = [
        (name, _with_share(value, groups), bar(value, longest), *more)
        for (name, value), more in zip(classes, up_to, strict=True)
    ]
    mean = f" {rounded(members / groups)} members per group on average." if groups else ""
    headers = ("members of a group", "groups", "", *(["groups up to there"] if interval else []))
    return joined(
        paragraph(
            f"{number(groups)} groups with {number(members)} members in total, by the released sizes;{mean} Sizes above"
            f" {number(top_code)} count as {number(top_code)}."
        ),
        *(_drawn_band(release, interval) if interval else ()),
        table("Groups of all areas by their size", headers, rows, numbers={1, 3}, bars={2}),
    )


def _with_share(value: int, groups: int) -> Markup:
    """Return a number of groups with its share of all groups below it."""
    share = f" ({100 * value / groups:.1f} %)"
    return joined(number(value), element("small", share)) if groups else joined(number(value))


def _drawn_band(release: GroupSizeRelease, interval: str) -> tuple[Markup, ...]:
    """Return the chart of the sizes with its caption, and a paragraph that explains the intervals."""
    caption = (
        f"{BAND}, in all areas. The line shows the released numbers. At each size, the band is the {interval} interval"
        " of the number of groups of at most that size."
    )
    text = (
        f"An interval contains the true number with a confidence of {interval}. Each is of one number, from the noisy"
        " measurements alone. In the last column of the table, it is that of the groups of all sizes up to those of the"
        " row. All areas and more sizes are in "
    )
    return (
        element("figure", scrolled(BAND, _band(release)), element("figcaption", caption)),
        paragraph(text, element("code", "cumulative.csv"), "."),
    )


def _shown_level(release: GroupSizeRelease) -> int:
    """Return the lowest level with at most ``MOST_AREAS`` areas; level 1 if every level has more."""
    geography = release.frame.geography
    return max((level for level in release.frame.levels if geography.size(level) <= MOST_AREAS), default=1)


def _members_by_area(release: GroupSizeRelease, interval: str) -> Markup:
    """Return a table of the members and the mean size of the groups of each area, with intervals."""
    geography, level = release.frame.geography, _shown_level(release)
    bounds, groups = release.bounds_of_members(level), release.frame.totals(level)
    largest = np.sort(np.argsort(-bounds[0], kind="stable")[:MOST_AREAS])
    longest = int(bounds[2][largest].max(initial=0))
    name, rows = geography.level_names[level], []
    for area in largest.tolist():
        members, lower, upper = (int(values[area]) for values in bounds)
        mean = [rounded(value / groups[area]) if groups[area] else "\u2013" for value in (members, lower, upper)]
        rows.append(
            (
                geography.labels[level][area],
                number(groups[area]),
                with_interval(number(members), between(lower, upper)),
                with_interval(mean[0], f"{mean[1]} to {mean[2]}"),
                bar(members, longest, (lower, upper)),
            )
        )
    text = (
        f"The members of all groups of each {name}. In brackets is the {interval} interval, and the dark line over a"
        " bar shows it. The numbers of groups are public, so the mean is as certain as the number of members."
    )
    left_out = f"Only the {number(MOST_AREAS)} areas with the most members are shown."
    return joined(
        paragraph(text),
        table(
            f"Members of the groups of each {name}",
            (name, "groups, public", "members", "members per group", ""),
            rows,
            numbers={1, 2, 3},
            bars={4},
        ),
        *([paragraph(left_out, note=True)] if len(groups) > MOST_AREAS else []),
        paragraph("All areas of all levels are in ", element("code", "members_by_area.csv"), ".", note=True),
    )


def _by_area(release: GroupSizeRelease) -> Markup:
    """Return a shaded table of groups by area and size, for the lowest level with at most ``MOST_AREAS`` areas.

    If every level has more areas, the table has those ``MOST_AREAS`` areas of level 1 that have the most groups.
    """
    geography = release.frame.geography
    level = _shown_level(release)
    histograms = release.histograms[level - 1]
    largest = np.sort(np.argsort(-histograms.sum(axis=1), kind="stable")[:MOST_AREAS])
    name = geography.level_names[level]
    rows = [
        (
            geography.labels[level][area],
            [groups for _, groups in _classed(histograms[area])],
            int(histograms[area].sum()),
        )
        for area in largest.tolist()
    ]
    columns = [name for name, _ in _classed(histograms[0])]
    heated = heat_table(
        f"Groups of each {name} (rows) by their members (columns); darker means more groups",
        f"{name}, members",
        columns,
        rows,
        "groups",
    )
    if len(histograms) <= MOST_AREAS:
        return heated
    return joined(heated, paragraph(f"Only the {number(MOST_AREAS)} areas with the most groups are shown.", note=True))


def _errors(release: GroupSizeRelease) -> Markup:
    geography = release.frame.geography
    rows = [
        (
            geography.level_names[step.level],
            number(geography.size(step.level)),
            rounded(float(step.scale) * 2**0.5),
            f"\u00b1 {number(laplace_reach(step.scale))}",
        )
        for step in release.plan.level_steps
    ]
    return joined(
        paragraph(
            f"The release measures {MEASURED[release.plan.mechanism.query]}, for every area of a level, and estimates"
            " the table from these noisy numbers. The noise of one number is computed from the plan, not by comparing"
            " this release with its input. Estimates are mostly closer to the true numbers than single measurements;"
            " sums over many sizes or areas have larger errors."
        ),
        table(
            "Noise of one measured number",
            ("level", "areas", "standard deviation", "nine in ten are within"),
            rows,
            numbers={1, 2, 3},
        ),
        paragraph(
            "For errors measured on synthetic and public data, see docs/explanation/group-sizes.md of od-release.",
            note=True,
        ),
    )
