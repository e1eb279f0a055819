"""Stage, report and publish releases of trips with stops."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from markupsafe import Markup
from numpy.typing import NDArray

from od_core.languages import translate
from od_core.ledger.measurements import NoisyVector
from od_core.ledger.staged_files import StagedTable
from od_core.meaning.subject import Subject
from od_core.privacy.accounting import round_up_to_float
from od_core.privacy.budget import Spent
from od_core.privacy.plan import Step, with_fields
from od_core.privacy.stability import compute_laplace_variance
from od_core.publication.certificate import Certificate, format_confidence, has_intervals, is_selected, read_subject
from od_core.publication.certify import describe_guarantee
from od_core.publication.columns import CONFIDENCE, COUNT_ENDS, make_boxes_table
from od_core.publication.kind import ReleaseContext, TableKind
from od_core.publication.number_formats import Scale
from od_core.publication.read_back import (
    make_changed_data_error,
    read_certificate_and_tables,
    read_spent_budget,
    refuse_other_plan,
)
from od_core.publication.tables import BundleFile, make_table_files
from od_core.publication.templates import render_data, render_markup, render_template
from od_core.stops.geometry import Bounds, MapGrid, is_grid_partition
from od_core.stops.plan import StopsPlan
from od_core.stops.release import StopsRelease, estimate_release, flatten_boxes, measure_plan
from od_core.stops.trajectories import Trajectories


class StagedStops(StagedTable[StopsPlan, Trajectories, StopsRelease]):
    """The stored files of one release: the true cells of the trips, and the unpublished boxes."""

    counted_name = "points"
    table_name = "boxes"

    def read_counted_input(self, plan: StopsPlan) -> Trajectories:
        """Return the stored cells of all trips, which are confidential, on the grid of the plan."""
        columns = [np.asarray(column) for column in pq.read_table(self.locate_file(self.counted_name)).columns]
        return Trajectories(np.column_stack(columns), plan.grid)

    def make_counted_table(self, counted: Trajectories) -> pa.Table:
        """Return the trips as a table with one row per trip, and its cell in each dimension as columns."""
        dimensions = range(counted.grid.dimensions)
        return pa.table({f"cell_{dimension + 1}": counted.points[:, dimension] for dimension in dimensions})

    def make_table(self, release: StopsRelease) -> pa.Table:
        """Return the table of boxes and counts of a release; see :meth:`StagedTable.make_table`."""
        return pa.Table.from_pandas(release.boxes, preserve_index=False)


_ENDS = tuple(column.name for column in COUNT_ENDS)
"""Names of the columns of the lower and the upper end of an interval."""


def _write_geojson(release: StopsRelease, on_map: MapGrid, interval: bool, file: BinaryIO) -> None:
    """Write the boxes as GeoJSON (RFC 7946): a feature for each box, with a polygon for each place of a trip, in order.

    The properties of a feature are the counts of the box and, if ``interval``, the ends of the interval.
    """
    measured, counts = release.measured, release.counts
    ends = dict(zip(_ENDS, release.intervals, strict=True)) if interval else {}
    file.write(b'{"type": "FeatureCollection", "features": [\n')
    for box in range(len(measured)):
        polygons = []
        for west, south, east, north in on_map.convert_to_degrees(measured.lower[box], measured.upper[box]):
            ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
            polygons.append({"type": "Polygon", "coordinates": [ring]})
        feature = {
            "type": "Feature",
            "geometry": {"type": "GeometryCollection", "geometries": polygons},
            "properties": {
                "count": int(counts[box]),
                **{name: int(values[box]) for name, values in ends.items()},
                "noisy": int(measured.noisy[box]),
                "places": list(on_map.places),
            },
        }
        file.write((json.dumps(feature) + (",\n" if box + 1 < len(measured) else "\n")).encode())
    file.write(b"]}\n")


def open_stops(bundle: str | Path) -> StopsRelease:
    """Read a published bundle of trips with stops, and return its release.

    The integer counts are computed again from the noisy counts, and compared with the published counts.

    Raises:
        OdError: the folder is not a bundle of trips with stops, or its files do not match its certificate.
    """
    certificate, (boxes,) = read_certificate_and_tables(bundle, ["boxes"])
    plan = StopsPlan.from_facts(certificate["plan"])
    refuse_other_plan(plan, certificate["plan"])
    bounds = [f"{end}_{dimension + 1}" for end in ("lower", "upper") for dimension in range(plan.grid.dimensions)]
    table = make_boxes_table(plan.grid.dimensions, interval=has_intervals(certificate))
    if [column.name for column in table.columns] != list(boxes.columns):
        raise make_changed_data_error("boxes")
    flat = boxes[[*bounds, "noisy"]].to_numpy(dtype=np.int64).ravel()
    measured = [(plan.step, NoisyVector.from_arrays([flat]))]
    spent = read_spent_budget(plan, certificate)
    release = estimate_release(plan, measured, spent=spent, noise=certificate["noise"])
    release = with_fields(release, selected=is_selected(certificate))
    if not release.boxes[list(boxes.columns)].equals(boxes) or certificate["contents"]["boxes"] != len(boxes):
        raise make_changed_data_error("boxes")
    return release


# Report. The words and the layout are in the templates.


MAX_LISTED_BOXES = 20
"""Largest number of boxes in the report's table of boxes."""

