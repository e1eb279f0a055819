"""The warehouse: all places that the project writes to, held by one run at a time."""

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
    """Folders, ledger and database of the project; while a run has it, no other run does.

    A run is a process of its own (UI, schedule, backfill, command line), so neither the executor nor a pool
    keeps two of them apart: a lock on a file does, and it goes with its process however that ends.
    """

    lock_seconds: float = LOCK_SECONDS

    @property
    def var(self) -> Path:
        """The folder of everything that is written."""
        return var_folder()

    @property
    def ledger(self) -> Ledger:
        """The budget ledger."""
        return Ledger(self.var / "ledger.sqlite")

    def existing_ledger(self) -> Ledger:
        """The ledger, where there is one: looking at it does not make it. Raises OdError where nothing was released."""
        if not (self.var / "ledger.sqlite").exists() and not (self.var / "confidential" / "ledger.head").exists():
            raise OdError(
                "OD-LEDGER-ABSENT", "there is no ledger yet: nothing was ever released here", next_step="run a release"
            )
        return self.ledger

    def published_periods(self, series: str) -> dict[str, ReleaseKey]:
        """The newest published release of every period of a series; looking does not make a ledger."""
        keys = self.ledger.published() if (self.var / "ledger.sqlite").exists() else []
        return {key.period: key for key in sorted(keys) if key.release == series}

    def verify_ledger(self) -> int:
        """Number of entries of the ledger, found whole and no older than its head and any public certificate.

        Raises:
            OdError: it is edited, damaged, missing or older.
        """
        ledger = self.existing_ledger()
        ledger.hold_to(ledger_entries(self.releases))
        return ledger.verify()

    @property
    def confidential(self) -> ConfidentialFolder:
        """The folder of everything confidential."""
        return ConfidentialFolder(self.var / "confidential")

    @property
    def database(self) -> Path:
        """The public release database."""
        return self.var / "release.duckdb"

    @property
    def releases(self) -> Path:
        """The folder of all public bundles."""
        return self.var / "releases"

    def bundle(self, key: ReleaseKey) -> Path:
        """The public bundle of a release."""
        return self.releases / key.folder

    def data_docs(self, key: ReleaseKey) -> Path:
        """Data Docs of a release: whether each expectation was met, without values."""
        return self.var / "data_docs" / key.folder

    def staged(self, key: ReleaseKey) -> StagedRelease:
        """The files of a release of flows on their way to publication."""
        return StagedRelease(self.confidential.subfolder(key.folder))

    def staged_parts(self, settings: ReleaseSettings, key: ReleaseKey) -> StagedRelease:
        """The same, with its counts and parts where the engine of the series keeps them."""
        store = store_of(settings.engine, self.confidential, key)
        return StagedRelease(self.confidential.subfolder(key.folder), store)

    def counts(self, settings: ReleaseSettings, key: ReleaseKey) -> CountFiles:
        """Confidential: the counts of a release. Raises OdError where they are absent."""
        return self.staged_parts(settings, key).trip_counts()

    def staged_group_sizes(self, key: ReleaseKey) -> StagedGroupSizes:
        """The files of a group-size table on their way to publication."""
        return StagedGroupSizes(self.confidential.subfolder(key.folder))

    def staged_stops(self, key: ReleaseKey) -> StagedStops:
        """The files of a release of trips with stops on their way to publication."""
        return StagedStops(self.confidential.subfolder(key.folder))

    @property
    def geographies(self) -> Path:
        """The folder of the public lists that geography assets have checked."""
        return self.var / "geographies"

    def geography(self, settings: SeriesSettings[Any, G]) -> G:
        """The geography as its asset has checked it. Raises OdError where that has not run."""
        return settings.kept_geography(self.geographies)

    def plan(self, settings: SeriesSettings[P, Any], key: ReleaseKey) -> P:
        """The plan over the checked geography; the one that the release was set aside with, if it was.

        Raises:
            OdError: geography or settings are not those that the release was set aside with.
        """
        plan = settings.plan(self.geography(settings), key.period)
        self.ledger.hold_to_plan(key, settings.domain.name, plan)
        return plan

    def _refuse_older_ledger(self, ledger: Ledger, key: ReleaseKey) -> None:
        """A public release that the ledger knows nothing of: the ledger is lost or old, and must not begin anew.

        Raises:
            OdError: bundle or database hold this release, though it was never drawn under this ledger; or the ledger
                lacks an entry that the certificate of any public bundle names.
        """
        if not ledger.is_drawn(key) and (self.bundle(key).exists() or is_stored(self.database, key)):
            raise OdError(
                "OD-LEDGER-ROLLED-BACK",
                f"{key} is public, but the ledger knows nothing of it",
                next_step="restore the ledger and the confidential folder; nothing is drawn without them",
                spent="what was spent before is not known",
            )
        ledger.hold_to(ledger_entries(self.releases))

    def public_releases(self) -> list[ReleaseKey]:
        """Every release that anybody can see, in bundles or in the database, whatever the ledger says."""
        folders = self.releases.glob("*/*/r*")
        bundles = [ReleaseKey.parse(str(folder.relative_to(self.releases))) for folder in folders if folder.is_dir()]
        return sorted({*bundles, *stored_releases(self.database)})

    def published(self, key: ReleaseKey, ledger: Ledger) -> Published:
        """Where a published release stands, and the ledger that it was charged to."""
        measurements = self.confidential.path / key.folder
        return Published(key, self.bundle(key), self.database, ledger, measurements)

    @contextmanager
    def reading(self, settings: SeriesSettings[Any, Any], key: ReleaseKey) -> Iterator[Path]:
        """The file that the records of a release are read into; how they were read is remembered once they are.

        Raises:
            OdError: a level is drawn, of records that were read otherwise.
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
        """Refuse to draw or publish what was read or counted with other settings than are declared now.

        Raises:
            OdError: it was; what its certificate would say of the records is not what was done.
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
        """The input of a release, counted, held to what was drawn from, and kept for this plan.

        Args:
            settings, plan, key: of the release.
            staged: its files.
            count: counts the staged records.
            save: keeps what was counted.

        Raises:
            OdError: as ``count`` says, with the name of the file; nothing is counted, where such an input is refused;
                the input is not what was drawn from; the records were read with other settings.
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
        """The measurements of a release whose data set is declared, and which is set aside; the same at every resume.

        Raises:
            OdError: the ledger is older than what is public; as :meth:`od_core.ledger.ledger.Ledger.declare` and
                :func:`od_core.ledger.measurements.begin_release`.
        """
        ledger, domain = self.ledger, settings.domain
        self._refuse_older_ledger(ledger, key)
        self.hold_to_reading(settings, key)
        ledger.declare(domain)
        return begin_release(self.confidential, ledger, key, domain.name, plan, counted, settings.noise, store)

    def measurements(self, key: ReleaseKey) -> DurableMeasurements:
        """The stored measurements of a release."""
        return DurableMeasurements(self.confidential.subfolder(key.folder), self.ledger, key)

    def release(self, settings: ReleaseSettings, plan: ReleasePlan, key: ReleaseKey) -> Release:
        """The release from its staged estimates and stored measurements."""
        ledger = self.ledger
        leaves = self.staged(key).estimate(plan.tree.depth, refined=plan.mechanism.refines)
        return finish(plan, leaves, self.measured(plan, key), noise=ledger.noise(key), spent=ledger.spent(key, plan))

    def group_sizes(self, settings: SeriesSettings[GroupSizePlan, Any], key: ReleaseKey) -> GroupSizeRelease:
        """The group-size table as it is staged. Raises OdError where its measurements give another one."""
        release = self.estimated_group_sizes(settings, key)
        staged = self.staged_group_sizes(key).histograms(release.frame)
        if not all(map(np.array_equal, release.histograms, staged)):
            raise OdError(
                "OD-STAGED-FILE-CHANGED",
                f"the staged histograms of {key} are not what its measurements give",
                next_step="run the whole release again; its measurements are read back, nothing is drawn twice",
                spent="what was set aside before stays charged",
            )
        return release

    def estimated_group_sizes(self, settings: SeriesSettings[GroupSizePlan, Any], key: ReleaseKey) -> GroupSizeRelease:
        """The group-size table from its stored measurements."""
        plan, ledger = self.plan(settings, key), self.ledger
        measured = self.measured_group_sizes(plan, key)
        return estimated(plan, measured, spent=ledger.spent(key, plan), noise=ledger.noise(key))

    def measured_group_sizes(self, plan: GroupSizePlan, key: ReleaseKey) -> list[tuple[LaplaceStep, NoisyVector]]:
        """The stored measurements of a group-size table, in the order of its steps."""
        measurements = self.measurements(key)
        return [(step, measurements.read(step)) for step in plan.steps]

    def stops(self, settings: SeriesSettings[StopsPlan, Any], key: ReleaseKey) -> StopsRelease:
        """The release of trips with stops from its stored measurement."""
        plan, ledger = self.plan(settings, key), self.ledger
        noisy = self.measurements(key).read(plan.step)
        return boxes_of(plan, noisy, spent=ledger.spent(key, plan), noise=ledger.noise(key))

    def measured(self, plan: ReleasePlan, key: ReleaseKey, steps: Sequence[Step] | None = None) -> list[Measurement]:
        """The stored measurements of a release, or of some steps, with the staged nodes above them, top first."""
        staged, measurements = self.staged(key), self.measurements(key)
        asked = plan.steps if steps is None else steps
        return [Measurement(step, staged.nodes_above(plan, step), measurements.read(step)) for step in asked]

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Warehouse]:
        """Hold the lock for the whole run, once what dead runs left behind is cleared away."""
        if context.instance is not None and context.run is not None:
            mark_process(context.instance, context.run.run_id)
            mark_release(context.instance, context.run)
        with exclusive(self.var, seconds=self.lock_seconds), closed_sessions():
            if context.instance is not None:
                sweep_dead_runs(context.instance)
            yield self
