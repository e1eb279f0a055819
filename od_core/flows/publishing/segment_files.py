"""List the files of a bundle with the flows by the categories of each breakdown, and write them."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from od_core.files.table_writers import write_batches
from od_core.flows.derived_flows import DerivedFlows
from od_core.flows.measurement_table import SEGMENT_MEASUREMENT_SCHEMA
from od_core.flows.publishing.flow_rows import measured_rows, pair_rows
from od_core.flows.publishing.flow_tables import (
    FlowTables,
    LevelPair,
    pair_names,
    repeated,
    segment_measurement_batches,
    segment_name,
)
from od_core.flows.publishing.omx import MOST_CELLS, matrix_name
from od_core.flows.publishing.sdmx import ALL, dimension_identifiers
from od_core.flows.release import Release
from od_core.publication.bundle import SEGMENT_MEASUREMENTS_FILE, SEGMENTS_FILE
from od_core.publication.columns import (
    SEGMENT_MEASUREMENTS,
    listed_categories,
    pair_segments_table,
    segments_table,
    unlisted,
)
from od_core.publication.markup import in_markdown
from od_core.publication.tables import BundleFile

SEGMENTS_SCHEMA = pa.schema(
    [
        *((name, pa.large_string()) for name in ("breakdown", "origin_level", "destination_level")),
        *((name, pa.large_string()) for name in ("origin", "destination", "category")),
        *((name, pa.int64()) for name in ("trips", "lower", "upper")),
    ]
)
"""Columns of the flows by category; without intervals, the last two are left out."""


def segment_files(tables: FlowTables) -> list[BundleFile]:
    """Return the files with flows by category; an empty list if there are no breakdowns."""
    if not tables.breakdowns:
        return []

    def write(breakdown: str, place: int, file: BinaryIO) -> None:
        tables.segments[breakdown][place].write_csv(file)

    tree, files = tables.tree, []
    for breakdown in tables.breakdowns:
        table = pair_segments_table(breakdown, interval=tables.interval)
        for place, ((origin, destination), name) in enumerate(pair_names(tree, tables.breakdowns).items()):
            levels = f"{tree.origin.level_names[origin]} to {tree.destination.level_names[destination]}"
            description = f"Flows from {levels} by {breakdown.name}."
            writer = partial(write, breakdown.name, place)
            rows = pair_rows(tables, place, breakdown)
            files.append(BundleFile(f"{segment_name(name, breakdown)}.csv", description, writer, table, rows))
    return [
        *files,
        BundleFile(
            SEGMENTS_FILE,
            "Flows by the categories of every breakdown at every pair of levels, as Parquet.",
            partial(_write_segments, tables),
            segments_table(interval=tables.interval),
            lambda: sum(len(pair.flows) for pairs in tables.segments.values() for pair in pairs),
        ),
    ]


def segment_measurement_files(release: Release) -> list[BundleFile]:
    """Return the file with the measurements by category; an empty list if the release has no breakdowns."""
    if not release.breakdowns:
        return []
    return [
        BundleFile(
            SEGMENT_MEASUREMENTS_FILE,
            "Measurements by category with their noise, for users who make their own estimates.",
            partial(_write_measurements, release),
            SEGMENT_MEASUREMENTS,
            lambda: measured_rows(release, by_segment=True),
        )
    ]


def segment_notes(tables: FlowTables) -> list[str]:
    """Return paragraphs, in Markdown, on the breakdowns of a release; an empty list if there are none."""
    if not tables.breakdowns:
        return []
    most = _largest_move(tables)
    lists = [
        f"**{in_markdown(one.name)}.** {in_markdown(listed_categories(one))} {in_markdown(unlisted(one))}"
        for one in tables.breakdowns
    ]
    return [
        "Every counted trip has exactly one category of each breakdown. The lists of categories were fixed before any"
        " record was read.",
        *lists,
        *(
            [
                "The trips of a pair of areas by category were moved towards the division of trips in the areas above"
                f" them, by at most {most} standard deviations of their noise. So areas that differ from those above"
                " them seem to differ less than they do. The intervals are not affected."
            ]
            if most is not None
            else []
        ),
        "At every pair of levels, the released trips of a pair of areas in all categories of a breakdown sum to its"
        " released trips in the files of the totals. Different breakdowns are counted side by side: no file states how"
        " many trips have a category of one and a category of another.",
        f"OpenMatrix files have a matrix of the trips in each category: {', '.join(_matrices(tables))}. Each matrix has"
        " the attributes `breakdown` and `category`. If the matrices of a breakdown have more than"
        f" {MOST_CELLS:,} cells together, the file of that pair of levels does not have them.",
        f"`flows.sdmx.csv` has a dimension for each breakdown: {', '.join(_dimensions(tables))}. `{ALL}` stands for all"
        " categories, and at most one dimension of a row has another value. The other identifiers begin with `C_`, as"
        " those of areas begin with their level; the code lists of `flows.sdmx.json` have the texts.",
        *(
            [
                "The intervals by category come from unbiased estimates of each category. They are not the intervals of"
                " the totals divided among the categories, and the ends of the intervals of all categories do not sum"
                " to those of the totals."
            ]
            if tables.interval
            else []
        ),
    ]


def _largest_move(tables: FlowTables) -> Fraction | None:
    """Return the largest ``segment_profile`` of the releases whose trips are in the tables; None if none has one."""
    flows = tables.release
    releases = flows.releases if isinstance(flows, DerivedFlows) else [flows]
    plans = [release.plan for release in releases if isinstance(release, Release)]
    return max((plan.mechanism.segment_profile for plan in plans if plan.mechanism.segment_profile), default=None)


def _matrices(tables: FlowTables) -> list[str]:
    """Return the name of each matrix of a category in Markdown, with the category."""
    return [
        f"`{matrix_name(breakdown, place)}` ({in_markdown(category)})"
        for breakdown in tables.breakdowns
        for place, category in enumerate(breakdown.categories)
    ]


def _dimensions(tables: FlowTables) -> list[str]:
    """Return the name of the SDMX dimension of each breakdown in Markdown."""
    return [f"`{name}`" for name in dimension_identifiers(tables.breakdowns).values()]


def segment_table(tables: FlowTables, breakdown: str, pair: LevelPair) -> pa.Table:
    """Return the flows of a pair of levels by a breakdown as a table with ``SEGMENTS_SCHEMA``."""
    columns = {"category" if name == breakdown else name: column for name, column in pair.columns.items()}
    named = {"breakdown": repeated(breakdown, len(pair.flows)), **tables.level_columns(pair), **columns}
    schema = pa.schema([field for field in SEGMENTS_SCHEMA if field.name in named])
    return pa.table(named).select(schema.names).cast(schema)


def _segment_tables(tables: FlowTables) -> Iterator[pa.Table]:
    for breakdown, pairs in tables.segments.items():
        for pair in pairs:
            yield segment_table(tables, breakdown, pair)


def _write_segments(tables: FlowTables, file: BinaryIO) -> None:
    """Write the flows by category as one Parquet table. Each pair of levels has row groups of its own."""
    schema = pa.schema([field for field in SEGMENTS_SCHEMA if tables.interval or field.name not in ("lower", "upper")])
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for table in _segment_tables(tables):
            writer.write_table(table)


def _write_measurements(release: Release, file: BinaryIO) -> None:
    batches = segment_measurement_batches(release)
    write_batches(file, SEGMENT_MEASUREMENT_SCHEMA, batches, compression="zstd")
