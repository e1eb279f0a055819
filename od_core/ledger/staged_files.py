"""Store the files that one step of a release writes for the next step, from records to publication.

The files are in the confidential folder of the release.
"""

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
    """The files that a release of any kind stores between its steps. Each file is complete or absent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def records(self) -> Path:
        """Path of the records of the period, as the reader wrote them."""
        return self.folder / "raw_trips.parquet"

    @property
    def data_docs(self) -> Path:
        """Path of the folder of Great Expectations pages about the records."""
        return self.folder / "data_docs"

    def keep_counted(self, plan: Plan, save: Callable[[], None]) -> None:
        """Call ``save``, which saves the counts, and store the digest of the plan for which the records were counted.

        An earlier digest is deleted first. If a crash then leaves counts without a digest, :meth:`refuse_other_plan`
        refuses them.
        """
        digest = self.folder / _COUNTED_FOR
        if digest.exists():
            digest.unlink()
            sync(self.folder)
        save()
        write_durably(digest, lambda file: file.write_text(plan.counts_digest, encoding="utf-8"))

    def refuse_other_plan(self, plan: Plan) -> None:
        """Raise OdError if the records were counted for another plan, or if the digest of their plan is missing.

        The counts refer to areas by number, and another plan may number the areas differently.
        """
        digest = self.folder / _COUNTED_FOR
        if not digest.exists() or digest.read_text(encoding="utf-8") != plan.counts_digest:
            raise OdError(
                "OD-STAGED-OTHER-PLAN",
                "the records were counted for another geography or with other settings",
                next_step="run the whole release, which counts them again",
                spent=STAYS_CHARGED,
            )

    def path(self, name: str) -> Path:
        """Return the path of the file ``<name>.parquet``. Raises OdError if the file is absent."""
        path = self.folder / f"{name}.parquet"
        if not path.exists():
            raise missing_file(name)
        return path


P = TypeVar("P", bound=Plan)
C = TypeVar("C", bound=Counted)
R = TypeVar("R", bound=PlannedRelease)


class StagedTable(StagedFiles, ABC, Generic[P, C, R]):
    """The stored counts and the unpublished table of a release whose steps are all drawn in one call.

    Attributes:
        counted_name: name of the file of the counted input, without its suffix.
        table_name: name of the file of the table, without its suffix.
    """

    counted_name: ClassVar[str]
    table_name: ClassVar[str]

    @abstractmethod
    def counted(self, plan: P) -> C:
        """Return the stored counted input of a release with this plan. Raises OdError if its file is absent."""

    @abstractmethod
    def counted_table(self, counted: C) -> pa.Table:
        """Convert the counted input to the table that :meth:`save_counted` stores, and return it."""

    @abstractmethod
    def table_of(self, release: R) -> pa.Table:
        """Convert the result of a release to the table that :meth:`save_table` stores, and return it."""

    def save_counted(self, counted: C) -> None:
        """Store the counted input."""
        self._save(self.counted_name, self.counted_table(counted))

    def save_table(self, release: R) -> Path:
        """Store the table of a release, and return the path of its file."""
        return self._save(self.table_name, self.table_of(release))

    def table(self) -> pa.Table:
        """Return the stored table of the release. Raises OdError if its file is absent."""
        return pq.read_table(self.path(self.table_name))

    def refuse_other_table(self, release: R) -> None:
        """Raise OdError unless the stored table equals that of the release, estimated again from its measurements."""
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
    """Return the OdError for a file that does not exist yet or was removed."""
    return OdError(
        "OD-STAGED-FILE-MISSING",
        f"{name} of this release does not exist yet, or was removed",
        next_step="run the whole release; it reads stored measurements back and draws nothing twice",
        spent=STAYS_CHARGED,
    )
