"""Declare a series of releases of any kind: its data set, its inputs, its periods and its budget."""

import re
import string
from abc import abstractmethod
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar

from pydantic import Field, PrivateAttr, StrictBool, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from od_assets.project import Project
from od_assets.series.about import About
from od_assets.series.partitions import SINGLE, SeriesPeriods, split_partition_key
from od_assets.series.records import AssetName, Records
from od_assets.series.section import (
    DECLARATION,
    Named,
    Number,
    Section,
    describe_first_fault,
    find_field_line,
    read_yaml_documents,
)
from od_assets.series.zone_sections import AreaParents, HexagonCells, SquareCells, ZoneBoundaries
from od_core import Breakdown, Budget, Plan, PrivacyUnit, ReleaseKey
from od_core.errors import OdError, suggest_known_names
from od_core.files.duckdb_session import is_query
from od_core.files.durable import compute_file_digest
from od_core.geography.codes import COORDINATES, name_column_of_aliases, name_column_of_names
from od_core.geography.geography import Geography, name_boundary_column
from od_core.ledger.staged_files import Counted
from od_core.meaning.features import list_given_options, list_usual_formats, read_support, refuse_unsupported
from od_core.noise.backends import refuse_too_wide, resolve_noise_source
from od_core.periods import Period
from od_core.privacy.accounting import format_rounded_up
from od_core.privacy.budget import Cap
from od_core.privacy.domain import PrivacyDomain, list_charged_periods
from od_core.privacy.neighbours import Acceptance, parse_fault_threshold
from od_core.privacy.plan import Table
from od_core.privacy.unit import RECORDS_OF
from od_core.publication.columns import Column
from od_core.publication.kind import Kind, TableKind
from od_core.records.formats import RecordColumns, RecordFormat
from od_core.records.stored_table import StoredTable
from od_core.records.zone_lists import ZoneList

MAIN_TABLES = {
    "flows": ("flows", "flows_by_level"),
    "group sizes": ("histogram", "group_sizes"),
    "boxes": ("boxes", "stops_boxes"),
}
"""Main table of the bundle, and that table in the release database, by the contents of the kind."""


class Arrivals(Section):
    """Conditions under which a period is released automatically once its file has arrived."""

    settled_seconds: int = 60
    complete: str | None = None

    def check(self, *, one_file: bool) -> None:
        """Check the path of the marker and the number of seconds, as :func:`check_path` does. Raises OdError."""
        if self.complete is not None:
            check_path(self.complete, "the marker", one_file=one_file)
        if self.settled_seconds < 0:
            raise OdError("OD-ARRIVALS", "settled_seconds must be at least 0", next_step="correct settled_seconds")


def check_path(path: str, what: str, *, one_file: bool) -> None:
    """Check that a path contains ``{period}``, unless one file may contain all periods.

    If one file without dates served for all periods, the same records would be released once per period, and charged to
    the caps of different periods.

    Args:
        path: path of the records, or of the marker that they are complete.
        what: name of the file in the message.
        one_file: whether one file may contain all periods: its records have dates, or there is only one period.

    Raises:
        OdError: the path lacks ``{period}``, or has other fields in braces.
    """
    fields = set()
    try:
        for _, field, format_spec, conversion in string.Formatter().parse(path):
            if field is not None:  # a format after the name could map all periods to one file
                fields.add(f"{field}{format_spec}{conversion or ''}")
    except ValueError:
        fields = {"unbalanced braces"}
    if fields - {"period"} or not (fields or one_file):
        message = f"the path of {what} needs {{period}} and nothing else in braces, or the records need a date column"
        raise OdError("OD-TRIPS-FILES", message, next_step="correct the path, or name the date column")


