"""The stability histogram (Bun, Nissim & Stemmer 2019; Boninsegna & Silvestri, Theorem 8; spec 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from od_core.mechanisms.mechanism import Measures
from od_core.mechanisms.paper import PaperMechanism


@dataclass(frozen=True)
class StabilityHistogram(PaperMechanism):
    """Discrete Laplace noise on the pairs of zones with trips, and a threshold that hides the rare ones.

    It never releases a pair without a true trip. Its promise is (epsilon, delta) and has no rho: delta is the chance
    that a pair which one unit alone uses comes out (``docs/stability-histogram.md``).
    """

    name: ClassVar[str] = "stability_histogram"
    measures: ClassVar[Measures] = "present_leaves"

    def project(
        self, noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The counts that reached the threshold, as they were measured."""
        return noisy
