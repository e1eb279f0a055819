"""Write the HTML report of a release of flows, from the release, its certificate and facts of the ledger alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.publishing.changes import by_the_bound, changes
from od_core.flows.publishing.chosen_rule import ESTIMATORS, by_other_rule, estimation_text
from od_core.flows.publishing.flow_tables import labelled
from od_core.flows.publishing.report_flows import (
    LISTED,
    CountedChanges,
    areas_sections,
    between_zones,
    distance_sections,
    drawn_flows,
    flow_map,
    heat_section,
    largest_flows_section,
    leaf_flows,
    level_up_to,
    main_results,
    map_sections,
    map_title,
    sizes_section,
    trips_title,
)
from od_core.flows.release import Release
from od_core.geography.codes import positions
from od_core.geography.geography import Geography
from od_core.publication.html.certificate_page import (
    common_sections,
    confidence,
    promise_figures,
    protected,
    under_title,
)
from od_core.publication.html.report_page import (
    INK,
    MUTED,
    SHADES,
    bar,
    between,
    number,
    page,
    paragraph,
    rounded,
    signed,
    table,
    with_interval,
)
from od_core.publication.kind import ReleaseContext
from od_core.publication.markup import element, joined
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
        _segment_errors(release, breakdown),
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


def _segment_errors(release: Release, breakdown: Breakdown) -> Markup:
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


_MOST_COMPARED = 64
"""Largest number of areas per side in the comparison with the previous period."""


def flows_report(release: Release, certificate: dict[str, Any], context: ReleaseContext[Release]) -> str:
    """Return the HTML text of the report of a release of flows; see :meth:`od_core.publication.kind.Kind.report`."""
    tree = release.plan.tree
    interval = confidence(certificate)
    leaves = leaf_flows(release, certificate)
    trips = int(release.leaves.trips.sum())
    changed = largest_changes(release, certificate, context)
    sections = [
        ("Main results", main_results(release, leaves, certificate, interval, _counted(changed, certificate, context))),
        ("What is protected", protected(certificate)),
        ("The largest flows", largest_flows_section(release, leaves, interval)),
        ("Flows between large areas", heat_section(release, interval)),
        *areas_sections(release, interval),
        *distance_sections(release, certificate, interval),
        *map_sections(release, leaves),
        *segment_sections(release, interval),
        ("Sizes of flows", sizes_section(release)),
        ("Expected error by level", _errors(release, certificate, interval)),
        ("Changes since the previous period", _changes(release, certificate, context, changed)),
        *common_sections(certificate, context),
    ]
    zones = number(len(tree.origin.zones))
    if tree.destination.digest != tree.origin.digest:
        zones += f" and {number(len(tree.destination.zones))}"
    figures: list[tuple[str, object]] = [
        (trips_title(release.plan.unit, exact=release.plan.publishes_total), number(trips)),
        ("pairs of zones released above 0", number(len(release.leaves))),
        ("zones", zones),
        *promise_figures(certificate),
    ]
    return page(
        f"Flows: {certificate['release'].split('/')[0]}, {certificate['period']}",
        under_title(certificate),
        figures,
        sections,
    )


def largest_flows(release: Release, certificate: dict[str, Any]) -> pd.DataFrame:
    """Return the ``LISTED`` largest flows from one zone to another, largest first.

    Returns:
        Columns: origin, destination (zone codes), trips and, for a release with intervals, lower and upper.
    """
    return between_zones(release, leaf_flows(release, certificate)).nlargest(LISTED, "trips")


def flow_pictures(release: Release, certificate: dict[str, Any]) -> dict[str, Markup]:
    """Return the map of the largest flows as SVG, by title.

    The dictionary is empty if :func:`~od_core.flows.publishing.report_flows.drawn_flows` finds no flow to draw.
    """
    flows = drawn_flows(release.plan.tree, leaf_flows(release, certificate))
    if flows is None:
        return {}
    title = map_title(len(flows))
    return {title: flow_map(release.plan.tree, flows, title)}


def _errors(release: Release, certificate: dict[str, Any], interval: str | None) -> Markup:
    plan = release.plan
    expected = plan.expected_errors
    steps = {step.level: step for step in plan.steps if not step.by_segment}
    largest = max((error for error in expected if error == error), default=0.0)
    rows = []
    for level, (origin, destination) in enumerate(release.levels):
        step, error = steps.get(level), expected[level]
        known = error == error
        rows.append(
            (
                number(level),
                origin,
                destination,
                number(plan.tree.cells(level)),
                "\u2013" if step is None else rounded(float(step.variance) ** 0.5),
                rounded(error) if known else "not known",
                bar(error if known else 0.0, largest),
            )
        )
    return joined(
        paragraph(
            "The expected difference between a released number and the true number, as the root of the mean squared"
            " error over all public pairs of a level. It is computed from the plan before any record is read, not by"
            " comparing this release with its input. If many pairs have no trips, the error is smaller."
        ),
        *(
            [paragraph(f"{chosen} This is the error of {ESTIMATORS['least_squares'].name}.")]
            if (chosen := estimation_text(certificate))
            else []
        ),
        table(
            "Noise and expected error, in trips",
            (
                "level",
                "from",
                "to",
                "public pairs",
                "noise of one measurement (standard deviation)",
                "expected error",
                "",
            ),
            rows,
            numbers={0, 3, 4, 5},
            bars={6},
        ),
        paragraph(
            f"For how often {interval} intervals contain the true number, measured on synthetic and public data, see"
            if interval
            else "For errors measured on synthetic and public data, see",
            " docs/explanation/uncertainty.md of od-release, which lists every class of true size.",
            note=True,
        ),
    )


def largest_changes(
    release: Release, certificate: dict[str, Any], context: ReleaseContext[Release]
) -> pd.DataFrame | None:
    """Return the changes of flows since the release of the previous period, largest first.

    Origins and destinations are compared at the finest level with at most ``_MOST_COMPARED`` areas. For the columns,
    see :func:`od_core.flows.publishing.changes.changes`. Return None if there is no previous release, if its areas
    differ, or if one of the two releases has no intervals.
    """
    if context.previous is None or confidence(certificate) is None or not _same_areas(release, context.previous[1]):
        return None
    try:
        return changes(context.previous[1], release, *_compared_levels(release))
    except OdError as error:
        if error.code not in ("OD-INTERVAL-MECHANISM", "OD-INTERVAL-SIZE"):
            raise
        return None


def labelled_changes(release: Release, changed: pd.DataFrame) -> pd.DataFrame:
    """Return rows of :func:`largest_changes` for people, with the labels of areas."""
    tree, (origin, destination) = release.plan.tree, _compared_levels(release)
    return labelled(tree, changed, (tree.origin.level_number(origin), tree.destination.level_number(destination)))


def _counted(
    found: pd.DataFrame | None, certificate: dict[str, Any], context: ReleaseContext[Release]
) -> CountedChanges | None:
    """Return how many flows changed since the previous period, if any is compared."""
    if found is None or context.previous is None:
        return None
    grew, fell = (int((found["significant"] & (sign * found["change"] > 0)).sum()) for sign in (1, -1))
    caution = by_the_bound(certificate["unit"]) + by_other_rule(context.previous_certificate, certificate)
    return CountedChanges(context.previous[0].period, grew, fell, len(found), caution)


def _compared_levels(release: Release) -> tuple[str, str]:
    tree = release.plan.tree
    return (
        tree.origin.level_names[level_up_to(tree.origin, _MOST_COMPARED)],
        tree.destination.level_names[level_up_to(tree.destination, _MOST_COMPARED)],
    )


def _same_areas(release: Release, before: Release) -> bool:
    now, then = release.plan.tree, before.plan.tree
    return (now.origin.digest, now.destination.digest) == (then.origin.digest, then.destination.digest)


def _changes(
    release: Release, certificate: dict[str, Any], context: ReleaseContext[Release], found: pd.DataFrame | None
) -> Markup:
    if context.previous is None:
        return paragraph("No earlier period of this series had been published when this release was measured.")
    key, before = context.previous
    if not _same_areas(release, before):
        return paragraph(f"The previous release, {key}, has different areas, so the two are not compared.")
    counted = _counted(found, certificate, context)
    if found is None or counted is None:
        return paragraph("One of the two releases has no intervals, so changes cannot be distinguished from noise.")
    levels, interval = _compared_levels(release), confidence(certificate)
    intro = [
        paragraph(
            f"Compared with {key}, from {levels[0]} to {levels[1]}. Both releases contain independent noise. A change"
            f" is marked (\u25cf) only if it is larger than its uncertainty, that is, if 0 lies outside the interval of"
            f" the change, which is in brackets. That interval combines the {interval} intervals of the two releases."
            f"{counted.caution}"
        ),
        paragraph(
            f"{number(counted.marked)} of {number(counted.compared)} pairs are marked: {number(counted.grew)} grew, and"
            f" {number(counted.fell)} fell. Of the pairs that did not change, up to one in ten is also marked."
        ),
    ]
    tables = [
        table(
            f"The largest {what} since {key.period}",
            ("from", "to", key.period, "now", f"change ({interval} interval)"),
            rows,
            numbers={2, 3, 4},
            spare={2},
        )
        for what, sign in (("increases", 1), ("decreases", -1))
        if (rows := _rows_of_changes(release, found[sign * found["change"] > 0].head(LISTED // 2)))
    ]
    return joined(*intro, *(tables or [paragraph("No pair changed.")]))


def _rows_of_changes(release: Release, found: pd.DataFrame) -> list[tuple[object, ...]]:
    """Return rows of the table of some changes."""
    return [
        (
            row["origin"],
            row["destination"],
            number(row["before"]),
            number(row["after"]),
            joined(
                *([element("span", "\u25cf ", class_="mark")] if row["significant"] else []),
                with_interval(
                    signed(row["change"]),
                    "\u2013" if pd.isna(row["lower"]) else f"{signed(row['lower'])} to {signed(row['upper'])}",
                ),
            ),
        )
        for row in labelled_changes(release, found).to_dict("records")
    ]
