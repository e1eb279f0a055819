"""Checks that a team declares: what they see, what they hold back, and what the certificate says of them."""

import json
import re
import sys

import pandas as pd
import pytest

from od_assets.failures import describe_failures
from od_assets.resources.warehouse import Warehouse, verify_published_releases
from od_core.errors import OdError

from .conftest import records

LARGE = {
    "name": "large",
    "requires": "There are at least 100,000 trips.",
    "sql": "SELECT 1 FROM (SELECT sum(trips) AS n FROM flows) WHERE n < 100000",
}
SMALL = {
    **LARGE,
    "name": "small",
    "requires": "There is at most one trip.",
    "sql": "SELECT * FROM flows WHERE trips > 1",
}
MOVES = {
    "name": "moves",
    "requires": "No zone has twice the trips of the period before.",
    "sql": """
        SELECT origin FROM (SELECT origin, sum(trips) AS n FROM flows GROUP BY ALL) AS now
        JOIN (SELECT origin, sum(trips) AS n FROM previous GROUP BY ALL) AS before USING (origin)
        WHERE now.n > 2 * before.n
    """,
}


def describe(result):
    """What the command line says of a failed run: failed checks and the reasons of failed steps."""
    return "; ".join(describe_failures(result.all_events, "trips"))


def stated_checks(project, period="2001-01"):
    certificate = json.loads((project.var / "releases" / "trips" / period / "r1" / "certificate.json").read_text())
    return {check["check"]: check for check in certificate["checks"] if "severity" in check}


def test_a_failed_check_holds_the_release_back_and_its_correction_publishes_without_a_draw(project):
    held = project.run(project.component(checks=[LARGE]))
    assert "check large failed. It requires: There are at least 100,000 trips." in describe(held)
    assert not (project.var / "releases" / "trips").exists()
    ledger, key = Warehouse().ledger, project.component().key("2001-01")
    draws = ledger.list_charges(key)
    assert draws
    enough = {**LARGE, "sql": LARGE["sql"].replace("100000", "10")}
    project.publish(project.component(checks=[enough]))
    assert Warehouse().ledger.list_charges(key) == draws
    assert stated_checks(project)["large"] == {
        "check": "large", "subject": "flows", "passed": True, "severity": "block", "requires": LARGE["requires"],
    }  # fmt: skip


def test_a_warning_is_published_with_its_outcome_and_verified_without_the_check(project):
    warned = project.component(
        checks=[{**SMALL, "severity": "warn"}, {**LARGE, "severity": "warn", "sql": "SELECT 1 WHERE 1 = 2"}]
    )
    result = project.publish(warned)
    evaluation = {found.check_name: found for found in result.get_asset_check_evaluations()}["small"]
    assert (evaluation.passed, evaluation.severity.value, evaluation.blocking) == (False, "WARN", False)
    stated = stated_checks(project)
    assert {name: (check["passed"], check["severity"]) for name, check in stated.items()} == {
        "small": (False, "warn"), "large": (True, "warn"),
    }  # fmt: skip
    assert [row["faults"] for row in verify_published_releases("trips")] == [{}]
    page = next((project.var / "releases").rglob("report.html")).read_text(encoding="utf-8")
    assert re.search("<td>There is at most one trip.</td><td>warn</td>\\s*<td>failed</td>", page)
    assert "checks passed" in page.split("The publisher also checked")[0]


@pytest.mark.slow
def test_the_previous_table_is_that_of_the_newest_earlier_period_and_what_is_published_stays(project):
    """February has four times the trips of January. January's second run compares nothing anew."""
    series = project.component(checks=[MOVES])
    project.publish(series)
    many = pd.concat([records().assign(date="2001-02-03")] * 4)
    project.write_records(many, "2001-02")
    assert "check moves failed" in describe(project.run(series, "2001-02"))
    few = {**MOVES, "sql": MOVES["sql"].replace("> 2", "> 6")}
    project.publish(project.component(checks=[few]), "2001-02")
    bundle = project.var / "releases" / "trips"
    before = {path: path.read_bytes() for path in bundle.rglob("*") if path.is_file()}
    opposite = {**MOVES, "sql": "SELECT * FROM flows"}
    for period in ("2001-01", "2001-02"):
        project.publish(project.component(checks=[opposite]), period)
    assert {path: path.read_bytes() for path in bundle.rglob("*") if path.is_file()} == before


