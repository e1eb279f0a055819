"""Accept tables of pandas, Arrow, Polars and DuckDB, and return them as pandas data frames."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import pandas as pd
import pyarrow as pa

from od_core.errors import OdError


class ArrowStream(Protocol):
    """A table that offers its rows by the PyCapsule interface of Arrow, as tables of Arrow, Polars and DuckDB do."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule with a stream of record batches."""
        ...


Table: TypeAlias = pd.DataFrame | ArrowStream
"""A table of any of these libraries."""


def data_frame(table: Table) -> pd.DataFrame:
    """Return a table as a pandas data frame. A data frame is returned unchanged.

    Raises:
        OdError: the object is not such a table, or pandas cannot represent its values. The message quotes none of them.
    """
    if isinstance(table, pd.DataFrame):
        return table
    if not hasattr(table, "__arrow_c_stream__"):
        raise _no_table(f"{type(table).__name__} is not a table")
    try:
        frame: pd.DataFrame = pa.table(table).to_pandas()
    except (pa.ArrowException, OverflowError, ValueError):  # its text may quote a value
        raise _no_table(f"pandas cannot represent the values of this {type(table).__name__}") from None
    return frame


def _no_table(message: str) -> OdError:
    step = "pass a pandas data frame, or a table of Arrow, Polars or DuckDB with columns of text and numbers"
    return OdError("OD-TABLE", message, next_step=step)
