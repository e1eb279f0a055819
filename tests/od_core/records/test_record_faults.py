"""Files of records that are refused: by name and column, with no value of a record and nothing left behind."""

import datetime
import errno
import gzip
import pickle
import re
import traceback
from contextlib import suppress
from dataclasses import replace

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import od_core.files.duckdb_session as duckdb_session
from od_core import Budget, FlowTree, Geography, OdError, Trajectories, release_flows
from od_core.group_sizes.groups import GroupSizes
from od_core.privacy.unit import TRIP, PrivacyUnit
from od_core.records.counting import _replace_reading_errors, count_trips
from od_core.records.formats import FORMATS, TABLE, find_column
from od_core.records.load import RecordColumns, find_likely_count_columns, has_dates, load_records
from od_core.records.open_file import RecordFile, has_header, read_column_types
from tests.od_core.records.published import istat_line

pytestmark = pytest.mark.usefixtures("one_scratch_database")

CANARY = "QX-CANARY-7731"
ZONES = pd.DataFrame([("a", "aa"), ("b", "ba")], columns=["region", "zone"], dtype="str")
TREE = FlowTree(Geography.from_frame(ZONES, ["region", "zone"]), Geography.from_frame(ZONES, ["region", "zone"]))
NOW = datetime.datetime(2001, 6, 1, tzinfo=datetime.UTC)


def assert_refused(loaded, target, source, code, columns=None) -> str:
    """A refusal in one line that names the file; neither it nor what is left tells a value."""
    with pytest.raises(OdError) as error:
        loaded(source, columns)
    refused = error.value
    assert refused.code == code
    shown = "".join(traceback.format_exception(refused)) + repr(refused)
    assert CANARY not in shown
    assert "\n" not in str(refused)
    assert source.name in refused.message
    assert not list(target.parent.iterdir())
    return refused.message


def parquet(tmp_path, name="trips.parquet", **columns):
    path = tmp_path / name
    pq.write_table(pa.table(columns), path)
    return path


GOOD = ("origin,destination\n" + f"{CANARY},ba\n" * 50).encode()
LINE = "a line has more or fewer fields than the header"
FILES = {
    "huge_field.csv": (GOOD + f"{CANARY}{'x' * 3_000_000},ba\n".encode(), "a line is longer than 2,000,000 bytes"),
    "short_row.csv": (GOOD + f"{CANARY}\n".encode() + GOOD[19:], LINE),
    "long_row.csv": (GOOD + f"{CANARY},ba,{CANARY}\n".encode() + GOOD[19:], LINE),
    "long_rows_alone.csv": (f"origin,destination\n{CANARY},ba,{CANARY}\n".encode() * 30, ""),
    "open_quote.csv": (GOOD + f'"{CANARY},ba\n'.encode(), "a quote is not closed|a quote that is not closed"),
    "open_quote_before_others.csv": (GOOD + f'"{CANARY},ba\n'.encode() + GOOD[19:], ""),
    "not_utf8.csv": (GOOD + f"{CANARY},".encode() + b"\xe9\n", "bytes that are invalid in this encoding"),
    "empty.parquet": (b"", ""),
}
"""Files, and what is said of their fault."""


@pytest.mark.parametrize("name", FILES)
def test_the_kind_of_a_fault_is_named_and_its_line_is_confidential(tmp_path, loaded, target, name):
    content, said = FILES[name]
    (tmp_path / name).write_bytes(content)
    message = assert_refused(loaded, target, tmp_path / name, "OD-FILE-UNREADABLE")
    assert re.search(said, message)
    assert not re.search(r"[Ll]ine:? \d", message)


def test_a_damaged_page_of_a_parquet_file(tmp_path, loaded, target):
    """The header is whole, so that the fault shows only while the records stream into the target."""
    source = tmp_path / "trips.parquet"
    table = pa.table({"origin": [f"{CANARY}{k}" for k in range(9000)], "destination": ["ba"] * 9000})
    pq.write_table(table, source, compression="zstd", row_group_size=1000)
    content = bytearray(source.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 400] = b"\xff" * 400
    source.write_bytes(content)
    assert_refused(loaded, target, source, "OD-FILE-UNREADABLE")


