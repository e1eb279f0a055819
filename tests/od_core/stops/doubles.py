"""Noise sources for tests of trees; none of them protects anybody."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray


class Recorded:
    """Test double: Laplace noise from a seed, and a list of all that was asked for."""

    def __init__(self, seed: int = 0, *, width: float | None = None) -> None:
        """Of the asked scale or, if a width is given, of that one whatever is asked."""
        self._generator, self._width = np.random.default_rng(seed), width
        self.scales: list[Fraction] = []
        self.sizes: list[int] = []

    def draw(self, variance, level, first, size):
        raise NotImplementedError

    def draw_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        self.scales.append(scale)
        self.sizes.append(size)
        width = float(scale) if self._width is None else self._width
        if width == 0:
            return np.zeros(size, dtype=np.int64)
        stays = -math.expm1(-1 / width)
        return self._generator.geometric(stays, size) - self._generator.geometric(stays, size)
