"""Write the HTML report of a release of flows, from the release, its certificate and facts of the ledger alone."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.flows.publishing.changes import changes
from od_core.flows.publishing.flow_tables import at_an_end
from od_core.flows.publishing.report_map import drawn_flows, flow_map
from od_core.flows.publishing.report_segments import segment_sections
from od_core.flows.release import Release
from od_core.geography.geography import Geography
from od_core.publication.html.report_certificate import common_sections, promise_figures, protected, under_title
from od_core.publication.html.report_page import (
    bar,
    between,
    class_text,
    heat_table,
    number,
    page,
    paragraph,
    rounded,
    scrolled,
    signed,
    size_classes,
    table,
)
from od_core.publication.kind import ReleaseContext
from od_core.publication.markup import Markup, element, joined

LISTED = 20
"""Largest number of rows in the table of flows, and in the table of changes."""

_MOST_HEATED, _MOST_COMPARED = 12, 64
"""Largest number of areas per side in the heat map, and in the comparison with the previous period."""


def flows_report(release: Release, certificate: dict[str, Any], context: ReleaseContext[Release]) -> str:
    """Return the HTML text of the report of a release of flows; see :meth:`od_core.publication.kind.Kind.report`."""
    tree = release.plan.tree
    interval = confidence(certificate)
    leaves = _leaf_flows(release, certificate)
    trips = int(release.leaves.trips.sum())
    sections = [
        ("What is protected", protected(certificate)),
        ("The largest flows", _largest(release, leaves, interval)),
        ("Flows between large areas", _heat(release)),
        *_map(release, leaves),
        *segment_sections(release, interval),
        ("Sizes of flows", _sizes(release)),
        ("Expected error by level", _errors(release, interval)),
        ("Changes since the previous period", _changes(release, certificate, context)),
        *common_sections(certificate, context),
    ]
    zones = number(len(tree.origin.zones))
    if tree.destination.digest != tree.origin.digest:
        zones += f" and {number(len(tree.destination.zones))}"
    figures: list[tuple[str, object]] = [
        ("trips, exact" if release.plan.publishes_total else "trips", number(trips)),
        ("pairs of zones with trips", number(len(release.leaves))),
        ("zones", zones),
        *promise_figures(certificate),
    ]
    return page(
        f"Flows: {certificate['release'].split('/')[0]}, {certificate['period']}",
        under_title(certificate),
        figures,
        sections,
    )


def confidence(certificate: dict[str, Any]) -> str | None:
    """Return the confidence of the release's intervals, such as ``90 %``; None for a release without intervals."""
    stated = certificate["interval"]
    return None if stated is None else f"{float(100 * Fraction(stated)):g} %"


def largest_flows(release: Release, certificate: dict[str, Any]) -> pd.DataFrame:
    """Return the ``LISTED`` largest flows between zones, largest first.

    Returns:
        Columns: origin, destination (zone codes), trips and, for a release with intervals, lower and upper.
    """
    return _leaf_flows(release, certificate).nlargest(LISTED, "trips")


def flow_pictures(release: Release, certificate: dict[str, Any]) -> dict[str, Markup]:
    """Return the map of the largest flows as SVG, by title.

    The dictionary is empty if :func:`~od_core.flows.publishing.report_map.drawn_flows` finds no flow to draw.
    """
    flows = drawn_flows(release.plan.tree, _leaf_flows(release, certificate))
    if flows is None:
        return {}
    title = _map_title(len(flows))
    return {title: flow_map(release.plan.tree, flows, title)}


def _leaf_flows(release: Release, certificate: dict[str, Any]) -> pd.DataFrame:
    tree = release.plan.tree
    interval = confidence(certificate) is not None
    flows = release.flows_at(tree.origin.levels[-1], tree.destination.levels[-1], interval=interval)
    return flows[flows["trips"] > 0]


