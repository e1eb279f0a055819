"""Keep the files of a release between its steps, from records to publication, in its confidential folder."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from od_core.errors import OdError
from od_core.files.durable import sync, write_batches, write_durably
from od_core.flows.plan import ReleasePlan, Step
from od_core.geography.flow_tree import Nodes
from od_core.ledger.object_store import LocalStore, Store
from od_core.ledger.protocols import Planned
from od_core.records.count_files import CountFiles

_COUNTED_FOR = "counted_for"
_COUNTS = "trip_counts"
_CURRENT = "current_trip_counts"
_ATTEMPT = "attempt.json"
_ESTIMATE = pa.schema([("origin", pa.int32()), ("destination", pa.int32()), ("trips", pa.int64())])


class StagedFiles:
    """The files that a release of any kind keeps between its steps. Each file is complete or absent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def records(self) -> Path:
        """The records of the period, as the reader wrote them."""
        return self.folder / "raw_trips.parquet"

    @property
    def data_docs(self) -> Path:
        """Great Expectations pages about the records."""
        return self.folder / "data_docs"

    def keep_counted(self, plan: Planned, save: Callable[[], None]) -> None:
        """Save the counts, and store the digest of the plan that they were made for.

        The stored digest is deleted first. A crash in between leaves counts without a plan, which are refused.
        """
        digest = self.folder / _COUNTED_FOR
        if digest.exists():
            digest.unlink()
            sync(self.folder)
        save()
        write_durably(digest, lambda file: file.write_text(plan.digest, encoding="utf-8"))

    def refuse_other_plan(self, plan: Planned) -> None:
        """Refuse counts that were made for another plan, whose areas may have other numbers. Raises OdError."""
        digest = self.folder / _COUNTED_FOR
        if not digest.exists() or digest.read_text(encoding="utf-8") != plan.digest:
            raise OdError(
                "OD-STAGED-OTHER-PLAN",
                "the records were counted for another geography, or with other settings",
                next_step="run the whole release: it counts them anew",
                spent="what was set aside before stays charged",
            )

    def path(self, name: str) -> Path:
        """Return the file with that name. Raises OdError if it is absent."""
        path = self.folder / f"{name}.parquet"
        if not path.exists():
            raise _missing(name)
        return path


class StagedRelease(StagedFiles):
    """True counts and unpublished estimates of one release of flows.

    An estimate is a function of the measurements, so writing it again changes nothing.
    """

    def __init__(self, folder: Path, store: Store | None = None) -> None:
        super().__init__(folder)
        self.store: Store = LocalStore(folder) if store is None else store
        """Store of the counts and of everything that is processed in parts: the folder, or a place that an engine
        reaches."""

    @property
    def flows(self) -> Path:
        """The leaf table as it will be published."""
        return self.folder / "flows.parquet"

    def new_trip_counts(self) -> str:
        """Return a new folder in the store for true leaf counts, and remove folders that were never kept."""
        self._remove_other_counts(self._current_counts())
        return f"{_COUNTS}/{secrets.token_hex(6)}"

    def save_trip_counts(self, trips: CountFiles) -> None:
        """Keep the true leaf counts that were written to a new folder, and remove all others."""
        before = self._current_counts()
        write_durably(self.folder / _CURRENT, lambda file: file.write_text(trips.folder, encoding="utf-8"))
        if before not in (None, trips.folder):
            self.store.remove(str(before))
        self._remove_other_counts(trips.folder)

    def trip_counts(self) -> CountFiles:
        """Return the true leaf counts. Raises OdError if they are absent."""
        current = self._current_counts()
        if current is None:
            raise _missing(_COUNTS)
        return CountFiles(self.store, current)

    def _current_counts(self) -> str | None:
        path = self.folder / _CURRENT
        return path.read_text(encoding="utf-8") if path.exists() else None

    def _remove_other_counts(self, current: str | None) -> None:
        folder = self.folder / _COUNTS
        for other in folder.iterdir() if folder.exists() else ():
            if (name := f"{_COUNTS}/{other.name}") != current:
                self.store.remove(name)

    def save_estimate(self, level: int, pieces: Iterable[Nodes], *, refined: bool = False) -> Path:
        """Keep the estimate of a level and return its file, which holds area numbers and trips.

        Args:
            level: level of the flow tree.
            pieces: its nodes in tree order, in consecutive pieces.
            refined: whether the estimate uses all levels (``estimation.refinement``), or only this level and those
                above it.
        """
        batches = (
            pa.record_batch([piece.origin, piece.destination, piece.trips], schema=_ESTIMATE) for piece in pieces
        )
        path = self.folder / f"{_estimate_name(level, refined=refined)}.parquet"
        write_durably(path, lambda file: write_batches(file, _ESTIMATE, batches, compression="snappy"))
        return path

    def save_attempt(self, facts: Mapping[str, str]) -> None:
        """Store where the parts of a release are, if it is processed in parts."""
        write_durably(self.folder / _ATTEMPT, lambda file: file.write_text(json.dumps(dict(facts)), encoding="utf-8"))

    def attempt(self) -> dict[str, str]:
        """Return the facts that :meth:`save_attempt` stored. Raises OdError if there are none."""
        if not (self.folder / _ATTEMPT).exists():
            raise _missing(_ATTEMPT)
        facts: dict[str, str] = json.loads((self.folder / _ATTEMPT).read_text(encoding="utf-8"))
        return facts

    def estimate_path(self, level: int, *, refined: bool = False) -> Path:
        """Return the file of a level's estimate. Raises OdError if it is absent."""
        return self.path(_estimate_name(level, refined=refined))

    def estimate_table(self, level: int, *, refined: bool = False) -> pa.Table:
        """Return the estimate of a level as stored: origin, destination, trips. Raises OdError if it is absent."""
        return self._read(_estimate_name(level, refined=refined))

    def estimate(self, level: int, *, refined: bool = False) -> Nodes:
        """Return the estimate of a level. Raises OdError if it is absent."""
        table = self.estimate_table(level, refined=refined)
        return Nodes(level, *(np.array(table[name]) for name in ("origin", "destination", "trips")))

    def nodes_above(self, plan: ReleasePlan, step: Step) -> Nodes | None:
        """Return the estimated nodes whose children a step measures; None if there are none.

        Raises OdError if their estimate is absent.
        """
        above = plan.level_above(step)
        return None if above is None else self.estimate(above)

    def _read(self, name: str) -> pa.Table:
        return pq.read_table(self.path(name))


def _missing(name: str) -> OdError:
    return OdError(
        "OD-STAGED-FILE-MISSING",
        f"{name} of this release is not there yet, or was removed",
        next_step="run the whole release; stored measurements are read back, nothing is drawn twice",
        spent="what was set aside before stays charged",
    )


def _estimate_name(level: int, *, refined: bool) -> str:
    return f"refined_{level}" if refined else f"estimate_{level}"
