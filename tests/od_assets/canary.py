"""A zone, a user and a count that stand nowhere else, and the search for them in every form that a file may have."""

import base64
import gzip
import io
import pickle
import re
import sqlite3
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from od_assets.components import OdRelease

from .conftest import Project, records

ZONE = "CANARY77Q"
USER = "WREN-5H31X-USER"
COUNT = 987_654_321_987

FORMS = {
    "zone": ZONE.encode(),
    "zone in UTF-16": ZONE.encode("utf-16-le"),
    "user": USER.encode(),
    "user in UTF-16": USER.encode("utf-16-le"),
    "count as text": str(COUNT).encode(),
    "count with commas": f"{COUNT:,}".encode(),
    "count as an integer": COUNT.to_bytes(8, "little"),
    "count as SQLite keeps it": COUNT.to_bytes(6, "big"),
    "count as a float": struct.pack("<d", COUNT),
    "count pickled": pickle.dumps(COUNT, protocol=2)[2:-1],  # without the frame of later protocols
}


def planted() -> pd.DataFrame:
    """Flows: one of a planted zone, one of a planted count, and every row with a planted user."""
    ordinary = records().assign(trips=3, user=USER)
    first = {"origin": [ZONE, "Z00"], "destination": ["Z00", "Z21"], "trips": [5, COUNT]}
    return pd.concat([pd.DataFrame({"date": "2001-01-15", **first, "user": USER}), ordinary])


def of_flows(project: Project, **changes: Any) -> OdRelease:
    """Noise of about 5 million trips: by chance a noisy value is the planted count once in some million runs."""
    usual = {"trips__columns": {"date": "date", "trips": "trips"}, "trips__fault_threshold": "1/1000"}
    budget = {"privacy": {"rho": "1e-13", "delta": "1e-8"}, "domain__cap__rho": "1.5e-13"}
    return project.component(**usual | budget | changes)


def leaks(root: Path, said: str = "") -> list[str]:
    """Places outside the confidential folder, and outside the inputs beside it, that hold a planted value.

    Args:
        root: folder of the project; files directly in it are its inputs.
        said: what was printed and logged.
    """
    confidential = root / "var" / "confidential"
    found = {f"what was said: {form}" for form in _forms(said.encode())}
    for path in root.rglob("*"):
        if path.is_relative_to(confidential) or path.parent == root:
            continue
        found |= {f"name of {path.name}: {form}" for form in _forms(path.name.encode())}
        if path.is_file():
            found |= {f"{path.name}: {form}" for reading in _readings(path) for form in _forms(reading)}
    return sorted(found)


def _forms(content: bytes) -> set[str]:
    return {form for form, value in FORMS.items() if value in content}


def _readings(path: Path) -> Iterator[bytes]:
    """The bytes of a file, and all that is packed in them."""
    content = path.read_bytes()
    yield from _unpacked(content)
    if content.startswith(b"SQLite format 3\0"):
        yield from _sqlite_values(path)
    elif content[8:12] == b"DUCK":
        yield from _duckdb_values(path)


def _unpacked(content: bytes) -> Iterator[bytes]:
    """Some bytes, and what they give as base64, gzip, zlib, zip and Parquet, each opened in turn."""
    yield content
    for text in re.findall(rb"[A-Za-z0-9+/]{40,}", content):
        whole = text[: len(text) - (len(text) % 4 == 1)]
        yield from _unpacked(base64.b64decode(whole + b"=" * (-len(whole) % 4)))
    for place in re.finditer(rb"\x1f\x8b\x08|\x78[\x01\x5e\x9c\xda]", content):
        unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
        try:
            inside = unpacker.decompress(memoryview(content)[place.start() :])
        except zlib.error:
            continue
        if len(inside) > 8:
            yield from _unpacked(inside)
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                yield name.encode()
                yield from _unpacked(archive.read(name))
    if content[:4] == content[-4:] == b"PAR1":
        yield from _table_values(pq.read_table(io.BytesIO(content)))


def _table_values(table: pa.Table) -> Iterator[bytes]:
    yield repr(table.schema.names).encode()
    for column in table.columns:
        yield " ".join(map(str, column.to_pylist())).encode()


def _sqlite_values(path: Path) -> Iterator[bytes]:
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = bytes
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            for row in connection.execute(f'SELECT * FROM "{table.decode()}"'):
                for value in row:
                    yield from _unpacked(value if isinstance(value, bytes) else str(value).encode())


def _duckdb_values(path: Path) -> Iterator[bytes]:
    with duckdb.connect(str(path), read_only=True) as connection:
        for schema, table in connection.execute("SELECT schema_name, table_name FROM duckdb_tables()").fetchall():
            yield from _table_values(connection.sql(f'FROM "{schema}"."{table}"').to_arrow_table())


def planted_forms(folder: Path) -> dict[str, str]:
    """Write a planted value in every form of file; file names, and what each one hides."""
    texts = pa.table({"zone": [ZONE] * 500, "trips": [COUNT] * 500})
    pq.write_table(texts, folder / "compressed.parquet", compression="zstd")
    (folder / "integer.bin").write_bytes(b"x" + COUNT.to_bytes(8, "little"))
    (folder / "pickled.bin").write_bytes(pickle.dumps({"trips": COUNT}))
    (folder / "frame.bin").write_bytes(pickle.dumps(texts.to_pandas()))
    (folder / "text.gz").write_bytes(b"header" + gzip.compress(str(COUNT).encode()))
    page = b'<script id="data">' + base64.b64encode(gzip.compress(f"{{{USER}}}".encode())) + b"</script>"
    (folder / "page.html").write_bytes(page)
    (folder / "twice.gz").write_bytes(gzip.compress(gzip.compress(USER.encode())))
    with zipfile.ZipFile(folder / "archive.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inside.txt", USER * 3)
    with duckdb.connect(str(folder / "tables.duckdb")) as connection:
        connection.execute(f"CREATE TABLE t AS SELECT range + {COUNT} - 4000 AS trips FROM range(9000)")
    with duckdb.connect(str(folder / "log.duckdb")) as connection:
        connection.execute("SET checkpoint_threshold = '1GB'; PRAGMA disable_checkpoint_on_shutdown")
        connection.execute(f"CREATE TABLE t AS SELECT '{ZONE}' AS zone")
    with closing(sqlite3.connect(folder / "history.sqlite")) as connection:
        connection.execute("CREATE TABLE t (event, packed)")
        connection.execute("INSERT INTO t VALUES (?, ?)", [COUNT, zlib.compress(f"x{USER}".encode())])
        connection.commit()
    (folder / f"named_{ZONE}").mkdir()
    names = {
        "zone": ("compressed.parquet", "log.duckdb", f"name of named_{ZONE}"),
        "user": ("page.html", "twice.gz", "archive.zip", "history.sqlite"),
        "count as text": ("text.gz", "tables.duckdb"),
        "count as an integer": ("integer.bin", "frame.bin"),
        "count pickled": ("pickled.bin",),
    }
    return {name: form for form, of_form in names.items() for name in of_form}
