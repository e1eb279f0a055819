"""Write the noisy measurements of a release as tables with area codes: those of the totals, and those by category."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from od_core.flows.estimation.top_down import Measurement
from od_core.flows.plan import ReleasePlan
from od_core.privacy.accounting import float_above
from od_core.records.segments import find

MEASUREMENT_SCHEMA = pa.schema(
    [
        ("level", pa.int64()),
        ("origin", pa.large_string()),
        ("destination", pa.large_string()),
        ("noisy", pa.int64()),
        ("variance", pa.float64()),
    ]
)
"""Columns of published measurements, one row per cell: level of the flow tree, codes of the two areas, noisy count,
variance of the noise."""

SEGMENT_MEASUREMENT_SCHEMA = pa.schema(
    [
        MEASUREMENT_SCHEMA.field("level"),
        ("breakdown", pa.large_string()),
        ("category", pa.large_string()),
        *(field for field in MEASUREMENT_SCHEMA if field.name != "level"),
    ]
)
"""The same columns for measurements by category, with the name of the breakdown and the category."""


def measured_cells(plan: ReleasePlan, measurement: Measurement) -> Iterator[pa.RecordBatch]:
    """Yield the cells of a measurement of totals in tree order, as record batches with ``MEASUREMENT_SCHEMA``."""
    return _cells(plan, measurement)


def measured_segments(plan: ReleasePlan, measurement: Measurement, breakdown: str) -> Iterator[pa.RecordBatch]:
    """Yield the cells of a measurement by category, as record batches with ``SEGMENT_MEASUREMENT_SCHEMA``.

    The first cell comes first, in all categories, then the second cell, in tree order.

    Args:
        plan: The plan of the release.
        measurement: A measurement by the breakdown.
        breakdown: Name of the breakdown.
    """
    categories = pa.array(find(plan.breakdowns, breakdown).categories, pa.large_string())
    for batch in _cells(plan, measurement, len(categories)):
        level, *others = batch.columns
        place = np.arange(len(batch)) % len(categories)
        named = pa.repeat(pa.scalar(breakdown, pa.large_string()), len(batch)), categories.take(pa.array(place))
        yield pa.RecordBatch.from_arrays([level, *named, *others], schema=SEGMENT_MEASUREMENT_SCHEMA)


def _cells(plan: ReleasePlan, measurement: Measurement, categories: int = 1) -> Iterator[pa.RecordBatch]:
    tree, level = plan.tree, measurement.step.level
    o_level, d_level = tree.level_pair(level)
    origins, destinations = tree.origin.code_arrays[o_level], tree.destination.code_arrays[d_level]
    for cells, noisy in measurement.pieces(plan, categories):
        columns = [
            pa.array(np.full(len(noisy), level, dtype=np.int64)),
            origins.take(pa.array(np.repeat(cells.origin, categories))),
            destinations.take(pa.array(np.repeat(cells.destination, categories))),
            pa.array(noisy),
            pa.array(np.full(len(noisy), float_above(measurement.step.variance))),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=MEASUREMENT_SCHEMA)
