"""Provide noise that depends on the node alone, to compare releases that are cut in different ways.

It protects nobody: a release with it carries no guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

_STEPS = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""Constants of the generator splitmix64 (Steele, Lea and Flood 2014), which is used as a hash."""


@dataclass(frozen=True)
class NodeNoise:
    """Approximately normal noise of the planned variance that depends on the node alone, wherever the tree is cut.

    Attributes:
        seed: seed of the noise.
    """

    seed: int

    def draw(self, variance: Fraction, level: int, first: int, size: int) -> NDArray[np.int64]:
        """Return the noise of a measured root, the only node without a parent."""
        return self.draw_nodes(variance, level, np.arange(first, first + size))

    def draw_nodes(self, variance: Fraction, level: int, first_rank: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the noise of the nodes: the sum of the eight bytes of a hash, scaled.

        See :meth:`od_core.noise.backends.NodeNoiseSource.draw_nodes`.
        """
        start = (self.seed * 1_000_003 + level) * _STEPS[0] % (1 << 64)
        mixed = first_rank.astype(np.uint64) + np.uint64(start)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(_STEPS[1])
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(_STEPS[2])
        mixed ^= mixed >> np.uint64(31)
        total = mixed.view(np.uint8).reshape(-1, 8).sum(axis=1, dtype=np.int64)
        spread = float(variance) ** 0.5 / (8 * (2**16 - 1) / 12) ** 0.5
        noise: NDArray[np.int64] = np.rint((total - 4 * 255) * spread).astype(np.int64)
        return noise
