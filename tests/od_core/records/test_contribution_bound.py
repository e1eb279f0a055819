"""At most m trips of a user: the same ones whatever the order, the other users and the form of the records."""

import csv
import hashlib
import hmac
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import Budget, FlowTree, Geography, OdError, PrivacyUnit, release_flows
from od_core.ledger.confidential import ConfidentialFolder
from od_core.records.counting import count_records_in_memory, count_trips
from od_core.records.counts import TripCounts
from od_core.records.load import RecordColumns, load_records
from tests.od_core.doubles import ListedNoise
from tests.od_core.truth import pairs_of

pytestmark = pytest.mark.usefixtures("one_scratch_database")

CANARY = "QX-CANARY-7731"
ZONES = [("n", "01"), ("n", "02"), ("s", "10"), ("s", "null"), ("s", "?")]
CODES = [zone for _, zone in ZONES]
FRAME = pd.DataFrame(ZONES, columns=["region", "zone"], dtype="str")
PLAIN = Geography.from_frame(FRAME, ["region", "zone"])
WITH_UNKNOWN = Geography.from_frame(FRAME, ["region", "zone"], unknown="?")
TREES = [FlowTree(PLAIN, PLAIN), FlowTree(WITH_UNKNOWN, WITH_UNKNOWN), FlowTree(PLAIN, WITH_UNKNOWN, "origin")]
KEYS = [bytes(range(32)), hashlib.sha512(b"another key").digest()]
PERIOD = "2001-06"
ALL = Fraction(1)

Row = tuple[str | None, str | None, str | None, str | None]
"""User, origin, destination and date of a record."""


def shuffled(rows: list[Row], seed: int) -> list[Row]:
    return [rows[k] for k in np.random.default_rng(seed).permutation(len(rows))]


def unit(max_trips: int, kind: str = "user", of_pair: int | None = None) -> PrivacyUnit:
    return PrivacyUnit(kind, "bounded", column="person", max_trips=max_trips, max_trips_pair=of_pair)


def by_hand(
    rows: list[Row], tree: FlowTree, max_trips: int, key: bytes, period: str = PERIOD, of_pair: int = 99
) -> Counter:
    """Trips of each leaf pair that are counted, in plain Python."""
    trips_of_user = defaultdict(list)
    for user, origin, destination, date in rows:
        pair = []
        for code, geography in ((origin, tree.origin), (destination, tree.destination)):
            pair.append(code if code in CODES else geography.unknown)
        if None in pair or not (user or "").strip() or not (date or "").startswith(PERIOD):
            continue
        trips_of_user[user].append((origin, destination, tuple(pair)))
    counted: Counter = Counter()
    for user, trips in trips_of_user.items():
        seen: Counter = Counter()
        ordered = []
        for trip in trips:
            seen[trip[:2]] += 1
            fields = [user, period, *trip[:2], seen[trip[:2]]]
            message = ",".join("-" if field is None else str(field).encode().hex().upper() for field in fields).encode()
            ordered.append((hmac.new(key, message, hashlib.sha256).digest(), trip[2]))
        kept: Counter = Counter()
        for _, pair in sorted(ordered):
            if kept[pair] < of_pair and kept.total() < max_trips:
                kept[pair] += 1
        counted.update(kept)
    return counted


def frame_of(rows: list[Row]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["person", "origin", "destination", "date"], dtype=object)
    in_period = [str(date).startswith(PERIOD) for date in frame["date"]]
    return frame.assign(in_period=pd.Series(in_period, dtype=bool, index=frame.index))


def counted(
    form: str, rows: list[Row], tree: FlowTree, bound: PrivacyUnit, key: bytes, folder: Path, threshold: Fraction = ALL
) -> TripCounts:
    """The records as a data frame, a Parquet file or a CSV file, counted."""
    given_ = {"unit": bound, "key": key, "period": PERIOD, "fault_threshold": threshold}
    if form == "frame":
        return count_trips(frame_of(rows), tree, **given_, one_row_a_trip=True)
    source = folder / f"trips.{form}"
    if form == "parquet":
        names = ("person", "origin", "destination", "date")
        table = {name: pa.array([row[k] for row in rows], pa.string()) for k, name in enumerate(names)}
        pq.write_table(pa.table(table), source)
    else:
        with source.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("person", "origin", "destination", "date"), *rows])
    load_records(source, RecordColumns(date="date", user="person"), PERIOD, folder / "raw_trips.parquet")
    return count_records_in_memory(folder / "raw_trips.parquet", tree, **given_)


