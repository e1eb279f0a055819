"""List the files of a bundle of flows, and write those that have no module of their own."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from itertools import product
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from od_core.files.table_writers import Sheet, write_batches, write_workbook
from od_core.flows.derived_flows import DerivedFlows
from od_core.flows.indicators import has_indicators
from od_core.flows.publishing.atlas import FIRST_WITH_ATLAS, atlas_rows, write_atlas
from od_core.flows.publishing.desire_lines import MOST_LINES, DesireLines, located
from od_core.flows.publishing.flow_rows import (
    flowmap_rows,
    line_rows,
    matrix_rows,
    measured_rows,
    pair_rows,
    sheet_rows,
)
from od_core.flows.publishing.flow_tables import (
    FIRST_WITH_INDICATORS,
    FlowTables,
    LevelPair,
    largest,
    measurement_batches,
    pair_names,
    repeated,
    segment_measurement_batches,
    segment_name,
    with_names,
)
from od_core.flows.publishing.omx import MOST_CELLS, cells, has_matrices, matrix_name, write_matrices
from od_core.flows.publishing.sdmx import (
    ALL,
    dimension_identifiers,
    sdmx_csv_rows,
    structure_rows,
    write_sdmx_csv,
    write_structure,
    write_structure_in_xml,
)
from od_core.flows.release import MEASUREMENT_SCHEMA, SEGMENT_MEASUREMENT_SCHEMA, Release
from od_core.flows.released_flows import ReleasedFlows
from od_core.ledger.release_key import ReleaseKey
from od_core.publication import columns
from od_core.publication.bundle import ATLAS, BOUNDARIES_FILE, SEGMENT_MEASUREMENTS_FILE, SEGMENTS_FILE
from od_core.publication.certificate import Certificate
from od_core.publication.columns import (
    CONFIDENCE,
    MOST_LISTED,
    SEGMENT_MEASUREMENTS,
    listed_categories,
    pair_segments_table,
    segments_table,
    unlisted,
)
from od_core.publication.markup import in_markdown
from od_core.publication.tables import (
    BundleFile,
    areas_files,
    areas_table,
    boundaries_table,
    bounded_areas,
    write_csv,
    write_parquet,
)
from od_core.records.segments import Breakdown

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
            partial(_write_segment_measurements, release),
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
        f"OpenMatrix files have a matrix of the trips in each category: {', '.join(_segment_matrices(tables))}. Each"
        " matrix has the attributes `breakdown` and `category`. If the matrices of a breakdown have more than"
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


def _segment_matrices(tables: FlowTables) -> list[str]:
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


def _write_segment_measurements(release: Release, file: BinaryIO) -> None:
    batches = segment_measurement_batches(release)
    write_batches(file, SEGMENT_MEASUREMENT_SCHEMA, batches, compression="zstd")


MOST_ROWS = 10_000
"""Largest number of flows in a sheet. A sheet of Excel has at most 1,048,576 rows, and takes long to open with them."""

_LONGEST_NAME = 31
"""Largest number of characters of a sheet's name in Excel."""


def write_flow_workbook(tables: FlowTables, certificate: Certificate, file: BinaryIO) -> None:
    """Write the workbook: the largest flows of each pair of levels, at most ``MOST_ROWS``, largest first."""
    sheets = [_flows(tables, pair, name) for pair, name in zip(tables.pairs, sheet_names(tables), strict=True)]
    write_workbook(file, [_explanation(tables, certificate, sheets), *sheets])


def sheet_names(tables: FlowTables) -> list[str]:
    """Return the name of the sheet of each pair of levels."""
    pairs = pair_names(tables.tree, tables.breakdowns)
    names = [name.removeprefix("flows_") for name in pairs.values()]
    return (
        names if max(map(len, names)) <= _LONGEST_NAME else [f"{origin}_{destination}" for origin, destination in pairs]
    )


