"""What the mechanisms that measure every level promise: whole numbers of at least 0, child sums, and n."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core.flows.mechanisms import MECHANISMS
from tests.od_core.doubles import no_noise, released
from tests.od_core.strategies import TREES, worlds

TOP_DOWN = [name for name, kind in MECHANISMS.items() if kind().measures == "every_level" and not kind().finds_areas]


@pytest.mark.parametrize("name", [*TOP_DOWN, "vanilla_gauss"])
@given(world=worlds(), order=st.sampled_from(TREES))
def test_without_noise_every_mechanism_releases_the_truth(name, world, order):
    """The stability histogram is left out: its threshold hides small counts."""
    release = released(world, order, "bounded", no_noise(), name)
    truth = {(o[-1], d[-1]): trips for (o, d), trips in world.flows.items() if trips}
    assert {(o, d): trips for o, d, trips in release.flows.itertuples(index=False)} == truth
