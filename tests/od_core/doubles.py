"""Noise sources for tests. None of them protects anybody; their noise is a function of level and position."""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from od_core import Budget, PrivacyUnit, release_flows


class SeededNoise:
    """Test double: rounded normal values of about the planned variance, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def draw(self, variance: Fraction, level: int, first: int, size: int) -> NDArray[np.int64]:
        values = np.random.default_rng([self.seed, level]).normal(0.0, float(variance) ** 0.5, first + size)
        return np.rint(values[first:]).astype(np.int64)


class ListedNoise:
    """Test double: the listed values in turn, whatever the variance."""

    def __init__(self, values: Sequence[int]) -> None:
        self.values = np.array(values, dtype=np.int64)

    def at(self, level: int, position: int) -> int:
        """The noise of one cell."""
        return int(self.values[(7 * level + position) % len(self.values)])

    def draw(self, variance: Fraction, level: int, first: int, size: int) -> NDArray[np.int64]:
        return self.values[(7 * level + first + np.arange(size)) % len(self.values)]


class ListedLaplace(ListedNoise):
    """Test double that gives the listed values, in turn, for Laplace noise of any scale as well."""

    def draw_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        return self.values[np.arange(size) % len(self.values)]


class SeededLaplace(SeededNoise):
    """Test double: discrete Laplace values of a generator, call after call; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.generator = np.random.default_rng(seed)

    def draw_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        stops = -math.expm1(-1 / float(scale))
        one, other = self.generator.geometric(stops, (2, size))
        return one - other


class PlacedLaplace(SeededLaplace):
    """Test double: noise in place of discrete Laplace values, which follows from the seed, the level and the cell."""

    def draw_laplace_at(self, scale: Fraction, level: int, first: int, size: int) -> NDArray[np.int64]:
        return self.draw(2 * scale**2, level, first, size)


def no_noise() -> ListedNoise:
    """Test double: zeros, so that what is released is the truth."""
    return ListedNoise([0])


class NoiseNotWanted:
    """Test double for calls that must be refused before anything is drawn."""

    def draw(self, variance: Fraction, level: int, first: int, size: int) -> NDArray[np.int64]:
        raise AssertionError("noise was drawn")


def usual_release(flows, geography, **changes):
    """Release trips at epsilon 1 with seeded noise, without records that have a fault; but for what is changed."""
    usual = {"unit": PrivacyUnit("trip"), "budget": Budget(1, "1e-8"), "noise": SeededNoise(1), "fault_threshold": 0}
    return release_flows(flows, geography, **usual | changes)


def released(world, order, neighbours, noise, mechanism="inftda_refined", **changes):
    """The release of a generated world with listed noise, or that of any source."""
    noise = ListedNoise(noise) if isinstance(noise, list) else noise
    given = {"unit": PrivacyUnit("trip", neighbours), "budget": Budget(rho=1, delta=1e-8), "mechanism": mechanism}
    given |= {"destination_geography": world.destination, "tree": order, "noise": noise}
    return usual_release(world.frame, world.origin, **given | changes)