def _flows(tables: FlowTables, pair: LevelPair, name: str) -> Sheet:
    trips = pair.flows["trips"].to_numpy(np.int64)
    shown = largest(trips, MOST_ROWS)
    listed = "all" if len(shown) == len(trips) else f"the {len(shown):,} largest of"
    origin = tables.tree.origin.level_names[pair.origin_level]
    destination = tables.tree.destination.level_names[pair.destination_level]
    line = f"Flows from {origin} to {destination}: {listed} {len(trips):,} rows, largest first"
    rows = pa.table(pair.columns).take(pa.array(shown))
    return Sheet(name, [line], with_names(tables.tree, rows, (pair.origin_level, pair.destination_level), " "))


def _explanation(tables: FlowTables, certificate: Certificate, sheets: list[Sheet]) -> Sheet:
    """Return the first sheet: what the workbook is, the guarantee, how to read a number, and a list of the sheets."""
    interval = (
        "Every number contains noise. lower and upper are the ends of a"
        f" {100 * CONFIDENCE} % interval: the true number of counted trips lies between them with a probability of"
        " about nine tenths. A 0 is an estimate, too: there may be up to upper trips."
        if tables.interval
        else "Every number contains noise. A pair of areas that is not listed was released as 0 trips."
    )
    lines = [
        f"{certificate['data_set']}: flows of {certificate['period']}, revision {certificate['revision']}"
        f" ({certificate['release']})",
        certificate["guarantee"]["protected"],
        interval,
        "Each sheet has one pair of levels, and each pair of levels contains all trips once: do not add rows of"
        " different sheets.",
        f"A sheet has at most {MOST_ROWS:,} rows, the largest flows. All flows are in the CSV files and in"
        " flows.parquet. codebook.md explains every column, and certificate.html what is protected.",
    ]
    all_trips = [int(pair.flows["trips"].sum()) for pair in tables.pairs]
    listed = pa.table(
        {
            "sheet": [sheet.name for sheet in sheets],
            "rows": [len(sheet.table) for sheet in sheets],
            "rows left out": [
                len(pair.flows) - len(sheet.table) for pair, sheet in zip(tables.pairs, sheets, strict=True)
            ],
            "trips in all": all_trips,
        }
    )
    return Sheet("Read me", lines, listed, width=100)


BUNDLE_FORMAT = 5
"""Format of the bundles of flows, which states what files they have. Certificates of format 1 do not state it.

A bundle of format 1 has the flows at all pairs of levels in one CSV file; one of format 2 has no indicators, one of
format 3 has no atlas, and one of format 4 lacks what other tools look for (``FIRST_FOR_TOOLS``). They are verified, and
written again if they are damaged, with the files of their own format.
"""


def flow_files(release: Release, certificate: Certificate) -> list[BundleFile]:
    """Return the files of the bundle: the flows in every format, the noisy measurements, and the areas.

    The content of a file is computed when the file is written.
    """
    tables = FlowTables.of(release, certificate)
    return [
        *_formats(tables, certificate),
        BundleFile(
            "noisy_measurements.parquet",
            "Measurements with their noise, for users who make their own estimates.",
            partial(_write_measurements, release),
            columns.NOISY_MEASUREMENTS,
            lambda: measured_rows(release, by_segment=False),
        ),
        *segment_files(tables),
        *segment_measurement_files(release),
        *_areas(tables),
    ]


def derived_files(flows: DerivedFlows, certificate: Certificate) -> list[BundleFile]:
    """Return the files of derived flows: as for a release, but without measurements, which the releases have."""
    tables = FlowTables.of(flows, certificate)
    return [*_formats(tables, certificate), *segment_files(tables), *_areas(tables)]


