"""Confidential: take the columns of a table that a caller passes, in memory or as a Parquet or CSV file.

No message quotes a value of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from od_core.errors import InputError, OdError, raise_without_context, suggest_similar_name
from od_core.files.data_frame import (
    Table,
    TableOrFile,
    convert_to_data_frame,
    convert_to_exact_numbers,
    convert_to_texts,
    find_unexpected_type,
    format_column_names,
    holds_numbers,
    resolve_column_names,
)
from od_core.files.duckdb_session import connect_to_memory_database, quote_identifier
from od_core.files.durable import find_file_fault
from od_core.geography.codes import READ_AS_TEXT, WHOLE_SPACE
from od_core.privacy.unit import PrivacyUnit
from od_core.records import faults
from od_core.records.faults import check_unit_columns, make_user_id_error, make_weight_type_error
from od_core.records.formats import TABLE, find_column
from od_core.records.load import make_count_sql, refuse_unused_columns
from od_core.records.open_file import open_record_file
from od_core.records.segments import Breakdown, name_segment_column

IN_PERIOD = "in_period"
"""Name of a column of true and false, which marks the records of the period."""

_CORRECT_TABLE_STEP = "correct the file or the names in columns, or read the file yourself and pass the table"
"""Next step of a fault of a caller's file. The readers' own next steps name a declaration, which a caller lacks."""


def make_double_sql(column: str) -> str:
    """Return SQL that converts a column of text to floating-point numbers; NULL for other text."""
    return f"TRY_CAST({column} AS DOUBLE)"


def _make_boolean_sql(column: str) -> str:
    """Return SQL that converts a column of text to truth values; NULL for other text."""
    return f"TRY_CAST({column} AS BOOLEAN)"


class ReadTable(NamedTuple):
    """A table that was read into memory.

    Attributes:
        frame: data frame with at least the columns that were asked for.
        columns: names of all columns of the table, also of those that were not read.
        named: name of the table for a message, such as ``the records`` or the name of its file.
    """

    frame: pd.DataFrame
    columns: list[str]
    named: str


def read_table(
    table: TableOrFile,
    needed: Sequence[str],
    optional: Sequence[str] = (),
    *,
    numbers: Sequence[str] = (),
    as_number: Callable[[str], str] = make_count_sql,
    named: str,
    code: str,
) -> ReadTable:
    """Return the needed and optional columns of a table, which is a file or in memory.

    Columns of a CSV file are text, unless they are listed in ``numbers``. The same text gives the same values in a file
    and in memory. The column ``IN_PERIOD`` is converted to truth values.

    Args:
        table: a table, or the path of a file: Parquet if its name ends in .parquet, else CSV with commas, in UTF-8,
            compressed by gzip if its name ends in .gz.
        needed, optional: names of columns that the table must have, and of those that are read if it has them.
        numbers: columns whose text is converted to numbers. Text that is not a number becomes NaN.
        as_number: returns the SQL that converts ``numbers``, given the SQL of a column of text, such as
            :func:`make_double_sql`; by default, to whole numbers.
        named: name of a table in memory for messages, a plural such as ``the records``.
        code: code of the error for a column that is missing or occurs twice.

    Raises:
        OdError: the object is not a table, the file cannot be read, or a column is missing or occurs twice.
    """
    conversions = {IN_PERIOD: _make_boolean_sql} | dict.fromkeys(numbers, as_number)  # of columns that have text
    if isinstance(table, (str, Path)):
        return _read_file(Path(table), needed, optional, conversions, code)
    frame = convert_to_data_frame(table)
    names = [str(name) for name in frame.columns]
    frame = frame.set_axis(names, axis="columns")
    for name in (*needed, *optional):
        if names.count(name) > 1:
            raise OdError(code, f"{named} have column {name!r} more than once", next_step="keep one of them")
    for name in needed:
        if name not in names:
            raise _make_missing_column_error(name, needed, names, named, code)
    present = [name for name in conversions if name in names and name in (*numbers, *needed, *optional)]
    text_columns = [name for name in present if pd.api.types.infer_dtype(frame[name], skipna=True) == "string"]
    converted = {name: _parse_as_file(frame[name], conversions[name]) for name in text_columns}
    frame = _restore_uuids(frame.assign(**converted), table, (*needed, *optional))
    return ReadTable(frame, names, named)


ROLES = {"origin": "origin", "destination": "destination", "trips": "trips", "weight": "weight"}
ROLES_OF_COUNTS = {"origin": "area", "trips": "count", "weight": "weight"}
"""Roles of columns, and the names that callers give to them, which are also their default names: of flows, and of
counts by one hierarchy. The unit names the column of user ids."""


def load_trips(
    flows: TableOrFile,
    unit: PrivacyUnit,
    columns: Mapping[str, str] | None,
    breakdowns: Sequence[Breakdown],
    *,
    one_row_a_trip: bool,
    unread: Sequence[str] = (),
    has_one_side: bool = False,
) -> pa.Table:
    """Return the trips of a table as :func:`od_core.records.load.load_records` stores those of a file.

    The arguments are those of :func:`od_core.records.counting.count_trips`. ``has_one_side`` says that the table is of
    counts by one hierarchy, and has no column of destinations. Raises OdError if the table cannot be read; ``columns``
    is not valid; a column is missing, occurs twice or contradicts the unit; zone codes are numbers; a column of
    categories contains no text, or is also the column of user ids or of ``in_period``; counts, or their sum, are not
    whole numbers from 0 to 2^53; weights or user ids have another type; or nothing states what a row is.
    """
    segments = [breakdown.name for breakdown in breakdowns]
    roles = (ROLES_OF_COUNTS if has_one_side else ROLES) | {segment: segment for segment in segments}
    resolved = resolve_column_names(columns, (*roles.values(), *unread), "the unit names the column of user ids")
    names = {role: resolved[name] for role, name in roles.items()}
    _refuse_shared_columns(names, segments, unit)
    user = [] if unit.column is None else [unit.column]
    # A column of trips or of weights may be absent, unless the caller names it.
    may_be_absent = [role for role in ("trips", "weight") if roles[role] not in (columns or {})]
    table = read_table(
        flows,
        [name for role, name in names.items() if role not in may_be_absent],
        [names["trips"], names["weight"], IN_PERIOD, *user],
        numbers=[names["trips"]],
        named="the records",
        code="OD-TRIPS-COLUMN",
    )
    check_unit_columns(unit, table.columns, user=unit.column or "", weight=names["weight"], trips=names["trips"])
    loaded = _convert_codes(table.frame, names, segments)
    if not (one_row_a_trip or names["trips"] in table.columns or unit.max_weight is not None):
        _refuse_unclear_rows(table, [*resolved.values(), IN_PERIOD, *user], unit, roles["trips"])
    loaded["in_period"] = _find_records_in_period(table.frame)
    return pa.table(loaded | _read_contributions(table.frame, unit, names["trips"], names["weight"]))


def list_codes(
    flows: TableOrFile, columns: Mapping[str, str] | None, *, has_one_side: bool = False
) -> tuple[list[str], list[str]]:
    """Confidential: return the different codes of origins and of destinations in a table, in any order.

    The arguments and errors are those of :func:`load_trips`, for the columns of codes.
    """
    roles = ROLES_OF_COUNTS if has_one_side else ROLES
    names = {side: (columns or {}).get(name, name) for side, name in roles.items() if side not in ("trips", "weight")}
    table = read_table(flows, [*names.values()], named="the records", code="OD-TRIPS-COLUMN")
    codes = _convert_codes(table.frame, names, [])
    origins, destinations = (codes[side].unique().drop_null().to_pylist() for side in ("origin", "destination"))
    return origins, destinations


def _refuse_shared_columns(names: Mapping[str, str], segments: Sequence[str], unit: PrivacyUnit) -> None:
    """Raise OdError if a breakdown's column is that of user ids or of the period, or its name is that of user ids."""
    reserved = {
        IN_PERIOD: ("that marks the records of the period", "name another column"),
        unit.column: ("of user ids", "name another column, or give the breakdown another name"),
    }
    for role in segments:
        shared = role if unit.column == role else names[role]
        if shared in reserved:
            use, step = reserved[shared]
            message = f"column {shared!r} is both the column of breakdown {role!r} and that {use}"
            raise OdError("OD-TABLE-COLUMNS", message, next_step=step)


