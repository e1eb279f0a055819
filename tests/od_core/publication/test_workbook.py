"""Excel workbooks, read by the standard library's zip and XML readers as a spreadsheet reads them."""

import io
import re
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path

import pyarrow as pa

from od_core.publication.workbook import Sheet, write_workbook

SPACE = {"m": "http://schemas.openxmlformats.org/spreadsheetml/2006/main"}
RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"


def unescaped(text: str) -> str:
    """Text as spreadsheets show it: ``_x0041_`` is the character of that number."""
    return re.sub("_x([0-9A-Fa-f]{4})_", lambda found: chr(int(found[1], 16)), text)


def read_workbook(file: Path | io.BytesIO) -> dict[str, list[list[str | int | float | None]]]:
    """The rows of each sheet, by its name; a cell is text or a number, as its type says."""
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        listed = part(archive, "workbook.xml").findall(".//m:sheet", SPACE)
        targets = {each.get("Id"): str(each.get("Target")) for each in part(archive, "_rels/workbook.xml.rels")}
        found = {}
        for sheet in listed:
            rows = part(archive, targets[sheet.get(RELATION)]).findall(".//m:row", SPACE)
            found[str(sheet.get("name"))] = [[cell(each) for each in row] for row in rows]
    return found


def part(archive: zipfile.ZipFile, name: str) -> ET.Element:
    return ET.fromstring(archive.read(f"xl/{name}"))  # noqa: S314  # a file of ours


def cell(element: ET.Element) -> str | int | float | None:
    assert element.find("m:f", SPACE) is None  # a formula
    if element.get("t") == "inlineStr":
        return unescaped(str(element.findtext("m:is/m:t", None, SPACE)))
    number = element.findtext("m:v", None, SPACE)
    if number is None:
        assert len(element) == 0
        return None
    return float(number) if "." in number else int(number)


CODES = ["=1+1", "+1", "-1", "@SUM(A1)", "007", "1e5", "a&b<c>\"d'", "_x0041_", "é 猫", "x_x005F_"]
CODES.append("_x0041_x0042_x0043_x")  # an underscore ends one such text and begins the next


def test_the_name_of_a_sheet_is_text() -> None:
    file = io.BytesIO()
    write_workbook(file, [Sheet("a <b> & c", [], pa.table({"code": ["1"]}))])
    assert list(read_workbook(file)) == ["a <b> & c"]


def test_text_stays_text_and_numbers_are_whole() -> None:
    table = pa.table({"code <&>": CODES, "trips": pa.array(range(-3, 8), pa.int64())})
    empty = pa.table({"code": pa.array([], pa.string()), "trips": pa.array([], pa.int64())})
    alone = pa.table({f"column {number}": [code] for number, code in enumerate(CODES)})
    file, lines = io.BytesIO(), ["=2+2", "a line"]
    write_workbook(file, [Sheet("first", lines, table), Sheet("second", [], empty, width=50), Sheet("3", [], alone)])
    assert read_workbook(file) == {
        "first": [["=2+2"], ["a line"], ["code <&>", "trips"], *map(list, zip(CODES, range(-3, 8), strict=True))],
        "second": [["code", "trips"]],
        "3": [alone.column_names, CODES],
    }


def test_a_slice_of_a_table_and_one_of_several_chunks_are_written_as_they_are() -> None:
    table = pa.table({"code": pa.chunked_array([["a", "b"], ["c", "d"]]), "trips": [1, 2, 3, 4]})
    file = io.BytesIO()
    write_workbook(file, [Sheet("part", [], table.slice(1, 2))])
    assert read_workbook(file)["part"][1:] == [["b", 2], ["c", 3]]


def test_numbers_may_have_decimal_places_and_every_value_may_be_missing() -> None:
    distances = [0.001, 1234.5, None, float("nan"), 20015.087]
    names, trips = ["a", None, "c", None, "<"], [1, None, 3, 4, 5]
    file = io.BytesIO()
    write_workbook(file, [Sheet("one", [], pa.table({"name": names, "trips": trips, "distance_km": distances}))])
    distances[3] = None
    assert read_workbook(file)["one"][1:] == [list(row) for row in zip(names, trips, distances, strict=True)]
