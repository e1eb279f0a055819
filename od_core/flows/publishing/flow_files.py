"""List the files of the bundle of a release of flows, with the functions that write them, and the codebook's notes."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any, BinaryIO

import pyarrow as pa

from od_core.files.table_writers import write_batches
from od_core.flows.derived_flows import DerivedFlows
from od_core.flows.indicators import has_indicators
from od_core.flows.measurement_table import MEASUREMENT_SCHEMA
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
    measurement_batches,
    pair_names,
)
from od_core.flows.publishing.flow_workbook import MOST_ROWS, sheet_names, write_flow_workbook
from od_core.flows.publishing.omx import MOST_CELLS, cells, has_matrices, matrix_name, write_matrices
from od_core.flows.publishing.sdmx import (
    sdmx_csv_rows,
    structure_rows,
    write_sdmx_csv,
    write_structure,
    write_structure_in_xml,
)
from od_core.flows.publishing.segment_files import segment_files, segment_measurement_files, segment_notes
from od_core.flows.release import Release
from od_core.flows.released_flows import ReleasedFlows
from od_core.ledger.release_key import ReleaseKey
from od_core.publication import columns
from od_core.publication.bundle import ATLAS, BOUNDARIES_FILE
from od_core.publication.columns import CONFIDENCE, MOST_LISTED
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

BUNDLE_FORMAT = 5
"""Format of the bundles of flows, which states what files they have. Certificates of format 1 do not state it.

A bundle of format 1 has the flows at all pairs of levels in one CSV file; one of format 2 has no indicators, one of
format 3 has no atlas, and one of format 4 lacks what other tools look for (``FIRST_FOR_TOOLS``). They are verified, and
written again if they are damaged, with the files of their own format.
"""


def flow_files(release: Release, certificate: dict[str, Any]) -> list[BundleFile]:
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


def derived_files(flows: DerivedFlows, certificate: dict[str, Any]) -> list[BundleFile]:
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


def _formats(tables: FlowTables, certificate: dict[str, Any]) -> list[BundleFile]:
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


def flow_notes(release: ReleasedFlows, certificate: dict[str, Any]) -> list[str]:
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


def _more_formats(tables: FlowTables, certificate: dict[str, Any]) -> list[BundleFile]:
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


def _atlas(tables: FlowTables, certificate: dict[str, Any]) -> list[BundleFile]:
    return [
        BundleFile(
            ATLAS,
            "A page on which you choose areas, and see their trips with intervals. It needs no network.",
            partial(write_atlas, tables, certificate),
            rows=partial(atlas_rows, tables),
        )
    ]


def _maps(tables: FlowTables, certificate: dict[str, Any]) -> list[BundleFile]:
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
