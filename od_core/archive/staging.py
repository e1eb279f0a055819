"""The files of one release on their way from records to publication, all in its confidential folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from od_core.archive.files import sync, write_durably
from od_core.archive.planned import Planned
from od_core.archive.row_groups import ROWS, write_batches
from od_core.errors import OdError
from od_core.flow_tree import Nodes
from od_core.plan import ReleasePlan, Step
from od_core.trips import TripCounts

_COUNTED_FOR = "counted_for"
_COUNTS = pa.schema([("rank", pa.int64()), ("trips", pa.int64())])
_ESTIMATE = pa.schema([("origin", pa.int32()), ("destination", pa.int32()), ("trips", pa.int64())])


class StagedFiles:
    """What a release of any kind keeps on its way; each file is whole or absent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def records(self) -> Path:
        """The records of the period, as the reader left them."""
        return self.folder / "raw_trips.parquet"

    @property
    def data_docs(self) -> Path:
        """Great Expectations pages about the records."""
        return self.folder / "data_docs"

    def keep_counted(self, plan: Planned, save: Callable[[], None]) -> None:
        """Save what was counted, and remember the plan that it was counted for.

        What was remembered before is forgotten first: a crash in between leaves counts of no plan, which are refused.
        """
        digest = self.folder / _COUNTED_FOR
        if digest.exists():
            digest.unlink()
            sync(self.folder)
        save()
        write_durably(digest, lambda file: file.write_text(plan.digest, encoding="utf-8"))

    def refuse_other_plan(self, plan: Planned) -> None:
        """Refuse what was counted for another plan: its areas may have other numbers. Raises OdError."""
        digest = self.folder / _COUNTED_FOR
        if not digest.exists() or digest.read_text(encoding="utf-8") != plan.digest:
            raise OdError(
                "OD-STAGED-OTHER-PLAN",
                "the records were counted for another geography, or with other settings",
                next_step="run the whole release: it counts them anew",
                spent="what was set aside before stays charged",
            )

    def path(self, name: str) -> Path:
        """The file of that name. Raises OdError where it is absent."""
        path = self.folder / f"{name}.parquet"
        if not path.exists():
            raise OdError(
                "OD-STAGED-FILE-MISSING",
                f"{name} of this release is not there yet, or was removed",
                next_step="run the whole release; stored measurements are read back, nothing is drawn twice",
                spent="what was set aside before stays charged",
            )
        return path


class StagedRelease(StagedFiles):
    """True counts and unpublished estimates of one release of flows.

    An estimate is a function of the measurements, so writing it again changes nothing.
    """

    @property
    def flows(self) -> Path:
        """The leaf table as it will be published."""
        return self.folder / "flows.parquet"

    def save_trip_counts(self, trips: TripCounts) -> None:
        """Keep the true leaf counts, a row group at a time, so that no column is copied whole."""
        ends = [*range(0, len(trips.rank), ROWS), len(trips.rank)]
        batches = (
            pa.record_batch([trips.rank[start:end], np.diff(trips.before[start : end + 1])], schema=_COUNTS)
            for start, end in pairwise(ends)
        )
        path = self.folder / "trip_counts.parquet"
        write_durably(path, lambda file: write_batches(file, _COUNTS, batches, compression="snappy"))

    def trip_counts(self) -> TripCounts:
        """The true leaf counts. Raises OdError where they are absent."""
        with pq.ParquetFile(self.path("trip_counts")) as file:
            pairs = file.metadata.num_rows
            rank, before = np.empty(pairs, dtype=np.int64), np.empty(pairs + 1, dtype=np.int64)
            before[0] = start = 0
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=["rank", "trips"])
                end = start + len(table)
                rank[start:end] = table["rank"].to_numpy()
                before[start + 1 : end + 1] = before[start] + np.cumsum(table["trips"].to_numpy(), dtype=np.int64)
                start = end
        return TripCounts(rank, before)

    def save_estimate(self, level: int, pieces: Iterable[Nodes], *, refined: bool = False) -> Path:
        """Keep an estimate of a level, given in consecutive pieces: area numbers and trips; returns its file.

        Args:
            level: level of the flow tree.
            pieces: its nodes, in tree order.
            refined: whether it is made of all levels (``estimation.refinement``), or of those above it alone.
        """
        batches = (
            pa.record_batch([piece.origin, piece.destination, piece.trips], schema=_ESTIMATE) for piece in pieces
        )
        path = self.folder / f"{_estimate_name(level, refined=refined)}.parquet"
        write_durably(path, lambda file: write_batches(file, _ESTIMATE, batches, compression="snappy"))
        return path

    def estimate_table(self, level: int, *, refined: bool = False) -> pa.Table:
        """The estimate of a level as it stands in its file: origin, destination, trips. Raises OdError if absent."""
        return self._read(_estimate_name(level, refined=refined))

    def estimate(self, level: int, *, refined: bool = False) -> Nodes:
        """The estimate of a level. Raises OdError where it is absent."""
        table = self.estimate_table(level, refined=refined)
        return Nodes(level, *(np.array(table[name]) for name in ("origin", "destination", "trips")))

    def nodes_above(self, plan: ReleasePlan, step: Step) -> Nodes | None:
        """The estimated nodes below which a step measures; None for the root's. Raises OdError if absent."""
        above = plan.level_above(step)
        return None if above is None else self.estimate(above)

    def _read(self, name: str) -> pa.Table:
        return pq.read_table(self.path(name))


def _estimate_name(level: int, *, refined: bool) -> str:
    return f"refined_{level}" if refined else f"estimate_{level}"
