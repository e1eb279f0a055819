"""Declare a series of releases of any kind: one model, which YAML fills and from which a release is planned."""

from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar

import pandas as pd
from pydantic import Field, StrictBool

from od_assets.series.data_set import DomainSection, read_domain
from od_assets.series.inputs import Arrivals, Records, Zones, check_path
from od_assets.series.partitions import SINGLE, SeriesPeriods
from od_assets.series.section import Declaration, Number, Section
from od_core import Breakdown, Budget, OdError, Plan, PrivacyUnit, ReleaseKey
from od_core.geography.codes import COORDINATES, name_column
from od_core.geography.geography import BOUNDARY
from od_core.ledger.staged_files import Counted
from od_core.noise.sources import noise_named, refuse_too_wide
from od_core.periods import Period
from od_core.privacy.accounting import text_above
from od_core.privacy.domain import PrivacyDomain, charged_periods
from od_core.privacy.neighbours import Acceptance, fault_share
from od_core.publication.columns import Column
from od_core.publication.kind import Kind, TableKind
from od_core.records.formats import RecordColumns, RecordFormat
from od_core.records.zone_lists import ZoneList

OptionValue = Annotated[StrictBool | int | float | str, Field(union_mode="left_to_right")]
"""Value of an option of a mechanism. A text that is a number becomes one."""


class Periods(Section):
    """The first and the last period of a series, and the length of its periods."""

    first: str
    last: str | None = None
    every: str = "month"

    def checked(self, time_zone: str | None) -> SeriesPeriods:
        """Return the checked periods, whose days begin in the given time zone. Raises OdError if they are invalid."""
        last = None if self.last is None else _period("last", self.last)
        return SeriesPeriods(self.every, _period("first", self.first), last, time_zone)


def _period(field: str, text: str) -> Period:
    try:
        return Period(text)
    except OdError as error:
        raise error.changed(message=f"periods.{field}: {error.message}") from None


class Freshness(Section):
    """Deadlines for publication. Dagster reports a missed deadline."""

    deadline: str
    within_days: int


class PureEpsilon(Section):
    """Budget of one release as an epsilon, with delta 0."""

    epsilon: Number

    @property
    def budget(self) -> Budget:
        """Budget of one release. Raises OdError if a number is out of range."""
        return Budget(self.epsilon)


P = TypeVar("P", bound=Plan)
G = TypeVar("G")


