"""Units of privacy: the sensitivities of the published table, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from od_core import OdError, PrivacyUnit
from od_core.flow_tree import FlowTree, Pairs
from od_core.trips import count_trips
from tests.od_core.strategies import TREES, frame_of, geography_of, worlds

# unit, m, relation: squared sensitivity of a measured level, of the root (0: n is published, None is drawn).
TABLE = [
    ("trip", None, "bounded", 2, 0),
    ("trip", 1, "bounded", 2, 0),
    ("trip", None, "unbounded", 1, 1),
    ("user", 1, "bounded", 2, 1),
    ("user", 1, "unbounded", 1, 1),
    ("user", 3, "bounded", 18, 9),
    ("user", 3, "unbounded", 9, 9),
    ("user_period", 1, "bounded", 2, 1),
    ("user_period", 1, "unbounded", 1, 1),
    ("user_period", 3, "bounded", 18, 9),
    ("user_period", 3, "unbounded", 9, 9),
]


def unit_of(kind, m, relation) -> PrivacyUnit:
    return PrivacyUnit(kind, relation, column=None if kind == "trip" else "user_id", max_trips=m)


def level_counts(tree: FlowTree, trips) -> list[np.ndarray]:
    """True counts of all public nodes of levels 0 to T, from one record a trip (o, d) of zone areas."""
    frame = frame_of({})[["origin", "destination"]]
    for row, (origin, destination) in enumerate(trips):
        frame.loc[row] = [origin[-1], destination[-1]]
    counts = count_trips(frame, tree)
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


def squared_changes(tree: FlowTree, before, after) -> list[int]:
    return [
        int(((a - b) ** 2).sum()) for a, b in zip(level_counts(tree, before), level_counts(tree, after), strict=True)
    ]


@pytest.mark.parametrize(("kind", "m", "relation", "level", "root"), TABLE)
def test_sensitivities_of_the_table(kind, m, relation, level, root):
    unit = unit_of(kind, m, relation)
    assert unit.sensitivity_squared == level
    assert unit.root_sensitivity_squared == root
    assert unit.publishes_total is (kind == "trip" and relation == "bounded")
    assert unit.contribution_bound == (m or 1)


@settings(max_examples=25)
@given(world=worlds(), order=st.sampled_from(TREES), data=st.data())
@pytest.mark.parametrize(("kind", "m", "relation", "level", "root"), TABLE)
def test_no_neighbour_moves_a_level_by_more_than_its_sensitivity(kind, m, relation, level, root, world, order, data):
    """Exactly, over all public nodes of every level, the root included: substitution, addition and removal."""
    tree, _ = world.trees(order)
    trip = st.tuples(st.sampled_from(world.origins), st.sampled_from(world.destinations))
    others = data.draw(st.lists(trip, max_size=4))
    fewest = 1 if kind == "trip" else 0
    one = data.draw(st.lists(trip, min_size=fewest, max_size=m or 1))
    another = data.draw(st.lists(trip, min_size=fewest, max_size=m or 1)) if relation == "bounded" else []
    change = squared_changes(tree, others + one, others + another)
    assert change[0] <= root
    assert max(change[1:]) <= level
    assert change == squared_changes(tree, others + another, others + one)


@pytest.mark.parametrize("order", TREES)
@pytest.mark.parametrize(("kind", "m", "relation", "level", "root"), TABLE)
def test_a_worst_case_attains_the_sensitivity_at_every_level(kind, m, relation, level, root, order):
    """All of a unit's trips in one cell, moved to a cell that differs at level 1 at both ends; or one unit gone."""
    zones = [(region, region + zone) for region in "ab" for zone in "xy"]
    tree = FlowTree(geography_of(zones), geography_of(zones), order)
    one, another = [(zones[0], zones[0])] * (m or 1), [(zones[3], zones[3])] * (m or 1)
    change = squared_changes(tree, one, another if relation == "bounded" else [])
    assert change[1:] == [level] * tree.depth
    assert squared_changes(tree, one, [] if root else another)[0] == root


def test_m_distinct_trips_may_share_a_cell_above_the_leaves():
    """Why distinct trips do not lower the sensitivity to 2m: four of them are one cell of the first level."""
    zones = [("a", f"a{k}") for k in range(4)] + [("b", f"b{k}") for k in range(4)]
    tree = FlowTree(geography_of(zones), geography_of(zones))
    trips = [(zone, zone) for zone in zones]
    change = squared_changes(tree, trips[:4], trips[4:])
    assert change[1] == PrivacyUnit("user", column="id", max_trips=4).sensitivity_squared == 32
    assert change[-1] == 8


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"kind": "trp"}, "OD-UNIT-UNKNOWN"),
        ({"kind": "trip", "neighbours": "boundd"}, "OD-UNIT-UNKNOWN"),
        ({"kind": "trip", "column": "user_id"}, "OD-UNIT-OPTIONS"),
        ({"kind": "trip", "max_trips": 4}, "OD-UNIT-OPTIONS"),
        ({"kind": "user", "max_trips": 4}, "OD-UNIT-OPTIONS"),
        ({"kind": "user", "column": "id"}, "OD-UNIT-MAX-TRIPS"),
        ({"kind": "user", "column": "id", "max_trips": 0}, "OD-UNIT-MAX-TRIPS"),
        ({"kind": "user", "column": "id", "max_trips": -1}, "OD-UNIT-MAX-TRIPS"),
        ({"kind": "user_period", "column": "id", "max_trips": 1.5}, "OD-UNIT-MAX-TRIPS"),
        ({"kind": "user_period", "column": "id", "max_trips": True}, "OD-UNIT-MAX-TRIPS"),
    ],
)
def test_refuses_units_that_promise_nothing_definite(arguments, code):
    with pytest.raises(OdError) as error:
        PrivacyUnit(**arguments)
    assert error.value.code == code


def test_unknown_names_come_with_the_nearest_known():
    with pytest.raises(OdError, match="did you mean 'user_period'"):
        PrivacyUnit("user_perod", column="id", max_trips=1)
    with pytest.raises(OdError, match="did you mean 'unbounded'"):
        PrivacyUnit("trip", "unbound")