@pytest.mark.parametrize("days", [pa.array([NOW]), pa.array([20010601]), pa.array([1.5]), pa.array([NOW.time()])])
def test_dates_that_are_no_local_dates(tmp_path, loaded, target, days):
    """A column of times with a zone is refused as a whole, as are numbers."""
    source = parquet(tmp_path, origin=[CANARY], destination=["ba"], day=days)
    message = assert_refused(loaded, target, source, "OD-TRIPS-DATE", RecordColumns(date="day"))
    assert "'day'" in message
    assert "2001" not in message


NESTED = {
    "ENUM": f"'{CANARY}'::ENUM('{CANARY}', 'ba')",
    "LIST": f"['{CANARY}'::ENUM('{CANARY}')]",
    "MAP": f"MAP {{'{CANARY}'::ENUM('{CANARY}'): 1}}",
    "STRUCT": f"{{'{CANARY}': 1}}",
    "UNION": f'union_value("{CANARY}" := 1)',
}
ROLES = {
    "OD-TRIPS-NOT-TEXT": RecordColumns(origin="n"),
    "OD-TRIPS-DATE": RecordColumns(date="n"),
    "OD-TRIPS-COUNT": RecordColumns(trips="n"),
    "OD-TRIPS-WEIGHTS": RecordColumns(weight="n"),
    "OD-TRIPS-USER-ID": RecordColumns(user="n"),
    "OD-TRIPS-CATEGORY": RecordColumns(),
}
HOLDING_TEXT = ("OD-TRIPS-NOT-TEXT", "OD-TRIPS-USER-ID", "OD-TRIPS-CATEGORY")


@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("form", ["duckdb", "parquet"])
def test_a_type_is_named_without_the_values_and_names_that_it_holds(tmp_path, loaded, target, form, kind):
    """Nor has the schema any, which init prints."""
    source = tmp_path / f"trips.{form}"
    query = f"SELECT 'aa' AS origin, 'ba' AS destination, {NESTED[kind]} AS n"
    with duckdb.connect(source if form == "duckdb" else ":memory:") as connection:
        connection.execute(f"CREATE TABLE t AS {query}")
        if form == "parquet":
            connection.execute(f"COPY t TO '{source}'")
    plain = TABLE.with_options(table="t" if form == "duckdb" else None)
    found = read_column_types(source, plain)["n"]
    assert found == kind or form == "parquet"  # which has neither enumerations nor unions
    for code, columns in ROLES.items():
        if found == "VARCHAR" or (found == "ENUM" and code in HOLDING_TEXT):
            continue
        form_of_records = replace(plain, categories=(("n", ("x",)),) if code == "OD-TRIPS-CATEGORY" else ())
        with pytest.raises(OdError, match=code) as error:
            loaded(source, columns, record_format=form_of_records)
        assert f"column 'n' holds {found}" in error.value.message
        assert CANARY not in str(error.value)


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([{CANARY: 1}] * 2, dtype=pd.ArrowDtype(pa.struct({CANARY: pa.int64()}))),
        pd.Series(pd.arrays.SparseArray([7731.5, 2.5], fill_value=7731.5)),
    ],
    ids=["struct", "sparse"],
)
def test_a_frame_names_its_types_likewise(column):
    flows = pd.DataFrame({"origin": ["aa"] * 2, "destination": "ba"})
    user, weight = PrivacyUnit("user", column="n", max_trips=3), PrivacyUnit("trip", max_weight=3)
    for unit, name, code in ((user, "n", "OD-TRIPS-USER-ID"), (weight, "weight", "OD-TRIPS-WEIGHTS")):
        if unit.max_weight is not None and pd.api.types.is_numeric_dtype(column.dtype):
            continue  # numbers are weights
        with pytest.raises(OdError, match=code) as error:
            count_trips(flows.assign(**{name: column}), TREE, unit=unit, key=bytes(32))
        assert not re.search(f"{CANARY}|7731", str(error.value))


CHUNKS = (0, 2_100, 130_000)
"""Numbers of rows before a fault: in the first rows of a stream, in its later rows, and in a later group of rows."""


def text_file(path, layout, rows, faulty):
    """A text in a published layout, with good rows, a faulty one and good ones."""
    head, row, _ = LAYOUTS[layout]
    content = head + row * rows + faulty + row * 3000
    path.write_bytes(gzip.compress(content, 1) if path.suffix == ".gz" else content)
    return path


