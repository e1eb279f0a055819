"""Sensitivity: between neighbouring records no level changes by more than its noise was made for (spec 6).

The neighbours are sets of raw records, with faults among them and more trips of a user than are counted; what is
compared is what is measured: all public nodes of every level, the root where it is noised, in exact integers.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from od_core import Geography, PrivacyUnit
from od_core.flow_tree import FlowTree, Pairs
from od_core.trips import TripCounts, count_trips
from tests.od_core.strategies import TREES, World, geography_of, level_names, worlds

UNITS = [
    PrivacyUnit(kind, relation, column=None if kind == "trip" else "person", max_trips=m)
    for kind, most in (("trip", [None]), ("user", [1, 3]), ("user_period", [1, 3]))
    for relation in ("bounded", "unbounded")
    for m in most
]
UNITS += [PrivacyUnit("trip", relation, max_weight=4) for relation in ("bounded", "unbounded")]
NAMES = [f"{u.kind} {u.neighbours} m={u.contribution_bound}{' weighted' if u.max_weight else ''}" for u in UNITS]
KEY = bytes(range(32))

Row = tuple[str | None, str | None, str | None, bool | None, float | None]
"""User, origin, destination, whether the record is of the period, and its weight."""


def level_counts(tree: FlowTree, rows: list[Row], unit: PrivacyUnit) -> list[np.ndarray]:
    """True counts of all public nodes of levels 0 to T."""
    frame = pd.DataFrame(rows, columns=["person", "origin", "destination", "in_period", "weight"], dtype=object)
    if unit.max_weight is None:
        frame = frame.drop(columns="weight")
    return node_counts(tree, count_trips(frame, tree, unit=unit, key=KEY, period="2001-06", fault_threshold=1))


def node_counts(tree: FlowTree, counts: TripCounts) -> list[np.ndarray]:
    """True counts of all public nodes of levels 0 to T, shape (nodes,) each."""
    root = np.zeros(1, dtype=np.int32)
    nodes = Pairs(0, root, root)
    levels = [np.array([counts.total])]
    while nodes.level < tree.depth:
        [families] = tree.families(nodes)
        levels.append(np.zeros(len(families), dtype=np.int64))
        counts.add_to(levels[-1], tree, families)
        nodes = families.children
        assert len(nodes) == tree.cells(nodes.level)
    return levels


def squared_changes(tree: FlowTree, before: list[Row], after: list[Row], unit: PrivacyUnit) -> list[int]:
    pairs = zip(level_counts(tree, before, unit), level_counts(tree, after, unit), strict=True)
    return [int(((a - b) ** 2).sum()) for a, b in pairs]


def most(unit: PrivacyUnit, depth: int) -> list[int]:
    """Squared sensitivity of levels 0 to T, as the noise is made for it."""
    return [unit.root_sensitivity_squared] + [unit.sensitivity_squared] * depth


@st.composite
def trees(draw: st.DrawFn, world: World) -> FlowTree:
    """The world's tree, with or without zones for unknown places."""
    sides = []
    for zones in (world.origins, world.destinations):
        names = level_names(zones)
        unknown = draw(st.none() | st.sampled_from([zone[-1] for zone in zones]))
        sides.append(Geography.from_frame(pd.DataFrame(zones, columns=names), names, unknown=unknown))
    return FlowTree(*sides, draw(st.sampled_from(TREES)))


WEIGHTS = st.sampled_from([None, -1.0, 0.0, 0.49, 0.5, 1.0, 2.5, 4.0, 7.0, 1e300, np.inf, np.nan])


def trips(world: World) -> st.SearchStrategy[tuple[str | None, str | None, bool | None, float | None]]:
    """Origin, destination, period and weight of records, faulty ones among them."""
    origins, destinations = ([zone[-1] for zone in zones] for zones in (world.origins, world.destinations))
    return st.tuples(
        st.sampled_from([*origins, *origins, "nowhere", None]),
        st.sampled_from([*destinations, *destinations, "nowhere", None]),
        st.sampled_from([True, True, True, False, None]),
        WEIGHTS,
    )


def is_counted(tree: FlowTree, row: Row) -> bool:
    sides = zip(row[1:3], (tree.origin, tree.destination), strict=True)
    return row[3] is True and all(code in side.zones or side.unknown is not None for code, side in sides)


@settings(max_examples=40)
@given(world=worlds(), data=st.data())
@pytest.mark.parametrize("unit", UNITS, ids=NAMES)
def test_no_neighbour_moves_a_level_by_more_than_its_sensitivity(unit, world, data):
    """One record, or all records of one user: replaced, or added and removed."""
    tree, trip = data.draw(trees(world)), trips(world)
    other_users = st.sampled_from(["u1", "u2", " ", None])
    others = [(user, *row) for user, row in data.draw(st.lists(st.tuples(other_users, trip), max_size=8))]
    if unit.kind == "trip":
        one, another = ([("p", *data.draw(trip))] for _ in range(2))
        if unit.publishes_total and is_counted(tree, one[0]) != is_counted(tree, another[0]):
            another = one  # n is published: whether a record is valid is not protected
    else:
        many = st.lists(trip, max_size=9)
        one, another = [[(user, *row) for row in data.draw(many)] for user in ("p", data.draw(st.sampled_from("pq")))]
    if unit.neighbours == "unbounded":
        another = []
    place = data.draw(st.integers(0, len(others)))
    before, after = (others[:place] + changed + others[place:] for changed in (one, another))
    changes = squared_changes(tree, before, data.draw(st.permutations(after)), unit)
    assert all(change <= limit for change, limit in zip(changes, most(unit, tree.depth), strict=True))


@pytest.mark.parametrize("order", TREES)
@pytest.mark.parametrize("unit", UNITS, ids=NAMES)
def test_a_worst_case_attains_the_sensitivity_at_every_level(unit, order):
    """More trips than are counted, all in one cell, moved to one that differs at level 1 at both ends; or gone."""
    zones = [(region, region + zone) for region in "ab" for zone in "xy"]
    tree = FlowTree(geography_of(zones), geography_of(zones), order)
    number = 1 if unit.kind == "trip" else unit.contribution_bound + 5
    others: list[Row] = [("u1", "ax", "by", True, 2.0), (None, "ax", "ax", True, 0.3)]
    heavy = unit.contribution_bound + 0.6
    one, another = ([(user, zone, zone, True, heavy)] * number for user, zone in (("p", "ax"), ("q", "by")))
    after = another if unit.neighbours == "bounded" else []
    limits = most(unit, tree.depth)
    assert squared_changes(tree, others + one, others + after, unit)[1:] == limits[1:]
    root = squared_changes(tree, others + one, others + (another if unit.publishes_total else []), unit)[0]
    assert root == limits[0]


def test_m_distinct_trips_may_share_a_cell_above_the_leaves():
    """Why distinct trips do not lower the sensitivity to 2m: four of them are one cell of the first level."""
    zones = [("a", f"a{k}") for k in range(4)] + [("b", f"b{k}") for k in range(4)]
    tree = FlowTree(geography_of(zones), geography_of(zones))
    unit = PrivacyUnit("user", column="person", max_trips=4)
    one, another = [[("p", side + str(k), side + str(k), True, None) for k in range(4)] for side in "ab"]
    changes = squared_changes(tree, one, another, unit)
    assert changes[1] == unit.sensitivity_squared == 32
    assert changes[-1] == 8
