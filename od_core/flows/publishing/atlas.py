"""Write the atlas of released flows: one HTML file in which readers choose areas and see flows with their intervals.

The page has the released flows and the noisy measurements, also those by category, from which it computes the interval
of any sum of flows as :meth:`od_core.flows.released_flows.ReleasedFlows.trips_between` does. The sources of its program
are in the folder ``atlas`` of the repository.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Sequence
from importlib.resources import files
from typing import BinaryIO

import numpy as np
from markupsafe import escape
from numpy.typing import NDArray

from od_core.files.durable import compute_facts_digest
from od_core.flows.derived_flows import DerivedFlows
from od_core.flows.estimation.fitted_tree import FittedTree
from od_core.flows.estimation.intervals import SegmentFit
from od_core.flows.estimation.least_squares import FittedLevel, combine_bottom_up
from od_core.flows.publishing.changes import describe_cautions, name_mechanism_and_rule
from od_core.flows.publishing.flow_tables import FlowTables, LevelPair
from od_core.geography.codes import Degrees
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import (
    Geography,
    compute_square_degrees,
    dissolve_boundaries,
    find_points_within,
    list_rings,
    simplify_shapes,
)
from od_core.geography.places import ZoneDistances, compute_least_squared_chord, compute_mean_places, to_degrees
from od_core.periods import Period
from od_core.publication.bundle_files import ATLAS
from od_core.publication.certificate import Certificate, format_release_title, read_bundle_format, read_subject
from od_core.publication.comparability import (
    count_period_days,
    list_compared_facts,
    name_breakdown_categories,
    read_category_definitions,
)
from od_core.publication.templates import render_data, render_template

FIRST_WITH_ATLAS = 4
"""First format of bundles of flows that have an atlas."""


def has_atlas(tree: FlowTree, certificate: Certificate) -> bool:
    """Return whether a bundle has an atlas: it has two sides, no known totals, and a format with an atlas.

    The atlas computes intervals itself, and cannot compute them from known totals.
    """
    is_of_format = read_bundle_format(certificate) >= FIRST_WITH_ATLAS
    return is_of_format and "known" not in certificate.get("plan", {}) and not tree.has_one_side


MOST_NODES = 2_000_000
"""Largest number of measured nodes of a level, or of released flows, for which the atlas has all of a level's areas.

