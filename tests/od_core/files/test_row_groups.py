"""Row groups of Parquet files do not depend on how the rows are handed over."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from od_core.files.table_writers import write_batches


@pytest.mark.parametrize("sizes", [(20,), (7, 7, 6), (1,) * 20, (5, 0, 15), (19, 1)])
def test_all_row_groups_but_the_last_are_full(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    rows = pa.table({"number": range(sum(sizes) + 3)})
    batches, first = [], 0
    for size in (*sizes, 3):
        batches += rows.slice(first, size).to_batches()
        first += size
    write_batches(tmp_path / "rows.parquet", rows.schema, batches, rows=5)
    with pq.ParquetFile(tmp_path / "rows.parquet") as file:
        groups = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        assert (groups, file.read()) == ([5, 5, 5, 5, 3], rows)
