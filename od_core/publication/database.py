"""The file of the public release database: what goes in, in one transaction, and what is there already."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from od_core.errors import OdError
from od_core.files.durable import PUBLIC_FILE_MODE, make_folder, sync
from od_core.geography.geography import Geography
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.database_comments import describe
from od_core.publication.kind import Certified
from od_core.publication.tables import areas_table

_SHARED = """
CREATE TABLE IF NOT EXISTS areas (
    geography VARCHAR, level BIGINT, level_name VARCHAR, area VARCHAR, parent VARCHAR, position BIGINT,
    latitude DOUBLE, longitude DOUBLE);
ALTER TABLE areas ADD COLUMN IF NOT EXISTS latitude DOUBLE;
ALTER TABLE areas ADD COLUMN IF NOT EXISTS longitude DOUBLE;
CREATE TABLE IF NOT EXISTS checks (release VARCHAR, subject VARCHAR, "check" VARCHAR, passed BOOLEAN);
"""
"""Tables of all kinds of releases."""

CLOSED: dict[str, str | bool | int | float | list[str]] = {"enable_external_access": False, "lock_configuration": True}
"""How the database is opened: it reaches no other file, and nothing that is in it can change that."""

_LOCK_SECONDS = 60.0

_HELD = ("Could not set lock", "different configuration")
"""DuckDB's words for a file that another process, or another connection of this one, has open."""

_NAMED = ("releases", "flows", "group_size_releases", "group_sizes", "stops_releases", "stops_boxes")
"""Tables that name every release that the database knows of, facts and figures of each kind."""

_CHECKS = pa.schema([("subject", pa.string()), ("check", pa.string()), ("passed", pa.bool_())])


@dataclass(frozen=True)
class Contents:
    """What the database holds of one release.

    Attributes:
        schema: SQL that makes the tables of its kind where they are not there.
        facts_table: the table with one row a release of its kind.
        facts: that row.
        geographies: whose areas its tables name.
        tables: figures by table, without the column ``release``; what is there under its name must be the same.
        derived: further tables, which follow from public facts.
        checks: outcomes of its checks: subject, check, passed.
    """

    schema: str
    facts_table: str
    facts: Mapping[str, Any]
    geographies: Sequence[Geography]
    tables: Mapping[str, pa.Table | pa.RecordBatchReader]
    checks: Sequence[Mapping[str, Any]]
    derived: Mapping[str, pa.Table | pa.RecordBatchReader] = field(default_factory=dict)


def store(database: Path, key: ReleaseKey, contents: Contents) -> None:
    """Put a checked release into the database, in one transaction; the same again adds what is missing, if anything.

    Raises:
        OdError: the database holds other figures under that name; another process holds it for longer than a minute;
            it is damaged.
    """
    with opened(database) as connection:
        connection.execute("BEGIN TRANSACTION")
        connection.execute(_SHARED + contents.schema)
        describe(connection)  # a hundred comments: ten times as fast in one transaction
        connection.execute("COMMIT")
        _close_to_others(database)
        connection.execute("BEGIN TRANSACTION")
        for geography in contents.geographies:
            _store_areas(connection, geography)
        if not _holds(connection, contents.facts_table, key):
            _insert(connection, contents.facts_table, pa.Table.from_pylist([dict(contents.facts)]))
        for table, rows in contents.tables.items():
            if _holds(connection, table, key):
                _refuse_other(connection, key, table, rows)
            else:
                _insert(connection, table, rows, key)
        checks = pa.Table.from_pylist(list(contents.checks), schema=_CHECKS)
        for table, rows in {**contents.derived, "checks": checks}.items():
            if not _holds(connection, table, key):
                _insert(connection, table, rows, key)
        connection.execute("COMMIT")
        _into_the_file(connection, database)


def release_facts(release: Certified, key: ReleaseKey, certificate: dict[str, Any]) -> dict[str, Any]:
    """What the database says of a release of any kind, in its row of the table of its kind."""
    return {
        "release": str(key),
        "series": key.release,
        "period": key.period,
        "revision": key.revision,
        "mechanism": certificate["mechanism"]["name"],
        "unit": release.plan.unit.kind,
        "neighbours": release.plan.unit.neighbours,
        "epsilon": certificate["spent"]["epsilon"],
        "measured_at": certificate["measured_at"],
        "certificate": json.dumps(certificate, sort_keys=True),
    }


