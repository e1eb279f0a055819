"""Make the assets that load and count records."""

from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import yaml

from od_assets.compatibility import group_name
from od_assets.engines.steps import run_step
from od_assets.failures import failures_without_values
from od_assets.metadata import (
    CONFIDENTIAL_TAG,
    TRIP_COUNTS,
    columns_of,
    made,
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
from od_core.records.counts import CountFiles
from od_core.records.load import load_records, refuse_absent


def load_period(series: Series[P, G], period: str, target: Path, geography: G | None) -> None:
    """Copy the records of a period to a Parquet file, ``target``, in the confidential folder.

    Args:
        geography: geography whose ``unknown`` zones replace codes of no place; None if the series has no such zones.

    Raises:
        OdError: a marker or the records are missing or wrong.
    """
    source = series.records_path(period)
    refuse_absent(source)  # before its marker, as doctor does
    hold_to_marker(source, series.marker_path(period))
    origins = destinations = None
    if geography is not None and series.takes_nowhere:
        origins, destinations = series.sides(geography)
    load_records(
        source,
        series.columns,
        period,
        target,
        record_format=series.record_format,
        geography=origins,
        destination_geography=destinations,
        time_zone=series.periods.time_zone,
    )


_STATED: dict[str, dict[str, Any]] = yaml.load(
    Path(__file__).with_name("assets.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader
)


def traits(series: Series[Any, Any], asset: str, **words: Any) -> dict[str, Any]:
    """Return what ``assets.yaml`` states of an asset, and what all assets of a series share: owners, tags and so on.

    Args:
        asset: name of the asset.
        words: what stands in its description for names in braces.
    """
    stated = _STATED[asset] | ({} if series.records_are_here else _STATED[asset].get("on_spark", {}))
    tags = {
        "od/mechanism": "by_rule" if series.mechanism is None else series.mechanism.name,
        "od/neighbours": series.unit.neighbours,
        "od/unit": series.unit.kind,
    }
    is_confidential = stated["is"].startswith("Confidential")
    return {
        "owners": series.owners,
        "code_version": "1",
        "tags": tags | ({CONFIDENTIAL_TAG: "true"} if is_confidential else {}),
        "group_name": group_name(series.name, stated["group"]),
        "partitions_def": None if asset == "geography" else series.periods.definition(),
        "kinds": {*stated["kinds"]} - (set() if series.noise == "opendp" else {"opendp"}),
        "description": stated["is"].format(**words),
    }


def source_assets(series: Series[Any, Any]) -> list[dg.AssetsDefinition]:
    """Return the assets geography and raw trips of a series."""
    name = series.name
    has_nowhere, are_here = series.takes_nowhere and bool(series.record_format.nowhere), series.records_are_here
    zones = columns_of([name, "geography"], series.placing_columns)

    @dg.asset(
        key=[name, "geography"],
        metadata=with_columns(*series.listed_columns) | source_metadata(series.listed_sources),
        **traits(series, "geography"),
    )
    def geography(od_warehouse: Warehouse) -> dg.MaterializeResult:
        with failures_without_values(od_warehouse.confidential):
            listed = series.read_geography()
            make_folder(od_warehouse.geographies)
            for file, zones in series.kept_lists(listed).items():
                write_durably(
                    od_warehouse.geographies / file,
                    partial(zones.to_csv, index=False, encoding="utf-8"),
                    mode=PUBLIC_FILE_MODE,
                )
        return made(listed.digest, areas=listed.area_counts)

    @dg.asset(
        key=[name, "raw_trips"],
        deps=[[name, "geography"]] if has_nowhere or not are_here else [],
        metadata=source_metadata([series.records_source])
        | with_schema(
            records_schema(series.columns), dict.fromkeys(series.columns.codes, zones) if has_nowhere else None
        ),
        **traits(series, "raw_trips"),
    )
    def raw_trips(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with ReleaseWork[Any, Any].step(context, od_warehouse, series) as work:
            listed = work.geography if has_nowhere and are_here else None
            with work.reading() as records:  # stores the settings of reading, or refuses a change of them after a draw
                if are_here:
                    load_period(series, work.key.period, records, listed)
        return made(str(work.key))

    return [geography, raw_trips]


def input_assets(series: FlowSeries) -> list[dg.AssetsDefinition]:
    """Return the assets geography, raw trips and trip counts of a series of flows; see :func:`source_assets`."""
    name = series.name
    zones = columns_of([name, "geography"], series.placing_columns)
    sources = {
        "rank": [*columns_of([name, "raw_trips"], series.columns.codes), *zones],
        "trips": columns_of([name, "raw_trips"], record_columns(series.columns)),
    }

    @dg.asset(
        key=[name, "trip_counts"],
        deps=[[name, "geography"], [name, "raw_trips"]],
        metadata=with_columns(*TRIP_COUNTS, sources=sources),
        **traits(series, "trip_counts"),
    )
    def trip_counts(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with FlowWork.step(context, od_warehouse, series) as work:
            staged = work.staged_parts

            def count() -> CountFiles:
                folder = staged.new_trip_counts()
                run_step(context, work, "count", folder)
                return CountFiles(staged.store, folder)

            trips = work.count(count, staged.save_trip_counts)
            root = published_root(work.plan, trips.total)
            if root is not None:
                staged.save_estimate(0, [root])
        return made(str(work.key))

    return [*source_assets(series), trip_counts]
