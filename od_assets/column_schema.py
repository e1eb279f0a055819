"""Describe table columns for Dagster; public columns are defined in od_core.publication.columns."""

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


def with_columns(*columns: Column) -> dict[str, Any]:
    """Return the definition metadata of an asset whose table has these columns."""
    return {"dagster/column_schema": column_schema(*columns)}


def records_schema(columns: RecordColumns) -> dg.TableSchema:
    """Return the schema of the records in the confidential folder."""
    fields = [("date", "timestamp", "Local time of the trip; empty if missing or not a valid date.")]
    fields += [(code, "string", f"Code of the zone, from column {name}.") for code, name in columns.codes.items()]
    fields += [("in_period", "boolean", "Whether the trip belongs to the period.")]
    fields += [] if columns.trips is None else [("trips", "number", "Number of trips of the row.")]
    fields += [] if columns.weight is None else [("weight", "double", "Weight of the record, unchanged.")]
    fields += [] if columns.user is None else [("user", "string", "User id.")]
    return dg.TableSchema([dg.TableColumn(name, kind, description=says) for name, kind, says in fields])


def cell_columns(dimensions: int) -> list[Column]:
    """Return the columns of the cells of trips with stops in the confidential folder."""
    return [
        Column(f"cell_{number}", "integer", "Cell", f"Confidential: the trip's cell along dimension {number}.")
        for number in range(1, dimensions + 1)
    ]
