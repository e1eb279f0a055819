"""Group-size tables in the public release database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from od_core.archive.release_key import ReleaseKey
from od_core.group_sizes.release import GroupSizeRelease
from od_core.publication.store import Contents, differing_entry, differing_tables, release_facts, store

_SCHEMA = """
CREATE TABLE IF NOT EXISTS group_size_releases (
    release VARCHAR PRIMARY KEY, series VARCHAR, period VARCHAR, revision BIGINT, mechanism VARCHAR, unit VARCHAR,
    neighbours VARCHAR, epsilon DOUBLE, groups BIGINT, geography VARCHAR, measured_at VARCHAR, certificate VARCHAR);
CREATE TABLE IF NOT EXISTS group_sizes (release VARCHAR, level VARCHAR, area VARCHAR, size BIGINT, groups BIGINT);
CREATE TABLE IF NOT EXISTS group_size_measurements (
    release VARCHAR, level VARCHAR, area VARCHAR, position BIGINT, noisy BIGINT, scale DOUBLE);
"""


def store_group_sizes(database: Path, release: GroupSizeRelease, key: ReleaseKey, certificate: dict[str, Any]) -> None:
    """Put a checked table into the database, in one transaction; the same release again changes nothing.

    Raises:
        OdError: as :func:`od_core.publication.store.store`.
    """
    store(
        database,
        key,
        Contents(
            schema=_SCHEMA,
            facts_table="group_size_releases",
            facts=_row(release, key, certificate),
            geographies=(release.plan.frame.geography,),
            tables=_tables(release),
            checks=certificate["checks"],
        ),
    )


def differing_group_sizes(
    database: Path, release: GroupSizeRelease, key: ReleaseKey, certificate: dict[str, Any]
) -> Iterator[str]:
    """What the database says of a table otherwise than its bundle."""
    row = _row(release, key, certificate)
    areas = [release.plan.frame.geography]
    yield from differing_entry(database, key, "group_size_releases", row, certificate["checks"], areas)
    yield from (f"it holds other {table}" for table in differing_tables(database, key, _tables(release)))


def _tables(release: GroupSizeRelease) -> dict[str, pa.Table]:
    frames: dict[str, pd.DataFrame] = {
        "group_sizes": release.histogram,
        "group_size_measurements": release.measurements,
    }
    return {name: pa.Table.from_pandas(frame, preserve_index=False) for name, frame in frames.items()}


def _row(release: GroupSizeRelease, key: ReleaseKey, certificate: dict[str, Any]) -> dict[str, Any]:
    """What the table of releases says of one."""
    frame = release.plan.frame
    return {
        **release_facts(release, key, certificate),
        "groups": int(frame.groups.sum()),
        "geography": frame.geography.digest,
    }
