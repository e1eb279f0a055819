"""The blocking checks of one release of trips with stops."""

import dagster as dg

from od_assets.checks.asset_checks import AssetChecks, record_checks, spend_violations
from od_assets.checks.invariants import box_violations, place_violations
from od_assets.resources.warehouse import Warehouse
from od_assets.series.stops_settings import StopsSettings


def stops_checks(settings: StopsSettings) -> list[AssetChecks]:
    """All blocking checks of a release of trips with stops, in the order of its assets."""
    return [
        _place_checks(settings),
        record_checks(settings),
        _box_checks(settings),
    ]


def _place_checks(settings: StopsSettings) -> AssetChecks:
    return AssetChecks(
        dg.AssetKey([settings.name, "geography"]),
        {"are_on_the_map": "Every place is listed once, with coordinates on the map."},
        lambda warehouse, _: {"are_on_the_map": place_violations(warehouse.geography(settings))},
        partitioned=False,
    )


def _box_checks(settings: StopsSettings) -> AssetChecks:
    def look(warehouse: Warehouse, period: str) -> dict[str, int]:
        key = settings.key(period)
        plan = warehouse.plan(settings, key)
        violations = box_violations(plan.grid, warehouse.staged_stops(key).boxes())
        return {
            "fill_the_grid": violations["boxes_fill_the_grid"],
            "are_counts": violations["box_counts_are_counts"],
            "keep_the_total": violations["box_counts_keep_the_total"],
            "spend_is_plan": spend_violations(warehouse, plan, key),
        }

    asks = {
        "fill_the_grid": "Every cell of the grid lies in one box.",
        "are_counts": "The count of each box is a whole number of at least 0.",
        "keep_the_total": "The counts sum to the noisy counts, or to 0 where these are below it.",
        "spend_is_plan": "The ledger charged what was planned, once for each draw.",
    }
    return AssetChecks(dg.AssetKey([settings.name, "boxes"]), asks, look)
