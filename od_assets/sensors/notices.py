"""Define the sensors that tell others of releases: notices of published and failed ones, and OpenLineage events."""

import json
import logging
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from od_assets.failures import describe_failures
from od_assets.metadata import make_code_references
from od_assets.resources.dead_runs import RELEASE_TAG, RHO_TAG, find_run_graph, find_run_period
from od_core.errors import OdError
from od_core.extras import require


@dataclass(frozen=True)
class Published:
    """A notice that a release was published. The first line of its text is its subject."""

    release: str
    """Key of the release, such as ``us_flights/2001-06/r1``."""
    facts: dict[str, object]
    """Public metadata of its bundle, by name, such as guarantee, epsilon and trips."""

    def __str__(self) -> str:
        series, period, _ = self.release.split("/")
        facts = [f"{name}: {fact}" for name, fact in self.facts.items()]
        step = f"Next: read its report, which od-release report {series} --period {period} opens."
        return "\n".join([f"Published {self.release}", *facts, step])


@dataclass(frozen=True)
class Failed:
    """A notice that a run of a release failed. The first line of its text is its subject."""

    series: str
    """Name of the series; that of the job, such as ``od_verification``, if the verification of the project failed."""
    period: str | None
    """Period of the run, such as 2001-06; None if the run has no period."""
    run_id: str
    causes: tuple[str, ...]
    """Public lines, one for each failed check and step."""
    rho: str | None = None
    """What the run charged, as rho, rounded up; None if it recorded no charge before it failed."""

    def __str__(self) -> str:
        release = self.series if self.period is None else f"{self.series}, {self.period}"
        charged = "The run recorded no charge: it spent no budget, unless it was killed while it charged."
        if self.rho is not None:
            charged = f"The run charged rho {self.rho}, which stays charged. Another run draws nothing twice."
        step = "Next: do what is stated above, and run it again. od-release status lists what is measured and spent."
        return "\n".join([f"Failed {release}", *self.causes, charged, step, f"Run: {self.run_id}"])


class Notices:
    """A channel that writes notices to the sensor's log. Override its methods to send them elsewhere.

    Bind the subclass as the Dagster resource ``od_notices``. Notices contain nothing confidential. Each notice is
    delivered at least once: if a method raises an exception, the notice is delivered again later.
    """

    def published(self, notice: Published, log: logging.Logger) -> None:
        """Deliver the notice of a published release."""
        log.info(str(notice))

    def failed(self, notice: Failed, log: logging.Logger) -> None:
        """Deliver the notice of a failed run, or of a failed blocking check in it."""
        log.error(str(notice))


class SentNotices(Notices):
    """A channel that also sends notices to addresses of Apprise, such as those of Slack and e-mail.

    Addresses contain passwords, so no configuration, log or message has them. An address that does not take a notice
    receives it again later; the other addresses do not, as long as this process runs.

    Args:
        to: addresses of Apprise.
        of: kinds of notices that are sent: ``published``, ``failed`` or both.
    """

    def __init__(self, to: Sequence[str], of: Collection[str]) -> None:
        self._to, self._of = to, of
        self._taken = set[tuple[int, str]]()  # numbers of addresses, each with the text of a notice that it took

    def published(self, notice: Published, log: logging.Logger) -> None:
        """Send the notice of a published release, if those are asked for."""
        super().published(notice, log)
        self._send("published", notice)

    def failed(self, notice: Failed, log: logging.Logger) -> None:
        """Send the notice of a failed run, if those are asked for."""
        super().failed(notice, log)
        self._send("failed", notice)

    def _send(self, kind: str, notice: Published | Failed) -> None:
        """Send a notice, if its kind is asked for, to each address that has not taken it.

        Raises OdError with the numbers of the addresses that do not take it.
        """
        numbers = range(len(self._to)) if kind in self._of else ()
        text = str(notice)
        for number in numbers:
            if (number, text) not in self._taken and _deliver(self._to[number], text, kind):
                self._taken.add((number, text))
        unsent = [str(number + 1) for number in numbers if (number, text) not in self._taken]
        if unsent:
            message = f"address {' and '.join(unsent)} of notices.to did not take a notice"
            step = "check the address and its service; the notice is sent again until it is taken"
            raise OdError("OD-NOTICE-UNSENT", message, next_step=step)
        self._taken -= {(number, text) for number in numbers}


