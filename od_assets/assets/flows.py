"""Make the assets of a release of flows: counts, measurements and estimates of levels, flows, and assisted flows."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from od_assets.assets.release import make_asset_options, make_publication_assets, make_source_assets
from od_assets.assets.steps import read_attempt, run_step
from od_assets.failures import convert_errors_without_values
from od_assets.metadata import (
    TRIP_COUNTS,
    make_bundle_metadata,
    make_column_dependencies,
    make_release_metadata,
    make_result,
    make_step_metadata,
    make_table_metadata,
    map_record_sources,
    map_to_same_columns,
)
from od_assets.resources.release_work import FlowWork
from od_assets.resources.warehouse import Warehouse
from od_assets.series.flows import FlowSeries
from od_assets.series.partitions import PERIODS, SERIES, SINGLE
from od_core.files.durable import compute_file_digest, write_durably
from od_core.flows.derived_flows import MAX_ASSISTED_RELEASES
from od_core.flows.estimation.levels import combine_totals, estimate_pieces, make_published_root, refuse_beyond_memory
from od_core.flows.estimation.refinement import refine
from od_core.flows.measuring import measure_level
from od_core.flows.parts import ATTEMPTS, Band, read_unrefined_pieces
from od_core.flows.plan import ReleasePlan
from od_core.flows.publishing.flow_tables import make_flows_table
from od_core.noise.backends import resolve_noise_source
from od_core.privacy.plan import GaussianStep
from od_core.publication.bundle_files import CERTIFICATE
from od_core.publication.columns import (
    DESTINATION,
    FLOWS,
    FLOWS_WITH_INTERVALS,
    LOWER,
    NOISY,
    NOISY_MEASUREMENTS,
    ORIGIN,
    TRIPS,
    UPPER,
)
from od_core.published.derived import publish_assisted
from od_core.records.counts import CountFiles


def make_flow_assets(series: FlowSeries) -> list[dg.AssetsDefinition]:
    """Return all assets of a series of flows."""
    assets = [*_make_input_assets(series), *_make_level_assets(series), *_make_publication_assets(series)]
    if series.assisted:
        assets.append(_make_assisted_asset(series))
    return assets


def _make_input_assets(series: FlowSeries) -> list[dg.AssetsDefinition]:
    """Return the assets of the geography, the copied records, and their counts."""
    geography, raw_trips = make_source_assets(series)
    zones = make_column_dependencies(geography.key, series.placing_columns)
    sources = {
        "rank": [*make_column_dependencies(raw_trips.key, series.columns.codes), *zones],
        "trips": make_column_dependencies(raw_trips.key, map_record_sources(series.columns)),
    }
    columns = make_table_metadata(*TRIP_COUNTS, sources=sources)

    @dg.asset(**make_asset_options(series, "trip_counts", columns), deps=[geography, raw_trips])
    def trip_counts(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with FlowWork.enter_step(context, od_warehouse, series) as work:
            staged = work.staged

            def count() -> CountFiles:
                folder = staged.begin_trip_counts()
                run_step(context, work, "count", folder)
                return CountFiles(staged.store, folder)

            root = make_published_root(work.plan, work.count(count, staged.save_trip_counts).total)
            if root is not None:
                staged.save_estimate(0, [root])
        return make_result(str(work.key))

    return [geography, raw_trips, trip_counts]


def _make_level_assets(series: FlowSeries) -> list[dg.AssetsDefinition]:
    """Return the assets that measure and estimate the levels: two a level in the first band, then one for each band."""
    first, *lower = series.level_bands
    above = [level for level in series.measurement_levels if level < first[0]]  # an exact root, by segment alone
    assets = [_make_measurement_asset(series, level) for level in above]
    for level in first:
        assets += [_make_measurement_asset(series, level), _make_estimate_asset(series, level)]
    assets += [_make_band_asset(series, number) for number in range(1, 1 + len(lower))]
    assets += [_make_area_totals_asset(series, side) for side in series.area_total_keys]
    if series.mechanism.refines:
        assets.append(_make_refined_asset(series))
    return assets


def _list_measurement_keys(series: FlowSeries) -> list[list[str]]:
    """Return the asset keys of all noisy tables: those of the measured levels, then those of the area totals."""
    return [*map(series.measurement_key, series.measurement_levels), *series.area_total_keys.values()]


def _list_noisy_columns(series: FlowSeries) -> list[dg.TableColumnDep]:
    """Return the column of noisy values of each noisy table, as sources in the lineage of a column."""
    return [dg.TableColumnDep(key, NOISY.name) for key in _list_measurement_keys(series)]


def _make_level_measurement_options(
    series: FlowSeries, level: int, shown_as: str = "noisy_measurement"
) -> Mapping[str, Any]:
    """Return the arguments of ``dg.asset`` for the measurement of a level.

    It depends on the estimate of the level above, because only children of pairs with estimated trips are measured.
    ``shown_as`` is the name of its description in ``assets.yaml``.
    """
    key, above = series.measurement_key(level), _list_estimates_above(series, level)
    return _make_measurement_options(series, shown_as, key, above, level=series.format_level(level))


def _make_measurement_options(
    series: FlowSeries, shown_as: str, key: list[str], above: list[list[str]], **words: object
) -> Mapping[str, Any]:
    """Return the arguments of ``dg.asset`` for an asset of noisy measurements.

    ``above`` has the key of the estimate of the level above, if any; ``words`` the fields of the description.
    """
    zones = make_column_dependencies([*series.path, "geography"], series.placing_columns)
    counts_key = [*series.path, "trip_counts"]
    sources = {NOISY.name: make_column_dependencies(counts_key, [column.name for column in TRIP_COUNTS])}
    for end in (ORIGIN, DESTINATION):
        sources[end.name] = [*zones, *(dg.TableColumnDep(estimate, end.name) for estimate in above)]
    columns = make_table_metadata(*NOISY_MEASUREMENTS.columns, sources=sources)
    words |= {"noise": series.mechanism.noise_distribution.capitalize()}
    return {"deps": [counts_key, *above], **make_asset_options(series, shown_as, columns, key=key, **words)}


def _make_estimate_options(series: FlowSeries, level: int, shown_as: str = "estimate") -> Mapping[str, Any]:
    """Return the arguments of ``dg.asset`` for the estimate of a level, which sums to the level above."""
    measured = series.measurement_key(level)
    trips = [dg.TableColumnDep(measured, NOISY.name)]
    trips += [dg.TableColumnDep(estimate, TRIPS.name) for estimate in _list_estimates_above(series, level)]
    sources = {**map_to_same_columns(measured, [ORIGIN, DESTINATION]), TRIPS.name: trips}
    columns = make_table_metadata(ORIGIN, DESTINATION, TRIPS, sources=sources)
    key, level_name = series.estimate_key(level), series.format_level(level)
    return {"deps": [measured], **make_asset_options(series, shown_as, columns, key=key, level=level_name)}


def _list_estimates_above(series: FlowSeries, level: int) -> list[list[str]]:
    """Return the asset key of the estimate of the level above; none for the first measured level."""
    return [series.estimate_key(level - 1)] if level > series.measured_levels[0] else []


def _make_measurement_asset(series: FlowSeries, level: int) -> dg.AssetsDefinition:
    """Return the asset of the noisy measurement of a level in the first band."""

    @dg.asset(**_make_level_measurement_options(series, level))
    def noisy_measurement(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with FlowWork.enter_step(context, od_warehouse, series) as work:
            plan = work.plan
            steps = plan.steps_at(level)
            if not steps:
                return _make_unmeasured_result(plan, level)
            result = _measure_steps(work, steps)
            if steps[-1] is plan.step_bands[0][-1]:
                del work.first_band_counts  # to free their memory
        return result

    return noisy_measurement


def _make_area_totals_asset(series: FlowSeries, side: int) -> dg.AssetsDefinition:
    """Return the asset of the noisy totals of areas: of the trips that begin (side 0) or end (1) in each zone."""
    end, key = ("begin", "end")[side], series.area_total_keys[side]

    @dg.asset(**_make_measurement_options(series, "area_totals", key, [], end=end))
    def area_totals(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with FlowWork.enter_step(context, od_warehouse, series) as work:
            plan = work.plan
            steps = [step for step in plan.area_total_steps if step.side == side]
            # Without a step, a level above has one area, so that the flow tree measures them.
            return _measure_steps(work, steps) if steps else make_result(plan.digest, measured_cells=0)

    return area_totals


def _measure_steps(work: FlowWork, steps: Sequence[GaussianStep]) -> dg.MaterializeResult:
    """Measure the steps of one level or side from the counts of the first band, and return the result of their asset.

    Steps that an earlier run measured are read back.
    """
    plan, noise = work.plan, resolve_noise_source(work.series.noise)
    parents = work.staged.read_nodes_above(plan, steps[0])
    measured = measure_level(plan, steps, parents, work.first_band_counts, noise, work.begun)
    cells = sum(len(measurement.noisy) for measurement in measured)
    return make_result(work.digest_measurements(steps), **make_step_metadata(plan, steps), measured_cells=cells)


def _make_estimate_asset(series: FlowSeries, level: int) -> dg.AssetsDefinition:
    """Return the asset of the estimate of a level in the first band."""

    @dg.asset(**_make_estimate_options(series, level))
    def level_estimate(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with FlowWork.enter_step(context, od_warehouse, series) as work:
            plan, staged = work.plan, work.staged
            if level in plan.unmeasured_levels:
                return _make_unmeasured_result(plan, level)
            (totals,) = combine_totals(plan, work.read_measurements(plan.steps_at(level)))
            parents = staged.read_nodes_above(plan, plan.step(level))
            path = staged.save_estimate(level, estimate_pieces(plan, totals.step, parents, totals.noisy))
            trips = staged.read_estimate_table(level)["trips"]
        return _make_estimate_result(plan, level, compute_file_digest(path), trips)

    return level_estimate


def _make_estimate_result(plan: ReleasePlan, level: int, digest: str, trips: pa.ChunkedArray) -> dg.MaterializeResult:
    """Return the result of an asset with the estimate of a level, given the digest of its file and its trips."""
    total = pc.sum(trips, min_count=0).as_py()
    return make_result(
        digest, level=level, public_cells=plan.tree.cells(level), trips=total, dagster__row_count=len(trips)
    )


def _make_unmeasured_result(plan: ReleasePlan, level: int, asset: list[str] | None = None) -> dg.MaterializeResult:
    """Return the result for a level that is not measured, because each of its nodes has only one child."""
    return make_result(plan.digest, asset, level=level, measured_cells=0)


def _make_refined_asset(series: FlowSeries) -> dg.AssetsDefinition:
    """Return the asset of the refined flows, which are estimated again from all measurements."""
    leaves = series.measurement_key(series.depth)
    estimated = [series.estimate_key(level) for level in series.estimated_levels]
    sources = {**map_to_same_columns(leaves, [ORIGIN, DESTINATION]), TRIPS.name: _list_noisy_columns(series)}
    columns = make_table_metadata(ORIGIN, DESTINATION, TRIPS, sources=sources)
    rule = series.mechanism.estimator.texts["words"]

    @dg.asset(
        **make_asset_options(series, "refined_flows", columns, rule=rule),
        deps=[*_list_measurement_keys(series), *estimated],
    )
    def refined_flows(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with FlowWork.enter_step(context, od_warehouse, series) as work:
            plan, staged = work.plan, work.staged
            if plan.bands is None or plan.mechanism.learns_from_levels:
                _refine_whole(work)
            else:
                run_step(context, work, "refine")
            depth = plan.tree.depth
            digest = compute_file_digest(staged.locate_estimate(depth, refined=True))
            trips = staged.read_estimate_table(depth, refined=True)["trips"]
        return _make_estimate_result(plan, depth, digest, trips)

    return refined_flows


def _refine_whole(work: FlowWork) -> None:
    """Refine all levels of a release as a whole, and stage the refined estimates and the segments."""
    plan, staged = work.plan, work.staged
    root = staged.read_published_root(plan)
    measured = work.read_measurements()
    leaves = measured[len(plan.steps) - 1]
    refuse_beyond_memory(plan, plan.tree.depth, leaves.parents)  # with bands, only single parts were in memory before
    refined, segments = refine(plan, root, measured)
    for breakdown in plan.breakdowns:
        staged.save_segments(breakdown, [(refined[-1], segments[breakdown.name])])
    for nodes in refined:
        staged.save_estimate(nodes.level, [nodes], refined=True)
    if plan.bands is not None:
        work.store.remove(ATTEMPTS)


def _make_band_asset(series: FlowSeries, number: int) -> dg.AssetsDefinition:
    """Return one asset of all levels of a band below the first: one step measures and estimates them by parts."""
    levels = series.level_bands[number]
    estimated = [level for level in levels if level in series.estimated_levels]
    specs = [_make_level_measurement_options(series, level, "noisy_measurement_in_parts") for level in levels]
    specs += [_make_estimate_options(series, level, "estimate_in_parts") for level in estimated]

    @dg.multi_asset(name=f"{series.name}__band_{number}", specs=[dg.AssetSpec(**spec) for spec in specs])
    def band(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> Iterator[dg.MaterializeResult]:
        with FlowWork.enter_step(context, od_warehouse, series) as work:
            run_step(context, work, "measure", str(number))
            results = list(_stage_band_estimates(series, work, number))
        yield from results

    return band


def _stage_band_estimates(series: FlowSeries, work: FlowWork, number: int) -> Iterator[dg.MaterializeResult]:
    """Stage the estimates of a measured band's levels, and yield one result for each asset of the series."""
    plan, staged, measurements = work.plan, work.staged, work.measurements
    parts = read_attempt(work)
    frontier = staged.read_estimate(plan.step_bands[number - 1][-1].level)
    band = Band.from_frontier(plan, number, frontier)
    for level in series.level_bands[number]:
        if level in plan.unmeasured_levels:
            for asset in (series.measurement_key(level), series.estimate_key(level)):
                yield _make_unmeasured_result(plan, level, asset)
            continue
        steps = plan.steps_at(level)
        cells = sum(len(measurements.read(step)) for step in steps)
        version, metadata = work.digest_measurements(steps), make_step_metadata(plan, steps)
        yield make_result(version, series.measurement_key(level), **metadata, measured_cells=cells)
        if level in series.estimated_levels:
            path = staged.save_estimate(level, read_unrefined_pieces(band, parts, level))
            yield make_result(
                compute_file_digest(path),
                series.estimate_key(level),
                level=level,
                public_cells=plan.tree.cells(level),
                dagster__row_count=pq.ParquetFile(path).metadata.num_rows,
            )


