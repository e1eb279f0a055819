"""List the files of a bundle of flows, and write those that have no module of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from od_core.files.table_writers import write_batches
from od_core.flows.publishing.atlas import has_atlas, make_atlas_sql, write_atlas
from od_core.flows.publishing.flow_tables import (
    FLOWS_SCHEMA,
    SEGMENTS_SCHEMA,
    FlowTables,
    LevelPair,
    adapt_count_columns,
    add_area_names,
    find_largest_positions,
    make_known_totals_table,
    make_measurement_reader,
    write_parquet_pairs,
)
from od_core.flows.publishing.maps import MOST_LINES, DesireLines, locate_zones
from od_core.flows.publishing.omx import MAX_MATRIX_CELLS, list_category_pairs, name_matrix, write_matrices
from od_core.flows.publishing.sdmx import ALL, index_dimension_identifiers, list_sdmx_files
from od_core.flows.release import Release
from od_core.flows.released_flows import ReleasedFlows
from od_core.geography.places import has_distances
from od_core.languages import ENGLISH, translate, use_language
from od_core.meaning.subject import Nouns
from od_core.publication.bundle_files import ATLAS, BOUNDARIES
from od_core.publication.certificate import FIRST_WITH_SUBJECT, Certificate, read_subject
from od_core.publication.columns import (
    CONFIDENCE,
    MOST_LISTED,
    Table,
    describe_categories,
    describe_unlisted_records,
    make_pair_segments_table,
    make_public_table,
)
from od_core.publication.number_formats import format_number
from od_core.publication.tables import (
    BundleFile,
    count_bounded_areas,
    make_areas_files,
    make_areas_table,
    make_boundaries_table,
    make_table_files,
    write_parquet,
)
from od_core.publication.templates import render_data, render_template
from od_core.publication.workbook import Sheet, write_workbook


def list_flow_files(release: ReleasedFlows, certificate: Certificate) -> list[BundleFile]:
    """Return the files of the bundle, in the order in which they are listed: flows, measurements and areas.

    Derived flows have no measurements of their own. A file's content is computed when it is written.
    """
    tables = FlowTables.from_release(release, certificate)
    files = _list_format_files(tables, certificate)
    if isinstance(release, Release):
        files.append(_make_measurements_file(release, tables.nouns, by_segment=False))
        if release.plan.known:
            definition = make_public_table("known_totals", tables.nouns)
            files += make_table_files(definition, partial(make_known_totals_table, release))
    files += _list_segment_files(tables)
    if isinstance(release, Release) and release.breakdowns:
        files.append(_make_measurements_file(release, tables.nouns, by_segment=True))
    return [*files, *_list_area_files(tables)]


def _list_format_files(tables: FlowTables, certificate: Certificate) -> list[BundleFile]:
    """Return the files with the flows of all trips, in each format of the bundle.

    The flows at the finest pair of levels are first, because ``README.txt`` names the first file.
    """
    files = _list_pair_files(tables.pairs[::-1], tables.make_table_definition("pair_flows"))
    table = tables.make_table_definition("flows")
    if tables.format == 1:
        files = [BundleFile("flows.csv", "Flows at every pair of levels.", tables.write_csv, "csv", table)]
    files.append(_make_parquet_file(tables.pairs, FLOWS_SCHEMA, table))
    has_pairs = tables.nouns.has_pairs  # counts by one hierarchy have no pairs, and therefore no matrix
    files += [
        _make_matrix_file(pair) for pair in reversed(tables.pairs) if pair.cells <= MAX_MATRIX_CELLS and has_pairs
    ]
    if tables.format > 1:
        workbook = BundleFile(
            _name_workbook(tables, certificate),
            translate("Excel workbook with a sheet for each {level_pair}: its {number} largest {cells}.").format(
                level_pair=tables.nouns.level_pair, number=format_number(MAX_SHEET_ROWS), cells=tables.nouns.cells
            ),
            partial(write_flow_workbook, tables, certificate),
            "spreadsheet",
            rows=render_template("rows/sheets.sql", tables=tables, sheets=_name_sheets(tables), most=MAX_SHEET_ROWS),
        )
        files += [workbook, *_list_map_files(tables, certificate)]
    if tables.has_indicators:
        files += make_table_files(tables.make_table_definition("indicators"), lambda: tables.indicators)
    if tables.distance:
        files += make_table_files(tables.make_table_definition("distance_bands"), lambda: tables.distance_bands)
    if has_atlas(tables.tree, certificate):
        described = translate("A page on which you choose areas, and see their {counted}, offline.")
        if tables.interval:
            described = translate("A page on which you choose areas, and see their {counted} with intervals, offline.")
        described = described.format(counted=tables.nouns.counted)
        write, rows = partial(write_atlas, tables, certificate), partial(make_atlas_sql, tables)
        files.append(BundleFile(ATLAS, described, write, rows=rows))
    return [*files, *list_sdmx_files(tables, certificate)]


def _list_pair_files(pairs: Iterable[LevelPair], table: Table) -> list[BundleFile]:
    """Return the CSV file of each pair of levels, whose columns are those of ``table``."""
    return [
        BundleFile(
            f"{pair.name}.csv",
            f"{pair.title}.",
            pair.write_csv,
            "csv",
            table,
            render_template("rows/pair.sql", pair=pair),
        )
        for pair in pairs
    ]


def _make_parquet_file(pairs: Sequence[LevelPair], schema: pa.Schema, table: Table) -> BundleFile:
    """Return the Parquet file with the flows of all pairs of levels; ``table`` defines the columns of ``schema``."""
    write = partial(write_parquet_pairs, pairs, schema)

    def count_rows() -> int:
        """Return the number of rows of the table."""
        return sum(len(pair.flows) for pair in pairs)

    return BundleFile(f"{table.name}.parquet", table.file, write, table=table, rows=count_rows)


def _make_matrix_file(pair: LevelPair) -> BundleFile:
    """Return the OpenMatrix file of a pair of levels, with the matrices of its categories."""
    categories = [
        (name_matrix(breakdown, position), breakdown.name, category)
        for breakdown, _ in list_category_pairs(pair)
        for position, category in enumerate(breakdown.categories)
    ]
    rows = render_template("rows/matrices.sql", pair=pair, categories=categories)
    return BundleFile(
        f"{pair.name}.omx",
        translate("{table}, as OpenMatrix.").format(table=pair.title),
        partial(write_matrices, pair),
        "omx",
        rows=rows,
    )


def _list_map_files(tables: FlowTables, certificate: Certificate) -> list[BundleFile]:
    """Return the files for maps; an empty list if zones have no coordinates.

    There are files for flowmap.gl only if both sides have the same geography, because it has one list of places.
    """
    if not has_distances(tables.tree):
        return []
    lines = DesireLines(tables, certificate)
    rows = render_template("rows/lines.sql", tables=tables, most=MOST_LINES)
    nouns = tables.nouns
    which = translate("the {number} largest {cells} between zones with coordinates").format(
        number=format_number(MOST_LINES), cells=nouns.cells
    )
    again = translate("The same lines as a GeoPackage, for QGIS and others.")
    as_geojson = translate("Lines on a map, as GeoJSON: {which}.").format(which=which)
    files = [
        BundleFile("desire_lines.geojson", as_geojson, lines.write_geojson, "gis", rows=rows),
        BundleFile("desire_lines.gpkg", again, lines.write_geopackage, "gis", rows=rows),
    ]
    if len(tables.geographies) == 1:
        files += [
            BundleFile(
                "flowmap_flows.csv",
                translate("For flowmap.gl: {which}.").format(which=which),
                lines.write_flowmap_flows,
                "gis",
                make_public_table("flowmap_flows", nouns),
                render_template("rows/flowmap.sql", tables=tables, most=MOST_LINES),
            ),
            BundleFile(
                "flowmap_locations.csv",
                translate("For flowmap.gl: the zones with coordinates."),
                lines.write_flowmap_locations,
                "gis",
                make_public_table("flowmap_locations"),
                lambda: len(locate_zones(tables.tree.origin)),
            ),
        ]
    return files


def _list_segment_files(tables: FlowTables) -> list[BundleFile]:
    """Return the files with flows by category; an empty list if there are no breakdowns."""
    if not tables.breakdowns:
        return []
    files: list[BundleFile] = []
    for breakdown in tables.breakdowns:
        table = make_pair_segments_table(breakdown, tables.nouns, interval=tables.interval)
        files += _list_pair_files(tables.segments[breakdown.name], table)
    table = make_public_table("segments", tables.nouns, interval=tables.interval)
    pairs = [*chain(*tables.segments.values())]
    return [*files, _make_parquet_file(pairs, SEGMENTS_SCHEMA, table)]


def _make_measurements_file(release: Release, nouns: Nouns, *, by_segment: bool) -> BundleFile:
    """Return the Parquet file of the noisy counts by category (``by_segment``) or of all others."""
    key = "segment_measurements" if by_segment else "noisy_measurements"
    if not by_segment and release.plan.area_totals is not None:
        key = "measurements_with_area_totals"
    table = make_public_table(key, nouns)

    def write(file: BinaryIO) -> None:
        """Write the noisy counts as a Parquet table."""
        measured = make_measurement_reader(release, by_segment=by_segment)
        write_batches(file, measured.schema, measured, compression="zstd")

    def count_rows() -> int:
        """Return the number of rows of the table."""
        return sum(len(measured.noisy) for measured in release.measured if measured.step.by_segment == by_segment)

    return BundleFile(f"{table.name}.parquet", table.file, write, table=table, rows=count_rows)


def _name_workbook(tables: FlowTables, certificate: Certificate) -> str:
    """Return the name of the Excel workbook, which is in English, as all names of files."""
    if tables.format < FIRST_WITH_SUBJECT:
        return "flows.xlsx"
    with use_language(ENGLISH):
        return f"{read_subject(certificate).nouns.cells}.xlsx"


def _list_area_files(tables: FlowTables) -> list[BundleFile]:
    """Return the files of the areas of both sides and, if some areas have boundaries, the file of these."""
    areas = pa.concat_tables(map(make_areas_table, tables.geographies), promote_options="default")
    bounded = [side for side in tables.geographies if side.given_boundaries]
    if not bounded:
        return make_areas_files(areas)

    def write_boundaries(file: BinaryIO) -> None:
        """Write the boundaries of the areas of the sides that have some, as one GeoParquet table."""
        boundaries_of_sides = [make_boundaries_table(side, names=tables.for_tools) for side in bounded]
        write_parquet(pa.concat_tables(boundaries_of_sides, promote_options="default"), file)

    description = translate("The boundaries of the areas of every level below the whole space, as GeoParquet.")
    boundaries = BundleFile(
        BOUNDARIES, description, write_boundaries, rows=lambda: sum(map(count_bounded_areas, bounded))
    )
    return [*make_areas_files(areas), boundaries]


MAX_SHEET_ROWS = 10_000
"""Largest number of flows in a sheet. A sheet of Excel has at most 1,048,576 rows, and takes long to open with them."""

_MAX_SHEET_NAME_LENGTH = 31
"""Largest number of characters of a sheet's name in Excel."""


