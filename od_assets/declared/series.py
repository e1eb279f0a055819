"""Declare what every series has: data set, periods, zones and records."""

import string
from abc import abstractmethod
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator

from od_assets.declared.section import Number, Section, first_fault, line_of, yaml_documents
from od_assets.project import Project, current_project
from od_assets.series.partitions import SINGLE, SeriesPeriods
from od_assets.series.settings import SeriesSettings
from od_core import PrivacyUnit
from od_core.errors import OdError, nearest_known
from od_core.ledger.release_key import ReleaseKey
from od_core.noise.sources import noise_named
from od_core.periods import Period, check_time_zone
from od_core.privacy.budget import Cap, exact_fraction
from od_core.privacy.domain import PrivacyDomain, charged_periods
from od_core.privacy.neighbours import FAULT_THRESHOLD, fault_share
from od_core.privacy.unit import UNIT_KINDS
from od_core.records.formats import FORMATS, RecordFormat, format_named
from od_core.records.zone_lists import ZoneList


class Periods(Section):
    """The first and the last period of a series, and the length of its periods."""

    first: str = Field(..., description="First period: 2001, 2001-Q2, 2001-06, 2001-W23 or 2001-06-30.")
    last: str | None = Field(None, description="Last period; leave out for a series without an end.")
    every: str = Field("month", description="day, week, month, quarter or year; single for one release of any period.")

    def checked(self, time_zone: str | None) -> SeriesPeriods:
        """Return the checked periods, whose days begin in the given time zone. Raises OdError if they are invalid."""
        last = None if self.last is None else _period("last", self.last)
        return SeriesPeriods(self.every, _period("first", self.first), last, time_zone)


def _period(field: str, text: str) -> Period:
    try:
        return Period(text)
    except OdError as error:
        raise error.changed(message=f"periods.{field}: {error.message}") from None


class Arrivals(Section):
    """Conditions under which a period is released automatically once its file has arrived."""

    settled_seconds: int = Field(
        60, description="Seconds for which a file must be unchanged before it counts as complete."
    )
    complete: str | None = Field(
        None,
        description=(
            "Path of a marker that a period's file is complete, with {period}; a SHA-256 in it is checked against the"
            " file."
        ),
    )

    def check(self, *, one_file: bool) -> None:
        """Check the path of the marker and the number of seconds. Raises OdError if one of them is invalid.

        Args:
            one_file: whether one file contains all periods; the path of the marker then need not name the period.
        """
        if self.complete is not None:
            _check_path(self.complete, "the marker", needs_period=not one_file)
        if self.settled_seconds < 0:
            raise OdError("OD-ARRIVALS", "settled_seconds must be at least 0", next_step="correct settled_seconds")


class Freshness(Section):
    """Deadlines for publication. Dagster reports a missed deadline."""

    deadline: str = Field(..., description="Cron line of the deadlines, in the series' time zone.")
    within_days: int = Field(
        ..., description="Largest age in days, at the deadline, of a release that meets the deadline."
    )


def check_files(files: str, *, one_file: bool) -> None:
    """Check that the path of the records contains ``{period}``, unless one file may contain all periods.

    If one file without dates served for all periods, the same records would be released once per period, and charged to
    the caps of different periods.

    Args:
        files: path of the records.
        one_file: whether one file may contain all periods: its records have dates, or there is only one period.

    Raises:
        OdError: the path lacks ``{period}``, or has other fields in braces.
    """
    _check_path(files, "the records", needs_period=not one_file)


def _check_path(path: str, what: str, *, needs_period: bool) -> None:
    try:
        parts = list(string.Formatter().parse(path))
        # A format after the name could map all periods to one file.
        fields = {f"{field}{form}{how or ''}" for _, field, form, how in parts if field is not None}
    except ValueError:
        fields = {"unbalanced braces"}
    if fields - {"period"} or (not fields and needs_period):
        raise OdError(
            "OD-TRIPS-FILES",
            f"the path of {what} needs {{period}} and nothing else in braces, or the records need a date column",
            next_step="correct the path, or name the date column",
        )


class CapSection(Section):
    """The cap of a data set's spending on one elementary period, in rho, or in epsilon and delta."""

    rho: Number | None = None
    epsilon: Number | None = None
    delta: Number = 0
    reason: str = Field(
        ..., description="Reason for the cap. A changed cap needs a new reason; the ledger records both."
    )

    def cap(self) -> Cap:
        """Convert this section to a cap of od_core. Raises OdError if a number is out of range."""
        return Cap(
            None if self.rho is None else exact_fraction("the cap", self.rho),
            None if self.epsilon is None else exact_fraction("the cap", self.epsilon),
            exact_fraction("the cap's delta", self.delta),
        )


