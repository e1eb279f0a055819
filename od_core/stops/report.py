"""State the facts that the report of trips with stops shows, from the release, its certificate and the ledger alone.

The words and the layout are in the template ``stops_report.html``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from od_core.publication.certificate import confidence
from od_core.publication.codebook import citation
from od_core.publication.kind import ReleaseContext
from od_core.publication.number_formats import Scale
from od_core.publication.templates import filled, filled_markup
from od_core.stops.geometry import Bounds, MapGrid
from od_core.stops.release import StopsRelease

LISTED = 20
"""Largest number of boxes in the report's table of boxes."""

_LISTED_FIELDS = 5
"""Largest number of fields of each map in the report's table of fields."""

_PIXELS = 64
"""Largest number of fields on each side of a drawn map. A field is a rectangle of one shade."""

_WIDTH, _PIECE = 480, 1 << 16


def stops_report(release: StopsRelease, certificate: dict[str, Any], context: ReleaseContext[StopsRelease]) -> str:
    """Return the report of a release as HTML; see :meth:`od_core.publication.kind.Kind.report`."""
    interval, on_map = confidence(certificate), release.plan.map
    zeros = release.counts == 0
    return filled(
        "stops_report.html",
        certificate=certificate,
        interval=interval,
        trips=release.counts.sum(),
        boxes=len(release.counts),
        dimensions=release.plan.grid.dimensions,
        zeros=int(zeros.sum()),
        zero_bound=int(release.intervals[1][zeros].max(initial=0)),
        places=None if on_map is None else on_map.places,
        largest=_largest(release),
        maps=None if on_map is None else _maps(release, on_map),
        errors=[(name.replace("_", " "), float(scale)) for name, scale in release.plan.step.scales],
        context=context,
        citation=citation(certificate),
    )


def stops_pictures(release: StopsRelease, _certificate: dict[str, Any]) -> dict[str, Markup]:
    """Return one map of trips per place of a trip, as SVG by title, or none if the plan has no map."""
    return {} if release.plan.map is None else _maps(release, release.plan.map)["pictures"]


def _largest(release: StopsRelease) -> list[dict[str, Any]]:
    """Return the boxes with the most trips: their bounds in degrees if the plan has a map, else in cells."""
    boxes, on_map, (lower, upper) = release.measured, release.plan.map, release.intervals
    rows = []
    for box in np.argsort(-release.counts, kind="stable")[:LISTED].tolist():
        least, greatest = boxes.lower[box], boxes.upper[box]
        rows.append(
            {
                "cells": list(zip(least.tolist(), greatest.tolist(), strict=True)),
                "degrees": None if on_map is None else on_map.degrees(least, greatest),
                "trips": int(release.counts[box]),
                "reach": (int(lower[box]), int(upper[box])),
            }
        )
    return rows


def _maps(release: StopsRelease, on_map: MapGrid) -> dict[str, Any]:
    """Return the map of each place by its title, their common scale, and the fields with the most trips."""
    densities = [_density(release, place) for place in range(len(on_map.places))]
    scale = Scale.up_to(max(float(density.max()) for density in densities))
    pixels = len(densities[0])
    wide, high = (on_map.east - on_map.west) / pixels, (on_map.north - on_map.south) / pixels
    fields = []
    for name, density in zip(on_map.places, densities, strict=True):
        for field in np.argsort(-density.ravel(), kind="stable")[:_LISTED_FIELDS].tolist():
            x, y = divmod(field, pixels)
            west, south = on_map.west + x * wide, on_map.south + y * high
            ends = {
                "longitude": (west, on_map.west + (x + 1) * wide),
                "latitude": (south, on_map.south + (y + 1) * high),
            }
            fields.append({"place": name, "trips": round(float(density[x, y]))} | ends)
    middle = math.radians((on_map.south + on_map.north) / 2)
    shape = (on_map.east - on_map.west) * max(math.cos(middle), 0.1) / (on_map.north - on_map.south)
    titles = [f"Map of released trips by their {name}" for name in on_map.places]
    return {
        "pictures": {
            title: _picture(title, density, scale, _WIDTH / shape)
            for title, density in zip(titles, densities, strict=True)
        },
        "scale": scale,
        "pixels": pixels,
        "fields": fields,
    }


def _density(release: StopsRelease, place: int) -> NDArray[np.float64]:
    """Return the number of trips in each field of one place's map.

    The trips of each box are spread evenly over the box. The shape is (fields from west to east, fields from south to
    north).
    """
    boxes, counts = release.measured, release.counts
    side = release.plan.grid.sizes[2 * place]
    pixels = min(_PIXELS, side)
    density = np.zeros((pixels, pixels))
    for first in range(0, len(counts), _PIECE):
        piece = slice(first, first + _PIECE)
        across, up = (
            _shares(boxes.lower[piece, dimension], boxes.upper[piece, dimension], side, pixels)
            for dimension in (2 * place, 2 * place + 1)
        )
        density += (across * counts[piece, np.newaxis]).T @ up
    return density


def _shares(lower: Bounds, upper: Bounds, side: int, pixels: int) -> NDArray[np.float64]:
    """Return the share of each range of cells that lies in each of ``pixels`` equal parts of a side of the map.

    The shape is (ranges, pixels). The shares of a range sum to 1.
    """
    edges = np.arange(pixels + 1) * (side / pixels)
    first, end = lower[:, np.newaxis].astype(np.float64), upper[:, np.newaxis].astype(np.float64) + 1
    overlap = np.minimum(end, edges[1:]) - np.maximum(first, edges[:-1])
    shares: NDArray[np.float64] = np.maximum(overlap, 0) / (end - first)
    return shares


def _picture(title: str, density: NDArray[np.float64], scale: Scale, height: float) -> Markup:
    """Draw the number of trips per field as an SVG map."""
    return filled_markup(
        "boxes_map.svg",
        title=title,
        width=_WIDTH,
        height=f"{height:.1f}",
        field=(_WIDTH / len(density), height / len(density)),
        drawn=list(_rectangles(density, scale)),
    )


def _rectangles(density: NDArray[np.float64], scale: Scale) -> Iterator[dict[str, Any]]:
    """Yield a rectangle for adjacent fields of one shade in a row, except for the lightest shade, in fields."""
    for row, line in enumerate(density.T[::-1].tolist()):
        for shade, run in groupby(enumerate(map(scale.shade, line)), key=lambda field: field[1]):
            columns = [column for column, _ in run]
            if shade:
                yield {"row": row, "column": columns[0], "length": len(columns), "shade": shade}
