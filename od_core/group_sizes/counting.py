"""Confidential: groups that are an area and a day each, and the number of records of each, counted by DuckDB."""

from __future__ import annotations

import datetime
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from od_core.geography import Geography
from od_core.group_sizes.frame import Counts
from od_core.group_sizes.groups import GroupSizes
from od_core.readers.scratch import file_name, quoted_text, scratch_database
from od_core.trip_faults import not_counted, refuse_too_many_faults
from od_core.trips import FAULT_THRESHOLD


def days_of(period: str) -> tuple[datetime.date, int]:
    """First day and number of days of a year, month or day, as ``2001``, ``2001-06`` or ``2001-06-30``."""
    first = datetime.date.fromisoformat(f"{period}-01-01"[:10])
    beyond = {4: first.replace(year=first.year + 1), 7: (first + datetime.timedelta(days=32)).replace(day=1)}
    return first, (beyond.get(len(period), first + datetime.timedelta(days=1)) - first).days


def groups_of_areas_by_day(geography: Geography, period: str) -> Counts:
    """Public: every leaf area has one group a day of the period; shape (leaf areas,)."""
    return np.full(len(geography.zones), days_of(period)[1], dtype=np.int64)


def count_areas_by_day(
    records: Path, geography: Geography, period: str, fault_threshold: Fraction = FAULT_THRESHOLD
) -> GroupSizes:
    """The number of records of every leaf area and day; areas and days without records are groups of size 0.

    A record of an unlisted area counts for the geography's ``unknown`` area, where it has one, and is dropped
    elsewhere; so is one of another period. Records are decided one by one.

    Args:
        records: Parquet file as :func:`od_core.readers.records.load_records` leaves it, with the area in ``origin``.
        geography: public.
        period: a year, month or day.
        fault_threshold: refuse the records when a larger share of them is faulty.

    Raises:
        OdError: too many faulty records; the records cannot be read.
    """
    first, days = days_of(period)
    unknown = "NULL" if geography.unknown is None else str(geography.zones.index(geography.unknown))
    # A time just before midnight, with more digits than a time has here, may stand as that of the next day.
    day = f"least(greatest(date_diff('day', DATE '{first.isoformat()}', date::DATE), 0), {days - 1})"
    numbers = np.arange(len(geography.zones), dtype=np.int64)
    try:
        with scratch_database(records.parent) as connection:
            areas = pa.table({"code": pa.array(geography.zones, pa.string()), "number": numbers})
            connection.register("areas", areas)
            placed = f"""
                SELECT coalesce(areas.number, {unknown}) AS area, {day} AS day, in_period IS TRUE AS in_period,
                    areas.number IS NULL AS unlisted
                FROM read_parquet({quoted_text(file_name(records))}) AS records
                LEFT JOIN areas ON records.origin = areas.code
            """  # noqa: S608  # numbers, a date, and the checked name of the file
            counted, faulty = connection.sql(
                f"SELECT count(*), count(*) FILTER (WHERE unlisted OR NOT in_period) FROM ({placed})"  # noqa: S608  # our own
            ).fetchall()[0]
            refuse_too_many_faults(faulty, counted, fault_threshold)
            found = connection.sql(
                f"SELECT area * {days} + day AS place, count(*) AS records FROM ({placed})"  # noqa: S608  # our own
                " WHERE in_period AND area IS NOT NULL GROUP BY ALL"
            ).to_arrow_table()
    except (duckdb.Error, pa.ArrowException) as error:
        raise not_counted(error) from None
    sizes = np.zeros(len(numbers) * days, dtype=np.int64)
    sizes[found["place"].to_numpy()] = found["records"].to_numpy()
    sizes = np.sort(sizes.reshape(len(numbers), days), axis=1)
    return GroupSizes(np.repeat(numbers, days).astype(np.int32), sizes.ravel())
