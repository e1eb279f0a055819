"""Confidential: trip records or flows from Parquet or CSV files, read out of core by DuckDB.

What comes out is a Parquet file in the confidential folder with the columns ``date``, ``origin``,
``destination`` (text codes), ``in_period`` and, for flows, ``trips``. No record is judged here but by its own
fields, and no message quotes one.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pandas as pd

from od_core.archive.files import write_durably
from od_core.errors import OdError, nearest_known

_TEXT_TYPES = ("VARCHAR", "ENUM")
_WHOLE_TYPES = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
_TIME_TYPES = ("DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")
_LOCAL_TIME = r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?"
"""A date or a time without zone; any other text is no date (two zones in one column would mix two clocks)."""


@dataclass(frozen=True)
class RecordColumns:
    """Which columns of a file hold what.

    Attributes:
        origin, destination: zone codes, text.
        date: when the trip was made; None where a file holds one period alone.
        trips: number of trips of a row, for flows; None for one row a trip.
    """

    origin: str = "origin"
    destination: str = "destination"
    date: str | None = None
    trips: str | None = None


def load_records(source: Path, columns: RecordColumns, period: str, target: Path) -> None:
    """Copy the records of a file into the confidential folder, with their membership of the period.

    Args:
        source: Parquet or CSV (with a header line, UTF-8).
        columns: names of the columns in the file.
        period: elementary period, a prefix of an ISO date, as ``2001-06``.
        target: Parquet file to write, durably and with mode 0600.

    Raises:
        OdError: the file is missing or unreadable; a column is missing, holds numbers where codes belong, or
            times with a zone.
    """
    if not source.is_file():
        raise _fault("OD-FILE-MISSING", f"there is no file {source.name}")
    spill = target.parent / "spill"
    with duckdb.connect(config={"temp_directory": str(spill)}) as connection:
        try:
            relation = (
                connection.read_parquet(str(source))
                if source.suffix == ".parquet"
                else connection.read_csv(
                    str(source), header=True, sep=",", quotechar='"', escapechar='"', all_varchar=True
                )
            )
            types = {name: str(kind) for name, kind in zip(relation.columns, relation.types, strict=True)}
            query = _query(source, columns, types, period)
            connection.register("records", relation)
            write_durably(target, lambda file: connection.sql(query).write_parquet(str(file)))
        except duckdb.Error as error:
            raise OdError(
                "OD-FILE-UNREADABLE",
                f"{source.name} cannot be read as UTF-8 CSV with a header, or as Parquet",
                next_step="correct the file of records",
                confidential_detail=str(error),
            ) from None
        finally:
            shutil.rmtree(spill, ignore_errors=True)


def read_flows(records: Path) -> pd.DataFrame:
    """The loaded records as ``count_trips`` takes them: summed by pair, or as rows where they are flows.

    Returns:
        Columns origin, destination, in_period, trips. Rows of a flows file are not summed, so that each count
        is checked for itself.
    """
    with duckdb.connect() as connection:
        relation = connection.read_parquet(str(records))
        if "trips" in relation.columns:
            chosen = relation.project("origin, destination, in_period, trips")
        else:
            chosen = relation.aggregate("origin, destination, in_period, count(*) AS trips")
        flows: pd.DataFrame = chosen.df()
    return flows


def _query(source: Path, columns: RecordColumns, types: dict[str, str], period: str) -> str:
    """The one query over a file; names are quoted, and the period is a checked part of the release's key."""
    for name in (columns.origin, columns.destination, columns.date, columns.trips):
        if name is not None and name not in types:
            known = nearest_known(name, tuple(types))
            raise _fault("OD-TRIPS-COLUMN", f"{source.name} has no column {name!r} ({known})")
    for name in (columns.origin, columns.destination):
        if not types[name].startswith(_TEXT_TYPES):
            raise _fault(
                "OD-TRIPS-NOT-TEXT",
                f"{source.name}: column {name!r} holds {types[name]}; zone codes are text, numbers lose leading zeros",
            )
    date = "NULL::TIMESTAMP" if columns.date is None else _date(source, columns.date, types)
    day = "true" if columns.date is None else f"coalesce(starts_with(strftime({date}, '%Y-%m-%d'), '{period}'), false)"
    fields = [
        f"{date} AS date",
        f"{_quoted(columns.origin)}::VARCHAR AS origin",
        f"{_quoted(columns.destination)}::VARCHAR AS destination",
        f"{day} AS in_period",
    ]
    if columns.trips is not None:
        whole = types[columns.trips] in _WHOLE_TYPES
        cast = f"{_quoted(columns.trips)}::BIGINT" if whole else f"TRY_CAST({_quoted(columns.trips)} AS DOUBLE)"
        fields.append(f"{cast} AS trips")
    return f"SELECT {', '.join(fields)} FROM records"  # noqa: S608  # parts checked above


def _date(source: Path, name: str, types: dict[str, str]) -> str:
    if types[name] in _TIME_TYPES:
        return f"{_quoted(name)}::TIMESTAMP"
    if types[name] == "VARCHAR":
        text = _quoted(name)
        return f"CASE WHEN regexp_full_match({text}, '{_LOCAL_TIME}') THEN TRY_CAST({text} AS TIMESTAMP) END"
    raise _fault(
        "OD-TRIPS-DATE",
        f"{source.name}: column {name!r} holds {types[name]}, not dates or local times without a zone",
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _fault(code: str, message: str) -> OdError:
    return OdError(code, message, next_step="correct the file of records, or the columns named in the configuration")
