"""Columns of a public table as Dagster shows them; what they mean stands in od_core.publication.columns."""

import dagster as dg

from od_core.publication.columns import Column

_TYPES = {"string": "string", "integer": "int64", "number": "double"}


def column_schema(*columns: Column) -> dg.TableSchema:
    """The schema of an asset whose table has these columns."""
    return dg.TableSchema(
        [dg.TableColumn(column.name, _TYPES[column.type], description=column.description) for column in columns]
    )
