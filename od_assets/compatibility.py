"""Use what differs between versions of Dagster, what it calls beta, without a warning of each use, and its tables."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from dagster_shared.record import as_dict
from packaging.version import Version

_IS_1_12 = Version(dg.__version__) < Version("1.13")


def make_owners_argument(owners: Sequence[str]) -> dict[str, Any]:
    """Return the argument ``owners`` of a job, schedule or sensor; Dagster 1.12 has no such argument."""
    return {} if _IS_1_12 else {"owners": list(owners)}


class _OwnedJob(UnresolvedAssetJobDefinition):
    """A job with owners. Dagster would warn whenever it resolves one, in every step of every run: owners are beta."""

    def resolve(self, *arguments: Any, **named: Any) -> dg.JobDefinition:
        """Return the resolved job without warnings that owners are beta. Such warnings of other jobs stay.

        Its executor is that of the project. If that declares none, Dagster's would load the project in every step.
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


def define_owned_job(name: str, owners: Sequence[str], **options: Any) -> UnresolvedAssetJobDefinition:
    """Return the job that ``dagster.define_asset_job`` returns for a name and options, with owners."""
    return _OwnedJob(**as_dict(dg.define_asset_job(name, **options, **make_owners_argument(owners))))


def name_asset_group(*parts: str) -> str:
    """Return the name of a group of assets of a series: ``us_flights/inputs``, or ``us_flights_inputs`` in 1.12."""
    return ("_" if _IS_1_12 else "/").join(parts)


def find_recorded_checks(instance: dg.DagsterInstance, key: dg.AssetKey) -> set[dg.AssetCheckKey]:
    """Return the checks of an asset with records in an instance, for whose names Dagster has no public function.

    Without a storage in SQL, it is empty.
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
