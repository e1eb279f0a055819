"""What every reader does alike: counts what the file says, leaves out what is no record, refuses a faulty file.

The files are made to the layouts that are published (see ``published``); what they should count is added up in Python.
"""

import csv
import gzip
import traceback
from collections import Counter

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import FlowTree, OdError
from od_core.records.counting import count_records_in_memory
from od_core.records.formats import FORMATS, RecordColumns, find_format
from od_core.records.load import load_records
from tests.od_core.records.published import LODES_HEADER, PUBLISHED, Published, nomis_2021
from tests.od_core.truth import pairs_of

pytestmark = pytest.mark.usefixtures("one_scratch_database")

CANARY = "QX-CANARY-7731"
FLOWS = [(0, 1, 3), (0, 1, 40), (1, 1, 2), (2, 0, 1), (1, 0, 5)]
"""Numbers of zones, and trips; one pair stands twice."""


@pytest.fixture(params=PUBLISHED)
def published(request) -> Published:
    return PUBLISHED[request.param]


def columns_of(published: Published, **stated: str) -> RecordColumns:
    if published.form.name == "table":
        stated = {"trips": "n"} | stated
    return published.form.rename_columns(**stated)


def counted(target, published: Published, *, unknown: bool = False, threshold: object = 0) -> dict:
    geography = published.geography(unknown=unknown)
    tree = FlowTree(geography, geography)
    return pairs_of(tree, count_records_in_memory(target, tree, fault_threshold=threshold))


def rows(published: Published) -> list:
    return [(published.zones[o], published.zones[d], n) for o, d, n in FLOWS]


def summed(flows: list) -> dict:
    total: Counter = Counter()
    for origin, destination, n in flows:
        total[origin, destination] += n
    return dict(total)


def test_what_a_file_says_is_counted(tmp_path, loaded, target, published):
    """Every record once: no estimate, no other column of counts, no code that has lost its zeros."""
    published.write(tmp_path / published.file, rows(published))
    loaded(tmp_path / published.file, columns_of(published), record_format=published.form)
    assert counted(target, published) == summed(rows(published))


def test_no_records_are_a_valid_file(tmp_path, loaded, target, published):
    published.write(tmp_path / published.file, [])
    if published.form.name == "istat":  # a file without a line has no header either
        assert not (tmp_path / published.file).stat().st_size
    loaded(tmp_path / published.file, columns_of(published), record_format=published.form)
    assert counted(target, published) == {}


def test_codes_of_no_place_go_to_the_unknown_zone(tmp_path, loaded, target, published):
    """No faults there; faults where no zone takes them; and a zone of its own where it is listed."""
    nowhere = published.nowhere or "abroad"
    form = published.form if published.nowhere else published.form.with_options(nowhere=(nowhere,))
    published.write(tmp_path / published.file, [*rows(published), (published.zones[0], nowhere, 9)])

    def load(geography):
        loaded(tmp_path / published.file, columns_of(published), record_format=form, geography=geography)

    load(published.geography(unknown=True))
    expected = summed(rows(published))
    assert counted(target, published, unknown=True) == expected | {(published.zones[0], "unknown"): 9}
    for geography in (None, published.geography()):
        load(geography)
        assert counted(target, published, threshold=1) == expected
        with pytest.raises(OdError, match="OD-TRIPS-FAULTS"):
            counted(target, published)
    listed = pd.DataFrame([*((z, z) for z in published.zones), (nowhere, nowhere), ("u", "u")], columns=["a", "b"])
    load(type(published.geography()).from_frame(listed.astype("str"), ["a", "b"], unknown="u"))
    assert (pd.read_parquet(target)["destination"] == nowhere).sum() == (9 if form.name == "tlc" else 1)


def rows_of(read: pd.DataFrame) -> list[tuple[str, str, int]]:
    return list(read[["origin", "destination", "trips"]].itertuples(index=False, name=None))


BLOCKS = st.integers(10**13, 72 * 10**13 + 10**13 - 1).map(lambda number: f"{number:015}")


@given(
    rows=st.lists(st.tuples(BLOCKS, BLOCKS, st.lists(st.integers(0, 9999), min_size=10, max_size=10)), max_size=6),
    segment=st.sampled_from(LODES_HEADER.split(",")[2:-1]),
    is_packed=st.booleans(),
)
def test_jobs_of_lodes_that_are_chosen_are_those_of_the_csv_module(tmp_path, loaded, rows, segment, is_packed):
    """Fifteen digits from home to work, those of the first nine states with their zero; any column of jobs."""
    source, form = tmp_path / ("od.csv.gz" if is_packed else "od.csv"), FORMATS["lodes"]
    lines = [LODES_HEADER, *(",".join([w, h, *map(str, jobs), "20230321"]) for w, h, jobs in rows), ""]
    content = "\n".join(lines).encode()
    source.write_bytes(gzip.compress(content) if is_packed else content)
    stated = {} if segment == "S000" else {"trips": segment}
    read = loaded(source, form.rename_columns(**stated), "2021", record_format=form)
    assert rows_of(read) == [(row["h_geocode"], row["w_geocode"], int(row[segment])) for row in csv.DictReader(lines)]
    assert read["in_period"].all()


INDICATOR = "Place of work indicator (4 categories) code"
AREAS = st.sampled_from(["E06000001", "E06000002", "W06000024", "S12000033", "999999999"])


