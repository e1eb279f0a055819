"""Define the sensors that send notices of published and failed releases, and the channels of these notices."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dagster as dg

from od_assets.failures import failure_lines
from od_assets.metadata import source_of
from od_assets.resources.dead_runs import PERIOD_TAG, RELEASE_TAG
from od_core.errors import OdError


@dataclass(frozen=True)
class Published:
    """A notice that a release was published."""

    release: str
    """Key of the release, such as ``us_flights/2001-06/r1``."""
    facts: dict[str, Any]
    """Public metadata of its bundle, by name, such as guarantee, epsilon and trips."""

    def __str__(self) -> str:
        return f"Published {self.release}. " + "; ".join(f"{name}: {fact}" for name, fact in self.facts.items())


@dataclass(frozen=True)
class Failed:
    """A notice that a run of a release failed."""

    series: str
    period: str | None
    """Period of the run, such as 2001-06; None if the run has no period."""
    run_id: str
    causes: tuple[str, ...]
    """Public lines, one for each failed check and step."""

    def __str__(self) -> str:
        release = self.series if self.period is None else f"{self.series}, {self.period}"
        return " ".join([f"Failed {release}, in run {self.run_id}.", *self.causes])


class Notices:
    """A channel that writes notices to the sensor's log. Override its methods to send them elsewhere.

    Bind the subclass as the Dagster resource ``notices``. Notices contain nothing confidential. Each notice is
    delivered at least once: if a method raises an exception, the notice is delivered again later.
    """

    def published(self, notice: Published, log: logging.Logger) -> None:
        """Deliver the notice of a published release."""
        log.info(str(notice))

    def failed(self, notice: Failed, log: logging.Logger) -> None:
        """Deliver the notice of a failed run, or of a failed blocking check in it."""
        log.error(str(notice))


_FACTS = ("unit", "mechanism", "epsilon", "delta", "rho", "trips", "groups", "bundle", "guarantee")
"""Names of a bundle's metadata that a notice includes, if present. All of them are public."""

_DATA_VERSION = "dagster/data_version"


@dg.run_failure_sensor(
    name="release_failed",
    description="Sends notices of failed releases, with the messages of failed checks and steps.",
    monitor_all_code_locations=True,  # runs of the command line have no code location
    default_status=dg.DefaultSensorStatus.RUNNING,
    metadata=source_of(__file__),
)
def release_failed(context: dg.RunFailureSensorContext, od_notices: dg.ResourceParam[Notices]) -> None:
    """Give one notice per failed run of a release; ignore other runs in the same Dagster instance."""
    run = context.dagster_run
    if RELEASE_TAG not in run.tags or not is_declared_here(context.repository_def, run.tags[RELEASE_TAG]):
        return
    kinds = {dg.DagsterEventType.ASSET_CHECK_EVALUATION, dg.DagsterEventType.STEP_FAILURE}
    entries = context.instance.all_logs(run.run_id, of_type=kinds)
    causes = failure_lines([entry.dagster_event for entry in entries if entry.dagster_event is not None])
    causes = causes or [context.failure_event.message or "the run did not start"]
    notice = Failed(run.tags[RELEASE_TAG], run.tags.get(PERIOD_TAG, context.partition_key), run.run_id, tuple(causes))
    with _taken():
        od_notices.failed(notice, context.log)


@dg.sensor(
    name="release_published",
    description="Sends notices of published releases, with the key and the public facts of each bundle.",
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    metadata=source_of(__file__),
)
def release_published(context: dg.SensorEvaluationContext, od_notices: dg.ResourceParam[Notices]) -> dg.SkipReason:
    """Give one notice per release that was published after the first evaluation.

    A run that publishes the same bytes again gives no notice. An ``asset_sensor`` would receive only the newest event,
    but a backfill publishes several bundles between two evaluations.
    """
    seen: dict[str, int] = json.loads(context.cursor or "{}")
    said = []
    for key in sorted(context.repository_def.asset_graph.get_all_asset_keys() if context.repository_def else []):
        if key.path[1:] != ["bundle"]:
            continue
        name = key.to_user_string()
        if name not in seen:
            newest = context.instance.fetch_materializations(key, limit=1).records
            seen[name] = newest[0].storage_id if newest else 0
            continue
        after = dg.AssetRecordsFilter(asset_key=key, after_storage_id=seen[name])
        for record in context.instance.fetch_materializations(after, limit=100, ascending=True).records:
            seen[name] = record.storage_id
            if _is_of_a_release(context.instance, record) and _is_new(context.instance, record):
                said.append(_published(record))
                with _taken():
                    od_notices.published(said[-1], context.log)
    context.update_cursor(json.dumps(seen))
    return dg.SkipReason(f"Published since the last evaluation: {', '.join(each.release for each in said) or 'none'}.")


@contextmanager
def _taken() -> Iterator[None]:
    """Raise OdError for an exception of a channel of notices, whose text may hold the address of a webhook.

    The notice is given again, since the evaluation fails.
    """
    try:
        yield
    except OdError:
        raise
    except Exception as error:  # noqa: BLE001  # a channel may raise anything
        raise OdError(
            "OD-NOTICE-UNSENT",
            f"the channel of notices did not take one ({type(error).__name__})",
            next_step="correct the class that is bound as od_notices; the notice is given again until it is taken",
        ) from None


def is_declared_here(repository: dg.RepositoryDefinition | None, series: str) -> bool:
    """Return whether the project of the sensor declares a series; several projects may share a Dagster instance."""
    return repository is None or repository.has_job(f"{series}_release")


def _published(record: Any) -> Published:
    metadata = record.asset_materialization.metadata
    facts = {name: metadata[name].value for name in _FACTS if name in metadata}
    return Published(metadata["release"].value, facts)


def _is_of_a_release(instance: dg.DagsterInstance, record: Any) -> bool:
    """Return whether a run of the series itself made the bundle, rather than a report from the UI or another job."""
    run, made = instance.get_run_by_id(record.run_id), record.asset_materialization
    return (
        run is not None
        and run.tags.get(RELEASE_TAG) == made.asset_key.path[0]
        and "release" in made.metadata
        and _DATA_VERSION in (made.tags or {})
        and made.partition is not None
    )


def _is_new(instance: dg.DagsterInstance, record: Any) -> bool:
    """Return whether the period had no bundle before, or a different one."""
    made = record.asset_materialization
    earlier = dg.AssetRecordsFilter(
        asset_key=made.asset_key, asset_partitions=[made.partition], before_storage_id=record.storage_id
    )
    found = instance.fetch_materializations(earlier, limit=100).records
    before: Any = next((each.asset_materialization for each in found if _is_of_a_release(instance, each)), None)
    return before is None or before.tags[_DATA_VERSION] != made.tags[_DATA_VERSION]
