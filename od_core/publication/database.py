"""Write releases into DuckDB, with a comment for each table and column."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import duckdb
import pyarrow as pa

from od_core.errors import STAYS_CHARGED, OdError
from od_core.files.duckdb_session import quote_identifier, quote_literal
from od_core.files.durable import PUBLIC_FILE_MODE, lock_file, make_folder, write_durably
from od_core.geography.codes import COORDINATES
from od_core.geography.geography import Geography
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.certificate import Certificate
from od_core.publication.columns import DATABASE
from od_core.publication.tables import make_areas_table
from od_core.publication.templates import render_template

if TYPE_CHECKING:
    from od_core.publication.kind import Kind, R


def set_comments(connection: duckdb.DuckDBPyConnection) -> None:
    """Set the comments of each table or view in which a comment is missing, for example because it was replaced."""
    views = {name for (name,) in connection.execute("SELECT view_name FROM duckdb_views()").fetchall()}
    query = "SELECT table_name, list(column_name) FROM duckdb_columns() WHERE NOT internal GROUP BY ALL"
    for name, column_names in connection.execute(f"{query} HAVING count(comment) < count(*)").fetchall():
        described = DATABASE.get(name)
        if described is not None:
            texts = {f"{'VIEW' if name in views else 'TABLE'} {name}": described.text}
            for column, text in described.columns.items():
                if column in column_names:  # an older table gets its new columns when a release of its kind is stored
                    texts[f'COLUMN {name}."{column}"'] = text
            connection.execute("; ".join(f"COMMENT ON {what} IS {quote_literal(text)}" for what, text in texts.items()))


FORMAT = 1
"""Version of the tables of the database. A database of version 0.1.0, which has the same tables, states none.

Increase it if an earlier version of the software would misread the tables, and convert older databases in
``store_release``.
"""

CLOSED_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": False,
    "lock_configuration": True,
}
"""Settings of every connection: it has no access to other files, and no statement can change the settings."""

STORAGE = "v1.0.0"
"""Version of DuckDB's storage: all later versions read and write it, and it has all that the tables need.

DuckDB 2 alone can open a file that DuckDB 2 makes without it. Such a file is rewritten when a release is added.
"""

_BLOCK_BYTES = 1 << 16
"""Bytes of a block. With DuckDB's own 262,144, a few small releases take 7 MB; with fewer, large tables take more.

A database keeps the size of its blocks. Every version of DuckDB from 1.1 on reads it.
"""

_STORAGE_NUMBER = 64
"""Number of that storage in the file's header; see :func:`_read_storage_number`."""

_LOCK_SECONDS = 60.0

_HELD_MESSAGES = ("Could not set lock", "different configuration")
"""Messages of DuckDB for a file that another process, or another connection of this process, has open."""

_DAMAGED_MESSAGE = "Corrupt database file"
"""Part of DuckDB's message for a file whose bytes do not match their checksums."""

_NEWER_DUCKDB_MESSAGE = "newer version of DuckDB"
"""Part of DuckDB's message for a file that it is too old to read; before it, DuckDB 1.5 has "an", and 2.0 "a"."""

_RELEASE_TABLES = ("releases", "flows", "group_size_releases", "group_sizes", "stops_releases", "stops_boxes")
"""Tables with one row per release, and tables of released numbers, of each kind. They name every stored release."""

_CHECKS = pa.schema([("subject", pa.string()), ("check", pa.string()), ("passed", pa.bool_())])


Rows: TypeAlias = pa.Table | pa.RecordBatchReader
"""Rows of a table."""


