"""Store the true sizes and the histograms of a group-size table between the steps of its release."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from od_core.group_sizes.groups import GroupSizes
from od_core.group_sizes.plan import GroupSizePlan
from od_core.group_sizes.release import GroupSizeRelease
from od_core.ledger.staged_files import StagedTable

_CELLS = pa.schema([("level", pa.int32()), ("area", pa.int32()), ("size", pa.int64()), ("groups", pa.int64())])


class StagedGroupSizes(StagedTable[GroupSizePlan, GroupSizes, GroupSizeRelease]):
    """The stored files of one release: the true sizes, and the unpublished histograms.

    The table of histograms identifies levels and areas by their numbers.
    """

    counted_name = "group_sizes"
    table_name = "histograms"

    def counted(self, _plan: GroupSizePlan) -> GroupSizes:
        """Read the true sizes of all groups; see :meth:`StagedTable.counted`."""
        table = pq.read_table(self.path(self.counted_name))
        return GroupSizes(np.array(table["area"]), np.array(table["size"]))

    def counted_table(self, counted: GroupSizes) -> pa.Table:
        """Return a table with the area and size of each group; see :meth:`StagedTable.counted_table`."""
        return pa.table({"area": counted.area, "size": counted.size})

    def table_of(self, release: GroupSizeRelease) -> pa.Table:
        """Return a table of the histogram entries above 0, top level first; see :meth:`StagedTable.table_of`."""
        batches = []
        for level, table in zip(release.frame.levels, release.histograms, strict=True):
            area, size = np.nonzero(table)
            cells = [np.full(len(area), level), area, size, table[area, size]]
            batches.append(pa.record_batch([pa.array(c, f.type) for c, f in zip(cells, _CELLS, strict=True)], _CELLS))
        return pa.Table.from_batches(batches, _CELLS)
