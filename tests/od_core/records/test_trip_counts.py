"""Counting: equal to a plain group-by at every level, record by record, and silent about what it sees."""

from __future__ import annotations

import pickle
from collections import Counter
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from od_core import FlowTree, Geography, OdError, PrivacyUnit
from od_core.geography import flow_tree
from od_core.geography.flow_tree import Pairs
from od_core.privacy.neighbours import FAULT_THRESHOLD
from od_core.records import counts as trips
from od_core.records.counting import count_trips
from od_core.records.counts import TripCounts
from tests.od_core.strategies import TREES, worlds
from tests.od_core.truth import trips_of

AREAS = pd.DataFrame({"region": ["N", "N", "S"], "zone": ["02", "01", "10"]})
PLAIN = Geography.from_frame(AREAS, ["region", "zone"])
WITH_UNKNOWN = Geography.from_frame(AREAS, ["region", "zone"], unknown="10")
TREE = FlowTree(PLAIN, PLAIN)
UNLISTED = ["03", "N", " 01", "01 ", "1", "", " ", None, float("nan"), pd.NA, pd.NaT, "1.0"]


def pairs_of(tree: FlowTree, counts: TripCounts) -> dict[tuple[str, str], int]:
    """Trips of every pair of zones that has any, by a node for each pair."""
    pairs = [(o, d) for o in range(len(tree.origin.zones)) for d in range(len(tree.destination.zones))]
    origin, destination = np.array(pairs, dtype=np.int32).T
    trips = trips_of(counts, tree, Pairs(tree.depth, origin, destination)).tolist()
    return {(tree.origin.zones[o], tree.destination.zones[d]): n for (o, d), n in zip(pairs, trips, strict=True) if n}


def records(*rows: tuple) -> pd.DataFrame:
    columns = ["origin", "destination", "trips"][: len(rows[0]) if rows else 2]
    return pd.DataFrame(rows, columns=columns).astype({"origin": object, "destination": object})


@given(world=worlds(), order=st.sampled_from(TREES), data=st.data())
def test_counts_equal_a_group_by_at_every_level(world, order, data):
    """All public nodes of the tree; flows with rows split in two, and one row a trip, in any order."""
    tree, reference = world.trees(order)
    flows = world.frame
    first = flows["trips"].map(lambda trips: data.draw(st.integers(0, trips))).astype("int64")
    split = pd.concat([flows.assign(trips=first), flows.assign(trips=flows["trips"] - first)])
    split = split.sample(frac=1, random_state=data.draw(st.integers(0, 9)))
    one_a_row = flows.loc[flows.index.repeat(flows["trips"]), ["origin", "destination"]].sample(frac=1, random_state=1)

    path = {zone[-1]: zone for zone in world.origins}, {zone[-1]: zone for zone in world.destinations}
    for frame in (split, one_a_row):
        counts = count_trips(frame, tree)
        assert counts.total == flows["trips"].sum()
        for level, public in enumerate(reference.levels()):
            o_level, d_level = tree.level_pair(level)
            grouped = flows["trips"].groupby(
                [
                    flows["origin"].map(lambda zone, at=o_level: path[0][zone][:at]),
                    flows["destination"].map(lambda zone, at=d_level: path[1][zone][:at]),
                ]
            )
            expected = grouped.sum().to_dict() if len(flows) else {}
            nodes = world.nodes(tree, level, public)
            assert trips_of(counts, tree, nodes).tolist() == [expected.get(n, 0) for n in public]


@given(
    world=worlds(),
    order=st.sampled_from(TREES),
    data=st.data(),
    size=st.integers(1, 9),
    few=st.sampled_from([0, 1, 16]),
)
def test_children_of_any_nodes_get_their_trips_added(world, order, data, size, few):
    """Some nodes of a level, in pieces of any size, whether pairs are placed one by one or runs are searched."""
    tree, reference = world.trees(order)
    counts = count_trips(world.frame, tree)
    for level, public in enumerate(reference.levels()[:-1]):
        some = [node for node in public if data.draw(st.booleans())] if len(public) < 30 else public[::2]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(flow_tree, "CHILDREN_AT_ONCE", size)
            patch.setattr(trips, "FEW_PAIRS", few)
            for families in tree.expand(world.nodes(tree, level, some)):
                noisy = np.arange(len(families), dtype=np.int64)
                counts.add_to(noisy, tree, families)
                expected = trips_of(counts, tree, families.children) + np.arange(len(families))
                assert noisy.tolist() == expected.tolist()


