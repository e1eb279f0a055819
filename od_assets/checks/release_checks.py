"""Check releases: invariants in SQL, and the blocking asset checks.

What each check requires is in ``requirements.yaml``.
"""

import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.resources import files
from typing import Any

import dagster as dg
import numpy as np
import pandas as pd
import pyarrow as pa

from od_assets.checks.expectation_process import run_check
from od_assets.checks.expectations import check_flow_expectations, check_record_expectations
from od_assets.checks.team_checks import count_team_violations
from od_assets.failures import convert_errors_without_values
from od_assets.metadata import make_metadata
from od_assets.resources.release_work import FlowWork, ReleaseWork, TableWork, choose_work_class
from od_assets.resources.warehouse import Warehouse
from od_assets.series.section import read_sibling_yaml
from od_assets.series.series import G, P, Series
from od_core import FlowTree, Grid, Plan, ReleaseKey, ReleasePlan
from od_core.errors import OdError
from od_core.files.duckdb_session import connect_to_memory_database
from od_core.files.durable import compute_file_digest, read_file_state
from od_core.geography.codes import WHOLE_SPACE
from od_core.geography.geography import Geography
from od_core.group_sizes.groups import Frame
from od_core.group_sizes.release import resolve_frame
from od_core.publication.certificate import CheckResult
from od_core.records.zone_lists import read_zones

_PRIME = (1 << 61) - 1
"""Modulus of the random weights of grid cells. A product of two weights has at most 122 bits."""

_REQUIRES: dict[str, dict[str, str]] = read_sibling_yaml(__file__, "requirements.yaml")

GEOGRAPHY, RECORDS = ["geography"], ["raw_trips"]
"""Ends of the keys of two assets: the geography, which has no partitions unless series share it, and the records."""

RECORDS_CHECK = "meets_expectations"
"""Name of the check of the raw records."""

RECORDS_REQUIREMENT = _REQUIRES["records"][RECORDS_CHECK]


def count_level_violations(
    tree: FlowTree, level: int, parents: tuple[int, pa.Table] | None, nodes: pa.Table
) -> dict[str, int]:
    """Return the number of violations in the estimate of a level, by name of the check.

    Args:
        level: level of the nodes.
        parents: the nearest estimated level above, and its estimate (origin, destination, trips); None for the first
            level.
        nodes: estimate of the level, as read from its file.
    """
    violations = {"non_negative_integers": _count_violations("non_negative_integers", nodes=nodes)}
    if parents is not None:
        violations["children_sum_to_parents"] = count_inconsistent_nodes(tree, *parents, level, nodes)
    return violations


def count_inconsistent_nodes(tree: FlowTree, above: int, parents: pa.Table, level: int, nodes: pa.Table) -> int:
    """Return the number of nodes of the level ``above`` that differ from the sum of their descendants at ``level``.

    ``parents`` (of ``above``) and ``nodes`` (of ``level``) have the columns origin, destination and trips, the first
    two as numbers of areas.
    """
    origin_level, destination_level = tree.level_pair(level)
    origin_above, destination_above = tree.level_pair(above)
    return _count_violations(
        "children_sum_to_parents",
        parents=parents,
        nodes=nodes,
        origin_parents=_make_ancestor_table(tree.origin, origin_level, origin_above),
        destination_parents=_make_ancestor_table(tree.destination, destination_level, destination_above),
    )


def _make_ancestor_table(geography: Geography, level: int, above: int) -> pa.Table:
    """Return a table with the columns area and parent: each area of a level, and its ancestor at the level ``above``.

    Both are numbers of areas. If both levels are the same, each area is its own parent.
    """
    areas = np.arange(geography.size(level), dtype=np.int32)
    return pa.table({"area": areas, "parent": geography.ancestors_at(level, above)})


