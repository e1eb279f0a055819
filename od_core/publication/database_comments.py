"""Describe the release database's tables and columns in comments, for people who explore it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import duckdb

from od_core.publication import area_columns, columns, group_columns, segment_columns
from od_core.publication.columns import Column


@dataclass(frozen=True)
class Described:
    """A description of a table or view of the database.

    Attributes:
        text: meaning of a row.
        columns: descriptions of the columns, by name.
    """

    text: str
    columns: Mapping[str, str]


def _of(text: str, listed: Iterable[Column], **more: str) -> Described:
    """Return a description with the texts of the ``listed`` columns, and further texts by name of the column."""
    return Described(text, {**more, **{column.name: column.description for column in listed}})


_RELEASE = "Key of the release: series, period and revision, such as us_flights/2001-06/r1."
_OF_ALL_KINDS = {
    "release": _RELEASE,
    "series": "Name of the release series.",
    "period": columns.PERIOD.description,
    "revision": "Number of the revision, from 1; a later revision corrects an earlier one.",
    "mechanism": "Name of the mechanism that made the release.",
    "unit": "What is protected: trip, user, user_period or user_year.",
    "neighbours": "bounded: one unit is replaced by another; unbounded: one unit is added or removed.",
    "epsilon": "Privacy loss at delta, rounded up.",
    "measured_at": "Time of the measurement, in UTC.",
    "certificate": "Certificate of the release, as JSON.",
}
_AREAS = {column.name: column.description for column in area_columns.AREAS.columns}
_FLOW = (columns.ORIGIN, columns.DESTINATION, columns.TRIPS)
_AT_LEVELS = (columns.ORIGIN_LEVEL, columns.DESTINATION_LEVEL, *_FLOW)
_INDICATORS = area_columns.indicator_table(interval=True, distance=True)
_MEASUREMENTS, _GROUPS = columns.NOISY_MEASUREMENTS, group_columns.GROUP_MEASUREMENTS
_BY = (segment_columns.BREAKDOWN, segment_columns.CATEGORY)
_LEVEL_NUMBER = "Number of the level of the flow tree; 0 is the root, from the whole space to itself."
_ERROR = "Root of the expected mean squared error over all pairs, if no estimate were cut at 0."
_UNLISTED = "A pair that is not listed was released as 0."

DATABASE = {
    "areas": _of("A public area of a geography.", area_columns.AREAS.columns),
    "checks": Described(
        "A check that a release passed before it was published.",
        {
            "release": _RELEASE,
            "subject": "What was checked.",
            "check": "Name of the check.",
            "passed": "Whether it passed.",
        },
    ),
    "format": Described(
        "Format of this database: one row. Software for an earlier format refuses the database.",
        {"version": "Number of the format."},
    ),
    "releases": Described(
        "A release of flows.",
        {
            **_OF_ALL_KINDS,
            "rho": "Privacy loss in zero-concentrated differential privacy, rounded up.",
            "delta": "The delta for which epsilon is stated.",
            "trips": "Sum of the flows of the release.",
            "origin_geography": "Geography of the origins; see areas.",
            "destination_geography": "Geography of the destinations; see areas.",
        },
    ),
    "flows": _of(f"The trips between two zones. {_UNLISTED}", _FLOW, release=_RELEASE),
    "flows_by_level": _of(
        f"The trips between two areas of any pair of levels, summed from the zones. {_UNLISTED} Do not add rows"
        " of different pairs of levels, because each pair of levels contains all trips.",
        _AT_LEVELS,
        release=_RELEASE,
    ),
    "flow_intervals": _of(
        "The trips between two areas, with their interval. All pairs of areas of the listed pairs of levels are"
        " included, even with 0 trips. For larger pairs of levels, the bundle contains the intervals.",
        (*_AT_LEVELS, columns.LOWER, columns.UPPER),
        release=_RELEASE,
    ),
    "zone_areas": Described(
        "A zone and an area that contains it, including the zone itself and the whole space.",
        {**{name: _AREAS[name] for name in ("geography", "level", "level_name", "area")}, "zone": "Code of the zone."},
    ),
    "measurements": _of(
        _MEASUREMENTS.row,
        (*_MEASUREMENTS.columns[1:],),
        release=_RELEASE,
        level=(
            "Number of the level of the flow tree; expected_error states the level of the origins and of the"
            " destinations."
        ),
    ),
    "expected_error": _of(
        "A level of the flow tree with its expected error, which is computed from public facts only.",
        (columns.ORIGIN_LEVEL, columns.DESTINATION_LEVEL),
        release=_RELEASE,
        level=_LEVEL_NUMBER,
        root_mean_square_error=_ERROR,
    ),
    "indicators": _of(
        f"{_INDICATORS.row} What the bundle of a release does not have is empty, such as intervals.",
        _INDICATORS.columns,
        release=_RELEASE,
    ),
    "segment_flows": _of(
        "The trips between two zones in one category of a breakdown. What is not listed was released as 0.",
        (columns.ORIGIN, columns.DESTINATION, *_BY, segment_columns.CATEGORY_TRIPS),
        release=_RELEASE,
    ),
    "segment_intervals": _of(
        "The trips between two areas in one category of a breakdown, with their interval. All pairs of areas of the"
        " listed pairs of levels are included, even with 0 trips. For larger pairs of levels, the bundle contains the"
        " intervals.",
        segment_columns.segments_table(interval=True).columns,
        release=_RELEASE,
    ),
    "segment_measurements": _of(
        segment_columns.SEGMENT_MEASUREMENTS.row,
        segment_columns.SEGMENT_MEASUREMENTS.columns,
        release=_RELEASE,
    ),
    "segment_expected_error": _of(
        "A level of the flow tree with the expected error of one category of a breakdown, which is computed from public"
        " facts only.",
        (segment_columns.BREAKDOWN, columns.ORIGIN_LEVEL, columns.DESTINATION_LEVEL),
        release=_RELEASE,
        level=_LEVEL_NUMBER,
        root_mean_square_error=_ERROR,
    ),
    "group_size_releases": Described(
        "A release of group sizes.",
        {**_OF_ALL_KINDS, "groups": "Public number of groups.", "geography": "Geography; see areas."},
    ),
    "group_sizes": _of(group_columns.HISTOGRAM.row, group_columns.HISTOGRAM.columns, release=_RELEASE),
    "group_size_measurements": _of(_GROUPS.row, _GROUPS.columns, release=_RELEASE),
    "group_size_intervals": _of(group_columns.CUMULATIVE.row, group_columns.CUMULATIVE.columns, release=_RELEASE),
    "group_member_intervals": _of(group_columns.MEMBERS.row, group_columns.MEMBERS.columns, release=_RELEASE),
    "stops_releases": Described(
        "A release of trips with stops.",
        {
            **_OF_ALL_KINDS,
            "trips": "Sum of the boxes of the release.",
            "grid": "Number of cells of the grid in each dimension.",
        },
    ),
    "stops_boxes": _of(
        "A box of the grid, with its trips; the boxes fill the grid and do not overlap.",
        (columns.COUNT, *columns.COUNT_ENDS, columns.NOISY),
        release=_RELEASE,
        lower="First cell of the box in each dimension, from 0.",
        upper="Last cell of the box in each dimension (inclusive).",
    ),
}
"""Description of each table or view of the database, by name."""


def describe(connection: duckdb.DuckDBPyConnection) -> None:
    """Set all comments of each table or view that lacks one, for example because it was replaced.

    A table of an older database may lack columns, until a release of its kind is stored.
    """
    present = set(connection.execute("SELECT table_name, column_name FROM duckdb_columns()").fetchall())
    views = {name for (name,) in connection.execute("SELECT view_name FROM duckdb_views()").fetchall()}
    query = "SELECT DISTINCT table_name FROM duckdb_columns() WHERE NOT internal AND comment IS NULL"
    for (name,) in connection.execute(query).fetchall():
        if name in DATABASE:
            kind = "VIEW" if name in views else "TABLE"
            of_name = {column: text for column, text in DATABASE[name].columns.items() if (name, column) in present}
            connection.execute("; ".join(_comments(kind, name, Described(DATABASE[name].text, of_name))))


def _comments(kind: str, name: str, described: Described) -> list[str]:
    columns_of = [f'COLUMN {name}."{column}" IS {_quoted(text)}' for column, text in described.columns.items()]
    return [f"COMMENT ON {what}" for what in (f"{kind} {name} IS {_quoted(described.text)}", *columns_of)]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
