"""Convert the weights of records to numbers of trips, limited by the declared bound.

A weight is rounded to the nearest whole number (halves are rounded up) and limited to the bound. A weight that is
missing, negative, infinite or not a number is a fault, and its record is not counted. Such a record cannot be assigned
to an ``unknown`` zone either, because it states no number of trips. Dropping it changes the total n, but n is not
published exactly if there are weights. The share of faults is a share of records, because a faulty record has no valid
weight.

See ``docs/explanation/privacy.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from od_core.errors import OdError, base_name, nearest_only, raise_alone
from od_core.files.duckdb_session import memory_database
from od_core.privacy.unit import PrivacyUnit
from od_core.records.contribution_bound import texts
from od_core.records.faults import not_counted, reading_errors

WEIGHT = "weight"
"""Name of the column of weights, in data frames and in loaded records."""

IS_WEIGHT = f"coalesce({WEIGHT} >= 0 AND {WEIGHT} < CAST('Infinity' AS DOUBLE), false)"
"""SQL condition, for DuckDB and Spark, that a weight is valid. NaN is not, because it is greater than infinity."""


def counted_trips(max_weight: int) -> str:
    """Return SQL for the number of trips that a record counts: its weight, rounded and limited to ``max_weight``.

    The SQL reads the column ``weight``, which must have the type DOUBLE. The result is NULL if the weight is not valid.
    """
    return f"CASE WHEN {IS_WEIGHT} THEN CAST(least(round({WEIGHT}), {max_weight:d}) AS BIGINT) END"


def weighed(column: pd.Series, max_weight: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Confidential: return the trips that each record counts, and whether its weight is valid; shape (records,) each.

    The weights are numbers, or text as in a file of records. Raises OdError if the column contains neither.
    """
    kind = pd.api.types
    if kind.is_numeric_dtype(column.dtype) and not (
        kind.is_bool_dtype(column.dtype) or kind.is_complex_dtype(column.dtype)
    ):
        weights = pa.array(column.to_numpy(dtype=np.float64, na_value=np.nan))
    elif kind.is_object_dtype(column.dtype) or kind.is_string_dtype(column.dtype):
        weights = texts(column.astype(object).map(lambda value: str(value) if _is_number(value) else value))
    else:
        raise no_weights(f"column {column.name!r} holds {base_name(column.dtype)}")
    numbers = f"SELECT TRY_CAST(value AS DOUBLE) AS {WEIGHT} FROM weights"  # noqa: S608  # names of our own
    query = f"""
        SELECT coalesce(trips, 0) AS trips, trips IS NOT NULL AS has_weight
        FROM (SELECT {counted_trips(max_weight)} AS trips FROM ({numbers}))
    """  # noqa: S608  # a number, and names of our own
    try:
        with memory_database() as connection:
            connection.register("weights", pa.table({"value": weights}))
            result = connection.sql(query).to_arrow_table()
    except reading_errors() as error:
        raise_alone(not_counted(error))
    return result["trips"].to_numpy(), result["has_weight"].to_numpy()


def check_weight_column(unit: PrivacyUnit, names: Sequence[str], *, weight: str = WEIGHT, trips: str = "trips") -> None:
    """Raise OdError if records with columns ``names`` have weights without a declared bound, or the reverse."""
    if unit.max_weight is None:
        if weight in names:
            raise OdError(
                "OD-TRIPS-WEIGHTS",
                f"column {weight!r} gives records a weight, but no max_weight is declared, so each record counts 1",
                next_step="declare the unit's max_weight, or leave the column out",
            )
        return
    if weight not in names:
        raise OdError(
            "OD-TRIPS-COLUMN",
            f"max_weight is declared, but the records have no column {weight!r}{nearest_only(weight, tuple(names))}",
            next_step="name the column of the weights, or leave out max_weight",
        )
    if trips in names:
        raise trips_and_weights(trips, weight)


def trips_and_weights(trips: str = "trips", weight: str = WEIGHT) -> OdError:
    """Return the OdError for rows with both a number of trips and a weight. Only a single record can have a weight."""
    return OdError(
        "OD-TRIPS-WEIGHTS",
        f"the records have columns {trips!r} and {weight!r}, but only a row that is a single record can have a weight",
        next_step="give one row per record with its weight, or only the number of trips",
    )


def no_weights(what: str) -> OdError:
    """Return the OdError for a column whose type cannot be that of weights; ``what`` begins its message."""
    return OdError("OD-TRIPS-WEIGHTS", f"{what}, not weights", next_step="give the weights as numbers")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.number, Decimal)) and not isinstance(value, bool)
