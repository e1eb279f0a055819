"""The blocking checks of one release: run by Dagster after each asset, and all of them again at publication."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import dagster as dg
import pandas as pd
import pyarrow as pa

from od_assets.assets.failures import failures_without_values
from od_assets.assets.levels import estimate_key
from od_assets.assets.metadata import allowed
from od_assets.checks.expectations import flows_meet_expectations, records_meet_expectations
from od_assets.checks.invariants import flow_violations, geography_violations, level_violations
from od_assets.resources.warehouse import Warehouse
from od_assets.settings import ReleaseSettings
from od_core import ReleasePlan
from od_core.archive.release_key import ReleaseKey
from od_core.publication.certificate import CheckResult

Look = Callable[[ReleasePlan, Warehouse, ReleaseKey], dict[str, int]]
"""Look at an asset: each check of it, and its number of violations."""


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
    name = settings.name
    return [
        AssetChecks(
            dg.AssetKey([name, "geography"]),
            {"is_a_partition": "Every area lies in one area of the level above; every area but a zone is divided."},
            lambda plan, *_: {"is_a_partition": geography_violations(plan.tree.origin)},
            partitioned=False,
        ),
        AssetChecks(
            dg.AssetKey([name, "raw_trips"]),
            {"meets_expectations": "Schema of the records; content no stricter than the allowed share of faults."},
            lambda plan, warehouse, key: {
                "meets_expectations": _any_unmet(
                    records_meet_expectations(
                        pd.read_parquet(warehouse.staged(key).records),
                        plan.tree.origin,
                        settings.fault_threshold,
                        warehouse.data_docs(key),
                    )
                )
            },
        ),
        *(_level_checks(settings, level) for level in settings.measured_levels),
        AssetChecks(
            dg.AssetKey([name, "flows"]),
            {
                "meets_expectations": "Listed zones, each pair once, whole numbers of at least 1.",
                "same_at_every_level": "The nodes of every level are the sums of the leaf flows below them.",
                "total_is_n": "The table sums to the root: to n where n is an invariant.",
                "spend_is_plan": "The ledger charged every level what was planned, once for each of its draws.",
            },
            lambda plan, warehouse, key: _look_at_flows(plan, warehouse, key),
        ),
    ]


def run_all_checks(
    settings: ReleaseSettings, plan: ReleasePlan, warehouse: Warehouse, key: ReleaseKey
) -> list[CheckResult]:
    """Every check of a release, now, from the files as they stand."""
    return [
        CheckResult("/".join(checks.asset.path[1:]), name, count == 0)
        for checks in release_checks(settings)
        for name, count in checks.look(plan, warehouse, key).items()
    ]


def check_definitions(
    settings: ReleaseSettings, partitions: dg.PartitionsDefinition
) -> Sequence[dg.AssetChecksDefinition]:
    """The checks as Dagster runs them, blocking."""
    return [_definition(settings, checks, partitions) for checks in release_checks(settings)]


def _definition(
    settings: ReleaseSettings, checks: AssetChecks, partitions: dg.PartitionsDefinition
) -> dg.AssetChecksDefinition:
    own_partitions = partitions if checks.partitioned else None
    specs = [
        dg.AssetCheckSpec(name, asset=checks.asset, description=asks, blocking=True, partitions_def=own_partitions)
        for name, asks in checks.names.items()
    ]

    @dg.multi_asset_check(name="__".join([*checks.asset.path, "checks"]), specs=specs)
    def run_checks(context: dg.AssetCheckExecutionContext, warehouse: Warehouse) -> Iterator[dg.AssetCheckResult]:
        with failures_without_values(warehouse.confidential):
            plan = settings.plan(warehouse.geography(settings))
            key = settings.key(
                context.partition_key if checks.partitioned else str(partitions.get_first_partition_key())
            )
            counts = checks.look(plan, warehouse, key)
        for name, count in counts.items():
            yield dg.AssetCheckResult(
                check_name=name, asset_key=checks.asset, passed=count == 0, metadata=allowed(violations=count)
            )

    return run_checks


def _level_checks(settings: ReleaseSettings, level: int) -> AssetChecks:
    asks = {"non_negative_integers": "Each node once, a whole number of at least 0."}
    if level > 0:
        asks["children_sum_to_parents"] = "The children of every node of the level above sum to it."

    def look(plan: ReleasePlan, warehouse: Warehouse, key: ReleaseKey) -> dict[str, int]:
        staged = warehouse.staged(key)
        parents = staged.estimate_table(level - 1) if level > 0 else None
        return level_violations(plan.tree, level, parents, staged.estimate_table(level))

    return AssetChecks(estimate_key(settings, level), asks, look)


def _look_at_flows(plan: ReleasePlan, warehouse: Warehouse, key: ReleaseKey) -> dict[str, int]:
    staged, ledger, tree = warehouse.staged(key), warehouse.ledger, plan.tree
    table = pd.read_parquet(staged.flows)
    flows = pa.table(
        {
            "origin": tree.origin.zone_numbers(table["origin"]),
            "destination": tree.destination.zone_numbers(table["destination"]),
            "trips": table["trips"],
        }
    )
    planned = tuple(step.rho * ledger.draws(key, step.level) for step in plan.steps)
    return {
        "meets_expectations": _any_unmet(
            flows_meet_expectations(table, tree.origin, tree.destination, warehouse.data_docs(key))
        ),
        "same_at_every_level": sum(
            flow_violations(tree, level, staged.estimate_table(level), flows) for level in range(tree.depth + 1)
        ),
        "total_is_n": abs(int(table["trips"].sum()) - int(staged.estimate(0).trips.sum())),
        "spend_is_plan": int(ledger.spent(key, plan).levels != planned),
    }


def _any_unmet(expectations: dict[str, bool]) -> int:
    """1 where an expectation is not met; of the records, not even how many are may be known outside."""
    return int(not all(expectations.values()))
