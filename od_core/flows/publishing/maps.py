"""Show the largest flows between zones with coordinates: as files for maps, and as a picture.

The files are GeoJSON, GeoPackage, and tables for flowmap.gl.
"""

from __future__ import annotations

import json
import math
import sqlite3
import textwrap
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import scipy  # its parts load at their first use
from markupsafe import Markup
from numpy.typing import NDArray

from od_core.files.table_writers import write_csv_rows
from od_core.flows.publishing.flow_tables import (
    FlowTables,
    add_area_names,
    find_largest_positions,
    index_labels_by_code,
    label_areas,
)
from od_core.geography.codes import Degrees
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography, dissolve_boundaries, list_rings, simplify_shapes
from od_core.geography.places import compute_unit_vectors
from od_core.publication.certificate import Certificate
from od_core.publication.tables import write_csv
from od_core.publication.templates import render_data, render_markup, render_template

MOST_LINES = 10_000
"""Largest number of flows in a file for maps."""

_LAYER = "desire_lines"
"""Name of the layer of lines in GeoJSON and GeoPackage."""

_INDEX = f"rtree_{_LAYER}_geom"
"""Name of the table of the spatial index of the layer, as the GeoPackage extension for R-trees demands it."""

_LINE = np.dtype(
    [
        *(("magic", "S2"), ("version", "u1"), ("flags", "u1"), ("srs_id", "<i4")),
        *(("order", "u1"), ("type", "<u4"), ("points", "<u4"), ("degrees", "<f8", (2, 2))),
    ]
)
"""Geometry of a line between two points in a GeoPackage: its header without an envelope, then well-known binary."""


def locate_zones(geography: Geography) -> pd.DataFrame:
    """Return the zones with coordinates, indexed by their codes: longitude and latitude in degrees."""
    if geography.coordinates is None:
        return pd.DataFrame(index=pd.Index([], dtype=object), columns=["longitude", "latitude"], dtype=np.float64)
    degrees = pd.DataFrame(geography.coordinates[:, ::-1], list(geography.zones), ["longitude", "latitude"])
    return degrees.dropna()


_SQLITE_TYPES = {pa.int64(): "INTEGER", pa.float64(): "REAL"}
"""Types of columns in SQLite; all others are text."""


