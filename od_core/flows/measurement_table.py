"""Write the noisy measurements of the totals of a release as tables with area codes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from od_core.flows.estimation.top_down import Measurement
from od_core.flows.plan import ReleasePlan
from od_core.privacy.accounting import float_above

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


def measured_cells(plan: ReleasePlan, measurement: Measurement) -> Iterator[pa.RecordBatch]:
    """Yield the cells of a measurement in tree order, as record batches with ``MEASUREMENT_SCHEMA``."""
    step, tree = measurement.step, plan.tree
    o_level, d_level = tree.level_pair(step.level)
    origins, destinations = tree.origin.code_arrays[o_level], tree.destination.code_arrays[d_level]
    for cells, noisy in measurement.pieces(plan):
        columns = [
            pa.array(np.full(len(cells), step.level, dtype=np.int64)),
            origins.take(pa.array(cells.origin)),
            destinations.take(pa.array(cells.destination)),
            pa.array(noisy),
            pa.array(np.full(len(cells), float_above(step.variance))),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=MEASUREMENT_SCHEMA)