def count_geography_violations(zones: pd.DataFrame, levels: Sequence[str]) -> int:
    """Return the number of areas of a zone list that occur twice in a level, or lack a parent or children.

    ``zones`` has one row a zone, and one column of codes for each of ``levels``, which are coarse to fine.
    """
    above = [WHOLE_SPACE] * len(zones)
    tables = [pd.DataFrame({"level": [0], "area": [WHOLE_SPACE], "parent": [None]})]
    for level, name in enumerate(levels, start=1):
        table = pd.DataFrame({"level": level, "area": zones[name], "parent": above})
        tables.append(table if level == len(levels) else table.drop_duplicates())
        above = list(zones[name])
    return _count_violations("geography_is_a_partition", areas=pd.concat(tables))


def count_group_size_violations(frame: Frame, histograms: pa.Table) -> dict[str, int]:
    """Return the number of violations in a group-size table, by name of the check.

    ``histograms`` has the columns level, area (both numbers), size and groups, as read from their file.
    """
    parents = frame.geography.parents
    rows = []
    for level in frame.levels:
        for area, groups in enumerate(frame.count_groups(level).tolist()):
            parent = None if level == 1 else int(parents[level][area])
            rows.append((level, area, parent, groups))
    areas = pd.DataFrame(rows, columns=["level", "area", "parent", "groups"])
    tables = {"histograms": histograms, "areas": areas, "sizes": pa.table({"top_code": [frame.top_code]})}
    return {
        check: _count_violations(f"histograms_{check}", **tables) for check in ("are_counts", "sum_to_totals", "add_up")
    }


def count_box_violations(grid: Grid, boxes: pa.Table) -> dict[str, int]:
    """Return the number of violations in the boxes of a release, by name of the check.

    ``boxes`` has the columns lower_1, lower_2, ..., upper_1, upper_2, ..., count and noisy, as read from their file.
    """
    ends, cuts = [], []
    for number, size in enumerate(grid.sizes, start=1):
        first = boxes[f"lower_{number}"].to_numpy().astype(np.int64)
        last = boxes[f"upper_{number}"].to_numpy().astype(np.int64)
        ends.append(
            pd.DataFrame({"box": range(len(boxes)), "dimension": number, "first_cell": first, "last_cell": last})
        )
        cut_cells = np.unique(np.concatenate([[0, size], first, last + 1]))
        # The total weight of the cells below each cut is random. Unless the boxes fill the grid without overlaps, their
        # weights sum to that of the grid only with negligible probability.
        weights_below = [0, *(secrets.randbelow(_PRIME) for _ in cut_cells[1:])]
        cuts.append(pd.DataFrame({"dimension": number, "cut": cut_cells, "below": weights_below}))
    dimensions = pa.table({"dimension": range(1, grid.dimensions + 1), "size": list(grid.sizes)})
    tables = {"boxes": boxes, "ends": pd.concat(ends), "cuts": pd.concat(cuts), "grid": dimensions}
    return {
        check: _count_violations(f"boxes_{check}", **tables)
        for check in ("fill_the_grid", "are_counts", "keep_the_total")
    }


def _count_violations(query: str, **tables: pa.Table | pd.DataFrame) -> int:
    """Return the number of violations that a query in ``checks/sql`` finds in the given tables."""
    with connect_to_memory_database() as connection:
        for name, table in tables.items():
            is_frame = isinstance(table, pd.DataFrame)
            connection.register(name, pa.Table.from_pandas(table, preserve_index=False) if is_frame else table)
        return int(connection.execute(_read_query(query)).fetchall()[0][0])


@cache
def _read_query(query: str) -> str:
    """Return the SQL text of a query in ``checks/sql``."""
    return files("od_assets.checks").joinpath("sql", f"{query}.sql").read_text(encoding="utf-8")


