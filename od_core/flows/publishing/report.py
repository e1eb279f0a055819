"""State the facts that the report of flows shows, from the flows, their certificate and facts of the ledger alone.

The words and the layout are in templates: ``flows_page.html`` has what the pages of releases and of derived flows
share, and ``flows_report.html`` has what only releases have.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from od_core.errors import OdError
from od_core.flows.arrays import Integers, Reals
from od_core.flows.estimators import ESTIMATORS
from od_core.flows.indicators import distance_bands
from od_core.flows.interval_ends import choose_reliability_words
from od_core.flows.publishing.atlas import has_atlas
from od_core.flows.publishing.changes import changes, describe_cautions, use_numbers_per_day
from od_core.flows.publishing.flow_tables import FlowTables, index_labels_by_code, label_areas, list_level_errors
from od_core.flows.publishing.maps import DesireLines, render_flow_map
from od_core.flows.release import Release
from od_core.flows.released_flows import ReleasedFlows
from od_core.geography.codes import find_positions
from od_core.geography.geography import find_finest_level
from od_core.languages import translate
from od_core.privacy.plan import with_fields
from od_core.publication.bundle_files import ATLAS
from od_core.publication.certificate import (
    Certificate,
    format_confidence,
    has_intervals,
    is_selected,
    read_subject,
)
from od_core.publication.comparability import Comparability, check_comparability
from od_core.publication.kind import ReleaseContext
from od_core.publication.number_formats import Scale, find_places_of_largest, format_class, list_size_classes
from od_core.publication.templates import render_markup, render_template
from od_core.records.segments import Breakdown

LISTED = 20
"""Largest number of rows in the table of flows, and in the table of changes."""

_LISTED_WITHIN = 10
"""Largest number of rows in the table of flows within a zone."""

_MOST_HEATED = 12
"""Largest number of areas per side in the heat map."""

_MOST_DRAWN = 30
"""Largest number of flows on the map."""

_MOST_BOUNDED = 100_000
"""Largest number of pairs of areas whose intervals are computed for the heat map."""

_MOST_AREAS = 24
"""Largest number of areas in a table of indicators."""

_MOST_COMPARED = 64
"""Largest number of areas per side in the comparison with the previous period."""

_MOST_SEGMENTED, _MOST_ROWS, _MOST_CHARTED = 12, 150, 12
"""Largest number of areas by category, of rows of the table for these areas, and of categories in a chart."""


def render_flows_report(release: Release, certificate: Certificate, context: ReleaseContext[Release]) -> str:
    """Return the HTML text of the report of a release of flows; ``context`` has the previous release, if any."""
    release = with_fields(release, selected=is_selected(certificate))
    plan, tree, facts = release.plan, release.plan.tree, make_flow_facts(release, certificate)
    interval, zones = facts["interval"], tree.level_names[-1]
    return render_template(
        "flows_report.html",
        **facts,
        sizes_of_sides=list({side.digest: len(side.zones) for side in tree.listed_sides}.values()),
        within=_find_interval_reach(select_leaf_flows(release, certificate)) if interval and facts["pairs"] else None,
        zero_bound=release.zero_bound(*zones) if interval and len(release.leaves) < tree.cells(tree.depth) else None,
        atlas=ATLAS if has_atlas(tree, certificate) else None,
        segments=[
            _summarise_segments(release, breakdown, intervals=interval is not None) for breakdown in plan.breakdowns
        ],
        errors=list_level_errors(release),
        known=[totals.describe(read_subject(certificate).nouns.counted) for totals in plan.known],
        contradicted=_list_contradicted_totals(release) if interval else None,
        has_threshold=plan.has_threshold,
        chosen=describe_estimation(certificate),
        estimates_otherwise=plan.mechanism.estimator.key != "least_squares"
        and certificate.get("estimation", {}).get("rule") != "least_squares",
        comparable=_assess_comparability(certificate, context),
        changed=_summarise_changes(release, certificate, context),
        context=context,
    )


def _list_contradicted_totals(release: Release) -> list[dict[Hashable, Any]] | None:
    """Return the known totals that the measurements contradict, with labels of areas; None if none are known."""
    if not release.plan.known:
        return None
    sides = {"origin": release.tree.origin, "destination": release.tree.destination}
    labels = {side: index_labels_by_code(geography, geography.depth) for side, geography in sides.items()}
    rows = release.contradicted_totals.to_dict("records")
    return [row | {"label": labels[row["side"]][row["area"]]} for row in rows]


def _find_interval_reach(leaves: pd.DataFrame) -> dict[str, int]:
    """Return, in trips, the largest distances of the ends of intervals below and above the flows, and the median width.

    ``leaves`` are flows with intervals; see :func:`select_leaf_flows`.
    """
    widths = leaves["upper"] - leaves["lower"]
    return {
        "down": int((leaves["trips"] - leaves["lower"]).max()),
        "up": int((leaves["upper"] - leaves["trips"]).max()),
        "median": int(np.ceil(widths.median())),
    }


def make_flow_facts(flows: ReleasedFlows, certificate: Certificate) -> dict[str, object]:
    """Return the facts that ``flows_page.html`` shows of a release or of derived flows, by name."""
    flows = with_fields(flows, selected=is_selected(certificate))
    leaves, interval, tree = select_leaf_flows(flows, certificate), format_confidence(certificate), flows.tree
    apart = select_flows_between_zones(flows, leaves)
    at_lower, at_upper = (leaves["trips"] == leaves.get(end) for end in ("lower", "upper"))
    return {
        "certificate": certificate,
        "interval": interval,
        "trips": int(flows.leaves.trips.sum()),
        "pairs": len(flows.leaves),
        "public_pairs": tree.cells(tree.depth),
        "all_pairs": len(tree.origin.zones) * len(tree.destination.zones),
        "zone_names": tree.level_names[-1],
        "listed": len(leaves),
        "at_an_end": int((at_lower ^ at_upper).sum()),  # see docs/explanation/uncertainty.md
        "between_zones": _summarise_largest_flows(flows, apart, LISTED),
        "within_zones": _summarise_largest_flows(flows, leaves.drop(apart.index), _LISTED_WITHIN),
        "heat": _make_heat_map_facts(flows, intervals=interval is not None),
        "areas": _list_area_indicators(FlowTables.from_release(flows, certificate)),
        "dropped": interval is not None and not flows.intervals.nothing_dropped,
        "distances": _sum_trips_by_distance(flows, certificate),
        "map": _map_largest_flows(flows, certificate),
        "sizes": _count_flows_by_size(flows),
    }


def describe_estimation(certificate: Certificate) -> str:
    """Return sentences on the rule of estimation that was chosen for a release; an empty text if none was chosen."""
    if "estimation" not in certificate:
        return ""
    rule, u = certificate["estimation"]["rule"], certificate["estimation"]["u"]
    chosen = ESTIMATORS[rule].texts["chosen"]
    chosen = translate(chosen).format(u=u)
    evidence = certificate.get("evidence", {"releases": 1})
    if evidence["releases"] == 1:
        return chosen
    shown = translate("The evidence is that of {releases} releases of the series.")
    if evidence["since"]:
        shown = translate(
            "The evidence is that of {releases} releases of the series, which has kept this rule since {since}."
        )
    return f"{chosen} {shown.format(**evidence)}"


def select_leaf_flows(release: ReleasedFlows, certificate: Certificate) -> pd.DataFrame:
    """Return the flows between zones with at least one trip, with the columns of the bundle's tables; computed once."""
    tables = FlowTables.from_release(release, certificate)
    return release.compute_once(
        ("leaf_flows", tables.interval, tables.format), lambda: tables.pairs[-1].flows.query("trips > 0")
    )


