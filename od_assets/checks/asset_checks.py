"""Blocking checks: run by Dagster after each asset, and all of them again at publication."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from od_assets.checks.expectations import records_meet_expectations
from od_assets.checks.invariants import geography_violations
from od_assets.failures import failures_without_values
from od_assets.metadata import allowed
from od_assets.resources.warehouse import Warehouse
from od_assets.series.partitions import SeriesPeriods
from od_assets.series.settings import SeriesSettings, TreeSettings
from od_core.ledger.lock import exclusive
from od_core.ledger.protocols import Planned
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.certificate import CheckResult
from od_core.records.zone_lists import read_zones

Look = Callable[[Warehouse, str], dict[str, int]]
"""Look at an asset, of a period where it is partitioned: each check of it, and its number of violations."""


@dataclass(frozen=True)
class AssetChecks:
    """The checks of one asset.

    Attributes:
        asset: the asset they block.
        names: of the checks, each with a line that says what it asks.
        look: what runs them.
        partitioned: whether the asset is one of a period.
    """

    asset: dg.AssetKey
    names: dict[str, str]
    look: Look
    partitioned: bool = True


def run_all_checks(asset_checks: Sequence[AssetChecks], warehouse: Warehouse, period: str) -> list[CheckResult]:
    """Every check of a release, now, from the files as they stand."""
    return [
        CheckResult("/".join(checks.asset.path[1:]), name, count == 0)
        for checks in asset_checks
        for name, count in checks.look(warehouse, period).items()
    ]


def check_definitions(
    asset_checks: Sequence[AssetChecks], periods: SeriesPeriods
) -> Sequence[dg.AssetChecksDefinition]:
    """The checks as Dagster runs them, blocking."""
    return [_definition(checks, periods) for checks in asset_checks]


def _definition(checks: AssetChecks, periods: SeriesPeriods) -> dg.AssetChecksDefinition:
    own_partitions = periods.definition() if checks.partitioned else None
    specs = [
        dg.AssetCheckSpec(name, asset=checks.asset, description=asks, blocking=True, partitions_def=own_partitions)
        for name, asks in checks.names.items()
    ]

    @dg.multi_asset_check(name="__".join([*checks.asset.path, "checks"]), specs=specs)
    def run_checks(context: dg.AssetCheckExecutionContext, warehouse: Warehouse) -> Iterator[dg.AssetCheckResult]:
        with failures_without_values(warehouse.confidential):
            period = periods.period(context.partition_key).text if checks.partitioned else ""
            counts = checks.look(warehouse, period)
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
    """Every zone list, as it is kept, is a partition at every level."""

    def look(warehouse: Warehouse, _period: str) -> dict[str, int]:
        kept = [(read_zones(warehouse.geographies / zones.file), zones.levels) for zones in settings.kept_zone_lists]
        return {"is_a_partition": sum(geography_violations(zones, levels) for zones, levels in kept)}

    return AssetChecks(
        dg.AssetKey([settings.name, "geography"]),
        {"is_a_partition": "Every area lies in one area of the level above; no zone stands twice."},
        look,
        partitioned=False,
    )


def record_checks(settings: SeriesSettings[Any, Any]) -> AssetChecks:
    """Schema and content of the raw records."""

    def look(warehouse: Warehouse, period: str) -> dict[str, int]:
        staged = warehouse.staged(settings.key(period))
        # The pages hold a digest of what was counted: they stay inside.
        docs = warehouse.confidential.subfolder(staged.data_docs.relative_to(warehouse.confidential.path))
        zones, destinations = settings.listed_codes(warehouse.geography(settings))
        with exclusive(docs):  # of two runs at once one would close pages that the other replaces
            warehouse.confidential.close(docs)  # what an earlier version left open
            met = records_meet_expectations(
                staged.records, zones, settings.fault_threshold, docs, destinations=destinations
            )
        return {"meets_expectations": any_unmet(met)}

    asks = "Schema of the records; listed codes and dates of the period, but for the allowed share of faults."
    return AssetChecks(dg.AssetKey([settings.name, "raw_trips"]), {"meets_expectations": asks}, look)


def spend_violations(warehouse: Warehouse, plan: Planned, key: ReleaseKey) -> int:
    """1 where the ledger charged a level anything but what was planned, once for each of its draws."""
    ledger = warehouse.ledger
    planned = tuple(step.charge.as_rho * ledger.draws(key, step.level) for step in plan.steps)
    return int(ledger.spent(key, plan).levels != planned)


def any_unmet(expectations: dict[str, bool]) -> int:
    """1 where an expectation is not met; of the records, not even how many are may be known outside."""
    return int(not all(expectations.values()))
