"""Stage and publish releases of trips with stops."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from markupsafe import Markup

from od_core.geography.geography import Geography
from od_core.ledger.measurements import Measurements, NoisyVector
from od_core.ledger.staged_files import StagedTable
from od_core.noise.sources import NoiseSource
from od_core.privacy.accounting import float_above
from od_core.privacy.budget import Budget, Spent
from od_core.privacy.neighbours import Acceptance
from od_core.privacy.plan import Step
from od_core.privacy.unit import PrivacyUnit
from od_core.publication.certificate import Certificate, has_intervals
from od_core.publication.columns import CONFIDENCE, COUNT_ENDS, boxes_table
from od_core.publication.guarantee import pure_sentences
from od_core.publication.kind import ReleaseContext, TableKind
from od_core.publication.markup import in_markdown
from od_core.publication.read_back import certificate_and_tables, changed, refuse_other_plan, stated_spent
from od_core.publication.tables import BundleFile, public_files
from od_core.stops.geometry import Grid, MapGrid, fill_the_grid
from od_core.stops.mechanisms import MECHANISMS
from od_core.stops.plan import StopsPlan, StopsStep, plan_stops
from od_core.stops.release import StopsRelease, estimated, flat_boxes, measure_plan
from od_core.stops.report import stops_pictures, stops_report
from od_core.stops.trajectories import Trajectories


class StagedStops(StagedTable[StopsPlan, Trajectories, StopsRelease]):
    """The stored files of one release: the true cells of the trips, and the unpublished boxes."""

    counted_name = "points"
    table_name = "boxes"

    def counted(self, plan: StopsPlan) -> Trajectories:
        """Read the cells of all trips, and return them as :class:`Trajectories`; see :meth:`StagedTable.counted`."""
        columns = [np.asarray(column) for column in pq.read_table(self.path(self.counted_name)).columns]
        return Trajectories(np.column_stack(columns), plan.grid)

    def counted_table(self, counted: Trajectories) -> pa.Table:
        """Return a table with one row per trip, one column per dimension; see :meth:`StagedTable.counted_table`."""
        return pa.table({f"cell_{i + 1}": counted.points[:, i] for i in range(counted.grid.dimensions)})

    def table_of(self, release: StopsRelease) -> pa.Table:
        """Return the table of boxes and counts of a release; see :meth:`StagedTable.table_of`."""
        return pa.Table.from_pandas(release.boxes, preserve_index=False)


class StopsKind(TableKind[StopsPlan, Trajectories, StopsRelease]):
    """The functions that certify, write, store, read and verify releases of trips with stops.

    Whenever a bundle is read, the integer counts are computed again from the published noisy counts.
    """

    contents = "boxes"
    format = "od-release stops certificate 1"
    schema = "database/stops.sql"
    facts_table = "stops_releases"
    staging = StagedStops

    def facts(self, release: StopsRelease) -> dict[str, Any]:
        """Return the facts of a certificate that only trips with stops have, such as the numbers of boxes and trips."""
        step = release.plan.step
        return {
            "contents": {"boxes": len(release.measured), "trips": int(release.counts.sum())},
            "interval": str(CONFIDENCE),
            "levels": [
                {
                    "level": step.level,
                    "sensitivity": step.sensitivity,
                    "epsilon_exact": str(step.epsilon),
                    "scales": {name: float_above(scale) for name, scale in step.scales},
                    "measured_cells": len(release.measured),
                }
            ],
            "invariants": ["the grid"],
        }

    def guarantee(self, plan: StopsPlan, spent: Spent) -> dict[str, str]:
        """Return the sentences of a plan's guarantee by name; see :meth:`od_core.publication.kind.Kind.guarantee`."""
        return pure_sentences(plan.unit, spent, plan.acceptance, public="the grid", with_it=", with all its stops")

    def summary(self, release: StopsRelease) -> pd.DataFrame:
        """Return a table with one row: numbers of boxes and trips, the median size of a box, and the noise scales."""
        boxes, plan = release.measured, release.plan
        sides = (boxes.upper.astype(np.float64) - boxes.lower + 1).prod(axis=1)
        return pd.DataFrame(
            [
                {
                    "level": plan.step.level,
                    "dimensions": plan.grid.dimensions,
                    "boxes": len(boxes),
                    "boxes_with_trips": int((release.counts > 0).sum()),
                    "trips": int(release.counts.sum()),
                    "median_cells_of_a_box": float(np.median(sides)),
                    **{f"scale_of_{name}": round(float(scale), 3) for name, scale in plan.step.scales},
                }
            ]
        )

    def files(self, release: StopsRelease, certificate: Certificate) -> list[BundleFile]:
        """Return the files with the table of boxes, and a GeoJSON file of the boxes if the plan has a map."""
        on_map, interval = release.plan.map, has_intervals(certificate)
        table = boxes_table(release.plan.grid.dimensions, () if on_map is None else on_map.places, interval=interval)
        boxes = release.boxes[[column.name for column in table.columns]]
        files = public_files("boxes", boxes, table, "Boxes of the grid, with their trips.")
        if on_map is None:
            return files
        name = "The boxes as GeoJSON (RFC 7946): a polygon for each place of a trip."
        return [*files, BundleFile("boxes.geojson", name, partial(_write_geojson, release, on_map, interval))]

    def notes(self, release: StopsRelease, certificate: Certificate) -> list[str]:
        """Return the codebook's notes on the intervals and on the map, if the release has them."""
        intervals = [_INTERVALS] if has_intervals(certificate) else []
        if (on_map := release.plan.map) is None:
            return intervals
        return [
            *intervals,
            f"The map is from {on_map.west} to {on_map.east} degrees of longitude and from {on_map.south} to"
            f" {on_map.north} degrees of latitude, each divided into {on_map.side:,} cells of equal width. Each"
            " trip has the"
            f" places {', '.join(map(in_markdown, on_map.places))}: cell c of a side begins c widths after the first"
            " degree.",
        ]

    def report(self, release: StopsRelease, certificate: Certificate, context: ReleaseContext[StopsRelease]) -> str:
        """Return the report of a release as HTML; see :meth:`od_core.publication.kind.Kind.report`."""
        return stops_report(release, certificate, context)

    def pictures(self, release: StopsRelease, certificate: Certificate) -> Mapping[str, Markup]:
        """Return the report's maps of trips, as SVG by title; none if the plan has no map."""
        return stops_pictures(release, certificate)

    def open(self, bundle: Path) -> StopsRelease:
        """Return the release in a bundle's folder; see :func:`open_stops`."""
        return open_stops(bundle)

    def measure(
        self, plan: StopsPlan, counted: Trajectories, noise: NoiseSource, measurements: Measurements
    ) -> Sequence[tuple[Step, NoisyVector]]:
        """Return the step of a plan with its noisy values; see :func:`od_core.stops.release.measure_plan`."""
        return measure_plan(plan, counted, noise, measurements)

    def estimate(
        self,
        plan: StopsPlan,
        measured: Sequence[tuple[StopsStep, NoisyVector]],
        *,
        spent: Spent,
        noise: str | None,
    ) -> StopsRelease:
        """Return the release of a plan with the given noisy values; see :func:`od_core.stops.release.estimated`."""
        return estimated(plan, measured, spent=spent, noise=noise)

    def measured(self, release: StopsRelease) -> list[tuple[Step, NoisyVector]]:
        """Return the step of a release with its noisy values."""
        return [(release.plan.step, flat_boxes(release.measured))]

    def invariants(self, release: StopsRelease) -> Iterator[str]:
        """Yield a message for each of these three rules that the release breaks.

        The boxes cover every cell of the grid exactly once. No count is negative. The counts sum to the sum of the
        noisy counts, or to 0 if that sum is negative.
        """
        boxes, counts = release.measured, release.counts
        if not fill_the_grid(boxes.lower, boxes.upper, release.plan.grid):
            yield "the boxes overlap or do not cover the grid"
        if (counts < 0).any():
            yield "a count is below 0"
        if int(counts.sum()) != max(0, int(boxes.noisy.sum())):
            yield "the counts do not sum to the noisy total"

    def row(self, release: StopsRelease) -> dict[str, Any]:
        """Return the values for the columns ``trips`` and ``grid`` of the table ``stops_releases``."""
        return {"trips": int(release.counts.sum()), "grid": list(release.plan.grid.sizes)}

    def geographies(self, _release: StopsRelease) -> list[Geography]:
        """Return an empty list, because the boxes name no areas."""
        return []

    def tables(self, release: StopsRelease, certificate: Certificate) -> Mapping[str, pa.Table]:
        """Return the rows for the table ``stops_boxes`` of the release database, without the column ``release``."""
        boxes = release.measured
        ends = dict(zip(_ENDS, release.intervals, strict=True)) if has_intervals(certificate) else {}
        lists = {"lower": list(boxes.lower), "upper": list(boxes.upper)}
        columns = {name: pa.array(values, pa.list_(pa.int32())) for name, values in lists.items()}
        return {"stops_boxes": pa.table({**columns, "count": release.counts, "noisy": boxes.noisy, **ends})}


