"""Describe the formats in which records are written: tables, and files that agencies and operators publish.

A format says which columns a file has, and which of its rows are records of a release. The formats, with what their
files look like and where that is published, are data in ``formats.yaml``. This module reads no record.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from od_core.errors import OdError, suggest_known_names
from od_core.records.faults import make_trips_weight_error
from od_core.records.segments import SegmentSource
from od_core.registry import find_by_name

ColumnName = str | tuple[str, ...]
"""Exact name of a column, or several published names. A file has one of the published names, in upper or lower case."""


@dataclass(frozen=True)
class PointColumns:
    """The columns with the coordinates of a place, in degrees: of longitude and of latitude, or one of points.

    Points are in well-known text (WKT) or binary (WKB). Raises OdError if there are other than one or two columns.
    """

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.names) not in (1, 2) or len(set(self.names)) < len(self.names):
            raise _make_options_error("a place has two columns, of longitude and latitude, or one column of points")

    def __str__(self) -> str:
        return " and ".join(map(repr, self.names))


PlaceColumn = ColumnName | PointColumns
"""The column of the codes of places, or the columns of their coordinates."""


def list_names(place: PlaceColumn) -> tuple[ColumnName, ...]:
    """Return the names of the columns of a place: that of its codes, or those of its coordinates."""
    return place.names if isinstance(place, PointColumns) else (place,)


@dataclass(frozen=True)
class RecordColumns:
    """The names of the columns of a file, by their content.

    Raises OdError if both ``trips`` and ``weight`` are given, or two sources are of the same breakdown.

    Attributes:
        origin, destination: zone codes, text, or coordinates of points in zones. Without a destination, the records are
            of one hierarchy, and every record ends in the whole space.
        date: date of the trip; None if a file holds a single period.
        trips: number of trips of a row, for flows; None if each row is one trip.
        user: user id, text or a whole number; None if a user is not the privacy unit.
        stops: zone codes of the stops between origin and destination, in order.
        weight: weight of a row that is one record; None if every record counts 1.
        size: number of members of each group of a row, where ``trips`` is the number of such groups; None otherwise.
        segments: for each breakdown by which trips are also counted, where the category of a record comes from.
        axes: for records with coordinates in place of zone codes, two tuples, of longitude and of latitude: the least
            and the greatest coordinate, and the number of cells between them. The columns origin, stops and destination
            then hold longitude and latitude in turn. Otherwise empty.
    """

    origin: PlaceColumn = "origin"
    destination: PlaceColumn | None = "destination"
    date: ColumnName | None = None
    trips: ColumnName | None = None
    user: str | None = None
    stops: tuple[str, ...] = ()
    weight: str | None = None
    size: str | None = None
    segments: tuple[SegmentSource, ...] = ()
    axes: tuple[tuple[float, float, int], ...] = ()

    def __post_init__(self) -> None:
        if self.trips is not None and self.weight is not None:
            raise make_trips_weight_error()
        if len({source.breakdown.casefold() for source in self.segments}) < len(self.segments):
            raise _make_options_error("the records have two sources of the categories of one breakdown")

    def facts(self) -> dict[str, object]:
        """Return the columns that are given, JSON-ready, by field. Several published names become a list."""
        facts: dict[str, object] = {}
        for name, column in vars(replace(self, segments=())).items():
            if isinstance(column, PointColumns):
                facts[name] = {"point": list(column.names)}
            elif column:
                facts[name] = column if isinstance(column, str) else list(column)
        if self.segments:
            facts["segments"] = {source.breakdown: source.facts() for source in self.segments}
        return facts

    @property
    def codes(self) -> dict[str, PlaceColumn]:
        """Columns of zone codes or of points in the file, by their names in the loaded records."""
        codes: dict[str, PlaceColumn] = {"origin": self.origin}
        if self.destination is not None:
            codes["destination"] = self.destination
        for number, name in enumerate(self.stops, start=1):
            codes[f"stop_{number}"] = name
        return codes

    @property
    def has_points(self) -> bool:
        """True if the records have coordinates of points, whose zones follow from boundaries."""
        return any(isinstance(column, PointColumns) for column in self.codes.values())

    @property
    def counts_rows(self) -> bool:
        """True if each row counts as one trip, because no column contains a number of trips or a weight."""
        return self.trips is None and self.weight is None

    @property
    def row(self) -> str:
        """Description of the meaning of a row, in words."""
        if self.counts_rows:
            return "one row per trip"
        if self.trips is None:
            return f"one row per trip, and column {self.weight!r} holds its weight"
        if self.size is not None:
            return (
                f"column {quote_column_name(self.trips)} holds the number of groups of the size in column {self.size!r}"
            )
        return f"column {quote_column_name(self.trips)} holds the number of trips"

    @property
    def names(self) -> tuple[ColumnName, ...]:
        """Names of all columns that are read, each once."""
        names: list[ColumnName | None] = [name for place in self.codes.values() for name in list_names(place)]
        names += [self.date, self.trips, self.weight, self.size, self.user]
        names += [source.column for source in self.segments]
        return tuple(dict.fromkeys(name for name in names if name is not None))


_NAME_BY_POSITION = re.compile(r"\(column \d+: .*\)")
"""Name that :func:`make_column_names` gives to a column without a usable name."""


def make_column_names(header: Sequence[str]) -> list[str]:
    """Return a different name for each column of a file, given the names in its header.

    A column without a name, such as an index, and columns with the same name are named by their number. Such columns
    cannot be used. Their names do not begin with a letter, so :func:`od_core.records.open_file.is_header` does not
    take a line with one of them for a header.
    """
    times = Counter(name.lower() for name in header)  # DuckDB ignores case
    names = []
    for number, name in enumerate(header, start=1):
        if not name.strip():
            names.append(f"(column {number}: it has no name)")
        elif times[name.lower()] > 1:
            names.append(f"(column {number}: its name occurs more than once)")
        else:
            names.append(name)
    return names


def find_column(name: ColumnName, columns: Sequence[str]) -> str | None:
    """Return the name of a column as the file writes it; None if the file has no usable column of that name.

    A single name must be exact, and not one of :func:`make_column_names`. Of several published names, the first that
    the file has, in any case, is found.
    """
    if isinstance(name, str):
        return name if name in columns and not _NAME_BY_POSITION.fullmatch(name) else None
    column_of_folded = {column.casefold(): column for column in columns}
    for published_name in name:
        column = column_of_folded.get(published_name.casefold())
        if column is not None:
            return column
    return None


def quote_column_name(name: ColumnName) -> str:
    """Return a column's name in quotes for a message; of several published names, the first three."""
    if isinstance(name, str):
        return repr(name)
    return " or ".join(map(repr, name[:3])) + (", or another published name" if len(name) > 3 else "")


