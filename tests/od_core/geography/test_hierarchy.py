"""Levels in another form than a column, areas for unknown places, equal depth: against a brute-force partition."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import Budget, Geography, OdError, PrivacyUnit, plan_release, release_flows
from od_core.geography.flow_tree import FlowTree, equalise_depths, list_repeated_levels
from od_core.geography.geography import with_unknown_area
from od_core.records.zone_lists import ZoneList, add_level_columns
from tests.od_core.doubles import SeededNoise
from tests.od_core.strategies import Area, geography_of, level_names, zone_lists

LETTERS = "01aZ"


def areas(geography: Geography) -> dict[str, dict[str, set[str]]]:
    """The zones of every area of every level, by names and codes."""
    found: dict[str, dict[str, set[str]]] = {}
    for level, name in enumerate(geography.level_names):
        of_zone = geography.codes_of(level, geography.ancestors(level))
        found[name] = {code: set() for code in geography.codes[level]}
        for zone, area in zip(geography.zones, of_zone, strict=True):
            found[name][area].add(zone)
    return found


def grouped(codes: Sequence[str], area: Callable[[str], str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for code in codes:
        found.setdefault(area(code), set()).add(code)
    return found


@st.composite
def coded(draw: st.DrawFn) -> tuple[list[str], list[int]]:
    """Zone codes, and the lengths of one to three beginnings, coarse to fine."""
    sizes = sorted(draw(st.sets(st.integers(1, 5), min_size=1, max_size=3)))
    code = st.text(LETTERS, min_size=sizes[-1], max_size=7)
    codes = draw(st.lists(code, min_size=1, max_size=12, unique_by=str.casefold))
    return codes, sizes


def with_prefixes(zones: pd.DataFrame, levels: Sequence[str], prefixes: dict[str, int]) -> pd.DataFrame:
    return add_level_columns(zones, ZoneList("zones.csv", tuple(levels), prefixes=prefixes))


def from_codes(codes: list[str], levels: list[str], beginnings: dict[str, int]) -> Geography:
    zones = with_prefixes(pd.DataFrame({"zone": codes}), [*levels, "zone"], beginnings)
    return Geography.from_frame(zones, [*levels, "zone"])


@given(coded())
def test_areas_are_the_zones_that_begin_alike(case: tuple[list[str], list[int]]) -> None:
    """Codes alone suffice; a column in between is the same as a beginning of that length."""
    codes, sizes = case
    levels = [f"first_{size}" for size in sizes]
    beginnings = dict(zip(levels, sizes, strict=True))
    if any(len({code[:size].casefold() for code in codes}) < len({code[:size] for code in codes}) for size in sizes):
        with pytest.raises(OdError, match="OD-GEOGRAPHY-CASE"):
            from_codes(codes, levels, beginnings)
        return
    geography = from_codes(codes, levels, beginnings)
    found = areas(geography)
    assert list(found) == ["all", *levels, "zone"]
    for level, size in beginnings.items():
        assert found[level] == grouped(codes, lambda code, size=size: code[:size])  # type: ignore[misc]
    assert found["zone"] == {code: {code} for code in codes}
    for column in levels:
        others = {level: size for level, size in beginnings.items() if level != column}
        table = pd.DataFrame({column: [code[: beginnings[column]] for code in codes], "zone": codes})
        mixed = Geography.from_frame(with_prefixes(table, [*levels, "zone"], others), [*levels, "zone"])
        assert mixed.digest == geography.digest


@pytest.mark.parametrize(
    ("levels", "prefixes", "named"),
    [
        (["county", "zone"], {"county": 5}, "a zone's code is shorter than the 5 characters of level 'county'"),
        (["county", "zone"], {"county": 0}, "'county' is not a whole number"),
        (["county", "zone"], {"zone": 2}, "'zone' has a prefix, but is not a level above the zones"),
        (["county", "zone"], {"conty": 2}, "did you mean 'county'?"),
        (["a", "b", "zone"], {"a": 3, "b": 2}, "prefixes do not nest: the prefix of level 'b' has 2"),
        (["a", "b", "zone"], {"a": 2, "b": 2}, "prefixes do not nest"),
        (["a", "state", "b", "zone"], {"a": 3, "b": 2}, "prefixes do not nest"),
        (["state", "zone"], {"state": 2}, "level 'state' is both a column of the zone list and a prefix"),
        (["county", "zoen"], {"county": 2}, "no column 'zoen' and none of the other expected columns"),
    ],
)
def test_prefixes_that_make_no_level_are_refused(levels: list[str], prefixes: dict[str, int], named: str) -> None:
    table = pd.DataFrame({"state": ["01", "01", "02"], "zone": ["0101", "0102", "0201"]})
    with pytest.raises(OdError) as refused:
        with_prefixes(table, levels, prefixes)
    assert named in refused.value.message
    assert "\n" not in str(refused.value)


@given(st.lists(st.tuples(st.sampled_from("AB"), st.sampled_from(["x", "y", "z/w"])), min_size=1, max_size=12))
def test_joined_codes_tell_areas_apart_as_their_columns_do(rows: list[tuple[str, str]]) -> None:
    table = pd.DataFrame(rows, columns=["borough", "kind"]).assign(zone=[f"z{n}" for n in range(len(rows))])
    listed = ZoneList("zones.csv", ("borough", "area", "zone"), joined={"area": ("borough", "kind")})
    joined = add_level_columns(table, listed)
    found = areas(Geography.from_frame(joined, ["borough", "area", "zone"]))
    expected: dict[str, set[str]] = {}
    for number, (borough, kind) in enumerate(rows):
        expected.setdefault(f"{borough} / {kind}", set()).add(f"z{number}")
    assert found["area"] == expected
    assert list(table.columns) == ["borough", "kind", "zone"]


@pytest.mark.parametrize(
    ("joined", "named"),
    [
        ({"area": ["borough"]}, "must be joined from at least two columns"),
        ({"area": "borough"}, "must be joined from at least two columns"),
        ({"area": ["borough", "borough"]}, "must be joined from at least two columns"),
        ({"area": ["borough", "kynd"]}, "no column 'kynd' (did you mean 'kind'?)"),
        (
            {"kind": ["borough", "zone"]},
            "level 'kind' is both a column of the zone list and a level joined from several columns",
        ),
        ({"area": ["borough", "bars"]}, "column 'bars' has a code that contains ' / '"),
        ({"area": ["borough", "blank"]}, "column 'blank' has a blank code"),
    ],
)
def test_columns_that_cannot_be_joined_are_refused(joined: dict[str, Any], named: str) -> None:
    table = pd.DataFrame({"borough": ["A"], "kind": ["x"], "bars": ["a / b"], "blank": [""], "zone": ["1"]})
    with pytest.raises(OdError) as refused:
        add_level_columns(table, ZoneList("zones.csv", (*joined, "zone"), joined=joined))
    assert named in refused.value.message


@given(zones=zone_lists(), located=st.booleans())
def test_an_added_area_takes_what_is_nowhere_and_changes_no_other(zones: list[Area], located: bool) -> None:
    names = level_names(zones)
    table = pd.DataFrame(zones, columns=names).assign(north=range(len(zones)), east=1)
    coordinates = ("north", "east") if located else None
    geography = Geography.from_frame(table, names, coordinates=coordinates, version="2018")
    added = with_unknown_area(geography, "elsewhere")
    assert (added.unknown, added.version) == ("elsewhere", "2018")
    found = areas(added)
    for name in names:
        assert found[name].pop("elsewhere") == {"elsewhere"}
    found["all"]["all"].discard("elsewhere")
    assert found == areas(geography)
    if located:
        assert added.coordinates is not None
        places = dict(zip(added.zones, added.coordinates.tolist(), strict=True))
        assert np.isnan(places.pop("elsewhere")).all()
        assert places == {zone[-1]: [number, 1] for number, zone in enumerate(zones)}
    for taken in ("all", *zones[0]):
        with pytest.raises(OdError, match=f"OD-GEOGRAPHY-UNKNOWN-ZONE.*already has an area '{taken}'"):
            with_unknown_area(geography, taken)
    with pytest.raises(OdError, match="OD-GEOGRAPHY-UNKNOWN-ZONE"):
        with_unknown_area(added, "nowhere")
    with pytest.raises(OdError, match="OD-GEOGRAPHY-CASE"):
        with_unknown_area(added.__class__.from_frame(table, names), zones[0][-1].lower())


@given(zone_lists(), zone_lists())
def test_the_shallower_geography_repeats_its_first_level(one: list[Area], other: list[Area]) -> None:
    """Both are as deep as the deeper, which stays what it is; the shallower has its coarse areas again."""
    origin, destination = geography_of(one), geography_of(other)
    pair = equalise_depths(origin, destination)
    depth = max(origin.depth, destination.depth)
    assert [side.depth for side in pair] == [depth, depth]
    for before, after in zip((origin, destination), pair, strict=True):
        times = depth - before.depth
        copies = [f"level_1_{copy}" for copy in range(2, times + 2)]
        assert after.levels == ("level_1", *copies, *before.levels[1:])
        assert list_repeated_levels(after) == copies
        found = areas(after)
        assert all(found[copy] == found["level_1"] for copy in copies)
        assert {name: found[name] for name in before.level_names} == areas(before)
        if times == 0:
            assert after is before
    tree = FlowTree(origin, destination)
    assert (tree.origin.digest, tree.destination.digest) == tuple(side.digest for side in pair)
    repeated = [list_repeated_levels(one) for one in pair]
    assert tree.repeated_levels == {"origin": repeated[0], "destination": repeated[1]}
    usual: dict[str, Any] = {"unit": PrivacyUnit("trip"), "budget": Budget(1, "1e-8")}
    planned = plan_release(origin, destination_geography=destination, **usual)
    by_hand = plan_release(pair[0], destination_geography=pair[1], **usual)
    assert planned.facts() == by_hand.facts()
    assert planned.to_frame().equals(by_hand.to_frame())


def test_a_repeated_level_costs_nothing_and_has_the_flows_of_the_level_above() -> None:
    zones = [("N", "n1"), ("N", "n2"), ("S", "s1")]
    deep = [("W", "W1", "w1"), ("W", "W1", "w2"), ("W", "W2", "w3"), ("E", "E1", "e1")]
    trips = pd.DataFrame({"origin": ["n1", "s1", "n2"], "destination": ["w1", "e1", "w3"], "trips": [50, 40, 3]})
    given = {"unit": PrivacyUnit("trip"), "budget": Budget(1, "1e-8"), "noise": SeededNoise(1), "fault_threshold": 0}
    release = release_flows(trips, geography_of(zones), destination_geography=geography_of(deep), **given)
    tree = release.plan.tree
    unmeasured = [tree.level_names[level] for level in release.plan.unmeasured_levels]
    assert unmeasured == [("level_1", "level_2")]  # which has the counts of (level_1_2, level_2)
    for level in tree.destination.level_names:
        pd.testing.assert_frame_equal(release.flows_at("level_1", level), release.flows_at("level_1_2", level))
