"""Run a step of a release in this process, or in a process that ``spark-submit`` starts."""

from __future__ import annotations

import dagster as dg

from od_assets.engines.spark_submit import submit
from od_assets.engines.steps import STEPS
from od_assets.resources.release_work import FlowWork


def run_step(context: dg.AssetExecutionContext, work: FlowWork, step: str, argument: str = "") -> None:
    """Run a step of :data:`STEPS` in this process, or with ``spark-submit`` if the series declares it."""
    engine = work.settings.engine
    if engine is not None and engine.submit:
        submit(context, work, step, argument)
    else:
        STEPS[step](work, argument)