LAYOUTS = {
    "table": (b"origin,destination,n\n", b"aa,ba,1\n", ".csv"),
    "packed": (b"origin,destination,n\n", b"aa,ba,1\n", ".csv.gz"),
    "lodes": (b"w_geocode,h_geocode,S000\n", b"aa,ba,1\n", ".csv.gz"),
    "nomis": (b"Area of residence,Area of workplace,Count\n", b"aa,ba,1\n", ".csv"),
    "istat": (b"", f"{istat_line('001001', '001002', 1)}\n".encode(), ".txt"),
}
FAULTY = {
    "a field too many": f"{CANARY},{CANARY},{CANARY},{CANARY}\n".encode(),
    "a field that looks like a comment": f"#{CANARY}\n".encode(),
    "an open quote": f'"{CANARY},ba,1\n'.encode(),
    "another encoding": f"{CANARY},\xe9,1\n".encode("latin-1"),
}
EVERY = [(layout, fault, rows) for layout in LAYOUTS for fault in FAULTY for rows in CHUNKS]
CASES = [case for case in EVERY if case[0] == "table" or case[1] == "a field too many"]


def readers(source, form, target):
    """Every way in which a file of records is read, by name."""
    columns = RecordColumns(trips="n") if form is TABLE else form.columns

    def start():
        return find_column(columns.origin, tuple(read_column_types(source, form)))

    yield "load", lambda: load_records(source, columns, "2001-06", target, record_format=form)
    yield "schema", lambda: read_column_types(source, form)
    yield "header", lambda: has_header(source, form)
    yield "dates", lambda: has_dates(source, start(), form)
    yield "meaning", lambda: find_likely_count_columns(source, [str(start())], form)
    if form is TABLE:
        groups = dict(zip(("group", "area", "size"), (*ENDS, "n"), strict=True))
        yield "counts", lambda: count_trips(source, TREE, columns={"trips": "n"})
        yield "groups", lambda: GroupSizes.from_frame(source, TREE.origin, columns=groups)
        yield "stops", lambda: Trajectories.from_zones(source, ["aa", "ba"], columns=ENDS)
        for name, table in lazy_tables(source).items():
            yield name, lambda table=table: count_trips(table, TREE, columns={"trips": "n"})


ENDS = ["origin", "destination"]


def lazy_tables(source):
    """Tables of a caller whose rows are read from the file only when they are asked for."""
    columns = {"origin": "VARCHAR", "destination": "VARCHAR", "n": "BIGINT"}
    tables = {"relation": duckdb.read_csv(str(source), columns=columns, auto_detect=False, header=True, sep=",")}
    with suppress(duckdb.Error, UnicodeError):  # a fault in the first rows is the caller's own exception
        tables["batches"] = tables["relation"].to_arrow_reader(1000)
    return tables


def quoting(error):
    """All that a log could show of an exception: its text, its cause and its context, and those of its copy."""
    seen = [error, pickle.loads(pickle.dumps(error))]  # noqa: S301  # of our own
    for one in seen:
        seen += [more for more in (one.__cause__, one.__context__) if more is not None and more not in seen]
    return "\n".join(
        "".join(traceback.format_exception(one)) + repr(one) + str(vars(one).get("message")) for one in seen
    )


@pytest.mark.representatives
@pytest.mark.parametrize(("layout", "fault", "rows"), CASES)
def test_a_fault_at_any_row_is_told_by_every_reader_and_quotes_nothing(tmp_path, target, layout, fault, rows):
    form = FORMATS["table" if layout == "packed" else layout]
    source = text_file(tmp_path / f"trips{LAYOUTS[layout][2]}", layout, rows, FAULTY[fault])
    refused = {}
    for name, read in readers(source, form, target):
        try:
            read()
        except OdError as error:
            refused[name] = error
    for name, error in refused.items():
        assert error.__cause__ is error.__context__ is None, name
        assert CANARY not in quoting(error), name
    assert refused.keys() >= {"load"} | ({"counts", "groups", "stops", "relation"} if form is TABLE else set())
    assert not list(target.parent.iterdir())