def _largest(release: Release, leaves: pd.DataFrame, interval: str | None) -> Markup:
    flows = leaves.nlargest(LISTED, "trips")
    if len(flows) == 0:
        return paragraph("No flow has trips.")
    most = float(flows["upper" if interval else "trips"].max())
    rows = []
    for flow in flows.to_dict("records"):
        reach = (flow["lower"], flow["upper"]) if interval else None
        stated = (between(*reach),) if reach else ()
        rows.append(
            (flow["origin"], flow["destination"], number(flow["trips"]), *stated, bar(flow["trips"], most, reach))
        )
    tree = release.plan.tree
    headers = (
        f"from {tree.origin.levels[-1]}",
        f"to {tree.destination.levels[-1]}",
        "trips",
        *([f"{interval} interval"] if interval else []),
        "",
    )
    last = len(headers) - 1
    text = (
        f"The interval of a flow contains the true number of counted trips with a confidence of {interval}; the dark"
        " line over a bar shows the interval."
        f" Of {number(len(leaves))} flows, {number(at_an_end(leaves))} lie at an end of their interval: the interval of"
        " the measurements ended there or was widened to contain the released number. For these, the measurements"
        " suggest a number towards the other end, and the confidence is lower."
        if interval
        else "This release has no intervals; see the expected error below."
    )
    return joined(
        paragraph(text),
        table(
            f"The {number(len(flows))} largest of {number(len(release.leaves))} flows",
            headers,
            rows,
            numbers=set(range(2, last)),
            bars={last},
        ),
    )


def _level_up_to(geography: Geography, most: int) -> int:
    """Return the number of the finest level with at most ``most`` areas; 1 if every level has more."""
    fitting = [level for level in range(1, geography.depth + 1) if geography.size(level) <= most]
    return max(fitting, default=1)


def _heat(release: Release) -> Markup:
    """Return a table of the trips between large areas, in which a darker cell means more trips."""
    tree = release.plan.tree
    levels = (_level_up_to(tree.origin, _MOST_HEATED), _level_up_to(tree.destination, _MOST_HEATED))
    origin, destination, trips = tree.sums_at(release.leaves, *levels)
    every = np.zeros((tree.origin.size(levels[0]), tree.destination.size(levels[1])), dtype=np.int64)
    every[origin, destination] = trips
    rows, columns = _busiest(every.sum(axis=1)), _busiest(every.sum(axis=0))
    shown = every[np.ix_(rows, columns)].tolist()
    origins, destinations = (
        [geography.codes[level][area] for area in areas]
        for geography, level, areas in zip((tree.origin, tree.destination), levels, (rows, columns), strict=True)
    )
    names = (tree.origin.level_names[levels[0]], tree.destination.level_names[levels[1]])
    heated = heat_table(
        f"Trips from {names[0]} (rows) to {names[1]} (columns); darker means more trips",
        f"from {names[0]}, to {names[1]}",
        destinations,
        list(zip(origins, shown, every.sum(axis=1)[rows].tolist(), strict=True)),
        "trips",
    )
    if every.size == len(rows) * len(columns):
        return heated
    left_out = f"Each side shows only the {number(_MOST_HEATED)} areas with the most trips; the sums include all areas."
    return joined(heated, paragraph(left_out, note=True))


def _busiest(trips: NDArray[np.int64]) -> list[int]:
    """Return the numbers of the ``_MOST_HEATED`` areas with the most trips, in tree order."""
    most = np.argsort(-trips, kind="stable")[:_MOST_HEATED]
    return [int(area) for area in np.sort(most)]


def _map_title(flows: int) -> str:
    return f"Map of the {number(flows)} largest flows between two different zones"


def _map(release: Release, leaves: pd.DataFrame) -> list[tuple[str, Markup]]:
    flows = drawn_flows(release.plan.tree, leaves)
    if flows is None:
        return []
    title = _map_title(len(flows))
    drawn = element(
        "figure",
        scrolled(title, flow_map(release.plan.tree, flows, title)),
        element(
            "figcaption",
            f"{title}. A wider line means more trips. Seen from its origin, a line bends to the left, which"
            " distinguishes the two directions. Faint dots are zones without one of these flows. The map has no coast"
            " or border.",
        ),
    )
    if flows.head(LISTED).equals(leaves.nlargest(LISTED, "trips")):
        listed = paragraph(f"The {number(min(LISTED, len(flows)))} largest of them are listed in the table above.")
    else:
        interval = "lower" in flows
        listed = table(
            f"The {number(min(LISTED, len(flows)))} largest flows of the map",
            ("from", "to", "trips", *(["interval"] if interval else [])),
            [
                (
                    flow["origin"],
                    flow["destination"],
                    number(flow["trips"]),
                    *([between(flow["lower"], flow["upper"])] if interval else []),
                )
                for flow in flows.head(LISTED).to_dict("records")
            ],
            numbers={2, 3},
        )
    return [("Where the largest flows go", joined(drawn, listed))]


