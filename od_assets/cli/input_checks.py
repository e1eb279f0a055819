"""Confidential: check whether a release would refuse the file of a period, and why.

The records are read and counted as in a release, from a copy that is deleted afterwards. The findings are about
records, so they are written to a file of mode 0600 in the confidential folder. The command shows the location of that
file and the public line with which a release would refuse the input; it holds no value of a record.
"""

from __future__ import annotations

import secrets
import shutil
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa

from od_assets.assets.loading import load_period
from od_assets.checks.asset_checks import RECORDS_CHECK, RECORDS_REQUIREMENT
from od_assets.checks.expectations import listed_codes, listed_for, record_faults
from od_assets.cli.findings import Finding, found
from od_assets.cli.ledger_checks import InspectedCounters, InspectedFolder, hold_to_drawn
from od_assets.resources.arrivals import arrival, hold_to_marker
from od_assets.resources.release_work import ReleaseWork
from od_assets.resources.warehouse import Warehouse
from od_assets.series.settings import SeriesSettings, TableSettings
from od_core.errors import OdError
from od_core.files.duckdb_session import parquet_rows, quoted_name, scratch_database
from od_core.files.durable import of_system
from od_core.ledger.identity import Counted
from od_core.ledger.user_counters import UserCounters
from od_core.periods import Period
from od_core.records.count_records import trip_counts_of
from od_core.records.faults import filled_with_zeros
from od_core.records.file_faults import in_records
from od_core.records.load import refuse_absent
from od_core.records.segments import Breakdown

_FIRST_ROWS = 5
"""Number of example records in the findings for each kind of fault."""


@dataclass(frozen=True, repr=False)
class _Inspection:
    """Confidential: the findings on an input.

    Attributes:
        refused: errors with which a release would refuse the input, in the order in which it meets them.
        numbers: lines of text with the number of faults of each kind and the first faulty records.
    """

    refused: tuple[OdError, ...]
    numbers: tuple[str, ...]

    def text(self, title: str) -> str:
        """Return all findings as text."""
        verdict = "would be refused" if self.refused else "would not be refused"
        refused = [text for error in self.refused for text in (str(error), error.confidential_detail) if text]
        return "\n".join([f"{title}: {verdict}", *dict.fromkeys(refused), "", *self.numbers, ""])


def inspected(settings: SeriesSettings[Any, Any], period: str) -> list[Finding]:
    """Return findings on the file of a period: whether it exists, is complete, and would be accepted by a release.

    For unit ``user_year``, the first finding is on the counters of users with which the records would be counted.
    """
    key, warehouse = settings.key(period), Warehouse.of(settings.project)
    what, there = f"input of {key}", arrival(settings, Period(period))
    work: ReleaseWork[Any, Any] = ReleaseWork(warehouse, settings, key)
    counters = InspectedCounters.of(work)
    findings = [] if counters is None else [found(f"counters of users for {key}", counters.check)]
    if there.waits is not None:
        return [*findings, found(what, partial(_refuse_waiting, settings, period, there.waits))]
    if not settings.records_are_here:
        return [*findings, Finding(f"{what}: only Spark reads it, so it is not checked here")]
    usable = counters if all(finding.ok for finding in findings) else None
    try:
        folder = warehouse.confidential.subfolder(f"doctor-{secrets.token_hex(6)}")
    except OSError as error:
        return [*findings, Finding.of_error(f"{what}: no copy of it can be written", of_system(error))]
    inspection = _inspection(work, usable, folder)
    look = warehouse.confidential.keep_detail(inspection.text(f"{key}, {settings.records_path(period)}"))
    if inspection.refused:
        first = inspection.refused[0]
        fault = f"the input would be refused. {first.code}: {first.message}"
        return [*findings, Finding(what, fault, f"{first.next_step}; {look}")]
    return [*findings, Finding(f"{what}: the input would not be refused ({look})")]


def _refuse_waiting(settings: SeriesSettings[Any, Any], period: str, waits: str) -> None:
    """Raise OdError for a file that has not arrived: the error of a run, if it would refuse the file too."""
    source = settings.records_path(period)
    refuse_absent(source)
    hold_to_marker(source, settings.marker_path(period))
    raise OdError("OD-FILE-INCOMPLETE", waits, next_step="wait until the file is complete")


