"""Groups that are an area and a day each: how busy are its days."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa

from od_core.geography import Geography
from od_core.group_sizes.counting import count_by_group
from od_core.group_sizes.frame import Counts
from od_core.group_sizes.groups import GroupSizes
from od_core.periods import Period
from od_core.privacy.neighbours import FAULT_THRESHOLD


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
