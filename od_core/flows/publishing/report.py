"""Write the HTML report of a release of flows, from the release, its certificate and facts of the ledger alone."""

from __future__ import annotations

from typing import Any

import pandas as pd

from od_core.errors import OdError
from od_core.flows.publishing.changes import by_the_bound, changes
from od_core.flows.publishing.chosen_rule import ESTIMATORS, by_other_rule, estimation_text
from od_core.flows.publishing.flow_tables import labelled
from od_core.flows.publishing.report_areas import CountedChanges, areas_sections, distance_sections, main_results
from od_core.flows.publishing.report_flows import (
    LISTED,
    between_zones,
    heat_section,
    largest_flows_section,
    leaf_flows,
    level_up_to,
    map_sections,
    map_title,
    sizes_section,
    trips_title,
)
from od_core.flows.publishing.report_map import drawn_flows, flow_map
from od_core.flows.publishing.report_segments import segment_sections
from od_core.flows.release import Release
from od_core.publication.html.certificate_page import (
    common_sections,
    confidence,
    promise_figures,
    protected,
    under_title,
)
from od_core.publication.html.report_page import (
    bar,
    number,
    page,
    paragraph,
    rounded,
    signed,
    table,
    with_interval,
)
from od_core.publication.kind import ReleaseContext
from od_core.publication.markup import Markup, element, joined

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

    The dictionary is empty if :func:`~od_core.flows.publishing.report_map.drawn_flows` finds no flow to draw.
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