_MAX_LISTED_FIELDS = 5
"""Largest number of fields of each map in the report's table of fields."""

_PIXELS = 64
"""Largest number of fields on each side of a drawn map. A field is a rectangle of one shade."""

_WIDTH = 480
"""Width of a drawn map, in units of the picture."""

_PIECE_BOXES = 1 << 16
"""Number of boxes whose trips are added to a map at once, which limits memory."""


def _list_largest_boxes(release: StopsRelease) -> Sequence[Mapping[str, object]]:
    """Return the boxes with the most trips, at most ``MAX_LISTED_BOXES``, with their bounds, trips and intervals.

    The bounds are in cells and, if the plan has a map, also in degrees.
    """
    on_map = release.plan.map
    count_lower, count_upper = release.intervals
    largest = []
    for box in np.argsort(-release.counts, kind="stable")[:MAX_LISTED_BOXES].tolist():
        lower, upper = release.measured.lower[box], release.measured.upper[box]
        largest.append(
            {
                "cells": list(zip(lower.tolist(), upper.tolist(), strict=True)),
                "degrees": None if on_map is None else on_map.convert_to_degrees(lower, upper),
                "trips": int(release.counts[box]),
                "reach": (int(count_lower[box]), int(count_upper[box])),
            }
        )
    return largest


def _make_maps(release: StopsRelease, on_map: MapGrid, counted: str) -> Mapping[str, Any]:
    """Return the values of the report's section on maps, by name.

    ``pictures`` has the map of each place as SVG, by its title, ``scale`` their common scale of shades, ``pixels`` the
    number of fields on each side, and ``fields`` the fields with the most trips. ``counted`` names the trips.
    """
    densities = [_compute_density(release, place) for place in range(len(on_map.places))]
    scale = Scale.from_maximum(max(float(density.max()) for density in densities))
    pixels = len(densities[0])
    middle = math.radians((on_map.south + on_map.north) / 2)
    width_of_degree = max(math.cos(middle), 0.1)  # relative to the height; limited, for maps near a pole
    height = _WIDTH / ((on_map.east - on_map.west) * width_of_degree / (on_map.north - on_map.south))
    pictures: dict[str, Markup] = {}
    fields: list[dict[str, object]] = []
    for name, density in zip(on_map.places, densities, strict=True):
        title = translate("Map of released {counted} by their {name}").format(counted=counted, name=name)
        pictures[title] = render_markup(
            "boxes_map.svg",
            title=title,
            width=_WIDTH,
            height=f"{height:.1f}",
            field=(_WIDTH / pixels, height / pixels),
            drawn=list(_iterate_rectangles(density, scale)),
        )
        fields += _list_largest_fields(density, on_map, name)
    return {"pictures": pictures, "scale": scale, "pixels": pixels, "fields": fields}


def _list_largest_fields(density: NDArray[np.float64], on_map: MapGrid, place: str) -> list[dict[str, object]]:
    """Return the fields of one place's map with the most trips, and their edges in degrees."""
    pixels = len(density)
    width, height = (on_map.east - on_map.west) / pixels, (on_map.north - on_map.south) / pixels
    fields: list[dict[str, object]] = []
    for field in np.argsort(-density.ravel(), kind="stable")[:_MAX_LISTED_FIELDS].tolist():
        x, y = divmod(field, pixels)
        fields.append(
            {
                "place": place,
                "trips": round(float(density[x, y])),
                "longitude": (on_map.west + x * width, on_map.west + (x + 1) * width),
                "latitude": (on_map.south + y * height, on_map.south + (y + 1) * height),
            }
        )
    return fields


