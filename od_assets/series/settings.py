"""Describe the settings of a series."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import pandas as pd

from od_assets.project import Project
from od_assets.series.engine import SparkEngine
from od_assets.series.partitions import SeriesPeriods
from od_core import Budget, Geography, PrivacyUnit, ReleasePlan, plan_release
from od_core.errors import OdError
from od_core.flows.bands import Bands
from od_core.flows.mechanisms import Mechanism
from od_core.flows.publishing.kind import FLOWS
from od_core.flows.queries import Segments, measured_levels
from od_core.geography.codes import COORDINATES, name_column
from od_core.geography.flow_tree import TreeOrder
from od_core.geography.geography import BOUNDARY
from od_core.geography.hierarchy import equally_deep
from od_core.ledger.identity import Counted
from od_core.ledger.release_key import ReleaseKey
from od_core.noise.sources import noise_named, refuse_too_wide
from od_core.periods import Period
from od_core.privacy.accounting import text_above
from od_core.privacy.domain import PrivacyDomain
from od_core.privacy.neighbours import Acceptance, Neighbours
from od_core.privacy.plan import Plan, Uncounted
from od_core.publication.columns import Column
from od_core.publication.kind import Kind, TableKind
from od_core.records.formats import RecordColumns, RecordFormat
from od_core.records.segments import Breakdown, counts_unlisted
from od_core.records.zone_lists import ZoneList


@dataclass(frozen=True, eq=False)
class Sides:
    """The public geographies of origins and destinations, with the levels of their lists.

    Attributes:
        origin: geography of the origins.
        other: geography of the destinations; None if they have the areas of the origins.

    Raises:
        OdError: both lists contain the same areas; or as in :func:`od_core.geography.hierarchy.equally_deep`.
    """

    origin: Geography
    other: Geography | None = None

    def __post_init__(self) -> None:
        if self.other is None:
            return
        origin, destination = self.equally_deep
        if origin.digest == destination.digest:
            raise OdError(
                "OD-GEOGRAPHY-SAME",
                "the lists of origins and of destinations hold the same areas",
                next_step="leave destination_geography out, because one list serves both",
            )

    @classmethod
    def listed(cls, lists: Iterable[ZoneList], folder: Path) -> Sides:
        """Read the geographies of one or two zone lists below a folder. Raises OdError if a list is faulty."""
        return _of(*(zones.geography(folder) for zones in lists))

    @property
    def destination(self) -> Geography:
        """Geography of the destinations."""
        return self.origin if self.other is None else self.other

    @cached_property
    def equally_deep(self) -> tuple[Geography, Geography]:
        """Geographies of origins and destinations, with levels added until both have the same number of levels."""
        return equally_deep(self.origin, self.destination)

    @property
    def digest(self) -> str:
        """See :attr:`od_assets.series.settings.PublicList.digest`."""
        both = f"{self.origin.digest} {self.destination.digest}"
        return self.origin.digest if self.other is None else sha256(both.encode()).hexdigest()

    @property
    def area_counts(self) -> dict[str, int]:
        """See :attr:`od_assets.series.settings.PublicList.area_counts`."""
        if self.other is None:
            return self.origin.area_counts
        sides = {"origin": self.origin, "destination": self.other}
        return {f"{side} {level}": n for side, areas in sides.items() for level, n in areas.area_counts.items()}


@lru_cache(maxsize=8)
def _of(origin: Geography, other: Geography | None = None) -> Sides:
    """Return the combined geographies from a cache, because it takes time to make them equally deep."""
    return Sides(origin, other)


class PublicList(Protocol):
    """A checked public list of areas or places, or one list of origins and one of destinations."""

    @property
    def digest(self) -> str:
        """SHA-256 of the whole content."""
        ...

    @property
    def area_counts(self) -> dict[str, int]:
        """Number of areas or places, by level."""
        ...


P = TypeVar("P", bound=Plan)
G = TypeVar("G", bound=PublicList)


@dataclass(frozen=True)
class SeriesSettings(ABC, Generic[P, G]):
    """The checked settings of a release series of any kind, in the terms of od_core.

    Attributes:
        name: name of the release series; prefix of its assets, checks, jobs and schedules.
        project: Dagster project that declares the series.
        periods: periods of the series.
        records: path of the files of records, relative to the project. It contains ``{period}``, unless one file has
            all periods.
        settled_seconds: number of seconds without a change after which a file counts as complete.
        complete: path of the marker of complete records, with ``{period}`` as in ``records``; None without a marker.
        columns: columns of the files; with the user id only for the user units.
        record_format: format of the records in the files.
        budget: budget of one release.
        noise: name of the noise backend.
        revision: revision of the releases.
        domain: privacy domain of the data set that is charged.
        fault_threshold: largest share of the trips that may be faulty.
        accepts_empty: whether a period without a counted record is released.
    """

    name: str
    project: Project
    periods: SeriesPeriods
    records: str
    settled_seconds: int
    complete: str | None
    columns: RecordColumns
    record_format: RecordFormat
    budget: Budget
    noise: str
    revision: int
    domain: PrivacyDomain
    fault_threshold: Fraction
    accepts_empty: bool

    kind: ClassVar[Kind[Any]]
    """Kind of the releases, which defines how they are published after the measurement."""

    @property
    def unit(self) -> PrivacyUnit:
        """Privacy unit of the data set."""
        return self.domain.unit

    @property
    def acceptance(self) -> Acceptance:
        """Rules on which records are counted and which inputs are refused."""
        return Acceptance(self.fault_threshold, bool(self.record_format.categories), not self.accepts_empty)

    def key(self, period: str) -> ReleaseKey:
        """Return the key of the release of a period."""
        return ReleaseKey(self.name, period, self.revision)

    def release_of(self, partition: str) -> ReleaseKey:
        """Return the key of the release of a Dagster partition."""
        return self.key(self.periods.period(partition).text)

    @property
    def reading(self) -> dict[str, Any]:
        """Settings with which the records are read, as a JSON-ready dictionary for the certificate."""
        return self.record_format.facts(self.periods.time_zone) | {"columns": self.columns.facts()}

    @property
    def has_file_of_each(self) -> bool:
        """True if each period has a separate file."""
        return "{period}" in self.records

    @property
    def breakdowns(self) -> tuple[Breakdown, ...]:
        """Breakdowns by which trips are also counted."""
        return ()

    @property
    def records_are_here(self) -> bool:
        """True if this machine reads the files of records. Otherwise Spark reads them where they are stored."""
        return True

    @property
    def takes_nowhere(self) -> bool:
        """True if any geography of the series has an ``unknown`` zone for records without a listed place."""
        return False

    def sides(self, geography: G) -> tuple[Geography, Geography] | tuple[None, None]:
        """Return the geographies of origins and of destinations; (None, None) if places are points of a map."""
        return None, None

    def records_path(self, period: str) -> Path:
        """Return the path of the file with the records of a period."""
        return self.project.root / self.records.format(period=period)

    @property
    def records_source(self) -> str:
        """Path or address of the files of records, which contains ``{period}`` if there is a file of each period."""
        return str(self.project.root / self.records)

    @property
    @abstractmethod
    def listed_sources(self) -> list[str]:
        """Paths of the declared lists of zones or places."""

    def marker_path(self, period: str) -> Path | None:
        """Return the path of the marker that a period's records are complete; None if the series declares none."""
        return None if self.complete is None else self.project.root / self.complete.format(period=period)

    @abstractmethod
    def listed_codes(self, geography: G) -> tuple[Sequence[str], Sequence[str]]:
        """Return the codes allowed for origins and for destinations. Both are the same if there is one list."""

    @abstractmethod
    def read_geography(self) -> G:
        """Read the public geography from the declared lists. Raises OdError if a list is faulty."""

    @abstractmethod
    def kept_lists(self, geography: G) -> dict[str, pd.DataFrame]:
        """Return the lists that the geography asset stores, by file name. A list has one row per zone or place."""

    @abstractmethod
    def kept_geography(self, folder: Path) -> G:
        """Read the geography from the lists that are stored in a folder. Raises OdError if one is missing or faulty."""

    @property
    @abstractmethod
    def listed_columns(self) -> tuple[Column, ...]:
        """Columns of the stored lists of zones or places."""

    @property
    def placing_columns(self) -> list[str]:
        """Names of the columns of the stored lists that decide to which area or place a record counts."""
        return [column.name for column in self.listed_columns]

    def plan(self, geography: G, period: str) -> P:
        """Return the plan of a period over a geography, computed from public data only.

        Periods with as many days have the same plan.

        Raises:
            OdError: the plan is refused; the release alone exceeds the cap of its data set; or the noise is too wide
                for the backend.
        """
        plan = self._plan(geography, Period(period).days)
        allowed, asked = self.domain.cap.allowed_rho(), plan.charge.as_rho
        if asked > allowed:
            raise OdError(
                "OD-LEDGER-CAP",
                f"one release of {self.name} needs rho {text_above(asked)}, which exceeds the cap {text_above(allowed)}"
                f" of data set {self.domain.name!r}",
                next_step="request a smaller budget, or raise the cap and state a reason",
            )
        refuse_too_wide(noise_named(self.noise), (step.largest_variance for step in plan.charged_steps))
        return plan

    @abstractmethod
    def _plan(self, geography: G, days: int) -> P:
        """Return the plan of every period of some days."""


