"""Every file of a bundle has every row, column and level of its table: at publication, and in ``verify``."""

import base64
import csv
import gzip
import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyogrio
import pytest
import shapely
import tables

from od_core import Budget, Geography, OdError, PrivacyUnit, release_flows
from od_core.publication.bundle import list_bundle_tables, write_bundle
from od_core.publication.file_formats import check_file_rows
from od_core.publication.tables import BundleFile
from tests.od_core.publication.published_kinds import EXAMPLES, Made, locations, publish_examples

ZONES = pd.DataFrame(
    {
        "land": ["L0", "L0", 'é, "far"', 'é, "far"', "L.~2"],
        "kreis": ["001", "NA", "1e5", "a|b", "_x0041_ %"],
        "title": ["Köln & <b>", "", "007", "Ulm", "x, y"],
        "north": [np.nan, 51.0, 52.0, 53.0, 54.5],
        "east": [np.nan, 7.0, 8.0, 9.0, 10.5],
        "shape": [None, *(shapely.to_wkb(shapely.box(k, 0, k + 1, 1)).hex() for k in range(1, 5))],
    }
)
"""Half of them have no place, as where people add coordinates later; codes that careless readers change."""


def released(**given: Any) -> Any:
    generator = np.random.default_rng(3)
    trips = pd.DataFrame({side: generator.choice(ZONES["kreis"], 4_000) for side in ("origin", "destination")})
    geography = Geography.from_frame(
        ZONES, ["land", "kreis"], coordinates=("north", "east"), names={"kreis": "title"}, boundaries="shape"
    )
    given |= {"unit": PrivacyUnit("trip"), "budget": Budget(rho=2, delta="1e-8"), "noise": "table"}
    given |= {"one_row_a_trip": True, "segments": {"mode": ["car", "b, us"]}}
    return release_flows(trips.assign(mode=generator.choice(["car", "b, us"], 4_000)), geography, **given)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    """Flows by category, with half of the places: they have every file of flows. Not to be changed."""
    example = replace(EXAMPLES["flows"], make=released, series="categories")
    return publish_examples(tmp_path_factory.mktemp("published"), {"categories": example})


@pytest.fixture
def copied(published: dict[str, Made], tmp_path: Path) -> Made:
    """The same in a folder of its own, to be damaged."""
    made = published["categories"]
    shutil.copytree(made.root, tmp_path / "copy")
    return replace(made, place=locations(tmp_path / "copy", made.example.key))


def listed(made: Made) -> list[BundleFile]:
    """The files of the bundle that have rows."""
    files = list_bundle_tables(made.kind, made.release, made.facts)
    return [file for file in files if file.rows is not None or file.table is not None]


def first_level(table: pa.Table) -> Any:
    """The rows of all levels of origins but the first, in tables that have several."""
    for name in ("origin_level", "level_name", "level"):
        if name in table.column_names:
            return table.filter(pc.not_equal(table[name], table[name][0]))
    return None


def cut_parquet(path: Path, how: str) -> bool:
    table = pq.read_table(path)
    kept = table.slice(0, len(table) - 1) if how == "row" else table.drop_columns(table.column_names[-1:])
    if how == "level" and (kept := first_level(table)) is None:
        return False
    pq.write_table(kept, path)
    return path.name != "boundaries.parquet" or how != "column"  # it is no table of the data package