@dataclass(frozen=True)
class DesireLines:
    """The ``most`` largest flows between zones with coordinates, in the formats of maps."""

    tables: FlowTables
    certificate: Certificate
    most: int = MOST_LINES

    @cached_property
    def flows(self) -> pa.Table:
        """The largest flows of at least one trip between zones with coordinates, largest first.

        The columns are those of :attr:`LevelPair.flows`.
        """
        columns = self.tables.pairs[-1].columns
        trips = columns["trips"].to_numpy()
        is_drawn = trips > 0
        for side, geography in self.tables.sides.items():
            places = locate_zones(geography)
            if len(places) < len(geography.zones):
                is_drawn &= pc.is_in(columns[side], pa.array(places.index, columns[side].type)).to_numpy()
        positions = np.flatnonzero(is_drawn)
        return pa.table(columns).take(pa.array(positions[find_largest_positions(trips[positions], self.most)]))

    @cached_property
    def lines(self) -> tuple[pa.Table, NDArray[np.float64]]:
        """The flows that lead to another place, with names if areas have some, and the lines of these flows.

        A line has the longitude and latitude of both ends; shape (flows, 2, 2).
        """
        tree = self.tables.tree
        flows = add_area_names(tree, self.flows, (tree.origin.depth, tree.destination.depth), "_")
        starts = locate_zones(tree.origin).loc[self.flows["origin"].to_pylist()].to_numpy()
        ends = locate_zones(tree.destination).loc[self.flows["destination"].to_pylist()].to_numpy()
        are_apart = (starts != ends).any(axis=1)
        return flows.filter(pa.array(are_apart)), np.stack([starts, ends], axis=1)[are_apart]

    @property
    def description(self) -> str:
        """Sentences on what the lines are, which the files contain."""
        values = {"certificate": self.certificate, "release": self.certificate["release"], "most": self.most}
        return str(render_data("desire_lines.yaml", **values)["description"])

    def write_geojson(self, file: BinaryIO) -> None:
        """Write the flows as GeoJSON (RFC 7946): a line for each, from the origin to the destination."""
        flows, lines = self.lines
        head = json.dumps({"type": "FeatureCollection", "name": _LAYER, "description": self.description})
        open_head = head.removesuffix("}")  # the features follow in the same object
        encode = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps would make an encoder for each line
        features = []
        for line, properties in zip(lines.tolist(), flows.to_pylist(), strict=True):
            geometry = {"type": "LineString", "coordinates": line}
            features.append(encode({"type": "Feature", "geometry": geometry, "properties": properties}))
        file.write(f'{open_head}, "features": [\n'.encode() + ",\n".join(features).encode() + b"\n]}\n")

    def write_geopackage(self, file: BinaryIO) -> None:
        """Write the flows as a GeoPackage (OGC 12-128r17) with one indexed layer of lines, which is made in memory.

        The same release gives the same bytes with the same version of SQLite: the file states when the release was
        measured, not when it was written.
        """
        flows, lines = self.lines
        geometry = np.zeros(len(lines), _LINE)
        geometry["magic"], geometry["flags"], geometry["srs_id"] = b"GP", 1, 4326  # little-endian; WGS 84
        geometry["order"], geometry["type"], geometry["points"] = 1, 2, 2  # little-endian; a line of two points
        geometry["degrees"] = lines
        measured = datetime.fromisoformat(self.certificate["measured_at"]).astimezone(UTC)
        bounds = [*lines.min(axis=(0, 1)).tolist(), *lines.max(axis=(0, 1)).tolist()] if len(lines) else [None] * 4
        types = {field.name: _SQLITE_TYPES.get(field.type, "TEXT") for field in flows.schema}
        with closing(sqlite3.connect(":memory:")) as connection:
            last_change = measured.strftime("%Y-%m-%dT%H:%M:%S.000Z")
            values = {"description": self.description, "measured": last_change, "columns": types}
            connection.executescript(render_template("geopackage.sql", **values))
            connection.execute("UPDATE gpkg_contents SET (min_x, min_y, max_x, max_y) = (?, ?, ?, ?)", bounds)
            blobs = [line.tobytes() for line in geometry]
            connection.executemany(
                f"INSERT INTO {_LAYER} VALUES (NULL, {', '.join('?' * (1 + len(types)))})",  # noqa: S608  # constants
                zip(blobs, *(column.to_pylist() for column in flows.columns), strict=True),
            )
            if self.tables.for_tools:
                connection.executescript(render_template("geopackage_index.sql", index=_INDEX))
                (least_x, least_y), (most_x, most_y) = lines.min(axis=1).T, lines.max(axis=1).T
                extents = np.stack([least_x, most_x, least_y, most_y], axis=1).tolist()
                connection.executemany(
                    f"INSERT INTO {_INDEX} VALUES (?, ?, ?, ?, ?)",  # noqa: S608  # a constant
                    [(number, *extent) for number, extent in enumerate(extents, start=1)],
                )
            connection.commit()
            file.write(connection.serialize())

    def write_flowmap_locations(self, file: BinaryIO) -> None:
        """Write the zones with coordinates as flowmap.gl reads them: id, name, lat, lon."""
        origin = self.tables.tree.origin
        places = locate_zones(origin)
        codes, latitude, longitude = places.index, places["latitude"].array, places["longitude"].array
        names = codes.map(index_labels_by_code(origin, origin.depth))
        write_csv(pd.DataFrame({"id": codes, "name": names, "lat": latitude, "lon": longitude}), file)

    def write_flowmap_flows(self, file: BinaryIO) -> None:
        """Write the flows as flowmap.gl reads them: origin, dest, count. Flows within a zone are included."""
        flows = self.flows.select(["origin", "destination", "trips"]).rename_columns(["origin", "dest", "count"])
        write_csv_rows(file, flows, header=True)


