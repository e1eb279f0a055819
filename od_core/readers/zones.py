"""Public zone lists from CSV or Parquet; codes stay text."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa

from od_core.errors import OdError


def read_zones(path: Path) -> pd.DataFrame:
    """A public table as it stands: CSV columns all as text, blanks kept as blanks; Parquet with its own types.

    Raises:
        OdError: the file is missing, not UTF-8, or not a table.
    """
    if not path.is_file():
        raise _fault("OD-FILE-MISSING", f"there is no file {path.name}")
    try:
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        table = pd.read_csv(path, dtype=str, keep_default_na=False, header=None, index_col=False)
        if len(table) == 0:
            raise _fault("OD-FILE-UNREADABLE", f"{path.name} is empty")
        return table[1:].set_axis(list(table.iloc[0]), axis="columns").reset_index(drop=True)
    except UnicodeDecodeError:
        raise _fault("OD-FILE-NOT-UTF8", f"{path.name} is not UTF-8 text") from None
    except (ValueError, pa.ArrowException) as error:
        raise _fault("OD-FILE-UNREADABLE", f"{path.name} cannot be read as a table: {error}") from None


def _fault(code: str, message: str) -> OdError:
    return OdError(code, message, next_step="correct the geography's file or its path")