def select_flows_between_zones(release: ReleasedFlows, leaves: pd.DataFrame) -> pd.DataFrame:
    """Return the flows from one zone to another; all flows if origins and destinations have different areas."""
    if not release.tree.same_geography:
        return leaves
    return leaves[leaves["origin"] != leaves["destination"]]


def render_flow_pictures(release: Release, certificate: Certificate) -> dict[str, Markup]:
    """Return the map of the largest flows as SVG, by its title; an empty dictionary if there is no flow to draw."""
    drawn = _map_largest_flows(release, certificate)
    return {} if drawn is None else {drawn["title"]: drawn["picture"]}


def _summarise_largest_flows(release: ReleasedFlows, flows: pd.DataFrame, most: int) -> dict[str, object]:
    """Return the ``most`` largest of some flows, with the labels of areas, and facts on all of these flows.

    The facts are their number (``of``), how many have an interval that contains 0 (``may_be_none``), and the end of the
    longest bar of the chart. Flows whose interval contains 0 are not listed.
    """
    certain = _drop_uncertain_flows(flows)
    largest = label_areas(release.tree, certain.nlargest(most, "trips"))
    ends = largest.get("upper", largest["trips"])
    return {
        "flows": largest.to_dict("records"),
        "of": len(flows),
        "may_be_none": len(flows) - len(certain),
        "most": float(ends.max()) if len(largest) else 0.0,
    }


