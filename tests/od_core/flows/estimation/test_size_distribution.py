"""The distributions of the true trips of nodes: what they recover, and that no node predicts itself."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from od_core.flows.estimation import size_distribution
from od_core.flows.estimation.families import families_of
from od_core.flows.estimation.least_squares import FittedLevel, MeasuredLevel, fit
from od_core.flows.estimation.size_distribution import SizeDistribution, component_of
from od_core.geography.flow_tree import Pairs
from tests.od_core.doubles import SeededNoise
from tests.od_core.flows.estimation.test_posterior_tree import release_of

FIELDS = ("nodes", "offsets", "divided", "noisy", "noise")


def measured(level: FittedLevel, **changes: object) -> MeasuredLevel:
    return MeasuredLevel(**({name: getattr(level, name) for name in FIELDS} | changes))


def test_the_parent_is_estimated_without_the_node() -> None:
    """As if the node had not been measured: its noisy value changes nothing, by least squares over all levels."""
    release = release_of()
    levels = release.fitted_levels()
    for at in (2, len(levels) - 1):
        level, families = levels[at], list(families_of(release.plan, levels))[at - 1]
        found = size_distribution._parents_without(level, families)
        for node in (0, len(level.nodes) // 2, len(level.nodes) - 1):
            noisy = level.noisy.copy()
            noisy[node] += 1_000
            moved = fit([measured(one, noisy=noisy) if one is level else measured(one) for one in levels])
            again = list(families_of(release.plan, moved))[at - 1]
            assert size_distribution._parents_without(moved[at], again)[node] == pytest.approx(found[node], abs=1e-6)
            family = np.searchsorted(level.offsets, node, side="right") - 1
            assert abs(again.parent_h[family] - families.parent_h[family]) > 1e-3  # the node does count otherwise


@pytest.mark.parametrize("variance", [2, 90, 2000])
def test_the_weights_of_no_trips_and_of_large_flows_are_recovered(variance: int) -> None:
    """Of 40,000 nodes, 70 % without trips and 30 % uniform in an interval of the mixture, far above the noise."""
    random, nodes, sigma = np.random.default_rng(variance), 40_000, variance**0.5
    interval = range(128 * max(1, int(sigma) // 8), 256 * max(1, int(sigma) // 8))
    truth = np.where(random.random(nodes) < 0.7, 0, random.integers(interval.start, interval.stop, nodes))
    noisy = truth + SeededNoise(variance).draw(Fraction(variance), 1, 0, nodes)
    found = alone(noisy.astype(float), float(variance))
    assert sum(density_at(found, n) for n in interval) == pytest.approx(0.3, abs=0.02)
    few = range(int(sigma) + 1)  # the smallest flows cannot be told from none
    assert sum(density_at(found, n) for n in few) == pytest.approx(0.7, abs=0.02)
    assert sum(density_at(found, n) for n in range(2 * int(found.first[-1]))) == pytest.approx(1, abs=1e-6)


def density_at(found: SizeDistribution, trips: int) -> float:
    return float(found.density[0, component_of(trips, found.first)])


def alone(noisy: np.ndarray, variance: float, parents: tuple[float, ...] = (0.0,)) -> SizeDistribution:
    """The distributions of families of equal size and with equal shares, given the estimates of their parents."""
    release = release_of()
    level, families = release.fitted_levels()[-1], list(families_of(release.plan, release.fitted_levels()))[-1]
    nodes, equal = len(noisy), np.full(len(noisy), variance)
    size = nodes // len(parents)
    own = replace(
        level,
        nodes=Pairs(1, np.arange(nodes, dtype=np.int32), np.arange(nodes, dtype=np.int32)),
        **{"noisy": noisy, "noise": variance, "own": equal, "estimate": noisy, "variance": equal / 2},
    )
    family = replace(
        families,
        **{
            "offsets": np.arange(0, nodes + 1, size),
            "h": noisy,
            "v": equal,
            "siblings": np.full(len(parents), size * variance),
            "parent_h": np.array(parents),
            "parent_variance": np.zeros(len(parents)),
            "sigma": variance**0.5,
        },
    )
    return size_distribution.size_distribution(own, family, np.full(nodes, 1 / size))


def test_nodes_that_are_predicted_to_be_larger_have_a_distribution_of_their_own() -> None:
    """Of 40 families with predictions from 1 to 4,000 trips a node, whose nodes have trips only if that is 500."""
    size, variance = 500, 90
    predicted = np.repeat([1.0, 8.0, 60.0, 500.0, 4_000.0], 8)
    truth = np.repeat(np.where(predicted == 500, 500, 0), size)
    noisy = truth + SeededNoise(1).draw(Fraction(variance), 1, 0, len(truth))
    found = alone(noisy.astype(float), float(variance), tuple(size * predicted))
    none = found.density[found.group_of, 0][::size]
    assert (none[predicted < 60] > 0.9).all()
    assert (none[predicted == 500] < 0.7).all()  # estimated with the groups beside it


def test_a_small_level_has_no_distribution() -> None:
    release = release_of()
    levels = release.fitted_levels()
    families = list(families_of(release.plan, levels))
    found = size_distribution.size_distribution(levels[1], families[0], np.full(len(levels[1].nodes), 0.1))
    assert found.density.tolist() == [[1.0]]
    assert {component_of(trips, found.first) for trips in (0, 1, 10**9)} == {0}
