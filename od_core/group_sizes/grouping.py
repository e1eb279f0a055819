"""Define the groups of a table by a public rule, and count the records of each group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Protocol

import numpy as np
import pandas as pd
import pyarrow as pa

from od_core.errors import OdError, raise_alone
from od_core.files.duckdb_session import parquet_rows, scratch_database
from od_core.geography.codes import check_case, text_codes
from od_core.geography.geography import Geography, Numbers
from od_core.group_sizes.groups import Counts, GroupSizes
from od_core.periods import Period
from od_core.privacy.neighbours import FAULT_THRESHOLD
from od_core.records.faults import not_counted, reading_errors, refuse_too_many_faults
from od_core.records.zone_lists import read_zones


class Grouping(Protocol):
    """A rule that assigns records to public groups. Each group is in one leaf area.

    The group of a record depends on the code of the record and, for some groupings, on its date.
    """

    def codes(self, geography: Geography) -> Sequence[str]:
        """Return the public codes that the column ``origin`` of a record may have. Any other code is a fault."""
        ...

    def per_area(self, geography: Geography, days: int) -> Counts:
        """Return the public number of groups of every leaf area in a period of some days; shape (leaf areas,)."""
        ...

    def count(
        self, records: Path, geography: Geography, period: str, fault_threshold: Fraction = FAULT_THRESHOLD
    ) -> GroupSizes:
        """Count the records of every group in a period. The result is confidential.

        A record is faulty if its code is not listed or if it is from another period. Whether a record is faulty does
        not depend on other records.

        Args:
            records: Parquet file written by :func:`od_core.records.load.load_records`, with the code in ``origin``.
            geography: the public geography.
            period: a year, month or day, as text.
            fault_threshold: largest accepted share of faulty records.

        Raises:
            OdError: too many records are faulty, or the records cannot be read.
        """
        ...


def count_by_group(
    records: Path, codes: pa.Table, groups: int, fault_threshold: Fraction, *, group: str = "number"
) -> Counts:
    """Return the number of records of every group; shape (groups,). The result is confidential.

    A record is faulty if its code is not listed or if it is from another period. Faulty records are dropped, with one
    exception: if ``codes`` has a row with the code NULL, records of the period with unlisted codes get the number in
    that row. Whether a record is faulty does not depend on other records.

    Args:
        records: Parquet file written by :func:`od_core.records.load.load_records`, with the code in ``origin``.
        codes: public table with the columns ``code`` and ``number``, from which ``group`` computes the group.
        groups: number of groups.
        fault_threshold: largest accepted share of faulty records.
        group: SQL expression of ``number`` and ``date`` that gives the group of a record, from 0 to ``groups`` - 1.

    Raises:
        OdError: too many records are faulty, or the records cannot be read.
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
            """  # noqa: S608  # our own SQL, and the checked file name
            counted, faulty = connection.execute(
                f"SELECT count(*), count(*) FILTER (WHERE unlisted OR NOT in_period) FROM ({placed})"  # noqa: S608  # our own SQL
            ).fetchall()[0]
            refuse_too_many_faults(faulty, counted, fault_threshold)
            found = connection.sql(
                f"SELECT place, count(*) AS records FROM ({placed})"  # noqa: S608  # our own SQL
                " WHERE in_period AND place IS NOT NULL GROUP BY ALL"
            ).to_arrow_table()
    except reading_errors() as error:
        raise_alone(not_counted(error))
    sizes = np.zeros(groups, dtype=np.int64)
    sizes[found["place"].to_numpy()] = found["records"].to_numpy()
    return sizes


@dataclass(frozen=True)
class AreasByDay:
    """A grouping with one group per leaf area and day of the period. The code of a record is that of its area.

    The released table then states on how many days an area had j records. Records of an unlisted area count for the
    geography's ``unknown`` area. If the geography has no such area, they are dropped.
    """

    def codes(self, geography: Geography) -> Sequence[str]:
        """Return the codes of the leaf areas; see :meth:`Grouping.codes`."""
        return geography.zones

    def per_area(self, geography: Geography, days: int) -> Counts:
        """Return the number of days, once for every leaf area; see :meth:`Grouping.per_area`."""
        return np.full(len(geography.zones), days, dtype=np.int64)

    def count(
        self, records: Path, geography: Geography, period: str, fault_threshold: Fraction = FAULT_THRESHOLD
    ) -> GroupSizes:
        """Count the records of every leaf area on every day; see :meth:`Grouping.count`."""
        first, days = Period(period).first, Period(period).days
        areas = len(geography.zones)
        codes, numbers = list[str | None](geography.zones), list(range(areas))
        if geography.unknown is not None:
            codes.append(None)
            numbers.append(geography.zones.index(geography.unknown))
        # A time just before midnight may have been rounded up to the next day, so days are clipped to the period.
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


@dataclass(frozen=True)
class ListedGroups:
    """A grouping by a public list of groups, such as households, licensed taxis or employers.

    The list is the same in every period. The code of a record is that of its group.

    Attributes:
        file: CSV or Parquet file with one row per group, including groups without members. All columns are text.
        group: name of the column with the unique code of each group.
        area: name of the column with the code of the leaf area that contains the group.
    """

    file: Path
    group: str = "group"
    area: str = "area"

    def codes(self, geography: Geography) -> Sequence[str]:
        """Return the codes of the groups; see :meth:`Grouping.codes`.

        Raises:
            OdError: the list is invalid or does not match the geography.
        """
        return self._listed(geography)[0]

    def per_area(self, geography: Geography, days: int) -> Counts:  # the list is the same in every period
        """Return the number of listed groups in every leaf area; see :meth:`Grouping.per_area`.

        Raises:
            OdError: the list is invalid or does not match the geography.
        """
        area = self._listed(geography)[1]
        return GroupSizes.of(area, np.zeros(len(area), dtype=np.int64)).per_area(geography)

    def count(
        self, records: Path, geography: Geography, period: str, fault_threshold: Fraction = FAULT_THRESHOLD
    ) -> GroupSizes:
        """Count the records of every listed group; see :meth:`Grouping.count`.

        Raises:
            OdError: too many records are faulty, the records cannot be read, or the list is invalid or does not match
                the geography.
        """
        codes, area = self._listed(geography)
        numbers = pa.array(np.arange(len(codes), dtype=np.int64))
        table = pa.table({"code": pa.array(codes, pa.string()), "number": numbers})
        return GroupSizes.of(area, count_by_group(records, table, len(codes), fault_threshold))

    def _listed(self, geography: Geography) -> tuple[list[str], Numbers]:
        """Return the code and the leaf area number of each group, in the order of the list.

        Raises:
            OdError: the list is invalid or does not match the geography. The error names the fault and the file.
        """
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
