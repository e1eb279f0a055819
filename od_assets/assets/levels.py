"""Define the assets of a release's levels: noisy measurements, estimates and refined flows."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from od_assets.assets.inputs import traits
from od_assets.engines.steps import attempt, run_step
from od_assets.metadata import TRIP_COUNTS, columns_of, made, same_columns, step_metadata, with_columns
from od_assets.resources.release_work import FlowWork
from od_assets.resources.warehouse import Warehouse
from od_assets.series.asset_keys import estimate_key, measurement_key, refined_key
from od_assets.series.flows import FlowSeries
from od_core.files.durable import file_digest
from od_core.flows.estimation.levels import combined_totals, estimate_pieces, refuse_beyond_memory
from od_core.flows.estimation.refinement import refine
from od_core.flows.measuring import measure_level
from od_core.flows.parts import ATTEMPTS, Band, passed_pieces
from od_core.flows.plan import ReleasePlan
from od_core.noise.sources import noise_named
from od_core.publication.columns import DESTINATION, NOISY, NOISY_MEASUREMENTS, ORIGIN, TRIPS, Column


def level_assets(series: FlowSeries) -> list[dg.AssetsDefinition]:
    """Return the assets of a series' levels, coarse to fine."""
    first, *lower = series.level_bands
    above = [level for level in series.measurement_levels if level < first[0]]  # an exact root, by segment alone
    levels = [_measurement_asset(series, level) for level in above]
    levels += [make(series, level) for level in first for make in (_measurement_asset, _estimate_asset)]
    bands = [_band_asset(series, number) for number, _ in enumerate(lower, start=1)]
    return [*levels, *bands, *([_refined_asset(series)] if series.mechanism.refines else [])]


def noisy_columns(series: FlowSeries) -> list[dg.TableColumnDep]:
    """Return the column of noisy values of every measurement, as sources of what is computed from all of them."""
    return [dg.TableColumnDep(measurement_key(series, level), NOISY.name) for level in series.measurement_levels]


def _measurement(series: FlowSeries, level: int, shown_as: str = "noisy_measurement") -> dict[str, Any]:
    """Return the key, the upstream assets and the columns of a level's measurement.

    Its pairs of areas are the children of pairs with estimated trips.
    """
    zones = columns_of([series.name, "geography"], series.placing_columns)
    pairs = {column.name: [*zones, *_column_above(series, level, column)] for column in (ORIGIN, DESTINATION)}
    counted = dg.AssetKey([series.name, "trip_counts"])
    counts = columns_of(counted, [column.name for column in TRIP_COUNTS])
    has_parents = level > series.measured_levels[0]
    return {
        "key": measurement_key(series, level),
        "deps": [counted, *([estimate_key(series, level - 1)] if has_parents else [])],
        "metadata": with_columns(*NOISY_MEASUREMENTS.columns, sources={**pairs, NOISY.name: counts}),
        **traits(series, shown_as, level=level),
    }


def _estimate(series: FlowSeries, level: int, shown_as: str = "estimate") -> dict[str, Any]:
    """Return the key, the upstream assets and the columns of a level's estimate. It sums to the level above."""
    measured = measurement_key(series, level)
    trips = [dg.TableColumnDep(measured, NOISY.name), *_column_above(series, level, TRIPS)]
    sources = {**same_columns(measured, [ORIGIN, DESTINATION]), TRIPS.name: trips}
    return {
        "key": estimate_key(series, level),
        "deps": [measured],
        "metadata": with_columns(ORIGIN, DESTINATION, TRIPS, sources=sources),
        **traits(series, shown_as, level=level),
    }


def _column_above(series: FlowSeries, level: int, column: Column) -> list[dg.TableColumnDep]:
    """Return a column of the estimate of the level above; empty for the first level."""
    has_parents = level > series.measured_levels[0]
    return [dg.TableColumnDep(estimate_key(series, level - 1), column.name)] if has_parents else []


