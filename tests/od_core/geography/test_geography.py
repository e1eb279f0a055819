"""The public area tree: both ways in, every fault by name, and an order that follows from the codes alone."""

import hashlib
import json
import re
from unicodedata import normalize

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import Geography, OdError
from od_core.geography.codes import COORDINATES
from od_core.publication.tables import build_published_geography, make_areas_table
from tests.od_core.oracles.inftda import below
from tests.od_core.strategies import geography_of, level_names, zone_lists

REGIONS, TOWNS = ["north", "north", "south", "south"], ["02", "01", "03", "03"]
ZONES = pd.DataFrame({"region": REGIONS, "town": TOWNS, "zone": ["021", "011", "032", "031"], "name": ["any"] * 4})
LEVELS = ["region", "town", "zone"]
AREAS = [("N", None), ("S", "all"), ("N1", "N"), ("N2", "N"), ("S1", "S")]


def parents_frame(rows) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["area", "parent"])


def parents_of(zones) -> pd.DataFrame:
    """The areas of a zone list with their parents, None at the first level."""
    areas = dict.fromkeys(zone[:level] for zone in zones for level in range(1, len(zone) + 1))
    return parents_frame([(area[-1], area[-2] if len(area) > 1 else None) for area in areas])


def same(one: Geography, other: Geography) -> bool:
    return (one.levels, one.codes, one.unknown, one.digest) == (
        other.levels,
        other.codes,
        other.unknown,
        other.digest,
    ) and all(np.array_equal(a, b) for a, b in zip(one.parents, other.parents, strict=True))


@given(zones=zone_lists(), data=st.data())
def test_both_ways_in_agree_and_rows_may_come_in_any_order(zones, data):
    names = level_names(zones)
    geography = geography_of(zones)
    assert same(geography, geography_of(data.draw(st.permutations(zones))))
    areas = parents_of(zones).sample(frac=1, random_state=data.draw(st.integers(0, 9)))
    assert same(geography, Geography.from_parents(areas, levels=names))
    assert same(geography, Geography.from_parents(areas.fillna("all"), levels=names))
    assert same(geography, Geography.from_frame(geography.to_frame(), names))
    assert sorted(map(tuple, geography.to_frame().to_numpy())) == sorted(zones)


@given(zones=zone_lists())
def test_areas_stand_in_tree_order_and_children_and_zones_are_ranges(zones):
    """Against the areas as plain tuples, children by code, level by level."""
    geography = geography_of(zones)
    areas = [()]
    for level in range(geography.depth + 1):
        assert geography.size(level) == len(areas)
        assert list(geography.codes[level]) == [area[-1] if area else "all" for area in areas]
        for number, area in enumerate(areas):
            first, end = geography.first_zone[level][number : number + 2]
            inside = [zone[-1] for zone in zones if zone[:level] == area]
            assert sorted(geography.zones[first:end]) == sorted(inside)
            assert (geography.ancestors(level)[first:end] == number).all()
            if level < geography.depth:
                first, end = geography.first_child[level][number : number + 2]
                assert [*geography.codes[level + 1][first:end]] == [child[-1] for child in below(area, zones)]
                assert (geography.parents[level + 1][first:end] == number).all()
        areas = [child for area in areas for child in below(area, zones)] if level < geography.depth else areas


@given(zones=zone_lists(), data=st.data())
def test_zone_numbers_of_text_are_those_of_objects(zones, data):
    """Text columns are looked up by Arrow, all others by pandas; both against a search of the list."""
    geography = geography_of(zones)
    known = [code for zone in zones for code in zone]
    near = [other for code in known for other in (f" {code}", f"{code} ", code.lower(), code[:-1])]
    value = st.sampled_from([*known, *near, None]) | st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
    asked = data.draw(st.lists(value, max_size=20))
    texts = pd.Series(asked, dtype="str")
    expected = [geography.zones.index(code) if code in geography.zones else -1 for code in asked]
    pieces = pd.concat([texts[:7], texts[7:]])
    for column in (texts, pieces, texts.astype("string"), texts.astype(object), pd.Series(asked, dtype=object)):
        numbers = geography.find_zone_numbers(column)
        assert numbers.tolist() == expected
        assert numbers.dtype == np.int32
        assert numbers.flags.writeable


