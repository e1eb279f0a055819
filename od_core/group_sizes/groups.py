"""Store groups with their public areas and confidential sizes, and define the queries of a group-size table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.errors import OdError
from od_core.files.data_frame import TableOrFile, column_names
from od_core.geography.codes import lost_to_pandas
from od_core.geography.geography import Geography, Numbers
from od_core.records.faults import MISSING, NOT_NUMBERS
from od_core.records.table_file import read_table, whole_numbers

Counts = NDArray[np.int64]

Query = Literal["histogram", "cumulative", "sizes"]
"""Name of a query of an area r with G_r groups. Sizes above the top code K count as K.

- ``histogram``: H, the number of groups of each size 0 to K; shape (K + 1,).
- ``cumulative``: H_c, the cumulative sums of H without the last one, which is G_r and public; shape (K,).
- ``sizes``: H_g, the sizes of the groups in ascending order; shape (G_r,).
"""


@dataclass(frozen=True, eq=False)
class Frame:
    """The public facts of a group-size table: the areas, the number of groups in each, and the top code.

    Attributes:
        geography: the hierarchy of areas. The table has its levels 1 (top) to L (leaf areas), but not level 0, the
            whole space. Level 1 may have several areas. The children of an area have consecutive numbers.
        groups: G_r, the public number of groups of every leaf area r, including groups of size 0; shape (leaf areas,).
        top_code: K, the largest size of the table. Larger sizes count as K.

    Raises:
        OdError: the numbers of groups do not match the leaf areas or are negative, or the top code is below 1.
    """

    geography: Geography
    groups: Counts
    top_code: int

    def __post_init__(self) -> None:
        if len(self.groups) != len(self.geography.zones) or (self.groups < 0).any():
            raise _frame_fault("each area must have exactly one number of groups, at least 0")
        if self.top_code < 1:
            raise _frame_fault("the top code must be at least 1")

    @property
    def levels(self) -> range:
        """Levels of the table, 1 to L, top first."""
        return range(1, self.geography.depth + 1)

    def totals(self, level: int) -> Counts:
        """Return G_r, the number of groups, of every area of a level; shape (areas,)."""
        return self.sums(self.groups, level)

    def sums(self, of_leaves: Counts, level: int) -> Counts:
        """Return the sum of the leaf areas' values for every area of a level; shape (areas, ...).

        ``of_leaves`` has the values of the leaf areas; shape (leaf areas, ...).
        """
        first = self.geography.first_zone[level][:-1]
        summed: Counts = np.add.reduceat(of_leaves, first, axis=0)
        return summed

    def every_level(self, of_leaves: Counts) -> list[Counts]:
        """Return the :meth:`sums` of the levels above the leaves, top first, then the leaves' own values."""
        return [*(self.sums(of_leaves, level) for level in self.levels[:-1]), of_leaves]


def _frame_fault(message: str) -> OdError:
    return OdError("OD-GROUPS-FRAME", message, next_step="correct the group list or the geography")


@dataclass(frozen=True, eq=False, repr=False)
class GroupSizes:
    """The groups with their areas and sizes, ordered by area and, within an area, by size.

    Which groups exist, and in which areas, is public. Groups without members are listed with size 0. The sizes are
    confidential.

    Attributes:
        area: leaf area number of each group, ascending; shape (groups,).
        size: number of members of each group, ascending within an area; shape (groups,).

    Raises:
        OdError: the arrays have different lengths or are not in this order, or a size is negative.
    """

    area: Numbers
    size: Counts

    def __post_init__(self) -> None:
        if len(self.area) != len(self.size) or (self.size < 0).any() or not _in_order(self.area, self.size):
            raise OdError("OD-GROUPS-ORDER", "groups are not in order of area and size", next_step="report this defect")

    def __repr__(self) -> str:
        return "GroupSizes(confidential)"

    @property
    def total(self) -> int:
        """Total number of members of all groups, which is confidential."""
        return int(self.size.sum())

    def column_pieces(self) -> Iterator[tuple[Counts, Counts]]:
        """Yield one pair of arrays, the areas and the sizes of all groups; see ``Counted`` in ``od_core.ledger``."""
        yield self.area.astype(np.int64), self.size

    @classmethod
    def from_frame(
        cls, groups: TableOrFile, geography: Geography, *, columns: Mapping[str, str] | None = None
    ) -> GroupSizes:
        """Create the groups from a table with one row per group.

        Args:
            groups: table, or path of a file as in :func:`od_core.records.table_file.read_table`, with columns ``group``
                (a unique name), ``area`` (text code of a leaf area) and ``size`` (number of members, an integer of at
                least 0).
            geography: the public geography.
            columns: names of the columns in ``groups``, by these names.

        Raises:
            OdError: a column is missing, a group is listed twice or has no name, an area is not a leaf area of the
                geography, or a size is not an integer from 0 to 2^53. No message quotes a size.
        """
        own = column_names(columns, ("group", "area", "size"))
        needed, numbers = list(own.values()), [own["size"]]
        frame = read_table(groups, needed, numbers=numbers, named="the groups", code="OD-GROUPS-COLUMN").frame
        names, areas, sizes = (frame[column] for column in needed)
        if names.isna().any():
            raise _fault("OD-GROUPS-NAME", f"a group has no name in column {names.name!r}")
        twice = names.duplicated()
        if twice.any():
            raise _fault(
                "OD-GROUPS-TWICE", f"column {names.name!r} lists a group twice", f"group {names[twice].iloc[0]!r}"
            )
        if not (pd.api.types.is_string_dtype(areas.dtype) or areas.dtype == object):
            raise _fault(
                "OD-GROUPS-AREA",
                f"column {areas.name!r} holds numbers; codes must be text, because numbers lose leading zeros",
            )
        area = geography.zone_numbers(areas)
        if (area < 0).any():
            unlisted = areas[area < 0].iloc[0]
            message = f"column {areas.name!r} has an area that is not a leaf area of the geography"
            raise _fault("OD-GROUPS-AREA", message, f"area {unlisted!r}", lost_to_pandas(geography.zones))
        return cls.of(area, _whole_sizes(sizes))

    @classmethod
    def of(cls, area: Numbers, size: Counts) -> GroupSizes:
        """Create the groups from their leaf area numbers and sizes, in any order; shape (groups,) each."""
        order = np.lexsort((size, area))
        return cls(area[order], size[order])

    def per_area(self, geography: Geography) -> Counts:
        """Return the public number of groups in every leaf area; shape (leaf areas,)."""
        return np.bincount(self.area, minlength=len(geography.zones)).astype(np.int64)


def _whole_sizes(column: pd.Series) -> Counts:
    def fault(what: str, _: NDArray[np.bool_] | None) -> OdError:
        no_number = what in (MISSING, NOT_NUMBERS)
        says = "is missing or is not a number" if no_number else "is not a whole number from 0 to 2^53"
        return _fault("OD-GROUPS-SIZE", f"a size in column {column.name!r} {says}")

    return whole_numbers(column, fault)


def _in_order(area: Numbers, size: Counts) -> bool:
    next_area = np.diff(area)
    return bool(np.all((next_area > 0) | ((next_area == 0) & (np.diff(size) >= 0))))


def _fault(code: str, message: str, detail: str | None = None, advice: str = "") -> OdError:
    """Create an error whose detail is confidential: it quotes a file that may, if its path is wrong, be the records."""
    return OdError(code, message, next_step=f"correct the list of groups{advice}", confidential_detail=detail)
