"""Describe tables with any columns: CSV (also compressed by gzip), Parquet, or a table of a DuckDB file."""

from __future__ import annotations

from od_core.records.format import RecordColumns, RecordFormat

TABLE = RecordFormat("table", "named", RecordColumns(), takes=("delimiter", "encoding", "table", "timestamps"))
"""Format of a DuckDB table if ``table`` is stated; else of Parquet if the file name ends in .parquet; else of CSV."""
