"""Declare the inputs of a series: files of confidential records, and public lists of zones."""

import string
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from od_assets.series.section import Number, Section
from od_core.errors import OdError
from od_core.privacy.neighbours import FAULT_THRESHOLD
from od_core.records.formats import FORMATS, RecordFormat, format_named
from od_core.records.zone_lists import ZoneList


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
