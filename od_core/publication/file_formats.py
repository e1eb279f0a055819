"""Check that a bundle's files of every format can be read completely, and compare files that libraries compress."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from xml.parsers.expat import ParserCreate
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from od_core.errors import STAYS_CHARGED, OdError
from od_core.extras import require


def refuse_unreadable(path: Path) -> None:
    """Raise OdError if a file cannot be read in the format of its file extension.

    A Parquet file is read by row groups, a CSV file by blocks of lines, and a file of matrices by matrices. Other files
    are read as a whole.
    """
    if not opens(path):
        raise OdError(
            "OD-FILE-DAMAGED",
            f"{path.name} was written, but cannot be read back",
            next_step="check the disk and the memory of the machine, then run the release again",
            spent=STAYS_CHARGED,
        )


def opens(path: Path) -> bool:
    """Return whether a file can be read completely in the format of its extension; True for an unknown extension."""
    read = _READERS.get(path.suffix)
    if read is None:
        return True
    try:
        read(path)
    except Exception:  # noqa: BLE001  # any exception of a library means that the file is damaged
        return False
    return True


def _read_parquet(path: Path) -> None:
    with pq.ParquetFile(path) as file:
        rows = sum(len(batch) for batch in file.iter_batches())
        if rows != file.metadata.num_rows:
            raise ValueError("rows are missing")


def _read_csv(path: Path) -> None:
    with path.open(encoding="utf-8", newline="") as file:
        names = next(csv.reader(file))
    options = pc.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    with pc.open_csv(path, parse_options=pc.ParseOptions(newlines_in_values=True), convert_options=options) as rows:
        for _ in rows:
            pass


def _read_html(path: Path) -> None:
    if not path.read_bytes().decode().rstrip().endswith("</html>"):
        raise ValueError("the page does not end")


def _read_matrices(path: Path) -> None:
    require("bundle")
    import openmatrix  # slow to import with PyTables, a fifth of a second

    with openmatrix.open_file(str(path)) as file:
        for node in file.walk_nodes("/", "Array"):
            node.read()


def _read_workbook(path: Path) -> None:
    with ZipFile(path) as archive:
        for name in archive.namelist():
            ParserCreate().Parse(archive.read(name), True)  # zipfile checks the checksum of each part


def _read_geopackage(path: Path) -> None:
    with _geopackage(path) as connection:
        if connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
            raise ValueError("the database is damaged")
        for (layer,) in connection.execute("SELECT table_name FROM gpkg_contents").fetchall():
            connection.execute(f'SELECT * FROM "{layer}"').fetchall()  # noqa: S608  # a name from the file itself


@contextmanager
def _geopackage(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a copy of a GeoPackage in memory, so that SQLite changes no file and makes none beside it."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(path.read_bytes())
        yield connection


_READERS: dict[str, Callable[[Path], object]] = {
    ".parquet": _read_parquet,
    ".csv": _read_csv,
    ".json": lambda path: json.loads(path.read_bytes()),
    ".geojson": lambda path: json.loads(path.read_bytes()),
    ".gpkg": _read_geopackage,
    ".html": _read_html,
    ".md": lambda path: path.read_bytes().decode(),
    ".txt": lambda path: path.read_bytes().decode(),
    ".omx": _read_matrices,
    ".xlsx": _read_workbook,
    ".xml": lambda path: ParserCreate().Parse(path.read_bytes(), True),
}


def same_content(file: Path, other: Path) -> bool:
    """Return whether two files of a format in :data:`CONTENTS` have equal content, whatever software wrote them."""
    read = CONTENTS[file.suffix]
    try:
        return bool(read(file) == read(other))
    except Exception:  # noqa: BLE001  # any exception of a library means that a file is damaged
        return False


def _parts(path: Path) -> list[tuple[str, bytes]]:
    with ZipFile(path) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def _statements(path: Path) -> list[str]:
    with _geopackage(path) as connection:
        return list(connection.iterdump())


def _arrays(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    require("bundle")
    import openmatrix

    with openmatrix.open_file(str(path)) as file:
        read = {node._v_pathname: node.read() for node in file.walk_nodes("/", "Array")}
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in read.items()}


CONTENTS: dict[str, Callable[[Path], Any]] = {
    ".xlsx": _parts,
    ".gpkg": _statements,
    ".omx": _arrays,
    ".parquet": pq.read_table,
}
"""Functions that read the content of files that libraries compress: the parts of workbooks, the tables of GeoPackages,
matrices and lookup tables, and Parquet tables."""