def _areas(tables: FlowTables) -> list[BundleFile]:
    """Return the files of the areas of both sides, and of their boundaries if they have some."""
    tree = tables.tree
    same = tree.origin.digest == tree.destination.digest
    sides = (tree.origin,) if same else (tree.origin, tree.destination)
    listed = areas_files(pa.concat_tables(map(areas_table, sides), promote_options="default"))
    bounded = [side for side in sides if side.boundaries]
    if not bounded:
        return listed

    def write(file: BinaryIO) -> None:
        listed = [boundaries_table(side, names=tables.for_tools) for side in bounded]
        write_parquet(pa.concat_tables(listed, promote_options="default"), file)

    description = "The boundaries of the areas of every level, as GeoParquet."
    return [*listed, BundleFile(BOUNDARIES_FILE, description, write, rows=lambda: sum(map(bounded_areas, bounded)))]


def _formats(tables: FlowTables, certificate: Certificate) -> list[BundleFile]:
    """Return the files with the flows of all trips in every format."""
    key, bundle_format = ReleaseKey.parse(certificate["release"]), certificate.get("bundle_format", 1)
    structure_in_sql = structure_rows(tables, key)
    in_xml, write_in_xml = "The same structure as SDMX-ML 2.1.", partial(write_structure_in_xml, tables, certificate)
    return [
        *_tables_in_csv(tables, bundle_format),
        BundleFile(
            "flows.parquet",
            "Flows at every pair of levels, as Parquet.",
            tables.write_parquet,
            tables.table,
            lambda: sum(len(pair.flows) for pair in tables.pairs),
        ),
        *_matrices(tables),
        *(_more_formats(tables, certificate) if bundle_format > 1 else []),
        *(_indicators(tables) if bundle_format >= FIRST_WITH_INDICATORS else []),
        *(_distance_bands(tables) if tables.distance else []),
        *(_atlas(tables, certificate) if bundle_format >= FIRST_WITH_ATLAS else []),
        BundleFile(
            "flows.sdmx.csv",
            "The same flows as SDMX-CSV 2.0, for statistical offices.",
            partial(write_sdmx_csv, tables, key),
            rows=sdmx_csv_rows(tables, key),
        ),
        BundleFile(
            "flows.sdmx.json",
            "Structure of that file as SDMX-JSON 2.0: code lists of the areas, concepts, data structure and dataflow.",
            partial(write_structure, tables, certificate),
            rows=structure_in_sql,
        ),
        *([BundleFile("flows.sdmx.xml", in_xml, write_in_xml, rows=structure_in_sql)] if tables.for_tools else []),
    ]


def flow_notes(release: ReleasedFlows, certificate: Certificate) -> list[str]:
    """Return paragraphs, in Markdown, that a user of the files must know in addition to the meaning of the columns."""
    interval = certificate["interval"] is not None
    sides = {"origin": release.tree.origin, "destination": release.tree.destination}
    named = [f"`{side}_name`" for side, geography in sides.items() if geography.names is not None]
    large = [in_markdown(f"{origin} by {destination}") for origin, destination in _larger(release, MOST_CELLS)]
    tables = FlowTables.of(release, certificate)
    bounds = " `lower` and `upper` are the ends of the intervals." if interval else ""
    return [
        *(_unlisted(release) if interval else []),
        *segment_notes(tables),
        "OpenMatrix files (`.omx`, HDF5) have a matrix `trips` for each pair of levels, with a row for each origin and"
        f" a column for each destination; the lookups `origin` and `destination` hold the codes in UTF-8"
        f"{', ' + ' and '.join(named) + ' the names' if named else ''}.{bounds}"
        " A pair that is not listed in `flows.parquet` is 0 in the matrix."
        + (_FOR_MODELS if tables.for_tools else "")
        + (f" Matrices of more than {MOST_CELLS:,} cells are left out: {', '.join(large)}." if large else ""),
        "In `flows.sdmx.csv`, an area is identified by the number of its level and its code, such as `L4_007`,"
        " because some readers of SDMX treat codes that look like numbers as numbers (`pysdmx` reads `007` back as"
        " 7). Every byte of a code except letters, digits, `-` and `_` is written as `$` and two hexadecimal digits."
        " In the code list of `flows.sdmx.json`, "
        + (
            "the name of each identifier is that of the area, if it has one, and its description is the code."
            if named
            else "the name of each identifier is the code itself."
        ),
    ]


