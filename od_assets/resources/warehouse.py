"""Define the warehouse: the folders, the ledger and the database of the project."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NotRequired, Self, TypedDict

import dagster as dg
from pydantic import PrivateAttr

from od_assets.interrupts import iterate_until_interrupt
from od_assets.project import Project, find_current_project
from od_assets.resources.dead_runs import mark_process, mark_release, sweep_dead_runs
from od_assets.resources.folders import Folders
from od_assets.resources.pruning import compress_logs
from od_assets.resources.retries import enter_with_retries
from od_assets.series.flows import close_spark_sessions_on_exit
from od_assets.series.section import read_key_prefix
from od_core import Ledger, OdError, Published, ReleaseKey, verify_release
from od_core.errors import suggest_similar_name
from od_core.flows.publishing.derived_kind import ASSISTED
from od_core.ledger.chain import EntryName
from od_core.ledger.confidential import LOCK_SECONDS
from od_core.publication.database import list_stored_releases
from od_core.publication.read_back import read_withdrawals, refuse_withdrawn
from od_core.published.opening import find_bundle_folders


class Warehouse(dg.ConfigurableResource, Folders):
    """The folders, the ledger and the database of the project. Only one run at a time can lock them.

    Every run is a separate process (UI, schedule, backfill, command line), so neither the executor nor a pool can
    prevent two runs at the same time. A file lock can: the system releases it when the process ends or crashes.
    """

    folder: str = ""
    """Folder of everything that releases write; by default, ``var`` of the current project."""

    project: str = ""
    """Folder of the project, as :attr:`Folders.project_folder`; by default, that of the current one."""

    lock_seconds: float = LOCK_SECONDS
    """Seconds for which a run waits for the lock."""

    keep_records_days: int | None = None
    """Days after publication for which the copy of a release's records is kept; None for as long as nobody purges."""

    key_prefix: str = ""
    """Prefix of the asset keys of the project; empty without."""

    _instance: dg.DagsterInstance | None = PrivateAttr(None)
    _run: ExitStack | None = PrivateAttr(None)
    _violations: dict[tuple[str, ...], int] = PrivateAttr(default_factory=dict)

    @classmethod
    def from_project(cls, project: Project, **settings: Any) -> Self:
        """Return the warehouse of a project, with other fields as given."""
        return cls(folder=str(project.var), project=str(project.folder), **settings)

    @property
    def var(self) -> Path:
        """Folder of everything that releases write."""
        return Path(self.folder) if self.folder else find_current_project().var

    @property
    def project_folder(self) -> Path:
        """Folder of the project, whose ``.env`` may name the ledger."""
        return Path(self.project) if self.project else super().project_folder

    @cached_property
    def ledger(self) -> Ledger:
        """Budget ledger as in :attr:`Folders.ledger`. A run opens its SQLite file only once.

        A connection to a server is not kept: it could end during a long run, which goes on without it.
        """
        ledger: Ledger = super().ledger
        if self._run is not None and self.ledger_place[1] is None:
            self._run.enter_context(ledger.keep_open())
        return ledger

    @cached_property
    def works(self) -> dict[ReleaseKey, object]:
        """Work objects of this run by key; see :meth:`od_assets.resources.release_work.ReleaseWork.find_or_make`."""
        return {}

    @cached_property
    def drawing(self) -> set[ReleaseKey]:
        """Releases of which the current step may have drawn noise, so that it is not tried again."""
        return set()

    def count_once(self, key: tuple[str, ...], count: Callable[[], int]) -> int:
        """Return the number of violations that ``count`` returns; it is called once in a run for each key.

        A check runs after its asset and again before publication, with the same result if its input is the same. So the
        key must have the digest or the state of the input.
        """
        if key not in self._violations:
            self._violations[key] = count()
        return self._violations[key]

    def refuse_other_ledger(self, data_set: str) -> None:
        """Raise OdError if the ledger is of another environment, or not the one that this Dagster instance charged.

        Two projects of one instance with a data set of the same name would otherwise spend its budget twice. The
        instance stores the newest entry of each declared data set, which the ledger must have; this call stores it
        anew. Copies of a project with copies of its instance do not know of each other.
        """
        self.ledger.hold_to_environment(self.environment, data_set)
        if self._instance is None:
            return
        cursors = self._instance.daemon_cursor_storage
        name = f"od/ledger_of/{data_set}"
        cursor = cursors.get_cursor_values({name}).get(name)
        if cursor is not None:
            number, entry_hash = cursor.split(" ")
            if not self.ledger.has(EntryName(int(number), entry_hash)):
                raise OdError(
                    "OD-LEDGER-OTHER",
                    f"releases of this Dagster instance charged data set {data_set!r} to another ledger, or to a newer"
                    " copy of this one",
                    next_step="release it in the project that has that ledger, or restore that ledger; a different data"
                    " set needs a different name",
                )
        newest = self.ledger.read_newest_entry(data_set)
        cursors.set_cursor_values({name: f"{newest.number} {newest.hash}"})

    def list_public_releases(self) -> list[ReleaseKey]:
        """Return every release that has a public bundle or is in the database, even if the ledger lacks it."""
        return sorted({*find_bundle_folders(self.releases), *list_stored_releases(self.database)})

    def locate_release(self, key: ReleaseKey) -> Published:
        """Return the locations of a published release, and the ledger that was charged."""
        return Published.from_folder(self.var, key, self.ledger)

    def get_resource_definition(self) -> Any:
        """Return the resource for Dagster, with these settings in every run; see :func:`fix_resource_settings`."""
        return fix_resource_settings(self, super().get_resource_definition())

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Self]:
        """Yield the warehouse, which is locked for the whole run.

        Under the lock, runs whose process has ended are reported as failed. Afterwards, records that are no longer kept
        are removed, and old logs compressed.
        """
        if context.instance is not None and context.run is not None:
            mark_process(context.instance, context.run.run_id)
            mark_release(context.instance, context.run, self.key_prefix)
        with (
            enter_with_retries(lambda: self.ledger_chain.lock_for_release(self.lock_seconds), context),
            close_spark_sessions_on_exit(),
            ExitStack() as self._run,
        ):
            if context.instance is not None:
                sweep_dead_runs(context.instance)
            self._instance = context.instance
            yield self
            if self.keep_records_days is not None:
                self.purge(self.keep_records_days, in_use=self.works)  # later steps of this run need their records
            if context.instance is not None:
                compress_logs(context.instance, self.var)


