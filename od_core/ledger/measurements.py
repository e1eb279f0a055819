"""Keep noisy measurements, which are written once and read from then on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from od_core.errors import STAYS_CHARGED, OdError
from od_core.files.checked_file import Written, write_checked
from od_core.files.durable import CONFIDENTIAL_FILE_MODE, file_digest, sync, write_durably
from od_core.ledger.chain import DRAWING, MEASURED, RESERVED
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.identity import Counted, hold_to_input
from od_core.ledger.ledger import Ledger, LevelState
from od_core.ledger.object_store import LocalStore, Store, kept_digest, part_files
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.plan import Plan, Step

Draw = Callable[[], Iterable[NDArray[np.int64]]]
"""Function that draws a level and returns it in consecutive pieces."""


class Measurements(Protocol):
    """A store of measurements, so that no level is drawn twice under one charge."""

    def once(self, step: Step, draw: Draw) -> NoisyVector:
        """Return the noisy values of a step: the kept ones, or else those that are drawn now and kept."""
        ...


class MemoryMeasurements:
    """A store of measurements in memory, for one call."""

    def __init__(self) -> None:
        self._noisy: dict[int, NoisyVector] = {}

    def once(self, step: Step, draw: Draw) -> NoisyVector:
        """Return the values as :meth:`Measurements.once`."""
        if step.level not in self._noisy:
            self._noisy[step.level] = NoisyVector.in_memory(draw())
        return self._noisy[step.level]


def begin_release(
    confidential: ConfidentialFolder,
    ledger: Ledger,
    key: ReleaseKey,
    domain: str,
    plan: Plan,
    trips: Counted,
    noise: str | None = None,
    store: Store | None = None,
) -> DurableMeasurements:
    """Reserve a release, check its input, and return its measurements, which are the same at every resume.

    The charge comes first: a release that the cap refuses leaves nothing behind. ``noise`` names the backend that will
    draw levels that are not measured yet.

    Raises:
        OdError: the cap does not allow the release; the release was begun with another plan or other records.
    """
    ledger.reserve(key, domain, plan)
    hold_to_input(confidential, key, trips, drawn=ledger.is_drawn(key))
    folder = confidential.subfolder(key.folder)
    for left_behind in folder.glob(".*.tmp"):  # from a process that died while it wrote
        left_behind.unlink()
    measurements = DurableMeasurements(folder, ledger, key, noise, store)
    # A process that died may have left names that are not durable yet. They are relied on from here on.
    for name in (key.folder, *key.folder.parents):
        sync(confidential.path / name)
    sync(confidential.path.parent)
    measurements.store.settle()
    return measurements


class DurableMeasurements:
    """A store of measurements in files that are written once, with each draw recorded in the ledger before and after.

    The order makes a draw safe against a kill at any point. DRAWING is durable before the first random bit. The file is
    durable, under its final name, before MEASURED. Nothing reads the values before that.
    """

    def __init__(
        self, folder: Path, ledger: Ledger, key: ReleaseKey, noise: str | None = None, store: Store | None = None
    ) -> None:
        self.ledger = ledger
        self.key = key
        self.noise = noise
        self.store = LocalStore(folder) if store is None else store
        """Store of the levels that were measured part by part (:mod:`od_core.flows.parts`)."""
        self._folder = folder

    def once(self, step: Step, draw: Draw) -> NoisyVector:
        """Return the values as :meth:`Measurements.once`.

        Raises:
            OdError: the level is not reserved; the cap does not allow another draw of a lost level; a measurement file
                is missing, changed or unknown to the ledger.
        """
        state = self.ledger.level_state(self.key, step.level)
        self._refuse_unknown_files(step.level, state)
        if state is not None and state.kind == DRAWING and self._path(step.level, state.draw).exists():
            # The process died between renaming the file and entering MEASURED: the draw is whole, not lost.
            digest = file_digest(self._path(step.level, state.draw))
            self.ledger.finish_draw(self.key, step.level, state.draw, digest)
        elif state is None or state.kind != MEASURED:
            number = self.ledger.start_draw(self.key, step.level, self.noise)
            path = self._path(step.level, number)
            written = write_durably(path, partial(_write_draw, draw))
            self.ledger.finish_draw(self.key, step.level, number, written.digest)
            return NoisyVector(path)
        return self.read(step)

    def read(self, step: Step) -> NoisyVector:
        """Return the kept noisy values of a measured step.

        Raises:
            OdError: the level is not measured; its file is missing or differs from the one that was measured.
        """
        state = self.ledger.level_state(self.key, step.level)
        if state is None or state.kind != MEASURED:
            raise OdError(
                "OD-MEASUREMENT-ABSENT",
                f"level {step.level} of {self.key} is not measured",
                next_step="run the release",
                spent=STAYS_CHARGED,
            )
        path = self._path(step.level, state.draw)
        if not path.exists() and kept_digest(self.store, step.level) == state.digest:
            parts = part_files(self.store, step.level)
            return NoisyVector(*(partial(self.store.read, part) for part in parts))
        if not path.exists() or file_digest(path) != state.digest:
            raise OdError(
                "OD-MEASUREMENT-CHANGED",
                f"the measurement of level {step.level} of {self.key} is {'changed' if path.exists() else 'missing'}",
                next_step=f"restore {path.name}, or the files of its parts, in the confidential folder from a backup",
                spent=STAYS_CHARGED,
            )
        return NoisyVector(path)

    def keep_parts_here(self, levels: Iterable[int]) -> None:
        """Copy measurements of parts from a store elsewhere into the folder from which releases are read back."""
        here = LocalStore(self._folder)
        for level in levels:
            for name in part_files(self.store, level):
                if self.store != here and not here.has(name):
                    here.create_if_absent(name, self.store.read(name).read_buffer())

    def _path(self, level: int, draw: int) -> Path:
        return self._folder / f"noisy_measurement_{level}.draw_{draw}.parquet"

    def _refuse_unknown_files(self, level: int, state: LevelState | None) -> None:
        """Refuse a file of a draw that the ledger has not begun: the ledger is older than the file. Raises OdError."""
        begun = 0 if state is None else state.draw - (state.kind == RESERVED)
        known = {self._path(level, draw) for draw in range(1, begun + 1)}
        if set(self._folder.glob(f"noisy_measurement_{level}.draw_*.parquet")) - known:
            raise OdError(
                "OD-LEDGER-ROLLED-BACK",
                f"level {level} of {self.key} has a measurement that the ledger does not record",
                next_step="restore the newest ledger; an older one does not record all that was spent",
                spent=STAYS_CHARGED,
            )


def _write_draw(draw: Draw, path: Path) -> Written:
    """Draw a level into a file; return the digest of the values drawn."""
    pieces = draw()  # before the file is opened: a run that begins meanwhile removes temporary files
    return write_checked(path, lambda file: write_noisy(file, pieces), mode=CONFIDENTIAL_FILE_MODE)


# Noisy values of a level as Parquet files of plain integers, written and read in pieces.


ROW_GROUP = 1 << 20
"""Values per row group. The number is fixed, so that the bytes of a file depend on its values alone."""

_SCHEMA = pa.schema([pa.field("noisy", pa.int64(), nullable=False)])


Source: TypeAlias = Path | pa.Buffer | Callable[[], pa.NativeFile]
"""A file, its content, or a function that opens it."""


class NoisyVector:
    """A vector of noisy values in tree order, in files or in memory. The level above determines their nodes."""

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
        """Keep the values in memory, in the format of a file."""
        sink = pa.BufferOutputStream()
        write_noisy(sink, pieces)
        return cls(sink.getvalue())

    def values(self) -> NDArray[np.int64]:
        """Return all values at once; shape (len,)."""
        return next(self.pieces([len(self)]))

    def pieces(self, sizes: Iterable[int]) -> Iterator[NDArray[np.int64]]:
        """Yield the values in consecutive read-only pieces of the given sizes, reading one row group at a time."""
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
        """Yield the values of every row group."""
        for source in self._sources:
            with _opened(source) as file:
                for group in range(file.num_row_groups):
                    yield file.read_row_group(group)["noisy"].combine_chunks().to_numpy()


def _opened(source: Source) -> pq.ParquetFile:
    return pq.ParquetFile(source() if callable(source) else source)


def write_noisy(sink: Path | BinaryIO | pa.BufferOutputStream, pieces: Iterable[NDArray[np.int64]]) -> None:
    """Write the values of consecutive pieces; only one row group is in memory at a time.

    The encoding packs small differences into only as many bits as the noise needs, without a codec. Any Parquet reader
    supports it, and it is as fast as the kernels.
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
