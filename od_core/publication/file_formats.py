"""Check that a bundle's files of every format can be read completely, and that they have the rows of its tables.

Rows are compared with the Parquet tables in a program that did not write the file. DuckDB reads Parquet and CSV files,
which Arrow, pandas and this library write. Python's regular expressions and its parser of JSON read workbooks and
features. HDF5 and GeoPackage have one usual library each, which reads back from the disk what it wrote.
"""

from __future__ import annotations

import base64
import csv
import gzip
import json
import re
import sqlite3
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.parsers.expat import ParserCreate
from xml.sax.saxutils import unescape
from zipfile import ZipFile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from od_core.errors import STAYS_CHARGED, OdError
from od_core.extras import require
from od_core.files.duckdb_session import (
    escape_path_wildcards,
    make_parquet_sql,
    open_folder_database,
    quote_identifier,
    quote_literal,
)
from od_core.parallel import map_in_order
from od_core.publication.tables import BundleFile

if TYPE_CHECKING:
    import duckdb


def refuse_unreadable(path: Path) -> None:
    """Raise OdError if a file cannot be read in the format of its file extension."""
    if not is_readable(path):
        raise OdError(
            "OD-FILE-DAMAGED",
            f"{path.name} was written, but cannot be read back",
            next_step="check the disk and the memory of the machine, then run the release again",
            spent=STAYS_CHARGED,
        )


def is_readable(path: Path) -> bool:
    """Return whether a file can be read completely in the format of its extension; True for an unknown extension."""
    try:
        _READERS.get(path.suffix, Path.exists)(path)
    except Exception:  # noqa: BLE001  # any exception of a library means that the file is damaged
        return False
    return True


def _read_parquet_to_end(path: Path) -> None:
    """Read all rows of a Parquet file. Any exception, of this and the next functions, means that it is damaged."""
    with pq.ParquetFile(path) as file:
        rows = sum(len(batch) for batch in file.iter_batches())
        if rows != file.metadata.num_rows:
            raise ValueError("rows are missing")


def _read_csv_to_end(path: Path) -> None:
    """Read all rows of a CSV file, each value as text."""
    with path.open("rb") as file:
        names = next(csv.reader(line.decode() for line in file))
        file.seek(0)
        options = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
        with pyarrow.csv.open_csv(
            file, parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True), convert_options=options
        ) as rows:
            for _ in rows:
                pass


def _read_html_to_end(path: Path) -> None:
    """Raise ValueError unless a page ends with ``</html>``."""
    if not path.read_bytes().decode().rstrip().endswith("</html>"):
        raise ValueError("the page does not end")


def _read_workbook_to_end(path: Path) -> None:
    """Parse every part of a workbook as XML; zipfile checks the checksum of each part."""
    for _, part in _read_zip_parts(path):
        ParserCreate().Parse(part, True)


def _read_geopackage_to_end(path: Path) -> None:
    """Check the database of a GeoPackage with SQLite, and read all rows of its layers."""
    with _open_geopackage_copy(path) as connection:
        if connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
            raise ValueError("the database is damaged")
        for (layer,) in connection.execute("SELECT table_name FROM gpkg_contents").fetchall():
            connection.execute(f'SELECT * FROM "{layer}"').fetchall()  # noqa: S608  # a name from the file itself