_FOR_MODELS = (
    " Where all codes of a level are different whole numbers, the lookups `origin_number` and `destination_number` hold"
    " them as integers, without leading zeros. `DIM` of a lookup is 0 for rows and 1 for columns, and `NA` of a matrix"
    " is its value for a missing cell; only distances may be missing."
)


def _larger(release: ReleasedFlows, most: int) -> list[tuple[str, str]]:
    """Return the names of all pairs of levels with more than ``most`` pairs of areas."""
    tree = release.tree
    pairs = product(enumerate(tree.origin.level_names), enumerate(tree.destination.level_names))
    return [(origin, destination) for (o, origin), (d, destination) in pairs if cells(tree, o, d) > most]


def _unlisted(release: ReleasedFlows) -> list[str]:
    """Return one sentence per pair of levels with unlisted pairs of areas: the upper bound of their trips.

    These are the pairs of levels with more than ``MOST_LISTED`` pairs of areas.
    """
    return [
        f"In the flows from {in_markdown(origin)} to {in_markdown(destination)}, a pair of areas that is not listed"
        f" has at most {release.zero_bound(origin, destination):,} trips, with a probability of about"
        f" {100 * CONFIDENCE} %."
        for origin, destination in _larger(release, MOST_LISTED)
    ]


def _tables_in_csv(tables: FlowTables, bundle_format: int) -> list[BundleFile]:
    """Return the CSV files of the flows: one for each pair of levels, so that no sum of a file counts a trip twice."""
    if bundle_format == 1:
        return [BundleFile("flows.csv", "Flows at every pair of levels.", tables.write_csv, tables.table)]

    def write(place: int, file: BinaryIO) -> None:
        tables.pairs[place].write_csv(file)

    return [
        BundleFile(f"{name}.csv", f"{description}.", partial(write, place), tables.pair_table, pair_rows(tables, place))
        for place, name, description in _named_pairs(tables)
    ]


def _more_formats(tables: FlowTables, certificate: Certificate) -> list[BundleFile]:
    """Return the files that bundles have since format 2."""
    return [
        BundleFile(
            "flows.xlsx",
            f"Excel workbook with a sheet for each pair of levels: its {MOST_ROWS:,} largest flows.",
            partial(write_flow_workbook, tables, certificate),
            rows=sheet_rows(tables, sheet_names(tables), MOST_ROWS),
        ),
        *_maps(tables, certificate),
    ]


def _indicators(tables: FlowTables) -> list[BundleFile]:
    """Return the files of the indicators of all areas: none if origins and destinations have different areas."""
    if not has_indicators(tables.release):
        return []
    table = tables.indicator_table
    return [
        BundleFile(
            "indicators.csv",
            "Outflow, inflow, trips within and self-containment of every area.",
            lambda file: write_csv(tables.indicators.to_pandas(), file),
            table,
        ),
        BundleFile("indicators.parquet", "The same table.", lambda file: write_parquet(tables.indicators, file), table),
    ]


def _distance_bands(tables: FlowTables) -> list[BundleFile]:
    table = tables.distance_band_table
    return [
        BundleFile(
            "distance_bands.csv",
            "Trips that begin in each area, by bands of distance.",
            lambda file: write_csv(tables.distance_bands.to_pandas(), file),
            table,
        ),
        BundleFile(
            "distance_bands.parquet", "The same table.", lambda file: write_parquet(tables.distance_bands, file), table
        ),
    ]


