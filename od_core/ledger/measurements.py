"""Charge releases to a ledger before they are drawn, and store their noisy measurements.

Each measurement is written once, and then only read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from od_core.errors import STAYS_CHARGED, OdError
from od_core.files.durable import (
    CONFIDENTIAL_FILE_MODE,
    Written,
    compute_file_digest,
    sync,
    write_checked,
    write_durably,
)
from od_core.files.table_writers import write_batches
from od_core.ledger.chain import DRAWING, MEASURED, RESERVED
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.ledger import Ledger, LevelState, hold_to_unit
from od_core.ledger.object_store import LocalStore, Store, compute_level_digest, list_part_files
from od_core.ledger.release_key import ReleaseKey
from od_core.ledger.staged_files import Counted, CountedT, PlanT, ReleaseT, hold_to_input
from od_core.ledger.user_counters import UserCounters
from od_core.meaning.features import refuse_unsupported
from od_core.noise.backends import (
    NoiseSource,
    check_noise,
    find_backend_name,
    refuse_too_wide,
    require_laplace_source,
    resolve_noise_source,
)
from od_core.parallel import delay_interrupts
from od_core.periods import Period
from od_core.privacy.domain import list_charged_periods
from od_core.privacy.plan import LaplaceStep, Plan, Step, UncountedStep
from od_core.privacy.unit import PrivacyUnit

Draw = Callable[[], Iterable[NDArray[np.int64]]]
"""Function that draws the noisy values of a level when it is called, and returns them in consecutive arrays."""


class Measurements(Protocol):
    """A store of measurements, which ensures that no level is drawn twice under one charge."""

    def draw_once(self, step: Step, draw: Draw) -> NoisyVector:
        """Return the stored noisy values of a step. If there are none, call ``draw`` and store its values first."""


class MemoryMeasurements:
    """A store of measurements in memory, for a release without a ledger."""

    def __init__(self) -> None:
        self._noisy: dict[int, NoisyVector] = {}

    def draw_once(self, step: Step, draw: Draw) -> NoisyVector:
        """Return the noisy values of a step. The first call for the step draws them."""
        if step.number not in self._noisy:
            self._noisy[step.number] = NoisyVector.from_arrays(draw())
        return self._noisy[step.number]


def begin_release(
    confidential: ConfidentialFolder,
    ledger: Ledger,
    key: ReleaseKey,
    domain: str,
    plan: Plan,
    trips: Counted,
    noise: str | None = None,
    store: Store | None = None,
    counters: UserCounters | None = None,
) -> DurableMeasurements:
    """Reserve a release, check its input, and return its store of measurements.

    If the release was begun before, the store contains the values that were drawn then. The release is reserved first,
    so if the cap does not allow it, no file is written. If the plan measures the number of uncounted trips, it is drawn
    here, because it follows from the counters alone.

    Args:
        confidential: folder of the files of the release.
        ledger, domain: ledger, and the data set in it to charge.
        key, plan: the release, and what it measures.
        trips: confidential counted input.
        noise: name of the backend that draws the levels that are not measured yet; None for ``opendp``.
        store: store of the levels that are measured in parts; by default the folder of the release.
        counters: confidential counters of users, stored with the counted input; only for a unit of a year.

    Raises:
        OdError: the cap does not allow the release; it was begun with another plan or with other records; public facts
            of the plan contradict an exact total; the key of fingerprints is lost; or the counters are missing, do not
            belong to the input, or exceed a bound.
    """
    if counters is None and plan.unit.is_of_year:
        message = f"a release of unit {plan.unit.kind!r} was counted without the counters of its users"
        step = "release it with a ledger and release_flows, or as a declared series"
        raise OdError("OD-YEAR-COUNTERS", message, next_step=step)
    drawn = ledger.is_drawn(key)
    if counters is not None and not drawn:
        counters.check_counts_and_bounds(trips)
    plan.refuse_other_counts(trips.total)
    confidential.refuse_lost_key()
    ledger.reserve(key, domain, plan)
    if counters is None:
        hold_to_input(confidential, key, trips, drawn=drawn)
    elif drawn:
        counters.hold_to_input(trips)
    folder = confidential.make_subfolder(key.folder)
    for left_behind in folder.glob(".*.tmp"):  # from a process that died while it wrote
        left_behind.unlink(missing_ok=True)  # another run may remove it, too
    measurements = DurableMeasurements(folder, ledger, key, noise, store)
    # A killed process may have made folders that are not durable yet. All later steps need them.
    for name in (key.folder, *key.folder.parents):
        sync(confidential.path / name)
    sync(confidential.path.parent)
    measurements.store.make_files_durable()
    if counters is not None and plan.uncounted_step is not None:
        uncounted_step = plan.uncounted_step
        draw = partial(_measure_uncounted_trips, uncounted_step, counters, noise or "opendp")
        measurements.draw_once(uncounted_step, draw)
    return measurements


def _measure_uncounted_trips(step: UncountedStep, counters: UserCounters, noise: str) -> Iterator[NDArray[np.int64]]:
    """Return the noisy number of uncounted trips, as an iterator over one array of shape (1,).

    The number is drawn when this function is called, not when the iterator is read. Without noise, it is confidential.
    """
    source = resolve_noise_source(noise)
    level, first, size = step.number, 0, 1  # the number is the only cell of its level
    drawn = check_noise(source, source.draw(step.variance, level, first, size), size)
    return iter([drawn + counters.count_uncounted_trips(step.max_trips)])


@dataclass(frozen=True)
class Charged:
    """The ledger to which a release is charged, and the key of the release.

    The name of its series is also the name of the domain that is charged.
    """

    ledger: Ledger
    key: ReleaseKey

    @property
    def confidential(self) -> ConfidentialFolder:
        """Folder ``confidential`` beside the ledger."""
        return ConfidentialFolder(self.ledger.path.parent / "confidential", self.ledger.has_drawn)

    def make_counters(self, unit: PrivacyUnit) -> UserCounters | None:
        """Return the counters of users for a unit of a year; None for other units.

        Raises OdError if the data set is not declared, or with another unit, or cannot charge the period.
        """
        if not unit.is_of_year:
            return None
        domain = self.key.release
        facts = self.ledger.read_declared_facts(domain)
        hold_to_unit(unit, facts, domain)
        elementary, year = facts["elementary_period"], facts["year"]
        list_charged_periods(Period(self.key.period), elementary, unit.kind)
        return UserCounters(self.confidential, self.ledger, self.key, domain, unit, elementary, year)


@contextmanager
def prepare_charge(
    plan: Plan, ledger: Ledger | None, release_id: str | None, noise: NoiseSource
) -> Iterator[Charged | None]:
    """Yield the ledger and the key that a caller gave, or None if the release has no ledger.

    While this context lasts, no other release is counted or drawn with the same ledger. ``release_id`` is the text of
    the key.

    Raises OdError if only one of ``ledger`` and ``release_id`` is given, or the plan is not supported with or without a
    ledger; or a ledger is given, and the ``release_id`` is not valid, the noise source is not a backend of this
    library, or another run does not end in time.
    """
    if (ledger is None) != (release_id is None):
        message = "a ledger needs a release_id, and a release_id needs a ledger"
        raise OdError("OD-RELEASE-KEY", message, next_step="give both, or neither")
    refuse_unsupported(plan.table, plan.features | {"no_ledger" if ledger is None else "ledger"})
    if ledger is None or release_id is None:
        yield None
        return
    if find_backend_name(noise) is None:
        raise OdError(
            "OD-NOISE-UNCERTIFIED",
            "this noise source is not a backend of this library, so a release with it cannot be charged or published",
            next_step="use one of the named noise backends",
        )
    charged = Charged(ledger, ReleaseKey.parse(release_id))
    with ledger.lock_for_release(), ledger.keep_open():
        yield charged


def draw_release(
    run: Callable[[PlanT, CountedT, NoiseSource, Measurements], ReleaseT],
    charged: Charged | None,
    plan: PlanT,
    counted: CountedT,
    noise: NoiseSource,
    counters: UserCounters | None = None,
) -> ReleaseT:
    """Return the release that ``run`` makes from a plan, the counted input, a noise source and stored measurements.

    With a ledger, the release is charged first, and its measurements are stored. A repeated call for the same release,
    which must have the same input, reads them back. Without a ledger, the measurements exist only during this call.

    Args:
        run: makes the release of a kind, such as ``run_plan`` in :mod:`od_core.flows.release`.
        charged: what the context :func:`prepare_charge` yields, in which this function must be called.
        plan, counted, noise: arguments of ``run``. The counted input is confidential.
        counters: result of :meth:`Charged.make_counters`, with which the input was counted.

    Raises:
        OdError: as in :func:`begin_release` and ``run``.
    """
    if charged is None:
        plan.refuse_other_counts(counted.total)
        return run(plan, counted, noise, MemoryMeasurements())
    ledger, key = charged.ledger, charged.key
    if counters is not None:
        counters.hold_to_input(counted)
    backend = find_backend_name(noise)
    measurements = begin_release(
        charged.confidential, ledger, key, key.release, plan, counted, backend, counters=counters
    )
    release = run(plan, counted, noise, measurements)
    return replace(
        release,
        spent=ledger.compute_spent_budget(key, plan),
        noise=ledger.read_noise_backends(key),
        uncounted=measurements.read_uncounted_trips(plan),
    )


def draw_laplace_release(
    run: Callable[[PlanT, CountedT, NoiseSource, Measurements], ReleaseT],
    plan: PlanT,
    counted: CountedT,
    noise: str | NoiseSource,
    ledger: Ledger | None,
    release_id: str | None,
) -> ReleaseT:
    """Return a release of a plan whose steps all have discrete Laplace noise; see :func:`draw_release`.

    Raises OdError if the noise source cannot draw Laplace noise this wide, or as :func:`prepare_charge` and
    :func:`draw_release` do.
    """
    source = resolve_noise_source(noise)
    require_laplace_source(source)
    refuse_too_wide(source, (step.variance_bound for step in plan.steps))
    with prepare_charge(plan, ledger, release_id, source) as charged:
        return draw_release(run, charged, plan, counted, source)


class DurableMeasurements:
    """A store of measurements in files. The ledger records each draw before it begins and after its file is written.

    A process that is killed at any point leaves no noise that is not charged, and no file that is only partly written:
    the entry DRAWING is durable before noise is drawn; the file is durable, under its final name, before the entry
    MEASURED is made; only then do other steps read the values. A draw that ends too early is lost and stays charged.

    Args:
        folder: confidential folder of the release.
        ledger, key: ledger that records the draws, and the release.
        noise: name of the noise backend, for the ledger.
        store: store of the levels that are measured in parts (:mod:`od_core.flows.parts`); by default the folder.
    """

    def __init__(
        self, folder: Path, ledger: Ledger, key: ReleaseKey, noise: str | None = None, store: Store | None = None
    ) -> None:
        self.ledger = ledger
        self.key = key
        self.noise = noise
        self.store = LocalStore(folder) if store is None else store
        self._folder = folder
        self._known: dict[int, NoisyVector] = {}

    def draw_once(self, step: Step, draw: Draw) -> NoisyVector:
        """Return the stored noisy values of a step. If there are none, call ``draw`` and store its values first.

        Raises OdError if the level is not reserved; a draw was lost and the cap does not allow another one; a
        measurement file is missing or changed; or there is a file of a draw that the ledger does not record.
        """
        state = self.ledger.find_level_state(self.key, step.number)
        self._refuse_unknown_files(step.number, state)
        if state is not None and state.kind == MEASURED:
            return self.read(step)
        if state is not None and state.kind == DRAWING:
            path = self._locate_draw(step.number, state.draw)
            if path.exists():
                # The process ended after it renamed the file, and before it entered MEASURED: no draw is lost.
                self.ledger.finish_draw(self.key, step.number, state.draw, compute_file_digest(path))
                return self.read(step)
        with delay_interrupts():
            number = self.ledger.start_draw(self.key, step.number, self.noise)
            path = self._locate_draw(step.number, number)
            written = write_durably(path, partial(_write_draw, draw))
            self.ledger.finish_draw(self.key, step.number, number, written.digest)
        return NoisyVector(path)

    def list_lost_steps(self, steps: Iterable[Step]) -> list[int]:
        """Return the numbers of the steps whose draw has begun but left no file, so that it must be charged once more.

        ``steps`` must not have a step that is measured in parts, because its files are elsewhere.
        """
        lost = []
        for step in steps:
            state = self.ledger.find_level_state(self.key, step.number)
            if state is None or state.kind != DRAWING:
                continue
            if not self._locate_draw(step.number, state.draw).exists():
                lost.append(step.number)
        return lost

    def read(self, step: Step) -> NoisyVector:
        """Return the stored noisy values of a measured step. This object reads and checks each file only once.

        Raises OdError if the level is not measured, or its file is missing or has changed since it was measured.
        """
        if step.number not in self._known:
            self._known[step.number] = self._read_and_check(step)
        return self._known[step.number]

    def _read_and_check(self, step: Step) -> NoisyVector:
        """Return the values of a measured step, from its file or those of its parts. Raises OdError as :meth:`read`."""
        state = self.ledger.find_level_state(self.key, step.number)
        if state is None or state.kind != MEASURED:
            message = f"level {step.level} of {self.key} is not measured"
            raise OdError("OD-MEASUREMENT-ABSENT", message, next_step="run the release", spent=STAYS_CHARGED)
        path = self._locate_draw(step.number, state.draw)
        if not path.exists() and compute_level_digest(self.store, step.number) == state.digest:
            names = list_part_files(self.store, step.number)
            return NoisyVector(*(partial(self.store.read, name) for name in names))
        content = path.read_bytes() if path.exists() else b""
        if sha256(content).hexdigest() != state.digest:
            raise OdError(
                "OD-MEASUREMENT-CHANGED",
                f"the measurement of level {step.level} of {self.key} is {'changed' if path.exists() else 'missing'}",
                next_step=f"restore {path.name}, or the files of its parts, in the confidential folder from a backup",
                spent=STAYS_CHARGED,
            )
        return NoisyVector(pa.py_buffer(content))

    def read_uncounted_trips(self, plan: Plan) -> int | None:
        """Return the measured number of uncounted trips, or None if the plan does not measure it; see :meth:`read`."""
        return None if plan.uncounted_step is None else int(self.read(plan.uncounted_step).read_values()[0])

    def copy_parts_to_folder(self, steps: Iterable[int]) -> None:
        """Copy the measurement files of some steps, given by number, from the store of parts to the release's folder.

        Files that the folder has already are not copied.
        """
        folder = LocalStore(self._folder)
        if self.store == folder:
            return
        for step in steps:
            for name in list_part_files(self.store, step):
                if not folder.has(name):
                    folder.create_if_absent(name, self.store.read(name).read_buffer())

    def _locate_draw(self, level: int, draw: int) -> Path:
        """Return the path of the file of a draw of a level."""
        return self._folder / f"noisy_measurement_{level}.draw_{draw}.parquet"

    def _refuse_unknown_files(self, level: int, state: LevelState | None) -> None:
        """Raise OdError if a level has the file of a draw that the ledger does not record."""
        begun_draws = 0
        if state is not None:
            begun_draws = state.draw - 1 if state.kind == RESERVED else state.draw
        recorded = {self._locate_draw(level, draw) for draw in range(1, begun_draws + 1)}
        if set(self._folder.glob(f"noisy_measurement_{level}.draw_*.parquet")) - recorded:
            message = f"level {level} of {self.key} has a measurement that the ledger does not record"
            step = "restore the newest ledger; an older one does not record all that was spent"
            raise OdError("OD-LEDGER-ROLLED-BACK", message, next_step=step, spent=STAYS_CHARGED)


def _write_draw(draw: Draw, path: Path) -> Written:
    """Draw the noisy values of a level, write them to a new file, and return its digest and size."""
    pieces = draw()  # called before the file is opened, because a run that begins meanwhile removes temporary files
    return write_checked(path, lambda file: write_noisy(file, pieces), mode=CONFIDENTIAL_FILE_MODE)


# Parquet files of the noisy values of a level, written and read one row group at a time.


ROW_GROUP = 1 << 20
"""Number of values per row group. It is fixed, so that the bytes of a file depend on its values alone."""

_SCHEMA = pa.schema([pa.field("noisy", pa.int64(), nullable=False)])


Source: TypeAlias = Path | pa.Buffer | Callable[[], pa.NativeFile]
"""A Parquet file: its path, its content, or a function that opens it."""


class NoisyVector:
    """The noisy values of one level, in the order of its measured nodes, in files or in memory.

    The vector does not state which node a value belongs to. For flows, this follows from the result of the level above.

    Args:
        sources: Parquet files or arrays of consecutive values.
    """

    def __init__(self, *sources: Source | NDArray[np.int64]) -> None:
        self._sources = sources
        self._length = 0
        for source in sources:
            if isinstance(source, np.ndarray):
                self._length += len(source)
                continue
            with _open_parquet(source) as file:
                self._length += int(file.metadata.num_rows)

    def __len__(self) -> int:
        return self._length

    @classmethod
    def from_arrays(cls, pieces: Iterable[NDArray[np.int64]]) -> NoisyVector:
        """Return a vector of the values of consecutive arrays, kept in memory in the format of a file."""
        sink = pa.BufferOutputStream()
        write_noisy(sink, pieces)
        return cls(sink.getvalue())

    def read_values(self) -> NDArray[np.int64]:
        """Return all values in one read-only array of shape (len(self),). One row group is read at a time."""
        values = np.empty(len(self), dtype=np.int64)
        start = 0
        for group in self._iterate_row_groups():
            values[start : start + len(group)] = group
            start += len(group)
        values.flags.writeable = False
        return values

    def iterate_pieces(self, sizes: Iterable[int]) -> Iterator[NDArray[np.int64]]:
        """Yield consecutive values in read-only arrays, of shape (size,) for each of ``sizes``, in order.

        The sizes must sum to at most the length of this vector. One row group is read at a time.
        """
        groups = self._iterate_row_groups()
        waiting = np.empty(0, dtype=np.int64)
        for size in sizes:
            parts: list[NDArray[np.int64]] = []
            missing = size
            while missing > len(waiting):
                if len(waiting):
                    parts.append(waiting)
                missing -= len(waiting)
                waiting = next(groups)
            parts.append(waiting[:missing])
            waiting = waiting[missing:]
            # Most requested arrays lie in one row group and are not copied.
            piece = parts[0] if len(parts) == 1 else np.concatenate(parts)
            piece.flags.writeable = False
            yield piece

    def _iterate_row_groups(self) -> Iterator[NDArray[np.int64]]:
        """Yield the values of each row group or array, in order."""
        for source in self._sources:
            if isinstance(source, np.ndarray):
                yield source
                continue
            with _open_parquet(source) as file:
                for group in range(file.num_row_groups):
                    table = file.read_row_group(group, use_threads=False)  # threads read columns, and there is only one
                    yield table.combine_chunks()["noisy"].chunk(0).to_numpy()


def _open_parquet(source: Source) -> pq.ParquetFile:
    """Open a Parquet file. Use the result in a ``with`` statement."""
    return pq.ParquetFile(source() if callable(source) else source)


def write_noisy(sink: Path | BinaryIO | pa.BufferOutputStream, pieces: Iterable[NDArray[np.int64]]) -> None:
    """Write the values of consecutive arrays to a Parquet file. Only one row group is in memory at a time.

    The encoding stores the differences between consecutive values in as few bits as they need, without further
    compression. Any Parquet reader supports it, and it is as fast as the kernels.
    """
    batches = (pa.record_batch([pa.array(piece)], schema=_SCHEMA) for piece in pieces if len(piece))
    write_batches(
        sink,
        _SCHEMA,
        batches,
        rows=ROW_GROUP,
        use_dictionary=False,
        column_encoding={"noisy": "DELTA_BINARY_PACKED"},
        compression="none",
        write_statistics=False,
        store_schema=False,
    )


Measured = Sequence[tuple[LaplaceStep, NoisyVector]]
"""Each step of a release that is measured in one call, with its noisy values, in the order of the plan."""
