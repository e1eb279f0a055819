"""Check the invariants of a release, each by one SQL query that counts its violations."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa

from od_core.files.duckdb_session import memory_database
from od_core.geography.codes import WHOLE_SPACE
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography, Numbers
from od_core.group_sizes.groups import Frame
from od_core.stops.geometry.grid import Grid
from od_core.stops.place_list import PlaceList

if TYPE_CHECKING:
    import duckdb

_PRIME = (1 << 61) - 1
"""Modulus of the random weights of grid cells. A product of two weights has at most 122 bits."""


def level_violations(
    tree: FlowTree, level: int, parents: tuple[int, pa.Table] | None, nodes: pa.Table
) -> dict[str, int]:
    """Return the number of violations in the estimate of a level, by name of the query.

    Args:
        tree: the public flow tree.
        level: level of the nodes.
        parents: the nearest estimated level above, and its estimate (origin, destination, trips); None for the first
            level.
        nodes: estimate of the level, as read from its file.
    """
    queries, tables = ["non_negative_integers"], {"nodes": nodes}
    if parents is not None:
        o_level, d_level = tree.level_pair(level)
        above, estimate = parents
        o_above, d_above = tree.level_pair(above)
        tables |= {
            "parents": estimate,
            "origin_parents": _steps(tree.origin, o_level, o_above),
            "destination_parents": _steps(tree.destination, d_level, d_above),
        }
        queries.append("children_sum_to_parents")
    return _counts(queries, tables)


def flow_violations(tree: FlowTree, level: int, nodes: pa.Table, flows: pa.Table) -> int:
    """Return the number of nodes of a level that differ from the sum of the leaf flows below them.

    ``flows`` has the numbers of the origin and destination zones, and the trips.
    """
    o_level, d_level = tree.level_pair(level)
    tables = {
        "nodes": nodes,
        "flows": flows,
        "origin_ancestors": _ancestors(tree.origin, o_level),
        "destination_ancestors": _ancestors(tree.destination, d_level),
    }
    return _count("same_at_every_level", tables)


def segment_violations(tree: FlowTree, levels: Mapping[int, pa.Table], segments: pa.Table) -> dict[str, int]:
    """Return the number of violations in the flows by category, by name of the check.

    Args:
        tree: the public flow tree.
        levels: estimate of the totals of each level (origin, destination, trips), by level.
        segments: numbers of the origin and destination zones, number of the category, and trips.
    """
    differing = (flow_violations(tree, level, nodes, segments) for level, nodes in levels.items())
    return {
        "segments_are_counts": _count("segments_are_counts", {"segments": segments}),
        "segments_sum_to_totals": sum(differing),
    }


def geography_violations(zones: pd.DataFrame, levels: Sequence[str]) -> int:
    """Return the number of areas of a zone list that occur twice in a level, or lack a parent or children."""
    above = [WHOLE_SPACE] * len(zones)
    tables = [pd.DataFrame({"level": [0], "area": [WHOLE_SPACE], "parent": [None]})]
    for level, name in enumerate(levels, start=1):
        table = pd.DataFrame({"level": level, "area": zones[name], "parent": above})
        tables.append(table if level == len(levels) else table.drop_duplicates())
        above = list(zones[name])
    return _count("geography_is_a_partition", {"areas": pa.Table.from_pandas(pd.concat(tables), preserve_index=False)})


def group_size_violations(frame: Frame, histograms: pa.Table) -> dict[str, int]:
    """Return the number of violations in a group-size table, by name of the query.

    Args:
        frame: the public areas, numbers of groups and top code.
        histograms: columns level, area (both numbers), size and groups, as read from their file.
    """
    geography = frame.geography
    areas = pd.DataFrame(
        [
            (level, area, None if level == 1 else int(geography.parents[level][area]), groups)
            for level in frame.levels
            for area, groups in enumerate(frame.totals(level).tolist())
        ],
        columns=["level", "area", "parent", "groups"],
    )
    tables = {
        "histograms": histograms,
        "areas": pa.Table.from_pandas(areas, preserve_index=False),
        "sizes": pa.table({"top_code": [frame.top_code]}),
    }
    names = ("group_sizes_are_counts", "group_sizes_sum_to_totals", "group_sizes_add_up")
    return _counts(names, tables)


def place_violations(places: PlaceList) -> int:
    """Return the number of places that are listed twice, have no code, or are not on the map."""
    listed, columns = places.to_frame(), places.columns
    west, east, south, north = places.map.edges
    degrees = {
        name: pd.to_numeric(listed[getattr(columns, name)], errors="coerce") for name in ("longitude", "latitude")
    }
    tables = {
        "places": pa.Table.from_pandas(pd.DataFrame({"code": listed[columns.code], **degrees}), preserve_index=False),
        "map": pa.table({"west": [west], "east": [east], "south": [south], "north": [north]}),
    }
    return _count("places_are_on_the_map", tables)


def box_violations(grid: Grid, boxes: pa.Table) -> dict[str, int]:
    """Return the number of violations in the boxes of a release, by name of the query.

    Args:
        grid: the public grid.
        boxes: columns lower_1, lower_2, ..., upper_1, upper_2, ..., count and noisy, as read from their file.
    """
    ends, cuts = [], []
    for number, size in enumerate(grid.sizes, start=1):
        first, last = (boxes[f"{end}_{number}"].to_numpy().astype(np.int64) for end in ("lower", "upper"))
        ends.append(
            pd.DataFrame({"box": range(len(boxes)), "dimension": number, "first_cell": first, "last_cell": last})
        )
        places = np.unique(np.concatenate([[0, size], first, last + 1]))
        below = [0, *(secrets.randbelow(_PRIME) for _ in places[1:])]
        cuts.append(pd.DataFrame({"dimension": number, "cut": places, "below": below}))
    tables = {
        "boxes": boxes,
        "ends": pa.Table.from_pandas(pd.concat(ends), preserve_index=False),
        "cuts": pa.Table.from_pandas(pd.concat(cuts), preserve_index=False),
        "grid": pa.table({"dimension": range(1, grid.dimensions + 1), "size": list(grid.sizes)}),
    }
    names = ("boxes_fill_the_grid", "box_counts_are_counts", "box_counts_keep_the_total")
    return _counts(names, tables)


def _count(query: str, tables: dict[str, pa.Table]) -> int:
    return _counts([query], tables)[query]


def _counts(queries: Sequence[str], tables: dict[str, pa.Table]) -> dict[str, int]:
    """Return the number of violations, by name of the SQL file in ``checks/sql``.

    The tables are those of one connection, and end with it.
    """
    folder, counts = files("od_assets.checks").joinpath("sql"), {}
    with _database(os.getpid()).cursor() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        for query in queries:
            sql = folder.joinpath(f"{query}.sql").read_text(encoding="utf-8")
            counts[query] = int(connection.execute(sql).fetchall()[0][0])
    return counts


@cache
def _database(_process: int) -> duckdb.DuckDBPyConnection:
    """Return the one database of a process. To open a database takes longer than to run a query.

    It is in memory, because unpublished values must not reach the disk. A forked process opens its own, because it has
    no threads of the one that it inherits.
    """
    return memory_database()


def _steps(geography: Geography, level: int, above: int) -> pa.Table:
    """Return a table of each area of a level and its ancestor at the level ``above``, which may be the same level."""
    areas = np.arange(geography.size(level), dtype=np.int32)
    return _pairs("area", areas, "parent", geography.ancestors_at(level, above))


def _ancestors(geography: Geography, level: int) -> pa.Table:
    return _pairs("zone", np.arange(len(geography.zones), dtype=np.int32), "area", geography.ancestors(level))


def _pairs(left: str, left_areas: Numbers, right: str, right_areas: Numbers) -> pa.Table:
    return pa.table({left: left_areas, right: right_areas})