class Zones(Section):
    """Location of the public zone list, and how it states its hierarchy. Or cells of a grid in a public outline."""

    file: str | None = None
    hexagons: HexagonCells | None = None
    squares: SquareCells | None = None
    asset: AssetName | None = None
    levels: list[str] = Field(default_factory=list)
    prefixes: dict[str, int] = Field(default_factory=dict)
    joined: dict[str, list[str]] = Field(default_factory=dict)
    parents: AreaParents | None = None
    unknown: str | None = None
    unknown_area: str | None = None
    version: str | None = None
    coordinates: list[str] | None = None
    names: dict[str, str] = Field(default_factory=dict)
    aliases: dict[str, str] = Field(default_factory=dict)
    boundaries: dict[str, ZoneBoundaries | str] = Field(default_factory=dict)

    @field_validator("coordinates")
    @classmethod
    def require_two_coordinates(cls, value: list[str] | None) -> list[str] | None:
        """Return the names of the coordinates' columns. Raises ValueError if they are not two."""
        if value is not None and len(value) != 2:
            raise ValueError("name two columns: of latitude and of longitude")
        return value

    @field_validator("prefixes", mode="before")
    @classmethod
    def refuse_truth_values(cls, value: Any) -> Any:
        """Return the lengths of prefixes. Raises ValueError if one is true or false."""
        if isinstance(value, dict) and any(isinstance(size, bool) for size in value.values()):
            raise ValueError("true and false are not valid here")
        return value

    @field_validator("boundaries", mode="before")
    @classmethod
    def map_boundaries_by_level(cls, value: Any, field: ValidationInfo) -> Any:
        """Return the sections of boundaries by level. What is no mapping is returned as it is, for pydantic to refuse.

        The boundaries of the zones alone may be written without the name of their level. A file without ``code`` has
        the codes in a property with the name of the level.
        """
        if not isinstance(value, dict):
            return value
        levels = field.data.get("levels") or []
        section_keys = set(ZoneBoundaries.model_fields) - set(levels)
        if levels and "file" in value and set(value) <= section_keys:
            value = {levels[-1]: value if "code" in value else value["file"]}
        return {name: {"file": part, "code": name} if isinstance(part, str) else part for name, part in value.items()}

    @model_validator(mode="after")
    def require_one_list(self) -> Self:
        """Return the section. Raises ValueError if it has no source of zones or several, or options of another source.

        The sources are a file, which needs levels, and two grids, which have none of the options of a file.
        """
        sources = [source for source in (self.file, self.hexagons, self.squares) if source is not None]
        if not sources or (self.file is not None and not self.levels):
            message = "declare one of file, with levels, hexagons and squares"
            raise PydanticCustomError("missing", message)  # as for a field that is required
        if len(sources) > 1:
            raise ValueError("declare only one of file, hexagons and squares")
        file_options = ("levels", "prefixes", "joined", "parents", "coordinates", "names", "aliases", "boundaries")
        stated = [name for name in file_options if getattr(self, name)]
        if self.file is None and stated:
            raise ValueError(f"cells of a grid have no {stated[0]} of a file")
        return self

    @cached_property
    def zone_list(self) -> ZoneList:
        """The zone list in the terms of od_core. Raises OdError if its levels do not fit together."""
        options = self.model_dump(include={"unknown", "unknown_area", "version"})
        cells = self.hexagons or self.squares
        if cells is not None:
            return cells.make_zone_list(**options)
        return ZoneList(
            str(self.file),
            tuple(self.levels),
            joined={level: tuple(columns) for level, columns in self.joined.items()},
            parents=None if self.parents is None else (self.parents.area, self.parents.parent),
            coordinates=None if self.coordinates is None else (self.coordinates[0], self.coordinates[1]),
            boundaries={
                level: (section.file, section.code)
                for level, section in self.boundaries.items()
                if isinstance(section, ZoneBoundaries)  # always, after validation
            },
            **self.model_dump(include={"prefixes", "names", "aliases"}),
            **options,
        )


class CapSection(Section):
    """The cap of a data set's spending on one elementary period, in rho, or in epsilon and delta.

    Without a delta, a cap in epsilon covers only releases that are charged a pure epsilon.
    """

    rho: Number | None = None
    epsilon: Number | None = None
    delta: Number = 0
    reason: str


class Bounds(Section):
    """Bounds of what is counted of one unit."""

    max_trips: int | None = None
    max_trips_pair: int | None = None


class ReleaseBounds(Bounds):
    """Bounds of what a release counts of one user, or of one record."""

    max_weight: int | None = None


_NO_BOUNDS = ReleaseBounds()


class YearBounds(Bounds):
    """Bounds of what all releases of a data set count of one user, for a unit of a year."""

    max_trips_year: int | None = None


