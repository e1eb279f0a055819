"""Declare a series of flows, or of counts by one hierarchy, its breakdowns, and the engine that processes its parts."""

from __future__ import annotations

import datetime
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, reduce
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from pydantic import Field

from od_assets.series.records import Records
from od_assets.series.section import Number, Section
from od_assets.series.series import OptionValue, ReleaseBounds, TreeSeries, Zones
from od_core import Budget, Geography, Neighbours, OdError, PrivacyDomain, ReleasePlan, Uncounted, plan_release
from od_core.flows.bands import PART_TRIPS, Bands
from od_core.flows.known_totals import KnownTotals, Side
from od_core.flows.mechanisms import MECHANISMS, Mechanism
from od_core.flows.publishing.kind import FLOWS
from od_core.flows.step import Segments, list_measured_levels, parse_area_total_share
from od_core.geography.codes import WHOLE_SPACE
from od_core.geography.flow_tree import TreeOrder, compute_level_pair, equalise_depths, repeat_level_names
from od_core.geography.possible_pairs import PossiblePairs
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.user_counters import UserCounters
from od_core.meaning.features import list_given_options
from od_core.records.counting import CountOptions, count_records_in_memory
from od_core.records.counts import TripCounts
from od_core.records.formats import PointColumns, RecordColumns, RecordFormat
from od_core.records.segments import (
    Breakdown,
    Derivation,
    SegmentSource,
    check_sources,
    has_unknown_categories,
    make_breakdowns,
)
from od_core.records.zone_lists import ZoneList, read_zones
from od_core.registry import refuse_unknown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Spark(Section):
    """A Spark cluster that counts the records where they are stored and processes the parts."""

    address: str | None = None
    submit: list[str] = Field(default_factory=list)
    settings: dict[str, str] = Field(default_factory=dict)
    store: str | None = None

    def find_or_open_spark_session(self, confidential: ConfidentialFolder) -> SparkSession:
        """Return the Spark session for this section, which the first call in a process opens.

        Its files are below the folder ``confidential``. See ``open_session`` in ``od_core.spark.session``.
        """
        from od_core.spark.session import open_session

        if repr(self) not in _SESSIONS:
            folder = confidential.make_subfolder("spark")
            session = _OPENED_SESSIONS.enter_context(open_session(self.address or "", folder, self.settings))
            use_spark_session(self, session)
        return _SESSIONS[repr(self)]


_SESSIONS: dict[str, SparkSession] = {}
"""Sessions of this process, by the text of their section."""

_OPENED_SESSIONS = ExitStack()
"""Sessions that this process opened and must close, unlike those that it was given."""


def use_spark_session(engine: Spark, session: SparkSession) -> None:
    """Make the steps of this process use an existing Spark session for an engine."""
    _SESSIONS[repr(engine)] = session


@contextmanager
def close_spark_sessions_on_exit() -> Iterator[None]:
    """Forget all Spark sessions when this context ends, and close those that this process opened."""
    try:
        yield
    finally:
        _SESSIONS.clear()
        _OPENED_SESSIONS.close()


class SegmentSection(Section):
    """A breakdown: public categories, such as modes of transport, by which every trip is also counted."""

    column: str | None = None
    derive: str = "text"
    lookup: dict[str, str] = Field({})
    breaks: list[int | float] = Field([])
    bands: list[str] = Field([])
    categories: list[str] | None = None
    unknown: str | None = None

    def to_segment_source(self, name: str) -> SegmentSource:
        """Return the source of the categories of the breakdown ``name``, which is also its column unless one is stated.

        Raises OdError if the options of the section do not fit each other.
        """
        column = name if self.column is None else self.column
        derive = cast(Derivation, self.derive)  # SegmentSource checks it
        return SegmentSource(name, column, derive, tuple(self.lookup.items()), tuple(self.breaks), tuple(self.bands))

    def list_categories(self, name: str) -> tuple[str, ...]:
        """Return the declared categories of the breakdown ``name``.

        By default, they are those that its source gives, if any, and the category of unlisted records. Raises OdError
        as :meth:`to_segment_source` does.
        """
        if self.categories is not None:
            return tuple(self.categories)
        categories = self.to_segment_source(name).given or ()
        return categories if self.unknown is None or self.unknown in categories else (*categories, self.unknown)


