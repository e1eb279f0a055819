"""Write tables as CSV and Parquet. Whole columns are converted at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_ROWS_AT_A_TIME = 1 << 20  # number of rows that are converted to text at a time

_MISSING_AS_EMPTY: dict[str, object] = {"null_handling": "replace"}
"""Option of Arrow's joins of texts that makes a missing text an empty one."""


def write_csv_rows(file: BinaryIO, table: pa.Table, *, header: bool) -> None:
    """Append the rows of a table to a CSV file (RFC 4180, UTF-8). A missing value, or NaN, is an empty field.

    The table must have at least two columns, of text or numbers: with one column, the row of a missing value would be
    a blank line, which readers skip. ``header`` states whether to write the names of the columns first.
    """
    if header:
        file.write((",".join(table.column_names) + "\r\n").encode())
    for start in range(0, len(table), _ROWS_AT_A_TIME):
        *columns, last_column = map(_format_csv_fields, table.slice(start, _ROWS_AT_A_TIME).columns)
        # Line ends are an array, because all fields may be scalars, of which a join would make one row.
        line_ends = pa.repeat(make_text_scalar("\r\n"), min(_ROWS_AT_A_TIME, len(table) - start))
        last_with_end = pc.binary_join_element_wise(last_column, line_ends, make_text_scalar(""), **_MISSING_AS_EMPTY)
        rows = pc.binary_join_element_wise(*columns, last_with_end, make_text_scalar(","), **_MISSING_AS_EMPTY)
        _, _, characters = rows.buffers()  # validity, offsets, and the text of all rows; Arrow may have reserved more
        file.write(characters[: pc.sum(pc.binary_length(rows)).as_py()])


def _format_csv_fields(column: pa.ChunkedArray) -> pa.Array | pa.Scalar:
    """Return the values of a column as CSV fields, shape (rows,), NaN as missing; one scalar if all are equal.

    Each different value is converted once.
    """
    values = column.combine_chunks()
    if pa.types.is_integer(values.type):
        return values.cast(pa.large_string())
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), None, values)
    texts = values.dictionary_encode()
    fields = _quote_csv_fields(texts.dictionary.cast(pa.large_string()))
    return fields[0] if len(fields) == 1 and not texts.null_count else fields.take(texts.indices)


def _quote_csv_fields(texts: pa.Array) -> pa.Array:
    """Return the texts as CSV fields. Those that contain a comma, quote or line break are quoted."""
    special = pc.match_substring_regex(texts, '[",\r\n]')
    if not pc.any(special).as_py():
        return texts
    quoted = pc.binary_join_element_wise(
        make_text_scalar(""), pc.replace_substring(texts, '"', '""'), make_text_scalar(""), make_text_scalar('"')
    )
    return pc.if_else(special, quoted, texts)


def make_text_scalar(text: str) -> pa.Scalar:
    """Return a text as a scalar of the Arrow type ``large_string``, which the columns of fields have."""
    return pa.scalar(text, pa.large_string())


ROWS_PER_ROW_GROUP = 1 << 20
"""Number of rows per row group. Only one group is in memory at a time."""


def write_batches(
    target: Path | BinaryIO | pa.BufferOutputStream,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    rows: int = ROWS_PER_ROW_GROUP,
    **options: object,
) -> None:
    """Write consecutive batches to a Parquet file, whose bytes do not depend on how the rows are cut into batches.

    A row group has ``rows`` rows; the last may have fewer. ``options`` are those of
    :class:`pyarrow.parquet.ParquetWriter`.
    """
    with pq.ParquetWriter(target, schema, **options) as writer:
        for group in _iterate_row_groups(schema, batches, rows):
            writer.write_table(group, row_group_size=rows)


def _iterate_row_groups(schema: pa.Schema, batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Yield tables of ``rows`` consecutive rows of the batches, with one chunk per column; the last may be shorter."""
    waiting: list[pa.RecordBatch] = []
    rows_waiting = 0
    for batch in batches:
        waiting.append(batch)
        rows_waiting += len(batch)
        if rows_waiting >= rows:
            table = pa.Table.from_batches(waiting, schema)
            rows_waiting = len(table) % rows
            rows_in_full_groups = len(table) - rows_waiting
            for start in range(0, rows_in_full_groups, rows):
                yield table.slice(start, rows).combine_chunks()
            waiting = table.slice(rows_in_full_groups).to_batches()
    if waiting:
        yield pa.Table.from_batches(waiting, schema).combine_chunks()
