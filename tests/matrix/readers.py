"""Read the files of a bundle with readers that are not their writers."""

import zipfile
from pathlib import Path
from xml.etree import ElementTree as ET

_SPACE = {"m": "http://schemas.openxmlformats.org/spreadsheetml/2006/main"}
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"


def workbook_rows(path: Path) -> dict[str, list[list[str | float | None]]]:
    """Return the rows of each sheet of a workbook by its name, as its XML has them."""
    with zipfile.ZipFile(path) as archive:
        part = {name: ET.fromstring(archive.read(f"xl/{name}")) for name in ("workbook.xml", "_rels/workbook.xml.rels")}  # noqa: S314
        targets = {str(one.get("Id")): str(one.get("Target")) for one in part["_rels/workbook.xml.rels"]}
        sheets = {
            str(one.get("name")): targets[str(one.get(_RELATION))]
            for one in part["workbook.xml"].iterfind(".//m:sheet", _SPACE)
        }
        found = {}
        for name, target in sheets.items():
            rows = ET.fromstring(archive.read(f"xl/{target}")).iterfind(".//m:row", _SPACE)  # noqa: S314
            found[name] = [[_cell(cell) for cell in row] for row in rows]
    return found


def _cell(cell: ET.Element) -> str | float | None:
    if cell.get("t") == "inlineStr":
        return cell.findtext("m:is/m:t", "", _SPACE)
    number = cell.findtext("m:v", None, _SPACE)
    return None if number is None else float(number)