@given(zones=zone_lists(), data=st.data())
def test_codes_of_numbers_are_those_of_the_list(zones, data):
    geography = geography_of(zones)
    level = data.draw(st.integers(0, geography.depth))
    areas = data.draw(st.lists(st.integers(0, geography.size(level) - 1), max_size=20))
    codes = geography.codes_of(level, np.array(areas, dtype=np.int32))
    assert codes.tolist() == [geography.codes[level][area] for area in areas]
    assert codes.dtype == "str"
    assert codes.index.equals(pd.RangeIndex(len(areas)))


@given(zones=zone_lists(), known=st.booleans())
def test_the_digest_is_that_of_the_levels_the_paths_and_the_unknown_zone(zones, known):
    zones = [(f"Ä{zone[0]}", *zone[1:]) for zone in zones]
    names, unknown = level_names(zones), zones[0][-1] if known else None
    geography = Geography.from_frame(pd.DataFrame(zones, columns=names), names, unknown=unknown)
    content = json.dumps([names, [list(zone) for zone in sorted(zones)], unknown])
    assert geography.digest == hashlib.sha256(content.encode("ascii")).hexdigest()


def named_by(error: OdError) -> str:
    """What an error says, with what it keeps from the public: codes of a list, since its path may be the records'."""
    code = re.search(r"'([^']*)'", error.confidential_detail or "")
    assert code is None or code[1] in ("all", "") or repr(code[1]) not in str(error)
    return f"{error}; {error.confidential_detail}"


def with_value(column: str, row: int, value: object) -> pd.DataFrame:
    zones = ZONES.astype(object)
    zones.loc[row, column] = value
    return zones


@pytest.mark.parametrize(
    ("zones", "levels", "code", "named"),
    [
        (ZONES, ["region", "twon", "zone"], "OD-GEOGRAPHY-COLUMN", "'twon' (did you mean 'town'?)"),
        (ZONES, [], "OD-GEOGRAPHY-LEVELS", "at least one level"),
        (ZONES, ["region", "region", "zone"], "OD-GEOGRAPHY-LEVELS", "'region'"),
        (ZONES, ["all", "zone"], "OD-GEOGRAPHY-LEVELS", "'all'"),
        (ZONES, ["region", " zone"], "OD-GEOGRAPHY-LEVELS", "' zone'"),
        (ZONES.iloc[:0], LEVELS, "OD-GEOGRAPHY-EMPTY", "no rows"),
        (with_value("zone", 1, None), LEVELS, "OD-GEOGRAPHY-MISSING-CODE", "'zone'"),
        (with_value("town", 1, float("nan")), LEVELS, "OD-GEOGRAPHY-MISSING-CODE", "'town'"),
        (with_value("region", 0, ""), LEVELS, "OD-GEOGRAPHY-BLANK-CODE", "'region'"),
        (with_value("zone", 0, "021 "), LEVELS, "OD-GEOGRAPHY-PADDED-CODE", "'021 '"),
        (with_value("town", 0, "\u00a002"), LEVELS, "OD-GEOGRAPHY-PADDED-CODE", "'town'"),
        (with_value("zone", 0, 21), LEVELS, "OD-GEOGRAPHY-NOT-TEXT", "21"),
        (with_value("zone", 0, "0" * 251), LEVELS, "OD-GEOGRAPHY-LONG-CODE", "251 characters"),
        (with_value("zone", 0, "@21"), LEVELS, "OD-GEOGRAPHY-FORMULA", "'@21'"),
        (with_value("town", 0, "+02"), LEVELS, "OD-GEOGRAPHY-FORMULA", "'+02'"),
        (ZONES.rename(columns={"zone": "=zone"}), [*LEVELS[:2], "=zone"], "OD-GEOGRAPHY-FORMULA", "'level names'"),
        (ZONES.astype({"zone": "int64"}), LEVELS, "OD-GEOGRAPHY-NOT-TEXT", "leading zeros"),
        (with_value("region", 1, "North"), LEVELS, "OD-GEOGRAPHY-CASE", "'north' and 'North'"),
        (pd.concat([ZONES, ZONES.iloc[[1]]]), LEVELS, "OD-GEOGRAPHY-DUPLICATE", "'011'"),
        (ZONES, LEVELS[::-1], "OD-GEOGRAPHY-DUPLICATE", "coarse to fine: are they the wrong way round?"),
        (with_value("region", 3, "north"), LEVELS, "OD-GEOGRAPHY-TWO-PARENTS", "'03'"),
        (
            pd.concat([ZONES, ZONES[["town"]].set_axis(["region"], axis=1)], axis=1),
            LEVELS,
            "OD-GEOGRAPHY-COLUMN",
            "'region'",
        ),
    ],
)
def test_faults_of_a_zone_list_are_named(zones, levels, code, named):
    with pytest.raises(OdError, match=f"{code}:") as error:
        Geography.from_frame(zones, levels)
    assert named in named_by(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "code", ["-21", "=cmd", "\uff1d21", "\u200b=21", '"=21', '2"" =1', "21,=1", "21;=1", "0\n21", "2\t=1", "2\r=1"]
)
def test_codes_that_a_spreadsheet_could_run_are_refused(code):
    """Wherever a reader of the published table may begin a cell."""
    with pytest.raises(OdError, match="OD-GEOGRAPHY-FORMULA") as error:
        Geography.from_frame(with_value("zone", 0, code), LEVELS)
    assert repr(code) in error.value.confidential_detail
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "code", ["01", "A-1", "St. John's", "a+b", "NA", "null", "1e4", "x=y", "é", "字", "x" * 250, 'q"x', "00,11"]
)
def test_codes_that_are_no_formulas_are_taken(code):
    assert Geography.from_frame(pd.DataFrame({"region": ["a"], "zone": [code]}), ["region", "zone"]).zones == (code,)


