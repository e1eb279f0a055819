"""Write the sections of the report of flows that show flows, areas, distances and maps."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from numpy.typing import NDArray

from od_core.flows.distance_bands import distance_bands
from od_core.flows.indicators import has_indicators, indicators
from od_core.flows.publishing.atlas import FIRST_WITH_ATLAS
from od_core.flows.publishing.flow_tables import FlowTables, at_an_end, labelled, labels_at
from od_core.flows.released_flows import ReleasedFlows
from od_core.geography.codes import Degrees
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography, dissolved, rings, simplified
from od_core.privacy.unit import PrivacyUnit
from od_core.publication.bundle import ATLAS
from od_core.publication.html.certificate_page import confidence
from od_core.publication.html.report_page import (
    ACCENT,
    INK,
    PAPER,
    SHADES,
    bar,
    between,
    class_text,
    heat_table,
    number,
    paragraph,
    scrolled,
    size_classes,
    table,
    with_interval,
)
from od_core.publication.markup import element, joined

MOST_LINES = 80
"""Largest number of flows on the map."""

_WIDTH, _LEAST_HEIGHT, _MOST_HEIGHT, _MARGIN = 720, 240, 560, 36
_WIDEST_LINE, _THINNEST_LINE = 7.0, 0.6
_LABELS, _LONGEST_LABEL = 24, 24
_MOST_OUTLINES, _TOLERANCE, _OUTLINE = 150_000, 0.5, "#c3ccd6"
"""Largest number of characters of all outlines, by how many units of the picture they are simplified, and colour."""

_LETTER, _LINE = 10.5, 15
"""Approximate width of a letter and height of a line in a label, in units of the picture."""


@dataclass(frozen=True)
class _Frame:
    """An equirectangular projection from degrees to positions on the picture.

    Attributes:
        west, north: Longitude and latitude, in degrees, of the upper left corner of the area that the places cover.
            Longitudes are counted eastwards from ``west`` and may exceed 180.
        shrink: Length of a degree of longitude, as a fraction of the length of a degree of latitude.
        scale: Length of a degree of latitude, in units of the picture.
        left, top: Position of that corner on the picture.
        height: Height of the picture.
    """

    west: float
    north: float
    shrink: float
    scale: float
    left: float
    top: float
    height: float

    @classmethod
    def around(cls, degrees: Degrees) -> _Frame:
        """Return the frame that fits the given places.

        The left and right edges lie in the widest gap between the longitudes of the places. ``degrees`` has the
        latitude and longitude of each place; shape (places, 2).
        """
        latitudes, longitudes = degrees[:, 0], np.sort(degrees[:, 1] % 360)
        gaps = np.append(np.diff(longitudes), longitudes[0] + 360 - longitudes[-1])
        cut = int(np.argmax(gaps))
        west = float(longitudes[(cut + 1) % len(longitudes)])
        south, north = float(latitudes.min()), float(latitudes.max())
        shrink = max(math.cos(math.radians((south + north) / 2)), 0.1)
        across, down = max((360 - float(gaps[cut])) * shrink, 1e-6), max(north - south, 1e-6)
        scale = min((_WIDTH - 2 * _MARGIN) / across, (_MOST_HEIGHT - 2 * _MARGIN) / down)
        height = max(down * scale + 2 * _MARGIN, _LEAST_HEIGHT)
        return cls(west, north, shrink, scale, (_WIDTH - across * scale) / 2, (height - down * scale) / 2, height)

    def place(self, degrees: Sequence[float]) -> tuple[float, float]:
        """Return the position (x, y) on the picture of a place, given by latitude and longitude."""
        degree = self.shrink * self.scale
        x = self.left + (degrees[1] % 360 - self.west) % 360 * degree
        if x > (_WIDTH + 360 * degree) / 2:
            x -= 360 * degree  # a place west of `west` is drawn to the left of it
        return x, self.top + (self.north - degrees[0]) * self.scale


def drawn_flows(tree: FlowTree, flows: pd.DataFrame) -> pd.DataFrame | None:
    """Return the flows to draw, largest first, or None if there are none.

    They are the flows between two zones with different coordinates, at most ``MOST_LINES``, among the 2 ``MOST_LINES``
    largest flows with trips and coordinates.

    Args:
        tree: The flow tree, whose zones may have coordinates.
        flows: Leaf flows: origin, destination, trips and, if there are intervals, lower and upper.
    """
    sides = [_places(geography) for geography in (tree.origin, tree.destination)]
    known = flows["origin"].isin(list(sides[0])) & flows["destination"].isin(list(sides[1])) & (flows["trips"] > 0)
    largest = flows[known].nlargest(2 * MOST_LINES, "trips")
    apart = [
        sides[0][origin] != sides[1][destination]
        for origin, destination in zip(largest["origin"], largest["destination"], strict=True)
    ]
    largest = largest[apart].head(MOST_LINES)
    return None if len(largest) == 0 else largest


def flow_map(tree: FlowTree, largest: pd.DataFrame, title: str) -> Markup:
    """Return the map as SVG.

    Args:
        largest: The flows to draw, from :func:`drawn_flows`.
        title: Title of the picture.
    """
    origins, destinations = _places(tree.origin), _places(tree.destination)
    pairs = list(zip(largest["origin"], largest["destination"], strict=True))
    frame = _Frame.around(np.array([place for o, d in pairs for place in (origins[o], destinations[d])]))
    labels = [labels_at(own, own.depth) for own in (tree.origin, tree.destination)]
    trips: dict[tuple[float, float], int] = {}
    names: dict[tuple[float, float], str] = {}
    for (origin, destination), count in zip(pairs, largest["trips"].tolist(), strict=True):
        ends = ((origin, origins, labels[0]), (destination, destinations, labels[1]))
        for code, places, label in ends:
            degrees = places[code]
            trips[degrees] = trips.get(degrees, 0) + count
            names[degrees] = label[code]
    most = int(largest["trips"].max())
    named = labelled(tree, largest)
    lines = [
        _line(frame, origins[origin], destinations[destination], flow, most)
        for (origin, destination), flow in zip(pairs[::-1], named[::-1].to_dict("records"), strict=True)
    ]
    others = {frame.place(place) for place in {*origins.values(), *destinations.values()} - trips.keys()}
    faint = [
        element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r="1.6", fill="#9aa6b2")
        for x, y in sorted(others)
        if 0 <= x <= _WIDTH and 0 <= y <= frame.height
    ]
    busiest = sorted(trips, key=lambda place: (-trips[place], names[place]))
    dots = [
        element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r="3.2", fill=INK, stroke="#ffffff", stroke_width="1")
        for x, y in map(frame.place, busiest)
    ]
    return element(
        "svg",
        element("title", title),
        element(
            "desc",
            "A line for each flow. A wider line means more trips. Seen from its origin, a line bends to the left.",
        ),
        element("rect", width=_WIDTH, height=f"{frame.height:.1f}", fill=SHADES[0]),
        *_outlines(frame, tree),
        *faint,
        element("g", *lines, fill="none", stroke=ACCENT, stroke_opacity="0.5", stroke_linecap="round"),
        *dots,
        *_labels(frame, busiest, names),
        viewBox=f"0 0 {_WIDTH} {frame.height:.1f}",
        width=_WIDTH,
        height=f"{frame.height:.1f}",
        role="img",
        class_="picture",
        font_family="system-ui,-apple-system,'Segoe UI',Roboto,Arial,'Liberation Sans',sans-serif",
    )


def _outlines(frame: _Frame, tree: FlowTree) -> list[Markup]:
    """Return the outlines of areas, as one path for each geography with boundaries."""
    sides = {side.digest: side for side in (tree.origin, tree.destination) if side.boundaries is not None}
    paths = [_outline(frame, side, _MOST_OUTLINES // len(sides)) for side in sides.values()]
    style = {"fill": PAPER, "stroke": _OUTLINE, "stroke_width": "0.7", "stroke_linejoin": "round"}
    return [element("path", d=path, fill_rule="evenodd", **style) for path in paths if path]


def _outline(frame: _Frame, geography: Geography, most: int) -> str:
    """Return the path of the outlines of the finest level of areas that takes at most ``most`` characters."""
    for shapes in reversed(dissolved(geography)):
        parts = []
        for shape in simplified(shapes, _TOLERANCE / frame.scale):
            for ring in rings(shape):
                places = [frame.place((latitude, longitude)) for longitude, latitude in ring.tolist()]
                if _is_seen(frame, places):
                    parts.append("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places) + "Z")
        path = "".join(parts)
        if len(path) <= most:
            return path
    return ""


def _is_seen(frame: _Frame, places: Sequence[tuple[float, float]]) -> bool:
    """Return whether a ring overlaps the picture, and does not lie on both sides of its left and right edges."""
    across, down = zip(*places, strict=True)
    is_whole = all(abs(u - x) < 180 * frame.shrink * frame.scale for x, u in pairwise(across))
    return is_whole and max(across) > 0 and min(across) < _WIDTH and max(down) > 0 and min(down) < frame.height


def _places(geography: Geography) -> dict[str, tuple[float, float]]:
    """Return a mapping from the code of each zone with coordinates to its latitude and longitude."""
    if geography.coordinates is None:
        return {}
    listed = zip(geography.zones, geography.coordinates.tolist(), strict=True)
    return {zone: (latitude, longitude) for zone, (latitude, longitude) in listed if not math.isnan(latitude)}


def _line(
    frame: _Frame,
    origin: tuple[float, float],
    destination: tuple[float, float],
    flow: Mapping[Hashable, Any],
    most: int,
) -> Markup:
    """Return the line of one flow between two places. It is bent, so that the opposite flow stays visible."""
    (x, y), (u, v) = frame.place(origin), frame.place(destination)
    bend_x, bend_y = (x + u) / 2 + (v - y) * 0.16, (y + v) / 2 - (u - x) * 0.16
    width = _THINNEST_LINE + (_WIDEST_LINE - _THINNEST_LINE) * flow["trips"] / most
    interval = f" ({between(flow['lower'], flow['upper'])})" if "lower" in flow else ""
    return element(
        "path",
        element("title", f"{flow['origin']} to {flow['destination']}: {number(flow['trips'])} trips{interval}"),
        d=f"M{x:.1f} {y:.1f}Q{bend_x:.1f} {bend_y:.1f} {u:.1f} {v:.1f}",
        stroke_width=f"{width:.2f}",
    )


def _labels(frame: _Frame, busiest: list[tuple[float, float]], names: dict[tuple[float, float], str]) -> list[Markup]:
    """Return labels with the names of the busiest zones, at most ``_LABELS``, without labels that would overlap."""
    taken: list[tuple[float, float, float, float]] = []
    labels = []
    for place in busiest:
        x, y = frame.place(place)
        text = names[place] if len(names[place]) <= _LONGEST_LABEL else f"{names[place][: _LONGEST_LABEL - 1]}\u2026"
        width = _LETTER * len(text)
        left = x + 6 if x + 6 + width <= _WIDTH else x - 6 - width
        box = (left, y - _LINE / 2, left + width, y + _LINE / 2)
        if left < 0 or any(box[0] < r and le < box[2] and box[1] < b and t < box[3] for le, t, r, b in taken):
            continue
        taken.append(box)
        labels.append(
            element(
                "text",
                text,
                x=f"{left:.1f}",
                y=f"{y + 5:.1f}",
                font_size="14",
                font_weight="600",
                fill=INK,
                stroke="#ffffff",
                stroke_width="3",
                paint_order="stroke",
            )
        )
        if len(labels) == _LABELS:
            break
    return labels


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
    """Return the released flows between zones that are above 0, with their intervals if the certificate states any.

    They are computed once for the report and for the metadata in Dagster.
    """
    tree = release.tree
    interval = confidence(certificate) is not None
    key = "leaf_flows", interval
    if key not in release.computed:
        flows = release.flows_at(tree.origin.levels[-1], tree.destination.levels[-1], interval=interval)
        release.computed[key] = flows[flows["trips"] > 0]
    leaves: pd.DataFrame = release.computed[key]
    return leaves


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


_MOST_AREAS = 24
"""Largest number of areas in the table of indicators."""


@dataclass(frozen=True)
class CountedChanges:
    """How many flows changed by more than their uncertainty.

    Attributes:
        period: the previous period.
        grew, fell: numbers of increases and of decreases that are larger than their uncertainty.
        compared: number of all compared pairs.
        caution: sentences on other reasons for changes than the trips; empty if there are none.
    """

    period: str
    grew: int
    fell: int
    compared: int
    caution: str

    @property
    def marked(self) -> int:
        """Number of changes that are larger than their uncertainty."""
        return self.grew + self.fell


def main_results(
    release: ReleasedFlows,
    leaves: pd.DataFrame,
    certificate: dict[str, Any],
    interval: str | None,
    changes: CountedChanges | None,
) -> Markup:
    """Return the main results as a list of sentences, and a link to the atlas if the bundle has one.

    Args:
        release: the released flows.
        leaves: its flows between zones, with intervals if it has some.
        certificate: the certificate.
        interval: confidence of the intervals; None if there are none.
        changes: changes since the previous period; None if no release is compared.
    """
    tree = release.tree
    sentences = total_sentences(release, certificate)
    largest = labelled(tree, between_zones(release, leaves).nlargest(1, "trips"))
    for flow in largest.to_dict("records"):
        reach = f" ({interval} interval: {between(flow['lower'], flow['upper'])})" if interval else ""
        sentences.append(
            f"The largest flow is from {flow['origin']} to {flow['destination']}: {number(flow['trips'])} trips{reach}."
        )
    if interval and len(release.leaves) < tree.cells(tree.depth):
        zones = tree.origin.levels[-1], tree.destination.levels[-1]
        most = number(release.zero_bound(*zones))
        sentences.append(
            f"A pair of zones that is released with 0 trips has at most {most}, with a confidence of {interval}."
            " This is the largest upper end of all such pairs; most are lower."
        )
    if changes is not None:
        sentences.append(
            f"Since {changes.period}, {number(changes.marked)} of {number(changes.compared)} flows between large areas"
            f" changed by more than their uncertainty: {number(changes.grew)} grew, and {number(changes.fell)} fell."
            f"{changes.caution}"
        )
    results = element("ul", *(element("li", sentence) for sentence in sentences))
    if certificate.get("bundle_format", 1) < FIRST_WITH_ATLAS:
        return results
    link = element("a", "atlas", href=ATLAS)
    return joined(results, paragraph("Choose areas of your own, and see their trips, in the ", link, "."))


def total_sentences(release: ReleasedFlows, certificate: dict[str, Any]) -> list[str]:
    """Return sentences on the number of trips: of all, or of those that contribution bounds let count."""
    period, trips = certificate["period"], number(int(release.leaves.trips.sum()))
    if certificate["contribution_bound"] == 1 and certificate["unit"] == "trip":
        exact = "exactly " if "trips" in certificate["exact"] else ""
        return [f"{period} has {exact}{trips} trips."]
    sentences = [f"{trips} trips are counted in {period}. Further trips are left out by the contribution bound."]
    if uncounted := certificate.get("uncounted"):
        reach = between(uncounted["lower"], uncounted["upper"])
        where = "in each release" if "sources" in certificate else "in these numbers"
        sentences.append(
            f"About {number(max(uncounted['trips'], 0))} trips are not counted (90 % interval: {reach}),"
            f" {100 * uncounted['share']:.3g} % of all trips. At most {number(uncounted['max_trips'])} of each user are"
            f" considered {where}."
        )
    return sentences


def areas_sections(release: ReleasedFlows, interval: str | None) -> list[tuple[str, Markup]]:
    """Return the section with the indicators of large areas; an empty list if both sides have different areas."""
    if not has_indicators(release):
        return []
    geography = release.tree.origin
    level = level_up_to(geography, _MOST_AREAS)
    name = geography.level_names[level]
    rows = indicators(release, [name], interval=interval is not None).assign(area=geography.labels[level])
    shown = rows.nlargest(_MOST_AREAS, "outflow").sort_index() if len(rows) > _MOST_AREAS else rows
    ends = f" In brackets is the {interval} interval; the dark line over a bar shows that of the share."
    text = (
        f"Trips from each {name} to the others, from the others to it, and within it. The share is that of the trips"
        f" that begin in the area and also end in it (self-containment).{ends if interval else ''}"
    )
    listed = [
        (
            row["area"],
            *(_number(row, indicator, interval) for indicator in ("outflow", "inflow", "within")),
            *_share(row, interval),
        )
        for row in shown.to_dict("records")
    ]
    content = table(
        f"Indicators of each {name}",
        (name, "outflow", "inflow", "within", "share within", ""),
        listed,
        numbers={1, 2, 3, 4},
        bars={5},
    )
    left_out = (
        [paragraph(f"Only the {number(_MOST_AREAS)} areas with the largest outflow are shown.", note=True)]
        if len(rows) > _MOST_AREAS
        else []
    )
    more = paragraph("All areas of all levels are in ", element("code", "indicators.csv"), ".", note=True)
    return [("Trips from, to and within areas", joined(paragraph(text), content, *left_out, more))]


def distance_sections(
    release: ReleasedFlows, certificate: dict[str, Any], interval: str | None
) -> list[tuple[str, Markup]]:
    """Return the section with all trips by distance; an empty list if the bundle has no distances."""
    tables = FlowTables.of(release, certificate)
    if not tables.distance:
        return []
    everywhere = release.tree.origin.level_names[0]
    rows = distance_bands(release, [everywhere], interval=interval is not None).to_dict("records")
    most = max(1, *(row["upper" if interval else "trips"] for row in rows))
    listed = [
        (
            _band(row),
            with_interval(number(row["trips"]), between(row["lower"], row["upper"]) if interval else None),
            bar(max(0, row["trips"]), most, (max(0, row["lower"]), row["upper"]) if interval else None),
        )
        for row in rows
    ]
    ends = f" In brackets is the {interval} interval; the dark line over a bar shows it." if interval else ""
    text = (
        "All trips by the distance along the great circle between the places of their two zones. A trip within a zone"
        f" has the distance 0.{ends}"
    )
    more = paragraph(
        "The trips from each area by distance are in ", element("code", "distance_bands.csv"), ".", note=True
    )
    content = table("Trips by distance", ("distance", "trips", ""), listed, numbers={1}, bars={2})
    return [("Trips by distance", joined(paragraph(text), content, more))]


def _band(row: dict[Any, Any]) -> str:
    """Return the name of a band of distance for people."""
    if row["band"] == 0:
        return "unknown"
    if pd.isna(row["to_km"]):
        return f"{row['from_km']:,g} km or more"
    if row["band"] == 1:
        return f"below {row['to_km']:,g} km"
    return f"{row['from_km']:,g} to {row['to_km']:,g} km"


def _number(row: dict[Any, Any], indicator: str, interval: str | None) -> Markup:
    reach = between(row[f"{indicator}_lower"], row[f"{indicator}_upper"]) if interval else None
    return with_interval(number(row[indicator]), reach)


def _share(row: dict[Any, Any], interval: str | None) -> tuple[Markup, Markup]:
    """Return the share of trips within an area as text and as a bar."""
    if pd.isna(row["self_containment"]):
        return joined("\u2013"), bar(0, 1)
    share = row["self_containment"]
    if interval is None:
        return joined(f"{share:.1%}"), bar(share, 1)
    reach = row["self_containment_lower"], row["self_containment_upper"]
    return with_interval(f"{share:.1%}", f"{reach[0]:.1%} to {reach[1]:.1%}"), bar(share, 1, reach)