def fix_resource_settings(
    resource: Iterable[tuple[str, object]], definition: dg.ResourceDefinition
) -> dg.ResourceDefinition:
    """Return the definition of a resource whose settings no run can change, so the launchpad does not show them."""
    return definition.configured(lambda _: dict(resource), config_schema={})


class Verification(TypedDict):
    """A JSON-ready row on a release that was verified: whether it has no fault, its faults by part, and what to do."""

    release: str
    verified: bool
    faults: dict[str, str]
    next_step: NotRequired[str]


def verify_published_releases(release: str | None = None, warehouse: Warehouse | None = None) -> list[Verification]:
    """Verify published releases, and return one row per release.

    Args:
        release: a key such as ``us_flights/2001-06/r1``; the name of a series, whose assisted flows are included; or
            None for all releases of the project. They are those that are public here, and others in the ledger whose
            names begin with the prefix of the project.
        warehouse: warehouse of the releases; by default that of the current project.

    Raises:
        OdError: no release with that name was published; or the ledger is missing or cannot be used.
    """
    warehouse = warehouse or Warehouse(key_prefix="".join(read_key_prefix(find_current_project())))
    keys = find_published_releases(warehouse, release)
    with iterate_until_interrupt(keys, "releases were not verified") as rest:
        return [verify_published_release(warehouse.locate_release(key)) for key in rest]


def find_published_releases(warehouse: Warehouse, release: str | None = None) -> list[ReleaseKey]:
    """Return the published releases that the argument of :func:`verify_published_releases` selects, oldest first.

    Those that are public but not in the ledger come last. Raises OdError if a name is given and selects none, or the
    ledger is missing or cannot be used.
    """
    # Opened once, since each opening checks the whole chain.
    published = warehouse.open_existing_ledger().list_published_releases()
    here = warehouse.list_public_releases()
    known = [*published, *sorted({*here} - {*published})]
    if release is None:
        prefix = f"{warehouse.key_prefix}_" if warehouse.key_prefix else ""
        return [key for key in known if key in here or key.release.startswith(prefix)]
    assisted = f"_{ASSISTED.name}"
    keys = [key for key in known if release in (key.release, key.release.removesuffix(assisted), str(key))]
    if not keys:
        withdrawn = [key for key in read_withdrawals(warehouse.releases) if str(key) == release]
        refuse_withdrawn(warehouse.releases, *withdrawn)
        names = tuple(sorted({*(key.release for key in known), *map(str, known)}))
        message = f"{release} was never published here{suggest_similar_name(release, names)}"
        raise OdError("OD-RELEASE-ABSENT", message, next_step="od-release status lists the published releases")
    return keys


def verify_published_release(published: Published) -> Verification:
    """Verify a published release, and return the result.

    A withdrawn release always has a fault, because only what is still public of it is listed for verification.
    """
    if published.ledger.find_withdrawal(published.key) is not None:
        fault = f"it was withdrawn, but is still public in part; od-release withdraw {published.key} ends it"
        return {"release": str(published.key), "verified": False, "faults": {"bundle": fault}}
    findings = verify_release(published)
    faults = {finding.part: finding.fault for finding in findings if finding.fault is not None}
    steps = [finding.next_step for finding in findings if finding.next_step is not None]
    row: Verification = {"release": str(published.key), "verified": not faults, "faults": faults}
    return row | {"next_step": "; ".join(steps)} if steps else row