def write_flow_workbook(tables: FlowTables, certificate: Certificate, file: BinaryIO) -> None:
    """Write the workbook: the largest flows of each pair of levels, at most ``MAX_SHEET_ROWS``, largest first.

    Its first sheet explains it, and lists the others.
    """
    sheets = []
    for pair, name in zip(tables.pairs, _name_sheets(tables), strict=True):
        trips = pair.flows["trips"].to_numpy(np.int64)
        rows_shown = find_largest_positions(trips, MAX_SHEET_ROWS)
        left_out = "" if len(rows_shown) == len(trips) else f", the {len(rows_shown):,} largest"
        line = f"{pair.title}: {len(trips):,} row{'' if len(trips) == 1 else 's'} in all{left_out}, largest first"
        rows = pa.table(pair.columns).take(pa.array(rows_shown))
        rows = adapt_count_columns(pair.tables.tree, add_area_names(pair.tables.tree, rows, pair.levels, " "))
        sheets.append(Sheet(name, [line], rows))
    confidence = f"{100 * CONFIDENCE}"
    values = {"certificate": certificate, "interval": tables.interval, "confidence": confidence, "most": MAX_SHEET_ROWS}
    contents = pa.table(
        {
            "sheet": [sheet.name for sheet in sheets],
            "rows": [len(sheet.table) for sheet in sheets],
            "rows left out": [
                len(pair.flows) - len(sheet.table) for pair, sheet in zip(tables.pairs, sheets, strict=True)
            ],
            f"{tables.nouns.counted} in all": [int(pair.flows["trips"].sum()) for pair in tables.pairs],
        }
    )
    lines = render_data("flows_workbook.yaml", **values)["lines"]
    write_workbook(file, [Sheet("Read me", lines, contents, width=100), *sheets])


