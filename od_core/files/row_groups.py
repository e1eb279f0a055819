"""Parquet files written piece by piece, whose bytes do not tell how the pieces were cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 1 << 20
"""Rows of a row group; only one group is held at a time."""


def write_batches(
    target: Path | BinaryIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, compression: str
) -> None:
    """Write the rows of consecutive batches into a file that is named or open."""
    with pq.ParquetWriter(target, schema, compression=compression) as writer:
        for group in _groups(schema, batches):
            writer.write_table(group, row_group_size=ROWS)


def _groups(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The same rows in groups of ``ROWS`` rows, each in one piece; the last one has the rest."""
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
