"""Tables of any columns: every stated delimiter and encoding, DuckDB files, categories, periods and time zones."""

import csv
import datetime
import gzip
import re
import traceback
from zoneinfo import ZoneInfo

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import FlowTree, Geography, OdError, PrivacyUnit, Trajectories
from od_core.records.counting import count_records_in_memory, count_trips
from od_core.records.formats import FORMATS
from od_core.records.load import RecordColumns, load_records
from od_core.records.segments import SegmentSource
from tests.od_core.records.published import istat_line

pytestmark = pytest.mark.usefixtures("one_scratch_database")

ISTAT = FORMATS["istat"]

TABLE = FORMATS["table"]
CANARY = "QX-CANARY-7731"
ZONES = pd.DataFrame([("a", "01"), ("a", "02"), ("b", "03"), ("u", "unknown")], columns=["region", "zone"], dtype="str")
GEOGRAPHY = Geography.from_frame(ZONES, ["region", "zone"], unknown="unknown")
TREE = FlowTree(GEOGRAPHY, GEOGRAPHY)
DATED = RecordColumns(date="day")


def pairs_of(frame: pd.DataFrame, *names: str) -> list[tuple]:
    return [tuple(None if pd.isna(v) else v for v in row) for row in frame[list(names)].to_numpy(object)]


SIGNS = {"utf-8": "ab0#-= ;|\t,\"'\\é字😀\n", "latin-1": "ab0 ;|\t,\"'éÿ\n", "utf-16": "ab0 ;|\t,\"'é字\n"}
DELIMITERS = [None, *";,|\t:~ §"]