def store_release(kind: Kind[R], database: Path, release: R, key: ReleaseKey, certificate: Certificate) -> None:
    """Add a checked release to the release database.

    If the database already has rows of the release in some tables, these rows are compared, and rows are added to the
    other tables only. Derived tables are not compared, because they are computed from public data. Rows that were
    stored with another certificate of the same measurements are replaced.

    The release is added to a copy, which then replaces the database in one step. DuckDB overwrites parts of its file in
    place, and can no longer open the file if the process is killed in the middle of such a write.

    Raises:
        OdError: the database has different numbers for the release, or is damaged; another process writes to it for
            longer than a minute; the disk is full; or a newer version of the software wrote it.
    """

    def write_copy(copy: Path) -> None:
        """Write the database with the release to a temporary file, which exists and is empty."""
        if database.exists():
            shutil.copyfile(database, copy)
            if _read_storage_number(copy) > _STORAGE_NUMBER:
                _rewrite_in_older_storage(copy)
        else:
            copy.unlink()  # DuckDB refuses an empty file
        _add_release(copy, kind, release, key, certificate)

    _replace_database(database, write_copy)


def remove_release(database: Path, key: ReleaseKey) -> None:
    """Remove all rows of a release, also from the free space of the file. Raises OdError as :func:`store_release`."""

    def write_copy(copy: Path) -> None:
        """Write the database without the release to a temporary file."""
        shutil.copyfile(database, copy)
        with duckdb.connect(str(copy), config=CLOSED_SETTINGS) as connection:
            _delete_rows_of_release(connection, key)
        _rewrite_in_older_storage(copy)

    if key in list_stored_releases(database):
        _replace_database(database, write_copy)


def _replace_database(database: Path, write_copy: Callable[[Path], None]) -> None:
    """Replace the database, or create it, by the temporary file that ``write_copy`` writes, given its path.

    Other programs cannot write to the database meanwhile. Raises OdError as :func:`store_release`.
    """
    make_folder(database.parent)
    with lock_file(
        database.with_name(f".{database.name}.lock"), _make_locked_database_error(database.name), seconds=_LOCK_SECONDS
    ):
        for left_behind in database.parent.glob(f".{database.name}.*.tmp*"):  # by processes that died
            left_behind.unlink()
        with _block_writers(database):
            try:
                with _refuse_damaged_rows(database.name):
                    write_durably(database, write_copy, mode=PUBLIC_FILE_MODE)
            except (OSError, duckdb.IOException, duckdb.FatalException, duckdb.TransactionException):
                raise OdError(
                    "OD-DISK-WRITE",
                    f"{database.name} cannot be written completely",
                    next_step="free space on its disk, or check it, then run the release again, which draws nothing",
                    spent="nothing more was spent",
                ) from None


def _read_storage_number(path: Path) -> int:
    """Return the number of the storage version that a DuckDB file states in its header, in the 8 bytes from byte 12."""
    with path.open("rb") as file:
        file.seek(12)
        return int.from_bytes(file.read(8), "little")


@contextmanager
def _block_writers(database: Path) -> Iterator[None]:
    """Keep other programs from writing to the database while this context lasts. They may read it.

    A write-ahead log beside the database, with rows that a killed program had committed, is first moved into it.
    """
    if not database.exists():
        yield
        return
    if database.with_name(f"{database.name}.wal").exists():
        with open_database(database) as connection:
            connection.execute("CHECKPOINT")
    with open_database(database, read_only=True):
        yield


def _rewrite_in_older_storage(database: Path) -> None:
    """Rewrite a database that nothing else has open in storage version :data:`STORAGE`, without free space."""
    older = database.with_name(f"{database.name}.older")
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH {quote_literal(str(database))} AS newer (READ_ONLY)")
        connection.execute(
            f"ATTACH {quote_literal(str(older))} AS older (STORAGE_VERSION '{STORAGE}', BLOCK_SIZE {_BLOCK_BYTES})"
        )
        connection.execute("COPY FROM DATABASE newer TO older; CHECKPOINT older")
    older.replace(database)


