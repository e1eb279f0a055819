"""The published table and the bundle."""

from typing import Any

import dagster as dg
import pyarrow.parquet as pq

from od_assets.assets.failures import failures_without_values
from od_assets.assets.levels import released_key
from od_assets.assets.metadata import allowed, release_metadata
from od_assets.checks.release_checks import run_all_checks
from od_assets.resources.warehouse import Warehouse
from od_assets.settings import ReleaseSettings
from od_core.archive.files import file_digest, write_durably
from od_core.errors import OdError
from od_core.publication.bundle import CERTIFICATE, staged_bundle
from od_core.publication.certificate import certificate, certificate_digest
from od_core.publication.database import store_release
from od_core.publication.tables import flows_table

FLOW_COLUMNS = dg.TableSchema(
    columns=[
        dg.TableColumn("origin", "string", description="Code of the origin zone."),
        dg.TableColumn("destination", "string", description="Code of the destination zone."),
        dg.TableColumn("trips", "int64", description="Released number of trips, at least 1; pairs not listed are 0."),
    ]
)


def publication_assets(
    settings: ReleaseSettings, partitions: dg.PartitionsDefinition, traits: dict[str, Any]
) -> list[dg.AssetsDefinition]:
    """The assets of group ``<release>/publication``."""
    name = settings.name
    common = {**traits, "group_name": f"{name}/publication", "partitions_def": partitions}

    @dg.asset(
        key=[name, "flows"],
        deps=[released_key(settings)],
        kinds={"parquet"},
        metadata={"dagster/column_schema": FLOW_COLUMNS},
        description="The released leaf table; every coarser table is a sum of it. Public once its bundle is.",
        **common,
    )
    def flows(context: dg.AssetExecutionContext, warehouse: Warehouse) -> dg.MaterializeResult:
        key = settings.key(context.partition_key)
        with failures_without_values(warehouse.confidential):
            release = warehouse.release(settings, warehouse.plan(settings, key), key)
            path = warehouse.staged(key).flows
            write_durably(path, lambda file: pq.write_table(flows_table(release), file))
            balance = warehouse.ledger.balance(settings.domain.name, key.period)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(file_digest(path)),
            metadata=release_metadata(release, balance) | allowed(dagster__row_count=len(release.leaves)),
        )

    @dg.asset(
        key=[name, "bundle"],
        deps=[[name, "flows"]],
        kinds={"duckdb", "parquet", "csv"},
        description=(
            "The release made public: every check is made once more, then the release database takes it in one"
            " transaction and the bundle folder appears in one rename."
        ),
        **common,
    )
    def bundle(context: dg.AssetExecutionContext, warehouse: Warehouse) -> dg.MaterializeResult:
        key = settings.key(context.partition_key)
        with failures_without_values(warehouse.confidential):
            plan = warehouse.plan(settings, key)
            checks = run_all_checks(settings, warehouse, key.period)
            failed = [f"{check.subject}: {check.check}" for check in checks if not check.passed]
            if failed:
                raise OdError(
                    "OD-PUBLICATION-REFUSED",
                    f"{len(failed)} of {len(checks)} checks fail, so {key} is not published: {', '.join(failed)}",
                    next_step="run the whole release again; its measurements are read back, nothing is drawn twice",
                    spent="what was set aside before stays charged",
                )
            release, ledger = warehouse.release(settings, plan, key), warehouse.ledger
            facts = certificate(
                release,
                key,
                settings.domain.name,
                checks,
                record=ledger.record(key),
                fault_threshold=settings.fault_threshold,
            )
            folder = warehouse.bundle(key)
            with staged_bundle(release, facts, folder):
                store_release(warehouse.database, release, key, facts)
            ledger.publish(key, certificate_digest(facts))
            balance = ledger.balance(settings.domain.name, key.period)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(file_digest(folder / CERTIFICATE)),
            metadata=release_metadata(release, balance)
            | allowed(
                release=str(key),
                bundle=dg.MetadataValue.path(str(folder)),
                guarantee=facts["guarantee"]["protected"],
            ),
        )

    return [flows, bundle]