def cut_csv(path: Path, how: str) -> bool:
    with path.open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    if how == "row":
        rows.pop(len(rows) // 2)
    elif how == "column":
        head, rows = head[:-1], [row[:-1] for row in rows]
    elif (place := next((k for k, name in enumerate(head) if name in ("level", "level_name", "ORIGIN")), -1)) < 0:
        return False
    else:
        rows = [row for row in rows if row[place][:2] != rows[-1][place][:2]]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\r\n").writerows([head, *rows])
    return True


def cut_matrices(path: Path, how: str) -> bool:
    with tables.open_file(str(path), "a") as file:
        trips = file.get_node("/data/trips")
        cells = np.argwhere(trips[:] != 0)
        if how == "row":
            trips[tuple(cells[-1])] = 0
        elif how == "column":
            file.remove_node("/data/upper")
        elif len(trips) > 1:
            trips[cells[0][0], :] = 0
        else:
            return False
    return True


def cut_workbook(path: Path, how: str) -> bool:
    with ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = max((one for one in parts if "worksheets/" in one), key=lambda one: int(re.sub(r"\D", "", one)))
    if how == "row":
        parts[name] = parts[name][: parts[name].rindex(b"<row>")] + b"</sheetData></worksheet>"
    elif how == "column":
        parts[name] = re.sub(rb"<c(?:/>|[^/>]*>(?:(?!<c).)*?</c>)</row>", b"</row>", parts[name])
    else:
        parts["xl/workbook.xml"] = re.sub(rb"<sheet name=[^>]*/></sheets>", b"</sheets>", parts["xl/workbook.xml"])
    with ZipFile(path, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return True


def cut_features(path: Path, how: str) -> bool:
    content = json.loads(path.read_bytes())
    if how == "row":
        content["features"].pop()
    elif how == "column":
        for feature in content["features"]:
            feature["properties"].pop("trips" if "trips" in feature["properties"] else "noisy")
    path.write_text(json.dumps(content), encoding="utf-8")
    return how != "level"


def cut_geopackage(path: Path, how: str) -> bool:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.create_function("ST_IsEmpty", 1, lambda _: 0)
        for name in [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")]:
            connection.execute(f"DROP TRIGGER {name}")
        cut = {"row": "DELETE FROM desire_lines WHERE fid = 1", "column": "ALTER TABLE desire_lines DROP COLUMN upper"}
        connection.execute(cut.get(how, "SELECT 1"))
    return how != "level"


def cut_structure(path: Path, how: str) -> bool:
    content = json.loads(path.read_bytes())
    codes = content["data"]["codelists"][0]["codes"]
    if how == "row":
        codes.pop()
    elif how == "level":
        content["data"]["codelists"][0]["codes"] = [code for code in codes if not code["id"].startswith("L1_")]
    path.write_text(json.dumps(content), encoding="utf-8")
    return how != "column"


def cut_message(path: Path, how: str) -> bool:
    text = path.read_text(encoding="utf-8")
    codes = re.findall(r"<str:Code id=.*?</str:Code>\n?", text, re.DOTALL)
    for code in codes[-1:] if how == "row" else [code for code in codes if '"L1_' in code]:
        text = text.replace(code, "", 1)
    path.write_text(text, encoding="utf-8")
    return how != "column"


def cut_atlas(path: Path, how: str) -> bool:
    page = path.read_text(encoding="utf-8")
    before, data, after = re.split('(?<=id="data">)([^<]*)', page, maxsplit=1)
    content = gzip.decompress(base64.b64decode(data))
    end = 4 + int.from_bytes(content[:4], "little")
    header, start = json.loads(content[4:end]), end + -end % 8
    for column in (header["leaves"]["trips"], header["leaves"]["destination"]):
        column["length"] -= 1 if how == "row" else column["length"] // 2
    text = json.dumps(header).encode()
    head = len(text).to_bytes(4, "little") + text
    packed = base64.b64encode(gzip.compress(head + bytes(-len(head) % 8) + content[start:]))
    path.write_text(before + packed.decode() + after, encoding="utf-8")
    return how != "column"


CUTS: dict[str, Callable[[Path, str], bool]] = {
    ".parquet": cut_parquet,
    ".csv": cut_csv,
    ".omx": cut_matrices,
    ".xlsx": cut_workbook,
    ".geojson": cut_features,
    ".gpkg": cut_geopackage,
    ".json": cut_structure,
    ".xml": cut_message,
    ".html": cut_atlas,
}
"""Takes the last row, the last column or a level out of a file; False if the file has no such thing."""


@pytest.mark.exhaustive
@pytest.mark.representatives("categories")
@pytest.mark.parametrize("name", ["categories", "group sizes", "boxes"])
def test_what_any_file_lacks_is_found(all_published, published, tmp_path, name):
    """Files are read by programs that did not write them, so that a writer and a reader do not err together."""
    made = (all_published | published)[name]
    bundle = shutil.copytree(made.place.bundle, tmp_path / "r1")
    files = listed(made)
    assert {Path(file.name).suffix for file in files} <= {*CUTS}
    assert list(check_file_rows(bundle, files)) == []
    finest = [
        file for file in files if not re.match("(tables|omx)/flows_.*(all|land)", file.name)
    ]  # the others are made alike
    read = [file for file in finest if not file.name.endswith(".parquet")]  # each of which is compared by itself
    for how in ("row", "column", "level"):
        cut = [file for file in read if CUTS[Path(file.name).suffix](bundle / file.name, how)]
        found = dict(check_file_rows(bundle, cut))
        assert found.keys() == {file.name for file in cut}, how
        assert all(re.match("has|cannot be compared", fault) for fault in found.values())
        for file in read:
            shutil.copy(made.place.bundle / file.name, bundle / file.name)
    for file in finest:
        for how in ("row", "column", "level") if file not in read else ():
            if CUTS[".parquet"](bundle / file.name, how):
                alike = {file.name, f"tables/{Path(file.name).stem}.csv"}
                examined = [one for one in files if one.name in alike]
                if file.name in ("tables/flows.parquet", "tables/segments.parquet"):
                    examined = [one for one in files if one.name.endswith((".parquet", "kreis.csv"))]
                found = dict(check_file_rows(bundle, examined))
                assert found.keys() & alike, (file.name, how)
                assert all(re.match("has|cannot be compared", fault) for fault in found.values())
            shutil.copy(made.place.bundle / file.name, bundle / file.name)
    assert list(check_file_rows(bundle, files)) == []


def test_rows_without_a_distance_are_in_every_file(published):
    """A reader that shares no code with any writer: pandas for text, Arrow for Parquet, GDAL for GeoPackages."""
    bundle = published["categories"].place.bundle
    whole = pq.read_table(bundle / "tables/flows.parquet").to_pandas()
    assert whole["distance_km"].isna().any()
    for (origin, destination), rows in whole.groupby(["origin_level", "destination_level"]):
        text = pd.read_csv(bundle / f"tables/flows_{origin}_{destination}.csv", dtype=str, keep_default_na=False)
        assert (len(text), text["trips"].astype(int).sum()) == (len(rows), rows["trips"].sum())
        assert (text["distance_km"] == "").to_numpy().tolist() == rows["distance_km"].isna().tolist()
    _, table = pyogrio.read_arrow(bundle / "gis/desire_lines.gpkg")
    lines = json.loads((bundle / "gis/desire_lines.geojson").read_bytes())["features"]
    assert table["trips"].to_pylist() == [line["properties"]["trips"] for line in lines]
    assert 0 < len(lines) <= 12


@pytest.mark.representatives("tables")
@pytest.mark.parametrize("suffixes", [{".parquet"}, {*CUTS} - {".parquet"}], ids=["tables", "other files"])
def test_a_bundle_whose_files_lack_rows_is_not_published(published, monkeypatch, tmp_path, suffixes):
    """Every writer leaves out a row: the error names each file; the bundle has no checksums, and is not published."""
    made = published["categories"]
    files = made.kind.list_files

    def cut(file: BundleFile) -> BundleFile:
        def write(target: BinaryIO) -> None:
            with (tmp_path / file.name).open("wb") as whole:
                file.write(whole)
            CUTS[Path(file.name).suffix](tmp_path / file.name, "row")
            target.write((tmp_path / file.name).read_bytes())

        return replace(file, write=write) if file.name in chosen else file

    chosen = {Path(file.name).name for file in listed(made) if Path(file.name).suffix in suffixes}
    monkeypatch.setattr(type(made.kind), "list_files", lambda *given: [cut(file) for file in files(*given[1:])])
    (folder := tmp_path / "r1").mkdir()
    with pytest.raises(OdError, match="OD-BUNDLE-INCOMPLETE") as error:
        write_bundle(made.kind, made.release, made.facts, lambda _: "<html></html>", folder)
    message = error.value.message
    unnamed = {name for name in chosen if not re.search(f"{name} (has|cannot)", message)}
    assert all(f"{Path(name).stem}.csv has " in message for name in unnamed)
    assert not (folder / "SHA256SUMS").exists()
