"""The bundle of a month of flights, opened by the programs of others: all find the same numbers, and nothing amiss."""

import csv
import functools
import io
import itertools
import json
import re
import shutil
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import frictionless
import numpy as np
import openmatrix
import pandas as pd
import pyarrow.parquet as pq
import pyogrio
import pytest
import shapely
from openmatrix import validator
from pysdmx.io import read_sdmx, write_sdmx
from pysdmx.io.format import Format
from pysdmx.io.pd import PandasDataset
from pysdmx.model import Schema
from pysdmx.model.dataset import ActionType

from od_core import Breakdown, Budget, FlowTree, Geography, ReleaseKey, open_release
from od_core.files.durable import write_durably
from od_core.flows.publishing import flow_files, omx
from od_core.flows.publishing.flow_files import MAX_SHEET_ROWS
from od_core.flows.publishing.flow_tables import FlowTables, name_pair_files
from od_core.flows.publishing.kind import FLOWS
from od_core.flows.publishing.sdmx import AGENCY, format_area_identifier, format_time_period
from od_core.periods import Period
from od_core.publication.bundle_files import check_bundle
from od_core.publication.certify import build_certificate
from tests.od_core.publication import examples
from tests.od_core.publication.examples import ALL_FORMATS, CHECKS, RECORD, files_of, publish_bundle, released_trips
from tests.od_core.publication.test_workbook import read_workbook

KEY = ReleaseKey("us_flights", "2001-06")
LEVELS = ["all", "region", "state", "airport"]
COLUMNS = ["origin_level", "destination_level", "origin", "destination", "trips", "lower", "upper"]


def facts(release, **changes):
    given = {"record": RECORD, "formats": ALL_FORMATS} | changes
    return build_certificate(FLOWS, release, KEY, "us_flights", CHECKS, **given)


def bundled(release, place, **changes):
    publish_bundle(release, facts(release, **changes), place)
    return place


@pytest.fixture(scope="module")
def release(flights, airports):
    """Of half of the airports, whose pairs are still more than a sheet of the workbook has rows."""
    airports, month = airports[airports["region"].isin(["Midwest", "West"])], flights["2001-06"]
    assert len(airports) ** 2 > MAX_SHEET_ROWS
    trips = month[month[["origin", "destination"]].isin([*airports["airport"]]).all(axis="columns")]
    given = {"budget": Budget(1, "1e-8"), "noise": "table", "one_row_a_trip": True}
    return released_trips(trips, Geography.from_frame(airports, LEVELS[1:]), **given)


@pytest.fixture(scope="module")
def bundle(release, tmp_path_factory):
    return bundled(release, tmp_path_factory.mktemp("flights") / "r1")


@pytest.fixture(scope="module")
def example_of(tmp_path_factory):
    """The bundle of each kind of small release, written once. Not to be changed."""

    @functools.cache
    def written(kind):
        made, place = examples.release(kind), tmp_path_factory.mktemp("example") / "r1"
        publish_bundle(made, examples.facts(made), place)
        return place

    return written


@pytest.fixture(scope="module")
def listed(bundle):
    """The flows as the plainest program reads them: CSV, all of it text; with the levels that the file is named for."""
    parts = []
    for pair in itertools.product(LEVELS, LEVELS):
        content = (bundle / f"tables/flows_{pair[0]}_{pair[1]}.csv").read_bytes().decode("utf-8")
        rows = list(csv.reader(io.StringIO(content, newline="")))
        assert rows[0] == COLUMNS[2:]
        parts += [[*pair, *row] for row in rows[1:]]
    frame = pd.DataFrame(parts, columns=COLUMNS)
    return frame.astype(dict.fromkeys(("trips", "lower", "upper"), "int64"))


