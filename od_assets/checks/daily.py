"""Define the daily check that every published release of a series still equals the result of its measurements."""

from typing import Any

import dagster as dg

from od_assets.compatibility import owned_by, owned_job
from od_assets.failures import failures_without_values
from od_assets.metadata import allowed
from od_assets.resources.dead_runs import RELEASE_TAG
from od_assets.resources.warehouse import Warehouse, verified
from od_assets.series.series import Series
from od_core.errors import OdError


def daily_verification(series: Series[Any, Any]) -> tuple[dg.AssetChecksDefinition, Any, dg.ScheduleDefinition]:
    """Return the check of all bundles of a series, its job and its schedule.

    The check blocks nothing, because the bundles are already public. It is not part of the release job, because it
    takes as long as all releases of the series together.
    """

    @dg.asset_check(
        asset=dg.AssetKey([series.name, "bundle"]),
        name="stays_as_published",
        description=(
            "Every published release, recomputed from its measurements, matches its bundle, database and ledger. This"
            f" check is not part of a release: it runs every day once the schedule `{series.name}_daily_verification`"
            " is switched on, and when you choose Execute. Until then it is not evaluated."
        ),
    )
    def stays_as_published(od_warehouse: Warehouse) -> dg.AssetCheckResult:
        with failures_without_values(od_warehouse.confidential):
            try:
                rows = verified(series.name, od_warehouse)
            except OdError as error:
                if error.code not in ("OD-RELEASE-ABSENT", "OD-LEDGER-ABSENT"):
                    raise
                rows = []
        faulty = [f"{row['release']}: {', '.join(row['faults'])}" for row in rows if not row["verified"]]
        return dg.AssetCheckResult(
            passed=not faulty,
            severity=dg.AssetCheckSeverity.ERROR,
            description="; ".join(faulty) or None,
            metadata=allowed(violations=len(faulty), releases=len(rows)),
        )

    job = owned_job(
        f"{series.name}_verify",
        series.owners,
        selection=dg.AssetSelection.checks(stays_as_published),
        description=f"Verify published releases of {series.name} against measurements, bundle, database and ledger.",
        tags={RELEASE_TAG: series.name},
    )
    schedule = dg.ScheduleDefinition(
        name=f"{series.name}_daily_verification",
        cron_schedule="0 3 * * *",
        job=job,
        description="Verifies once a day.",
        **owned_by(series.owners),
    )
    return stays_as_published, job, schedule
