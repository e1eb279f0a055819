"""Confidential: records placed on the map, those that have no place dropped one by one, by DuckDB."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from od_core.privacy.neighbours import FAULT_THRESHOLD
from od_core.readers.scratch import parquet_rows, scratch_database
from od_core.stops.place_list import PlaceList
from od_core.stops.trajectories import Trajectories
from od_core.trip_faults import not_counted, refuse_too_many_faults


def place_records(records: Path, places: PlaceList, fault_threshold: Fraction = FAULT_THRESHOLD) -> Trajectories:
    """The cells of every record on the map.

    A record with a place that is not listed, or of another period, is dropped. Records are decided one by one.

    Args:
        records: Parquet file as :func:`od_core.readers.records.load_records` leaves it, with as many stops as the map
            has places between the first and the last.
        places: public.
        fault_threshold: refuse the records when a larger share of them is faulty.

    Raises:
        OdError: too many faulty records; the records cannot be read.
    """
    stops = [f"stop_{number}" for number in range(1, len(places.map.places) - 1)]
    stages = ["origin", *stops, "destination"]
    numbers = ", ".join(f"place_{k}.number AS {stage}" for k, stage in enumerate(stages))
    joins = " ".join(
        f"LEFT JOIN places AS place_{k} ON records.{stage} = place_{k}.code" for k, stage in enumerate(stages)
    )
    sound = " AND ".join(["in_period IS TRUE", *(f"{stage} IS NOT NULL" for stage in stages)])
    try:
        with scratch_database(records.parent, records) as connection:
            codes = pa.array(places.codes, pa.string())
            connection.register("places", pa.table({"code": codes, "number": np.arange(len(codes), dtype=np.int32)}))
            placed = f"SELECT in_period, {numbers} FROM {parquet_rows(records)} AS records {joins}"  # noqa: S608  # checked names
            counted, faulty = connection.sql(
                f"SELECT count(*), count(*) FILTER (WHERE NOT ({sound})) FROM ({placed})"  # noqa: S608  # our own
            ).fetchall()[0]
            refuse_too_many_faults(faulty, counted, fault_threshold)
            table = connection.sql(
                f"SELECT {', '.join(stages)} FROM ({placed}) WHERE {sound}"  # noqa: S608  # our own
            ).to_arrow_table()
    except (duckdb.Error, pa.ArrowException) as error:
        raise not_counted(error) from None
    cells = [places.cells[table[stage].to_numpy()] for stage in stages]
    return Trajectories(np.ascontiguousarray(np.concatenate(cells, axis=1)), places.map.grid)
