"""Counts by segment of records in files: equal to those of the same records in memory, fingerprints included."""

import json
import pickle
import secrets
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import OdError, PrivacyUnit
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.object_store import LocalStore
from od_core.records.counting import count_records, count_records_in_memory, count_trips
from od_core.records.counts import CountFiles, TripCounts, finish_count_files, write_count_files
from od_core.records.formats import TABLE, RecordColumns
from od_core.records.load import load_records
from od_core.records.segments import Breakdown, SegmentSource
from tests.od_core.records.test_segment_counts import (
    ALL,
    HOUR,
    KEY,
    LISTS,
    MODE,
    PERIOD,
    TREES,
    TRIP,
    WEIGHTED,
    assert_same,
    of_users,
    table,
)

pytestmark = pytest.mark.usefixtures("one_scratch_database")

SOURCES = {"mode": SegmentSource("mode", "Mode of travel"), "hour": SegmentSource("hour", "user")}
"""The second column has the name that user ids have in loaded records."""


def random_rows(number: int, seed: int) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    choices = {
        "origin": ["01", "02", "10", "?", "03", None],
        "destination": ["01", "02", "10"],
        "mode": ["car", "bus", "walk", "Car", "not stated", None],
        "hour": ["00", "01", "02", None],
        "trips": [0, 1, 2, 5],
        "person": ["a", "b", "c", "d", " ", None],
        "in_period": [True, True, True, False],
    }
    numbers = {name: generator.integers(0, len(values), number) for name, values in choices.items()}
    columns = {name: [values[k] for k in numbers[name]] for name, values in choices.items()}
    return table(list(zip(*columns.values(), strict=True)))


def read(frame: pd.DataFrame, unit: PrivacyUnit, lists: tuple[Breakdown, ...], form: str, folder: Path) -> Path:
    """Load the records from a file of the given form, whose columns have other names."""
    source, target = folder / f"trips.{form}", folder / "raw_trips.parquet"
    dates = frame["in_period"].map({True: "2001-06-05", False: "2001-07-05"})
    named = frame.assign(date=dates).rename(columns={one.name: SOURCES[one.name].column for one in lists})
    named = named.drop(columns=["in_period", *(["trips"] if unit.kind != "trip" else [])])
    if form == "csv":
        named.to_csv(source, index=False)
    else:
        columns = {name: column.astype(object).where(column.notna(), None) for name, column in named.items()}
        kinds = {name: pa.int64() if name == "trips" else pa.string() for name in columns}
        pq.write_table(pa.table({name: pa.array(columns[name], kinds[name]) for name in columns}), source)
    counted = {TRIP: {"trips": "trips"}, WEIGHTED: {"weight": "trips"}}.get(unit, {"user": "person"})
    columns_of_file = RecordColumns(date="date", segments=tuple(SOURCES[one.name] for one in lists), **counted)
    form = TABLE.with_options(one_row_a_trip=columns_of_file.counts_rows)
    load_records(source, columns_of_file, PERIOD, target, record_format=form)
    return target


def in_memory(frame: pd.DataFrame, unit: PrivacyUnit) -> pd.DataFrame:
    if unit.kind != "trip":
        return frame.drop(columns="trips")
    return frame.rename(columns={"trips": "weight"}) if unit.max_weight is not None else frame


@pytest.mark.representatives("*max_weight=3*csv*", "*user_period*")
@pytest.mark.parametrize(
    ("unit", "form"),
    [
        *((unit, form) for unit in (TRIP, WEIGHTED) for form in ("csv", "parquet")),
        *((of_users(2), "csv"), (of_users(2, "user_period"), "parquet")),
    ],
    ids=repr,
)
def test_files_give_the_counts_and_the_fingerprint_of_memory(tmp_path, unit, form):
    """Two trees, one and two breakdowns, with and without a category for unlisted ones."""
    confidential = ConfidentialFolder(tmp_path / "confidential")
    for seed, lists in enumerate([(), *LISTS]):
        tree, frame = TREES[seed % 2], random_rows(200, seed)
        given_ = {"unit": unit, "key": KEY, "period": PERIOD, "fault_threshold": ALL, "breakdowns": lists}
        expected = count_trips(in_memory(frame, unit), tree, one_row_a_trip=True, **given_)
        store = LocalStore(tmp_path / f"counts_{seed}")
        files = count_records(read(frame, unit, lists, form, tmp_path), tree, store, "counts", **given_)
        assert_same(files.read_all(), expected)
        assert files.breakdowns == lists
        assert files.total == expected.total > 0
        each = (files, files.read_all(), expected)
        prints = {confidential.compute_fingerprint(counts.iterate_column_pieces()) for counts in each}
        assert len(prints) == 1


