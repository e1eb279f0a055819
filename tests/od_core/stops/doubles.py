"""Noise sources for tests of trees; none of them protects anybody."""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray


class Recorded:
    """Test double: Laplace noise from a seed, or listed values, and a record of all that was asked for."""

    def __init__(self, seed: int = 0, *, width: float | None = None, values: tuple[int, ...] = ()) -> None:
        """Of the asked scale or, if a width is given, of that one whatever is asked; or the values in turn."""
        self._generator, self._width, self._values = np.random.default_rng(seed), width, values
        self.draws: list[tuple[Fraction, int]] = []

    @property
    def scales(self) -> list[Fraction]:
        return [scale for scale, _ in self.draws]

    @property
    def sizes(self) -> list[int]:
        return [size for _, size in self.draws]

    def draw(self, variance, level, first, size):
        raise NotImplementedError

    def draw_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        self.draws.append((scale, size))
        width = float(scale) if self._width is None else self._width
        if self._values or width == 0:
            return np.resize(np.array(self._values or 0, dtype=np.int64), size)
        stays = -math.expm1(-1 / width)
        return self._generator.geometric(stays, size) - self._generator.geometric(stays, size)
