"""The noisy values of one level as one Parquet file of plain integers, written and read in pieces (spec 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

ROW_GROUP = 1 << 20
"""Values of a row group: fixed, so that the bytes of a file are a function of its values alone."""

_SCHEMA = pa.schema([pa.field("noisy", pa.int64(), nullable=False)])


Source: TypeAlias = Path | pa.Buffer | Callable[[], pa.NativeFile]
"""A file, its content, or what opens it."""


class NoisyVector:
    """Noisy values in tree order, in files or in memory; what they belong to follows from the level above."""

    def __init__(self, *sources: Source) -> None:
        self._sources = sources
        self._length = 0
        for source in sources:
            with _opened(source) as file:
                self._length += int(file.metadata.num_rows)

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
        """The values in consecutive pieces of the given sizes, not to be changed; reads a row group at a time."""
        groups = self._groups()
        rest = np.empty(0, dtype=np.int64)
        for size in sizes:
            parts, missing = [], size
            while missing > len(rest):
                parts.append(rest)
                missing -= len(rest)
                rest = next(groups)
            parts.append(rest[:missing])
            rest = rest[missing:]
            # Most pieces lie in one group and are not copied.
            piece = parts[0] if len(parts) == 1 else np.concatenate(parts)
            piece.flags.writeable = False
            yield piece

    def _groups(self) -> Iterator[NDArray[np.int64]]:
        """The values of every row group."""
        for source in self._sources:
            with _opened(source) as file:
                for group in range(file.num_row_groups):
                    yield file.read_row_group(group)["noisy"].combine_chunks().to_numpy()


def _opened(source: Source) -> pq.ParquetFile:
    return pq.ParquetFile(source() if callable(source) else source)


def write_noisy(sink: Path | BinaryIO | pa.BufferOutputStream, pieces: Iterable[NDArray[np.int64]]) -> None:
    """Write the values of consecutive pieces; only one row group is held at a time.

    Small differences packed in bits, without a codec: as many bits as the noise has, any reader reads it, and
    encoding is as fast as the kernels (measured beside the alternatives in spec 7).
    """
    group: list[pa.Array] = []
    room = ROW_GROUP
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
            values = pa.array(piece)
            while len(values) >= room:
                _write_group(writer, [*group, values[:room]])
                values, group, room = values[room:], [], ROW_GROUP
            group.append(values)
            room -= len(values)
        if room < ROW_GROUP:
            _write_group(writer, group)


def _write_group(writer: pq.ParquetWriter, values: list[pa.Array]) -> None:
    writer.write_table(pa.table([pa.chunked_array(values)], schema=_SCHEMA), row_group_size=ROW_GROUP)
