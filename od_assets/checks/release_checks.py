"""Check releases: invariants in SQL and the blocking asset checks."""

import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import dagster as dg
import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa

from od_assets.checks.expectation_process import checked
from od_assets.checks.expectations import flows_meet_expectations, records_meet_expectations
from od_assets.failures import failures_without_values
from od_assets.metadata import allowed
from od_assets.resources.release_work import FlowWork, ReleaseWork, TableWork
from od_assets.resources.warehouse import Warehouse
from od_assets.series.asset_keys import estimate_key, refined_key
from od_assets.series.flows import FlowSeries
from od_assets.series.group_sizes import GroupSizeSeries
from od_assets.series.partitions import SeriesPeriods
from od_assets.series.series import Series, TableSeries, TreeSeries
from od_assets.series.stops import StopsSeries
from od_core import FlowTree, Grid, Plan, ReleaseKey, ReleasePlan
from od_core.files.duckdb_session import memory_database
from od_core.files.durable import file_digest, file_state
from od_core.geography.codes import WHOLE_SPACE
from od_core.geography.geography import Geography, Numbers
from od_core.group_sizes.groups import Frame
from od_core.group_sizes.release import frame_of
from od_core.ledger.confidential import exclusive
from od_core.publication.certificate import CheckResult
from od_core.records.zone_lists import read_zones
from od_core.stops.trajectories import PlaceList

_PRIME = (1 << 61) - 1
"""Modulus of the random weights of grid cells. A product of two weights has at most 122 bits."""


def level_violations(
    tree: FlowTree, level: int, parents: tuple[int, pa.Table] | None, nodes: pa.Table
) -> dict[str, int]:
    """Return the number of violations in the estimate of a level, by name of the query.

    Args:
        level: level of the nodes.
        parents: the nearest estimated level above, and its estimate (origin, destination, trips); None for the first
            level.
        nodes: estimate of the level, as read from its file.
    """
    queries, tables = ["non_negative_integers"], {"nodes": nodes}
    if parents is not None:
        o_level, d_level = tree.level_pair(level)
        above, estimate = parents
        o_above, d_above = tree.level_pair(above)
        tables |= {
            "parents": estimate,
            "origin_parents": _steps(tree.origin, o_level, o_above),
            "destination_parents": _steps(tree.destination, d_level, d_above),
        }
        queries.append("children_sum_to_parents")
    return _counts(queries, tables)


def flow_violations(tree: FlowTree, level: int, nodes: pa.Table, flows: pa.Table) -> int:
    """Return the number of nodes of a level that differ from the sum of the leaf flows below them.

    ``flows`` has the numbers of the origin and destination zones, and the trips.
    """
    o_level, d_level = tree.level_pair(level)
    tables = {
        "nodes": nodes,
        "flows": flows,
        "origin_ancestors": _ancestors(tree.origin, o_level),
        "destination_ancestors": _ancestors(tree.destination, d_level),
    }
    return _count("same_at_every_level", tables)


def segment_violations(tree: FlowTree, levels: Mapping[int, pa.Table], segments: pa.Table) -> dict[str, int]:
    """Return the number of violations in the flows by category, by name of the check.

    Args:
        levels: estimate of the totals of each level (origin, destination, trips), by level.
        segments: numbers of the origin and destination zones, number of the category, and trips.
    """
    differing = (flow_violations(tree, level, nodes, segments) for level, nodes in levels.items())
    return {
        "segments_are_counts": _count("segments_are_counts", {"segments": segments}),
        "segments_sum_to_totals": sum(differing),
    }


def geography_violations(zones: pd.DataFrame, levels: Sequence[str]) -> int:
    """Return the number of areas of a zone list that occur twice in a level, or lack a parent or children."""
    above = [WHOLE_SPACE] * len(zones)
    tables = [pd.DataFrame({"level": [0], "area": [WHOLE_SPACE], "parent": [None]})]
    for level, name in enumerate(levels, start=1):
        table = pd.DataFrame({"level": level, "area": zones[name], "parent": above})
        tables.append(table if level == len(levels) else table.drop_duplicates())
        above = list(zones[name])
    return _count("geography_is_a_partition", {"areas": pa.Table.from_pandas(pd.concat(tables), preserve_index=False)})


