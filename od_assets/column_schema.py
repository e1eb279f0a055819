"""Describe table columns for Dagster, and where they come from; od_core.publication.columns has the public ones."""

from collections.abc import Iterable, Mapping
from typing import Any

import dagster as dg

from od_core.publication.columns import Column
from od_core.records.format import RecordColumns

_TYPES = {"string": "string", "integer": "int64", "number": "double"}

TRIP_COUNTS = (
    Column("rank", "integer", "Rank", "Rank of the pair of zones in the flow tree."),
    Column("trips", "integer", "True trips", "Confidential: the true number of trips of the pair."),
)

GROUP_SIZES = (
    Column("area", "integer", "Area", "Number of the zone that the group is in."),
    Column("size", "integer", "True size", "Confidential: the true number of members of the group."),
)


def column_schema(*columns: Column) -> dg.TableSchema:
    """Return the schema of an asset whose table has these columns."""
    return dg.TableSchema(
        [dg.TableColumn(column.name, _TYPES[column.type], description=column.description) for column in columns]
    )


Sources = Mapping[str, list[dg.TableColumnDep]]
"""Columns of upstream assets that the columns of a table are computed from, by name of the column."""


def columns_of(asset: dg.AssetKey | list[str], names: Iterable[str]) -> list[dg.TableColumnDep]:
    """Return columns of an upstream asset, as sources of a column."""
    return [dg.TableColumnDep(asset, name) for name in names]


def same_columns(asset: dg.AssetKey | list[str], columns: Iterable[Column]) -> Sources:
    """Return the sources of columns that are those of an upstream asset."""
    return {column.name: columns_of(asset, [column.name]) for column in columns}


def with_columns(*columns: Column, sources: Sources | None = None) -> dict[str, Any]:
    """Return asset metadata with the schema and the lineage of a table that has these columns.

    Args:
        columns: columns of the table.
        sources: upstream columns of each column; a column that is left out has none. None for a table without lineage.
    """
    return with_schema(column_schema(*columns), sources)


def with_schema(schema: dg.TableSchema, sources: Sources | None) -> dict[str, Any]:
    """Return asset metadata with a schema and, unless ``sources`` is None, the lineage of its columns."""
    if sources is None:
        return {"dagster/column_schema": schema}
    lineage = {column.name: sources.get(column.name, []) for column in schema.columns}
    return {"dagster/column_schema": schema, "dagster/column_lineage": dg.TableColumnLineage(lineage)}


def records_schema(columns: RecordColumns) -> dg.TableSchema:
    """Return the schema of the copied records, which are in the confidential folder."""
    fields = [("date", "timestamp", "Local time of the trip; empty if missing or not a valid date.")]
    fields += [(code, "string", f"Code of the zone, from column {name}.") for code, name in columns.codes.items()]
    fields += [("in_period", "boolean", "Whether the trip belongs to the period.")]
    fields += [] if columns.trips is None else [("trips", "number", "Number of trips of the row.")]
    fields += [] if columns.weight is None else [("weight", "double", "Weight of the record, unchanged.")]
    fields += [] if columns.user is None else [("user", "string", "User id.")]
    fields += [(one.loaded, "string", f"Category of the trip, from column {one.column}.") for one in columns.segments]
    return dg.TableSchema([dg.TableColumn(name, kind, description=says) for name, kind, says in fields])


def record_columns(columns: RecordColumns) -> list[str]:
    """Return the names of all columns of the copied records."""
    return [column.name for column in records_schema(columns).columns]


def cell_columns(dimensions: int) -> list[Column]:
    """Return the columns that contain the grid cells of each trip with stops, one per dimension of the grid."""
    return [
        Column(f"cell_{number}", "integer", "Cell", f"Confidential: the trip's cell along dimension {number}.")
        for number in range(1, dimensions + 1)
    ]
