"""The tables of each level alone, with which a release is compared under bounds of users."""

from fractions import Fraction

import pytest

from benchmarks.person_year import each_level, in_months
from benchmarks.synthetic_users import mobility_panel


def test_without_noise_a_table_lacks_what_its_own_bounds_cut():
    """The upper tables are cut by m alone, and so lose less than those of one release under a pair cap."""
    panel = mobility_panel(20_000, 400, 40, 0.25)
    trips = in_months(panel)[0]
    for row in each_level(panel, 1, Fraction(10**9)):
        m, is_leaf = row["m"], row["level"] == "zone x zone"
        of_pair = row["c"] if is_leaf and row["c"] != "none" else None
        cut = 1 - trips.mark_counted_trips(m, of_pair).mean()
        if row["figure"] == "error":
            assert row["each_level"] == row["cut_at_zero"] == pytest.approx(cut)
            assert row["one_release"] == pytest.approx(
                1 - trips.mark_counted_trips(m, None if row["c"] == "none" else 1).mean()
            )
        else:
            counted = trips.mark_counted_trips(len(trips.rank), of_pair).sum()
            assert row["each_level"] == pytest.approx(1 - trips.mark_counted_trips(m, of_pair).sum() / counted)