@contextmanager
def _open_geopackage_copy(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a copy of a GeoPackage in memory, so that SQLite changes no file and makes none beside it."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(path.read_bytes())
        yield connection


def has_same_content(file: Path, other: Path) -> bool:
    """Return whether two files of a format in :data:`CONTENTS` have equal content, whatever software wrote them."""
    read_content = CONTENTS[file.suffix]
    try:
        return bool(read_content(file) == read_content(other))
    except Exception:  # noqa: BLE001  # any exception of a library means that a file is damaged
        return False


def _read_zip_parts(path: Path) -> list[tuple[str, bytes]]:
    """Return the name and the uncompressed bytes of each entry of a zip file."""
    with ZipFile(path) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def _read_geopackage_statements(path: Path) -> list[str]:
    """Return the SQL statements that make the content of a GeoPackage."""
    with _open_geopackage_copy(path) as connection:
        return list(connection.iterdump())


def _read_arrays(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Return the arrays of an OpenMatrix file by path, as type, shape and bytes."""
    require("bundle")
    import openmatrix

    with openmatrix.open_file(str(path)) as file:
        arrays = {node._v_pathname: node.read() for node in file.walk_nodes("/", "Array")}
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}


_READERS: dict[str, Callable[[Path], object]] = {
    ".parquet": _read_parquet_to_end,
    ".csv": _read_csv_to_end,
    ".json": lambda path: json.loads(path.read_bytes()),
    ".geojson": lambda path: json.loads(path.read_bytes()),
    ".gpkg": _read_geopackage_to_end,
    ".html": _read_html_to_end,
    ".md": lambda path: path.read_bytes().decode(),
    ".txt": lambda path: path.read_bytes().decode(),
    ".omx": _read_arrays,
    ".xlsx": _read_workbook_to_end,
    ".xml": lambda path: ParserCreate().Parse(path.read_bytes(), True),
}
"""Functions that read a file to its end, by the file extension. They raise any exception if it is damaged."""


CONTENTS: dict[str, Callable[[Path], Any]] = {
    ".xlsx": _read_zip_parts,
    ".gpkg": _read_geopackage_statements,
    ".omx": _read_arrays,
    ".parquet": pq.read_table,
}
"""Functions that read the content of files that libraries compress: the parts of workbooks, the tables of GeoPackages,
matrices and lookup tables, and Parquet tables."""


LINE_END_COLUMNS = ("longitude_1", "latitude_1", "longitude_2", "latitude_2")
"""Columns of the ends of a line on a map, in the rows of its file."""

_READ_WHOLE_SUFFIXES = (".csv", ".omx", ".geojson", ".json", ".xml")
"""Extensions of files that are read to their ends in their format where their rows are compared."""

_MAX_LOADED_BYTES = 1 << 20
"""Size in bytes below which a Parquet file is read once. Each query on the view of a file opens the file again."""

_Summary = tuple[int, int | None, int | None]
"""Number of rows, the sum of their trips, and a sum of hashes of their values; None for a sum that is not known."""

_TRIP_COLUMNS = ("trips", "count", "OBS_VALUE")
"""Columns whose sum a fault states."""


def check_file_rows(folder: Path, files: Sequence[BundleFile]) -> Iterator[tuple[str, str]]:
    """Yield the name of each file that has other rows or columns than the bundle's tables, and the fault in words.

    Files for which neither a table nor rows are defined are not read.
    """
    import duckdb  # takes a third of a second

    examined = [file for file in files if file.table is not None or file.rows is not None]
    with open_folder_database(folder) as connection:
        for path in sorted(folder.rglob("*.parquet")):
            with suppress(duckdb.Error):  # a damaged file is met below, where it is compared
                rows = make_parquet_sql(path, numbered=True)
                kind = "TABLE" if path.stat().st_size < _MAX_LOADED_BYTES else "VIEW"
                connection.execute(f"CREATE {kind} {quote_identifier(path.stem)} AS SELECT * FROM {rows}")  # noqa: S608
        faults = map_in_order(partial(_find_fault, connection, folder), examined)
        yield from ((file.name, fault) for file, fault in zip(examined, faults, strict=True) if fault is not None)


def is_read_whole(file: BundleFile) -> bool:
    """Return whether :func:`check_file_rows` reads a file to its end. It does not if rows are only counted."""
    compared = (file.table is not None or file.rows is not None) and not callable(file.rows)
    return compared and Path(file.name).suffix in _READ_WHOLE_SUFFIXES


def refuse_faulty_files(folder: Path, files: Sequence[BundleFile]) -> None:
    """Raise OdError if a file cannot be read, or does not have the rows of the tables; see :func:`check_file_rows`."""
    faults = dict(check_file_rows(folder, files))
    if faults:
        for name in faults:
            refuse_unreadable(folder / name)  # a fault of the disk and not of the rows
        raise OdError(
            "OD-BUNDLE-INCOMPLETE",
            f"files of the bundle do not have the rows of its tables: {'; '.join(map(' '.join, faults.items()))}",
            next_step="nothing was published: report this as a defect of od-release, and run the release again with a"
            " version that mends it, which draws no new noise",
            spent=STAYS_CHARGED,
        )


def _find_fault(shared: duckdb.DuckDBPyConnection, folder: Path, file: BundleFile) -> str | None:
    """Return the fault of a file, in words; None if its rows are those of the tables of the bundle."""
    path = folder / file.name
    try:
        with shared.cursor() as connection:
            return _find_row_difference(connection, path, file)
    except Exception as error:  # noqa: BLE001  # any exception of a library means that the file is damaged
        return f"cannot be compared with the tables of the bundle ({type(error).__name__})"


def _find_row_difference(connection: duckdb.DuckDBPyConnection, path: Path, file: BundleFile) -> str | None:
    """Return in words how the rows of a file differ from those that it must have; None if they do not.

    ``connection`` can read the Parquet tables of the bundle, by the names of their files. Every file is read to its
    end, even if nothing states its rows.
    """
    required_columns = [] if file.table is None else [column.name for column in file.table.columns]
    required = _find_required_rows(path, file, required_columns)  # a query, a number of rows, or None
    types = dict[str, str]()
    if isinstance(required, str):
        relation = connection.sql(required)
        types = dict(zip(relation.columns, map(str, relation.types), strict=True))
        required_columns = required_columns or [*types]
    columns, query = _query_file_rows(connection, path)
    if columns and required_columns and columns != required_columns:
        return f"has the columns {', '.join(columns)} instead of {', '.join(required_columns)}"
    trips = next((name for name in _TRIP_COLUMNS if name in types), None)
    # Of a format without columns, rows are only counted.
    held = _summarise_rows(connection, query, types, trips) if columns else _summarise_rows(connection, query, {})
    if required is None:
        return None
    expected: _Summary = (required, None, None) if isinstance(required, int) else (0, None, None)
    if isinstance(required, str):
        expected = _summarise_rows(connection, required, types, trips)
    return _describe_difference(held, expected, "" if trips is None else "trips")


def _find_required_rows(path: Path, file: BundleFile, columns: Sequence[str]) -> int | str | None:
    """Return the query or the number of the rows that a file must have; None if nothing states them.

    By default, a CSV file must have the ``columns`` of the Parquet file of the same name.
    """
    required = file.rows() if callable(file.rows) else file.rows
    if required is None and path.suffix == ".csv" and path.with_suffix(".parquet").exists():
        return f"SELECT {', '.join(map(quote_identifier, columns))} FROM {quote_identifier(path.stem)}"  # noqa: S608
    return required


def _query_file_rows(connection: duckdb.DuckDBPyConnection, path: Path) -> tuple[list[str], str]:
    """Return the names of a file's columns, and a query of its rows.

    Rows that are read into memory are registered as the relation ``held``. The columns of a format that names them in
    each row are unknown, and the list is empty, if there are no rows.
    """
    contents = _ROW_READERS[path.suffix](path)
    columns, rows = contents if isinstance(contents, tuple) else (contents.schema.names, contents)
    if isinstance(rows, pa.Table) and not rows.column_names:  # a format that names columns in each row, without rows
        return columns, "FROM (SELECT 1 WHERE false)"
    if isinstance(rows, pa.Table | pa.RecordBatchReader):
        connection.register("held", rows)
        return columns, "FROM held"
    return columns, f"FROM {rows}"


def _describe_difference(held: _Summary, expected: _Summary, counted: str) -> str | None:
    """Return in words how two summaries differ; None if they do not, or if both have no rows.

    ``held`` is the summary of a file, and ``expected`` the one that it must have. ``counted`` is the word for what the
    sums count; empty if there are no sums.
    """
    rows_held, total_held, _ = held
    rows_expected, total_expected, _ = expected
    if held == expected or rows_held == rows_expected == 0:
        return None
    if (rows_held, total_held) == (rows_expected, total_expected):
        return f"has {rows_held:,} rows, but other values"
    texts = []
    for rows, total in ((rows_held, total_held), (rows_expected, total_expected)):
        texts.append(f"{rows:,} rows and {total or 0:,} {counted}" if counted else f"{rows:,} rows")
    return f"has {texts[0]} instead of {texts[1]}"


def _summarise_rows(
    connection: duckdb.DuckDBPyConnection, query: str, types: dict[str, str], trips: str | None = None
) -> _Summary:
    """Return a summary of the rows of a query, which does not depend on their order.

    Missing text and empty text are the same, and so are missing numbers and NaN: formats do not tell them apart.

    Args:
        connection: connection that runs the query.
        query: query of the rows.
        types: DuckDB type to which each column is converted; without columns, rows are only counted.
        trips: column of trips; None if there is none.
    """
    values = []
    for name, kind in types.items():
        value = f"TRY_CAST({quote_identifier(name)} AS {kind})"
        if kind == "VARCHAR":
            value = f"coalesce({value}, '')"
        elif kind == "DOUBLE":
            value = f"CASE WHEN isnan({value}) THEN NULL ELSE {value} END"
        values.append(value)
    hashes = f"sum(hash({', '.join(values)})::HUGEINT)" if values else "NULL"
    total = "NULL" if trips is None else f"sum(TRY_CAST({quote_identifier(trips)} AS HUGEINT))"
    row = connection.execute(f"SELECT count(*), {total}, {hashes} FROM ({query})").fetchone()  # noqa: S608
    return row or (0, None, None)


def _make_csv_query(path: Path) -> tuple[list[str], str]:
    """Return the columns of a CSV file, and the SQL expression that reads all of them as text."""
    with path.open(encoding="utf-8", newline="") as file:
        names = next(csv.reader(file))
    types = ", ".join(f"{quote_literal(name)}: 'VARCHAR'" for name in names)
    options = "header = true, auto_detect = false, delim = ',', quote = '\"', escape = '\"', new_line = '\\r\\n'"
    return names, f"read_csv({quote_literal(escape_path_wildcards(path))}, columns = {{{types}}}, {options})"


def _read_matrices(path: Path) -> pa.RecordBatchReader:
    """Return the cells of the matrices of an OpenMatrix file, as rows of matrix, origin, destination and value.

    Of a matrix of whole numbers, the cells that are not 0 are returned; of a matrix of fractions, such as distances,
    the cells that are not NaN and have trips. One more row of each matrix, without zones, has its number of cells.
    """
    require("bundle")
    import tables  # slow to import

    names = ["matrix", "origin", "destination", "value"]
    with tables.open_file(str(path)) as file:
        origin_codes, destination_codes = (
            pa.array([code.decode() for code in file.get_node("/lookup", side).read()])
            for side in ("origin", "destination")
        )
        matrices = {node.name: node.read() for node in file.iter_nodes("/data")}

    def iterate_batches() -> Iterator[pa.RecordBatch]:
        """Yield two batches for each matrix: its cells, and its number of cells."""
        for name, values in matrices.items():
            is_listed = values != 0
            if values.dtype.kind == "f":
                is_listed = ~np.isnan(values) & (matrices["trips"] != 0)
            rows, columns = np.nonzero(is_listed)
            sides = [origin_codes.take(pa.array(rows)), destination_codes.take(pa.array(columns))]
            numbers = values[rows, columns].astype(np.float64)
            yield pa.record_batch([pa.repeat(name, len(rows)), *sides, numbers], names)
            yield pa.record_batch([[name], [""], [""], [float(values.size)]], names)

    schema = pa.schema([*((name, pa.string()) for name in names[:3]), ("value", pa.float64())])
    return pa.RecordBatchReader.from_batches(schema, iterate_batches())


_CELL_PATTERN = re.compile(rb"<c(?: [^>]*)?(?:/>|>(?:<v>|<is><t>)([^<]*)(?:</v>|</t></is>)</c>)")
"""Pattern of a cell of a sheet, and of its content. An XML parser, which makes an object of each cell, is slower."""


def _read_workbook(path: Path) -> pa.Table:
    """Return the rows of all sheets of a workbook except the first, which explains the others.

    A column ``sheet`` has the names of the sheets. All of these sheets must have the same columns.
    """
    with ZipFile(path) as archive:
        names = re.findall('<sheet name="([^"]*)"', archive.read("xl/workbook.xml").decode())
        tables = []
        for number, name in enumerate(names[1:], start=2):
            sheet = archive.read(f"xl/worksheets/sheet{number}.xml")
            tables.append(_parse_sheet_rows(unescape(name), sheet))
        return pa.concat_tables(tables)


def _parse_sheet_rows(name: str, sheet: bytes) -> pa.Table:
    """Return the rows of a sheet, given its name and its XML, with the name in the column ``sheet``.

    The sheet begins with one row of text and the header. Values are texts, in which escapes are replaced. Raises
    ValueError if a row has more or fewer cells than the header.
    """
    _, _, header, *rows = sheet.split(b"<row>")
    columns = [cell.decode() for cell in _CELL_PATTERN.findall(header)]
    cells = _CELL_PATTERN.findall(b"".join(rows))
    if len(cells) != len(rows) * len(columns):
        raise ValueError("a row has more or fewer cells than the header")
    texts = pa.array(cells, pa.binary()).cast(pa.string())
    for entity, sign in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        texts = pc.replace_substring(texts, entity, sign)
    if b"_x" in sheet:
        code = re.compile("_x([0-9A-Fa-f]{4})_")
        texts = pa.array([code.sub(lambda match: chr(int(match[1], 16)), text) for text in texts.to_pylist()])
    values = [texts.take(np.arange(column, len(cells), len(columns))) for column in range(len(columns))]  # row by row
    return pa.table([pa.repeat(name, len(rows)), *values], ["sheet", *columns])


def _read_features(path: Path) -> pa.Table:
    """Return a row for each feature of a GeoJSON file.

    It has the properties that are no lists and, for a line, its ends (:data:`LINE_END_COLUMNS`).
    """
    rows = []
    for feature in json.loads(path.read_bytes())["features"]:
        row = {name: value for name, value in feature["properties"].items() if not isinstance(value, list)}
        if feature["geometry"]["type"] == "LineString":
            row |= zip(LINE_END_COLUMNS, np.ravel(feature["geometry"]["coordinates"]).tolist(), strict=True)
        rows.append(row)
    return pa.Table.from_pylist(rows)


_LINE_HEADER_BYTES = 17
"""Bytes before the coordinates of a line in a GeoPackage: 8 of the GeoPackage, and 9 of its WKB."""


def _read_geopackage(path: Path) -> pa.Table:
    """Return a row for each line in the one layer of a GeoPackage.

    It has the attributes, except the row number, and the ends of the line (:data:`LINE_END_COLUMNS`).
    """
    with _open_geopackage_copy(path) as connection:
        connection.row_factory = sqlite3.Row
        ((layer, geometry),) = connection.execute("SELECT table_name, column_name FROM gpkg_geometry_columns")
        rows = [dict(row) for row in connection.execute(f"SELECT * FROM {quote_identifier(layer)}")]  # noqa: S608  # its own
    for row in rows:
        coordinates = struct.unpack_from("<4d", row.pop(geometry), _LINE_HEADER_BYTES)
        row |= zip(LINE_END_COLUMNS, coordinates, strict=True)
        row.pop("fid")
    return pa.Table.from_pylist(rows)


def _read_code_lists(path: Path) -> pa.Table:
    """Return the codes of each code list of an SDMX structure in JSON, as rows of ``list`` and ``code``."""
    lists = json.loads(path.read_bytes())["data"]["codelists"]
    return pa.Table.from_pylist(
        [{"list": code_list["id"], "code": code["id"]} for code_list in lists for code in code_list["codes"]]
    )


def _read_xml_code_lists(path: Path) -> pa.Table:
    """Return the codes of each code list of an SDMX structure in XML, as rows of ``list`` and ``code``."""
    rows: list[dict[str, str]] = []
    code_lists: list[str] = []

    def handle_start(tag: str, attributes: dict[str, str]) -> None:
        """Remember the code list or the code that begins here."""
        if tag == "str:Codelist":
            code_lists.append(attributes["id"])
        elif tag == "str:Code":
            rows.append({"list": code_lists[-1], "code": attributes["id"]})

    parser = ParserCreate()
    parser.StartElementHandler = handle_start
    parser.Parse(path.read_bytes(), True)
    return pa.Table.from_pylist(rows)


def _read_atlas(path: Path) -> pa.Table:
    """Return the flows of an atlas at its finest level, as rows of origin, destination and trips."""
    match = re.search(rb'<script type="text/plain" id="data">([^<]*)</script>', path.read_bytes())
    content = gzip.decompress(base64.b64decode(match[1] if match else b""))
    header_end = 4 + int.from_bytes(content[:4], "little")
    header: dict[str, Any] = json.loads(content[4:header_end])
    columns_start = (header_end + 7) // 8 * 8  # the next multiple of 8

    def read_column(entry: Mapping[str, Any]) -> NDArray[np.int64]:
        """Return a column, given its entry in the header: where it starts, its type and its length."""
        start = columns_start + entry["start"]
        return np.frombuffer(content, f"<{entry['type']}", entry["length"], start).astype(np.int64)

    leaves = {name: read_column(entry) for name, entry in header["leaves"].items()}
    destination_side = header["destination"] or header["origin"]  # a geography of both sides is stated once
    origin_codes, destination_codes = (pa.array(side["codes"][-1]) for side in (header["origin"], destination_side))
    leaves_per_origin = leaves["perOrigin"]
    origins = np.repeat(np.arange(len(leaves_per_origin)), leaves_per_origin)
    return pa.table(
        {
            "origin": origin_codes.take(pa.array(origins)),
            "destination": destination_codes.take(pa.array(leaves["destination"])),
            "trips": leaves["trips"],
        }
    )


_ROW_READERS: dict[str, Callable[[Path], Any]] = {
    ".parquet": lambda path: (pq.read_schema(path).names, quote_identifier(path.stem)),
    ".csv": _make_csv_query,
    ".omx": _read_matrices,
    ".xlsx": _read_workbook,
    ".geojson": _read_features,
    ".gpkg": _read_geopackage,
    ".json": _read_code_lists,
    ".xml": _read_xml_code_lists,
    ".html": _read_atlas,
}
"""Functions that read the rows of a file: as a table, or the names of its columns and an SQL expression."""
