"""The trips of dropped nodes by exact enumeration of the noise, and over random families with the library's own."""

import math

import numpy as np
import pytest

from od_core.flows.estimation.fitted_tree import estimate_dropped_trips
from od_core.flows.estimation.least_squares import FittedLevel
from od_core.geography.flow_tree import Pairs
from tests.statistical.laws import probabilities


def level_of(noisy, kept, offsets, noise) -> FittedLevel:
    """A level of which the kept nodes are divided; what is fitted does not matter here."""
    values, areas = np.asarray(noisy, dtype=np.float64), np.zeros(len(noisy), dtype=np.int32)
    same, parents = np.full(len(values), float(noise)), np.ones(len(offsets) - 1)
    offsets, divided = np.asarray(offsets, dtype=np.int64), np.flatnonzero(kept)
    own = (divided, values, float(noise), same, parents, values, same, values)
    return FittedLevel(Pairs(1, areas, areas), offsets, *own)


def without_density(level: FittedLevel):
    """The noisy values of the dropped nodes alone: a wrong answer, that the tests must reject."""
    kept = np.isin(np.arange(len(level.nodes)), level.divided)
    return np.where(kept, 0.0, level.noisy), np.where(kept, 0.0, level.noise)


def expected(variance: float, least: int, answer) -> np.ndarray:
    """Mean error in standard deviations, and true over stated variance, of a node in a family of threshold 0.

    For every true count from ``least`` up, by the law of its noise. The other node of each family has the threshold
    itself for its noisy value, so that it is known.
    """
    values, chances = probabilities(variance)
    noise, chances = values[chances > 1e-18], chances[chances > 1e-18]
    errors = []
    for trips in range(least, math.ceil(6 * variance**0.5) + 3):
        x = trips + noise
        family = np.column_stack([np.zeros(len(x)), x]).ravel()
        kept = family > 0
        trips_of, doubt = answer(level_of(family, kept, np.arange(0, len(family) + 1, 2), variance))
        error = trips_of[1::2] - np.where(x <= 0, trips, 0)
        mean = float(chances @ error)
        stated = float(chances @ doubt[1::2])
        true = float(chances @ error**2) - mean**2
        errors.append((mean / variance**0.5, true / max(stated, 1e-9 * variance), stated / variance))
    return np.array(errors)


@pytest.mark.parametrize("variance", [0.3, 1.0, 2.0, 9.0, 30.3, 100.0, 900.0])
def test_a_node_counts_for_its_trips_where_it_is_dropped_and_for_nothing_where_it_is_kept(variance):
    """Exactly, for every true count: within a fiftieth of a standard deviation, a hundredth where it is at least 1.4.

    Counts below 0 stand for thresholds above 0. The stated variance is right within a factor of 2 wherever there is any
    to speak of. Without the density the mean is off by a quarter or more of a deviation.
    """
    least = -math.ceil(6 * variance**0.5) - 2
    found = expected(variance, least, estimate_dropped_trips)
    assert np.abs(found[:, 0]).max() <= (0.02 if variance < 2 else 0.01)
    assert found[found[:, 2] > 0.01, 1].max() <= 2
    assert np.abs(expected(variance, least, without_density)[:, 0]).max() > 0.25


def test_by_hand():
    """Variance 4, so one to either side. In the first family 3 is dropped: 4 is near, 2 and 5 are in the ring beyond.

    In the second none is: around 6, 7 is near and 8 in the ring. Each near value counts for 7/6 of 4 / 2, each in the
    ring for -1/6 of it.
    """
    noisy, kept = [3, 4, 5, 2, -40, 30, 7, 8, 20], [0, 1, 1, 0, 0, 1, 1, 1, 1]
    trips, doubt = estimate_dropped_trips(level_of(noisy, np.array(kept, dtype=bool), [0, 6, 9], 4.0))
    near, ring = 7 / 3, -1 / 3
    assert trips.tolist() == pytest.approx([3 + near, near, ring, 2 + ring, -40, 0, near, ring, 0])
    assert doubt.tolist() == pytest.approx([4 + near**2, near**2, ring**2, 4 + ring**2, 4, 0, near**2, ring**2, 0])


def test_a_dropped_root_counts_for_its_noisy_value():
    """No family, no threshold."""
    level = level_of([-3], np.array([False]), [0], 4.0)
    assert [column.tolist() for column in estimate_dropped_trips(level)] == [[-3.0], [4.0]]
