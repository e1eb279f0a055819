"""Units of privacy: the sensitivities of the published table, and what is refused."""

from dataclasses import replace

import pytest

from od_core import OdError, PrivacyUnit
from od_core.privacy.neighbours import NO_FAULTS, Neighbours, compute_sensitivity_squared

# unit, m, relation: squared sensitivity of a measured level, and of the root where a record may leave the release.
TABLE = [
    ("trip", None, "bounded", 2, 1),
    ("trip", 1, "bounded", 2, 1),
    ("trip", None, "unbounded", 1, 1),
    ("user", 1, "bounded", 2, 1),
    ("user", 1, "unbounded", 1, 1),
    ("user", 3, "bounded", 18, 9),
    ("user", 3, "unbounded", 9, 9),
    ("user_period", 1, "bounded", 2, 1),
    ("user_period", 1, "unbounded", 1, 1),
    ("user_period", 3, "bounded", 18, 9),
    ("user_period", 3, "unbounded", 9, 9),
]


# The same under unit ``user_year``, whose root two users change in different periods.
OF_A_YEAR = [(1, "bounded", 2), (1, "unbounded", 1), (3, "bounded", 18), (3, "unbounded", 9)]


def unit_of(kind, m, relation) -> PrivacyUnit:
    return PrivacyUnit(kind, relation, column=None if kind == "trip" else "user_id", max_trips=m)


@pytest.mark.parametrize(("kind", "m", "relation", "level", "root"), TABLE)
def test_sensitivities_of_the_table(kind, m, relation, level, root):
    unit = unit_of(kind, m, relation)
    assert compute_sensitivity_squared(unit) == level
    leaving, staying = Neighbours(unit), Neighbours(unit, NO_FAULTS)
    assert [leaving.sensitivity_squared(number) for number in (0, 1, 9)] == [root, level, level]
    assert not leaving.have_equal_totals
    assert staying.have_equal_totals is (kind == "trip" and relation == "bounded")
    expected = [0 if staying.have_equal_totals else root, level]
    assert [staying.sensitivity_squared(number) for number in (0, 9)] == expected
    assert unit.contribution_bound == (m or 1)


def of_a_year(**changes) -> PrivacyUnit:
    given = {"column": "id", "max_trips": 3, "max_trips_year": 7, "id_pattern": "[0-9a-f]{4}"} | changes
    return PrivacyUnit("user_year", **given)


@pytest.mark.parametrize(("m", "relation", "level"), OF_A_YEAR)
@pytest.mark.parametrize("rules", [{}, {"acceptance": NO_FAULTS}])
def test_sensitivities_of_a_year_are_the_same_at_the_root(m, relation, level, rules):
    unit = of_a_year(max_trips=m, neighbours=relation)
    assert compute_sensitivity_squared(unit) == level
    neighbours = Neighbours(unit, **rules)
    assert [neighbours.sensitivity_squared(number) for number in (0, 1, 9)] == [level] * 3
    assert not neighbours.have_equal_totals
    assert unit.contribution_bound == m


WRONG_YEARS = {
    "OD-UNIT-MAX-TRIPS-YEAR": [{"max_trips_year": value} for value in (None, 0, 2, -7, True, 7.0, "7")],
    "OD-UNIT-ID-PATTERN": [{"id_pattern": value} for value in (None, "", "[0-9", "a)(b", "(?=a)", "a\\", r"\Qa", 7)],
    "OD-UNIT-MAX-TRIPS": [{"max_trips": value} for value in (None, 0, True)],
    "OD-UNIT-OPTIONS": [{"column": None}, {"column": " "}, {"max_weight": 2}],
}


@pytest.mark.parametrize(("code", "change"), [(code, one) for code, each in WRONG_YEARS.items() for one in each])
def test_refuses_a_year_without_a_definite_bound_or_pattern(code, change):
    with pytest.raises(OdError, match=f"{code}:") as error:
        of_a_year(**change)
    assert error.value.next_step == "correct the privacy unit"


@pytest.mark.parametrize("change", [{"max_trips_year": 7}, {"id_pattern": "a+"}])
@pytest.mark.parametrize("kind", ["trip", "user", "user_period"])
def test_other_units_take_no_bound_of_a_year(kind, change):
    unit = unit_of(kind, None if kind == "trip" else 3, "bounded")
    with pytest.raises(OdError, match=r"OD-UNIT-OPTIONS: .* use unit 'user_year'"):
        replace(unit, **change)
    assert unit.list_year_facts() == {}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"kind": "trp"}, "OD-UNIT-UNKNOWN"),
        ({"kind": "trip", "neighbours": "boundd"}, "OD-UNIT-UNKNOWN"),
        ({"kind": "trip", "column": "user_id"}, "OD-UNIT-OPTIONS"),
        ({"kind": "trip", "max_trips": 4}, "OD-UNIT-OPTIONS"),
        ({"kind": "trip", "max_trips_pair": 1}, "OD-UNIT-OPTIONS"),
        ({"kind": "user", "max_trips": 4}, "OD-UNIT-OPTIONS"),
        ({"kind": "user", "column": "id"}, "OD-UNIT-MAX-TRIPS"),
        ({"kind": "user", "column": "id", "max_trips": 0}, "OD-UNIT-MAX-TRIPS"),
        ({"kind": "user_period", "column": "id", "max_trips": 1.5}, "OD-UNIT-MAX-TRIPS"),
        ({"kind": "user_period", "column": "id", "max_trips": True}, "OD-UNIT-MAX-TRIPS"),
    ],
)
def test_refuses_units_that_promise_nothing_definite(arguments, code):
    with pytest.raises(OdError, match=f"{code}:"):
        PrivacyUnit(**arguments)