def _add_release(database: Path, kind: Kind[R], release: R, key: ReleaseKey, certificate: Certificate) -> None:
    """Add a release to a database that nothing else has open, and move all rows from the log into the file.

    Arguments and errors are those of :func:`store_release`.
    """
    config = CLOSED_SETTINGS | {"storage_compatibility_version": STORAGE, "default_block_size": _BLOCK_BYTES}
    config["threads"] = 1  # two would fill row groups in part, and the checkpoint would write all of them again
    with duckdb.connect(str(database), config=config) as connection:
        connection.execute("BEGIN TRANSACTION")
        connection.execute(
            render_template("database/shared.sql", format=FORMAT) + render_template(kind.schema, release=release)
        )
        set_comments(connection)
        for geography in kind.list_geographies(release):
            _store_areas(connection, geography)
        compared = kind.make_tables(release, certificate)
        tables = {
            kind.facts_table: _make_release_row(kind, release, key, certificate),
            **compared,
            **kind.derive_tables(release, certificate),
            "checks": _make_checks_table(certificate),
        }
        _remove_replaced(connection, kind.facts_table, key, certificate)
        for table, rows in tables.items():
            if not _has_rows(connection, table, key):
                _insert_rows(connection, table, rows, key)
            elif table in compared and _has_other_rows(connection, key, table, rows):
                raise OdError(
                    "OD-RELEASE-CHANGED",
                    f"the database already holds different {table} with the name {key}",
                    next_step="restore the ledger and the measurements from which it was published",
                    spent=STAYS_CHARGED,
                )
        connection.execute("COMMIT")
        connection.execute("CHECKPOINT")  # closing the database does the same, but hides an error


def _remove_replaced(connection: duckdb.DuckDBPyConnection, facts: str, key: ReleaseKey, new: Certificate) -> None:
    """Remove all rows of a release if its stored certificate is another one of the same measurements.

    Such rows are of a run that died before the release was published, or of a damaged bundle that later software
    replaces. ``facts`` is the name of the table with the certificate, and ``new`` the certificate to store.
    """
    query = f"SELECT certificate FROM {facts} WHERE release = ?"  # noqa: S608  # names in the code
    row = connection.execute(query, [str(key)]).fetchone()
    if row is None:
        return
    (stored,) = row
    if stored != json.dumps(new, sort_keys=True) and json.loads(stored).get("ledger") == new.get("ledger"):
        _delete_rows_of_release(connection, key)


def _delete_rows_of_release(connection: duckdb.DuckDBPyConnection, key: ReleaseKey) -> None:
    """Remove the rows of a release from all tables that exist."""
    tables = [name for name, described in DATABASE.items() if "release" in described.columns]
    for table in _select_existing_tables(connection, tables):
        connection.execute(f"DELETE FROM {table} WHERE release = ?", [str(key)])  # noqa: S608  # names in the code


def _make_release_row(kind: Kind[R], release: R, key: ReleaseKey, certificate: Certificate) -> pa.Table:
    """Return the row of a release in the table that has one row per release of its kind."""
    facts = {
        "series": key.release,
        "period": key.period,
        "revision": key.revision,
        "mechanism": certificate["mechanism"]["name"],
        "unit": release.plan.unit.kind,
        "neighbours": release.plan.unit.neighbours,
        "epsilon": certificate["spent"]["epsilon"],
        "measured_at": certificate["measured_at"],
        "certificate": json.dumps(certificate, sort_keys=True),
        **kind.make_row(release),
    }
    return pa.Table.from_pylist([facts])


def _make_checks_table(certificate: Certificate) -> pa.Table:
    """Return the outcomes of the checks in a certificate as rows: subject, check, passed."""
    return pa.Table.from_pylist(list(certificate["checks"]), schema=_CHECKS)


def _store_areas(connection: duckdb.DuckDBPyConnection, geography: Geography) -> None:
    """Replace the stored areas of a geography. Names, aliases and coordinates that it lacks stay."""
    areas = make_areas_table(geography)
    lacking = [name for name in ("name", "aliases", *COORDINATES) if name not in areas.column_names]
    connection.register("new_rows", areas)
    connection.execute(render_template("database/areas.sql", geography=geography.digest, lacking=lacking))
    connection.unregister("new_rows")