any_zone = st.sampled_from(["01", "02", "10", *UNLISTED])
any_records = st.lists(st.tuples(any_zone, any_zone, st.integers(0, 5)), max_size=12)


@given(one=any_records, other=any_records, unknown=st.booleans())
def test_no_record_changes_what_happens_to_another(one, other, unknown):
    """Counts are additive, faulty records included: each record is placed or dropped by itself alone."""
    geography = WITH_UNKNOWN if unknown else PLAIN
    tree = FlowTree(geography, geography)
    apart = [pairs_of(tree, count_trips(records(*rows), tree, fault_threshold=Fraction(1))) for rows in (one, other)]
    together = pairs_of(tree, count_trips(records(*one, *other), tree, fault_threshold=Fraction(1)))
    assert together == {p: apart[0].get(p, 0) + apart[1].get(p, 0) for p in {*apart[0], *apart[1]}}


@pytest.mark.parametrize("fault", UNLISTED, ids=repr)
def test_a_record_with_an_unlisted_zone_is_dropped_or_goes_to_the_unknown_zone(fault):
    frame = records(("01", "02", 5), (fault, "02", 2), ("01", fault, 3), (fault, fault, 4), ("10", "01", 1))
    dropped = {("01", "02"): 5, ("10", "01"): 1}
    assert pairs_of(TREE, count_trips(frame, TREE, fault_threshold=Fraction(1))) == dropped
    both = FlowTree(WITH_UNKNOWN, WITH_UNKNOWN)
    assert pairs_of(both, count_trips(frame, both, fault_threshold=Fraction(1))) == {
        ("01", "02"): 5,
        ("10", "02"): 2,
        ("01", "10"): 3,
        ("10", "10"): 4,
        ("10", "01"): 1,
    }
    origin_alone = FlowTree(WITH_UNKNOWN, PLAIN)
    counts = count_trips(frame, origin_alone, fault_threshold=Fraction(1))
    assert pairs_of(origin_alone, counts) == dropped | {("10", "02"): 2}


def test_records_of_another_period_are_dropped_and_count_as_faults():
    frame = records(*[("01", "02", 1)] * 3).assign(in_period=[True, False, True])
    assert pairs_of(TREE, count_trips(frame, TREE, fault_threshold=Fraction(1, 3))) == {("01", "02"): 2}
    with pytest.raises(OdError, match="OD-TRIPS-FAULTS"):
        count_trips(frame, TREE, fault_threshold=Fraction(332, 1000))


def test_the_default_threshold_is_one_trip_in_a_thousand():
    """Of trips, not of rows; exactly at the threshold passes."""
    assert Fraction(1, 1000) == FAULT_THRESHOLD
    at = records(("01", "02", 999), ("??", "02", 1))
    assert pairs_of(TREE, count_trips(at, TREE)) == {("01", "02"): 999}
    many_rows = records(("01", "02", 9990), *[("??", "02", 1)] * 10)
    assert pairs_of(TREE, count_trips(many_rows, TREE)) == {("01", "02"): 9990}
    for above in (records(("01", "02", 998), ("??", "02", 1)), records(*[("01", "02", 1)] * 998, ("01", None, 1))):
        with pytest.raises(OdError, match="OD-TRIPS-FAULTS"):
            count_trips(above, TREE)


def test_a_refusal_says_the_same_whatever_the_records_hold():
    """The numbers stand in the confidential detail alone, which no text, representation or copy carries."""
    errors = []
    for zone, number in (("CANARY-7731", 417), (None, 7731)):
        with pytest.raises(OdError) as caught:
            count_trips(records(("01", "02", 90), (zone, "10", number)), TREE)
        errors.append(caught.value)
    assert str(errors[0]) == str(errors[1])
    assert repr(errors[0]) == repr(errors[1])
    assert errors[0].confidential_detail == "417 of 507 trips"
    copy = pickle.loads(pickle.dumps(errors[0]))  # noqa: S301
    assert (str(copy), copy.confidential_detail) == (str(errors[0]), None)


