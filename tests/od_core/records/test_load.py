"""Records that come through: the same codes, dates and counts as pandas sees, each marked for its period."""

import datetime
import stat
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from od_core import FlowTree, Geography, OdError
from od_core.records.counting import count_records_in_memory
from od_core.records.formats import TABLE
from od_core.records.load import RecordColumns

pytestmark = pytest.mark.usefixtures("one_scratch_database")

ZONES = pd.DataFrame([("a", "aa"), ("a", "ab"), ("b", "ba")], columns=["region", "zone"], dtype="str")
TREE = FlowTree(Geography.from_frame(ZONES, ["region", "zone"]), Geography.from_frame(ZONES, ["region", "zone"]))
DATED = RecordColumns(date="day")


def rows_of(frame: pd.DataFrame, *names: str) -> list[tuple]:
    return [tuple(None if pd.isna(value) else value for value in row) for row in frame[list(names)].to_numpy(object)]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_a_parquet_file_comes_through(tmp_path, loaded, target, kind):
    """Every text type; other columns and other names; counted as pandas counts."""
    generator = np.random.default_rng(8)
    codes = np.array(["aa", "ab", "ba", "zz", " aa", "AA", "", None], dtype=object)
    frame = pd.DataFrame({"from": generator.choice(codes, 5000), "to": generator.choice(codes, 5000)})
    ends = {name: pa.array(frame[name]).cast(kind) for name in ("from", "to")}
    table = pa.table({"x": range(5000), **ends})
    pq.write_table(table, tmp_path / "trips.parquet", row_group_size=700)
    columns, form = RecordColumns(origin="from", destination="to"), TABLE.with_options(one_row_a_trip=True)
    read = loaded(tmp_path / "trips.parquet", columns, record_format=form)
    assert list(read.columns) == ["date", "origin", "destination", "in_period"]
    assert rows_of(read, "origin", "destination") == rows_of(frame, "from", "to")
    assert read["in_period"].all()
    assert read["date"].isna().all()

    listed = frame[frame["from"].isin(ZONES["zone"]) & frame["to"].isin(ZONES["zone"])]
    trips = count_records_in_memory(target, TREE, fault_threshold=1)
    assert sorted(np.diff(trips.before)) == sorted(listed.groupby(["from", "to"]).size())


TEXT_DATES = {
    "2001-06-01": True,
    "2001-06-30 23:59:59.999999": True,
    "2001-06-30T00:00": True,
    "2001-05-31": False,
    "2001-07-01 00:00:00": False,
    "2002-06-15": False,
    "2001-06-01 10:00:00+02": None,
    "2001-06-01 10:00:00Z": None,
    "2001-06-01T10:00:00-05:00": None,
    "2001-06-01 10:00:00 UTC": None,
    "2001-06-31": None,
    "2001-06-01 25:00:00": None,
    "12001-06-01": None,
    "2001-06": None,
    "01/06/2001": None,
    "2001-6-1": None,
    " 2001-06-01": None,
    "QX-CANARY": None,
    "": None,
}
"""Text: is it in June, or no local date at all."""


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_text_dates_are_local_or_faults(tmp_path, loaded, written, target, form):
    """A time with a zone is a fault of its record alone: two zones in a column would mix two clocks."""
    texts = list(TEXT_DATES)
    if form == "csv":
        source = written([("day", "origin", "destination"), *((text, "aa", "ba") for text in texts)])
    else:
        source = tmp_path / "trips.parquet"
        table = {"day": texts, "origin": ["aa"] * len(texts), "destination": ["ba"] * len(texts)}
        pq.write_table(pa.table(table), source)
    read = loaded(source, DATED)
    assert dict(zip(texts, read["in_period"], strict=True)) == {text: june is True for text, june in TEXT_DATES.items()}
    no_dates = {text: june is None for text, june in TEXT_DATES.items()}
    assert dict(zip(texts, read["date"].isna(), strict=True)) == no_dates
    assert count_records_in_memory(target, TREE, fault_threshold=1).total == 3
    with pytest.raises(OdError, match="OD-TRIPS-FAULTS"):
        count_records_in_memory(target, TREE)


DAY = datetime.date(2001, 6, 1)
NOON = datetime.datetime(2001, 6, 30, 12)
FAR = {"date": 2**31 - 2, "s": 2**42, "ms": 2**52, "us": 2**62, "ns": 2**63 - 2}
TIME_TYPES = {"date": pa.date32(), **{unit: pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")}}


@pytest.mark.parametrize("name", TIME_TYPES)
@pytest.mark.parametrize("far", [False, True])
def test_dates_and_times_are_marked_for_their_period(tmp_path, loaded, target, name, far):
    """In, before, after, missing; a date beyond all calendars is a fault of its record, not of the file."""
    kind = TIME_TYPES[name]
    june = DAY if name == "date" else NOON
    days = pa.array([june, june.replace(month=5), june.replace(month=7, day=1), None, june.replace(year=2002)], kind)
    if far:
        width = pa.int32() if name == "date" else pa.int64()
        days = pa.concat_arrays([days, pa.array([FAR[name], -FAR[name]], width).cast(kind)])
    source = tmp_path / "trips.parquet"
    pq.write_table(pa.table({"day": days, "origin": ["aa"] * len(days), "destination": ["ab"] * len(days)}), source)
    read = loaded_table(loaded, source, target)
    assert read["in_period"].to_pylist() == [True] + [False] * (len(days) - 1)
    assert count_records_in_memory(target, TREE, fault_threshold=1).total == 1
    loaded_table(loaded, source, target, "2002")
    assert count_records_in_memory(target, TREE, fault_threshold=1).total == 1


def loaded_table(loaded, source, target, period: str = "2001-06") -> pa.Table:
    """Read by Arrow, which holds dates that pandas does not."""
    loaded(source, DATED, period)
    return pq.read_table(target)


def test_the_target_is_for_its_owner_and_nothing_is_left_beside_it(loaded, written, target):
    """Also when a file is read anew over an old one, and whatever the umask."""
    for n in (3, 5):
        loaded(written([("origin", "destination"), *[("aa", "ba")] * n]))
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
        assert [path.name for path in target.parent.iterdir()] == [target.name]
        assert count_records_in_memory(target, TREE).total == n


@pytest.mark.usefixtures("own_scratch_databases")
def test_records_that_do_not_fit_the_memory_stay_in_the_confidential_folder(loaded, written, target, monkeypatch):
    """And not for longer than they are needed; DuckDB's own choice is the working folder, open to all."""
    folders, connect = [], duckdb.connect

    def watched(*arguments, **options):
        connection = connect(*arguments, **options)
        folders.append(Path(connection.execute("SELECT current_setting('temp_directory')").fetchall()[0][0]))
        if target.parent in folders[-1].parents:
            folders[-1].mkdir()
            (folders[-1] / "put_aside.tmp").write_text("QX-CANARY")
        return connection

    monkeypatch.setattr(duckdb, "connect", watched)
    loaded(written([("origin", "destination"), ("aa", "ba")]))
    count_records_in_memory(target, TREE)
    assert len(folders) >= 2
    assert all(target.parent in folder.parents for folder in folders)
    assert list(target.parent.iterdir()) == [target]