@pytest.mark.parametrize(("origin", "destination"), [("airport", "airport"), ("state", "airport"), ("all", "region")])
def test_openmatrix_reads_the_same_numbers(bundle, listed, origin, destination):
    part = listed[(listed["origin_level"] == origin) & (listed["destination_level"] == destination)]
    with openmatrix.open_file(str(bundle / f"omx/flows_{origin}_{destination}.omx")) as file:
        assert file.version() == b"0.2"
        assert sorted(file.list_matrices()) == ["lower", "trips", "upper"]
        places = {side: file.mapping(side) for side in ("origin", "destination")}
        assert [len(places["origin"]), len(places["destination"])] == list(file.shape())
        assert [int(file.root.lookup[side].attrs["dim"]) for side in ("origin", "destination")] == [0, 1]
        row, column = ([places[side][code.encode()] for code in part[side]] for side in places)
        for name in ("trips", "lower", "upper"):
            matrix = file[name][:]
            assert matrix[row, column].tolist() == part[name].tolist()
            assert matrix.sum() == part[name].sum()


def test_the_workbook_has_the_largest_flows_of_every_pair_of_levels(bundle, listed):
    sheets = read_workbook(bundle / "spreadsheet/flows.xlsx")
    for (origin, destination), part in listed.groupby(["origin_level", "destination_level"]):
        _, head, *rows = sheets[f"{origin}_{destination}"]
        assert head == COLUMNS[2:]
        assert (
            rows == part.sort_values("trips", ascending=False, kind="stable")[head].head(MAX_SHEET_ROWS).values.tolist()
        )
        assert sum(row[2] for row in rows) == part["trips"].sum()  # what is left out has no trips


def test_frictionless_finds_every_row_as_described(bundle, tmp_path, monkeypatch):
    """Types, constraints, keys, code lists, sizes and checksums; and it does find a row that is not as described."""
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("the network is asked"))
    report = frictionless.validate(str(bundle / "datapackage.json"))
    assert report.valid, report.flatten(["type", "message"])[:5]
    rows = [task.stats.get("rows") for task in report.tasks if task.name.startswith("flows_")]
    assert sum(filter(None, rows)) == len(pd.read_csv(bundle / "tables/areas.csv")) ** 2
    package = json.loads((bundle / "datapackage.json").read_text(encoding="utf-8"))
    two = ("tables/areas.csv", "tables/flows_region_all.csv")
    package["resources"] = [one for one in package["resources"] if one["path"] in two]
    (tmp_path / "datapackage.json").write_text(json.dumps(package), encoding="utf-8")
    (tmp_path / "tables").mkdir()
    shutil.copy(bundle / "tables/flows_region_all.csv", tmp_path / "tables")
    areas = (bundle / "tables/areas.csv").read_bytes().replace(b",Midwest,", b",Midwets,", 1)
    (tmp_path / "tables/areas.csv").write_bytes(areas)
    found = frictionless.validate(str(tmp_path / "datapackage.json"))
    assert {error for _, error in found.flatten(["name", "type"])} >= {"hash-count", "foreign-key"}


def test_sdmx_writes_a_span_as_a_first_day_and_a_duration():
    assert format_time_period(Period("2018-01--2020-12")) == "2018-01-01/P1096D"
    usual = ["2001", "2001-Q2", "2001-W23"]
    assert [format_time_period(Period(text)) for text in usual] == usual


@pytest.mark.parametrize("kind", ["bounded", "unknown zones"])
def test_sdmx_is_what_pysdmx_would_write(example_of, kind):
    """Codes that look like numbers, with commas, quotes and accents; two geographies."""
    made = examples.release(kind)
    tables = FlowTables.from_release(made, examples.facts(made))
    bundle = example_of(kind)
    text = (bundle / "sdmx/flows.sdmx.csv").read_bytes().decode("utf-8")
    frame = pd.read_csv(io.StringIO(text), dtype=str).drop(columns=["STRUCTURE", "STRUCTURE_ID", "ACTION"])
    message = read_sdmx(bundle / "sdmx/flows.sdmx.json", validate=True)
    (definition,), (flow,) = message.get_data_structure_definitions(), message.get_dataflows()
    schema = Schema("dataflow", AGENCY, flow.id, definition.components, flow.version, name=flow.name)
    dataset = PandasDataset(structure=schema, data=frame, action=ActionType.Replace)
    assert write_sdmx([dataset], Format.DATA_SDMX_CSV_2_0_0).replace("\r\n", "\n") == text.replace("\r\n", "\n")
    named = {code.id: code.name for codes in message.get_codelists() for code in codes.items}
    written = pd.concat([pair.flows for pair in tables.pairs], ignore_index=True)
    assert frame["ORIGIN"].map(named).tolist() == written["origin"].tolist()
    assert all(re.fullmatch(r"[A-Za-z0-9_@$-]+", identifier) for identifier in named)


