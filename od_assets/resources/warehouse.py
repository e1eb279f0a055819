"""Define the warehouse: the folders, the ledger and the database of the project."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import PrivateAttr

from od_assets.project import Project, current_project, releases_folder
from od_assets.resources.dead_runs import mark_process, mark_release, sweep_dead_runs
from od_assets.series.engine import closed_sessions
from od_core.errors import OdError
from od_core.ledger.chain import Chain
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.integrity import EntryName, chain_of
from od_core.ledger.ledger import Ledger
from od_core.ledger.lock import LOCK_SECONDS
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.bundle import ledger_entries
from od_core.publication.database import stored_releases
from od_core.published.verification import Published


class Warehouse(dg.ConfigurableResource):  # type: ignore[misc]  # Dagster's metaclass is untyped
    """The folders, the ledger and the database of the project. Only one run at a time can lock them.

    Every run is a separate process (UI, schedule, backfill, command line), so neither the executor nor a pool can
    prevent two runs at the same time. A file lock can. The system releases the lock when the process ends, even after a
    crash.
    """

    folder: str = ""
    """Folder of everything that releases write; by default, ``var`` of the current project."""

    lock_seconds: float = LOCK_SECONDS

    _instance: dg.DagsterInstance | None = PrivateAttr(None)

    @classmethod
    def of(cls, project: Project, lock_seconds: float = LOCK_SECONDS) -> Warehouse:
        """Return the warehouse of a project."""
        return cls(folder=str(project.var), lock_seconds=lock_seconds)

    @property
    def var(self) -> Path:
        """Folder of everything that releases write."""
        return Path(self.folder) if self.folder else current_project().var

    @property
    def ledger_place(self) -> tuple[Path, str | None]:
        """Arguments of :class:`Ledger`: its SQLite file, and the address of its PostgreSQL database if it is in one.

        The address is not a setting of this resource, because Dagster's UI shows settings, and it may have a password.
        """
        return self.var / "ledger.sqlite", os.environ.get("OD_LEDGER") or None

    @property
    def ledger_chain(self) -> Chain:
        """The entries of the ledger, which are neither created nor verified yet."""
        return chain_of(*self.ledger_place)

    @cached_property
    def ledger(self) -> Ledger:
        """Budget ledger, created if there is none. It is opened once per run, because opening verifies it."""
        return Ledger(*self.ledger_place)

    @cached_property
    def works(self) -> dict[ReleaseKey, Any]:
        """Work objects of this run by key; see :meth:`od_assets.resources.release_work.ReleaseWork.of`."""
        return {}

    def existing_ledger(self) -> Ledger:
        """Return the ledger without creating one. Raises OdError if nothing was released yet."""
        if not self.ledger_chain.exists() and not (self.var / "confidential" / "ledger.head").exists():
            raise OdError(
                "OD-LEDGER-ABSENT",
                "there is no ledger yet, because nothing was released here",
                next_step="run a release",
            )
        return self.ledger

    def published_periods(self, series: str) -> dict[str, ReleaseKey]:
        """Return the key of the newest revision of each published period of a series, by period.

        If there is no ledger, the result is empty, and no ledger is created.
        """
        keys = self.ledger.published() if self.ledger_chain.exists() else []
        return {key.period: key for key in sorted(keys) if key.release == series}

    def refuse_other_ledger(self, data_set: str) -> None:
        """Raise OdError if releases of this Dagster instance charged a declared data set to another ledger before.

        Two projects with a data set of the same name, or a project and its copy, would otherwise spend its budget
        twice. The instance stores the newest entry of the data set, which the ledger must have.
        """
        if self._instance is None:
            return
        cursors, name = self._instance.daemon_cursor_storage, f"od/ledger_of/{data_set}"
        stated = cursors.get_cursor_values({name}).get(name)
        if stated is not None:
            number, entry_hash = stated.split(" ")
            if not self.ledger.has(EntryName(int(number), entry_hash)):
                raise OdError(
                    "OD-LEDGER-OTHER",
                    f"releases of this Dagster instance charged data set {data_set!r} to another ledger, or to a newer"
                    " copy of this one",
                    next_step="release it in the project that has that ledger, or restore that ledger; a different data"
                    " set needs a different name",
                )
        newest = self.ledger.newest_of(data_set)
        cursors.set_cursor_values({name: f"{newest.number} {newest.hash}"})

    def verify_ledger(self) -> int:
        """Verify the ledger, and return the number of its entries.

        Raises:
            OdError: the ledger is edited, damaged or missing; it lacks an entry that its head file or a public
                certificate names; or a charge is not the cost of its noise.
        """
        ledger = self.existing_ledger()
        ledger.hold_to(ledger_entries(self.releases))
        return ledger.verify()

    @property
    def confidential(self) -> ConfidentialFolder:
        """The confidential folder."""
        return ConfidentialFolder(self.var / "confidential")

    @property
    def database(self) -> Path:
        """Path of the public release database."""
        return self.var / "release.duckdb"

    @property
    def releases(self) -> Path:
        """Folder of all public bundles."""
        return releases_folder(self.var)

    def bundle(self, key: ReleaseKey) -> Path:
        """Return the folder of the public bundle of a release."""
        return self.releases / key.folder

    def data_docs(self, key: ReleaseKey) -> Path:
        """Return the folder of a release's Data Docs, Great Expectations pages that contain no values."""
        return self.var / "data_docs" / key.folder

    @property
    def geographies(self) -> Path:
        """Folder in which the geography assets store the public lists."""
        return self.var / "geographies"

    def public_releases(self) -> list[ReleaseKey]:
        """Return every release that has a public bundle or is in the database, even if the ledger lacks it."""
        folders = self.releases.glob("*/*/r*")
        bundles = [ReleaseKey.parse(str(folder.relative_to(self.releases))) for folder in folders if folder.is_dir()]
        return sorted({*bundles, *stored_releases(self.database)})

    def published(self, key: ReleaseKey, ledger: Ledger) -> Published:
        """Return the locations of a published release, and the ledger that was charged."""
        measurements = self.confidential.path / key.folder
        return Published(key, self.bundle(key), self.database, ledger, measurements)

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Warehouse]:
        """Lock the warehouse for the whole run, after other runs whose process has ended are reported as failed."""
        if context.instance is not None and context.run is not None:
            mark_process(context.instance, context.run.run_id)
            mark_release(context.instance, context.run)
        with self.ledger_chain.exclusive(self.lock_seconds), closed_sessions():
            if context.instance is not None:
                sweep_dead_runs(context.instance)
            self._instance = context.instance
            yield self
