"""Define where the category of a record comes from, for each breakdown by which trips are also counted.

The rule is public. It is fixed before any record is read, and it is stored with the settings of reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SegmentSource:
    """Where a record's category of a breakdown comes from.

    Attributes:
        breakdown: name of the breakdown.
        column: exact name of the column of a file of records.
    """

    breakdown: str
    column: str

    @property
    def loaded(self) -> str:
        """Name of the column of loaded records that has the category as text."""
        return loaded_column(self.breakdown)

    def facts(self) -> dict[str, Any]:
        """Return the source as JSON-ready public facts."""
        return {"column": self.column}


def loaded_column(breakdown: str) -> str:
    """Return the name of the column of loaded records that has the categories of a breakdown.

    The prefix keeps it apart from the other columns of loaded records, such as ``user`` and ``date``.
    """
    return f"segment_{breakdown}"