def _make_publication_assets(series: FlowSeries) -> list[dg.AssetsDefinition]:
    """Return the assets of the flows, of the bundle that is published of them, and of its main table."""
    columns, leaves = (ORIGIN, DESTINATION, TRIPS), series.released_key
    sources = map_to_same_columns(leaves, columns)

    @dg.asset(**make_asset_options(series, "flows", make_table_metadata(*columns, sources=sources)), deps=[leaves])
    def flows(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with FlowWork.enter_step(context, od_warehouse, series) as work:
            release, path = work.release, work.staged.flows
            write_durably(path, lambda file: pq.write_table(make_flows_table(release), file))
            balance = od_warehouse.ledger.balance(work.series.domain.name, work.key.period)
        metadata = make_release_metadata(series.kind, release, balance)
        return make_result(compute_file_digest(path), **metadata, dagster__row_count=len(release.leaves))

    zones = make_column_dependencies([*series.path, "geography"], series.placing_columns)
    flow_sources = map_to_same_columns(flows.key, columns)
    code_sources = {end.name: [*flow_sources[end.name], *zones] for end in (ORIGIN, DESTINATION)}
    interval_sources = dict.fromkeys((LOWER.name, UPPER.name), _list_noisy_columns(series))
    sources = {**flow_sources, **code_sources, **interval_sources}
    published = (FLOWS_WITH_INTERVALS if series.intervals else FLOWS).columns
    return [flows, *make_publication_assets(series, flows.key, published, sources)]


def _make_assisted_asset(series: FlowSeries) -> dg.AssetsDefinition:
    """Return the asset of the model-assisted flows, which are made from the bundles of a period and of earlier ones.

    It depends on the bundles of the last :data:`MAX_ASSISTED_RELEASES` periods, so that these are published first.
    """
    bundle = dg.AssetKey([*series.path, "bundle"])
    columns = (FLOWS_WITH_INTERVALS if series.intervals else FLOWS).columns
    definition = make_asset_options(
        series, "assisted", make_table_metadata(*columns, sources=map_to_same_columns(bundle, columns))
    )
    mapping: dg.PartitionMapping | None = None
    if series.periods.every != SINGLE:  # a single release has no earlier periods
        mapping = dg.TimeWindowPartitionMapping(
            start_offset=1 - MAX_ASSISTED_RELEASES, allow_nonexistent_upstream_partitions=True
        )
        if series.shares_assets:
            of_periods = dg.DimensionPartitionMapping(PERIODS, mapping)
            of_series = dg.DimensionPartitionMapping(SERIES, dg.IdentityPartitionMapping())
            mapping = dg.MultiPartitionMapping({PERIODS: of_periods, SERIES: of_series})

    @dg.asset(**definition, deps=[dg.AssetDep(bundle, partition_mapping=mapping)])
    def assisted_flows(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with convert_errors_without_values(od_warehouse.confidential):
            _, release = series.find_release(context.partition_key)
            published = publish_assisted(od_warehouse.releases, release)
        sources = [source["release"] for source in published.certificate["sources"]]
        key, folder = published.key, published.folder
        context.log.info(f"Published {key} in {folder}, from {', '.join(sources)}. Nothing was charged.")
        metadata = make_bundle_metadata(published.certificate, folder)
        trips = int(published.flows.leaves.trips.sum())
        return make_result(compute_file_digest(folder / CERTIFICATE), **metadata, trips=trips, releases=len(sources))

    return assisted_flows
