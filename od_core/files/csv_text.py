"""Write large tables of text and numbers as CSV. Whole columns are converted at a time, which is fast."""

from __future__ import annotations

from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

_ROWS = 1 << 20
"""Number of rows that are converted to text at a time."""


def write_rows(file: BinaryIO, table: pa.Table, *, header: bool) -> None:
    """Append rows in the format of RFC 4180, in UTF-8. A missing value, or NaN, is an empty field.

    Args:
        file: open file to append to.
        table: at least two columns, of text or of numbers. The line of a missing value alone would be no row.
        header: True to write the names of the columns first.
    """
    if header:
        file.write((",".join(table.column_names) + "\r\n").encode())
    for start in range(0, len(table), _ROWS):
        *columns, last = (_fields(column).fill_null("") for column in table.slice(start, _ROWS).columns)
        ended = pc.binary_join_element_wise(last, _text("\r\n"), _text(""))
        rows = pc.binary_join_element_wise(*columns, ended, _text(","))
        file.write(rows.buffers()[2][: pc.sum(pc.binary_length(rows)).as_py()])


def _fields(column: pa.ChunkedArray) -> pa.Array:
    """Return the values of a column as CSV fields. Each different text is examined once, because most are repeated."""
    values = column.combine_chunks()
    if pa.types.is_integer(values.type):
        return values.cast(pa.large_string())
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), None, values)
    texts = values.dictionary_encode()
    return _quoted(texts.dictionary.cast(pa.large_string())).take(texts.indices)


def _quoted(texts: pa.Array) -> pa.Array:
    """Return the texts as CSV fields. Those that contain a comma, quote or line break are quoted."""
    special = pc.match_substring_regex(texts, '[",\r\n]')
    if not pc.any(special).as_py():
        return texts
    quoted = pc.binary_join_element_wise(_text(""), pc.replace_substring(texts, '"', '""'), _text(""), _text('"'))
    return pc.if_else(special, quoted, texts)


def _text(text: str) -> pa.Scalar:
    """Return a text scalar of the same Arrow type as the columns."""
    return pa.scalar(text, pa.large_string())
