"""Public zone lists: text stays text, and a file that is no table is refused by its name."""

import gzip
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from od_core import Geography, OdError
from od_core.group_sizes.groups import ListedGroups
from od_core.records.zone_lists import ZoneList, read_zones
from od_core.stops.trajectories import PlaceColumns, PlaceList

ZONES = pd.DataFrame(
    {
        "region": ["001", "001", "NA", "é"],
        "district": ["01", "02", "03", "1e4"],
        "zone": ["0010", "00,11", 'q"x', "null"],
        "name": ["", "  padded ", "line\nbreak", "nan"],
    },
    dtype="str",
)


def test_codes_of_a_csv_stay_as_they_are_written(tmp_path):
    """Leading zeros, the words NA, null and nan, blanks, quotes, a byte order mark: nothing is guessed."""
    for name, encoding in (("zones.csv", "utf-8"), ("marked.csv", "utf-8-sig")):
        ZONES.to_csv(tmp_path / name, index=False, encoding=encoding)
        zones = read_zones(tmp_path / name)
        assert list(zones.columns) == list(ZONES.columns)
        assert zones.to_numpy().tolist() == ZONES.to_numpy().tolist()
    assert Geography.from_frame(zones, ["region", "zone"]).zones == ("00,11", "0010", 'q"x', "null")


def test_a_parquet_file_keeps_its_types(tmp_path):
    """Numbers are not turned into text, so that the geography can refuse lost zeros."""
    pd.DataFrame({"region": ["a", "b"], "zone": [1, 2]}).to_parquet(tmp_path / "zones.parquet")
    with pytest.raises(OdError, match=r"OD-GEOGRAPHY-NOT-TEXT.*leading zeros"):
        ZoneList("zones.parquet", ("region", "zone")).read_geography(tmp_path)


INDEXED = pd.DataFrame({"region": ["N", "S"], "zone": ["01", "02"], "area": [2.5, 3.5]})


@pytest.mark.parametrize("index", [["zone"], ["region", "zone"], ["area"], []])
@pytest.mark.parametrize("folder", ["", "zone=9"])
def test_an_index_that_pandas_wrote_is_a_column(tmp_path, index, folder):
    """And the positions of rows, of which only the metadata tells, and names of folders are none."""
    (tmp_path / folder).mkdir(exist_ok=True)
    path = tmp_path / folder / "zones.parquet"
    (INDEXED.set_index(index) if index else INDEXED).to_parquet(path)
    zones = read_zones(path)
    assert set(zones.columns) == set(INDEXED.columns)
    pd.testing.assert_frame_equal(zones[list(INDEXED.columns)], INDEXED)
    whole = [read_zones(path), pq.ParquetFile(path).read()]
    assert [Geography.from_frame(one, ["region", "zone"]).zones for one in whole] == [("01", "02")] * 2


