"""Accept tables of pandas, Arrow, Polars and DuckDB as pandas data frames, and the names of their columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from od_core.errors import OdError, raise_without_context, strip_type_parameters, suggest_known_names
from od_core.files.duckdb_session import make_machine_error


class ArrowStream(Protocol):
    """A table that offers its rows by the PyCapsule interface of Arrow, as tables of Arrow, Polars and DuckDB do."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule with a stream of record batches."""


Table: TypeAlias = pd.DataFrame | ArrowStream
"""A table of any of these libraries."""

TableOrFile: TypeAlias = Table | str | Path
"""A table, or the path of a Parquet or CSV file."""

_SURROGATE = re.compile("[\ud800-\udfff]")

_MAX_SHOWN_COLUMNS = 10  # number of columns that a message lists, each with the first 40 characters of its name


def convert_to_data_frame(table: Table) -> pd.DataFrame:
    """Return a table as a pandas data frame. A data frame stays unchanged, except for some Arrow types.

    Whole numbers and decimals keep their Arrow type, because pandas would turn whole numbers into floats if one is
    missing, and decimals into objects. An index that pandas wrote stays a column. In a data frame, Arrow's views of
    text become text, and its dictionaries are decoded.

    Raises OdError if the object is not a table, its rows cannot be read (as those of a query that fails), memory does
    not suffice, or pandas cannot represent its values. The message quotes no value.
    """
    if isinstance(table, pd.DataFrame):
        return _replace_arrow_types(table)
    if not hasattr(table, "__arrow_c_stream__"):
        step = _USE_TABLE_STEP
        if isinstance(table, (str, Path)):
            step = (
                "read the file first, with its codes as text: pandas.read_csv(path, dtype=str, keep_default_na=False)"
            )
        raise _make_table_error(f"{type(table).__name__} is not a table", step)
    try:
        frame: pd.DataFrame = pa.table(table).to_pandas(types_mapper=_choose_exact_type, ignore_metadata=True)
    except Exception as error:  # noqa: BLE001  # a query of the caller may raise anything, with a value in its text
        name = type(table).__name__
        unread = f"pandas cannot represent the values of this {name}, or they cannot be read"
        raise_without_context(
            make_machine_error(error, f"this {name} cannot be read") or _make_table_error(unread, detail=str(error))
        )
    return frame