@given(
    rows=st.lists(st.tuples(AREAS, AREAS, st.integers(1, 4), st.integers(0, 10**6)), max_size=10),
    chosen=st.sets(st.sampled_from("1234")),
)
def test_indicators_of_nomis_that_are_chosen_are_those_of_the_csv_module(tmp_path, loaded, rows, chosen):
    """The census of 2021: all categories where none is chosen."""
    text, form = nomis_2021(rows), FORMATS["nomis"]
    (tmp_path / "ODWP01EW_LTLA.csv").write_text(text, encoding="utf-8-sig", newline="")
    form = form.with_options(categories=((INDICATOR, tuple(sorted(chosen))),)) if chosen else form
    read = loaded(tmp_path / "ODWP01EW_LTLA.csv", form.columns, "2021", record_format=form)
    assert rows_of(read) == [
        (row["Lower tier local authorities code"], row["LTLA of workplace code"], int(row["Count"]))
        for row in csv.DictReader(text.splitlines())
        if not chosen or row[INDICATOR] in chosen
    ]


def refused(target, source, published: Published, columns: RecordColumns | None = None, form=None) -> OdError:
    """A refusal in one line that names the file and the reader, tells no value, and leaves nothing."""
    form = form or published.form
    with pytest.raises(OdError) as error:
        load_records(source, columns or columns_of(published), "2001-06", target, record_format=form)
    shown = "".join(traceback.format_exception(error.value)) + repr(error.value)
    assert CANARY not in shown
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600
    assert source.name in str(error.value)
    assert form.name in str(error.value)
    assert not list(target.parent.iterdir())
    return error.value


@pytest.mark.parametrize("name", sorted(PUBLISHED.keys() - {"istat"}))
def test_a_renamed_column_is_refused_with_those_that_are_there(tmp_path, target, name):
    published = PUBLISHED[name]
    published.write(tmp_path / published.file, rows(published))
    error = refused(target, tmp_path / published.file, published, columns_of(published, trips="jobs"))
    assert error.code == "OD-TRIPS-COLUMN"
    assert "no column 'jobs'" in error.message
    there = {"lodes": "'h_geocode', 'S000'", "tlc": "'PULocationID'", "nomis": "'Area of workplace'", "table": "'n'"}
    assert there[name] in error.message


@pytest.mark.parametrize("name", ["lodes", "tlc", "nomis"])
def test_a_file_of_another_layout_is_refused_by_the_names_it_lacks(tmp_path, target, name):
    """Parquet has a schema, which is told; the first line of a CSV file may be a record, which is not."""
    published = PUBLISHED[name]
    table = pd.DataFrame({CANARY if name != "tlc" else "zone": ["x"], "x": [CANARY]})
    source = tmp_path / published.file
    table.to_parquet(source) if name == "tlc" else table.to_csv(source, index=False)
    error = refused(target, source, published)
    origin = published.form.columns.origin[0]
    assert error.code == "OD-TRIPS-COLUMN"
    assert repr(origin) in error.message
    assert ("it has 'zone', 'x'" in error.message) == (name == "tlc")
    assert name == "tlc" or CANARY in error.confidential_detail


@pytest.mark.representatives
@pytest.mark.parametrize("kept", [0.0, 0.2, 0.6, 0.97])
def test_a_cut_file_is_refused(tmp_path, target, published, kept):
    """Compressed, with a description at its end, or cut within a row."""
    source = tmp_path / published.file
    published.write(source, [(o, d, n) for o, d, n in rows(published)] * 40)
    content = source.read_bytes()
    end = int(len(content) * kept)
    if published.form.name in ("table", "istat", "nomis") and kept:
        end = content.rindex(b"\n", 0, end) + 4
    source.write_bytes(content[:end])
    if published.form.name == "istat" and not kept:
        pytest.skip("without a header, no bytes are no records")
    assert refused(target, source, published).code == "OD-FILE-UNREADABLE"


def test_a_file_of_another_kind_is_named(tmp_path, target, published):
    """Parquet by another name, and what is not Parquet by its name."""
    source = tmp_path / published.file
    is_parquet = source.suffix == ".parquet"
    if is_parquet:
        source.write_text(f"PULocationID,DOLocationID\n{CANARY},1\n")
    else:
        pd.DataFrame({"origin": [CANARY]}).to_parquet(source)
    error = refused(target, source, published)
    assert error.code == "OD-FILE-UNREADABLE"
    assert "is not a Parquet file" in error.message if is_parquet else "is a Parquet file" in error.message


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("lodes", {"delimiter": ";"}, "does not take the option delimiter"),
        ("tlc", {"encoding": "latin-1"}, "does not take the option encoding"),
        ("istat", {"table": "t"}, "does not take the option table"),
        ("nomis", {"delimiter": ","}, "does not take the option delimiter"),
        ("table", {"table": "t", "delimiter": ";"}, "the option delimiter does not apply"),
        ("table", {"delimiter": ";;"}, "not a single character"),
        ("table", {"delimiter": '"'}, "not a single character"),
        ("table", {"delimiter": ""}, "not a single character"),
        ("table", {"encoding": "latin1"}, "did you mean 'latin-1'?"),
        ("table", {"outside_period": "dropp"}, "did you mean 'drop'?"),
        ("table", {"categories": (("a", ()),)}, "'a'"),
        ("table", {"categories": (("a", ("1",)), ("a", ("2",)))}, "'table'"),
        ("istat", {"categories": (("record", ("L",)),)}, "already selects rows"),
    ],
)
def test_options_that_a_reader_does_not_take(name, options, said):
    with pytest.raises(OdError, match="OD-READER-OPTIONS") as error:
        find_format(name).with_options(**options)
    assert said in error.value.message
    assert "\n" not in str(error.value)
