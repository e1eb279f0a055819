"""Run a step of a release in this process, or in one that ``spark-submit`` starts."""

from __future__ import annotations

import dagster as dg

from od_assets.engines.spark_submit import submit
from od_assets.engines.steps import STEPS
from od_assets.resources.warehouse import Warehouse
from od_assets.series.settings import ReleaseSettings
from od_core.ledger.release_key import ReleaseKey


def run_step(
    context: dg.AssetExecutionContext,
    settings: ReleaseSettings,
    warehouse: Warehouse,
    key: ReleaseKey,
    step: str,
    argument: str = "",
) -> None:
    """Run one of :data:`STEPS` in this process, or by ``spark-submit`` if declared. Raises OdError as the step does."""
    if settings.engine is not None and settings.engine.submit:
        submit(context, settings, warehouse, key, step, argument)
    else:
        STEPS[step](settings, warehouse, key, argument)
