"""Read groups, or make them from records, and count their sizes by area."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.files.data_frame import TableOrFile, find_unexpected_type, resolve_column_names
from od_core.geography.codes import check_case, format_pandas_advice, read_text_codes
from od_core.geography.geography import Geography, Numbers
from od_core.notebook import Confidential
from od_core.periods import Period
from od_core.privacy.neighbours import FAULT_THRESHOLD
from od_core.records.callers_table import convert_to_integers, read_table
from od_core.records.counting import query_loaded_records
from od_core.records.faults import IS_USER_ID, MAX_COUNT, MISSING, NOT_NUMBERS, refuse_too_many_faults
from od_core.records.zone_lists import read_zones

Counts = NDArray[np.int64]

Query = Literal["histogram", "cumulative", "sizes", "numbers"]
"""Name of a query of an area r with G_r groups. Sizes above the top code K count as K.

- ``histogram``: H, the number of groups of each size 0 to K; shape (K + 1,).
- ``cumulative``: H_c, the cumulative sums of H without the last one, which is G_r and public; shape (K,).
- ``sizes``: H_g, the sizes of the groups in ascending order; shape (G_r,).
- ``numbers``: the number of groups that have a member, before all other queries; shape (1,). No mechanism asks it.
"""


@dataclass(frozen=True, eq=False)
class Frame:
    """The public facts of a group-size table: the areas, the number of groups in each, and the sizes it distinguishes.

    With ``brackets``, mechanisms work on the numbers of brackets in place of sizes, and the top code is the number of
    the last one. Tables show the least size of each bracket, with which its groups count.

    Attributes:
        geography: the hierarchy of areas. The table has its levels 1 (top) to L (leaf areas), but not level 0, the
            whole space. Level 1 may have several areas. The children of an area have consecutive numbers.
        groups: G_r, the public number of groups of every leaf area r, including groups of size 0; shape (leaf areas,).
        top_code: K, the largest size of the table. Larger sizes count as K.
        brackets: least size of each of the brackets 1 to K, ascending; bracket 0 begins at 0. Empty if every size up to
            K is distinguished.
        measured: whether the true numbers of groups are confidential. ``groups`` then has slots for groups: estimates
            from noisy numbers, with a margin. They are 0 in a plan. Every query is asked of as many groups as there
            are slots; see :meth:`GroupSizes.hold_to_numbers`.

    Raises:
        OdError: the numbers of groups do not match the leaf areas, are negative or no whole numbers, or the top code is
            below 1.
    """

    geography: Geography
    groups: Counts
    top_code: int
    brackets: tuple[int, ...] = ()
    measured: bool = False

    def __post_init__(self) -> None:
        groups = np.asarray(self.groups)
        are_whole = np.issubdtype(groups.dtype, np.integer)
        if not are_whole or groups.shape != (len(self.geography.zones),) or (groups < 0).any():
            raise _make_frame_error("each area must have exactly one number of groups, at least 0")
        object.__setattr__(self, "groups", groups)
        if self.top_code < 1:
            raise _make_frame_error("the top code must be at least 1")

    @property
    def least_sizes(self) -> Counts:
        """Size with which the groups of each cell of a histogram count; shape (K + 1,)."""
        return np.array([0, *self.brackets], dtype=np.int64) if self.brackets else np.arange(self.top_code + 1)

    def find_cells(self, sizes: Counts) -> Counts:
        """Return the cell of a histogram that has the groups of each size: the size up to K, or its bracket."""
        if self.brackets:
            return np.searchsorted(np.array(self.brackets), sizes, side="right")
        return np.minimum(sizes, self.top_code)

    @property
    def levels(self) -> range:
        """Levels of the table, 1 to L, top first."""
        return range(1, self.geography.depth + 1)

    def count_groups(self, level: int) -> Counts:
        """Return G_r, the number of groups, of every area of a level; shape (areas,)."""
        return self.sum_at_level(self.groups, level)

    def sum_at_level(self, of_leaves: Counts, level: int) -> Counts:
        """Return the sum of the leaf areas' values for every area of a level; shape (areas, ...).

        ``of_leaves`` has the values of the leaf areas; shape (leaf areas, ...).
        """
        first = self.geography.first_zone[level][:-1]
        return np.add.reduceat(of_leaves, first, axis=0)

    def count_query_values(self, query: Query, level: int) -> Counts:
        """Return the number of values that a query has in every area of a level; shape (areas,).

        Level 0, the whole space, has one value, whatever the query: the largest size, which estimates the top code.
        """
        if level == 0 or query == "numbers":
            return np.ones(self.geography.size(level), dtype=np.int64)
        totals = self.count_groups(level)
        return totals if query == "sizes" else np.full(len(totals), self.top_code + (query == "histogram"))

    def reshape_to_rows(self, query: Query, flat: Counts) -> Counts:
        """Reshape the flat query values of a level to one row per area; those of the query ``sizes`` stay flat.

        The shape is (areas, K + 1) for ``histogram`` and (areas, K) for ``cumulative``.
        """
        return flat if query == "sizes" else flat.reshape(-1, self.top_code + (query == "histogram"))

    def sum_every_level(self, of_leaves: Counts) -> list[Counts]:
        """Return the sums of leaf areas' values for the areas of every level, top first; shape (areas, ...) each.

        The last item is ``of_leaves`` itself, the values of the leaf areas.
        """
        return [*(self.sum_at_level(of_leaves, level) for level in self.levels[:-1]), of_leaves]


def _make_frame_error(message: str) -> OdError:
    """Return the OdError for a frame that is not valid."""
    return OdError("OD-GROUPS-FRAME", message, next_step="correct the group list or the geography")


@dataclass(frozen=True, eq=False, repr=False)
class GroupSizes(Confidential):
    """The groups with their areas and sizes, in rows ordered by area and, within an area, by size.

    A row is one group, or several groups of one area and size. All that is made of the groups is the same in both
    cases. Which groups exist, and in which areas, is public. Groups without members have size 0. The sizes are
    confidential.

    Attributes:
        area: leaf area number of each row, ascending; shape (rows,).
        size: number of members of each group of a row, ascending within an area; shape (rows,).
        groups: number of groups of each row, at least 1; shape (rows,). By default, each row is one group.

    Raises:
        OdError: the arrays have different lengths or are not in this order, or a number is out of range.
    """

    area: Numbers
    size: Counts
    groups: Counts = None  # type: ignore[assignment]  # filled in below

    def __post_init__(self) -> None:
        if self.groups is None:
            object.__setattr__(self, "groups", np.broadcast_to(np.int64(1), self.size.shape))  # takes no memory
        have_same_length = len(self.area) == len(self.size) == len(self.groups)
        are_in_range = have_same_length and (self.size >= 0).all() and (self.groups >= 1).all()
        to_next = np.diff(self.area)
        if not are_in_range or np.any((to_next < 0) | ((to_next == 0) & (np.diff(self.size) < 0))):
            raise OdError("OD-GROUPS-ORDER", "groups are not in order of area and size", next_step="report this defect")

    @property
    def total(self) -> int:
        """Total number of members of all groups, which is confidential."""
        return int(self.size @ self.groups)

    def iterate_column_pieces(self) -> Iterator[tuple[Counts, Counts]]:
        """Yield the area and the size of each group, in pieces, for the fingerprint; see ``staged_files.Counted``."""
        ends = np.cumsum(self.groups)  # groups are numbered in order; those of a row end before its entry
        total = int(ends[-1]) if len(ends) else 0
        for first in range(0, total, _PIECE_GROUPS):
            group_numbers = np.arange(first, min(first + _PIECE_GROUPS, total))
            rows = np.searchsorted(ends, group_numbers, side="right")
            yield self.area[rows].astype(np.int64), self.size[rows]

    @classmethod
    def from_frame(
        cls, groups: TableOrFile, geography: Geography, *, columns: Mapping[str, str] | None = None
    ) -> GroupSizes:
        """Create the groups from a table with one row per group, or with one row per area and size.

        Its columns are ``area`` (text code of a leaf area), ``size`` (number of members, an integer of at least 0) and
        either ``group`` (a unique name) or ``groups`` (number of groups of this size in the area, an integer of at
        least 0). ``columns`` gives the names of these columns in the table where they differ. A file is read as in
        :func:`od_core.records.callers_table.read_table`.

        Raises OdError if a column is missing, both ``group`` and ``groups`` are there, a group is listed twice or has
        no name, a size of an area is listed twice, an area is not a leaf area of the geography, or a size or a number
        of groups (or their sum) is not an integer from 0 to 2^53. No message quotes a size or a number of groups.
        """
        name_of = resolve_column_names(columns, ("group", "area", "size", "groups"))
        group_column, number_column = name_of["group"], name_of["groups"]
        required, numeric = [name_of["area"], name_of["size"]], [name_of["size"], number_column]
        read = partial(read_table, groups, numbers=numeric, named="the groups", code="OD-GROUPS-COLUMN")
        frame, present, _ = read(required, [number_column, group_column])
        if {group_column, number_column} <= set(present):
            both = f"both column {group_column!r}, of single groups, and column {number_column!r}, of numbers"
            raise _make_group_list_error("OD-GROUPS-COLUMN", f"the groups have {both}")
        if not {group_column, number_column} & set(present):
            read([group_column, *required])  # raises the error of a missing column
        areas, sizes = frame[name_of["area"]], frame[name_of["size"]]
        if number_column in present:
            size = _convert_to_whole_numbers(sizes, *_SIZE)
            area = _find_leaf_areas(areas, geography)
            return cls.from_counts(area, size, _convert_to_whole_numbers(frame[number_column], *_NUMBER))
        names = frame[group_column]
        if names.isna().any():
            raise _make_group_list_error("OD-GROUPS-NAME", f"a group has no name in column {names.name!r}")
        twice = names.duplicated()
        if twice.any():
            listed = f"group {names[twice].iloc[0]!r}"
            raise _make_group_list_error("OD-GROUPS-TWICE", f"column {names.name!r} lists a group twice", listed)
        return cls.from_areas_and_sizes(_find_leaf_areas(areas, geography), _convert_to_whole_numbers(sizes, *_SIZE))

    @classmethod
    def from_counts(cls, area: Numbers, size: Counts, groups: Counts) -> GroupSizes:
        """Create the groups from the number of groups of each leaf area and size, in any order; shape (rows,) each.

        Raises OdError if a size of an area is listed twice, or the numbers, which are not negative, sum to above 2^53.
        """
        order = np.lexsort((size, area))
        if np.any((np.diff(area[order]) == 0) & (np.diff(size[order]) == 0)):
            raise _make_group_list_error("OD-GROUPS-TWICE", "the number of groups of an area and size is given twice")
        if groups.sum(dtype=np.float64) > MAX_COUNT:
            raise _make_group_list_error("OD-GROUPS-COUNT", "the numbers of groups sum to more than 2^53")
        order = order[groups[order] > 0]
        return cls(area[order], size[order], groups[order])

    @classmethod
    def from_areas_and_sizes(cls, area: Numbers, size: Counts) -> GroupSizes:
        """Create the groups from the leaf area number and size of each, in any order; shape (groups,) each."""
        order = np.lexsort((size, area))
        return cls(area[order], size[order])

    def add_empty_groups(self, groups: Counts) -> GroupSizes:
        """Return these groups, and in each area as many groups without members as ``groups`` says; shape (areas,)."""
        size = np.concatenate([np.zeros_like(groups), self.size])
        area = np.concatenate([np.arange(len(groups), dtype=np.int32), self.area])
        counts = np.concatenate([groups, self.groups])
        order = np.lexsort((size, area))
        order = order[counts[order] > 0]  # a row has at least 1 group
        return GroupSizes(area[order], size[order], counts[order])

    def hold_to_numbers(self, first: Numbers, numbers: Counts) -> GroupSizes:
        """Return exactly as many groups of every area of a level as ``numbers`` states.

        These are the largest groups of the area and, if it has too few, groups of size 0.

        One member more or less in these groups changes the size of one group of the result by at most 1, for any
        numbers; for the proof, see ``docs/explanation/group-sizes.md``. The result has the numbers of the areas of the
        level in place of those of leaf areas. Both the result and these groups are confidential.

        Args:
            first: the areas of the level are the leaf areas ``first[a]`` to ``first[a + 1]``; shape (areas + 1,).
            numbers: number of groups of every area of the level; shape (areas,).
        """
        area = (np.searchsorted(first, self.area, side="right") - 1).astype(np.int32)
        order = np.lexsort((-self.size, area))
        area, size, groups = area[order], self.size[order], self.groups[order]
        groups_before = np.cumsum(groups) - groups
        first_row = np.searchsorted(area, area)  # of the area of each row
        larger = groups_before - groups_before[first_row]  # groups of the area in the rows before, none of them smaller
        kept = np.clip(numbers[area] - larger, 0, groups)
        missing = numbers.copy()
        np.subtract.at(missing, area, kept)
        order = np.lexsort((size, area))
        order = order[kept[order] > 0]
        return GroupSizes(area[order], size[order], kept[order]).add_empty_groups(missing)

    def count_per_area(self, geography: Geography, least: int = 0) -> Counts:
        """Return the number of groups with at least ``least`` members in every leaf area; shape (leaf areas,)."""
        per_area = np.zeros(len(geography.zones), dtype=np.int64)
        is_counted = self.size >= least
        np.add.at(per_area, self.area[is_counted], self.groups[is_counted])
        return per_area


_PIECE_GROUPS = 1 << 20
"""Number of groups of which a piece of the columns consists."""

_SIZE = "OD-GROUPS-SIZE", "a size"
_NUMBER = "OD-GROUPS-COUNT", "a number of groups"
"""Code of the error for a wrong size or number of groups, and how its message names the value."""


def _find_leaf_areas(areas: pd.Series, geography: Geography) -> Numbers:
    """Return the leaf area number of each code. Raises OdError if a code is not text or not that of a leaf area."""
    kind = find_unexpected_type(areas)
    if kind is not None:
        message = f"column {areas.name!r} holds {kind}; codes must be text, because numbers lose leading zeros"
        raise _make_group_list_error("OD-GROUPS-AREA", message)
    area = geography.find_zone_numbers(areas)
    if (area < 0).any():
        unlisted = areas[area < 0].iloc[0]
        message = f"column {areas.name!r} has an area that is not a leaf area of the geography"
        raise _make_group_list_error(
            "OD-GROUPS-AREA", message, f"area {unlisted!r}", format_pandas_advice(geography.zones)
        )
    return area


def _convert_to_whole_numbers(column: pd.Series, code: str, named: str) -> Counts:
    """Return a column of sizes or numbers as integers. Raises OdError if a value is not an integer from 0 to 2^53.

    The error has the ``code``, and names a value as ``named``, such as "a size".
    """

    def make_error(fault: str, _: int | None) -> OdError:
        """Return the OdError for a value with a fault, without quoting the value."""
        words = "is not a whole number from 0 to 2^53"
        if fault in (MISSING, NOT_NUMBERS):
            words = "is missing or is not a number"
        return _make_group_list_error(code, f"{named} in column {column.name!r} {words}")

    return convert_to_integers(column, make_error)


def _make_group_list_error(code: str, message: str, detail: str | None = None, advice: str = "") -> OdError:
    """Return the OdError for a wrong list of groups.

    ``detail`` quotes a value of the list. It is confidential, because with a wrong path, the file may be the records.
    """
    return OdError(code, message, next_step=f"correct the list of groups{advice}", confidential_detail=detail)


class Grouping:
    """A rule that assigns records to public groups, by their code and, for some groupings, by their day.

    Attributes:
        by_day: whether each listed code is a group of its own on each day of the period. Then, records with unlisted
            codes count for the ``unknown`` area, if there is one. If not, or if ``by_day`` is false, they are faulty.
    """

    by_day: ClassVar[bool] = False

    def list_codes(self, geography: Geography) -> tuple[Sequence[str], Numbers]:
        """Return the public codes that the column ``origin`` of a record may have, and the leaf area number of each.

        By default, the codes are those of the leaf areas. Groupings by a list override this, and raise OdError if the
        list is invalid or does not match the geography.
        """
        return geography.zones, np.arange(len(geography.zones), dtype=np.int32)

    def count_groups_per_area(self, geography: Geography, days: int) -> Counts:
        """Return the public number of groups of every leaf area in a period of ``days`` days; shape (leaf areas,).

        By default, every listed code is a group or, if :attr:`by_day`, one group a day.
        """
        _, area = self.list_codes(geography)
        codes_per_area = np.bincount(area, minlength=len(geography.zones)).astype(np.int64)
        return codes_per_area * days if self.by_day else codes_per_area

    def count_records(
        self, records: Path, geography: Geography, period: str, fault_threshold: Fraction = FAULT_THRESHOLD
    ) -> GroupSizes:
        """Count the records of every group in a period. The result is confidential.

        By default, a record is faulty if its code is not listed or if it is from another period. Faulty records are
        dropped, up to a share of ``fault_threshold``. Whether a record is faulty does not depend on other records.
        ``records`` is a Parquet file written by :func:`od_core.records.load.load_records`, with the code in ``origin``.

        Raises:
            OdError: too many records are faulty, or the records cannot be read.
        """
        codes, area = self.list_codes(geography)
        listed = pa.table({"code": pa.array(codes, pa.string()), "number": np.arange(len(codes))})
        group, unknown = "number", "NULL"  # SQL: the number of a record's group, and of an unlisted code
        if self.by_day:
            first, days = Period(period).first.isoformat(), Period(period).days
            # A time just before midnight may have been rounded up to the next day, so days are clipped to the period.
            day = f"least(greatest(date_diff('day', DATE '{first}', date::DATE), 0), {days - 1})"
            group, area = f"number * {days} + {day}", np.repeat(area, days)
            unknown = "NULL" if geography.unknown is None else str(codes.index(geography.unknown))
        placed = f"""
            SELECT {group} AS place, in_period IS TRUE AS in_period, unlisted
            FROM (
                SELECT date, in_period, listed.code IS NULL AS unlisted, coalesce(listed.number, {unknown}) AS number
                FROM records LEFT JOIN codes AS listed ON records.origin = listed.code)
        """  # noqa: S608  # our own SQL
        counting = "SELECT place, count(*) AS records FROM placed WHERE in_period AND place IS NOT NULL GROUP BY ALL"
        faulty = "unlisted OR NOT in_period"
        counts = query_loaded_records(records, {"codes": listed}, placed, faulty, counting, fault_threshold)
        sizes = np.zeros(len(area), dtype=np.int64)
        sizes[counts["place"].to_numpy()] = counts["records"].to_numpy()
        return GroupSizes.from_areas_and_sizes(area, sizes)


@dataclass(frozen=True)
class AreasByDay(Grouping):
    """A grouping with one group per leaf area and day of the period. The code of a record is that of its area.

    The released table then states on how many days an area had j records.
    """

    by_day: ClassVar[bool] = True


@dataclass(frozen=True)
class ListedGroups(Grouping):
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

    def list_codes(self, geography: Geography) -> tuple[Sequence[str], Numbers]:
        """Return the code and the leaf area number of each group, in the order of the list.

        Raises:
            OdError: the list is invalid or does not match the geography. The error names the fault and the file.
        """
        groups, _ = _read_public_list(self.file, {"group": self.group, "area": self.area}, geography)
        return list(groups["group"]), geography.find_zone_numbers(groups["area"])


@dataclass(frozen=True)
class SeenGroups(Grouping):
    """A grouping of which nothing is public: a group of an area is the records with its code and that of the area.

    So a taxi that is seen in two areas is a group in each of them. Its code may be any text. Records with unlisted
    areas count for the ``unknown`` area, if there is one.
    """

    def count_records(
        self, records: Path, geography: Geography, period: str, fault_threshold: Fraction = FAULT_THRESHOLD
    ) -> GroupSizes:
        """Return the groups that have a record; see :meth:`Grouping.count_records`.

        Records have the code of the group in the field of users. A record without such a code is faulty, too.
        """
        codes = pa.table({"code": pa.array(geography.zones, pa.string()), "number": np.arange(len(geography.zones))})
        unknown = "NULL" if geography.unknown is None else str(geography.zones.index(geography.unknown))
        placed = f"""
            SELECT number, "user", in_period IS NOT TRUE OR number IS NULL
                OR regexp_matches("user", '{IS_USER_ID}') IS NOT TRUE AS faulty
            FROM (SELECT records.*, coalesce(codes.number, {unknown}) AS number
                FROM records LEFT JOIN codes ON records.origin = codes.code)
        """  # noqa: S608  # our own SQL
        sized = 'SELECT number, count(*) AS size FROM placed WHERE NOT faulty GROUP BY number, "user"'
        counting = f"SELECT number, size, count(*) AS groups FROM ({sized}) GROUP BY ALL"  # noqa: S608  # our own SQL
        found = query_loaded_records(records, {"codes": codes}, placed, "faulty", counting, fault_threshold).to_pandas()
        area, size, groups = (found[name].to_numpy(dtype=np.int64) for name in ("number", "size", "groups"))
        return GroupSizes.from_counts(area.astype(np.int32), size, groups)


def _read_public_list(file: Path, columns: Mapping[str, str], geography: Geography) -> tuple[pd.DataFrame, GroupSizes]:
    """Return a public list as a table of text, and its groups, which have no members.

    ``columns`` has the name in the file of each column of the table. Raises OdError, with the name of the file, if the
    list is invalid.
    """
    table = read_zones(file)
    missing = [name for name in columns.values() if name not in table.columns]
    if missing:
        step = "correct the list of groups, or the columns named in the configuration"
        raise OdError("OD-GROUPS-COLUMN", f"{file.name} has no column {missing[0]!r}", next_step=step)
    try:
        codes = {name: read_text_codes(table[own_name], own_name) for name, own_name in columns.items()}
        groups = pd.DataFrame(codes, dtype="str")
        if "group" in columns:
            check_case(list(groups["group"]), columns["group"])
        return groups, GroupSizes.from_frame(groups.assign(size=0), geography)
    except OdError as error:
        raise error.with_file(file.name) from None


@dataclass(frozen=True)
class NumberedGroups(Grouping):
    """A grouping by a public list of the number of groups of each area, where records are numbers of groups by size.

    A record has the code of its area, a size, and how many groups of the area have this size. The groups of an area of
    which no record tells have size 0.

    Attributes:
        file: CSV or Parquet file with one row per area; areas that are not listed have no groups. All columns are text.
        area: name of the column with the code of the leaf area.
        groups: name of the column with the number of its groups, including those without members.
    """

    file: Path
    area: str = "area"
    groups: str = "groups"

    def count_groups_per_area(self, geography: Geography, days: int) -> Counts:
        """Return the public number of groups of every leaf area, whatever ``days`` is; shape (leaf areas,)."""
        _, groups = _read_public_list(self.file, {"area": self.area, "groups": self.groups}, geography)
        return groups.count_per_area(geography)

    def count_records(
        self, records: Path, geography: Geography, period: str, fault_threshold: Fraction = FAULT_THRESHOLD
    ) -> GroupSizes:
        """Return the groups of a period; see :meth:`Grouping.count_records`.

        Records have a size, and the number of groups of this size in the field of trips.

        Raises OdError also if sizes or numbers are not whole, a size of an area occurs twice, or an area has more
        groups than the list says. The share of faults is that of the groups.
        """
        codes = pa.table({"code": pa.array(geography.zones, pa.string()), "number": np.arange(len(geography.zones))})
        placed = "SELECT number, size, trips, in_period FROM records LEFT JOIN codes ON records.origin = codes.code"
        query = "SELECT coalesce(number, -1) AS area, size, trips, coalesce(in_period, false) AS inside FROM placed"
        rows = query_loaded_records(records, {"codes": codes}, placed, "false", query, fault_threshold).to_pandas()
        size = _convert_to_whole_numbers(rows["size"], *_SIZE)
        groups = _convert_to_whole_numbers(rows["trips"], *_NUMBER)
        area = rows["area"].to_numpy(dtype=np.int32)
        is_sound = rows["inside"].to_numpy(dtype=np.bool_) & (area >= 0)
        faulty, total = int(groups[~is_sound].sum(dtype=np.float64)), int(groups.sum(dtype=np.float64))
        refuse_too_many_faults(faulty, total, fault_threshold)
        counted = GroupSizes.from_counts(area[is_sound], size[is_sound], groups[is_sound])
        empty = self.count_groups_per_area(geography, Period(period).days) - counted.count_per_area(geography)
        if (empty < 0).any():
            raise _make_group_list_error(
                "OD-GROUPS-COUNT", "the records have more groups of an area than the list of groups"
            )
        return counted.add_empty_groups(empty)
