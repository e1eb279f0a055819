"""The mechanism that is chosen by public numbers, where single runs differ much or take long: seeded noise."""

import pytest

from benchmarks.synthetic_groups import departures, households, taxis
from od_core.evaluation.known_flows import SEED
from od_core.noise.backends import resolve_noise_source
from tests.od_core.doubles import SeededLaplace
from tests.od_core.group_sizes.test_chosen import BOUNDED, FLIGHTS, UNBOUNDED, to_the_best


@pytest.mark.parametrize("unit", [UNBOUNDED, BOUNDED], ids=["unbounded", "bounded"])
@pytest.mark.parametrize("epsilon", ["1", "0.1"])
@pytest.mark.parametrize("month", ["2001-01", "2001-06"])
def test_the_choice_is_near_the_best_on_the_flights(month, epsilon, unit):
    """At most 1.15 times the best published mechanism at every level.

    It is at most 0.90 (ten runs); a ratio of three runs each varies by 0.04, so that mistakes are rarer than 1e-6.
    """
    assert (
        max(to_the_best(departures(FLIGHTS, month), epsilon, unit, lambda: [resolve_noise_source("table")] * 3)) <= 1.15
    )


@pytest.mark.parametrize("epsilon", ["1", "0.1"])
def test_the_choice_is_near_the_best_on_the_households(epsilon):
    """At most 1.15 times the best published mechanism at every level; at epsilon 1 no published one is that."""
    ratios = to_the_best(households(SEED), epsilon, UNBOUNDED, lambda: [SeededLaplace(seed) for seed in range(2)])
    assert max(ratios) <= 1.15, ratios


def test_the_choice_is_near_the_best_on_the_taxis():
    assert max(to_the_best(taxis(SEED), "0.1", UNBOUNDED, lambda: [SeededLaplace(1)])) <= 1.15