@dataclass(frozen=True)
class AssetChecks:
    """The checks of one asset of a series.

    Attributes:
        series: the series of the asset.
        asset: end of the asset's key, after the path of the series.
        requires: what each check requires, by its name.
        count: function that returns the number of violations of each check, by name, given the work on the release.
        warnings: names of the checks that block nothing if they fail. Other failed checks block downstream assets.
    """

    series: Series[Any, Any]
    asset: Sequence[str]
    requires: dict[str, str]
    count: Callable[[Any], dict[str, int]]
    warnings: frozenset[str] = frozenset()

    def count_violations(self, warehouse: Warehouse, period: str) -> dict[str, int]:
        """Return the number of violations of each check in the files of a period, by name of the check."""
        return self.count(choose_work_class(self.series).find_or_make(warehouse, self.series, self.series.key(period)))

    def make_definition(self) -> dg.AssetChecksDefinition:
        """Return the Dagster checks, which one step runs. They block downstream assets, except for the warnings."""
        series, path = self.series, [*self.series.path, *self.asset]
        covers_all_periods = self.asset == GEOGRAPHY and not series.shares_assets
        partitions = None if covers_all_periods else series.make_partitions_definition()
        asset, name_prefix = dg.AssetKey(path), ""
        if series.detail == "publication" and self.asset not in (GEOGRAPHY, RECORDS):
            # The merged asset has the checks of all that it replaces, so a prefix names the asset of each check.
            asset = dg.AssetKey([*series.path, *make_release_checks(series)[-1].asset])
            name_prefix = "" if asset.path == path else f"{self.asset[-1]}_"
        specs = [
            dg.AssetCheckSpec(
                name_prefix + name,
                asset=asset,
                description=requirement,
                blocking=name not in self.warnings,
                partitions_def=partitions,
            )
            for name, requirement in self.requires.items()
        ]

        @dg.multi_asset_check(name="__".join([*path, "checks"]), specs=specs)
        def run_checks(
            context: dg.AssetCheckExecutionContext, od_warehouse: Warehouse
        ) -> Iterator[dg.AssetCheckResult]:
            with convert_errors_without_values(od_warehouse.confidential):
                row, key = series, series.key(series.periods.first.text)
                if partitions is not None:
                    row, key = series.find_release(context.partition_key)
                counts = replace(self, series=row).count_violations(od_warehouse, key.period)
            for name, count in counts.items():
                yield dg.AssetCheckResult(
                    check_name=name_prefix + name,
                    asset_key=asset,
                    passed=count == 0,
                    severity=dg.AssetCheckSeverity.WARN if name in self.warnings else dg.AssetCheckSeverity.ERROR,
                    description=self.requires[name],
                    metadata=make_metadata(violations=count),
                )

        return run_checks


def run_all_checks(series: Series[P, G], warehouse: Warehouse, period: str) -> list[CheckResult]:
    """Run every check of a release on its current files, and return one result per check.

    Results of the checks that the team declares also have their severity and what they require.
    """
    results = []
    team_checks = {check.name: check for check in series.checks}
    for checks in make_release_checks(series):
        for name, count in checks.count_violations(warehouse, period).items():
            result = CheckResult(subject="/".join(checks.asset), check=name, passed=count == 0)
            if name in team_checks:
                result["severity"] = team_checks[name].severity
                result["requires"] = team_checks[name].requires
            results.append(result)
    return results


def make_release_checks(series: Series[P, G]) -> list[AssetChecks]:
    """Return all checks of a release of any kind, in the order of its assets.

    Raises OdError if a check of the team has the name of a check that every release of the kind has.
    """
    list_name, table = series.checked_list, series.checked_table
    checks = [AssetChecks(series, GEOGRAPHY, _REQUIRES[list_name], _COUNTS[list_name])]
    if series.records_are_here:
        checks.append(AssetChecks(series, RECORDS, _REQUIRES["records"], _count_records))
    requires = _REQUIRES[table] | (_REQUIRES["segments"] if series.breakdowns else {})
    team_requires = {check.name: check.requires for check in series.checks}
    taken = sorted(team_requires.keys() & requires.keys())
    if taken:
        message = f"checks: {taken[0]} is a check of every release of this kind"
        raise OdError("OD-CONFIG", message, next_step="choose another name")
    warnings = frozenset(check.name for check in series.checks if check.severity == "warn")

    def count_in_table(work: Any) -> dict[str, int]:
        return _COUNTS[table](work) | count_team_violations(work)

    table_checks = AssetChecks(series, [table], requires | team_requires, count_in_table, warnings)
    return [*checks, *_iterate_estimate_checks(series), table_checks]