STOPS = StopsKind()

_ENDS = tuple(column.name for column in COUNT_ENDS)

_INTERVALS = (
    "`count_lower` and `count_upper` follow from `noisy` alone: its noise was drawn after the boxes were fixed. They"
    " are for the given boxes. If boxes are chosen by their counts, such as the largest, the intervals of the chosen"
    " boxes hold less often."
)


def _write_geojson(release: StopsRelease, on_map: MapGrid, interval: bool, file: BinaryIO) -> None:
    """Write the boxes into a file as a GeoJSON feature collection (RFC 7946), with one feature per box.

    The geometry of a feature has one polygon for each place of a trip, in the order of the places. The polygon is the
    range of the box on the map of that place.
    """
    measured, counts = release.measured, release.counts
    ends = dict(zip(_ENDS, release.intervals, strict=True)) if interval else {}
    file.write(b'{"type": "FeatureCollection", "features": [\n')
    for box in range(len(measured)):
        rectangles = on_map.degrees(measured.lower[box], measured.upper[box])
        polygons = [
            {"type": "Polygon", "coordinates": [[[w, s], [e, s], [e, n], [w, n], [w, s]]]} for w, s, e, n in rectangles
        ]
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
    stated, (boxes,) = certificate_and_tables(bundle, ["boxes"])
    plan = _plan(stated["plan"])
    ends = [f"{end}_{dimension + 1}" for end in ("lower", "upper") for dimension in range(plan.grid.dimensions)]
    table = boxes_table(plan.grid.dimensions, interval=has_intervals(stated))
    if [column.name for column in table.columns] != list(boxes.columns):
        raise changed("boxes")
    flat = boxes[[*ends, "noisy"]].to_numpy(dtype=np.int64).ravel()
    release = estimated(
        plan, [(plan.step, NoisyVector.in_memory([flat]))], spent=stated_spent(plan, stated), noise=stated["noise"]
    )
    if not release.boxes[list(boxes.columns)].equals(boxes) or stated["contents"]["boxes"] != len(boxes):
        raise changed("boxes")
    return release


def _plan(facts: dict[str, Any]) -> StopsPlan:
    on_map = facts.get("map")
    plan = plan_stops(
        Grid(tuple(facts["grid"])) if on_map is None else MapGrid.from_facts(on_map),
        unit=PrivacyUnit(facts["unit"], facts["neighbours"]),
        budget=Budget(facts["epsilon"]),
        mechanism=MECHANISMS.make(facts["mechanism"], **facts["mechanism_options"]),
        acceptance=Acceptance.from_facts(facts["acceptance"]),
    )
    refuse_other_plan(plan, facts)
    return plan
