"""The public tables of a release, the same in bundle and database."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from od_core.geography import Geography
from od_core.release import Release, measured_cells


def flows_table(release: Release) -> pa.Table:
    """The leaf flows: origin, destination (zone codes), trips."""
    return pa.Table.from_pandas(release.flows, preserve_index=False).replace_schema_metadata(None)


def measurement_batches(release: Release) -> Iterator[pa.RecordBatch]:
    """All measured cells, top level first, piece by piece: level, origin, destination (codes), noisy, variance."""
    for measurement in release.measured:
        yield from measured_cells(release.plan, measurement)


def areas_table(geography: Geography) -> pa.Table:
    """One row an area: geography (digest), level, level_name, area, parent, position.

    ``position`` is the area's number in its level; the tree and the order of every table follow from it.
    """
    rows = [
        {
            "geography": geography.digest,
            "level": level,
            "level_name": geography.level_names[level],
            "area": area,
            "parent": None if level == 0 else geography.codes[level - 1][geography.parents[level][position]],
            "position": position,
        }
        for level in range(geography.depth + 1)
        for position, area in enumerate(geography.codes[level])
    ]
    fields = {"level": pa.int64(), "position": pa.int64()}
    names = ("geography", "level", "level_name", "area", "parent", "position")
    return pa.Table.from_pylist(rows, schema=pa.schema([(name, fields.get(name, pa.string())) for name in names]))