@dataclass(frozen=True)
class TableSettings(SeriesSettings[P, G]):
    """The checked settings of a series whose releases are measured by a single asset and estimated as one table."""

    kind: ClassVar[TableKind[Any, Any, Any]]

    @abstractmethod
    def count(self, records: Path, geography: G, period: str) -> Counted:
        """Confidential: count the staged records. Raises OdError if they are unreadable or too many are faulty."""


@dataclass(frozen=True)
class TreeSettings(SeriesSettings[P, G]):
    """The checked settings of a series over a hierarchy of areas.

    Attributes:
        zones: the zone list. If destinations have a separate list, it is the list of the origins.
    """

    zones: ZoneList

    @property
    def zone_lists(self) -> dict[str, ZoneList]:
        """Declared zone lists, by name of the file in which the geography asset stores the list."""
        return {f"{self.name}.csv": self.zones}

    @property
    def takes_nowhere(self) -> bool:
        """See :attr:`SeriesSettings.takes_nowhere`."""
        return any(zones.has_unknown for zones in self.zone_lists.values())

    @property
    def listed_columns(self) -> tuple[Column, ...]:
        """See :attr:`SeriesSettings.listed_columns`."""
        levels = self.placing_columns
        areas = (Column(level, "string", level, f"Code of the area of level {level}.") for level in levels)
        named = COORDINATES if any(zones.has_coordinates for zones in self.zone_lists.values()) else ()
        degrees = (Column(name, "number", name, "Coordinate of the zone, in degrees.") for name in named)
        named_lists = [zones for zones in self.zone_lists.values() if zones.names]
        names = dict.fromkeys(level for zones in named_lists for level in zones.levels)
        texts = (Column(name_column(level), "string", level, f"Name of the area of level {level}.") for level in names)
        shapes = [Column(BOUNDARY, "string", BOUNDARY, "Boundary of the zone, as WKB in hexadecimal digits.")]
        has_shapes = any(zones.boundaries for zones in self.zone_lists.values())
        return (*areas, *texts, *(shapes if has_shapes else []), *degrees)

    @property
    def placing_columns(self) -> list[str]:
        """See :attr:`SeriesSettings.placing_columns`. The coordinates of zones are for maps only."""
        return list(dict.fromkeys(level for zones in self.zone_lists.values() for level in zones.levels))

    @property
    def listed_sources(self) -> list[str]:
        """See :attr:`SeriesSettings.listed_sources`."""
        return [str(self.project.root / file) for zones in self.zone_lists.values() for file in zones.files]

    @property
    def kept_zone_lists(self) -> list[ZoneList]:
        """Zone lists that read the stored files again, in the order of :attr:`zone_lists`."""
        return [zones.kept_as(file) for file, zones in self.zone_lists.items()]


