"""What a path from the root of a tree of boxes to a leaf costs: every draw is charged where it is made (spec 5)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from od_core.errors import OdError
from od_core.noise.sources import LaplaceSource, checked_noise
from od_core.stops.geometry.grid import Counts


@dataclass(frozen=True, eq=False)
class Path:
    """A path on its way down: what it has spent, and what it has left.

    Boxes of one depth are disjoint, so that a trip is on one path alone: what a release costs is what one path costs.

    Attributes:
        source: where the noise comes from.
        sensitivity: what a trip changes the counts of one depth by, in sum: 1, or 2 where it may be replaced.
        left: epsilon that may still be spent.
        spent: epsilon that was spent.
    """

    source: LaplaceSource
    sensitivity: int
    left: Fraction
    spent: Fraction = Fraction(0)

    def measured(self, counts: Counts, epsilon: Fraction) -> tuple[Counts, Path]:
        """Counts of disjoint boxes plus discrete Laplace noise, and the path that has paid for it.

        Args:
            counts: confidential; shape (boxes,).
            epsilon: the charge; the noise has scale sensitivity / epsilon.

        Raises:
            OdError: more than the path has left; a noise source that does not keep its contract.
        """
        paid = self.charged(epsilon)
        noisy = self.noise(self.sensitivity / epsilon, len(counts))
        noisy += counts
        return noisy, paid

    def noise(self, scale: Fraction, size: int) -> Counts:
        """Noise alone, for counts or for a selection that was :meth:`charged`; shape (size,). Raises OdError."""
        drawn = self.source.draw_laplace(scale, size) if size else np.zeros(0, dtype=np.int64)
        return checked_noise(self.source, drawn, size)

    def charged(self, epsilon: Fraction) -> Path:
        """The path that has paid for a selection, drawn by whoever calls this. Raises OdError as :meth:`measured`."""
        if not 0 < epsilon <= self.left:
            raise OdError(
                "OD-STOPS-CHARGE",
                f"a path is asked for epsilon {epsilon} and has {self.left} left",
                next_step="report this defect",
                spent="what was set aside before stays charged",
            )
        return replace(self, left=self.left - epsilon, spent=self.spent + epsilon)
