"""Write Parquet files whose bytes depend on their rows alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 1 << 20
"""Number of rows per row group. Only one group is in memory at a time."""


def write_batches(
    target: Path | BinaryIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, rows: int = ROWS, **options: Any
) -> None:
    """Write consecutive batches to a Parquet file, whose bytes do not depend on how the rows are cut into batches.

    A row group has ``rows`` rows. ``options`` are those of :class:`pyarrow.parquet.ParquetWriter`.
    """
    with pq.ParquetWriter(target, schema, **options) as writer:
        for group in _groups(schema, batches, rows):
            writer.write_table(group, row_group_size=rows)


def _groups(schema: pa.Schema, batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Yield the rows of the batches in tables of ``rows`` rows with one chunk per column; the last may be shorter."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= rows:
            table = pa.Table.from_batches(waiting, schema)
            whole = len(table) - len(table) % rows
            for start in range(0, whole, rows):
                yield table.slice(start, rows).combine_chunks()
            waiting = table.slice(whole).to_batches()
    if waiting:
        yield pa.Table.from_batches(waiting, schema).combine_chunks()
