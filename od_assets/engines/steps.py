"""Run the three steps of a release that an engine may do: count the records, measure a band, refine the bands.

Each step writes its results to files, so it can run in this process or in one that ``spark-submit`` starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from od_assets.resources.warehouse import Warehouse
from od_assets.series.engine import store_of, workers_of
from od_assets.series.settings import ReleaseSettings
from od_core.flows.parts.release import Band, measure_band, refine_bands, refined_pieces
from od_core.flows.parts.work import Work
from od_core.ledger.release_key import ReleaseKey
from od_core.noise.sources import noise_named
from od_core.records.count_duckdb import count_records

Step = Callable[[ReleaseSettings, Warehouse, ReleaseKey, str], None]


def count(settings: ReleaseSettings, warehouse: Warehouse, key: ReleaseKey, folder: str) -> None:
    """Confidential: count the records of a period into a folder of the store."""
    plan, staged = warehouse.plan(settings, key), warehouse.staged_parts(settings, key)
    asked: dict[str, Any] = {"unit": settings.unit, "fault_threshold": settings.fault_threshold}
    asked["key"] = warehouse.confidential.key()
    if settings.engine is None:
        count_records(staged.records, plan.tree, staged.store, folder, period=key.period, **asked)
        return
    from od_core.spark.counting import count_in_spark

    count_in_spark(
        settings.engine.session(warehouse.confidential),
        settings.records_address(key.period),
        settings.columns,
        key.period,
        plan.tree,
        staged.store,
        folder,
        record_format=settings.record_format,
        time_zone=settings.periods.time_zone,
        **asked,
    )


def measure(settings: ReleaseSettings, warehouse: Warehouse, key: ReleaseKey, number: str) -> None:
    """Measure a band part by part, and copy its measurements into the confidential folder."""
    plan, staged, band = warehouse.plan(settings, key), warehouse.staged(key), int(number)
    store = store_of(settings.engine, warehouse.confidential, key)
    counts = warehouse.counts(settings, key)
    staged.refuse_other_plan(plan)
    measurements = warehouse.begin(settings, plan, key, counts, store)
    if band == 1:
        staged.save_attempt(Work.begun(plan, store, counts.folder, noise_named(settings.noise)).facts())
    frontier = staged.estimate(plan.step_bands[band - 1][-1].level)
    workers = workers_of(settings.engine, warehouse.confidential)
    measure_band(plan, band, frontier, attempt(settings, warehouse, key), workers, measurements)
    measurements.keep_parts_here([step.level for step in plan.step_bands[band]])


def refine(settings: ReleaseSettings, warehouse: Warehouse, key: ReleaseKey, _: str) -> None:
    """Refine all levels of a release with bands, and stage them."""
    plan, staged = warehouse.plan(settings, key), warehouse.staged(key)
    work, steps = attempt(settings, warehouse, key), plan.step_bands
    frontiers = [staged.estimate(band[-1].level) for band in steps[:-1]]
    bands = [Band.below(plan, number, above) for number, above in enumerate(frontiers, start=1)]
    root = staged.estimate(0) if plan.publishes_total else None
    measured = warehouse.measured(plan, key, steps[0])
    workers = workers_of(settings.engine, warehouse.confidential)
    for nodes in refine_bands(plan, root, measured, frontiers[0], bands, work, workers):
        staged.save_estimate(nodes.level, [nodes], refined=True)
    for band in bands:
        for step in steps[band.number]:
            staged.save_estimate(step.level, refined_pieces(band, work, step.level), refined=True)
    work.store.remove("attempts")


def attempt(settings: ReleaseSettings, warehouse: Warehouse, key: ReleaseKey) -> Work:
    """Return the current work on the parts of a release. Raises OdError if none has begun."""
    store = store_of(settings.engine, warehouse.confidential, key)
    return Work(store, noise=noise_named(settings.noise), **warehouse.staged(key).attempt())


STEPS: dict[str, Step] = {"count": count, "measure": measure, "refine": refine}
