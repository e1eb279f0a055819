"""Define what all releases share: the warehouse, notices, the executor, and sensors for runs and releases."""

import dagster as dg

from od_assets.code_references import source_of
from od_assets.resources.dead_runs import sweep_dead_runs
from od_assets.resources.notice_channels import Notices
from od_assets.resources.warehouse import Warehouse
from od_assets.sensors.notices import release_failed, release_published


@dg.sensor(
    name="dead_runs",
    description="Reports runs without a process as failed, because one of them would block the queue of one run.",
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.RUNNING,
    metadata=source_of(__file__),
)
def dead_runs(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Report runs whose process is gone as failed, since one of them would block the queue of one run for ever."""
    swept = sweep_dead_runs(context.instance)
    return dg.SkipReason(f"Dead runs reported as failed: {', '.join(swept) or 'none'}.")


@dg.definitions
def resources() -> dg.Definitions:
    """Return the resources, the executor and the shared sensors of the project."""
    return dg.Definitions(
        resources={"warehouse": Warehouse(), "notices": Notices()},
        executor=dg.in_process_executor,
        sensors=[dead_runs, release_failed, release_published],
    )
