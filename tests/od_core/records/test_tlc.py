"""TLC's monthly files, made to the layouts of its data dictionaries: yellow, green, for-hire, high-volume."""

import datetime

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from od_core.records.formats import FORMATS

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
    stamps = {start: pa.array(times, pa.timestamp("us")), end: pa.array([JUNE] * len(ids), pa.timestamp("us"))}
    ends = {home: codes[0].cast(id_type), work: codes[1].cast(id_type)}
    columns = {**before, **stamps, **ends, "SR_Flag": pa.nulls(len(ids))}
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
    columns = {"PULocationID": pa.array(values, pa.float64()), "DOLocationID": pa.nulls(len(values))}
    columns["pickup_datetime"] = pa.array([JUNE] * len(values))
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
