"""The public release database: every release of a project in one DuckDB file."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from od_core.archive.release_key import ReleaseKey
from od_core.errors import OdError
from od_core.privacy.accounting import float_above
from od_core.publication.tables import areas_table, flows_table, measurement_batches
from od_core.release import MEASUREMENT_SCHEMA, Release

_SCHEMA = """
CREATE TABLE IF NOT EXISTS releases (
    release VARCHAR PRIMARY KEY, series VARCHAR, period VARCHAR, revision BIGINT, mechanism VARCHAR, unit VARCHAR,
    neighbours VARCHAR, rho DOUBLE, epsilon DOUBLE, delta DOUBLE, trips BIGINT, origin_geography VARCHAR,
    destination_geography VARCHAR, measured_at VARCHAR, certificate VARCHAR);
CREATE TABLE IF NOT EXISTS areas (
    geography VARCHAR, level BIGINT, level_name VARCHAR, area VARCHAR, parent VARCHAR, position BIGINT);
CREATE TABLE IF NOT EXISTS flows (release VARCHAR, origin VARCHAR, destination VARCHAR, trips BIGINT);
CREATE TABLE IF NOT EXISTS measurements (
    release VARCHAR, level BIGINT, origin VARCHAR, destination VARCHAR, noisy BIGINT, variance DOUBLE);
CREATE TABLE IF NOT EXISTS checks (release VARCHAR, subject VARCHAR, "check" VARCHAR, passed BOOLEAN);
CREATE TABLE IF NOT EXISTS expected_error (
    release VARCHAR, level BIGINT, origin_level VARCHAR, destination_level VARCHAR, root_mean_square_error DOUBLE);
CREATE OR REPLACE VIEW zone_areas AS
WITH RECURSIVE climb AS (
    SELECT geography, area AS zone, level, level_name, area, parent FROM areas
    WHERE (geography, level) IN (SELECT (geography, max(level)) FROM areas GROUP BY geography)
    UNION ALL
    SELECT climb.geography, zone, areas.level, areas.level_name, areas.area, areas.parent
    FROM climb JOIN areas
    ON areas.geography = climb.geography AND areas.level = climb.level - 1 AND areas.area = climb.parent)
SELECT geography, zone, level, level_name, area FROM climb;
CREATE OR REPLACE VIEW flows_by_level AS
SELECT flows.release, o.level_name AS origin_level, d.level_name AS destination_level,
    o.area AS origin, d.area AS destination, CAST(sum(flows.trips) AS BIGINT) AS trips
FROM flows
JOIN releases ON releases.release = flows.release
JOIN zone_areas o ON o.geography = releases.origin_geography AND o.zone = flows.origin
JOIN zone_areas d ON d.geography = releases.destination_geography AND d.zone = flows.destination
GROUP BY ALL;
"""

CLOSED: dict[str, str | bool | int | float | list[str]] = {"enable_external_access": False, "lock_configuration": True}
"""How the database is opened: it reaches no other file, and nothing that is in it can change that."""

_LOCK_SECONDS = 60.0

_HELD = ("Could not set lock", "different configuration")
"""DuckDB's words for a file that another process, or another connection of this one, has open."""


def store_release(database: Path, release: Release, key: ReleaseKey, certificate: dict[str, Any]) -> None:
    """Put a checked release into the database, in one transaction; the same release again changes nothing.

    Raises:
        OdError: the database holds other flows or measurements under that name; another process holds it for
            longer than a minute; it is damaged.
    """
    tree, row = release.plan.tree, _release_row(release, key, certificate)
    checks = list(certificate["checks"])
    check_types = pa.schema([("subject", pa.string()), ("check", pa.string()), ("passed", pa.bool_())])
    with _opened(database) as connection:
        connection.execute(_SCHEMA)
        connection.execute("BEGIN TRANSACTION")
        flows = flows_table(release)
        measurements = pa.RecordBatchReader.from_batches(MEASUREMENT_SCHEMA, measurement_batches(release))
        if _holds(connection, key):
            _refuse_other(connection, key, "flows", flows)
            _refuse_other(connection, key, "measurements", measurements)
            return
        for geography in (tree.origin, tree.destination):
            connection.execute("DELETE FROM areas WHERE geography = ?", [geography.digest])
            _insert(connection, "areas", areas_table(geography))
        _insert(connection, "releases", pa.Table.from_pylist([row]))
        _insert(connection, "flows", flows, key)
        _insert(connection, "measurements", measurements, key)
        _insert(connection, "checks", pa.Table.from_pylist(checks, schema=check_types), key)
        _insert(connection, "expected_error", _expected_error(release), key)
        connection.execute("COMMIT")


