"""Make the rows of a release of flows for the database, also those by category."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pyarrow as pa

from od_core.flows.indicators import has_indicators
from od_core.flows.publishing.flow_files import SEGMENTS_SCHEMA, segment_table
from od_core.flows.publishing.flow_tables import (
    FIRST_WITH_INDICATORS,
    FlowTables,
    LevelPair,
    flows_table,
    measurement_batches,
    segment_measurement_batches,
)
from od_core.flows.publishing.omx import cells
from od_core.flows.release import MEASUREMENT_SCHEMA, SEGMENT_MEASUREMENT_SCHEMA, Release
from od_core.publication.certificate import Certificate

SCHEMA = """
CREATE TABLE IF NOT EXISTS releases (
    release VARCHAR PRIMARY KEY, series VARCHAR, period VARCHAR, revision BIGINT, mechanism VARCHAR, unit VARCHAR,
    neighbours VARCHAR, rho DOUBLE, epsilon DOUBLE, delta DOUBLE, trips BIGINT, origin_geography VARCHAR,
    destination_geography VARCHAR, measured_at VARCHAR, certificate VARCHAR);
CREATE TABLE IF NOT EXISTS flows (release VARCHAR, origin VARCHAR, destination VARCHAR, trips BIGINT);
CREATE TABLE IF NOT EXISTS measurements (
    release VARCHAR, level BIGINT, origin VARCHAR, destination VARCHAR, noisy BIGINT, variance DOUBLE);
CREATE TABLE IF NOT EXISTS expected_error (
    release VARCHAR, level BIGINT, origin_level VARCHAR, destination_level VARCHAR, root_mean_square_error DOUBLE);
CREATE TABLE IF NOT EXISTS flow_intervals (
    release VARCHAR, origin_level VARCHAR, destination_level VARCHAR, origin VARCHAR, destination VARCHAR,
    trips BIGINT, lower BIGINT, upper BIGINT);
CREATE TABLE IF NOT EXISTS indicators (
    release VARCHAR, level VARCHAR, area VARCHAR, outflow BIGINT, outflow_lower BIGINT, outflow_upper BIGINT,
    inflow BIGINT, inflow_lower BIGINT, inflow_upper BIGINT, within BIGINT, within_lower BIGINT, within_upper BIGINT,
    balance BIGINT, balance_lower BIGINT, balance_upper BIGINT, self_containment DOUBLE, self_containment_lower DOUBLE,
    self_containment_upper DOUBLE, mean_distance DOUBLE, mean_distance_lower DOUBLE, mean_distance_upper DOUBLE);
CREATE OR REPLACE VIEW zone_areas AS
WITH RECURSIVE climb AS (
    SELECT geography, area AS zone, level, level_name, area, parent FROM areas
    WHERE (geography, level) IN (SELECT (geography, max(level)) FROM areas GROUP BY geography)
    UNION ALL
    SELECT climb.geography, zone, areas.level, areas.level_name, areas.area, areas.parent
    FROM climb JOIN areas
    ON areas.geography = climb.geography AND areas.level = climb.level - 1 AND areas.area = climb.parent)
SELECT geography, zone, level, level_name, area FROM climb;
CREATE OR REPLACE VIEW flows_by_level AS
SELECT flows.release, o.level_name AS origin_level, d.level_name AS destination_level,
    o.area AS origin, d.area AS destination, CAST(sum(flows.trips) AS BIGINT) AS trips
FROM flows
JOIN releases ON releases.release = flows.release
JOIN zone_areas o ON o.geography = releases.origin_geography AND o.zone = flows.origin
JOIN zone_areas d ON d.geography = releases.destination_geography AND d.zone = flows.destination
GROUP BY ALL;
"""


MOST_STORED = 200_000
"""Largest number of public pairs of areas at a pair of levels for which the database contains intervals. For pairs of
levels with more pairs of areas, only the bundle contains intervals. A month of flows between 229 airports has 88
thousand rows of intervals in total. A month between 8,092 towns in 110 provinces has 366 thousand."""

_ARROW = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64()}
"""Types of Arrow for the columns of public tables."""

_INTERVALS = pa.schema(
    [
        *((name, pa.string()) for name in ("origin_level", "destination_level", "origin", "destination")),
        *((name, pa.int64()) for name in ("trips", "lower", "upper")),
    ]
)


def stored_tables(release: Release, certificate: Certificate) -> dict[str, pa.Table | pa.RecordBatchReader]:
    """Return the tables to store, by name: ``flows``, ``measurements`` and, with intervals, ``flow_intervals``.

    ``flow_intervals`` has only those pairs of an origin level and a destination level that have at most ``MOST_STORED``
    public pairs of areas.
    """
    return {
        "flows": flows_table(release),
        "measurements": pa.RecordBatchReader.from_batches(MEASUREMENT_SCHEMA, measurement_batches(release)),
        **_intervals(release, certificate),
    }


def _intervals(release: Release, certificate: Certificate) -> dict[str, pa.RecordBatchReader]:
    """Return the table ``flow_intervals`` by name; an empty dictionary if the release has no intervals.

    The table has every public pair of areas, for the pairs of levels with at most ``MOST_STORED`` such pairs.
    """
    if certificate.get("interval") is None:
        return {}
    tables, sides = FlowTables.of(release, certificate), (release.plan.tree.origin, release.plan.tree.destination)
    small = (
        tables.pair(o, d)
        for o, d in product(*(range(len(side.level_names)) for side in sides))
        if sides[0].size(o) * sides[1].size(d) <= MOST_STORED
    )
    wanted = (pa.table(tables.level_columns(pair) | pair.columns).select(_INTERVALS.names) for pair in small)
    batches = (batch for table in wanted for batch in table.cast(_INTERVALS).to_batches())
    return {"flow_intervals": pa.RecordBatchReader.from_batches(_INTERVALS, batches)}


def stored_indicators(release: Release, certificate: Certificate) -> dict[str, pa.RecordBatchReader]:
    """Return the table ``indicators`` by name; an empty dictionary if the bundle of the release has no indicators.

    The rows are those of the bundle, and are computed when they are read. Columns that the bundle lacks are left out.
    """
    tables = FlowTables.of(release, certificate)
    if tables.format < FIRST_WITH_INDICATORS or not has_indicators(release):
        return {}
    schema = pa.schema([(column.name, _ARROW[column.type]) for column in tables.indicator_table.columns])
    batches = (batch for each in (tables,) for batch in each.indicators.cast(schema).to_batches())
    return {"indicators": pa.RecordBatchReader.from_batches(schema, batches)}


def expected_error_table(release: Release) -> pa.Table:
    """Return a table with the expected error of each level of the flow tree, computed from the plan alone.

    Returns:
        Columns: level, origin_level, destination_level (names), root_mean_square_error (in trips).
    """
    names, errors = release.levels, release.plan.expected_errors
    return pa.table(
        {
            "level": range(len(errors)),
            "origin_level": [origin for origin, _ in names],
            "destination_level": [destination for _, destination in names],
            "root_mean_square_error": errors,
        }
    )


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


def stored_segments(release: Release, certificate: Certificate) -> dict[str, pa.Table | pa.RecordBatchReader]:
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
