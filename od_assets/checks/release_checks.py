"""The blocking checks of one release: run by Dagster after each asset, and all of them again at publication."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import dagster as dg
import pandas as pd
import pyarrow as pa

from od_assets.assets.failures import failures_without_values
from od_assets.assets.levels import estimate_key, refined_key
from od_assets.assets.metadata import allowed
from od_assets.checks.expectations import flows_meet_expectations, records_meet_expectations
from od_assets.checks.invariants import flow_violations, geography_violations, level_violations
from od_assets.resources.warehouse import Warehouse
from od_assets.settings import ReleaseSettings
from od_core.plan import ReleasePlan
from od_core.publication.certificate import CheckResult
from od_core.readers.zones import read_zones

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


def release_checks(settings: ReleaseSettings) -> list[AssetChecks]:
    """All blocking checks of a release, in the order of its assets."""
    return [
        _geography_checks(settings),
        _record_checks(settings),
        *_estimate_checks(settings),
        _flow_checks(settings),
    ]


def run_all_checks(settings: ReleaseSettings, warehouse: Warehouse, period: str) -> list[CheckResult]:
    """Every check of a release, now, from the files as they stand."""
    return [
        CheckResult("/".join(checks.asset.path[1:]), name, count == 0)
        for checks in release_checks(settings)
        for name, count in checks.look(warehouse, period).items()
    ]


def check_definitions(
    settings: ReleaseSettings, partitions: dg.PartitionsDefinition
) -> Sequence[dg.AssetChecksDefinition]:
    """The checks as Dagster runs them, blocking."""
    return [_definition(checks, partitions) for checks in release_checks(settings)]


def _definition(checks: AssetChecks, partitions: dg.PartitionsDefinition) -> dg.AssetChecksDefinition:
    own_partitions = partitions if checks.partitioned else None
    specs = [
        dg.AssetCheckSpec(name, asset=checks.asset, description=asks, blocking=True, partitions_def=own_partitions)
        for name, asks in checks.names.items()
    ]

    @dg.multi_asset_check(name="__".join([*checks.asset.path, "checks"]), specs=specs)
    def run_checks(context: dg.AssetCheckExecutionContext, warehouse: Warehouse) -> Iterator[dg.AssetCheckResult]:
        with failures_without_values(warehouse.confidential):
            counts = checks.look(warehouse, context.partition_key if checks.partitioned else "")
        for name, count in counts.items():
            yield dg.AssetCheckResult(
                check_name=name,
                asset_key=checks.asset,
                passed=count == 0,
                description=checks.names[name],
                metadata=allowed(violations=count),
            )

    return run_checks


def _geography_checks(settings: ReleaseSettings) -> AssetChecks:
    return AssetChecks(
        dg.AssetKey([settings.name, "geography"]),
        {"is_a_partition": "Every area lies in one area of the level above; no zone stands twice."},
        lambda warehouse, _: {
            "is_a_partition": geography_violations(read_zones(warehouse.zones(settings)), settings.levels)
        },
        partitioned=False,
    )


def _record_checks(settings: ReleaseSettings) -> AssetChecks:
    def look(warehouse: Warehouse, period: str) -> dict[str, int]:
        staged = warehouse.staged(settings.key(period))
        zones = warehouse.geography(settings).zones
        # The pages hold a digest of what was counted: they stay inside.
        met = records_meet_expectations(staged.records, zones, settings.fault_threshold, staged.data_docs)
        warehouse.confidential.close(staged.data_docs)
        return {"meets_expectations": _any_unmet(met)}

    asks = "Schema of the records; listed zones and dates of the period, but for the allowed share of faults."
    return AssetChecks(dg.AssetKey([settings.name, "raw_trips"]), {"meets_expectations": asks}, look)


def _estimate_checks(settings: ReleaseSettings) -> list[AssetChecks]:
    """The invariants of the estimates that are published: of each level, or of all levels of the refined flows."""
    if settings.mechanism.refines:
        levels = range(settings.depth + 1)
        return [_level_checks(settings, refined_key(settings), levels, refined=True)]
    return [
        _level_checks(settings, estimate_key(settings, level), [level], refined=False)
        for level in settings.measured_levels
    ]


def _estimated_levels(plan: ReleasePlan) -> list[int]:
    """Levels that have an estimate, top first: the measured ones, and a root that is known without."""
    levels = [step.level for step in plan.steps]
    knows_root = plan.mechanism.refines or plan.publishes_total
    return [0, *levels] if knows_root and levels[0] > 0 else levels


def _level_checks(
    settings: ReleaseSettings, asset: dg.AssetKey, levels: Sequence[int], *, refined: bool
) -> AssetChecks:
    asks = {"non_negative_integers": "Each node once, a whole number of at least 0."}
    if max(levels) > 0:
        asks["children_sum_to_parents"] = "The children of every node of the level above sum to it."

    def look(warehouse: Warehouse, period: str) -> dict[str, int]:
        key = settings.key(period)
        plan, staged = warehouse.plan(settings, key), warehouse.staged(key)
        estimated = _estimated_levels(plan)
        violations = dict.fromkeys(asks, 0)
        for above, level in zip([None, *estimated], estimated, strict=False):
            if level not in levels:
                continue
            parents = None if above is None else (above, staged.estimate_table(above, refined=refined))
            nodes = staged.estimate_table(level, refined=refined)
            for check, count in level_violations(plan.tree, level, parents, nodes).items():
                violations[check] += count
        return violations

    return AssetChecks(asset, asks, look)


def _flow_checks(settings: ReleaseSettings) -> AssetChecks:
    def look(warehouse: Warehouse, period: str) -> dict[str, int]:
        key = settings.key(period)
        plan, staged, ledger = warehouse.plan(settings, key), warehouse.staged(key), warehouse.ledger
        tree, table = plan.tree, pd.read_parquet(staged.flows)
        zones = {
            "origin": tree.origin.zone_numbers(table["origin"]),
            "destination": tree.destination.zone_numbers(table["destination"]),
        }
        flows = pa.table({**zones, "trips": table["trips"]})
        refined, root = plan.mechanism.refines, _estimated_levels(plan)[0]
        estimate = staged.estimate(root, refined=refined)
        total = staged.trip_counts().total if plan.publishes_total else int(estimate.trips.sum())
        planned = tuple(step.rho * ledger.draws(key, step.level) for step in plan.steps)
        met = flows_meet_expectations(table, tree.origin.zones, tree.destination.zones, warehouse.data_docs(key))
        return {
            "meets_expectations": _any_unmet(met),
            "same_at_every_level": sum(
                flow_violations(tree, level, staged.estimate_table(level, refined=refined), flows)
                for level in _estimated_levels(plan)
            ),
            "total_is_n": abs(int(table["trips"].sum()) - total),
            "spend_is_plan": int(ledger.spent(key, plan).levels != planned),
        }

    asks = {
        "meets_expectations": "Listed zones, each pair once, whole numbers of at least 1.",
        "same_at_every_level": "The nodes of every level are the sums of the leaf flows below them.",
        "total_is_n": "The table sums to n where n is an invariant, else to the estimated root.",
        "spend_is_plan": "The ledger charged every level what was planned, once for each of its draws.",
    }
    return AssetChecks(dg.AssetKey([settings.name, "flows"]), asks, look)


def _any_unmet(expectations: dict[str, bool]) -> int:
    """1 where an expectation is not met; of the records, not even how many are may be known outside."""
    return int(not all(expectations.values()))