UNREADABLE = {
    "latin.csv": ("zone\nÉvreux\n".encode("latin-1"), "OD-FILE-NOT-UTF8"),
    "empty.csv": (b"", "OD-FILE-UNREADABLE"),
    "ragged.csv": (b"region,zone\na,b\na,b,c\n", "OD-FILE-UNREADABLE"),
    "quote.csv": (b'region,zone\n"a,b\n', "OD-FILE-UNREADABLE"),
    "empty.parquet": (b"", "OD-FILE-UNREADABLE"),
    "unpacked.csv.gz": (b"region,zone\na,b\n", "OD-FILE-UNREADABLE"),
    "cut.csv.gz": (gzip.compress(b"region,zone\n" + b"a,b\n" * 1000)[:-12], "OD-FILE-UNREADABLE"),
    "latin.csv.gz": (gzip.compress("zone\nÉvreux\n".encode("latin-1")), "OD-FILE-NOT-UTF8"),
    "wide.csv": ("region,zone\na,b\n".encode("utf-16"), "OD-FILE-NOT-UTF8"),
    "semicolons.csv": (b"region;zone;name\na;b;c, d\n", "OD-FILE-DELIMITER"),
    "tabs.csv": (b"region\tzone\na\tb\n", "OD-FILE-DELIMITER"),
    "bars.csv.gz": (gzip.compress(b"region|zone\na|b\n"), "OD-FILE-DELIMITER"),
    "garbage.parquet": (b"PAR1" + bytes(range(256)) + b"PAR1", "OD-FILE-UNREADABLE"),
    "hole.csv": (b"region,zone\na,b\n" * 9 + bytes(4096) + b"\na,c\n", "OD-FILE-INCOMPLETE"),
    "cut.csv": (b"region,zone\na,b\n" + bytes(1 << 21), "OD-FILE-INCOMPLETE"),
    "hole.csv.gz": (gzip.compress(b"region,zone\na,b\n" + bytes(1 << 21)), "OD-FILE-INCOMPLETE"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_file_that_is_no_table_is_refused_by_its_name(tmp_path, name):
    content, code = UNREADABLE[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(OdError, match=f"{code}:") as refused:
        read_zones(tmp_path / name)
    assert name in refused.value.message
    assert "\n" not in str(refused.value)
    if code == "OD-FILE-DELIMITER":
        assert f"separated by {name.split('.')[0]}" in refused.value.message
        assert refused.value.next_step.startswith("save it with commas")


@pytest.mark.parametrize("name", ["absent.csv", "absent.parquet", "."])
def test_a_file_that_is_not_there(tmp_path, name):
    with pytest.raises(OdError, match="OD-FILE-MISSING:"):
        read_zones(tmp_path / name)


def test_a_list_without_rows_reaches_the_geography(tmp_path):
    (tmp_path / "zones.csv").write_text("region,zone\n")
    with pytest.raises(OdError, match="OD-GEOGRAPHY-EMPTY"):
        Geography.from_frame(read_zones(tmp_path / "zones.csv"), ["region", "zone"])


def test_a_packed_list_is_the_list(tmp_path):
    for name in ("zones.csv", "zones.csv.gz"):
        ZONES.to_csv(tmp_path / name, index=False)
    assert (tmp_path / "zones.csv.gz").read_bytes().startswith(b"\x1f\x8b")
    pd.testing.assert_frame_equal(read_zones(tmp_path / "zones.csv.gz"), read_zones(tmp_path / "zones.csv"))


TLC = """LocationID,Borough,Zone,service_zone
1,EWR,Newark Airport,EWR
2,Queens,Jamaica Bay,Boro Zone
3,Bronx,Allerton/Pelham Gardens,Boro Zone
4,Manhattan,Alphabet City,Yellow Zone
132,Queens,JFK Airport,Airports
138,Queens,LaGuardia Airport,Airports
264,Unknown,N/A,N/A
"""
LODES = """tabblk2020,st,stusps,cty,trct,bgrp,cbsaname,blklatdd,blklonddd
440010301001000,44,RI,44001,44001030100,440010301001,"Providence, RI",41.7,-71.3
440010301002001,44,RI,44001,44001030100,440010301002,"Providence, RI",41.8,-71.4
440030201011003,44,RI,44003,44003020101,440030201011,"Providence, RI",41.9,-71.5
"""
NOMIS = """LAD21CD,LAD21NM,UTLA21CD,UTLA21NM,RGN21CD,CTRY21CD
E07000008,Cambridge,E10000003,Cambridgeshire,E12000006,E92000001
E07000009,East Cambridgeshire,E10000003,Cambridgeshire,E12000006,E92000001
E06000001,Hartlepool,E06000001,Hartlepool,E12000001,E92000001
W06000015,Cardiff,W06000015,Cardiff,W92000004,W92000004
"""
"""The heads of lists as three agencies publish them; where Wales has no regions, the country stands in their column."""


def geography(folder: Path, text: str, **listed: Any) -> Geography:
    (folder / "zones.csv").write_text(text, encoding="utf-8")
    return ZoneList("zones.csv", **listed).read_geography(folder)


def below(geography: Geography, level: str) -> dict[str, tuple[str, ...]]:
    """The zones of every area of a level."""
    number = geography.find_level_number(level)
    first = geography.first_zone[number]
    return {code: geography.zones[first[area] : first[area + 1]] for area, code in enumerate(geography.codes[number])}


def test_taxi_zones_have_service_zones_of_boroughs(tmp_path):
    """A service zone lies in several boroughs, so that the column alone is no level."""
    joined, levels = {"service_area": ("Borough", "service_zone")}, ("Borough", "service_area", "LocationID")
    zones = geography(tmp_path, TLC, levels=levels, joined=joined, unknown="264")
    assert zones.area_counts == {"all": 1, "Borough": 5, "service_area": 6, "LocationID": 7}
    boroughs = {"Bronx / Boro Zone": ("3",), "Manhattan / Yellow Zone": ("4",), "Queens / Boro Zone": ("2",)}
    others = {"EWR / EWR": ("1",), "Queens / Airports": ("132", "138"), "Unknown / N/A": ("264",)}
    assert below(zones, "service_area") == boroughs | others
    with pytest.raises(OdError, match=r"OD-GEOGRAPHY-TWO-PARENTS.*level 'service_zone' lies in two areas"):
        geography(tmp_path, TLC, levels=("Borough", "service_zone", "LocationID"))


def test_areas_and_their_parents_are_read_by_the_names_of_their_columns(tmp_path):
    text = "code,name,up\nN,North,\nk,any,N1\nN1,First,N\nm,any,N1\n"
    for file, table in {"areas.csv": None, "areas.parquet": {"up": [None, "N1", "N", "N1"]}}.items():
        (tmp_path / "areas.csv").write_text(text, encoding="utf-8")
        if table is not None:
            read_zones(tmp_path / "areas.csv").assign(**table).to_parquet(tmp_path / file)
        listed = ZoneList(file, ("region", "town", "zone"), parents=("code", "up"), unknown_area="?")
        areas = listed.read_geography(tmp_path)
        assert areas.codes == (("all",), ("?", "N"), ("?", "N1"), ("?", "k", "m"))
        assert areas.unknown == "?"
    with pytest.raises(OdError, match=r"areas\.csv: the area list has no column 'parent' .*code, name, up"):
        ZoneList("areas.csv", ("region", "town", "zone"), parents=("code", "parent")).read_geography(tmp_path)
    with pytest.raises(OdError, match=r"OD-GEOGRAPHY-SHAPE.*2 level names"):
        ZoneList("areas.csv", ("town", "zone"), parents=("code", "up")).read_geography(tmp_path)


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        (TLC, {"levels": ("Borough", "area", "LocationID"), "joined": {"area": ("Borough", "service_zone")}}),
        (LODES, {"levels": ("st", "c", "tabblk2020"), "prefixes": {"c": 5}, "coordinates": ("blklatdd", "blklonddd")}),
        (NOMIS, {"levels": ("CTRY21CD", "LAD21CD"), "unknown": "W06000015"}),
        ("a,b\nN,\nk,N\n", {"levels": ("region", "zone"), "parents": ("a", "b")}),
    ],
)
@pytest.mark.parametrize("more", [{}, {"unknown_area": "elsewhere", "version": "v 1"}])
def test_what_is_kept_of_a_list_is_read_again_by_its_levels_alone(tmp_path, text, listed, more):
    if more and "unknown" in listed:
        listed = {name: value for name, value in listed.items() if name != "unknown"}
    declared = ZoneList("zones.csv", **listed, **more)
    (tmp_path / "zones.csv").write_text(text, encoding="utf-8")
    first = declared.read_geography(tmp_path)
    first.to_frame().to_csv(tmp_path / "kept.csv", index=False)
    kept = declared.with_geography_file("kept.csv")
    assert (kept.prefixes, kept.joined, kept.parents, kept.unknown_area) == ({}, {}, None, None)
    again = kept.read_geography(tmp_path)
    assert (again.digest, again.version, again.unknown) == (first.digest, first.version, first.unknown)
    assert (again.coordinates is None) == (first.coordinates is None)
    if first.coordinates is not None:
        pd.testing.assert_frame_equal(pd.DataFrame(again.coordinates), pd.DataFrame(first.coordinates))


def test_a_file_that_changed_is_read_anew(tmp_path):
    listed = ZoneList("zones.csv", ("zone",))
    for zones in (("a", "b"), ("a", "c")):
        (tmp_path / "zones.csv").write_text("\n".join(["zone", *zones]), encoding="utf-8")
        assert listed.read_geography(tmp_path).zones == zones


@pytest.mark.parametrize(
    ("listed", "named"),
    [
        ({"joined": {"area": ("a", "b")}}, "'area' is declared as joined from several columns, but is not a level"),
        ({"joined": {"county": ("a", "b")}, "prefixes": {"county": 2}}, "both as a prefix of a code and as joined"),
        ({"parents": ("a", "b"), "prefixes": {"county": 2}}, "cannot have prefixes"),
        ({"parents": ("a", "b"), "coordinates": ("x", "y")}, "coordinates or boundaries"),
        ({"unknown": "x", "unknown_area": "y"}, "not both"),
        ({"unknown_area": ""}, "'unknown_area' has a blank code"),
        ({"version": "=1"}, "'version' contains a code that a spreadsheet could run"),
    ],
)
def test_lists_that_fit_together_in_no_way_cannot_be_declared(listed, named):
    with pytest.raises(OdError, match="OD-GEOGRAPHY-") as refused:
        ZoneList("zones.csv", ("county", "zone"), **listed)
    assert named in refused.value.message


CANARY = "QX-CANARY-7731"
RECORDS = pd.DataFrame({"origin": [CANARY, CANARY, "ba"], "destination": ["aa", "ba", CANARY], "user": CANARY})
WITH_HEADER, WITHOUT = (RECORDS.to_csv(index=False, header=header) for header in (True, False))
UNLIKE = Geography.from_frame(pd.DataFrame({"zone": ["z"]}), ["zone"])


def listed(**fields: Any) -> Callable[[Path], object]:
    return lambda path: ZoneList(path.name, **{"levels": ("region", "zone"), **fields}).read_geography(path.parent)


READ_AS: dict[str, Callable[[Path], object]] = {
    "a list without its columns": listed(),
    "a list with its columns": listed(levels=("destination", "origin")),
    "a list that nests": listed(levels=("user", "origin")),
    "a list of padded codes": listed(levels=("padded", "destination")),
    "a list of codes that run": listed(levels=("formula", "destination")),
    "a list of long codes": listed(levels=("long", "destination")),
    "a list of cased codes": listed(levels=("cased", "number")),
    "a list of two parents": listed(levels=("destination", "user", "number")),
    "a list of coordinates": listed(levels=("number",), coordinates=("user", "user")),
    "a list with an unknown zone": listed(levels=("number",), unknown=f"{CANARY}8"),
    "beginnings": listed(levels=("region", "origin"), prefixes={"region": 9}),
    "joined columns": listed(levels=("a", "origin"), joined={"a": ("origin", "joined")}),
    "joined columns that are not there": listed(levels=("a", "origin"), joined={"a": ("x", "y")}),
    "areas and parents": listed(parents=("origin", "destination")),
    "areas and parents that are not there": listed(parents=("x", "y")),
    "areas of two parents": listed(parents=("origin", "number")),
    "areas of unlisted parents": listed(parents=("number", "user")),
    "areas of unequal depth": listed(parents=("number", "chain")),
    "groups": lambda path: ListedGroups(path, "origin", "destination").list_codes(UNLIKE),
    "groups that are listed once": lambda path: ListedGroups(path, "number", "user").list_codes(UNLIKE),
    "groups without their columns": lambda path: ListedGroups(path).list_codes(UNLIKE),
    "places": lambda path: PlaceList.from_frame(
        read_zones(path), PlaceColumns("origin", "user", "user"), side=4, stages=("origin", "destination")
    ),
}
NUMBERED = RECORDS.assign(
    number=[f"{CANARY}{k}" for k in range(3)],
    chain=[f"{CANARY}1", "", ""],
    padded=f" {CANARY}",
    formula=f"={CANARY}",
    long=CANARY * 20,
    cased=[CANARY, CANARY.lower(), "x"],
    joined=f"{CANARY} / x",
)
HELD = {
    "header.csv": NUMBERED.to_csv(index=False),
    "none.csv": WITHOUT,
    "twice.csv": f"{CANARY},{CANARY}\n{WITHOUT}",
    "semicolons.csv": WITHOUT.replace(",", ";"),
    "ragged.csv": f"{WITH_HEADER}{CANARY}\n{CANARY},{CANARY},{CANARY},{CANARY}\n",
    "quote.csv": f'{WITH_HEADER}"{CANARY}\n',
}


@pytest.mark.parametrize("name", HELD)
def test_a_path_that_is_that_of_the_records_says_nothing_of_them(tmp_path, name):
    """What is quoted of a public list is confidential, since nobody can know that it is one; the file is named."""
    (tmp_path / name).write_text(HELD[name], encoding="utf-8")
    for way, read in READ_AS.items():
        with pytest.raises(OdError) as refused:
            read(tmp_path / name)
        shown = "".join(traceback.format_exception(refused.value)).upper()
        assert "QX-" not in shown.replace(f"{CANARY}8", ""), way
        assert name in refused.value.message or way == "places"  # whose file the caller names
