"""Define the assets of a series of trips with stops: trip cells, noisy boxes, published boxes and bundle."""

from functools import partial
from typing import Any

import dagster as dg

from od_assets.assets.inputs import source_assets
from od_assets.assets.publication import bundle_asset
from od_assets.checks.release_checks import stops_checks
from od_assets.column_schema import cell_columns, with_columns
from od_assets.failures import failures_without_values
from od_assets.metadata import allowed, stops_metadata, table
from od_assets.resources.warehouse import Warehouse
from od_assets.series.stops_settings import StopsSettings
from od_core.files.durable import file_digest
from od_core.noise.sources import noise_named
from od_core.publication.columns import boxes_table
from od_core.stops.place_list import place_records
from od_core.stops.release import measure


def stops_assets(
    settings: StopsSettings, partitions: dg.PartitionsDefinition, traits: dict[str, Any]
) -> list[dg.AssetsDefinition]:
    """Return all assets of a series of trips with stops."""
    name = settings.name
    common = {**traits, "partitions_def": partitions}
    boxes_columns = boxes_table(settings.dimensions, settings.stages).columns

    @dg.asset(
        key=[name, "trip_cells"],
        deps=[[name, "geography"], [name, "raw_trips"]],
        kinds={"parquet", "duckdb"},
        group_name=f"{name}/inputs",
        metadata=with_columns(*cell_columns(settings.dimensions)),
        description=(
            "Confidential: every trip's cells on the map. In the confidential folder; a run shows nothing of them."
        ),
        **common,
    )
    def trip_cells(context: dg.AssetExecutionContext, warehouse: Warehouse) -> dg.MaterializeResult:
        key = settings.release_of(context.partition_key)
        with failures_without_values(warehouse.confidential):
            plan, places, staged = (
                warehouse.plan(settings, key),
                warehouse.geography(settings),
                warehouse.staged_stops(key),
            )
            count = partial(place_records, staged.records, places, settings.fault_threshold)
            warehouse.count(settings, plan, key, staged, count, staged.save_trips)
        return dg.MaterializeResult(data_version=dg.DataVersion(str(key)))

    @dg.asset(
        key=[name, "noisy_boxes"],
        deps=[trip_cells.key],
        kinds={"opendp", "parquet"} if settings.noise == "opendp" else {"parquet"},
        group_name=f"{name}/measurements",
        metadata=with_columns(*(column for column in boxes_columns if column.name != "count")),
        description=(
            "The map cut into boxes, each with a noisy count. Drawn once, charged to the ledger, read back at every"
            " later run. From here on nothing is confidential."
        ),
        **common,
    )
    def noisy_boxes(context: dg.AssetExecutionContext, warehouse: Warehouse) -> dg.MaterializeResult:
        key = settings.release_of(context.partition_key)
        with failures_without_values(warehouse.confidential):
            plan, staged = warehouse.plan(settings, key), warehouse.staged_stops(key)
            staged.refuse_other_plan(plan)
            trips = staged.trips(plan.grid)
            measurements = warehouse.begin(settings, plan, key, trips)
            noisy = measurements.once(plan.step, partial(measure, plan, trips, noise_named(settings.noise)))
            digest = warehouse.ledger.measured_digest(key, plan.step.level)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(digest),
            metadata=allowed(measured_cells=len(noisy) // (2 * plan.grid.dimensions + 1), plan=table(plan.to_frame())),
        )

    @dg.asset(
        key=[name, "boxes"],
        deps=[noisy_boxes.key],
        kinds={"parquet"},
        group_name=f"{name}/publication",
        metadata=with_columns(*boxes_columns),
        description=(
            "The boxes with whole counts of at least 0 that keep the noisy total. Nothing is drawn, and nothing is"
            " charged. Public once its bundle is."
        ),
        **common,
    )
    def boxes(context: dg.AssetExecutionContext, warehouse: Warehouse) -> dg.MaterializeResult:
        key = settings.release_of(context.partition_key)
        with failures_without_values(warehouse.confidential):
            release = warehouse.stops(settings, key)
            path = warehouse.staged_stops(key).save_boxes(release)
            balance = warehouse.ledger.balance(settings.domain.name, key.period)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(file_digest(path)),
            metadata=stops_metadata(release, balance) | allowed(dagster__row_count=len(release.measured)),
        )

    bundle = bundle_asset(
        settings,
        partitions,
        traits,
        table=boxes.key,
        columns=boxes_columns,
        checks=stops_checks(settings),
        released=lambda warehouse, key: warehouse.stops(settings, key),
        metadata=stops_metadata,
    )
    return [*source_assets(settings, partitions, traits), trip_cells, noisy_boxes, boxes, bundle]
