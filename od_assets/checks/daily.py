"""Define the daily check that every published release of a series still equals the result of its measurements."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from od_assets.compatibility import owned_by, owned_job
from od_assets.failures import failures_without_values
from od_assets.metadata import allowed
from od_assets.resources.dead_runs import RELEASE_TAG
from od_assets.resources.warehouse import Warehouse, verified
from od_assets.series.series import Series
from od_core.errors import OdError


def daily_check(series: Series[Any, Any]) -> dg.AssetChecksDefinition:
    """Return the check of all bundles of a series. It blocks nothing, because the bundles are already public.

    It is not part of the release job, because it takes as long as all releases of the series together.
    """
    bundle = dg.AssetKey([series.name, "bundle"])

    @dg.asset_check(
        asset=bundle,
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

    return stays_as_published


def daily_schedule(
    name: str, owners: Sequence[str], check: dg.AssetChecksDefinition
) -> tuple[Any, dg.ScheduleDefinition]:
    """Return the Dagster job that runs the daily check of the series ``name``, and its schedule."""
    job = owned_job(
        f"{name}_verify",
        owners,
        selection=dg.AssetSelection.checks(check),
        description=f"Verify published releases of {name} against measurements, bundle, database and ledger.",
        tags={RELEASE_TAG: name},
    )
    return job, dg.ScheduleDefinition(
        name=f"{name}_daily_verification",
        cron_schedule="0 3 * * *",
        job=job,
        description="Verifies once a day.",
        **owned_by(owners),
    )
