"""What the groups of a table are: a public rule that says which there are, and where."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Protocol

from od_core.geography import Geography
from od_core.group_sizes.frame import Counts
from od_core.group_sizes.groups import GroupSizes
from od_core.privacy.neighbours import FAULT_THRESHOLD


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
            records: Parquet file as :func:`od_core.readers.records.load_records` leaves it, with the code in
                ``origin``.
            geography: public.
            period: a year, month or day.
            fault_threshold: refuse the records when a larger share of them is faulty.

        Raises:
            OdError: too many faulty records; the records cannot be read.
        """
        ...