def _atlas(tables: FlowTables, certificate: Certificate) -> list[BundleFile]:
    return [
        BundleFile(
            ATLAS,
            "A page on which you choose areas, and see their trips with intervals. It needs no network.",
            partial(write_atlas, tables, certificate),
            rows=partial(atlas_rows, tables),
        )
    ]


def _maps(tables: FlowTables, certificate: Certificate) -> list[BundleFile]:
    """Return the files for maps: none without coordinates, and tables for flowmap.gl only if each zone has one code.

    flowmap.gl has one list of places, and two geographies may use a code for two places.
    """
    tree, lines = tables.tree, DesireLines(tables, certificate)
    if tree.origin.coordinates is None or tree.destination.coordinates is None:
        return []
    largest = f"the {MOST_LINES:,} largest flows between zones with coordinates"
    rows = line_rows(tables, MOST_LINES)
    files = [
        BundleFile("desire_lines.geojson", f"Lines on a map, as GeoJSON: {largest}.", lines.write_geojson, rows=rows),
        BundleFile(
            "desire_lines.gpkg",
            "The same lines as a GeoPackage, for QGIS and others.",
            lines.write_geopackage,
            rows=rows,
        ),
    ]
    if tree.origin.digest == tree.destination.digest:
        files += [
            BundleFile(
                "flowmap_flows.csv",
                f"For flowmap.gl: {largest}.",
                lines.write_flowmap_flows,
                columns.FLOWMAP_FLOWS,
                flowmap_rows(tables, MOST_LINES),
            ),
            BundleFile(
                "flowmap_locations.csv",
                "For flowmap.gl: the zones with coordinates.",
                lines.write_flowmap_locations,
                columns.FLOWMAP_LOCATIONS,
                lambda: len(located(tree.origin)),
            ),
        ]
    return files


def _matrices(tables: FlowTables) -> list[BundleFile]:
    """Return one OpenMatrix file for each pair of levels with at most ``MOST_CELLS`` pairs of areas.

    It has matrices of the categories of a breakdown if all together have at most ``MOST_CELLS`` cells.
    """
    tree = tables.tree

    def write(place: int, file: BinaryIO) -> None:
        pair = tables.pairs[place]
        levels = pair.origin_level, pair.destination_level
        segments = [(one, tables.segments[one.name][place]) for one in _in_matrices(tables, *levels)]
        write_matrices(tree, pair, file, segments, for_tools=tables.for_tools)

    def rows(place: int) -> str:
        levels = divmod(place, len(tree.destination.level_names))
        categories = {
            matrix_name(one, number): (one, category)
            for one in _in_matrices(tables, *levels)
            for number, category in enumerate(one.categories)
        }
        return matrix_rows(tables, place, cells(tree, *levels), categories)

    return [
        BundleFile(f"{name}.omx", f"{description}, as OpenMatrix.", partial(write, place), rows=rows(place))
        for place, name, description in _named_pairs(tables)
        if cells(tree, *divmod(place, len(tree.destination.level_names))) <= MOST_CELLS
    ]


def _in_matrices(tables: FlowTables, origin_level: int, destination_level: int) -> list[Breakdown]:
    return [one for one in tables.breakdowns if has_matrices(tables.tree, origin_level, destination_level, one)]


def _named_pairs(tables: FlowTables) -> list[tuple[int, str, str]]:
    """Return the place in ``FlowTables.pairs``, the name of the files and a description of each pair of levels.

    The finest pair is first, because ``README.txt`` names the first table.
    """
    tree = tables.tree
    origins, destinations = tree.origin.level_names, tree.destination.level_names
    named = [
        (place, name, f"Flows from {origins[origin]} to {destinations[destination]}")
        for place, ((origin, destination), name) in enumerate(pair_names(tree, tables.breakdowns).items())
    ]
    return named[::-1]


def _write_measurements(release: Release, file: BinaryIO) -> None:
    write_batches(file, MEASUREMENT_SCHEMA, measurement_batches(release), compression="zstd")
