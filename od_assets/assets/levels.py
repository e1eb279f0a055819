"""Define the assets of a release's levels: noisy measurements, estimates and refined flows."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import dagster as dg
import pyarrow.compute as pc
import pyarrow.parquet as pq

from od_assets.compatibility import group_name
from od_assets.engines.steps import attempt, run_step
from od_assets.failures import failures_without_values
from od_assets.metadata import TRIP_COUNTS, allowed, columns_of, same_columns, step_metadata, with_columns
from od_assets.resources.release_work import FlowWork
from od_assets.resources.warehouse import Warehouse
from od_assets.series.asset_keys import estimate_key, measurement_key, refined_key
from od_assets.series.flows import FlowSeries
from od_core.files.durable import file_digest
from od_core.flows.estimation.levels import combined_totals, estimate_pieces, refuse_beyond_memory
from od_core.flows.estimation.refinement import refine
from od_core.flows.measuring import measure
from od_core.flows.parts.release import Band, passed_pieces
from od_core.flows.parts.work import ATTEMPTS
from od_core.flows.plan import ReleasePlan
from od_core.flows.publishing.chosen_rule import ESTIMATORS, declared_rule
from od_core.noise.sources import noise_named
from od_core.publication.columns import DESTINATION, NOISY, NOISY_MEASUREMENTS, ORIGIN, TRIPS, Column


def level_assets(
    settings: FlowSeries, partitions: dg.PartitionsDefinition, traits: dict[str, Any]
) -> list[dg.AssetsDefinition]:
    """Return the assets of a series' levels, coarse to fine. ``traits`` are common arguments, such as owners."""
    common = {**traits, "group_name": group_name(settings.name, "levels"), "partitions_def": partitions}
    first, *lower = settings.level_bands
    above = [level for level in settings.measurement_levels if level < first[0]]  # an exact root, by segment alone
    levels = [_measurement_asset(settings, level, common) for level in above]
    levels += [make(settings, level, common) for level in first for make in (_measurement_asset, _estimate_asset)]
    bands = [band_asset(settings, number, common) for number, _ in enumerate(lower, start=1)]
    return [*levels, *bands, *([_refined_asset(settings, common)] if settings.mechanism.refines else [])]


def noisy_columns(settings: FlowSeries) -> list[dg.TableColumnDep]:
    """Return the column of noisy values of every measurement, as sources of what is computed from all of them."""
    return [dg.TableColumnDep(measurement_key(settings, level), NOISY.name) for level in settings.measurement_levels]


def _measurement_columns(settings: FlowSeries, level: int) -> dict[str, Any]:
    """Return the columns of a measurement. Its pairs of areas are the children of pairs with estimated trips."""
    zones = columns_of([settings.name, "geography"], settings.placing_columns)
    pairs = {column.name: [*zones, *_column_above(settings, level, column)] for column in (ORIGIN, DESTINATION)}
    counts = columns_of([settings.name, "trip_counts"], [column.name for column in TRIP_COUNTS])
    return with_columns(*NOISY_MEASUREMENTS.columns, sources={**pairs, NOISY.name: counts})


def _estimate_columns(settings: FlowSeries, level: int) -> dict[str, Any]:
    """Return the columns of an estimate, which sums to the estimate of the level above."""
    measured = measurement_key(settings, level)
    trips = [dg.TableColumnDep(measured, NOISY.name), *_column_above(settings, level, TRIPS)]
    sources = {**same_columns(measured, [ORIGIN, DESTINATION]), TRIPS.name: trips}
    return with_columns(ORIGIN, DESTINATION, TRIPS, sources=sources)


def _column_above(settings: FlowSeries, level: int, column: Column) -> list[dg.TableColumnDep]:
    """Return a column of the estimate of the level above; empty for the first level."""
    has_parents = level > settings.measured_levels[0]
    return [dg.TableColumnDep(estimate_key(settings, level - 1), column.name)] if has_parents else []


