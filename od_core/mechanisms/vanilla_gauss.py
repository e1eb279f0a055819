"""Discrete Gaussian noise on every public pair of zones (Boninsegna & Silvestri, section 5, "Baselines")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from od_core.mechanisms.mechanism import Measures
from od_core.mechanisms.paper import PaperMechanism

@dataclass(frozen=True)
class VanillaGauss(PaperMechanism):
    """The whole budget on the leaves, released as they were measured: unbiased, negative counts and all.

    Nothing is projected, so the table does not sum to n, and at level l the noise of all leaf pairs below a node adds
    up (Proposition 1).
    """

    name: ClassVar[str] = "vanilla_gauss"
    measures: ClassVar[Measures] = "all_leaves"
    most_pairs: ClassVar[int | None] = 50_000_000  # nearly every pair is in the table, and takes 16 bytes of memory

    def project(
        self, noisy: NDArray[np.int64], totals: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The measured counts themselves."""
        return noisy