def _compute_density(release: StopsRelease, place: int) -> NDArray[np.float64]:
    """Return the number of trips in each field of one place's map; shape (pixels west to east, pixels south to north).

    The trips of a box are spread evenly over its cells.
    """
    boxes, counts = release.measured, release.counts
    side = release.plan.grid.sizes[2 * place]
    pixels = min(_PIXELS, side)
    density = np.zeros((pixels, pixels))
    for first in range(0, len(counts), _PIECE_BOXES):
        piece = slice(first, first + _PIECE_BOXES)
        lower, upper = boxes.lower[piece], boxes.upper[piece]
        across = _compute_overlap_shares(lower[:, 2 * place], upper[:, 2 * place], side, pixels)
        up = _compute_overlap_shares(lower[:, 2 * place + 1], upper[:, 2 * place + 1], side, pixels)
        density += (across * counts[piece, np.newaxis]).T @ up
    return density


def _compute_overlap_shares(lower: Bounds, upper: Bounds, side: int, pixels: int) -> NDArray[np.float64]:
    """Return the share of each range of cells that lies in each pixel; shape (ranges, pixels).

    A range has the cells ``lower`` to ``upper``. The pixels are equal parts of the ``side`` cells of a side of the map.
    """
    edges = np.arange(pixels + 1) * (side / pixels)
    first, end = lower[:, np.newaxis].astype(np.float64), upper[:, np.newaxis].astype(np.float64) + 1
    overlap = np.minimum(end, edges[1:]) - np.maximum(first, edges[:-1])
    shares: NDArray[np.float64] = np.maximum(overlap, 0) / (end - first)
    return shares


def _iterate_scales(release: StopsRelease) -> Iterator[tuple[str, Fraction]]:
    """Yield the purpose and the scale of each noise: those of the plan, and that of a box if it depends on the draw."""
    planned = release.plan.step.scales
    yield from planned
    if release.scale not in [scale for _, scale in planned]:
        yield translate("a box"), release.scale


def _iterate_rectangles(density: NDArray[np.float64], scale: Scale) -> Iterator[dict[str, object]]:
    """Yield the rectangles of a drawn map, row by row from the north, in units of fields.

    A rectangle is a run of fields of one shade in a row. Runs of the lightest shade are left out.
    """
    for row, line in enumerate(density.T[::-1].tolist()):
        column = 0
        for shade, fields in groupby(map(scale.find_shade, line)):
            length = len(list(fields))
            if shade:
                yield {"row": row, "column": column, "length": length, "shade": shade}
            column += length


