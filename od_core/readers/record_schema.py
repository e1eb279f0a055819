"""Names and types of the columns of a file of records, without reading a record.

The first line of a CSV file may be a record, where somebody has left out the header: its fields are confidential until
one of them is known to be a column.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from od_core.errors import OdError


def record_schema(source: Path) -> dict[str, str]:
    """Type of every column, by name; those of a CSV file are text, and confidential.

    Raises:
        OdError: the file cannot be read.
    """
    try:
        if source.suffix == ".parquet":
            schema = pq.read_schema(source)
            return {name: str(kind) for name, kind in zip(schema.names, schema.types, strict=True)}
        with source.open(encoding="utf-8-sig", newline="") as file:
            return dict.fromkeys(next(csv.reader(file), []), "text")
    except (OSError, UnicodeDecodeError, csv.Error, pa.ArrowException):
        raise OdError(
            "OD-FILE-UNREADABLE",
            f"{source.name} cannot be read as {'Parquet' if source.suffix == '.parquet' else 'CSV in UTF-8'}",
            next_step="correct the file of records",
        ) from None
