"""Write tables as CSV, Parquet and Excel workbooks (Office Open XML). Whole columns are converted at a time.

A workbook has sheets of text and numbers. Text is stored as text, so that a spreadsheet runs nothing and changes
nothing: ``=1+1`` and ``007`` stay as they are.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from xml.sax.saxutils import escape
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

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


ROWS = 1 << 20
"""Number of rows per row group. Only one group is in memory at a time."""


def write_batches(
    target: Path | BinaryIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, rows: int = ROWS, **options: Any
) -> None:
    """Write consecutive batches to a Parquet file, whose bytes do not depend on how the rows are cut into batches.

    A row group has ``rows`` rows. ``options`` are those of :class:`pyarrow.parquet.ParquetWriter`.
    """
    with pq.ParquetWriter(target, schema, **options) as writer:
        for group in _groups(schema, batches, rows):
            writer.write_table(group, row_group_size=rows)


def _groups(schema: pa.Schema, batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Yield the rows of the batches in tables of ``rows`` rows with one chunk per column; the last may be shorter."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= rows:
            table = pa.Table.from_batches(waiting, schema)
            whole = len(table) - len(table) % rows
            for start in range(0, whole, rows):
                yield table.slice(start, rows).combine_chunks()
            waiting = table.slice(whole).to_batches()
    if waiting:
        yield pa.Table.from_batches(waiting, schema).combine_chunks()


_NO_TIME = (1980, 1, 1, 0, 0, 0)
"""Earliest time that a zip file can state. Every part has this time, so that it does not change the bytes."""

_LEVEL = 1
"""Level of compression: the lowest, which is four times as fast as the usual one."""

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_DOCUMENT = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'

_STYLES = (
    f'{_HEAD}<styleSheet xmlns="{_MAIN}">'
    '<fonts count="2"><font><sz val="11"/><name val="Calibri"/></font>'
    '<font><b/><sz val="11"/><name val="Calibri"/></font></fonts>'
    '<fills count="2"><fill><patternFill patternType="none"/></fill><fill><patternFill patternType="gray125"/></fill>'
    '</fills><borders count="1"><border><left/><right/><top/><bottom/><diagonal/></border></borders>'
    '<cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs>'
    '<cellXfs count="3"><xf numFmtId="0" fontId="0" fillId="0" borderId="0" xfId="0"/>'
    '<xf numFmtId="0" fontId="1" fillId="0" borderId="0" xfId="0" applyFont="1"/>'
    '<xf numFmtId="0" fontId="0" fillId="0" borderId="0" xfId="0" applyAlignment="1">'
    '<alignment vertical="top" wrapText="1"/></xf></cellXfs>'
    '<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>'
)
_BOLD, _WRAPPED = 1, 2
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
    numbers = range(1, len(sheets) + 1)
    listed = "".join(
        f'<sheet name="{escape(sheet.name)}" sheetId="{number}" r:id="rId{number}"/>'
        for number, sheet in zip(numbers, sheets, strict=True)
    )
    of_sheets = "".join(
        f'<Override PartName="/xl/worksheets/sheet{number}.xml" ContentType="{_TYPE}.worksheet+xml"/>'
        for number in numbers
    )
    parts: dict[str, bytes] = {
        "[Content_Types].xml": (
            f'{_HEAD}<Types xmlns="{_PACKAGE}/content-types">'
            '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Override PartName="/xl/workbook.xml" ContentType="{_TYPE}.sheet.main+xml"/>'
            f'<Override PartName="/xl/styles.xml" ContentType="{_TYPE}.styles+xml"/>{of_sheets}</Types>'
        ).encode(),
        "_rels/.rels": _relationships([("officeDocument", "xl/workbook.xml")]),
        "xl/workbook.xml": (
            f'{_HEAD}<workbook xmlns="{_MAIN}" xmlns:r="{_DOCUMENT}"><sheets>{listed}</sheets></workbook>'
        ).encode(),
        "xl/_rels/workbook.xml.rels": _relationships(
            [*(("worksheet", f"worksheets/sheet{number}.xml") for number in numbers), ("styles", "styles.xml")]
        ),
        "xl/styles.xml": _STYLES.encode(),
    }
    parts |= {f"xl/worksheets/sheet{number}.xml": _sheet(sheet) for number, sheet in zip(numbers, sheets, strict=True)}
    content = io.BytesIO()  # a zip file that is written to a stream has sizes in places that some readers ignore
    with ZipFile(content, "w", compresslevel=_LEVEL) as archive:
        for name, part in parts.items():
            entry = ZipInfo(name, _NO_TIME)
            entry.compress_type = ZIP_DEFLATED
            archive.writestr(entry, part, compresslevel=_LEVEL)
    file.write(content.getbuffer())


def _relationships(targets: Sequence[tuple[str, str]]) -> bytes:
    """Return the part that names the parts to which a part refers: their kinds and places, numbered from 1."""
    listed = "".join(
        f'<Relationship Id="rId{number}" Type="{_DOCUMENT}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, start=1)
    )
    return f'{_HEAD}<Relationships xmlns="{_PACKAGE}/relationships">{listed}</Relationships>'.encode()


def _sheet(sheet: Sheet) -> bytes:
    """Return the part of a sheet: the lines, the header and the rows; all above the rows stays in view."""
    above = len(sheet.lines) + 1
    style = _WRAPPED if sheet.width >= 40 else 0
    columns = len(sheet.table.column_names)
    widths = f'<col min="1" max="1" width="{sheet.width}" customWidth="1"/>'
    if columns > 1:
        widths += f'<col min="2" max="{columns}" width="16" customWidth="1"/>'
    head = (
        f'{_HEAD}<worksheet xmlns="{_MAIN}"><sheetViews><sheetView workbookViewId="0">'
        f'<pane ySplit="{above}" topLeftCell="A{above + 1}" activePane="bottomLeft" state="frozen"/></sheetView>'
        f"</sheetViews><cols>{widths}</cols><sheetData>"
        + "".join(f"<row>{_cell(line, style)}</row>" for line in sheet.lines)
        + f"<row>{''.join(_cell(name, _BOLD) for name in sheet.table.column_names)}</row>"
    )
    return b"".join([head.encode(), _rows(sheet.table), b"</sheetData></worksheet>"])


def _cell(text: str, style: int) -> str:
    """Return a cell of text in a style."""
    (content,) = _escaped(pa.array([text], pa.large_string())).to_pylist()
    return f'<c t="inlineStr" s="{style}"><is><t>{content}</t></is></c>'


def _rows(table: pa.Table) -> bytes | memoryview:
    """Return the rows of a table as XML."""
    if len(table) == 0:
        return b""
    pieces: list[pa.Array] = []
    for column in table.columns:
        values = column.combine_chunks()
        if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
            if pa.types.is_floating(values.type):
                values = pc.if_else(pc.is_nan(values), None, values)
            ends, content = ("<c><v>", "</v></c>"), values.cast(pa.large_string())
        else:
            ends, content = ('<c t="inlineStr"><is><t>', "</t></is></c>"), _escaped(values.cast(pa.large_string()))
        cells = pc.binary_join_element_wise(_text(ends[0]), content, _text(ends[1]), _text(""))
        pieces.append(pc.fill_null(cells, "<c/>"))
    rows = pc.binary_join_element_wise(_text("<row>"), *pieces, _text("</row>"), _text(""))
    return memoryview(rows.buffers()[2])[: pc.sum(pc.binary_length(rows)).as_py()]


def _escaped(text: pa.Array) -> pa.Array:
    """Return texts as the content of XML elements. ``_x0041_`` is escaped, too: spreadsheets read it as ``A``."""
    if not pc.any(pc.match_substring_regex(text, "[&<>]|_x")).as_py():
        return text
    for sign, replacement in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = pc.replace_substring(text, sign, replacement)
    return pc.replace_substring_regex(text, "_(x[0-9A-Fa-f]{4}_)", r"_x005F_\1")
