"""Make the rows of a release of flows for the database, also those by category."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from od_core.flows.publishing.flow_tables import (
    FLOWS_SCHEMA,
    SEGMENTS_SCHEMA,
    FlowTables,
    LevelPair,
    flows_table,
    measurement_batches,
)
from od_core.flows.release import MEASUREMENT_SCHEMA, SEGMENT_MEASUREMENT_SCHEMA, Release
from od_core.publication.certificate import Certificate
from od_core.publication.columns import DISTANCE
from od_core.publication.database import Rows
from od_core.publication.tables import schema_of

MOST_STORED = 200_000
"""Largest number of public pairs of areas at a pair of levels for which the database contains intervals. By category,
it is that of the pairs times the categories. For pairs of levels with more pairs of areas, only the bundle contains
intervals. A month of flows between 229 airports has 88 thousand rows of intervals in total. A month between 8,092 towns
in 110 provinces has 366 thousand."""


def stored_tables(release: Release, certificate: Certificate) -> dict[str, Rows]:
    """Return the tables to store, by name; those of intervals only if the release has some, and of segments, too.

    The intervals are those of the pairs of levels with at most ``MOST_STORED`` public pairs of areas.
    """
    tables, intervals = FlowTables.of(release, certificate), certificate.get("interval") is not None
    measurements, by_category = (measurement_batches(release, by_segment=each) for each in (False, True))
    stored: dict[str, Rows] = {
        "flows": flows_table(release),
        "measurements": pa.RecordBatchReader.from_batches(MEASUREMENT_SCHEMA, measurements),
    }
    if intervals:
        schema = FLOWS_SCHEMA.remove(FLOWS_SCHEMA.get_field_index(DISTANCE.name))
        stored["flow_intervals"] = _small_pairs(tables.pairs, schema)
    if tables.breakdowns:
        schema = pa.schema(map(SEGMENTS_SCHEMA.field, ("breakdown", "origin", "destination", "category", "trips")))
        leaves = [pairs[-1].table(schema) for pairs in tables.segments.values()]
        stored["segment_flows"] = pa.concat_tables(leaves).filter(pc.field("trips") != 0)
        stored["segment_measurements"] = pa.RecordBatchReader.from_batches(SEGMENT_MEASUREMENT_SCHEMA, by_category)
        if intervals:
            stored["segment_intervals"] = _small_pairs(chain(*tables.segments.values()), SEGMENTS_SCHEMA)
    return stored


def _small_pairs(pairs: Iterable[LevelPair], schema: pa.Schema) -> pa.RecordBatchReader:
    """Return the flows of those pairs of levels that the database has intervals for. They are computed when read."""
    small = (pair.table(schema) for pair in pairs if pair.cells <= MOST_STORED)
    return pa.RecordBatchReader.from_batches(schema, (batch for table in small for batch in table.to_batches()))


def derived_tables(release: Release, certificate: Certificate) -> dict[str, Rows]:
    """Return the tables that follow from others or from the plan alone, by name.

    They are the expected errors and, if the bundle has them, the indicators. The rows of these are those of the bundle,
    and are computed when they are read. Columns that the bundle lacks are left out.
    """
    tables, plan = FlowTables.of(release, certificate), release.plan
    stored: dict[str, Rows] = {"expected_error": _errors(release, {"": plan.expected_errors}).drop_columns("breakdown")}
    if tables.has_indicators:
        schema = schema_of(tables.defined("indicators"))
        batches = (batch for each in (tables,) for batch in each.indicators.cast(schema).to_batches())
        stored["indicators"] = pa.RecordBatchReader.from_batches(schema, batches)
    if tables.breakdowns:
        errors = {one.name: plan.expected_segment_errors(one.name) for one in tables.breakdowns}
        stored["segment_expected_error"] = _errors(release, errors)
    return stored


def _errors(release: Release, errors: Mapping[str, Iterable[float]]) -> pa.Table:
    """Return a table with the expected error of each level of the flow tree, in trips, by breakdown."""
    rows = [
        {
            "breakdown": breakdown,
            "level": level,
            "origin_level": origin_level,
            "destination_level": destination_level,
            "root_mean_square_error": error,
        }
        for breakdown, of_levels in errors.items()
        for level, ((origin_level, destination_level), error) in enumerate(zip(release.levels, of_levels, strict=True))
    ]
    return pa.Table.from_pylist(rows)
