"""Feeds of the mobility field count what the json and csv modules read in them; what is no such feed is refused."""

import csv
import datetime
import gzip
import io
import json
import re
from collections import Counter
from dataclasses import replace
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from od_core import FlowTree, Geography, OdError
from od_core.records import json_payload, open_file
from od_core.records.counting import count_records_in_memory
from od_core.records.formats import FORMATS
from od_core.records.json_payload import JsonPayload
from od_core.records.load import has_dates, load_records, refuse_repeated_tables
from tests.od_core.records.mobility_feeds import (
    BIKES,
    TIDES_PASSENGER_EVENTS,
    TIDES_STOP_VISITS,
    make_bikes,
    make_csv,
    make_gtfs_ride,
    make_mds,
    make_mds_1_trip,
    make_mds_2_trip,
)

pytestmark = pytest.mark.usefixtures("one_scratch_database")

MDS, ROME = FORMATS["mds"], "Europe/Rome"
JUNE = 991_346_400_000
"""Milliseconds from 1970 to June 2001 in Rome, two hours before June in UTC."""
DAY = 86_400_000
ZONES = Geography.from_frame(
    pd.DataFrame(
        {
            "zone": [*(f"Z{number}" for number in range(9)), "OTHER"],
            "boundary": [*(shapely.box(n % 3, n // 3, n % 3 + 1, n // 3 + 1).wkb.hex() for n in range(9)), ""],
        }
    ),
    levels=["zone"],
    unknown="OTHER",
    boundaries={"zone": "boundary"},
)
"""Squares of one degree: Z0, Z1 and Z2 in the south, from west to east, and so on."""

DEGREES = st.sampled_from([0.25, 0.5, 1.5, 1.75, 2.125, 2.9, 7.0]) | st.none()
POINTS = st.tuples(DEGREES, DEGREES)
TIMES = st.sampled_from([JUNE, JUNE - 1, JUNE + 1, JUNE + 30 * DAY - 1, JUNE + 30 * DAY]) | st.integers(
    JUNE - 3 * DAY, JUNE + 3 * DAY
)
TRIPS = st.lists(st.tuples(POINTS, POINTS, TIMES), max_size=12)


def find_zone(point) -> str | None:
    """Code of a point by the squares themselves; None if a coordinate is missing."""
    if None in point:
        return None
    longitude, latitude = (int(degrees // 1) for degrees in point)
    return f"Z{longitude + 3 * latitude}" if max(longitude, latitude) < 3 else "(outside)"


def expect(trips) -> list[tuple]:
    """Zones, local time and period of each trip, by zoneinfo."""
    expected = []
    for start, end, time in trips:
        local = datetime.datetime.fromtimestamp(time / 1000, ZoneInfo(ROME)).replace(tzinfo=None)
        expected.append((find_zone(start), find_zone(end), local, (local.year, local.month) == (2001, 6)))
    return expected


def rows_of(read: pd.DataFrame) -> list[tuple]:
    records = read[["origin", "destination", "date", "in_period"]].astype({"origin": object, "destination": object})
    rows = records.itertuples(index=False, name=None)
    return [(*(None if pd.isna(code) else code for code in row[:2]), *row[2:]) for row in rows]


@given(trips=TRIPS, version=st.sampled_from([1, 2]), is_packed=st.booleans())
def test_trips_of_mds_are_those_of_the_json_module(tmp_path, loaded, trips, version, is_packed):
    """Both versions: zones by the two ends, days by the time zone of the city; no trip is left out."""
    source = tmp_path / ("trips.json.gz" if is_packed else "trips.json")
    content = make_mds(trips, version).encode()
    source.write_bytes(gzip.compress(content) if is_packed else content)
    read = loaded(source, MDS.columns, record_format=MDS, geography=ZONES, time_zone=ROME)
    assert rows_of(read) == expect(trips)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_text", [False, True])
def test_trips_of_mds_in_parquet_are_those_in_json(tmp_path, loaded, version, is_text):
    """Objects as structs, or as text of JSON."""
    generator = np.random.default_rng(3)
    ends = (generator.random((50, 4)) * 3).tolist()
    trips = [((a, b), (c, d), JUNE + number) for number, (a, b, c, d) in enumerate(ends)]
    make_trip = make_mds_2_trip if version == 2 else make_mds_1_trip
    rows = [make_trip(number, trip) for number, trip in enumerate(trips)]
    if is_text:
        rows = [{name: json.dumps(v) if isinstance(v, dict) else v for name, v in row.items()} for row in rows]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "trips.parquet")
    read = loaded(tmp_path / "trips.parquet", MDS.columns, record_format=MDS, geography=ZONES, time_zone=ROME)
    assert rows_of(read) == expect(trips)


def test_a_point_never_has_coordinates_of_two_versions(tmp_path, loaded):
    """A start_location without a longitude is missing, also if the trip has a route."""
    trip = make_mds_1_trip(0, ((0.5, 0.5), (1.5, 1.5), JUNE)) | {"start_location": {"lat": 2.5}}
    (tmp_path / "trips.json").write_text(json.dumps({"trips": [trip]}))
    read = loaded(tmp_path / "trips.json", MDS.columns, record_format=MDS, geography=ZONES, time_zone=ROME)
    assert rows_of(read)[0][:2] == (None, "Z4")


def refused(source, target, form=MDS, **options) -> OdError:
    with pytest.raises(OdError) as error:
        load_records(source, form.columns, "2001-06", target, record_format=form, geography=ZONES, **options)
    assert "CANARY" not in str(error.value)
    assert "\n" not in str(error.value)
    assert not list(target.parent.iterdir())
    return error.value


ONE = make_mds([((0.5, 0.5), (1.5, 1.5), JUNE)])
NO_PAYLOAD = "is no payload of this reader"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is not JSON"),
        ("origin,destination\nCANARY,1\n", "is not JSON"),
        ("{}", NO_PAYLOAD),
        ('[{"trip_id": "CANARY"}]', NO_PAYLOAD),
        ('{"trip_id": "CANARY"}\n{"trip_id": "CANARY"}\n', NO_PAYLOAD),
        ('{"version": "2.0", "status_changes": [{"trips": [{}]}]}', NO_PAYLOAD),
        ('{"version": "2.0", "trips": {"CANARY": 1}}', NO_PAYLOAD),
        ('{"version": "2.0", "trips": null}', NO_PAYLOAD),
        ('{"data": {"data": {"trips": []}}}', NO_PAYLOAD),
        ('{"type": "FeatureCollection", "features": [{"trip_id": "CANARY"}]}', NO_PAYLOAD),
        ('{"trips": [{"trip_id": "CANARY"} {"trip_id": "2"}]}', "truncated"),
        ('{"trips": [] "a": 1}', "truncated"),
        ('{"trips" []}', "truncated"),
        ('{"trips": [{"trip_id": CANARY}]}', "truncated"),
        ('{"trips": []}]', "truncated"),
        ('{"trips": [' + "[" * 100_000 + "]" * 100_000 + "]}", "truncated"),
        ('{"trips": [{"trip_id": ' + "9" * 10_000 + "}]}", "truncated"),
        (ONE + ONE, "truncated"),
        *((ONE[:end], "truncated") for end in (15, 60, 200, len(ONE) - 2, len(ONE) - 1)),
    ],
)
def test_json_that_is_no_payload_is_refused_by_name(tmp_path, target, content, said):
    (tmp_path / "trips.json").write_text(content)
    error = refused(tmp_path / "trips.json", target, time_zone=ROME)
    assert error.code == "OD-FILE-UNREADABLE"
    assert re.search(said, error.message), error.message


def test_other_bytes_are_refused(tmp_path, target):
    for name, content in {
        "cut.json.gz": gzip.compress(ONE.encode() * 1)[:-9],
        "latin.json": ONE.replace("2.0.2", "é").replace("\\u00e9", "é").encode("latin-1"),
        "wide.json": ONE.encode("utf-16"),
        "nul.json": ONE.encode() + b"\0",
    }.items():
        (tmp_path / name).write_bytes(content)
        assert refused(tmp_path / name, target, time_zone=ROME).code == "OD-FILE-UNREADABLE"


def test_an_answer_without_trips_has_no_records(tmp_path, loaded):
    for version in (1, 2):
        (tmp_path / "trips.json").write_text(make_mds([], version))
        read = loaded(tmp_path / "trips.json", MDS.columns, record_format=MDS, geography=ZONES, time_zone=ROME)
        assert read.empty


@pytest.mark.parametrize("time", [None, "June", "2001-06-04 12:00", -JUNE, JUNE / 7, True, {"time": JUNE}, 0, 10**15])
def test_a_start_that_is_no_time_is_a_fault_of_its_trip_alone(tmp_path, loaded, time):
    payload = json.loads(make_mds([((0.5, 0.5), (1.5, 1.5), JUNE)] * 2))
    payload["trips"][0] |= {"start_time": time}
    del payload["trips"][1]["end_time"]
    payload["trips"] += [None, 7, "CANARY", [JUNE]]
    (tmp_path / "trips.json").write_text(json.dumps(payload))
    read = loaded(tmp_path / "trips.json", MDS.columns, record_format=MDS, geography=ZONES, time_zone=ROME)
    assert read["in_period"].tolist() == [False, True, False, False, False, False]
    assert read["date"].isna().tolist() == [True, False, True, True, True, True]


@pytest.mark.parametrize("form", ["mds", "bixi"])
def test_seconds_in_place_of_milliseconds_are_named(tmp_path, target, form):
    began = datetime.datetime(2001, 6, 4, 12, tzinfo=datetime.UTC)
    if form == "mds":
        source, content = tmp_path / "trips.json", make_mds([((0.5, 0.5), (1.5, 1.5), JUNE // 1000)])
    else:
        source = tmp_path / "trips.csv"
        content = make_bikes("bixi since 2022", [("a", "b", began)])
        content = re.sub(r"\d{12,}", lambda digits: digits[0][:-3], content)
    source.write_text(content)
    error = refused(source, target, FORMATS[form], time_zone=ROME)
    assert error.code == "OD-FILE-UNREADABLE"
    assert "times are in seconds since 1970, not in milliseconds" in error.message
    column = "start_time" if form == "mds" else "STARTTIMEMS"
    with pytest.raises(OdError, match="times are in seconds"):
        has_dates(source, column, FORMATS[form])


def test_times_of_mds_need_the_time_zone_of_the_city(tmp_path, target):
    (tmp_path / "trips.json").write_text(ONE)
    error = refused(tmp_path / "trips.json", target)
    assert (error.code, "declare the time_zone" in error.next_step) == ("OD-TRIPS-DATE", True)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(
    records=st.lists(VALUES, max_size=6),
    others=st.dictionaries(st.text(max_size=4) | st.just("links"), VALUES, max_size=3),
    is_nested=st.booleans(),
    is_last=st.booleans(),
    indent=st.sampled_from([None, 0, 2]),
    is_ascii=st.booleans(),
    piece=st.integers(1, 9),
)
def test_records_of_a_payload_are_those_of_the_json_module(
    records, others, is_nested, is_last, indent, is_ascii, piece
):
    """Whatever the values are, and wherever a piece of the text ends."""
    for name in ("trips", "data"):
        others.pop(name, None)
    listed = {"trips": records}
    members = [{"data": others | listed if is_last else listed | others} if is_nested else listed, others]
    payload = members[is_last] | members[not is_last]
    text = json.dumps(payload, indent=indent, ensure_ascii=is_ascii)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_payload, "_PIECE_CHARACTERS", piece)
        assert [json.loads(record) for record in JsonPayload(io.StringIO(text)).list_records("trips")] == records


def test_a_payload_larger_than_a_piece_is_never_in_memory_as_a_whole(tmp_path, monkeypatch):
    """The largest text that is read at once is a piece."""
    monkeypatch.setattr(json_payload, "_PIECE_CHARACTERS", 4096)
    sizes = []

    class Text(io.StringIO):
        def read(self, size=-1, /):
            sizes.append(size)
            return super().read(size)

    trips = [((0.5, 0.5), (1.5, 1.5), JUNE)] * 1000
    assert len(list(JsonPayload(Text(make_mds(trips))).list_records("trips"))) == 1000
    assert max(sizes) == 4096


def test_batches_lose_no_record(tmp_path, loaded, monkeypatch):
    monkeypatch.setattr(open_file, "_RECORDS_AT_ONCE", 7)
    trips = [((n % 3 + 0.5, 0.5), (1.5, n % 2 + 0.5), JUNE + n) for n in range(50)]
    (tmp_path / "trips.json").write_text(make_mds(trips))
    read = loaded(tmp_path / "trips.json", MDS.columns, record_format=MDS, geography=ZONES, time_zone=ROME)
    assert rows_of(read) == expect(trips)


STATIONS = ["6209", "0042", "5905.12", "Berri / de Maisonneuve", ""]


@pytest.mark.parametrize("layout", BIKES)
def test_bike_trips_of_each_layout_are_those_of_the_csv_module(tmp_path, loaded, layout):
    """Stations as they are written; a blank one goes to the unknown zone."""
    form = FORMATS[layout.split()[0]]
    generator = np.random.default_rng(5)
    began = datetime.datetime(2001, 5, 31, 21, 30, tzinfo=datetime.UTC)  # in Rome, half an hour before June
    trips = [
        (STATIONS[start], STATIONS[end], began + datetime.timedelta(minutes=7 * number))
        for number, (start, end) in enumerate(generator.integers(0, len(STATIONS), (60, 2)))
    ]
    text = make_bikes(layout, trips)
    (tmp_path / "trips.csv").write_text(text)
    listed = pd.DataFrame({"station": [*filter(None, STATIONS), "nowhere"]})
    geography = Geography.from_frame(listed, ["station"], unknown="nowhere")
    read = loaded(tmp_path / "trips.csv", form.columns, record_format=form, geography=geography, time_zone=ROME)
    _, origin, destination, time = BIKES[layout]
    expected = []
    for row in csv.DictReader(io.StringIO(text)):
        if time == "STARTTIMEMS":
            local = datetime.datetime.fromtimestamp(int(row[time]) / 1000, ZoneInfo(ROME)).replace(tzinfo=None)
        else:
            local = datetime.datetime.fromisoformat(row[time])
        expected.append((row[origin] or "nowhere", row[destination] or "nowhere", local, local.month == 6))
    assert rows_of(read) == expected
    assert {in_period for *_, in_period in expected} == {False, True}


def counts_of(read: pd.DataFrame) -> Counter:
    counted: Counter = Counter()
    for stop, number in read.loc[read["in_period"], ["origin", "trips"]].itertuples(index=False):
        counted[stop] += int(number)
    return +counted


def load_counts(loaded, source, name: str, **stated: str) -> Counter:
    form = FORMATS[name]
    columns = replace(form.rename_columns(**stated), destination=None)
    return counts_of(loaded(source, columns, record_format=form.with_options(outside_period="drop")))


@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from("ABC"),
            st.sampled_from(["20010531", "20010601", "20010630", "20010701"]),
            st.integers(0, 40) | st.just(""),
            st.sampled_from("001"),
        ),
        max_size=20,
    )
)
def test_boardings_of_gtfs_ride_are_those_of_the_csv_module(tmp_path, loaded, rows):
    """Of June, with record_use 0; a blank count is none."""
    text = make_gtfs_ride(rows)
    (tmp_path / "board_alight.txt").write_text(text, newline="")
    for column in ("boardings", "alightings"):
        expected: Counter = Counter()
        for row in csv.DictReader(io.StringIO(text)):
            if row["record_use"] == "0" and row["service_date"][:6] == "200106":
                expected[row["stop_id"]] += int(row[column] or 0)
        assert load_counts(loaded, tmp_path / "board_alight.txt", "gtfs_ride", trips=column) == +expected


NUMBERS = st.integers(0, 60).map(str) | st.sampled_from(["", "NA", "NaN"])


@given(rows=st.lists(st.tuples(st.sampled_from("AB"), *[NUMBERS] * 4, st.sampled_from([5, 6])), max_size=12))
def test_stop_visits_of_tides_are_those_of_the_csv_module(tmp_path, loaded, rows):
    """The riders of both kinds of doors."""
    names = ("boarding_1", "boarding_2", "alighting_1", "alighting_2")
    written = [
        {"service_date": f"2001-0{month}-15", "stop_id": stop} | dict(zip(names, numbers, strict=True))
        for stop, *numbers, month in rows
    ]
    (tmp_path / "stop_visits.csv").write_text(make_csv(TIDES_STOP_VISITS, written), newline="")
    expected: Counter = Counter()
    for row in written:
        if row["service_date"] == "2001-06-15":
            values = (str(row["boarding_1"]), str(row["boarding_2"]))
            expected[row["stop_id"]] += sum(int(value) for value in values if value.isdigit())
    assert load_counts(loaded, tmp_path / "stop_visits.csv", "tides_stop_visits") == +expected


EVENTS = ["Passenger boarded", "Passenger alighted", "Door opened", "Individual bike boarded"]


@given(rows=st.lists(st.tuples(st.sampled_from("AB"), st.sampled_from(EVENTS), NUMBERS), max_size=12))
def test_passenger_events_of_tides_are_those_of_the_csv_module(tmp_path, loaded, rows):
    """A missing number of riders is one."""
    written = [
        {"service_date": "2001-06-15", "stop_id": stop, "event_type": event, "event_count": number}
        for stop, event, number in rows
    ]
    text = make_csv(TIDES_PASSENGER_EVENTS, written)
    (tmp_path / "passenger_events.csv").write_text(text, newline="")
    expected: Counter = Counter()
    for stop, event, number in rows:
        if event == "Passenger boarded":
            expected[stop] += int(number) if number.isdigit() else 1
    assert load_counts(loaded, tmp_path / "passenger_events.csv", "tides_passenger_events") == +expected


@pytest.mark.parametrize("bad", ["-3", "2.5", "x", "1,5", "1" * 16])
def test_a_sum_with_what_is_no_number_is_refused(tmp_path, target, bad):
    """As a column of numbers would be."""
    form = FORMATS["tides_stop_visits"]
    row = {"service_date": "2001-06-15", "stop_id": "A", "boarding_1": bad, "boarding_2": "4"}
    (tmp_path / "stop_visits.csv").write_text(make_csv(TIDES_STOP_VISITS, [row]), newline="")
    columns = replace(form.columns, destination=None)
    load_records(tmp_path / "stop_visits.csv", columns, "2001-06", target, record_format=form)
    stops = Geography.from_frame(pd.DataFrame({"stop": ["A", "B"]}), ["stop"])
    with pytest.raises(OdError, match="OD-TRIPS-COUNT"):
        count_records_in_memory(target, FlowTree(stops, Geography.whole()), fault_threshold=0)


@pytest.mark.parametrize("name", ["gtfs_ride", "tides_stop_visits", "tides_passenger_events"])
def test_a_feed_without_its_columns_is_refused_by_name(tmp_path, target, name):
    form = FORMATS[name]
    (tmp_path / "feed.csv").write_text("stop_id,event_type,record_use\nA,CANARY,0\n")
    error = refused(tmp_path / "feed.csv", target, form)
    assert error.code == "OD-TRIPS-COLUMN"
    assert "has no column" in error.message


def test_one_table_in_two_containers_is_refused(tmp_path):
    """As CSV beside Parquet is. Answers without trips are alike, and no repetition."""
    trips = [((0.5, 0.5), (1.5, 1.5), JUNE)]
    (tmp_path / "hour.json").write_text(make_mds(trips))
    pq.write_table(pa.Table.from_pylist([make_mds_2_trip(0, trips[0])]), tmp_path / "hour.parquet")
    files = [(tmp_path / name, None) for name in ("hour.json", "hour.parquet")]
    with pytest.raises(OdError, match=r"OD-FILE-REPEATED: hour.json and hour.parquet hold one table in two containers"):
        refuse_repeated_tables(files, MDS)
    for name in ("empty.json", "also_empty.json"):
        (tmp_path / name).write_text(make_mds([]))
    refuse_repeated_tables([(tmp_path / name, None) for name in ("empty.json", "also_empty.json", "hour.json")], MDS)
    (tmp_path / "again.json").write_text(make_mds(trips))
    with pytest.raises(OdError, match="have the same content"):
        refuse_repeated_tables([(tmp_path / name, None) for name in ("again.json", "hour.json")], MDS)
