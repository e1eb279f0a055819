"""Keep the files of a group-size table between its steps, in its confidential folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from od_core.files.durable import write_durably
from od_core.flows.staging import StagedFiles
from od_core.group_sizes.groups import Counts, Frame, GroupSizes

_GROUPS, _HISTOGRAMS = "group_sizes", "histograms"
_CELLS = pa.schema([("level", pa.int32()), ("area", pa.int32()), ("size", pa.int64()), ("groups", pa.int64())])


class StagedGroupSizes(StagedFiles):
    """True sizes and unpublished histograms of one release."""

    def save_groups(self, groups: GroupSizes) -> None:
        """Keep the true sizes."""
        table = pa.table({"area": groups.area, "size": groups.size})
        write_durably(self.folder / f"{_GROUPS}.parquet", lambda file: pq.write_table(table, file))

    def groups(self) -> GroupSizes:
        """Return the true sizes. Raises OdError if they are absent."""
        table = pq.read_table(self.path(_GROUPS))
        return GroupSizes(np.array(table["area"]), np.array(table["size"]))

    def save_histograms(self, frame: Frame, histograms: Sequence[Counts]) -> Path:
        """Keep the histograms of all levels, given top first, and return their file."""
        batches = []
        for level, table in zip(frame.levels, histograms, strict=True):
            area, size = np.nonzero(table)
            cells = [np.full(len(area), level), area, size, table[area, size]]
            batches.append(pa.record_batch([pa.array(c, f.type) for c, f in zip(cells, _CELLS, strict=True)], _CELLS))
        path = self.folder / f"{_HISTOGRAMS}.parquet"
        write_durably(path, lambda file: pq.write_table(pa.Table.from_batches(batches, _CELLS), file))
        return path

    def histogram_table(self) -> pa.Table:
        """Return the histograms as stored: level, area (numbers), size, groups. Raises OdError if they are absent."""
        return pq.read_table(self.path(_HISTOGRAMS))

    def histograms(self, frame: Frame) -> list[Counts]:
        """Return the histograms of all levels, top first; shape (areas, K + 1) each. Raises OdError if absent."""
        table = self.histogram_table()
        cells = {name: np.asarray(table[name]) for name in _CELLS.names}
        tables = []
        for level in frame.levels:
            histograms = np.zeros((frame.geography.size(level), frame.top_code + 1), dtype=np.int64)
            here = cells["level"] == level
            histograms[cells["area"][here], cells["size"][here]] = cells["groups"][here]
            tables.append(histograms)
        return tables
