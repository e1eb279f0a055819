"""Confidential: the number of records of each group of a public list, counted by DuckDB."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from od_core.group_sizes.frame import Counts
from od_core.readers.scratch import parquet_rows, scratch_database
from od_core.trip_faults import not_counted, refuse_too_many_faults


def count_by_group(
    records: Path, codes: pa.Table, groups: int, fault_threshold: Fraction, *, group: str = "number"
) -> Counts:
    """The number of records of every group; groups without records have 0.

    A record of an unlisted code is dropped, or goes where ``codes`` has a code that is missing (NULL); so is one of
    another period dropped. Records are decided one by one.

    Args:
        records: Parquet file as :func:`od_core.readers.records.load_records` leaves it, with the code in ``origin``.
        codes: public: ``code`` and its ``number``; the number of the missing code takes records of unlisted ones.
        groups: number of groups; shape of the result is (groups,).
        fault_threshold: refuse the records when a larger share of them is faulty.
        group: SQL for a record's group, from 0, of the code's ``number`` and the record's ``date``.

    Raises:
        OdError: too many faulty records; the records cannot be read.
    """
    try:
        with scratch_database(records.parent, records) as connection:
            connection.register("codes", codes)
            placed = f"""
                SELECT {group} AS place, in_period IS TRUE AS in_period, unlisted
                FROM (
                    SELECT date, in_period, listed.code IS NULL AS unlisted,
                        coalesce(listed.number, (SELECT number FROM codes WHERE code IS NULL)) AS number
                    FROM {parquet_rows(records)} AS records
                    LEFT JOIN codes AS listed ON records.origin = listed.code)
            """  # noqa: S608  # SQL of our own, and the checked name of the file
            counted, faulty = connection.sql(
                f"SELECT count(*), count(*) FILTER (WHERE unlisted OR NOT in_period) FROM ({placed})"  # noqa: S608  # our own
            ).fetchall()[0]
            refuse_too_many_faults(faulty, counted, fault_threshold)
            found = connection.sql(
                f"SELECT place, count(*) AS records FROM ({placed})"  # noqa: S608  # our own
                " WHERE in_period AND place IS NOT NULL GROUP BY ALL"
            ).to_arrow_table()
    except (duckdb.Error, pa.ArrowException) as error:
        raise not_counted(error) from None
    sizes = np.zeros(groups, dtype=np.int64)
    sizes[found["place"].to_numpy()] = found["records"].to_numpy()
    return sizes
