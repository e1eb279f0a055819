"""Counting: equal to a plain group-by at every level, record by record, and silent about what it sees."""

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
from od_core.privacy.neighbours import FAULT_THRESHOLD
from od_core.records import counts as trips
from od_core.records.counting import count_trips
from od_core.records.counts import TripCounts
from tests.od_core.strategies import TREES, worlds
from tests.od_core.truth import pairs_of, trips_of

AREAS = pd.DataFrame({"region": ["N", "N", "S"], "zone": ["02", "01", "10"]})
PLAIN = Geography.from_frame(AREAS, ["region", "zone"])
WITH_UNKNOWN = Geography.from_frame(AREAS, ["region", "zone"], unknown="10")
TREE = FlowTree(PLAIN, PLAIN)
UNLISTED = ["03", "N", " 01", "01 ", "1", "", " ", None, float("nan"), pd.NA, pd.NaT, "1.0"]


def records(*rows: tuple) -> pd.DataFrame:
    columns = ["origin", "destination", "trips"][: len(rows[0]) if rows else 2]
    return pd.DataFrame(rows, columns=columns).astype({"origin": object, "destination": object})


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
            patch.setattr(trips, "MAX_PAIRS_ADDED_SINGLY", few)
            for families in tree.expand(world.nodes(tree, level, some)):
                noisy = np.arange(len(families), dtype=np.int64)
                counts.add_to(noisy, tree, families)
                expected = trips_of(counts, tree, families.children) + np.arange(len(families))
                assert noisy.tolist() == expected.tolist()


any_zone = st.sampled_from(["01", "02", "10", *UNLISTED])
sides = st.sampled_from([PLAIN, WITH_UNKNOWN])


@example([pair for fault in UNLISTED for pair in ((fault, "02", 2), ("01", fault, 3))], WITH_UNKNOWN, PLAIN)
@given(st.lists(st.tuples(any_zone, any_zone, st.integers(0, 5)), max_size=12), sides, sides)
def test_each_record_is_placed_or_dropped_by_itself_alone(rows, origins, destinations):
    """A record whose zone is not listed goes to the unknown zone; without one, it is dropped."""
    tree, expected = FlowTree(origins, destinations), Counter[tuple[str | None, ...]]()
    for *zones, number in rows:
        both = zip(zones, (origins, destinations), strict=True)
        pair = [zone if isinstance(zone, str) and zone in known.zones else known.unknown for zone, known in both]
        if None not in pair:
            expected[tuple(pair)] += number
    assert pairs_of(tree, count_trips(records(*rows), tree, fault_threshold=Fraction(1))) == +expected


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


@example([(2**63 - 1, 1), (2**40, 2), (2**62, 3), (2**40, 4), (0, 0)])
@given(st.lists(st.tuples(st.integers(0, 2**62 - 1) | st.integers(0, 3), st.integers(0, 9)), max_size=30))
def test_ranks_of_any_width_are_sorted_and_those_that_are_equal_summed(rows):
    counts = TripCounts.from_ranks(*np.array(rows, dtype=np.int64).reshape(-1, 2).T.copy())
    expected = Counter[int]()
    for rank, number in rows:
        expected[rank] += number
    found = dict(zip(counts.rank.tolist(), np.diff(counts.before).tolist(), strict=True))
    assert found == {rank: number for rank, number in sorted(expected.items()) if number}


def test_a_row_with_an_unused_column_is_refused_until_its_meaning_is_said():
    """Else each row of 300 trips would be counted as one, and the flows called exact."""
    flows = pd.DataFrame({"origin": ["01", "02"], "destination": "10", "x": [300, 200]})
    with pytest.raises(OdError, match=r"OD-TRIPS-ROWS.*'x'.*one_row_a_trip=True"):
        count_trips(flows, TREE)
    assert count_trips(flows, TREE, one_row_a_trip=True).total == 2
    of_users = PrivacyUnit("user", column="rider", max_trips=3)
    with pytest.raises(OdError, match=r"OD-TRIPS-ROWS.*; else expand the records to one row a trip"):
        count_trips(flows.assign(rider=[1, 2]), TREE, unit=of_users, key=bytes(32))
    of_weights = PrivacyUnit("trip", max_weight=9)
    assert count_trips(flows.rename(columns={"x": "weight"}), TREE, unit=of_weights).total == 18
    assert count_trips(flows.rename(columns={"x": "trips"}), TREE).total == 500