class Series(Declaration, Generic[P, G]):
    """A series of releases of any kind, with one release per period, as a project declares it.

    A field has the name that the declaration gives it. ``stated_`` precedes the name of a field whose checked value is
    a property: ``stated_domain`` is the name of a data set, and ``domain`` its privacy domain.

    Every property whose value is wrong raises OdError; :meth:`checked` reads them all.
    """

    name: str
    owners: list[str]
    trips: Records
    privacy: PureEpsilon
    stated_periods: Periods = Field(..., alias="periods")
    stated_domain: str = Field(..., alias="domain")
    noise: str = "opendp"
    revision: int = 1
    schedule: str | None = None
    arrivals: Arrivals | None = None
    freshness: Freshness | None = None

    kind: ClassVar[Kind[Any]]
    """Kind of the releases, which defines how they are published after the measurement."""

    protects_trips_alone: ClassVar[bool] = True
    """Whether this kind of release can protect only single trips, and counts rows."""

    def checked(self) -> Self:
        """See :meth:`Declaration.checked`. The values must also fit the data set."""
        ReleaseKey(self.name, self.periods.first.text, self.revision)  # refuses an invalid name or revision
        one_file = self.columns.date is not None or self.periods.every == SINGLE
        check_path(self.trips.files, "the records", one_file=one_file)
        if self.arrivals is not None:
            self.arrivals.check(one_file=one_file and not self.has_file_of_each)
        if self.protects_trips_alone and self._data_set.unit != "trip":
            raise OdError(
                "OD-UNIT-UNKNOWN",
                f"data set {self.stated_domain!r} protects unit {self._data_set.unit!r}; {self.name} can protect only"
                " single trips",
                next_step="release flows, which have user units",
            )
        charged_periods(self.periods.first, self.domain.elementary_period, self.unit.kind)
        noise_named(self.noise)
        _ = self.acceptance, self.privacy.budget, self.listed_sources
        for name in self._checked_properties:
            getattr(self, name)
        return self

    _checked_properties: ClassVar[tuple[str, ...]] = ()
    """Further properties whose values may be wrong."""

    @cached_property
    def _data_set(self) -> DomainSection:
        return read_domain(self.project, self.stated_domain)

    @cached_property
    def domain(self) -> PrivacyDomain:
        """Privacy domain of the data set, which is charged."""
        return self._data_set.domain()

    @cached_property
    def periods(self) -> SeriesPeriods:
        """Periods of the series, whose days begin in the time zone of the data set."""
        return self.stated_periods.checked(self._data_set.time_zone)

    @property
    @abstractmethod
    def columns(self) -> RecordColumns:
        """Columns of the files of records; with the user id only for the user units."""

    @cached_property
    def record_format(self) -> RecordFormat:
        """Format of the records. Raises OdError if this kind of release counts rows, and a row is many trips."""
        form = self.trips.record_format()
        if self.protects_trips_alone and form.columns.trips is not None:
            raise OdError(
                "OD-READER-FLOWS",
                f"reader {self.trips.reader!r} gives flows, with many trips per row, but this kind of release counts"
                " rows",
                next_step="use records with one row per trip",
            )
        return form

    @property
    @abstractmethod
    def mechanism(self) -> Any:
        """Mechanism of the releases, which has a name; None if a rule chooses it."""

    @property
    def fault_threshold(self) -> Fraction:
        """Largest share of the trips that may be faulty."""
        return fault_share(self.trips.fault_threshold)

    @property
    def unit(self) -> PrivacyUnit:
        """Privacy unit of the data set."""
        return self.domain.unit

    @property
    def acceptance(self) -> Acceptance:
        """Rules on which records are counted and which inputs are refused."""
        return Acceptance(self.fault_threshold, bool(self.record_format.categories), not self.trips.accept_empty)

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
        return "{period}" in self.trips.files

    @property
    def breakdowns(self) -> tuple[Breakdown, ...]:
        """Breakdowns by which trips are also counted."""
        return ()

    @property
    def records_are_here(self) -> bool:
        """True if this machine reads the files of records. Otherwise Spark reads them where they are stored."""
        return True

    def records_path(self, period: str) -> Path:
        """Return the path of the file with the records of a period."""
        return self.project.root / self.trips.files.format(period=period)

    @property
    def records_source(self) -> str:
        """Path or address of the files of records, which contains ``{period}`` if there is a file of each period."""
        return str(self.project.root / self.trips.files)

    def marker_path(self, period: str) -> Path | None:
        """Return the path of the marker that a period's records are complete; None if the series declares none."""
        marker = None if self.arrivals is None else self.arrivals.complete
        return None if marker is None else self.project.root / marker.format(period=period)

    @property
    @abstractmethod
    def zone_lists(self) -> dict[str, ZoneList]:
        """Declared lists of zones or places, by name of the file in which the geography asset stores the list."""

    @property
    def listed_sources(self) -> list[str]:
        """Paths of the declared lists of zones or places."""
        return [str(self.project.root / file) for zones in self.zone_lists.values() for file in zones.files]

    @property
    def takes_nowhere(self) -> bool:
        """True if any geography of the series has an ``unknown`` zone for records without a listed place."""
        return any(zones.has_unknown for zones in self.zone_lists.values())

    @abstractmethod
    def listed_codes(self, geography: G) -> tuple[Sequence[str], Sequence[str]]:
        """Return the codes allowed for origins and for destinations. Both are the same if there is one list."""

    def sides(self, geography: G) -> tuple[Any, Any]:
        """Return the geographies of origins and of destinations, which are one if there is one list."""
        return geography, geography

    @abstractmethod
    def _geography(self, lists: Sequence[ZoneList], folder: Path) -> G:
        """Read the geography from one or two lists below a folder. Raises OdError if a list is missing or faulty."""

    def read_geography(self) -> G:
        """Read the public geography from the declared lists. Raises OdError if a list is missing or faulty."""
        return self._geography([*self.zone_lists.values()], self.project.root)

    def kept_geography(self, folder: Path) -> G:
        """Read the geography from the lists that are stored in a folder. Raises OdError if one is missing or faulty."""
        return self._geography([zones.kept_as(file) for file, zones in self.zone_lists.items()], folder)

    def kept_lists(self, geography: G) -> dict[str, pd.DataFrame]:
        """Return the lists that the geography asset stores, by file name. A list has one row per zone or place."""
        return {file: side.to_frame() for file, side in zip(self.zone_lists, self.sides(geography), strict=False)}

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
        plan = self.plan_without_cap(geography, period)
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
    def plan_without_cap(self, geography: G, period: str) -> P:
        """Return what :meth:`plan` returns, also if the release exceeds the cap. Raises OdError if it is refused."""


class TableSeries(Series[P, G]):
    """A series whose releases are measured by a single asset and estimated as one table."""

    kind: ClassVar[TableKind[Any, Any, Any]]

    @abstractmethod
    def count(self, records: Path, geography: G, period: str) -> Counted:
        """Confidential: count the staged records. Raises OdError if they are unreadable or too many are faulty."""


class TreeSeries(Series[P, G]):
    """A series over a hierarchy of areas."""

    geography: Zones

    @property
    def zone_lists(self) -> dict[str, ZoneList]:
        """See :attr:`Series.zone_lists`."""
        return {f"{self.name}.csv": self.geography.zone_list()}

    @property
    def listed_columns(self) -> tuple[Column, ...]:
        """See :attr:`Series.listed_columns`."""
        lists = self.zone_lists.values()
        named = dict.fromkeys(level for zones in lists if zones.names for level in zones.levels)
        columns = [
            Column(level, "string", level, f"Code of the area of level {level}.") for level in self.placing_columns
        ]
        columns += [
            Column(name_column(level), "string", level, f"Name of the area of level {level}.") for level in named
        ]
        if any(zones.boundaries for zones in lists):
            columns.append(Column(BOUNDARY, "string", BOUNDARY, "Boundary of the zone, as WKB in hexadecimal digits."))
        if any(zones.has_coordinates for zones in lists):
            columns += [Column(name, "number", name, "Coordinate of the zone, in degrees.") for name in COORDINATES]
        return tuple(columns)

    @property
    def placing_columns(self) -> list[str]:
        """See :attr:`Series.placing_columns`. The coordinates of zones are for maps only."""
        return list(dict.fromkeys(level for zones in self.zone_lists.values() for level in zones.levels))