def _convert_codes(frame: pd.DataFrame, names: Mapping[str, str], segments: Sequence[str]) -> dict[str, pa.Array]:
    """Return the zone codes of both sides and the categories as text, by their column names in loaded records.

    ``names`` has the frame's column name of each role: ``origin``, ``destination`` and each of ``segments``, the names
    of the breakdowns. Each array has one value per row. Without a column of destinations, each trip ends in the whole
    space. Raises OdError if a column holds other values than text.
    """
    sides = [role for role in ("origin", "destination") if role in names]
    for role in (*sides, *segments):
        _refuse_other_than_text(frame[names[role]], is_zone=role in sides)
    codes: dict[str, pa.Array] = {}
    for side in sides:
        codes[side] = convert_to_texts(frame[names[side]], no_other=True)
    for segment in segments:
        codes[name_segment_column(segment)] = convert_to_texts(frame[names[segment]], no_other=True)
    if "destination" not in codes:
        codes["destination"] = pa.array([WHOLE_SPACE] * len(frame), pa.large_string())
    return codes


def _refuse_unclear_rows(table: ReadTable, used: Sequence[str], unit: PrivacyUnit, trips: str) -> None:
    """Raise OdError if a table has a column that is not ``used``: it may hold the number of trips of a row.

    ``trips`` is the name by which the caller can state the column of trips; it is part of the next step.
    """
    other = f'columns={{"{trips}": COLUMN}} for the COLUMN with the number of trips of a row'
    if unit.is_of_users:
        other = "expand the records to one row a trip"
    step = f"give one_row_a_trip=True if each row is one trip; else {other}"
    refuse_unused_columns([name for name in table.columns if name not in used], table.named, step)