def _measurement_asset(series: FlowSeries, level: int) -> dg.AssetsDefinition:
    @dg.asset(**_measurement(series, level))
    def noisy_measurement(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with FlowWork.step(context, od_warehouse, series) as work:
            plan, staged = work.plan, work.staged
            steps = plan.steps_at(level)
            if not steps:
                return _not_measured(plan, level)
            noise, trips = noise_named(series.noise), work.first_band_counts
            measured = measure_level(plan, steps, staged.nodes_above(plan, steps[0]), trips, noise, work.begun)
            cells = sum(len(measurement.noisy) for measurement in measured)
            if steps[-1] is plan.step_bands[0][-1]:
                del work.first_band_counts  # to free their memory
            version = work.measured_version(steps)
        return made(version, **step_metadata(plan, steps), measured_cells=cells)

    return noisy_measurement


def _estimate_asset(series: FlowSeries, level: int) -> dg.AssetsDefinition:
    @dg.asset(**_estimate(series, level))
    def level_estimate(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with FlowWork.step(context, od_warehouse, series) as work:
            plan, staged = work.plan, work.staged
            if level in plan.unmeasured_levels:
                return _not_measured(plan, level)
            (totals,) = combined_totals(plan, work.measured(plan.steps_at(level)))
            parents = staged.nodes_above(plan, plan.step(level))
            path = staged.save_estimate(level, estimate_pieces(plan, totals.step, parents, totals.noisy))
            trips = staged.estimate_table(level)["trips"]
        return _estimated(plan, level, file_digest(path), trips)

    return level_estimate


def _estimated(plan: ReleasePlan, level: int, digest: str, trips: pa.ChunkedArray) -> dg.MaterializeResult:
    """Return the result for the estimate of a level, given the digest of its file and its column of trips."""
    total = pc.sum(trips, min_count=0).as_py()
    return made(digest, level=level, public_cells=plan.tree.cells(level), trips=total, dagster__row_count=len(trips))


def _not_measured(plan: ReleasePlan, level: int, asset: dg.AssetKey | None = None) -> dg.MaterializeResult:
    """Return the result for a level that is not measured, because each of its nodes has only one child."""
    return made(plan.digest, asset, level=level, measured_cells=0)


def _refined_asset(series: FlowSeries) -> dg.AssetsDefinition:
    measured = [measurement_key(series, level) for level in series.measurement_levels]
    estimated = [estimate_key(series, level) for level in series.estimated_levels]
    sources = {**same_columns(measured[-1], [ORIGIN, DESTINATION]), TRIPS.name: noisy_columns(series)}

    @dg.asset(
        key=refined_key(series),
        deps=[*measured, *estimated],
        metadata=with_columns(ORIGIN, DESTINATION, TRIPS, sources=sources),
        **traits(series, "refined_flows", rule=series.mechanism.estimator.words),
    )
    def refined_flows(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with FlowWork.step(context, od_warehouse, series) as work:
            plan, staged = work.plan, work.staged
            if plan.bands is None or plan.mechanism.learns_from_levels:
                _refine(work)
            else:
                run_step(context, work, "refine")
            depth = plan.tree.depth
            digest = file_digest(staged.estimate_path(depth, refined=True))
            trips = staged.estimate_table(depth, refined=True)["trips"]
        return _estimated(plan, depth, digest, trips)

    return refined_flows


def _refine(work: FlowWork) -> None:
    """Refine all levels of a release as a whole, and stage the refined estimates and the segments."""
    plan, staged = work.plan, work.staged
    root, measured = staged.estimate(0) if plan.publishes_total else None, work.measured()
    refuse_beyond_memory(plan, plan.tree.depth, measured[-1].parents)  # each part fitted, but all are read now
    refined, segments = refine(plan, root, measured)
    for breakdown in plan.breakdowns:
        staged.save_segments(breakdown, [(refined[-1], segments[breakdown.name])])
    for nodes in refined:
        staged.save_estimate(nodes.level, [nodes], refined=True)
    if plan.bands is not None:
        work.store.remove(ATTEMPTS)


def _band_asset(series: FlowSeries, number: int) -> dg.AssetsDefinition:
    """Return one multi-asset with the noisy measurements and the estimates of all levels of a band below the first.

    One step of a run measures and estimates all of these levels, part by part. If the mechanism refines, the leaf level
    has no estimate here.
    """
    levels = series.level_bands[number]
    estimated = [level for level in levels if level in series.estimated_levels]
    specs = [_measurement(series, level, "noisy_measurement_in_parts") for level in levels]
    specs += [_estimate(series, level, "estimate_in_parts") for level in estimated]

    @dg.multi_asset(name=f"{series.name}__band_{number}", specs=[dg.AssetSpec(**spec) for spec in specs])
    def band(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> Iterator[dg.MaterializeResult]:
        with FlowWork.step(context, od_warehouse, series) as work:
            run_step(context, work, "measure", str(number))
            results = list(_measured(work, number))
        yield from results

    return band


def _measured(work: FlowWork, number: int) -> Iterator[dg.MaterializeResult]:
    """Yield one result per asset of a measured band, after staging the estimates of its levels."""
    series, plan, staged, measurements = work.series, work.plan, work.staged, work.measurements
    parts, frontier = attempt(work), staged.estimate(plan.step_bands[number - 1][-1].level)
    band = Band.below(plan, number, frontier)
    for level in series.level_bands[number]:
        if level in plan.unmeasured_levels:
            for asset in (measurement_key, estimate_key):
                yield _not_measured(plan, level, asset(series, level))
            continue
        steps = plan.steps_at(level)
        cells = sum(len(measurements.read(step)) for step in steps)
        version, metadata = work.measured_version(steps), step_metadata(plan, steps)
        yield made(version, measurement_key(series, level), **metadata, measured_cells=cells)
        if level in series.estimated_levels:
            path = staged.save_estimate(level, passed_pieces(band, parts, level))
            rows = pq.ParquetFile(path).metadata.num_rows
            made_of, cells = estimate_key(series, level), plan.tree.cells(level)
            yield made(file_digest(path), made_of, level=level, public_cells=cells, dagster__row_count=rows)
