"""A thousand random worlds: every tree partitions its grid, and every path spends epsilon, exactly."""

from __future__ import annotations

import pytest
from hypothesis import given, seed, settings

from tests.od_core.stops.worlds import check_charges, check_partition, mechanisms, worlds


@pytest.mark.parametrize("part", range(4))
def test_boxes_partition_the_grid_and_every_path_spends_epsilon(part):
    @seed(part)
    @settings(max_examples=250, derandomize=False, database=None)
    @given(worlds(trips=5000), mechanisms())
    def holds(world, mechanism):
        drawn = mechanism.draw(world.points.copy(), world.grid, world.path())
        check_partition(drawn.boxes, world.grid)
        check_charges(drawn, world.epsilon)

    holds()
