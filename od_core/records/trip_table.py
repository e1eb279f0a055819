"""Confidential: take trips from a table that a caller passes, by the names that the caller gives its columns.

No message quotes a record. Every message names a column as the caller does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.errors import OdError, base_name
from od_core.files.data_frame import TableOrFile, column_names
from od_core.geography.codes import READ_AS_TEXT
from od_core.privacy.unit import TRIP, PrivacyUnit
from od_core.records.contribution_bound import check_user_column, may_hold_text
from od_core.records.faults import MAX_COUNT, SUM_TOO_LARGE, bad_count
from od_core.records.row_meaning import refuse_unused
from od_core.records.segment_codes import segment_codes
from od_core.records.segments import Breakdown
from od_core.records.table_file import IN_PERIOD, ReadTable, read_table, whole_numbers
from od_core.records.weights import check_weight_column

ROLES = ("origin", "destination", "trips", "weight")
"""Roles of columns, which are also their default names. The unit names the column of user ids."""


@dataclass(frozen=True, eq=False, repr=False)
class TripTable:
    """Confidential: trips as a table in memory.

    Attributes:
        table: the table. Its columns have the names of the caller.
        names: name of the column of each role.
        unit: the privacy unit.
        breakdowns: breakdowns by which the trips are counted.
    """

    table: ReadTable
    names: Mapping[str, str]
    unit: PrivacyUnit
    breakdowns: Sequence[Breakdown] = ()

    def __repr__(self) -> str:
        return "TripTable(confidential)"

    def __len__(self) -> int:
        return len(self.table.frame)

    @classmethod
    def of(
        cls,
        flows: TableOrFile,
        unit: PrivacyUnit = TRIP,
        columns: Mapping[str, str] | None = None,
        breakdowns: Sequence[Breakdown] = (),
        *,
        whole: bool,
    ) -> TripTable:
        """Take the trips of a table.

        Args:
            flows: table or path of a file; see :func:`od_core.records.table_file.read_table`.
            unit: the privacy unit, which names the column of user ids.
            columns: names of columns by role (``origin``, ``destination``, ``trips``, ``weight``, or the name of a
                breakdown). Other roles have the default name.
            breakdowns: breakdowns by which the trips are counted. Each has a column.
            whole: whether the columns that the unit requires must be there: weights and user ids.

        Raises:
            OdError: the table cannot be read; ``columns`` is not valid; a column is missing, occurs twice or
                contradicts the unit; zone codes are numbers; or a column of categories contains no text, or is also
                the column of user ids or of ``in_period``.
        """
        segments = [one.name for one in breakdowns]
        names = column_names(columns, (*ROLES, *segments), "the unit names the column of user ids")
        _refuse_shared(names, segments, unit)
        always = ("origin", "destination", *segments, *(columns or {}))
        needed = [name for role, name in names.items() if role in always]
        user = [] if unit.column is None else [unit.column]
        table = read_table(
            flows,
            needed,
            [names["trips"], names["weight"], IN_PERIOD, *user],
            numbers=[names["trips"]],
            named="the records",
            code="OD-TRIPS-COLUMN",
        )
        taken = cls(table, names, unit, breakdowns)
        if whole:
            present = table.columns
            check_weight_column(unit, present, weight=names["weight"], trips=names["trips"])
            for column in user:
                check_user_column(column, unit, present, trips=names["trips"])
        for role in ("origin", "destination"):
            taken._refuse_numbers(role)
        for role in segments:
            taken._refuse_no_text(role)
        return taken

    def column(self, role: str) -> pd.Series:
        """Return the column of a role."""
        return self.table.frame[self.names[role]]

    @property
    def user(self) -> pd.Series:
        """Column of user ids of a user unit."""
        return self.table.frame[self.unit.column]

    @property
    def trips(self) -> NDArray[np.int64]:
        """Number of trips of each row; shape (rows,).

        Raises:
            OdError: they, or their sum, are not whole numbers from 0 to 2^53.
        """
        if self.names["trips"] not in self.table.frame.columns:
            return np.ones(len(self), dtype=np.int64)
        return _whole_counts(self.column("trips"))

    @property
    def segment_codes(self) -> NDArray[np.int32]:
        """Segments of each record as one number, -1 for a record that lacks a category it needs; shape (rows,)."""
        return segment_codes([self.column(one.name) for one in self.breakdowns], self.breakdowns, len(self))

    @property
    def in_period(self) -> NDArray[np.bool_]:
        """Mask of the records of the period, all records if there is no column ``in_period``; shape (rows,)."""
        if IN_PERIOD not in self.table.frame.columns:
            return np.ones(len(self), dtype=np.bool_)
        inside = self.table.frame[IN_PERIOD].eq(True).fillna(False)  # a missing value is False
        return inside.to_numpy(dtype=bool)

    def refuse_unstated_rows(self) -> None:
        """Raise OdError if each row counts as one trip though the table has unused columns, and nothing states it."""
        if self.names["trips"] in self.table.frame.columns or self.unit.max_weight is not None:
            return
        roles = ("origin", "destination", *(one.name for one in self.breakdowns))
        read = (*(self.names[role] for role in roles), IN_PERIOD, str(self.unit.column))
        unused = [name for name in self.table.columns if name not in read]
        step = (
            'give one_row_a_trip=True if each row is one trip, or columns={"trips": COLUMN} if COLUMN holds the number'
        )
        refuse_unused(unused, self.table.named, f"{step} of trips of a row")

    def _refuse_numbers(self, role: str) -> None:
        column, name = self.column(role), self.names[role]
        if len(column) and pd.api.types.is_numeric_dtype(column.dtype) and column.notna().any():
            raise OdError(
                "OD-TRIPS-NOT-TEXT",
                f"column {name!r} holds numbers; zone codes must be text, because numbers lose leading zeros",
                next_step=f"read column {name!r} as text: {READ_AS_TEXT}",
            )

    def _refuse_no_text(self, role: str) -> None:
        column, name = self.column(role), self.names[role]
        if column.notna().any() and not may_hold_text(column):
            raise OdError(
                "OD-TRIPS-NOT-TEXT",
                f"column {name!r} holds {base_name(column.dtype)}; the categories of a breakdown must be text",
                next_step=f"give column {name!r} the listed categories as text: {READ_AS_TEXT}",
            )


def _refuse_shared(names: Mapping[str, str], segments: Sequence[str], unit: PrivacyUnit) -> None:
    """Raise OdError if a breakdown shares its name or its column with user ids, or its column with the period."""
    for role in segments:
        shared = role if unit.column == role else names[role]
        if shared == unit.column:
            what, step = "of user ids", "name another column, or give the breakdown another name"
        elif shared == IN_PERIOD:
            what, step = "that marks the records of the period", "name another column"
        else:
            continue
        raise OdError(
            "OD-TABLE-COLUMNS",
            f"column {shared!r} is both the column of breakdown {role!r} and that {what}",
            next_step=step,
        )


def _whole_counts(column: pd.Series) -> NDArray[np.int64]:
    """Return the counts as int64. Raises OdError unless they and their sum are whole numbers from 0 to 2^53."""
    name = str(column.name)

    def fault(what: str, faulty: NDArray[np.bool_] | None) -> OdError:
        if faulty is None:
            return bad_count(what, column=name)
        return bad_count(what, column=name, row=int(np.argmax(faulty)), rows=len(faulty))

    counts = whole_numbers(column, fault)
    if np.sum(counts, dtype=np.float64) > 2.0 * MAX_COUNT or int(counts.sum()) > MAX_COUNT:
        raise bad_count(SUM_TOO_LARGE, column=name)
    return counts
