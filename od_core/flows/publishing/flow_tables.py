"""Compute the flows of a release at every pair of levels once, name their files, and write Parquet and CSV."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import product
from typing import BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from od_core.files.table_writers import write_rows
from od_core.flows.distance_bands import distance_bands
from od_core.flows.distances import has_distances
from od_core.flows.indicators import indicators
from od_core.flows.release import Release, measured_cells, measured_segments
from od_core.flows.released_flows import ReleasedFlows
from od_core.flows.step import SegmentStep
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography
from od_core.publication.certificate import Certificate
from od_core.publication.columns import (
    DISTANCE,
    FLOWS,
    FLOWS_WITH_INTERVALS,
    MOST_LISTED,
    PAIR_FLOWS,
    PAIR_FLOWS_WITH_INTERVALS,
    Table,
    distance_band_table,
    indicator_table,
)
from od_core.records.segments import Breakdown

_FLOWS_SCHEMA = pa.schema(
    [
        *((name, pa.large_string()) for name in ("origin_level", "destination_level", "origin", "destination")),
        *((name, pa.int64()) for name in ("trips", "lower", "upper")),
        (DISTANCE.name, pa.float64()),
    ]
)

FIRST_WITH_INDICATORS = 3
"""First format of bundles of flows that have indicators of areas."""

FIRST_WITH_DISTANCES = 4
"""First format of bundles of flows that have distances, and the balance among the indicators."""

FIRST_FOR_TOOLS = 5
"""First format of bundles of flows that have what other tools look for: numbers of zones and ``NA`` in OpenMatrix
files, a spatial index in the GeoPackage, names of areas beside their boundaries, and their structure as SDMX-ML."""

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
"""Pattern of level names that are valid in a file name on every operating system."""


def pair_names(tree: FlowTree, breakdowns: Sequence[Breakdown] = ()) -> dict[tuple[int, int], str]:
    """Return the name of the files of each pair of level numbers, without the extension, such as ``flows_state_state``.

    All names have the numbers of the levels instead, such as ``flows_3_3``, if the name of a level is not valid in a
    file name on every operating system or if two files would have the same name, including those of
    :func:`segment_name` for the breakdowns.
    """
    origins, destinations = tree.origin.level_names, tree.destination.level_names
    names = {
        (o_level, d_level): f"flows_{origin}_{destination}"
        for o_level, origin in enumerate(origins)
        for d_level, destination in enumerate(destinations)
    }
    plain = all(_PLAIN.fullmatch(name) for name in (*origins, *destinations))
    files = [*names.values(), *(segment_name(name, one) for name in names.values() for one in breakdowns)]
    if plain and len({name.casefold() for name in files}) == len(files):
        return names
    return {pair: f"flows_{pair[0]}_{pair[1]}" for pair in names}


def segment_name(pair: str, breakdown: Breakdown) -> str:
    """Return the name of the file of a pair of levels by a breakdown, given the name of the files of the pair."""
    return f"{pair}_by_{breakdown.name}"


@dataclass(frozen=True)
class LevelPair:
    """The flows of one pair of levels: all trips, or the trips in each category of a breakdown.

    Attributes:
        origin_level, destination_level: Numbers of the levels.
        flows: Table of flows with the columns of :meth:`od_core.flows.release.Release.flows_at`.
    """

    origin_level: int
    destination_level: int
    flows: pd.DataFrame

    @cached_property
    def columns(self) -> dict[str, pa.ChunkedArray]:
        """The columns of ``flows`` in Arrow, by name, converted once. They share their memory with ``flows``."""
        table = pa.Table.from_pandas(self.flows, preserve_index=False)
        return dict(zip(table.column_names, table.columns, strict=True))

    def write_csv(self, file: BinaryIO) -> None:
        """Write these flows as one CSV table (RFC 4180) in UTF-8."""
        write_rows(file, pa.table(self.columns), header=True)


@dataclass(frozen=True)
class FlowTables:
    """The flows of a release at every pair of levels, in ascending order of the levels.

    Attributes:
        interval: Whether the tables have the interval of each flow.
        format: Format of the bundle that the tables are for.
    """

    release: ReleasedFlows
    interval: bool
    format: int

    @classmethod
    def of(cls, release: ReleasedFlows, certificate: Certificate) -> FlowTables:
        """Return the tables of a release, with intervals if its certificate states a confidence of intervals.

        Every call returns the same object, so that files, report and database share what is computed.
        """
        facts = certificate.get("interval") is not None, certificate.get("bundle_format", 1)
        return release.once((cls, *facts), lambda: cls(release, *facts))

    @property
    def distance(self) -> bool:
        """Whether the tables have distances: if zones have coordinates, since ``FIRST_WITH_DISTANCES``."""
        return self.format >= FIRST_WITH_DISTANCES and has_distances(self.tree)

    @property
    def for_tools(self) -> bool:
        """Whether the files have what other tools look for, since ``FIRST_FOR_TOOLS``."""
        return self.format >= FIRST_FOR_TOOLS

    @cached_property
    def indicators(self) -> pa.Table:
        """Indicators of all areas, computed once; see :func:`od_core.flows.indicators.indicators`."""
        frame = indicators(self.release, interval=self.interval)
        return _arrow(frame[[column.name for column in self.indicator_table.columns]])

    @cached_property
    def distance_bands(self) -> pa.Table:
        """Trips by distance, computed once; see :func:`od_core.flows.distance_bands.distance_bands`.

        They are those of all areas or, if there are more than ``MOST_LISTED`` pairs of zones, of the whole space.
        """
        tree = self.tree
        levels = None if tree.cells(tree.depth) <= MOST_LISTED else [tree.origin.level_names[0]]
        return _arrow(distance_bands(self.release, levels, interval=self.interval))

    @property
    def tree(self) -> FlowTree:
        """The flow tree of the release."""
        return self.release.tree

    @cached_property
    def pairs(self) -> list[LevelPair]:
        """Flows at every pair of levels, computed once. Pairs are sorted by origin level and then destination level."""
        return self._pairs(self.pair)

    @cached_property
    def pair(self) -> Callable[[int, int], LevelPair]:
        """Function that returns the flows at one pair of levels, given their numbers. They are computed once."""
        return cache(partial(self._at_levels, None))

    @cached_property
    def segments(self) -> dict[str, list[LevelPair]]:
        """The same by the categories of each breakdown, by its name; empty if there are no breakdowns."""
        return {one.name: self._pairs(partial(self._at_levels, one.name)) for one in self.breakdowns}

    @property
    def breakdowns(self) -> tuple[Breakdown, ...]:
        """The breakdowns of the release."""
        return tuple(self.release.breakdowns)

    def _pairs(self, at_levels: Callable[[int, int], LevelPair]) -> list[LevelPair]:
        levels = (range(len(side.level_names)) for side in (self.tree.origin, self.tree.destination))
        return [at_levels(*pair) for pair in product(*levels)]

    def _at_levels(self, segment: str | None, o_level: int, d_level: int) -> LevelPair:
        distance = segment is None and self.distance
        names = self.tree.origin.level_names[o_level], self.tree.destination.level_names[d_level]
        flows = self.release.flows_at(*names, segment=segment, interval=self.interval, distance=distance)
        return LevelPair(o_level, d_level, flows)

    @cached_property
    def table(self) -> Table:
        """Definition of the table with the flows at every pair of levels."""
        return self._of_flows(FLOWS_WITH_INTERVALS if self.interval else FLOWS)

    @cached_property
    def pair_table(self) -> Table:
        """Definition of the table with the flows at one pair of levels."""
        return self._of_flows(PAIR_FLOWS_WITH_INTERVALS if self.interval else PAIR_FLOWS)

    def _of_flows(self, table: Table) -> Table:
        """Return the definition of a table of flows as these tables have it."""
        signed = self._signed(table)
        return replace(signed, columns=(*signed.columns, DISTANCE)) if self.distance else signed

    @property
    def indicator_table(self) -> Table:
        """Definition of the table of indicators."""
        table = indicator_table(interval=self.interval, distance=self.distance)
        if self.format < FIRST_WITH_DISTANCES:
            table = replace(table, columns=tuple(one for one in table.columns if not one.name.startswith("balance")))
        return self._signed(table)

    @property
    def distance_band_table(self) -> Table:
        """Definition of the table of trips by distance."""
        return self._signed(distance_band_table(interval=self.interval))

    def _signed(self, table: Table) -> Table:
        """Return a table without the minimum of its numbers if they may be negative."""
        if not self.release.may_be_negative:
            return table
        return replace(table, columns=tuple(replace(column, minimum=None) for column in table.columns))

    def tables(self) -> Iterator[pa.Table]:
        """Yield one table per pair of levels: two columns with the names of the levels, then those of its flows."""
        for pair in self.pairs:
            yield pa.table(self.level_columns(pair) | pair.columns)

    def level_columns(self, pair: LevelPair) -> dict[str, pa.Array]:
        """Return two columns with the names of the levels of a pair, which are the same in every row."""
        levels = {
            "origin_level": self.tree.origin.level_names[pair.origin_level],
            "destination_level": self.tree.destination.level_names[pair.destination_level],
        }
        return {name: repeated(level, len(pair.flows)) for name, level in levels.items()}

    def write_parquet(self, file: BinaryIO) -> None:
        """Write the flows at all pairs of levels as one Parquet table. Every call writes the same bytes.

        Each pair of levels has row groups of its own.
        """
        schema = pa.schema([_FLOWS_SCHEMA.field(column.name) for column in self.table.columns])
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for table in self.tables():
                writer.write_table(table.cast(schema))

    def write_csv(self, file: BinaryIO) -> None:
        """Write the flows at all pairs of levels as one CSV table (RFC 4180) in UTF-8, for bundles of format 1."""
        for number, table in enumerate(self.tables()):
            write_rows(file, table, header=number == 0)


def _arrow(frame: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)


def repeated(text: str, rows: int) -> pa.Array:
    """Return a column with the same text in every row."""
    return pa.repeat(pa.scalar(text, pa.large_string()), rows)


def labelled(tree: FlowTree, flows: pd.DataFrame, levels: tuple[int, int] | None = None) -> pd.DataFrame:
    """Return a table of flows for people: with the labels of areas in place of their codes.

    Args:
        tree: the flow tree of the flows.
        flows: a table with the columns ``origin`` and ``destination``.
        levels: numbers of the levels of origins and of destinations; those of the zones by default.
    """
    origin_level, destination_level = levels or (tree.origin.depth, tree.destination.depth)
    origins, destinations = labels_at(tree.origin, origin_level), labels_at(tree.destination, destination_level)
    return flows.assign(origin=flows["origin"].map(origins), destination=flows["destination"].map(destinations))


def labels_at(geography: Geography, level: int) -> dict[str, str]:
    """Return the labels of the areas of a level by their codes."""
    return dict(zip(geography.codes[level], geography.labels[level], strict=True))


def with_names(tree: FlowTree, flows: pa.Table, levels: tuple[int, int], separator: str) -> pa.Table:
    """Return a table of flows with a column of the names of each side whose areas have names, such as ``origin_name``.

    Args:
        tree: the flow tree of the flows.
        flows: a table with the columns ``origin`` and ``destination``.
        levels: numbers of the levels of origins and of destinations.
        separator: text between the side and ``name`` in the names of the columns.
    """
    for side, geography, level in zip(("origin", "destination"), (tree.origin, tree.destination), levels, strict=True):
        if geography.names is not None:
            named = dict(zip(geography.codes[level], geography.names[level], strict=True))
            names = pa.array(map(named.__getitem__, flows[side].to_pylist()), pa.string())
            flows = flows.append_column(f"{side}{separator}name", names)
    return flows


def largest(trips: NDArray[np.int64], most: int) -> NDArray[np.intp]:
    """Return the positions of the ``most`` largest numbers, largest first; equal numbers keep their order."""
    places = np.arange(len(trips))
    if len(trips) > most:
        least = np.partition(trips, len(trips) - most)[len(trips) - most]
        above = np.flatnonzero(trips > least)
        places = np.sort(np.concatenate([above, np.flatnonzero(trips == least)[: most - len(above)]]))
    return places[np.argsort(-trips[places], kind="stable")]


def at_an_end(flows: pd.DataFrame) -> int:
    """Return how many flows equal exactly one end of their interval; see ``docs/explanation/uncertainty.md``."""
    return int((flows[["lower", "upper"]].eq(flows["trips"], axis="index").sum(axis="columns") == 1).sum())


def flows_table(release: Release) -> pa.Table:
    """Return the flows between zones as an Arrow table: origin, destination (zone codes), trips."""
    return pa.Table.from_pandas(release.flows, preserve_index=False).replace_schema_metadata(None)


def measurement_batches(release: Release) -> Iterator[pa.RecordBatch]:
    """Yield the measured totals as record batches with ``MEASUREMENT_SCHEMA``, top level first, in tree order."""
    for measurement in release.measured:
        if not measurement.step.by_segment:
            yield from measured_cells(release.plan, measurement)


def segment_measurement_batches(release: Release) -> Iterator[pa.RecordBatch]:
    """Yield the cells measured by category as batches with ``SEGMENT_MEASUREMENT_SCHEMA``, in the order of the plan."""
    for measurement in release.measured:
        if isinstance(measurement.step, SegmentStep):
            yield from measured_segments(release.plan, measurement, measurement.step.breakdown)