def _find_records_in_period(frame: pd.DataFrame) -> pa.Array:
    """Return for each record, as a Boolean, whether it is of the period; True for all if no column marks them."""
    if IN_PERIOD not in frame.columns:
        return pa.array(np.ones(len(frame), dtype=bool))
    return pa.array(frame[IN_PERIOD].eq(True).fillna(False).to_numpy(dtype=bool))


def _read_contributions(frame: pd.DataFrame, unit: PrivacyUnit, trips: str, weight: str) -> dict[str, pa.Array]:
    """Return those of the columns ``trips``, ``weight`` and ``user`` of loaded records that the frame and unit need.

    ``trips`` and ``weight`` are the frame's names of these columns. The result has ``trips`` if the frame has it, and
    ``weight`` if the unit bounds weights, or else ``user`` if the unit names a column of user ids.
    """
    contributions = {}
    if trips in frame.columns:
        contributions["trips"] = pa.array(_convert_counts(frame[trips]))
    if unit.max_weight is not None:
        contributions["weight"] = _convert_weights(frame[weight])
    elif unit.column is not None:
        contributions["user"] = _convert_user_ids(frame[unit.column])
    return contributions


def _refuse_other_than_text(column: pd.Series, *, is_zone: bool) -> None:
    """Raise OdError if a column of codes or of categories holds another type than text."""
    kind = find_unexpected_type(column)
    if kind is None:
        return
    must_be = "the categories of a breakdown must be text"
    step = f"give column {column.name!r} the listed categories as text: {READ_AS_TEXT}"
    if is_zone:
        must_be = "zone codes must be text, because numbers lose leading zeros"
        step = f"read column {column.name!r} as text: {READ_AS_TEXT}"
    raise OdError("OD-TRIPS-NOT-TEXT", f"column {column.name!r} holds {kind}; {must_be}", next_step=step)


def _convert_counts(column: pd.Series) -> NDArray[np.int64]:
    """Return the counts as int64. Raises OdError unless they and their sum are whole numbers from 0 to 2^53."""
    make_error = partial(faults.make_count_error, column=str(column.name), rows=len(column))
    counts = convert_to_integers(column, lambda fault, row: make_error(fault, row=row))
    # A sum of integers may wrap around, but then that of floats is far too large.
    if np.sum(counts, dtype=np.float64) > 2.0 * faults.MAX_COUNT or int(counts.sum()) > faults.MAX_COUNT:
        raise make_error(faults.SUM_TOO_LARGE)
    return counts


def _convert_weights(column: pd.Series) -> pa.Array:
    """Return weights as numbers, or as text, as in a file of records. Raises OdError for a column of other types."""
    if column.dtype != object and holds_numbers(column):
        return pa.array(column.to_numpy(dtype=np.float64, na_value=np.nan))
    number_types = (int, float, np.number, Decimal)
    kind = find_unexpected_type(column, *number_types)
    if kind is not None:
        raise make_weight_type_error(f"column {column.name!r} holds {kind}")
    return convert_to_texts(column, number_types, no_other=True)


def _convert_user_ids(column: pd.Series) -> pa.Array:
    """Return user ids as text. Raises OdError if the column holds other types than text and whole numbers."""
    if pd.api.types.is_integer_dtype(column.dtype):
        return pa.array(column).cast(pa.large_string())
    kind = find_unexpected_type(column, int, np.integer)
    if kind is not None:
        raise make_user_id_error(f"column {column.name!r} holds {kind}")
    return convert_to_texts(column, (int, np.integer), no_other=True)