def test_names_that_differ_only_in_how_accents_are_encoded_are_refused():
    """A record would match one of two zones that readers take for one."""
    names = [normalize(form, "\u00c9vora") for form in ("NFC", "NFD")]
    zones, areas = pd.DataFrame({"zone": names}), pd.DataFrame({"area": names, "parent": [None, None]})
    for make in (lambda: Geography.from_frame(zones, ["zone"]), lambda: Geography.from_parents(areas)):
        with pytest.raises(OdError, match=r"OD-GEOGRAPHY-CASE.*how accents are encoded"):
            make()


@pytest.mark.parametrize(
    ("rows", "code", "named"),
    [
        ([], "OD-GEOGRAPHY-EMPTY", "no rows"),
        ([*AREAS, ("N1", "N")], "OD-GEOGRAPHY-DUPLICATE", "'N1'"),
        ([*AREAS, ("N1", "S")], "OD-GEOGRAPHY-TWO-PARENTS", "'N1'"),
        ([*AREAS, ("W1", "W")], "OD-GEOGRAPHY-PARENT-UNLISTED", "'W1'"),
        ([*AREAS, ("N11", "N1")], "OD-GEOGRAPHY-DEPTH", "'N11'"),
        ([*AREAS, ("W", None)], "OD-GEOGRAPHY-DEPTH", "'W'"),
        ([*AREAS, ("A", "B"), ("B", "C"), ("C", "A")], "OD-GEOGRAPHY-CYCLE", "'[ABC]'"),
        ([*AREAS, ("A", "A")], "OD-GEOGRAPHY-CYCLE", "'A'"),
        ([("X", None), ("all", "X")], "OD-GEOGRAPHY-CYCLE", "'(all|X)'"),
        ([*AREAS, (None, "N")], "OD-GEOGRAPHY-MISSING-CODE", "'area'"),
        ([*AREAS, ("N3", "")], "OD-GEOGRAPHY-BLANK-CODE", "'parent'"),
        ([*AREAS, ("N3", "N ")], "OD-GEOGRAPHY-PADDED-CODE", "'N '"),
        ([*AREAS, (31, "N")], "OD-GEOGRAPHY-NOT-TEXT", "31"),
        ([*AREAS, ("n1", "N")], "OD-GEOGRAPHY-CASE", "'n1'"),
    ],
)
def test_faults_of_an_area_list_are_named_in_any_row_order(rows, code, named):
    for ordered in (rows, rows[::-1]):
        with pytest.raises(OdError, match=f"{code}:") as error:
            Geography.from_parents(parents_frame(ordered))
        assert re.search(named, named_by(error.value))
        assert "\n" not in str(error.value)


