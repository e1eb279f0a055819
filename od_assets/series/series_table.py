"""Declare many series once: the attributes of all, and a public table with one row for each of them."""

import csv
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator

from od_assets.series.partitions import SINGLE
from od_assets.series.section import Declaration, substitute_environment_variables
from od_core.errors import OdError, suggest_known_names

_CELL = re.compile(r"\{\{ *row\.(\w+) *\}\}")
"""Pattern of a template that stands for the value of a column in the row of a series."""

_ATTRIBUTES_THAT_MAY_DIFFER = frozenset(
    {"name", "domain", "privacy", "about", "bounds", "revision", "first", "file", "files", "version", "complete"}
)
"""Attributes that may differ between rows with the same assets: they do not decide which assets there are.

Each is the outermost section of an attribute, or the last part of its path.
"""

_ATTRIBUTES_OF_OWN_ASSETS = frozenset({"freshness", "asset"})
"""Attributes, in the same form, that only a series with assets of its own can have.

One row that is published in time would meet the deadline of all.
"""

_MAX_ROWS = 1000
"""Largest number of rows. Dagster loads the assets of all series together."""


class SeriesTable(Declaration):
    """The declaration of a series for each row of a table."""

    for_each: str
    component: str = "od_assets.components.OdRelease"
    rows_are: Literal["series", "partitions"] = Field("series", alias="as")
    series: dict[str, Any]

    def require_valid(self) -> Self:
        """Return the declaration. Raises OdError if rows that share their assets may differ in what these show."""
        if not self.shares_assets:
            return self
        texts = list(_iterate_texts(self.series))
        may_differ = _ATTRIBUTES_THAT_MAY_DIFFER
        if (("periods", "every"), SINGLE) in texts:
            may_differ = may_differ - {"first"}  # the period of a single release is the partition of the assets
        for path, text in texts:
            section_and_end = {path[0], path[-1]}
            fault = None
            if _CELL.search(text) and not section_and_end & may_differ:
                fault = "is a value of the row"
            if section_and_end & _ATTRIBUTES_OF_OWN_ASSETS:
                fault = "needs assets of each row"
            if fault is not None:
                raise _make_table_error(f"series.{'.'.join(path)} {fault}, but rows share their assets")
        return self

    @property
    def shares_assets(self) -> bool:
        """Whether all rows are partitions of the same assets."""
        return self.rows_are == "partitions"

    @field_validator("series", mode="before")
    @classmethod
    def with_variables(cls, value: Any, _field: ValidationInfo) -> Any:
        """Return the attributes of the series unchanged. Environment variables are replaced when each row is read."""
        return value

    @field_validator("for_each", "component", mode="before")
    @classmethod
    def with_variables_of_texts(cls, value: Any) -> Any:
        """Return a text with the values of its environment variables. Raises ValueError if one is not set."""
        return substitute_environment_variables(value)

    @cached_property
    def rows(self) -> list[dict[str, str]]:
        """The rows of the table, each as its texts by column.

        Raises OdError if the file is no CSV table in UTF-8 with 1 to 1000 rows of the same length, or if two columns
        have the same name.
        """
        try:
            with (self.project.root / self.for_each).open(encoding="utf-8-sig", newline="") as file:
                header, *rows = [row for row in csv.reader(file, strict=True) if row] or [[]]
        except OSError as error:
            raise _make_table_error(f"{self.for_each} cannot be opened: {error.strerror}") from None
        except (UnicodeDecodeError, csv.Error):
            raise _make_table_error(f"{self.for_each} is not a CSV file in UTF-8") from None
        if len(set(header)) < len(header):
            raise _make_table_error(f"{self.for_each} has two columns of one name")
        if not 0 < len(rows) <= _MAX_ROWS:
            raise _make_table_error(f"{self.for_each} has {len(rows)} rows, and 1 to {_MAX_ROWS} are possible")
        for number, row in enumerate(rows, 1):
            if len(row) != len(header):
                raise _make_table_error(
                    f"row {number} of {self.for_each} has {len(row)} of the {len(header)} values of the header"
                )
        return [dict(zip(header, row, strict=True)) for row in rows]

    def list_names(self) -> list[str]:
        """Return the stated names of the series, in the order of the rows; empty if no name is declared.

        Raises OdError if the table cannot be read, or lacks a value of a name.
        """
        return [str(self._fill(self.series.get("name", ""), number)) for number in range(1, len(self.rows) + 1)]

    def fill_row(self, number: int) -> dict[str, Any]:
        """Return the attributes of the series of a row, of which the first has the number 1.

        Raises OdError if the table has no such column, or no value in it.
        """
        filled: dict[str, Any] = self._fill(self.series, number)
        return filled

    def _fill(self, value: Any, number: int) -> Any:
        """Return a value in which the cells of a row replace their templates. Raises OdError if a cell is missing."""
        if isinstance(value, dict):
            return {name: self._fill(part, number) for name, part in value.items()}
        if isinstance(value, list):
            return [self._fill(part, number) for part in value]
        return _CELL.sub(lambda cell: self._read_cell(cell[1], number), value) if isinstance(value, str) else value

    def _read_cell(self, column: str, number: int) -> str:
        """Return the value of a column in a row. Raises OdError if there is none."""
        row = self.rows[number - 1]
        if column not in row:
            known = suggest_known_names(column, tuple(row))
            raise _make_table_error(f"{self.for_each} has no column {column!r} ({known})")
        if not row[column].strip():
            raise _make_table_error(f"row {number} of {self.for_each} has no value of {column}")
        return row[column].strip()


def _iterate_texts(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each text in a value of a declaration after its path: the names of attributes, from the outermost one."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _iterate_texts(part, (*path, str(name)))
    elif isinstance(value, list):
        for part in value:
            yield from _iterate_texts(part, path)
    elif isinstance(value, str):
        yield path, value


def _make_table_error(message: str) -> OdError:
    """Return the error for a table of series that cannot be used."""
    return OdError("OD-CONFIG", message, next_step="correct the table, or the declaration that names it")
