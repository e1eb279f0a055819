"""Sensitivity: between neighbouring records no level changes by more than its noise was made for (spec 6).

The neighbours are sets of raw records, with faults among them and more trips of a user than are counted; what is
compared is what is measured or published: all public nodes of every level, the root among them, in exact integers. A
record is replaced by any other of the same period, as the promise says it, whether that one is counted or not; the
relation in the code has to agree that these are neighbours.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import Geography, PrivacyUnit
from od_core.geography.flow_tree import FlowTree, Pairs
from od_core.privacy.neighbours import Acceptance, Neighbours, Standing
from od_core.records.counting import count_trips
from od_core.records.counts import TripCounts
from tests.od_core.mutants import forget_that_a_record_may_leave
from tests.od_core.strategies import TREES, World, geography_of, level_names, worlds

UNITS = [
    PrivacyUnit(kind, relation, column=None if kind == "trip" else "person", max_trips=m)
    for kind, most in (("trip", [None]), ("user", [1, 3]), ("user_period", [2]))
    for relation in ("bounded", "unbounded")
    for m in most
]
UNITS += [PrivacyUnit("trip", relation, max_weight=4) for relation in ("bounded", "unbounded")]
CAPPED = [replace(u, max_trips_pair=c) for u in UNITS if u.kind != "trip" for c in range(1, u.max_trips)]
KIND_OF = [(unit, f"{unit.kind} {unit.neighbours}") for unit in UNITS + CAPPED]
OF_ONE_KIND = {kind: [unit for unit, own in KIND_OF if own == kind] for _, kind in KIND_OF[: len(UNITS)]}
NAMES = [f"{u.kind} {u.neighbours} m={u.contribution_bound}{' weighted' if u.max_weight else ''}" for u in UNITS]
KEY = bytes(range(32))

Row = tuple[str | None, str | None, str | None, bool | None, float | None]
"""User, origin, destination, whether the record is of the period, and its weight."""


def level_counts(tree: FlowTree, rows: list[Row], unit: PrivacyUnit) -> list[np.ndarray]:
    """True counts of all public nodes of levels 0 to T."""
    frame = pd.DataFrame(rows, columns=["person", "origin", "destination", "in_period", "weight"], dtype=object)
    if unit.max_weight is None:
        frame = frame.drop(columns="weight")
    given = {"unit": unit, "key": KEY, "period": "2001-06", "fault_threshold": 1, "one_row_a_trip": True}
    return node_counts(tree, count_trips(frame, tree, **given))


def node_counts(tree: FlowTree, counts: TripCounts) -> list[np.ndarray]:
    """True counts of all public nodes of levels 0 to T, shape (nodes,) each."""
    root = np.zeros(1, dtype=np.int32)
    nodes = Pairs(0, root, root)
    levels = [np.array([counts.total])]
    while nodes.level < tree.depth:
        [families] = tree.expand(nodes)
        levels.append(np.zeros(len(families), dtype=np.int64))
        counts.add_to(levels[-1], tree, families)
        nodes = families.children
        assert len(nodes) == tree.cells(nodes.level)
    return levels


def squared_changes(tree: FlowTree, before: list[Row], after: list[Row], unit: PrivacyUnit) -> list[int]:
    pairs = zip(level_counts(tree, before, unit), level_counts(tree, after, unit), strict=True)
    return [int(((a - b) ** 2).sum()) for a, b in pairs]


def most(neighbours: Neighbours, depth: int) -> list[int]:
    """Squared sensitivity of levels 0 to T, as the noise is made for it; 0 of a root that is published exactly."""
    return [neighbours.sensitivity_squared(level) for level in range(depth + 1)]


def relation(tree: FlowTree, unit: PrivacyUnit, threshold: int) -> Neighbours:
    has_unknown = tree.origin.unknown is not None and tree.destination.unknown is not None
    nodes = tuple(map(tree.count_nodes_by_size, range(tree.depth + 1)))
    return Neighbours(unit, Acceptance(Fraction(threshold)), has_unknown, nodes=nodes)


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
    ends = (st.sampled_from([*zones, *zones, "nowhere", None]) for zones in (origins, destinations))
    return st.tuples(*ends, st.sampled_from([True, True, True, False, None]), WEIGHTS)


def standing(tree: FlowTree, row: Row, unit: PrivacyUnit) -> Standing:
    """How a release treats a record, by the words of docs/explanation/privacy.md."""
    user, origin, destination, in_period, weight = row
    sides = ((origin, tree.origin), (destination, tree.destination))
    is_weight = unit.max_weight is None or (weight is not None and 0 <= weight < np.inf)
    is_whole = (unit.kind == "trip" or bool(user and user.strip())) and is_weight
    if in_period is not True:
        return Standing.OTHER_PERIOD
    has_areas = all(code in side.zones or side.unknown is not None for code, side in sides)
    return Standing.COUNTED if is_whole and has_areas else Standing.FAULTY


def is_faultless(tree: FlowTree, row: Row, unit: PrivacyUnit) -> bool:
    """Whether the record is counted, and in areas that are listed."""
    listed = row[1] in tree.origin.zones and row[2] in tree.destination.zones
    return listed and standing(tree, row, unit) is Standing.COUNTED


@pytest.mark.representatives("trip unbounded", "user bounded", "user_period unbounded")
@given(world=worlds(), data=st.data())
@pytest.mark.parametrize("units", OF_ONE_KIND.values(), ids=OF_ONE_KIND)
def test_no_neighbour_moves_a_level_by_more_than_its_sensitivity(units, world, data):
    """One record, or all records of one user: replaced by any of the same period, or added and removed.

    Under a fault threshold of 0 both inputs hold records without a fault alone, since any other is refused.
    """
    tree, threshold, unit = data.draw(trees(world)), data.draw(st.sampled_from([0, 1])), units[0]
    same_period = unit.neighbours == "bounded" and unit.kind != "user"

    def of(user: str | None, *, changes: bool = False) -> st.SearchStrategy[Row]:
        rows = trips(world).map(lambda row: (user, *row))
        if changes and same_period:
            rows = rows.map(lambda row: (*row[:3], True, row[4]))
        return rows.filter(lambda row: threshold > 0 or all(is_faultless(tree, row, unit) for unit in units))

    other_users = ["u1", "u2", " ", None] if threshold else ["u1", "u2"]
    others = data.draw(st.lists(st.sampled_from(other_users).flatmap(of), max_size=8))
    if unit.kind == "trip":
        one, another = ([data.draw(of("p", changes=True))] for _ in range(2))
    else:
        users = ("p", data.draw(st.sampled_from("pq")))
        one, another = (data.draw(st.lists(of(user, changes=True), max_size=9)) for user in users)
    if unit.neighbours == "unbounded":
        another = []
    place = data.draw(st.integers(0, len(others)))
    before, after = (others[:place] + changed + others[place:] for changed in (one, another))
    after = data.draw(st.permutations(after))
    for unit in units:
        neighbours = relation(tree, unit, threshold)
        assert all(neighbours.can_have_standing(standing(tree, row, unit)) for row in one + another)
        changes = squared_changes(tree, before, after, unit)
        assert all(change <= limit for change, limit in zip(changes, most(neighbours, tree.depth), strict=True)), unit


def a_record_leaves(unit: PrivacyUnit) -> tuple[list[int], Neighbours]:
    """Squared changes of all levels where a record gets a zone that is not listed, and the relation."""
    tree = FlowTree(*[geography_of([(region, region + zone) for region in "ab" for zone in "xy"])] * 2)
    one, another = ([("p", "ax", zone, True, 1.0)] for zone in ("by", "nowhere"))
    neighbours = relation(tree, unit, 1)
    assert all(neighbours.can_have_standing(standing(tree, row, unit)) for row in one + another)
    return squared_changes(tree, one, another, unit), neighbours


def test_a_record_that_leaves_moves_every_level_by_one():
    """Under bounded neighbours, too: so n is measured, at a sensitivity of 1, and no level needs more noise."""
    changes, neighbours = a_record_leaves(PrivacyUnit("trip"))
    assert changes == [1] * 5
    assert most(neighbours, 4) == [1, 2, 2, 2, 2]


def test_a_relation_that_forgets_that_a_record_may_leave_is_found(monkeypatch):
    forget_that_a_record_may_leave(monkeypatch)
    with pytest.raises(AssertionError):
        a_record_leaves(PrivacyUnit("trip"))


def test_n_is_an_invariant_where_no_record_can_leave():
    """No categories; an unknown area on both sides, or a threshold of 0; and one record that counts 1 is replaced."""
    trip, one = PrivacyUnit("trip"), Fraction(1, 1000)
    invariant = [Neighbours(trip, Acceptance(one), has_unknown_areas=True)]
    invariant.append(Neighbours(trip, Acceptance(Fraction(0)), has_unknown_areas=False))
    noisy = [
        Neighbours(trip, Acceptance(one), has_unknown_areas=False),
        Neighbours(trip, Acceptance(one, has_categories=True), has_unknown_areas=True),
        Neighbours(trip, Acceptance(Fraction(0), has_categories=True), has_unknown_areas=True),
        *(Neighbours(unit, Acceptance(Fraction(0)), has_unknown_areas=True) for unit in UNITS if unit != trip),
    ]
    assert [each.have_equal_totals for each in invariant + noisy] == [True] * 2 + [False] * len(noisy)


@pytest.mark.parametrize(("unit", "order"), [*zip(UNITS, TREES * len(UNITS), strict=False)], ids=NAMES)
def test_a_worst_case_attains_the_sensitivity_at_every_level(unit, order):
    """More trips than are counted, all in one cell, moved to one that differs at level 1 at both ends; or gone."""
    zones = [(region, region + zone) for region in "ab" for zone in "xy"]
    tree = FlowTree(geography_of(zones), geography_of(zones), order)
    number = 1 if unit.kind == "trip" else unit.contribution_bound + 5
    others: list[Row] = [("u1", "ax", "by", True, 2.0), (None, "ax", "ax", True, 0.3)]
    heavy = unit.contribution_bound + 0.6
    one, another = ([(user, zone, zone, True, heavy)] * number for user, zone in (("p", "ax"), ("q", "by")))
    after = another if unit.neighbours == "bounded" else []
    limits = most(relation(tree, unit, 1), tree.depth)
    gone: list[Row] = [("q", "nowhere", "by", True, None)] if unit.neighbours == "bounded" else []
    before, moved, left = (level_counts(tree, others + rows, unit) for rows in (one, after, gone))
    assert [int(((a - b) ** 2).sum()) for a, b in zip(before, moved, strict=True)][1:] == limits[1:]
    assert int((before[0] - left[0])[0]) ** 2 == limits[0]