def _measurement_asset(settings: FlowSeries, level: int, common: dict[str, Any]) -> dg.AssetsDefinition:
    has_parents = level > settings.measured_levels[0]

    @dg.asset(
        key=measurement_key(settings, level),
        deps=[
            dg.AssetKey([settings.name, "trip_counts"]),
            *([estimate_key(settings, level - 1)] if has_parents else []),
        ],
        kinds={"opendp", "parquet"} if settings.noise == "opendp" else {"parquet"},
        metadata=_measurement_columns(settings, level),
        description=(
            f"The counts of level {level} plus exact discrete Gaussian noise. The noise is drawn once, charged to"
            " the ledger, and read back at"
            " every later run. From here on, nothing is confidential."
        ),
        **common,
    )
    def noisy_measurement(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        key = settings.release_of(context.partition_key)
        with failures_without_values(od_warehouse.confidential):
            work = FlowWork.of(od_warehouse, settings, key)
            plan, staged = work.plan, work.staged
            steps = plan.steps_at(level)
            if not steps:
                return _not_measured(plan, level)
            noise, trips = noise_named(settings.noise), work.first_band_counts
            parents = staged.nodes_above(plan, steps[0])
            refuse_beyond_memory(plan, level, parents)
            cells = 0
            for step in steps:
                draw = partial(measure, plan, step, parents, trips, noise)
                cells += len(work.begun.once(step, draw))
            if steps[-1] is plan.step_bands[0][-1]:
                work.forget_counts()
            digests = [od_warehouse.ledger.measured_digest(key, step.number) for step in steps]
        return dg.MaterializeResult(
            data_version=dg.DataVersion(".".join(digests)),
            metadata=step_metadata(plan, steps) | allowed(measured_cells=cells),
        )

    return noisy_measurement


def _estimate_asset(settings: FlowSeries, level: int, common: dict[str, Any]) -> dg.AssetsDefinition:
    @dg.asset(
        key=estimate_key(settings, level),
        deps=[measurement_key(settings, level)],
        kinds={"numba", "parquet"},
        metadata=_estimate_columns(settings, level),
        description=(
            f"Level {level} made consistent with the levels above. Whole numbers of at least 0 that sum to the nodes"
            " above them (IntOpt)."
        ),
        **common,
    )
    def level_estimate(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        key = settings.release_of(context.partition_key)
        with failures_without_values(od_warehouse.confidential):
            work = FlowWork.of(od_warehouse, settings, key)
            plan, staged = work.plan, work.staged
            if level in plan.unmeasured_levels:
                return _not_measured(plan, level)
            (totals,) = combined_totals(plan, work.measured(plan.steps_at(level)))
            parents = staged.nodes_above(plan, plan.step(level))
            path = staged.save_estimate(level, estimate_pieces(plan, totals.step, parents, totals.noisy))
            trips = staged.estimate_table(level)["trips"]
        return dg.MaterializeResult(
            data_version=dg.DataVersion(file_digest(path)),
            metadata=allowed(
                level=level,
                public_cells=plan.tree.cells(level),
                trips=pc.sum(trips, min_count=0).as_py(),
                dagster__row_count=len(trips),
            ),
        )

    return level_estimate


def _not_measured(plan: ReleasePlan, level: int) -> dg.MaterializeResult:
    """Return the result for a level that is not measured, because each of its nodes has only one child."""
    return dg.MaterializeResult(
        data_version=dg.DataVersion(plan.digest), metadata=allowed(level=level, measured_cells=0)
    )


def _refined_asset(settings: FlowSeries, common: dict[str, Any]) -> dg.AssetsDefinition:
    rule = ESTIMATORS[declared_rule(settings.mechanism.options)]
    measured = [measurement_key(settings, level) for level in settings.measurement_levels]
    estimated = [estimate_key(settings, level) for level in settings.estimated_levels]
    sources = {**same_columns(measured[-1], [ORIGIN, DESTINATION]), TRIPS.name: noisy_columns(settings)}

    @dg.asset(
        key=refined_key(settings),
        deps=[*measured, *estimated],
        kinds={"numba", "parquet"},
        metadata=with_columns(ORIGIN, DESTINATION, TRIPS, sources=sources),
        description=(
            f"Estimates that use all levels. {rule.words}. Then whole numbers of at least 0 down the tree; nothing is"
            " drawn, and nothing is charged."
        ),
        **common,
    )
    def refined_flows(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        key = settings.release_of(context.partition_key)
        with failures_without_values(od_warehouse.confidential):
            work = FlowWork.of(od_warehouse, settings, key)
            plan, staged = work.plan, work.staged
            if plan.bands is None or plan.mechanism.learns_from_levels:
                _refine(work)
            else:
                run_step(context, work, "refine")
            depth = plan.tree.depth
            digest = file_digest(staged.estimate_path(depth, refined=True))
            trips = staged.estimate_table(depth, refined=True)["trips"]
        return dg.MaterializeResult(
            data_version=dg.DataVersion(digest),
            metadata=allowed(
                level=depth,
                public_cells=plan.tree.cells(depth),
                trips=pc.sum(trips, min_count=0).as_py(),
                dagster__row_count=len(trips),
            ),
        )

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


def band_asset(settings: FlowSeries, number: int, common: dict[str, Any]) -> dg.AssetsDefinition:
    """Return one multi-asset with the noisy measurements and the estimates of all levels of a band below the first.

    One step of a run measures and estimates all of these levels, part by part. If the mechanism refines, the leaf level
    has no estimate here. ``common`` are common arguments of all assets, such as owners.
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
            metadata=_measurement_columns(settings, level),
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
            metadata=_estimate_columns(settings, level),
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
    def band(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> Iterator[dg.MaterializeResult]:
        key = settings.release_of(context.partition_key)
        with failures_without_values(od_warehouse.confidential):
            work = FlowWork.of(od_warehouse, settings, key)
            run_step(context, work, "measure", str(number))
            results = list(_measured(work, number))
        yield from results

    return band


def _measured(work: FlowWork, number: int) -> Iterator[dg.MaterializeResult]:
    """Yield one result per asset of a measured band, after staging the estimates of its levels."""
    settings, plan, staged, measurements = work.settings, work.plan, work.staged, work.measurements
    parts, frontier = attempt(work), staged.estimate(plan.step_bands[number - 1][-1].level)
    band = Band.below(plan, number, frontier)
    for level in settings.level_bands[number]:
        if level in plan.unmeasured_levels:
            for asset in (measurement_key, estimate_key):
                yield _result(asset(settings, level), plan.digest, allowed(level=level, measured_cells=0))
            continue
        steps = plan.steps_at(level)
        cells = sum(len(measurements.read(step)) for step in steps)
        digests = [work.warehouse.ledger.measured_digest(work.key, step.number) for step in steps]
        metadata = step_metadata(plan, steps) | allowed(measured_cells=cells)
        yield _result(measurement_key(settings, level), ".".join(digests), metadata)
        if level in settings.estimated_levels:
            path = staged.save_estimate(level, passed_pieces(band, parts, level))
            rows = pq.ParquetFile(path).metadata.num_rows
            metadata = allowed(level=level, public_cells=plan.tree.cells(level), dagster__row_count=rows)
            yield _result(estimate_key(settings, level), file_digest(path), metadata)


def _result(key: dg.AssetKey, digest: str, metadata: dict[str, Any]) -> dg.MaterializeResult:
    return dg.MaterializeResult(asset_key=key, data_version=dg.DataVersion(digest), metadata=metadata)
