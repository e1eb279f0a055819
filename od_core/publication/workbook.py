"""Write Excel workbooks (Office Open XML). Whole columns are converted at a time.

A workbook has sheets of text and numbers. Text is stored as text, so that a spreadsheet runs nothing and changes
nothing: ``=1+1`` and ``007`` stay as they are.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import pyarrow as pa
import pyarrow.compute as pc

from od_core.files.table_writers import make_text_scalar
from od_core.publication.templates import render_template

_COMPRESSION_LEVEL = 1
"""Level of compression: the lowest, which is four times as fast as the usual one."""

_BOLD_STYLE, _WRAPPED_STYLE = 1, 2
"""Numbers of the styles of cells."""


@dataclass(frozen=True)
class Sheet:
    """A sheet of a workbook.

    Attributes:
        name: name of the sheet: at most 31 characters; letters, digits, ``-`` and ``_`` are safe.
        lines: texts above the table, one in a row.
        table: columns of text or of numbers, of which some may be missing; their names are the header.
        width: width of the first column, in characters. Longer lines are wrapped if it is at least 40.
    """

    name: str
    lines: Sequence[str]
    table: pa.Table
    width: int = 16


def write_workbook(file: BinaryIO, sheets: Sequence[Sheet]) -> None:
    """Write a workbook. The same sheets give the same bytes with the same version of the compressor."""
    places = [f"worksheets/sheet{number}.xml" for number, _ in enumerate(sheets, start=1)]
    targets = [*(("worksheet", place) for place in places), ("styles", "styles.xml")]
    parts: dict[str, bytes] = {
        "[Content_Types].xml": _render_part("content_types", places=places),
        "_rels/.rels": _render_part("relationships", targets=[("officeDocument", "xl/workbook.xml")]),
        "xl/workbook.xml": _render_part("workbook", sheets=sheets),
        "xl/_rels/workbook.xml.rels": _render_part("relationships", targets=targets),
        "xl/styles.xml": _render_part("styles"),
    }
    for place, sheet in zip(places, sheets, strict=True):
        before, after = _render_part("sheet", sheet=sheet).split(b"<rows/>")
        head_rows = _render_head_rows(sheet).encode()
        parts[f"xl/{place}"] = b"".join([before, head_rows, _render_table_rows(sheet.table), after])
    content = io.BytesIO()  # a zip file that is written to a stream has sizes in places that some readers ignore
    with ZipFile(content, "w") as archive:
        for name, part in parts.items():  # an entry states no time, which would change the bytes
            archive.writestr(ZipInfo(name), part, ZIP_DEFLATED, _COMPRESSION_LEVEL)
    file.write(content.getvalue())  # not getbuffer: after an error, Python 3.13 warns of a buffer that is still in use


def _render_part(name: str, **values: object) -> bytes:
    """Return the XML of a part of a workbook, from its template without line breaks and indents."""
    lines = render_template(f"workbook/{name}.xml", **values).splitlines()
    declaration = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
    return (declaration + "".join(map(str.strip, lines))).encode()


def _render_head_rows(sheet: Sheet) -> str:
    """Return the XML of the lines above the table, wrapped in a wide column, and of the header."""
    style = _WRAPPED_STYLE if sheet.width >= 40 else 0
    rows = [_render_text_cell(line, style) for line in sheet.lines]
    rows.append("".join(_render_text_cell(name, _BOLD_STYLE) for name in sheet.table.column_names))
    return "".join(f"<row>{cells}</row>" for cells in rows)


def _render_text_cell(text: str, style: int) -> str:
    """Return the XML of a cell with a text and the number of a style."""
    (content,) = _escape_text(pa.array([text], pa.large_string())).to_pylist()
    return f'<c t="inlineStr" s="{style}"><is><t>{content}</t></is></c>'


def _render_table_rows(table: pa.Table) -> bytes | memoryview:
    """Return the rows of a table as the XML of a sheet."""
    if len(table) == 0:
        return b""
    cells_of_columns: list[pa.Array] = []
    for column in table.columns:
        values = column.combine_chunks()
        if pa.types.is_floating(values.type):
            values = pc.if_else(pc.is_nan(values), None, values)
        content = values.cast(pa.large_string())
        if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
            begin, end = "<c><v>", "</v></c>"
        else:
            begin, end = '<c t="inlineStr"><is><t>', "</t></is></c>"
            content = _escape_text(content)
        cells = pc.binary_join_element_wise(
            make_text_scalar(begin), content, make_text_scalar(end), make_text_scalar("")
        )
        cells_of_columns.append(pc.fill_null(cells, "<c/>"))
    rows = pc.binary_join_element_wise(
        make_text_scalar("<row>"), *cells_of_columns, make_text_scalar("</row>"), make_text_scalar("")
    )
    _, _, text = rows.buffers()  # validity, offsets and the joined rows
    return memoryview(text)[: pc.sum(pc.binary_length(rows)).as_py()]


def _escape_text(text: pa.Array) -> pa.Array:
    """Return texts as the content of XML elements. ``_x0041_`` is escaped, too: spreadsheets read it as ``A``."""
    if not pc.any(pc.match_substring_regex(text, "[&<>]|_x")).as_py():
        return text
    for sign, replacement in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = pc.replace_substring(text, sign, replacement)
    # Each underscore that begins such a text becomes <, which no escaped text has, and then the code of an underscore.
    for _ in range(2):  # an underscore may end one such text and begin the next
        text = pc.replace_substring_regex(text, "_(x[0-9A-Fa-f]{4}[_<])", r"<\1")
    return pc.replace_substring(text, "<", "_x005F_")
