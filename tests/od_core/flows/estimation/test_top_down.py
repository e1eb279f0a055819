"""The top-down pass against a second InfTDA written as dictionaries, with the same noise injected into both."""

from fractions import Fraction

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import Budget, InfTDA, OdError
from od_core.flows.projection.onto_parents import ORDERS
from tests.od_core.doubles import ListedNoise, released
from tests.od_core.oracles.inftda import inftda
from tests.od_core.oracles.refinement import estimates, first_pass
from tests.od_core.strategies import TREES, noises, worlds

RELATIONS = ("bounded", "unbounded")
BUDGET = Budget(rho=Fraction(1, 2), delta=1e-8)
GIVEN = {"world": worlds(), "order": st.sampled_from(TREES), "neighbours": st.sampled_from(RELATIONS)}


def released_by(walk, world, order, neighbours, noise, budget=BUDGET):
    return released(world, order, neighbours, noise, InfTDA(order=walk), budget=budget)


def rows(nodes) -> list[tuple[int, int, int]]:
    return list(zip(nodes.origin.tolist(), nodes.destination.tolist(), nodes.trips.tolist(), strict=True))


def levels_of(release) -> list:
    """Released nodes of levels 0 to T: those above each measurement, and the leaves."""
    return [m.parents for m in release.measured if m.step.level > 0] + [release.leaves]


@given(**GIVEN, walk=st.sampled_from(ORDERS), values=noises())
def test_the_same_noise_gives_the_release_of_the_reference(world, order, neighbours, walk, values):
    """Measured values, their order, and the released nodes of every level are identical.

    If a total is 0, or its noisy value is below, nothing below the root is measured; the charge stands.
    """
    noise = ListedNoise(values)
    release = released_by(walk, world, order, neighbours, noise)
    assert release.spent.rho == Fraction(1, 2)
    tree, reference = world.trees(order)
    expected = inftda(reference, world.flows, noise.at, total_is_public=neighbours == "bounded", order=walk)

    assert [m.step.level for m in release.measured] == sorted(expected.noisy)
    for measurement in release.measured:
        level = measurement.step.level
        noisy = expected.noisy[level]
        assert measurement.noisy.read_values().tolist() == list(noisy.values())
        nodes, pieces = world.nodes(tree, level, list(noisy)), list(measurement.iterate_pieces(release.plan))
        assert [area for cells, _ in pieces for area in cells.origin.tolist()] == nodes.origin.tolist()
        assert [area for cells, _ in pieces for area in cells.destination.tolist()] == nodes.destination.tolist()
        assert [value for _, values in pieces for value in values.tolist()] == list(noisy.values())
    for level, (nodes, reference_nodes) in enumerate(zip(levels_of(release), expected.nodes, strict=True)):
        positive = {node: trips for node, trips in reference_nodes.items() if trips > 0}
        assert rows(nodes) == rows(world.nodes(tree, level, list(positive), list(positive.values())))


@given(**GIVEN, walk=st.sampled_from(ORDERS), values=noises(reach=40))
def test_levels_that_geography_shares_leave_out_are_not_measured(world, order, neighbours, walk, values):
    """Measured levels, cells by their codes, noisy values and released flows are those of the reference."""
    noise, budget = ListedNoise(values), Budget(rho=Fraction(1, 2), delta=1e-8, shares="geography")
    release = released_by(walk, world, order, neighbours, noise, budget)
    _, reference = world.trees(order)
    variances = {step.level: step.variance for step in release.plan.steps}
    given = {"total_is_public": neighbours == "bounded", "keeps_all": False, "order": walk}
    queries = first_pass(reference, world.flows, lambda _, level, k: noise.at(level, k), variances, **given)
    expected = [
        (query.level, *(area[-1] if area else "all" for area in node), value, pytest.approx(float(query.variance)))
        for query in queries
        for node, value in query.noisy.items()
    ]
    table = release.measurements
    assert list(table.itertuples(index=False, name=None)) == expected
    assert list(table.columns) == ["level", "origin", "destination", "noisy", "variance"]
    assert [str(kind) for kind in table.dtypes] == ["int64", "str", "str", "int64", "float64"]
    for level, own in table.groupby("level"):
        pd.testing.assert_frame_equal(release.measurements_at(level), own.reset_index(drop=True))
        assert all(Fraction(variance) >= variances[level] for variance in own["variance"])
    leaves = estimates(queries, sum(world.flows.values()), walk)
    codes = {(o[-1], d[-1]): trips for (o, d), trips in leaves.items() if trips > 0}
    assert {(o, d): trips for o, d, trips in release.flows.itertuples(index=False)} == codes
    assert release.spent.rho == Fraction(1, 2)
    for level in release.plan.unmeasured_levels:
        with pytest.raises(OdError, match="OD-LEVEL-UNMEASURED"):
            release.measurements_at(level)