def _drop_uncertain_flows(flows: pd.DataFrame) -> pd.DataFrame:
    """Return the flows whose intervals begin above 0; all flows if they have no intervals."""
    return flows[flows["lower"] > 0] if "lower" in flows else flows


def _make_heat_map_facts(release: ReleasedFlows, *, intervals: bool) -> dict[str, object]:
    """Return the facts of the heat map: the trips between the areas with the most trips of a coarse level of each side.

    Each row has the label of an origin, a cell for each column, and all trips of the origin. A cell has trips and a
    word on their reliability, which is empty without intervals. ``reach`` is the largest distance of an end of an
    interval from the trips; None without intervals.
    """
    origins, destinations = release.tree.origin, release.tree.destination
    origin_level, destination_level = (find_finest_level(side, _MOST_HEATED) for side in (origins, destinations))
    names = [origins.level_names[origin_level], destinations.level_names[destination_level]]
    origin, destination, trips = release.tree.sum_trips(release.leaves, origin_level, destination_level)
    trips_by_pair = np.zeros((origins.size(origin_level), destinations.size(destination_level)), dtype=np.int64)
    trips_by_pair[origin, destination] = trips
    rows = find_places_of_largest(trips_by_pair.sum(axis=1), _MOST_HEATED)
    columns = find_places_of_largest(trips_by_pair.sum(axis=0), _MOST_HEATED)
    shown = np.ix_(rows, columns)
    shown_trips = trips_by_pair[shown]
    words, reach = np.full(shown_trips.shape, ""), None
    if intervals and trips_by_pair.size <= _MOST_BOUNDED:
        flows = release.flows_at(*names, interval=True)  # all pairs are listed, because the levels have few areas
        codes = {"origin": origins.codes[origin_level], "destination": destinations.codes[destination_level]}
        lower, upper = _make_matrix(flows, codes, "lower")[shown], _make_matrix(flows, codes, "upper")[shown]
        words = choose_reliability_words(shown_trips, lower, upper)
        reach = max(int(np.max(shown_trips - lower)), int(np.max(upper - shown_trips)))
    totals = trips_by_pair.sum(axis=1).tolist()
    table = []
    for number, area in enumerate(rows):
        cells = list(zip(shown_trips[number].tolist(), words[number].tolist(), strict=True))
        table.append((origins.labels[origin_level][area], cells, totals[area]))
    return {
        "names": names,
        "columns": [destinations.labels[destination_level][area] for area in columns],
        "rows": table,
        "scale": Scale.from_maximum(int(shown_trips.max(initial=0))),
        "reach": reach,
        "most": _MOST_HEATED if trips_by_pair.size > shown_trips.size else None,
    }


def _make_matrix(flows: pd.DataFrame, sides: Mapping[str, Sequence[str]], kind: str) -> Integers:
    """Return the column ``kind`` of flows as a matrix, which is 0 where no flow is listed.

    ``sides`` has two items, for the rows and the columns of the matrix: the name of the column of ``flows`` that
    identifies them, and the values of this column in their order.
    """
    matrix = np.zeros([len(values) for values in sides.values()], dtype=np.int64)
    row, column = (find_positions(flows[name], values) for name, values in sides.items())
    matrix[row, column] = flows[kind]
    return matrix


def _list_area_indicators(tables: FlowTables) -> Sequence[Mapping[str, object]]:
    """Return the indicators of the areas of a coarse level, and of the zones, at most ``_MOST_AREAS`` of each level.

    The list is empty if origins and destinations have different areas.
    """
    if not tables.tree.same_geography:
        return []
    geography = tables.tree.origin
    shown = []
    for level in sorted({find_finest_level(geography, _MOST_AREAS), geography.depth}):
        name, most = geography.level_names[level], None
        rows = tables.indicator_rows[tables.indicator_rows["level"] == name]
        rows = rows.assign(area=geography.labels[level])
        rows["share"] = rows["self_containment"].astype(object).where(rows["self_containment"].notna(), None)
        if len(rows) > _MOST_AREAS:
            most = _MOST_AREAS
            rows = rows.nlargest(most, "outflow").sort_index()
        is_marked = bool((rows.filter(like="_likely") != "").to_numpy().any())
        shown.append({"name": name, "rows": rows.to_dict("records"), "most": most, "is_marked": is_marked})
    return shown


