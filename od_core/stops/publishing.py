"""Publish trips with stops: certificate, bundle, release database, and reading them back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa

from od_core.errors import OdError
from od_core.ledger.measurements import NoisyVector
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.accounting import float_above
from od_core.privacy.budget import Budget, Spent
from od_core.privacy.neighbours import Acceptance
from od_core.privacy.unit import PrivacyUnit
from od_core.publication.bundle_integrity import CERTIFICATE
from od_core.publication.certificate import pure_sentences
from od_core.publication.columns import boxes_table
from od_core.publication.database import Contents, differing_entry, differing_tables, release_facts, store
from od_core.publication.kind import BundleFile, Kind, Look
from od_core.publication.markdown import in_markdown
from od_core.publication.tables import public_files
from od_core.stops.geometry.boxes import fill_the_grid
from od_core.stops.geometry.grid import Grid
from od_core.stops.geometry.map_grid import MapGrid
from od_core.stops.mechanisms import mechanism_named
from od_core.stops.plan import StopsPlan, plan_stops
from od_core.stops.release import StopsRelease, estimated, flat_boxes
from od_core.stops.report import stops_pictures, stops_report


def stops_facts(release: StopsRelease) -> dict[str, Any]:
    """Return the facts of a certificate that only trips with stops have."""
    step = release.plan.step
    return {
        "contents": {"boxes": len(release.measured), "trips": int(release.counts.sum())},
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


def stops_sentences(plan: StopsPlan, spent: Spent) -> dict[str, str]:
    """Return what is protected, against whom, and what is not, in sentences whose numbers are rounded up."""
    return pure_sentences(plan.unit, spent, plan.acceptance, public="the grid", with_it=", with all its stops")


def stops_files(release: StopsRelease, _certificate: dict[str, Any]) -> list[BundleFile]:
    """Return the files of the boxes, with a GeoJSON file if the grid is a map."""
    on_map = release.plan.map
    table = boxes_table(release.plan.grid.dimensions, () if on_map is None else on_map.places)
    files = public_files("boxes", release.boxes, table, "Boxes of the grid, with their trips.")
    if on_map is None:
        return files
    name = "The boxes as GeoJSON (RFC 7946): a polygon for each place of a trip."
    return [*files, BundleFile("boxes.geojson", name, partial(_write_geojson, release, on_map))]


def stops_notes(release: StopsRelease, _certificate: dict[str, Any]) -> list[str]:
    """Return what a user of the files must know, apart from their columns."""
    if (on_map := release.plan.map) is None:
        return []
    return [
        f"The map is from {on_map.west} to {on_map.east} degrees of longitude and from {on_map.south} to {on_map.north}"
        f" degrees of latitude, each cut into {on_map.side:,} cells of one width. Each trip has the places"
        f" {', '.join(map(in_markdown, on_map.places))}: cell c of a side begins c widths after the first degree."
    ]


def _write_geojson(release: StopsRelease, on_map: MapGrid, file: BinaryIO) -> None:
    """Write one GeoJSON feature (RFC 7946) per box, with a polygon for each place of its trips, in order."""
    measured, counts = release.measured, release.counts
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
                "noisy": int(measured.noisy[box]),
                "places": list(on_map.places),
            },
        }
        file.write((json.dumps(feature) + (",\n" if box + 1 < len(measured) else "\n")).encode())
    file.write(b"]}\n")


def open_stops(bundle: str | Path) -> StopsRelease:
    """Open published trips with stops, whose integer counts are computed again from the boxes as drawn.

    Raises:
        OdError: The folder is not a bundle of such a release, or its files do not fit its certificate.
    """
    folder = Path(bundle)
    try:
        stated = json.loads((folder / CERTIFICATE).read_text(encoding="utf-8"))
        boxes = pd.read_parquet(folder / "boxes.parquet")
    except (OSError, ValueError):
        raise OdError(
            "OD-RELEASE-ABSENT",
            f"{folder.name} is not a whole bundle of trips with stops",
            next_step="name a published release",
        ) from None
    plan = _plan(stated["plan"])
    ends = [f"{end}_{dimension + 1}" for end in ("lower", "upper") for dimension in range(plan.grid.dimensions)]
    if [*ends, "count", "noisy"] != list(boxes.columns):
        raise _changed("boxes")
    flat = boxes[[*ends, "noisy"]].to_numpy(dtype=np.int64).ravel()
    levels = tuple(Fraction(rho) for rho in stated["spent"]["rho_by_level_exact"])
    release = estimated(plan, NoisyVector.in_memory([flat]), spent=plan.spent_on(levels), noise=stated["noise"])
    if not np.array_equal(release.counts, boxes["count"]) or stated["contents"]["boxes"] != len(boxes):
        raise _changed("boxes")
    return release


def _plan(facts: dict[str, Any]) -> StopsPlan:
    on_map = facts.get("map")
    plan = plan_stops(
        Grid(tuple(facts["grid"])) if on_map is None else MapGrid.from_facts(on_map),
        unit=PrivacyUnit(facts["unit"], facts["neighbours"]),
        budget=Budget(facts["epsilon"]),
        mechanism=mechanism_named(facts["mechanism"], **facts["mechanism_options"]),
        acceptance=Acceptance.from_facts(facts["acceptance"]),
    )
    if json.loads(json.dumps(plan.facts())) != facts:
        raise _changed("plan")
    return plan


def _changed(what: str) -> OdError:
    return OdError(
        "OD-BUNDLE-CHANGED",
        f"the published {what} are not those that the certificate describes",
        next_step="restore the release, or read it with the software that the certificate names",
    )


# The release database.


_SCHEMA = """
CREATE TABLE IF NOT EXISTS stops_releases (
    release VARCHAR PRIMARY KEY, series VARCHAR, period VARCHAR, revision BIGINT, mechanism VARCHAR, unit VARCHAR,
    neighbours VARCHAR, epsilon DOUBLE, trips BIGINT, grid BIGINT[], measured_at VARCHAR, certificate VARCHAR);