_WIDTH, _LEAST_HEIGHT, _MOST_HEIGHT, _MARGIN = 720, 240, 560, 36
"""Size of the map, and the space around its places, in units of the picture."""

_WIDEST_LINE, _THINNEST_LINE = 5.0, 0.4
"""Width of the line of the largest flow, and smallest width of a line, in units of the picture."""

_LABELS, _LABELS_OF_PHONES, _LONGEST_LABEL = 24, 6, 20
"""Largest numbers of labels on a wide screen and on a phone, and of characters of a label."""

_ENLARGEMENT = 2.2
"""How much larger letters are drawn for a phone, on which the picture is about half as wide."""

_MOST_OUTLINES, _TOLERANCE = 150_000, 1.2
"""Largest number of characters of all outlines, and by how many units of the picture they are simplified."""

_BEND, _TIP = 0.16, 3.5
"""How far a line is bent, as a part of its length; and the distance of an arrowhead from the end of its line."""

_LETTER, _LINE_HEIGHT = 8.0, 14
"""Approximate width of a letter and height of a line in a label, in units of the picture."""

_BOX, _BOX_MARGIN = (150, 104), 6
"""Width and height of a box for places far away, and the space around it and within it, in units of the picture."""

_MOST_BOXES, _SHARE_IN_BOXES, _FAR = 4, 0.2, 0.35
"""Largest number of boxes, largest share of the trips in them, and smallest distance of their places from those of the
main frame, as a part of the largest distance within the main frame."""

_KEY = 28
"""Height of the key below the map."""

_Place = tuple[float, float]
"""Latitude and longitude in degrees."""

_Rectangle = tuple[float, float, float, float]
"""Left, top, width and height."""


@dataclass(frozen=True)
class _Frame:
    """An equirectangular projection from degrees to positions on the picture, or in a box on it."""

    west: float  # longitude of the upper left corner of the area of the places; others are counted eastwards from it
    north: float  # latitude of that corner
    shrink: float  # length of a degree of longitude, as a fraction of the length of a degree of latitude
    scale: float  # length of a degree of latitude, in units of the picture
    left: float  # position of that corner on the picture
    top: float
    box: _Rectangle  # what is seen of the projection

    @classmethod
    def fit_to_places(cls, degrees: Degrees, box: _Rectangle | None = None) -> _Frame:
        """Return the frame that fits the given places into a box, or into a picture as high as they need.

        The left and right edges lie in the widest gap between the longitudes of the places. ``degrees`` has the
        latitude and longitude of each place, of which there is at least one; shape (places, 2).
        """
        latitudes, longitudes = degrees[:, 0], np.sort(degrees[:, 1] % 360)
        gaps = np.append(np.diff(longitudes), longitudes[0] + 360 - longitudes[-1])
        cut = int(np.argmax(gaps))
        west = float(longitudes[(cut + 1) % len(longitudes)])
        south, north = float(latitudes.min()), float(latitudes.max())
        shrink = max(math.cos(math.radians((south + north) / 2)), 0.1)  # which is 0 at a pole
        # The extent in degrees of latitude, which is 0 of a single place or of places in line.
        across, down = max((360 - float(gaps[cut])) * shrink, 1e-6), max(north - south, 1e-6)
        margin = _MARGIN if box is None else _BOX_MARGIN
        left, top, width, height = (0, 0, _WIDTH, _MOST_HEIGHT) if box is None else box
        scale = min((width - 2 * margin) / across, (height - 2 * margin) / down)
        if box is None:
            height = max(down * scale + 2 * margin, _LEAST_HEIGHT)
        left_of_places, top_of_places = left + (width - across * scale) / 2, top + (height - down * scale) / 2
        return cls(west, north, shrink, scale, left_of_places, top_of_places, (left, top, width, height))

    def project_places(self, degrees: Degrees) -> NDArray[np.float64]:
        """Return the positions (x, y) on the picture of places, given by latitude and longitude; shape (places, 2)."""
        degree = self.shrink * self.scale  # length of a degree of longitude on the picture
        x = self.left + (degrees[:, 1] % 360 - self.west) % 360 * degree
        box_left, _, box_width, _ = self.box
        is_west = x > box_left + (box_width + 360 * degree) / 2  # of `west`, and drawn to the left of it
        x[is_west] -= 360 * degree
        return np.stack([x, self.top + (self.north - degrees[:, 0]) * self.scale], axis=1)

    def can_show(self, ring: NDArray[np.float64]) -> bool:
        """Return whether a ring of positions (x, y) overlaps the box, and has no side of half a turn or more."""
        left, top, width, height = self.box
        overlaps = (ring.max(axis=0) > (left, top)) & (ring.min(axis=0) < (left + width, top + height))
        half_turn = 180 * self.shrink * self.scale  # a side that is wider joins the left and the right edge
        has_narrow_sides = np.abs(np.diff(ring[:, 0])) < half_turn
        return bool(has_narrow_sides.all() and overlaps.all())


