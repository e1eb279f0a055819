"""The tables of each level alone, with which a release is compared under bounds of users."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from benchmarks.person_year import MONTHS, each_level, in_months
from benchmarks.synthetic_users import mobility_panel


def test_without_noise_a_table_lacks_what_its_own_bounds_cut() -> None:
    """The upper tables are cut by m alone, and so lose less than those of one release under a pair cap."""
    panel = mobility_panel(20_000, 400, 40, 0.25)
    trips = in_months(panel)[0]
    for row in each_level(panel, 1, Fraction(10**9)):
        m, is_leaf = row["m"], row["level"] == "zone x zone"
        of_pair = row["c"] if is_leaf and row["c"] != "none" else None
        cut = 1 - trips.counted(m, of_pair).mean()
        if row["figure"] == "error":
            assert row["each_level"] == row["cut_at_zero"] == pytest.approx(cut)
            assert row["one_release"] == pytest.approx(1 - trips.counted(m, None if row["c"] == "none" else 1).mean())
        else:
            counted = trips.counted(len(trips.rank), of_pair).sum()
            assert row["each_level"] == pytest.approx(1 - trips.counted(m, of_pair).sum() / counted)


def test_the_noise_of_a_table_is_that_of_its_bounds_and_a_third_of_the_rho() -> None:
    """Each of 1,600 cells then has a mean absolute error of sigma sqrt(2 / pi); 8 % are 4 standard deviations of it."""
    panel, yearly, runs = mobility_panel(20_000, 400, 40, 0.25), Fraction(1, 10), 2
    number = len(in_months(panel)[0].rank)
    for row in each_level(panel, runs, yearly):
        if row["level"] != "zone x zone" or row["figure"] != "error":
            continue
        squared = row["m"] if row["c"] == 1 else row["m"] ** 2
        sigma = math.sqrt(squared / (2 * yearly / MONTHS / 3))
        assert row["each_level"] * number / 1600 == pytest.approx(sigma * math.sqrt(2 / math.pi), rel=0.08)
