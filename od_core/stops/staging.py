"""Store the cells of the trips and the boxes of a release of trips with stops between the steps of the release."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from od_core.ledger.staged_files import StagedTable
from od_core.stops.plan import StopsPlan
from od_core.stops.release import StopsRelease
from od_core.stops.trajectories import Trajectories


class StagedStops(StagedTable[StopsPlan, Trajectories, StopsRelease]):
    """The stored files of one release: the true cells of the trips, and the unpublished boxes."""

    counted_name = "points"
    table_name = "boxes"

    def counted(self, plan: StopsPlan) -> Trajectories:
        """Read the cells of all trips, and return them as :class:`Trajectories`; see :meth:`StagedTable.counted`."""
        columns = [np.asarray(column) for column in pq.read_table(self.path(self.counted_name)).columns]
        return Trajectories(np.column_stack(columns), plan.grid)

    def counted_table(self, counted: Trajectories) -> pa.Table:
        """Return a table with one row per trip, one column per dimension; see :meth:`StagedTable.counted_table`."""
        return pa.table({f"cell_{i + 1}": counted.points[:, i] for i in range(counted.grid.dimensions)})

    def table_of(self, release: StopsRelease) -> pa.Table:
        """Return the table of boxes and counts of a release; see :meth:`StagedTable.table_of`."""
        return pa.Table.from_pandas(release.boxes, preserve_index=False)
