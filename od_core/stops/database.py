"""Trips with stops in the public release database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from od_core.archive.release_key import ReleaseKey
from od_core.publication.store import Contents, differing_entry, differing_tables, release_facts, store
from od_core.stops.release import StopsRelease

_SCHEMA = """
CREATE TABLE IF NOT EXISTS stops_releases (
    release VARCHAR PRIMARY KEY, series VARCHAR, period VARCHAR, revision BIGINT, mechanism VARCHAR, unit VARCHAR,
    neighbours VARCHAR, epsilon DOUBLE, trips BIGINT, grid BIGINT[], measured_at VARCHAR, certificate VARCHAR);
CREATE TABLE IF NOT EXISTS stops_boxes (
    release VARCHAR, lower INTEGER[], upper INTEGER[], "count" BIGINT, noisy BIGINT);
"""


def store_stops(database: Path, release: StopsRelease, key: ReleaseKey, certificate: dict[str, Any]) -> None:
    """Put checked boxes into the database, in one transaction; the same release again changes nothing.

    Raises:
        OdError: as :func:`od_core.publication.store.store`.
    """
    contents = Contents(
        schema=_SCHEMA,
        facts_table="stops_releases",
        facts=_row(release, key, certificate),
        geographies=(),
        tables=_tables(release),
        checks=certificate["checks"],
    )
    store(database, key, contents)


def differing_stops(
    database: Path, release: StopsRelease, key: ReleaseKey, certificate: dict[str, Any]
) -> Iterator[str]:
    """What the database says of a release otherwise than its bundle."""
    row = _row(release, key, certificate)
    yield from differing_entry(database, key, "stops_releases", row, certificate["checks"])
    yield from (f"it holds other {table}" for table in differing_tables(database, key, _tables(release)))


def _tables(release: StopsRelease) -> dict[str, pa.Table]:
    boxes = release.measured
    lists = {"lower": list(boxes.lower), "upper": list(boxes.upper)}
    columns = {name: pa.array(values, pa.list_(pa.int32())) for name, values in lists.items()}
    return {"stops_boxes": pa.table({**columns, "count": release.counts, "noisy": boxes.noisy})}


def _row(release: StopsRelease, key: ReleaseKey, certificate: dict[str, Any]) -> dict[str, Any]:
    """What the table of releases says of one."""
    return {
        **release_facts(release, key, certificate),
        "trips": int(release.counts.sum()),
        "grid": list(release.plan.grid.sizes),
    }
