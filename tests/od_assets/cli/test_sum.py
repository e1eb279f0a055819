"""``od-release sum`` on published releases, in this process."""

import pytest

from tests.od_assets.cli.commands import printed, refusal, stated
from tests.od_assets.cli.conftest import NEW, OLD

SUM = "us_flights_sum/2001-05--2001-06/r1"


def test_named_releases_as_json(var):
    found = stated("sum", NEW, OLD)
    assert (found["release"], found["published_now"]) == (SUM, True)
    assert [one["release"] for one in found["certificate"]["sources"]] == [OLD, NEW]
    assert stated("sum", NEW, OLD) == found | {"published_now": False}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([OLD], "OD-SUM-FEW"),
        ([OLD, OLD], "OD-SUM-OVERLAP"),
        (["us_flights"], "OD-SUM-NAMES"),
        (["yr"], "OD-RELEASE-ABSENT"),
        ([OLD, "us_flights"], "OD-RELEASE-KEY"),
        ([OLD, NEW, "--periods", "2001-05..2001-06"], "OD-SUM-NAMES"),
        (["us_flights", "--periods", "2001-05..2001-07"], "OD-SUM-PERIOD"),
        (["us_flights", "--periods", "2001-06"], "OD-SUM-FEW"),
        (["us_flights", "--periods", "May"], "OD-PERIOD-TEXT"),
        (["journeys", "--periods", "2001-05..2001-06"], "OD-RELEASE-ABSENT"),
        ([NEW, "us_flights/2001-07/r1"], "OD-RELEASE-ABSENT"),
    ],
)
def test_mistakes_are_refused_and_leave_nothing(var, arguments, code):
    assert refusal("sum", *arguments).code == code
    assert not (var / "releases" / "us_flights_sum").exists()


def test_status_and_report_know_a_sum(var):
    said = " ".join(printed("sum", "us_flights", "--periods", "2001-05..2001-06").split())
    assert f"Bundle: {var / 'releases' / SUM}" in said
    (mine,) = (row for row in stated("status") if row["release"] == SUM)
    assert (mine["state"], mine["rho_spent"], mine["measured_levels"]) == ("published", 0.0, "none, derived")
    assert printed("report", "us_flights_sum").strip() == str(var / "releases" / SUM / "report.html")