def convert_to_integers(column: pd.Series, make_error: Callable[[str, int | None], OdError]) -> NDArray[np.int64]:
    """Return a column of whole numbers from 0 to 2^53 as int64, without rounding; shape (rows,).

    The column may have any type of numbers. For other values, raise the OdError that ``make_error`` returns, given the
    description of the fault, such as ``MISSING``, and the first faulty row, from 0; None for the whole column.
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    if not holds_numbers(column):
        if len(column) == 0:
            return np.empty(0, dtype=np.int64)
        raise make_error(faults.NOT_NUMBERS, None)
    missing = column.isna().to_numpy(dtype=bool)
    if missing.any():
        raise make_error(faults.MISSING, int(np.argmax(missing)))
    values = convert_to_exact_numbers(column)
    for faulty, reason in (
        (values != values, faults.MISSING),  # NaN
        (values < 0, faults.NEGATIVE),
        (values > faults.MAX_COUNT, faults.TOO_LARGE),
    ):
        if faulty.any():
            raise make_error(reason, int(np.argmax(faulty)))
    counts = values.astype(np.int64)
    is_fraction = counts != values
    if is_fraction.any():
        raise make_error(faults.FRACTION, int(np.argmax(is_fraction)))
    return counts


def _restore_uuids(frame: pd.DataFrame, table: Table, asked: Sequence[str]) -> pd.DataFrame:
    """Return the frame of a table with UUIDs in its UUID columns, which DuckDB passes on as text.

    Only the columns in ``asked`` are converted. A table that is not a relation of DuckDB states no such types, and its
    frame is returned unchanged.
    """
    types = [] if isinstance(table, pd.DataFrame) else getattr(table, "types", [])
    type_by_column = dict(zip(getattr(table, "columns", []), types, strict=False))
    uuid_columns = [name for name, column_type in type_by_column.items() if column_type == "UUID" and name in asked]
    return frame.assign(**{name: frame[name].map(UUID, na_action="ignore") for name in uuid_columns})


def _parse_as_file(column: pd.Series, make_sql: Callable[[str], str]) -> pd.Series:
    """Return the numbers or truth values of a column of text, parsed by SQL as those of a file are.

    ``make_sql`` returns the SQL that parses a column. If a text that must be a number is none, the column is returned
    unchanged, and refused later. A text that must be a truth value and is none becomes missing.
    """
    query = f"SELECT {make_sql('value')} AS value FROM given"  # noqa: S608  # names of our own
    with connect_to_memory_database() as connection:
        connection.register("given", pa.table({"value": convert_to_texts(column)}))
        values = connection.sql(query).to_arrow_table()["value"].to_numpy()
    parsed = pd.Series(values, column.index, name=column.name)
    has_other_texts = (parsed.isna() & column.notna()).any()
    return column if has_other_texts and make_sql is not _make_boolean_sql else parsed


def _make_missing_column_error(name: str, needed: Sequence[str], names: list[str], named: str, code: str) -> OdError:
    """Return the OdError for a column that a table in memory lacks.

    The message lists the columns only if one of the needed columns is there: else they may be values of the first
    record, which a table without a header shows as names.
    """
    has = f"; they have {format_column_names(names)}" if any(column in names for column in needed) else ""
    step = f'give the names of your own columns, as in columns={{"{needed[0]}": ...}}, or rename them'
    return OdError(
        code, f"{named} have no column {name!r}{suggest_similar_name(name, tuple(names))}{has}", next_step=step
    )


def _read_file(
    source: Path,
    needed: Sequence[str],
    optional: Sequence[str],
    conversions: Mapping[str, Callable[[str], str]],
    code: str,
) -> ReadTable:
    """Return the needed and optional columns of a file; see :func:`read_table` for arguments and errors.

    ``conversions`` has, for some columns, the function that returns the SQL to parse their text. An error whose next
    step names a declaration gets a next step that a caller of the library can take.
    """
    absent = find_file_fault(source)
    if absent is not None:
        raise OdError("OD-FILE-MISSING", absent, next_step="correct the path")
    try:
        with open_record_file(source, TABLE, whole=True) as file:
            types = file.types
            for name in needed:
                if find_column(name, list(types)) is None:
                    raise file.make_missing_column_error(name, needed).with_changes(code=code)
            for name in optional:
                repeated = None if name in types else file.find_repeated_column_error(name)
                if repeated is not None:
                    raise repeated.with_changes(code=code)
            columns = [name for name in dict.fromkeys((*needed, *optional)) if name in types]
            fields = ", ".join(_make_field_sql(name, types[name], conversions.get(name)) for name in columns)
            frame = convert_to_data_frame(file.relation.select(fields).to_arrow_reader().read_all())
            frame = _restore_uuids(frame, file.relation, columns)
    except InputError as fault:
        is_declared = any(word in fault.next_step for word in ("declaration", "configuration", "next to the path"))
        raise_without_context(fault.with_changes(next_step=_CORRECT_TABLE_STEP) if is_declared else fault)
    return ReadTable(frame, list(types), source.name)


def _make_field_sql(name: str, kind: str, make_sql: Callable[[str], str] | None) -> str:
    """Return the SQL that selects a column of DuckDB's type ``kind``.

    A column of text is parsed by the SQL that ``make_sql`` returns for it; None selects the column as it is.
    """
    column = quote_identifier(name)
    return column if kind != "VARCHAR" or make_sql is None else f"{make_sql(column)} AS {column}"