USERS = ["u1", "U1", "u1 ", "1", "null", "é", 'a"b\\', "u,1", '["u1', "a\tb"]
codes = st.sampled_from([*CODES, "03", " 01", "é", 'a"\\', None])
days = st.sampled_from(["2001-06-01", "2001-06-30", "2001-07-01", None])
rows_of_users = st.lists(st.tuples(st.sampled_from([*USERS, " ", "\u00a0", None]), codes, codes, days), max_size=25)


@pytest.mark.representatives("csv")
@pytest.mark.parametrize("form", ["frame", "parquet", "csv"])
@given(
    rows=rows_of_users,
    max_trips=st.integers(1, 4),
    key=st.sampled_from(KEYS),
    tree=st.sampled_from(TREES),
    seed=st.integers(0, 9),
    of_pair=st.sampled_from([1, 2, 99]),
)
def test_the_trips_that_are_counted_are_those_found_by_hand(
    tmp_path_factory, form, rows, max_trips, key, tree, seed, of_pair
):
    """From a frame, a Parquet and a CSV file, in any order, with faulty records among them, and with a pair cap."""
    expected = by_hand(rows, tree, max_trips, key, of_pair=of_pair)
    bound = unit(max_trips, of_pair=of_pair if of_pair <= max_trips else None)
    counts = counted(form, shuffled(rows, seed), tree, bound, key, tmp_path_factory.mktemp("records"))
    assert pairs_of(tree, counts) == expected


def test_trips_of_unlisted_zones_share_the_pair_to_which_they_are_counted():
    """Though their codes differ; and a cap of 1 counts people, whatever they do between the two zones."""
    rows: list[Row] = [("u1", f"x{k}", "02", "2001-06-05") for k in range(9)]
    rows += [("u2", "01", "10", "2001-06-05")] * 3
    given_ = {"key": KEYS[0], "period": PERIOD, "fault_threshold": ALL, "one_row_a_trip": True}
    counts = count_trips(frame_of(rows), TREES[1], unit=unit(99, of_pair=1), **given_)
    assert pairs_of(TREES[1], counts) == Counter({("?", "02"): 1, ("01", "10"): 1})


def test_trips_above_a_pair_cap_take_no_place_of_their_user():
    """All four pairs are counted under every key, though most of the trips are of one of them."""
    rows: list[Row] = [("u1", "01", "10", "2001-06-05")] * 30
    rows += [("u1", "01", zone, "2001-06-05") for zone in ("01", "02", "s")] + [("u1", "02", "02", "2001-06-05")]
    for k in range(8):
        given_ = {"key": bytes([k] * 32), "period": PERIOD, "fault_threshold": ALL, "one_row_a_trip": True}
        counts = count_trips(frame_of(rows), TREES[0], unit=unit(4, of_pair=1), **given_)
        assert set(pairs_of(TREES[0], counts).values()) == {1}
        assert counts.total == 4


