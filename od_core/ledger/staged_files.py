"""Store the files that one step of a release writes for the next step, and check that its input has not changed.

The files are in the confidential folder of the release.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from od_core.errors import STAYS_CHARGED, OdError
from od_core.files.durable import sync, write_durably
from od_core.ledger.confidential import IDENTITY, ConfidentialFolder
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.plan import Plan, PlannedRelease


class Counted(Protocol):
    """The counted input of a release. It is confidential."""

    @property
    def total(self) -> int:
        """Confidential: number of trips, or of members of groups, that are counted."""

    def iterate_column_pieces(self) -> Iterator[Sequence[NDArray[np.int64]]]:
        """Yield the counted input in consecutive blocks of rows, each with one array per column.

        Equal inputs have equal columns, but may be cut into different blocks.
        """


def hold_to_input(
    confidential: ConfidentialFolder, key: ReleaseKey, trips: Counted, *, drawn: bool, counters: str | None = None
) -> None:
    """Store a fingerprint (keyed hash) of a release's input, or check the input against the stored fingerprint.

    Until the first draw begins, the input may change, and its fingerprint is stored. After that, the input is checked.

    Args:
        confidential, key: confidential folder, and the release.
        trips: confidential counted input.
        drawn: whether the first draw of the release has begun.
        counters: fingerprint of the counters of users that belong to the input; None unless the unit is of a year.

    Raises:
        OdError: a draw has begun, and the input has changed, or the fingerprint or the key that made it is lost.
    """
    identity = compute_input_identity(confidential, trips, counters)
    stored = read_stored_identity(confidential, key)
    if stored == identity:
        return
    if not drawn:
        path = confidential.make_subfolder(key.folder) / IDENTITY
        write_durably(path, lambda file: file.write_text(json.dumps(identity), encoding="utf-8"))
        return
    if not stored:
        raise _make_staging_error(
            "OD-IDENTITY-MISSING",
            f"the fingerprint of the input of {key} is missing, but levels are drawn already",
            "restore the confidential folder",
        )
    if stored.get("key") != identity["key"]:
        raise _make_staging_error(
            "OD-KEY-LOST",
            f"{key} began with the key {stored.get('key')}, but confidential/hmac.key is {identity['key']}",
            "keep confidential/hmac.key, with which other releases began, and put the earlier one from a backup in its"
            " place for this run alone",
        )
    raise _make_staging_error(
        "OD-REPLAY-INPUT-CHANGED",
        f"the records of {key} differ from those with which it began",
        f"restore the records, or release them as revision {key.revision + 1}, which is charged again",
    )


def read_stored_identity(confidential: ConfidentialFolder, key: ReleaseKey) -> dict[str, str]:
    """Return the stored result of :func:`compute_input_identity`; empty if there is none that can be read."""
    try:
        stored = json.loads((confidential.path / key.folder / IDENTITY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stored if isinstance(stored, dict) else {}


def compute_input_identity(confidential: ConfidentialFolder, trips: Counted, counters: str | None) -> dict[str, str]:
    """Return what identifies a release's counted input, by name.

    ``input`` is its fingerprint, ``key`` the public name of the key with which this was made, and ``counters``, unless
    that is None, the fingerprint of the counters of users.
    """
    identity = {
        "input": confidential.compute_fingerprint(trips.iterate_column_pieces()),
        "key": confidential.compute_key_name(),
    }
    return identity if counters is None else identity | {"counters": counters}


def _make_staging_error(code: str, message: str, next_step: str) -> OdError:
    """Return an OdError about files of a release for which budget may be reserved."""
    return OdError(code, message, next_step=next_step, spent=STAYS_CHARGED)


_COUNTED_FOR, _READ_WITH = "counted_for", "read_as.json"
"""Files with the digest of the plan of the counts, and with the settings of reading."""

SNAPSHOT = "snapshot"
"""Setting of reading that names the state of the stored table that was read. No declaration states it."""


class StagedFiles:
    """The files that a release of any kind stores between its steps. Each file is complete or absent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def records(self) -> Path:
        """Path of the records of the period, as the reader wrote them."""
        return self.folder / "raw_trips.parquet"

    @property
    def data_docs(self) -> Path:
        """Path of the folder with the page that says which expectations the records meet."""
        return self.folder / "data_docs"

    @contextmanager
    def _store_file_facts(self, name: str, make_facts: Callable[[], str]) -> Iterator[None]:
        """Remove the stored facts ``name`` about a file, let this context write the file, and then store new facts.

        ``make_facts`` is called at the end of the context, and returns the facts as text.
        """
        path = self.folder / name
        if path.exists():
            path.unlink(missing_ok=True)  # another run may remove it, too
            sync(self.folder)
        yield
        write_durably(path, lambda file: file.write_text(make_facts(), encoding="utf-8"))

    def store_reading_settings(self, settings: Mapping[str, object]) -> AbstractContextManager[None]:
        """Return a context in which to read records. At its end, the public settings of reading are stored as JSON."""
        return self._store_file_facts(_READ_WITH, lambda: json.dumps(dict(settings)))

    def read_snapshot(self) -> dict[str, str]:
        """Return the stored setting :data:`SNAPSHOT` by its name; empty if the records came from no named state."""
        stored = self._load_reading_settings() or {}
        return {name: value for name, value in stored.items() if name == SNAPSHOT}

    def _load_reading_settings(self) -> dict[str, str] | None:
        """Return the stored settings of reading; None if none are stored."""
        path = self.folder / _READ_WITH
        if not path.exists():
            return None
        stored: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
        return stored

    def hold_to_reading(self, key: ReleaseKey, settings: Mapping[str, object], *, drawn: bool) -> None:
        """Raise OdError unless records were read with the settings that are declared now, which the certificate states.

        Settings that are not stored are not compared, because an earlier version of this software stored fewer of them.
        If none at all are stored, the error is raised only if ``drawn`` is False: no draw of the release has begun.
        """
        stored = self._load_reading_settings()
        differences = ""
        if stored is not None:
            declared = json.loads(json.dumps(dict(settings)))  # with the types of JSON, like the stored ones
            changed = sorted(name for name in stored if name in declared and stored[name] != declared[name])
            if not changed:
                return
            differences = f"; changed: {', '.join(changed)}"
        elif drawn:
            return
        message = f"the records of {key} were read with different settings{differences}"
        if drawn:
            step = f"restore the settings, or release it as revision {key.revision + 1}, which is charged again"
            raise _make_staging_error("OD-REPLAY-READING-CHANGED", message, step)
        step = "run the whole release, which reads the records again"
        raise OdError("OD-STAGED-OTHER-READING", message, next_step=step)

    def save_counts_for_plan(self, plan: Plan, save: Callable[[], None]) -> None:
        """Call ``save``, which stores the counts, and then store the digest of the plan for which they were counted."""
        with self._store_file_facts(_COUNTED_FOR, lambda: plan.counts_digest):
            save()

    def refuse_other_plan(self, plan: Plan) -> None:
        """Raise OdError if the records were counted for another plan, or if the digest of their plan is missing.

        The counts refer to areas by number, and another plan may number the areas differently.
        """
        digest = self.folder / _COUNTED_FOR
        if not digest.exists() or digest.read_text(encoding="utf-8") != plan.counts_digest:
            raise _make_staging_error(
                "OD-STAGED-OTHER-PLAN",
                "the records were counted for another geography or with other settings",
                "run the whole release, which counts them again",
            )

    def locate_file(self, name: str) -> Path:
        """Return the path of the file ``<name>.parquet``. Raises OdError if the file is absent."""
        path = self.folder / f"{name}.parquet"
        if not path.exists():
            raise make_missing_file_error(name)
        return path