It is also the largest number of measured or released values by category, in all categories together.
"""

_TYPES = (("i1", 1 << 7), ("i2", 1 << 15), ("i4", 1 << 31))
"""Types of columns of whole numbers, each with an exclusive bound on absolute values."""

_ALIGNMENT = 8
"""Number of bytes to a multiple of which every column is filled up."""

_STEPS = 4_000
"""Steps of the grid of boundaries along the side of a square as large as all areas together."""


def write_atlas(tables: FlowTables, certificate: Certificate, file: BinaryIO) -> None:
    """Write the HTML page of the atlas. Every call writes the same bytes."""
    title = format_release_title(certificate, f"Flows: {certificate['release'].split('/')[0]}")
    packed = build_atlas_data(tables, certificate, title)
    page = (files("od_core.publication") / "html" / ATLAS).read_text(encoding="utf-8")
    before, after = page.replace("{{title}}", escape(title)).split("{{data}}")
    for part in (before.encode(), base64.b64encode(packed), after.encode()):
        file.write(part)


def build_atlas_data(tables: FlowTables, certificate: Certificate, title: str) -> bytes:
    """Return the data of the page, which ``atlas/src/columns.ts`` reads, as gzip.

    The unpacked bytes are the length of the header in 4 bytes, the least significant one first; the header, in JSON
    (``Header`` in ``columns.ts``); zeros up to a multiple of 8 bytes; and the columns of numbers that it refers to.
    """
    columns = _Columns()
    tree = tables.tree
    fits = tables.release.intervals.fits if tables.interval else []
    depth = _choose_depth(tables, fits)
    levels, segment_depth = tree.origin.levels, _choose_segment_depth(tables, fits, depth)
    notes = render_data(
        "atlas_notes.yaml",
        tables=tables,
        certificate=certificate,
        cut=levels[depth - 1] if depth < len(levels) else None,
        coarser=bool(tables.breakdowns) and segment_depth < depth,
        segments=levels[segment_depth - 1] if segment_depth else None,
    )
    is_comparable = tables.interval and not isinstance(tables.release, DerivedFlows)
    caution = describe_cautions(read_subject(certificate))
    header = {
        "title": title,
        "release": certificate["release"],
        "counted": tables.nouns.counted,
        "period": certificate["period"],
        "when": Period(certificate["period"]).in_words,
        "about": certificate.get("about", {}),
        "comparable": is_comparable,
        **(_list_comparison_facts(certificate) if is_comparable else {}),
        **({"caution": caution} if caution else {}),
        "notes": [*filter(None, notes.values())],
        "order": tree.order,
        "origin": _make_geography_facts(tree.origin, depth, columns),
        "destination": None  # the same areas as the origins
        if len(tables.geographies) == 1
        else _make_geography_facts(tree.destination, depth, columns),
        "measured": [not fits or tables.release.intervals.has_measured_totals(side) for side in (0, 1)],
        "fits": [_list_fitted_levels(fit, depth, columns) for fit in fits],
        "leaves": _make_flow_facts(tables, depth, columns),
        "selection": _make_selection_facts(tables, depth),
        # Distances are those between zones, so that a page without zones has none.
        "distances": _make_distance_facts(tables, columns) if tables.distance and depth == tree.origin.depth else None,
        "segments": _make_segment_facts(tables, fits, depth, columns),
    }
    text = json.dumps(header, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    start = len(text).to_bytes(4, "little") + text
    padding = b"\0" * (-len(start) % _ALIGNMENT)
    return gzip.compress(start + padding + b"".join(columns.pieces), compresslevel=6, mtime=0)


def _list_comparison_facts(certificate: Certificate) -> dict[str, object]:
    """Return the facts by which the atlas of another release decides whether it can be compared with this release."""
    counts = list_compared_facts(certificate)
    categories = {
        name_breakdown_categories(name): facts for name, facts in read_category_definitions(certificate).items()
    }
    return {
        "end": Period(certificate["period"]).end.isoformat(),
        "days": count_period_days(certificate),
        "bounded": certificate["unit"] != "trip",
        "facts": {name: compute_facts_digest({name: fact}) for name, fact in counts.items()},
        "categories": {name: compute_facts_digest(facts) for name, facts in categories.items()},
        "rules": name_mechanism_and_rule(certificate),
    }


def make_atlas_sql(tables: FlowTables) -> str:
    """Return the SQL query of the flows that the page has: those other than 0 between areas of its finest level."""
    depth = _choose_depth(tables, tables.release.intervals.fits if tables.interval else [])
    return render_template("rows/atlas.sql", pair=LevelPair(tables, (depth, depth)))


class _Columns:
    """The bytes of columns of numbers, one after the other, each at a multiple of ``_ALIGNMENT`` bytes."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        """Content and padding of each column, in order."""
        self._length = 0

    def add(self, values: NDArray[np.generic]) -> dict[str, object]:
        """Add a column in the smallest type that holds its values exactly, and return its location for the header.

        ``start`` of the location is in bytes from the first column, and ``length`` is the number of values.
        """
        value_type = "f8"
        if len(values) == 0 or np.all(np.isfinite(values) & (values == np.floor(values))):
            largest = int(np.abs(values).max(initial=0))
            value_type = next((name for name, limit in _TYPES if largest < limit), value_type)
        content = np.ascontiguousarray(values, dtype=f"<{value_type}").tobytes()
        location = {"type": value_type, "start": self._length, "length": len(values)}
        self.pieces += [content, b"\0" * (-len(content) % _ALIGNMENT)]
        self._length += len(content) + len(self.pieces[-1])
        return location


def _choose_depth(tables: FlowTables, fits: Sequence[FittedTree]) -> int:
    """Return the number of the finest level of areas that the page has: at most ``MOST_NODES`` nodes, or level 1."""
    levels = range(tables.tree.origin.depth, 1, -1)
    return next((depth for depth in levels if _find_largest_node_count(tables, fits, depth) <= MOST_NODES), 1)


def _choose_segment_depth(tables: FlowTables, fits: Sequence[FittedTree], depth: int) -> int:
    """Return the number of the finest level, at most ``depth``, whose flows the page has by category; 0 if none.

    At this level, values of all categories together are at most ``MOST_NODES``.
    """
    categories = sum(len(breakdown.categories) for breakdown in tables.breakdowns)
    levels = range(depth if categories else 0, 0, -1)
    return next(
        (level for level in levels if categories * _find_largest_node_count(tables, fits, level) <= MOST_NODES), 0
    )


def _find_largest_node_count(tables: FlowTables, fits: Sequence[FittedTree], depth: int) -> int:
    """Return the largest number of nodes of a measured level down to the level ``depth`` of areas, or of its flows."""
    _, _, trips = tables.tree.sum_trips(tables.release.leaves, depth, depth)
    measured = [level.nodes for fit in fits for level in fit.levels if level.nodes.level <= 2 * depth]
    return max([len(trips), *map(len, measured)])


def _make_geography_facts(geography: Geography, depth: int, columns: _Columns) -> dict[str, object]:
    """Return the areas of the levels 1 to ``depth``, with their places and boundaries, as facts of the header.

    ``coordinates`` are the places of the areas of the level ``depth``, and ``centres`` those of the levels above it.
    """
    codes = [list(level) for level in geography.codes[1 : depth + 1]]
    labels = [list(level) for level in geography.labels[1 : depth + 1]]
    facts: dict[str, object] = {
        "levels": list(geography.levels[:depth]),
        "codes": codes,
        "labels": None if labels == codes else labels,
        "parents": [columns.add(level) for level in geography.parents[1 : depth + 1]],
        "coordinates": None,
        "centres": None,
        "shapes": None,
    }
    if geography.aliases is not None:
        facts["aliases"] = [list(level) for level in geography.aliases[1 : depth + 1]]
    if geography.coordinates is not None or geography.level_boundaries:
        facts["coordinates"] = columns.add(_compute_places(geography, depth).ravel())
        facts["centres"] = [columns.add(_compute_places(geography, level).ravel()) for level in range(1, depth)]
    if geography.given_boundaries:
        facts["shapes"] = _make_shape_facts(geography, depth, columns)
    return facts


def _compute_places(geography: Geography, level: int) -> Degrees:
    """Return latitude and longitude of a place in each area of a level; shape (areas, 2), NaN if unknown.

    It is the mean place of the area's zones or, if that is outside the given boundary, a point within the boundary.
    """
    if level == geography.depth and geography.coordinates is not None:
        return geography.coordinates
    places = to_degrees(compute_mean_places(geography, level))
    given = geography.level_boundaries.get(geography.level_names[level])
    return places if given is None else find_points_within(given, places)


def _make_shape_facts(geography: Geography, depth: int, columns: _Columns) -> dict[str, object]:
    """Return simplified boundaries of the areas of the levels 1 to ``depth``, as points of a grid.

    ``step`` is the width of the grid in degrees. It follows from the total area of the finest level that has
    boundaries. ``perArea`` has the number of rings of each area, ``perRing`` the number of points of each ring, and
    ``points`` each point as the difference, in steps, from the point before.
    """
    levels = dissolve_boundaries(geography)
    total_areas = map(compute_square_degrees, reversed(levels))
    area_of_finest = next(area for area in total_areas if area)
    step = area_of_finest**0.5 / _STEPS
    per_area: list[int] = []
    per_ring: list[int] = []
    points = [np.zeros((0, 2), dtype=np.int64)]
    for level in levels[:depth]:
        for shape in simplify_shapes(level, 2 * step):
            lines = [np.round(ring / step).astype(np.int64) for ring in list_rings(shape)]
            lines = [line for line in lines if len(np.unique(line, axis=0)) > 2]
            per_area.append(len(lines))
            per_ring += map(len, lines)
            points += lines
    return {
        "step": step,
        "perArea": columns.add(np.array(per_area)),
        "perRing": columns.add(np.array(per_ring, dtype=np.int64)),
        "points": columns.add(np.diff(np.concatenate(points), axis=0, prepend=0).ravel()),
    }


def _list_fitted_levels(fit: FittedTree, depth: int, columns: _Columns) -> dict[str, object]:
    """Return the noisy counts of a fitted tree, level by level, from which the page computes intervals.

    The last level is that of pairs of areas of the level ``depth``, or the next measured level below. If further levels
    were measured, ``below`` of the last level has the estimate of its nodes from these, with its variance. ``totals``
    has the measured trips from and to each area; None for a side that was not measured.
    """
    last = 2 * depth
    last_position, has_lower = _find_last_kept(fit.levels, last)
    levels: list[dict[str, object]] = []
    for position, level in enumerate(fit.levels[: last_position + 1]):
        has_undivided = position < last_position and len(level.divided) < len(level.nodes)
        is_divided = np.isin(np.arange(len(level.nodes)), level.divided).astype(np.int8)
        levels.append(
            {
                "number": min(level.nodes.level, last),
                "noise": None if math.isinf(level.noise) else level.noise,
                "noisy": columns.add(level.noisy),
                "nodes": None if fit.tree.possible is None else _make_node_facts(level, columns),
                "divided": columns.add(is_divided) if has_undivided else None,
                "below": None,
            }
        )
    if has_lower:
        top_first = list(combine_bottom_up(fit.levels))[::-1]
        estimate, variance, _ = top_first[last_position]
        levels[-1]["below"] = {"estimate": columns.add(estimate), "variance": columns.add(variance)}
    totals: list[dict[str, object] | None] = []
    for side in (0, 1):
        measured = fit.sum_measured_totals(side, depth)
        if measured is None:
            totals.append(None)
        else:
            totals.append({"noisy": columns.add(measured.estimate), "variance": columns.add(measured.variance)})
    return {"byNoise": fit.by_noise, "nothingDropped": fit.nothing_dropped, "levels": levels, "totals": totals}


def _make_node_facts(level: FittedLevel, columns: _Columns) -> dict[str, object]:
    """Return the nodes of a level (area numbers), and how many of them each divided node of the level above has."""
    ends = {"origin": columns.add(level.nodes.origin), "destination": columns.add(level.nodes.destination)}
    return {"perParent": columns.add(np.diff(level.offsets)), **ends}


def _find_last_kept(levels: Sequence[FittedLevel], last: int) -> tuple[int, bool]:
    """Return the position of the first level whose number is at least ``last``, and whether levels follow it."""
    position = sum(level.nodes.level < last for level in levels)
    return position, position + 1 < len(levels)


def _make_flow_facts(tables: FlowTables, depth: int, columns: _Columns) -> dict[str, object]:
    """Return the flows above 0 between the areas of a level, sorted by origin and then destination."""
    tree = tables.tree
    origin, destination, trips = tree.sum_trips(tables.release.leaves, depth, depth)
    order = np.lexsort((destination, origin))
    return {
        "perOrigin": columns.add(np.bincount(origin, minlength=tree.origin.size(depth))),
        "destination": columns.add(destination[order]),
        "trips": columns.add(trips[order]),
    }


def _make_selection_facts(
    tables: FlowTables, depth: int, segment: str | None = None
) -> dict[str, list[list[float]]] | None:
    """Return how intervals allow for the selection of flows above 0, at each pair of levels; see ``Selection``.

    Each list has a row for each origin level and a column for each destination level, from the whole space down. Return
    None if the intervals do not allow for selection, or there are none.
    """
    if not tables.has_reliability:
        return None
    facts: dict[str, list[list[float]]] = {"deviations": [], "leastListed": [], "changes": []}
    for origin_level in range(depth + 1):
        selections = [tables.release.make_selection((origin_level, level), segment) for level in range(depth + 1)]
        facts["deviations"].append([selection.deviations for selection in selections])
        facts["leastListed"].append([selection.least_listed for selection in selections])
        facts["changes"].append([selection.deviations_of_changes for selection in selections])
    return facts


def _make_distance_facts(tables: FlowTables, columns: _Columns) -> dict[str, object]:
    """Return the places of zones as unit vectors, and the ends of the distance bands.

    ``edges`` are in kilometres. ``squares`` are the same as squared chords of the unit sphere, exactly, so that the
    page puts each pair of zones into the same band as Python.
    """
    zones = ZoneDistances.from_tree(tables.tree)
    return {
        "edges": zones.edges,
        "squares": [compute_least_squared_chord(edge) for edge in zones.edges],
        "allKnown": zones.all_known,
        "farthest": zones.farthest,
        "origins": columns.add(zones.origins.ravel()),
        "destinations": None if len(tables.geographies) == 1 else columns.add(zones.destinations.ravel()),
    }


def _make_segment_facts(
    tables: FlowTables, fits: Sequence[FittedTree], page_depth: int, columns: _Columns
) -> dict[str, object] | None:
    """Return the flows by category and their measurements, at the finest level whose flows the page has by category.

    Return None if there is no such level.
    """
    depth = _choose_segment_depth(tables, fits, page_depth)
    if depth == 0:
        return None
    flows = tables.release
    breakdowns = []
    fitted = flows.parts if tables.interval else ()
    pairs = None if depth == page_depth else _make_flow_facts(tables, depth, columns)
    for breakdown in tables.breakdowns:
        name = breakdown.name
        _, _, trips = tables.tree.sum_values(flows.leaves, flows.segments[name], depth, depth)
        trips = trips[trips.sum(axis=1) != 0]  # in the order of `_make_flow_facts`
        breakdowns.append(
            {
                "name": name,
                "categories": list(breakdown.categories),
                "trips": [columns.add(trips_of_category) for trips_of_category in trips.T],
                "selection": _make_selection_facts(tables, depth, name),
                "fits": [_make_segment_fit_facts(release.fit_segment(name), 2 * depth, columns) for release in fitted],
            }
        )
    return {"depth": depth, "pairs": pairs, "breakdowns": breakdowns}


def _make_segment_fit_facts(fit: SegmentFit, last: int, columns: _Columns) -> list[dict[str, object]]:
    """Return the noisy counts of each category of a breakdown, level by level, as :func:`_list_fitted_levels` does.

    The nodes are those of the totals, and ``last`` is the number of the last level of the flow tree.
    """
    trees = [category.levels for category in fit.categories]
    last_position, has_lower = _find_last_kept(trees[0], last)
    levels: list[dict[str, object]] = [
        {
            "noise": None if math.isinf(level.noise) else level.noise,
            "values": [columns.add(tree[position].noisy) for tree in trees],
            "variance": None,
        }
        for position, level in enumerate(trees[0][: last_position if has_lower else last_position + 1])
    ]
    if has_lower:
        from_below = [list(combine_bottom_up(tree))[::-1][last_position] for tree in trees]  # top level first
        values = [columns.add(estimate) for estimate, _, _ in from_below]
        _, variance, _ = from_below[0]
        levels.append({"noise": None, "values": values, "variance": columns.add(variance)})
    return levels