def _deliver(address: str, text: str, kind: str) -> bool:
    """Send a text, whose first line is the subject, to an address of Apprise, and return whether it was taken.

    ``kind`` is ``published`` or ``failed``.
    """
    import apprise  # which an extra installs

    subject, _, body = text.partition("\n")
    types = {"published": apprise.NotifyType.SUCCESS, "failed": apprise.NotifyType.FAILURE}
    with _silence_loggers():
        sender = apprise.Apprise(asset=apprise.AppriseAsset(app_id="od-release"))
        added = sender.add(address)
        return bool(added and sender.notify(body, subject, types[kind], body_format=apprise.NotifyFormat.TEXT))


def is_notice_address(address: str) -> bool:
    """Return whether Apprise can send to an address. Nothing is sent. Raises OdError if Apprise is not installed."""
    require("notices")
    import apprise

    with _silence_loggers():
        return apprise.Apprise.instantiate(address) is not None


@contextmanager
def _silence_loggers() -> Iterator[None]:
    """Let Apprise and its HTTP client write nothing to logs: some of their messages quote the address."""
    levels = {logger: logger.level for logger in map(logging.getLogger, ("apprise", "urllib3"))}
    try:
        for logger in levels:
            logger.setLevel(logging.CRITICAL + 1)
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


_FACTS = ("unit", "mechanism", "epsilon", "delta", "rho", "trips", "groups", "bundle", "guarantee")
"""Names of a bundle's metadata that a notice includes, if present. All of them are public."""

_DATA_VERSION = "dagster/data_version"


@dg.sensor(
    name="release_failed",
    description="Sends notices of failed releases, with the messages of failed checks and steps.",
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    metadata=make_code_references(__file__),
)
def release_failed(context: dg.SensorEvaluationContext, od_notices: dg.ResourceParam[Notices]) -> dg.SkipReason:
    """Deliver a notice of each run of a release that failed since the last evaluation; the first one delivers none.

    If the channel raises an error, the same notice is delivered again at the next evaluation. Dagster's own sensor of
    failed runs would go on with the next run instead.
    """
    cursor = context.cursor or ""
    if not cursor.isdecimal():  # there is none yet, or it is that of Dagster's own sensor, from an earlier version
        newest = context.instance.fetch_run_status_changes(dg.DagsterEventType.RUN_FAILURE, limit=1).records
        context.update_cursor(str(newest[0].storage_id if newest else 0))
        return dg.SkipReason("Runs that fail from now on are reported.")
    failed = []
    after = dg.RunStatusChangeRecordsFilter(dg.DagsterEventType.RUN_FAILURE, after_storage_id=int(cursor))
    for record in context.instance.fetch_run_status_changes(after, limit=100, ascending=True).records:
        run = context.instance.get_run_by_id(record.run_id)
        if run is not None and RELEASE_TAG in run.tags and is_declared_here(context.repository_def, run.tags):
            failed.append(run.run_id)
            with _wrap_channel_errors():
                od_notices.failed(_make_failed_notice(context.instance, run), context.log)
        context.update_cursor(str(record.storage_id))
    return dg.SkipReason(f"Failed since the last evaluation: {', '.join(failed) or 'none'}.")


def _make_failed_notice(instance: dg.DagsterInstance, run: dg.DagsterRun) -> Failed:
    """Return the notice of a failed run, from its events."""
    types = dg.DagsterEventType
    kinds = {types.ASSET_CHECK_EVALUATION, types.STEP_FAILURE, types.RUN_FAILURE}
    entries = instance.all_logs(run.run_id, of_type=kinds)
    events = [entry.dagster_event for entry in entries if entry.dagster_event is not None]
    causes = describe_failures(events, find_run_graph(run.tags))
    if not causes:
        causes = [(events[-1].message if events else None) or "the run did not start"]
    return Failed(run.tags[RELEASE_TAG], find_run_period(run.tags), run.run_id, tuple(causes), run.tags.get(RHO_TAG))