def _has_other_areas(connection: duckdb.DuckDBPyConnection, geography: Geography) -> bool:
    """Return whether the stored areas of a geography differ from its areas.

    Names and coordinates are not compared: those that are stored may be of another series.
    """
    columns = "level, level_name, area, parent, position"
    areas = make_areas_table(geography).select(columns.split(", ")).to_pylist()
    query = f"SELECT {columns} FROM areas WHERE geography = ? ORDER BY level, position"  # noqa: S608  # names in the code
    stored = connection.execute(query, [geography.digest]).fetchall()
    return stored != [tuple(area.values()) for area in areas]


def find_differences(
    kind: Kind[R], database: Path, release: R, key: ReleaseKey, certificate: Certificate
) -> Iterator[str]:
    """Yield one line per difference between the database and a release's bundle; derived tables are not compared."""
    with open_database(database, read_only=True) as connection:
        if _has_other_rows(connection, key, kind.facts_table, _make_release_row(kind, release, key, certificate)):
            yield "its facts of the release differ from the certificate"
        if _has_other_rows(connection, key, "checks", _make_checks_table(certificate)):
            yield "its checks differ"
        for geography in kind.list_geographies(release):
            if _has_other_areas(connection, geography):
                yield "its areas differ"
        for table, rows in kind.make_tables(release, certificate).items():
            if _has_other_rows(connection, key, table, rows):
                yield f"its {table} differ"


def list_stored_releases(database: Path) -> list[ReleaseKey]:
    """Return the sorted keys of the releases of which the database has rows; empty if there is no database."""
    if not database.exists():
        return []
    with open_database(database, read_only=True) as connection:
        return read_release_keys(connection)


def read_every_row(database: Path) -> None:
    """Read every row of the database, if there is one. Raises OdError if a part of it is damaged."""
    if not database.exists():
        return
    with open_database(database, read_only=True) as connection:
        columns_of_tables = (
            "SELECT table_name, list(column_name) FROM duckdb_columns() SEMI JOIN duckdb_tables() USING (table_name)"
            " GROUP BY ALL"
        )
        for table, columns in connection.execute(columns_of_tables).fetchall():
            hashes = ", ".join(f"max(hash({quote_identifier(column)}))" for column in columns)
            connection.execute(f"SELECT {hashes} FROM {quote_identifier(table)}").fetchall()  # noqa: S608  # quoted
        for table in _select_existing_tables(connection, _RELEASE_TABLES):
            for key in read_release_keys(connection, [table])[:1]:
                _has_rows(connection, table, key)  # reads its index, too


def read_release_keys(
    connection: duckdb.DuckDBPyConnection, tables: Sequence[str] = _RELEASE_TABLES
) -> list[ReleaseKey]:
    """Return the sorted keys of the releases that the given tables name; by default, the tables of all kinds."""
    queries = [f"SELECT release FROM {table}" for table in _select_existing_tables(connection, tables)]  # noqa: S608  # names above
    names = connection.execute(" UNION ".join(queries)).fetchall() if queries else []
    return sorted(ReleaseKey.parse(name) for (name,) in names)