class StopsKind(TableKind[StopsPlan, Trajectories, StopsRelease]):
    """The functions that certify, write, store, read and verify releases of trips with stops.

    Whenever a bundle is read, the integer counts are computed again from the published noisy counts.
    """

    contents = "boxes"
    format = "od-release stops certificate 1"
    schema = "database/stops.sql"
    facts_table = "stops_releases"
    staging = StagedStops

    def facts(self, release: StopsRelease, _subject: Subject) -> dict[str, object]:
        """Return the facts that only certificates of boxes have, such as the numbers of boxes and trips."""
        step = release.plan.step
        return {
            "contents": {"boxes": len(release.measured), "trips": int(release.counts.sum())},
            "interval": str(CONFIDENCE),
            "levels": [
                {
                    "level": step.level,
                    "sensitivity": step.sensitivity,
                    "epsilon_exact": str(step.epsilon),
                    "scales": {name: round_up_to_float(scale) for name, scale in step.scales},
                    "measured_cells": len(release.measured),
                }
            ],
            "invariants": [translate("the grid")],
        }

    def describe_guarantee(self, plan: StopsPlan, spent: Spent, subject: Subject) -> dict[str, str]:
        """Return the sentences of a plan's guarantee by name; the grid is public."""
        return describe_guarantee(subject, spent, plan.acceptance, public=[translate("the grid")])

    def make_summary(self, release: StopsRelease) -> pd.DataFrame:
        """Return a table with one row: numbers of boxes and trips, the median size of a box, and the noise scales."""
        boxes, plan = release.measured, release.plan
        cells_of_boxes = (boxes.upper.astype(np.float64) - boxes.lower + 1).prod(axis=1)
        return pd.DataFrame(
            [
                {
                    "level": plan.step.level,
                    "dimensions": plan.grid.dimensions,
                    "boxes": len(boxes),
                    "boxes_with_trips": int((release.counts > 0).sum()),
                    "trips": int(release.counts.sum()),
                    "median_cells_of_a_box": float(np.median(cells_of_boxes)),
                    **{f"scale_of_{name}": round(float(scale), 3) for name, scale in plan.step.scales},
                }
            ]
        )

    def list_files(self, release: StopsRelease, certificate: Certificate) -> list[BundleFile]:
        """Return the files with the table of boxes, and a GeoJSON file of the boxes if the plan has a map."""
        release = with_fields(release, selected=is_selected(certificate))
        on_map, interval = release.plan.map, has_intervals(certificate)
        places = () if on_map is None else on_map.places
        nouns = read_subject(certificate).nouns
        table = make_boxes_table(release.plan.grid.dimensions, places, nouns, interval=interval)
        boxes = release.boxes[[column.name for column in table.columns]]
        files = make_table_files(table, boxes)
        if on_map is None:
            return files
        description = translate("The boxes as GeoJSON (RFC 7946): a polygon for each place.")
        return [
            *files,
            BundleFile("boxes.geojson", description, partial(_write_geojson, release, on_map, interval), "gis"),
        ]

    def list_notes(self, release: StopsRelease, certificate: Certificate) -> list[str]:
        """Return the notes of the codebook on the intervals and on the map, each if the release has it."""
        interval = has_intervals(certificate)
        texts = render_data("stops_notes.yaml", interval=interval, certificate=certificate, map=release.plan.map)
        notes: list[str] = texts["notes"].splitlines()
        return notes

    def render_report(
        self, release: StopsRelease, certificate: Certificate, context: ReleaseContext[StopsRelease]
    ) -> str:
        """Return the report of a release as HTML; see :meth:`od_core.publication.kind.Kind.render_report`."""
        release = with_fields(release, selected=is_selected(certificate))
        interval, on_map = format_confidence(certificate), release.plan.map
        zeros = release.counts == 0
        cell = 1.0 if on_map is None else min(on_map.east - on_map.west, on_map.north - on_map.south) / on_map.side
        return render_template(
            "stops_report.html",
            decimals=max(math.ceil(-math.log10(cell)), 1),
            certificate=certificate,
            interval=interval,
            trips=release.counts.sum(),
            boxes=len(release.counts),
            dimensions=release.plan.grid.dimensions,
            zeros=int(zeros.sum()),
            zero_bound=int(release.intervals[1][zeros].max(initial=0)),
            places=None if on_map is None else on_map.places,
            largest=_list_largest_boxes(release),
            maps=None if on_map is None else _make_maps(release, on_map, read_subject(certificate).nouns.counted),
            errors=[
                (name, float(scale), math.sqrt(compute_laplace_variance(scale)))
                for name, scale in _iterate_scales(release)
            ],
            context=context,
        )

    def render_pictures(self, release: StopsRelease, certificate: Certificate) -> dict[str, Markup]:
        """Return one map of trips per place of a trip, as SVG by title, or none if the plan has no map."""
        if release.plan.map is None:
            return {}
        counted = read_subject(certificate).nouns.counted
        pictures: dict[str, Markup] = _make_maps(release, release.plan.map, counted)["pictures"]
        return pictures

    def list_metadata(self, release: StopsRelease) -> dict[str, object]:
        """Return the mechanism and the number of trips."""
        return {"mechanism": release.plan.mechanism.name, "trips": int(release.counts.sum())}

    open = staticmethod(open_stops)
    measure = staticmethod(measure_plan)
    estimate = staticmethod(estimate_release)

    def list_measurements(self, release: StopsRelease) -> list[tuple[Step, NoisyVector]]:
        """Return the step of a release with its noisy values."""
        return [(release.plan.step, NoisyVector.from_arrays([flatten_boxes(release.measured)]))]

    def check_invariants(self, release: StopsRelease) -> Iterator[str]:
        """Yield a message for each of these three rules that the release breaks.

        The boxes cover every cell of the grid exactly once. No count is negative. The counts sum to the sum of the
        noisy counts, or to 0 if that sum is negative.
        """
        boxes, counts = release.measured, release.counts
        if not is_grid_partition(boxes.lower, boxes.upper, release.plan.grid):
            yield "the boxes overlap or do not cover the grid"
        if (counts < 0).any():
            yield "a count is below 0"
        if int(counts.sum()) != max(0, int(boxes.noisy.sum())):
            yield "the counts do not sum to the noisy total"

    def make_row(self, release: StopsRelease) -> dict[str, object]:
        """Return the values of a release for its row of the table ``stops_releases``, by column."""
        return {"trips": int(release.counts.sum()), "grid": list(release.plan.grid.sizes)}

    def make_tables(self, release: StopsRelease, certificate: Certificate) -> Mapping[str, pa.Table]:
        """Return the rows for the table ``stops_boxes`` of the release database, without the column ``release``."""
        release = with_fields(release, selected=is_selected(certificate))
        boxes = release.measured
        ends = dict(zip(_ENDS, release.intervals, strict=True)) if has_intervals(certificate) else {}
        bounds = pa.list_(pa.int32())
        lower, upper = pa.array(list(boxes.lower), bounds), pa.array(list(boxes.upper), bounds)
        columns = {"lower": lower, "upper": upper, "count": release.counts, "noisy": boxes.noisy, **ends}
        return {"stops_boxes": pa.table(columns)}


STOPS = StopsKind()