def _expected_error(release: Release) -> pa.Table:
    """Every level of the flow tree, and the error to expect there, from public facts alone."""
    names, errors = release.levels, release.plan.expected_errors
    return pa.table(
        {
            "level": range(len(errors)),
            "origin_level": [origin for origin, _ in names],
            "destination_level": [destination for _, destination in names],
            "root_mean_square_error": errors,
        }
    )


def _release_row(release: Release, key: ReleaseKey, certificate: dict[str, Any]) -> dict[str, Any]:
    """What the table of releases says of one."""
    tree = release.plan.tree
    spent = certificate["spent"]
    return {
        "release": str(key),
        "series": key.release,
        "period": key.period,
        "revision": key.revision,
        "mechanism": release.plan.mechanism.name,
        "unit": release.plan.unit.kind,
        "neighbours": release.plan.unit.neighbours,
        "rho": spent["rho"],
        "epsilon": spent["epsilon"],
        "delta": spent["delta"],
        "trips": int(release.leaves.trips.sum()),
        "origin_geography": tree.origin.digest,
        "destination_geography": tree.destination.digest,
        "measured_at": certificate["measured_at"],
        "certificate": json.dumps(certificate, sort_keys=True),
    }


def differing_facts(database: Path, release: Release, key: ReleaseKey, certificate: dict[str, Any]) -> Iterator[str]:
    """What the database says of a release beside its flows and noisy values, where that is not what its bundle says."""
    row = _release_row(release, key, certificate)
    variances = {step.level: float_above(step.variance) for step in release.plan.steps}
    checks = sorted((check["subject"], check["check"], check["passed"]) for check in certificate["checks"])
    with _opened(database, read_only=True) as connection:

        def found(columns: str, table: str) -> list[tuple[Any, ...]]:
            query = f"SELECT DISTINCT {columns} FROM {table} WHERE release = ?"  # noqa: S608  # names below
            return connection.execute(query, [str(key)]).fetchall()

        (stored,) = found(", ".join(row), "releases") or [(None,) * len(row)]
        if stored != tuple(row.values()):
            yield "it says something else of the release than the certificate"
        if not set(found("level, variance", "measurements")) <= set(variances.items()):
            yield "it holds other variances"
        if sorted(found('subject, "check", passed', "checks")) != checks:
            yield "it holds other checks"


def stored_releases(database: Path) -> list[ReleaseKey]:
    """Every release of which the database has flows or facts, in order; none where there is no database."""
    if not database.exists():
        return []
    with _opened(database, read_only=True) as connection:
        names = connection.execute("SELECT release FROM releases UNION SELECT release FROM flows").fetchall()
    return sorted(ReleaseKey.parse(name) for (name,) in names)


def is_stored(database: Path, key: ReleaseKey) -> bool:
    """Whether the database holds a release of that name. Raises OdError where it cannot be read."""
    if not database.exists():
        return False
    with _opened(database, read_only=True) as connection:
        return _holds(connection, key)


def _holds(connection: duckdb.DuckDBPyConnection, key: ReleaseKey) -> bool:
    return bool(connection.execute("SELECT 1 FROM releases WHERE release = ?", [str(key)]).fetchall())


def _refuse_other(
    connection: duckdb.DuckDBPyConnection, key: ReleaseKey, table: str, rows: pa.Table | pa.RecordBatchReader
) -> None:
    """What is public under a name stays what it is. Reads the rows once."""
    connection.register("new_rows", rows)
    both = (
        f"SELECT *, 1 AS copies FROM new_rows UNION ALL BY NAME"  # noqa: S608  # names above
        f" SELECT * EXCLUDE release, -1 AS copies FROM {table} WHERE release = ?"
    )
    summed = f"SELECT * EXCLUDE copies, sum(copies) AS difference FROM ({both}) GROUP BY ALL"  # noqa: S608
    differing = connection.execute(
        f"SELECT 1 FROM ({summed}) WHERE difference <> 0 LIMIT 1",  # noqa: S608
        [str(key)],
    ).fetchall()
    connection.unregister("new_rows")
    if differing:
        raise OdError(
            "OD-RELEASE-CHANGED",
            f"the database holds other {table} under the name {key}",
            next_step="restore the ledger and the measurements that it was published from",
            spent="what was set aside before stays charged",
        )


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
def _opened(database: Path, *, read_only: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """The database, as soon as no other process holds it."""
    database.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
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
