"""Large tables of text and whole numbers as CSV, made column by column."""

from __future__ import annotations

from typing import BinaryIO

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

_ROWS = 1 << 20
"""Rows that are text at one time."""


def write_rows(file: BinaryIO, frame: pd.DataFrame, *, header: bool) -> None:
    """Append rows as RFC 4180 has them, in UTF-8; no value may be missing.

    Args:
        file: where to.
        frame: columns of text or of whole numbers.
        header: whether the names of the columns come first.
    """
    if header:
        file.write((",".join(frame.columns) + "\r\n").encode())
    for start in range(0, len(frame), _ROWS):
        columns = [_fields(column) for _, column in frame.iloc[start : start + _ROWS].items()]
        lines = pc.binary_join_element_wise(*columns, _text(","))
        rows = pc.binary_join_element_wise(lines, _text(""), _text("\r\n"))  # each line with its end
        file.write(rows.buffers()[2][: pc.sum(pc.binary_length(rows)).as_py()])


def _fields(column: pd.Series) -> pa.Array:
    """The values as fields: in quotes where they hold a comma or a quote."""
    values = pa.array(column)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    text = values.cast(pa.large_string())
    special = pc.match_substring_regex(text, '[",\r\n]')
    if not pc.any(special).as_py():
        return text
    quoted = pc.binary_join_element_wise(_text(""), pc.replace_substring(text, '"', '""'), _text(""), _text('"'))
    return pc.if_else(special, quoted, text)


def _text(text: str) -> pa.Scalar:
    """A piece that joins with text of the type of the columns."""
    return pa.scalar(text, pa.large_string())
