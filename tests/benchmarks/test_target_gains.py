"""Shares that minimise errors: what they gain on each data set is what the documentation states."""

from pathlib import Path

import pytest

from benchmarks.estimator import CASES, READ, data_set
from benchmarks.targets import gains
from tests.real_data import FOLDER, real_data

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "targets.md"


def stated() -> dict[str, list[str]]:
    """The rows of the table: the gains for all levels, every second level, and the finest level."""
    _, table = GUIDE.read_text(encoding="utf-8").split("| data set | all levels |")
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()[2:] if row.startswith("|")]
    return {name: gained for name, *gained in rows}


@pytest.mark.parametrize("case", CASES)
def test_shares_that_minimise_beat_the_other_rules_by_what_is_stated(case):
    if case in READ:
        real_data(READ[case][0])
    every, finest, second = gains(data_set(case, FOLDER, small=False))
    for row in (every, finest, second):
        assert row["minimise"] < row["geography"]
        assert row["minimise"] < row["uniform"]
    assert [f"{100 * row['gain']:.1f} %" for row in (every, second, finest)] == stated()[case]
    over_geography = {"italy": "0.9 %", "nz_education": "0.8 %"}
    nearest = "uniform" if case in over_geography else "geography"
    assert every["gain"] == 1 - every["minimise"] / every[nearest]
    if case in over_geography:
        assert f"{100 * (1 - every['minimise'] / every['geography']):.1f} %" == over_geography[case]
