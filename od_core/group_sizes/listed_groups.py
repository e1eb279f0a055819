"""Groups of a public list: households, licensed taxis, employers, each in one area."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from od_core.codes import check_case, text_codes
from od_core.errors import OdError
from od_core.geography import Geography, Numbers
from od_core.group_sizes.counting import count_by_group
from od_core.group_sizes.frame import Counts
from od_core.group_sizes.groups import GroupSizes
from od_core.privacy.neighbours import FAULT_THRESHOLD
from od_core.readers.zones import read_zones


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