FUNCTIONS = """
def count(tables):
    assert sorted(tables) == ["flows", "previous"]
    return int((tables["flows"]["trips"] > 1).sum())


def none(tables):
    return 0


def secret(tables):
    raise ValueError("hunter-22")


def boolean(tables):
    return True


calls = []


def once(tables):
    calls.append(1)
    return 0
"""


@pytest.fixture
def functions(project, monkeypatch):
    (project.root / "team_functions.py").write_text(FUNCTIONS, encoding="utf-8")
    monkeypatch.syspath_prepend(str(project.root))
    yield
    sys.modules.pop("team_functions", None)


@pytest.mark.usefixtures("functions")
def test_a_check_is_evaluated_once_in_a_run(project):
    """The checks of a table run after its asset, and again before the publication."""
    check = {"name": "own", "requires": "It holds.", "function": "team_functions:once"}
    project.publish(project.component(checks=[check]))
    assert sys.modules["team_functions"].calls == [1]


@pytest.mark.usefixtures("functions")
def test_functions_count_violations_and_their_faults_show_no_text(project, caplog):
    checks = [
        {"name": name, "requires": "It holds.", "severity": "warn", "function": f"team_functions:{name}"}
        for name in ("count", "none", "secret", "boolean", "absent")
    ]
    held = describe(project.run(project.component(checks=[{**checks[2], "severity": "block"}])))
    assert "check 'secret' cannot be evaluated (ValueError)" in held
    project.publish(project.component(checks=checks))
    outcomes = {name: check["passed"] for name, check in stated_checks(project).items()}
    assert outcomes == {"count": False, "none": True, "secret": False, "boolean": False, "absent": False}
    warned = [record.getMessage() for record in caplog.records if "cannot be evaluated" in record.getMessage()]
    assert {text.split("(")[1].split(")")[0] for text in warned} == {"ValueError", "TypeError", "AttributeError"}
    assert "hunter" not in held + caplog.text


@pytest.mark.parametrize(
    "sql", ["SELECT * FROM read_csv('zones.csv')", "SELECT * FROM 'zones.csv'", "SELECT secret FROM flows"]
)
def test_a_query_sees_these_tables_alone(project, sql):
    check = {"name": "own", "requires": "It holds.", "sql": sql}
    assert "check 'own' cannot be evaluated" in describe(project.run(project.component(checks=[check])))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"sql": "SELECT 1; SELECT 2"}, "not a single SELECT"),
        ({"sql": "COPY flows TO 'flows.csv'"}, "not a single SELECT"),
        ({"sql": None}, "either sql or function"),
        ({"function": "a:b"}, "either sql or function"),
        ({"name": "total_is_n"}, "a check of every release"),
    ],
)
def test_wrong_declarations_are_refused_before_a_run(project, changes, why):
    with pytest.raises(OdError, match=why):
        project.definitions(project.component(checks=[{**LARGE, **changes}]))


def test_two_checks_of_one_name_are_refused(project):
    with pytest.raises(OdError, match="two have the same name"):
        project.definitions(project.component(checks=[LARGE, LARGE]))


@pytest.mark.parametrize("detail", ["levels", "publication"])
def test_group_sizes_have_checks_of_their_own_table(project, detail):
    check = {
        "name": "own",
        "requires": "There is a group.",
        "severity": "warn",
        "sql": "SELECT * FROM histogram WHERE groups > 0",
    }
    declared = project.group_sizes(checks=[check], detail=detail)
    project.publish(declared)
    certificate = json.loads(next((project.var / "releases").rglob("certificate.json")).read_text())
    assert [run["passed"] for run in certificate["checks"] if run["check"] == "own"] == [False]
