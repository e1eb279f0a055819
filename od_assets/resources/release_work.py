"""Define the work on one release: count the input, reserve the budget, and read the plan and the measurements."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Generic, Self, TypeVar, cast

from od_assets.failures import convert_errors_without_values
from od_assets.resources.arrivals import store_source_state
from od_assets.resources.dead_runs import PERIOD_TAG, UNATTENDED, make_run_tags, mark_charge
from od_assets.resources.retries import request_retry
from od_assets.resources.warehouse import Warehouse
from od_assets.series.flows import FlowSeries
from od_assets.series.series import G, P, Series, TableSeries
from od_core import OdError, Release, ReleaseKey, ReleasePlan
from od_core.extras import require
from od_core.flows.estimation.levels import Measurement
from od_core.flows.estimation.rule_choice import read_earlier_evidence
from od_core.flows.parts import read_first_band_counts
from od_core.flows.staging import StagedRelease
from od_core.ledger.measurements import DurableMeasurements, NoisyVector, begin_release
from od_core.ledger.object_store import LocalStore, Store, store_at
from od_core.ledger.release_key import select_earlier_releases
from od_core.ledger.staged_files import Counted, StagedFiles, StagedTable, hold_to_input
from od_core.ledger.user_counters import UserCounters
from od_core.noise.backends import resolve_noise_source
from od_core.periods import Period
from od_core.privacy.domain import CALENDAR
from od_core.privacy.plan import EARLIER, GaussianStep, Step
from od_core.publication.bundle import restore_folder
from od_core.publication.certificate import compute_certificate_digest
from od_core.publication.database import list_stored_releases
from od_core.publication.read_back import (
    describe_as_published,
    make_damaged_bundle_error,
    read_bundle_certificate,
    read_certified_entries,
)
from od_core.published.verification import repair_release
from od_core.records.counts import CountFiles, TripCounts
from od_core.records.open_file import add_file_to_error

C = TypeVar("C", bound=Counted)


class ReleaseWork(Generic[P, G]):
    """The work on one release of any kind, in a run that has locked the warehouse.

    Raises OdError if the warehouse writes to another folder than ``var`` of the series' project.
    """

    def __init__(self, warehouse: Warehouse, series: Series[P, G], key: ReleaseKey) -> None:
        if warehouse.var != series.project.var:
            other = f"another folder than that of the project, {series.project.var}"
            step = "bind no other od_warehouse than the one that OdWarehouse declares"
            raise OdError("OD-WAREHOUSE-OTHER", f"the resource od_warehouse writes to {other}", next_step=step)
        self.warehouse = warehouse
        self.series = series
        self.key = key

    @classmethod
    def find_or_make(cls, warehouse: Warehouse, series: Series[P, G], key: ReleaseKey) -> Self:
        """Return the work on a release. In a run, it is always the same object, so its plan is computed only once."""
        work = warehouse.works.get(key)
        if not isinstance(work, cls) or work.series is not series:
            work = warehouse.works[key] = cls(warehouse, series, key)
        return work

    @classmethod
    @contextmanager
    def enter_step(cls, context: Any, warehouse: Warehouse, series: Series[P, G]) -> Iterator[Self]:
        """Yield the work on the release of a step's partition. Errors in this context show no confidential value.

        A run of chosen assets gets the tags of the job of the series. What the step charged is added to a tag of its
        run, also if the step fails. A lost folder of a published bundle is first unpacked from its zip file. A step
        that fails for a passing reason is tried again; see :mod:`od_assets.resources.retries`.

        Raises OdError, as a failure of Dagster, if the release was withdrawn; if the ledger is of another environment;
        or if a schedule, a sensor or a condition started the run, and the ledger has no release of the data set yet.
        """
        warehouse.drawing.clear()
        retries = request_retry(context, lambda: bool(warehouse.drawing))
        with convert_errors_without_values(warehouse.confidential, retries):
            warehouse.hold_to_environment()
            work = cls.find_or_make(warehouse, *series.find_release(context.partition_key))
            with warehouse.ledger.one_look():
                withdrawal = warehouse.ledger.find_withdrawal(work.key)
                if withdrawal is not None:
                    raise withdrawal.make_withdrawn_error(work.key)
                waits = warehouse.explain_wait_for_first_run(work.series, Period(work.key.period))
                published = work.published
                charges_before = len(warehouse.ledger.list_charges(work.key))
            if waits is not None and UNATTENDED & context.run.tags.keys():
                raise OdError("OD-LEDGER-UNATTENDED", f"{work.key}: {waits}", next_step="run it by hand")
            tags = make_run_tags(work.series)
            if not tags.items() <= context.run.tags.items():
                context.instance.add_run_tags(context.run.run_id, tags | {PERIOD_TAG: work.key.period})
            if published is not None:
                restore_folder(warehouse.locate_bundle(work.key), str(work.key), published)
            try:
                yield work
            finally:
                with suppress(OdError):  # the fault of a ledger is reported where it is used
                    charged = warehouse.ledger.list_charges(work.key)[charges_before:]
                    mark_charge(context.instance, context.run.run_id, [charge.as_rho for _, charge in charged])

    @property
    def folder(self) -> Path:
        """Folder of the release in the confidential folder."""
        return self.warehouse.confidential.make_subfolder(self.key.folder)

    @property
    def staged(self) -> StagedFiles:
        """Staged files of the release."""
        return StagedFiles(self.folder)

    @cached_property
    def geography(self) -> G:
        """Geography from the lists that the geography asset stored; of a published release, with its descriptions.

        Raises OdError if the asset has not run.
        """
        kept = self.series.read_stored_geography(self.warehouse.geographies)
        bundle = self.warehouse.locate_bundle(self.key)
        describe = partial(describe_as_published, bundle=bundle, published=self.published)
        return self.series.describe_geography(kept, describe)

    @property
    def published(self) -> str | None:
        """Digest of the certificate of the release; None if it is not published."""
        return self.warehouse.locate_release(self.key).find_certificate_digest()

    @cached_property
    def plan(self) -> P:
        """Plan over the stored geography; see :meth:`make_plan`.

        Raises OdError if the ledger has reserved the release with another plan, or its revision with other areas, or
        its draws of the series are not those of this project and its prefix.
        """
        plan = self.make_plan(self.geography)
        self.warehouse.ledger.hold_to_plan(self.key, self.series.domain.name, plan)
        self.warehouse.refuse_drawn_elsewhere(self.series, self.key)
        return plan

    def make_plan(self, geography: G) -> P:
        """Return the plan over a geography, with the evidence of earlier releases if it chooses a rule of estimation.

        A reserved release keeps the evidence of its reservation, and what an earlier version planned otherwise.

        Raises:
            OdError: as in :meth:`od_assets.series.series.Series.plan`; or an earlier bundle is missing or changed.
        """
        reserved = self.warehouse.ledger.read_reserved_plan(self.key)
        plan = self.series.plan(geography, self.key.period, is_reserved=reserved is not None)
        if reserved is not None:
            plan = plan.as_reserved(reserved)
        return plan.with_earlier_evidence(
            # Only plans of flows call this function.
            lambda: (
                self._find_earlier_evidence(cast("ReleasePlan", plan)) if reserved is None else reserved.get(EARLIER)
            )
        )

    def _find_earlier_evidence(self, plan: ReleasePlan) -> Mapping[str, Any] | None:
        """Return the newest comparable evidence on the rules of estimation from earlier periods; None if there is none.

        See :func:`od_core.flows.estimation.rule_choice.read_earlier_evidence`. Releases with another plan, or without
        this evidence, are passed over, and so are other revisions of this period, which have the same records. Raises
        OdError if an earlier bundle is missing or changed.
        """
        ledger = self.warehouse.ledger
        for key in select_earlier_releases(self.key, ledger.list_published_releases(series=self.key.release)):
            certificate = read_bundle_certificate(self.warehouse.locate_bundle(key))
            if compute_certificate_digest(certificate) != ledger.read_publication(key).get("certificate"):
                raise make_damaged_bundle_error(key, "its certificate differs from the one that was published")
            evidence = read_earlier_evidence(plan, certificate)
            if evidence is not None:
                return evidence
        return None

    def repair_if_settings_changed(self) -> bool:
        """Repair the release if it was published with other settings than are declared now, and return whether it was.

        Raises OdError if the declared settings are not valid, or the published release cannot be repaired.
        """
        ledger = self.warehouse.ledger
        if not ledger.is_published(self.key):
            return False
        try:
            self.hold_to_reading()
            ledger.hold_to_plan(self.key, self.series.domain.name, self.make_plan(self.series.read_geography()))
        except OdError as error:
            has_other_settings = error.code in ("OD-REPLAY-PLAN-CHANGED", "OD-REPLAY-READING-CHANGED")
            if not has_other_settings or repair_release(self.warehouse.locate_release(self.key)) is None:
                raise
            return True
        return False

    @property
    def is_drawn(self) -> bool:
        """True if a draw of the release has ever begun."""
        return self.warehouse.ledger.is_drawn(self.key)

    @contextmanager
    def stage_records(self, files: Sequence[Path]) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Yield the path to which the body copies the records, and the settings of reading, and store these afterwards.

        The body may add settings, such as the snapshot of a table that it reads. Of each file, the state and the digest
        are stored. If noise was drawn already, nothing is stored.

        Args:
            files: the files of records that the body reads.

        Raises:
            OdError: a level was drawn already, from records that were read with other settings. Or a file of records
                was changed while the body read it.
        """
        settings = self.series.reading
        if self.is_drawn:
            self.hold_to_reading()
            yield self.staged.records, settings
            return
        with self.staged.store_reading_settings(settings), ExitStack() as source_states:
            if self.series.stored_table is None:
                for file in files:
                    source_states.enter_context(store_source_state(self.folder, file))
            yield self.staged.records, settings

    def hold_to_reading(self) -> None:
        """Raise OdError if the records were read with other settings than those declared now."""
        self.staged.hold_to_reading(self.key, self.series.reading, drawn=self.is_drawn)

    def count(self, count: Callable[[], C], save: Callable[[C], None]) -> C:
        """Count the staged records with ``count``, stage what was counted with ``save``, and return it.

        Raises:
            OdError: ``count`` raised it (if it concerns the records, the names of the file and its columns are added);
                no record is counted, and the series does not accept an empty input; noise was drawn from another input;
                or the records were read with other settings.
        """
        self.hold_to_reading()
        plan = self.plan  # computed first, because an error of the plan must not name the file of records
        try:
            counted = count()
            plan.acceptance.refuse_empty(counted.total, plan.unit)
        except OdError as error:
            raise add_file_to_error(
                error, self.series.locate_records_file(self.key.period).name, self.series.columns
            ) from None
        if self.counters is None:
            hold_to_input(self.warehouse.confidential, self.key, counted, drawn=self.is_drawn)
        else:
            self.counters.hold_to_input(counted)
        self.staged.save_counts_for_plan(plan, partial(save, counted))
        return counted

    @property
    def counters(self) -> UserCounters | None:
        """Confidential: counters of users, which counting reads and stores, for a unit of a year."""
        domain = self.series.domain
        if not domain.unit.is_of_year:
            return None
        confidential, ledger, year = self.warehouse.confidential, self.warehouse.ledger, domain.year or CALENDAR
        return UserCounters(confidential, ledger, self.key, domain.name, domain.unit, domain.elementary_period, year)

    def begin(self, counted: Counted, store: Store | None = None) -> DurableMeasurements:
        """Declare the data set, reserve the release in the ledger, and return the store of its measurements.

        Raises:
            OdError: the ledger is older than the public releases; the records were read with other settings; the series
                was renamed; or as in :meth:`od_core.ledger.ledger.Ledger.declare` and
                :func:`od_core.ledger.measurements.begin_release`.
        """
        require("bundle")  # the bundle is written after the budget is spent
        ledger, domain = self.warehouse.ledger, self.series.domain
        self._refuse_older_ledger()
        self.hold_to_reading()
        self.warehouse.refuse_renamed(self.series, self.key, counted)
        ledger.declare(domain)
        self.warehouse.refuse_other_ledger(domain.name)
        confidential, noise = self.warehouse.confidential, self.series.noise
        self.warehouse.drawing.add(self.key)
        begun = begin_release(
            confidential, ledger, self.key, domain.name, self.plan, counted, noise, store, self.counters
        )
        self.warehouse.refuse_other_ledger(domain.name)  # from now on, a copy without this charge is refused
        return begun

    def _refuse_older_ledger(self) -> None:
        """Raise OdError if this release is public without a draw in the ledger, or an entry of a public one is lost."""
        warehouse, key = self.warehouse, self.key
        if not self.is_drawn and (
            warehouse.locate_bundle(key).exists() or key in list_stored_releases(warehouse.database)
        ):
            message = f"{key} is public, but the ledger does not record it"
            step = "restore the ledger and the confidential folder; without them, nothing is drawn"
            raise OdError("OD-LEDGER-ROLLED-BACK", message, next_step=step, spent="the budget spent earlier is unknown")
        warehouse.ledger.hold_to(read_certified_entries(warehouse.releases))

    @cached_property
    def measurements(self) -> DurableMeasurements:
        """Stored measurements of the release, each of which is read once in a run."""
        folder = self.warehouse.confidential.path / self.key.folder  # they are only read, so it is not made
        return DurableMeasurements(folder, self.warehouse.ledger, self.key)

    def digest_measurements(self, steps: Iterable[Step]) -> str:
        """Return the data version of measured steps: the digests of their stored measurements."""
        return ".".join(self.warehouse.ledger.read_measured_digest(self.key, step.number) for step in steps)

    @property
    def facts_of_draws(self) -> Mapping[str, Any]:
        """Spent budget (``spent``) and names of the noise backends (``noise``) of the release, from the ledger."""
        ledger = self.warehouse.ledger
        return {
            "spent": ledger.compute_spent_budget(self.key, self.plan),
            "noise": ledger.read_noise_backends(self.key),
        }


