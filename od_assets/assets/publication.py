"""Make the assets that publish releases and model-assisted flows."""

import datetime
from collections.abc import Sequence
from typing import Any

import dagster as dg
import pyarrow.parquet as pq
from dagster_shared.check import CheckError

from od_assets.assets.inputs import stated
from od_assets.assets.levels import noisy_columns
from od_assets.assets.steps import now_and_then
from od_assets.checks.release_checks import run_all_checks
from od_assets.failures import failures_without_values
from od_assets.metadata import (
    Sources,
    columns_of,
    flow_tables,
    made,
    published_metadata,
    release_metadata,
    report_metadata,
    same_columns,
    with_columns,
)
from od_assets.resources.release_work import FlowWork, TableWork
from od_assets.resources.warehouse import Warehouse
from od_assets.series.flows import FlowSeries
from od_assets.series.series import Freshness, Series
from od_core import Release
from od_core.errors import STAYS_CHARGED, OdError
from od_core.files.durable import file_digest, write_durably
from od_core.flows.derived_flows import MOST
from od_core.flows.publishing.flow_tables import flows_table
from od_core.privacy.accounting import text_above, text_below
from od_core.publication.bundle import CERTIFICATE, as_published, staged_folder, write_bundle
from od_core.publication.certificate import certificate_digest
from od_core.publication.certify import certificate, context_of
from od_core.publication.columns import DESTINATION, FLOWS, FLOWS_WITH_INTERVALS, LOWER, ORIGIN, TRIPS, UPPER, Column
from od_core.publication.kind import Kind
from od_core.published.derived import publish_assisted


