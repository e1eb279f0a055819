"""Define blocking checks, which Dagster runs after each asset and again before the bundle is published."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from od_assets.checks.expectation_process import checked
from od_assets.checks.expectations import records_meet_expectations
from od_assets.checks.invariants import geography_violations
from od_assets.failures import failures_without_values
from od_assets.metadata import allowed
from od_assets.resources.release_work import ReleaseWork
from od_assets.resources.warehouse import Warehouse
from od_assets.series.partitions import SeriesPeriods
from od_assets.series.settings import SeriesSettings, TreeSettings
from od_core.ledger.lock import exclusive
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.plan import Plan
from od_core.publication.certificate import CheckResult
from od_core.records.zone_lists import read_zones

RECORDS_CHECK = "meets_expectations"
"""Name of the check of the raw records."""

RECORDS_REQUIREMENT = "Records match the schema, zones, period and categories, except for the allowed share of faults."

CountViolations = Callable[[Warehouse, str], dict[str, int]]
"""Function that returns the number of violations of each check of an asset, by name of the check.

Its arguments are the warehouse and the period ("" if the asset has no partitions).
"""


@dataclass(frozen=True)
class AssetChecks:
    """The checks of one asset.

    Attributes:
        asset: key of the asset; a failed check blocks the downstream assets.
        names: description of each check, by name.
        count_violations: function that runs the checks.
        partitioned: whether the asset has one partition per period.
    """

    asset: dg.AssetKey
    names: dict[str, str]
    count_violations: CountViolations
    partitioned: bool = True


def run_all_checks(asset_checks: Sequence[AssetChecks], warehouse: Warehouse, period: str) -> list[CheckResult]:
    """Run every check of a release on its current files, and return one result per check."""
    return [
        CheckResult("/".join(checks.asset.path[1:]), name, count == 0)
        for checks in asset_checks
        for name, count in checks.count_violations(warehouse, period).items()
    ]


def check_definitions(
    asset_checks: Sequence[AssetChecks], periods: SeriesPeriods
) -> Sequence[dg.AssetChecksDefinition]:
    """Return the checks as blocking Dagster checks, one definition per asset."""
    return [_definition(checks, periods) for checks in asset_checks]


def _definition(checks: AssetChecks, periods: SeriesPeriods) -> dg.AssetChecksDefinition:
    own_partitions = periods.definition() if checks.partitioned else None
    specs = [
        dg.AssetCheckSpec(name, asset=checks.asset, description=asks, blocking=True, partitions_def=own_partitions)
        for name, asks in checks.names.items()
    ]

    @dg.multi_asset_check(name="__".join([*checks.asset.path, "checks"]), specs=specs)
    def run_checks(context: dg.AssetCheckExecutionContext, od_warehouse: Warehouse) -> Iterator[dg.AssetCheckResult]:
        with failures_without_values(od_warehouse.confidential):
            period = periods.period(context.partition_key).text if checks.partitioned else ""
            counts = checks.count_violations(od_warehouse, period)
        for name, count in counts.items():
            yield dg.AssetCheckResult(
                check_name=name,
                asset_key=checks.asset,
                passed=count == 0,
                description=checks.names[name],
                metadata=allowed(violations=count),
            )

    return run_checks


def geography_checks(settings: TreeSettings[Any, Any]) -> AssetChecks:
    """Return the check that in every stored zone list, each area lies in exactly one area of the level above."""

    def count_violations(warehouse: Warehouse, _period: str) -> dict[str, int]:
        kept = [(read_zones(warehouse.geographies / zones.file), zones.levels) for zones in settings.kept_zone_lists]
        return {"is_a_partition": sum(geography_violations(zones, levels) for zones, levels in kept)}

    return AssetChecks(
        dg.AssetKey([settings.name, "geography"]),
        {"is_a_partition": "Every area lies in exactly one area of the level above, and no zone is listed twice."},
        count_violations,
        partitioned=False,
    )


def record_checks(settings: SeriesSettings[Any, Any]) -> AssetChecks:
    """Return the check of the schema and the content of the raw records."""

    def count_violations(warehouse: Warehouse, period: str) -> dict[str, int]:
        work: ReleaseWork[Any, Any] = ReleaseWork(warehouse, settings, settings.key(period))
        staged = work.staged
        # The pages contain a digest of the numbers of faults, so they stay in the confidential folder.
        docs = warehouse.confidential.subfolder(staged.data_docs.relative_to(warehouse.confidential.path))
        zones, destinations = settings.listed_codes(work.geography)
        with exclusive(docs):  # otherwise a run could change the modes of pages while another run replaces them
            warehouse.confidential.close(docs)  # pages that an earlier version left readable
            met = checked(
                records_meet_expectations,
                staged.records,
                zones,
                settings.fault_threshold,
                docs,
                destinations=destinations,
                breakdowns=settings.breakdowns,
            )
        return {RECORDS_CHECK: any_unmet(met)}

    asset = dg.AssetKey([settings.name, "raw_trips"])
    return AssetChecks(asset, {RECORDS_CHECK: RECORDS_REQUIREMENT}, count_violations)


def spend_violations(warehouse: Warehouse, plan: Plan, key: ReleaseKey) -> int:
    """Return 0 if the ledger charged each level its planned cost once per draw, otherwise 1."""
    ledger = warehouse.ledger
    planned = {(step.number, step.charge): ledger.draws(key, step.number) for step in plan.charged_steps}
    return int(Counter(ledger.charges(key)) != Counter(planned))


def any_unmet(expectations: dict[str, bool]) -> int:
    """Return 1 if any expectation is not met, otherwise 0, because the number of unmet expectations is confidential."""
    return int(not all(expectations.values()))