def parts(message, *path):
    """The elements of an SDMX-ML message below each element of a path, by any prefix of their names."""
    return message.findall("/".join(f".//{{*}}{name}" for name in path))


@pytest.mark.parametrize("kind", ["bounded", "unknown zones"])
def test_the_structure_in_xml_is_that_in_json(example_of, kind):
    """Read by Python's own parser. ``pysdmx`` with its schemas and ``sdmx1`` read the message, too."""
    bundle = example_of(kind)
    stated = json.loads((bundle / "sdmx/flows.sdmx.json").read_text(encoding="utf-8"))["data"]
    message = ElementTree.parse(bundle / "sdmx/flows.sdmx.xml")  # noqa: S314  # our own
    assert message.getroot().tag == "{http://www.sdmx.org/resources/sdmxml/schemas/v2_1/message}Structure"
    lists = {one.get("id"): parts(one, "Code") for one in parts(message, "Codelist")}
    named = {name: [(code.get("id"), code.findtext("{*}Name")) for code in codes] for name, codes in lists.items()}
    assert named == {one["id"]: [(code["id"], code["name"]) for code in one["codes"]] for one in stated["codelists"]}
    concepts = {one.get("id"): one.findtext("{*}Description") for one in parts(message, "Concept") if len(one)}
    assert concepts == {one["id"]: one["description"] for one in stated["conceptSchemes"][0]["concepts"]}
    (components,) = parts(message, "DataStructureComponents")
    assert [
        [(one.tag.partition("}")[2], one.get("id"), one.find("{*}ConceptIdentity/Ref").get("id")) for one in listed]
        for listed in components
    ] == [
        [
            *(("Dimension", side, side) for side in ("ORIGIN", "DESTINATION")),
            ("TimeDimension", "TIME_PERIOD", "TIME_PERIOD"),
        ],
        [("Attribute", end, end) for end in ("LOWER", "UPPER")],
        [("PrimaryMeasure", "OBS_VALUE", "OBS_VALUE")],
    ]
    codes = [one.get("id") for one in components.findall(".//{*}Enumeration/Ref")]
    assert codes == ([*named] * 2)[:2]


CODES = {"county": ["1", "1", "2"], "zone": ["007", "010", "100"], "title": ["A & <b>", "", "C"]}
SHAPES = [None, *(shapely.to_wkb(shapely.box(k, 0, k + 1, 1)).hex() for k in range(2))]
GIVEN = pd.DataFrame({**CODES, "north": [51.0, 51.5, None], "east": [7.0, 9.5, None], "shape": SHAPES})


