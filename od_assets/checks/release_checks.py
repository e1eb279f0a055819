"""Define the blocking checks of releases of flows, group-size tables and trips with stops."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa

from od_assets.checks.asset_checks import AssetChecks, any_unmet, geography_checks, record_checks, spend_violations
from od_assets.checks.expectation_process import checked
from od_assets.checks.expectations import flows_meet_expectations
from od_assets.checks.invariants import (
    box_violations,
    flow_violations,
    group_size_violations,
    level_violations,
    place_violations,
    segment_violations,
)
from od_assets.resources.release_work import FlowWork, TableWork
from od_assets.resources.warehouse import Warehouse
from od_assets.series.asset_keys import estimate_key, refined_key
from od_assets.series.group_size_settings import GroupSizeSettings
from od_assets.series.settings import ReleaseSettings
from od_assets.series.stops_settings import StopsSettings
from od_core.files.durable import file_digest
from od_core.flows.plan import ReleasePlan
from od_core.group_sizes.release import frame_of


def release_checks(settings: ReleaseSettings) -> list[AssetChecks]:
    """Return all blocking checks of a release of flows, in the order of its assets."""
    return [
        geography_checks(settings),
        *([record_checks(settings)] if settings.records_are_here else []),
        *_estimate_checks(settings),
        _flow_checks(settings),
    ]


def _estimate_checks(settings: ReleaseSettings) -> list[AssetChecks]:
    """Return the checks of the estimates: one for each level, or one for all levels of the refined flows."""
    if settings.mechanism.refines:
        levels = range(settings.depth + 1)
        return [_level_checks(settings, refined_key(settings), levels, refined=True)]
    return [
        _level_checks(settings, estimate_key(settings, level), [level], refined=False)
        for level in settings.estimated_levels
    ]


def _estimated_levels(plan: ReleasePlan) -> list[int]:
    """Return the levels with an estimate: the measured levels, and the root if it is published or refined."""
    levels = [step.level for step in plan.totals]
    knows_root = plan.mechanism.refines or plan.publishes_total
    return [0, *levels] if knows_root and levels[0] > 0 else levels


def _level_checks(
    settings: ReleaseSettings, asset: dg.AssetKey, levels: Sequence[int], *, refined: bool
) -> AssetChecks:
    asks = {"non_negative_integers": "Each node appears once, with a whole number of at least 0."}
    if max(levels) > 0:
        asks["children_sum_to_parents"] = "The children of every node of the level above sum to that node."

    def count_violations(warehouse: Warehouse, period: str) -> dict[str, int]:
        work = FlowWork.of(warehouse, settings, settings.key(period))
        plan, staged = work.plan, work.staged
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

    return AssetChecks(asset, asks, count_violations)


def _flow_checks(settings: ReleaseSettings) -> AssetChecks:
    def count_violations(warehouse: Warehouse, period: str) -> dict[str, int]:
        work = FlowWork.of(warehouse, settings, settings.key(period))
        plan, staged = work.plan, work.staged
        tree, table = plan.tree, pd.read_parquet(staged.flows)
        zones = {
            "origin": tree.origin.zone_numbers(table["origin"]),
            "destination": tree.destination.zone_numbers(table["destination"]),
        }
        flows = pa.table({**zones, "trips": table["trips"]})
        refined, root = plan.mechanism.refines, _estimated_levels(plan)[0]
        estimate = staged.estimate(root, refined=refined)
        total = work.counts.total if plan.publishes_total else int(estimate.trips.sum())
        levels = {level: staged.estimate_table(level, refined=refined) for level in _estimated_levels(plan)}
        docs = warehouse.data_docs(work.key)

        def unmet() -> int:
            return any_unmet(checked(flows_meet_expectations, table, tree.origin.zones, tree.destination.zones, docs))

        return {
            "meets_expectations": warehouse.once((str(docs), plan.digest, file_digest(staged.flows)), unmet),
            "same_at_every_level": sum(flow_violations(tree, level, nodes, flows) for level, nodes in levels.items()),
            **_segment_violations(work, levels),
            "total_is_n": abs(int(table["trips"].sum()) - total),
            "spend_is_plan": spend_violations(warehouse, plan, work.key),
        }

    asks = {
        "meets_expectations": "Zones are listed, each pair appears once, and flows are whole numbers of at least 1.",
        "same_at_every_level": "The nodes of every level are the sums of the leaf flows below them.",
        "total_is_n": "The table sums to n if n is an invariant, otherwise to the estimated root.",
        "spend_is_plan": "The ledger charged every level its planned cost once for each of its draws.",
    }
    if settings.segments is not None:
        asks["segments_are_counts"] = "The trips of every flow in every category are whole numbers of at least 0."
        asks["segments_sum_to_totals"] = "At every level, the trips of each node in all categories sum to the node."
    return AssetChecks(dg.AssetKey([settings.name, "flows"]), asks, count_violations)


def _segment_violations(work: FlowWork, levels: Mapping[int, pa.Table]) -> dict[str, int]:
    """Return the number of violations in all breakdowns of a release, by name of the check; empty without breakdowns.

    ``levels`` has the estimates of the totals, by level.
    """
    violations: Counter[str] = Counter()
    for breakdown in work.plan.breakdowns:
        own = segment_violations(work.plan.tree, levels, work.staged.segments_by_category(breakdown))
        violations.update(own)
    return dict(violations)


# Group-size tables.


def group_size_checks(settings: GroupSizeSettings) -> list[AssetChecks]:
    """Return all blocking checks of a group-size table, in the order of its assets."""
    return [
        geography_checks(settings),
        record_checks(settings),
        _histogram_checks(settings),
    ]


def _histogram_checks(settings: GroupSizeSettings) -> AssetChecks:
    def count_violations(warehouse: Warehouse, period: str) -> dict[str, int]:
        work: TableWork[Any, Any] = TableWork.of(warehouse, settings, settings.key(period))
        plan, table = work.plan, work.staged.table()
        mechanism, frame = plan.mechanism, frame_of(plan, work.measured())
        violations = group_size_violations(frame, table)
        return {
            "are_counts": violations["group_sizes_are_counts"],
            "sum_to_totals": violations["group_sizes_sum_to_totals"] if mechanism.keeps_totals else 0,
            "add_up": violations["group_sizes_add_up"] if mechanism.adds_up else 0,
            "spend_is_plan": spend_violations(warehouse, plan, work.key),
        }

    asks = {
        "are_counts": "Listed areas, sizes 0 to K, each size at most once per area, whole numbers of groups from 0.",
        "sum_to_totals": "Each area has its public number of groups, if the mechanism guarantees it.",
        "add_up": "Groups by size of an area equal the sum over the areas in it, if the mechanism guarantees it.",
        "spend_is_plan": "The ledger charged every level its planned cost once for each of its draws.",
    }
    return AssetChecks(dg.AssetKey([settings.name, "histograms"]), asks, count_violations)


# Trips with stops.


def stops_checks(settings: StopsSettings) -> list[AssetChecks]:
    """Return all blocking checks of a release of trips with stops, in the order of its assets."""
    return [
        _place_checks(settings),
        record_checks(settings),
        _box_checks(settings),
    ]


def _place_checks(settings: StopsSettings) -> AssetChecks:
    return AssetChecks(
        dg.AssetKey([settings.name, "geography"]),
        {"are_on_the_map": "Every place is listed once, with coordinates on the map."},
        lambda warehouse, _: {"are_on_the_map": place_violations(settings.kept_geography(warehouse.geographies))},
        partitioned=False,
    )


def _box_checks(settings: StopsSettings) -> AssetChecks:
    def count_violations(warehouse: Warehouse, period: str) -> dict[str, int]:
        work: TableWork[Any, Any] = TableWork.of(warehouse, settings, settings.key(period))
        plan = work.plan
        violations = box_violations(plan.grid, work.staged.table())
        return {
            "fill_the_grid": violations["boxes_fill_the_grid"],
            "are_counts": violations["box_counts_are_counts"],
            "keep_the_total": violations["box_counts_keep_the_total"],
            "spend_is_plan": spend_violations(warehouse, plan, work.key),
        }

    asks = {
        "fill_the_grid": "Every cell of the grid lies in exactly one box.",
        "are_counts": "The count of each box is a whole number of at least 0.",
        "keep_the_total": "The counts sum to the sum of the noisy counts, or to 0 if that sum is negative.",
        "spend_is_plan": "The ledger charged the planned cost once for each draw.",
    }
    return AssetChecks(dg.AssetKey([settings.name, "boxes"]), asks, count_violations)
