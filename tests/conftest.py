"""What the tests of the library share: repeatable generated examples, and the real data of the project."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, settings

from od_core import Geography
from tests.checkouts_own import refuse_what_was_touched

settings.register_profile(
    "repeatable", derandomize=True, deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")

FLIGHTS = Path(__file__).parents[1] / "data" / "us_flights"


APART = (
    *("faults/test_killed_release.py", "faults/test_killed_comparison.py", "faults/test_killed_publication.py"),
    *("faults/test_killed.py", "faults/test_another_day.py", "faults/test_soak.py", "benchmarks/test_small_sizes.py"),
    *("statistical/test_stops_audit.py", "statistical/test_random_trees.py", "leaks/test_planted.py"),
)
"""Files of slow tests that share no fixture: each test goes to whichever worker is free."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a file, and all that look at pages, on one worker (``--dist loadgroup``): they share fixtures.

    Jobs share none, as the files named above.
    """
    for item in items:
        file = item.path.as_posix()
        if not file.endswith(APART) and item.path.parent.name != "jobs":
            item.add_marker(pytest.mark.xdist_group("browser" if item.path.parent.name == "browser" else file))


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test sees what this checkout has released: unless it says otherwise, all is written to a folder of its own."""
    monkeypatch.setenv("OD_VAR", str(tmp_path / "var"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "var" / "dagster"))
    yield
    refuse_what_was_touched()


@pytest.fixture(scope="session")
def airports() -> pd.DataFrame:
    """The public airport list: region, division, state, airport."""
    return pd.read_csv(FLIGHTS / "airports.csv", dtype=str, keep_default_na=False)


@pytest.fixture(scope="session")
def airport_geography(airports: pd.DataFrame) -> Geography:
    return Geography.from_frame(airports, levels=["region", "division", "state", "airport"])


@pytest.fixture(scope="session")
def flights() -> dict[str, pd.DataFrame]:
    """Six months of flights, one row a flight: date, origin, destination."""
    return {path.stem: pd.read_parquet(path) for path in sorted(FLIGHTS.glob("*.parquet"))}


@pytest.fixture(scope="session")
def published_flights(
    tmp_path_factory: pytest.TempPathFactory, flights: dict[str, pd.DataFrame], airport_geography: Geography
) -> Path:
    """A folder like ``var`` with two months of flights, published: bundles and database. Not to be changed."""
    from tests.published_flights import publish_flights

    folder = tmp_path_factory.mktemp("published_flights")
    publish_flights(folder, flights, airport_geography)
    return folder
