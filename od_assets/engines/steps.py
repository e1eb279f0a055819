"""Define the three steps of a release that an engine can run: count the records, measure a band, refine the bands.

Each step writes its results to files, so it can run in this process or in a process that ``spark-submit`` starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from od_assets.resources.release_work import FlowWork
from od_assets.series.engine import workers_of
from od_core.flows.parts.release import Band, measure_band, refine_bands, refined_pieces, segment_pieces
from od_core.flows.parts.work import ATTEMPTS, Work, Workers
from od_core.noise.sources import noise_named
from od_core.records.count_records import count_records

Step = Callable[[FlowWork, str], None]


def count(work: FlowWork, folder: str) -> None:
    """Confidential: count the records of a period, and write the counts to ``folder`` in the release's store."""
    settings, plan, confidential = work.settings, work.plan, work.warehouse.confidential
    asked: dict[str, Any] = {"unit": settings.unit, "fault_threshold": settings.fault_threshold}
    asked["key"], asked["counters"] = confidential.key(), work.counters
    if settings.breakdowns:
        asked["breakdowns"] = settings.breakdowns
    if settings.engine is None:
        count_records(work.staged.records, plan.tree, work.store, folder, period=work.key.period, **asked)
        return
    from od_core.spark.counting import count_in_spark

    count_in_spark(
        settings.engine.session(confidential),
        settings.records_address(work.key.period),
        settings.columns,
        work.key.period,
        plan.tree,
        work.store,
        folder,
        record_format=settings.record_format,
        time_zone=settings.periods.time_zone,
        **asked,
    )


def measure(work: FlowWork, number: str) -> None:
    """Measure the band with the given number part by part, and copy its measurements into the confidential folder."""
    plan, staged, band = work.plan, work.staged, int(number)
    staged.refuse_other_plan(plan)
    counts = work.counts
    measurements = work.begin(counts, work.store)
    if band == 1:
        noise = noise_named(work.settings.noise)
        staged.save_attempt(Work.begun(plan, work.store, counts.folder, noise).facts())
    frontier = staged.estimate(plan.step_bands[band - 1][-1].level)
    measure_band(plan, band, frontier, attempt(work), _workers(work), measurements)
    measurements.keep_parts_here([step.number for step in plan.step_bands[band]])


def refine(work: FlowWork, _: str) -> None:
    """Refine all levels of a release with bands, stage the refined estimates, and remove the files of the parts."""
    plan, staged, parts = work.plan, work.staged, attempt(work)
    steps = plan.step_bands
    frontiers = [staged.estimate(band[-1].level) for band in steps[:-1]]
    bands = [Band.below(plan, number, above) for number, above in enumerate(frontiers, start=1)]
    root = staged.estimate(0) if plan.publishes_total else None
    measured = work.measured(steps[0])
    for nodes in refine_bands(plan, root, measured, frontiers[0], bands, parts, _workers(work)):
        staged.save_estimate(nodes.level, [nodes], refined=True)
    for band in bands:
        for level in dict.fromkeys(step.level for step in steps[band.number]):
            staged.save_estimate(level, refined_pieces(band, parts, level), refined=True)
    for breakdown in plan.breakdowns:
        own = ((leaves, segments[breakdown.name]) for leaves, segments in segment_pieces(bands[-1], parts))
        staged.save_segments(breakdown, own)
    parts.store.remove(ATTEMPTS)


def attempt(work: FlowWork) -> Work:
    """Return the current attempt to measure the parts of a release. Raises OdError if there is none."""
    return Work(work.store, noise=noise_named(work.settings.noise), **work.staged.attempt())


def _workers(work: FlowWork) -> Workers:
    return workers_of(work.settings.engine, work.warehouse.confidential)


STEPS: dict[str, Step] = {"count": count, "measure": measure, "refine": refine}