@dg.sensor(
    name="release_published",
    description="Sends notices of published releases, with the key and the public facts of each bundle.",
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    metadata=make_code_references(__file__),
)
def release_published(context: dg.SensorEvaluationContext, od_notices: dg.ResourceParam[Notices]) -> dg.SkipReason:
    """Deliver a notice of each release that was published since the last evaluation; the first one delivers none.

    A run that publishes the same bytes again causes no notice. An ``asset_sensor`` would receive only the newest event,
    but a backfill publishes several bundles between two evaluations.
    """
    seen: dict[str, int] = json.loads(context.cursor or "{}")
    notices: list[Published] = []
    for key in sorted(context.repository_def.asset_graph.get_all_asset_keys() if context.repository_def else []):
        if key.path[-1] != "bundle":
            continue
        name = key.to_user_string()
        if not context.cursor:  # a series that is declared later is announced from its first release
            newest = context.instance.fetch_materializations(key, limit=1).records
            seen[name] = newest[0].storage_id if newest else 0
            continue
        after = dg.AssetRecordsFilter(asset_key=key, after_storage_id=seen.get(name, 0))
        for record in context.instance.fetch_materializations(after, limit=100, ascending=True).records:
            seen[name] = record.storage_id
            if _is_made_by_series(context.instance, record) and _is_new(context.instance, record):
                notices.append(_make_published_notice(record))
                with _wrap_channel_errors():
                    od_notices.published(notices[-1], context.log)
    context.update_cursor(json.dumps(seen))
    releases = ", ".join(notice.release for notice in notices) or "none"
    return dg.SkipReason(f"Published since the last evaluation: {releases}.")


@contextmanager
def _wrap_channel_errors() -> Iterator[None]:
    """Raise OdError in place of any other exception of a channel, whose text may contain the address of a webhook."""
    try:
        yield
    except OdError:
        raise
    except Exception as error:  # noqa: BLE001  # a channel may raise anything
        message = f"the channel of notices did not take one ({type(error).__name__})"
        step = "correct the class that is bound as od_notices; the notice is given again until it is taken"
        raise OdError("OD-NOTICE-UNSENT", message, next_step=step) from None


def is_declared_here(repository: dg.RepositoryDefinition | None, tags: Mapping[str, str]) -> bool:
    """Return whether the project of the sensor has the job of a run with these tags: of a release or a verification.

    Several projects may share a Dagster instance. Without definitions (None), the answer is yes.
    """
    graph = find_run_graph(tags)
    return repository is None or repository.has_job(f"{graph}_release") or repository.has_job(graph)


def _make_published_notice(record: Any) -> Published:
    """Return the notice of a published release, from the record of the materialization of its bundle."""
    metadata = record.asset_materialization.metadata
    facts = {name: metadata[name].value for name in _FACTS if name in metadata}
    return Published(metadata["release"].value, facts)


def _is_made_by_series(instance: dg.DagsterInstance, record: Any) -> bool:
    """Return whether a run of the series itself made a materialization of its bundle.

    Others are reports from the UI, which anyone can make, and runs of another job that materialize the same key.
    """
    run = instance.get_run_by_id(record.run_id)
    materialization = record.asset_materialization
    key = materialization.asset_key
    if run is None:
        return False
    graph = find_run_graph(run.tags) if RELEASE_TAG in run.tags else None
    is_of_series = key in (run.asset_selection or ()) or graph == "_".join(key.path[:-1])
    is_stated_as_ours = "release" in materialization.metadata and _DATA_VERSION in (materialization.tags or {})
    return is_of_series and is_stated_as_ours and materialization.partition is not None


