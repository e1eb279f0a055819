"""Write the flows of a release as an Excel workbook: a sheet that explains them, and one for each pair of levels."""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from od_core.files.table_writers import Sheet, write_workbook
from od_core.flows.publishing.flow_tables import FlowTables, LevelPair, largest, pair_names, with_names
from od_core.publication.columns import CONFIDENCE

MOST_ROWS = 10_000
"""Largest number of flows in a sheet. A sheet of Excel has at most 1,048,576 rows, and takes long to open with them."""

_LONGEST_NAME = 31
"""Largest number of characters of a sheet's name in Excel."""


def write_flow_workbook(tables: FlowTables, certificate: dict[str, Any], file: BinaryIO) -> None:
    """Write the workbook: the largest flows of each pair of levels, at most ``MOST_ROWS``, largest first."""
    sheets = [_flows(tables, pair, name) for pair, name in zip(tables.pairs, sheet_names(tables), strict=True)]
    write_workbook(file, [_explanation(tables, certificate, sheets), *sheets])


def sheet_names(tables: FlowTables) -> list[str]:
    """Return the name of the sheet of each pair of levels."""
    pairs = pair_names(tables.tree, tables.breakdowns)
    names = [name.removeprefix("flows_") for name in pairs.values()]
    return (
        names if max(map(len, names)) <= _LONGEST_NAME else [f"{origin}_{destination}" for origin, destination in pairs]
    )


def _flows(tables: FlowTables, pair: LevelPair, name: str) -> Sheet:
    trips = pair.flows["trips"].to_numpy(np.int64)
    shown = largest(trips, MOST_ROWS)
    listed = "all" if len(shown) == len(trips) else f"the {len(shown):,} largest of"
    origin = tables.tree.origin.level_names[pair.origin_level]
    destination = tables.tree.destination.level_names[pair.destination_level]
    line = f"Flows from {origin} to {destination}: {listed} {len(trips):,} rows, largest first"
    rows = pa.table(pair.columns).take(pa.array(shown))
    return Sheet(name, [line], with_names(tables.tree, rows, (pair.origin_level, pair.destination_level), " "))


def _explanation(tables: FlowTables, certificate: dict[str, Any], sheets: list[Sheet]) -> Sheet:
    """Return the first sheet: what the workbook is, the guarantee, how to read a number, and a list of the sheets."""
    interval = (
        "Every number contains noise. lower and upper are the ends of a"
        f" {100 * CONFIDENCE} % interval: the true number of counted trips lies between them with a probability of"
        " about nine tenths. A 0 is an estimate, too: there may be up to upper trips."
        if tables.interval
        else "Every number contains noise. A pair of areas that is not listed was released as 0 trips."
    )
    lines = [
        f"{certificate['data_set']}: flows of {certificate['period']}, revision {certificate['revision']}"
        f" ({certificate['release']})",
        certificate["guarantee"]["protected"],
        interval,
        "Each sheet has one pair of levels, and each pair of levels contains all trips once: do not add rows of"
        " different sheets.",
        f"A sheet has at most {MOST_ROWS:,} rows, the largest flows. All flows are in the CSV files and in"
        " flows.parquet. codebook.md explains every column, and certificate.html what is protected.",
    ]
    all_trips = [int(pair.flows["trips"].sum()) for pair in tables.pairs]
    listed = pa.table(
        {
            "sheet": [sheet.name for sheet in sheets],
            "rows": [len(sheet.table) for sheet in sheets],
            "rows left out": [
                len(pair.flows) - len(sheet.table) for pair, sheet in zip(tables.pairs, sheets, strict=True)
            ],
            "trips in all": all_trips,
        }
    )
    return Sheet("Read me", lines, listed, width=100)
