"""``od-release plan --bounds``: the table, the advice, and what is refused."""

from functools import partial
from typing import Any

import pytest

from tests.od_assets.cli.commands import printed, stated
from tests.od_assets.conftest import ATTRIBUTES, Project, states

USERS = ("--users", "60: 2x9 4x1", "--users", "40: 3x1")


@pytest.fixture
def declared(project) -> Project:
    """A project that declares a series of users."""
    declare(project, domain__unit="user_period", domain__column="person", bounds={"max_trips": 10})
    return project


def declare(project: Project, **changes: Any) -> None:
    project.component(**changes)
    attributes = ATTRIBUTES | {name: value for name, value in changes.items() if not name.startswith("domain__")}
    project.declare(attributes)


facts = partial(stated, "plan", "trips", "--bounds", "--runs", "1")


def test_users_that_are_described_make_the_trips_of_a_public_table(declared):
    before = states(declared.root)
    found = facts(*USERS, "--table", "synthetic")
    assert [(row["m"], row["c"]) for row in found["bounds"]] == [
        (m, c) for m in (5, 10, 20) for c in (None, 1, 2, 5) if c is None or c < m
    ]
    assert found["trips"] == pytest.approx(found["users"] * (0.6 * 22 + 0.4 * 3), rel=0.01)
    assert "synthetic table" in found["source"]
    assert "made up" in found["source"]
    best = min(found["bounds"], key=lambda row: (round(row["error"][-1], 2), row["cut"]))
    assert found["best"] == best
    people = min((row for row in found["bounds"] if row["c"] == 1), key=lambda row: row["error_of_counted"][-1])
    assert f"m = {people['m']}, c = 1, with" in found["advice"]
    assert found["advice"].startswith(f"m = {best['m']}, c = {best['c']}" if best["c"] else f"m = {best['m']}, no c")
    assert states(declared.root) == before  # nothing is written


def test_under_user_year_the_rows_have_a_bound_of_the_year(declared):
    of_year = {"domain__bounds": {"max_trips": 2, "max_trips_year": 6}, "domain__id_pattern": ".+"}
    declare(declared, domain__unit="user_year", domain__column="person", **of_year)
    text = printed("plan", "trips", "--bounds", *USERS, "--runs", "1", "--bound", "m=2,c=1,M=24")
    assert "average period" in text.replace("\n", " ")
    rows = facts(*USERS, "--bound", "m=2,c=1,M=24", "--bound", "m=2,c=1,M=4", "--bound", "m=2,c=1")["bounds"]
    assert [row["M"] for row in rows] == [24, 4, 6]
    assert rows[1]["cut"] > rows[2]["cut"] > rows[0]["cut"]
    assert rows[1]["noise"][-1] < rows[2]["noise"][-1] < rows[0]["noise"][-1]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--bounds"], "OD-BOUNDS-USERS"),
        (["--bounds", "--users", "60"], "OD-BOUNDS-USERS"),
        (["--bounds", "--table", "synthetic"], "OD-BOUNDS-USERS"),
        (["--bounds", *USERS, "--runs", "0"], "OD-BOUNDS-USERS"),
        (["--bounds", *USERS, "--table", "{root}/2001-01.csv"], "OD-TABLE-CONFIDENTIAL"),
        (["--bounds", *USERS, "--bound", "m=2,c=3"], "OD-UNIT-MAX-TRIPS-PAIR"),
        (["--bounds", *USERS, "--bound", "m=2,M=3"], "OD-UNIT-OPTIONS"),
        (["--bounds", *USERS, "--bound", "cap=3"], "OD-BOUNDS-GRID"),
        (["--bounds", *USERS, "--bound", "m=-1"], "OD-UNIT-MAX-TRIPS"),
        (["--bounds", *USERS, "--page", "page.html"], "OD-BOUNDS-OPTIONS"),
        ([*USERS], "OD-BOUNDS-OPTIONS"),
    ],
)
def test_what_does_not_fit_is_refused(declared, refused, arguments, code):
    assert refused("plan", "trips", *(each.format(root=declared.root) for each in arguments)).startswith(code)


def test_a_series_without_users_is_refused(declared, refused):
    declare(declared)
    assert refused("plan", "trips", "--bounds", *USERS).startswith("OD-BOUNDS-UNIT")