def publication_assets(series: FlowSeries) -> list[dg.AssetsDefinition]:
    """Return the assets flows and bundle of a series."""
    columns, leaves = (ORIGIN, DESTINATION, TRIPS), series.released_key
    sources = same_columns(leaves, columns)

    @dg.asset(**stated(series, "flows", with_columns(*columns, sources=sources)), deps=[leaves])
    def flows(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with FlowWork.step(context, od_warehouse, series) as work:
            release, path = work.release, work.staged.flows
            write_durably(path, lambda file: pq.write_table(flows_table(release), file))
            balance = od_warehouse.ledger.balance(series.domain.name, work.key.period)
        return made(
            file_digest(path), **release_metadata(series.kind, release, balance), dagster__row_count=len(release.leaves)
        )

    zones = columns_of([series.name, "geography"], series.placing_columns)
    same, intervals = same_columns(flows.key, columns), noisy_columns(series)
    sources = {
        **same,
        ORIGIN.name: [*same[ORIGIN.name], *zones],
        DESTINATION.name: [*same[DESTINATION.name], *zones],
        LOWER.name: intervals,
        UPPER.name: intervals,
    }
    published = (FLOWS_WITH_INTERVALS if series.intervals else FLOWS).columns
    return [flows, bundle_asset(series, flows.key, published, sources)]


def bundle_asset(
    series: Series[Any, Any], table: dg.AssetKey, columns: Sequence[Column], sources: Sources
) -> dg.AssetsDefinition:
    """Return the asset that publishes a release of any kind, with its deadlines. Raises OdError if they are invalid.

    Args:
        table: key of the asset that the bundle is made from.
        columns: columns of the main table of the bundle.
        sources: upstream columns of each of them.
    """
    kind: Kind[Any] = series.kind
    work: Any = FlowWork if isinstance(series, FlowSeries) else TableWork

    @dg.asset(**stated(series, "bundle", with_columns(*columns, sources=sources)), deps=[table])
    def bundle(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with work.step(context, od_warehouse, series) as current:
            key = current.key
            results = run_all_checks(series, od_warehouse, key.period)
            failed = [f"{check.subject}: {check.check}" for check in results if not check.passed]
            if failed:
                raise OdError(
                    "OD-PUBLICATION-REFUSED",
                    f"{len(failed)} of {len(results)} checks fail, so {key} is not published: {', '.join(failed)}",
                    next_step="run the whole release again; it reads its measurements back and draws nothing twice",
                    spent=STAYS_CHARGED,
                )
            release, ledger = current.release, od_warehouse.ledger
            current.hold_to_reading()
            facts = certificate(
                kind,
                release,
                key,
                series.domain.name,
                results,
                record=ledger.record(key),
                records=series.reading,
                intervals=not isinstance(series, FlowSeries) or series.intervals,
            )
            folder, published = od_warehouse.bundle(key), ledger.published_certificate(key)
            facts = as_published(facts, folder, published)
            release_context = context_of(kind, ledger, key, series.domain.name, od_warehouse.releases)
            report = kind.report(release, facts, release_context)
            tell = now_and_then(context.log.info)
            with staged_folder(
                lambda place: write_bundle(kind, release, facts, report, place, tell), folder, published
            ):
                kind.store(od_warehouse.database, release, key, facts)
            ledger.publish(key, certificate_digest(facts), facts["exact"])
            balance = ledger.balance(series.domain.name, key.period)
        context.log.info(
            f"Published {key} in {folder}. It spent rho {text_above(release.spent.rho)}. Of the cap, rho"
            f" {text_above(balance.cap)}, {text_below(balance.left)} remains."
        )
        shown = report_metadata(kind, release, facts, folder) | release_metadata(kind, release, balance)
        if isinstance(release, Release):
            shown |= flow_tables(release, facts, release_context)
        return made(file_digest(folder / CERTIFICATE), **shown)

    if series.freshness is None:
        return bundle
    policy = _deadlines(series.freshness, series.periods.clock)
    return bundle.map_asset_specs(lambda spec: dg.apply_freshness_policy(spec, policy))


def _deadlines(freshness: Freshness, time_zone: str) -> dg.FreshnessPolicy:
    try:
        within = datetime.timedelta(days=freshness.within_days)
        return dg.FreshnessPolicy.cron(deadline_cron=freshness.deadline, lower_bound_delta=within, timezone=time_zone)
    except (CheckError, OverflowError) as error:
        is_too_large = isinstance(error, OverflowError)
        reason = "is too large" if is_too_large else "does not fit the deadlines, or they are no cron line"
        raise OdError(
            "OD-FRESHNESS", f"freshness: within_days {reason}", next_step="correct deadline and within_days"
        ) from None


def assisted_assets(series: FlowSeries) -> list[dg.AssetsDefinition]:
    """Return the asset of the model-assisted flows of a series; none if the series does not declare them.

    The asset depends on the bundles of its period and of the periods before, so a backfill publishes those first.
    """
    if not series.assisted:
        return []
    bundle = dg.AssetKey([series.name, "bundle"])
    columns = (FLOWS_WITH_INTERVALS if series.intervals else FLOWS).columns
    own, before = stated(series, "assisted", with_columns(*columns, sources=same_columns(bundle, columns))), None
    if isinstance(own["partitions_def"], dg.TimeWindowPartitionsDefinition):
        before = dg.TimeWindowPartitionMapping(start_offset=1 - MOST, allow_nonexistent_upstream_partitions=True)

    @dg.asset(**own, deps=[dg.AssetDep(bundle, partition_mapping=before)])
    def assisted(context: dg.AssetExecutionContext, od_warehouse: Warehouse) -> dg.MaterializeResult:
        with failures_without_values(od_warehouse.confidential):
            found = publish_assisted(od_warehouse.releases, series.release_of(context.partition_key))
        sources = [source["release"] for source in found.certificate["sources"]]
        context.log.info(f"Published {found.key} in {found.folder}, from {', '.join(sources)}. Nothing was charged.")
        metadata = published_metadata(found.certificate, found.folder)
        trips = int(found.flows.leaves.trips.sum())
        return made(file_digest(found.folder / CERTIFICATE), **metadata, trips=trips, releases=len(sources))

    return [assisted]
