"""``od-release assist`` on published releases, in this process."""

from pathlib import Path

import pytest

from tests.od_assets.cli.commands import printed, stated
from tests.od_assets.cli.conftest import NEW, OLD, var

__all__ = ["var"]

ASSISTED = "us_flights_assisted/2001-06/r1"


@pytest.fixture
def published_few(published_flights) -> Path:
    """All flights, from which more can be learned than from few."""
    return published_flights


def test_a_named_release_and_the_number_of_earlier_ones(var):
    found = stated("assist", NEW, "--earlier", "0")
    assert (found["release"], found["published_now"]) == (ASSISTED, True)
    assert [one["release"] for one in found["certificate"]["sources"]] == [NEW]
    assert [one["release"] for one in stated("assist", OLD)["certificate"]["sources"]] == [OLD]
    other = var / "releases" / ASSISTED.replace("r1", "r2")  # from both releases
    assert f"Bundle: {other}" in " ".join(printed("assist", "us_flights").split())
