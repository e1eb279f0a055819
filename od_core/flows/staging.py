"""Store the true counts and the estimates of a release of flows between the steps of the release."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from od_core.files.durable import write_durably
from od_core.files.table_writers import write_batches
from od_core.flows.arrays import Integers
from od_core.flows.plan import ReleasePlan
from od_core.geography.flow_tree import Nodes
from od_core.ledger.object_store import LocalStore, Store
from od_core.ledger.staged_files import StagedFiles, make_missing_file_error
from od_core.privacy.plan import GaussianStep
from od_core.records.counts import CountFiles
from od_core.records.segments import Breakdown

_COUNTS = "trip_counts"
"""Folder in the store of the folders of true counts."""

_CURRENT = "current_trip_counts"
"""File with the name of the folder of the current counts."""

_BEGUN = "begun_trip_counts"
"""File with the names of all folders of counts that may exist, one per line."""

_ATTEMPT = "attempt.json"
"""File with the facts of the attempt to run a release in parts."""

_ESTIMATE = pa.schema([("origin", pa.int32()), ("destination", pa.int32()), ("trips", pa.int64())])
"""Columns of an estimate: area numbers and estimated trips, one row per node."""


class StagedRelease(StagedFiles):
    """Staged files of one release of flows: its true counts and its unpublished estimates.

    An estimate is a function of the measurements, so an estimate that is written again has the same content.
    """

    def __init__(self, folder: Path, store: Store | None = None) -> None:
        super().__init__(folder)
        self.store: Store = LocalStore(folder) if store is None else store
        """Store of the true counts and of all files of a release in parts. It is the folder of the release, or storage
        that all workers can access."""

    @property
    def flows(self) -> Path:
        """Path of the table of flows between zones that will be published."""
        return self.folder / "flows.parquet"

    def begin_trip_counts(self) -> str:
        """Return the name of a new folder in the store for true leaf counts, and remove all but the current counts.

        The name is recorded first. So if these counts are never saved, the next call removes them.
        """
        current = self._read_current_counts()
        self._remove_other_counts(current)
        name = f"{_COUNTS}/{secrets.token_hex(6)}"
        begun = name if current is None else f"{current}\n{name}"
        write_durably(self.folder / _BEGUN, lambda file: file.write_text(begun, encoding="utf-8"))
        return name

    def save_trip_counts(self, trips: CountFiles) -> None:
        """Record the counts in the folder of :meth:`begin_trip_counts` as the current ones, and remove all others."""
        before = self._read_current_counts()
        write_durably(self.folder / _CURRENT, lambda file: file.write_text(trips.folder, encoding="utf-8"))
        if before not in (None, trips.folder):
            self.store.remove(str(before))
        self._remove_other_counts(trips.folder)

    def open_trip_counts(self) -> CountFiles:
        """Return the current true leaf counts. Raises OdError if no counts were saved."""
        current = self._read_current_counts()
        if current is None:
            raise make_missing_file_error(_COUNTS)
        return CountFiles(self.store, current)

    def _read_current_counts(self) -> str | None:
        """Return the folder of the current counts in the store; None if no counts were saved."""
        path = self.folder / _CURRENT
        return path.read_text(encoding="utf-8") if path.exists() else None

    def _remove_other_counts(self, current: str | None) -> None:
        """Remove all stored counts except those with the name ``current``."""
        begun = self.folder / _BEGUN
        if not begun.exists():
            return
        for name in begun.read_text(encoding="utf-8").split():
            if name != current:
                self.store.remove(name)

    def save_estimate(self, level: int, pieces: Iterable[Nodes], *, refined: bool = False) -> Path:
        """Write the estimate of a level, in consecutive pieces, to a Parquet file, and return the path of the file.

        A ``refined`` estimate uses all levels; otherwise, it uses this level and the levels above.
        """
        batches = (
            pa.record_batch([piece.origin, piece.destination, piece.trips], schema=_ESTIMATE) for piece in pieces
        )
        path = self.folder / f"{_name_estimate(level, refined=refined)}.parquet"
        write_durably(path, lambda file: write_batches(file, _ESTIMATE, batches, compression="snappy"))
        return path

    def save_attempt(self, facts: Mapping[str, str]) -> None:
        """Store the facts of :meth:`od_core.flows.parts.Work.facts`, by which later steps find the parts."""
        write_durably(self.folder / _ATTEMPT, lambda file: file.write_text(json.dumps(dict(facts)), encoding="utf-8"))

    def read_attempt(self) -> dict[str, str]:
        """Return the facts that :meth:`save_attempt` stored. Raises OdError if no facts were stored."""
        if not (self.folder / _ATTEMPT).exists():
            raise make_missing_file_error(_ATTEMPT)
        facts: dict[str, str] = json.loads((self.folder / _ATTEMPT).read_text(encoding="utf-8"))
        return facts

    def locate_estimate(self, level: int, *, refined: bool = False) -> Path:
        """Return the path of an estimate of :meth:`save_estimate`. Raises OdError if the file is absent."""
        return self.locate_file(_name_estimate(level, refined=refined))

    def read_estimate_table(self, level: int, *, refined: bool = False) -> pa.Table:
        """Return an estimate as a table: origin, destination (area numbers), trips. Raises OdError if it is absent."""
        return pq.read_table(self.locate_estimate(level, refined=refined))

    def read_estimate(self, level: int, *, refined: bool = False) -> Nodes:
        """Return an estimate of :meth:`save_estimate` as nodes. Raises OdError if the file is absent."""
        table = self.read_estimate_table(level, refined=refined)
        return Nodes(level, *(np.array(table[name]) for name in ("origin", "destination", "trips")))

    def save_segments(self, breakdown: Breakdown, pieces: Iterable[tuple[Nodes, Integers]]) -> Path:
        """Write the released trips by category to a Parquet file, and return its path.

        The pieces have the released leaves in tree order, and their trips in each category; shape (leaves, categories).
        """
        categories = range(len(breakdown.categories))
        schema = pa.schema([*list(_ESTIMATE)[:2], *((str(category), pa.int64()) for category in categories)])
        batches = (
            pa.record_batch([leaves.origin, leaves.destination, *trips.T], schema=schema) for leaves, trips in pieces
        )
        path = self.folder / f"segments_{breakdown.name}.parquet"
        write_durably(path, lambda file: write_batches(file, schema, batches, compression="snappy"))
        return path

    def read_segments_by_category(self, breakdown: Breakdown) -> pa.Table:
        """Return the released trips with one row per leaf and category. Raises OdError if the file is absent.

        The columns are origin, destination (area numbers), category (its position in the breakdown) and trips.
        """
        wide = self._read_wide_segments(breakdown)
        tables = []
        for position in range(len(breakdown.categories)):
            category = np.full(len(wide), position)
            columns = {"origin": wide["origin"], "destination": wide["destination"], "category": category}
            tables.append(pa.table(columns | {"trips": wide[str(position)]}))
        return pa.concat_tables(tables)

    def read_segments(self, plan: ReleasePlan) -> dict[str, Integers]:
        """Return the trips of the released leaves in each category, by breakdown; shape (leaves, categories).

        Raises OdError if a file is absent.
        """
        segments = {}
        for breakdown in plan.breakdowns:
            wide = self._read_wide_segments(breakdown)
            segments[breakdown.name] = np.column_stack([trips.to_numpy() for trips in wide.columns[2:]])
        return segments

    def read_published_root(self, plan: ReleasePlan) -> Nodes | None:
        """Return the stored root with the exact number of trips; None if the plan does not publish it exactly."""
        return self.read_estimate(0) if plan.publishes_total else None

    def read_nodes_above(self, plan: ReleasePlan, step: GaussianStep) -> Nodes | None:
        """Return the estimated nodes whose children a step measures; None if it has no level above.

        Raises OdError if the estimate of the level above is absent.
        """
        above = None if step.level == 0 else plan.find_level_above(step)
        return None if above is None else self.read_estimate(above)

    def _read_wide_segments(self, breakdown: Breakdown) -> pa.Table:
        """Return the table of :meth:`save_segments`, with a column for each category. Raises OdError without one."""
        return pq.read_table(self.locate_file(f"segments_{breakdown.name}"))


def _name_estimate(level: int, *, refined: bool) -> str:
    """Return the name of the file of an estimate, without its suffix."""
    return f"refined_{level}" if refined else f"estimate_{level}"
