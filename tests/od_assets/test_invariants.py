"""The SQL invariants find planted violations, and nothing in sound tables."""

import multiprocessing
import os

import pandas as pd
import pyarrow as pa
import pytest

from od_assets.checks.release_checks import count_geography_violations, count_inconsistent_nodes, count_level_violations
from od_core import FlowTree, Geography
from od_core.files.duckdb_session import connect_to_memory_database

TREE = FlowTree(*[Geography.from_frame(pd.DataFrame({"r": list("AABB"), "z": list("abcd")}), levels=["r", "z"])] * 2)


def table(rows: list[tuple[int, int, float]], kind: pa.DataType | None = None) -> pa.Table:
    origin, destination, trips = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    return pa.table(
        {
            "origin": pa.array(origin, pa.int32()),
            "destination": pa.array(destination, pa.int32()),
            "trips": pa.array(trips, kind or pa.int64()),
        }
    )


PARENTS = [(0, 0, 5), (0, 1, 2), (1, 1, 4)]  # level 2: region, region
NODES = [(0, 0, 3), (0, 1, 2), (0, 3, 2), (1, 2, 1), (1, 3, 3)]  # level 3: region, zone
SOUND = {"non_negative_integers": 0, "children_sum_to_parents": 0}


def test_sound_nodes_have_no_violation():
    assert count_level_violations(TREE, 3, (2, table(PARENTS)), table(NODES)) == SOUND


@pytest.mark.parametrize(
    ("nodes", "kind", "bad", "unbalanced"),
    [
        ([(0, 0, 2), *NODES[1:]], None, 0, 1),  # a lost trip
        ([*NODES, (1, 0, 1)], None, 0, 1),  # a node below no released parent
        (NODES[:2] + NODES[3:], None, 0, 1),  # a lost node
        ([(0, 0, 6), (0, 1, -1), *NODES[2:]], None, 1, 0),  # negative, with the right sum
        ([(0, 0, 3.5), (0, 1, 1.5), *NODES[2:]], pa.float64(), 5, 0),  # fractions; no row is of the right type
        ([(0, 0, 1), (0, 0, 2), *NODES[1:]], None, 1, 0),  # a node that stands twice
        ([*NODES, (1, 7, 3)], None, 0, 1),  # an area that is not public
    ],
)
def test_planted_violations_are_counted(nodes, kind, bad, unbalanced):
    expected = {"non_negative_integers": bad, "children_sum_to_parents": unbalanced}
    assert count_level_violations(TREE, 3, (2, table(PARENTS)), table(nodes, kind)) == expected


def test_the_kept_side_is_its_own_parent_on_both_trees():
    destination_level_1 = [(0, 0, 7), (0, 1, 4)]
    assert count_level_violations(TREE, 1, (0, table([(0, 0, 11)])), table(destination_level_1)) == SOUND
    origin_first = FlowTree(TREE.origin, TREE.destination, "origin")
    assert count_level_violations(origin_first, 1, (0, table([(0, 0, 11)])), table([(0, 0, 7), (1, 0, 4)])) == SOUND
    of_the_other_tree = count_level_violations(origin_first, 1, (0, table([(0, 0, 11)])), table(destination_level_1))
    assert of_the_other_tree["children_sum_to_parents"] == 2  # the root is short, and a node has no parent


def test_parents_may_stand_some_levels_above():
    """Where the levels in between are not measured."""
    assert count_level_violations(TREE, 3, (1, table([(0, 0, 5), (0, 1, 6)])), table(NODES)) == SOUND
    lost = count_level_violations(TREE, 3, (1, table([(0, 0, 5), (0, 1, 7)])), table(NODES))
    assert lost["children_sum_to_parents"] == 1


def test_flows_are_compared_with_every_level():
    flows = table([(0, 0, 3), (1, 1, 2), (0, 3, 2), (2, 2, 1), (3, 3, 3)])
    assert count_inconsistent_nodes(TREE, 2, table(PARENTS), TREE.depth, flows) == 0
    assert count_inconsistent_nodes(TREE, 2, table([(0, 0, 4), *PARENTS[1:]]), TREE.depth, flows) == 1
    assert count_inconsistent_nodes(TREE, 2, table(PARENTS[1:]), TREE.depth, flows) == 1
    assert count_inconsistent_nodes(TREE, 0, table([(0, 0, 11)]), TREE.depth, flows) == 0


@pytest.mark.parametrize(
    ("rows", "whole"),
    [
        (["Aa", "Ab", "Bc", "Bd"], True),
        (["Aa", "Ab", "Bb", "Bd"], False),  # a zone in two regions
        (["Aa", "Aa", "Bc"], False),  # a zone twice
    ],
)
def test_a_zone_list_is_a_partition(rows, whole):
    zones = pd.DataFrame([tuple(row) for row in rows], columns=["r", "z"])
    assert (count_geography_violations(zones, ["r", "z"]) == 0) == whole


def test_a_region_in_two_divisions_is_no_partition():
    zones = pd.DataFrame([("X", "A", "a"), ("Y", "A", "b")], columns=["d", "r", "z"])
    assert count_geography_violations(zones, ["d", "r", "z"]) > 0


def test_a_forked_process_has_a_database_of_its_own_and_checks_leave_no_table_in_it():
    """It might wait for ever for the threads of the database that it inherits."""
    with connect_to_memory_database() as ours:
        ours.execute("CREATE TABLE inherited AS SELECT 1")
        child = multiprocessing.get_context("fork").Process(target=_check_and_count_tables)
        child.start()
        child.join(60)
        child.kill()
        ours.execute("DROP TABLE inherited")
    assert child.exitcode == 0


def _check_and_count_tables() -> None:
    test_sound_nodes_have_no_violation()
    with connect_to_memory_database() as own:
        os._exit(len(own.execute("SHOW ALL TABLES").fetchall()))
