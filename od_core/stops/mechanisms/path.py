"""Account for the budget that is spent on a path from the root of a tree of boxes to a leaf."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from od_core.errors import STAYS_CHARGED, OdError
from od_core.noise.sources import LaplaceSource, checked_noise
from od_core.stops.geometry.grid import Counts

_BITS_OF_WEIGHT = 20
"""Number of bits after the binary point of the weights by which :func:`shares_below` splits the budget among depths.
Weights are rounded down to these bits, so that the shares are exact fractions."""


@dataclass(frozen=True, eq=False)
class Path:
    """An immutable account of the budget that is spent on a path from the root of a tree of boxes towards a leaf.

    The boxes of one depth are disjoint, so each trip is on one path only, and a release costs as much as one path.

    Attributes:
        source: source of the noise.
        sensitivity: largest total change of the counts of one depth if one trip is added or removed (1) or replaced
            (2).
        left: remaining epsilon.
        spent: spent epsilon.
    """

    source: LaplaceSource
    sensitivity: int
    left: Fraction
    spent: Fraction = Fraction(0)

    def measured(self, counts: Counts, epsilon: Fraction) -> tuple[Counts, Path]:
        """Return the counts of disjoint boxes plus discrete Laplace noise, and the path after it is charged.

        Args:
            counts: confidential counts; shape (boxes,).
            epsilon: the charge; the noise has scale sensitivity / epsilon.

        Raises:
            OdError: the charge is not above 0 or exceeds the remaining budget, or the noise source fails.
        """
        paid = self.charged(epsilon)
        noisy = self.noise(self.sensitivity / epsilon, len(counts))
        noisy += counts
        return noisy, paid

    def noise(self, scale: Fraction, size: int) -> Counts:
        """Return ``size`` draws of discrete Laplace noise. The caller charges them first, with :meth:`charged`.

        Raises:
            OdError: the noise source fails: it does not return ``size`` integers, or an integer is too large.
        """
        drawn = self.source.draw_laplace(scale, size) if size else np.zeros(0, dtype=np.int64)
        return checked_noise(self.source, drawn, size)

    def charged(self, epsilon: Fraction) -> Path:
        """Return a copy of the path with ``epsilon`` moved from the remaining to the spent budget.

        This method draws nothing. The caller draws the noise with :meth:`noise`.

        Raises:
            OdError: the charge is not above 0 or exceeds the remaining budget.
        """
        if not 0 < epsilon <= self.left:
            raise OdError(
                "OD-STOPS-CHARGE",
                f"a path needs epsilon {epsilon}, but {self.left} remains",
                next_step="report this defect",
                spent=STAYS_CHARGED,
            )
        return replace(self, left=self.left - epsilon, spent=self.spent + epsilon)


def shares_below(left: Fraction, root_parts: int, dimensions: int) -> list[Fraction]:
    """Split the budget below the root among the depths i = 1 to d in proportion to m0^(i / 3), and return the shares.

    Args:
        left: budget that remains below the root.
        root_parts: m0, the number of parts of the root.
        dimensions: d, the number of dimensions.

    References:
        [shaham2022stops, equation 32]
    """
    weights = [_cube_root(root_parts**depth << 3 * _BITS_OF_WEIGHT) for depth in range(1, dimensions + 1)]
    return [left * Fraction(weight, sum(weights)) for weight in weights]


def _cube_root(number: int) -> int:
    """Return the largest integer whose cube is at most this number."""
    root = 1 << -(-number.bit_length() // 3)  # at least the root; Newton's steps decrease from there
    while (lower := (2 * root + number // root**2) // 3) < root:
        root = lower
    return root