def _is_new(instance: dg.DagsterInstance, record: Any) -> bool:
    """Return whether the materialization of a bundle in a record is the first of its period, or has other content."""
    materialization = record.asset_materialization
    earlier = dg.AssetRecordsFilter(
        materialization.asset_key,
        asset_partitions=[materialization.partition],
        before_storage_id=record.storage_id,
    )
    records: Sequence[Any] = instance.fetch_materializations(earlier, limit=100).records
    for before in records:
        if _is_made_by_series(instance, before):
            return bool(before.asset_materialization.tags[_DATA_VERSION] != materialization.tags[_DATA_VERSION])
    return True


_MAX_SECONDS = 20.0
"""Time after which an evaluation sends no further event, because other sensors may wait for it."""

_FINISHED = (dg.DagsterEventType.RUN_SUCCESS, dg.DagsterEventType.RUN_FAILURE, dg.DagsterEventType.RUN_CANCELED)


def is_lineage_configured() -> bool:
    """Return whether the environment or a file configures the OpenLineage client, and does not disable it."""
    if os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    if any(name == "OPENLINEAGE_URL" or name.startswith("OPENLINEAGE__TRANSPORT") for name in os.environ):
        return True
    files = (os.environ.get("OPENLINEAGE_CONFIG", ""), "openlineage.yml", "~/.openlineage/openlineage.yml")
    return any(Path(file).expanduser().is_file() for file in files)


@dg.sensor(
    name="lineage_events",
    description="Sends OpenLineage events of finished runs of releases, as the OpenLineage client is configured.",
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.RUNNING,
    metadata=make_code_references(__file__),
)
def lineage_events(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Send the events of each run that finished since the last evaluation; the first one sends none.

    The events are made from the event log of the run, so a run never waits for the lineage backend. What the backend
    does not take is sent again at the next evaluation, and later events wait, so that they arrive in order.

    Raises:
        OdError: the client is not installed or refuses its configuration; or no event could be sent.
    """
    require("openlineage")
    from od_assets.sensors.open_lineage import Sender  # imports the client, which an extra installs

    seen: dict[str, list[int]] = json.loads(context.cursor or "{}")
    sender = Sender()
    deadline = time.monotonic() + _MAX_SECONDS
    fault = ""
    try:
        for kind in _FINISHED:
            if kind.value not in seen:
                newest = context.instance.fetch_run_status_changes(kind, limit=1).records
                seen[kind.value] = [newest[0].storage_id if newest else 0, 0]
            if not fault:
                fault = _send_events(context, sender, kind, seen[kind.value], deadline)
    finally:
        sender.close()
    if fault and not sender.sent:
        message = f"the lineage backend did not take an event: {fault}"
        step = "check the configuration of OpenLineage and the backend; the event is sent again until it is taken"
        raise OdError("OD-LINEAGE-UNSENT", message, next_step=f"{step}, and releases do not wait for it")
    context.update_cursor(json.dumps(seen))
    return dg.SkipReason(f"{sender.sent} events sent{f', then stopped: {fault}' if fault else ''}.")


def _send_events(
    context: dg.SensorEvaluationContext, sender: Any, kind: Any, cursor: list[int], deadline: float
) -> str:
    """Send the events of runs that finished in one way, and return why the sending stopped; empty if all are sent.

    Args:
        sender: the client (:class:`od_assets.sensors.open_lineage.Sender`).
        kind: type of the event that ends these runs.
        cursor: storage id of the last run whose events are all sent, and the number of sent events of the next run.
            It is updated in place.
        deadline: monotonic time in seconds after which no further event is sent.
    """
    repository = context.repository_def
    if repository is None:
        return "no definitions are loaded"
    after = dg.RunStatusChangeRecordsFilter(kind, after_storage_id=cursor[0])
    for record in context.instance.fetch_run_status_changes(after, limit=100, ascending=True).records:
        run = context.instance.get_run_by_id(record.run_id)
        if run is not None and RELEASE_TAG in run.tags and is_declared_here(repository, run.tags):
            for event in sender.make_events(context.instance, run, repository.asset_graph)[cursor[1] :]:
                if time.monotonic() > deadline:
                    return "the evaluation took too long"
                fault: str = sender.send(event)
                if fault:
                    return fault
                cursor[1] += 1
        cursor[:] = [record.storage_id, 0]
    return ""
