"""Confidential: trip records or flows from Parquet or CSV files, read out of core by DuckDB.

What comes out is a Parquet file in the confidential folder with the columns ``date``, ``origin``,
``destination`` (text codes), ``in_period`` and, where they are asked for, ``stop_1``, ``stop_2`` and so on (text
codes), ``trips``, ``weight`` (as it stands, NULL where it is no number) and ``user`` (text). Every
record is read by fixed rules, from its own fields alone (nothing is guessed from a sample of the file), and no
message quotes one.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import duckdb

from od_core.archive.files import write_durably
from od_core.contribution_bound import no_user_ids
from od_core.errors import OdError, nearest_only
from od_core.readers.scratch import file_name, quoted_name, quoted_text, scratch_database
from od_core.trip_faults import MAX_COUNT
from od_core.weights import no_weights, trips_and_weights

_TEXT_TYPES = ("VARCHAR", "ENUM")
_WHOLE_TYPES = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
_ID_TYPES = (*_TEXT_TYPES, *_WHOLE_TYPES, "UBIGINT", "HUGEINT")
_COUNT_TYPES = (*_WHOLE_TYPES, "UBIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "VARCHAR")
_TIME_TYPES = ("DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")
_LOCAL_TIME = r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?"
"""A date or a time without zone; any other text is no date (two zones in one column would mix two clocks)."""

_DIALECT = (
    "auto_detect = false, header = true, delim = ',', quote = '\"', escape = '\"', comment = '', nullstr = '',"
    " null_padding = false, ignore_errors = false, strict_mode = true, encoding = 'utf-8'"
)


@dataclass(frozen=True)
class RecordColumns:
    """Which columns of a file hold what.

    Attributes:
        origin, destination: zone codes, text.
        date: when the trip was made; None where a file holds one period alone.
        trips: number of trips of a row, for flows; None for one row a trip.
        user: user id, text or a whole number; None where users are not the unit of privacy.
        stops: zone codes of the places between origin and destination, in order.
        weight: weight of a record, for one row a record; None where every record counts 1.

    Raises:
        OdError: columns of trips and of weights.
    """

    origin: str = "origin"
    destination: str = "destination"
    date: str | None = None
    trips: str | None = None
    user: str | None = None
    stops: tuple[str, ...] = ()
    weight: str | None = None

    def __post_init__(self) -> None:
        if self.trips is not None and self.weight is not None:
            raise trips_and_weights()

    @property
    def codes(self) -> dict[str, str]:
        """Columns of zone codes, by what they are called in the confidential folder."""
        return {
            "origin": self.origin,
            "destination": self.destination,
            **{f"stop_{number}": name for number, name in enumerate(self.stops, start=1)},
        }


def load_records(source: Path, columns: RecordColumns, period: str, target: Path) -> None:
    """Copy the records of a file into the confidential folder, with their membership of the period.

    Args:
        source: Parquet, or CSV (UTF-8, a header line, commas, quotes where needed).
        columns: names of the columns in the file.
        period: elementary period: a year, month or day, as ``2001-06``.
        target: Parquet file to write, durably and with mode 0600.

    Raises:
        OdError: the file is missing or unreadable; a column is missing, or holds numbers where codes belong,
            times with a zone, truth values where counts belong, or fractions where user ids do; the disk is full.
    """
    if not source.is_file():
        raise _fault("OD-FILE-MISSING", f"there is no file {source.name}")
    with scratch_database(target.parent, source) as connection:
        try:
            name = file_name(source)
            if source.suffix == ".parquet":
                relation = connection.read_parquet(name)
            else:
                relation = connection.sql(_csv_query(name, _header(source)))
            types = {name: str(kind) for name, kind in zip(relation.columns, relation.types, strict=True)}
            query = _query(source, columns, types, period)
            connection.register("records", relation)
            write_durably(target, lambda file: connection.sql(query).write_parquet(str(file)))
        except (duckdb.Error, UnicodeDecodeError, csv.Error) as error:
            if isinstance(error, duckdb.IOException) and target.name in str(error):
                raise OdError(
                    "OD-DISK-WRITE",
                    "the confidential folder cannot be written",
                    next_step="make room on its disk, then run the release again",
                    confidential_detail=str(error),
                ) from None
            raise OdError(
                "OD-FILE-UNREADABLE",
                f"{source.name} cannot be read as {'Parquet' if source.suffix == '.parquet' else 'CSV in UTF-8'}",
                next_step="correct the file of records",
                confidential_detail=str(error),
            ) from None


def _header(source: Path) -> list[str]:
    """Column names of a CSV file. Raises OdError where there are none, or one stands twice."""
    with source.open(encoding="utf-8-sig", newline="") as file:
        names = next(csv.reader(file), [])
    if not names or len(set(names)) < len(names):
        what = "has a column twice" if names else "is empty, without even a header line"
        raise OdError("OD-FILE-UNREADABLE", f"{source.name} {what}", next_step="correct the file of records")
    return names


def _csv_query(name: str, header: list[str]) -> str:
    """Every part of the dialect is stated: a guess from a sample would let one record change how others are read."""
    columns = ", ".join(f"{quoted_text(column)}: 'VARCHAR'" for column in header)
    return f"SELECT * FROM read_csv({quoted_text(name)}, columns = {{{columns}}}, {_DIALECT})"  # noqa: S608  # quoted


def _query(source: Path, columns: RecordColumns, types: dict[str, str], period: str) -> str:
    """The one query over a file; names are quoted, and the period is a checked part of the release's key."""
    for name in (*columns.codes.values(), columns.date, columns.trips, columns.weight, columns.user):
        if name is not None and name not in types:
            # A CSV file without header has a record for names.
            near = nearest_only(name, tuple(types)) if source.suffix == ".parquet" else ""
            raise _fault("OD-TRIPS-COLUMN", f"{source.name} has no column {name!r}{near}")
    for name in columns.codes.values():
        if not types[name].startswith(_TEXT_TYPES):
            raise _fault(
                "OD-TRIPS-NOT-TEXT",
                f"{source.name}: column {name!r} holds {types[name]}; zone codes are text, numbers lose leading zeros",
            )
    date, day = ("NULL::TIMESTAMP", "NULL::DATE") if columns.date is None else _date(source, columns.date, types)
    in_period = f"coalesce({day} >= {_first_day(period)} AND {day} < {_next_period(period)}, {columns.date is None})"
    fields = [
        f"{date} AS date",
        *(f"{quoted_name(name)}::VARCHAR AS {code}" for code, name in columns.codes.items()),
        f"{in_period} AS in_period",
    ]
    if columns.trips is not None:
        fields.append(f"{_count(source, columns.trips, types)} AS trips")
    if columns.weight is not None:
        fields.append(f"{_weight(source, columns.weight, types)} AS weight")
    if columns.user is not None:
        kind = types[columns.user].partition("(")[0]
        if kind not in _ID_TYPES:
            raise no_user_ids(f"{source.name}: column {columns.user!r} holds {kind}")
        fields.append(f'{quoted_name(columns.user)}::VARCHAR AS "user"')
    return f"SELECT {', '.join(fields)} FROM records"  # noqa: S608  # parts checked above


