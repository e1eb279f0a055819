"""State in SQL which rows every file of flows has, from the tables ``flows``, ``segments`` and ``areas`` of the bundle.

The statements share no code with the writers; :func:`od_core.publication.file_rows.holes` compares both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from od_core.files.duckdb_session import quoted_name, quoted_text
from od_core.flows.publishing.flow_tables import FlowTables
from od_core.flows.release import Release
from od_core.flows.step import SegmentStep
from od_core.geography.geography import Geography
from od_core.publication.columns import DISTANCE
from od_core.publication.file_rows import LINE
from od_core.records.segments import Breakdown

SIDES = ("origin", "destination")


def at_levels(tables: FlowTables, place: int) -> str:
    """Return the condition of the rows of a pair of levels, given its place in ``FlowTables.pairs``."""
    sides = (tables.tree.origin.level_names, tables.tree.destination.level_names)
    levels = divmod(place, len(sides[1]))
    return " AND ".join(
        f"{side}_level = {quoted_text(names[level])}" for side, names, level in zip(SIDES, sides, levels, strict=True)
    )


def pair_rows(tables: FlowTables, place: int, breakdown: Breakdown | None = None) -> str:
    """Return the rows of the CSV file of a pair of levels, for all trips or by the categories of a breakdown."""
    at, names = at_levels(tables, place), [column.name for column in tables.pair_table.columns]
    if breakdown is None:
        return f"SELECT {', '.join(names)} FROM flows WHERE {at}"  # noqa: S608  # names in the code
    ends = ["lower", "upper"] if tables.interval else []
    columns = ["origin", "destination", f"category AS {quoted_name(breakdown.name)}", "trips", *ends]
    return f"SELECT {', '.join(columns)} FROM segments WHERE {_of(breakdown)} AND {at}"  # noqa: S608


def _of(breakdown: Breakdown) -> str:
    return f"breakdown = {quoted_text(breakdown.name)}"


def matrix_rows(tables: FlowTables, place: int, cells: int, categories: Mapping[str, tuple[Breakdown, str]]) -> str:
    """Return the cells of the matrices of a pair of levels that are not 0, and the number of cells of each matrix.

    Args:
        tables: the flows.
        place: place of the pair of levels.
        cells: number of cells of a matrix.
        categories: breakdown and category of each further matrix, by name.
    """
    at, names = at_levels(tables, place), [column.name for column in tables.pair_table.columns[2:]]
    known = [
        f"CASE WHEN {'trips' if name == DISTANCE.name else name} <> 0 THEN {name} END::DOUBLE AS {name}"
        for name in names
    ]
    sizes = ", ".join(f"({quoted_text(name)}, '', '', {cells}::DOUBLE)" for name in [*names, *categories])
    selects = [
        f"SELECT matrix, origin, destination, value FROM (UNPIVOT (SELECT origin, destination, {', '.join(known)}"  # noqa: S608
        f" FROM flows WHERE {at}) ON {', '.join(names)} INTO NAME matrix VALUE value)",
        f"VALUES {sizes}",
    ]
    if categories:
        listed = ", ".join(
            f"({quoted_text(name)}, {quoted_text(breakdown.name)}, {quoted_text(category)})"
            for name, (breakdown, category) in categories.items()
        )
        selects.append(
            "SELECT matrix, origin, destination, trips::DOUBLE FROM segments"  # noqa: S608
            f" JOIN (VALUES {listed}) AS named (matrix, breakdown, category) USING (breakdown, category)"
            f" WHERE {at} AND trips <> 0"
        )
    return " UNION ALL ".join(selects)


def sheet_rows(tables: FlowTables, sheets: Iterable[str], most: int) -> str:
    """Return the rows of all sheets of the workbook, given their names: the ``most`` largest flows of each."""
    return " UNION ALL ".join(
        f"SELECT {quoted_text(sheet)} AS sheet, {_columns(tables)}{_names(tables, ' ')} FROM"  # noqa: S608
        f" (FROM flows WHERE {at_levels(tables, place)} ORDER BY trips DESC, file_row_number LIMIT {most}) AS flow"
        f" {_areas(tables)}"
        for place, sheet in enumerate(sheets)
    )


def line_rows(tables: FlowTables, most: int) -> str:
    """Return the rows of the files of lines: the ``most`` largest flows between located zones that have a length."""
    ends = ("origin_area.longitude", "origin_area.latitude", "destination_area.longitude", "destination_area.latitude")
    named = "".join(f", {end} AS {name}" for end, name in zip(ends, LINE, strict=True))
    return (
        f"SELECT {_columns(tables)}{_names(tables, '_')}{named} FROM ({_located(tables, most)}) AS flow"  # noqa: S608
        f" {_areas(tables)} WHERE ({ends[0]}, {ends[1]}) <> ({ends[2]}, {ends[3]})"
    )


def flowmap_rows(tables: FlowTables, most: int) -> str:
    """Return the rows of the flows for flowmap.gl, which lead to another zone or to the same."""
    return f'SELECT origin, destination AS dest, trips AS "count" FROM ({_located(tables, most)})'  # noqa: S608


def _located(tables: FlowTables, most: int) -> str:
    known = " AND ".join(f"{side}_area.latitude + {side}_area.longitude IS NOT NULL" for side in SIDES)
    return (
        f"SELECT flow.* FROM flows AS flow {_areas(tables)} WHERE {at_levels(tables, -1)} AND trips > 0 AND {known}"  # noqa: S608
        f" ORDER BY trips DESC, flow.file_row_number LIMIT {most}"
    )


def _columns(tables: FlowTables) -> str:
    return ", ".join(column.name for column in tables.pair_table.columns)


def _sides(tables: FlowTables) -> dict[str, Geography]:
    return dict(zip(SIDES, (tables.tree.origin, tables.tree.destination), strict=True))


def _names(tables: FlowTables, separator: str) -> str:
    """Return the columns of the names of areas, for the sides whose areas have names."""
    named = [side for side, geography in _sides(tables).items() if geography.names is not None]
    return "".join(f", {side}_area.name AS {quoted_name(side + separator + 'name')}" for side in named)


def _areas(tables: FlowTables) -> str:
    """Return the joins of flows, as ``flow``, with the areas of both sides."""
    return " ".join(
        f"LEFT JOIN areas AS {side}_area ON {side}_area.geography = {quoted_text(geography.digest)}"
        f" AND {side}_area.level_name = flow.{side}_level AND {side}_area.area = flow.{side}"
        for side, geography in _sides(tables).items()
    )


def sdmx_rows(
    tables: FlowTables, dataflow: str, period: str, dimensions: Mapping[str, str], columns: Mapping[str, str]
) -> str:
    """Return the rows of the SDMX-CSV file: all pairs of levels, then those by each breakdown.

    Args:
        tables: the flows.
        dataflow: identifier of the dataflow, with its agency and version.
        period: the SDMX time period.
        dimensions: identifier of the dimension of each breakdown, by its name.
        columns: identifier of each column of numbers, by its name.
    """
    numbers = ", ".join(
        f"{name} AS {columns[name]}" for name in ("trips", "lower", "upper")[: 3 if tables.interval else 1]
    )

    def select(table: str, breakdown: str | None) -> str:
        categories = "".join(
            f", {_identifier('category', quoted_text('C_')) if name == breakdown else quoted_text('_T')}"
            f" AS {quoted_name(dimension)}"
            for name, dimension in dimensions.items()
        )
        where = "" if breakdown is None else f" WHERE breakdown = {quoted_text(breakdown)}"
        areas = ", ".join(
            f"{_identifier(f'flow.{side}', _level(geography, f'flow.{side}_level'))} AS {side.upper()}"
            for side, geography in _sides(tables).items()
        )
        return (
            f"SELECT 'dataflow' AS STRUCTURE, {quoted_text(dataflow)} AS STRUCTURE_ID, 'R' AS ACTION, {areas}"  # noqa: S608
            f"{categories}, {quoted_text(period)} AS TIME_PERIOD, {numbers} FROM {table} AS flow{where}"
        )

    return " UNION ALL ".join([select("flows", None), *(select("segments", name) for name in dimensions)])


def code_rows(sides: Mapping[str, Geography], categories: Mapping[str, Iterable[str]]) -> str:
    """Return the identifiers of the SDMX structure.

    Args:
        sides: geography of each code list of areas, by the identifier of the list.
        categories: categories of each code list of a breakdown, by the identifier of the list.
    """
    area = _identifier("area", "'L' || level || '_'")
    selects = [
        f"SELECT {quoted_text(name)} AS list, {area} AS code"  # noqa: S608
        f" FROM areas WHERE geography = {quoted_text(geography.digest)}"
        for name, geography in sides.items()
    ]
    for name, listed in categories.items():
        selects.append(f"SELECT {quoted_text(name)}, '_T'")
        selects += [
            f"SELECT {quoted_text(name)}, {_identifier(quoted_text(each), quoted_text('C_'))}" for each in listed
        ]
    return " UNION ALL ".join(selects)


def _level(geography: Geography, column: str) -> str:
    """Return the first part of the identifier of an area, from the name of its level."""
    cases = " ".join(f"WHEN {quoted_text(name)} THEN 'L{level}_'" for level, name in enumerate(geography.level_names))
    return f"CASE {column} {cases} END"


def _identifier(text: str, first: str) -> str:
    """Return an SDMX identifier: percent encoding with another sign, which also encodes full stops and tildes."""
    encoded = f"url_encode({text})"
    for sign, code in (("%", "$"), (".", "$2E"), ("~", "$7E")):
        encoded = f"replace({encoded}, '{sign}', '{code}')"
    return f"{first} || {encoded}"


def measured_rows(release: Release, *, by_segment: bool) -> int:
    """Return the number of measurements of a release, by the categories of breakdowns or not."""
    return sum(len(one.noisy) for one in release.measured if isinstance(one.step, SegmentStep) == by_segment)
