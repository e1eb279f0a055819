"""Counts by segment: equal to a plain group-by, for every unit, whatever the order of the records."""

import hashlib
import hmac
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import Breakdown, FlowTree, Geography, OdError, PrivacyUnit
from od_core.ledger.confidential import ConfidentialFolder
from od_core.records.counting import count_trips
from od_core.records.counts import TripCounts
from tests.od_core.truth import pairs_of

ZONES = ["01", "02", "10", "?"]
FRAME = pd.DataFrame({"region": ["n", "n", "s", "s"], "zone": ZONES}, dtype="str")
PLAIN = Geography.from_frame(FRAME, ["region", "zone"])
WITH_UNKNOWN = Geography.from_frame(FRAME, ["region", "zone"], unknown="?")
TREES = [FlowTree(PLAIN, PLAIN), FlowTree(WITH_UNKNOWN, PLAIN, "origin")]
MODE = Breakdown("mode", ("car", "bus", "walk"))
MODE_OR_ELSE = Breakdown("mode", ("car", "not stated", "bus"), "not stated")
HOUR = Breakdown("hour", ("00", "01"), "01")
LISTS = [(MODE,), (MODE_OR_ELSE,), (MODE, HOUR), (HOUR, MODE_OR_ELSE)]
KEY, PERIOD, ALL = bytes(range(32)), "2001-06", Fraction(1)
TRIP = PrivacyUnit("trip")
WEIGHTED = PrivacyUnit("trip", max_weight=3)


def of_users(max_trips: int, kind: str = "user") -> PrivacyUnit:
    return PrivacyUnit(kind, "bounded", column="person", max_trips=max_trips)


some_zones = st.sampled_from([*ZONES, "03", " 01", None])
some_modes = st.sampled_from(["car", "bus", "walk", "Car", " bus", "", None])
some_hours = st.sampled_from(["00", "01", "0", None])
some_users = st.sampled_from(["a", "b", "c", " ", None])
some_fields = (some_zones, some_zones, some_modes, some_hours, st.integers(0, 5), some_users, st.booleans())
some_rows = st.lists(st.tuples(*some_fields), max_size=25)


def table(rows: list[tuple]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["origin", "destination", "mode", "hour", "trips", "person", "in_period"])
    texts = ["origin", "destination", "mode", "hour", "person"]
    return frame.astype({**dict.fromkeys(texts, object), "trips": "int64", "in_period": bool})


def for_unit(frame: pd.DataFrame, unit: PrivacyUnit, breakdowns: tuple[Breakdown, ...], *, flows: bool = True):
    """The columns that a unit takes: a number of trips, a weight, or a user."""
    columns = ["origin", "destination", "in_period", *(one.name for one in breakdowns)]
    if unit.max_weight is not None:
        return frame[[*columns, "trips"]].rename(columns={"trips": "weight"})
    if unit.kind == "trip":
        return frame[[*columns, "trips"] if flows else columns]
    return frame[[*columns, "person"]]


def placed(frame: pd.DataFrame, tree: FlowTree, breakdowns: tuple[Breakdown, ...]) -> pd.DataFrame:
    """The records that count, with their zones and categories, by a plain rule for each."""
    kept = frame[frame["in_period"]].copy()
    for side, geography in (("origin", tree.origin), ("destination", tree.destination)):
        kept[f"{side}_zone"] = [code if code in ZONES else geography.unknown for code in kept[side]]
    for one in breakdowns:
        kept[one.name] = [value if value in one.categories else one.unknown for value in kept[one.name]]
    return kept.dropna(subset=["origin_zone", "destination_zone", *(one.name for one in breakdowns)])


def summed(kept: pd.DataFrame, trips: pd.Series) -> Counter:
    sums = trips.groupby([kept["origin_zone"], kept["destination_zone"]]).sum()
    return +Counter({pair: int(number) for pair, number in sums.items()})


def assert_same(counts: TripCounts, other: TripCounts) -> None:
    """Both arrays of the whole and of every segment are equal."""
    assert list(counts.by_segment) == list(other.by_segment)
    every = [(counts, other)]
    for name, segments in counts.by_segment.items():
        every += zip(segments, other.by_segment[name], strict=True)
    for mine, theirs in every:
        np.testing.assert_array_equal(mine.rank, theirs.rank)
        np.testing.assert_array_equal(mine.before, theirs.before)


@given(rows=some_rows, tree=st.sampled_from(TREES), lists=st.sampled_from([(), *LISTS]), data=st.data())
def test_counts_of_records_equal_a_group_by(rows, tree, lists, data):
    """Flows, one row a trip, and weights; in any order; each breakdown sums to the whole."""
    frame = table(rows)
    kept = placed(frame, tree, lists)
    given_ = {"fault_threshold": ALL, "breakdowns": lists}
    ones, cut = kept["trips"] * 0 + 1, kept["trips"].clip(upper=3)
    for unit, flows, trips in ((TRIP, True, kept["trips"]), (TRIP, False, ones), (WEIGHTED, True, cut)):
        records = for_unit(frame, unit, lists, flows=flows)
        counts = count_trips(records, tree, unit=unit, **given_)
        assert pairs_of(tree, counts) == summed(kept, trips)
        assert list(counts.by_segment) == [one.name for one in lists]
        for one in lists:
            for category, segment in zip(one.categories, counts.by_segment[one.name], strict=True):
                inside = kept[one.name] == category
                assert pairs_of(tree, segment) == summed(kept[inside], trips[inside])
        again = records.sample(frac=1, random_state=data.draw(st.integers(0, 9)))
        assert_same(count_trips(again, tree, unit=unit, **given_), counts)


