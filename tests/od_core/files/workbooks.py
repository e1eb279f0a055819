"""Excel workbooks, as far as a program that only recognizes them can tell."""

import io
import zipfile


def zipped(*names: str) -> bytes:
    """A zip archive with files of these names."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in names:
            archive.writestr(name, "<x/>")
    return content.getvalue()


WORKBOOKS = {
    "xlsx": zipped("[Content_Types].xml", "xl/workbook.xml"),
    "xlsb": zipped("[Content_Types].xml", "xl/workbook.bin"),
    "xls": bytes.fromhex("d0cf11e0a1b11ae1") + bytes(504),
}