def group_size_violations(frame: Frame, histograms: pa.Table) -> dict[str, int]:
    """Return the number of violations in a group-size table, by name of the query.

    Args:
        frame: the public areas, numbers of groups and top code.
        histograms: columns level, area (both numbers), size and groups, as read from their file.
    """
    geography = frame.geography
    areas = pd.DataFrame(
        [
            (level, area, None if level == 1 else int(geography.parents[level][area]), groups)
            for level in frame.levels
            for area, groups in enumerate(frame.totals(level).tolist())
        ],
        columns=["level", "area", "parent", "groups"],
    )
    tables = {
        "histograms": histograms,
        "areas": pa.Table.from_pandas(areas, preserve_index=False),
        "sizes": pa.table({"top_code": [frame.top_code]}),
    }
    names = ("group_sizes_are_counts", "group_sizes_sum_to_totals", "group_sizes_add_up")
    return _counts(names, tables)


def place_violations(places: PlaceList) -> int:
    """Return the number of places that are listed twice, have no code, or are not on the map."""
    listed, columns = places.to_frame(), places.columns
    west, east, south, north = places.map.edges
    degrees = {
        name: pd.to_numeric(listed[getattr(columns, name)], errors="coerce") for name in ("longitude", "latitude")
    }
    tables = {
        "places": pa.Table.from_pandas(pd.DataFrame({"code": listed[columns.code], **degrees}), preserve_index=False),
        "map": pa.table({"west": [west], "east": [east], "south": [south], "north": [north]}),
    }
    return _count("places_are_on_the_map", tables)


def box_violations(grid: Grid, boxes: pa.Table) -> dict[str, int]:
    """Return the number of violations in the boxes of a release, by name of the query.

    Args:
        boxes: columns lower_1, lower_2, ..., upper_1, upper_2, ..., count and noisy, as read from their file.
    """
    ends, cuts = [], []
    for number, size in enumerate(grid.sizes, start=1):
        first, last = (boxes[f"{end}_{number}"].to_numpy().astype(np.int64) for end in ("lower", "upper"))
        ends.append(
            pd.DataFrame({"box": range(len(boxes)), "dimension": number, "first_cell": first, "last_cell": last})
        )
        places = np.unique(np.concatenate([[0, size], first, last + 1]))
        below = [0, *(secrets.randbelow(_PRIME) for _ in places[1:])]
        cuts.append(pd.DataFrame({"dimension": number, "cut": places, "below": below}))
    tables = {
        "boxes": boxes,
        "ends": pa.Table.from_pandas(pd.concat(ends), preserve_index=False),
        "cuts": pa.Table.from_pandas(pd.concat(cuts), preserve_index=False),
        "grid": pa.table({"dimension": range(1, grid.dimensions + 1), "size": list(grid.sizes)}),
    }
    names = ("boxes_fill_the_grid", "box_counts_are_counts", "box_counts_keep_the_total")
    return _counts(names, tables)


def _count(query: str, tables: dict[str, pa.Table]) -> int:
    return _counts([query], tables)[query]


def _counts(queries: Sequence[str], tables: dict[str, pa.Table]) -> dict[str, int]:
    """Return the number of violations, by name of the SQL file in ``checks/sql``.

    The tables are those of one connection, and end with it.
    """
    counts = {}
    with _database(os.getpid()).cursor() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        for query in queries:
            counts[query] = int(connection.execute(_sql(query)).fetchall()[0][0])
    return counts


@cache
def _sql(query: str) -> str:
    return files("od_assets.checks").joinpath("sql", f"{query}.sql").read_text(encoding="utf-8")


@cache
def _database(_process: int) -> duckdb.DuckDBPyConnection:
    """Return the one database of a process. To open a database takes longer than to run a query.

    It is in memory, because unpublished values must not reach the disk. A forked process opens its own, because it has
    no threads of the one that it inherits.
    """
    return memory_database()


def _steps(geography: Geography, level: int, above: int) -> pa.Table:
    """Return a table of each area of a level and its ancestor at the level ``above``, which may be the same level."""
    areas = np.arange(geography.size(level), dtype=np.int32)
    return _pairs("area", areas, "parent", geography.ancestors_at(level, above))


def _ancestors(geography: Geography, level: int) -> pa.Table:
    return _pairs("zone", np.arange(len(geography.zones), dtype=np.int32), "area", geography.ancestors(level))


def _pairs(left: str, left_areas: Numbers, right: str, right_areas: Numbers) -> pa.Table:
    return pa.table({left: left_areas, right: right_areas})


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


