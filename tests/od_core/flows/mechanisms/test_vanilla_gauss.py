"""Noise on every public pair of zones: nothing is cut, nothing sums to n, and it is refused where it is too large."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import Budget, Geography, OdError, PrivacyUnit, VanillaGauss, plan_release
from od_core.privacy.unit import NEIGHBOUR_RELATIONS
from tests.od_core.doubles import ListedNoise, NoiseNotWanted, released, usual_release
from tests.od_core.oracles.intervals import within
from tests.od_core.strategies import TREES, noises, worlds

USER = PrivacyUnit("user", column="user", max_trips=3, neighbours="unbounded")


@given(world=worlds(), order=st.sampled_from(TREES), neighbours=st.sampled_from(NEIGHBOUR_RELATIONS), values=noises())
def test_every_public_pair_is_its_count_plus_its_noise(world, order, neighbours, values):
    noise = ListedNoise(values)
    release = released(world, order, neighbours, noise, "vanilla_gauss")
    tree, reference = world.trees(order)
    expected = {}
    for position, (origin, destination) in enumerate(reference.levels()[tree.depth]):
        value = world.flows.get((origin, destination), 0) + noise.at(tree.depth, position)
        expected[origin[-1], destination[-1]] = value
    cells = release.measurements
    assert dict(zip(zip(cells["origin"], cells["destination"], strict=True), cells["noisy"], strict=True)) == expected
    table = {(o, d): trips for o, d, trips in release.flows.itertuples(index=False)}
    assert table == {pair: value for pair, value in expected.items() if value != 0}
    for level in range(tree.depth):
        names = tree.level_names[level]
        assert release.flows_at(*names)["trips"].sum() == sum(expected.values())


@given(world=worlds(), order=st.sampled_from(TREES))
def test_errors_add_up_to_the_levels_above(world, order):
    """Mean over the nodes of the number of leaf pairs below them, times the variance."""
    tree, reference = world.trees(order)
    levels = reference.levels()
    unit, budget = PrivacyUnit("trip", "unbounded"), Budget(rho="1/18", delta="1e-8")
    given = {"destination_geography": tree.destination, "tree": order, "mechanism": "vanilla_gauss"}
    plan = plan_release(tree.origin, unit=unit, budget=budget, **given)
    for level, expected in enumerate(plan.expected_errors):
        below = [sum(within(leaf, node) for leaf in levels[-1]) for node in levels[level]]
        assert expected == pytest.approx((9 * sum(below) / len(below)) ** 0.5)


def test_too_many_pairs_are_refused_before_anything_is_read():
    zones = [f"{k:05}" for k in range(7072)]
    geography = Geography.from_frame(pd.DataFrame({"zone": zones}), levels=["zone"])
    said = f"at most {VanillaGauss.most_pairs:,} pairs of zones, and there are 50,013,184"
    with pytest.raises(OdError, match=said) as error:
        usual_release(None, geography, mechanism="vanilla_gauss", noise=NoiseNotWanted())
    assert error.value.code == "OD-MECHANISM-TOO-LARGE"
