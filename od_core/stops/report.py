"""Write the HTML report of a release of trips with stops from the release, its certificate and the ledger alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from od_core.publication.html.certificate_page import (
    common_sections,
    confidence,
    promise_figures,
    protected,
    under_title,
)
from od_core.publication.html.report_page import (
    SHADES,
    Scale,
    bar,
    between,
    key,
    number,
    page,
    paragraph,
    rounded,
    table,
    with_interval,
)
from od_core.publication.kind import ReleaseContext
from od_core.publication.markup import element, joined
from od_core.stops.geometry import Bounds, MapGrid
from od_core.stops.release import StopsRelease

LISTED = 20
"""Largest number of boxes in the report's table of boxes."""

_PIXELS = 64
"""Largest number of fields on each side of a drawn map. A field is a rectangle of one shade."""

_WIDTH, _PIECE = 480, 1 << 16


def stops_report(release: StopsRelease, certificate: dict[str, Any], context: ReleaseContext[StopsRelease]) -> str:
    """Return the report of a release as HTML; see :meth:`od_core.publication.kind.Kind.report`."""
    grid, on_map = release.plan.grid, release.plan.map
    interval = confidence(certificate)
    sections = [
        ("Main results", _main_results(release, certificate, interval)),
        ("What is protected", protected(certificate)),
        ("The largest boxes", _largest(release, interval)),
        *([("Locations of trips", _maps(release, on_map))] if on_map is not None else []),
        ("Expected error", _errors(release)),
        *common_sections(certificate, context),
    ]
    figures: list[tuple[str, object]] = [
        ("trips", number(release.counts.sum())),
        ("boxes", number(len(release.measured))),
        ("dimensions", number(grid.dimensions)),
        *promise_figures(certificate),
    ]
    title = f"Trips with stops: {certificate['release'].split('/')[0]}, {certificate['period']}"
    return page(title, under_title(certificate), figures, sections)


def _main_results(release: StopsRelease, certificate: dict[str, Any], interval: str | None) -> Markup:
    """Return the main results as a list of sentences."""
    counts, (lower, upper) = release.counts, release.intervals
    largest, zeros = int(np.argmax(counts)), counts == 0
    reach = f" ({interval} interval: {between(lower[largest], upper[largest])})" if interval else ""
    sentences = [
        f"{certificate['period']} has {number(counts.sum())} released trips in {number(len(counts))} boxes.",
        f"The box with the most trips has {number(counts[largest])}{reach}.",
    ]
    if interval and zeros.any():
        sentences.append(
            f"{number(zeros.sum())} boxes are released with 0 trips. Such a box has at most"
            f" {number(upper[zeros].max())}, with a confidence of {interval}."
        )
    return element("ul", *(element("li", sentence) for sentence in sentences))


def stops_pictures(release: StopsRelease, _certificate: dict[str, Any]) -> dict[str, Markup]:
    """Return one map of trips per place of a trip, as SVG by title, or none if the plan has no map."""
    on_map = release.plan.map
    return {} if on_map is None else _drawn(on_map, _densities(release, on_map))


def _densities(release: StopsRelease, on_map: MapGrid) -> list[NDArray[np.float64]]:
    return [_density(release, place) for place in range(len(on_map.places))]


def _scale(densities: Sequence[NDArray[np.float64]]) -> Scale:
    """Return the scale from numbers of trips to shades that the maps of all places share."""
    return Scale.up_to(max(float(density.max()) for density in densities))


def _drawn(on_map: MapGrid, densities: Sequence[NDArray[np.float64]]) -> dict[str, Markup]:
    """Return the map of each place as SVG by title, in the order of the places."""
    middle = math.radians((on_map.south + on_map.north) / 2)
    shape = (on_map.east - on_map.west) * max(math.cos(middle), 0.1) / (on_map.north - on_map.south)
    scale = _scale(densities)
    titles = [f"Map of released trips by their {name}" for name in on_map.places]
    return {
        title: _map(title, density, scale, _WIDTH / shape) for title, density in zip(titles, densities, strict=True)
    }


