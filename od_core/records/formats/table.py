"""Records or flows in a table of any columns: CSV (also compressed by gzip), Parquet, or a table of a DuckDB file."""

from __future__ import annotations

from od_core.records.format import RecordColumns, RecordFormat

TABLE = RecordFormat("table", "named", RecordColumns(), takes=("delimiter", "encoding", "table"))
"""A file whose name ends in ``.parquet`` is Parquet, one with a ``table`` is DuckDB's, any other CSV."""