@dataclass(frozen=True)
class _Map:
    """The frames of a map: that of most trips, and boxes for groups of places far away."""

    frames: Sequence[_Frame]  # the main one first
    ends: NDArray[np.float64]  # unit vectors of the ends of the lines; shape (ends, 3)
    frame_of_end: NDArray[np.int64]  # number of the frame of each end; shape (ends,)

    @classmethod
    def from_places(cls, degrees: Degrees, trips: NDArray[np.int64], outlines: Sequence[Degrees]) -> _Map:
        """Return the map of the ends of lines: a main frame for most trips, and a box for each group far away.

        A box is large enough for the whole outlines of areas whose first point is nearest to an end in it.

        Args:
            degrees: latitude and longitude of the ends; shape (ends, 2).
            trips: trips that begin or end there; shape (ends,).
            outlines: rings of the boundaries of areas; shape (points, 2) each.
        """
        ends = compute_unit_vectors(degrees)
        frame_of_end = _group_into_frames(ends, trips)
        without_frames = cls([], ends, frame_of_end)
        frame_of_outline = without_frames.find_frames(np.array([ring[0] for ring in outlines]).reshape(-1, 2))
        main_frame = _Frame.fit_to_places(degrees[frame_of_end == 0])
        boxes = int(frame_of_end.max())
        (box_width, box_height), space = _BOX, _BOX_MARGIN
        height = main_frame.box[3] + (0.75 * box_height if boxes else 0)  # a quarter is on the main frame
        frames = [replace(main_frame, box=(0, 0, _WIDTH, height))]
        for number in range(1, boxes + 1):
            inside = [degrees[frame_of_end == number]]
            inside += [ring for ring, frame in zip(outlines, frame_of_outline, strict=True) if frame == number]
            left = space + (number - 1) * (box_width + space)
            box = (left, height - box_height - space, box_width, box_height)
            frames.append(_Frame.fit_to_places(np.concatenate(inside), box))
        return replace(without_frames, frames=frames)

    def find_frames(self, degrees: Degrees) -> NDArray[np.int64]:
        """Return the number of the frame of each place: that of the end of a line that is nearest to it."""
        nearest: NDArray[np.int64] = np.argmax(compute_unit_vectors(degrees) @ self.ends.T, axis=1)
        return np.take(self.frame_of_end, nearest)

    def project_places(self, degrees: Degrees) -> list[tuple[float, float]]:
        """Return the positions (x, y) on the picture of places, given by latitude and longitude; shape (places, 2)."""
        positions, of_place = np.empty_like(degrees), self.find_frames(degrees)
        for number, frame in enumerate(self.frames):
            positions[of_place == number] = frame.project_places(degrees[of_place == number])
        return [(x, y) for x, y in positions.tolist()]


