"""Keep the files of a release of trips with stops between its steps, in its confidential folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from od_core.files.durable import write_durably
from od_core.flows.staging import StagedFiles
from od_core.stops.geometry.grid import Grid
from od_core.stops.release import StopsRelease
from od_core.stops.trajectories import Trajectories

_POINTS, _BOXES = "points", "boxes"


class StagedStops(StagedFiles):
    """True cells of the trips, and unpublished boxes, of one release."""

    def save_trips(self, trips: Trajectories) -> None:
        """Keep the cells of all trips, one column per dimension."""
        columns = {f"cell_{i + 1}": trips.points[:, i] for i in range(trips.grid.dimensions)}
        path = self.folder / f"{_POINTS}.parquet"
        write_durably(path, lambda file: pq.write_table(pa.table(columns), file))

    def trips(self, grid: Grid) -> Trajectories:
        """Return the cells of all trips. Raises OdError if they are absent."""
        columns = [np.asarray(column) for column in pq.read_table(self.path(_POINTS)).columns]
        return Trajectories(np.column_stack(columns), grid)

    def save_boxes(self, release: StopsRelease) -> Path:
        """Keep the boxes with their counts as they will be published, and return their file."""
        path = self.folder / f"{_BOXES}.parquet"
        table = pa.Table.from_pandas(release.boxes, preserve_index=False)
        write_durably(path, lambda file: pq.write_table(table, file))
        return path

    def boxes(self) -> pa.Table:
        """Return the boxes as stored. Raises OdError if they are absent."""
        return pq.read_table(self.path(_BOXES))
