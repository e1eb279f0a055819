"""ISTAT's commuting matrix of 2011, made to its "Tracciato record dei file": fixed columns, blanks between fields."""

import gzip
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import OdError
from od_core.records.formats import FORMATS
from od_core.records.load import RecordColumns, load_records
from tests.od_core.records.published import istat_line

pytestmark = pytest.mark.usefixtures("one_scratch_database")

ISTAT = FORMATS["istat"]

CODES = st.integers(1, 110).flatmap(lambda province: st.integers(1, 316).map(lambda one: f"{province:03}{one:03}"))
COUNTS = st.integers(0, 9_999_999)
RECORDS = st.tuples(CODES, CODES | st.just("000000"), st.integers(1, 2), COUNTS, st.sampled_from("SL"))


def line(home, work, reason, n, record) -> str:
    if record == "L":
        return istat_line(home, work, "ND", record="L", reason=reason, estimate=f"{n / 7:.2f}")
    return istat_line(home, work, f"{n:07}", reason=reason)


@given(
    records=st.lists(RECORDS, max_size=20),
    reason=st.sampled_from([None, 1, 2]),
    end=st.sampled_from(["\n", "\r\n"]),
    is_packed=st.booleans(),
)
def test_the_whole_numbers_of_the_records_s(tmp_path, loaded, records, reason, end, is_packed):
    """Those who study, who work, or both; no estimate, in whatever order."""
    content = "".join(line(*record) + end for record in records).encode("ascii")
    source = tmp_path / ("matrix.txt.gz" if is_packed else "matrix.txt")
    source.write_bytes(gzip.compress(content) if is_packed else content)
    form = ISTAT if reason is None else ISTAT.with_options(categories=(("reason", (str(reason),)),))
    read = loaded(source, ISTAT.columns, "2011", record_format=form)
    expected = [(home, work, n) for home, work, why, n, record in records if record == "S" and why in (reason or why,)]
    assert list(read[["origin", "destination", "trips"]].itertuples(index=False, name=None)) == expected


def test_the_fields_by_their_places(tmp_path, loaded):
    """Each field has the name of its place: chosen by it, one of two records stays."""
    fields = {
        "household": ("1", "2"),
        "home_province": ("001", "002"),
        "home_municipality": ("003", "004"),
        "sex": ("1", "2"),
        "reason": ("1", "2"),
        "place": ("2", "3"),
        "work_province": ("005", "000"),
        "work_municipality": ("006", "000"),
        "country": ("000", "229"),
        "means": ("01", "12"),
        "departure": ("1", "4"),
        "duration": ("1", "4"),
    }
    lines = [" ".join(["S", *(values[k] for values in fields.values()), "ND", str(k + 1)]) for k in (0, 1)]
    (tmp_path / "matrix.txt").write_text("\n".join(lines) + "\n")
    for name, values in fields.items():
        for k, value in enumerate(values):
            form = ISTAT.with_options(categories=((name, (value,)),))
            assert loaded(tmp_path / "matrix.txt", ISTAT.columns, record_format=form)["trips"].tolist() == [k + 1]


@pytest.mark.parametrize(
    "columns",
    [
        partial(RecordColumns, "residence", "workplace", trips="estimate"),
        partial(ISTAT.rename_columns, trips="estimate"),
    ],
)
def test_estimates_are_never_trips(tmp_path, target, columns):
    (tmp_path / "matrix.txt").write_text(line("001001", "001002", 2, 7, "L") + "\n")
    with pytest.raises(OdError, match=r"OD-READER-OPTIONS.*'estimate' of reader 'istat' holds fractional estimates"):
        load_records(tmp_path / "matrix.txt", columns(), "2011", target, record_format=ISTAT)


@pytest.mark.parametrize(
    "bad", ["QX-CANARY", "S 1 001", "L 1 001", "S" + " 1" * 15, "S\t1\t2", "S\x011", '"S" 1 001', "S 1 001 é"]
)
@pytest.mark.parametrize("place", [0, 2000])
def test_a_line_that_is_no_record_makes_the_file_unreadable(tmp_path, target, bad, place):
    """Whatever else is in it, and whichever rows are chosen; the line is told in the confidential detail alone."""
    lines = [line("001001", "001002", 2, 7, "S")] * 2000
    lines.insert(place, bad)
    (tmp_path / "matrix.txt").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(OdError, match="OD-FILE-UNREADABLE:") as error:
        load_records(tmp_path / "matrix.txt", ISTAT.columns, "2011", target, record_format=ISTAT)
    assert "matrix.txt (reader 'istat') cannot be read as lines of 15 fields" in error.value.message
    assert "CANARY" not in str(error.value)
    assert bad.split()[0] in error.value.confidential_detail
    assert not list(target.parent.iterdir())