@pytest.mark.parametrize("stated", [4, 6])
def test_what_other_tools_look_for_is_there_since_format_5(tmp_path, stated, capsys):
    """In OpenMatrix files for transport models, GeoPackages for GDAL, and boundaries; bundles of format 4 stay."""
    geography = Geography.from_frame(
        GIVEN, ["county", "zone"], coordinates=("north", "east"), names={"zone": "title"}, boundaries="shape"
    )
    pairs = pd.MultiIndex.from_product([GIVEN["zone"], GIVEN["zone"]], names=["origin", "destination"])
    flows = pd.DataFrame({"trips": 500}, pairs).reset_index()
    same = Geography.from_frame(GIVEN, ["county", "zone"])  # names and places of the origins are used for both sides
    made = released_trips(flows, geography, destination_geography=same, budget=Budget(2, "1e-8"))
    place = tmp_path / "r1"
    publish_bundle(made, examples.facts(made) | {"bundle_format": stated}, place)
    back = open_release(place).plan.tree.origin
    assert (back.digest, back.names, back.boundaries) == (geography.digest, geography.names, geography.boundaries)
    for level, numbers in (("zone", [7, 10, 100]), ("county", [1, 2]), ("all", None)):
        with openmatrix.open_file(str(place / ("omx" if stated > 5 else "") / f"flows_{level}_{level}.omx")) as file:
            lookups = {node.name: node for node in file.iter_nodes("/lookup")}
            if stated == 4:
                assert not {"origin_number", "destination_number"} & {*lookups}
                assert {node.attrs["dim"] for node in lookups.values()} == {0, 1}
                assert not any("DIM" in node.attrs for node in lookups.values())
                continue
            sides = {name: int(node.attrs["DIM"]) for name, node in lookups.items()}
            assert sides == {name: int(name.startswith("destination")) for name in lookups}
            for side in ("origin_number", "destination_number"):
                assert (side in lookups) == (numbers is not None)
                assert numbers is None or file.mapping(side) == {number: k for k, number in enumerate(numbers)}
            for matrix in file.iter_nodes("/data"):
                missing = matrix.attrs["NA"]
                assert np.isnan(missing) if matrix.name == "distance_km" else missing not in matrix[:]
            checks = [getattr(validator, f"check{number}")(file)[0] for number in range(1, 12)]
            assert all(checks), capsys.readouterr().out
    lines = place / ("gis" if stated > 5 else "") / "desire_lines.gpkg"
    known = pyogrio.read_info(lines)
    assert known["capabilities"]["fast_spatial_filter"] == (stated > 4)
    box = (6.9, 50.9, 7.1, 51.1)
    _, _, shapes, _ = pyogrio.raw.read(lines)
    _, _, found, _ = pyogrio.raw.read(lines, bbox=box)
    assert len(found) == shapely.intersects(shapely.from_wkb(shapes), shapely.box(*box)).sum() == 2
    columns = pq.read_table(place / ("tables" if stated > 5 else "") / "boundaries.parquet").to_pydict()
    titles = dict(zip(columns["area"], columns.get("name", []), strict=False))
    assert titles == ({} if stated == 4 else {"010": None, "100": "C", "1": None, "2": None})


@pytest.mark.parametrize("codes", [["7", "007"], ["1", "x"], ["2147483648", "1"], ["1", "\u0663"]])
def test_codes_that_are_not_different_small_numbers_have_no_numbers(codes):
    assert omx._parse_zone_numbers(codes) is None


def test_areas_have_one_identifier_each():
    codes = ["007", "7", "a b", "a_b", "a$20b", "é", "e", "A", '"', "x,y"]
    identifiers = [format_area_identifier(level, code) for level in (1, 11) for code in codes]
    assert len(set(identifiers)) == len(identifiers)
    assert all(re.fullmatch(r"L[0-9]+_[A-Za-z0-9_$-]+", identifier) for identifier in identifiers)


def test_the_codebook_names_every_file_and_column(bundle, release):
    text = (bundle / "codebook.md").read_text(encoding="utf-8")
    for name in files_of(bundle):
        if name not in ("codebook.md", "README.txt", "datapackage.json", "SHA256SUMS"):
            assert f"`{name}`" in text
    files = [name for line in re.findall(r"^(`.*`)\. Each row is: ", text, re.MULTILINE) for name in line.split(", ")]
    assert len(files) == len(set(files)) > 5  # each file is of one table
    for name in (*COLUMNS, "noisy", "variance", "geography", "parent"):
        assert f"| `{name}` |" in text
    assert facts(release)["guarantee"]["not_protected"] in text
    assert "90 %" in text
    for word in ("Zero", "Missing", "Not released"):
        assert f"**{word}**" in text