def _sum_trips_by_distance(release: ReleasedFlows, certificate: Certificate) -> dict[str, object] | None:
    """Return the trips of all areas together by distance band; None if the bundle has no distances.

    ``most`` is the largest number of the chart, and ``open`` marks the band without an upper end.
    """
    if not FlowTables.from_release(release, certificate).distance:
        return None
    intervals = has_intervals(certificate)
    bands = distance_bands(release, [release.tree.origin.level_names[0]], interval=intervals)
    most = max(1, int(bands["upper" if intervals else "trips"].max()))
    bands["open"] = bands["to_km"].isna()
    return {"rows": bands.to_dict("records"), "most": most}


def _map_largest_flows(release: ReleasedFlows, certificate: Certificate) -> Mapping[str, Any] | None:
    """Return the map of at most ``_MOST_DRAWN`` of the largest flows, and a list of the largest of these.

    Return None if there is no flow to draw. Flows whose intervals contain 0 are left out. ``repeats_largest_flows``
    is True if the list is the same as that of :func:`_summarise_largest_flows`, so that a page needs only one.
    """
    # Twice as many, because uncertain flows, and those that lead to the same place, are then left out.
    lines, ends = DesireLines(FlowTables.from_release(release, certificate), certificate, 2 * _MOST_DRAWN).lines
    flows = _drop_uncertain_flows(lines.to_pandas()).head(_MOST_DRAWN)
    if flows.empty:
        return None
    nouns, listed = read_subject(certificate).nouns, flows.head(LISTED)
    title = translate("Map of the largest {cell} between zones at different places")
    if len(flows) > 1:
        title = translate("Map of the {number} largest {cells} between zones at different places")
    title = title.format(number=len(flows), cell=nouns.cell, cells=nouns.cells)
    if has_intervals(certificate):
        title = translate("{title} whose intervals begin above 0").format(title=title)
    leaves = _drop_uncertain_flows(select_leaf_flows(release, certificate))
    largest_flows = select_flows_between_zones(release, leaves).nlargest(LISTED, "trips")
    pair = ["origin", "destination"]
    return {
        "title": title,
        "picture": render_flow_map(release.tree, flows, ends[flows.index], certificate, title),
        "bounded": any(side.given_boundaries for side in (release.tree.origin, release.tree.destination)),
        "repeats_largest_flows": np.array_equal(listed[pair], largest_flows[pair]),
        "flows": label_areas(release.tree, listed).to_dict("records"),
    }


def _count_flows_by_size(release: ReleasedFlows) -> list[dict[str, object]]:
    """Return the number of pairs of zones and their trips, in each class of flows by size, smallest flows first."""
    trips = release.leaves.trips
    rows: list[dict[str, object]] = []
    for low, high in list_size_classes(int(trips.max(initial=0))):
        in_class = trips[(trips >= low) & (trips <= high)]
        rows.append({"size": format_class(low, high), "pairs": len(in_class), "trips": int(in_class.sum())})
    return rows


def _summarise_segments(release: Release, breakdown: Breakdown, *, intervals: bool) -> dict[str, object]:
    """Return the trips by category that begin in all areas together, and in the busiest areas of a coarse level.

    Each area has, for every category, the trips and the share of the category, each with the two ends of its interval.
    Shares and their ends are 0 where no trip is released.
    """
    origins = release.plan.tree.origin
    level = next((level for level in range(1, origins.depth) if origins.size(level) > 1), origins.depth)
    areas, trips, shares = _compute_category_shares(release, breakdown, level, intervals=intervals)
    charted = find_places_of_largest(trips[0, :, 0], _MOST_CHARTED)
    names = [breakdown.categories[category] for category in charted]
    most = float(shares[:, charted].max(initial=0.0))
    return {
        "name": breakdown.name,
        "categories": breakdown.categories,
        "charted": len(charted),
        "level": origins.level_names[level],
        "most": len(areas) - 1 if len(areas) - 1 < origins.size(level) else None,
        "areas": [
            {
                "name": area,
                "all_trips": int(trips[0, :, position].sum()),
                "trips": trips[:, :, position].T.tolist(),
                "shares": shares[:, :, position].T.tolist(),
                "chart": render_markup(
                    "shares.svg",
                    title=translate("Shares of {breakdown}: {area}").format(breakdown=breakdown.name, area=area),
                    rows=list(zip(names, *shares[:, charted, position].tolist(), strict=True)),
                    most=most,
                ),
            }
            for position, area in enumerate(areas)
        ],
        "errors": list_level_errors(release, breakdown.name),
    }


