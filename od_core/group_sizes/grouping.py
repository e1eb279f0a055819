"""What the groups of a table are: a public rule that says which there are, and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Protocol

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa

from od_core.errors import OdError
from od_core.files.duckdb_session import parquet_rows, scratch_database
from od_core.geography.codes import check_case, text_codes
from od_core.geography.geography import Geography, Numbers
from od_core.group_sizes.groups import Counts, GroupSizes
from od_core.periods import Period
from od_core.privacy.neighbours import FAULT_THRESHOLD
from od_core.records.faults import not_counted, refuse_too_many_faults
from od_core.records.zone_lists import read_zones


class Grouping(Protocol):
    """Public groups, each in one leaf area; a record is a member of the group that its code says."""

    def codes(self, geography: Geography) -> Sequence[str]:
        """Public: the codes that a record may have."""
        ...

    def per_area(self, geography: Geography, period: str) -> Counts:
        """Public: the number of groups of every leaf area; shape (leaf areas,)."""
        ...

    def count(
        self, records: Path, geography: Geography, period: str, fault_threshold: Fraction = FAULT_THRESHOLD
    ) -> GroupSizes:
        """Confidential: the number of records of every group of a period.

        A record of a code that is not listed, or of another period, is a fault; records are decided one by one.

        Args:
            records: Parquet file as :func:`od_core.records.load.load_records` leaves it, with the code in
                ``origin``.
            geography: public.
            period: a year, month or day.
            fault_threshold: refuse the records when a larger share of them is faulty.

        Raises:
            OdError: too many faulty records; the records cannot be read.
        """
        ...


# Confidential: the number of records of each group of a public list, counted by DuckDB.


def count_by_group(
    records: Path, codes: pa.Table, groups: int, fault_threshold: Fraction, *, group: str = "number"
) -> Counts:
    """The number of records of every group; groups without records have 0.

    A record of an unlisted code is dropped, or goes where ``codes`` has a code that is missing (NULL); so is one of
    another period dropped. Records are decided one by one.

    Args:
        records: Parquet file as :func:`od_core.records.load.load_records` leaves it, with the code in ``origin``.
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


# Groups that are an area and a day each: how busy are its days.


@dataclass(frozen=True)
class AreasByDay:
    """Every leaf area has one group a day of the period; a record's code is that of its area.

    Records of an unlisted area count for the geography's ``unknown`` area, where it has one, and are dropped elsewhere.
    """

    def codes(self, geography: Geography) -> Sequence[str]:
        """As :meth:`od_core.group_sizes.grouping.Grouping.codes`."""
        return geography.zones

    def per_area(self, geography: Geography, period: str) -> Counts:
        """As :meth:`od_core.group_sizes.grouping.Grouping.per_area`."""
        return np.full(len(geography.zones), Period(period).days, dtype=np.int64)

    def count(
        self, records: Path, geography: Geography, period: str, fault_threshold: Fraction = FAULT_THRESHOLD
    ) -> GroupSizes:
        """As :meth:`od_core.group_sizes.grouping.Grouping.count`."""
        first, days = Period(period).first, Period(period).days
        areas = len(geography.zones)
        codes, numbers = list[str | None](geography.zones), list(range(areas))
        if geography.unknown is not None:
            codes.append(None)
            numbers.append(geography.zones.index(geography.unknown))
        # A time just before midnight, with more digits than a time has here, may stand as that of the next day.
        day = f"least(greatest(date_diff('day', DATE '{first.isoformat()}', date::DATE), 0), {days - 1})"
        sizes = count_by_group(
            records,
            pa.table({"code": pa.array(codes, pa.string()), "number": pa.array(numbers, pa.int64())}),
            areas * days,
            fault_threshold,
            group=f"number * {days} + {day}",
        )
        by_area = np.sort(sizes.reshape(areas, days), axis=1)
        return GroupSizes(np.repeat(np.arange(areas, dtype=np.int32), days), by_area.ravel())


# Groups of a public list: households, licensed taxis, employers, each in one area.


@dataclass(frozen=True)
class ListedGroups:
    """The groups of a public file, the same in every period; a record's code is that of its group.

    Attributes:
        file: CSV or Parquet with one row a group, those without members included; all columns text.
        group, area: its columns: code of the group, each once; code of its leaf area.
    """

    file: Path
    group: str = "group"
    area: str = "area"

    def codes(self, geography: Geography) -> Sequence[str]:
        """As :meth:`od_core.group_sizes.grouping.Grouping.codes`. Raises OdError for a list that does not fit."""
        return self._listed(geography)[0]

    def per_area(self, geography: Geography, period: str) -> Counts:  # the list is of all periods
        """As :meth:`od_core.group_sizes.grouping.Grouping.per_area`. Raises OdError for a list that does not fit."""
        area = self._listed(geography)[1]
        return GroupSizes.of(area, np.zeros(len(area), dtype=np.int64)).per_area(geography)

    def count(
        self, records: Path, geography: Geography, period: str, fault_threshold: Fraction = FAULT_THRESHOLD
    ) -> GroupSizes:
        """As :meth:`od_core.group_sizes.grouping.Grouping.count`. Raises OdError for a list that does not fit, too."""
        codes, area = self._listed(geography)
        numbers = pa.array(np.arange(len(codes), dtype=np.int64))
        table = pa.table({"code": pa.array(codes, pa.string()), "number": numbers})
        return GroupSizes.of(area, count_by_group(records, table, len(codes), fault_threshold))

    def _listed(self, geography: Geography) -> tuple[list[str], Numbers]:
        """Code and leaf area number of each group, in the order of the list. Raises OdError naming the fault."""
        listed = read_zones(self.file)
        missing = [name for name in (self.group, self.area) if name not in listed.columns]
        if missing:
            raise OdError(
                "OD-GROUPS-COLUMN",
                f"{self.file.name} has no column {missing[0]!r}",
                next_step="correct the list of groups, or the columns named in the configuration",
            )
        try:
            columns = {"group": self.group, "area": self.area}
            groups = pd.DataFrame({name: text_codes(listed[mine], mine) for name, mine in columns.items()}, dtype="str")
            check_case(list(groups["group"]), self.group)
            GroupSizes.from_frame(groups.assign(size=0), geography)
        except OdError as error:
            raise error.in_file(self.file.name) from None
        return list(groups["group"]), geography.zone_numbers(groups["area"])