def test_faults_of_an_area_list_as_a_whole():
    with pytest.raises(OdError, match=r"OD-GEOGRAPHY-COLUMN.*'parent'"):
        Geography.from_parents(pd.DataFrame({"area": ["N"]}))
    with pytest.raises(OdError, match=r"OD-GEOGRAPHY-SHAPE.*1 level names") as error:
        Geography.from_parents(parents_frame(AREAS), levels=["region"])
    assert "depth is 2" in error.value.confidential_detail
    assert Geography.from_parents(parents_frame(AREAS)).levels == ("level_1", "level_2")


def test_the_unknown_zone_must_be_listed():
    assert Geography.from_frame(ZONES, LEVELS, unknown="031").unknown == "031"
    for unknown in ("999", "north", ""):
        with pytest.raises(OdError, match="OD-GEOGRAPHY-UNKNOWN-ZONE"):
            Geography.from_frame(ZONES, LEVELS, unknown=unknown)


def test_an_unknown_level_comes_with_the_nearest_known():
    geography = Geography.from_frame(ZONES, LEVELS)
    assert [geography.find_level_number(name) for name in ["all", *LEVELS]] == [0, 1, 2, 3]
    with pytest.raises(OdError, match=r"OD-LEVEL-UNKNOWN.*'regoin' \(did you mean 'region'\?\)"):
        geography.find_level_number("regoin")


@pytest.mark.parametrize(
    ("levels", "codes", "parents"),
    [
        (("zone",), (("all",), ("a", "b")), ([],)),
        (("zone",), (("all",),), ([],)),
        (("town", "zone"), (("all",), ("a", "b")), ([], [0, 0])),
        (("zone",), (("all",), ("a", "b")), ([], [0])),
        (("zone",), (("all",), ("a", "b")), ([], [0, 1])),
        (("zone",), (("all",), ("a", "b")), ([], [0, -1])),
        (("zone",), (("all",), ("a", "a")), ([], [0, 0])),
        (("zone",), (("all",), ("a", 3)), ([], [0, 0])),
        (("zone",), (("all", "more"), ("a", "b")), ([], [0, 1])),
        (("zone",), ((), ()), ([], [])),
        (("zone",), (("all",), ("a", "b")), ([], [0.2, 0.7])),
        (("zone",), (("all",), ("a", "b")), ([5], [0, 0])),
        (("town", "zone"), (("all",), ("a", "b"), ("c", "d")), ([], [0, 0], [1, 0])),
        (("town", "zone"), (("all",), ("a", "b"), ("c", "d")), ([], [0, 0], [0, 0])),
        (("zone", "zone"), (("all",), ("a",), ("b",)), ([], [0], [0])),
        (("all",), (("all",), ("a",)), ([], [0])),
    ],
)
def test_what_is_no_partition_cannot_be_built_directly(levels, codes, parents):
    with pytest.raises(OdError, match="OD-GEOGRAPHY-"):
        Geography(levels, codes, tuple(np.array(p) if p else np.empty(0, dtype=np.int32) for p in parents))


def test_a_geography_cannot_be_changed_through_its_arrays():
    parents = [np.empty(0, dtype=np.int32), np.array([0, 0], dtype=np.int32)]
    geography = Geography(("zone",), (("all",), ("a", "b")), tuple(parents))
    parents[1][1] = 7
    assert geography.parents[1].tolist() == [0, 0]
    for array in (*geography.parents, *geography.first_child, *geography.first_zone):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 1