def _count_areas(work: ReleaseWork[P, Any]) -> dict[str, int]:
    """Return the number of areas, in all stored zone lists of a release, that do not partition the level above."""
    warehouse = work.warehouse
    files = [(warehouse.geographies / file, zones.levels) for file, zones in work.series.zone_lists.items()]

    def count_in_all_files() -> int:
        return sum(count_geography_violations(read_zones(path), levels) for path, levels in files)

    inputs = tuple(f"{path} {compute_file_digest(path)} {levels}" for path, levels in files)
    return {"is_a_partition": warehouse.count_once(inputs, count_in_all_files)}


def _count_places(work: ReleaseWork[P, Any]) -> dict[str, int]:
    """Return the number of listed places outside the map of a series of trips with stops."""
    places = work.series.read_stored_geography(work.warehouse.geographies)
    listed_places, columns = places.to_frame(), places.columns
    degrees = {}
    for name in ("longitude", "latitude"):
        degrees[name] = pd.to_numeric(listed_places[getattr(columns, name)], errors="coerce")
    west, east, south, north = places.map.edges
    edges = pa.table({"west": [west], "east": [east], "south": [south], "north": [north]})
    placed = pd.DataFrame({"code": listed_places[columns.code], **degrees})
    return {"are_on_the_map": _count_violations("places_are_on_the_map", places=placed, map=edges)}


def _count_records(work: ReleaseWork[P, Any]) -> dict[str, int]:
    """Return 1 if the records do not meet their expectations, otherwise 0.

    The records are checked again only after a change of records or areas.
    """
    series, warehouse, records = work.series, work.warehouse, work.staged.records
    # Single records may decide what the page says, so it stays in the confidential folder.
    docs = warehouse.confidential.make_subfolder(work.staged.data_docs.relative_to(warehouse.confidential.path))
    zones, destinations = series.list_allowed_codes(work.geography)

    count = partial(
        _flag_unmet_expectations,
        check_record_expectations,
        records,
        zones,
        series.fault_threshold,
        docs,
        destinations=destinations,
        breakdowns=series.breakdowns,
    )
    state = read_file_state(records) if records.exists() else None
    return {RECORDS_CHECK: warehouse.count_once((str(docs), work.geography.digest, str(state)), count)}


def _flag_unmet_expectations(check: Callable[..., dict[str, bool]], *arguments: object, **options: object) -> int:
    """Return 1 if any expectation is not met, otherwise 0, because the number of unmet expectations is confidential."""
    return int(not all(run_check(check, *arguments, **options).values()))


def count_spend_violations(warehouse: Warehouse, plan: Plan, key: ReleaseKey) -> int:
    """Return 0 if the ledger charged each step its planned cost once per draw, and nothing else; otherwise 1."""
    ledger = warehouse.ledger
    with ledger.one_look():
        planned = {(step.number, step.charge): ledger.count_draws(key, step.number) for step in plan.charged_steps}
        return int(Counter(ledger.list_charges(key)) != Counter(planned))


def _iterate_estimate_checks(series: Series[P, G]) -> Iterator[AssetChecks]:
    """Yield the checks of each asset with estimates of levels."""
    for asset, levels in series.checked_estimates:
        requires = dict(_REQUIRES["estimates"])
        if max(levels) == 0:
            del requires["children_sum_to_parents"]
        count = partial(_count_estimates, checks=[*requires], levels=levels)
        yield AssetChecks(series, asset[len(series.path) :], requires, count)


def _list_estimated_levels(plan: ReleasePlan) -> list[int]:
    """Return the levels with an estimate, coarse to fine: the measured ones, and the root if published or refined."""
    levels = [step.level for step in plan.totals]
    knows_root = plan.mechanism.refines or plan.publishes_total
    return [0, *levels] if knows_root and levels[0] > 0 else levels


