"""Use what Dagster has no public name for, what it calls beta, and what differs between its versions.

No other module imports a private part of Dagster. Two of these parts are patched while projects are loaded and one
while a job is run in this process, because Dagster has no option for it: see :func:`leave_out_folders`,
:func:`skip_json_schemas` and :func:`execute_with_origin`.
"""

import datetime
import glob
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import dagster as dg
from dagster._core.definitions.repository_definition import SINGLETON_REPOSITORY_NAME
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord as AssetCheckExecutionRecord
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster._core.storage.tags import MAX_RETRIES_TAG as MAX_RETRIES_TAG
from dagster._utils.interrupts import capture_interrupts
from dagster.components.core import load_defs
from dagster.components.core.defs_module import EXPLICITLY_IGNORED_GLOB_PATTERNS
from dagster_shared.record import as_dict
from packaging.version import Version

if TYPE_CHECKING:
    from dagster._core.definitions.assets.graph.asset_graph import AssetGraph as AssetGraph
    from starlette.applications import Starlette

UnresolvedJob = UnresolvedAssetJobDefinition
"""A job of chosen assets, before Dagster knows which assets there are."""

CheckStatus = AssetCheckExecutionRecordStatus
"""Whether a check passed, failed or was only planned, in a record of Dagster's storage."""

DAEMON = "dagster._daemon"
"""Module that runs the daemon, which starts runs and sensors."""

CHILD_PROCESS = "dagster._core.executor.child_process_executor"
"""Module of the function that a process executes if an executor starts one for each step."""

_PLAN_LOG = "dagster._core.execution.plan.active"
"""Name of the log that warns of each skipped check."""

_IS_1_12 = Version(dg.__version__) < Version("1.13")


def make_owners_argument(owners: Sequence[str]) -> dict[str, Any]:
    """Return the argument ``owners`` of a job, schedule or sensor; Dagster 1.12 has no such argument."""
    return {} if _IS_1_12 else {"owners": list(owners)}


class _OwnedJob(UnresolvedJob):
    """A job with owners. Dagster would warn whenever it resolves one, in every step of every run: owners are beta."""

    def resolve(self, *arguments: Any, **named: Any) -> dg.JobDefinition:
        """Return the resolved job, without warnings that its owners are beta. Such warnings of other jobs stay.

        Its executor is that of the project or, if that declares none, the one that runs all steps in this process:
        Dagster's default would load the project in every step.
        """
        with suppress_beta_warnings():
            named["default_executor_def"] = named.get("default_executor_def") or dg.in_process_executor
            return super().resolve(*arguments, **named)