@pytest.mark.parametrize("how", ["cut", "gone", "a member changed", "a member less", "another order", "another time"])
def test_a_zip_file_that_is_not_the_bundle_is_found(bundle, tmp_path, how):
    shutil.copytree(bundle, tmp_path / "r1")
    place, whole = tmp_path / "r1.zip", bundle.with_name("r1.zip")
    with zipfile.ZipFile(whole) as archive:
        held = [(entry, archive.read(entry)) for entry in archive.infolist()]
    if how == "cut":
        place.write_bytes(whole.read_bytes()[:-30])
    elif how != "gone":
        if how == "a member changed":
            held[2] = (held[2][0], held[2][1] + b"\n")
        elif how == "a member less":
            held.pop()
        elif how == "another order":
            held.reverse()
        with zipfile.ZipFile(place, "w") as archive:
            for entry, content in held:
                date = (2001, 6, 1, 0, 0, 0) if how == "another time" else entry.date_time
                new = zipfile.ZipInfo(entry.filename, date)
                new.create_system, new.external_attr = entry.create_system, entry.external_attr
                archive.writestr(new, content)
    (fault,) = check_bundle(tmp_path / "r1")
    assert fault.startswith("r1.zip: ")
    if how == "a member changed":
        assert held[2][0].filename in fault


def test_without_intervals_only_flows_are_listed(tmp_path):
    made = examples.release()
    certified = examples.facts(made, intervals=False)
    assert certified["interval"] is None
    place = tmp_path / "r1"
    publish_bundle(made, certified, place)
    frame = pd.read_parquet(place / "tables/flows.parquet")
    assert list(frame.columns) == COLUMNS[:5]
    assert (frame["trips"] > 0).all()
    pd.testing.assert_frame_equal(open_release(place).flows, made.flows)
    with openmatrix.open_file(str(place / "omx/flows_zone_zone.omx")) as file:
        assert file.list_matrices() == ["trips"]
        assert file["trips"][:].sum() == made.flows["trips"].sum()
    assert read_sdmx(place / "sdmx/flows.sdmx.json", validate=True).get_data_structure_definitions()
    report = frictionless.validate(str(place / "datapackage.json"))
    assert report.valid, report.flatten(["name", "type", "message"])[:5]
    assert "lower" not in (place / "codebook.md").read_text(encoding="utf-8")
    assert "These numbers have no intervals." in examples.atlas_header(place / "atlas.html")["notes"][0]


def test_a_matrix_that_is_too_large_is_left_out(tmp_path, monkeypatch):
    made = examples.release()
    for module in (omx, flow_files):
        monkeypatch.setattr(module, "MAX_MATRIX_CELLS", 48)  # 7 zones by 7
    publish_bundle(made, examples.facts(made), tmp_path / "r1")
    assert not (tmp_path / "r1" / "omx/flows_zone_zone.omx").exists()
    assert (tmp_path / "r1" / "omx/flows_zone_county.omx").exists()
    codebook = (tmp_path / "r1" / "codebook.md").read_text(encoding="utf-8")
    assert "more than 48 cells are left out: zone by zone" in codebook


@pytest.mark.parametrize("levels", [["a", "a_b"], ["Zone", "zone"], ["x/y", "z"], ["a", "z" * 244]])
def test_level_names_that_files_cannot_have_are_numbers_there(levels):
    """Two pairs with one name, names that differ in case alone, that are no names of files, and that are too long."""
    zones = pd.DataFrame([("1", "11"), ("2", "21")], columns=levels, dtype="str")
    here = Geography.from_frame(zones, levels)
    there = Geography.from_frame(zones.set_axis(["b_c", "c"], axis="columns"), ["b_c", "c"])
    names = name_pair_files(FlowTree(here, there))
    assert names[1, 2] == "flows_1_2"
    assert len({name.casefold() for name in names.values()}) == 9


def test_the_longest_name_of_a_file_can_be_written_and_replaced_and_the_next_one_is_a_number(tmp_path):
    """Bundles with such names were published, so they stay. By a breakdown, the name is longer."""
    tree = FlowTree(*[Geography.from_frame(pd.DataFrame({"z" * 122: ["1", "2"]}), ["z" * 122])] * 2)
    longest = name_pair_files(tree)[1, 1]
    assert len(f"{longest}.csv") == 255
    write_durably(tmp_path / f"{longest}.csv", Path.touch)
    assert name_pair_files(tree, [Breakdown("mode", ("car", "bus"))])[1, 1] == "flows_1_1"