def _first_day(period: str) -> str:
    return f"DATE '{f'{period}-01-01'[:10]}'"


def _next_period(period: str) -> str:
    """First day that is not in the period any more."""
    length = {4: "YEAR", 7: "MONTH", 10: "DAY"}[len(period)]
    return f"({_first_day(period)} + INTERVAL 1 {length})::DATE"


def _date(source: Path, name: str, types: dict[str, str]) -> tuple[str, str]:
    """A local time and its day, or NULL where a record has none that the calendar knows.

    The day is not taken from the time, whose microseconds may be rounded up into the next day.
    """
    column = quoted_name(name)
    if types[name] in _TIME_TYPES:
        return f"TRY_CAST({column} AS TIMESTAMP)", f"TRY_CAST({column} AS DATE)"
    if types[name] == "VARCHAR":
        time = f"CASE WHEN regexp_full_match({column}, '{_LOCAL_TIME}') THEN TRY_CAST({column} AS TIMESTAMP) END"
        return time, f"CASE WHEN {time} IS NOT NULL THEN TRY_CAST(left({column}, 10) AS DATE) END"
    raise _fault(
        "OD-TRIPS-DATE",
        f"{source.name}: column {name!r} holds {types[name]}, not dates or local times without a zone",
    )


def _count(source: Path, name: str, types: dict[str, str]) -> str:
    """The counts as they stand, for ``count_records`` to check one by one."""
    kind = types[name].partition("(")[0]
    if kind not in _COUNT_TYPES:
        raise _fault("OD-TRIPS-COUNT", f"{source.name}: column {name!r} holds {kind}, not numbers of trips")
    column = quoted_name(name)
    if kind in _WHOLE_TYPES:
        return f"{column}::BIGINT"
    exceeds = f"TRY_CAST({column} AS HUGEINT) > {MAX_COUNT}"  # as DOUBLE, 2^53 + 1 would be 2^53
    return f"CASE WHEN {exceeds} THEN 'inf'::DOUBLE ELSE TRY_CAST({column} AS DOUBLE) END"


def _weight(source: Path, name: str, types: dict[str, str]) -> str:
    """The weights as they stand, for ``count_records`` to round and cut."""
    kind = types[name].partition("(")[0]
    if kind not in _COUNT_TYPES:
        raise no_weights(f"{source.name}: column {name!r} holds {kind}")
    return f"TRY_CAST({quoted_name(name)} AS DOUBLE)"


def _fault(code: str, message: str) -> OdError:
    return OdError(code, message, next_step="correct the file of records, or the columns named in the configuration")