def _group_into_frames(ends: NDArray[np.float64], trips: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of the frame of each end of a line; shape (ends,). Frame 0 is the main frame of the map.

    Ends are grouped by single linkage: two ends are in a group if steps of at most a given length lead from one to the
    other. The length is first the shortest at which a group, the main one, has ``1 - _SHARE_IN_BOXES`` of the trips. It
    is then raised to ``_FAR`` times the largest distance within this group, if this is more. The main group has the
    frame 0, and every other group one of its own; with more than ``_MOST_BOXES`` others, all ends have the frame 0.

    Args:
        ends: unit vectors of the ends of the lines; shape (ends, 3).
        trips: trips that begin or end there; shape (ends,).
    """
    chords = np.linalg.norm(ends[:, None] - ends[None, :], axis=2)

    def group_ends(link: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the group of each end for steps of at most ``link``, and the trip share of each group."""
        _, group = scipy.sparse.csgraph.connected_components(chords <= link, directed=False)
        return group, np.bincount(group, trips) / trips.sum()

    links = np.unique(chords)

    def find_largest_share(link: float) -> float:
        """Return the trip share of the group with the most trips, which does not fall as ``link`` grows."""
        _, shares = group_ends(link)
        return float(shares.max())

    shortest = links[bisect_left(links, 1 - _SHARE_IN_BOXES, key=find_largest_share)]
    group, shares = group_ends(shortest)
    is_main = group == shares.argmax()
    group, shares = group_ends(max(shortest, _FAR * chords[np.ix_(is_main, is_main)].max()))
    if len(shares) - 1 > _MOST_BOXES:
        return np.zeros_like(group)
    frame_of_group = np.argsort(np.argsort(-shares, kind="stable"))  # ranks: the group with the most trips has 0
    return frame_of_group[group]


def render_flow_map(
    tree: FlowTree, flows: pd.DataFrame, ends: NDArray[np.float64], certificate: Certificate, title: str
) -> Markup:
    """Return a map of flows as SVG.

    Args:
        tree: the flow tree, whose zones and boundaries are drawn, too.
        flows: the flows between zones, largest first.
        ends: longitude and latitude of both ends of their lines, as in :attr:`DesireLines.lines`.
        certificate: the certificate of the flows, which may state a word for trips.
        title: title of the picture.
    """
    labelled_flows, largest = label_areas(tree, flows).to_dict("records"), int(flows["trips"].max())
    trips, names = _sum_trips_at_ends(labelled_flows, ends)
    sides = list({side.digest: side for side in (tree.origin, tree.destination)}.values())
    bounded = [side for side in sides if side.given_boundaries]
    # The boundaries of each level that has some, finest level first.
    shapes = [[level for level in reversed(dissolve_boundaries(side)) if any(level)] for side in bounded]
    outlines = [ring[:, ::-1] for levels in shapes for shape in levels[0] for ring in list_rings(shape)]
    drawn = _Map.from_places(np.array([*trips]), np.array([*trips.values()]), outlines)
    height = drawn.frames[0].box[3]
    busiest = sorted(trips, key=lambda place: (-trips[place], names[place]))
    positions = drawn.project_places(np.array(busiest))
    boxes = [drawn.frames[number].box for number in drawn.find_frames(np.array(busiest))]
    labelled = [*zip(positions, [names[place] for place in busiest], boxes, strict=True)]
    starts, tips = drawn.project_places(ends[:, 0, ::-1]), drawn.project_places(ends[:, 1, ::-1])
    return render_markup(
        "flow_map.svg",
        title=title,
        certificate=certificate,
        width=_WIDTH,
        height=f"{height + _KEY:.1f}",
        map_height=f"{height:.1f}",
        frames=[frame.box for frame in drawn.frames],
        outlines=[_make_outline_paths(drawn, levels, _MOST_OUTLINES // len(bounded)) for levels in shapes],
        others=_find_other_places(drawn, sides, trips),
        lines=[
            flow | _make_line(start, tip, flow["trips"] / largest)
            for flow, start, tip in zip(labelled_flows, starts, tips, strict=True)
        ][::-1],  # the largest flow lies on top
        busiest=positions,
        labels=list(islice(_place_labels(labelled), _LABELS)),
        phone_labels=list(islice(_place_labels(labelled, _ENLARGEMENT), _LABELS_OF_PHONES)),
        enlargement=_ENLARGEMENT,
        key=[(value, _WIDEST_LINE * value / largest) for value in _choose_key_values(largest)],
    )


def _sum_trips_at_ends(
    flows: Sequence[Mapping[Hashable, Any]], ends: NDArray[np.float64]
) -> tuple[dict[_Place, int], dict[_Place, str]]:
    """Return the trips that begin or end at each place, and the label of the area there, both by place.

    ``flows`` have labels of areas, and ``ends`` the longitude and latitude of both ends; shape (flows, 2, 2).
    """
    trips, names = dict[_Place, int](), dict[_Place, str]()
    for flow, (start, end) in zip(flows, ends[:, :, ::-1].tolist(), strict=True):
        for place, name in ((tuple(start), flow["origin"]), (tuple(end), flow["destination"])):
            trips[place] = trips.get(place, 0) + flow["trips"]
            names[place] = name
    return trips, names


def _find_other_places(
    drawn: _Map, sides: Sequence[Geography], with_lines: Iterable[_Place]
) -> list[tuple[float, float]]:
    """Return the positions (x, y) on the map of the places of zones without lines. Places outside are left out."""
    places = pd.concat([locate_zones(side)[["latitude", "longitude"]] for side in sides])
    without_lines = {*places.itertuples(index=False, name=None)}.difference(with_lines)
    positions = {*drawn.project_places(np.array([*without_lines]).reshape(-1, 2))}
    _, _, width, height = drawn.frames[0].box
    return [(x, y) for x, y in sorted(positions) if 0 <= x <= width and 0 <= y <= height]


def _make_outline_paths(drawn: _Map, levels: Sequence[NDArray[np.object_]], most: int) -> list[str]:
    """Return the SVG path of outlines in each frame; empty texts if every level takes too many characters.

    ``levels`` are the boundaries of areas by level, finest first. The first level whose paths have at most ``most``
    characters together is taken. Rings that are smaller than a dot, or outside their frame, are left out.
    """
    for shapes in levels:
        parts: list[list[str]] = [[] for _ in drawn.frames]
        simplified = simplify_shapes(shapes, _TOLERANCE / drawn.frames[0].scale)
        for ring in (ring[:, ::-1] for shape in simplified for ring in list_rings(shape)):
            number = drawn.find_frames(ring[:1])[0]
            positions = drawn.frames[number].project_places(ring)
            is_seen = np.ptp(positions, axis=0).max() > _TOLERANCE  # and not an island as small as a dot
            if is_seen and drawn.frames[number].can_show(positions):
                parts[number].append("M" + "L".join([f"{x:.1f} {y:.1f}" for x, y in positions.tolist()]) + "Z")
        paths = ["".join(parts_of_frame) for parts_of_frame in parts]
        if sum(map(len, paths)) <= most:
            return paths
    return [""] * len(drawn.frames)


def _make_line(start: tuple[float, float], end: tuple[float, float], part: float) -> dict[str, object]:
    """Return the SVG path, the arrowhead and the width of a line between two positions on the picture.

    The line is a quadratic Bézier curve from (x, y) to (u, v). It is bent to one side, so that it does not cover the
    flow in the opposite direction. ``part`` is the ratio of the trips of the flow to those of the largest flow. The
    width is in proportion to it, but at least ``_THINNEST_LINE``.
    """
    (x, y), (u, v) = start, end
    width = max(_THINNEST_LINE, _WIDEST_LINE * part)
    bend_x, bend_y = (x + u) / 2 + (v - y) * _BEND, (y + v) / 2 - (u - x) * _BEND  # control point of the curve
    length = max(math.hypot(u - bend_x, v - bend_y), 1e-6)  # from the control point to the end
    neck = min(_TIP + max(5, 2 * width), length)  # distance of the broad side of the arrowhead from the end
    tip_x, tip_y = u - (u - bend_x) * _TIP / length, v - (v - bend_y) * _TIP / length
    neck_x, neck_y = u - (u - bend_x) * neck / length, v - (v - bend_y) * neck / length
    half = max(2.5, width)  # of the broad side
    side_x, side_y = (v - bend_y) / length * half, (bend_x - u) / length * half
    corners = ((tip_x, tip_y), (neck_x + side_x, neck_y + side_y), (neck_x - side_x, neck_y - side_y))
    return {
        "path": f"M{x:.1f} {y:.1f}Q{bend_x:.1f} {bend_y:.1f} {neck_x:.1f} {neck_y:.1f}",
        "head": "M" + "L".join([f"{a:.1f} {b:.1f}" for a, b in corners]) + "Z",
        "width": width,
    }


def _choose_key_values(most: int) -> list[int]:
    """Return up to three round numbers of trips of at most ``most``, largest first, for the key of the map."""
    unit = 10 ** (len(str(most)) - 1)
    largest = next(times * unit for times in (5, 2, 1) if times * unit <= most)
    return [value for value in (largest, largest // 2, largest // 10) if value >= most * _THINNEST_LINE / _WIDEST_LINE]


def _shorten_name(name: str) -> str:
    """Return as many of the first words of a name as a label has room for; if the first one is longer, its beginning.

    >>> _shorten_name("San Francisco International"), _shorten_name("Llanfairpwllgwyngyllgogerych")
    ('San Francisco', 'Llanfairpwllgwyngyl…')
    """
    first = next(iter(textwrap.wrap(name, _LONGEST_LABEL, break_long_words=False, break_on_hyphens=False)), "")
    return first if len(first) <= _LONGEST_LABEL else f"{first[: _LONGEST_LABEL - 1]}…"


def _place_labels(
    places: Iterable[tuple[tuple[float, float], str, _Rectangle]], enlargement: float = 1.0
) -> Iterator[tuple[float, float, str]]:
    """Yield the left end, the baseline and the text of each label that overlaps no earlier label and leaves no frame.

    ``places`` are positions (x, y) on the picture, the most important first, with the names of the places there and
    their frames. A label has the first free position: right of its place, left of it, below or above. If none is free,
    the label is left out. ``enlargement`` is the ratio of the size of letters to the usual one.
    """
    boxes: list[tuple[float, float, float, float]] = []  # left, right, top and bottom of each label
    for (x, y), name, (frame_left, frame_top, frame_width, frame_height) in places:
        text = _shorten_name(name)
        width, half = enlargement * _LETTER * len(text), enlargement * _LINE_HEIGHT / 2
        beside = ((x + 6, y), (x - 6 - width, y), (x - width / 2, y + half + 5), (x - width / 2, y - half - 5))
        for left, middle in beside:
            right, top, bottom = left + width, middle - half, middle + half
            is_inside = (
                frame_left <= left
                and right <= frame_left + frame_width
                and frame_top <= top
                and bottom <= frame_top + frame_height
            )
            overlaps = any(
                left < other_right and other_left < right and top < other_bottom and other_top < bottom
                for other_left, other_right, other_top, other_bottom in boxes
            )
            if is_inside and not overlaps:
                boxes.append((left, right, top, bottom))
                yield left, middle + enlargement * 4.5, text
                break
