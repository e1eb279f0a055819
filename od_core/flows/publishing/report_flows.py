"""Write the sections of a report that show released flows, of one release or of a sum of releases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.flows.publishing.flow_tables import at_an_end, labelled
from od_core.flows.publishing.report_map import drawn_flows, flow_map
from od_core.flows.released_flows import ReleasedFlows
from od_core.geography.geography import Geography
from od_core.privacy.unit import PrivacyUnit
from od_core.publication.html.certificate_page import confidence
from od_core.publication.html.report_page import (
    bar,
    between,
    class_text,
    heat_table,
    number,
    paragraph,
    scrolled,
    size_classes,
    table,
)
from od_core.publication.markup import Markup, element, joined

LISTED = 20
"""Largest number of rows in the table of flows, and in the table of changes."""

_LISTED_WITHIN = 10
"""Largest number of rows in the table of flows within a zone."""

_MOST_HEATED = 12
"""Largest number of areas per side in the heat map."""

_NO_NOTE = joined()

_MOST_BOUNDED = 100_000
"""Largest number of pairs of areas whose intervals are computed for the heat map."""


def trips_title(unit: PrivacyUnit, *, exact: bool) -> str:
    """Return the title of the number of all trips: those of some users and records may be counted in part."""
    if exact:
        return "trips, exact"
    return "trips" if unit == PrivacyUnit("trip", unit.neighbours) else "counted trips"


def leaf_flows(release: ReleasedFlows, certificate: dict[str, Any]) -> pd.DataFrame:
    """Return the released flows between zones that are above 0, with their intervals if the certificate states any."""
    tree = release.tree
    interval = confidence(certificate) is not None
    flows = release.flows_at(tree.origin.levels[-1], tree.destination.levels[-1], interval=interval)
    return flows[flows["trips"] > 0]


def largest_flows_section(release: ReleasedFlows, leaves: pd.DataFrame, interval: str | None) -> Markup:
    """Return a paragraph and a table of the largest flows between zones, and another one of those within a zone."""
    if len(leaves) == 0:
        return paragraph("No flow has trips.")
    apart = between_zones(release, leaves)
    within = leaves.drop(apart.index)
    text = (
        f"The interval of a flow contains the true number of counted trips with a confidence of {interval}; the dark"
        " line over a bar shows the interval."
        f" Of {number(len(leaves))} flows, {number(at_an_end(leaves))} lie at an end of their interval: the interval of"
        " the measurements ended there or was widened to contain the released number. For these, the measurements"
        " suggest a number towards the other end, and the confidence is lower."
        if interval
        else "This release has no intervals; see the expected error below."
    )
    zone = release.tree.origin.levels[-1]
    tables = [
        _largest_table(release, flows.nlargest(most, "trips"), interval, f"of {number(len(flows))} flows {where}")
        for flows, most, where in (
            (apart, LISTED, "between zones" if len(within) == 0 else f"from one {zone} to another"),
            (within, _LISTED_WITHIN, f"within one {zone}"),
        )
        if len(flows)
    ]
    return joined(paragraph(text), *tables)


def between_zones(release: ReleasedFlows, leaves: pd.DataFrame) -> pd.DataFrame:
    """Return the flows from one zone to another; all flows if origins and destinations have different areas."""
    if release.tree.origin.digest != release.tree.destination.digest:
        return leaves
    return leaves[leaves["origin"] != leaves["destination"]]


def _largest_table(release: ReleasedFlows, flows: pd.DataFrame, interval: str | None, of_all: str) -> Markup:
    """Return a table of flows, largest first, whose title says of how many others they are the largest."""
    most = float(flows["upper" if interval else "trips"].max())
    rows = []
    for flow in labelled(release.tree, flows).to_dict("records"):
        reach = (flow["lower"], flow["upper"]) if interval else None
        stated = (between(*reach),) if reach else ()
        rows.append(
            (flow["origin"], flow["destination"], number(flow["trips"]), *stated, bar(flow["trips"], most, reach))
        )
    tree = release.tree
    headers = (
        f"from {tree.origin.levels[-1]}",
        f"to {tree.destination.levels[-1]}",
        "trips",
        *([f"{interval} interval"] if interval else []),
        "",
    )
    last = len(headers) - 1
    return table(f"The {number(len(flows))} largest {of_all}", headers, rows, numbers=set(range(2, last)), bars={last})


def level_up_to(geography: Geography, most: int) -> int:
    """Return the number of the finest level with at most ``most`` areas; 1 if every level has more."""
    fitting = [level for level in range(1, geography.depth + 1) if geography.size(level) <= most]
    return max(fitting, default=1)


def heat_section(release: ReleasedFlows, interval: str | None) -> Markup:
    """Return a table of the trips between large areas, in which a darker cell means more trips.

    Args:
        release: the flows.
        interval: confidence of the intervals as text; None if there are none. With intervals, numbers that may be 0 are
            marked, and a note states how far the intervals reach.
    """
    tree = release.tree
    levels = (level_up_to(tree.origin, _MOST_HEATED), level_up_to(tree.destination, _MOST_HEATED))
    origin, destination, trips = tree.sums_at(release.leaves, *levels)
    every = np.zeros((tree.origin.size(levels[0]), tree.destination.size(levels[1])), dtype=np.int64)
    every[origin, destination] = trips
    rows, columns = _busiest(every.sum(axis=1)), _busiest(every.sum(axis=0))
    shown = every[np.ix_(rows, columns)].tolist()
    origins, destinations = (
        [geography.labels[level][area] for area in areas]
        for geography, level, areas in zip((tree.origin, tree.destination), levels, (rows, columns), strict=True)
    )
    names = (tree.origin.level_names[levels[0]], tree.destination.level_names[levels[1]])
    may_be_zero, reach = None, _NO_NOTE
    if interval and every.size <= _MOST_BOUNDED:
        lower, upper = (ends[np.ix_(rows, columns)] for ends in _ends(release, names, every.shape))
        may_be_zero = (lower == 0).tolist()
        farthest = max(int(np.max(shown - lower)), int(np.max(upper - shown)))
        reach = paragraph(
            f"The {interval} intervals of these numbers reach at most {number(farthest)} trips up or down. Numbers in"
            " italics may be 0.",
            note=True,
        )
    heated = heat_table(
        f"Trips from {names[0]} (rows) to {names[1]} (columns); darker means more trips",
        f"from {names[0]}, to {names[1]}",
        destinations,
        list(zip(origins, shown, every.sum(axis=1)[rows].tolist(), strict=True)),
        "trips",
        may_be_zero,
    )
    if every.size == len(rows) * len(columns):
        return joined(heated, reach)
    left_out = f"Each side shows only the {number(_MOST_HEATED)} areas with the most trips; the sums include all areas."
    return joined(heated, reach, paragraph(left_out, note=True))


def _ends(release: ReleasedFlows, names: tuple[str, str], shape: tuple[int, ...]) -> list[NDArray[np.int64]]:
    """Return the lower and the upper ends of the flows between all areas of two levels; shape (origins, destinations).

    Both levels have so few areas that all pairs are listed.
    """
    geographies = (release.tree.origin, release.tree.destination)
    found = release.flows_at(*names, interval=True)
    places = tuple(
        pd.Index(geography.codes[geography.level_number(name)]).get_indexer(pd.Index(found[side]))
        for geography, name, side in zip(geographies, names, ("origin", "destination"), strict=True)
    )
    ends = [np.zeros(shape, dtype=np.int64) for _ in range(2)]
    for end, column in zip(ends, ("lower", "upper"), strict=True):
        end[places] = found[column]
    return ends


def _busiest(trips: NDArray[np.int64]) -> list[int]:
    """Return the numbers of the ``_MOST_HEATED`` areas with the most trips, in tree order."""
    most = np.argsort(-trips, kind="stable")[:_MOST_HEATED]
    return [int(area) for area in np.sort(most)]


def map_title(flows: int) -> str:
    """Return the title of the map of the largest flows."""
    return f"Map of the {number(flows)} largest flows between two different zones"


def map_sections(release: ReleasedFlows, leaves: pd.DataFrame) -> list[tuple[str, Markup]]:
    """Return the section with the map of the largest flows; an empty list if no flow can be drawn."""
    flows = drawn_flows(release.tree, leaves)
    if flows is None:
        return []
    title = map_title(len(flows))
    bounded = any(side.boundaries is not None for side in (release.tree.origin, release.tree.destination))
    drawn = element(
        "figure",
        scrolled(title, flow_map(release.tree, flows, title)),
        element(
            "figcaption",
            f"{title}. A wider line means more trips. Seen from its origin, a line bends to the left, which"
            " distinguishes the two directions. Faint dots are zones without one of these flows."
            f" {'Grey lines are boundaries of areas' if bounded else 'The map has no coast or border'}.",
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
                for flow in labelled(release.tree, flows.head(LISTED)).to_dict("records")
            ],
            numbers={2, 3},
        )
    return [("Where the largest flows go", joined(drawn, listed))]


def sizes_section(release: ReleasedFlows) -> Markup:
    """Return a table with one row per class of flow sizes: number of pairs of zones, trips, and share of all trips."""
    tree, trips = release.tree, release.leaves.trips
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
            " Where a pair has few trips compared with the noise, it is often released as 0, or as more than it has. So"
            " the numbers of pairs in the classes of small flows can differ much from the true ones."
        ),
        table(
            "Pairs of zones by their released trips",
            ("trips of a pair", "pairs", "", "trips in total", "of all trips"),
            rows,
            numbers={1, 3, 4},
            bars={2},
        ),
    )
