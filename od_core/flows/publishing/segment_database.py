"""Store the flows by the categories of each breakdown in the public release database."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pyarrow as pa

from od_core.flows.measurement_table import SEGMENT_MEASUREMENT_SCHEMA
from od_core.flows.publishing.flow_database import MOST_STORED
from od_core.flows.publishing.flow_tables import FlowTables, LevelPair, segment_measurement_batches
from od_core.flows.publishing.omx import cells
from od_core.flows.publishing.segment_files import SEGMENTS_SCHEMA, segment_table
from od_core.flows.release import Release

SEGMENT_SCHEMA = """
CREATE TABLE IF NOT EXISTS segment_flows (
    release VARCHAR, breakdown VARCHAR, origin VARCHAR, destination VARCHAR, category VARCHAR, trips BIGINT);
CREATE TABLE IF NOT EXISTS segment_measurements (
    release VARCHAR, level BIGINT, breakdown VARCHAR, category VARCHAR, origin VARCHAR, destination VARCHAR,
    noisy BIGINT, variance DOUBLE);
CREATE TABLE IF NOT EXISTS segment_expected_error (
    release VARCHAR, breakdown VARCHAR, level BIGINT, origin_level VARCHAR, destination_level VARCHAR,
    root_mean_square_error DOUBLE);
CREATE TABLE IF NOT EXISTS segment_intervals (
    release VARCHAR, breakdown VARCHAR, origin_level VARCHAR, destination_level VARCHAR, origin VARCHAR,
    destination VARCHAR, category VARCHAR, trips BIGINT, lower BIGINT, upper BIGINT);
"""
"""Tables of releases with breakdowns. A database has them once it has such a release."""

_LEAF_COLUMNS = ("breakdown", "origin", "destination", "category", "trips")


def stored_segments(release: Release, certificate: dict[str, Any]) -> dict[str, pa.Table | pa.RecordBatchReader]:
    """Return the tables of segments to store, by name; an empty dictionary if the release has no breakdowns.

    ``segment_intervals`` has only those pairs of an origin level and a destination level that have at most
    ``MOST_STORED`` public pairs of areas, times the categories of the breakdown.
    """
    if release.plan.segments is None:
        return {}
    stored: dict[str, pa.Table | pa.RecordBatchReader] = {
        "segment_flows": _leaf_segments(release),
        "segment_measurements": pa.RecordBatchReader.from_batches(
            SEGMENT_MEASUREMENT_SCHEMA, segment_measurement_batches(release)
        ),
    }
    if certificate.get("interval") is not None:
        batches = _interval_batches(FlowTables.of(release, certificate))
        stored["segment_intervals"] = pa.RecordBatchReader.from_batches(SEGMENTS_SCHEMA, batches)
    return stored


def _leaf_segments(release: Release) -> pa.Table:
    """Return the flows between zones by category, without those of 0 trips."""
    columns = pa.schema([SEGMENTS_SCHEMA.field(name) for name in _LEAF_COLUMNS])
    pair = release.levels[-1]
    tables = []
    for breakdown in release.plan.breakdowns:
        flows = release.flows_at(*pair, segment=breakdown.name).rename(columns={breakdown.name: "category"})
        tables.append(pa.Table.from_pandas(flows.assign(breakdown=breakdown.name), columns, preserve_index=False))
    return pa.concat_tables(tables).replace_schema_metadata(None)


def _interval_batches(tables: FlowTables) -> Iterator[pa.RecordBatch]:
    """Yield the flows by category of all pairs of levels that the database has intervals for."""
    tree, release = tables.tree, tables.release
    sides = product(enumerate(tree.origin.level_names), enumerate(tree.destination.level_names))
    for breakdown, ((o_level, origin), (d_level, destination)) in product(tables.breakdowns, list(sides)):
        if cells(tree, o_level, d_level) * len(breakdown.categories) <= MOST_STORED:
            flows = release.flows_at(origin, destination, segment=breakdown.name, interval=True)
            pair = LevelPair(o_level, d_level, flows)
            yield from segment_table(tables, breakdown.name, pair).to_batches()


def segment_error_table(release: Release) -> pa.Table:
    """Return a table with the expected error of one category at each level, computed from the plan alone.

    Returns:
        Columns: breakdown, level, origin_level, destination_level (names), root_mean_square_error (in trips).
    """
    rows = [
        (breakdown.name, level, *release.levels[level], error)
        for breakdown in release.plan.breakdowns
        for level, error in enumerate(release.plan.expected_segment_errors(breakdown.name))
    ]
    names = ("breakdown", "level", "origin_level", "destination_level", "root_mean_square_error")
    return pa.table(dict(zip(names, zip(*rows, strict=True), strict=True)))
