"""Write the atlas of released flows: one HTML file in which readers choose areas and see flows with their intervals.

The page has the released flows and the noisy measurements, from which it computes the interval of any sum of flows as
:meth:`od_core.flows.released_flows.ReleasedFlows.trips_between` does. The sources of its program are in the folder
``atlas`` of the repository.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from od_core.flows.derived_flows import DerivedFlows
from od_core.flows.estimation.fitted_tree import FittedTree
from od_core.flows.estimation.least_squares import FittedLevel, upwards
from od_core.flows.publishing.flow_tables import FlowTables
from od_core.geography.boundaries import dissolved, rings, simplified, square_degrees
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography
from od_core.geography.places import in_degrees, mean_places
from od_core.publication.bundle import ATLAS
from od_core.publication.markup import escaped

FIRST_WITH_ATLAS = 4
"""First format of bundles of flows that have an atlas."""

MOST_NODES = 2_000_000
"""Largest number of measured nodes of a level, or of released flows, for which the atlas has all of a level's areas."""

_TYPES = (("i1", 1 << 7), ("i2", 1 << 15), ("i4", 1 << 31))
_ALIGNMENT = 8

_STEPS = 4_000
"""Steps of the grid of boundaries along the side of a square as large as all areas together."""


def write_atlas(tables: FlowTables, certificate: dict[str, Any], file: BinaryIO) -> None:
    """Write the page. Every call writes the same bytes."""
    title = f"Flows: {certificate['release'].split('/')[0]}, {certificate['period']}"
    packed = atlas_data(tables, certificate, title)
    before, after = _page().replace("{{title}}", escaped(title)).split("{{data}}")
    for part in (before.encode(), base64.b64encode(packed), after.encode()):
        file.write(part)


