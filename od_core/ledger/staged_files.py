"""Keep the files of a release between its steps, from records to publication, in its confidential folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from od_core.errors import STAYS_CHARGED, OdError
from od_core.files.durable import sync, write_durably
from od_core.ledger.identity import Counted
from od_core.privacy.plan import Plan, PlannedRelease

_COUNTED_FOR = "counted_for"


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

    def keep_counted(self, plan: Plan, save: Callable[[], None]) -> None:
        """Save the counts, and store the digest of the plan that they were made for.

        The stored digest is deleted first. A crash in between leaves counts without a plan, which are refused.
        """
        digest = self.folder / _COUNTED_FOR
        if digest.exists():
            digest.unlink()
            sync(self.folder)
        save()
        write_durably(digest, lambda file: file.write_text(plan.digest, encoding="utf-8"))

    def refuse_other_plan(self, plan: Plan) -> None:
        """Refuse counts that were made for another plan, whose areas may have other numbers. Raises OdError."""
        digest = self.folder / _COUNTED_FOR
        if not digest.exists() or digest.read_text(encoding="utf-8") != plan.digest:
            raise OdError(
                "OD-STAGED-OTHER-PLAN",
                "the records were counted for another geography or with other settings",
                next_step="run the whole release, which counts them again",
                spent=STAYS_CHARGED,
            )

    def path(self, name: str) -> Path:
        """Return the file with that name. Raises OdError if it is absent."""
        path = self.folder / f"{name}.parquet"
        if not path.exists():
            raise missing_file(name)
        return path


P = TypeVar("P", bound=Plan)
C = TypeVar("C", bound=Counted)
R = TypeVar("R", bound=PlannedRelease)


class StagedTable(StagedFiles, ABC, Generic[P, C, R]):
    """The counted input and the unpublished table of a release whose steps are all drawn at once.

    Attributes:
        counted_name: name of the file of the counted input.
        table_name: name of the file of the table.
    """

    counted_name: ClassVar[str]
    table_name: ClassVar[str]

    @abstractmethod
    def counted(self, plan: P) -> C:
        """Return the counted input. Raises OdError if it is absent."""

    @abstractmethod
    def counted_table(self, counted: C) -> pa.Table:
        """Return the counted input as it is kept."""

    @abstractmethod
    def table_of(self, release: R) -> pa.Table:
        """Return the table of a release as it is kept."""

    def save_counted(self, counted: C) -> None:
        """Keep the counted input."""
        self._save(self.counted_name, self.counted_table(counted))

    def save_table(self, release: R) -> Path:
        """Keep the table of a release, and return its file."""
        return self._save(self.table_name, self.table_of(release))

    def table(self) -> pa.Table:
        """Return the kept table. Raises OdError if it is absent."""
        return pq.read_table(self.path(self.table_name))

    def refuse_other_table(self, release: R) -> None:
        """Refuse a release, estimated from its measurements, whose kept table is another one. Raises OdError."""
        if not self.table().equals(self.table_of(release)):
            raise OdError(
                "OD-STAGED-FILE-CHANGED",
                f"the staged {self.table_name} differ from the result of the release's measurements",
                next_step="run the whole release again; it reads its measurements back and draws nothing twice",
                spent=STAYS_CHARGED,
            )

    def _save(self, name: str, table: pa.Table) -> Path:
        path = self.folder / f"{name}.parquet"
        write_durably(path, lambda file: pq.write_table(table, file))
        return path


def missing_file(name: str) -> OdError:
    """Return the error for a file that is not there yet, or was removed."""
    return OdError(
        "OD-STAGED-FILE-MISSING",
        f"{name} of this release does not exist yet, or was removed",
        next_step="run the whole release; it reads stored measurements back and draws nothing twice",
        spent=STAYS_CHARGED,
    )
