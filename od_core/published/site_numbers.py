"""Read the numbers that a site repeats outside of bundles: the largest flows, and the totals of areas."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from od_core.files.duckdb_session import make_parquet_sql, open_folder_database
from od_core.publication.bundle_files import PARQUET, locate_table
from od_core.publication.templates import render_template

_MOST = {"largest_flows": 50, "area_totals": 10_000}  # rows (of areas: on each side), those with the most trips
_NUMBERS = ("trips", "lower", "upper", "reliability")


def read_quoted_numbers(place: Path, geographies: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Return the ``largest_flows`` and the ``area_totals`` of the bundle in the folder ``place``, the largest first.

    ``geographies`` are the digests of the geographies, by side. Rows have those of ``_NUMBERS`` that the table of flows
    has, and names of areas, which may be None. Without a table of flows, there are none.
    """
    flows, areas = (locate_table(place, PARQUET[name]) for name in ("flows", "areas"))
    if not flows.is_file():
        return {name: [] for name in _MOST}
    table = pq.read_table(areas)
    if "name" not in table.column_names:
        table = table.append_column("name", pa.nulls(len(table), pa.string()))
    given = {**geographies, "columns": [name for name in _NUMBERS if name in pq.read_schema(flows).names]}
    sql = {name: render_template(f"rows/{name}.sql", **given, most=most) for name, most in _MOST.items()}
    with open_folder_database(place) as connection:
        connection.execute(f"CREATE VIEW flows AS FROM {make_parquet_sql(flows)}")
        connection.register("areas", table)
        return {name: connection.sql(query).to_arrow_table().to_pylist() for name, query in sql.items()}