class DomainSection(Section):
    """The privacy unit of a data set, and the cap of its spending."""

    name: str
    unit: str = Field("trip", description="Privacy unit: trip, user, user_period or user_year.")
    column: str | None = Field(None, description="Column of user ids, for the user units.")
    max_trips: int | None = Field(
        None,
        description="For unit user_year, the largest number of trips that are counted per user and elementary period.",
    )
    max_trips_year: int | None = Field(
        None, description="For unit user_year, the largest number of trips that are counted per user and year."
    )
    id_pattern: str | None = Field(
        None, description="For unit user_year, a regular expression (RE2) that every whole user id matches."
    )
    year: str | None = Field(
        None,
        description=(
            "For unit user_year, a year as a span of elementary periods, such as 2001-09--2002-08 (default: calendar"
            " years)."
        ),
    )
    neighbours: str = Field(
        "bounded", description="bounded (one unit is replaced) or unbounded (one unit is added or removed)."
    )
    elementary_period: str = Field("month", description="day, month or year: the shortest period of any release.")
    time_zone: str | None = Field(
        None,
        description=(
            "Time zone in which days begin, for schedules (default: UTC) and times with a zone (refused without it)."
        ),
    )
    cap: CapSection

    def domain(self, max_trips: int | None, max_weight: int | None = None) -> PrivacyDomain:
        """Convert this section to a privacy domain of od_core, with the bounds that a release declares.

        Args:
            max_trips: contribution bound, the largest number of trips of a user that are counted; None for units trip
                and user_year.
            max_weight: largest number of trips that a record with a weight counts as; None without weights.

        Raises:
            OdError: the unit, the cap or the periods are invalid, or max_trips is declared in the wrong file. The error
                names the file of the domain if what the file declares is at fault, whatever the release declares.
        """
        own = self.max_trips
        if self.unit in UNIT_KINDS and self.unit not in ("trip", "user_year"):
            if own is not None:
                message = f"declares max_trips, which each release of unit {self.unit!r} declares itself"
                step = "move max_trips to the declarations of the releases"
                raise OdError("OD-UNIT-MAX-TRIPS", f"{self._file} {message}", next_step=step, file=self._file)
            own = 1  # in place of that of the release
        try:
            unit = PrivacyUnit(
                self.unit,  # type: ignore[arg-type]  # checked by PrivacyUnit
                self.neighbours,  # type: ignore[arg-type]  # checked by PrivacyUnit
                self.column,
                own,
                max_trips_year=self.max_trips_year,
                id_pattern=self.id_pattern,
            )
            domain = PrivacyDomain(
                self.name,
                unit,
                self.cap.cap(),
                self.cap.reason,
                self.elementary_period,  # type: ignore[arg-type]  # checked by PrivacyDomain
                self.time_zone,
                self.year,
            )
        except OdError as error:
            raise error.in_file(self._file) from None
        if self.unit == "user_year" and max_trips is not None:
            raise OdError(
                "OD-UNIT-MAX-TRIPS",
                "max_trips is declared for one release, but under unit 'user_year' all releases count the same trips",
                next_step=f"move max_trips to {self._file}",
            )
        of_release = self.max_trips or max_trips
        return replace(domain, unit=replace(unit, max_trips=of_release, max_weight=max_weight))

    @property
    def _file(self) -> str:
        return f"{self.name}.yaml"


def read_domain(project: Project, name: str) -> DomainSection:
    """Return the domain of a data set, as the project declares it.

    Raises:
        OdError: the file is missing or cannot be read, or a field is invalid; the message names the file and the field.
    """
    path = project.domains / f"{name}.yaml"
    known = tuple(sorted(file.stem for file in project.domains.glob("*.yaml")))
    if name not in known:
        raise _fault(f"there is no privacy domain {name!r} ({nearest_known(name, known)})")
    try:
        [document] = yaml_documents(path, path.name) or [None]
        declared = DomainSection.model_validate(document)
    except ValidationError as error:
        fault = first_fault(error, DomainSection, partial(line_of, path))
        raise _fault(f"{path.name}: {fault}", path.name) from None
    except ValueError:
        raise _fault(f"{path.name} has more than one YAML document", path.name) from None
    if declared.name != name:
        raise _fault(f"{path.name}: name: {declared.name!r} differs from the name of its file", path.name)
    if declared.time_zone is not None:  # periods are checked in it before the domain is
        try:
            check_time_zone(declared.time_zone)
        except OdError as error:
            raise error.in_file(path.name) from None
    return declared


def _fault(message: str, file: str | None = None) -> OdError:
    step = "correct the files in the folder domains of the declarations"
    return OdError("OD-CONFIG", message, next_step=step, file=file)