def _select_existing_tables(connection: duckdb.DuckDBPyConnection, tables: Sequence[str]) -> list[str]:
    """Return the given tables that exist in the database; the tables of a kind that was never stored do not."""
    existing = {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    return [table for table in tables if table in existing]


def _has_rows(connection: duckdb.DuckDBPyConnection, table: str, key: ReleaseKey) -> bool:
    """Return whether a table has rows of a release."""
    query = f"SELECT 1 FROM {table} WHERE release = ? LIMIT 1"  # noqa: S608  # names in the code
    return bool(connection.execute(query, [str(key)]).fetchall())


def _has_other_rows(connection: duckdb.DuckDBPyConnection, key: ReleaseKey, table: str, rows: Rows) -> bool:
    """Return whether the stored rows of a release differ from ``rows``, in any order. ``rows`` are read once."""
    connection.register("new_rows", rows)
    counts = (  # a new row counts 1, and a stored row -1, so the copies of equal rows sum to 0
        f"SELECT *, 1 AS copies FROM new_rows UNION ALL BY NAME"  # noqa: S608  # names in the code
        f" SELECT * EXCLUDE release, -1 AS copies FROM {table} WHERE release = ?"
    )
    query = f"SELECT * EXCLUDE copies FROM ({counts}) GROUP BY ALL HAVING sum(copies) <> 0 LIMIT 1"  # noqa: S608
    differing = connection.execute(query, [str(key)]).fetchall()
    connection.unregister("new_rows")
    return bool(differing)


def _insert_rows(connection: duckdb.DuckDBPyConnection, table: str, rows: Rows, key: ReleaseKey) -> None:
    """Add the rows of a release to a table; columns that they lack are empty."""
    connection.register("new_rows", rows)
    query = f"SELECT {quote_literal(str(key))} AS release, * FROM new_rows"  # noqa: S608  # a key is plain text
    connection.execute(f"INSERT INTO {table} BY NAME {query}")
    connection.unregister("new_rows")


@contextmanager
def open_database(database: Path, *, read_only: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """Wait until no other program writes to the database, then yield a connection to it.

    Raises:
        OdError: the file is missing, damaged or cannot be written; a newer version of the software wrote it; or another
            program keeps it open for longer than a minute.
    """
    deadline = time.monotonic() + _LOCK_SECONDS
    connection = None
    while connection is None:
        try:
            connection = duckdb.connect(str(database), read_only=read_only, config=CLOSED_SETTINGS)
        except duckdb.Error as error:
            refuse_newer_duckdb(error, database.name)
            if not any(words in str(error) for words in _HELD_MESSAGES):
                raise _make_broken_database_error(database.name) from None
            if time.monotonic() > deadline:
                raise _make_locked_database_error(database.name) from None
            time.sleep(0.2)
    try:
        refuse_newer_database(connection, database.name)
        with _refuse_damaged_rows(database.name):
            yield connection
    except duckdb.IOException:
        raise _make_broken_database_error(database.name) from None
    finally:
        connection.close()


@contextmanager
def _refuse_damaged_rows(name: str) -> Iterator[None]:
    """Raise OdError for a damaged part of a database, which is met when its rows are read."""
    try:
        yield
    except duckdb.Error as error:
        if _DAMAGED_MESSAGE in str(error):
            raise _make_broken_database_error(name, "is damaged") from None
        raise


def _make_broken_database_error(
    name: str, fault: str = "is not a release database, is damaged, or cannot be written"
) -> OdError:
    """Return the OdError for a database that cannot be used, given its file name and what is wrong with it."""
    return OdError(
        "OD-DATABASE-BROKEN",
        f"{name} {fault}",
        next_step="restore it, or remove it and run the releases again, which draws no new noise",
        spent="nothing more was spent",
    )


def _make_locked_database_error(name: str) -> OdError:
    """Return the OdError for a database that stayed open elsewhere for too long."""
    return OdError(
        "OD-DATABASE-LOCKED",
        f"{name} is open in another process or elsewhere in this process",
        next_step="close the programs that have it open, then run the release again, which draws no new noise",
        spent="nothing more was spent",
    )


def refuse_newer_database(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Raise OdError if a newer version of this software wrote the database with the file name ``name``."""
    if _select_existing_tables(connection, ["format"]):
        newest = connection.execute("SELECT max(version) FROM format").fetchall()[0][0]
        if newest is not None and newest > FORMAT:
            raise _make_newer_database_error(
                f"{name} has format {newest}, and this od-release reads up to format {FORMAT}", "od-release"
            )


def refuse_newer_duckdb(error: duckdb.Error, name: str) -> None:
    """Raise OdError if an error of DuckDB means that a newer DuckDB wrote the file with the name ``name``."""
    if _NEWER_DUCKDB_MESSAGE in str(error):
        raise _make_newer_database_error(
            f"{name} was written by a newer version of DuckDB than {duckdb.__version__}", "DuckDB"
        ) from None


def _make_newer_database_error(message: str, software: str) -> OdError:
    """Return the OdError for a database that newer software wrote."""
    return OdError(
        "OD-DATABASE-NEWER",
        message,
        next_step=f"use at least the version of {software} that wrote it, or restore the copy from before the upgrade",
        spent="nothing more was spent",
    )