@contextmanager
def suppress_beta_warnings() -> Iterator[None]:
    """Suppress Dagster's warnings of beta parts, such as owners, while a job is resolved or run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        yield


def define_owned_job(name: str, owners: Sequence[str], **options: Any) -> UnresolvedJob:
    """Return the job that ``dagster.define_asset_job`` returns for a name and options, with owners."""
    return _OwnedJob(**as_dict(dg.define_asset_job(name, **options, **make_owners_argument(owners))))


def name_asset_group(*parts: str) -> str:
    """Return the name of a group of assets of a series: ``us_flights/inputs``, or ``us_flights_inputs`` in 1.12."""
    return ("_" if _IS_1_12 else "/").join(parts)


def find_recorded_checks(instance: dg.DagsterInstance, key: dg.AssetKey) -> set[dg.AssetCheckKey]:
    """Return the keys of all checks of an asset that an instance has records of; empty if its storage is not in SQL.

    Dagster has no public function for it.
    """
    import sqlalchemy  # which the definitions of a project do not need, and takes 0.2 s with what Dagster defines by it
    from dagster._core.storage.event_log import SqlEventLogStorage
    from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable

    storage, stored = instance.event_log_storage, AssetCheckExecutionsTable.c
    if not isinstance(storage, SqlEventLogStorage):
        return set()
    with storage.index_connection() as connection:
        names = sqlalchemy.select(stored.check_name).where(stored.asset_key == key.to_string()).distinct()
        return {dg.AssetCheckKey(key, name) for (name,) in connection.execute(names)}


@contextmanager
def leave_out_folders(folders: Iterable[Path]) -> Iterator[None]:
    """Make Dagster ignore folders of declarations in this context.

    It has a list of patterns of names to ignore, but no option that extends it. So all folders of such a name are
    ignored.
    """
    patterns = EXPLICITLY_IGNORED_GLOB_PATTERNS
    before = list(patterns)
    patterns.extend(glob.escape(folder.name) for folder in folders)
    try:
        yield
    finally:
        patterns[:] = before


def is_left_out(folder: Path) -> bool:
    """Return whether Dagster ignores a folder now because of :func:`leave_out_folders`."""
    return glob.escape(folder.name) in EXPLICITLY_IGNORED_GLOB_PATTERNS


@contextmanager
def skip_json_schemas() -> Iterator[None]:
    """Load definitions in this context without the JSON Schemas of all components.

    Only Dagster's UI needs them, and they take half a second.
    """
    original = load_defs.get_library_json_enriched_defs
    load_defs.get_library_json_enriched_defs = lambda tree: dg.Definitions(component_tree=tree)
    try:
        yield
    finally:
        load_defs.get_library_json_enriched_defs = original


def execute_with_origin(
    job: dg.JobDefinition, instance: dg.DagsterInstance, location: str, **options: Any
) -> dg.ExecuteInProcessResult:
    """Execute a job in this process, as a run of the code location of that name, and return Dagster's result.

    With this origin, the UI shows the run on the page of the job and on the timeline. ``execute_in_process`` takes no
    origin, so it is bound to the function with which this instance object creates runs. Two loggers that would warn of
    what is no defect are silenced. ``options`` are further arguments of ``execute_in_process``.
    """
    origin = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(location), SINGLETON_REPOSITORY_NAME)
    create_run = partial(type(instance).create_run_for_job, instance, remote_job_origin=origin.get_job_origin(job.name))
    instance.create_run_for_job = create_run  # type: ignore[method-assign]
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)  # an interrupt may close a connection: no defect
    logging.getLogger(_PLAN_LOG).setLevel(logging.ERROR)
    with capture_interrupts(), suppress_beta_warnings():
        return job.execute_in_process(instance=instance, raise_on_error=False, **options)


def get_asset_function(asset: dg.AssetsDefinition) -> Callable[..., Any]:
    """Return the function that computes an asset, as its module defines it."""
    return cast("Callable[..., Any]", cast("Any", asset.op.compute_fn).decorated_fn)


def is_cron_line(text: str) -> bool:
    """Return whether Dagster accepts a text as the cron line of a schedule."""
    from dagster._utils.schedules import is_valid_cron_schedule  # it takes a second, and few projects need it here

    return is_valid_cron_schedule(text)


def find_shortest_cron_interval(line: str) -> datetime.timedelta:
    """Return the shortest time between two ticks of a cron line. Raises ValueError if it is no cron line."""
    from dagster._utils.schedules import get_smallest_cron_interval  # it takes a second, and few series have any
    from dagster_shared.check import CheckError

    try:
        return get_smallest_cron_interval(line)
    except CheckError:
        raise ValueError(f"{line!r} is no cron line") from None


@contextmanager
def make_web_application(instance: dg.DagsterInstance, workspace: Path) -> Iterator["Starlette"]:
    """Yield the application of Dagster's web server for the code servers that a workspace file names."""
    from dagster._core.workspace.context import WorkspaceProcessContext
    from dagster._core.workspace.load_target import WorkspaceFileTarget
    from dagster_webserver.app import create_app_from_workspace_process_context

    instance.optimize_for_webserver(15_000, 3600, 20)  # as dagster-webserver does
    target = WorkspaceFileTarget([str(workspace)])
    with WorkspaceProcessContext(instance, target, version=dg.__version__) as context:
        yield create_app_from_workspace_process_context(context)


@contextmanager
def run_code_servers(
    instance: dg.DagsterInstance, module: str, root: Path, location: str, log_level: str
) -> Iterator[list[dict[str, Any]]]:
    """Start the code servers of a project, as ``dg dev`` does, and yield their entries for a workspace file.

    They are those of the ``workspace.yaml`` in ``root`` or, without such a file, one for the ``module``.
    """
    from dagster._cli.proxy_server_manager import ProxyServerManager
    from dagster._core.workspace.load_target import ModuleTarget, WorkspaceFileTarget, WorkspaceLoadTarget

    target: WorkspaceLoadTarget = ModuleTarget(module, None, str(root), location)
    workspace = root / "workspace.yaml"
    if workspace.is_file():
        target = WorkspaceFileTarget([str(workspace)])
    with ProxyServerManager(instance, target, log_level) as servers:
        yield [dict(server) for server in servers.get_code_server_specs()]
