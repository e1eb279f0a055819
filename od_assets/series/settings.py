"""One declared release series, in the terms of od_core."""

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

from od_assets.project import project_root
from od_assets.series.engine import SparkEngine
from od_assets.series.partitions import SeriesPeriods
from od_core import Budget, Geography, PrivacyUnit, ReleasePlan, plan_release
from od_core.errors import OdError
from od_core.flows.bands import Bands
from od_core.flows.mechanisms import Mechanism
from od_core.flows.plan import measured_levels
from od_core.flows.publishing.kind import FLOWS
from od_core.geography.align import equally_deep
from od_core.geography.codes import COORDINATES
from od_core.geography.flow_tree import TreeOrder
from od_core.ledger.protocols import Planned
from od_core.ledger.release_key import ReleaseKey
from od_core.noise.sources import noise_named, refuse_too_wide
from od_core.privacy.domain import PrivacyDomain
from od_core.privacy.neighbours import Acceptance, Neighbours
from od_core.publication.columns import Column
from od_core.publication.kind import Kind
from od_core.records.format import RecordColumns, RecordFormat
from od_core.records.zone_lists import ZoneList

# The two sides of a release of flows: the areas that trips come from, and those that they go to.


@dataclass(frozen=True, eq=False)
class Sides:
    """The public geographies of origins and of destinations, as their lists have them.

    Attributes:
        origin: of the origins.
        other: of the destinations, or None where they have the areas of the origins.
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
                next_step="leave destination_geography out: one list is of both",
            )

    @classmethod
    def listed(cls, lists: Iterable[ZoneList], folder: Path) -> Sides:
        """The geographies of one list or two, below a folder. Raises OdError naming the fault."""
        return _of(*(zones.geography(folder) for zones in lists))

    @property
    def destination(self) -> Geography:
        """Of the destinations."""
        return self.origin if self.other is None else self.other

    @cached_property
    def equally_deep(self) -> tuple[Geography, Geography]:
        """Both with as many levels as the deeper one has."""
        return equally_deep(self.origin, self.destination)

    @property
    def digest(self) -> str:
        """As :attr:`od_assets.series.settings.PublicList.digest`."""
        both = f"{self.origin.digest} {self.destination.digest}"
        return self.origin.digest if self.other is None else sha256(both.encode()).hexdigest()

    @property
    def area_counts(self) -> dict[str, int]:
        """As :attr:`od_assets.series.settings.PublicList.area_counts`."""
        if self.other is None:
            return self.origin.area_counts
        sides = {"origin": self.origin, "destination": self.other}
        return {f"{side} {level}": n for side, areas in sides.items() for level, n in areas.area_counts.items()}


@lru_cache(maxsize=8)
def _of(origin: Geography, other: Geography | None = None) -> Sides:
    """The sides of these very geographies: every step of a run asks for them, and equal depth takes its time."""
    return Sides(origin, other)


class PublicList(Protocol):
    """A public list of areas or places, or one of origins and one of destinations, checked."""

    @property
    def digest(self) -> str:
        """SHA-256 of all of it."""
        ...

    @property
    def area_counts(self) -> dict[str, int]:
        """How many areas or places there are, by level."""
        ...


P = TypeVar("P", bound=Planned)
G = TypeVar("G", bound=PublicList)


@dataclass(frozen=True)
class SeriesSettings(ABC, Generic[P, G]):
    """What the YAML of a release series says, of whatever kind, checked and in the terms of od_core.

    Attributes:
        name: of the release series; prefix of its assets, checks, job and schedule.
        records: path of a period's file, with ``{period}`` in it, relative to the project.
        columns: columns of that file; the user id among them for the user units alone.
        record_format: how the records stand in it.
        budget, noise, revision, domain, fault_threshold: see od_core.
        accepts_empty: whether a period without a counted record is released.
        periods: of the series.
        settled_seconds: so long a file must not have changed before it is taken for whole.
        complete: path of the file that says that a period's records are whole, with ``{period}`` in it, or None.
    """

    name: str
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
    """What is done with its releases once they are measured."""

    @property
    def unit(self) -> PrivacyUnit:
        """The unit of privacy: that of the data set."""
        return self.domain.unit

    @property
    def acceptance(self) -> Acceptance:
        """Which records are counted, and which inputs are refused."""
        return Acceptance(self.fault_threshold, bool(self.record_format.categories), not self.accepts_empty)

    def key(self, period: str) -> ReleaseKey:
        """The release of one period."""
        return ReleaseKey(self.name, period, self.revision)

    def release_of(self, partition: str) -> ReleaseKey:
        """The release of Dagster's partition."""
        return self.key(self.periods.period(partition).text)

    @property
    def reading(self) -> dict[str, Any]:
        """How its records are read, as JSON-ready public facts."""
        return self.record_format.facts(self.periods.time_zone) | {"columns": self.columns.facts()}

    @property
    def has_file_of_each(self) -> bool:
        """Whether each period has a file of its own."""
        return "{period}" in self.records

    @property
    def records_are_here(self) -> bool:
        """Whether this machine reads the files of records; else an engine does, where they are."""
        return True

    @property
    def takes_nowhere(self) -> bool:
        """Whether a geography has an area for records of no place."""
        return False

    def sides(self, geography: G) -> tuple[Geography, Geography] | tuple[None, None]:
        """The geographies of origins and of destinations; none where places are points."""
        return None, None

    def records_path(self, period: str) -> Path:
        """The file with the records of one period."""
        return project_root() / self.records.format(period=period)

    def marker_path(self, period: str) -> Path | None:
        """The file that says that a period's records are whole; None where the series declares none."""
        return None if self.complete is None else project_root() / self.complete.format(period=period)

    @abstractmethod
    def listed_codes(self, geography: G) -> tuple[Sequence[str], Sequence[str]]:
        """The codes that the records' origins and their destinations may have; of one code, the same twice."""

    @abstractmethod
    def read_geography(self) -> G:
        """The public geography from the lists that are declared. Raises OdError naming the fault."""

    @abstractmethod
    def kept_lists(self, geography: G) -> dict[str, pd.DataFrame]:
        """The lists that a geography is read from again, one row a zone or place, by the names of their files."""

    @abstractmethod
    def kept_geography(self, folder: Path) -> G:
        """The geography from the lists that are kept in a folder. Raises OdError naming the fault."""

    @property
    @abstractmethod
    def listed_columns(self) -> tuple[Column, ...]:
        """Columns of the first list that is kept."""

    def plan(self, geography: G, period: str) -> P:
        """The plan of a period over that geography, from public facts alone.

        Raises:
            OdError: as plans say; a release above the cap of its data set; noise too wide for the backend.
        """
        plan = self._plan(geography, period)
        allowed, asked = self.domain.cap.allowed_rho(), plan.charge.as_rho
        if asked > allowed:
            raise OdError(
                "OD-LEDGER-CAP",
                f"one release of {self.name} asks for rho {float(asked):.6g}, above the cap {float(allowed):.6g} of"
                f" data set {self.domain.name!r}",
                next_step="ask for less, or raise the cap with a stated reason",
            )
        refuse_too_wide(noise_named(self.noise), (step.widest for step in plan.steps))
        return plan

    @abstractmethod
    def _plan(self, geography: G, period: str) -> P: ...