class DomainSection(Section):
    """The privacy unit of a data set, and the cap of its spending."""

    name: str
    unit: str = "trip"
    column: str | None = None
    bounds: YearBounds = YearBounds()
    id_pattern: str | None = None
    year: str | None = None
    neighbours: str = "bounded"
    elementary_period: str = "month"
    time_zone: str | None = None
    cap: CapSection

    def to_privacy_domain(self, release_bounds: ReleaseBounds = _NO_BOUNDS) -> PrivacyDomain:
        """Return the privacy domain of od_core for this section, with the bounds that a release declares.

        Raises:
            OdError: the unit, the cap or the periods are invalid, or a bound is declared in the wrong file. The error
                names the file of the domain if what the file declares is at fault, whatever the release declares.
        """
        bounds = self.bounds
        max_trips = bounds.max_trips
        records = RECORDS_OF.get(self.unit)  # None for an unknown unit, which PrivacyUnit refuses
        if records is not None and records.is_of_users and not records.is_of_year:
            self._refuse_bounds_of_releases()
            max_trips = 1  # a valid number, so that the file can be checked before the bound of a release is known
        try:
            unit = PrivacyUnit(
                self.unit,  # type: ignore[arg-type]  # checked by PrivacyUnit
                self.neighbours,  # type: ignore[arg-type]  # checked by PrivacyUnit
                self.column,
                max_trips,
                max_trips_year=bounds.max_trips_year,
                id_pattern=self.id_pattern,
                max_trips_pair=bounds.max_trips_pair,
            )
            domain = PrivacyDomain(
                self.name,
                unit,
                Cap(self.cap.rho, self.cap.epsilon, self.cap.delta),
                self.cap.reason,
                self.elementary_period,  # type: ignore[arg-type]  # checked by PrivacyDomain
                self.time_zone,
                self.year,
            )
        except OdError as error:
            raise error.with_file(self._file) from None
        declared_bounds = release_bounds.model_dump(exclude_none=True)
        if unit.is_of_year:
            self._refuse_bounds_of_data_set(declared_bounds)
        all_bounds = {"max_trips": bounds.max_trips} | declared_bounds
        return replace(domain, unit=replace(unit, **all_bounds))

    def _refuse_bounds_of_releases(self) -> None:
        """Raise OdError if the data set declares bounds that each of its releases declares itself."""
        for name in self.bounds.model_dump(include={"max_trips", "max_trips_pair"}, exclude_none=True):
            message = f"declares bounds.{name}, which each release of unit {self.unit!r} declares itself"
            step = f"move bounds.{name} to the declarations of the releases"
            raise OdError("OD-UNIT-MAX-TRIPS", f"{self._file} {message}", next_step=step, file=self._file)

    def _refuse_bounds_of_data_set(self, declared: Container[str]) -> None:
        """Raise OdError if a release declares bounds that all releases of the data set share."""
        for name in ("max_trips", "max_trips_pair"):
            if name in declared:
                message = f"bounds.{name} is declared for one release, but under unit {self.unit!r} all releases count"
                step = f"move bounds.{name} to {self._file}"
                raise OdError("OD-UNIT-MAX-TRIPS", f"{message} the same trips", next_step=step)

    @property
    def _file(self) -> str:
        """Name of the file of the data set, for messages."""
        return f"{self.name}.yaml"


def read_domain(project: Project, name: str) -> DomainSection:
    """Return the domain of a data set, as the project declares it.

    Raises:
        OdError: the file is missing or cannot be read, or a field is invalid; the message names the file and the field.
    """
    path = project.domains / f"{name}.yaml"
    domains = tuple(sorted(file.stem for file in project.domains.glob("*.yaml")))
    if name not in domains:
        raise _make_domain_error(f"there is no privacy domain {name!r} ({suggest_known_names(name, domains)})")
    try:
        [document] = read_yaml_documents(path, path.name) or [None]
        declared = DomainSection.model_validate(document)
    except ValidationError as error:
        fault = describe_first_fault(error.errors(), DomainSection, partial(find_field_line, path))
        raise _make_domain_error(f"{path.name}: {fault}", path.name) from None
    except ValueError:
        raise _make_domain_error(f"{path.name} has more than one YAML document", path.name) from None
    if declared.name != name:
        raise _make_domain_error(f"{path.name}: name: {declared.name!r} differs from the name of its file", path.name)
    return declared


