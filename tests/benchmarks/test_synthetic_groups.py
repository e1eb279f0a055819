"""Groups with known sizes: the shapes that the papers give, the same at every call, and marked."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchmarks.synthetic_groups import HOUSEHOLDS, OUTLIERS, departures, households

FLIGHTS = Path(__file__).parents[2] / "data" / "us_flights"
ALPHA = 1e-6


def test_households_have_the_published_shares_and_a_tail_of_one_ratio():
    """Fails with probability 1e-6 each: by size, where a uniform law is refused by the same test, and by area."""
    assert sum(HOUSEHOLDS) == 116_716_292  # households of the 2010 Census
    data = households(5)
    assert (data.geography.size(2), len(data.geography.zones)) == (52, 520)
    assert data.groups.count_per_area(data.geography).tolist() == [234] * 520
    share = np.array(HOUSEHOLDS) / sum(HOUSEHOLDS)
    ratio = share[6] / (share[5] + share[6])
    expected = np.append(share[:6], share[5] * ratio ** np.arange(1, 7))
    expected = np.append(expected, 1 - expected.sum())
    assert expected[6:].sum() == pytest.approx(share[6])
    sizes = data.groups.size
    assert sizes.min() == 1
    assert OUTLIERS // 2 < np.count_nonzero(sizes > 100) <= OUTLIERS
    common = sizes[sizes <= 100]
    seen = np.bincount(np.minimum(common, 13), minlength=14)[1:]
    assert stats.chisquare(seen, expected * len(common)).pvalue > ALPHA
    assert stats.chisquare(seen, np.full(13, len(common) / 13)).pvalue < ALPHA
    areas = data.groups.area[sizes <= 100]
    assert stats.pearsonr(areas, common).pvalue > ALPHA  # sizes are dealt out to the areas at random


def test_departures_are_those_of_a_group_by(airport_geography, flights):
    data = departures(FLIGHTS, "2001-02")
    assert (data.marking, data.name) == ("public", "flights 2001-02")
    assert data.geography.digest == airport_geography.digest
    counts = flights["2001-02"].assign(date=lambda rows: rows["date"].astype(str)).groupby(["origin", "date"]).size()
    assert data.groups.count_per_area(data.geography).tolist() == [28] * len(airport_geography.zones)
    assert data.groups.size.max() == counts.max() < data.top_code
    for number, airport in enumerate(airport_geography.zones):
        mine = data.groups.size[data.groups.area == number]
        theirs = sorted(counts[airport]) if airport in counts else []
        assert mine.tolist() == [0] * (28 - len(theirs)) + theirs