class Columns(Section):
    """Columns of the files of records. The reader defines the defaults (origin and destination for reader table).

    Two columns of one place are its longitude and latitude; a list of one column is one of points, as WKT or WKB.
    """

    origin: str | list[str] | None = None
    destination: str | list[str] | None = None
    date: str | None = None
    trips: str | None = None
    weight: str | None = None

    def to_record_columns(self, form: RecordFormat) -> RecordColumns:
        """Return the columns of records of a format, with the names of this section."""
        return form.rename_columns(
            origin=parse_place(self.origin),
            destination=parse_place(self.destination),
            **self.model_dump(exclude={"origin", "destination"}),
        )


def parse_place(stated: str | list[str] | None) -> str | PointColumns | None:
    """Return the column of a place's codes or, for a list, the columns of its coordinates; None if none is stated.

    Raises OdError if a list has not one or two columns.
    """
    return PointColumns(tuple(stated)) if isinstance(stated, list) else stated


class Trips(Records):
    """Location and format of the confidential records."""

    columns: Columns = Field(default_factory=Columns)


class CountColumns(Section):
    """Columns of the files of records of one hierarchy. The default of `area` is that name, or the reader's origin."""

    area: str | list[str] | None = None
    date: str | None = None
    count: str | None = None
    weight: str | None = None

    def to_record_columns(self, form: RecordFormat) -> RecordColumns:
        """Return the columns of records of a format, with the names of this section and without destinations."""
        area = parse_place(self.area) or ("area" if form.container == "named" else None)
        columns = form.rename_columns(origin=area, date=self.date, trips=self.count, weight=self.weight)
        return replace(columns, destination=None)


class CountedRecords(Records):
    """Location and format of the confidential records, each of which has one code of the hierarchy."""

    columns: CountColumns = Field(default_factory=CountColumns)


class FlowPrivacy(Section):
    """Budget of one release: (epsilon, delta); rho with the delta at which epsilon is stated; or epsilon alone."""

    epsilon: Number | None = None
    rho: Number | None = None
    delta: Number = 0
    conversion: str | None = None
    shares: str | list[Number] | dict[str, list[str] | dict[str, Number]] | None = None

    @property
    def budget(self) -> Budget:
        """Budget of one release. Raises OdError if a number is out of range."""
        return Budget(self.epsilon, self.delta, rho=self.rho, conversion=self.conversion, shares=self.shares)


ESTIMATES = ("least_squares", "auto")
"""Presets of ``estimate``. The other estimates of :class:`InfTDARefined` are rules among which ``auto`` chooses."""


class BandsSection(Section):
    """Cuts of the flow tree. Levels below the first cut are processed part by part, which takes little memory."""

    cuts: list[int]
    part_trips: int = PART_TRIPS


class AreaTotalsSection(Section):
    """The measurement of the trips that begin, and that end, in each zone, beside the flow tree."""

    share: Number


class PossibleSection(Section):
    """The pairs of zones that can have trips: those that a public file lists, and that a rule does not exclude."""

    pairs: str | None = None
    within_zone: bool = True
    distance_km: list[int | float] | None = None

    def read_pairs(self, origins: Geography, destinations: Geography, folder: Path) -> PossiblePairs:
        """Return the pairs that meet all declared conditions. The path ``pairs`` is relative to ``folder``.

        Raises OdError if the file cannot be read, or the pairs or the distances do not fit the zones.
        """
        if self.distance_km is not None and len(self.distance_km) != 2:
            message = "possible.distance_km is not two distances"
            raise OdError("OD-POSSIBLE-PAIRS", message, next_step="give the least and the largest one, as [1, 300]")
        distances = None if self.distance_km is None else (self.distance_km[0], self.distance_km[1])
        conditions = []
        if self.pairs is not None:
            conditions.append(PossiblePairs.from_frame(read_zones(folder / self.pairs), origins, destinations))
        if distances is not None or not self.within_zone or not conditions:
            rule = PossiblePairs.from_rule(origins, destinations, within_zone=self.within_zone, distance_km=distances)
            conditions.append(rule)
        return reduce(PossiblePairs.intersect, conditions)