def test_records_read_without_a_breakdown_are_refused(tmp_path):
    records = read(table([("01", "02", "car", "00", 1, "a", True)]), TRIP, (MODE,), "csv", tmp_path)
    with pytest.raises(OdError, match=r"OD-TRIPS-COLUMN.*breakdown 'hour'.*read the records again"):
        count_records_in_memory(records, TREES[0], breakdowns=(MODE, HOUR))
    assert count_records_in_memory(records, TREES[0]).by_segment == {}


def test_counts_without_breakdowns_are_stored_as_before(tmp_path):
    """The list of files is a list, which earlier versions read, and files have the columns rank and trips."""
    store = LocalStore(tmp_path)
    files = write_count_files(store, "counts/", [(np.array([3, 8]), np.array([1, 2]))])
    whole = finish_count_files(store, "counts", files).read_all()
    assert whole.by_segment == {}
    listed = {"name": "counts/000000.parquet", "first": 3, "last": 8, "pairs": 2, "trips": 3}
    assert json.loads((tmp_path / "counts" / "counted.json").read_text()) == [listed]
    assert pq.read_schema(tmp_path / files[0].name).names == ["rank", "trips"]


SIZES = len(MODE.categories) * len(HOUR.categories)
some_places = st.tuples(st.integers(0, 12) | st.integers(0, 2**62 - 1), st.integers(0, SIZES - 1))
some_cells = st.dictionaries(some_places, st.integers(1, 3) | st.integers(1, 2**40), max_size=40)


@given(cells=some_cells, batch=st.integers(1, 20), ends=st.lists(st.integers(-1, 14), min_size=2, max_size=2))
@pytest.mark.parametrize("lists", [(), (MODE, HOUR)], ids=len)
@pytest.mark.parametrize("cut", [(1, 1), (3, 2), (100, 7)], ids=str)
def test_counts_do_not_depend_on_how_they_are_cut_into_files(tmp_path, monkeypatch, cut, lists, cells, batch, ends):
    """Every reader gives what the cells say, also where the codes of a leaf pair are in two row groups."""
    monkeypatch.setattr("od_core.records.counts.PAIRS_PER_FILE", cut[0])
    monkeypatch.setattr("od_core.records.counts.PAIRS_PER_ROW_GROUP", cut[1])
    cells = cells if lists else {(rank, 0): trips for (rank, _), trips in cells.items()}
    keys = sorted(cells)
    rank, code = (np.array([key[k] for key in keys], dtype=np.int64) for k in (0, 1))
    trips = np.array([cells[key] for key in keys], dtype=np.int64)
    store, folder = LocalStore(tmp_path), f"counts_{secrets.token_hex(6)}"
    rows = (rank, trips, code.astype(np.int32)) if lists else (rank, trips)
    batches = [tuple(column[k : k + batch] for column in rows) for k in range(0, len(keys), batch)]
    files = finish_count_files(store, folder, write_count_files(store, f"{folder}/", batches), lists)
    files = CountFiles(store, folder) if files.files else files
    files = pickle.loads(pickle.dumps(files))  # noqa: S301  # as a task gets it

    def expected(inside: np.ndarray) -> TripCounts:
        by_segment = {
            one.name: tuple(
                summed(rank[chosen], trips[chosen])
                for position in range(len(one.categories))
                for chosen in [inside & (digit == position)]
            )
            for one, digit in zip(lists, (code // 2, code % 2), strict=False)
        }
        whole = summed(rank[inside], trips[inside])
        return TripCounts(whole.rank, whole.before, by_segment)

    everything = expected(np.ones(len(keys), dtype=bool))
    assert_same(files.read_all(), everything)
    assert files.total == sum(trips.tolist())
    first, end = sorted(ends)
    assert_same(files.read_ranks(first, end), expected((rank >= first) & (rank < end)))
    assert not keys or columns_of(files) == columns_of(everything)


def columns_of(counts: CountFiles | TripCounts) -> list[list[int]]:
    """The columns of the counts and of their segments, put together from their pieces."""
    blocks = list(counts.iterate_column_pieces())
    number = max(map(len, blocks), default=0)
    return [[value for piece in blocks if len(piece) > k for value in piece[k].tolist()] for k in range(number)]


def summed(rank: np.ndarray, trips: np.ndarray) -> TripCounts:
    sums = pd.Series(trips, dtype="int64").groupby(rank).sum()
    return TripCounts(sums.index.to_numpy(dtype=np.int64), np.concatenate(([0], np.cumsum(sums.to_numpy()))))