@dataclass(frozen=True)
class ReleaseSettings(TreeSettings[ReleasePlan, Sides]):
    """The checked settings of a series of flows.

    Attributes:
        destination_zones: the zone list of the destinations; None if one list serves origins and destinations.
        mechanism: mechanism of the releases.
        tree: order in which the flow tree refines origins and destinations.
        intervals: whether flows are published with their intervals.
        assisted: whether model-assisted flows of each period are published, too.
        bands: cuts of the flow tree, for a release that is processed part by part; None if the tree is not cut.
        engine: engine that counts the records and processes the parts; None for the threads of this machine.
        segments: breakdowns by which trips are also counted, with their share of the budget; None if there are none.
        uncounted: how the number of uncounted trips is measured; None if it is not measured.
    """

    destination_zones: ZoneList | None
    mechanism: Mechanism
    tree: TreeOrder
    intervals: bool
    assisted: bool
    bands: Bands | None
    engine: SparkEngine | None
    segments: Segments | None
    uncounted: Uncounted | None

    kind = FLOWS

    @property
    def measured_levels(self) -> list[int]:
        """Levels of the flow tree whose totals are measured, coarse to fine."""
        has_unknown_areas = all(zones.has_unknown for zones in self.zone_lists.values())
        neighbours = Neighbours(self.unit, self.acceptance, has_unknown_areas, counts_unlisted(self.breakdowns))
        return measured_levels(neighbours, self.mechanism, self.depth)

    @property
    def breakdowns(self) -> tuple[Breakdown, ...]:
        """See :attr:`SeriesSettings.breakdowns`."""
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
        """See :attr:`SeriesSettings.records_are_here`."""
        return self.engine is None

    @property
    def records_source(self) -> str:
        """See :attr:`SeriesSettings.records_source`. For an engine, also the name of a table."""
        is_elsewhere = self.engine is not None and ("://" in self.records or "/" not in self.records)
        return self.records if is_elsewhere else super().records_source

    def records_address(self, period: str) -> str:
        """Return the location of a period's records for an engine: an address, a path, or the name of a table."""
        address = self.records.format(period=period)
        return address if "://" in address or "/" not in address else str(self.records_path(period))

    @property
    def engine_name(self) -> str:
        """Name under which Dagster shows the engine that processes the parts."""
        return "numba" if self.engine is None else "spark"

    @property
    def depth(self) -> int:
        """Number of levels of the flow tree below its root."""
        return 2 * max(len(zones.levels) for zones in self.zone_lists.values())

    @property
    def zone_lists(self) -> dict[str, ZoneList]:
        """See :attr:`TreeSettings.zone_lists`. File names cannot clash, because names of series have no dot."""
        others = self.destination_zones
        return super().zone_lists | ({} if others is None else {f"{self.name}.destinations.csv": others})

    def sides(self, geography: Sides) -> tuple[Geography, Geography]:
        """Return both geographies; see :meth:`SeriesSettings.sides`."""
        return geography.origin, geography.destination

    def listed_codes(self, geography: Sides) -> tuple[Sequence[str], Sequence[str]]:
        """Return the zone codes of both geographies; see :meth:`SeriesSettings.listed_codes`."""
        return geography.origin.zones, geography.destination.zones

    def read_geography(self) -> Sides:
        """Read the geographies from the declared lists; see :meth:`SeriesSettings.read_geography`."""
        return Sides.listed(self.zone_lists.values(), self.project.root)

    def kept_lists(self, geography: Sides) -> dict[str, pd.DataFrame]:
        """Return the lists to store; see :meth:`SeriesSettings.kept_lists`."""
        sides = (geography.origin, geography.destination)
        return {file: side.to_frame() for file, side in zip(self.zone_lists, sides, strict=False)}

    def kept_geography(self, folder: Path) -> Sides:
        """Read the geographies from the stored lists; see :meth:`SeriesSettings.kept_geography`."""
        return Sides.listed(self.kept_zone_lists, folder)

    def _plan(self, geography: Sides, days: int) -> ReleasePlan:  # all periods have the same plan
        origin, destination = geography.equally_deep
        return plan_release(
            origin,
            destination_geography=destination,
            unit=self.unit,
            budget=self.budget,
            mechanism=self.mechanism,
            tree=self.tree,
            bands=self.bands,
            acceptance=self.acceptance,
            segments=self.segments,
            uncounted=self.uncounted,
        )
