"""Files to read, and the closed folder into which records are read."""

import csv
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from od_core.records.formats import TABLE, RecordFormat
from od_core.records.load import RecordColumns, load_records


class OnlyAStream:
    """A table as Polars has it: no Arrow type itself, and text in views."""

    def __init__(self, table: pa.Table) -> None:
        texts = (pa.string(), pa.large_string())
        kinds = [pa.string_view() if kind in texts else kind for kind in table.schema.types]
        self._table = table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True))))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Where records are read to: in a folder of its own, so that all that is left there can be seen."""
    folder = tmp_path / "confidential"
    folder.mkdir(mode=0o700)
    return folder / "raw_trips.parquet"


@pytest.fixture
def loaded(target: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pd.DataFrame]:
    """Read a file of records, as its owner with an open umask and in a folder that must stay empty.

    Where rows are counted, each is said to be one trip, but for tests that leave it ``unstated``.
    """
    here = target.parent.parent / "here"
    here.mkdir()
    monkeypatch.chdir(here)

    def load(
        source: Path,
        columns: RecordColumns | None = None,
        period: str = "2001-06",
        *,
        record_format: RecordFormat = TABLE,
        unstated: bool = False,
        **options: Any,
    ) -> pd.DataFrame:
        columns = columns or RecordColumns()
        if columns.counts_rows and not unstated:
            record_format = replace(record_format, one_row_a_trip=True)
        umask = os.umask(0)
        try:
            load_records(source, columns, period, target, record_format=record_format, **options)
        finally:
            os.umask(umask)
            assert not list(here.iterdir())
        return pd.read_parquet(target)

    return load


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Write a CSV file of rows as they are, its header first."""

    def write(rows: Iterable[Iterable[object]], name: str = "trips.csv", **dialect: object) -> Path:
        path = tmp_path / name
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, **{"lineterminator": "\n", **dialect}).writerows(rows)
        return path

    return write