class Records(Section):
    """Location and format of the confidential records. Subclasses add the columns that they read."""

    files: str = Field(..., description="Path of a period's file, with {period} in it, or of one file with dates.")
    reader: str = Field(
        "table", description=f"Reader, that is, the published format of the records: {', '.join(FORMATS)}."
    )
    delimiter: str | None = Field(None, description="Character between the fields of a CSV file; a comma if left out.")
    encoding: str | None = Field(
        None, description="Encoding of a CSV file: utf-8, latin-1 or utf-16; utf-8 if left out."
    )
    table: str | None = Field(None, description="Name of a table, if the files are DuckDB files.")
    timestamps: str | None = Field(
        None,
        description=(
            "utc or local: what timestamps of Parquet files are that do not state it, such as INT96 (Spark writes utc,"
            " Impala local)."
        ),
    )
    one_row_a_trip: bool = Field(
        False, description="Whether each row is one trip; to be stated if the records have columns that are not used."
    )
    categories: dict[str, list[str]] = Field(
        default_factory=dict,
        description="Columns and their values; rows with other values are not records of this release.",
    )
    nowhere: list[str] = Field(
        default_factory=list,
        description=(
            "Codes of no place, in addition to those of the reader, for the unknown zone; an empty text stands for a"
            " missing code."
        ),
    )
    outside_period: str | None = Field(
        None,
        description="refuse or drop records of other periods; if left out, drop them if one file has several periods.",
    )
    fault_threshold: Number = Field(
        str(FAULT_THRESHOLD),
        description="Share of faulty trips above which the input is refused; 0 refuses any faulty trip.",
    )
    accept_empty: bool = Field(False, description="Whether a period without a counted record is released.")

    def record_format(self) -> RecordFormat:
        """Return the format of the records. Raises OdError for an unknown reader or an option that does not fit it."""
        has_several_periods = "{period" not in self.files
        form = format_named(self.reader).declared(
            categories=tuple((column, tuple(values)) for column, values in self.categories.items()),
            nowhere=tuple(self.nowhere),
            one_row_a_trip=self.one_row_a_trip,
            delimiter=self.delimiter,
            encoding=self.encoding,
            table=self.table,
            timestamps=self.timestamps,
            outside_period=self.outside_period or ("drop" if has_several_periods else "refuse"),
        )
        form.refuse_options_of_text(Path(self.files))
        return form

    def one_trip_a_row(self) -> RecordFormat:
        """Return the format of the records, which must have one trip per row.

        Raises:
            OdError: the reader gives flows, with many trips per row; or as in :meth:`record_format`.
        """
        form = self.record_format()
        if form.columns.trips is not None:
            raise OdError(
                "OD-READER-FLOWS",
                f"reader {self.reader!r} gives flows, with many trips per row, but this kind of release counts rows",
                next_step="use records with one row per trip",
            )
        return form


class AreaParents(Section):
    """Columns of a list that contains the areas of all levels, with their parents."""

    area: str = Field("area", description="Column of codes.")
    parent: str = Field("parent", description="Column of the codes of the parents; blank at the first level.")


class ZoneBoundaries(Section):
    """Location of the public boundaries of zones."""

    file: str = Field(..., description="GeoJSON, GeoPackage or GeoParquet file in WGS 84 (EPSG:4326).")
    code: str = Field(..., description="Property of the file that holds the code of the zone, as text.")


class Zones(Section):
    """Location of the public zone list, and how it states its hierarchy."""

    file: str = Field(..., description="CSV, .csv.gz or Parquet file with one row per zone; codes are text.")
    levels: list[str] = Field(
        ..., description="Level columns of the list, coarse to fine; the last one holds the zone codes."
    )
    prefixes: dict[str, int] = Field(
        default_factory=dict, description="Number of characters, for each level that is a prefix of the zone's code."
    )
    joined: dict[str, list[str]] = Field(
        default_factory=dict, description="Columns, for each level whose codes are joined from several columns."
    )
    parents: AreaParents | None = Field(None, description="Columns of a list of areas and their parents.")
    unknown: str | None = Field(None, description="Listed zone to which records from unlisted places are assigned.")
    unknown_area: str | None = Field(
        None,
        description="Code of an area that is added at every level, to which records from unlisted places are assigned.",
    )
    version: str | None = Field(None, description="The owner's name of this list, such as 2018; it is published.")
    coordinates: list[str] | None = Field(
        None,
        description="Columns of latitude and longitude, in degrees; they are published, for the map of the report.",
    )

    names: dict[str, str] = Field(
        default_factory=dict, description="Columns of the names of areas, by level; they are published, for people."
    )

    boundaries: ZoneBoundaries | None = Field(
        None, description="Boundaries of the zones; they are published, for maps."
    )

    @field_validator("coordinates")
    @classmethod
    def refuse_other_than_two(cls, value: list[str] | None) -> list[str] | None:
        """Refuse coordinates that are not two columns."""
        if value is not None and len(value) != 2:
            raise ValueError("name two columns: of latitude and of longitude")
        return value

    @field_validator("prefixes", mode="before")
    @classmethod
    def refuse_truth_values_within(cls, value: Any) -> Any:
        """Refuse true and false as lengths of prefixes."""
        if isinstance(value, dict) and any(isinstance(size, bool) for size in value.values()):
            raise ValueError("true and false are not valid here")
        return value

    def zone_list(self) -> ZoneList:
        """Return the zone list in the terms of od_core. Raises OdError if its levels do not fit together."""
        return ZoneList(
            self.file,
            tuple(self.levels),
            prefixes=self.prefixes,
            joined={level: tuple(columns) for level, columns in self.joined.items()},
            parents=None if self.parents is None else (self.parents.area, self.parents.parent),
            unknown=self.unknown,
            unknown_area=self.unknown_area,
            version=self.version,
            coordinates=None if self.coordinates is None else (self.coordinates[0], self.coordinates[1]),
            names=self.names,
            boundaries=None if self.boundaries is None else (self.boundaries.file, self.boundaries.code),
        )


