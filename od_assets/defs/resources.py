"""What all releases share: the warehouse, one executor, and the sensor that clears dead runs away."""

import dagster as dg

from od_assets.resources.dead_runs import sweep_dead_runs
from od_assets.resources.warehouse import Warehouse


@dg.sensor(name="dead_runs", minimum_interval_seconds=60, default_status=dg.DefaultSensorStatus.RUNNING)
def dead_runs(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Reports runs whose process is gone as failed: one of them would fill the queue of one for ever."""
    swept = sweep_dead_runs(context.instance)
    return dg.SkipReason(f"Dead runs reported as failed: {', '.join(swept) or 'none'}.")


@dg.definitions
def resources() -> dg.Definitions:
    """Resources, executor and sensor of the project."""
    return dg.Definitions(resources={"warehouse": Warehouse()}, executor=dg.in_process_executor, sensors=[dead_runs])