@given(
    data=st.data(),
    delimiter=st.sampled_from(DELIMITERS),
    encoding=st.sampled_from(list(SIGNS)),
    packed=st.booleans(),
    lines=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_any_delimiter_and_encoding_that_are_stated(
    tmp_path, loaded, data, delimiter, encoding, packed, lines, quoting
):
    """Written by Python's csv module, by whose rules an empty field is a missing code; commas in UTF-8 need no word.

    No row is skipped or merged, whatever signs of comments, quotes or ends of lines it holds.
    """
    declared, delimiter = {} if delimiter is None else {"delimiter": delimiter}, delimiter or ","
    signs = SIGNS[encoding] + delimiter * (encoding != "latin-1" or delimiter in "\xa7;")
    fields = st.text(st.sampled_from(signs), max_size=5)
    rows = data.draw(st.lists(st.tuples(fields, fields), max_size=30))
    source = tmp_path / ("trips.csv.gz" if packed else "trips.csv")
    with (gzip.open if packed else open)(source, "wt", encoding=encoding, newline="") as file:
        table = [("destination", "x", "origin"), *((d, "é", o) for o, d in rows)]
        csv.writer(file, delimiter=delimiter, lineterminator=lines, quoting=quoting).writerows(table)
    read = loaded(source, record_format=TABLE.with_options(**declared, encoding=encoding))
    assert pairs_of(read, "origin", "destination") == [(o or None, d or None) for o, d in rows]


def test_lines_within_a_field_are_no_records_wherever_they_stand(loaded, written):
    """The file is longer than what a thread of DuckDB begins in, so that some begin within a field: it is refused."""
    within = "\n01,01,x" * 20_000 + "\n"
    source = written([("origin", "destination", "note"), *[("01", "02", ""), ("02", "01", within)] * 120])
    try:
        read = pairs_of(loaded(source), "origin", "destination")
    except OdError as error:
        assert error.code == "OD-FILE-UNREADABLE"  # noqa: PT017  # it may be read, too, if rightly
    else:
        assert read == [("01", "02"), ("02", "01")] * 120


def refused(source, form=TABLE, columns=None, **options) -> OdError:
    folder = source.parent / "refused"
    folder.mkdir(exist_ok=True)
    columns = columns or RecordColumns()
    with pytest.raises(OdError) as error:
        load_records(source, columns, "2001-06", folder / "raw.parquet", record_format=form, **options)
    shown = "".join(traceback.format_exception(error.value)) + repr(error.value)
    assert CANARY not in shown
    assert "\n" not in str(error.value)
    assert not list(folder.iterdir())
    return error.value


GOOD = f"origin,destination\n01,02\n{CANARY},é\n"
WRONG = {
    "commas": ("t.csv", GOOD.encode(), {"delimiter": ";"}, "OD-TRIPS-COLUMN"),
    "UTF-16": ("t.csv", GOOD.encode("utf-16"), {}, "OD-FILE-UNREADABLE"),
    "UTF-16, packed": ("t.csv.gz", gzip.compress(GOOD.encode("utf-16")), {}, "OD-FILE-UNREADABLE"),
    "UTF-16, big-endian": (
        "t.csv",
        b"\xfe\xff" + GOOD.encode("utf-16-be"),
        {"encoding": "utf-16"},
        "OD-FILE-UNREADABLE",
    ),
    "UTF-16 without a mark": ("t.csv", GOOD.encode("utf-16-be"), {"encoding": "utf-16"}, "OD-FILE-UNREADABLE"),
    "UTF-8 for Latin-1": ("t.csv", GOOD.encode("utf-8-sig"), {"encoding": "latin-1"}, "OD-FILE-UNREADABLE"),
    "Latin-1": ("t.csv", GOOD.encode("latin-1"), {}, "OD-FILE-UNREADABLE"),
    "Latin-1 in the header": ("t.csv", ("é," + GOOD).encode("latin-1"), {}, "OD-FILE-UNREADABLE"),
    "Windows-1252": ("t.csv", (GOOD + "€,02\n").encode("cp1252"), {"encoding": "latin-1"}, "OD-FILE-UNREADABLE"),
    "gzip by another name": ("t.csv", gzip.compress(GOOD.encode()), {}, "OD-FILE-UNREADABLE"),
    "not gzip": ("t.csv.gz", GOOD.encode(), {}, "OD-FILE-UNREADABLE"),
    "zip": ("t.csv", b"PK\3\4" + GOOD.encode(), {}, "OD-FILE-UNREADABLE"),
    "CSV for DuckDB": ("t.duckdb", GOOD.encode(), {"table": "t"}, "OD-FILE-UNREADABLE"),
    "CSV for Parquet": ("t.parquet", GOOD.encode(), {}, "OD-FILE-UNREADABLE"),
    "one column in two cases": ("t.csv", b"Origin,origin,destination\n01,02,03\n", {}, "OD-FILE-UNREADABLE"),
    "no header": ("t.csv", f"{CANARY},02\n".encode(), {}, "OD-TRIPS-COLUMN"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_is_not_what_is_stated(tmp_path, name):
    """It is refused; only the confidential detail quotes a first line."""
    file, content, options, code = WRONG[name]
    (tmp_path / file).write_bytes(content)
    error = refused(tmp_path / file, TABLE.with_options(**options))
    assert error.code == code
    assert file in str(error)
    assert name != "no header" or CANARY in error.confidential_detail


ABOVE = {
    "a title": ("Trips,June\n", {}, "but line 2 contains them", "remove what is above line 2"),
    "titles and a blank line": ("\ufeffTrips\nof June\n\n", {}, "but line 4 contains them", "what is above line 4"),
    "a title in quotes": ('"Trips, of\nJune"\n', {}, "contains them", "remove what is above"),
    "a title of another delimiter": ("Trips\n", {"delimiter": ";"}, "if ',' separates", 'and write delimiter: ","'),
    "sep= in quotes": ('"SEP=,"\n', {}, "its first line is 'SEP=,', which is for Excel alone", "above line 2"),
    "sep= of another": ("sep=,\r\n", {"delimiter": ";"}, "its first line is 'sep=,'", 'and write delimiter: ","'),
    "a blank line": ("\n", {}, "begins with an empty line, and not with its header line", "correct the file"),
}


@pytest.mark.parametrize("name", ABOVE)
def test_what_stands_above_the_header_is_named(tmp_path, name):
    above, options, cause, step = ABOVE[name]
    (tmp_path / "t.csv").write_bytes((above + GOOD).encode())
    error = refused(tmp_path / "t.csv", TABLE.with_options(**options))
    assert cause in error.message
    assert step in error.next_step
    assert "June" not in str(error)
    if not options:
        with pytest.raises(OdError) as by_library:
            count_trips(tmp_path / "t.csv", TREE)
        assert cause in by_library.value.message


@pytest.mark.usefixtures("own_scratch_databases")
def test_a_table_of_a_duckdb_file(tmp_path, loaded):
    """By its name, with its schema where it has one; a view reads what stands in the file, and nothing beside it."""
    source, other = tmp_path / "trips.duckdb", tmp_path / "other.csv"
    other.write_text(f"origin,destination\n{CANARY},01\n")
    with duckdb.connect(source) as connection:
        connection.execute("CREATE TABLE trips AS SELECT '01' AS origin, '02' AS destination, 3 AS n")
        connection.execute("CREATE SCHEMA s; CREATE TABLE s.\"a b\" AS SELECT '02' AS origin, '02' AS destination")
        connection.execute('CREATE VIEW all_of_them AS SELECT origin, destination FROM trips UNION ALL FROM s."a b"')
        connection.execute(f"CREATE VIEW outside AS SELECT * FROM read_csv('{other}')")
    before = source.read_bytes()
    flows = loaded(source, RecordColumns(trips="n"), record_format=TABLE.with_options(table="trips"))
    assert pairs_of(flows, "origin", "destination", "trips") == [("01", "02", 3)]
    for table, rows in (("s.a b", [("02", "02")]), ("all_of_them", [("01", "02"), ("02", "02")])):
        read = loaded(source, record_format=TABLE.with_options(table=table))
        assert sorted(pairs_of(read, "origin", "destination")) == rows
    assert refused(source, TABLE.with_options(table="outside")).code == "OD-FILE-UNREADABLE"
    error = refused(source, TABLE.with_options(table="trip"))
    assert error.code == "OD-TRIPS-TABLE"
    assert "'trip' (did you mean 'trips'?)" in error.message
    assert "write table:" in refused(source).next_step
    unnamed = refused(source, TABLE.with_options(table="trips"), RecordColumns(origin="from"))
    assert "it has 'origin', 'destination', 'n'" in unnamed.message
    assert source.read_bytes() == before
    there = {path.name for path in tmp_path.iterdir()}
    assert there == {"trips.duckdb", "other.csv", "confidential", "refused", "here"}


ALIKE = ["\u00c9vora", "E\u0301vora", "Evora", "evora"]
"""Texts of which each collation takes some for equal."""

RELATIONS = {
    "table": "TABLE t AS FROM texts",
    "view": "VIEW t AS FROM texts",
    "expression": "VIEW t AS SELECT kind || '' AS kind, user || '' AS user, origin || '' AS origin FROM texts",
    "union": "VIEW t AS FROM texts UNION ALL FROM texts WHERE origin = 'none'",
    "generated": "TABLE t (kind TEXT, user TEXT, code TEXT COLLATE {0}, origin AS (code || ''));"
    " INSERT INTO t FROM texts",
}


@pytest.mark.usefixtures("own_scratch_databases")
@pytest.mark.representatives("NOACCENT-table", "DE-generated")
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("collation", ["NOCASE", "NOACCENT", "NOCASE.NOACCENT", "DE"])
def test_a_collation_of_a_duckdb_column_has_no_effect(tmp_path, loaded, target, collation, relation):
    """Codes that are nowhere, selected rows, lookups and users are told apart by the bytes of their texts."""
    with duckdb.connect(tmp_path / "trips.duckdb") as connection:
        kinds = ", ".join(f"{name} TEXT COLLATE {collation}" for name in ("kind", '"user"', "origin"))
        connection.execute(f"CREATE TABLE texts ({kinds})")
        connection.executemany("INSERT INTO texts VALUES (?, ?, ?)", [[text] * 3 for text in ALIKE])
        connection.execute("CREATE " + RELATIONS[relation].format(collation))
    form = TABLE.with_options(table="t", one_row_a_trip=True)
    chosen = ALIKE[0 if collation == "DE" else 2]
    segment = SegmentSource("purpose", "kind", lookup=((chosen, "this"),))
    columns = RecordColumns(destination="origin", user="user", segments=(segment,))
    selected = form.with_options(categories=(("kind", (chosen,)),))
    read = loaded(tmp_path / "trips.duckdb", columns, record_format=selected)
    assert pairs_of(read, "user") == [(chosen,)]
    there = form.with_options(nowhere=(chosen,))
    read = loaded(tmp_path / "trips.duckdb", columns, record_format=there, geography=GEOGRAPHY)
    expected = [("unknown", "this", one) if one == chosen else (one, None, one) for one in ALIKE]
    assert pairs_of(read, "origin", "segment_purpose", "user") == expected
    options = {"unit": PrivacyUnit("user", column="user", max_trips=1), "key": bytes(32), "fault_threshold": 1}
    assert count_records_in_memory(target, TREE, **options).total == len(ALIKE)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_only_rows_of_the_categories_are_records(tmp_path, loaded, target, form):
    """Rows of others are no faults, whatever stands in them; pandas chooses the same."""
    generator = np.random.default_rng(3)
    frame = pd.DataFrame({"origin": generator.choice(["01", "02", "zz"], 400, p=[0.5, 0.4, 0.1]), "destination": "03"})
    frame["mode"] = generator.choice(["1", "2", "3", None], 400)
    frame["paid"] = generator.choice([1, 2, 3], 400)
    frame.loc[frame["origin"] == "zz", "paid"] = 3
    source = tmp_path / f"trips.{form}"
    frame.to_csv(source, index=False) if form == "csv" else frame.to_parquet(source)
    declared = TABLE.with_options(categories=(("mode", ("2", "")), ("paid", ("1", "2"))))
    read = loaded(source, record_format=declared)
    chosen = frame[(frame["mode"].isna() | (frame["mode"] == "2")) & frame["paid"].isin([1, 2])]
    assert pairs_of(read, "origin", "destination") == pairs_of(chosen, "origin", "destination")
    assert count_records_in_memory(target, TREE, fault_threshold=0).total == len(chosen)
    error = refused(source, TABLE.with_options(categories=(("mod", ("2",)),)))
    assert error.code == "OD-TRIPS-COLUMN"
    assert "'mod' (did you mean 'mode'?)" in error.message


def test_fractions_and_texts_of_another_type_are_no_categories(tmp_path):
    table = {"origin": ["01"], "destination": ["01"], "x": [1.0], "paid": [True]}
    pd.DataFrame(table).to_parquet(tmp_path / "t.parquet")
    for column, value, cause in (("x", "1", "DOUBLE, not"), ("paid", "True", "BOOLEAN, which never gives .* 'True'")):
        form = TABLE.with_options(categories=((column, (value,)),), one_row_a_trip=True)
        error = refused(tmp_path / "t.parquet", form)
        assert error.code == "OD-TRIPS-CATEGORY"
        assert re.search(f"'{column}' holds {cause}", error.message)


DAYS = ["2001-05-31", "2001-06-01", "2001-06-30 23:59:59.9999999", "2001-07-01", "", "31/06/2001", "2002-06-15"]


def test_records_of_other_periods_are_refused_or_dropped(tmp_path, loaded, target, written):
    """Dropped, they are part of nothing; a record without a date stays a fault in any case."""
    source = written([("origin", "destination", "day"), *(("01", "02", day) for day in DAYS)])
    loaded(source, DATED)
    assert pd.read_parquet(target)["in_period"].tolist() == [False, True, True, False, False, False, False]
    dropping = TABLE.with_options(outside_period="drop")
    read = loaded(source, DATED, record_format=dropping)
    assert read["in_period"].tolist() == [True, True, False, False]
    assert count_records_in_memory(target, TREE, fault_threshold=1).total == 2
    with pytest.raises(OdError, match="OD-TRIPS-FAULTS"):
        count_records_in_memory(target, TREE)
    dated = written([("origin", "destination", "day"), *[("01", "02", "2001-05-31")] * 999, ("01", "02", "2001-06-01")])
    loaded(dated, DATED, record_format=dropping)
    assert count_records_in_memory(target, TREE, fault_threshold=0).total == 1
    loaded(dated, record_format=dropping)  # a file of one period has no dates
    assert count_records_in_memory(target, TREE, fault_threshold=0).total == 1000


ZONE = "Europe/Rome"


def test_the_last_nanoseconds_of_a_day_belong_to_it(tmp_path, loaded):
    """At the ends of the period, and before 1970, where whole numbers are rounded the other way."""
    texts = {"2001-05-31": False, "2001-06-01": True, "2001-06-30": True, "1969-12-31": False}
    last = [f"{day}T23:59:59.{fraction}" for day in texts for fraction in ("9999994", "9999995", "999999999")]
    table = {"origin": ["01"] * len(last), "destination": ["02"] * len(last), "day": pa.array(np.array(last, "M8[ns]"))}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    read = loaded(tmp_path / "t.parquet", DATED)
    assert [str(time)[:10] for time in read["date"]] == [text[:10] for text in last]
    assert read["in_period"].tolist() == [texts[text[:10]] for text in last]
    in_rome = [
        (pd.Timestamp(text).tz_localize(ZONE)).value for text in last[:-3]
    ]  # DuckDB 1.5 rounds those before 1970
    table = {"origin": ["01"] * len(in_rome), "destination": ["02"] * len(in_rome)}
    pq.write_table(pa.table(table | {"day": pa.array(in_rome, pa.timestamp("ns", "UTC"))}), tmp_path / "z.parquet")
    again = loaded(tmp_path / "z.parquet", DATED, time_zone=ZONE)
    assert [str(time)[:10] for time in again["date"]] == [text[:10] for text in last[:-3]]
    assert again["in_period"].tolist() == read["in_period"].tolist()[:-3]


@given(times=st.lists(st.datetimes(datetime.datetime(1995, 1, 1), datetime.datetime(2030, 1, 1)), max_size=10))
def test_times_with_a_zone_become_local(tmp_path, loaded, times):
    """As Python's own time zones have it, in summer and winter; around the ends of the period above all."""
    midnights = [datetime.datetime(2001, 5, 31, 22), datetime.datetime(2001, 6, 30, 22)]
    around = [midnight - datetime.timedelta(minutes=minutes) for midnight in midnights for minutes in (0, 1)]
    stamps = [time.replace(tzinfo=datetime.UTC) for time in (*around, *times)]
    table = {"origin": ["01"] * len(stamps), "destination": ["02"] * len(stamps)}
    pq.write_table(pa.table(table | {"day": pa.array(stamps, pa.timestamp("us", "UTC"))}), tmp_path / "t.parquet")
    read = loaded(tmp_path / "t.parquet", DATED, time_zone=ZONE)
    local = [stamp.astimezone(ZoneInfo(ZONE)).replace(tzinfo=None) for stamp in stamps]
    assert [time.to_pydatetime() for time in read["date"]] == local
    assert read["in_period"].tolist() == [(time.year, time.month) == (2001, 6) for time in local]


@pytest.mark.parametrize("old", ["int96", "converted type"])
def test_times_whose_zone_the_file_does_not_state_need_a_declaration(tmp_path, loaded, old):
    """Physical type INT96, and the annotation of a timestamp before Parquet 2.4: both may be instants or local times.

    As instants, the times are the first hour of June and of July in Rome.
    """
    stamps = [datetime.datetime(2001, 5, 31, 22, 30), datetime.datetime(2001, 6, 30, 22, 30), None]
    table = pa.table({"origin": ["01"] * 3, "destination": ["02"] * 3, "day": pa.array(stamps, pa.timestamp("us"))})
    source = tmp_path / "t.parquet"
    pq.write_table(table, source, use_deprecated_int96_timestamps=old == "int96", store_schema=False)
    if old != "int96":
        stated = bytes.fromhex("4c8c121c2c00000000")  # the logical type of the column, in Thrift's compact protocol
        body, size = source.read_bytes()[:-8], int.from_bytes(source.read_bytes()[-8:-4], "little")
        assert body.count(stated) == 1
        source.write_bytes(body.replace(stated, b"") + (size - len(stated)).to_bytes(4, "little") + b"PAR1")
    for zone in (ZONE, None):
        error = refused(source, columns=DATED, time_zone=zone)
        assert (error.code, "'day'" in error.message) == ("OD-TRIPS-DATE", True)
        assert "timestamps: utc" in error.next_step
    for meant, inside in (("local", [False, True, False]), ("utc", [True, False, False])):
        stated = TABLE.with_options(timestamps=meant)
        assert loaded(source, DATED, time_zone=ZONE, record_format=stated)["in_period"].tolist() == inside
    assert "time_zone" in refused(source, TABLE.with_options(timestamps="utc"), DATED).next_step
    unread = RecordColumns(date=None)  # whatever else the file holds
    assert len(loaded(source, unread)) == 3
    within = pa.StructArray.from_arrays([table["day"].combine_chunks()], ["day"])
    days = table.set_column(2, "day", pa.array(["2001-06-01"] * 3)).append_column("more", within)
    pq.write_table(
        days, source, use_deprecated_int96_timestamps=True
    )  # a field of the same name, within another column
    assert loaded(source, DATED)["in_period"].tolist() == [True] * 3


def test_a_time_that_no_clock_has_is_a_fault_of_its_record(tmp_path, loaded):
    days = pa.array([2**63 - 2, -(2**63) + 5, 991_000_000_000_000, None], pa.int64()).cast(pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"origin": ["01"] * 4, "destination": ["01"] * 4, "day": days}), tmp_path / "t.parquet")
    load = loaded(tmp_path / "t.parquet", DATED, "2001", time_zone=ZONE)
    assert load["in_period"].tolist() == [False, False, True, False]


MEGABYTE = 1 << 20
WHOLE = b"origin,destination\n" + b"01,03\n" * 1000
INCOMPLETE = {
    "a copy that stopped in reserved space": WHOLE + b"\0" * (40 * MEGABYTE),
    "the last row cut, then reserved space": WHOLE + b"01,0" + b"\0" * 4096,
    "a hole in the middle": WHOLE + b"\0" * 4096 + b"\n01,03\n" * 9,
    "a hole within a row": WHOLE + b"01,0\x00\x00\n" + b"01,03\n" * 9,
    "no end of a line": WHOLE + b"01," + b"x" * (40 * MEGABYTE),
    "blanks at the end": WHOLE + b" " * (40 * MEGABYTE),
    "lines that end with CR": WHOLE.replace(b"\n", b"\r") + b" " * (40 * MEGABYTE),
}


@pytest.mark.representatives
@pytest.mark.parametrize(
    ("what", "encoding", "packed"),
    [
        *((what, "utf-8", packed) for what in INCOMPLETE for packed in (False, True)),
        *((what, encoding, False) for what in list(INCOMPLETE)[1:4] for encoding in ("latin-1", "utf-16")),
    ],
)
def test_a_text_whose_end_is_missing_is_no_shorter_text(tmp_path, loaded, target, what, encoding, packed):
    """DuckDB drops 40 MB after the last end of a line, and takes a NUL for a part of a code."""
    content = INCOMPLETE[what] if encoding != "utf-16" else INCOMPLETE[what].decode().encode("utf-16")
    source = tmp_path / ("trips.csv.gz" if packed else "trips.csv")
    source.write_bytes(gzip.compress(content, 1) if packed else content)
    with pytest.raises(OdError, match=r"OD-FILE-INCOMPLETE: trips\.csv") as refused:
        loaded(source, record_format=TABLE.with_options(encoding=encoding))
    assert "copy or download it again" in refused.value.next_step
    assert not list(target.parent.iterdir())
    if encoding == "utf-8":
        with pytest.raises(OdError, match=r"OD-FILE-INCOMPLETE: trips\.csv"):
            Trajectories.from_zones(source, ["01", "03"], columns=["origin", "destination"])


@pytest.mark.parametrize("option", [{"delimiter": ";"}, {"encoding": "latin-1"}])
def test_options_of_text_are_refused_for_parquet(tmp_path, loaded, option):
    source = tmp_path / "trips.parquet"
    pd.DataFrame({"origin": ["01"], "destination": ["03"]}).to_parquet(source)
    with pytest.raises(OdError, match=rf"{next(iter(option))} does not apply to Parquet files such as trips\.parquet"):
        loaded(source, record_format=TABLE.with_options(**option))


def test_a_whole_text_is_read_whether_its_last_line_ends_or_not(tmp_path, loaded):
    for content in (WHOLE, WHOLE[:-1], WHOLE.replace(b"\n", b"\r\n"), WHOLE.replace(b"\n", b"\r"), WHOLE[:-1] + b"\r"):
        for form in (TABLE, TABLE.with_options(encoding="utf-16")):
            (tmp_path / "t.csv").write_bytes(content if form is TABLE else content.decode().encode("utf-16"))
            if content.endswith(b"\r") and not content.startswith(b"origin,destination\r"):
                with pytest.raises(OdError, match=r"OD-FILE-UNREADABLE: .* lines end in different ways"):
                    loaded(tmp_path / "t.csv", record_format=form)
            else:
                assert len(loaded(tmp_path / "t.csv", record_format=form)) == 1000


def test_lines_without_a_header_are_read_to_their_end(tmp_path, loaded):
    line = f"{istat_line('001001', '001002', 1)}\n".encode()
    for rest in (b"\0" * (40 * MEGABYTE), b" " * (40 * MEGABYTE), b"\0" * 100 + line):
        (tmp_path / "trips.txt").write_bytes(line * 100 + rest)
        with pytest.raises(OdError, match=r"OD-FILE-INCOMPLETE: trips\.txt \(reader 'istat'\)"):
            loaded(tmp_path / "trips.txt", ISTAT.columns, record_format=ISTAT)