def _store_areas(connection: duckdb.DuckDBPyConnection, geography: Geography) -> None:
    """The areas of a geography; coordinates that another series has given them stay where this one gives none."""
    digest = [geography.digest]
    connection.execute("CREATE OR REPLACE TEMP TABLE kept AS SELECT * FROM areas WHERE geography = ?", digest)
    connection.execute("DELETE FROM areas WHERE geography = ?", digest)
    _insert(connection, "areas", areas_table(geography))
    if geography.coordinates is None:
        connection.execute(
            "UPDATE areas SET latitude = kept.latitude, longitude = kept.longitude FROM kept"
            " WHERE areas.geography = ? AND areas.level = kept.level AND areas.area = kept.area",
            digest,
        )
    connection.execute("DROP TABLE kept")


def differing_entry(
    database: Path,
    key: ReleaseKey,
    facts_table: str,
    facts: Mapping[str, Any],
    checks: Sequence[Mapping[str, Any]],
    geographies: Sequence[Geography] = (),
) -> Iterator[str]:
    """What the database says of a release beside its figures, where that is not what its bundle says."""
    with opened(database, read_only=True) as connection:

        def found(columns: str, table: str) -> list[tuple[Any, ...]]:
            query = f"SELECT {columns} FROM {table} WHERE release = ?"  # noqa: S608  # names in the code
            return connection.execute(query, [str(key)]).fetchall()

        (stored,) = found(", ".join(facts), facts_table) or [(None,) * len(facts)]
        if stored != tuple(facts.values()):
            yield "it says something else of the release than the certificate"
        stated = sorted((check["subject"], check["check"], check["passed"]) for check in checks)
        if sorted(found('subject, "check", passed', "checks")) != stated:
            yield "it holds other checks"
        for geography in geographies:
            columns = "level, level_name, area, parent, position"  # coordinates are those that another series gave last
            areas = areas_table(geography).select(columns.split(", ")).to_pylist()
            query = f"SELECT {columns} FROM areas WHERE geography = ? ORDER BY level, position"  # noqa: S608  # names in the code
            if connection.execute(query, [geography.digest]).fetchall() != [tuple(area.values()) for area in areas]:
                yield "it holds other areas"


def stored_releases(database: Path) -> list[ReleaseKey]:
    """Every release of which the database has figures or facts, in order; none where there is no database."""
    if not database.exists():
        return []
    with opened(database, read_only=True) as connection:
        return named_releases(connection)


def named_releases(connection: duckdb.DuckDBPyConnection, tables: Sequence[str] = _NAMED) -> list[ReleaseKey]:
    """The releases that some tables name, in order; of all kinds if no tables are given."""
    queries = [f"SELECT release FROM {table}" for table in _present(connection, tables)]  # noqa: S608  # names above
    names = connection.execute(" UNION ".join(queries)).fetchall() if queries else []
    return sorted(ReleaseKey.parse(name) for (name,) in names)


def is_stored(database: Path, key: ReleaseKey) -> bool:
    """Whether the database holds a release of that name. Raises OdError where it cannot be read."""
    if not database.exists():
        return False
    with opened(database, read_only=True) as connection:
        return any(_holds(connection, table, key) for table in _present(connection, _NAMED))