def _make_domain_error(message: str, file: str | None = None) -> OdError:
    """Return the error for a missing or wrong file of a data set."""
    step = "correct the files in the folder domains of the declarations"
    return OdError("OD-CONFIG", message, next_step=step, file=file)


OptionValue = Annotated[StrictBool | int | float | str, Field(union_mode="left_to_right")]
"""Value of an option of a mechanism. A text that is a number becomes one."""


class Periods(Section):
    """The first and the last period of a series, and the length of its periods."""

    first: str
    last: str | None = None
    every: str = "month"

    def to_series_periods(self, time_zone: str | None) -> SeriesPeriods:
        """Return the checked periods, whose days begin in the given time zone. Raises OdError if they are invalid."""
        last = None if self.last is None else _parse_period("last", self.last)
        return SeriesPeriods(self.every, _parse_period("first", self.first), last, time_zone)


def _parse_period(field: str, text: str) -> Period:
    """Return a period. Raises OdError, which names the field of the section ``periods``, if the text is not one."""
    try:
        return Period(text)
    except OdError as error:
        raise error.with_changes(message=f"periods.{field}: {error.message}") from None


class Freshness(Section):
    """Deadlines for publication. Dagster reports a missed deadline."""

    deadline: str
    within_days: int

    def check(self) -> None:
        """Raise OdError if the deadline is no cron line, or ``within_days`` exceeds the days between two deadlines."""
        from od_assets.compatibility import find_shortest_cron_interval  # imports Dagster, which few series need here

        try:
            days_between = find_shortest_cron_interval(self.deadline).days
        except ValueError:
            raise _make_cron_error("freshness.deadline", self.deadline) from None
        if not 1 <= self.within_days <= days_between:
            message = (
                f"freshness.within_days is {self.within_days}, not from 1 to the {days_between} between two deadlines"
            )
            raise OdError("OD-FRESHNESS", message, next_step="correct within_days, or choose rarer deadlines")


def _make_cron_error(field: str, text: str) -> OdError:
    """Return the error for a field that is no cron line."""
    step = "write minute, hour, day, month and day of the week, such as 0 6 2 * *"
    return OdError("OD-CONFIG", f"{field}: {text!r} is no cron line", next_step=step)


class PureEpsilon(Section):
    """Budget of one release as an epsilon, with delta 0."""

    epsilon: Number

    @property
    def budget(self) -> Budget:
        """Budget of one release. Raises OdError if a number is out of range."""
        return Budget(self.epsilon)


if TYPE_CHECKING:
    import dagster as dg

    Format = str
else:
    Format = Literal[tuple(read_support().groups["formats"])]
"""Format of the tables of a bundle, beside Parquet."""

P = TypeVar("P", bound=Plan)
G = TypeVar("G")


class TeamCheck(Section):
    """A check of the team between estimate and publication: a query, whose rows are violations, or a function."""

    name: str = Field(..., pattern="^[a-z][a-z0-9_]{0,62}$")
    requires: str = Field(..., min_length=1)
    severity: Literal["block", "warn"] = "block"
    sql: str | None = None
    function: str | None = Field(None, pattern=r"^[\w.]+:\w+$")

    def check(self) -> None:
        """Raise OdError if the check has not either a query or a function, or the query is no single SELECT."""
        if (self.sql is None) == (self.function is None):
            raise self._make_error("state either sql or function")
        if self.sql is not None and not is_query(self.sql):
            raise self._make_error("sql is not a single SELECT, whose rows are violations")

    def _make_error(self, fault: str) -> OdError:
        """Return the error for a fault in this check."""
        return OdError("OD-CONFIG", f"checks: {self.name}: {fault}", next_step="correct the declaration")


