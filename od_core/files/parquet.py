"""Write Parquet files whose bytes depend on their rows alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 1 << 20
"""Number of rows per row group. Only one group is in memory at a time."""


def write_batches(
    target: Path | BinaryIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, compression: str
) -> None:
    """Write consecutive batches to a Parquet file, whose bytes do not depend on how the rows are cut into batches."""
    with pq.ParquetWriter(target, schema, compression=compression) as writer:
        for group in _groups(schema, batches):
            writer.write_table(group, row_group_size=ROWS)


def _groups(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of the batches in tables of ``ROWS`` rows with one chunk per column; the last may be shorter."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= ROWS:
            table = pa.Table.from_batches(waiting, schema)
            whole = len(table) - len(table) % ROWS
            for start in range(0, whole, ROWS):
                yield table.slice(start, ROWS).combine_chunks()
            waiting = table.slice(whole).to_batches()
    if waiting:
        yield pa.Table.from_batches(waiting, schema).combine_chunks()
