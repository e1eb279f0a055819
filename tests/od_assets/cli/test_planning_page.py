"""``od-release plan --page``: the file that it writes, and what it refuses."""

import pytest

from od_assets.cli.releases import write_planning_page
from od_assets.project import find_current_project
from od_core.flows import planning_page
from tests.od_assets.cli.commands import printed, refusal, stated


@pytest.fixture(autouse=True)
def few_budgets(monkeypatch):
    monkeypatch.setattr(planning_page, "EPSILONS", ("3",))


def test_the_page_is_written_beside_what_is_printed(tmp_path, monkeypatch):
    """Nothing else is written: no record is read, and no budget is spent."""
    monkeypatch.setenv("OD_VAR", str(tmp_path / "var"))
    path = tmp_path / "page.html"
    path.write_text("an older page", encoding="utf-8")
    plan = ["plan", "us_flights"]
    alone, said = printed(*plan), printed(*plan, "--page", str(path))
    assert "".join(said.split()) == "".join(f"{alone}Planning page: {path}".split())
    assert "<title>Planning page of us_flights</title>" in path.read_text(encoding="utf-8")
    path.unlink()
    assert stated(*plan, "--page", str(path))["epsilon"] == "1"
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]
    assert not find_current_project().var.exists()


def test_the_year_of_a_user_is_that_of_the_data_set(tmp_path, project, monkeypatch):
    """A span of weeks has another number of periods than a year of the calendar."""
    seen: list[int] = []
    monkeypatch.setattr("od_core.flows.planning_page.render_planning_page", lambda *given: f"{seen.append(given[3])}")
    of_year = {"domain__unit": "user_year", "domain__column": "person", "domain__id_pattern": ".+"}
    bounds = {"domain__bounds": {"max_trips": 2, "max_trips_year": 3}}
    weeks = {"domain__year": "2001-W01--2001-W52"}
    for elementary, first, year in (("month", "2001-01", {}), ("week", "2001-W05", weeks)):
        periods = {"periods": {"first": first, "every": elementary}, "domain__elementary_period": elementary}
        settings = project.component(**of_year, **bounds, **periods, **year).require_valid()
        write_planning_page(settings, settings.plan(settings.read_geography(), first), tmp_path / "page.html")
    assert seen == [12, 52]


@pytest.mark.parametrize(
    ("release", "folder", "code"),
    [("us_departures", ".", "OD-FORECAST-KIND"), ("us_flights", "none", "OD-FORECAST-PAGE")],
)
def test_what_cannot_be_written_is_refused(tmp_path, release, folder, code):
    path = tmp_path / folder / "page.html"
    assert refusal("plan", release, "--page", str(path)).code == code
    assert not path.exists()