@pytest.mark.parametrize("rows", CHUNKS)
def test_a_view_that_quotes_a_record_and_a_generator_that_does(tmp_path, target, rows):
    """A view of a DuckDB file may raise any error in any row, as a generator of a caller may."""
    source = tmp_path / "trips.duckdb"
    with duckdb.connect(source) as connection:
        quoted = f"CASE WHEN range = {rows} THEN error('{CANARY}') ELSE 'aa' END"
        connection.execute(f"CREATE VIEW t AS SELECT {quoted} AS origin, 'ba' AS destination FROM range({rows + 9000})")
    for name, read in readers(source, TABLE.with_options(table="t"), target):
        if name == "load" or (name == "meaning" and rows < 100_000):
            with pytest.raises(OdError, match="OD-FILE-UNREADABLE") as refused:
                read()
            assert CANARY not in quoting(refused.value)

    def batches():
        good = pa.table({"origin": ["aa"] * (rows + 1), "destination": ["ba"] * (rows + 1)})
        yield from good.to_batches(max_chunksize=2048)
        raise ValueError(CANARY)

    schema, budget = pa.schema([(name, pa.string()) for name in ENDS]), Budget(epsilon=1, delta="1e-8")
    for read in (
        lambda table: count_trips(table, TREE),
        lambda table: release_flows(table, TREE.origin, unit=TRIP, budget=budget, one_row_a_trip=True),
        lambda table: Trajectories.from_zones(table, ["aa", "ba"], columns=ENDS),
        lambda table: Geography.from_frame(table, ENDS),
    ):
        with pytest.raises(OdError, match=r"OD-TABLE: .* cannot be read") as refused:
            read(pa.RecordBatchReader.from_batches(schema, batches()))
        assert CANARY not in quoting(refused.value)


NO_SPACE = 'IO Error: Async write failed: {"exception_message":"Could not write file: No space left on device"}'
OF_MACHINE = [
    (duckdb.OutOfMemoryException("Out of Memory Error: failed to allocate"), "OD-SYSTEM-MEMORY", "free memory"),
    (OSError("Out of Memory Error: failed to allocate"), "OD-SYSTEM-MEMORY", "free memory"),
    (MemoryError("Unable to allocate 7.45 GiB"), "OD-SYSTEM-MEMORY", "free memory"),
    (pa.ArrowMemoryError("malloc of size 7731 failed"), "OD-SYSTEM-MEMORY", "free memory"),
    (duckdb.IOException(NO_SPACE), "OD-DISK-WRITE", "free space"),
    (OSError(NO_SPACE), "OD-DISK-WRITE", "free space"),
    (OSError(errno.ENOSPC, "No space left on device", "/x"), "OD-DISK-WRITE", "free space"),
    (OSError(errno.EDQUOT, "Disk quota exceeded"), "OD-DISK-WRITE", "free space"),
    (duckdb.IOException('IO Error: Cannot open file "/x": Too many open files'), "OD-SYSTEM", "ulimit -n"),
    (PermissionError(errno.EACCES, "Permission denied", "/x"), "OD-SYSTEM", "check the owner and the rights"),
    (duckdb.IOException('IO Error: Could not read from file "/x": Input/output error'), "OD-SYSTEM", "check the disk"),
]


def not_counted(error: Exception) -> OdError:
    with pytest.raises(OdError) as refused, _replace_reading_errors():
        raise error
    return refused.value


@pytest.mark.parametrize(("error", "code", "step"), OF_MACHINE)
def test_a_fault_of_the_machine_is_not_blamed_on_the_file(tmp_path, error, code, step):
    source = tmp_path / "trips.csv"
    source.write_bytes(GOOD)
    for told in (RecordFile(source, TABLE).make_unreadable_file_error(error), not_counted(error)):
        assert told.code == code
        assert told.next_step.startswith(step) or step in told.next_step
        assert "nothing was lost, and the records are unchanged" in told.message
        assert "nothing was spent" in str(told)
        assert "correct the file" not in str(told)
        assert "/x" not in str(told)
    quoting_it = duckdb.InvalidInputException(f"Invalid Input Error: Original Line: {error}")
    assert (
        RecordFile(source, TABLE).make_unreadable_file_error(quoting_it).code == "OD-FILE-UNREADABLE"
    )  # a record may have such a text
    source.unlink()
    assert RecordFile(source, TABLE).make_unreadable_file_error(error).code == "OD-FILE-MISSING"


@pytest.mark.usefixtures("own_scratch_databases")
def test_a_file_for_which_the_memory_does_not_suffice(tmp_path, loaded, target, monkeypatch):
    monkeypatch.setattr(duckdb_session, "MEMORY_LIMIT", "1MB")
    (tmp_path / "trips.csv").write_bytes(GOOD + b"aa,ba\n" * 300_000)
    for read in (loaded, lambda source: count_trips(source, TREE)):
        with pytest.raises(OdError, match=r"OD-SYSTEM-MEMORY: trips\.csv cannot be read") as refused:
            read(tmp_path / "trips.csv")
        assert "correct" not in str(refused.value)
    assert not list(target.parent.iterdir())
