"""Make the assets that load and count records."""

from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg

from od_assets.compatibility import group_name
from od_assets.engines.steps import run_step
from od_assets.failures import failures_without_values
from od_assets.metadata import (
    TRIP_COUNTS,
    allowed,
    columns_of,
    confidential_tag,
    record_columns,
    records_schema,
    source_metadata,
    with_columns,
    with_schema,
)
from od_assets.resources.arrivals import hold_to_marker
from od_assets.resources.release_work import FlowWork, ReleaseWork
from od_assets.resources.warehouse import Warehouse
from od_assets.series.flows import FlowSeries
from od_assets.series.series import G, P, Series
from od_core.files.durable import PUBLIC_FILE_MODE, make_folder, write_durably
from od_core.flows.estimation.levels import published_root
from od_core.records.count_files import CountFiles
from od_core.records.load import load_records, refuse_absent


def load_period(settings: Series[P, G], period: str, target: Path, geography: G | None) -> None:
    """Copy the records of a period to a Parquet file.

    Args:
        settings: settings of the series.
        period: period of the records.
        target: path of the copy, in the confidential folder.
        geography: geography whose ``unknown`` zones replace codes of no place; None if the series has no such zones.

    Raises:
        OdError: as in :func:`od_assets.resources.arrivals.hold_to_marker` and
            :func:`od_core.records.load.load_records`.
    """
    source = settings.records_path(period)
    refuse_absent(source)  # before its marker, as doctor does
    hold_to_marker(source, settings.marker_path(period))
    origins = destinations = None
    if geography is not None and settings.takes_nowhere:
        origins, destinations = settings.sides(geography)
    load_records(
        source,
        settings.columns,
        period,
        target,
        record_format=settings.record_format,
        geography=origins,
        destination_geography=destinations,
        time_zone=settings.periods.time_zone,
    )


def source_assets(
    settings: Series[Any, Any], partitions: dg.PartitionsDefinition, traits: dict[str, Any]
) -> list[dg.AssetsDefinition]:
    """Return the assets geography and raw trips of a series. ``traits`` are common arguments, such as owners."""
    name = settings.name
    common = {**traits, "group_name": group_name(name, "inputs")}
    confidential = common | confidential_tag(traits)
    has_nowhere = settings.takes_nowhere and bool(settings.record_format.nowhere)
    zones = columns_of([name, "geography"], settings.placing_columns)
    confidential["metadata"] = source_metadata([settings.records_source]) | with_schema(
        records_schema(settings.columns), dict.fromkeys(settings.columns.codes, zones) if has_nowhere else None
    )

    @dg.asset(
        key=[name, "geography"],
        kinds={"csv"},
        metadata=with_columns(*settings.listed_columns) | source_metadata(settings.listed_sources),
        description="The public areas or places, as the declared list states them. All periods use the same list.",
        **common,
    )
    def geography(od_warehouse: Warehouse) -> dg.MaterializeResult:
        with failures_without_values(od_warehouse.confidential):
            listed = settings.read_geography()
            make_folder(od_warehouse.geographies)
            for file, zones in settings.kept_lists(listed).items():
                write_durably(
                    od_warehouse.geographies / file,
                    partial(zones.to_csv, index=False, encoding="utf-8"),
                    mode=PUBLIC_FILE_MODE,
                )
        metadata = allowed(areas=listed.area_counts)
        return dg.MaterializeResult(data_version=dg.DataVersion(listed.digest), metadata=metadata)

    @dg.asset(
        key=[name, "raw_trips"],
        deps=[[name, "geography"]] if has_nowhere else [],
        kinds={"parquet", "duckdb"},
        partitions_def=partitions,
        description=(
            "Confidential: the records of one period. They stay in the confidential folder, and a run shows none of"
            " them."
        ),
        **confidential,
    )
    def raw_trips(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        key = settings.release_of(context.partition_key)
        with failures_without_values(od_warehouse.confidential):
            work: ReleaseWork[Any, Any] = ReleaseWork.of(od_warehouse, settings, key)
            listed = work.geography if has_nowhere else None
            with work.reading() as records:
                load_period(settings, key.period, records, listed)
        return dg.MaterializeResult(data_version=dg.DataVersion(str(key)))

    return [
        geography,
        raw_trips if settings.records_are_here else _records_elsewhere(settings, confidential, partitions),
    ]


def _records_elsewhere(
    settings: Series[Any, Any], common: dict[str, Any], partitions: dg.PartitionsDefinition
) -> dg.AssetsDefinition:
    """Return the raw-trips asset of a series whose records Spark reads at their own location."""

    @dg.asset(
        key=[settings.name, "raw_trips"],
        deps=[[settings.name, "geography"]],
        kinds={"spark"},
        partitions_def=partitions,
        description="Confidential: the records of one period. Spark reads them where they are stored; none is copied.",
        **common,
    )
    def raw_trips(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        key = settings.release_of(context.partition_key)
        with failures_without_values(od_warehouse.confidential), ReleaseWork(od_warehouse, settings, key).reading():
            pass  # stores the settings of reading, or refuses a change of them after a draw
        return dg.MaterializeResult(data_version=dg.DataVersion(str(key)))

    return raw_trips


def input_assets(
    settings: FlowSeries, partitions: dg.PartitionsDefinition, traits: dict[str, Any]
) -> list[dg.AssetsDefinition]:
    """Return the assets geography, raw trips and trip counts of a series of flows; see :func:`source_assets`."""
    name = settings.name
    zones = columns_of([name, "geography"], settings.placing_columns)
    sources = {
        "rank": [*columns_of([name, "raw_trips"], settings.columns.codes), *zones],
        "trips": columns_of([name, "raw_trips"], record_columns(settings.columns)),
    }

    @dg.asset(
        key=[name, "trip_counts"],
        deps=[[name, "geography"], [name, "raw_trips"]],
        kinds={"parquet", "duckdb" if settings.engine is None else "spark"},
        partitions_def=partitions,
        metadata=with_columns(*TRIP_COUNTS, sources=sources),
        description=(
            "Confidential: true counts of the leaf pairs. They stay in the confidential folder, and a run shows"
            " none of them."
            " Where n is an invariant, it is published from here."
        ),
        group_name=group_name(name, "inputs"),
        **traits | confidential_tag(traits),
    )
    def trip_counts(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        key = settings.release_of(context.partition_key)
        with failures_without_values(od_warehouse.confidential):
            work = FlowWork.of(od_warehouse, settings, key)
            staged = work.staged_parts

            def count() -> CountFiles:
                folder = staged.new_trip_counts()
                run_step(context, work, "count", folder)
                return CountFiles(staged.store, folder)

            trips = work.count(count, staged.save_trip_counts)
            root = published_root(work.plan, trips.total)
            if root is not None:
                staged.save_estimate(0, [root])
        return dg.MaterializeResult(data_version=dg.DataVersion(str(key)))

    return [*source_assets(settings, partitions, traits), trip_counts]
