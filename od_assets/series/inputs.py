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
    try:
        parts = list(string.Formatter().parse(path))
        # A format after the name could map all periods to one file.
        fields = {f"{field}{form}{how or ''}" for _, field, form, how in parts if field is not None}
    except ValueError:
        fields = {"unbalanced braces"}
    if fields - {"period"} or not (fields or one_file):
        raise OdError(
            "OD-TRIPS-FILES",
            f"the path of {what} needs {{period}} and nothing else in braces, or the records need a date column",
            next_step="correct the path, or name the date column",
        )


class Records(Section):
    """Location and format of the confidential records. Subclasses add the columns that they read."""

    files: str
    reader: str = Field(
        "table", description=f"Reader, that is, the published format of the records: {', '.join(FORMATS)}."
    )
    delimiter: str | None = None
    encoding: str | None = None
    table: str | None = None
    timestamps: str | None = None
    one_row_a_trip: bool = False
    categories: dict[str, list[str]] = Field(default_factory=dict)
    nowhere: list[str] = Field(default_factory=list)
    outside_period: str | None = None
    fault_threshold: Number = str(FAULT_THRESHOLD)
    accept_empty: bool = False

    def record_format(self) -> RecordFormat:
        """Return the format of the records. Raises OdError for an unknown reader or an option that does not fit it."""
        has_several_periods = "{period" not in self.files
        form = format_named(self.reader).declared(
            categories=tuple((column, tuple(values)) for column, values in self.categories.items()),
            nowhere=tuple(self.nowhere),
            outside_period=self.outside_period or ("drop" if has_several_periods else "refuse"),
            **self.model_dump(include={"one_row_a_trip", "delimiter", "encoding", "table", "timestamps"}),
        )
        form.refuse_options_of_text(Path(self.files))
        return form


class AreaParents(Section):
    """Columns of a list that contains the areas of all levels, with their parents."""

    area: str = "area"
    parent: str = "parent"


class ZoneBoundaries(Section):
    """Location of the public boundaries of zones."""

    file: str
    code: str


class Zones(Section):
    """Location of the public zone list, and how it states its hierarchy."""

    file: str
    levels: list[str]
    prefixes: dict[str, int] = Field(default_factory=dict)
    joined: dict[str, list[str]] = Field(default_factory=dict)
    parents: AreaParents | None = None
    unknown: str | None = None
    unknown_area: str | None = None
    version: str | None = None
    coordinates: list[str] | None = None
    names: dict[str, str] = Field(default_factory=dict)
    boundaries: ZoneBoundaries | None = None

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
            joined={level: tuple(columns) for level, columns in self.joined.items()},
            parents=None if self.parents is None else (self.parents.area, self.parents.parent),
            coordinates=None if self.coordinates is None else (self.coordinates[0], self.coordinates[1]),
            boundaries=None if self.boundaries is None else (self.boundaries.file, self.boundaries.code),
            **self.model_dump(include={"prefixes", "unknown", "unknown_area", "version", "names"}),
        )