def geography_checks(series: TreeSeries[Any, Any]) -> AssetChecks:
    """Return the check that in every stored zone list, each area lies in exactly one area of the level above."""

    def count_violations(warehouse: Warehouse, _period: str) -> dict[str, int]:
        kept = [(warehouse.geographies / file, zones.levels) for file, zones in series.zone_lists.items()]

        def violations() -> int:
            return sum(geography_violations(read_zones(path), levels) for path, levels in kept)

        read = (f"{path} {file_digest(path)} {levels}" for path, levels in kept)
        return {"is_a_partition": warehouse.once(tuple(read), violations)}

    return AssetChecks(
        dg.AssetKey([series.name, "geography"]),
        {"is_a_partition": "Every area lies in exactly one area of the level above, and no zone is listed twice."},
        count_violations,
        partitioned=False,
    )


def record_checks(series: Series[Any, Any]) -> AssetChecks:
    """Return the check of the schema and the content of the raw records."""

    def count_violations(warehouse: Warehouse, period: str) -> dict[str, int]:
        work: ReleaseWork[Any, Any] = ReleaseWork.of(warehouse, series, series.key(period))
        staged, listed = work.staged, work.geography
        # The pages contain a digest of the numbers of faults, so they stay in the confidential folder.
        docs = warehouse.confidential.subfolder(staged.data_docs.relative_to(warehouse.confidential.path))
        zones, destinations = series.listed_codes(listed)

        def unmet() -> int:
            with exclusive(docs):  # otherwise a run could change the modes of pages while another run replaces them
                warehouse.confidential.close(docs)  # pages that an earlier version left readable
                met = checked(
                    records_meet_expectations,
                    staged.records,
                    zones,
                    series.fault_threshold,
                    docs,
                    destinations=destinations,
                    breakdowns=series.breakdowns,
                )
            return any_unmet(met)

        state = file_state(staged.records) if staged.records.exists() else None
        return {RECORDS_CHECK: warehouse.once((str(docs), listed.digest, str(state)), unmet)}

    asset = dg.AssetKey([series.name, "raw_trips"])
    return AssetChecks(asset, {RECORDS_CHECK: RECORDS_REQUIREMENT}, count_violations)


def spend_violations(warehouse: Warehouse, plan: Plan, key: ReleaseKey) -> int:
    """Return 0 if the ledger charged each level its planned cost once per draw, otherwise 1."""
    ledger = warehouse.ledger
    with ledger.one_look():
        planned = {(step.number, step.charge): ledger.draws(key, step.number) for step in plan.charged_steps}
        return int(Counter(ledger.charges(key)) != Counter(planned))


def any_unmet(expectations: dict[str, bool]) -> int:
    """Return 1 if any expectation is not met, otherwise 0, because the number of unmet expectations is confidential."""
    return int(not all(expectations.values()))


def release_checks(series: FlowSeries) -> list[AssetChecks]:
    """Return all blocking checks of a release of flows, in the order of its assets."""
    return [
        geography_checks(series),
        *([record_checks(series)] if series.records_are_here else []),
        *_estimate_checks(series),
        _flow_checks(series),
    ]


def _estimate_checks(series: FlowSeries) -> list[AssetChecks]:
    """Return the checks of the estimates: one for each level, or one for all levels of the refined flows."""
    if series.mechanism.refines:
        levels = range(series.depth + 1)
        return [_level_checks(series, refined_key(series), levels, refined=True)]
    return [
        _level_checks(series, estimate_key(series, level), [level], refined=False) for level in series.estimated_levels
    ]


def _estimated_levels(plan: ReleasePlan) -> list[int]:
    """Return the levels with an estimate: the measured levels, and the root if it is published or refined."""
    levels = [step.level for step in plan.totals]
    knows_root = plan.mechanism.refines or plan.publishes_total
    return [0, *levels] if knows_root and levels[0] > 0 else levels


def _level_checks(series: FlowSeries, asset: dg.AssetKey, levels: Sequence[int], *, refined: bool) -> AssetChecks:
    asks = {"non_negative_integers": "Each node appears once, with a whole number of at least 0."}
    if max(levels) > 0:
        asks["children_sum_to_parents"] = "The children of every node of the level above sum to that node."

    def count_violations(warehouse: Warehouse, period: str) -> dict[str, int]:
        work = FlowWork.of(warehouse, series, series.key(period))
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