def _replace_arrow_types(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a data frame without two types of Arrow that pandas does not handle.

    Views of text, of which pandas cannot tell the type, become text. Dictionaries, whose numbers pandas does not take
    for numbers, become columns of their values.
    """
    for position, dtype in enumerate(frame.dtypes):
        if not isinstance(dtype, pd.ArrowDtype):
            continue
        arrow_type = dtype.pyarrow_dtype
        usable_type = arrow_type.value_type if isinstance(arrow_type, pa.DictionaryType) else arrow_type
        if pa.types.is_string_view(usable_type):
            usable_type = pa.large_string()
        if usable_type != arrow_type:
            values = pa.array(frame.iloc[:, position]).cast(usable_type)
            frame = frame.copy(deep=False)
            frame.isetitem(position, pd.arrays.ArrowExtensionArray(values))
    return frame


def _choose_exact_type(kind: pa.DataType) -> pd.ArrowDtype | None:
    """Return the pandas type for a column of Arrow type ``kind``: for whole numbers and decimals, one of the same type.

    Return None for other types, for which pandas chooses.
    """
    return pd.ArrowDtype(kind) if pa.types.is_integer(kind) or pa.types.is_decimal(kind) else None


def holds_numbers(column: pd.Series) -> bool:
    """Return whether a column holds numbers: by its type or, if it holds objects, by the types of its values.

    Databases give decimals as objects. Booleans and complex numbers are no numbers.
    """
    kind = pd.api.types
    if column.dtype != object:
        dtype = column.dtype
        return kind.is_numeric_dtype(dtype) and not (kind.is_bool_dtype(dtype) or kind.is_complex_dtype(dtype))
    inferred = kind.infer_dtype(column, skipna=True)
    if inferred.startswith("mixed"):  # such as whole numbers and decimals
        present = column[column.notna()]
        return all(isinstance(value, (Real, Decimal)) and not isinstance(value, bool) for value in present)
    return inferred in ("integer", "floating", "decimal")


def convert_to_exact_numbers(column: pd.Series) -> NDArray[Any]:
    """Return a column of numbers, none of which is missing, as an array with the same values; shape (rows,).

    Floats become float64. Whole numbers and decimals of an Arrow type become int64 if all values are whole and fit.
    Other columns keep their values and NumPy type: Python decimals, for example, stay objects, even if they are whole.
    """
    if pd.api.types.is_float_dtype(column.dtype):
        return column.to_numpy(dtype=np.float64)
    if isinstance(column.dtype, pd.ArrowDtype):
        with suppress(pa.ArrowInvalid):  # a fraction, or a number beyond 64 bits
            exact: NDArray[np.int64] = pa.array(column).cast(pa.int64()).to_numpy()
            return exact
    return column.to_numpy()


def convert_to_texts(column: pd.Series, written_out: tuple[type, ...] = (), *, no_other: bool = False) -> pa.Array:
    """Return a column as an Arrow array of text; shape (rows,). A value that is not text becomes NULL.

    So does text that UTF-8 cannot encode.

    Args:
        column: column of any type.
        written_out: types whose values are written as text, except Booleans.
        no_other: True if :func:`find_unexpected_type` has found no types besides these and text. This saves time.
    """
    if isinstance(column.dtype, pd.StringDtype) and column.dtype.storage == "pyarrow":
        return pa.array(column)
    if isinstance(column.dtype, pd.CategoricalDtype):
        numbers = column.cat.codes.to_numpy()  # -1 for a missing value
        texts = convert_to_texts(column.cat.categories.to_series(), written_out)
        return texts.take(pa.array(numbers, mask=numbers < 0))
    if (no_other and column.dtype.kind == "O") or pd.api.types.infer_dtype(column, skipna=True) == "string":
        with suppress(UnicodeEncodeError, pa.ArrowException):  # it may hold numbers, or lists that are all missing
            return pa.array(column, pa.large_string(), from_pandas=True)

    def convert_value(value: object) -> str | None:
        """Return a value as text; None if it is neither text nor to be written out."""
        if isinstance(value, written_out) and not isinstance(value, bool):
            return str(value)
        is_text = isinstance(value, str) and (value.isascii() or not _SURROGATE.search(value))
        return str.__str__(value) if is_text else None  # the value of an Enum of text, not its name

    return pa.array(map(convert_value, column.astype(object)), pa.large_string())


def find_unexpected_type(column: pd.Series, *kinds: type) -> str | None:
    """Return the name of a type that a column holds besides text, ``kinds`` and missing values; None if it holds none.

    ``kinds`` matter only for columns of objects, of which the type of the first other value is returned. A Boolean is
    another value, although its type is a kind of whole number. A column with missing values only holds none.
    """
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        column = pd.Series(dtype.categories, dtype=object)
    elif not pd.api.types.is_object_dtype(dtype):
        if isinstance(dtype, pd.StringDtype) or not column.notna().any():
            return None
        kind = dtype.pyarrow_dtype if isinstance(dtype, pd.ArrowDtype) else dtype
        is_text = kind in (pa.string(), pa.large_string())
        return None if is_text else getattr(kind, "extension_name", strip_type_parameters(kind))
    if pd.api.types.infer_dtype(column, skipna=True) == "string":
        return None
    for value in column[column.notna()]:
        if not isinstance(value, (str, *kinds)) or isinstance(value, bool):
            return type(value).__name__
    return None


def resolve_column_names(columns: Mapping[str, str] | None, roles: Sequence[str], hint: str = "") -> dict[str, str]:
    """Return the column name of each role: the name that the caller gives, or else the name of the role.

    ``columns`` are the caller's names by role, such as ``{"origin": "from_zone"}``. ``hint`` is added to the advice on
    an unknown role. Raises OdError if a key is not a role, a name is not text, or two roles have the same column.
    """
    own_names = {} if columns is None else columns
    if not isinstance(own_names, Mapping):
        example = f'columns={{"{roles[0]}": "the name in your table"}}'
        raise _make_columns_error(f"columns is a {type(own_names).__name__}, not a mapping", f"write {example}")
    for role, name in own_names.items():
        if role not in roles:
            step = f"use the keys {', '.join(roles)}" + (f"; {hint}" if hint else "")
            raise _make_columns_error(
                f"columns has the unknown key {role!r} ({suggest_known_names(role, tuple(roles))})", step
            )
        if not isinstance(name, str):
            step = "write the name of the column as it is in the table"
            raise _make_columns_error(
                f"columns gives {role!r} no name, but a value of type {type(name).__name__}", step
            )
    names = {role: own_names.get(role, role) for role in roles}
    role_of: dict[str, str] = {}
    for role, name in names.items():
        other_role = role_of.setdefault(name, role)
        if other_role != role:
            step = f"name another column for {role if other_role in own_names else other_role}"
            raise _make_columns_error(f"column {name!r} is both the column of {other_role} and that of {role}", step)
    return names


def format_column_names(names: Sequence[str]) -> str:
    """Return the names of the first columns of a table for a message, and how many more there are."""
    more = f" and {len(names) - _MAX_SHOWN_COLUMNS} more" if len(names) > _MAX_SHOWN_COLUMNS else ""
    return ", ".join(repr(name[:40]) for name in names[:_MAX_SHOWN_COLUMNS]) + more


def _make_columns_error(message: str, next_step: str) -> OdError:
    """Return the OdError for an argument ``columns`` that is not valid."""
    return OdError("OD-TABLE-COLUMNS", message, next_step=next_step)


_USE_TABLE_STEP = "pass a pandas data frame, or a table of Arrow, Polars or DuckDB with columns of text and numbers"


def _make_table_error(message: str, next_step: str = _USE_TABLE_STEP, detail: str | None = None) -> OdError:
    """Return the OdError for an object that cannot be read as a table. ``detail`` is confidential."""
    return OdError("OD-TABLE", message, next_step=next_step, confidential_detail=detail)
