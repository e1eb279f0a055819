"""Synthetic flows: the sizes of the published sets, the shape of commuting."""

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.sections import italy_sections
from od_core import Geography
from od_core.evaluation.known_flows import make_binary_flows, make_italy_flows, make_random_tree_flows

SEEDS = range(3)
SMALL = {
    "binary": lambda seed: make_binary_flows(seed, levels=4, filled=Fraction(1, 3), trips=900),
    "random": lambda seed: make_random_tree_flows(seed, levels=3, zones=100, filled=Fraction(1, 10), trips=5_000),
    "italy": lambda seed: make_italy_flows(seed, scale=0.01),
    "italy_sections": lambda seed: italy_sections(seed, scale=0.01),
}


@pytest.fixture(scope="module")
def country():
    return make_italy_flows(1)


@pytest.fixture(params=SMALL)
def make(request):
    return SMALL[request.param]


def sizes(geography: Geography) -> list[int]:
    return [geography.size(level) for level in range(1, geography.depth + 1)]


@pytest.mark.parametrize("seed", SEEDS)
def test_each_pair_stands_once_and_has_trips(make, seed):
    flows = make(seed)
    zones = len(flows.geography.zones)
    assert len(flows.origin) == len(flows.destination) == len(flows.trips)
    assert len(set(zip(flows.origin.tolist(), flows.destination.tolist(), strict=True))) == len(flows.trips)
    for ends in (flows.origin, flows.destination):
        assert ends.dtype == np.int32
        assert ends.min() >= 0
        assert ends.max() < zones
    assert flows.trips.dtype == np.int64
    assert flows.trips.min() >= 1


def test_the_same_seed_makes_the_same_data_and_another_seed_other_data(make):
    one, same, other = make(5), make(5), make(6)
    assert one.geography.digest == same.geography.digest
    for column in ("origin", "destination", "trips"):
        assert np.array_equal(getattr(one, column), getattr(same, column))
        assert not np.array_equal(getattr(one, column), getattr(other, column))


def test_the_country_has_its_sizes(country):
    assert country.geography.levels == ("region", "province", "town")
    assert sizes(country.geography) == [20, 110, 8_092]
    assert (len(country.trips), country.trips.sum()) == (650_000, 28_800_000)