def _compute_category_shares(
    release: Release, breakdown: Breakdown, level_number: int, *, intervals: bool
) -> tuple[list[str], Integers, Reals]:
    """Return the labels of the busiest areas of a level, and their trips and shares by category.

    The first area stands for all areas together. Trips and shares have the shape (3, categories, areas): the number,
    and the lower and upper end of its interval; without intervals, three times the number. Intervals of shares are
    those of unbiased estimates, and are widened to the released share, which may lie outside.
    """
    origins, everywhere = release.plan.tree.origin, release.plan.tree.destination.level_names[0]
    ends = ("trips", "lower", "upper") if intervals else ("trips", "trips", "trips")
    tables = []
    for number in (0, level_number):
        flows = release.flows_at(origins.level_names[number], everywhere, segment=breakdown.name, interval=intervals)
        sides = {breakdown.name: breakdown.categories, "origin": origins.codes[number]}
        trips = np.stack([_make_matrix(flows, sides, end) for end in ends])
        area_trips = trips[0].sum(axis=0)
        share = trips[0] / np.maximum(area_trips, 1)
        lower, upper = share, share
        if intervals:
            lower, upper = release.fit_segment(breakdown.name).compute_share_bounds(number)
        shares = np.stack([share, np.minimum(lower, share), np.maximum(upper, share)])
        tables.append((trips, shares * (area_trips > 0)))
    (all_trips, all_shares), (trips, shares) = tables
    most_areas = min(_MOST_SEGMENTED, _MOST_ROWS // len(breakdown.categories))
    busiest = find_places_of_largest(trips[0].sum(axis=0), most_areas)
    names = [translate("all"), *(origins.labels[level_number][area] for area in busiest)]
    return (
        names,
        np.concatenate([all_trips, trips[:, :, busiest]], axis=2),
        np.concatenate([all_shares, shares[:, :, busiest]], axis=2),
    )


def find_largest_changes(
    release: Release, certificate: Certificate, context: ReleaseContext[Release]
) -> pd.DataFrame | None:
    """Return the :func:`~od_core.flows.publishing.changes.changes` since the previous release, largest first.

    Origins and destinations are compared at the finest level with at most ``_MOST_COMPARED`` areas. Return None if
    there is no previous release, if it is not comparable, or if one of the two releases has no intervals.
    """
    found = _assess_comparability(certificate, context)
    if context.previous is None or not has_intervals(certificate) or not found.is_possible:
        return None
    try:
        return changes(context.previous[1], release, *_choose_compared_levels(release), days=found.days)
    except OdError as error:
        if error.code not in ("OD-INTERVAL-MECHANISM", "OD-INTERVAL-SIZE"):
            raise
        return None


def label_changes(release: Release, changed: pd.DataFrame) -> pd.DataFrame:
    """Return rows of :func:`find_largest_changes`, with the labels of areas in place of their codes."""
    tree, (origin, destination) = release.plan.tree, _choose_compared_levels(release)
    return label_areas(
        tree, changed, (tree.origin.find_level_number(origin), tree.destination.find_level_number(destination))
    )


def _choose_compared_levels(release: Release) -> tuple[str, str]:
    """Return the names of the most detailed level of each side with few enough areas to be compared."""
    origins, destinations = release.plan.tree.origin, release.plan.tree.destination
    origin, destination = (
        side.level_names[find_finest_level(side, _MOST_COMPARED)] for side in (origins, destinations)
    )
    return origin, destination


def _assess_comparability(certificate: Certificate, context: ReleaseContext[Release]) -> Comparability:
    """Return how the release can be compared with the previous one; the default if there is no previous release."""
    return check_comparability(context.previous_certificate, certificate) if context.previous else Comparability()


def _summarise_changes(
    release: Release, certificate: Certificate, context: ReleaseContext[Release]
) -> dict[str, object] | None:
    """Return how many flows changed significantly since the previous release, and the largest changes.

    Return None if :func:`find_largest_changes` does.
    """
    changes_found = find_largest_changes(release, certificate, context)
    if changes_found is None:
        return None
    changes_found = use_numbers_per_day(changes_found)
    grew, fell = changes_found["change"] > 0, changes_found["change"] < 0
    return {
        "levels": _choose_compared_levels(release),
        "grew": int((changes_found["significant"] & grew).sum()),
        "fell": int((changes_found["significant"] & fell).sum()),
        "compared": len(changes_found),
        "caution": describe_cautions(read_subject(certificate), context.previous_certificate, certificate),
        "increases": _list_changes(release, changes_found[grew].head(LISTED // 2)),
        "decreases": _list_changes(release, changes_found[fell].head(LISTED // 2)),
    }


def _list_changes(release: Release, changed: pd.DataFrame) -> list[dict[Hashable, object]]:
    """Return changes as rows with the labels of areas; ``has_interval`` is False where a release omits the pair."""
    rows = label_changes(release, changed)
    return rows.assign(has_interval=rows["lower"].notna()).to_dict("records")