CREATE TABLE IF NOT EXISTS stops_boxes (
    release VARCHAR, lower INTEGER[], upper INTEGER[], "count" BIGINT, noisy BIGINT);
"""


def store_stops(database: Path, release: StopsRelease, key: ReleaseKey, certificate: dict[str, Any]) -> None:
    """Add checked boxes to the database, in one transaction. Adding the same release again changes nothing.

    Raises:
        OdError: as :func:`od_core.publication.database.store`.
    """
    contents = Contents(
        schema=_SCHEMA,
        facts_table="stops_releases",
        facts=_row(release, key, certificate),
        geographies=(),
        tables=_tables(release),
        checks=certificate["checks"],
    )
    store(database, key, contents)


def differing_stops(
    database: Path, release: StopsRelease, key: ReleaseKey, certificate: dict[str, Any]
) -> Iterator[str]:
    """Yield how the database differs from the bundle of a release."""
    row = _row(release, key, certificate)
    yield from differing_entry(database, key, "stops_releases", row, certificate["checks"])
    yield from (f"it holds other {table}" for table in differing_tables(database, key, _tables(release)))


def _tables(release: StopsRelease) -> dict[str, pa.Table]:
    boxes = release.measured
    lists = {"lower": list(boxes.lower), "upper": list(boxes.upper)}
    columns = {name: pa.array(values, pa.list_(pa.int32())) for name, values in lists.items()}
    return {"stops_boxes": pa.table({**columns, "count": release.counts, "noisy": boxes.noisy})}


def _row(release: StopsRelease, key: ReleaseKey, certificate: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a release in the table of releases."""
    return {
        **release_facts(release, key, certificate),
        "trips": int(release.counts.sum()),
        "grid": list(release.plan.grid.sizes),
    }


# The kind of release.


def _made_anew(public: StopsRelease, _stated: dict[str, Any]) -> tuple[StopsRelease, Mapping[str, Look]]:
    """Return the release unchanged: reading a bundle computes its counts again, and refuses one that differs."""
    return public, {"invariants": lambda: _invariants(public)}


def _invariants(public: StopsRelease) -> Iterator[str]:
    """Check that the boxes fill the grid, and that the counts are at least 0 and keep the noisy total.

    If the noisy total is negative, the counts sum to 0.
    """
    boxes, counts = public.measured, public.counts
    if not fill_the_grid(boxes.lower, boxes.upper, public.plan.grid):
        yield "the boxes leave a gap or overlap"
    if (counts < 0).any():
        yield "a count is below 0"
    if int(counts.sum()) != max(0, int(boxes.noisy.sum())):
        yield "the counts do not sum to the noisy total"


def _summary(release: StopsRelease) -> pd.DataFrame:
    """Return the boxes, the trips, and the noise of each kind of measurement."""
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


STOPS: Kind[StopsRelease] = Kind(
    contents="boxes",
    format="od-release stops certificate 1",
    guarantee=stops_sentences,
    summary=_summary,
    facts=stops_facts,
    files=stops_files,
    notes=stops_notes,
    report=stops_report,
    pictures=stops_pictures,
    store=store_stops,
    open=open_stops,
    measured=lambda release: [(release.plan.step, flat_boxes(release.measured))],
    made_anew=_made_anew,
    stored=differing_stops,
)
