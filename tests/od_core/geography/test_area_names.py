"""Names and aliases of areas: read at every level, kept wherever a geography goes, refused if they could mislead."""

from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from od_core import Geography, OdError
from od_core.geography.codes import make_area_labels
from od_core.geography.flow_tree import equalise_depths
from od_core.geography.geography import with_unknown_area
from od_core.publication.tables import build_published_geography, make_areas_table
from od_core.records.zone_lists import ZoneList, build_geography

ZONES = pd.DataFrame(
    [
        ("IL", "Illinois", "17031", "Cook County"),
        ("IL", "Illinois", "17197", "Will County"),
        ("NY", "", "36061", " New York County "),
        ("NY", "", "36005", None),
        ("MN", "Minnesota", "27031", "Cook County"),
    ],
    columns=["state", "state_name", "county", "county_name"],
)
LEVELS = ["state", "county"]
COLUMNS = {"state": "state_name", "county": "county_name"}
NAMES = (("",), ("Illinois", "Minnesota", ""), ("Cook County", "Will County", "Cook County", "", "New York County"))
COUNTIES = ("Cook County (17031)", "Will County", "Cook County (27031)", "36005", "New York County")
LABELS = (("all",), ("Illinois", "Minnesota", "NY"), COUNTIES)


@pytest.fixture
def named() -> Geography:
    return Geography.from_frame(ZONES, LEVELS, names=COLUMNS)


def test_names_are_read_at_every_level(named):
    """In tree order; blank and missing names are none, and spaces around a name are dropped."""
    assert named.names == NAMES
    assert named.labels == LABELS


def test_names_are_kept_wherever_the_geography_goes(named):
    """Stored and read again, published and read back, with an added area, and with a repeated level."""
    kept = ZoneList("zones.csv", tuple(LEVELS), names=COLUMNS).with_geography_file("kept.csv")
    assert build_geography(named.to_frame(), kept).names == NAMES
    assert build_published_geography(make_areas_table(named).to_pandas(), named.digest, None).names == NAMES
    elsewhere = with_unknown_area(named, "zz")
    assert elsewhere.names == ((("",)), (*NAMES[1], ""), (*NAMES[2], ""))
    deeper = Geography.from_frame(ZONES.assign(block=ZONES["county"] + "0"), [*LEVELS, "block"])
    assert equalise_depths(named, deeper)[0].names == (NAMES[0], NAMES[1], NAMES[1], NAMES[2])


ALIASED = ZONES.assign(other=["Land of Lincoln", "Land of Lincoln", "Big Apple;  N.Y. ", "Big Apple; N.Y.", None])
ALIASES = (("",), ("Land of Lincoln", "", "Big Apple; N.Y."), ("",) * 5)


def test_aliases_are_read_and_kept_as_names_are():
    """Of a list of zones and of one of areas and parents; a list of aliases is one text."""
    aliased = Geography.from_frame(ALIASED, LEVELS, aliases={"state": "other"})
    assert (aliased.aliases, aliased.names, aliased.labels) == (ALIASES, None, aliased.codes)
    kept = ZoneList("zones.csv", tuple(LEVELS), aliases={"state": "other"}).with_geography_file("kept.csv")
    assert build_geography(aliased.to_frame(), kept).aliases == ALIASES
    table = make_areas_table(aliased).to_pandas()
    assert build_published_geography(table, aliased.digest, None).aliases == ALIASES
    assert with_unknown_area(aliased, "zz").aliases == (ALIASES[0], (*ALIASES[1], ""), ("",) * 6)
    deeper = Geography.from_frame(ZONES.assign(block=ZONES["county"] + "0"), [*LEVELS, "block"])
    assert equalise_depths(aliased, deeper)[0].aliases == (*ALIASES[:2], *ALIASES[1:])
    areas = pd.DataFrame({"place": ["all", "IL", "17031"], "above": ["", "all", "IL"], "also": ["", "x;" * 100, ""]})
    parents = ZoneList("areas.csv", tuple(LEVELS), parents=("place", "above"), aliases={"state": "also"})
    assert build_geography(areas[1:], parents).aliases == (("",), ("x;" * 100,), ("",))


@pytest.mark.parametrize(
    ("alias", "code"),
    [("NY; =HYPERLINK()", "OD-GEOGRAPHY-FORMULA"), ("x;" * 126, "OD-GEOGRAPHY-LONG-CODE"), (17, "OD-GEOGRAPHY-NAMES")],
)
def test_aliases_that_could_mislead_are_refused(alias, code):
    with pytest.raises(OdError, match=code):
        Geography.from_frame(
            ALIASED.assign(other=[alias, alias if ";" in str(alias) else None, *ALIASED["other"][2:]]),
            LEVELS,
            aliases={"state": "other"},
        )


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("=HYPERLINK()", "OD-GEOGRAPHY-FORMULA"),
        ("\u202eytnuoC", "OD-GEOGRAPHY-FORMULA"),  # a mark that turns the direction of writing
        ("Cook, -County", "OD-GEOGRAPHY-FORMULA"),
        ("x" * 251, "OD-GEOGRAPHY-LONG-CODE"),
        (17, "OD-GEOGRAPHY-NAMES"),
    ],
)
def test_names_that_could_mislead_are_refused(name, code):
    with pytest.raises(OdError, match="column 'county_name' contains a name") as refused:
        Geography.from_frame(ZONES.assign(county_name=[name, *ZONES["county_name"][1:]]), LEVELS, names=COLUMNS)
    assert refused.value.code == code
    assert str(name) not in str(refused.value)


def test_an_area_with_two_names_is_refused():
    zones = ZONES.assign(state_name=["Illinois", "Ill.", *ZONES["state_name"][2:]])
    with pytest.raises(OdError, match="level 'state' has an area with two names") as refused:
        Geography.from_frame(zones, LEVELS, names=COLUMNS)
    assert refused.value.confidential_detail == "area 'IL'"


AREAS = st.lists(st.tuples(st.text("12", min_size=1), st.text("12 ()", max_size=6)), unique_by=lambda one: one[0])


@given(areas=AREAS)
@example(areas=[("1", "X (2)"), ("2", "X"), ("3", "X")])
@example(areas=[("1", "2"), ("2", ""), ("3", "2")])
def test_no_two_areas_of_a_level_have_the_same_label(areas):
    codes, names = [code for code, _ in areas], [name.strip() for _, name in areas]
    labels = make_area_labels(codes, names)
    assert len(set(labels)) == len(codes)
    for code, name, label in zip(codes, names, labels, strict=True):
        assert label in (name, code, f"{name} ({code})")


def test_faulty_declarations_of_names_are_refused(named):
    with pytest.raises(OdError, match="no column 'title'"):
        Geography.from_frame(ZONES, LEVELS, names={"county": "title"})
    levels = [{"district": "county_name"}, {"county": "county_name", "zone": "county_name"}]
    areas = pd.DataFrame({"area": ["a"], "parent": [None], "county_name": ["A"]})
    for names in levels:
        with pytest.raises(OdError, match="which is not a level"):
            Geography.from_frame(ZONES, LEVELS, names=names)
        with pytest.raises(OdError, match="which is not a level"):
            Geography.from_parents(areas, levels=["county"], names=names)
    with pytest.raises(OdError, match="'district', which is not a level"):
        ZoneList("zones.csv", tuple(LEVELS), names={"district": "x"})
    with pytest.raises(OdError, match="cannot have names"):
        ZoneList("zones.csv", ("a", "a: name"), names={"a": "x"})
    with pytest.raises(OdError, match="exactly one text for each area"):
        replace(named, names=NAMES[:2])
