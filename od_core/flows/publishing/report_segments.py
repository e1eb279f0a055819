"""Write the section of a report on breakdowns: the share of each category by origin area, as charts and as a table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.flows.release import Release
from od_core.geography.codes import positions
from od_core.geography.geography import Geography
from od_core.publication.html.report_page import INK, MUTED, SHADES, between, number, paragraph, rounded, table
from od_core.publication.markup import Markup, element, joined
from od_core.records.segments import Breakdown

_MOST_AREAS, _MOST_ROWS, _MOST_CHARTED = 12, 150, 12
"""Largest number of areas, of rows of the table for these areas, and of categories in a chart."""

_ROW, _NAME, _LENGTH, _VALUE, _LONGEST_NAME = 20, 112, 140, 60, 16
"""Height of a row of a chart; widths of its names, bars and values; and most characters of a name."""

_Values = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Shares:
    """The released trips of each category from some areas.

    Attributes:
        categories: The categories.
        areas: Names of the areas; the first stands for all of them.
        trips, lower, upper: Trips and ends of their intervals; shape (categories, areas) each. Without intervals, the
            ends are the trips.
    """

    categories: tuple[str, ...]
    areas: tuple[str, ...]
    trips: _Values
    lower: _Values
    upper: _Values

    def of_area(self, area: int) -> list[tuple[float, float, float]]:
        """Return the share of each category from an area, and the ends of its interval; 0 if no trip begins there."""
        whole = max(int(self.trips[:, area].sum()), 1)
        ends = (self.trips, self.lower, self.upper)
        return [
            (trips / whole, lower / whole, upper / whole)
            for trips, lower, upper in zip(*(end[:, area] for end in ends), strict=True)
        ]


def segment_sections(release: Release, interval: str | None) -> list[tuple[str, Markup]]:
    """Return the section on each breakdown with its heading; an empty list if there are none.

    Args:
        release: The release.
        interval: Confidence of the intervals, such as ``90 %``; None if the release has no intervals.
    """
    return [(f"Trips by {one.name}", _section(release, one, interval)) for one in release.plan.breakdowns]


def _section(release: Release, breakdown: Breakdown, interval: str | None) -> Markup:
    origins = release.plan.tree.origin
    level = _coarsest(origins)
    name = origins.level_names[level]
    shares = _shares(release, breakdown, level, intervals=interval is not None)
    counted = (
        f"Every counted trip has one of {len(breakdown.categories)} categories of {breakdown.name}. The released trips"
        " of all categories sum to the released trips of an area."
    )
    ends = (
        f" The dark lines show the {interval} intervals of the trips of a category, divided by the released trips of"
        " the area."
        if interval
        else ""
    )
    shown = len(shares.areas) - 1
    left_out = (
        [paragraph(f"Only the {number(shown)} areas with the most trips are shown.", note=True)]
        if shown < origins.size(level)
        else []
    )
    return joined(
        paragraph(f"{counted} The charts show the share of each category in the trips from each {name}.{ends}"),
        _charts(shares, breakdown),
        *left_out,
        _share_table(shares, breakdown, name, interval),
        _errors(release, breakdown),
    )


def _coarsest(geography: Geography) -> int:
    """Return the number of the coarsest level with several areas; that of the zones if there is none."""
    several = (level for level in range(1, geography.depth) if geography.size(level) > 1)
    return next(several, geography.depth)


def _shares(release: Release, breakdown: Breakdown, level: int, *, intervals: bool) -> _Shares:
    """Return the trips by category from all areas together, and from the areas of a level with the most trips."""
    tree = release.plan.tree
    everywhere = tree.destination.level_names[0]
    codes = tree.origin.codes[level]
    kinds = ("trips", "lower", "upper") if intervals else ("trips",)
    tables = []
    for at, areas in ((0, tree.origin.codes[0]), (level, codes)):
        flows = release.flows_at(tree.origin.level_names[at], everywhere, segment=breakdown.name, interval=intervals)
        tables.append([_matrix(flows, breakdown, areas, kind) for kind in kinds])
    most = min(_MOST_AREAS, _MOST_ROWS // len(breakdown.categories))
    busiest = np.sort(np.argsort(-tables[1][0].sum(axis=0), kind="stable")[:most])
    values = [np.hstack([whole, own[:, busiest]]) for whole, own in zip(*tables, strict=True)]
    areas = ("all", *(tree.origin.labels[level][area] for area in busiest))
    return _Shares(breakdown.categories, areas, values[0], values[-2 % len(values)], values[-1])


def _matrix(flows: pd.DataFrame, breakdown: Breakdown, areas: tuple[str, ...], kind: str) -> _Values:
    """Return a column of flows by category and origin, 0 where no flow is listed; shape (categories, areas)."""
    matrix = np.zeros((len(breakdown.categories), len(areas)), dtype=np.int64)
    row, column = (
        positions(flows[name], listed) for listed, name in ((breakdown.categories, breakdown.name), (areas, "origin"))
    )
    matrix[row, column] = flows[kind]
    return matrix


def _charts(shares: _Shares, breakdown: Breakdown) -> Markup:
    """Return one small chart per area, all with one scale, of the categories with the most trips."""
    largest = np.sort(np.argsort(-shares.trips[:, 0], kind="stable")[:_MOST_CHARTED])
    charted = [[shares.of_area(area)[category] for category in largest] for area in range(len(shares.areas))]
    most = max((value for chart in charted for share in chart for value in share), default=0.0)
    names = [shares.categories[category] for category in largest]
    figures = [
        element(
            "figure",
            element("figcaption", element("b", area), f": {number(int(shares.trips[:, k].sum()))} trips"),
            _chart(f"Shares of {breakdown.name} from {area}", names, charted[k], min(most, 1.0)),
        )
        for k, area in enumerate(shares.areas)
    ]
    charts = element("div", *figures, class_="maps")
    if len(largest) == len(shares.categories):
        return charts
    note = f"The charts show the {number(len(largest))} categories with the most trips; the table shows all."
    return joined(charts, paragraph(note, note=True))


def _chart(title: str, names: list[str], shares: list[tuple[float, float, float]], most: float) -> Markup:
    """Return an SVG bar chart of shares with their intervals; a bar of full length stands for the share ``most``."""
    scale = _LENGTH / most if most > 0 else 0.0
    drawn: list[Markup] = []
    for place, (name, (share, lower, upper)) in enumerate(zip(names, shares, strict=True)):
        middle = _ROW * place + _ROW / 2
        short = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}\u2026"
        start, end = (_NAME + min(scale * value, _LENGTH) for value in (lower, upper))
        drawn += [
            element("text", short, x=str(_NAME - 6), y=f"{middle + 4:g}", text_anchor="end"),
            element(
                "rect", x=str(_NAME), y=f"{middle - 6:g}", width=f"{scale * share:.1f}", height="12", fill=SHADES[4]
            ),
            element(
                "text", _percent(share), x=f"{max(_NAME + scale * share, end) + 5:.1f}", y=f"{middle + 4:g}", fill=MUTED
            ),
        ]
        if upper > lower:
            length = f"{max(end - start, 1.0):.1f}"
            drawn.append(element("rect", x=f"{start:.1f}", y=f"{middle - 1:g}", width=length, height="2", fill=INK))
    width, height = _NAME + _LENGTH + _VALUE, _ROW * len(names)
    return element(
        "svg",
        element("title", title),
        element("g", *drawn, font_size="12", fill=INK),
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        role="img",
    )


def _share_table(shares: _Shares, breakdown: Breakdown, level: str, interval: str | None) -> Markup:
    """Return a table with a row per area and category: its share, its trips and their interval."""
    rows = []
    for k, area in enumerate(shares.areas):
        of_area = shares.of_area(k)
        whole = int(shares.trips[:, k].sum())
        for category, (share, *ends) in enumerate(of_area):
            trips, lower, upper = (int(each[category, k]) for each in (shares.trips, shares.lower, shares.upper))
            intervals = (between(lower, upper), " to ".join(map(_percent, ends))) if interval else ()
            rows.append(
                (
                    area,
                    shares.categories[category],
                    number(trips),
                    *intervals[:1],
                    _percent(share) if whole else "\u2013",
                    *intervals[1:],
                )
            )
    stated = (f"{interval} interval",) if interval else ()
    headers = (f"from {level}", breakdown.name, "trips", *stated, "share", *stated)
    caption = f"Trips by {breakdown.name} and their share, by {level} of the origin"
    return table(caption, headers, rows, numbers=set(range(2, len(headers))))


def _errors(release: Release, breakdown: Breakdown) -> Markup:
    """Return a table with the noise and the expected error of a category at each level of the flow tree."""
    expected = release.plan.expected_segment_errors(breakdown.name)
    own = release.plan.segment_steps(breakdown.name)
    deviations = {step.level: rounded(float(step.variance) ** 0.5) for step in own}
    rows = [
        (number(level), origin, destination, deviations.get(level, "\u2013"), rounded(expected[level]))
        for level, (origin, destination) in enumerate(release.levels)
    ]
    headers = ("level", "from", "to", "noise of one measurement (standard deviation)", "expected error")
    caption = f"Noise and expected error of one category of {breakdown.name}, in trips"
    return table(caption, headers, rows, numbers={0, 3, 4})


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
