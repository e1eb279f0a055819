"""State the facts that the report of a group-size table shows, from the release, its certificate and the ledger alone.

The words and the layout are in the template ``group_sizes_report.html``.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import numpy as np
from markupsafe import Markup

from od_core.geography.hierarchy import level_up_to
from od_core.group_sizes.estimation.intervals import listed_sizes
from od_core.group_sizes.groups import Counts
from od_core.group_sizes.plan import MEASURED
from od_core.group_sizes.release import GroupSizeRelease
from od_core.privacy.stability import laplace_reach
from od_core.publication.certificate import Certificate, confidence
from od_core.publication.codebook import citation
from od_core.publication.kind import ReleaseContext
from od_core.publication.number_formats import Scale, class_text, one_three_ten, places_of_largest, size_classes
from od_core.publication.templates import filled, filled_markup

MOST_AREAS = 24
"""Largest number of areas that the report shows one by one."""

BAND = "Share of the groups with at most each number of members"

_LONGEST_BAR = 420
_LEFT, _TOP, _WIDTH, _HEIGHT = 62, 14, 600, 250
"""Position and size of the chart with the band, within its picture."""


def group_size_report(
    release: GroupSizeRelease, certificate: Certificate, context: ReleaseContext[GroupSizeRelease]
) -> str:
    """Return the report of a release as HTML; see :meth:`od_core.publication.kind.Kind.report`."""
    interval, whole = confidence(certificate), _whole(release)
    groups = int(release.frame.groups.sum())
    middle = int(np.searchsorted(np.cumsum(whole), (groups + 1) // 2))
    has_bounds = interval is not None and middle < release.frame.top_code
    return filled(
        "group_sizes_report.html",
        certificate=certificate,
        interval=interval,
        groups=groups,
        top_code=release.frame.top_code,
        members=[int(values[0]) for values in release.bounds_of_members(0)],
        middle=middle,
        up_to_middle=_up_to(release, [middle])[0] if has_bounds else None,
        classes=_distribution(release, intervals=interval is not None),
        band=None if interval is None else _band(release),
        band_title=BAND,
        areas=None if interval is None else _members_by_area(release),
        heat=_by_area(release),
        measured=MEASURED[release.plan.mechanism.query],
        errors=_errors(release),
        context=context,
        citation=citation(certificate),
    )


def group_size_pictures(release: GroupSizeRelease, certificate: Certificate) -> dict[str, Markup]:
    """Return charts of the sizes of groups in the whole space, as SVG by title: numbers and, with intervals, a band."""
    title, classed = "Groups by their size", _classed(_whole(release))
    most = max(classed.values()) or 1
    rows = [(name, groups, _LONGEST_BAR * groups / most) for name, groups in classed.items()]
    drawn = {title: filled_markup("bars.svg", title=title, rows=rows)}
    return drawn if confidence(certificate) is None else drawn | {BAND: _band(release)}


def _band(release: GroupSizeRelease) -> Markup:
    """Return the chart of the share of all groups that have at most each size, with the band of its intervals.

    Its axis is logarithmic from 1 on, so that small and large sizes are both legible.
    """
    top_code, groups = release.frame.top_code, int(release.frame.groups.sum())
    sizes = listed_sizes(top_code)
    shares = np.array([np.append(values[0], groups) / groups for values in release.bounds_at_most(0, sizes)])

    def across(positions: Any) -> list[float]:
        found: list[float] = (_LEFT + _WIDTH * np.log1p(positions) / (np.log1p(top_code) or 1)).tolist()
        return found

    places = across([*sizes.tolist(), top_code])
    line, lower, upper = (
        [f"{x:.1f},{y:.1f}" for x, y in zip(places, heights, strict=True)]
        for heights in (_TOP + _HEIGHT * (1 - shares.clip(0, 1))).tolist()
    )
    steps = [0, *takewhile(lambda step: step <= top_code, one_three_ten())]
    return filled_markup(
        "band_chart.svg",
        title=BAND,
        left=_LEFT,
        right=_LEFT + _WIDTH,
        bottom=_TOP + _HEIGHT,
        heights={percent: _TOP + _HEIGHT * (1 - percent / 100) for percent in (0, 25, 50, 75, 100)},
        steps=dict(zip(steps, across(steps), strict=True)),
        band=[*lower, *upper[::-1]],
        line=line,
    )


def _whole(release: GroupSizeRelease) -> Counts:
    """Return the histogram of the whole space, which is the sum over the areas of the first level; shape (K + 1,)."""
    whole: Counts = release.histograms[0].sum(axis=0)
    return whole


def _classes(top_code: int) -> list[tuple[int, int]]:
    """Return the first and last size of each class: 0, 1, 2 to 3, 4 to 10 and so on, up to the top code."""
    return [(low, min(high, top_code)) for low, high in [(0, 0), *size_classes(top_code)]]


def _classed(histogram: Counts) -> dict[str, int]:
    """Return the number of groups in each class of sizes, by the name of the class."""
    summed = np.concatenate([[0], np.cumsum(histogram)])
    return {class_text(low, high): int(summed[high + 1] - summed[low]) for low, high in _classes(len(histogram) - 1)}


def _up_to(release: GroupSizeRelease, sizes: list[int]) -> list[tuple[int, int, int]]:
    """Return the number of groups of at most each size, with its bounds."""
    return list(zip(*(values[0].tolist() for values in release.bounds_at_most(0, np.array(sizes))), strict=True))


def _distribution(release: GroupSizeRelease, *, intervals: bool) -> list[dict[str, Any]]:
    """Return the groups of each class of sizes; with ``intervals``, also those of all sizes up to there."""
    top_code = release.frame.top_code
    ends = [high for _, high in _classes(top_code) if high < top_code]
    up_to = dict(enumerate(_up_to(release, ends) if intervals else []))
    return [
        {"size": name, "groups": groups, "up_to": up_to.get(k)}
        for k, (name, groups) in enumerate(_classed(_whole(release)).items())
    ]


def _members_by_area(release: GroupSizeRelease) -> dict[str, Any]:
    """Return the members of the groups of each area, with intervals."""
    geography = release.frame.geography
    level = level_up_to(geography, MOST_AREAS)
    bounds, groups = release.bounds_of_members(level), release.frame.totals(level)
    return {
        "name": geography.level_names[level],
        "rows": [
            {
                "area": geography.labels[level][area],
                "groups": int(groups[area]),
                "members": [int(values[area]) for values in bounds],
            }
            for area in places_of_largest(bounds[0], MOST_AREAS)
        ],
        "most": MOST_AREAS if len(groups) > MOST_AREAS else None,
    }


def _by_area(release: GroupSizeRelease) -> dict[str, Any]:
    """Return the groups by area and size, for the lowest level with at most ``MOST_AREAS`` areas.

    If every level has more areas, these are the ``MOST_AREAS`` areas of level 1 that have the most groups.
    """
    geography = release.frame.geography
    level = level_up_to(geography, MOST_AREAS)
    histograms = release.histograms[level - 1]
    classed = {area: _classed(histograms[area]) for area in places_of_largest(histograms.sum(axis=1), MOST_AREAS)}
    return {
        "name": geography.level_names[level],
        "columns": list(_classed(histograms[0])),
        "rows": [
            (geography.labels[level][area], [(groups, False) for groups in own.values()], int(histograms[area].sum()))
            for area, own in classed.items()
        ],
        "scale": Scale.up_to(max(groups for own in classed.values() for groups in own.values())),
        "most": MOST_AREAS if len(histograms) > MOST_AREAS else None,
    }


def _errors(release: GroupSizeRelease) -> list[dict[str, Any]]:
    """Return the noise of one measured number at each level."""
    geography = release.frame.geography
    return [
        {
            "level": geography.level_names[step.level],
            "areas": geography.size(step.level),
            "deviation": float(step.scale) * 2**0.5,
            "reach": laplace_reach(step.scale),
        }
        for step in release.plan.level_steps
    ]
