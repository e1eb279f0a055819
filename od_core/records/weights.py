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

from od_core.errors import OdError, nearest_only
from od_core.privacy.unit import PrivacyUnit

WEIGHT = "weight"
"""Name of the column of weights, in data frames and in loaded records."""

IS_WEIGHT = f"coalesce({WEIGHT} >= 0 AND {WEIGHT} < CAST('Infinity' AS DOUBLE), false)"
"""SQL condition, for DuckDB and Spark, that a weight is valid. NaN is not, because it is greater than infinity."""


def counted_trips(max_weight: int) -> str:
    """Return SQL for the number of trips that a record counts: its weight, rounded and limited to ``max_weight``.

    The SQL reads the column ``weight``, which must have the type DOUBLE. The result is NULL if the weight is not valid.
    """
    return f"CASE WHEN {IS_WEIGHT} THEN CAST(least(round({WEIGHT}), {max_weight:d}) AS BIGINT) END"


def check_unit_columns(
    unit: PrivacyUnit, names: Sequence[str], *, user: str, weight: str = WEIGHT, trips: str = "trips"
) -> None:
    """Raise OdError if records with columns ``names`` lack one that the unit needs, or have one that it forbids."""
    if unit.max_weight is None and weight in names:
        raise OdError(
            "OD-TRIPS-WEIGHTS",
            f"column {weight!r} gives records a weight, but no max_weight is declared, so each record counts 1",
            next_step="declare the unit's max_weight, or leave the column out",
        )
    if unit.max_weight is not None and weight not in names:
        raise OdError(
            "OD-TRIPS-COLUMN",
            f"max_weight is declared, but the records have no column {weight!r}{nearest_only(weight, tuple(names))}",
            next_step="name the column of the weights, or leave out max_weight",
        )
    if unit.max_weight is not None and trips in names:
        raise trips_and_weights(trips, weight)
    if unit.kind == "trip":
        return
    if user not in names:
        raise OdError(
            "OD-TRIPS-COLUMN",
            f"the records have no column {user!r} of user ids{nearest_only(user, tuple(names))}",
            next_step="name the column of the user id, or use unit 'trip'",
        )
    if trips in names:
        raise OdError(
            "OD-TRIPS-WEIGHTS",
            f"column {trips!r} gives records a weight, but under unit {unit.kind!r} one record counts 1",
            next_step=f"give one row per trip, without the column {trips!r}",
        )


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