def _inspection(work: ReleaseWork[Any, Any], counters: InspectedCounters | None, folder: Path) -> _Inspection:
    refused: list[OdError] = []
    numbers: list[str] = []
    try:
        _inspect(work, counters, folder / "records.parquet", refused, numbers)
    except OdError as error:
        refused.append(error)
    except Exception:  # noqa: BLE001  # any text may hold a confidential value, so none may leave
        refused.append(
            OdError(
                "OD-CONFIDENTIAL-ERROR",
                "the input cannot be read or counted",
                next_step="correct the input",
                confidential_detail=traceback.format_exc(),
            )
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _Inspection(tuple(refused), tuple(numbers))


def _inspect(
    work: ReleaseWork[Any, Any],
    counters: InspectedCounters | None,
    records: Path,
    refused: list[OdError],
    numbers: list[str],
) -> None:
    """Append the findings on an input to ``refused`` and ``numbers``. Errors of reading and counting are not caught."""
    settings, period = work.settings, work.key.period
    drawn = work.warehouse.ledger_chain.exists() and work.is_drawn  # to ask for a ledger would create it
    if drawn:
        work.hold_to_reading()
    geography = settings.read_geography()
    load_period(settings, period, records, geography)
    with scratch_database(records.parent, records) as connection:
        for name, codes in listed_codes(*settings.listed_codes(geography), settings.breakdowns).items():
            connection.register(name, pa.table({"code": pa.array(codes, pa.string())}))
        for kind in _kinds(connection, records, settings.breakdowns):
            numbers += kind.lines(connection)
            if kind.is_judged and kind.faulty > settings.fault_threshold * kind.among:
                share = float(settings.fault_threshold)
                above = f"{kind.name}: {kind.faulty} of {kind.among} records, above the threshold {share:.3%}"
                refused.append(_check_failed(settings.name, above))
    try:
        counted = _counted(work, geography, counters, records)
    except OdError as error:
        raise in_records(error, settings.records_path(period).name, settings.columns) from None
    if drawn:
        hold_to_drawn(work, counted, counters)


def _check_failed(name: str, detail: str) -> OdError:
    """Return the error of the blocking check of the raw records, as a run reports it."""
    return OdError(
        "OD-CHECK-FAILED",
        f"{name}/raw_trips: check {RECORDS_CHECK} failed. It requires: {RECORDS_REQUIREMENT.removesuffix('.')}",
        next_step="correct the input or the declaration",
        confidential_detail=detail,
    )


def _counted(work: ReleaseWork[Any, Any], geography: Any, counters: UserCounters | None, records: Path) -> Counted:
    """Count the records as a release does. Raises OdError if a release would refuse them."""
    settings, period = work.settings, work.key.period
    counted: Counted
    if isinstance(settings, TableSettings):
        counted = settings.count(records, geography, period)
    else:
        counted = trip_counts_of(
            records,
            settings.plan(geography, period).tree,
            unit=settings.unit,
            key=InspectedFolder.of(work).key(),
            period=period,
            fault_threshold=settings.fault_threshold,
            breakdowns=settings.breakdowns,
            counters=counters,
        )
    settings.acceptance.refuse_empty(counted.total, settings.unit)
    return counted


@dataclass(frozen=True, repr=False)
class _Kind:
    """Confidential: one kind of fault.

    Attributes:
        name: name of the kind.
        condition: SQL condition of a faulty record.
        faulty, among: number of records that have the fault, and number of records that could have it.
        is_judged: whether a release refuses an input with too many of these faults. False for flows, whose faults are
            counted in trips instead of records, and for codes that lost their zeros, which count as unlisted already.
        rows: SQL query of the records with their row numbers.
    """

    name: str
    condition: str
    faulty: int
    among: int
    is_judged: bool
    rows: str

    def lines(self, connection: duckdb.DuckDBPyConnection) -> list[str]:
        """Return lines of text with the numbers of the fault, and the first faulty records with their row numbers."""
        share = self.faulty / self.among if self.among else 0.0
        lines = [f"{self.name}: {self.faulty} of {self.among} records ({share:.4%})"]
        if self.faulty:
            query = f"SELECT * FROM ({self.rows}) WHERE {self.condition} ORDER BY row LIMIT {_FIRST_ROWS}"  # noqa: S608  # our own text
            lines += _frame_text(connection.sql(query).df())
        return lines


def _kinds(connection: duckdb.DuckDBPyConnection, records: Path, breakdowns: Sequence[Breakdown]) -> Iterator[_Kind]:
    """Yield every kind of fault that these records may have, including codes that lost their leading zeros."""
    file = parquet_rows(records, numbered=True)
    rows = f"SELECT file_row_number + 1 AS row, * EXCLUDE (file_row_number) FROM {file}"  # noqa: S608  # checked name
    columns = connection.sql(rows).columns[1:]
    for name, fault in record_faults(columns, breakdowns).items():
        faulty, among = _numbers(connection, rows, fault.is_faulty, fault.among)
        yield _Kind(name, fault.is_faulty, faulty, among, "trips" not in columns, rows)
        if name.endswith("_unlisted") and faulty:
            lost = f"{fault.is_faulty} AND {_is_listed_with_zeros(connection, fault.column)}"
            without_zeros, _ = _numbers(connection, rows, lost, fault.among)
            yield _Kind(f"{fault.column}_that_lost_its_zeros", lost, without_zeros, faulty, False, rows)


def _numbers(connection: duckdb.DuckDBPyConnection, rows: str, is_faulty: str, among: str) -> tuple[int, int]:
    among = among if among == "*" else quoted_name(among)
    query = f"SELECT count(*) FILTER (WHERE {is_faulty}), count({among}) FROM ({rows})"  # noqa: S608  # our own text
    ((faulty, all_of_them),) = connection.sql(query).fetchall()
    return faulty, all_of_them


def _is_listed_with_zeros(connection: duckdb.DuckDBPyConnection, column: str) -> str:
    """Return an SQL condition that a code is listed after padding with zeros to the usual length of the codes."""
    table = listed_for(column)
    listed = [code for (code,) in connection.sql(f"FROM {table}").fetchall()]
    return f"{filled_with_zeros(column, listed)} IN (FROM {table})"


def _frame_text(rows: pd.DataFrame) -> list[str]:
    return [f"  {line}" for line in rows.to_csv(index=False).splitlines()]
