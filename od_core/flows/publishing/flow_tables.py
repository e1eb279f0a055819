"""Compute the flows of a release at every pair of levels once, name their files, and write Parquet and CSV."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from od_core.files.table_writers import write_csv_rows
from od_core.flows.indicators import distance_bands, indicators
from od_core.flows.interval_ends import choose_reliability_words
from od_core.flows.release import MEASUREMENT_SCHEMA, SEGMENT_MEASUREMENT_SCHEMA, Release, iterate_measured_cells
from od_core.flows.released_flows import ReleasedFlows
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography
from od_core.geography.places import has_distances
from od_core.meaning.subject import Nouns, Subject
from od_core.privacy.plan import GaussianStep, with_fields
from od_core.publication.certificate import (
    FIRST_WITH_SUBJECT,
    Certificate,
    has_intervals,
    is_selected,
    read_bundle_format,
    read_subject,
)
from od_core.publication.columns import MOST_LISTED, RELIABILITY, Table, make_public_table
from od_core.publication.tables import make_table_schema
from od_core.records.segments import Breakdown

FLOWS_SCHEMA = make_table_schema(make_public_table("flows", interval=True, distance=True))
SEGMENTS_SCHEMA = make_table_schema(make_public_table("segments", interval=True))
"""Columns of the flows at every pair of levels, and by category, some of which a release may lack."""

FIRST_WITH_INDICATORS = 3
"""First format of bundles of flows that have indicators of areas."""

FIRST_WITH_DISTANCES = 4
"""First format of bundles of flows that have distances, and the balance among the indicators."""

FIRST_FOR_TOOLS = 5
"""First format of bundles of flows that have what other tools look for: numbers of zones and ``NA`` in OpenMatrix
files, a spatial index in the GeoPackage, names of areas beside their boundaries, and their structure as SDMX-ML."""

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
"""Pattern of level names that are valid in a file name on every operating system."""

_MAX_FILE_NAME_LENGTH = 251
"""Most characters of the name of a file without its extension, such as ``.csv``: file systems allow 255 with it."""


def name_pair_files(tree: FlowTree, breakdowns: Sequence[Breakdown] = ()) -> dict[tuple[int, int], str]:
    """Return the name of the files of each pair of level numbers, without the extension, such as ``flows_state_state``.

    All names have the numbers of the levels instead, such as ``flows_3_3``, if the name of a level is not valid in a
    file name on every operating system, if two files would have the same name, or if one is too long, including those
    by a breakdown. Counts by one hierarchy have one level, such as ``counts_state``.
    """
    origins, destinations = tree.origin.level_names, tree.destination.level_names
    form = "counts_{}" if tree.has_one_side else "flows_{}_{}"
    names = {
        (origin_level, destination_level): form.format(origin, destination)
        for origin_level, origin in enumerate(origins)
        for destination_level, destination in enumerate(destinations)
    }
    files = [*names.values(), *(f"{name}_by_{breakdown.name}" for name in names.values() for breakdown in breakdowns)]
    are_valid = all(_PLAIN.fullmatch(name) for name in (*origins, *destinations))
    are_unique = len({name.casefold() for name in files}) == len(files)
    are_short = max(map(len, files)) <= _MAX_FILE_NAME_LENGTH
    if are_valid and are_unique and are_short:
        return names
    return {levels: form.format(*levels) for levels in names}


@dataclass(frozen=True, eq=False)
class LevelPair:
    """The flows at one pair of levels: all trips or, with ``breakdown``, the trips in each of its categories.

    Attributes:
        tables: the tables of the release.
        levels: numbers of the origin level and of the destination level.
        breakdown: the breakdown; None for all trips.
    """

    tables: FlowTables
    levels: tuple[int, int]
    breakdown: Breakdown | None = None

    @cached_property
    def level_names(self) -> tuple[str, str]:
        """Names of the level of the origins and of the level of the destinations."""
        tree, (origin, destination) = self.tables.tree, self.levels
        return tree.origin.level_names[origin], tree.destination.level_names[destination]

    @property
    def name(self) -> str:
        """Name of the files of these flows, without the extension."""
        name = self.tables.file_names[self.levels]
        return name if self.breakdown is None else f"{name}_by_{self.breakdown.name}"

    @property
    def title(self) -> str:
        """Description of the files of these flows, for people."""
        nouns = self.tables.nouns
        title = f"{nouns.cells.capitalize()} {nouns.format_levels(*self.level_names)}"
        return title if self.breakdown is None else f"{title} by {self.breakdown.name}"

    @property
    def shape(self) -> tuple[int, int]:
        """Number of areas of the origin level, and of the destination level."""
        return self.tables.tree.origin.size(self.levels[0]), self.tables.tree.destination.size(self.levels[1])

    @property
    def cells(self) -> int:
        """Number of public pairs of areas, times the categories of the breakdown."""
        return math.prod(self.shape) * (1 if self.breakdown is None else len(self.breakdown.categories))

    @cached_property
    def flows(self) -> pd.DataFrame:
        """The flows with the columns of :meth:`od_core.flows.release.Release.flows_at`, computed once."""
        return self.tables.release.flows_at(
            *self.level_names,
            segment=None if self.breakdown is None else self.breakdown.name,
            interval=self.tables.interval,
            distance=self.tables.distance,
        )

    @cached_property
    def columns(self) -> dict[str, pa.ChunkedArray]:
        """The columns of ``flows`` in Arrow, by name, converted once. They share their memory with ``flows``."""
        table = pa.Table.from_pandas(self.flows, preserve_index=False)
        return dict(zip(table.column_names, table.columns, strict=True))

    def make_table(self, schema: pa.Schema) -> pa.Table:
        """Return the flows with the columns of a schema, in its order, except those that these flows lack.

        Further columns than those of ``flows`` are the names of the two levels, a word on reliability and, by category,
        the name of the breakdown. The column of the categories has the name ``category``.
        """
        constants = {f"{side}_level": level for side, level in zip(self.tables.sides, self.level_names, strict=True)}
        if self.breakdown is not None:
            constants["breakdown"] = self.breakdown.name
        columns = {name: repeat_text(text, len(self.flows)) for name, text in constants.items()}
        for name, column in self.columns.items():
            is_category = self.breakdown is not None and name == self.breakdown.name
            columns["category" if is_category else name] = column
        if RELIABILITY.name in schema.names and self.tables.has_reliability:
            words = choose_reliability_words(*(self.flows[name].to_numpy() for name in ("trips", "lower", "upper")))
            columns[RELIABILITY.name] = pa.chunked_array([pa.array(words, pa.string())])
        fields = pa.schema([field for field in schema if field.name in columns])
        return pa.table(columns).select(fields.names).cast(fields)

    def write_csv(self, file: BinaryIO) -> None:
        """Write these flows as one CSV table (RFC 4180) in UTF-8."""
        write_csv_rows(file, adapt_count_columns(self.tables.tree, pa.table(self.columns)), header=True)


@dataclass(frozen=True)
class FlowTables:
    """The flows of a release at every pair of levels, as the files of its bundle have them.

    Attributes:
        release: the release, or derived flows.
        interval: whether the files have the interval of each flow.
        format: number of the bundle format, on which columns and files depend.
        subject: what is counted, and the nouns for it.
    """

    release: ReleasedFlows
    interval: bool
    format: int
    subject: Subject

    @classmethod
    def from_release(cls, release: ReleasedFlows, certificate: Certificate) -> FlowTables:
        """Return the tables of a release, with intervals if its certificate states a confidence of intervals.

        Every call returns the same object, so that files, report and database share what is computed.
        """
        facts = has_intervals(certificate), read_bundle_format(certificate), read_subject(certificate)
        return release.compute_once(
            (cls, *facts), lambda: cls(with_fields(release, selected=is_selected(certificate)), *facts)
        )

    @property
    def distance(self) -> bool:
        """True if the tables have distances: zones have coordinates, and the format is one with distances."""
        return self.format >= FIRST_WITH_DISTANCES and has_distances(self.tree)

    @property
    def has_reliability(self) -> bool:
        """True if flows have a word on their reliability: they have intervals, and these allow for selection."""
        return self.interval and self.release.selected

    @property
    def has_indicators(self) -> bool:
        """True if there are indicators: both sides have the same areas, and the format is one with indicators."""
        return self.format >= FIRST_WITH_INDICATORS and self.release.tree.same_geography

    @property
    def nouns(self) -> Nouns:
        """The nouns with which the files speak of these flows."""
        return self.subject.nouns

    @property
    def for_tools(self) -> bool:
        """True if the format is one whose files have what other tools look for; see ``FIRST_FOR_TOOLS``."""
        return self.format >= FIRST_FOR_TOOLS

    @cached_property
    def indicator_rows(self) -> pd.DataFrame:
        """Indicators of all areas, computed once; see :func:`od_core.flows.indicators.indicators`."""
        return indicators(self.release, interval=self.interval, by_totals=self.format < FIRST_WITH_SUBJECT)

    @cached_property
    def indicators(self) -> pa.Table:
        """The indicators with the columns that the bundle has."""
        return _convert_to_arrow(
            self.indicator_rows[[column.name for column in self.make_table_definition("indicators").columns]]
        )

    @cached_property
    def distance_bands(self) -> pa.Table:
        """Trips by distance, computed once; see :func:`od_core.flows.indicators.distance_bands`.

        There is a distribution for each area or, if there are more than ``MOST_LISTED`` pairs of zones, only one for
        all areas together.
        """
        tree = self.tree
        levels = None if tree.cells(tree.depth) <= MOST_LISTED else [tree.origin.level_names[0]]
        return _convert_to_arrow(distance_bands(self.release, levels, interval=self.interval))

    @cached_property
    def tree(self) -> FlowTree:
        """The flow tree of the release."""
        return self.release.tree

    @property
    def sides(self) -> dict[str, Geography]:
        """The geographies of the origins and of the destinations, by ``origin`` and ``destination``."""
        return {"origin": self.tree.origin, "destination": self.tree.destination}

    @property
    def geographies(self) -> list[Geography]:
        """The geographies of both sides; one if they are the same."""
        return list({side.digest: side for side in self.sides.values()}.values())

    @property
    def breakdowns(self) -> tuple[Breakdown, ...]:
        """The breakdowns of the release."""
        return tuple(self.release.breakdowns)

    @cached_property
    def file_names(self) -> dict[tuple[int, int], str]:
        """Names of the files of each pair of level numbers; see :func:`name_pair_files`."""
        return name_pair_files(self.tree, self.breakdowns)

    @cached_property
    def pairs(self) -> list[LevelPair]:
        """Flows at every pair of levels. Pairs are sorted by origin level and then destination level."""
        return [LevelPair(self, levels) for levels in self.file_names]

    @cached_property
    def segments(self) -> dict[str, list[LevelPair]]:
        """Flows by category at every pair of levels, by name of the breakdown; in the order of :attr:`pairs`."""
        return {
            breakdown.name: [LevelPair(self, levels, breakdown) for levels in self.file_names]
            for breakdown in self.breakdowns
        }

    def make_table_definition(self, key: str) -> Table:
        """Return the definition of a table, by its key in ``tables.yaml``, with the columns that these flows have.

        Counts by one hierarchy have ``pair_counts`` in place of ``pair_flows``. Columns that the format or the release
        lacks are left out: the balance and the reliability. If trips may be negative, columns of trips and of the ends
        of intervals have no minimum.
        """
        key = "pair_counts" if key == "pair_flows" and not self.nouns.has_pairs else key
        table = make_public_table(key, self.nouns, interval=self.interval, distance=self.distance)
        columns = table.columns
        if self.format < FIRST_WITH_DISTANCES:
            columns = tuple(column for column in columns if not column.name.startswith("balance"))
        if not self.has_reliability:
            columns = tuple(column for column in columns if column.name != RELIABILITY.name)
        if self.release.may_be_negative:
            columns = tuple(
                replace(column, minimum=None) if column.unit == self.nouns.counted else column for column in columns
            )
        return replace(table, columns=columns)

    def write_csv(self, file: BinaryIO) -> None:
        """Write the flows at all pairs of levels as one CSV table (RFC 4180) in UTF-8, for bundles of format 1."""
        for number, pair in enumerate(self.pairs):
            write_csv_rows(file, pair.make_table(FLOWS_SCHEMA), header=number == 0)


def write_parquet_pairs(pairs: Iterable[LevelPair], schema: pa.Schema, file: BinaryIO) -> None:
    """Write the flows of pairs of levels as one Parquet table, in which each has row groups of its own."""
    tables = (pair.make_table(schema) for pair in pairs)
    first_table = next(tables)
    with pq.ParquetWriter(file, first_table.schema, compression="zstd") as writer:
        for table in chain([first_table], tables):
            writer.write_table(table)


def _convert_to_arrow(frame: pd.DataFrame) -> pa.Table:
    """Return a table as an Arrow table without the metadata of pandas."""
    return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)


def repeat_text(text: str, rows: int) -> pa.Array:
    """Return a column with the same text in every row, which is stored once."""
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int8()), rows), pa.array([text], pa.large_string()))


def label_areas(tree: FlowTree, flows: pd.DataFrame, levels: tuple[int, int] | None = None) -> pd.DataFrame:
    """Return a table of flows with the labels of areas in place of their codes.

    ``levels`` are the numbers of the levels of origins and of destinations; those of the zones by default.
    """
    origin_level, destination_level = levels or (tree.origin.depth, tree.destination.depth)
    origins = index_labels_by_code(tree.origin, origin_level)
    destinations = index_labels_by_code(tree.destination, destination_level)
    return flows.assign(origin=flows["origin"].map(origins), destination=flows["destination"].map(destinations))


def index_labels_by_code(geography: Geography, level: int) -> dict[str, str]:
    """Return the labels of the areas of a level by their codes."""
    return dict(zip(geography.codes[level], geography.labels[level], strict=True))


def add_area_names(tree: FlowTree, flows: pa.Table, levels: tuple[int, int], separator: str) -> pa.Table:
    """Return a table of flows with the names of the areas, such as ``origin_name``, for each side that has names.

    ``levels`` are the numbers of the levels of ``flows``. ``separator`` is between the side and ``name``.
    """
    for side, geography, level in zip(("origin", "destination"), (tree.origin, tree.destination), levels, strict=True):
        if geography.names is not None:
            names_by_code = dict(zip(geography.codes[level], geography.names[level], strict=True))
            names = pa.array([names_by_code[code] for code in flows[side].to_pylist()], pa.string())
            flows = flows.append_column(f"{side}{separator}name", names)
    return flows


def adapt_count_columns(tree: FlowTree, flows: pa.Table) -> pa.Table:
    """Return a table of flows; if it is of counts by one hierarchy, with the columns of counts.

    Counts have no destination, and ``area`` and ``count`` in place of ``origin`` and ``trips``.
    """
    if not tree.has_one_side:
        return flows
    names = {"origin": "area", "origin name": "area name", "origin_name": "area_name", "trips": "count"}
    return flows.rename_columns([names.get(name, name) for name in flows.column_names]).drop_columns("destination")


def find_largest_positions(trips: NDArray[np.int64], most: int) -> NDArray[np.intp]:
    """Return the positions of the ``most`` largest numbers, largest first; equal numbers keep their order."""
    return np.argsort(-trips, kind="stable")[:most]


def make_flows_table(release: Release) -> pa.Table:
    """Return the flows between zones as an Arrow table: origin, destination (zone codes), trips."""
    return _convert_to_arrow(release.flows)


def make_known_totals_table(release: Release) -> pa.Table:
    """Return the known totals of the zones, one row per zone and side, as the table ``known_totals`` defines them.

    The standard deviation is that of their stated error.
    """
    rows: list[dict[str, object]] = []
    for totals in release.plan.known:
        zones = (release.tree.origin, release.tree.destination)[totals.number].zones
        totals_of_zones = zip(zones, totals.trips.tolist(), totals.deviations.tolist(), strict=True)
        for zone, known, deviation in totals_of_zones:
            rows.append({"side": totals.side, "area": zone, "known": known, "standard_deviation": deviation})
    return pa.Table.from_pylist(rows, make_table_schema(make_public_table("known_totals")))


def make_measurement_reader(release: Release, *, by_segment: bool) -> pa.RecordBatchReader:
    """Return the noisy counts of the totals or, with ``by_segment``, by category, in the order of the plan and tree.

    The rows are computed when they are read; see :func:`od_core.flows.release.iterate_measured_cells`.
    """
    measurements = (measurement for measurement in release.measured if measurement.step.by_segment == by_segment)
    batches = (batch for measurement in measurements for batch in iterate_measured_cells(release.plan, measurement))
    return pa.RecordBatchReader.from_batches(SEGMENT_MEASUREMENT_SCHEMA if by_segment else MEASUREMENT_SCHEMA, batches)


def list_level_errors(release: Release, breakdown: str = "") -> list[dict[str, object]]:
    """Return a row for each level of the flow tree, and then of the area totals, with the noise and the expected error.

    The rows are of the totals or, with ``breakdown``, of one of its categories, for which there are no area totals.

    Returns:
        The keys are level, origin_level, destination_level (names), public_pairs (number of public cells), noise
        (standard deviation in trips; None where nothing was measured) and error (expected root-mean-square error in
        trips; NaN if the mechanism has a threshold).
    """
    plan = release.plan
    steps: Sequence[GaussianStep] = [step for step in plan.steps if not step.by_segment]
    errors = plan.expected_errors
    if breakdown:
        steps, errors = plan.segment_steps(breakdown), plan.expected_segment_errors(breakdown)
    noise_of_levels = {step.level: float(step.variance) ** 0.5 for step in steps}
    rows = [
        (level, *names, plan.tree.cells(level), noise_of_levels.get(level), error)
        for level, (names, error) in enumerate(zip(release.levels, errors, strict=True))
    ]
    for step in () if breakdown else plan.area_total_steps:
        noise_of_areas = float(step.variance) ** 0.5
        error_of_areas = plan.bound_area_total_variance(step) ** 0.5
        cells = plan.count_public_cells(step)
        rows.append((step.level, *plan.level_names(step), cells, noise_of_areas, error_of_areas))
    keys = ("level", "origin_level", "destination_level", "public_pairs", "noise", "error")
    return [dict(zip(keys, row, strict=True)) for row in rows]
