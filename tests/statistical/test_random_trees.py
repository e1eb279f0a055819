"""What the mechanisms that measure every level promise, on 500 random trees each and on real flights."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from od_core.privacy.unit import NEIGHBOUR_RELATIONS
from tests.od_core.doubles import released
from tests.od_core.flows.mechanisms.test_tda import TOP_DOWN
from tests.od_core.strategies import TREES, noises, worlds


@pytest.mark.parametrize("name", TOP_DOWN)
@settings(max_examples=500, deadline=None)
@given(
    world=worlds(),
    order=st.sampled_from(TREES),
    neighbours=st.sampled_from(NEIGHBOUR_RELATIONS),
    values=noises(),
)
def test_every_top_down_release_is_consistent(name, world, order, neighbours, values):
    """On random trees: the nodes of every level are the sums of those below, at least 1, and n is kept if public."""
    release = released(world, order, neighbours, values, name)
    assert release.leaves.trips.dtype == "int64"
    assert (release.leaves.trips >= 1).all()
    if not release.plan.mechanism.refines:  # there the nodes above a step are what is released at their level
        for measurement in release.measured:
            if measurement.parents is not None:
                assert trips_by_pair(measurement.parents) == sums_of_leaves(release, measurement.parents.level)
    if neighbours == "bounded":
        assert release.leaves.trips.sum() == sum(world.flows.values())


def trips_by_pair(nodes):
    return dict(zip(zip(nodes.origin, nodes.destination, strict=True), nodes.trips, strict=True))


def sums_of_leaves(release, level):
    tree = release.plan.tree
    origin, destination, trips = tree.sum_trips(release.leaves, *tree.level_pair(level))
    return dict(zip(zip(origin, destination, strict=True), trips, strict=True))