def _maps(release: StopsRelease, on_map: MapGrid) -> Markup:
    """Return a section with a map for each place and a table of the fields with the most trips."""
    densities = _densities(release, on_map)
    pixels = len(densities[0])
    wide, high = (on_map.east - on_map.west) / pixels, (on_map.north - on_map.south) / pixels
    rows = []
    for name, density in zip(on_map.places, densities, strict=True):
        for field in np.argsort(-density.ravel(), kind="stable")[:5].tolist():
            x, y = divmod(field, pixels)
            rows.append(
                (
                    name,
                    _degrees(on_map.west + x * wide, on_map.west + (x + 1) * wide),
                    _degrees(on_map.south + y * high, on_map.south + (y + 1) * high),
                    number(round(float(density[x, y]))),
                )
            )
    figures = [
        element("figure", drawn, element("figcaption", f"By {name}"))
        for name, drawn in zip(on_map.places, _drawn(on_map, densities).values(), strict=True)
    ]
    return joined(
        paragraph(
            "Every box of the release covers a range of each place of a trip. Here, the trips of a box are spread"
            f" evenly over its part of each map and summed in {number(pixels)} \u00d7 {number(pixels)} fields. A"
            " darker field has more trips. North is up; the map has no coast or border."
        ),
        element("div", *figures, class_="maps"),
        key(_scale(densities), "trips"),
        table("The fields with the most trips", ("place", "longitude", "latitude", "trips"), rows, numbers={1, 2, 3}),
    )


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


def _map(title: str, density: NDArray[np.float64], scale: Scale, height: float) -> Markup:
    """Draw the number of trips per field as an SVG map. Adjacent fields of one shade in a row become one rectangle."""
    pixels = len(density)
    shades = [[scale.shade(value) for value in row] for row in density.T[::-1].tolist()]
    wide, high = _WIDTH / pixels, height / pixels
    drawn = []
    for row, line in enumerate(shades):
        start = 0
        for column in range(1, pixels + 1):
            if column < pixels and line[column] == line[start]:
                continue
            if line[start]:
                drawn.append(
                    element(
                        "rect",
                        x=f"{start * wide:.2f}",
                        y=f"{row * high:.2f}",
                        width=f"{(column - start) * wide:.2f}",
                        height=f"{high:.2f}",
                        fill=SHADES[line[start]],
                    )
                )
            start = column
    return element(
        "svg",
        element("title", title),
        element("rect", width=str(_WIDTH), height=f"{height:.1f}", fill=SHADES[0]),
        element("g", *drawn, shape_rendering="crispEdges"),
        viewBox=f"0 0 {_WIDTH} {height:.1f}",
        width=_WIDTH,
        height=f"{height:.1f}",
        role="img",
    )


def _largest(release: StopsRelease, interval: str | None) -> Markup:
    """Return a table of the boxes with the most trips, with bounds in degrees if the plan has a map, else in cells."""
    boxes, counts, on_map = release.measured, release.counts, release.plan.map
    order = np.argsort(-counts, kind="stable")[:LISTED]
    if on_map is None:
        names = tuple(f"dimension {dimension + 1}" for dimension in range(release.plan.grid.dimensions))
    else:
        names = on_map.places
    least, greatest = release.intervals
    most = float((greatest if interval else counts)[order].max(initial=0))
    rows = []
    for box in order.tolist():
        lower, upper = boxes.lower[box], boxes.upper[box]
        if on_map is None:
            where = [between(*ends) for ends in zip(lower.tolist(), upper.tolist(), strict=True)]
        else:
            where = [f"{_degrees(w, e)}; {_degrees(s, n)}" for w, s, e, n in on_map.degrees(lower, upper)]
        ends = (int(least[box]), int(greatest[box])) if interval else None
        counted = with_interval(number(counts[box]), between(*ends) if ends else None)
        rows.append((*where, counted, bar(int(counts[box]), most, ends)))
    bounds = "" if on_map is None else ": longitude and latitude of each place, in degrees"
    text = (
        f"In brackets is the {interval} interval of a box, and the dark line over a bar shows it. For the given boxes,"
        " it contains the true number of trips with this confidence. The largest boxes are chosen by their noisy"
        " counts, so their intervals hold less often. All boxes are in "
    )
    return joined(
        *([paragraph(text, element("code", "boxes.csv"), ".")] if interval else []),
        table(
            f"The {number(len(rows))} boxes with the most trips{bounds}",
            (*names, "trips", ""),
            rows,
            numbers={len(names)},
            bars={len(names) + 1},
        ),
    )


def _degrees(least: float, most: float) -> str:
    return f"{least:.1f} to {most:.1f}".replace("-", "\u2212")


def _errors(release: StopsRelease) -> Markup:
    rows = [
        (name.replace("_", " "), rounded(float(scale)), rounded(float(scale) * 2**0.5))
        for name, scale in release.plan.step.scales
    ]
    return joined(
        paragraph(
            "The noise of each measurement, computed from the plan, not by comparing this release with its input. A"
            " range of the map that cuts a box counts the trips of the box in proportion to the part of the box in"
            " the range, which adds a further error."
        ),
        table("Noise, in trips", ("of", "scale", "standard deviation"), rows, numbers={1, 2}),
        paragraph("For measured errors of range queries, see docs/explanation/stops.md of od-release.", note=True),
    )
