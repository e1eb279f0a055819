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

MOST_FLOWS, MOST_AREAS = 50, 10_000
"""Largest numbers of flows, and of areas of each side, whose numbers the site repeats: those with the most trips."""

_NUMBERS = ("trips", "lower", "upper", "reliability")


def read_quoted_numbers(place: Path, geographies: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Return the ``largest_flows`` and the ``area_totals`` of a bundle, the largest first, as rows of its tables.

    Each row has the columns of numbers that the table of flows has, and the names of its areas, which may be None. Both
    are of the finest levels. The flows are those between different areas. Without a table of flows, both are empty.

    Args:
        place: folder of the bundle.
        geographies: digests of the geographies, by side, as the certificate states them.
    """
    flows, areas = (locate_table(place, PARQUET[name]) for name in ("flows", "areas"))
    queries = {"largest_flows": MOST_FLOWS, "area_totals": MOST_AREAS}
    if not flows.is_file():
        return {name: [] for name in queries}
    named_areas = pq.read_table(areas)
    if "name" not in named_areas.column_names:
        named_areas = named_areas.append_column("name", pa.nulls(len(named_areas), pa.string()))
    columns = [name for name in _NUMBERS if name in pq.read_schema(flows).names]
    with open_folder_database(place) as connection:
        connection.execute(f"CREATE VIEW flows AS FROM {make_parquet_sql(flows)}")
        connection.register("areas", named_areas)
        numbers = {}
        for name, most in queries.items():
            sql = render_template(f"rows/{name}.sql", **geographies, columns=columns, most=most)
            numbers[name] = connection.sql(sql).to_arrow_table().to_pylist()
    return numbers
