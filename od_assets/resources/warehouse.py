"""Define the warehouse: all folders that the project writes to, which one run holds at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import dagster as dg
import numpy as np

from od_assets.project import var_folder
from od_assets.resources.dead_runs import mark_process, mark_release, sweep_dead_runs
from od_assets.series.engine import closed_sessions, store_of
from od_assets.series.settings import G, P, ReleaseSettings, SeriesSettings
from od_core import Release, ReleasePlan
from od_core.errors import OdError
from od_core.flows.estimation.top_down import Measurement
from od_core.flows.plan import Step
from od_core.flows.release import finish
from od_core.flows.staging import StagedFiles, StagedRelease
from od_core.group_sizes.plan import GroupSizePlan, LaplaceStep
from od_core.group_sizes.release import GroupSizeRelease, estimated
from od_core.group_sizes.staging import StagedGroupSizes
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.identity import forget_reading, hold_to_input, hold_to_reading, keep_reading
from od_core.ledger.ledger import Ledger
from od_core.ledger.lock import LOCK_SECONDS, exclusive
from od_core.ledger.measurements import DurableMeasurements, NoisyVector, begin_release
from od_core.ledger.object_store import Store
from od_core.ledger.protocols import Counted
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.bundle import ledger_entries
from od_core.publication.database import is_stored, stored_releases
from od_core.published.verification import Published
from od_core.records.count_files import CountFiles
from od_core.stops.plan import StopsPlan
from od_core.stops.release import StopsRelease
from od_core.stops.release import estimated as boxes_of
from od_core.stops.staging import StagedStops

C = TypeVar("C", bound=Counted)


class Warehouse(dg.ConfigurableResource):  # type: ignore[misc]  # Dagster's metaclass is untyped
    """The folders, the ledger and the database of the project, which only one run at a time holds.

    Every run is a process of its own (UI, schedule, backfill, command line), so neither the executor nor a pool can
    keep two runs apart. A file lock does; it is released when its process ends, in whatever way.
    """

    lock_seconds: float = LOCK_SECONDS

    @property
    def var(self) -> Path:
        """Folder of everything that the project writes."""
        return var_folder()

    @property
    def ledger(self) -> Ledger:
        """Budget ledger, which opening creates if there is none."""
        return Ledger(self.var / "ledger.sqlite")

    def existing_ledger(self) -> Ledger:
        """Return the ledger without creating one. Raises OdError if there is none, since nothing was released."""
        if not (self.var / "ledger.sqlite").exists() and not (self.var / "confidential" / "ledger.head").exists():
            raise OdError(
                "OD-LEDGER-ABSENT",
                "there is no ledger yet, because nothing was released here",
                next_step="run a release",
            )
        return self.ledger

    def published_periods(self, series: str) -> dict[str, ReleaseKey]:
        """Return the newest published release of each period of a series, by period, without creating a ledger."""
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
        """Return the folder of a release's Data Docs: whether each expectation was met, without values."""
        return self.var / "data_docs" / key.folder

    def staged(self, key: ReleaseKey) -> StagedRelease:
        """Return the staged files of a release of flows."""
        return StagedRelease(self.confidential.subfolder(key.folder))

    def staged_parts(self, settings: ReleaseSettings, key: ReleaseKey) -> StagedRelease:
        """Return the staged files of a release of flows, with counts and parts in the store of its engine."""
        store = store_of(settings.engine, self.confidential, key)
        return StagedRelease(self.confidential.subfolder(key.folder), store)

    def counts(self, settings: ReleaseSettings, key: ReleaseKey) -> CountFiles:
        """Confidential: return the counts of a release. Raises OdError if they are absent."""
        return self.staged_parts(settings, key).trip_counts()

    def staged_group_sizes(self, key: ReleaseKey) -> StagedGroupSizes:
        """Return the staged files of a group-size table."""
        return StagedGroupSizes(self.confidential.subfolder(key.folder))

    def staged_stops(self, key: ReleaseKey) -> StagedStops:
        """Return the staged files of a release of trips with stops."""
        return StagedStops(self.confidential.subfolder(key.folder))

    @property
    def geographies(self) -> Path:
        """Folder of the public lists that the geography assets keep."""
        return self.var / "geographies"

    def geography(self, settings: SeriesSettings[Any, G]) -> G:
        """Return the geography that its asset has kept. Raises OdError if the asset has not run."""
        return settings.kept_geography(self.geographies)

    def plan(self, settings: SeriesSettings[P, Any], key: ReleaseKey) -> P:
        """Return the plan over the kept geography; it must equal the plan that is reserved for the release, if any.

        Raises:
            OdError: the release is reserved with another geography or other settings, or the areas are not those of the
                other periods of its revision; or as :meth:`od_assets.series.settings.SeriesSettings.plan`.
        """
        plan = settings.plan(self.geography(settings), key.period)
        self.ledger.hold_to_plan(key, settings.domain.name, plan)
        return plan

    def _refuse_older_ledger(self, ledger: Ledger, key: ReleaseKey) -> None:
        """Refuse a ledger that is older than what is public: it is lost or was replaced, and must not begin anew.

        Raises:
            OdError: the bundle or the database holds this release, though it was never drawn under this ledger; or the
                ledger lacks an entry that the certificate of a public bundle names.
        """
        if not ledger.is_drawn(key) and (self.bundle(key).exists() or is_stored(self.database, key)):
            raise OdError(
                "OD-LEDGER-ROLLED-BACK",
                f"{key} is public, but the ledger does not record it",
                next_step="restore the ledger and the confidential folder; without them, nothing is drawn",
                spent="the budget spent earlier is unknown",
            )
        ledger.hold_to(ledger_entries(self.releases))

    def public_releases(self) -> list[ReleaseKey]:
        """Return every release that has a public bundle or is in the database, whatever the ledger says."""
        folders = self.releases.glob("*/*/r*")
        bundles = [ReleaseKey.parse(str(folder.relative_to(self.releases))) for folder in folders if folder.is_dir()]
        return sorted({*bundles, *stored_releases(self.database)})

    def published(self, key: ReleaseKey, ledger: Ledger) -> Published:
        """Return the locations of a published release, and the ledger that was charged."""
        measurements = self.confidential.path / key.folder
        return Published(key, self.bundle(key), self.database, ledger, measurements)

    @contextmanager
    def reading(self, settings: SeriesSettings[Any, Any], key: ReleaseKey) -> Iterator[Path]:
        """Yield the file that the records of a release are copied to, and store afterwards how they were read.

        Raises:
            OdError: a level was drawn already, from records that were read with other settings.
        """
        staged, drawn = self.staged(key), self.ledger.is_drawn(key)
        if drawn:
            hold_to_reading(staged.folder, key, settings.reading, drawn=True)
        else:
            forget_reading(staged.folder)
        yield staged.records
        if not drawn:
            keep_reading(staged.folder, settings.reading)

    def hold_to_reading(self, settings: SeriesSettings[Any, Any], key: ReleaseKey) -> None:
        """Refuse to draw or publish from records that were read with other settings than those declared now.

        Raises:
            OdError: they were, so the certificate would state wrong facts about the records.
        """
        hold_to_reading(self.staged(key).folder, key, settings.reading, drawn=self.ledger.is_drawn(key))

    def count(
        self,
        settings: SeriesSettings[P, Any],
        plan: P,
        key: ReleaseKey,
        staged: StagedFiles,
        count: Callable[[], C],
        save: Callable[[C], None],
    ) -> C:
        """Count the input of a release, check that it is the one drawn from, and stage it for this plan.

        Args:
            settings, plan, key: settings, plan and key of the release.
            staged: staged files of the release.
            count: counts the staged records.
            save: stages the counted input.

        Returns:
            The counted input.

        Raises:
            OdError: as ``count``, with the name of the file; no record is counted and such an input is refused; noise
                was drawn from another input; the records were read with other settings.
        """
        drawn = self.ledger.is_drawn(key)
        hold_to_reading(staged.folder, key, settings.reading, drawn=drawn)
        try:
            counted = count()
            plan.acceptance.refuse_empty(counted.total)
        except OdError as error:
            raise error.in_file(settings.records_path(key.period).name) from None
        hold_to_input(self.confidential, key, counted, drawn=drawn)
        staged.keep_counted(plan, partial(save, counted))
        return counted

    def begin(
        self, settings: SeriesSettings[P, Any], plan: P, key: ReleaseKey, counted: Counted, store: Store | None = None
    ) -> DurableMeasurements:
        """Declare the data set, reserve the release in the ledger, and return its measurements, stored ones included.

        Raises:
            OdError: the ledger is older than what is public; the records were read with other settings; or as
                :meth:`od_core.ledger.ledger.Ledger.declare` and :func:`od_core.ledger.measurements.begin_release`.
        """
        ledger, domain = self.ledger, settings.domain
        self._refuse_older_ledger(ledger, key)
        self.hold_to_reading(settings, key)
        ledger.declare(domain)
        return begin_release(self.confidential, ledger, key, domain.name, plan, counted, settings.noise, store)

    def measurements(self, key: ReleaseKey) -> DurableMeasurements:
        """Return the stored measurements of a release."""
        return DurableMeasurements(self.confidential.subfolder(key.folder), self.ledger, key)

    def release(self, settings: ReleaseSettings, plan: ReleasePlan, key: ReleaseKey) -> Release:
        """Return the release of flows, from its staged estimates and stored measurements."""
        ledger = self.ledger
        leaves = self.staged(key).estimate(plan.tree.depth, refined=plan.mechanism.refines)
        return finish(plan, leaves, self.measured(plan, key), noise=ledger.noise(key), spent=ledger.spent(key, plan))

    def group_sizes(self, settings: SeriesSettings[GroupSizePlan, Any], key: ReleaseKey) -> GroupSizeRelease:
        """Return the group-size table. Raises OdError if the staged one is not what its measurements give."""
        release = self.estimated_group_sizes(settings, key)
        staged = self.staged_group_sizes(key).histograms(release.frame)
        if not all(map(np.array_equal, release.histograms, staged)):
            raise OdError(
                "OD-STAGED-FILE-CHANGED",
                f"the staged histograms of {key} differ from the result of its measurements",
                next_step="run the whole release again; it reads its measurements back and draws nothing twice",
                spent="budget reserved earlier stays charged",
            )
        return release

    def estimated_group_sizes(self, settings: SeriesSettings[GroupSizePlan, Any], key: ReleaseKey) -> GroupSizeRelease:
        """Return the group-size table, estimated from its stored measurements."""
        plan, ledger = self.plan(settings, key), self.ledger
        measured = self.measured_group_sizes(plan, key)
        return estimated(plan, measured, spent=ledger.spent(key, plan), noise=ledger.noise(key))

    def measured_group_sizes(self, plan: GroupSizePlan, key: ReleaseKey) -> list[tuple[LaplaceStep, NoisyVector]]:
        """Return the stored measurements of a group-size table, in the order of its steps."""
        measurements = self.measurements(key)
        return [(step, measurements.read(step)) for step in plan.steps]

    def stops(self, settings: SeriesSettings[StopsPlan, Any], key: ReleaseKey) -> StopsRelease:
        """Return the release of trips with stops, estimated from its stored measurement."""
        plan, ledger = self.plan(settings, key), self.ledger
        noisy = self.measurements(key).read(plan.step)
        return boxes_of(plan, noisy, spent=ledger.spent(key, plan), noise=ledger.noise(key))

    def measured(self, plan: ReleasePlan, key: ReleaseKey, steps: Sequence[Step] | None = None) -> list[Measurement]:
        """Return the stored measurements of all or some steps of a release, with the staged nodes above, top first."""
        staged, measurements = self.staged(key), self.measurements(key)
        asked = plan.steps if steps is None else steps
        return [Measurement(step, staged.nodes_above(plan, step), measurements.read(step)) for step in asked]

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Warehouse]:
        """Hold the lock for the whole run, and report dead runs as failed before the run continues."""
        if context.instance is not None and context.run is not None:
            mark_process(context.instance, context.run.run_id)
            mark_release(context.instance, context.run)
        with exclusive(self.var, seconds=self.lock_seconds), closed_sessions():
            if context.instance is not None:
                sweep_dead_runs(context.instance)
            yield self