class KnownTotalsSection(Section):
    """The numbers of trips from or to each zone that are public beforehand, from registers or gates."""

    file: str
    level: str
    side: Side
    error: Number
    source: str | None = None
    date: str | datetime.date = ""

    def name_file(self, period: str) -> str:
        """Return the name of the file of a period."""
        return self.file.replace("{period}", period)

    def read_totals(self, sides: Sides, folder: Path, period: str) -> KnownTotals:
        """Return the totals of a period. ``file`` is a path relative to ``folder``; its name is the default source.

        Raises OdError as :meth:`od_core.KnownTotals.from_frame` does, or if the file cannot be read.
        """
        file = folder / self.name_file(period)
        return KnownTotals.from_frame(
            read_zones(file),
            sides.destination if self.side == "destination" else sides.origin,
            side=self.side,
            error=self.error,
            level=self.level,
            source=file.name if self.source is None else self.source,
            date=str(self.date),
        )


class UncountedSection(Section):
    """The measurement of the number of trips that the bounds of a unit of a year leave out."""

    share: Number
    max_trips: int


@dataclass(frozen=True, eq=False)
class Sides:
    """The public geographies of origins and destinations; ``other`` is None if one list serves both.

    For counts by one hierarchy, ``other`` is the whole space, which has no list.

    Raises:
        OdError: two lists contain the same areas; or as in :func:`equalise_depths`.
    """

    origin: Geography
    other: Geography | None = None

    def __post_init__(self) -> None:
        if self.other is not None and len({side.digest for side in equalise_depths(self.origin, self.other)}) == 1:
            message = "the lists of origins and of destinations hold the same areas"
            step = "leave destination_geography out, because one list serves both"
            raise OdError("OD-GEOGRAPHY-SAME", message, next_step=step)

    @property
    def destination(self) -> Geography:
        """Geography of the destinations."""
        return self.other or self.origin

    @property
    def has_one_list(self) -> bool:
        """Whether there is one list of areas."""
        return not (self.other and self.other.levels)

    @property
    def digest(self) -> str:
        """Digest of the geography; if there are two lists, SHA-256 of both digests."""
        digests = f"{self.origin.digest} {self.destination.digest}"
        return self.origin.digest if self.has_one_list else sha256(digests.encode()).hexdigest()

    @property
    def area_counts(self) -> dict[str, int]:
        """Number of areas by level, of both sides if there are two lists."""
        if self.has_one_list:
            return self.origin.area_counts
        of_origins = {f"origin {level}": number for level, number in self.origin.area_counts.items()}
        of_destinations = {f"destination {level}": number for level, number in self.destination.area_counts.items()}
        return of_origins | of_destinations