def _present(connection: duckdb.DuckDBPyConnection, tables: Sequence[str]) -> list[str]:
    """Those of the tables that are there: a kind of release that was never stored has none."""
    there = {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    return [table for table in tables if table in there]


def _holds(connection: duckdb.DuckDBPyConnection, table: str, key: ReleaseKey) -> bool:
    query = f"SELECT 1 FROM {table} WHERE release = ? LIMIT 1"  # noqa: S608  # names in the code
    return bool(connection.execute(query, [str(key)]).fetchall())


def differing_tables(
    database: Path, key: ReleaseKey, tables: Mapping[str, pa.Table | pa.RecordBatchReader]
) -> list[str]:
    """Names of the tables that hold other rows under a release's name."""
    with opened(database, read_only=True) as connection:
        return [table for table, rows in tables.items() if _differs(connection, key, table, rows)]


def _refuse_other(
    connection: duckdb.DuckDBPyConnection, key: ReleaseKey, table: str, rows: pa.Table | pa.RecordBatchReader
) -> None:
    """What is public under a name stays what it is."""
    if _differs(connection, key, table, rows):
        raise OdError(
            "OD-RELEASE-CHANGED",
            f"the database holds other {table} under the name {key}",
            next_step="restore the ledger and the measurements that it was published from",
            spent="what was set aside before stays charged",
        )


def _differs(
    connection: duckdb.DuckDBPyConnection, key: ReleaseKey, table: str, rows: pa.Table | pa.RecordBatchReader
) -> bool:
    """Whether a table holds other rows of a release than these, which are read once."""
    connection.register("new_rows", rows)
    both = (
        f"SELECT *, 1 AS copies FROM new_rows UNION ALL BY NAME"  # noqa: S608  # names in the code
        f" SELECT * EXCLUDE release, -1 AS copies FROM {table} WHERE release = ?"
    )
    summed = f"SELECT * EXCLUDE copies, sum(copies) AS difference FROM ({both}) GROUP BY ALL"  # noqa: S608
    differing = connection.execute(
        f"SELECT 1 FROM ({summed}) WHERE difference <> 0 LIMIT 1",  # noqa: S608
        [str(key)],
    ).fetchall()
    connection.unregister("new_rows")
    return bool(differing)


def _insert(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    rows: pa.Table | pa.RecordBatchReader,
    release: ReleaseKey | None = None,
) -> None:
    """Add rows to a table of one release, or of none."""
    connection.register("new_rows", rows)
    if release is None:
        connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM new_rows")  # noqa: S608  # names above
    else:
        named = f"INSERT INTO {table} BY NAME SELECT ? AS release, * FROM new_rows"  # noqa: S608  # names above
        connection.execute(named, [str(release)])
    connection.unregister("new_rows")


@contextmanager
def opened(database: Path, *, read_only: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """The database, as soon as no other process holds it; one that is not there is made, unless it is only read."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            while not (read_only or database.exists()):
                _create(database)
            connection = duckdb.connect(str(database), read_only=read_only, config=CLOSED)
            break
        except duckdb.Error as error:
            if not any(words in str(error) for words in _HELD):
                raise OdError(
                    "OD-DATABASE-BROKEN",
                    f"{database.name} is no release database, or cannot be written",
                    next_step="restore it, or remove it and run the releases again: nothing is drawn anew",
                    spent="nothing more was spent",
                ) from None
            if time.monotonic() > deadline:
                raise OdError(
                    "OD-DATABASE-LOCKED",
                    f"{database.name} is held by another process, or open elsewhere in this one",
                    next_step="close the programs that have it open, then run the release again: nothing is drawn anew",
                    spent="nothing more was spent",
                ) from None
            time.sleep(0.2)
    try:
        yield connection
    finally:
        connection.close()


def _create(database: Path) -> None:
    """Make an empty database beside its place, and put it there whole; of two processes that make it at once, one wins.

    DuckDB writes a new file in several steps, and opens no file in which one is missing: a process that died between
    them would leave a file that blocks every later run.
    """
    make_folder(database.parent)
    new = database.with_name(f".{database.name}.{os.getpid()}.new")
    try:
        duckdb.connect(str(new), config=CLOSED).close()
        with suppress(FileExistsError, FileNotFoundError):  # another process was faster, and removed this one's
            duckdb.connect(str(new), read_only=True, config=CLOSED).close()  # closing tells of no error
            new.chmod(PUBLIC_FILE_MODE)
            sync(new)
            database.hardlink_to(new)
            sync(database.parent)
    finally:
        for left_behind in database.parent.glob(f".{database.name}.*.new*"):  # of processes that died, too
            left_behind.unlink(missing_ok=True)


def _into_the_file(connection: duckdb.DuckDBPyConnection, database: Path) -> None:
    """Move what was committed from the log into the file, which people copy alone. Raises OdError where it fails.

    Closing the database does it, too, but keeps the error to itself and the log beside the file.
    """
    try:
        connection.execute("CHECKPOINT")
    except duckdb.TransactionException:
        return  # another connection of this process is writing, and moves it when it ends
    except duckdb.Error:
        raise OdError(
            "OD-DISK-WRITE",
            f"{database.name} cannot be written as a whole",
            next_step="make room on its disk, then run the release again: nothing is drawn anew",
            spent="nothing more was spent",
        ) from None


def _close_to_others(database: Path) -> None:
    """Take the log, which DuckDB makes with the first commit and removes at the end, from all but its owner to write.

    It is written into the database when that is opened again, and the umask may have left it open to everybody.
    """
    with suppress(FileNotFoundError):
        database.with_name(f"{database.name}.wal").chmod(PUBLIC_FILE_MODE)
