"""Write the public tables of a release, which are the same in the bundle and the database."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from od_core.geography.codes import COORDINATES
from od_core.geography.geography import BOUNDARY, Boundaries, Geography, as_wkb, dissolve_boundaries
from od_core.languages import translate
from od_core.publication.columns import Table, make_public_table


@dataclass(frozen=True)
class BundleFile:
    """A file of a bundle, with a description in one line.

    Attributes:
        write: function that writes the whole content to an open file; every call writes the same bytes.
        format: name of the format of bundles that has the file, and of its folder; None if every bundle has the file.
        table: definition of the table in the file; None if the file contains no table.
        rows: rows that the file must have: an SQL query of the bundle's Parquet tables, which are named after their
            files; or a function that returns such a query, or the number of the rows. By default, a CSV file has the
            rows of the Parquet file of the same name. See :func:`od_core.publication.file_formats.check_file_rows`.
    """

    name: str
    description: str
    write: Callable[[BinaryIO], object]
    format: str | None = None
    table: Table | None = None
    rows: str | Callable[[], str | int] | None = None


def make_table_files(table: Table, rows: pd.DataFrame | Callable[[], pa.Table]) -> list[BundleFile]:
    """Return the CSV file and the Parquet file of a table.

    ``rows`` are its rows, or a function that returns them each time that a file is written.
    """

    def make_arrow_table() -> pa.Table:
        """Return the rows as an Arrow table without metadata."""
        arrow_table = pa.Table.from_pandas(rows, preserve_index=False) if isinstance(rows, pd.DataFrame) else rows()
        return arrow_table.replace_schema_metadata(None)

    as_parquet = translate("{table}, as Parquet.").format(table=table.file.removesuffix("."))
    return [
        BundleFile(
            f"{table.name}.csv",
            table.file,
            lambda file: write_csv(make_arrow_table().to_pandas(), file),
            format="csv",
            table=table,
        ),
        BundleFile(
            f"{table.name}.parquet", as_parquet, lambda file: write_parquet(make_arrow_table(), file), table=table
        ),
    ]


def write_parquet(table: pa.Table, file: BinaryIO) -> None:
    """Write a public table as Parquet. The same table gives the same bytes."""
    pq.write_table(table, file, compression="zstd")


def write_csv(table: pd.DataFrame, file: BinaryIO) -> None:
    """Write a public table as RFC 4180 describes, in UTF-8."""
    table.to_csv(file, mode="wb", index=False, lineterminator="\r\n", encoding="utf-8")


def make_table_schema(table: Table) -> pa.Schema:
    """Return the Arrow schema of a public table."""
    types = {"string": pa.large_string(), "integer": pa.int64(), "number": pa.float64()}
    return pa.schema([(column.name, types[column.type]) for column in table.columns])


def make_areas_files(areas: pa.Table) -> list[BundleFile]:
    """Return the CSV file and the Parquet file of a table of :func:`make_areas_table`, or of two in one."""
    table = make_public_table("areas")
    table = replace(table, columns=tuple(column for column in table.columns if column.name in areas.column_names))
    return make_table_files(table, lambda: areas)


def make_areas_table(geography: Geography) -> pa.Table:
    """Return the table of all areas: columns geography (digest), level, level_name, area, parent, position.

    The areas are sorted by level and position. ``position`` is the area's number in its level, by which trees and
    tables are ordered. If areas have names, the table also has the column ``name``, null for areas without one, and if
    areas have aliases, ``aliases``. If zones have coordinates, it also has the columns ``latitude`` and ``longitude``,
    null for all other areas.
    """
    rows: list[dict[str, object]] = []
    for level, (name, areas) in enumerate(zip(geography.level_names, geography.codes, strict=True)):
        above = [None] if level == 0 else [geography.codes[level - 1][number] for number in geography.parents[level]]
        common = {"geography": geography.digest, "level": level, "level_name": name}
        for position, (area, parent) in enumerate(zip(areas, above, strict=True)):
            rows.append(common | {"area": area, "parent": parent, "position": position})
    fields = {name: pa.int64() if name in ("level", "position") else pa.string() for name in rows[0]}
    table = pa.Table.from_pylist(rows, schema=pa.schema(fields))
    for column, texts in (("name", geography.names), ("aliases", geography.aliases)):
        if texts is not None:
            texts_or_none = [text or None for level in texts for text in level]
            table = table.append_column(column, pa.array(texts_or_none, pa.string()))
    if geography.coordinates is not None:
        coordinates = np.full((len(rows), 2), np.nan)
        coordinates[-len(geography.zones) :] = geography.coordinates  # the zones are the last rows
        for axis, name in enumerate(COORDINATES):
            table = table.append_column(name, pa.array(coordinates[:, axis], from_pandas=True))
    return table


def make_boundaries_table(geography: Geography, *, names: bool) -> pa.Table:
    """Return the table of all areas with a boundary, as GeoParquet 1.1.

    The columns are geography (digest), level_name, area and geometry (WKB). Given boundaries are unchanged. An area
    above the zones without a given boundary has the union of the boundaries below it. If boundaries of levels above the
    zones were given, the column ``given`` tells which boundaries are given. With ``names``, if areas have names, the
    column ``name`` has them, null for areas without one.
    """
    rows: list[dict[str, object]] = []
    area_names = geography.names or geography.codes
    has_names = names and geography.names is not None
    shapes_from_level_1 = dissolve_boundaries(geography)
    for level in range(geography.depth, 0, -1):
        level_name, shapes = geography.level_names[level], shapes_from_level_1[level - 1]
        given_shapes = geography.given_boundaries.get(level_name, (None,) * len(shapes))
        unions = (None,) * len(shapes) if level == geography.depth else as_wkb(shapes)  # zones have no areas below
        for area, name, given, union in zip(
            geography.codes[level], area_names[level], given_shapes, unions, strict=True
        ):
            if given is not None or union is not None:
                row = {"geography": geography.digest, "level_name": level_name, "area": area, "name": name or None}
                rows.append(row | {"given": given is not None, "geometry": given or union})
    fields = [(name, pa.string()) for name in ("geography", "level_name", "area")]
    if has_names:
        fields.append(("name", pa.string()))
    if geography.level_boundaries:
        fields.append(("given", pa.bool_()))
    fields.append(("geometry", pa.binary()))
    column = {"encoding": "WKB", "geometry_types": ["Polygon", "MultiPolygon"]}  # in WGS 84, by default
    geo = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": column}}
    schema = pa.schema(fields, {"geo": json.dumps(geo)})
    return pa.Table.from_pylist(rows, schema)  # without the keys of rows that the schema lacks


def count_bounded_areas(geography: Geography) -> int:
    """Return the number of rows of :func:`make_boundaries_table`, without dissolving boundaries.

    An area below the whole space has a boundary if one is given, or if an area below it has one.
    """
    parents = np.empty(0, dtype=np.int64)  # areas of the level that contain areas with a boundary
    total = 0
    for level in range(geography.depth, 0, -1):
        shapes = geography.given_boundaries.get(geography.level_names[level], ())
        given = np.array([area for area, shape in enumerate(shapes) if shape is not None], dtype=np.int64)
        bounded = np.union1d(parents, given)
        total += len(bounded)
        parents = np.unique(geography.parents[level][bounded])
    return total


def join_boundaries(areas: pd.DataFrame, boundaries: pa.Table) -> pd.DataFrame:
    """Return a published table of areas with the column ``BOUNDARY``, empty for areas without a boundary.

    ``areas`` is a table of :func:`make_areas_table`, and ``boundaries`` one of :func:`make_boundaries_table`. Its
    column ``given``, if there is one, is added, too.
    """
    shapes = boundaries.to_pandas().rename(columns={"geometry": BOUNDARY}).drop(columns="name", errors="ignore")
    return areas.merge(shapes, how="left", on=["geography", "level_name", "area"], validate="one_to_one")


def build_published_geography(
    areas: pd.DataFrame, digest: str, unknown: str | None, version: str | None = None
) -> Geography:
    """Return the geography with a digest from a published table of areas.

    Args:
        areas: table of :func:`make_areas_table` or :func:`join_boundaries`; it may have several geographies.
        digest: digest of the geography.
        unknown, version: attributes of the geography that the table does not state.
    """
    of_geography = areas[areas["geography"] == digest].sort_values(["level", "position"])
    levels = [level for _, level in of_geography.groupby("level")]  # rows of each level
    level_names = [level["level_name"].iloc[0] for level in levels]
    codes = tuple(tuple(level["area"]) for level in levels)
    parents = [np.empty(0, dtype=np.int32)]
    for number, level in enumerate(levels[1:], start=1):
        parents.append(pd.Index(codes[number - 1]).get_indexer(pd.Index(level["parent"])).astype(np.int32))
    coordinates = boundaries = None
    level_boundaries: dict[str, Boundaries] = {}
    if {*COORDINATES} <= {*of_geography.columns}:
        coordinates = levels[-1][list(COORDINATES)].to_numpy(dtype=np.float64)
    if BOUNDARY in of_geography.columns:
        # The boundaries of zones are given; those of other areas only if the table says so. The rest are unions.
        is_given = of_geography.get("given", pd.Series(False, of_geography.index)).eq(True)
        is_given |= of_geography["level"] == len(levels) - 1
        given = of_geography[BOUNDARY].where(is_given & of_geography[BOUNDARY].notna(), None)
        for name, level in zip(level_names[1:], levels[1:], strict=True):
            level_boundaries[name] = tuple(given[level.index])
        boundaries = level_boundaries.pop(level_names[-1], None)
    names, aliases = (
        tuple(tuple(level[column].fillna("")) for level in levels) if column in of_geography.columns else None
        for column in ("name", "aliases")
    )
    return Geography(
        levels=tuple(level_names[1:]),
        codes=codes,
        parents=tuple(parents),
        unknown=unknown,
        coordinates=coordinates,
        version=version,
        boundaries=boundaries,
        level_boundaries=level_boundaries,
        names=names,
        aliases=aliases,
    )