BAD_COUNTS = [
    [-1, 7731],
    [-7731.0, 1.0],
    [0.5, 7731.25],
    [1.0, float("nan")],
    [7731.0, float("inf")],
    [1.0, -float("inf")],
    [2**53 + 1, 7731],
    [2.0**54, 7731.0],
    np.array([2**63, 7731], dtype=np.uint64),
    [2**53 - 1, 2],
    [2**53, 1],
    [True, False],
    pd.array([True, False], dtype="boolean"),
    ["7731", "x"],
    [7731, "1"],
    [None, 7731],
    [7731, None],
    pd.array([7731, None], dtype="Int64"),
    pd.array([7731.5, 1.0], dtype="Float64"),
    pd.to_datetime(["2001-06-01", "2001-06-02"]),
    [[7731], [1]],
]


@pytest.mark.parametrize("counts", BAD_COUNTS, ids=str)
def test_counts_that_are_no_counts_are_refused_without_a_word_about_them(counts):
    frame = records(("01", "02"), ("10", "02")).assign(trips=pd.Series(counts))
    with pytest.raises(OdError, match="OD-TRIPS-COUNT") as error:
        count_trips(frame, TREE)
    assert "7731" not in str(error.value)
    assert "\n" not in str(error.value)


@example([(2**63 - 1, 1), (2**40, 2), (2**62, 3), (2**40, 4), (0, 0)])
@given(st.lists(st.tuples(st.integers(0, 2**62 - 1) | st.integers(0, 3), st.integers(0, 9)), max_size=30))
def test_ranks_of_any_width_are_sorted_and_those_that_are_equal_summed(rows):
    counts = TripCounts.from_ranks(*np.array(rows, dtype=np.int64).reshape(-1, 2).T.copy())
    expected = Counter[int]()
    for rank, number in rows:
        expected[rank] += number
    assert dict(zip(counts.rank.tolist(), np.diff(counts.before).tolist(), strict=True)) == {
        rank: number for rank, number in sorted(expected.items()) if number
    }


@pytest.mark.parametrize(
    ("column", "is_refused"),
    [
        (pd.Series([300, 200], name="count"), True),
        (pd.Series([300, 200], name="x"), True),
        (pd.Series([0.5, None], name="x"), True),
        (pd.Series([1, None], dtype="Int64", name="x"), True),
        (pd.Series(["300", "200"], name="count"), True),
        (pd.Series(["300", "200"], name="x"), True),
        (pd.Series([True, False], name="x"), True),
        (pd.Series(pd.to_datetime(["2001-01-01"] * 2), name="day"), True),
        (pd.Series([True, False], name="in_period"), False),
        (pd.Series([300, 200], name="trips"), False),
    ],
    ids=lambda value: f"{value.name} {value.dtype}" if isinstance(value, pd.Series) else str(value),
)
def test_a_column_that_may_hold_the_trips_of_a_row_is_refused_until_its_meaning_is_said(column, is_refused):
    """Else each row of 300 trips would be counted as one, and the flows called exact."""
    flows = pd.DataFrame({"origin": ["01", "02"], "destination": "10"}).assign(**{column.name: column})
    if not is_refused:
        assert count_trips(flows, TREE, fault_threshold=Fraction(1)).total > 0
        return
    with pytest.raises(OdError, match=f"OD-TRIPS-ROWS.*{column.name!r}.*one_row_a_trip=True"):
        count_trips(flows, TREE)
    assert count_trips(flows, TREE, one_row_a_trip=True).total == 2
    of_users = PrivacyUnit("user", column="rider", max_trips=3)
    with pytest.raises(OdError, match=r"OD-TRIPS-ROWS.*; else expand the records to one row a trip"):
        count_trips(flows.assign(rider=[1, 2]), TREE, unit=of_users, key=bytes(32))
    if column.name == "day" or column.dtype == bool:  # no weights
        return
    weighted = flows.rename(columns={column.name: "weight"})
    assert count_trips(weighted, TREE, unit=PrivacyUnit("trip", max_weight=9), fault_threshold=Fraction(1)).total >= 0