def _flow_checks(series: FlowSeries) -> AssetChecks:
    def count_violations(warehouse: Warehouse, period: str) -> dict[str, int]:
        work = FlowWork.of(warehouse, series, series.key(period))
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
    if series.segments is not None:
        asks["segments_are_counts"] = "The trips of every flow in every category are whole numbers of at least 0."
        asks["segments_sum_to_totals"] = "At every level, the trips of each node in all categories sum to the node."
    return AssetChecks(dg.AssetKey([series.name, "flows"]), asks, count_violations)


def _segment_violations(work: FlowWork, levels: Mapping[int, pa.Table]) -> dict[str, int]:
    """Return the number of violations in all breakdowns of a release, by name of the check; empty without breakdowns.

    ``levels`` has the estimates of the totals, by level.
    """
    violations: Counter[str] = Counter()
    for breakdown in work.plan.breakdowns:
        own = segment_violations(work.plan.tree, levels, work.staged.segments_by_category(breakdown))
        violations.update(own)
    return dict(violations)


def group_size_checks(series: GroupSizeSeries) -> list[AssetChecks]:
    """Return all blocking checks of a group-size table, in the order of its assets."""
    return [geography_checks(series), record_checks(series), _histogram_checks(series)]


def stops_checks(series: StopsSeries) -> list[AssetChecks]:
    """Return all blocking checks of a release of trips with stops, in the order of its assets."""
    return [_place_checks(series), record_checks(series), _box_checks(series)]


def _table_checks(
    series: TableSeries[Any, Any], table: str, asks: dict[str, str], count: Callable[[TableWork], dict[str, int]]
) -> AssetChecks:
    """Return the checks of the table of a release, the last of which is that of its spending."""

    def count_violations(warehouse: Warehouse, period: str) -> dict[str, int]:
        work: TableWork[Any, Any] = TableWork.of(warehouse, series, series.key(period))
        return {**count(work), "spend_is_plan": spend_violations(warehouse, work.plan, work.key)}

    return AssetChecks(dg.AssetKey([series.name, table]), asks, count_violations)


def _histogram_checks(series: GroupSizeSeries) -> AssetChecks:
    def count(work: TableWork[Any, Any]) -> dict[str, int]:
        mechanism, frame = work.plan.mechanism, frame_of(work.plan, work.measured())
        violations = group_size_violations(frame, work.staged.table())
        return {
            "are_counts": violations["group_sizes_are_counts"],
            "sum_to_totals": violations["group_sizes_sum_to_totals"] if mechanism.keeps_totals else 0,
            "add_up": violations["group_sizes_add_up"] if mechanism.adds_up else 0,
        }

    asks = {
        "are_counts": "Listed areas, sizes 0 to K, each size at most once per area, whole numbers of groups from 0.",
        "sum_to_totals": "Each area has its public number of groups, if the mechanism guarantees it.",
        "add_up": "Groups by size of an area equal the sum over the areas in it, if the mechanism guarantees it.",
        "spend_is_plan": "The ledger charged every level its planned cost once for each of its draws.",
    }
    return _table_checks(series, "histograms", asks, count)


def _place_checks(series: StopsSeries) -> AssetChecks:
    return AssetChecks(
        dg.AssetKey([series.name, "geography"]),
        {"are_on_the_map": "Every place is listed once, with coordinates on the map."},
        lambda warehouse, _: {"are_on_the_map": place_violations(series.kept_geography(warehouse.geographies))},
        partitioned=False,
    )


def _box_checks(series: StopsSeries) -> AssetChecks:
    def count(work: TableWork[Any, Any]) -> dict[str, int]:
        violations = box_violations(work.plan.grid, work.staged.table())
        return {
            "fill_the_grid": violations["boxes_fill_the_grid"],
            "are_counts": violations["box_counts_are_counts"],
            "keep_the_total": violations["box_counts_keep_the_total"],
        }

    asks = {
        "fill_the_grid": "Every cell of the grid lies in exactly one box.",
        "are_counts": "The count of each box is a whole number of at least 0.",
        "keep_the_total": "The counts sum to the sum of the noisy counts, or to 0 if that sum is negative.",
        "spend_is_plan": "The ledger charged the planned cost once for each draw.",
    }
    return _table_checks(series, "boxes", asks, count)
