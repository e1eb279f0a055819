"""The levels of a lower band: measured and estimated part by part, all or none of them, in one step of a run."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pyarrow.parquet as pq

from od_assets.assets.column_schema import with_columns
from od_assets.assets.failures import failures_without_values
from od_assets.assets.level_keys import estimate_key, measurement_key
from od_assets.assets.metadata import allowed, step_metadata
from od_assets.engines import store_of, workers_of
from od_assets.resources.warehouse import Warehouse
from od_assets.settings import ReleaseSettings
from od_core.archive.files import file_digest
from od_core.archive.release_key import ReleaseKey
from od_core.parts.release import measure_band, measured_band, passed_pieces, refine_bands, refined_pieces
from od_core.parts.work import Work
from od_core.plan import ReleasePlan
from od_core.privacy.noise import noise_named
from od_core.publication.columns import DESTINATION, NOISY_MEASUREMENTS, ORIGIN, TRIPS


def band_asset(settings: ReleaseSettings, number: int, common: dict[str, Any]) -> dg.AssetsDefinition:
    """The noisy measurements and the estimates of the levels of a band.

    Leaves that a refinement estimates have no estimate of their own.
    """
    levels, above = settings.level_bands[number], settings.level_bands[number - 1][-1]
    estimated = [level for level in levels if not settings.mechanism.refines or level != settings.depth]
    counted = dg.AssetKey([settings.name, "trip_counts"])
    traits = {name: value for name, value in common.items() if name != "partitions_def"}
    measurements = [
        dg.AssetSpec(
            measurement_key(settings, level),
            deps=[counted, estimate_key(settings, above if level == levels[0] else level - 1)],
            kinds={"parquet", settings.engine_name},
            metadata=with_columns(*NOISY_MEASUREMENTS.columns),
            description=f"The counts of level {level} plus exact discrete Gaussian noise, drawn once in each part.",
            **traits,
        )
        for level in levels
    ]
    estimates = [
        dg.AssetSpec(
            estimate_key(settings, level),
            deps=[measurement_key(settings, level)],
            kinds={"parquet", settings.engine_name},
            metadata=with_columns(ORIGIN, DESTINATION, TRIPS),
            description=f"Level {level} made consistent with the levels above, part by part.",
            **traits,
        )
        for level in estimated
    ]

    @dg.multi_asset(
        name=f"{settings.name}__band_{number}",
        specs=[*measurements, *estimates],
        partitions_def=common["partitions_def"],
    )
    def band(context: dg.AssetExecutionContext, warehouse: Warehouse) -> Iterator[dg.MaterializeResult]:
        key = settings.release_of(context.partition_key)
        with failures_without_values(warehouse.confidential):
            results = list(_measured(settings, number, warehouse, key))
        yield from results

    return band


def refine_parts(settings: ReleaseSettings, plan: ReleasePlan, warehouse: Warehouse, key: ReleaseKey) -> None:
    """Refine all levels of a release with bands into its staged files. Raises OdError as :func:`refine_bands`."""
    staged = warehouse.staged(key)
    work, steps = _work(settings, warehouse, key), plan.step_bands
    frontiers = [staged.estimate(band[-1].level) for band in steps[:-1]]
    bands = [measured_band(plan, number, above, work) for number, above in enumerate(frontiers, start=1)]
    root = staged.estimate(0) if plan.publishes_total else None
    measured = warehouse.measured(plan, key, steps[0])
    workers = workers_of(settings.engine, warehouse.confidential)
    top = refine_bands(plan, root, measured, frontiers[0], bands, work, workers)
    for nodes in top:
        staged.save_estimate(nodes.level, [nodes], refined=True)
    for band in bands:
        for step in steps[band.number]:
            staged.save_estimate(step.level, refined_pieces(band, work, step.level), refined=True)
    work.store.remove("attempts")


def _measured(
    settings: ReleaseSettings, number: int, warehouse: Warehouse, key: ReleaseKey
) -> Iterator[dg.MaterializeResult]:
    plan, staged = warehouse.plan(settings, key), warehouse.staged(key)
    store = store_of(settings.engine, warehouse.confidential, key)
    counts = warehouse.counts(settings, key)
    staged.refuse_other_plan(plan)
    measurements = warehouse.begin(settings, plan, key, counts, store)
    steps = plan.step_bands[number]
    if number == 1:
        begun = Work.begun(plan, store, counts.folder, noise_named(settings.noise))
        staged.save_attempt(begun.facts())
    work, frontier = _work(settings, warehouse, key), staged.estimate(plan.step_bands[number - 1][-1].level)
    workers = workers_of(settings.engine, warehouse.confidential)
    band = measure_band(plan, number, frontier, work, workers, measurements)
    measurements.keep_parts_here([step.level for step in steps])
    for level in settings.level_bands[number]:
        if level in plan.unmeasured_levels:
            for asset in (measurement_key, estimate_key):
                yield _result(asset(settings, level), plan.digest, allowed(level=level, measured_cells=0))
            continue
        step = plan.step(level)
        cells = len(measurements.read(step))
        digest = warehouse.ledger.measured_digest(key, level)
        metadata = step_metadata(plan, step) | allowed(measured_cells=cells)
        yield _result(measurement_key(settings, level), digest, metadata)
        if level != plan.tree.depth or not plan.mechanism.refines:
            path = staged.save_estimate(level, passed_pieces(band, work, level))
            rows = pq.ParquetFile(path).metadata.num_rows
            metadata = allowed(level=level, public_cells=plan.tree.cells(level), dagster__row_count=rows)
            yield _result(estimate_key(settings, level), file_digest(path), metadata)


def _work(settings: ReleaseSettings, warehouse: Warehouse, key: ReleaseKey) -> Work:
    """The attempt that is under way."""
    store = store_of(settings.engine, warehouse.confidential, key)
    return Work(store, noise=noise_named(settings.noise), **warehouse.staged(key).attempt())


def _result(key: dg.AssetKey, digest: str, metadata: dict[str, Any]) -> dg.MaterializeResult:
    return dg.MaterializeResult(asset_key=key, data_version=dg.DataVersion(digest), metadata=metadata)