Container = Literal["named", "csv", "parquet", "lines", "json", "stored"]
Encoding = Literal["utf-8", "latin-1", "utf-16"]
OutsidePeriod = Literal["refuse", "drop"]
Timestamps = Literal["utc", "local"]
Option = Literal["delimiter", "encoding", "table", "timestamps"]

Categories = tuple[tuple[str, tuple[str, ...]], ...]
"""Columns by which rows are selected, each with its selected values."""


@dataclass(frozen=True)
class RecordFormat:
    """The format of published files of records, together with the options that a declaration adds.

    Attributes:
        name: name of the reader.
        container: ``csv``; ``parquet``; ``lines`` of fields separated by blanks, without a header; ``json``: Parquet if
            the name of the file ends in .parquet, otherwise JSON; or ``named``: a table of a DuckDB file if ``table``
            is stated, otherwise Parquet if the name of the file ends in .parquet, otherwise CSV. ``stored`` is no file,
            but a table (:class:`od_core.records.stored_table.StoredTable`).
        columns: columns to read, unless a declaration names others.
        takes: options that a declaration may state for this format.
        fields: names of the fields of a line, in order, or of an object of JSON; for ``lines`` and ``json`` only.
        list_name: name of the list of records in an object of JSON, at its top or in its member ``data``.
        computed: columns that are added or replaced, by name, each with its SQL for DuckDB, in which ``$column`` is the
            replaced one and ``$NAME`` another one; NULL if the file lacks it. If it lacks all, nothing is computed.
        estimates: columns that look like counts but contain estimates.
        one_row_a_trip: True if each row is known to be one trip when no column of trips is named. If False, a file with
            columns that are not used is refused.
        has_numbered_zones: True if zone codes are published as whole numbers, which never had leading zeros.
        delimiter: character between fields; None for a comma.
        encoding: encoding of the text; None for UTF-8.
        table: name of the table in a DuckDB file; None if the file is no DuckDB file.
        timestamps: what those timestamps of a Parquet file are that do not state it, such as INT96: ``utc`` for
            instants (Spark writes them), ``local`` for local times (Impala). None refuses such a column of times.
        categories: columns, each with its selected values. A row with another value is not a record of the release. The
            value "" also selects NULL.
        nowhere: codes that name no place of the geography, such as abroad, unknown or not fixed. "" stands for a
            missing or blank code.
        outside_period: ``refuse`` counts records of other periods as faults. ``drop`` leaves them out like rows of
            other categories. A record without a date is always a fault.

    Raises:
        OdError: an option is unknown, is not in ``takes``, or conflicts with another. Or the categories name a column
            twice, or list no values for a column.
    """

    name: str
    container: Container
    columns: RecordColumns
    takes: tuple[Option, ...] = ()
    fields: tuple[str, ...] = ()
    list_name: str | None = None
    computed: tuple[tuple[str, str], ...] = ()
    estimates: tuple[str, ...] = ()
    one_row_a_trip: bool = False
    has_numbered_zones: bool = False
    delimiter: str | None = None
    encoding: Encoding | None = None
    table: str | None = None
    timestamps: Timestamps | None = None
    categories: Categories = ()
    nowhere: tuple[str, ...] = ()
    outside_period: OutsidePeriod = "refuse"

    def __post_init__(self) -> None:
        self._check_options()
        columns = [column for column, _values in self.categories]
        if len(set(columns)) < len(columns):
            raise _make_options_error(f"reader {self.name!r} already selects rows by one of the columns in categories")
        for column, values in self.categories:
            if not values:
                raise _make_options_error(
                    f"categories list no values for column {column!r}, so no row would be selected"
                )

    def _check_options(self) -> None:
        """Raise OdError if an option is not one that the format takes, conflicts with another, or has a bad value."""
        given_options = [option for option in get_args(Option) if getattr(self, option) is not None]
        for option in given_options:
            if option not in self.takes:
                raise _make_options_error(
                    f"reader {self.name!r} does not take the option {option}: its files always have the same format"
                )
        if "table" in given_options and len(given_options) > 1:
            raise _make_options_error(f"the option {given_options[0]} does not apply to a table of a DuckDB file")
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n\0'):
            raise _make_options_error(
                f"the delimiter {self.delimiter!r} is not a single character that separates fields"
            )
        for fault, value, allowed in (
            ("there is no encoding", self.encoding, get_args(Encoding)),
            ("timestamps cannot be", self.timestamps, get_args(Timestamps)),
            ("outside_period cannot be", self.outside_period, get_args(OutsidePeriod)),
        ):
            if value is not None and value not in allowed:
                raise _make_options_error(f"{fault} {value!r} ({suggest_known_names(value, allowed)})")

    @property
    def text_encoding(self) -> Encoding:
        """Encoding of the text, UTF-8 if the format states none."""
        return self.encoding or "utf-8"

    def resolve_container(self, source: Path) -> Literal["csv", "parquet", "duckdb", "lines", "json", "stored"]:
        """Return the kind of a file of this format. It follows from the file's name and the stated options."""
        if self.table is not None:
            return "duckdb"
        if self.container in ("named", "json") and source.suffix == ".parquet":
            return "parquet"
        return "csv" if self.container == "named" else self.container

    def refuse_options_of_text(self, source: Path) -> None:
        """Raise OdError if a delimiter or an encoding is stated, and the file is a Parquet file."""
        given = [name for name in ("delimiter", "encoding") if getattr(self, name) is not None]
        if given and self.resolve_container(source) == "parquet":
            raise _make_options_error(f"the option {given[0]} does not apply to Parquet files such as {source.name}")

    def with_options(
        self,
        *,
        categories: Categories = (),
        nowhere: tuple[str, ...] = (),
        one_row_a_trip: bool = False,
        **options: str | None,
    ) -> RecordFormat:
        """Return a copy of this format with the options of a declaration. Raises OdError if they are not valid.

        ``categories`` and ``nowhere`` are added to those of the format. The other options are delimiter, encoding,
        table, timestamps and outside_period. None, and False for ``one_row_a_trip``, leave the value unchanged.
        """
        given = {option: value for option, value in options.items() if value is not None}
        return replace(
            self,
            categories=(*self.categories, *categories),
            nowhere=tuple(dict.fromkeys((*self.nowhere, *nowhere))),
            one_row_a_trip=self.one_row_a_trip or one_row_a_trip,
            **given,  # type: ignore[arg-type]  # checked by the class
        )

    def rename_columns(self, **stated: str | PointColumns | None) -> RecordColumns:
        """Return the columns of the format with the stated names of some of them.

        ``stated`` has names by fields of :class:`RecordColumns`; None leaves a name unchanged. Raises OdError if the
        column of trips contains estimates, or the columns conflict.
        """
        columns = replace(self.columns, **{name: value for name, value in stated.items() if value is not None})  # type: ignore[arg-type]  # not stops
        self.refuse_estimates(columns)
        return columns

    def facts(self, time_zone: str | None) -> dict[str, object]:
        """Return the settings of reading, JSON-ready. ``time_zone`` is the one in which days begin, or None."""
        return {
            "reader": self.name,
            "categories": {column: list(values) for column, values in self.categories},
            "nowhere": list(self.nowhere),
            "outside_period": self.outside_period,
            "time_zone": time_zone,
            **({"timestamps": self.timestamps} if self.timestamps else {}),
        }

    def refuse_estimates(self, columns: RecordColumns) -> None:
        """Raise OdError if the column of trips contains estimates instead of counts."""
        if columns.trips in self.estimates:
            raise _make_options_error(
                f"column {columns.trips!r} of reader {self.name!r} holds fractional estimates, not counts"
            )