DEGREES = ZONES.assign(lat=["41.5", "-0.25", "", "90"], lon=["12", "1e1", "", "-180"])


def test_coordinates_stay_with_their_zones_and_out_of_the_digest():
    """In any row order, through the list and through the published areas; a zone may have none."""
    plain = Geography.from_frame(ZONES, LEVELS)
    for listed in (DEGREES, DEGREES[::-1]):
        geography = Geography.from_frame(listed, LEVELS, coordinates=("lat", "lon"))
        rows = DEGREES.set_index("zone").loc[list(geography.zones), ["lat", "lon"]]
        expected = [[float(text or "nan") for text in row] for row in rows.to_numpy()]
        np.testing.assert_array_equal(geography.coordinates, expected)
        assert geography.digest == plain.digest
        again = Geography.from_frame(geography.to_frame(), LEVELS, coordinates=COORDINATES)
        published = build_published_geography(make_areas_table(geography).to_pandas(), geography.digest, None)
        for same in (again, published):
            np.testing.assert_array_equal(same.coordinates, expected)
    assert build_published_geography(make_areas_table(plain).to_pandas(), plain.digest, None).coordinates is None
    assert make_areas_table(plain).column_names == ["geography", "level", "level_name", "area", "parent", "position"]


@pytest.mark.parametrize(
    "columns",
    [
        {"coordinates": ("lat", "lon")},
        {"names": {"zone": "lat"}},
        {"boundaries": "lat"},
        {"boundaries": {"region": "lat", "zone": "lon"}},
    ],
)
def test_columns_that_are_blank_in_every_row_are_as_none(columns):
    """What is published of them could not be read back otherwise."""
    blank = Geography.from_frame(ZONES.assign(lat="", lon=""), LEVELS, **columns)
    assert (blank.coordinates, blank.names, blank.given_boundaries) == (None, None, {})
    assert blank.digest == Geography.from_frame(ZONES, LEVELS).digest


@pytest.mark.parametrize(
    ("latitude", "longitude"), [("91", "0"), ("0", "-180.5"), ("0", ""), ("", "0"), ("inf", "0"), ("north", "0")]
)
def test_coordinates_that_are_none_are_refused(latitude, longitude):
    listed = DEGREES.assign(lat=["1", latitude, "2", "3"], lon=["1", longitude, "2", "3"])
    with pytest.raises(OdError, match="OD-GEOGRAPHY-COORDINATES"):
        Geography.from_frame(listed, LEVELS, coordinates=("lat", "lon"))


@given(zones=zone_lists(), data=st.data())
def test_zones_in_some_areas_are_those_whose_path_goes_through_one(zones, data):
    """Of any level, in any order, named twice or not at all; the whole space holds every zone."""
    geography = geography_of(zones)
    path_of = {zone[-1]: ("all", *zone) for zone in zones}
    level = data.draw(st.integers(0, geography.depth))
    codes = data.draw(st.lists(st.sampled_from(geography.codes[level])))
    expected = [path_of[zone][level] in codes for zone in geography.zones]
    found = geography.mask_zones(level, codes)
    assert found.dtype == np.bool_
    assert found.tolist() == expected
    assert geography.mask_zones(level, pd.Series(codes, dtype="str")).tolist() == expected


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (["02", "09"], "OD-AREA-UNKNOWN: level 'town' has no area '09'"),
        (["north"], "OD-AREA-UNKNOWN: level 'town' has no area 'north'"),
        ([2], "OD-AREA-UNKNOWN: level 'town' has no area '2'"),
        ([["02"]], "OD-AREA-UNKNOWN: level 'town' has no area"),
        ("02", "OD-AREA-LIST: '02' is a single text"),
    ],
)
def test_areas_that_a_level_lacks_are_named(codes, message):
    geography = Geography.from_frame(ZONES, LEVELS)
    with pytest.raises(OdError, match=re.escape(message)):
        geography.mask_zones(2, codes)
