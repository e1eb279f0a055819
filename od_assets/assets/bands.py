"""The levels of a lower band: measured and estimated part by part, all or none of them, in one step of a run."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pyarrow.parquet as pq

from od_assets.assets.column_schema import with_columns
from od_assets.assets.failures import failures_without_values
from od_assets.assets.level_keys import estimate_key, measurement_key
from od_assets.assets.metadata import allowed, step_metadata
from od_assets.engines.steps import attempt, run_step
from od_assets.resources.warehouse import Warehouse
from od_assets.series.settings import ReleaseSettings
from od_core.files.durable import file_digest
from od_core.flows.parts.release import Band, passed_pieces
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.columns import DESTINATION, NOISY_MEASUREMENTS, ORIGIN, TRIPS


def band_asset(settings: ReleaseSettings, number: int, common: dict[str, Any]) -> dg.AssetsDefinition:
    """The noisy measurements and the estimates of the levels of a band.

    Leaves that a refinement estimates have no estimate of their own.
    """
    levels, above = settings.level_bands[number], settings.level_bands[number - 1][-1]
    estimated = [level for level in levels if level in settings.estimated_levels]
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
            run_step(context, settings, warehouse, key, "measure", str(number))
            results = list(_measured(settings, number, warehouse, key))
        yield from results

    return band


def _measured(
    settings: ReleaseSettings, number: int, warehouse: Warehouse, key: ReleaseKey
) -> Iterator[dg.MaterializeResult]:
    """What the run says of the levels of a band that is measured; their estimates are kept as those of other levels."""
    plan, staged, measurements = warehouse.plan(settings, key), warehouse.staged(key), warehouse.measurements(key)
    work, frontier = attempt(settings, warehouse, key), staged.estimate(plan.step_bands[number - 1][-1].level)
    band = Band.below(plan, number, frontier)
    for level in settings.level_bands[number]:
        if level in plan.unmeasured_levels:
            for asset in (measurement_key, estimate_key):
                yield _result(asset(settings, level), plan.digest, allowed(level=level, measured_cells=0))
            continue
        step = plan.step(level)
        metadata = step_metadata(plan, step) | allowed(measured_cells=len(measurements.read(step)))
        yield _result(measurement_key(settings, level), warehouse.ledger.measured_digest(key, level), metadata)
        if level in settings.estimated_levels:
            path = staged.save_estimate(level, passed_pieces(band, work, level))
            rows = pq.ParquetFile(path).metadata.num_rows
            metadata = allowed(level=level, public_cells=plan.tree.cells(level), dagster__row_count=rows)
            yield _result(estimate_key(settings, level), file_digest(path), metadata)


def _result(key: dg.AssetKey, digest: str, metadata: dict[str, Any]) -> dg.MaterializeResult:
    return dg.MaterializeResult(asset_key=key, data_version=dg.DataVersion(digest), metadata=metadata)