def _sizes(release: Release) -> Markup:
    """Return a table with one row per class of flow sizes: number of pairs of zones, trips, and share of all trips."""
    tree, trips = release.plan.tree, release.leaves.trips
    total, most = int(trips.sum()), int(trips.max(initial=0))
    rows = []
    classes = size_classes(most)
    counted = [((trips >= low) & (trips <= high)) for low, high in classes]
    longest = max((int(members.sum()) for members in counted), default=0)
    for (low, high), members in zip(classes, counted, strict=True):
        pairs, of_class = int(members.sum()), int(trips[members].sum())
        share = f"{100 * of_class / total:.1f} %" if total else "\u2013"
        rows.append(
            (
                class_text(low, high),
                number(pairs),
                bar(pairs, longest),
                number(of_class),
                share,
            )
        )
    none = tree.cells(tree.depth) - len(trips)
    return joined(
        paragraph(
            f"Of {number(tree.cells(tree.depth))} pairs of zones {number(none)} have 0 released trips. A released 0"
            " does not mean that nobody travelled: the upper end of its interval states how many trips there may be."
        ),
        table(
            "Pairs of zones by their released trips",
            ("trips of a pair", "pairs", "", "trips in total", "of all trips"),
            rows,
            numbers={1, 3, 4},
            bars={2},
        ),
    )


def _errors(release: Release, interval: str | None) -> Markup:
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


def _compared_levels(release: Release) -> tuple[str, str]:
    tree = release.plan.tree
    return (
        tree.origin.level_names[_level_up_to(tree.origin, _MOST_COMPARED)],
        tree.destination.level_names[_level_up_to(tree.destination, _MOST_COMPARED)],
    )


def _same_areas(release: Release, before: Release) -> bool:
    now, then = release.plan.tree, before.plan.tree
    return (now.origin.digest, now.destination.digest) == (then.origin.digest, then.destination.digest)


def _changes(release: Release, certificate: dict[str, Any], context: ReleaseContext[Release]) -> Markup:
    if context.previous is None:
        return paragraph("No earlier period of this series had been published when this release was measured.")
    key, before = context.previous
    if not _same_areas(release, before):
        return paragraph(f"The previous release, {key}, has different areas, so the two are not compared.")
    found = largest_changes(release, certificate, context)
    if found is None:
        return paragraph("One of the two releases has no intervals, so changes cannot be distinguished from noise.")
    levels, interval = _compared_levels(release), confidence(certificate)
    marked = int(found["significant"].sum())
    largest = found.head(LISTED)
    rows = [
        (
            row["origin"],
            row["destination"],
            number(row["before"]),
            number(row["after"]),
            signed(row["change"]),
            "\u2013" if pd.isna(row["lower"]) else f"{signed(row['lower'])} to {signed(row['upper'])}",
            element("span", "\u25cf yes", class_="mark") if row["significant"] else "no",
        )
        for row in largest[largest["change"] != 0].to_dict("records")
    ]
    return joined(
        paragraph(
            f"Compared with {key}, from {levels[0]} to {levels[1]}. Both releases contain independent noise. A change"
            f" is marked (\u25cf) only if it is larger than its uncertainty, that is, if 0 lies outside the interval of"
            f" the change. That interval combines the {interval} intervals of the two releases."
        ),
        paragraph(
            f"{number(marked)} of {number(len(found))} pairs are marked. Of the pairs that did not change, up to one in"
            " ten is also marked."
        ),
        table(
            f"The largest changes since {key.period}",
            ("from", "to", key.period, "now", "change", f"{interval} interval", "larger than its uncertainty"),
            rows,
            numbers={2, 3, 4, 5},
        )
        if rows
        else paragraph("No pair changed."),
    )