PlanT = TypeVar("PlanT", bound=Plan)
CountedT = TypeVar("CountedT", bound=Counted)
ReleaseT = TypeVar("ReleaseT", bound=PlannedRelease)


class StagedTable(StagedFiles, ABC, Generic[PlanT, CountedT, ReleaseT]):
    """The stored counts and the unpublished table of a release whose steps are all drawn in one call.

    Attributes:
        counted_name: name of the file of the counted input, without its suffix.
        table_name: name of the file of the table, without its suffix.
    """

    counted_name: ClassVar[str]
    table_name: ClassVar[str]

    @abstractmethod
    def read_counted_input(self, plan: PlanT) -> CountedT:
        """Return the stored counted input of a release with this plan. Raises OdError if its file is absent."""

    @abstractmethod
    def make_counted_table(self, counted: CountedT) -> pa.Table:
        """Convert the counted input to the table that :meth:`save_counted` stores, and return it."""

    @abstractmethod
    def make_table(self, release: ReleaseT) -> pa.Table:
        """Convert the result of a release to the table that :meth:`save_table` stores, and return it."""

    def save_counted(self, counted: CountedT) -> None:
        """Store the counted input."""
        self._save(self.counted_name, self.make_counted_table(counted))

    def save_table(self, release: ReleaseT) -> Path:
        """Store the table of a release, and return the path of its file."""
        return self._save(self.table_name, self.make_table(release))

    def read_table(self) -> pa.Table:
        """Return the stored table of the release. Raises OdError if its file is absent."""
        return pq.read_table(self.locate_file(self.table_name))

    def refuse_other_table(self, release: ReleaseT) -> None:
        """Raise OdError unless the stored table equals that of ``release``, estimated again from its measurements."""
        if not self.read_table().equals(self.make_table(release)):
            raise _make_staging_error(
                "OD-STAGED-FILE-CHANGED",
                f"the staged {self.table_name} differ from the result of the release's measurements",
                "run the whole release again; it reads its measurements back and draws nothing twice",
            )

    def _save(self, name: str, table: pa.Table) -> Path:
        """Write a table durably to the file ``<name>.parquet``, and return the path of the file."""
        path = self.folder / f"{name}.parquet"
        write_durably(path, lambda file: pq.write_table(table, file))
        return path


def make_missing_file_error(name: str) -> OdError:
    """Return the OdError for a file that does not exist yet or was removed."""
    return _make_staging_error(
        "OD-STAGED-FILE-MISSING",
        f"{name} of this release does not exist yet, or was removed",
        "run the whole release; it reads stored measurements back and draws nothing twice",
    )
