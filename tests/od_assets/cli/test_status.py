"""What ``od-release status`` says of releases whose declaration was changed, and how budgets are printed."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from od_assets.cli.app import app
from od_assets.cli.printing import print_status
from od_assets.resources.warehouse import Warehouse
from od_assets.runs.period_status import period_status, release_status
from od_assets.series.flows import FlowSeries
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from tests.od_assets.conftest import Project


def test_before_the_first_release_nothing_is_written(project: Project) -> None:
    """And a ledger that was lost is no new one."""
    project.component()  # declares the data set
    project.declare()
    rows = json.loads(CliRunner().invoke(app, ["status", "--json"]).stdout)
    assert [(row["state"], row["data_set_rho_left"]) for row in rows] == [("not begun", 0.1), ("waits", 0.1)]
    assert not project.var.exists()
    (project.var / "confidential").mkdir(parents=True)
    (project.var / "confidential" / "ledger.head").write_text("lost", encoding="utf-8")
    assert str(CliRunner().invoke(app, ["status"]).exception).startswith("OD-LEDGER")


def test_changed_settings_are_named_and_the_state_stays(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    settings = project.component().checked()
    key, ledger = settings.key("2001-01"), Warehouse().ledger
    ledger.declare(settings.domain)
    ledger.reserve(key, settings.domain.name, settings.plan(settings.read_geography(), key.period))

    same, later = period_status([project.component()], ledger, ledger.states())
    assert (same["state"], same["settings_changed"]) == ("begun", [])
    assert (later["state"], later["settings_changed"]) == ("waits", None)
    print_status([same, later])
    assert "other settings" not in capsys.readouterr().out

    other, _ = period_status([project.component(privacy__epsilon="1/2", tree="origin")], ledger, ledger.states())
    assert other["settings_changed"] == ["epsilon", "rho", "steps", "tree"]
    assert other | {"settings_changed": []} == same
    print_status([other | {"state": "published"}])
    said = " ".join(capsys.readouterr().out.split())
    assert "│ published │" in said
    assert f"{key} was published with other settings than those declared now: epsilon, rho, steps, tree." in said

    (project.root / "zones.csv").unlink()
    unplanned, _ = period_status([project.component()], ledger, ledger.states())
    assert (unplanned["state"], unplanned["settings_changed"]) == ("begun", None)
    assert release_status(ReleaseKey("gone", "2001-01"), None)["settings_changed"] is None


def test_releases_in_the_same_state_share_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    """Of one series, without others between. Of what remains in their periods, the least is printed."""
    left_of = [0.5, 0.25, None, 0.5, 0.25]
    months = [*(("a", month, left) for month, left in enumerate(left_of, 1)), ("b", 1, 0.5), ("b", 2, 0.75)]
    rows = [
        release_status(ReleaseKey(name, f"2001-0{month}"), None) | {"data_set_rho_left": left}
        for name, month, left in months
    ]
    for row in rows[2:5]:
        row |= {"state": "published", "rho_spent": 0.5}
    rows[4]["rho_spent"] = 0.25  # in another revision, for instance
    print_status(rows)
    said = capsys.readouterr().out
    lines = [line.split("│") for line in said.splitlines() if line.startswith("│")]
    assert [(line[1].strip(), line[2].strip(), line[5].strip()) for line in lines] == [
        ("a/2001-03 to 2001-04/r1", "published", "-"),
        ("a/2001-05/r1", "published", "0.25"),
    ]
    assert "Not begun: a/2001-01 to 2001-02/r1, b/2001-01 to 2001-02/r1." in said
    print_status(rows, every=True)
    assert [line.split("│")[1].strip() for line in capsys.readouterr().out.splitlines() if line.startswith("│")] == [
        row["release"] for row in rows
    ]


def test_a_row_names_no_period_and_no_revision_that_is_not_published(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("2001-01/r1", "2001-01/r2", "2001-02/r1", "2001-02/r2", "2001-03/r2", "2001-06/r2", "2001-Q3/r2")
    print_status([release_status(ReleaseKey.parse(f"a/{name}"), None) | {"state": "published"} for name in names])
    said = [line.split("│")[1].strip() for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    ranges = ("2001-01/r1", "2001-01/r2", "2001-02/r1", "2001-02 to 2001-03/r2", "2001-06 to 2001-Q3/r2")
    assert said == [f"a/{name}" for name in ranges]


def test_a_release_on_which_no_run_works_was_interrupted(project: Project) -> None:
    settings = project.component().checked()
    key, ledger = settings.key("2001-01"), Warehouse().ledger
    ledger.declare(settings.domain)
    ledger.reserve(key, settings.domain.name, settings.plan(settings.read_geography(), key.period))
    project.declare()
    said = f"{key} is only begun, and no run works on it: its last run was interrupted or failed."
    with ledger.exclusive():
        assert said not in " ".join(CliRunner().invoke(app, ["status"]).output.split())
    assert said in " ".join(CliRunner().invoke(app, ["status"]).output.split())


def test_what_periods_and_series_share_is_read_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan for each number of days of a month, what a data set has left, and the state of all releases."""
    year = project.component(periods__last="2001-12", domain__cap__rho="1")
    other = project.component(name="others", periods__last="2001-12", domain__cap__rho="1")
    settings, ledger = year.checked(), Warehouse().ledger
    ledger.declare(settings.domain)
    for each in (settings, other.checked()):
        for period in each.periods.ended():
            ledger.reserve(each.key(period.text), "trips", each.plan(each.read_geography(), period.text))
    planned, looked = [], []
    plan, remaining = FlowSeries.plan_without_cap, Ledger.remaining
    monkeypatch.setattr(FlowSeries, "plan_without_cap", lambda *given: planned.append(given[2]) or plan(*given))
    monkeypatch.setattr(Ledger, "remaining", lambda *given: looked.append(given[1]) or remaining(*given))
    rows = period_status([year, other], ledger, ledger.states())
    assert [row["settings_changed"] for row in rows] == [[]] * 24
    assert (planned, looked) == (["2001-01", "2001-02", "2001-04"] * 2, ["trips"])
    assert {row["data_set_rho_left"] for row in rows} == {
        float(ledger.balance("trips", period.text).left) for period in settings.periods.ended()
    }
