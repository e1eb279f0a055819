"""Charge the budget of a path from the root of a tree of boxes to a leaf, at each draw on the path."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from od_core.errors import STAYS_CHARGED, OdError
from od_core.noise.sources import LaplaceSource, checked_noise
from od_core.stops.geometry.grid import Counts


@dataclass(frozen=True, eq=False)
class Path:
    """A path down a tree, with its spent and remaining budget.

    Boxes of one depth are disjoint, so each trip is on one path only, and a release costs as much as one path.

    Attributes:
        source: source of the noise.
        sensitivity: largest total change of the counts of one depth by a trip: 1, or 2 if it may be replaced.
        left: remaining epsilon.
        spent: spent epsilon.
    """

    source: LaplaceSource
    sensitivity: int
    left: Fraction
    spent: Fraction = Fraction(0)

    def measured(self, counts: Counts, epsilon: Fraction) -> tuple[Counts, Path]:
        """Add discrete Laplace noise to the counts of disjoint boxes, and return them with the charged path.

        Args:
            counts: confidential counts; shape (boxes,).
            epsilon: the charge; the noise has scale sensitivity / epsilon.

        Raises:
            OdError: The charge is not above 0 or exceeds the remaining budget, or the noise source breaks its contract.
        """
        paid = self.charged(epsilon)
        noisy = self.noise(self.sensitivity / epsilon, len(counts))
        noisy += counts
        return noisy, paid

    def noise(self, scale: Fraction, size: int) -> Counts:
        """Draw noise for counts or for a selection that was :meth:`charged`; shape (size,).

        Raises:
            OdError: The noise source breaks its contract.
        """
        drawn = self.source.draw_laplace(scale, size) if size else np.zeros(0, dtype=np.int64)
        return checked_noise(self.source, drawn, size)

    def charged(self, epsilon: Fraction) -> Path:
        """Return the path after a charge for a selection, which the caller draws.

        Raises:
            OdError: The charge is not above 0 or exceeds the remaining budget.
        """
        if not 0 < epsilon <= self.left:
            raise OdError(
                "OD-STOPS-CHARGE",
                f"a path needs epsilon {epsilon}, but {self.left} remains",
                next_step="report this defect",
                spent=STAYS_CHARGED,
            )
        return replace(self, left=self.left - epsilon, spent=self.spent + epsilon)
