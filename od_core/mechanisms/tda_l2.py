"""The top-down pass with Euclidean projection (Boninsegna & Silvestri, section 5, "Baselines")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from od_core.mechanisms.paper import PaperMechanism
from od_core.projection.euclidean import project_children_euclidean


@dataclass(frozen=True)
class TDAL2(PaperMechanism):
    """InfTDA's pass with another objective: the least sum of squares, then whole numbers by controlled rounding.

    The TopDown algorithm of the United States' census differs in its weights, by inverse variance, which cancel where
    all children of a node have equal noise, and in a second optimisation for the rounding (spec 2).
    """

    name: ClassVar[str] = "tda_l2"

    def project(
        self, noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Simplex projection for every parent, rounded."""
        return project_children_euclidean(noisy, totals, offsets)