def chosen_by_hand(kept: pd.DataFrame, lists: tuple[Breakdown, ...], max_trips: int) -> list[int]:
    """The records of users that count, in plain Python: equal trips are numbered by a keyed hash of their segment."""

    def hashed(*fields: object) -> bytes:
        texts = ["-" if field is None else str(field).encode().hex().upper() for field in fields]
        return hmac.new(KEY, ",".join(texts).encode(), hashlib.sha256).digest()

    of_user = defaultdict(list)
    for label, row in kept.astype(object).where(kept.notna(), None).iterrows():
        if (row["person"] or "").strip():
            code = 0
            for one in lists:
                code = code * len(one.categories) + one.categories.index(row[one.name])
            trip = (row["person"], PERIOD, row["origin"], row["destination"])
            of_user[row["person"]].append((trip, hashed(*trip, f"segment {code}"), label))
    chosen = []
    for trips in of_user.values():
        seen: Counter = Counter()
        ordered = []
        for trip, _, label in sorted(trips, key=lambda one: one[1]):
            seen[trip] += 1
            ordered.append((hashed(*trip, seen[trip]), label))
        chosen += [label for _, label in sorted(ordered)[:max_trips]]
    return chosen


@given(
    rows=some_rows, tree=st.sampled_from(TREES), lists=st.sampled_from(LISTS), most=st.integers(1, 4), data=st.data()
)
def test_counts_of_users_equal_a_plain_rule_and_those_without_segments(rows, tree, lists, most, data):
    """A faulty category is dropped before the cut; the cut of the others is the one without breakdowns."""
    frame = table(rows)
    kept = placed(frame, tree, lists)
    given_ = {"unit": of_users(most), "key": KEY, "period": PERIOD, "fault_threshold": ALL}
    records = for_unit(frame, given_["unit"], lists)
    counts = count_trips(records, tree, breakdowns=lists, **given_)
    ones = kept.loc[chosen_by_hand(kept, lists, most)]
    assert pairs_of(tree, counts) == summed(ones, ones["trips"] * 0 + 1)
    for one in lists:
        for category, segment in zip(one.categories, counts.by_segment[one.name], strict=True):
            inside = ones[ones[one.name] == category]
            assert pairs_of(tree, segment) == summed(inside, inside["trips"] * 0 + 1)
    again = records.sample(frac=1, random_state=data.draw(st.integers(0, 9)))
    assert_same(count_trips(again, tree, breakdowns=lists, **given_), counts)
    without = count_trips(for_unit(frame.loc[kept.index], given_["unit"], ()), tree, **given_)
    assert pairs_of(tree, without) == pairs_of(tree, counts)


def test_no_category_is_preferred_among_equal_trips():
    """Of 2,000 users with one trip of each mode between the same zones, one is chosen: each mode a third.

    The key is fixed, so the test cannot fail by chance; a fair choice deviates so far with probability below 1e-6.
    """
    users = [f"u{number}" for number in range(2000)]
    frame = pd.DataFrame({"person": np.repeat(users, 3), "mode": MODE.categories * 2000})
    frame = frame.assign(origin="01", destination="02")
    counts = count_trips(frame, TREES[0], unit=of_users(1), key=KEY, period=PERIOD, breakdowns=(MODE,))
    totals = [one.total for one in counts.by_segment["mode"]]
    chosen = frame.loc[chosen_by_hand(frame, (MODE,), 1), "mode"].value_counts()
    assert totals == [chosen[category] for category in MODE.categories]
    assert sum(totals) == 2000
    assert all(abs(total - 2000 / 3) < 110 for total in totals), totals


def test_an_unlisted_category_is_a_fault_unless_a_category_is_declared_for_it():
    """Of trips, not of rows; exactly at the threshold passes. With ``unknown``, it is no fault."""
    frame = pd.DataFrame({"origin": "01", "destination": "02", "trips": [999, 1], "mode": ["car", "rail"]})
    at = count_trips(frame, TREES[0], breakdowns=(MODE,))
    assert [one.total for one in at.by_segment["mode"]] == [999, 0, 0]
    for missing in ("CANARY-7731", None, "Car", " car", ""):
        above = frame.assign(trips=[998, 1], mode=["car", missing])
        with pytest.raises(OdError, match=r"OD-TRIPS-FAULTS.*listed category") as caught:
            count_trips(above, TREES[0], breakdowns=(MODE,))
        assert caught.value.confidential_detail == "1 of 999 trips"
        assert "CANARY" not in str(caught.value)
        placed_ = count_trips(above, TREES[0], breakdowns=(MODE_OR_ELSE,), fault_threshold=Fraction(0))
        assert [one.total for one in placed_.by_segment["mode"]] == [998, 1, 0]


def test_the_fingerprint_covers_segments(tmp_path: Path):
    """A trip of another mode changes it, though all totals are the same; the order of records does not."""
    folder = ConfidentialFolder(tmp_path)
    modes = ["car", "bus", "bus", "car"]
    frame = pd.DataFrame({"origin": ["01", "01", "10", "10"], "destination": "02", "mode": modes})

    def fingerprint(records: pd.DataFrame, *lists: Breakdown) -> str:
        counts = count_trips(records, TREES[0], breakdowns=lists, one_row_a_trip=True)
        return folder.compute_fingerprint(counts.iterate_column_pieces())

    once = fingerprint(frame, MODE)
    assert fingerprint(frame[::-1], MODE) == once
    others = [["bus", "car", "car", "bus"], ["car", "car", "bus", "bus"], ["car", "bus", "walk", "car"]]
    made = {fingerprint(frame.assign(mode=mode), MODE) for mode in others}
    assert fingerprint(frame.assign(mode=others[0]), MODE) == once  # both pairs have one trip of each mode
    assert len(made | {once, fingerprint(frame)}) == 4
