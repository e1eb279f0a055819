"""The noisy values of one level as one Parquet file of plain integers, written and read in pieces (spec 7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

ROW_GROUP = 1 << 20
"""Values of a row group: fixed, so that the bytes of a file are a function of its values alone."""

_SCHEMA = pa.schema([pa.field("noisy", pa.int64(), nullable=False)])


class NoisyVector:
    """Noisy values in tree order, in a file or in memory; what they belong to follows from the level above."""

    def __init__(self, source: Path | pa.Buffer) -> None:
        self._source = source
        with self._opened() as file:
            self._length = int(file.metadata.num_rows)

    def __len__(self) -> int:
        return self._length

    @classmethod
    def in_memory(cls, pieces: Iterable[NDArray[np.int64]]) -> NoisyVector:
        """Keep the values here, in the form that a file has."""
        sink = pa.BufferOutputStream()
        write_noisy(sink, pieces)
        return cls(sink.getvalue())

    def values(self) -> NDArray[np.int64]:
        """All values at once; shape (len,)."""
        return next(self.pieces([len(self)]))

    def pieces(self, sizes: Iterable[int]) -> Iterator[NDArray[np.int64]]:
        """The values in consecutive pieces of the given sizes, each a new array; reads a row group at a time."""
        with self._opened() as file:
            groups = (
                file.read_row_group(number)["noisy"].combine_chunks().to_numpy()
                for number in range(file.num_row_groups)
            )
            group, used = np.empty(0, dtype=np.int64), 0
            for size in sizes:
                piece = np.empty(size, dtype=np.int64)
                filled = 0
                while filled < size:
                    if used == len(group):
                        group, used = next(groups), 0
                    count = min(size - filled, len(group) - used)
                    piece[filled : filled + count] = group[used : used + count]
                    filled, used = filled + count, used + count
                yield piece

    def _opened(self) -> pq.ParquetFile:
        return pq.ParquetFile(self._source)


def write_noisy(sink: Path | pa.BufferOutputStream, pieces: Iterable[NDArray[np.int64]]) -> None:
    """Write the values of consecutive pieces; only one row group is held at a time.

    Small differences packed in bits, without a codec: as many bits as the noise has, any reader reads it, and
    encoding is as fast as the kernels (measured beside the alternatives in spec 7).
    """
    group, used = np.empty(ROW_GROUP, dtype=np.int64), 0
    with pq.ParquetWriter(
        sink,
        _SCHEMA,
        use_dictionary=False,
        column_encoding={"noisy": "DELTA_BINARY_PACKED"},
        compression="none",
        write_statistics=False,
        store_schema=False,
    ) as writer:
        for piece in pieces:
            taken = 0
            while taken < len(piece):
                count = min(len(piece) - taken, ROW_GROUP - used)
                group[used : used + count] = piece[taken : taken + count]
                taken, used = taken + count, used + count
                if used == ROW_GROUP:
                    _write_group(writer, group)
                    used = 0
        if used:
            _write_group(writer, group[:used])


def _write_group(writer: pq.ParquetWriter, values: NDArray[np.int64]) -> None:
    writer.write_table(pa.table([pa.array(values)], schema=_SCHEMA), row_group_size=ROW_GROUP)
