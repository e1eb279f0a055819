"""Write the HTML report of a group-size table from the release, its certificate and the ledger alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from od_core.group_sizes.groups import Counts
from od_core.group_sizes.plan import MEASURED
from od_core.group_sizes.release import GroupSizeRelease
from od_core.privacy.stability import laplace_reach
from od_core.publication.html.report_certificate import common_sections, promise_figures, protected, under_title
from od_core.publication.html.report_page import (
    bar,
    bars,
    class_text,
    heat_table,
    number,
    page,
    paragraph,
    rounded,
    size_classes,
    table,
)
from od_core.publication.kind import ReleaseContext
from od_core.publication.markup import Markup, joined

MOST_AREAS = 24
"""Largest number of areas that the report shows one by one."""


def group_size_report(
    release: GroupSizeRelease, certificate: dict[str, Any], context: ReleaseContext[GroupSizeRelease]
) -> str:
    """Return the report of a release as HTML; see :meth:`od_core.publication.kind.Kind.report`."""
    frame = release.frame
    sections = [
        ("What is protected", protected(certificate)),
        ("Sizes of groups", _distribution(release)),
        ("By area", _by_area(release)),
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


def group_size_pictures(release: GroupSizeRelease, _certificate: dict[str, Any]) -> dict[str, Markup]:
    """Return a bar chart of the number of groups of each size in the whole space, as SVG by title."""
    title = "Groups by their size"
    return {title: bars(title, _classed(_whole(release)))}


def _whole(release: GroupSizeRelease) -> Counts:
    """Return the histogram of the whole space, which is the sum over the areas of the first level; shape (K + 1,)."""
    whole: Counts = release.histograms[0].sum(axis=0)
    return whole


def _members(histogram: Counts) -> int:
    return int(histogram @ np.arange(len(histogram)))


def _classed(histogram: Counts) -> list[tuple[str, int]]:
    """Sum a histogram by ranges of sizes, and return the name and the number of groups of each range, size 0 first."""
    summed = np.concatenate([[0], np.cumsum(histogram)])
    top = len(histogram) - 1
    return [
        (class_text(low, min(high, top)), int(summed[min(high, top) + 1] - summed[low]))
        for low, high in [(0, 0), *size_classes(top)]
    ]


def _distribution(release: GroupSizeRelease) -> Markup:
    whole = _whole(release)
    classes, groups, members = _classed(whole), int(whole.sum()), _members(whole)
    longest = max(value for _, value in classes)
    rows = [
        (name, number(value), bar(value, longest), f"{100 * value / groups:.1f} %" if groups else "\u2013")
        for name, value in classes
    ]
    mean = f" {rounded(members / groups)} members per group on average." if groups else ""
    return joined(
        paragraph(
            f"{number(groups)} groups with {number(members)} members in total, by the released sizes;{mean} Sizes above"
            f" {number(release.frame.top_code)} count as {number(release.frame.top_code)}."
        ),
        table(
            "Groups of all areas by their size",
            ("members of a group", "groups", "", "of all groups"),
            rows,
            numbers={1, 3},
            bars={2},
        ),
    )


def _by_area(release: GroupSizeRelease) -> Markup:
    """Return a shaded table of groups by area and size, for the lowest level with at most ``MOST_AREAS`` areas.

    If every level has more areas, the table has those ``MOST_AREAS`` areas of level 1 that have the most groups.
    """
    geography = release.frame.geography
    fitting = [level for level in release.frame.levels if geography.size(level) <= MOST_AREAS]
    level = max(fitting, default=1)
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