class FlowSeries(TreeSeries[ReleasePlan, Sides]):
    """A series of flows, or of counts by one hierarchy, as a project declares it."""

    trips: Trips | CountedRecords
    bounds: ReleaseBounds = ReleaseBounds()
    privacy: FlowPrivacy  # type: ignore[assignment]  # also epsilon and delta, or rho
    stated_mechanism: str = Field("inftda_refined", alias="mechanism")
    estimate: str | None = None
    mechanism_options: dict[str, OptionValue] = Field({})
    intervals: bool = True
    assisted: bool = False
    stated_bands: BandsSection | None = Field(None, alias="bands")
    stated_segments: dict[str, SegmentSection] = Field({}, alias="segments")
    segment_share: Number | None = None
    stated_uncounted: UncountedSection | None = Field(None, alias="uncounted")
    stated_engine: str = Field("threads", alias="engine")
    spark: Spark | None = None

    kind = FLOWS
    checked_table: ClassVar[str] = "flows"
    _checked_properties: ClassVar[tuple[str, ...]] = ("segments", "mechanism", "bands", "uncounted", "engine")

    @cached_property
    def domain(self) -> PrivacyDomain:
        """Privacy domain of the data set, which is charged, with the bounds of these releases."""
        return self._data_set.to_privacy_domain(self.bounds)

    @cached_property
    def columns(self) -> RecordColumns:
        """Columns of the files of records. Raises OdError if other declarations do not fit them.

        Such a declaration is that a row is one trip, the largest weight, or the lack of boundaries in which to locate
        points.
        """
        columns = self.trips.columns.to_record_columns(self.record_format)
        if self.trips.one_row_a_trip and not columns.counts_rows:
            message = f"one_row_a_trip: true is declared, but {columns.row}"
            raise OdError("OD-TRIPS-ROWS", message, next_step="remove the wrong declaration")
        if (columns.weight is None) != (self.bounds.max_weight is None):
            both = "weight and bounds.max_weight, the largest number of trips that a record counts"
            message = f"records with weights need both columns: {both}"
            raise OdError("OD-TRIPS-WEIGHTS", message, next_step="add the missing one, or remove the other")
        if columns.has_points and any(zones.levels[-1] not in zones.boundaries for zones in self.zone_lists.values()):
            message = "records with coordinates need the boundaries of the zones, and geography states none"
            raise OdError("OD-CONFIG", message, next_step="add geography.boundaries of the last level")
        return replace(columns, user=self.unit.column, segments=() if self.segments is None else self._sources)

    @property
    def _sources(self) -> tuple[SegmentSource, ...]:
        """Where the categories of each breakdown are read from."""
        return tuple(section.to_segment_source(name) for name, section in self.stated_segments.items())

    @cached_property
    def segments(self) -> Segments | None:
        """Breakdowns by which trips are also counted, with their share of the budget; None if there are none.

        Raises OdError if a breakdown or the share is not valid, or the source of a breakdown does not give its
        categories.
        """
        categories, category_of_unlisted = dict[str, tuple[str, ...]](), dict[str, str]()
        for name, section in self.stated_segments.items():
            categories[name] = section.list_categories(name)
            if section.unknown is not None:
                category_of_unlisted[name] = section.unknown
        segments = Segments.of(make_breakdowns(categories, category_of_unlisted), self.segment_share)
        check_sources(self._sources, () if segments is None else segments.breakdowns)
        return segments

    @property
    def bands(self) -> Bands | None:
        """Cuts of the flow tree, for a release that is processed part by part; None if the tree is not cut."""
        section = self.stated_bands
        return None if section is None else Bands(tuple(section.cuts), section.part_trips)

    @property
    def uncounted(self) -> Uncounted | None:
        """How the number of uncounted trips is measured; None if it is not measured."""
        if self.stated_uncounted is None:
            return None
        uncounted = Uncounted(self.stated_uncounted.share, self.stated_uncounted.max_trips)
        uncounted.check(self.unit)
        return uncounted

    @cached_property
    def engine(self) -> Spark | None:
        """Engine that counts the records and processes the parts; None for the threads of this machine."""
        engines = ("threads", "spark")
        refuse_unknown("engine", self.stated_engine, engines, code="OD-ENGINE", next_step="choose threads or spark")
        if (self.stated_engine == "spark") != (self.spark is not None):
            message = "engine: spark needs the section spark:, and that section needs engine: spark"
            raise OdError("OD-ENGINE", message, next_step="give both, or neither")
        if self.spark is None:
            return None
        if (self.spark.address is None) == (not self.spark.submit):
            message = "Spark needs either an address or spark-submit"
            raise OdError("OD-ENGINE", message, next_step="declare one of address and submit")
        if self.record_format.computed:
            message = f"reader {self.trips.reader!r} computes columns of its files, and Spark reads tables as they are"
            raise OdError("OD-ENGINE", message, next_step="leave out the engine, or the reader and name the columns")
        return self.spark

    @cached_property
    def mechanism(self) -> Mechanism:
        """Mechanism of the releases. Raises OdError if it lacks the estimate or an option that is declared."""
        options = dict(self.mechanism_options)
        unread = sorted(options.keys() & {"estimate", "leaves", "u"})  # options of the class that no declaration sets
        if unread:
            message = f"mechanism_options.{unread[0]} is not declared: auto chooses among the rules of estimation"
            step = "declare estimate: auto or estimate: least_squares beside mechanism"
            raise OdError("OD-MECHANISM-OPTION", message, next_step=step)
        if self.estimate is not None:
            step = "choose least_squares or auto"
            refuse_unknown("estimate", self.estimate, ESTIMATES, code="OD-MECHANISM-OPTION", next_step=step)
            options["estimate"] = self.estimate
        return MECHANISMS.make(self.stated_mechanism, **options)

    @property
    def features(self) -> frozenset[str]:
        """Names of the declared options; of flows, also those of the mechanism, breakdowns, bands and the engine."""
        declared = list_given_options(
            segments=self.segments,
            uncounted=self.uncounted,
            bands=self.bands,
            intervals=self.intervals,
            assisted=self.assisted,
            spark=self.engine,
        )
        return super().features | self.mechanism.features | declared

    @property
    def measured_levels(self) -> list[int]:
        """Levels of the flow tree whose totals are measured, coarse to fine."""
        has_unknown_areas = all(zones.has_unknown for zones in self.zone_lists.values())
        neighbours = Neighbours(self.unit, self.acceptance, has_unknown_areas, has_unknown_categories(self.breakdowns))
        return list_measured_levels(neighbours, self.mechanism, self.depth)

    def measurement_key(self, level: int) -> list[str]:
        """Return the asset key of a level's noisy measurement. Dagster's graph shows only the last part of the key."""
        return [*self.path, "levels", f"noisy_measurement_{self._pad_level(level)}"]

    def estimate_key(self, level: int) -> list[str]:
        """Return the asset key of a level's estimate."""
        return [*self.path, "levels", f"estimate_{self._pad_level(level)}"]

    @property
    def area_total_keys(self) -> dict[int, list[str]]:
        """Asset keys of the measurements of area totals, by side; by default, none, as they are not measured."""
        return {}

    def _pad_level(self, level: int) -> str:
        """Return the number of a level padded with zeros, because Dagster sorts names as text."""
        return str(level).zfill(len(str(self.depth)))

    @property
    def checked_estimates(self) -> list[tuple[list[str], Sequence[int]]]:
        """Key of each asset with checked estimates, and its levels: one for each level, or one for all refined ones."""
        if self.mechanism.refines:
            return [(self.released_key, range(self.depth + 1))]
        return [(self.estimate_key(level), [level]) for level in self.estimated_levels]

    @property
    def states_intervals(self) -> bool:
        """Whether releases are published with their intervals, which can be declined."""
        return self.intervals

    @property
    def released_key(self) -> list[str]:
        """Asset key of the estimate whose leaves are published: refined, or of the leaf level."""
        return [*self.path, "refined_flows"] if self.mechanism.refines else self.estimate_key(self.depth)

    @property
    def breakdowns(self) -> tuple[Breakdown, ...]:
        """Breakdowns by which trips are also counted."""
        return () if self.segments is None else self.segments.breakdowns

    @property
    def measurement_levels(self) -> list[int]:
        """Levels that have a measurement, coarse to fine: with segments, also the root if its total is exact."""
        levels = self.measured_levels
        return levels if self.segments is None or levels[0] == 0 else [0, *levels]

    @property
    def level_bands(self) -> list[list[int]]:
        """Measured levels of each band, coarse to fine; a single band if the tree is not cut."""
        levels = self.measured_levels
        return [levels] if self.bands is None else [levels[band] for band in self.bands.split(levels)]

    @property
    def estimated_levels(self) -> list[int]:
        """Measured levels with an estimate before refinement: not the leaves, if they are refined in bands."""
        left_out = self.depth if self.bands is not None and self.mechanism.refines else None
        return [level for level in self.measured_levels if level != left_out]

    @property
    def records_are_here(self) -> bool:
        """True if this machine reads the files of records, and not Spark where they are stored."""
        return self.engine is None

    def locate_records_source(self, period: str) -> str:
        """Return the location of a period's records: a path or, for Spark, also an address or the name of a table."""
        address = self.trips.files.format(period=period)
        is_path = self.engine is None or ("://" not in address and "/" in address)
        return super().locate_records_source(period) if is_path else address

    @property
    @abstractmethod
    def depth(self) -> int:
        """Number of levels of the flow tree below its root."""

    def format_level(self, level: int) -> str:
        """Return a level of the flow tree with its name, such as ``2 (state)``; for pairs, ``3 (state x region)``."""
        return f"{level} ({(WHOLE_SPACE, *self.geography.levels)[level]})"

    def split_sides(self, geography: Sides) -> tuple[Geography, Geography]:
        """Return the geographies of origins and of destinations, which are one if there is one list."""
        return geography.origin, geography.destination

    def describe_geography(self, geography: Sides, describe: Callable[[Geography], Geography]) -> Sides:
        """Return both geographies, each with the descriptions that a function adds to its areas."""
        return Sides(describe(geography.origin), None if geography.other is None else describe(geography.other))

    def list_allowed_codes(self, geography: Sides) -> tuple[Sequence[str], Sequence[str]]:
        """Return the zone codes of both geographies, which are allowed for origins and for destinations."""
        return geography.origin.zones, geography.destination.zones

    def count(self, records: Path, geography: Sides, period: str, *of_users: Any) -> TripCounts:
        """Confidential: count the staged records in memory. A run counts into files instead, with the same options.

        Raises OdError as :meth:`Series.count` does.
        """
        tree = self.plan_without_cap(geography, period).tree
        return count_records_in_memory(records, tree, period=period, **self.make_count_options(*of_users))

    def make_count_options(self, confidential: ConfidentialFolder, counters: UserCounters | None) -> CountOptions:
        """Return the options with which records are counted, in memory, into files or by Spark."""
        return {
            "unit": self.unit,
            "key": confidential.read_or_make_key(),
            "fault_threshold": self.fault_threshold,
            "breakdowns": self.breakdowns,
            "counters": counters,
        }

    def plan_without_cap(self, geography: Sides, period: str) -> ReleasePlan:
        """Return the plan of a period, also if it exceeds the cap. Raises OdError if the plan is refused.

        All periods have the same plan, except with known totals of the period.
        """
        return plan_release(
            geography.origin,
            destination_geography=geography.other,
            **self._make_two_sided_options(geography, period),
            unit=self.unit,
            budget=self.privacy.budget,
            mechanism=self.mechanism,
            bands=self.bands,
            acceptance=self.acceptance,
            segments=self.segments,
            uncounted=self.uncounted,
        )

    def _make_two_sided_options(self, _geography: Sides, _period: str) -> dict[str, Any]:
        """Return the options of the plan that a table of origins and destinations alone has; by default, none."""
        return {}