class FlowWork(ReleaseWork[ReleasePlan, Any]):
    """The work on a release of flows."""

    series: FlowSeries

    @property
    def staged(self) -> StagedRelease:
        """Staged files of the release, with counts and parts in the store of its engine."""
        return StagedRelease(self.folder, self.store)

    @property
    def store(self) -> Store:
        """Store of the counts and of files processed in parts: this folder, or the store that the engine declares.

        Raises OdError if the declared store cannot be used.
        """
        engine = self.series.engine
        if engine is None or engine.store is None:
            return LocalStore(self.folder)
        return store_at(f"{engine.store}/{self.key.folder}")

    @property
    def counts(self) -> CountFiles:
        """Confidential: counts of the release. Raises OdError if they are absent."""
        return self.staged.open_trip_counts()

    @cached_property
    def first_band_counts(self) -> TripCounts:
        """Confidential: counts from which the first band is measured. Raises OdError if they are of another plan."""
        self.staged.refuse_other_plan(self.plan)
        return read_first_band_counts(self.plan, self.counts)

    @property
    def begun(self) -> DurableMeasurements:
        """Measurements of the release, which is reserved at the first access, before its first band is measured."""
        measurements = self._begun
        self.warehouse.drawing.add(self.key)
        return measurements

    @cached_property
    def _begun(self) -> DurableMeasurements:
        """Measurements of the release, which is reserved once in a run."""
        return self.begin(self.first_band_counts if self.plan.bands is None else self.counts)

    def read_measurements(self, steps: Sequence[GaussianStep] | None = None) -> list[Measurement]:
        """Return the stored measurements of the given steps, in their order, each with the nodes above it.

        By default, these are the steps of the flow tree, coarse to fine, and then those of area totals.
        """
        staged, measurements = self.staged, self.measurements
        selected = (*self.plan.steps, *self.plan.area_total_steps) if steps is None else steps
        return [
            Measurement(step, staged.read_nodes_above(self.plan, step), measurements.read(step)) for step in selected
        ]

    @cached_property
    def release(self) -> Release:
        """The release, from its staged estimates and stored measurements, which the assets of a run share."""
        return Release(
            self.plan,
            leaves=self.staged.read_estimate(self.plan.tree.depth, refined=self.plan.mechanism.refines),
            segments=self.staged.read_segments(self.plan),
            uncounted=self.measurements.read_uncounted_trips(self.plan),
            measured=tuple(self.read_measurements()),
            **self.facts_of_draws,
        )