class Series(Named, Generic[P, G]):
    """A series of releases of any kind, with one release per period, as a project declares it.

    A field has the name that the declaration gives it. ``stated_`` precedes the name of a field whose checked value is
    a property: ``stated_domain`` is the name of a data set, and ``domain`` its privacy domain.

    Every property whose value is wrong raises OdError; :meth:`require_valid` reads them all.
    """

    owners: list[str]
    trips: Records
    privacy: PureEpsilon
    stated_periods: Periods = Field(..., alias="periods")
    stated_domain: str = Field(..., alias="domain")
    noise: str = "opendp"
    revision: int = 1
    schedule: str | None = None
    arrivals: Arrivals | None = None
    automation: Literal["running", "stopped"] = "stopped"
    freshness: Freshness | None = None
    about: About | None = None
    stated_formats: tuple[Format, ...] | None = Field(None, alias="formats")
    detail: Literal["levels", "publication"] = "levels"
    checks: list[TeamCheck] = Field([])

    _table: str = PrivateAttr("")
    """Name of the table with whose rows the series shares its assets; empty if it has its own."""

    _rows: tuple[Any, ...] = PrivateAttr(())
    """Series that share the assets of this one; empty if it has its own."""

    kind: ClassVar[Kind[Any]]
    """Kind of the releases, which defines how they are published after the measurement."""

    checked_list: ClassVar[str] = "geography"
    """Name of the checks of the lists of areas or places, in ``requirements.yaml``."""

    checked_table: ClassVar[str]
    """Name of the asset with the table that is published, and of its checks."""

    in_one_table: ClassVar[bool] = False
    """Whether releases are measured by a single asset and estimated as one table; otherwise, level by level."""

    table: ClassVar[Table]
    """What releases have; counts are flows of one hierarchy."""

    def require_valid(self) -> Self:
        """Return the series, whose values are valid and fit its data set. Raises OdError if one is wrong."""
        refuse_unsupported(self.table, {*self.features, *self.formats})
        ReleaseKey(self.name, self.periods.first.text, self.revision)  # refuses an invalid name or revision
        one_file = self.columns.date is not None or self.periods.every == SINGLE
        check_path(self.trips.files, "the records", one_file=one_file)
        if "://" in self.trips.files and self.records_are_here:
            message = f"records are read from files, not from {self.trips.files.partition('://')[0]}://"
            raise OdError("OD-TRIPS-FILES", message, next_step="let an asset write them as Parquet, and declare it")
        if self.arrivals is not None:
            self.arrivals.check(one_file=one_file and not self.has_file_of_each)
        if self.schedule is not None and not re.fullmatch(r"@\w+|(\S+\s+){4}\S+", self.schedule):
            raise _make_cron_error("schedule", self.schedule)
        if self.freshness is not None:
            self.freshness.check()
        for check in self.checks:
            check.check()
        if len({check.name for check in self.checks}) < len(self.checks):
            raise OdError("OD-CONFIG", "checks: two have the same name", next_step="choose another name")
        # Each of these raises OdError for a wrong value.
        list_charged_periods(self.periods.first, self.domain.elementary_period, self.unit.kind)
        resolve_noise_source(self.noise)
        _ = self.acceptance, self.privacy.budget, self.zone_list_paths, self.about_facts
        for name in self._checked_properties:
            getattr(self, name)
        return self

    _checked_properties: ClassVar[tuple[str, ...]] = ()
    """Further properties whose values may be wrong."""

    @property
    def features(self) -> frozenset[str]:
        """Names of the options that are declared, but the formats, as ``od_core/meaning/support.yaml`` lists them."""
        return (
            self.unit.features
            | self.privacy.budget.features
            | list_given_options(
                ledger=True,
                many_trips_a_row=self.record_format.columns.trips,
                points=self.record_format.columns.has_points,
                trips_asset=self.trips.asset,
                stored_table=self.stored_table,
                arrivals=self.arrivals,
                schedule=self.schedule,
                running=self.automation == "running",
            )
        )

    @property
    def formats(self) -> tuple[str, ...]:
        """Formats of the tables of a bundle, beside Parquet: as declared, or all usual ones that have a file."""
        if self.stated_formats is not None:
            return self.stated_formats
        return list_usual_formats(self.table, self.features)

    @cached_property
    def _data_set(self) -> DomainSection:
        """The section of the data set, as its file declares it."""
        return read_domain(self.project, self.stated_domain)

    @cached_property
    def domain(self) -> PrivacyDomain:
        """Privacy domain of the data set, which is charged."""
        refuse_unsupported(self.table, {self._data_set.unit})  # before bounds that only flows can declare
        return self._data_set.to_privacy_domain()

    @cached_property
    def periods(self) -> SeriesPeriods:
        """Periods of the series, whose days begin in the time zone of the data set."""
        return self.stated_periods.to_series_periods(self.domain.time_zone)

    @property
    @abstractmethod
    def columns(self) -> RecordColumns:
        """Columns of the files of records; with the user id only for the user units."""

    @cached_property
    def record_format(self) -> RecordFormat:
        """Format of the records. Raises OdError for an unknown reader, or an option that it does not have."""
        return self.trips.to_record_format()

    @property
    @abstractmethod
    def mechanism(self) -> Any:
        """Mechanism of the releases, which has a name; None if a rule chooses it."""

    @property
    def fault_threshold(self) -> Fraction:
        """Largest share of the trips that may be faulty."""
        return parse_fault_threshold(self.trips.fault_threshold)

    @property
    def unit(self) -> PrivacyUnit:
        """Privacy unit of the data set."""
        return self.domain.unit

    @property
    def acceptance(self) -> Acceptance:
        """Rules on which records are counted and which inputs are refused."""
        return Acceptance(
            self.fault_threshold,
            has_categories=bool(self.record_format.categories),
            refuses_empty=not self.trips.accept_empty,
        )

    @property
    def graph(self) -> str:
        """First part of the names of the assets and the job: the name of the series, or of the table that it is in."""
        return "_".join([*self.prefix, self._table or self.stated_name])

    @property
    def rows(self) -> Sequence[Self]:
        """The series whose releases the assets of this one make: itself, or several; see :meth:`with_rows`."""
        return self._rows or (self,)

    @property
    def shares_assets(self) -> bool:
        """Whether the assets make the releases of several series."""
        return bool(self._rows)

    def with_table(self, table: str) -> Self:
        """Return the series as one that shares its assets with the other rows of a table, called by its name."""
        series = self.with_project(self.project)
        series._table = table
        return series

    def with_rows(self, rows: Sequence[Self]) -> Self:
        """Return a series that stands for all rows of a table: its assets make the releases of each of them.

        It has the name of the table and the periods of the row that begins first. In all else, it is this series, which
        is one of ``rows``.
        """
        earliest = min(rows, key=lambda row: row.periods.first.first)
        changes = {"stated_name": self._table, "stated_periods": earliest.stated_periods}
        shared = self.model_copy(update=changes).with_project(self.project)
        shared._rows = tuple(rows)
        return shared

    def make_partitions_definition(self) -> "dg.PartitionsDefinition":
        """Return the Dagster partitions of the assets."""
        return self.periods.make_partitions_definition([row.stated_name for row in self._rows])

    def format_partition(self, period: Period) -> str:
        """Return the key of the Dagster partition in which a period is released."""
        return self.periods.format_partition(period, self.stated_name if self._table else None)

    def key(self, period: str) -> ReleaseKey:
        """Return the key of the release of a period."""
        return ReleaseKey(self.name, period, self.revision)

    def find_release(self, partition: str) -> tuple[Self, ReleaseKey]:
        """Return the series of a Dagster partition, which is one of :attr:`rows`, and the key of its release.

        Raises OdError if the period is before the first one of that series, which may begin later than other rows.
        """
        _, name = split_partition_key(partition)
        [row] = [row for row in self.rows if row.stated_name == name] if self.shares_assets else [self]
        period = row.periods.parse_partition(partition)
        if period.first < row.periods.first.first:
            message = f"{period} is before {row.periods.first}, the first period of {row.name}"
            raise OdError("OD-PERIOD", message, next_step="choose a later period")
        return row, row.key(period.text)

    @property
    def reading(self) -> dict[str, Any]:
        """Settings with which the records are read, as a JSON-ready dictionary for the certificate.

        Raises OSError if a file of boundaries, in which points are located, cannot be read.
        """
        facts = self.record_format.facts(self.periods.time_zone) | {"columns": self.columns.facts()}
        if self.columns.has_points:
            files = sorted({zones.boundary_file for zones in self.zone_lists.values()})
            facts["boundaries"] = [compute_file_digest(self.project.root / file) for file in files]
        if self.stored_table is not None:
            facts["table"] = self.stored_table.facts()
        return facts

    @property
    def about_facts(self) -> dict[str, Any]:
        """Words about the series for its readers, as :meth:`About.to_texts` has them; empty if none are declared."""
        return {} if self.about is None else self.about.to_texts()

    @property
    def upstream(self) -> list[str]:
        """Keys of the team's assets that write the records and the lists of zones, as declared."""
        sections = (self.trips, getattr(self, "geography", None), getattr(self, "destination_geography", None))
        assets = [section.asset for section in sections if isinstance(section, Records | Zones)]
        return list(dict.fromkeys(asset for asset in assets if asset))

    @property
    def has_file_of_each(self) -> bool:
        """True if each period has a separate file."""
        return "{period}" in self.trips.files

    @property
    def breakdowns(self) -> tuple[Breakdown, ...]:
        """Breakdowns by which trips are also counted; by default, none."""
        return ()

    @property
    def bands(self) -> Any:
        """Cuts of a tree into bands, for a release that is processed part by part; by default None, which is none."""
        return None

    @property
    def states_intervals(self) -> bool:
        """Whether releases are published with their intervals, if they have any; by default, they are."""
        return True

    @property
    def checked_estimates(self) -> Sequence[tuple[list[str], Sequence[int]]]:
        """Key of each asset with estimates of levels that is checked, and these levels; by default, none."""
        return ()

    @property
    def records_are_here(self) -> bool:
        """True, the default, if this machine reads the files of records. Otherwise Spark reads them where they are."""
        return True

    def locate_records_file(self, period: str) -> Path:
        """Return the path of the file with the records of a period. Of a stored table, it has only the name."""
        if self.stored_table is not None:
            return self.project.root / self.stored_table.name
        return self.project.root / self.trips.files.format(period=period)

    @cached_property
    def stored_table(self) -> StoredTable | None:
        """Table of a store that has the records; None if they are in files."""
        return self.trips.find_stored_table(self.project.root)

    def locate_records_source(self, period: str) -> str:
        """Return the location of a period's records: a path; for a store or an engine, also the name of a table."""
        if self.stored_table is not None:
            return f"{self.stored_table.store} table {self.stored_table.name}"
        return str(self.locate_records_file(period))

    def locate_marker_file(self, period: str) -> Path | None:
        """Return the path of the marker that a period's records are complete; None if the series declares none."""
        marker = None if self.arrivals is None else self.arrivals.complete
        return None if marker is None else self.project.root / marker.format(period=period)

    @abstractmethod
    def count(self, records: Path, geography: G, period: str, *of_users: Any) -> Counted:
        """Confidential: return the counts of the staged records of a period, in the terms of the kind.

        Args:
            records: path of the staged records.
            of_users: the confidential folder, which has the key by which users are counted, and the counters of users
                or None. Kinds that do not count users ignore both.

        Raises:
            OdError: the records are unreadable, or too many are faulty.
        """

    @property
    @abstractmethod
    def zone_lists(self) -> dict[str, ZoneList]:
        """Declared lists of zones or places, by name of the file in which the geography asset stores the list."""

    @property
    def zone_list_paths(self) -> list[str]:
        """Paths of the declared lists of zones or places."""
        return [str(self.project.root / file) for zones in self.zone_lists.values() for file in zones.files]

    @property
    def has_unknown_zone(self) -> bool:
        """True if any geography of the series has an ``unknown`` zone for records without a listed place."""
        return any(zones.has_unknown for zones in self.zone_lists.values())

    @property
    def replaces_codes(self) -> bool:
        """True if reading needs the zones: to place points in them, or to replace codes of no place by ``unknown``.

        Other codes that no zone has are treated when trips are counted.
        """
        return self.columns.has_points or (self.has_unknown_zone and bool(self.record_format.nowhere))

    @abstractmethod
    def list_allowed_codes(self, geography: G) -> tuple[Sequence[str], Sequence[str]]:
        """Return the codes allowed for origins and for destinations. Both are the same if there is one list."""

    def split_sides(self, geography: G) -> tuple[Any, Any]:
        """Return the geographies of origins and of destinations, as the reading of records takes them.

        By default, both are the given one. Series whose geography has two sides override this.
        """
        return geography, geography

    def describe_geography(self, geography: G, _describe: Callable[[Geography], Geography]) -> G:
        """Return the geography with the descriptions that a function gives to its areas, such as their names.

        By default, it is returned as it is, for places on a map. Series with areas override this, and call
        ``_describe`` for the geography of each side; it returns that geography with the descriptions.
        """
        return geography

    @abstractmethod
    def _read_geography_lists(self, lists: Sequence[ZoneList], folder: Path) -> G:
        """Read the geography from one or two lists below a folder. Raises OdError if a list is missing or faulty.

        ``lists`` are those of :attr:`zone_lists`, in their order, with paths relative to ``folder``.
        """

    def read_geography(self) -> G:
        """Read the public geography from the declared lists. Raises OdError if a list is missing or faulty."""
        return self._read_geography_lists([*self.zone_lists.values()], self.project.root)

    def read_stored_geography(self, folder: Path) -> G:
        """Read the geography from the lists that are stored in a folder. Raises OdError if one is missing or faulty."""
        return self._read_geography_lists(
            [zones.with_geography_file(file) for file, zones in self.zone_lists.items()], folder
        )

    @property
    @abstractmethod
    def listed_columns(self) -> tuple[Column, ...]:
        """Columns of the stored lists of zones or places."""

    @property
    def placing_columns(self) -> list[str]:
        """Names of the columns of the stored lists that decide to which area or place a record counts."""
        return [column.name for column in self.listed_columns]

    def plan(self, geography: G, period: str, *, is_reserved: bool = False) -> P:
        """Return the plan of a period over a geography, computed from public data only.

        Periods with as many days, and the same files of :meth:`name_plan_files`, have the same plan.

        Raises:
            OdError: the plan is refused; the release alone exceeds the cap, and is not reserved already; or the noise
                is too wide for the backend.
        """
        try:
            plan = self.plan_without_cap(geography, period)
        except OdError as error:
            raise error if error.file else error.with_file(f"{self.stated_name}/{DECLARATION}") from None
        usage = self.domain.cap.compute_usage(plan.charges)
        if not usage.fits and not is_reserved:
            cap = f"the cap {format_rounded_up(usage.cap)} of data set {self.domain.name!r}"
            needed = f"{usage.measure} {format_rounded_up(usage.used)}"
            message = f"one release of {self.name} needs {needed}, which exceeds {cap}"
            step = "request a smaller budget, or raise the cap and state a reason"
            raise OdError("OD-LEDGER-CAP", message, next_step=step)
        refuse_too_wide(resolve_noise_source(self.noise), (step.variance_bound for step in plan.charged_steps))
        return plan

    @abstractmethod
    def plan_without_cap(self, geography: G, period: str) -> P:
        """Return the plan of a period over a geography, also if the release exceeds the cap; see :meth:`plan`.

        Raises OdError if the plan is refused.
        """

    def name_plan_files(self, _period: str) -> tuple[str, ...]:
        """Return the names of the public files of a period that its plan is made of; by default, none."""
        return ()