def atlas_data(tables: FlowTables, certificate: dict[str, Any], title: str) -> bytes:
    """Return the data of the page: a JSON header and columns of numbers, compressed. ``atlas/src/columns.ts`` reads it.

    Args:
        tables: the flows.
        certificate: their certificate.
        title: title of the page.
    """
    columns = _Columns()
    tree = tables.tree
    fits = tables.release.intervals.fits if tables.interval else []
    depth = _depth(tables, fits)
    same = tree.origin.digest == tree.destination.digest
    header = {
        "title": title,
        "release": certificate["release"],
        "period": certificate["period"],
        "comparable": tables.interval and not isinstance(tables.release, DerivedFlows),
        "notes": _notes(tables, certificate, depth),
        "order": tree.order,
        "origin": _geography(tree.origin, depth, columns),
        "destination": None if same else _geography(tree.destination, depth, columns),
        "fits": [_fit(fit, 2 * depth, columns) for fit in fits],
        "leaves": _leaves(tables, depth, columns),
    }
    text = json.dumps(header, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    start = len(text).to_bytes(4, "little") + text
    padding = b"\0" * (-len(start) % _ALIGNMENT)
    return gzip.compress(start + padding + b"".join(columns.pieces), compresslevel=6, mtime=0)


class _Columns:
    """Columns of numbers, one after the other."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self._length = 0

    def add(self, values: NDArray[Any]) -> dict[str, Any]:
        """Add a column in the smallest type that holds its values exactly, and return its place."""
        kind = "f8"
        if len(values) == 0 or np.all(np.isfinite(values) & (values == np.floor(values))):
            most = int(np.abs(values).max(initial=0))
            kind = next((name for name, limit in _TYPES if most < limit), kind)
        content = np.ascontiguousarray(values, dtype=f"<{kind}").tobytes()
        place = {"type": kind, "start": self._length, "length": len(values)}
        self.pieces += [content, b"\0" * (-len(content) % _ALIGNMENT)]
        self._length += len(content) + len(self.pieces[-1])
        return place


def _depth(tables: FlowTables, fits: Sequence[FittedTree]) -> int:
    """Return the number of the finest level of areas that the page has."""
    tree = tables.tree
    for depth in range(tree.origin.depth, 1, -1):
        flows = len(tree.sums_at(tables.release.leaves, depth, depth)[2])
        measured = [len(level.nodes) for fit in fits for level in fit.levels if level.nodes.level <= 2 * depth]
        if max([flows, *measured]) <= MOST_NODES:
            return depth
    return 1


def _geography(geography: Geography, depth: int, columns: _Columns) -> dict[str, Any]:
    labels = [list(level) for level in geography.labels[1 : depth + 1]]
    codes = [list(level) for level in geography.codes[1 : depth + 1]]
    coordinates = geography.coordinates
    if coordinates is not None and depth < geography.depth:
        coordinates = in_degrees(mean_places(geography, depth))
    return {
        "levels": list(geography.levels[:depth]),
        "codes": codes,
        "labels": None if labels == codes else labels,
        "parents": [columns.add(level) for level in geography.parents[1 : depth + 1]],
        "coordinates": None if coordinates is None else columns.add(coordinates.ravel()),
        "shapes": None if geography.boundaries is None else _shapes(geography, depth, columns),
    }


def _shapes(geography: Geography, depth: int, columns: _Columns) -> dict[str, Any]:
    """Return the boundaries of the areas of all levels below the whole space, simplified and in steps of a grid.

    Each point is given as the difference from the point before it. Rings go on from area to area and level to level.
    """
    levels = dissolved(geography)
    step = square_degrees(levels[-1]) ** 0.5 / _STEPS
    per_area: list[int] = []
    per_ring: list[int] = []
    points = [np.zeros((0, 2), dtype=np.int64)]
    for level in levels[:depth]:
        for shape in simplified(level, 2 * step):
            lines = [np.round(ring / step).astype(np.int64) for ring in rings(shape)]
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


def _fit(fit: FittedTree, last: int, columns: _Columns) -> dict[str, Any]:
    """Return the levels of a fitted tree down to the level number ``last``.

    If that level was not measured, the next measured level replaces it, because it has the same nodes.
    """
    above = sum(level.nodes.level < last for level in fit.levels)
    kept = fit.levels[: above + 1]
    levels: list[dict[str, Any]] = [
        {
            "number": min(level.nodes.level, last),
            "noise": None if math.isinf(level.noise) else level.noise,
            "noisy": columns.add(level.noisy),
            "divided": _divided(level, columns) if k < above else None,
            "below": None,
        }
        for k, level in enumerate(kept)
    ]
    if len(kept) < len(fit.levels):
        estimate, variance, _ = upwards(fit.levels)
        levels[-1]["below"] = {"estimate": columns.add(estimate[above]), "variance": columns.add(variance[above])}
    return {"byNoise": fit.by_noise, "nothingDropped": fit.nothing_dropped, "levels": levels}


def _divided(level: FittedLevel, columns: _Columns) -> dict[str, Any] | None:
    if len(level.divided) == len(level.nodes):
        return None
    flags = np.zeros(len(level.nodes), dtype=np.int8)
    flags[level.divided] = 1
    return columns.add(flags)


def _leaves(tables: FlowTables, depth: int, columns: _Columns) -> dict[str, Any]:
    tree = tables.tree
    origin, destination, trips = tree.sums_at(tables.release.leaves, depth, depth)
    order = np.lexsort((destination, origin))
    return {
        "perOrigin": columns.add(np.bincount(origin, minlength=tree.origin.size(depth))),
        "destination": columns.add(destination[order]),
        "trips": columns.add(trips[order]),
    }


def _notes(tables: FlowTables, certificate: dict[str, Any], depth: int) -> list[str]:
    """Return the sentences that a reader of the numbers must know."""
    tree: FlowTree = tables.tree
    every = "Every number contains noise."
    if "trips" in certificate["exact"]:
        every = "Every number contains noise, except that of all trips, which is exact."
    interval = (
        " The true number lies in its 90 % interval in about nine of ten cases."
        if tables.interval
        else " This release has no intervals."
    )
    cut = []
    if depth < tree.origin.depth:
        cut = [
            f"The table is too large for this page, which shows areas down to {tree.origin.levels[depth - 1]}."
            " The files of the release have all areas."
        ]
    return [every + interval, *cut, certificate["guarantee"]["protected"]]


def _page() -> str:
    return (files("od_core.publication.html") / ATLAS).read_text(encoding="utf-8")
