"""Write the largest flows between zones with coordinates for maps: GeoJSON, GeoPackage, and tables for flowmap.gl."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from od_core.files.table_writers import write_rows
from od_core.flows.publishing.flow_tables import FlowTables, labels_at, largest, with_names
from od_core.geography.geography import Geography
from od_core.publication.certificate import Certificate
from od_core.publication.tables import write_csv
from od_core.publication.templates import filled

MOST_LINES = 10_000
"""Largest number of flows in a file for maps."""

_LAYER = "desire_lines"

_INDEX = f"rtree_{_LAYER}_geom"

_LINE = np.dtype(
    [
        *(("magic", "S2"), ("version", "u1"), ("flags", "u1"), ("srs_id", "<i4")),
        *(("order", "u1"), ("type", "<u4"), ("points", "<u4"), ("degrees", "<f8", (2, 2))),
    ]
)
"""Geometry of a line between two points in a GeoPackage: its header without an envelope, then well-known binary."""


def located(geography: Geography) -> pd.DataFrame:
    """Return the zones with coordinates, indexed by their codes: longitude and latitude in degrees."""
    if geography.coordinates is None:
        return pd.DataFrame({"longitude": [], "latitude": []}, dtype=np.float64)
    degrees = pd.DataFrame(geography.coordinates[:, ::-1], list(geography.zones), ["longitude", "latitude"])
    return degrees.dropna()


_SQLITE_TYPES = {pa.int64(): "INTEGER", pa.float64(): "REAL"}
"""Types of columns in SQLite; all others are text."""


@dataclass(frozen=True)
class DesireLines:
    """The largest flows between zones with coordinates, in the formats of maps."""

    tables: FlowTables
    certificate: Certificate

    @cached_property
    def flows(self) -> pa.Table:
        """The largest flows of at least one trip between zones with coordinates, largest first, at most ``MOST_LINES``.

        The columns are those of :attr:`LevelPair.flows`.
        """
        columns = self.tables.pairs[-1].columns
        trips = columns["trips"].to_numpy()
        known = trips > 0
        for side, geography in self.tables.sides.items():
            if len(places := located(geography)) < len(geography.zones):
                known &= pc.is_in(columns[side], pa.array(places.index, columns[side].type)).to_numpy()
        positions = np.flatnonzero(known)
        return pa.table(columns).take(pa.array(positions[largest(trips[positions], MOST_LINES)]))

    @cached_property
    def lines(self) -> tuple[pa.Table, NDArray[np.float64]]:
        """Those flows that lead to another place, with names if areas have some, and their lines.

        The lines have the longitude and latitude of both ends; shape (flows, 2, 2).
        """
        tree = self.tables.tree
        flows = with_names(tree, self.flows, (tree.origin.depth, tree.destination.depth), "_")
        sides = self.tables.sides.items()
        ends = [located(geography).loc[self.flows[side].to_pylist()].to_numpy() for side, geography in sides]
        lines = np.stack(ends, axis=1)
        apart = (lines[:, 0] != lines[:, 1]).any(axis=1)
        return flows.filter(pa.array(apart)), lines[apart]

    @property
    def description(self) -> str:
        """Sentences that the files of lines have about themselves."""
        return (
            f"{self.certificate['release']}: flows between zones at different places, of at least one released trip."
            f" They are among the {MOST_LINES:,} largest flows between zones with coordinates; smaller ones are left"
            " out. All numbers contain noise."
        )

    def write_geojson(self, file: BinaryIO) -> None:
        """Write the flows as GeoJSON (RFC 7946): a line for each, from the origin to the destination."""
        flows, lines = self.lines
        head = json.dumps({"type": "FeatureCollection", "name": _LAYER, "description": self.description})
        encode = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps would make an encoder for each line
        features = [
            encode(
                {"type": "Feature", "geometry": {"type": "LineString", "coordinates": line}, "properties": properties}
            )
            for line, properties in zip(lines.tolist(), flows.to_pylist(), strict=True)
        ]
        file.write(f'{head[:-1]}, "features": [\n'.encode() + ",\n".join(features).encode() + b"\n]}\n")

    def write_geopackage(self, file: BinaryIO) -> None:
        """Write the flows as a GeoPackage (OGC 12-128r17) with one indexed layer of lines, which is made in memory.

        The same release gives the same bytes with the same version of SQLite: the file states when the release was
        measured, not when it was written.
        """
        flows, lines = self.lines
        geometry = np.zeros(len(lines), _LINE)
        geometry["magic"], geometry["flags"], geometry["srs_id"] = b"GP", 1, 4326
        geometry["order"], geometry["type"], geometry["points"], geometry["degrees"] = 1, 2, 2, lines
        measured = datetime.fromisoformat(self.certificate["measured_at"]).astimezone(UTC)
        bounds = [*lines.min(axis=(0, 1)).tolist(), *lines.max(axis=(0, 1)).tolist()] if len(lines) else [None] * 4
        types = {one.name: _SQLITE_TYPES.get(one.type, "TEXT") for one in flows.schema}
        with closing(sqlite3.connect(":memory:")) as connection:
            last_change = measured.strftime("%Y-%m-%dT%H:%M:%S.000Z")
            given = {"description": self.description, "measured": last_change, "columns": types}
            connection.executescript(filled("geopackage.sql", **given))
            connection.execute("UPDATE gpkg_contents SET (min_x, min_y, max_x, max_y) = (?, ?, ?, ?)", bounds)
            blobs = [line.tobytes() for line in geometry]
            connection.executemany(
                f"INSERT INTO {_LAYER} VALUES (NULL, {', '.join('?' * (1 + len(types)))})",  # noqa: S608  # constants
                zip(blobs, *(column.to_pylist() for column in flows.columns), strict=True),
            )
            if self.tables.for_tools:
                connection.executescript(filled("geopackage_index.sql", index=_INDEX))
                (least_x, least_y), (most_x, most_y) = lines.min(axis=1).T, lines.max(axis=1).T
                extents = np.stack([least_x, most_x, least_y, most_y], axis=1).tolist()
                connection.executemany(
                    f"INSERT INTO {_INDEX} VALUES (?, ?, ?, ?, ?)",  # noqa: S608  # a constant
                    ((number, *extent) for number, extent in enumerate(extents, start=1)),
                )
            connection.commit()
            file.write(connection.serialize())

    def write_flowmap_locations(self, file: BinaryIO) -> None:
        """Write the zones with coordinates as flowmap.gl reads them: id, name, lat, lon."""
        origin = self.tables.tree.origin
        places = located(origin)
        codes, latitude, longitude = places.index, places["latitude"].array, places["longitude"].array
        names = codes.map(labels_at(origin, origin.depth))
        write_csv(pd.DataFrame({"id": codes, "name": names, "lat": latitude, "lon": longitude}), file)

    def write_flowmap_flows(self, file: BinaryIO) -> None:
        """Write the flows as flowmap.gl reads them: origin, dest, count. Flows within a zone are included."""
        flows = self.flows.select(["origin", "destination", "trips"]).rename_columns(["origin", "dest", "count"])
        write_rows(file, flows, header=True)