def _count_estimates(work: FlowWork, *, checks: Sequence[str], levels: Sequence[int]) -> dict[str, int]:
    """Return the number of violations of each check in the estimates of some levels.

    Each level is compared with the nearest estimated level above it.
    """
    plan = work.plan
    read_estimate = partial(work.staged.read_estimate_table, refined=plan.mechanism.refines)
    violations = dict.fromkeys(checks, 0)
    above = None
    for level in _list_estimated_levels(plan):
        if level in levels:
            parents = None if above is None else (above, read_estimate(above))
            for check, count in count_level_violations(plan.tree, level, parents, read_estimate(level)).items():
                violations[check] += count
        above = level
    return violations


def _count_flows(work: FlowWork) -> dict[str, int]:
    """Return the number of violations of each check in the table of flows and, with breakdowns, in the segments."""
    plan, staged, warehouse = work.plan, work.staged, work.warehouse
    tree, refined = plan.tree, plan.mechanism.refines
    table = pd.read_parquet(staged.flows)
    sides = {"origin": tree.origin, "destination": tree.destination}
    zones = {side: areas.find_zone_numbers(table[side]) for side, areas in sides.items()}
    flows = pa.table({**zones, "trips": table["trips"]})
    levels = {level: staged.read_estimate_table(level, refined=refined) for level in _list_estimated_levels(plan)}
    root = staged.read_estimate(next(iter(levels)), refined=refined)
    total = work.counts.total if plan.publishes_total else int(root.trips.sum())
    docs = warehouse.locate_data_docs(work.key)
    count_unmet = partial(
        _flag_unmet_expectations, check_flow_expectations, table, tree.origin.zones, tree.destination.zones, docs
    )

    def sum_inconsistent_nodes(leaves: pa.Table) -> int:
        return sum(count_inconsistent_nodes(tree, level, nodes, tree.depth, leaves) for level, nodes in levels.items())

    segments: Counter[str] = Counter()
    for breakdown in plan.breakdowns:
        trips = staged.read_segments_by_category(breakdown)
        segments["segments_are_counts"] += _count_violations("segments_are_counts", segments=trips)
        segments["segments_sum_to_totals"] += sum_inconsistent_nodes(trips)
    return {
        "meets_expectations": warehouse.count_once(
            (str(docs), plan.digest, compute_file_digest(staged.flows)), count_unmet
        ),
        "same_at_every_level": sum_inconsistent_nodes(flows),
        **segments,
        "total_is_n": abs(int(table["trips"].sum()) - total),
        "spend_is_plan": count_spend_violations(warehouse, plan, work.key),
    }


def _count_histograms(work: TableWork[Any, G]) -> dict[str, int]:
    """Return the number of violations of each check in released group sizes: 0 for what is not promised."""
    plan = work.plan
    violations = count_group_size_violations(resolve_frame(plan, work.read_measurements()), work.staged.read_table())
    if not plan.keeps_totals:
        violations["sum_to_totals"] = 0
    if not plan.mechanism.adds_up:
        violations["add_up"] = 0
    return {**violations, "spend_is_plan": count_spend_violations(work.warehouse, plan, work.key)}


def _count_boxes(work: TableWork[Any, G]) -> dict[str, int]:
    """Return the number of violations of each check in the released boxes of trips with stops."""
    violations = count_box_violations(work.plan.grid, work.staged.read_table())
    return {**violations, "spend_is_plan": count_spend_violations(work.warehouse, work.plan, work.key)}


_COUNTS: dict[str, Callable[[Any], dict[str, int]]] = {
    "geography": _count_areas,
    "places": _count_places,
    "flows": _count_flows,
    "histograms": _count_histograms,
    "boxes": _count_boxes,
}
"""Function that counts the violations of each check, by the name of the checks in ``requirements.yaml``."""
