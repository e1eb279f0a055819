"""The blocking checks of one group-size table."""

import dagster as dg

from od_assets.checks.asset_checks import AssetChecks, geography_checks, record_checks, spend_violations
from od_assets.checks.invariants import group_size_violations
from od_assets.resources.warehouse import Warehouse
from od_assets.series.group_size_settings import GroupSizeSettings
from od_core.group_sizes.release import frame_of


def group_size_checks(settings: GroupSizeSettings) -> list[AssetChecks]:
    """All blocking checks of a group-size table, in the order of its assets."""
    return [
        geography_checks(settings),
        record_checks(settings),
        _histogram_checks(settings),
    ]


def _histogram_checks(settings: GroupSizeSettings) -> AssetChecks:
    def look(warehouse: Warehouse, period: str) -> dict[str, int]:
        key = settings.key(period)
        plan = warehouse.plan(settings, key)
        mechanism, table = plan.mechanism, warehouse.staged_group_sizes(key).histogram_table()
        frame = frame_of(plan, warehouse.measured_group_sizes(plan, key))
        violations = group_size_violations(frame, table)
        return {
            "are_counts": violations["group_sizes_are_counts"],
            "sum_to_totals": violations["group_sizes_sum_to_totals"] if mechanism.keeps_totals else 0,
            "add_up": violations["group_sizes_add_up"] if mechanism.adds_up else 0,
            "spend_is_plan": spend_violations(warehouse, plan, key),
        }

    asks = {
        "are_counts": "Each size of an area once, a whole number of groups of at least 0; listed areas, sizes 0 to K.",
        "sum_to_totals": "The groups of an area are as many as it has, where the mechanism promises it.",
        "add_up": "The groups of each size of an area are those of the areas in it, where the mechanism promises it.",
        "spend_is_plan": "The ledger charged every level what was planned, once for each of its draws.",
    }
    return AssetChecks(dg.AssetKey([settings.name, "histograms"]), asks, look)