class TripSeries(FlowSeries):
    """A series of origin-destination tables, as a project declares it."""

    trips: Trips
    table = "flows"
    destination_geography: Zones | None = None
    tree: TreeOrder = "destination"
    stated_area_totals: AreaTotalsSection | None = Field(None, alias="area_totals")
    possible: PossibleSection | None = None
    known: KnownTotalsSection | list[KnownTotalsSection] | None = None

    _checked_properties: ClassVar[tuple[str, ...]] = (*FlowSeries._checked_properties, "area_totals")

    @property
    def area_totals(self) -> Fraction | None:
        """Share of the budget for the trips from and to each zone; None if they are not measured beside the tree."""
        if self.stated_area_totals is None:
            return None
        return parse_area_total_share(self.stated_area_totals.share)

    @property
    def features(self) -> frozenset[str]:
        """Names of the declared options; of tables of trips, also area totals and coordinates."""
        has_coordinates = all(zones.has_coordinates for zones in self.zone_lists.values())
        given = {
            "area_totals": self.area_totals,
            "both_sides": self.tree == "both",
            "coordinates": has_coordinates,
            "possible": self.possible,
            "known": self.known,
        }
        return super().features | list_given_options(**given)

    @property
    def area_total_keys(self) -> dict[int, list[str]]:
        """Asset keys of the measurements of area totals, by side: 0 for the trips from each zone, 1 for those to it.

        With a single level of zones, the flow tree itself measures the side that it refines first.
        """
        if self.area_totals is None:
            return {}
        sides = [side for side in ("origin", "destination") if self.depth > 2 or side != self.tree]
        return {("origin", "destination").index(side): [*self.path, f"area_totals_{side}"] for side in sides}

    @property
    def depth(self) -> int:
        """Number of levels of the flow tree below its root."""
        deepest = max(len(zones.levels) for zones in self.zone_lists.values())
        return deepest if self.tree == "both" else 2 * deepest

    def format_level(self, level: int) -> str:
        """Return a level of the flow tree with the names of its two levels of areas, such as ``3 (state x region)``."""
        declared = [zones.levels for zones in self.zone_lists.values()]
        deepest = max(map(len, declared))
        names_by_side = [(WHOLE_SPACE, *repeat_level_names(levels, deepest - len(levels))) for levels in declared]
        origin_names, destination_names = names_by_side[0], names_by_side[-1]  # of the same list if there is one
        origin, destination = compute_level_pair(level, self.tree)
        return f"{level} ({origin_names[origin]} x {destination_names[destination]})"

    @property
    def zone_lists(self) -> dict[str, ZoneList]:
        """The declared lists of zones, by name of the file in which the geography asset stores each: one or two.

        File names cannot clash, because names of series have no dot.
        """
        destinations = self.destination_geography
        if destinations is None:
            return super().zone_lists
        return super().zone_lists | {f"{self.name}.destinations.csv": destinations.zone_list}

    def _read_geography_lists(self, lists: Sequence[ZoneList], folder: Path) -> Sides:
        return Sides(*(zones.read_geography(folder) for zones in lists))

    def _make_two_sided_options(self, geography: Sides, period: str) -> dict[str, Any]:
        options: dict[str, Any] = {"tree": self.tree, "area_totals": self.area_totals}
        if self.possible is not None:
            options["possible"] = self.possible.read_pairs(geography.origin, geography.destination, self.project.root)
        if self.known is not None:
            sections = self._known_totals
            options["known"] = [section.read_totals(geography, self.project.root, period) for section in sections]
        return options

    def name_plan_files(self, period: str) -> tuple[str, ...]:
        """Return the names of the files of the known totals of a period."""
        return tuple(section.name_file(period) for section in self._known_totals)

    @property
    def _known_totals(self) -> list[KnownTotalsSection]:
        """The declared known totals of both sides."""
        if self.known is None:
            return []
        return self.known if isinstance(self.known, list) else [self.known]


class CountSeries(FlowSeries):
    """A series of counts by one hierarchy, as a project declares it."""

    trips: CountedRecords
    table = "counts"

    @property
    def depth(self) -> int:
        """Number of levels of the hierarchy."""
        return len(self.geography.levels)

    def _read_geography_lists(self, lists: Sequence[ZoneList], folder: Path) -> Sides:
        return Sides(lists[0].read_geography(folder), Geography.whole())