class PureEpsilon(Section):
    """Budget of one release as an epsilon, with delta 0."""

    epsilon: Number


class DeclaredSeries(Section):
    """The declaration of a release series of any kind, with one release per period."""

    name: str = Field(..., description="Name of the series: lower-case letters, digits, underscores.")
    owners: list[str] = Field(..., description="Owners: team:name or e-mail addresses.")
    periods: Periods
    domain: str = Field(..., description="Data set whose privacy domain is charged; defs/domains declares it.")
    noise: str = "opendp"
    revision: int = 1
    schedule: str | None = Field(
        None, description="Cron line of the schedule; each tick releases the period that ended before it."
    )
    arrivals: Arrivals | None = Field(None, description="Releases each period once its file arrives.")
    freshness: Freshness | None = Field(None, description="Deadline by which a release must be published.")

    @abstractmethod
    def settings(self, project: Project | None = None) -> SeriesSettings[Any, Any]:
        """Return the declaration as settings of a project, by default of the current one.

        Raises:
            OdError: a value is out of range or unknown.
        """

    def checked_periods(self, project: Project | None = None) -> SeriesPeriods:
        """Return the periods, in the time zone of the data set. Raises OdError if periods or domain are invalid."""
        return self.periods.checked(read_domain(project or current_project(), self.domain).time_zone)

    def shared_settings(self, project: Project, domain: PrivacyDomain, trips: Records) -> dict[str, Any]:
        """Return the settings that all kinds of series declare in the same way, by field.

        Days begin in the domain's time zone. Raises OdError for an invalid fault threshold.
        """
        arrivals = self.arrivals
        return {
            "name": self.name,
            "project": project,
            "domain": domain,
            "noise": self.noise,
            "revision": self.revision,
            "records": trips.files,
            "fault_threshold": fault_share(trips.fault_threshold),
            "accepts_empty": trips.accept_empty,
            "periods": self.periods.checked(domain.time_zone),
            "settled_seconds": 0 if arrivals is None else arrivals.settled_seconds,
            "complete": None if arrivals is None else arrivals.complete,
        }

    def checked_domain(
        self,
        project: Project,
        files: str,
        *,
        has_dates: bool,
        trips_alone: bool = False,
        max_trips: int | None = None,
        max_weight: int | None = None,
    ) -> PrivacyDomain:
        """Check that the name, the periods, the files and the noise are valid, and return the domain to charge.

        Args:
            project: project that declares the series.
            files: path of the records.
            has_dates: whether the records have dates.
            trips_alone: True if this kind of release can protect only single trips.
            max_trips, max_weight: as in :meth:`od_assets.declared.series.DomainSection.domain`.

        Raises:
            OdError: one of the checked values is invalid or does not fit the domain.
        """
        declared = read_domain(project, self.domain)
        periods = self.periods.checked(declared.time_zone)
        ReleaseKey(self.name, periods.first.text, self.revision)  # refuses an invalid name or revision
        one_file = has_dates or periods.every == SINGLE
        check_files(files, one_file=one_file)
        if self.arrivals is not None:
            self.arrivals.check(one_file=one_file and "{period}" not in files)
        if trips_alone and declared.unit != "trip":
            raise OdError(
                "OD-UNIT-UNKNOWN",
                f"data set {self.domain!r} protects unit {declared.unit!r}; {self.name} can protect only single trips",
                next_step="release flows, which have user units",
            )
        domain = declared.domain(max_trips, max_weight)
        charged_periods(periods.first, domain.elementary_period, domain.unit.kind)
        noise_named(self.noise)
        return domain
