"""Define the sensor that sends OpenLineage events of finished runs of releases, if OpenLineage is configured."""

import json
import os
import time
from pathlib import Path
from typing import Any

import dagster as dg

from od_assets.metadata import source_of
from od_assets.resources.dead_runs import RELEASE_TAG
from od_assets.sensors.notices import is_declared_here
from od_core.errors import OdError
from od_core.registry import require

_SECONDS = 20.0
"""Time after which an evaluation sends no further event, because other sensors may wait for it."""

_FINISHED = (dg.DagsterEventType.RUN_SUCCESS, dg.DagsterEventType.RUN_FAILURE, dg.DagsterEventType.RUN_CANCELED)


def lineage_is_configured() -> bool:
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
    metadata=source_of(__file__),
)
def lineage_events(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Send the events of each run that finished after the first evaluation.

    The events are made from the event log of the run. So a run never waits for the lineage backend. What the backend
    does not take is sent again at the next evaluation, and later events wait, so that they arrive in order.

    Raises:
        OdError: the client is not installed or refuses its configuration; or the backend did not take the first event
            of this evaluation.
    """
    require("openlineage")
    from od_assets.sensors.open_lineage import Sender  # imports the client, which an extra installs

    seen: dict[str, list[int]] = json.loads(context.cursor or "{}")
    sender, until, fault = Sender(), time.monotonic() + _SECONDS, ""
    try:
        for kind in _FINISHED:
            if kind.value not in seen:
                newest = context.instance.fetch_run_status_changes(kind, limit=1).records
                seen[kind.value] = [newest[0].storage_id if newest else 0, 0]
            fault = fault or _send(context, sender, kind, seen[kind.value], until)
    finally:
        sender.close()
    if fault and not sender.sent:
        raise OdError(
            "OD-LINEAGE-UNSENT",
            f"the lineage backend did not take an event: {fault}",
            next_step="check the configuration of OpenLineage and the backend; the event is sent again until it is"
            " taken, and releases do not wait for it",
        )
    context.update_cursor(json.dumps(seen))
    return dg.SkipReason(f"{sender.sent} events sent{f', then stopped: {fault}' if fault else ''}.")


def _send(context: dg.SensorEvaluationContext, sender: Any, kind: Any, place: list[int], until: float) -> str:
    """Send the events of runs that finished in one way, and return why it stopped; empty if all events are sent.

    ``place`` is changed: the last finished run whose events are all sent, and the number of sent events of the next.
    """
    repository = context.repository_def
    if repository is None:
        return "no definitions are loaded"
    after = dg.RunStatusChangeRecordsFilter(kind, after_storage_id=place[0])
    for record in context.instance.fetch_run_status_changes(after, limit=100, ascending=True).records:
        run = context.instance.get_run_by_id(record.run_id)
        if run is not None and RELEASE_TAG in run.tags and is_declared_here(repository, run.tags[RELEASE_TAG]):
            for event in sender.events(context.instance, run, repository.asset_graph)[place[1] :]:
                if time.monotonic() > until:
                    return "the evaluation took too long"
                if fault := sender.send(event):
                    return str(fault)
                place[1] += 1
        place[:] = [record.storage_id, 0]
    return ""