@dataclass(frozen=True)
class TreeSettings(SeriesSettings[P, G]):
    """What the YAML of a series over area trees says.

    Attributes:
        zones: the list of zones.
    """

    zones: ZoneList

    @property
    def zone_lists(self) -> dict[str, ZoneList]:
        """Every list of zones, by the name of the file that it is kept in once it is checked."""
        return {f"{self.name}.csv": self.zones}

    @property
    def takes_nowhere(self) -> bool:
        """As :meth:`SeriesSettings.takes_nowhere`."""
        return any(zones.has_unknown for zones in self.zone_lists.values())

    @property
    def listed_columns(self) -> tuple[Column, ...]:
        """As :meth:`SeriesSettings.listed_columns`."""
        areas = (Column(level, "string", level, f"Code of the area of level {level}.") for level in self.zones.levels)
        named = COORDINATES if self.zones.coordinates else ()
        degrees = (Column(name, "number", name, "Degrees, of the zone.") for name in named)
        return (*areas, *degrees)

    @property
    def kept_zone_lists(self) -> list[ZoneList]:
        """How the lists that are kept are read again."""
        return [zones.kept_as(file) for file, zones in self.zone_lists.items()]


@dataclass(frozen=True)
class ReleaseSettings(TreeSettings[ReleasePlan, Sides]):
    """What the YAML of a release of flows says.

    Attributes:
        destination_zones: the list of zones of the destinations, or None where one list is of both.
        mechanism, tree: see od_core.
        intervals: whether every published cell has its interval.
        bands: where the tree is cut, for a release that is worked on part by part.
        engine: what works on the parts; None is the threads of this machine.
    """

    destination_zones: ZoneList | None
    mechanism: Mechanism
    tree: TreeOrder
    intervals: bool
    bands: Bands | None
    engine: SparkEngine | None

    kind = FLOWS

    @property
    def measured_levels(self) -> list[int]:
        """Levels of the flow tree that are measured, top first."""
        has_unknown_areas = all(zones.has_unknown for zones in self.zone_lists.values())
        return measured_levels(Neighbours(self.unit, self.acceptance, has_unknown_areas), self.mechanism, self.depth)

    @property
    def level_bands(self) -> list[list[int]]:
        """The measured levels of each band, top first; one band where the tree is not cut."""
        levels = self.measured_levels
        return [levels] if self.bands is None else [levels[band] for band in self.bands.split(levels)]

    @property
    def estimated_levels(self) -> list[int]:
        """Measured levels that have an estimate of their own: all, but leaves of a lower band that are refined."""
        left_out = self.depth if self.bands is not None and self.mechanism.refines else None
        return [level for level in self.measured_levels if level != left_out]

    @property
    def records_are_here(self) -> bool:
        """As :meth:`SeriesSettings.records_are_here`."""
        return self.engine is None

    def records_address(self, period: str) -> str:
        """Where an engine finds the records of a period: an address, a path, or the name of a table of its own."""
        address = self.records.format(period=period)
        return address if "://" in address or "/" not in address else str(self.records_path(period))

    @property
    def engine_name(self) -> str:
        """What works on the parts, as Dagster shows it."""
        return "numba" if self.engine is None else "spark"

    @property
    def depth(self) -> int:
        """Number of levels of the flow tree below its root."""
        return 2 * max(len(zones.levels) for zones in self.zone_lists.values())

    @property
    def zone_lists(self) -> dict[str, ZoneList]:
        """As :attr:`TreeSettings.zone_lists`; no series has a dot in its name."""
        others = self.destination_zones
        return super().zone_lists | ({} if others is None else {f"{self.name}.destinations.csv": others})

    def sides(self, geography: Sides) -> tuple[Geography, Geography]:
        """As :meth:`SeriesSettings.sides`."""
        return geography.origin, geography.destination

    def listed_codes(self, geography: Sides) -> tuple[Sequence[str], Sequence[str]]:
        """As :meth:`SeriesSettings.listed_codes`."""
        return geography.origin.zones, geography.destination.zones

    def read_geography(self) -> Sides:
        """As :meth:`SeriesSettings.read_geography`."""
        return Sides.listed(self.zone_lists.values(), project_root())

    def kept_lists(self, geography: Sides) -> dict[str, pd.DataFrame]:
        """As :meth:`SeriesSettings.kept_lists`."""
        sides = (geography.origin, geography.destination)
        return {file: side.to_frame() for file, side in zip(self.zone_lists, sides, strict=False)}

    def kept_geography(self, folder: Path) -> Sides:
        """As :meth:`SeriesSettings.kept_geography`."""
        return Sides.listed(self.kept_zone_lists, folder)

    def _plan(self, geography: Sides, period: str) -> ReleasePlan:  # all have one plan
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
        )
