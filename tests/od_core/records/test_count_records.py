"""Counting out of core equals counting in memory, record by record, and leaves nothing beside its result."""

import tempfile
import traceback
from fractions import Fraction
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import FlowTree, Geography, OdError
from od_core.files import duckdb_session as scratch
from od_core.ledger.object_store import LocalStore
from od_core.records import counting
from od_core.records.counting import count_records, count_records_in_memory, count_trips
from tests.od_core.strategies import TREES, level_names, zone_lists

CANARY = "QX-CANARY-7731"
JUNK = [None, "", " ", "01", "q0", "Q0 ", "all", "é", "a\x00b", CANARY]
EDGES = [0.0, 1.0, 2.0**53, 2.0**53 + 2, 2.0**63, 1e300, -0.0, -1.0, 0.5, float("nan"), float("inf"), -float("inf")]
WHOLE_EDGES = [0, 1, 2**53 - 1, 2**53, 2**53 + 1, 2**62, 2**63 - 1, -1, -(2**63)]


@st.composite
def trees(draw: st.DrawFn) -> FlowTree:
    """Two different geographies of equal depth, each with or without a zone for unknown places."""
    origins = draw(zone_lists())
    sides = []
    for zones in (origins, draw(zone_lists(depth=len(origins[0])))):
        unknown = draw(st.none() | st.sampled_from([zone[-1] for zone in zones]))
        frame = pd.DataFrame(zones, columns=level_names(zones))
        sides.append(Geography.from_frame(frame, level_names(zones), unknown=unknown))
    return FlowTree(*sides, draw(st.sampled_from(TREES)))


@st.composite
def record_tables(draw: st.DrawFn, tree: FlowTree, counts: st.SearchStrategy | None, kind: pa.DataType) -> pa.Table:
    """Records as the reader leaves them, with faults of all kinds among them."""
    ends = [st.sampled_from([*geography.zones, *JUNK]) for geography in (tree.origin, tree.destination)]
    fields = [*ends, st.sampled_from([True, True, True, False, None]), st.none() if counts is None else counts]
    rows = draw(st.lists(st.tuples(*fields), max_size=25))
    names = {"origin": pa.string(), "destination": pa.string(), "in_period": pa.bool_(), "trips": kind}
    columns = {}
    for k, (name, kind) in enumerate(names.items()):
        columns[name] = pa.array([row[k] for row in rows], kind, from_pandas=False)
    if counts is None:
        del columns["trips"]
    return pa.table(columns)


def outcome(count, *arguments) -> tuple:
    """Counts, or the error with all that it says and keeps."""
    try:
        counts = count(*arguments[:2], fault_threshold=arguments[2])
    except OdError as error:
        shown = CANARY in "".join(traceback.format_exception(error))
        return shown, error.code, error.message, error.next_step, error.confidential_detail
    assert counts.rank.dtype == counts.before.dtype == np.int64
    return counts.rank.tolist(), counts.before.tolist()


def written(folder: Path, table: pa.Table) -> Path:
    path = folder / "raw_trips.parquet"
    pq.write_table(table, path)
    return path


def in_memory(table: pa.Table) -> pd.DataFrame:
    """As pandas sees it: whole counts stay whole where none is missing."""
    frame = table.to_pandas()
    if "trips" in frame and table["trips"].type == pa.int64() and table["trips"].null_count:
        frame["trips"] = pd.array(table["trips"].to_pylist(), dtype="Int64")
    return frame


COUNTS = {
    "one row a trip": (None, pa.int64()),
    "whole": (st.integers(0, 5), pa.int64()),
    "doubles": (st.sampled_from([0.0, 1.0, 2.0, 7.0]), pa.float64()),
    "whole, at the edges": (st.sampled_from([None, *WHOLE_EDGES]) | st.integers(0, 5), pa.int64()),
    "doubles, at the edges": (st.sampled_from([None, *EDGES]) | st.integers(0, 5).map(float), pa.float64()),
}


@pytest.mark.representatives("one row a trip", "doubles, at the edges")
@pytest.mark.parametrize("kind", COUNTS)
@given(data=st.data(), threshold=st.sampled_from([Fraction(1), Fraction(1, 3), Fraction(1, 1000), Fraction(0)]))
def test_the_same_as_in_memory(in_one_database, kind, data, threshold):
    """The same counts exactly, or the same refusal with the same confidential detail."""
    tree = data.draw(trees())
    table = data.draw(record_tables(tree, *COUNTS[kind]))
    with tempfile.TemporaryDirectory() as folder, in_one_database():
        out_of_core = outcome(count_records_in_memory, written(Path(folder), table), tree, threshold)
        assert [path.name for path in Path(folder).iterdir()] == ["raw_trips.parquet"]
    assert out_of_core[0] is not True
    assert out_of_core == outcome(count_trips, in_memory(table), tree, threshold)


@pytest.mark.slow
def test_ranks_of_a_nation_do_not_overflow(tmp_path):
    """Products beyond 32 bits: the last pair of 100,000 x 100,000 zones has the last rank."""
    zones = pd.DataFrame({"region": [f"{k // 1000:03d}" for k in range(100_000)]})
    zones["zone"] = [f"{k:06d}" for k in range(100_000)]
    geography = Geography.from_frame(zones, ["region", "zone"])
    last = zones["zone"].iloc[-1]
    table = pa.table({"origin": [last], "destination": [last], "in_period": [True]})
    counts = count_records_in_memory(written(tmp_path, table), FlowTree(geography, geography))
    assert counts.rank.tolist() == [10**10 - 1]


