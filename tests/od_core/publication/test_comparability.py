"""Whether two releases are compared, and how: by the public facts of their certificates alone."""

import itertools
from typing import Any

import pytest

from od_core.flows.publishing.changes import describe_cautions
from od_core.meaning.subject import Subject
from od_core.publication import comparability
from od_core.publication.comparability import check_comparability, name_breakdown_categories, read_category_definitions

OF_TRIPS = Subject("flows", "trip", "bounded")


def alike(before: dict[str, Any], after: dict[str, Any]) -> bool:
    assert check_comparability(before, after).differing == check_comparability(after, before).differing
    return check_comparability(before, after).is_possible


def read(**settings: object) -> dict[str, dict[str, object]]:
    records = {"reader": "table", "columns": {"origin": "o", "trips": "n"}, "categories": {"mode": ["car", "bus"]}}
    mechanism = {"name": "inftda_refined", "options": {}}
    return {"period": "2001-01", "plan": {"unit": "trip"}, "records": records | settings, "mechanism": mechanism}


@pytest.mark.parametrize(
    "settings",
    [
        {"categories": {"mode": ["car"]}},
        {"categories": {}},
        {"columns": {"origin": "o"}},
        {"columns": {"origin": "o", "trips": "heads"}},
        {"columns": {"origin": "o", "weight": "n"}},
    ],
)
def test_releases_of_other_records_or_of_another_column_do_not_count_the_same_trips(settings):
    """And names of other columns, orders of values and codes that name no place make no difference."""
    assert not alike(read(), read(**settings))
    (differing,) = check_comparability(read(), read(**settings)).differing
    assert differing == ("selections of records" if "categories" in settings else "columns of what is counted")
    assert f" The two releases have different {differing}," in describe_cautions(OF_TRIPS, read(), read(**settings))
    columns = {"origin": "von", "trips": "n"}
    assert alike(read(), read(columns=columns, categories={"mode": ["bus", "car"]}, nowhere=["99"]))
    of_no_records = {"period": "2001-01", "records": None}
    assert alike(of_no_records, of_no_records | {"records": {"categories": {}}})


SAME_LENGTHS = [["2001-01", "2001-02", "2000-12-01--2000-12-31"], ["2001-Q1", "2001-04--2001-06"], ["2001", "2004"]]
SAME_LENGTHS += [["2001-W01", "2001-05-03--2001-05-09"], ["2001-01-01", "2001-02-03"]]
DAYS = {"2001-01": 31, "2001-02": 28, "2000-12-01--2000-12-31": 31, "2001-Q1": 90, "2001-04--2001-06": 91, "2001": 365}
DAYS |= {"2004": 366, "2001-W01": 7, "2001-05-03--2001-05-09": 7, "2001-01-01": 1, "2001-02-03": 1}


@pytest.mark.parametrize("unit", ["trip", "user", "user_period", "user_year"])
def test_periods_of_any_length_are_compared_per_day_unless_the_trips_of_users_are_bounded(unit):
    """Bounds that hold for a month are those of another month, however many days it has, but not those of a quarter."""
    for periods in SAME_LENGTHS:
        for pair in itertools.product(periods, DAYS):
            first, second = (read() | {"period": period, "plan": {"unit": unit}} for period in pair)
            found = check_comparability(first, second)
            assert found.days == (DAYS[pair[0]], DAYS[pair[1]])
            assert found.per_day == (found.days[0] != found.days[1])
            assert found.is_possible == (unit == "trip" or pair[1] in periods)
            said = describe_cautions(Subject("flows", unit, "bounded"), first, second)
            lengths = f" {pair[0]} has {found.days[0]} days and {pair[1]} {found.days[1]}: changes are told per day."
            assert (lengths in said) == found.per_day
            assert ("however many days" in said) == (found.per_day and unit != "trip")
            alone = describe_cautions(Subject("flows", unit, "bounded"), first, second, lengths=False)
            assert "told per day" not in alone


def test_releases_of_other_areas_or_within_other_bounds_are_not_compared():
    areas = {"geographies": {"origin": "a", "destination": "b"}}
    assert check_comparability(read() | areas, read()).differing == ("areas",)
    plans = [{"unit": "user", name: number} for number in (1, 2) for name in ("contribution_bound", "max_trips_pair")]
    for one, other in itertools.combinations([{"unit": "user"}, {"unit": "trip"}, *plans], 2):
        found = check_comparability(read() | {"plan": one}, read() | {"plan": other})
        assert "bounds of what is counted" in found.differing
    said = describe_cautions(OF_TRIPS, read() | areas, read(columns={}))
    assert " different areas and different columns of what is counted, so every flow may have changed" in said


def test_what_is_not_stated_makes_no_difference():
    assert check_comparability({}, {}) == comparability.Comparability()
    assert not comparability.Comparability().per_day


def by_band(unknown: str | None = "old", column: str = "age", **bands: object) -> dict[str, object]:
    source = {"column": column, "derive": "number", "breaks": [20.0], "bands": ["young", "old"]} | bands
    breakdown = {"name": "ages", "categories": ["young", "old"], "unknown": unknown}
    plan = {"unit": "trip", "segments": {"breakdowns": [breakdown]}}
    return read(columns={"segments": {"ages": source}}) | {"plan": plan}


@pytest.mark.parametrize(
    "other", [{"breaks": [60.0]}, {"derive": "text"}, {"lookup": {"1": "old"}}, {"unknown": "young"}]
)
def test_categories_are_alike_if_they_are_derived_alike(other):
    """All records are counted in both, so that their totals are alike, unless unlisted ones are left out."""
    assert read_category_definitions(by_band()) == read_category_definitions(by_band(column="Alter"))
    assert read_category_definitions(by_band()) != read_category_definitions(by_band(**other))
    assert alike(by_band(), by_band(**other))
    assert check_comparability(by_band(), by_band(**other), ["ages"]).differing == (name_breakdown_categories("ages"),)
    assert check_comparability(by_band(), by_band(column="Alter"), ["ages"]).is_possible
    assert alike(by_band(), read(columns={}))
    assert not alike(by_band(None), by_band())
    assert not alike(by_band(None), by_band(None, breaks=[60.0]))