class TableSeries(Series[P, G]):
    """A series whose releases are measured by a single asset and estimated as one table."""

    kind: ClassVar[TableKind[Any, Any, Any]]
    in_one_table: ClassVar[bool] = True


class TreeSeries(Series[P, G]):
    """A series over a hierarchy of areas."""

    geography: Zones

    @property
    def zone_lists(self) -> dict[str, ZoneList]:
        """The declared list of zones, by name of the file in which the geography asset stores it."""
        return {f"{self.name}.csv": self.geography.zone_list}

    @property
    def listed_columns(self) -> tuple[Column, ...]:
        """Columns of the stored lists of zones: codes, names and aliases by level, boundaries, and coordinates."""
        lists = self.zone_lists.values()
        texts = {level: f"Code of the area of level {level}." for level in self.placing_columns}
        for zones in lists:
            if zones.names:
                texts |= {name_column_of_names(level): f"Name of the area of level {level}." for level in zones.levels}
            if zones.aliases:
                texts |= {name_column_of_aliases(k): f"Other names of the area of level {k}." for k in zones.levels}
        for zones in lists:
            bounded = [name_boundary_column(zones.levels, level) for level in zones.boundaries]
            texts |= dict.fromkeys(bounded, "Boundary of the area, as WKB in hexadecimal digits.")
        columns = [Column(name, "string", name, text) for name, text in texts.items()]
        if any(zones.has_coordinates for zones in lists):
            columns += [Column(name, "number", name, "Coordinate of the zone, in degrees.") for name in COORDINATES]
        return tuple(columns)

    @property
    def placing_columns(self) -> list[str]:
        """Names of the levels, whose columns have the codes of areas. The coordinates of zones are for maps only."""
        levels = chain.from_iterable(zones.levels for zones in self.zone_lists.values())
        return list(dict.fromkeys(levels))