def busy(number: int = 500) -> list[Row]:
    """The trips of one user, a fifth of them equal."""
    generator = np.random.default_rng(1)
    drawn = generator.integers(0, [len(CODES), len(CODES), 30], (number, 3)).tolist()
    one: list[Row] = [("busy", CODES[o], CODES[d], f"2001-06-{day + 1:02d}") for o, d, day in drawn]
    one[: number // 5] = [("busy", "01", "10", "2001-06-05")] * (number // 5)
    return one


def test_dropped_records_take_no_place_of_their_user(tmp_path):
    """Of three good trips three are counted, though forty bad ones stand before them."""
    good: list[Row] = [("u1", "01", zone, "2001-06-05") for zone in ("01", "02", "10")]
    bad: list[Row] = [("u1", f"x{k}", "02", "2001-06-05") for k in range(20)]
    bad += [("u1", "01", "02", "2001-07-05")] * 20
    for form in ("frame", "parquet", "csv"):
        counts = counted(form, bad + good, TREES[0], unit(3), KEYS[0], tmp_path)
        assert pairs_of(TREES[0], counts) == Counter({("01", zone): 1 for zone in ("01", "02", "10")})


@pytest.mark.representatives("csv")
@pytest.mark.parametrize("form", ["frame", "parquet", "csv"])
def test_a_record_without_user_id_is_a_fault_and_never_unknown(tmp_path, form):
    """Without an id it would have no bound. It counts towards the operator's threshold, before anything is cut."""
    tree = TREES[1]
    rows: list[Row] = [("u1", "01", "02", "2001-06-05")] * 999 + [(CANARY, "01", "02", "2001-06-05")]
    for missing in (None, "", " ", "\t", "\u2003"):
        rows[-1] = (missing, "01", "02", "2001-06-05")
        assert counted(form, rows, tree, unit(999), KEYS[0], tmp_path).total == 999
        one_more = [*rows[1:], rows[-1]]
        with pytest.raises(OdError, match="OD-TRIPS-FAULTS") as refused:
            counted(form, one_more, tree, unit(4), KEYS[0], tmp_path, Fraction(1, 1000))
        assert CANARY not in str(refused.value)
        assert refused.value.confidential_detail == "2 of 1000 trips"


IDS = {
    "text": (["7", "7", "12", "7"], object),
    "pandas text": (["7", "7", "12", "7"], "str"),
    "arrow text": (["7", "7", "12", "7"], "string[pyarrow]"),
    "categories": (["7", "7", "12", "7"], "category"),
    "whole": ([7, 7, 12, 7], "int64"),
    "whole, missing allowed": ([7, 7, 12, 7], "Int32"),
    "large": ([7, 7, 12, 7], "uint64"),
    "mixed": ([7, "7", 12, "7"], object),
}


@pytest.mark.parametrize("name", IDS)
def test_ids_are_text_or_whole_numbers(tmp_path, name):
    """The same user in each; a whole number is its text, in memory and in a file."""
    values, kind = IDS[name]
    frame = pd.DataFrame({"origin": ["01", "02", "01", "10"], "destination": ["10"] * 4})
    rows: list[Row] = [(str(v), o, "10", "2001-06-01") for v, o in zip(values, frame["origin"], strict=True)]
    expected = by_hand(rows, TREES[0], 1, KEYS[0])
    frame["person"] = pd.Series(values, dtype=kind)
    given_ = {"unit": unit(1), "key": KEYS[0], "period": PERIOD}
    assert pairs_of(TREES[0], count_trips(frame, TREES[0], **given_)) == expected
    if name != "mixed":
        frame.to_parquet(tmp_path / "trips.parquet")
        load_records(tmp_path / "trips.parquet", RecordColumns(user="person"), PERIOD, tmp_path / "raw.parquet")
        assert pairs_of(TREES[0], count_records_in_memory(tmp_path / "raw.parquet", TREES[0], **given_)) == expected


def test_a_missing_or_broken_text_is_a_fault_of_its_record_alone():
    person = pd.Series([None, pd.NA, "\ud800", " ", "7", np.nan], dtype=object)
    frame = pd.DataFrame({"origin": "01", "destination": "02", "person": person})
    counts = count_trips(frame, TREES[0], unit=unit(4), key=KEYS[0], fault_threshold=Fraction(5, 6))
    assert counts.total == 1


@pytest.mark.parametrize("key", [b"", b"short", bytes(31), bytes(65)])
def test_without_a_key_no_user_is_counted(key):
    frame = pd.DataFrame({"origin": ["01"], "destination": ["10"], "person": ["u"]})
    with pytest.raises(OdError, match="OD-KEY-LENGTH") as refused:
        count_trips(frame, TREES[0], unit=unit(1), key=key)
    assert hasattr(ConfidentialFolder, refused.value.next_step.removeprefix("use ConfidentialFolder.").rstrip("()"))


BUDGET = Budget(rho=1, delta="1e-8")


def test_a_release_counts_at_most_m_trips_of_a_user():
    """Measured with no noise: 4 of 500; each call without a ledger has a key of its own."""
    totals, leaves = set(), set()
    for _ in range(8):
        given_ = {"budget": BUDGET, "noise": ListedNoise([0]), "fault_threshold": 0, "one_row_a_trip": True}
        release = release_flows(frame_of(busy()), PLAIN, unit=unit(4), **given_)
        totals.add(int(release.measurements_at(0)["noisy"].iloc[0]))
        leaves.add(tuple(release.flows.itertuples(index=False, name=None)))
    assert totals == {4}
    assert len(leaves) > 1
