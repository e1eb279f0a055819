"""Define the warehouse: the folders, the ledger and the database of the project. One run at a time can lock it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import dagster as dg

from od_assets.project import var_folder
from od_assets.resources.dead_runs import mark_process, mark_release, sweep_dead_runs
from od_assets.series.engine import closed_sessions
from od_core.errors import OdError
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.ledger import Ledger
from od_core.ledger.lock import LOCK_SECONDS, exclusive
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

    lock_seconds: float = LOCK_SECONDS

    @property
    def var(self) -> Path:
        """Folder of everything that the project writes."""
        return var_folder()

    @cached_property
    def ledger(self) -> Ledger:
        """Budget ledger, created if there is none; opened once per run, because opening verifies the whole chain."""
        return Ledger(self.var / "ledger.sqlite")

    @cached_property
    def works(self) -> dict[ReleaseKey, Any]:
        """Work objects of this run by key; see :meth:`od_assets.resources.release_work.ReleaseWork.of`."""
        return {}

    def existing_ledger(self) -> Ledger:
        """Return the ledger. Raises OdError, and creates no ledger, if nothing was released yet."""
        if not (self.var / "ledger.sqlite").exists() and not (self.var / "confidential" / "ledger.head").exists():
            raise OdError(
                "OD-LEDGER-ABSENT",
                "there is no ledger yet, because nothing was released here",
                next_step="run a release",
            )
        return self.ledger

    def published_periods(self, series: str) -> dict[str, ReleaseKey]:
        """Return the key of the newest revision of each published period of a series, by period.

        If there is no ledger, the result is empty and none is created.
        """
        keys = self.ledger.published() if (self.var / "ledger.sqlite").exists() else []
        return {key.period: key for key in sorted(keys) if key.release == series}

    def verify_ledger(self) -> int:
        """Check that the ledger is complete, and not older than its head and the public certificates.

        Returns:
            The number of entries.

        Raises:
            OdError: the ledger is edited, damaged, missing or older.
        """
        ledger = self.existing_ledger()
        ledger.hold_to(ledger_entries(self.releases))
        return ledger.verify()

    @property
    def confidential(self) -> ConfidentialFolder:
        """Folder of everything confidential."""
        return ConfidentialFolder(self.var / "confidential")

    @property
    def database(self) -> Path:
        """Path of the public release database."""
        return self.var / "release.duckdb"

    @property
    def releases(self) -> Path:
        """Folder of all public bundles."""
        return self.var / "releases"

    def bundle(self, key: ReleaseKey) -> Path:
        """Return the folder of the public bundle of a release."""
        return self.releases / key.folder

    def data_docs(self, key: ReleaseKey) -> Path:
        """Return the folder of a release's Data Docs.

        These are the Great Expectations pages that state whether each expectation was met. They contain no values.
        """
        return self.var / "data_docs" / key.folder

    @property
    def geographies(self) -> Path:
        """Folder of the public lists that the geography assets store."""
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
        """Lock the warehouse for the whole run, and report dead runs as failed before the run continues."""
        if context.instance is not None and context.run is not None:
            mark_process(context.instance, context.run.run_id)
            mark_release(context.instance, context.run)
        with exclusive(self.var, seconds=self.lock_seconds), closed_sessions():
            if context.instance is not None:
                sweep_dead_runs(context.instance)
            yield self