def _make_options_error(message: str) -> OdError:
    """Return the OdError for a declaration of records that is not valid."""
    return OdError("OD-READER-OPTIONS", message, next_step="correct the declaration of the records")


def _make_format(name: str, stated: Mapping[str, Any]) -> RecordFormat:
    """Return the format that ``formats.yaml`` states under a name.

    ``stated`` are the entries of the format, in which lists stand for tuples, and mappings for tuples of pairs.
    """
    columns: dict[str, Any] = {}
    for field_name, names in stated.get("columns", {}).items():
        if isinstance(names, dict):
            columns[field_name] = PointColumns(tuple(names["point"]))
        else:
            columns[field_name] = _convert_to_tuples(names)
    not_options = ("text", "columns")  # ``text`` describes the format in the documentation
    options = {option: _convert_to_tuples(value) for option, value in stated.items() if option not in not_options}
    return RecordFormat(name, columns=RecordColumns(**columns), **options)


def _convert_to_tuples(stated: object) -> Any:
    """Return a value with tuples in place of lists, and with tuples of pairs in place of mappings."""
    if isinstance(stated, dict):
        return tuple((name, _convert_to_tuples(value)) for name, value in stated.items())
    return tuple(stated) if isinstance(stated, list) else stated


FORMATS = {
    name: _make_format(name, stated)
    for name, stated in yaml.safe_load(Path(__file__).with_name("formats.yaml").read_text(encoding="utf-8")).items()
}
"""Formats by the names of their readers."""

TABLE = FORMATS["table"]


def find_format(name: str) -> RecordFormat:
    """Return the format that the reader with this name reads. Raises OdError if there is no such reader."""
    return find_by_name(
        "reader", name, FORMATS, code="OD-READER-UNKNOWN", next_step="correct the reader of the records"
    )
