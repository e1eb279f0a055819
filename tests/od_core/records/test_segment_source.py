"""Where categories come from: what each rule gives for each kind of column, and what is refused."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from od_core import OdError
from od_core.records.formats import TABLE, RecordColumns
from od_core.records.load import load_records
from od_core.records.segments import DAYS, HOURS, Breakdown, SegmentSource, check_sources

pytestmark = pytest.mark.usefixtures("one_scratch_database")

LOOKUP = (("1", "car"), ("2", "bus"), ("it's", "quoted'"))
BANDS = {"derive": "number", "breaks": (0, 5, 20.5), "bands": ("none", "short", "it's", "long")}


@pytest.fixture
def categories(tmp_path: Path) -> Callable[..., list[str | None]]:
    """Categories of the values of one column, which are in a Parquet file, or as text in a CSV file."""

    def read(values: Any, time_zone: str | None = None, *, int96: str = "", **rule: Any) -> list[str | None]:
        source = tmp_path / ("trips.parquet" if isinstance(values, pa.Array) else "trips.csv")
        codes = ["01"] * len(values)
        if isinstance(values, pa.Array):
            table = pa.table({"origin": codes, "destination": codes, "it's": values})
            pq.write_table(table, source, use_deprecated_int96_timestamps=bool(int96))
        else:
            pd.DataFrame({"origin": codes, "destination": codes, "it's": values}).to_csv(source, index=False)
        columns = RecordColumns(segments=(SegmentSource("user", "it's", **rule),))
        form = TABLE.with_options(timestamps=int96 if int96 in ("utc", "local") else None)
        target = tmp_path / "raw_trips.parquet"
        load_records(source, columns, "2001-06", target, record_format=form, time_zone=time_zone)
        return pq.read_table(tmp_path / "raw_trips.parquet")["segment_user"].to_pylist()

    return read


def test_a_lookup_replaces_texts_numbers_and_booleans(categories):
    """What it does not state is a missing category."""
    texts = {"1": "car", "2": "bus", "01": None, "3": None, None: None, "it's": "quoted'", "1.0": None}
    assert categories(list(texts), lookup=LOOKUP) == list(texts.values())
    assert categories(pa.array([1, 2, 3, None], pa.int8()), lookup=LOOKUP[:2]) == ["car", "bus", None, None]
    numbers = {1.0: "car", 2.0: "bus", 5.5: "half", float("nan"): None, None: None}
    assert categories(pa.array(list(numbers)), lookup=(*LOOKUP[:2], ("5.5", "half"))) == list(numbers.values())
    assert categories(pa.array([True, False]), lookup=(("true", "yes"),)) == ["yes", None]
    assert categories(["2001-06-01 07:30"], derive="hour", lookup=(("07", "peak"), ("08", "peak"))) == ["peak"]


def test_hours_of_texts(categories):
    """A date alone has no hour; a text with a zone could be of any; the last moment of an hour is in that hour."""
    read = {
        "2001-06-01 07:59": "07",
        "2001-06-01T23:59:59.9999999": "23",
        "2001-06-01 00:00:00": "00",
        "2001-06-01 24:00": None,
        "24:00": None,
        "08:15": "08",
        "19:59:59.999999999": "19",
        "2001-06-01": None,
        "2001-06-01T07:00:00Z": None,
        "2001-02-30 07:00": None,
        "08:75": None,
        "7:15": None,
        "noon": None,
    }
    assert categories(list(read), derive="hour") == list(read.values())


def test_the_last_nanosecond_is_of_its_hour_and_a_clock_has_hours_too(categories):
    last = pa.array([pd.Timestamp("2001-06-01 22:59:59.999999999").value], pa.timestamp("ns"))
    assert categories(last, derive="hour") == ["22"]
    for unit in ("us", "ns"):
        clock = pa.array([dt.time(8, 15), dt.time(0), None, dt.time(23, 59, 59, 999999)], pa.time64(unit))
        assert categories(clock, derive="hour") == ["08", "00", None, "23"]


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_times_with_a_zone_need_the_declared_time_zone(categories, unit):
    """Summer and winter time of New York; the day follows from the converted time."""
    moments = [dt.datetime(2001, 6, 2, 3, 30), dt.datetime(2001, 12, 2, 3, 30), None]
    values = pa.array(moments, pa.timestamp(unit, "UTC"))
    assert categories(values, "America/New_York", derive="hour") == ["23", "22", None]
    assert categories(values, "America/New_York", derive="day_of_week") == ["friday", "saturday", None]
    assert categories(values, "America/New_York", derive="hour", int96="utc") == ["23", "22", None]
    assert categories(values, "America/New_York", derive="hour", int96="local") == ["03", "03", None]
    for derive in ("hour", "day_type"):
        with pytest.raises(OdError, match=r"OD-TRIPS-DATE.*(TIME ZONE|TZ_NS).*declare the time_zone"):
            categories(values, derive=derive)
        with pytest.raises(OdError, match=r"OD-TRIPS-DATE.*holds Parquet timestamps that do not state"):
            categories(values, "America/New_York", derive=derive, int96="unstated")


def test_days_of_dates_and_times(categories):
    """The first week of January 2001 began on a Monday."""
    dates = [f"2001-01-{day:02d}" for day in range(1, 8)]
    types = ["weekday"] * 5 + ["saturday", "sunday"]
    for values in (dates, [f"{date} 23:59:59.9999999" for date in dates], pa.array(map(dt.date.fromisoformat, dates))):
        assert categories(values, derive="day_of_week") == list(DAYS)
        assert categories(values, derive="day_type") == types
    assert categories(["2001-02-30", "Monday", None], derive="day_type") == [None, None, None]


def test_a_limit_belongs_to_the_band_above_it(categories):
    """What is no finite number is missing; numbers of any type, and as text."""
    read = {"-1": "none", "0": "short", "4.999": "short", "5": "it's", "20.4": "it's", "20.5": "long", "1e300": "long"}
    missing = ["", "far", "nan", "inf", "-inf"]
    assert categories([*read, *missing], **BANDS) == [*read.values(), *[None] * 5]
    for kind in (pa.float32(), pa.float64(), pa.decimal128(22, 3)):
        assert categories(pa.array([-1, 0, 5, None]).cast(kind), **BANDS) == ["none", "short", "it's", None]
    assert categories(pa.array([-1, 20, 21], pa.int16()), **BANDS) == ["none", "it's", "long"]
    assert categories(pa.array([float("nan"), float("inf"), 20.5]), **BANDS) == [None, None, "long"]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (pa.array([True, False]), "True"),
        (pa.array([1.0, None]), "1.0"),
        (pa.array([1.0, None]), "1.50"),
        (pa.array([1.0], pa.float32()), "NA"),
        (pa.array([1, None]), "01"),
        (pa.array([1], pa.int8()), "1.5"),
    ],
)
def test_a_text_that_the_type_of_the_column_never_gives_is_refused(categories, values, text):
    """CSV files have the texts of Python and R; the same column of Booleans or numbers gives others."""
    with pytest.raises(OdError, match=f"OD-SEGMENT-SOURCE.*which never gives the declared text '{text}'"):
        categories(values, lookup=((text, "a"), ("7", "b")))


DATES, NUMBERS = pa.array([dt.date(2001, 6, 1)]), pa.array([7731])


@pytest.mark.parametrize(
    ("values", "rule", "code", "cause"),
    [
        (NUMBERS, {}, "OD-TRIPS-NOT-TEXT", "BIGINT.*declare a lookup"),
        (DATES, {}, "OD-TRIPS-NOT-TEXT", "DATE"),
        (DATES, {"lookup": LOOKUP}, "OD-TRIPS-NOT-TEXT", "DATE"),
        (DATES, {"derive": "hour"}, "OD-TRIPS-DATE", "DATE, which has no hour"),
        (NUMBERS, {"derive": "hour"}, "OD-TRIPS-DATE", "BIGINT"),
        (NUMBERS, {"derive": "day_type"}, "OD-TRIPS-DATE", "BIGINT"),
        (DATES, BANDS, "OD-TRIPS-CATEGORY", "DATE, not numbers"),
    ],
)
def test_a_column_of_another_type_is_refused_without_a_value(categories, values, rule, code, cause):
    with pytest.raises(OdError, match=rf"{code}: trips.parquet .*\"it's\" holds {cause}") as caught:
        categories(values, **rule)
    assert "\n" not in str(caught.value)
    assert "7731" not in str(caught.value)


@pytest.mark.parametrize(
    ("rule", "cause"),
    [
        ({"column": ""}, "name no column"),
        ({"column": None}, "name no column"),
        ({"derive": "hours"}, "did you mean 'hour'"),
        ({"lookup": (("1", 2),)}, "other values than texts"),
        ({"lookup": ((1, "car"),)}, "other values than texts"),
        ({"lookup": (("", "car"),)}, "other values than texts"),
        ({"lookup": (("1", "car"), ("1", "bus"))}, "states a text twice"),
        ({"derive": "hour", "lookup": (("7", "peak"),)}, "'7', which hour never gives"),
        ({"derive": "day_type", "lookup": (("monday", "working"),)}, "'monday', which day_type never gives"),
        ({**BANDS, "lookup": LOOKUP}, "a lookup of numbers"),
        ({"breaks": (1,), "bands": ("a", "b")}, "have bands, but derive is 'text'"),
        ({**BANDS, "breaks": (0, 5)}, "2 breaks and 4 bands"),
        ({**BANDS, "breaks": (), "bands": ("all",)}, "0 breaks and 1 bands"),
        ({**BANDS, "bands": ("a", "b", "c", "a")}, "3 breaks and 4 bands.*each once"),
        ({**BANDS, "breaks": (0, 5, 5)}, "do not ascend"),
        ({**BANDS, "breaks": (0, 5, float("inf"))}, "do not ascend"),
        ({**BANDS, "breaks": (0, float("nan"), 5)}, "do not ascend"),
        ({**BANDS, "breaks": (0, 5, "9")}, "not numbers"),
        ({**BANDS, "breaks": (0, 5, True)}, "not numbers"),
    ],
)
def test_a_rule_that_cannot_hold_is_refused(rule, cause):
    with pytest.raises(OdError, match=rf"OD-SEGMENT-SOURCE.*'mode' .*{cause}") as caught:
        SegmentSource("mode", **{"column": "mode", **rule})
    assert "\n" not in str(caught.value)


def test_sources_and_breakdowns_belong_together():
    """Some hours alone may be listed, and a category may have no source of its own: its trips are none."""
    lists = [Breakdown("hour", ("07", "08", "other"), "other"), Breakdown("mode", ("car", "tram"))]
    lists += [Breakdown("purpose", ("work", "leisure")), Breakdown("daily", HOURS)]
    sources = [SegmentSource("hour", "time", "hour"), SegmentSource("mode", "mode", lookup=(("1", "car"),))]
    sources += [SegmentSource("purpose", "purpose"), SegmentSource("daily", "time", "hour")]
    check_sources(sources, lists)
    with pytest.raises(OdError, match=r"OD-SEGMENT-SOURCE: no column is declared for the categories of 'mode'"):
        check_sources(sources[:1], lists[:2])
    with pytest.raises(OdError, match=r"OD-SEGMENT-SOURCE.*'mode' are read, but it is no breakdown"):
        check_sources(sources[:2], lists[:1])