def many_records(number: int) -> tuple[pa.Table, FlowTree]:
    """Records whose pairs are nearly all distinct, over 2,000 zones."""
    zones = pd.DataFrame({"region": [f"{k // 100:02d}" for k in range(2000)]})
    zones["zone"] = [f"{k:012d}" for k in range(2000)]
    geography = Geography.from_frame(zones, ["region", "zone"])
    generator = np.random.default_rng(3)
    codes = zones["zone"].to_numpy(object)
    origins, destinations = (codes[generator.integers(0, 2000, number)] for _ in range(2))
    columns = {"origin": origins, "destination": destinations, "in_period": np.ones(number, dtype=bool)}
    table = pa.table(columns)
    return table, FlowTree(geography, geography)


@pytest.fixture
def spilled(tmp_path, monkeypatch) -> list[Path]:
    """Files put aside for lack of memory, seen while the counts come out, before they are removed."""
    monkeypatch.setattr(scratch, "MEMORY_LIMIT", "40MB")
    seen: list[Path] = []
    take = counting.Tally.iterate_counts

    def watched(self, batches):
        def looked_at():
            for batch in batches:
                seen.extend((tmp_path / "spill").rglob("*"))
                yield batch

        return take(self, looked_at())

    monkeypatch.setattr(counting.Tally, "iterate_counts", watched)
    return seen


def test_what_does_not_fit_the_memory_is_put_aside_beside_the_records_and_removed(tmp_path, spilled):
    table, tree = many_records(1_000_000)
    records = written(tmp_path, table)
    counts = count_records_in_memory(records, tree)
    assert spilled
    assert [path.name for path in tmp_path.iterdir()] == [records.name]
    expected = count_trips(table.to_pandas(), tree)
    np.testing.assert_array_equal(counts.rank, expected.rank)
    np.testing.assert_array_equal(counts.before, expected.before)


@pytest.mark.parametrize("what", ["absent", "cut", "damaged"])
def test_records_that_cannot_be_read(tmp_path, what):
    table, tree = many_records(20_000)
    table = table.set_column(0, "origin", pa.array([f"{CANARY}{k}" for k in range(len(table))]))
    records = written(tmp_path, table)
    content = bytearray(records.read_bytes())
    if what == "absent":
        records.unlink()
    elif what == "cut":
        records.write_bytes(content[: len(content) // 2])
    else:
        content[2000:4000] = b"\xff" * 2000
        records.write_bytes(content)
    with pytest.raises(OdError, match="OD-TRIPS-NOT-COUNTED") as refused:
        count_records_in_memory(records, tree)
    assert CANARY not in "".join(traceback.format_exception(refused.value))
    assert not (tmp_path / "spill").exists()


def test_refused_records_leave_no_counts(tmp_path):
    """Those that were written before the last fault was seen are removed."""
    table, tree = many_records(20_000)
    records = written(tmp_path, table.set_column(2, "in_period", pa.array(np.arange(len(table)) % 100 > 0)))
    store = LocalStore(tmp_path)
    with pytest.raises(OdError, match="OD-TRIPS-FAULTS"):
        count_records(records, tree, store, "counts")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [records]
    counts = count_records(records, tree, store, "counts", fault_threshold=Fraction(1, 100))
    assert counts.total == 20_000 - 200


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64()])
@pytest.mark.parametrize("counts", [[2**53 - 1, 1], [2**53, 1], [2**53 - 1, 2], [2**52] * 3])
def test_trips_sum_to_no_more_than_2_to_the_53(tmp_path, kind, counts):
    """At the limit itself they are counted; above it refused, though each count is allowed."""
    zones = Geography.from_frame(pd.DataFrame({"zone": ["a", "b"]}), ["zone"])
    rows = len(counts)
    columns = {"origin": ["a"] * rows, "destination": ["b"] * (rows - 1) + ["a"], "in_period": [True] * rows}
    records = written(tmp_path, pa.table({**columns, "trips": pa.array(counts).cast(kind)}))
    if sum(counts) <= 2**53:
        assert count_records_in_memory(records, FlowTree(zones, zones)).total == sum(counts)
        return
    with pytest.raises(OdError, match=r"OD-TRIPS-COUNT.*sum to more than"):
        count_records_in_memory(records, FlowTree(zones, zones))


NFC, NFD = ([*(normalize(form, name) for name in ("Évora", "Málaga", "Åre")), "it's"] for form in ("NFC", "NFD"))
NUMBERED = ["01", "02", "x0"]
ACCENTS, ZEROS = "listed but for how accents are encoded", "lost their leading zeros"
CAUSES = [
    (NFD, [NFC[0], "x", "y"], None),
    (NFD, [*NFC[:2], "x"], ACCENTS),
    (NFC, [*NFD[:2], "x"], ACCENTS),
    (NFC, ["evora", "malaga"], None),
    (NUMBERED, ["1", "2", "x", "y"], None),
    (NUMBERED, ["1", "2", "x"], ZEROS),
]
"""Listed codes, codes of records that are not listed, and their common cause: that of most of them, or none."""


@pytest.mark.parametrize(("listed", "unlisted", "cause"), CAUSES)
def test_the_cause_of_most_unlisted_codes_is_told_without_a_code(tmp_path, listed, unlisted, cause):
    """In a file as in memory; codes that are missing say nothing."""
    zones = Geography.from_frame(pd.DataFrame({"zone": listed}), ["zone"])
    codes = [*unlisted, None, listed[0]]
    table = pa.table({"origin": codes, "destination": [listed[-1]] * len(codes), "in_period": [True] * len(codes)})
    tree = FlowTree(zones, zones)
    refused = outcome(count_records_in_memory, written(tmp_path, table), tree, Fraction(0))
    assert refused == outcome(count_trips, in_memory(table), tree, Fraction(0))
    told = refused[2].partition("; most")[2]
    assert [words for words in (ACCENTS, ZEROS) if words in told] == ([] if cause is None else [cause])
    assert "vora" not in refused[2]
