"""TLC's monthly files, made to the layouts of its data dictionaries: yellow, green, for-hire, high-volume."""

from __future__ import annotations

import datetime

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from od_core import FlowTree, Geography
from od_core.records.counting import trip_counts_of
from od_core.records.formats import FORMATS
from tests.real_data import real_data

TLC = FORMATS["tlc"]

KINDS = {
    "yellow": ("tpep_pickup_datetime", "tpep_dropoff_datetime", "PULocationID", "DOLocationID"),
    "green": ("lpep_pickup_datetime", "lpep_dropoff_datetime", "PULocationID", "DOLocationID"),
    "fhv": ("pickup_datetime", "dropOff_datetime", "PUlocationID", "DOlocationID"),
    "fhv of 2017": ("Pickup_DateTime", "DropOff_datetime", "PUlocationID", "DOlocationID"),
    "fhvhv": ("pickup_datetime", "dropoff_datetime", "PULocationID", "DOLocationID"),
}
EARLIER = ("request_datetime", "on_scene_datetime")
"""Times of high-volume trips before they began."""

ID_TYPES = [pa.int32(), pa.int64(), pa.float64(), pa.string()]
JUNE = datetime.datetime(2019, 6, 1)


def write(path, kind, ids, times, id_type=ID_TYPES[1]) -> None:
    start, end, home, work = KINDS[kind]
    before = dict.fromkeys(EARLIER if kind == "fhvhv" else (), pa.array([JUNE] * len(ids), pa.timestamp("us")))
    codes = [pa.array([None if i is None else i for i in side]) for side in ([o for o, _ in ids], [d for _, d in ids])]
    columns = {
        **before,
        start: pa.array(times, pa.timestamp("us")),
        end: pa.array([JUNE] * len(ids), pa.timestamp("us")),
        home: codes[0].cast(id_type),
        work: codes[1].cast(id_type),
        "SR_Flag": pa.nulls(len(ids)),
    }
    pq.write_table(pa.table(columns), path)


@pytest.mark.representatives
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("id_type", ID_TYPES, ids=str)
def test_ids_of_any_type_are_the_same_codes(tmp_path, loaded, kind, id_type):
    """7, 7.0 and '7' are zone 7 of every kind of file, from where the trip began and when; every id, and none."""
    zones = [None, *range(1, 266)]
    ids = list(zip(zones, [*zones[100:], *zones[:100]], strict=True))
    write(tmp_path / "t.parquet", kind, ids, [JUNE + datetime.timedelta(hours=k) for k in range(len(ids))], id_type)
    read = loaded(tmp_path / "t.parquet", TLC.columns, "2019-06", record_format=TLC)
    texts = [tuple(None if pd.isna(v) else v for v in row) for row in read[["origin", "destination"]].to_numpy(object)]
    assert texts == [(None if o is None else str(o), None if d is None else str(d)) for o, d in ids]
    assert [(time - JUNE) // datetime.timedelta(hours=1) for time in read["date"]] == list(range(len(ids)))
    assert read["in_period"].all()


def test_numbers_that_are_no_zones_stay_faults(tmp_path, loaded):
    """A fraction is not cut, infinity is not missing, and NaN is."""
    values = [7.0, 7.5, float("inf"), float("-inf"), 1e300, -0.0, float("nan"), None]
    columns = {
        "PULocationID": pa.array(values, pa.float64()),
        "DOLocationID": pa.nulls(len(values)),
        "pickup_datetime": pa.array([JUNE] * len(values)),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    read = loaded(tmp_path / "t.parquet", TLC.columns, "2019-06", record_format=TLC)
    origins = [None if pd.isna(code) else code for code in read["origin"]]
    assert (origins[0], origins[5:]) == ("7", ["0", None, None])
    assert not {*origins[1:5]} & {*map(str, range(1, 266)), None}
    assert read["destination"].isna().all()


@pytest.mark.parametrize("others", [[], [7.0], [264.0, 7.0], [None], [float("inf")], [7.5] * 3_000])
def test_an_id_that_is_not_a_number_is_missing_whatever_the_other_records_hold(tmp_path, loaded, others):
    """DuckDB concluded from the least and greatest id of a file, which leave out NaN, that none is NaN."""
    ids = pa.array([float("nan"), *others], pa.float64())
    times = pa.array([JUNE] * len(ids))
    table = {"PULocationID": ids, "DOLocationID": ids, "pickup_datetime": times}
    pq.write_table(pa.table(table), tmp_path / "t.parquet", row_group_size=1_000)
    read = loaded(tmp_path / "t.parquet", TLC.columns, "2019-06", record_format=TLC)
    assert read.loc[0, ["origin", "destination"]].isna().all()


def test_trips_of_other_months_are_dropped_where_that_is_asked_for(tmp_path, loaded):
    """As the files have them: a few of other years, for a clock of a meter was wrong."""
    times = [JUNE, JUNE - datetime.timedelta(microseconds=1), JUNE.replace(year=2009), JUNE.replace(day=30), None]
    write(tmp_path / "t.parquet", "yellow", [(1, 2)] * 5, times)
    kept = loaded(tmp_path / "t.parquet", TLC.columns, "2019-06", record_format=TLC.declared(outside_period="drop"))
    assert kept["in_period"].tolist() == [True, True, False]


@pytest.mark.parametrize("month", ["2018-01", "2020-12"])
def test_real_trips_in_the_layout_of_tlc(tmp_path, loaded, target, month):
    """One month of a sample: pandas counts the same trips between the same zones."""
    folder = real_data("nyc_yellow_taxi")
    trips = pd.read_csv(folder / "trips.csv.gz")
    trips = trips[trips["month"] == month]
    trips = trips.assign(tpep_pickup_datetime=pd.to_datetime(trips["pickup_datetime"])).drop(columns="pickup_datetime")
    trips.drop(columns="month").to_parquet(tmp_path / f"yellow_tripdata_{month}.parquet")
    zones = pd.read_csv(folder / "zones.csv", dtype=str)
    geography = Geography.from_frame(zones, ["borough", "service_area", "taxi_zone"])
    form = TLC.declared(outside_period="drop")
    loaded(tmp_path / f"yellow_tripdata_{month}.parquet", TLC.columns, month, record_format=form)
    counts = trip_counts_of(target, FlowTree(geography, geography), fault_threshold=0)
    inside = trips[trips["tpep_pickup_datetime"].dt.strftime("%Y-%m") == month]
    pairs = inside.groupby(["PULocationID", "DOLocationID"]).size()
    assert (len(counts.rank), counts.total) == (len(pairs), len(inside))