def _name_sheets(tables: FlowTables) -> list[str]:
    """Return the name of the sheet of each pair of levels; numbers of levels if a name would be too long for Excel."""
    names = [pair.name.removeprefix("flows_").removeprefix("counts_") for pair in tables.pairs]
    if max(map(len, names)) <= _MAX_SHEET_NAME_LENGTH:
        return names
    return ["_".join(map(str, pair.levels)) for pair in tables.pairs]


def list_flow_notes(release: ReleasedFlows, certificate: Certificate) -> list[str]:
    """Return paragraphs, in Markdown, that a user of the files must know in addition to the meaning of the columns."""
    tables = FlowTables.from_release(release, certificate)
    unlisted_pairs = [pair.level_names for pair in tables.pairs if pair.cells > MOST_LISTED and tables.interval]
    segment_profiles = [part.plan.mechanism.segment_profile for part in release.parts]
    notes = render_data(
        "flow_notes.yaml",
        subject=tables.subject,
        tables=tables,
        has=lambda form: form in certificate.get("formats", (form,)),  # early bundles have files of all formats
        bounds=[(*names, release.zero_bound(*names)) for names in unlisted_pairs],
        too_large=[pair.level_names for pair in tables.pairs if pair.cells > MAX_MATRIX_CELLS],
        confidence=f"{100 * CONFIDENCE}",
        most_cells=MAX_MATRIX_CELLS,
        most=max(filter(None, segment_profiles), default=None),
        lists=[
            (breakdown.name, describe_categories(breakdown), describe_unlisted_records(breakdown))
            for breakdown in tables.breakdowns
        ],
        matrices=[
            (name_matrix(breakdown, position), category)
            for breakdown in tables.breakdowns
            for position, category in enumerate(breakdown.categories)
        ],
        dimensions=index_dimension_identifiers(tables.breakdowns).values(),
        all=ALL,
    )
    return [note for notes_on in notes.values() for note in notes_on.splitlines()]