class TableWork(ReleaseWork[P, G]):
    """The work on a release that is measured by a single asset and estimated as one table."""

    series: TableSeries[P, G]

    @property
    def staged(self) -> StagedTable[P, Any, Any]:
        """Staged files of the release."""
        return self.series.kind.staging(self.folder)

    def measure(self) -> Sequence[tuple[Step, NoisyVector]]:
        """Charge and measure every step that is not measured yet, and return all steps with their noisy values."""
        self.staged.refuse_other_plan(self.plan)
        counted = self.staged.read_counted_input(self.plan)
        return self.series.kind.measure(
            self.plan, counted, resolve_noise_source(self.series.noise), self.begin(counted)
        )

    def read_measurements(self) -> list[tuple[Step, NoisyVector]]:
        """Return each step with its stored noisy values, in the order of the steps."""
        measurements = self.measurements
        return [(step, measurements.read(step)) for step in self.plan.steps]

    def estimate_release(self) -> Any:
        """Estimate the release from its stored measurements, and return it."""
        return self.series.kind.estimate(self.plan, self.read_measurements(), **self.facts_of_draws)

    @property
    def release(self) -> Any:
        """The release, estimated from its measurements. Raises OdError if the staged table differs from it."""
        release = self.estimate_release()
        self.staged.refuse_other_table(release)
        return release


def choose_work_class(series: Series[P, G]) -> type[FlowWork] | type[TableWork[P, G]]:
    """Return the class of the work on the releases of a series."""
    return TableWork if series.in_one_table else FlowWork
