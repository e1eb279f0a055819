"""Units of privacy: the sensitivities of the published table, and what is refused."""

from __future__ import annotations

import pytest

from od_core import OdError, PrivacyUnit
from od_core.privacy.neighbours import NO_FAULTS, Neighbours
from od_core.privacy.sensitivity import sensitivity_squared

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


def unit_of(kind, m, relation) -> PrivacyUnit:
    return PrivacyUnit(kind, relation, column=None if kind == "trip" else "user_id", max_trips=m)


@pytest.mark.parametrize(("kind", "m", "relation", "level", "root"), TABLE)
def test_sensitivities_of_the_table(kind, m, relation, level, root):
    unit = unit_of(kind, m, relation)
    assert sensitivity_squared(unit) == level
    leaving, staying = Neighbours(unit), Neighbours(unit, NO_FAULTS)
    assert [leaving.sensitivity_squared(number) for number in (0, 1, 9)] == [root, level, level]
    assert not leaving.publishes_total
    assert staying.publishes_total is (kind == "trip" and relation == "bounded")
    assert [staying.sensitivity_squared(number) for number in (0, 9)] == [0 if staying.publishes_total else root, level]
    assert unit.contribution_bound == (m or 1)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"kind": "trp"}, "OD-UNIT-UNKNOWN"),
        ({"kind": "trip", "neighbours": "boundd"}, "OD-UNIT-UNKNOWN"),
        ({"kind": "trip", "column": "user_id"}, "OD-UNIT-OPTIONS"),
        ({"kind": "trip", "max_trips": 4}, "OD-UNIT-OPTIONS"),
        ({"kind": "user", "max_trips": 4}, "OD-UNIT-OPTIONS"),
        ({"kind": "user", "column": "id"}, "OD-UNIT-MAX-TRIPS"),
        ({"kind": "user", "column": "id", "max_trips": 0}, "OD-UNIT-MAX-TRIPS"),
        ({"kind": "user", "column": "id", "max_trips": -1}, "OD-UNIT-MAX-TRIPS"),
        ({"kind": "user_period", "column": "id", "max_trips": 1.5}, "OD-UNIT-MAX-TRIPS"),
        ({"kind": "user_period", "column": "id", "max_trips": True}, "OD-UNIT-MAX-TRIPS"),
    ],
)
def test_refuses_units_that_promise_nothing_definite(arguments, code):
    with pytest.raises(OdError) as error:
        PrivacyUnit(**arguments)
    assert error.value.code == code


def test_unknown_names_come_with_the_nearest_known():
    with pytest.raises(OdError, match="did you mean 'user_period'"):
        PrivacyUnit("user_perod", column="id", max_trips=1)
    with pytest.raises(OdError, match="did you mean 'unbounded'"):
        PrivacyUnit("trip", "unbound")
